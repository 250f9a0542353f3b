#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Executes the commands of the documents that compile for long or install, as they stand there, in a copy of
# the tree; see tests/readme/commands.txt. They install below the copy.
#
# Usage: tests/matrix/commands.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$PWD/build/commands
rm -rf "$work"
mkdir -p "$work/rlock" "$work/first-lock"
git ls-files -z --cached --others --exclude-standard |
  tar --null --ignore-failed-read -T - -c 2>/dev/null | tar -x -C "$work/rlock"

# The two files of docs/first-lock.md, with a server that nobody else has.
block() {  # LANGUAGE
  awk -v language="$1" '$0 == "```" language { inside = 1; next } /^```/ { inside = 0 } inside' docs/first-lock.md
}
block cmake >"$work/first-lock/CMakeLists.txt"
block cpp | sed '1i #include <cstdlib>' | sed 's#"redis://localhost:6379"#std::getenv("RLOCK_URI")#' \
  >"$work/first-lock/main.cpp"

declare -A done=()
while IFS=$'\t' read -r document command; do
  [[ ! -v done[$command] ]] || continue
  done[$command]=1
  folder=$work/rlock
  [[ $document == docs/first-lock.md ]] && folder=$work
  echo "\$ $command"
  begin=$SECONDS
  (cd "$folder" && DESTDIR=$work/installed "$OLDPWD/tests/with_redis.sh" bash -e -o pipefail -c "$command") \
    >"$work/log" 2>&1 </dev/null || {
    tail -n 40 "$work/log"
    echo "commands.sh: $document: failed: $command" >&2
    exit 1
  }
  tail -n 2 "$work/log"
  echo "  in $((SECONDS - begin)) s"
  if [[ $command == first-lock/build/app* ]] && (($(grep -c 'I still have it' "$work/log") != 2)); then
    cat "$work/log"
    echo "commands.sh: the two of $document did not both have the lock" >&2
    exit 1
  fi
done < <(tests/readme/check_commands.sh . --print commands.sh)
[[ -x $work/installed/usr/local/bin/rlock ]] || {
  echo "commands.sh: nothing was installed" >&2
  exit 1
}
