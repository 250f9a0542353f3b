#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tells soon whether another system's compiler and libraries will do: the headers one by one, the unit tests,
# the demonstration. Run by hand, or inside another system by debian.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."

export RLOCK_PRESET=dev
if ! bash cmake/install_packages.sh build test; then
  # Where the lists of packages can be had, a package that cannot is what this is to find.
  if apt-get update -qq -o APT::Update::Error-Mode=any >/dev/null 2>&1 </dev/null; then
    echo "quick.sh: what rlock needs cannot be installed here" >&2
    exit 1
  fi
  echo "quick.sh: NOT RUN: the packages cannot be had here" >&2
  exit 77
fi
mkdir -p build/dev
{
  # Without optimisation, which this is not about; a source that forgets a standard header is found here.
  cmake --preset dev -DRLOCK_WERROR=ON -DRLOCK_PRECOMPILED_HEADERS=OFF -DCMAKE_CXX_FLAGS_DEBUG= &&
    cmake --build --preset dev -j "$(nproc)" --target rlock all_verify_interface_header_sets unit
} >build/dev/quick.log 2>&1 || {
  grep -nE 'error:|Error|FAILED' build/dev/quick.log | head -20
  tail -n 40 build/dev/quick.log
  exit 1
}
examples/run.sh | tail -n 3
ctest --test-dir build/dev -R '^unit\.' -j "$(nproc)" --no-tests=error --output-on-failure | tail -n 12
