#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The pairs of calls that most easily go wrong, 100,000 times each: a grant and closing, a forced release and
# a re-entry, a release and a renewal, a cancellation and a grant, the end of a thread and a grant.
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
pairs=Races.GrantingAndClosing:Races.ForcedReleaseAndReentry:Races.ReleaseAndRenewal
pairs+=:Races.CancellingAndGranting:Races.TheEndOfAThreadAndGranting
RLOCK_RACE_ROUNDS=${1:-100000} "build/$preset/tests/races" --gtest_filter="$pairs" --gtest_brief=0
