#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Breaks the product on purpose, one line at a time, and says which test found each break.
#
# Usage: tests/mutants/run.sh [NAME...]     all of mutants.txt, or only these
#
# It works on a copy, build/mutants. A mutant that the tests named beside it do not find meets the whole
# suite but for what is slow. Takes a minute for each, and ten minutes for each that is not found at once.
# Exit status 1: one was not found, or its line is not there any more.
#
# Environment: RLOCK_MUTANTS_DIR (build/mutants), RLOCK_JOBS (processors)
set -euo pipefail

case ${1:-} in
  -h | --help)
    sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/../.."
dir=$(realpath -m "${RLOCK_MUTANTS_DIR:-build/mutants}")
jobs=${RLOCK_JOBS:-$(nproc)}
list=$dir/src/tests/mutants/mutants.txt
wanted=" $* "
export RLOCK_TEST_REQUIRE_REDIS=1

# What is not touched keeps its time, so that it is not compiled again.
mkdir -p "$dir/src"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [[ -e $file ]] && ! cmp -s "$file" "$dir/src/$file"; then
    mkdir -p "$(dirname "$dir/src/$file")"
    cp "$file" "$dir/src/$file"
  fi
done

programs=(unit simulation races integration lock_integration sentinel fault model)
build() {
  ninja -C "$dir/build" -j "$jobs" "${programs[@]}" >"$dir/build.log" 2>&1
}
run_tests() {  # CTEST ARGUMENTS...
  # A test that hangs has found the mutant, too.
  ctest --test-dir "$dir/build" --timeout 60 -j 6 --stop-on-failure "$@" >"$dir/ctest.log" 2>&1
}

cmake -S "$dir/src" -B "$dir/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DRLOCK_BUILD_EXAMPLES=OFF >"$dir/configure.log"
echo "building what is not broken"
build || {
  tail -n 20 "$dir/build.log"
  exit 1
}

if ! run_tests -L 'unit|simulation'; then
  echo "a test fails although nothing is broken:"
  grep -m 1 -E '\*\*\*' "$dir/ctest.log"
  exit 1
fi

bad=0
try() {  # uses name, file, from, to, tests
  if [[ $wanted != "  " && $wanted != *" $name "* ]]; then
    return
  fi
  local path=$dir/src/$file begin=$SECONDS verdict
  cp -p "$path" "$dir/kept"
  if ! FROM=$from TO=$to perl -0pi -e '
      my $at = index($_, $ENV{FROM});
      die "not there\n" if $at < 0;
      die "there twice\n" if index($_, $ENV{FROM}, $at + 1) >= 0;
      substr($_, $at, length($ENV{FROM})) = $ENV{TO};' "$path" 2>"$dir/perl.log"; then
    verdict="LINE NOT FOUND ($(head -n 1 "$dir/perl.log"))"
  elif ! build; then
    verdict="DOES NOT COMPILE ($(grep -m 1 error: "$dir/build.log" | cut -c 1-150))"
  elif ! run_tests -R "$tests"; then
    verdict=found
  elif ! run_tests -L "unit|simulation|races|integration" -LE 'slow|interop|package'; then
    verdict="found, not by $tests"
  else
    verdict=SURVIVED
  fi
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

name='' file='' from='' to='' tests=''
while IFS= read -r -u 3 line || [[ -n $line ]]; do
  case $line in
    '= '*) name=${line#= } from='' to='' tests='' ;;
    '@ '*) file=${line#@ } ;;
    '- '* | -) from+=${from:+$'\n'}${line:2} ;;
    '+ '* | +) to+=${to:+$'\n'}${line:2} ;;
    '? '*)
      tests=${line#\? }
      try </dev/null
      ;;
  esac
done 3<"$list"
echo "$bad not found"
((bad == 0))
