#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That each mistake of docs/mistakes.md names tests, and that these are there.
#
# Usage: check_mistakes.sh ROOT
set -euo pipefail
cd "$1"

cases=$(sed -nE 's/^TEST(_F|_P)?\(([A-Za-z0-9]+), ([A-Za-z0-9_]+)\).*/\2.\3/p' $(find tests -name '*.cpp'))
known=$(printf '%s\n' "$cases"; sed -nE 's/^#(el)?if defined\(([A-Z_]+)\)$/misuse.\2/p' tests/misuse/misuse.cpp)
rows=0 wrong=0
while IFS= read -r row; do
  rows=$((rows + 1))
  test=$(sed -nE 's/.* `([A-Za-z]+[.][A-Za-z0-9_]+)` \|$/\1/p' <<<"$row")
  if [[ -z $test ]] || ! grep -qxF "$test" <<<"$known"; then
    echo "docs/mistakes.md: there is no test ${test:-in this line}: $row"
    wrong=$((wrong + 1))
  fi
done < <(grep '^|' docs/mistakes.md | grep -vE '^\|(---|\s*Mistake)')
echo "$rows mistakes, $wrong without a test"
((wrong == 0 && rows >= 25))
