#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That examples/run.sh knows every example, and no other: those that have a source, and those that CMake builds here.
#
# Usage: check_examples.sh ROOT NAME...     the names are CMake's
set -euo pipefail
cd "$1"
shift

known=$(sed -nE 's/^examples=\((.*)\)$/\1/p' examples/run.sh | tr ' ' '\n'; echo contend)
sources=$(grep -lE '^int main\(' examples/*.cpp | sed -E 's#.*/(.*)\.cpp#\1#'; echo unit_test)
wrong=0
differ() {  # WHAT, THE ONE, THE OTHER
  local names
  names=$(comm -23 <(sort -u <<<"$2") <(sort -u <<<"$3"))
  if [[ -n $names ]]; then
    echo "$1: ${names//$'\n'/ }"
    wrong=1
  fi
}
differ 'examples/run.sh does not know' "$sources" "$known"
differ 'examples/run.sh knows, but there is no source of' "$known" "$sources"
differ 'examples/run.sh does not know, but CMake builds' "$(printf '%s\n' "$@")" "$known"
differ 'examples/CMakeLists.txt does not name' "$sources" "$(grep -oE '[a-z_]+' examples/CMakeLists.txt)"
echo "$(wc -l <<<"$sources") examples, $# of them built here"
((wrong == 0 && $# >= 28))
