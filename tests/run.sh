#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs the tests.
#
# Usage: tests/run.sh [--repeat N] [LABEL...]
#
#   tests/run.sh                  everything but what is labelled interop
#   tests/run.sh unit package     only tests with one of these labels, and not what is slow
#   tests/run.sh slow             only what is slow
#   tests/run.sh interop          rlock beside Redisson itself; needs Java, Maven, and once Maven Central
#   tests/run.sh --repeat 20      N times in a row after one build, until a round fails; a line for each
#   tests/run.sh matrix           other systems, servers and compilers, see tests/matrix; takes hours, needs root
#
# Labels: unit, integration, tls, cluster, sentinel, topology, simulation, races, support, example, package, slow,
# interop, timing, ...
#
# Failed tests run once more, alone, and are printed, if each of them is labelled timing
# (tests/timing_tests.cmake says what that means; at most 5 of these) or the host was seen to stand still
# while it ran (at most 40 in all), and none of them checks safety.
#
# Environment:
#   RLOCK_PRESET    preset of CMakePresets.json to build (default release)
#   RLOCK_JOBS      parallel compilations (default: processors)
#   RLOCK_TEST_JOBS   tests at a time (10; 5 with one processor); those that mostly wait count as half, those
#                     that compute as three
#   RLOCK_EXCLUDE   labels to leave out, separated by blanks
#   RLOCK_PROGRAMS  test programs that are built and run, separated by blanks (all)
#   RLOCK_BUILD_ONLY=1   stop after the build
#   RLOCK_TEST_REQUIRE_INTEROP=1   fail when Java or Maven cannot be had, instead of skipping
#   RLOCK_INTEROP_MATRIX=docs/redisson.md   write what interop found into that document; also what is slow
set -euo pipefail

rounds=1
labels=()
while (($# > 0)); do
  case $1 in
    -h | --help)
      sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
      exit 0
      ;;
    --repeat)
      rounds=${2:-}
      if [[ ! $rounds =~ ^[1-9][0-9]*$ ]]; then
        echo "run.sh: --repeat needs a number of rounds" >&2
        exit 2
      fi
      shift
      ;;
    -*)
      echo "run.sh: there is no option $1, see --help" >&2
      exit 2
      ;;
    *) labels+=("$1") ;;
  esac
  shift
done
cd "$(dirname "$0")/.."
. tests/once_more.sh

if [[ ${labels[0]:-} == matrix ]]; then
  exec tests/matrix/run.sh
fi

preset=${RLOCK_PRESET:-release}
build=build/$preset
jobs=${RLOCK_JOBS:-$(nproc)}
# Most tests wait most of the time. But many measure it: more of them at once, and they would measure each other.
test_jobs=${RLOCK_TEST_JOBS:-$((jobs < 2 ? 5 : 10))}

read -ra excluded <<<"${RLOCK_EXCLUDE:-}"
# The table of what interop found is of all its tests.
if ((${#labels[@]} > 0)) && [[ " ${labels[*]} " != *" slow "* && -z ${RLOCK_INTEROP_MATRIX:-} ]]; then
  excluded+=(slow)
fi

if [[ " ${labels[*]:-} " != *" interop "* ]]; then
  excluded+=(interop)
fi

bash cmake/install_packages.sh build test
if [[ " ${labels[*]:-} " == *" interop "* ]]; then
  bash cmake/install_packages.sh interop || [[ ${RLOCK_TEST_REQUIRE_INTEROP:-} != 1 ]]
fi

# A build can only use it if the directory was configured with it.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi

mkdir -p "$build"

# Runs a command; what it prints goes to a file, and to the screen only if it fails.
quietly() {  # NAME COMMAND...
  local name=$1 started=$SECONDS
  shift
  printf '%s ... ' "$name"
  if "$@" >"$build/$name.log" 2>&1 </dev/null; then
    echo "done ($((SECONDS - started)) s)"
  else
    echo "failed; the end of $build/$name.log:"
    grep -nE 'error:|Error|FAILED' "$build/$name.log" | head -20 || true
    tail -n 40 "$build/$name.log"
    exit 1
  fi
}

echo "preset $preset, build directory $build"
quietly configure cmake --preset "$preset"
read -ra programs <<<"${RLOCK_PROGRAMS:-}"
targets=(all)
if ((${#programs[@]} > 0)); then
  targets=(rlock_host_watch "${programs[@]}")
fi
if [[ " ${labels[*]:-} " == *" interop "* ]]; then
  targets+=(rlock_interop)
fi
if [[ -t 1 ]]; then
  cmake --build --preset "$preset" -j "$jobs" --target "${targets[@]}"
else
  quietly build cmake --build --preset "$preset" -j "$jobs" --target "${targets[@]}"
fi
if [[ ${RLOCK_BUILD_ONLY:-} == 1 ]]; then
  exit 0
fi

join() {
  local IFS='|'
  echo "^($*)\$"
}
selection=()
if ((${#programs[@]} > 0)); then
  in_programs=$(join "${programs[@]}")
  selection+=(-R "${in_programs%\$}[.]")
fi
if ((${#labels[@]} > 0)); then
  selection+=(-L "$(join "${labels[@]}")")
fi
if ((${#excluded[@]} > 0)); then
  selection+=(-LE "$(join "${excluded[@]}")")
fi

# A server that cannot be started is a failure here, not a reason to skip.
export RLOCK_TEST_REQUIRE_REDIS=1

names() { sed -E 's/ +$//' | sort -u; }

# Many ctest tests run several cases of a test program; this counts the cases of the last run.
count_cases() {
  awk '/^\[==========\] [0-9]+ tests? from .* ran\./ { cases += $2; inside = 1 }
    /^\[  SKIPPED \] [0-9]+ tests?, listed below/ { skipped += $4 }
    /^Test (Passed|Failed)\.$/ { if (!inside) ++cases; inside = 0 }
    END {
      printf "%d test cases", cases
      if (skipped > 0) printf ", %d of them skipped", skipped
      print ""
    }' "$build/Testing/Temporary/LastTest.log"
}

run_tests() {
  # A test counts as two; the slow ones, which only wait, as one; those that compute as six.
  local run=(ctest --test-dir "$build" -j $((2 * test_jobs)) --output-on-failure --no-tests=error
    --no-label-summary "${selection[@]}")
  local status=0
  if [[ -t 1 && $rounds == 1 ]]; then
    "${run[@]}" --progress </dev/null || status=$?
  else
    # Without a terminal only what did not pass is worth a line.
    local passed='^ *(Start +[0-9]+: |[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed )'
    "${run[@]}" </dev/null 2>&1 | { grep --line-buffered -vE "$passed" || true; } || status=$?
  fi
  local cases
  cases=$(count_cases)
  echo "$cases"
  if [[ $cases == "0 test"* ]] && ((status == 0 || status == 8)); then
    echo "The log of this run is gone: another ctest was run in $build meanwhile."
    return 1
  fi
  # 8: tests failed; anything else is not about tests.
  if ((status != 8)); then
    return "$status"
  fi

  local failed timing stalled total verdicts
  # Before the next call of ctest, which begins the log anew.
  verdicts=$(awk -f tests/once_more.awk "$build/Testing/Temporary/LastTest.log")
  failed=$(cut -d: -f2- "$build/Testing/Temporary/LastTestsFailed.log" | names)
  timing=$(ctest --test-dir "$build" -N -L '^timing$' | sed -nE 's/^ *Test +#[0-9]+: //p' | names)
  stalled=$(may_run_once_more "$failed" "$verdicts" "$timing") || return "$status"
  if [[ -n $stalled ]]; then
    tell_pauses
  fi
  echo "The limits of time of these tests were broken; once more, alone:"
  echo "$failed"
  ctest --test-dir "$build" --rerun-failed -j 1 --output-on-failure --no-label-summary </dev/null ||
    return $?
  total=$(ctest --test-dir "$build" -N "${selection[@]}" | sed -n 's/^Total Tests: //p')
  echo "All in all: 100% tests passed, 0 tests failed out of $total"
}

watch_host "$build/tests/rlock_host_watch" "$PWD/$build/host.log"
for ((round = 1; round <= rounds; ++round)); do
  begin=$SECONDS status=0
  if ((rounds == 1)); then
    run_tests || exit $?
    break
  fi
  run_tests >"$build/round.log" 2>&1 || status=$?
  if ((status != 0)); then
    cat "$build/round.log"
    echo "round $round of $rounds: FAILED in $((SECONDS - begin)) s"
    exit "$status"
  fi
  again=$(sed -n '/once more, alone:$/,/^Internal ctest/p' "$build/round.log" | sed '1d;$d' | xargs)
  echo "round $round of $rounds: passed in $((SECONDS - begin)) s, $(grep -m 1 'test cases' "$build/round.log")" \
    "${again:+(only at the second attempt: $again)}"
done
