#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of all locks on other servers than a plain one for each test: behind Sentinels, on a cluster,
# encrypted, and with no more rights than docs/configuration.md gives. A test that is about one server is
# skipped there and says why. A test that failed runs once more, alone, by the rule of tests/run.sh.
#
# Usage: tests/matrix/topologies.sh [TOPOLOGY...]
#
# Topologies: sentinel, cluster, tls, acl (default: all of them)
#
# Environment:
#   RLOCK_PRESET    preset of CMakePresets.json to build (default release)
#   RLOCK_TEST_JOBS   processes at a time (6); each has servers of its own
#   RLOCK_FILTER    which tests, as for --gtest_filter (default: all)
#   RLOCK_PROGRAMS  which of the programs lock_integration and outcome (default: both)
set -euo pipefail
case ${1:-} in
  -h | --help)
    sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/../.."
. tests/once_more.sh

preset=${RLOCK_PRESET:-release}
jobs=${RLOCK_TEST_JOBS:-6}
RLOCK_PRESET=$preset RLOCK_BUILD_ONLY=1 tests/run.sh
logs=build/$preset/topologies
mkdir -p "$logs"
export RLOCK_TEST_REQUIRE_REDIS=1
watch_host "build/$preset/tests/rlock_host_watch" "$PWD/$logs/host.log"
# As patterns: a case has parameters around the name that the list has.
timing=$(sed -nE '/^set\(RLOCK_TIMING_lock_integration/,/\)/s/^  ([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)\)?$/(^|\/)\1[.]\2(\/|$)/p' \
  tests/timing_tests.cmake)

# Runs the tests of one program on one topology in several processes; prints what failed and how many were
# skipped.
run() {  # TOPOLOGY PROGRAM
  local topology=$1 program=$2 status=0 shard pids=() pid
  local log=$logs/$topology.$program
  rm -f "$log".*
  for ((shard = 0; shard < jobs; ++shard)); do
    RLOCK_TEST_TOPOLOGY=$topology GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$shard \
      "build/$preset/tests/$program" --gtest_filter="${RLOCK_FILTER:-*}" \
      >"$log.$shard" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || status=1
  done
  if ((status != 0)); then
    local failed verdicts
    failed=$(sed -nE 's/^\[  FAILED  \] ([^ ,]+)(,.*)? \([0-9]+ ms\)$/\1/p' "$log".[0-9]* | sort -u)
    grep -LE '^\[  (PASSED|FAILED)  \] [0-9]+ test' "$log".[0-9]* |
      sed 's/$/: did not come to an end/' && return 1
    verdicts=$(awk -v cases=1 -f tests/once_more.awk "$log".[0-9]*)
    may_run_once_more "$failed" "$verdicts" "$(grep -E "$timing" <<<"$failed")" >/dev/null || {
      grep -hE '^\[  FAILED  \] .*ms\)$|Failure$' "$log".[0-9]*
      return 1
    }
    RLOCK_TEST_TOPOLOGY=$topology "build/$preset/tests/$program" --gtest_filter="${failed//$'\n'/:}" \
      >"$log.again" 2>&1 || {
      grep -E '^\[  FAILED  \] .*ms\)$|Failure$' "$log.again"
      return 1
    }
    echo "$topology, $program: only at the second attempt, alone: ${failed//$'\n'/ }"
  fi
  awk -v name="$topology, $program" '/^\[==========\] .* ran\./ { cases += $2 }
    /^\[  SKIPPED \] [0-9]+ tests?, listed below/ { skipped += $4 }
    END { printf "%s: passed, %d cases, %d of them skipped there:\n", name, cases, skipped }' "$log".[0-9]*
  sed -nE 's/^RLOCK_TEST_TOPOLOGY=[a-z]+: (.*)$/  \1/p' "$log".[0-9]* | sort | uniq -c | sort -rn
}

failed=()
topologies=("$@")
if ((${#topologies[@]} == 0)); then
  topologies=(sentinel cluster tls acl)
fi
read -ra programs <<<"${RLOCK_PROGRAMS:-lock_integration outcome}"
for topology in "${topologies[@]}"; do
  for program in "${programs[@]}"; do
    run "$topology" "$program" || failed+=("$topology, $program;")
  done
done
if ((${#failed[@]} > 0)); then
  echo "topologies.sh: failed: ${failed[*]}; see $logs"
  exit 1
fi
