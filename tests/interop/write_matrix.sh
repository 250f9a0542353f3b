#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a table of what the interoperability tests found.
#
# Usage: tests/interop/write_matrix.sh TEST_PROGRAM RESULT_DIRECTORY OUTPUT
#
# The tests write RESULT_DIRECTORY/rows/VERSION/CASE/KIND, each a result, a tab, and what the table says about it,
# and RESULT_DIRECTORY/tests/TEST, each how that test ended.
#
# Environment:
#   RLOCK_INTEROP_MATRIX   a document whose section between the two `interop matrix` comments is replaced
#                          as well, such as docs/redisson.md; only if all tests of TEST_PROGRAM have passed
set -euo pipefail

program=$1
results=$2
output=$3

refuse() {
  echo "write_matrix.sh: $1, $RLOCK_INTEROP_MATRIX stays as it is" >&2
  exit 1
}

if [[ -n ${RLOCK_INTEROP_MATRIX:-} ]]; then
  # A suite, then its tests, which are indented; what follows a name is a comment.
  while read -r test; do
    [[ $(cat "$results/tests/$test" 2>/dev/null) == passed ]] || refuse "$test has not passed"
  done < <("$program" --gtest_list_tests | awk '/^[^ ]/ { suite = $1 } /^  / { print suite $1 }')
  for marker in begin end; do
    [[ $(grep -c "^<!-- interop matrix: $marker" "$RLOCK_INTEROP_MATRIX") == 1 ]] ||
      refuse "there is not one comment \`interop matrix: $marker\`"
  done
fi

mapfile -t versions < <(find "$results/rows" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' 2>/dev/null | sort -rV)
if ((${#versions[@]} == 0)); then
  echo "no results in $results" >"$output"
  exit 0
fi

cell() {  # VERSION CASE KIND
  local file=$results/rows/$1/$2/$3 result note
  if [[ ! -e $file ]]; then
    echo '-'
    return
  fi
  IFS=$'\t' read -r result note <"$file"
  echo "$result${note:+: $note}"
}

{
  echo "With $(cat "$results/about")."
  echo
  printf '| Kind | Case |'
  printf ' Redisson %s |' "${versions[@]}"
  printf '\n|---|---|'
  printf -- '---|%.0s' "${versions[@]}"
  printf '\n'
  find "$results/rows" -mindepth 3 -type f -printf '%f\t%P\n' | cut -d / -f 1,2 |
    sed 's|\t[^/]*/|\t|' | sort -u |
    while IFS=$'\t' read -r kind testcase; do
      printf '| %s | %s |' "$kind" "$testcase"
      for version in "${versions[@]}"; do
        printf ' %s |' "$(cell "$version" "$testcase" "$kind")"
      done
      printf '\n'
    done
  if [[ -e $results/differences ]]; then
    echo
    echo 'Differences that the case *same state* allows; any other is a failure:'
    echo
    cat "$results/differences"
  fi
} >"$output"

if [[ -n ${RLOCK_INTEROP_MATRIX:-} ]]; then
  awk -v table="$output" '
    /^<!-- interop matrix: end/ { inside = 0 }
    !inside { print }
    /^<!-- interop matrix: begin/ {
      inside = 1
      while ((getline line < table) > 0) print line
    }' "$RLOCK_INTEROP_MATRIX" >"$output.document"
  cat "$output.document" >"$RLOCK_INTEROP_MATRIX"
  rm "$output.document"
fi
