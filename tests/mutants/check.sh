#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That mutants.txt fits the sources and the tests, without building anything: what an entry replaces is there
# once, the tests that are tried first exist, and docs/testing.md has the table.
#
# Usage: check.sh ROOT BUILD    BUILD is where ctest finds the tests; a program that is not built there is left out
set -euo pipefail
cd "$1"
build=$2
wrong=0

# The names of all tests, one a line. Asked in a directory of its own: a ctest begins the log of its directory
# anew, and this one runs within another.
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
echo "subdirs(\"$build\")" >"$directory/CTestTestfile.cmake"
tests=$(ctest --test-dir "$directory" -N | sed -nE 's/^ *Test +#[0-9]+: ([^ ].*[^ ]) *$/\1/p')

# "name TAB programs TAB filter" for each entry; what does not fit the sources is an error.
entries=$(perl -e '
  my ($name, $file, $from, $to, $bad) = ("", "", "", "", 0);
  while (<>) {
    chomp;
    if (/^= (.*)/) { ($name, $from, $to) = ($1, "", ""); die "$name is there twice\n" if $seen{$name}++; }
    elsif (/^@ (.*)/) { $file = $1; }
    elsif (/^-( (.*))?$/) { $from .= ($from eq "" ? "" : "\n") . ($2 // ""); }
    elsif (/^\+( (.*))?$/) { $to .= ($to eq "" ? "" : "\n") . ($2 // ""); }
    elsif (/^\? ([a-z_ ]+): (.+)$/) {
      my ($programs, $filter) = ($1, $2);
      my $text = "";
      if (open(my $in, "<", $file)) { local $/; $text = <$in>; }
      my $count = () = $text =~ /\Q$from\E/g;
      if ($count != 1 || $from eq $to) { print STDERR "$name: $file has what it replaces $count times\n"; $bad = 1; }
      print "$name\t$programs\t$filter\n";
    }
    elsif (!/^(#|$)/) { print STDERR "mutants.txt: $_\n"; $bad = 1; }
  }
  exit $bad;' tests/mutants/mutants.txt) || wrong=1

while IFS=$'\t' read -r name programs filter; do
  present=0
  for program in $programs; do
    if grep -q "^$program[.]" <<<"$tests"; then
      present=1
    elif ! grep -q "NAME $program " tests/CMakeLists.txt; then
      # One that this build is without, for want of a library or because nobody has built it, is no fault.
      echo "$name: there is no program $program"
      wrong=1
    fi
  done
  # In ctest's names other tests of the suite may stand before the one that is meant.
  if ((present)) && ! grep -qE "^(${programs// /|})[.].*(${filter//./[.](.*[+])?})" <<<"$tests"; then
    echo "$name: no test of $programs is named $filter"
    wrong=1
  fi
done <<<"$entries"

begin='^| Break | File | Found by |$'
if ! diff <(tests/mutants/run.sh --table) <(sed -n "/$begin/,\$p" docs/testing.md | grep '^| `'); then
  echo "docs/testing.md does not have the table that tests/mutants/run.sh --table prints"
  wrong=1
fi
echo "$(wc -l <<<"$entries") breaks"
exit "$wrong"
