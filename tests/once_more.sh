# SPDX-License-Identifier: Apache-2.0
# Sourced by what runs tests.

# may_run_once_more FAILED VERDICTS TIMING
#
# Whether all failed tests may run once more, alone: those that are labelled timing, five at most, and those that the
# host disturbed, forty in all, unless one checks safety. Prints those that the host disturbed.
#
#   FAILED    names, one a line, sorted
#   VERDICTS  what once_more.awk prints
#   TIMING    names, one a line, sorted
may_run_once_more() {
  local failed=$1 verdicts=$2 timing=$3 stalled undisturbed
  if [[ -z $failed ]] || grep -q '^safety ' <<<"$verdicts"; then
    return 1
  fi
  stalled=$(sed -n 's/^stalled //p' <<<"$verdicts" | sort -u)
  undisturbed=$(comm -23 <(echo "$failed") <(echo "$stalled"))
  if [[ -n $(comm -23 <(echo "$undisturbed") <(echo "$timing")) ]] ||
    (($(grep -c . <<<"$undisturbed") > 5 || $(wc -l <<<"$failed") > 40)); then
    return 1
  fi
  echo "$stalled"
}

# The host is watched until the script ends; RLOCK_TEST_HOST names the file for tests/support/host_watch.cpp.
watch_host() {  # PROGRAM FILE
  : >"$2"
  export RLOCK_TEST_HOST=$2
  "$1" "$2" </dev/null >/dev/null &
  trap "kill $! 2>/dev/null || true" EXIT
}

# Says how often the host stood still, and for how long.
tell_pauses() {
  awk '$2 - $1 > longest { longest = $2 - $1 }
    END { printf "The host stood still (%d times, up to %d ms).\n", NR, longest }' "$RLOCK_TEST_HOST"
}
