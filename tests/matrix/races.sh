#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every test of tests/races, 100,000 rounds each: two or three calls that meet, and the threads of a connection.
#
# Usage: tests/matrix/races.sh [ROUNDS]
#
# Environment: RLOCK_PRESET (release), RLOCK_RACE_SEED as in tests/races/races_test.cpp
set -euo pipefail
cd "$(dirname "$0")/../.."

preset=${RLOCK_PRESET:-release}
if [[ ! -x build/$preset/tests/races ]]; then
  RLOCK_PRESET=$preset RLOCK_BUILD_ONLY=1 tests/run.sh
fi
RLOCK_RACE_ROUNDS=${1:-100000} "build/$preset/tests/races" --gtest_brief=0
