#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That each mistake of docs/mistakes.md and each claim of docs/semantics.md names tests, and that these are there.
#
# Usage: check_named_tests.sh ROOT
set -euo pipefail
cd "$1"

known=$(
  sed -nE 's/^TEST(_F|_P)?\(([A-Za-z0-9]+), ([A-Za-z0-9_]+)\).*/\2.\3/p' $(find tests -name '*.cpp')
  sed -nE 's/^#(el)?if defined\(([A-Z_]+)\)$/misuse.\2/p' tests/misuse/misuse.cpp
  sed -nE '/^set\(RLOCK_EXAMPLE_TESTS/,/\)/s/^ +([a-z_]+)\)?$/example.\1/p' examples/CMakeLists.txt
  sed -nE 's/.*rlock_add_program_test\(NAME ([a-z]+[.][A-Za-z0-9_]+) .*/\1/p' examples/CMakeLists.txt bench/CMakeLists.txt
)
wrong=0

# Whether the last cell of a row names tests, and all of them are there.
check_row() { # $1: document, $2: row
  local names name
  names=$(sed -E 's/.*\| (.*) \|$/\1/' <<<"$2" | grep -oE '`[A-Za-z]+[.][A-Za-z0-9_]+`' | tr -d '`' || true)
  for name in ${names:-no-name}; do
    if ! grep -qxF "$name" <<<"$known"; then
      echo "$1: there is no test ${name/#no-name/in this line}: $2"
      wrong=$((wrong + 1))
    fi
  done
}

mistakes=0 claims=""
while IFS= read -r row; do
  mistakes=$((mistakes + 1))
  check_row docs/mistakes.md "$row"
done < <(grep '^|' docs/mistakes.md | grep -vE '^\|(---|\s*Mistake)')
while IFS= read -r row; do
  claims+=" $(sed -E 's/^\| (C[0-9]+) .*/\1/' <<<"$row")"
  check_row docs/semantics.md "$row"
done < <(grep -E '^\| C[0-9]+ ' docs/semantics.md)
echo "$mistakes mistakes and$claims, $wrong without a test"
((wrong == 0 && mistakes >= 25)) && [[ $claims == " C1 C2 C3 C4 C5 C6 C7 C8 C9 C10" ]]
