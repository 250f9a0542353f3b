#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That each page of docs/ names a program, script or test that shows what it says, and that all it names are there: in
# backticks, `examples/NAME.cpp` (or `NAME.cpp` beside it), a file below examples/, tests/ or bench/, or `Suite.Case`. And that
# each has an example: C++ that is compiled, a command that is run, or the name of a program in examples/.
#
# Usage: check_pages.sh ROOT
set -euo pipefail
cd "$1"

cases=$(grep -hoE '^TEST(_F|_P)?\([A-Za-z0-9]+, [A-Za-z0-9_]+\)' -r tests --include='*.cpp' |
  sed -E 's/.*\(([^,]*), (.*)\)/\1.\2/' | sort -u)
suites=$(cut -d. -f1 <<<"$cases" | sort -u)
pages=0 wrong=0
for page in docs/*.md; do
  pages=$((pages + 1))
  shown=0
  example=0
  if grep -q '^```cpp$' "$page" || [[ -n $(awk -f tests/readme/commands.awk "$page") ]]; then
    example=1
  fi
  while IFS= read -r name; do
    name=${name%% *}
    case $name in
      examples/* | tests/* | bench/*)
        if [[ -e $name ]]; then
          shown=$((shown + 1))
          [[ $name != examples/* ]] || example=1
        else
          echo "$page: there is no $name"
          wrong=$((wrong + 1))
        fi
        ;;
      [a-z]*.cpp)
        if [[ -e examples/$name ]]; then
          shown=$((shown + 1))
        fi
        ;;
      [A-Z]*.[A-Z]*)
        if grep -qxF "$name" <<<"$cases"; then
          shown=$((shown + 1))
        elif grep -qxF "${name%%.*}" <<<"$suites"; then
          echo "$page: there is no test $name"
          wrong=$((wrong + 1))
        fi
        ;;
    esac
  done < <(grep -oE '`[^`]+`' "$page" | tr -d '`'; awk -f tests/readme/commands.awk "$page" | cut -f2 | grep -E '^(examples|tests|bench)/' || true)
  if ((example == 0)); then
    echo "$page: has no example"
    wrong=$((wrong + 1))
  fi
  if ((shown == 0)); then
    echo "$page: names no example and no test that shows what it says"
    wrong=$((wrong + 1))
  fi
done
echo "$pages pages, $wrong faults"
((wrong == 0 && pages >= 30))
