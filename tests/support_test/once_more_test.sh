#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which failed tests may run once more: those whose limits of time the host or the others broke, unless one of them
# checks safety.
#
# Usage: once_more_test.sh <the program support> <the program rlock_host_watch> <programs with a time of their own>...
set -euo pipefail
support=$1
watch=$2
rule=$(dirname "$0")/../once_more.awk
. "$(dirname "$0")/../once_more.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# Prints "yes" if a test that runs these cases may run once more, after what RLOCK_TEST_HOST names; $timing is
# what is labelled timing.
timing=''
once_more() {  # CASE...
  local filter
  filter=$(printf 'HostReport*.DISABLED_%s:' "$@")
  {
    echo "1/1 Testing: the.Test"
    echo "1/1 Test: the.Test"
    "$support" --gtest_also_run_disabled_tests --gtest_filter="$filter" || true
    echo "Test Failed."
  } >"$folder/LastTest.log" 2>&1
  if ! grep -q "^\[  FAILED  \] $# test" "$folder/LastTest.log"; then
    echo "not run"
    return
  fi
  may_run_once_more the.Test "$(awk -f "$rule" "$folder/LastTest.log")" "$timing" >/dev/null && echo yes || echo no
}

expect() {  # YES-OR-NO WHAT CASE...
  local expected=$1 what=$2
  shift 2
  local got
  got=$(once_more "$@")
  if [[ $got != "$expected" ]]; then
    echo "$what: once more is $got, not $expected"
    cat "$folder/LastTest.log"
    failures=$((failures + 1))
  fi
}

unset RLOCK_TEST_HOST
expect no "without a watch" ALimitIsBroken
timing=the.Test expect yes "labelled timing" ALimitIsBroken
export RLOCK_TEST_HOST=$folder/host.log
: >"$RLOCK_TEST_HOST"
expect no "the host did not stand still" ALimitIsBroken
echo "1000 2000" >"$RLOCK_TEST_HOST"
expect no "the host stood still before the test" ALimitIsBroken
echo "1000 99999999999999" >"$RLOCK_TEST_HOST"
expect yes "the host stood still" ALimitIsBroken
expect no "a safety check" ACounterIsWrong
expect no "a test that has a safety check" ALimitIsBrokenBesideOverlaps
expect no "two holders in a resource" AResourceHasTwoUsers
expect no "a reader beside a writer" AReaderMeetsAWriter
expect no "one of two cases checks safety" ALimitIsBroken ACounterIsWrong
expect no "a fixture that checks safety" AFixtureChecksSafety
timing=the.Test expect no "labelled timing, though it checks safety" ALimitIsBroken ACounterIsWrong

# The same by cases.
awk -v cases=1 -f "$rule" "$folder/LastTest.log" >"$folder/cases"
if ! diff "$folder/cases" - <<'EXPECTED'; then
stalled HostReportSamples.DISABLED_ALimitIsBroken
safety HostReportSamples.DISABLED_ACounterIsWrong
EXPECTED
  failures=$((failures + 1))
fi

# No host is to blame for a sanitizer's report, or for a program that ends inside a case.
ended_by() {  # WHAT LINE... (of the test's output)
  local what=$1 got
  shift
  printf '%s\n' "1/2 Test: the.Test" "[ RUN      ] A.B" "$@" "Test Failed." "2/2 Test: another.Test" "[ RUN      ] A.C" \
    "[       OK ] A.C (1 ms)" "Test Passed." >"$folder/LastTest.log"
  got=$(awk -f "$rule" "$folder/LastTest.log")
  if [[ $got != "safety the.Test" ]]; then
    echo "ended by $what: \"$got\", not safety"
    failures=$((failures + 1))
  fi
  sed -n '2,/^Test Failed/{/^Test Failed/!p}' "$folder/LastTest.log" >"$folder/one"
  printf '%s\n' "[ RUN      ] A.C" "[       OK ] A.C (1 ms)" >"$folder/two"
  got=$(awk -v cases=1 -f "$rule" "$folder/one" "$folder/two" | grep '^safety ' || true)
  if [[ $got != "safety A.B" ]]; then
    echo "ended by $what, by cases: \"$got\", not safety"
    failures=$((failures + 1))
  fi
}
ended_by "a report of a race" "WARNING: ThreadSanitizer: data race (pid=1)" "[       OK ] A.B (1 ms)"
ended_by "a report beside a broken limit" "==1==ERROR: AddressSanitizer: heap-use-after-free" \
  "[   HOST   ] stood still for 900 ms" "[  FAILED  ] A.B (1 ms)"
ended_by "undefined behaviour" "a.hpp:1:2: runtime error: shift exponent" "[       OK ] A.B (1 ms)"
ended_by "a crash" "Assertion failed"

# Of several tests.
several() {  # YES-OR-NO FAILED VERDICTS TIMING
  local got=no
  may_run_once_more "$(printf "$2")" "$(printf "$3")" "$(printf "$4")" >/dev/null && got=yes
  if [[ $got != "$1" ]]; then
    echo "$2, of which $3, labelled $4: once more is $got"
    failures=$((failures + 1))
  fi
}
several yes 'a\nb' 'stalled a' 'b\nc'
several no 'a\nb' 'stalled a' 'c'
several no 'a\nb' 'stalled a\nsafety b' 'b'
several yes '1\n2\n3\n4\n5' '' '1\n2\n3\n4\n5'
several no '1\n2\n3\n4\n5\n6' '' '1\n2\n3\n4\n5\n6'
several yes "$(seq -w 40)" "$(seq -f 'stalled %02g' 40)" ''
several no "$(seq -w 41)" "$(seq -f 'stalled %02g' 41)" ''
several no '' '' 'a'

# Where time is not the host's, nothing asks how the host was.
for program in "${@:3}"; do
  if grep -q 'did not stand still' "$program"; then
    echo "$program asks whether the host stood still"
    failures=$((failures + 1))
  fi
done
grep -q 'did not stand still' "$support"

# The watch writes when it could not run for a while.
: >"$RLOCK_TEST_HOST"
coproc WATCH { exec "$watch" "$RLOCK_TEST_HOST"; }
watching=$WATCH_PID
read -r _ <&"${WATCH[0]}"
kill -STOP "$watching"
sleep 0.6 # the pause
kill -CONT "$watching"
for ((i = 0; i < 300; ++i)); do
  [[ -s $RLOCK_TEST_HOST ]] && break
  sleep 0.05
done
kill "$watching"
if [[ ! -s $RLOCK_TEST_HOST ]]; then
  echo "the watch did not notice that it stood still"
  failures=$((failures + 1))
fi
((failures == 0))
