#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the shared library's binary interface with that of an earlier commit: a program that was linked
# to the one must run with the other for as long as their SONAME is the same.
#
# Usage: tests/matrix/abi.sh [REVISION]     the last tag if none is given
#
# Exit status 77: there is no earlier release, or abidiff cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."

old=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [[ -z $old ]]; then
  echo "abi.sh: NOT RUN: there is no release to compare with" >&2
  exit 77
fi
if ! command -v abidiff >/dev/null; then
  { [[ $(id -u) == 0 ]] && apt-get install -qq -y abigail-tools >/dev/null 2>&1 </dev/null; } || {
    echo "abi.sh: NOT RUN: abidiff cannot be had here" >&2
    exit 77
  }
fi

work=$PWD/build/abi
rm -rf "$work/tree"
mkdir -p "$work/tree"
git archive "$old" | tar -x -C "$work/tree"
make_library() {  # SOURCE BUILD
  {
    cmake -S "$1" -B "$2" -G Ninja -DBUILD_SHARED_LIBS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRLOCK_UNITY_BUILD=ON \
      "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g -DNDEBUG" -DRLOCK_BUILD_TESTS=OFF -DRLOCK_BUILD_EXAMPLES=OFF \
      -DRLOCK_BUILD_CLI=OFF -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" &&
      cmake --build "$2" --target rlock
  } >"$2.log" 2>&1 || {
    tail -n 30 "$2.log"
    exit 1
  }
}
make_library "$work/tree" "$work/old"
make_library . "$work/new"

soname() { readelf -d "$1/librlock.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p'; }
status=0
abidiff --headers-dir1 "$work/tree/include/rlock" --headers-dir2 include/rlock --drop-private-types --no-added-syms \
  "$work/old/librlock.so" "$work/new/librlock.so" >"$work/report.txt" || status=$?
if ((status & 3)); then
  cat "$work/report.txt" >&2
  exit 1
fi
if ((status & 12)) && [[ $(soname "$work/old") == "$(soname "$work/new")" ]]; then
  head -n 60 "$work/report.txt"
  echo "abi.sh: the interface has changed since $old, and the SONAME has not: $(soname "$work/new")" >&2
  exit 1
fi
echo "abi.sh: $(soname "$work/old") at $old, $(soname "$work/new") now: compatible, or told apart"
