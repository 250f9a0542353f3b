#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Breaks the product on purpose, one line at a time, and says which test found each break.
#
# Usage: tests/mutants/run.sh [--shard K/N] [NAME...]
#        tests/mutants/run.sh --table    the breaks as the table of docs/testing.md
#
# That the list fits the sources, the tests and that table is checked by tests/mutants/check.sh, without a build.
#
#   NAME...       only these breaks of mutants.txt, not all
#   --shard K/N   every N-th, beginning with the K-th: N runs, with one build directory each, share the work
#
# It works on a copy, build/mutants. For each mutant only the programs are built that hold the tests named
# beside it: nearly always one of those finds it, in one to two minutes. One that is not found meets all other
# tests but the slow ones, the quick programs first; that takes ten minutes more. ccache is used if it is there.
# Exit status 1: one was not found, or its line is not there any more.
#
# Environment: RLOCK_MUTANTS_DIR (build/mutants), RLOCK_JOBS (processors)
set -euo pipefail

shard=1 shards=1
names=()
while (($# > 0)); do
  case $1 in
    -h | --help)
      sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
      exit 0
      ;;
    --table)
      awk '/^= / { name = substr($0, 3) } /^@ / { file = substr($0, 3) }
        /^\? / { split(substr($0, 3), found, ": "); gsub(/\|/, " ", found[2])
          sub(/^include\/rlock\/detail\//, "", file)
          printf "| `%s` | `%s` | %s: %s |\n", name, file, found[1], found[2] }' \
        "$(dirname "$0")/mutants.txt" | sort
      exit 0
      ;;
    --shard)
      if [[ ! ${2:-} =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] || ((BASH_REMATCH[1] > BASH_REMATCH[2])); then
        echo "run.sh: --shard needs K/N, with K from 1 to N" >&2
        exit 2
      fi
      shard=${BASH_REMATCH[1]} shards=${BASH_REMATCH[2]}
      shift
      ;;
    -*)
      echo "run.sh: there is no option $1, see --help" >&2
      exit 2
      ;;
    *) names+=("$1") ;;
  esac
  shift
done
cd "$(dirname "$0")/../.."
dir=$(realpath -m "${RLOCK_MUTANTS_DIR:-build/mutants}")
jobs=${RLOCK_JOBS:-$(nproc)}
list=tests/mutants/mutants.txt
export RLOCK_TEST_REQUIRE_REDIS=1

# Programs that are built and run together when the named ones have found nothing.
stages=("unit testing simulation redis_model races outcome" "integration lock_integration" "client_surface observability sync asio cli"
  "fault model" "tls cluster sentinel topology")

# The entries to be tried: their numbers, and all programs that are named beside them.
declare -A chosen=() needed=() known=() expected=()
number=0 name=''
while IFS= read -r line || [[ -n $line ]]; do
  case $line in
    '= '*)
      name=${line#= }
      known[$name]=1
      ;;
    '? '*)
      if [[ ! $line =~ ^'? '([a-z_ ]+)': '(.+)$ ]]; then
        echo "run.sh: $name does not say which program to begin with: $line" >&2
        exit 2
      fi
      if ((${#names[@]} == 0)) || [[ " ${names[*]} " == *" $name "* ]]; then
        if ((number++ % shards == shard - 1)); then
          chosen[$name]=1
          expected["${BASH_REMATCH[1]}"]+="${expected["${BASH_REMATCH[1]}"]:+|}${BASH_REMATCH[2]}"
          for program in ${BASH_REMATCH[1]}; do
            needed[$program]=1
          done
        fi
      fi
      ;;
  esac
done <"$list"
for name in "${names[@]}"; do
  if [[ -z ${known[$name]:-} ]]; then
    echo "run.sh: there is no mutant $name" >&2
    exit 2
  fi
done
if ((${#chosen[@]} == 0)); then
  echo "0 not found"
  exit 0
fi

# An untouched file keeps its time, so that it is not compiled again.
mkdir -p "$dir/src"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [[ -e $file ]] && ! cmp -s "$file" "$dir/src/$file"; then
    mkdir -p "$(dirname "$dir/src/$file")"
    cp "$file" "$dir/src/$file"
  fi
done

build() {  # PROGRAM...
  ninja -C "$dir/build" -j "$jobs" "$@" >"$dir/build.log" 2>&1
}
run_tests() {  # "PROGRAM..." REGEX [CTEST ARGUMENT...]
  # In ctest's names other tests of the suite may stand before the one that is meant.
  local filter=${2//./[.](.*[+])?}
  # A test that hangs has found the mutant, too.
  ctest --test-dir "$dir/build" --timeout 60 -j 6 --stop-on-failure --no-tests=error \
    -R "^(${1// /|})[.].*($filter)" "${@:3}" >"$dir/ctest.log" 2>&1
}

launcher=
if command -v ccache >/dev/null; then
  launcher=ccache
fi
cmake -S "$dir/src" -B "$dir/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DRLOCK_BUILD_EXAMPLES=OFF \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" >"$dir/configure.log"
echo "building what is not broken: ${!needed[*]}"
build "${!needed[@]}" || {
  tail -n 20 "$dir/build.log"
  exit 1
}

# That a test fails says nothing if it fails anyway.
for programs in "${!expected[@]}"; do
  if ! run_tests "$programs" "${expected[$programs]}"; then
    echo "a test fails although nothing is broken, or is not there ($programs: ${expected[$programs]}):"
    grep -m 1 -E '\*\*\*|No tests' "$dir/ctest.log"
    exit 1
  fi
done

# Whether a test finds the mutant that stands in the sources; sets verdict.
meet() {  # "PROGRAM..." REGEX VERDICT [CTEST ARGUMENT...]
  # shellcheck disable=SC2086  # several programs
  if ! build $1; then
    verdict="DOES NOT COMPILE ($(grep -m 1 error: "$dir/build.log" | cut -c 1-150))"
  elif ! run_tests "$1" "$2" "${@:4}"; then
    if grep -q 'No tests were found' "$dir/ctest.log"; then
      verdict="NO SUCH TEST ($1: $2)"
    else
      verdict=$3
    fi
  else
    return 1
  fi
}

bad=0
try() {  # uses name, file, from, to, programs, tests
  if [[ -z ${chosen[$name]:-} ]]; then
    return
  fi
  local path=$dir/src/$file begin=$SECONDS verdict=''
  cp -p "$path" "$dir/kept"
  if ! FROM=$from TO=$to perl -0pi -e '
      my $at = index($_, $ENV{FROM});
      die "not there\n" if $at < 0;
      die "there twice\n" if index($_, $ENV{FROM}, $at + 1) >= 0;
      substr($_, $at, length($ENV{FROM})) = $ENV{TO};' "$path" 2>"$dir/perl.log"; then
    verdict="LINE NOT FOUND ($(head -n 1 "$dir/perl.log"))"
  elif ! meet "$programs" "$tests" found; then
    for stage in "${stages[@]}"; do
      if meet "$stage" '' "found, not by $programs: $tests" -LE 'slow|interop|package'; then
        break
      fi
    done
    verdict=${verdict:-SURVIVED}
  fi
  # With a new time, for what was compiled from the mutant is newer than the file.
  cp "$dir/kept" "$path"
  case $verdict in
    found*)
      verdict+=": $(grep -m 1 -oE '\*\*\*[A-Za-z]+' "$dir/ctest.log" | tr -d '*') "
      verdict+=$(grep -m 1 -E '\*\*\*' "$dir/ctest.log" | grep -oE '[a-z_]+\.[^ ]+' | head -n 1)
      ;;
    *) bad=$((bad + 1)) ;;
  esac
  printf '%-36s %s (%d s)\n' "$name" "$verdict" $((SECONDS - begin))
}

name='' file='' from='' to='' programs='' tests=''
while IFS= read -r -u 3 line || [[ -n $line ]]; do
  case $line in
    '= '*) name=${line#= } from='' to='' ;;
    '@ '*) file=${line#@ } ;;
    '- '* | -) from+=${from:+$'\n'}${line:2} ;;
    '+ '* | +) to+=${to:+$'\n'}${line:2} ;;
    '? '*)
      programs=${line%%: *} programs=${programs#\? } tests=${line#*: }
      try </dev/null
      ;;
  esac
done 3<"$list"
echo "$bad not found"
((bad == 0))
