#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That something runs each command of README.md and docs/*.md: commands.txt says what, and its head says what it can be. And
# that what their running text says of commands, in backticks, is so: the words and options are there.
#
# Usage: check_commands.sh ROOT                     each command is in the list, and what the list names is there; and
#                                                   so is what the text names
#        check_commands.sh ROOT --run PROGRAM BUILD executes what is to be executed here: PROGRAM is rlock, BUILD the
#                                                   folder of a build, RLOCK_URI the server; and asks PROGRAM for
#                                                   the options of its subcommands
#        check_commands.sh ROOT --print HOW         the commands of that kind, in the order of the documents
set -euo pipefail
root=$(realpath "$1")
mode=${2:-}
here=$root/tests/readme
cd "$root"

declare -A how=()
patterns=()
command=
while IFS= read -r line; do
  case $line in
    '#'* | '') ;;
    '    '*) how[$command]=${line#    } ;;
    *)
      command=$line
      how[$command]=
      if [[ $command == *'*' ]]; then
        patterns+=("$command")
      fi
      ;;
  esac
done <"$here/commands.txt"

wrong=0
complain() {
  echo "$*"
  wrong=$((wrong + 1))
}

find_entry() {  # COMMAND; sets $entry, empty if there is none
  entry=
  if [[ -v how[$1] ]]; then
    entry=$1
    return
  fi
  local pattern
  for pattern in "${patterns[@]}"; do
    if [[ $1 == "${pattern%\*}"* ]]; then
      entry=$pattern
      return
    fi
  done
}

# ------------------------------------------------------------------------- what the list names is there

check_test() {  # NAME
  case $1 in
    package.*) grep -q "rlock_add_package_test(${1#package.} " tests/package/CMakeLists.txt ;;
    readme.* | bench.*) grep -q "NAME $1$\|NAME $1 " tests/readme/CMakeLists.txt bench/CMakeLists.txt ;;
    example.unit_test) grep -q 'NAME example.unit_test' examples/CMakeLists.txt ;;
    *) grep -qE "^TEST(_F|_P)?\(${1%.*}, ${1#*.}\)" -r tests --include='*.cpp' ;;
  esac
}

check_how() {  # COMMAND HOW
  local word=${2%% *} rest=
  [[ $2 == *' '* ]] && rest=${2#* }
  case $word in
    run | tests | usage | commands.sh) ;;
    packages)
      local package
      for package in ${1#apt-get install }; do
        grep -qF "need $package " cmake/install_packages.sh ||
          complain "$1: cmake/install_packages.sh does not know $package"
      done
      ;;
    ctest) check_test "$rest" || complain "$1: there is no test $rest" ;;
    ci) grep -qE "^(step|sanitized) $rest( |$)" .ci/run || complain "$1: .ci/run has no step $rest" ;;
    matrix)
      [[ -x tests/matrix/$rest ]] && grep -qE "^part .*$rest" tests/matrix/run.sh ||
        [[ $rest == quick.sh && -x tests/matrix/quick.sh ]] || complain "$1: the matrix has no $rest"
      ;;
    *) complain "$1: the list does not say what runs it: $2" ;;
  esac
}

check_list() {
  local document command total=0
  declare -A used=()
  while IFS=$'\t' read -r document command; do
    total=$((total + 1))
    find_entry "$command"
    if [[ -z $entry ]]; then
      complain "$document: tests/readme/commands.txt does not know: $command"
      continue
    fi
    used[$entry]=1
    check_how "$command" "${how[$entry]}"
  done < <(awk -f "$here/commands.awk" README.md docs/*.md)
  for command in "${!how[@]}"; do
    [[ -v used[$command] ]] || complain "tests/readme/commands.txt: no document has: $command"
  done
  echo "$total commands, $wrong of them wrong"
  ((wrong == 0 && total >= 100))
}

# ------------------------------------------------------------------------- what the running text names

options_of() {  # FILE...
  grep -ohE -- '(^|[^a-z-])--[a-z][a-z-]+' "$@" | grep -oE -- '--[a-z-]+' | sort -u
}

# The options in the words of one command, without their values.
options_in() {  # COMMAND
  grep -oE -- '(^| )--[a-z][a-z-]+' <<<"$1" | tr -d ' ' || true
}

check_options() {  # WHERE, COMMAND, WHOSE, KNOWN OPTIONS
  local option
  for option in $(options_in "$2"); do
    grep -qxF -- "$option" <<<"$4" || complain "$1: no option of $3: $option in: $2"
  done
}

# Each command line of rlock in a text, up to the "--" that ends it; the command behind that may be another rlock.
rlock_parts() {  # COMMAND
  sed 's/ -- /\n/g' <<<"$1" | sed -nE 's/^(sudo )?(rlock .*)/\2/p'
}

check_mentions() {
  local document span part script word total=0 subcommands program_options all_options
  subcommands=$(sed -nE 's/^ +\{"([a-z]+)",$/\1/p' src/cli/subcommand_words.hpp)
  program_options=$(options_of src/cli/arguments.cpp)
  # And two that are others': of container runtimes, and of GoogleTest.
  all_options=$(options_of src/cli/arguments.cpp examples/*.sh tests/*.sh tests/*/*.sh bench/*.sh bench/*.cpp bench/*/*.sh
    printf '%s\n' --init --gtest)
  while IFS=$'\t' read -r document span; do
    case $span in
      'rlock '* | 'sudo rlock '*)
        while IFS= read -r part; do
          word=${part#rlock }
          word=${word%% *}
          [[ $word =~ ^[A-Z]+$ || $word == -* ]] || grep -qxF -- "$word" <<<"$subcommands" ||
            complain "$document: rlock has no subcommand $word: $span"
          check_options "$document" "$part" rlock "$program_options
--help
--version"
        done < <(rlock_parts "$span")
        ;;
      --[a-z]*)
        if [[ $document == docs/cli.md && $span != --init* ]]; then
          check_options "$document" "$span" rlock "$program_options"
        else
          check_options "$document" "$span" 'any of our programs' "$all_options"
        fi
        ;;
      examples/*.sh* | tests/*.sh* | bench/*.sh*)
        script=${span%% *}
        if [[ ! -e $script ]]; then
          complain "$document: there is no $script: $span"
        else
          check_options "$document" "$span" "$script" "$(options_of "$script" examples/topologies.sh)"
        fi
        ;;
      rlock_bench' '*)
        check_options "$document" "$span" rlock_bench "$(options_of bench/*.cpp)"
        for word in $(grep -oE ' [a-z]+' <<<"$span"); do
          grep -qF "\"$word\"" bench/*.cpp || complain "$document: rlock_bench has no mode $word: $span"
        done
        ;;
      cmake' '*)
        for word in $(grep -oE -- '--preset [a-z]+' <<<"$span" | cut -d' ' -f2); do
          grep -q "\"name\": \"$word\"" CMakePresets.json || complain "$document: there is no preset $word: $span"
        done
        ;;
      *) continue ;;
    esac
    total=$((total + 1))
  done < <(awk -f "$here/mentions.awk" README.md docs/*.md)
  echo "$total mentions, $wrong of them wrong"
  ((wrong == 0 && total >= 50))
}

# By the program itself: an option that another subcommand has does not help.
check_options_by_help() {  # PROGRAM
  local document span part word common
  local -A help=()
  common=$("$1" --help)
  while IFS=$'\t' read -r document span; do
    while IFS= read -r part; do
      word=${part#rlock }
      word=${word%% *}
      [[ $word =~ ^[a-z]+$ ]] || continue
      [[ -v help[$word] ]] || help[$word]=$("$1" "$word" --help 2>&1)
      check_options "$document" "$part" "rlock $word" "$(options_of - <<<"${help[$word]}$common")"
    done < <(rlock_parts "$span")
  done < <(awk -f "$here/mentions.awk" README.md docs/*.md)
}

# ----------------------------------------------------------------------------------- what is executed here

work=
prepare() {  # PROGRAM
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir "$work/bin"
  ln -s "$(realpath "$1")" "$work/bin/rlock"
  # Programs and files that the documents leave to the reader.
  local name
  for name in bin/backup.sh bin/make-report bin/make-report.sh bin/cleanup bin/ffmpeg bin/indexer deploy.sh bill.sh transfer.sh; do
    printf '#!/bin/sh\necho "$(basename "$0") runs under $RLOCK_NAME"\n' >"$work/$name"
    chmod 755 "$work/$name"
  done
  cp lua/fenced_write.lua "$work"
  sed -n '/^event=/p' docs/observability.md | tac >"$work/service-1.log"
  if command -v redis-cli >/dev/null; then
    printf '#!/bin/sh\nexec %q -s %q "$@"\n' "$(command -v redis-cli)" "${RLOCK_URI#unix://}" >"$work/bin/redis-cli"
    chmod 755 "$work/bin/redis-cli"
  fi
  # Three databases instead of three servers.
  redis_a=$RLOCK_URI?db=1 redis_b=$RLOCK_URI?db=2 redis_c=$RLOCK_URI?db=3
}

execute() {  # COMMAND STATUS
  local command=$1 status=0
  if [[ $command == redis-cli* && ! -x $work/bin/redis-cli ]]; then
    echo "NOT RUN, there is no redis-cli: $command"
    return
  fi
  command=${command//redis:\/\/jobs:s3cret@redis.internal/$RLOCK_URI}
  command=${command//redis:\/\/a,redis:\/\/b,redis:\/\/c/$redis_a,$redis_b,$redis_c}
  echo "\$ $command"
  (cd "$work" && PATH=$work/bin:$PATH bash -o pipefail -c "$command") >"$work/out" 2>&1 </dev/null || status=$?
  cat "$work/out"
  if ((status != $2)); then
    complain "ended with $status instead of $2: $command"
  elif [[ ! -s $work/out ]]; then
    complain "says nothing: $command"
  fi
}

# That the program lists a test for the filter.
list_tests() {  # COMMAND BUILD
  local command program
  command=$(sed -E "s#(^| )build/(release|ci)/#\\1$2/#" <<<"$1")
  program=$(grep -oE "$2/tests/[a-z_]+" <<<"$command")
  if [[ ! -x $program ]]; then
    complain "there is no $program: $1"
  elif (($(bash -c "$command --gtest_list_tests" 2>/dev/null | grep -c '^  ') == 0)); then
    complain "names no test: $1"
  fi
}

check_usage() {  # COMMAND
  local script option help
  script=$(grep -oE '(tests|bench)/[a-z/]+\.sh' <<<"$1")
  help=$("$script" --help)
  for option in $(grep -oE -- '--[a-z-]+' <<<"$1"); do
    [[ $option == --help || $help == *"$option"* ]] || complain "$script --help does not know $option: $1"
  done
  [[ $1 != *' matrix' || $help == *' matrix '* ]] || complain "$script --help does not know matrix: $1"
}

run_all() {  # PROGRAM BUILD
  local document command count=0
  prepare "$1"
  check_options_by_help "$1"
  while IFS=$'\t' read -r document command; do
    find_entry "$command"
    [[ -n $entry ]] || continue
    case ${how[$entry]} in
      run) execute "$command" 0 ;;
      run\ *) execute "$command" "${how[$entry]#run }" ;;
      tests) list_tests "$command" "$(realpath "$2")" ;;
      usage) check_usage "$command" ;;
      *) continue ;;
    esac
    count=$((count + 1))
  done < <(awk -f "$here/commands.awk" README.md docs/*.md)
  echo "$count commands, $wrong of them wrong"
  ((wrong == 0 && count >= 25))
}

case $mode in
  '')
    check_list
    check_mentions
    ;;
  --run) run_all "$3" "$4" ;;
  --print)
    while IFS=$'\t' read -r document command; do
      find_entry "$command"
      if [[ -n $entry && ${how[$entry]} == "$3" ]]; then
        printf '%s\t%s\n' "$document" "$command"
      fi
    done < <(awk -f "$here/commands.awk" README.md docs/*.md)
    ;;
esac
