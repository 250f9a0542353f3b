#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Executes the vcpkg port, static with TLS and shared without, and uses what it has installed as its text "usage" says.
# vcpkg itself, which is no package of a distribution, is not had: vcpkg.cmake stands in for its functions, with the
# libraries of this system.
#
# Usage: tests/matrix/vcpkg.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$PWD/build/vcpkg
port=$PWD/cmake/packaging/vcpkg

fail() {
  echo "vcpkg.sh: $*" >&2
  exit 1
}

use_port() {  # LINKAGE FEATURE...
  local linkage=$1 packages=$work/$1/packages log=$work/$1.log
  shift
  rm -rf "${work:?}/$linkage"
  mkdir -p "$work/$linkage"
  local features
  features=$(IFS=';' && echo "$*")
  cmake "-DPORT_DIR=$port" "-DCURRENT_BUILDTREES_DIR=$work/$linkage/trees" "-DCURRENT_PACKAGES_DIR=$packages" \
    "-DVCPKG_LIBRARY_LINKAGE=$linkage" "-DFEATURES=$features" -P tests/matrix/vcpkg.cmake >"$log" 2>&1 || {
    tail -n 40 "$log"
    fail "the port cannot be built, $linkage"
  }

  # The checks that vcpkg makes after a port.
  [[ ! -e $packages/debug/include && ! -e $packages/debug/share ]] || fail "debug/ has more than libraries"
  [[ -s $packages/share/rlock/copyright && -s $packages/share/rlock/usage ]] || fail "copyright or usage is missing"
  [[ -z $(find "$packages" -type d -empty) ]] || fail "empty: $(find "$packages" -type d -empty)"
  ! grep -rlF "$work" "$packages/share" "$packages"/lib/pkgconfig || fail "these files know where they were built"

  # The two lines of its text, in a project.
  local consumer=$work/$linkage/consumer
  mkdir -p "$consumer"
  {
    printf 'cmake_minimum_required(VERSION 3.25)\nproject(main LANGUAGES CXX)\n'
    printf 'add_executable(main %s %s)\n' "$PWD/tests/package/common/main.cpp" "$PWD/tests/package/common/second.cpp"
    sed -n 's/^    //p' "$port/usage"
  } >"$consumer/CMakeLists.txt"
  local type
  for type in Release Debug; do
    cmake -S "$consumer" -B "$consumer/$type" -G Ninja "-DCMAKE_BUILD_TYPE=$type" "-DCMAKE_PREFIX_PATH=$packages" \
      >>"$log" 2>&1 && cmake --build "$consumer/$type" >>"$log" 2>&1 || {
      tail -n 40 "$log"
      fail "what the port has installed cannot be used, $linkage, $type"
    }
    tests/with_redis.sh "$consumer/$type/main"
  done
  echo "$linkage${1:+ with $*}: built, installed and used"
}

use_port static tls
use_port dynamic
