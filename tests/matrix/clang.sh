#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the library, its headers one by one, and the examples with Clang, warnings being errors.
#
# Usage: tests/matrix/clang.sh VERSION...
#
# Debian 12 has Clang 14. With its libstdc++ Clang 19 warns of std::stable_sort's own code, so that one
# is for Debian 13: tests/matrix/debian.sh trixie tests/matrix/clang.sh 19
set -euo pipefail
cd "$(dirname "$0")/../.."

bash cmake/install_packages.sh build
for version in "$@"; do
  if ! command -v "clang++-$version" >/dev/null; then
    apt-get install -qq -y --no-install-recommends "clang-$version" >/dev/null </dev/null
  fi
  build=build/clang-$version
  cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="clang++-$version" -DCMAKE_BUILD_TYPE=Debug \
    -DRLOCK_WERROR=ON -DRLOCK_PRECOMPILED_HEADERS=OFF -DRLOCK_BUILD_TESTS=OFF \
    -DRLOCK_BUILD_EXAMPLES=ON >/dev/null
  cmake --build "$build" -j "$(nproc)" --target all all_verify_interface_header_sets >"$build/build.log" 2>&1 || {
    grep -E 'error:' "$build/build.log" | head -20
    echo "clang.sh: failed with Clang $version; see $build/build.log"
    exit 1
  }
  echo "Clang $version: no warning"
done
