#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts what one uncontended pair of lock and unlock costs, blocking, asynchronous, and blocking with
# an Observer that does nothing: instructions of the whole process, allocations, locks of mutexes, readings of the clock, wake-ups of the loop
# thread. Nothing is timed, so that the machine may do other work meanwhile.
#
# Usage: bench/hot_path.sh [--check] PROGRAM      the program is rlock_hot_path of an optimised build
#   --check   fails if a count is above its bound
#
# Needs valgrind for the instructions, and a redis-server.
set -euo pipefail

check=
if [[ ${1:-} == --check ]]; then
  check=yes
  shift
fi
program=${1:?usage: bench/hot_path.sh [--check] PROGRAM}

# NAME BLOCKING ASYNC OBSERVED. A tenth or more above what was reached, and for OBSERVED a little less;
# they are lowered with it, and raised only on purpose.
bounds="
instructions          11200 15200 11500
allocations           0.1 2.2 0.1
allocations_of_caller 0.1 0.1 0.1
allocated_bytes       10 200 10
mutex_locks           8.5 16 8.5
clock_reads           4.5 12 4.5
loop_wake_ups         0.02 0.5 0.02
"

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

# The fewest of three runs: how often a waiting thread looks for its reply is a matter of luck, and only
# adds.
collected() {  # MODE PAIRS
  local run
  for run in 1 2 3; do
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" \
      >/dev/null 2>"$directory/$2" || { cat "$directory/$2" >&2; return 1; }
    sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p' "$directory/$2"
  done | sort -n | head -n 1
}

# The difference of two runs is free of what a run costs that has no pairs.
instructions() {  # MODE
  local few many
  collected "$1" 500 >"$directory/few" &
  many=$(collected "$1" 2500)
  wait $!
  few=$(<"$directory/few")
  echo "instructions $(((many - few) / 2000))"
}

for mode in blocking async observed; do
  {
    instructions "$mode"
    "$program" "$mode" 20000
  } >"$directory/$mode"
done

failed=0
printf '%-22s %10s %8s %10s %8s %10s %8s\n' 'per pair' blocking bound async bound observed bound
while read -r name blocking_bound async_bound observed_bound; do
  [[ -n $name ]] || continue
  blocking=$(sed -n "s/^$name //p" "$directory/blocking")
  async=$(sed -n "s/^$name //p" "$directory/async")
  observed=$(sed -n "s/^$name //p" "$directory/observed")
  printf '%-22s %10s %8s %10s %8s %10s %8s\n' "$name" "$blocking" "$blocking_bound" \
    "$async" "$async_bound" "$observed" "$observed_bound"
  if awk "BEGIN { exit !($blocking > $blocking_bound || $async > $async_bound ||
                         $observed > $observed_bound) }"; then
    echo "  above its bound" >&2
    failed=1
  fi
done <<<"$bounds"

# An observer that does nothing costs three per cent of a pair at most.
plain=$(sed -n 's/^instructions //p' "$directory/blocking")
observed=$(sed -n 's/^instructions //p' "$directory/observed")
if ((observed * 100 > plain * 103)); then
  echo "an observer costs more than 3 % of a pair: $plain instructions without, $observed with one" >&2
  failed=1
fi

[[ -z $check ]] || exit "$failed"
