#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy on the library and the command line, with the checks of .clang-tidy.
#
# Usage: tests/matrix/analyzer.sh [--checks-only]
#
#   --checks-only   without clang's static analyzer, the library's sources joined as the build joins them:
#                   a few minutes instead of twenty
set -euo pipefail
cd "$(dirname "$0")/../.."

joined=OFF
options=()
if [[ ${1:-} == --checks-only ]]; then
  joined=ON
  options+=(--checks=-clang-analyzer-*,-bugprone-suspicious-include)
fi

# Clang does not know GCC's precompiled headers, and wants a command for each source. The generated files are
# in build/ci, if that is there.
cmake --preset ci -B build/tidy -DRLOCK_PRECOMPILED_HEADERS=OFF -DRLOCK_UNITY_BUILD=$joined >/dev/null
if [[ -d build/ci/generated ]]; then
  { printf '%s\0' build/tidy/compile_commands.json && find build/tidy -name '*.cxx' -path '*/Unity/*' -print0; } |
    xargs -0 sed -i 's#build/tidy/generated#build/ci/generated#g'
fi

# tls_absent.cpp belongs to builds without TLS.
if [[ $joined == ON ]]; then
  { find build/tidy/CMakeFiles -name '*.cxx' -path '*/Unity/*' -print0 &&
    git ls-files -z 'src/cli/*.cpp'; }
else
  git ls-files -z 'src/*.cpp' ':!src/net/tls_absent.cpp'
fi | xargs -0 -r -n 1 -P "$(nproc)" \
  clang-tidy -p build/tidy --quiet "${options[@]}" --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-error
