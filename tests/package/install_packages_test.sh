#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/install_packages.sh asks for the Java that the system has. The packages it would install are only
# listed here. And tests/matrix/quick.sh says that it cannot run only where no list of packages can be had.
#
# Usage: install_packages_test.sh <source tree>
set -euo pipefail

root=$1
script=$root/cmake/install_packages.sh
stubs=$(mktemp -d)
trap 'rm -rf "$stubs"' EXIT

stub() {  # NAME: its text is read from standard input
  { echo '#!/bin/sh' && cat; } >"$stubs/$1"
  chmod 755 "$stubs/$1"
}
echo 'echo 1000' | stub id
echo 'exit 1' | stub apt-get
echo 'echo javac 8' | stub javac
: | stub mvn
stub apt-cache <<'STUB'
case " $KNOWN " in
  *" $2 "*) printf '%s:\n  Installed: (none)\n  Candidate: 17.0.1\n' "$2" ;;
  *" virtual:$2 "*) printf '%s:\n  Installed: (none)\n  Candidate: (none)\n' "$2" ;;
esac
STUB

failed=0
expect() {  # PACKAGE KNOWN PACKAGE...
  local listed
  listed=$(KNOWN="${*:2}" PATH="$stubs:$PATH" bash "$script" interop 2>&1 || true)
  if [[ " $(grep -m 1 'what these Debian packages hold' <<<"$listed") " != *" $1 "* ]]; then
    printf 'with %s expected %s, found:\n%s\n' "${*:2}" "$1" "$listed" >&2
    failed=1
  fi
}
expect openjdk-17-jdk-headless openjdk-17-jdk-headless openjdk-21-jdk-headless default-jdk-headless
expect openjdk-21-jdk-headless openjdk-21-jdk-headless default-jdk-headless
expect openjdk-21-jdk-headless virtual:openjdk-17-jdk-headless openjdk-21-jdk-headless
expect default-jdk-headless default-jdk-headless
expect openjdk-17-jdk-headless

echo 'echo javac 21.0.2' | stub javac
if KNOWN='' PATH="$stubs:$PATH" bash "$script" interop 2>&1 | grep jdk; then
  echo 'asks for a Java although there is a later one' >&2
  failed=1
fi

quick() {  # STATUS STATUS-OF-APT-GET
  local status=0
  echo "exit $2" | stub apt-get
  RLOCK_TEST_REDIS_SERVER=no-such-server PATH="$stubs:$PATH" bash "$root/tests/matrix/quick.sh" >"$stubs/quick.out" 2>&1 ||
    status=$?
  if ((status != $1)); then
    echo "quick.sh ends with $status, not $1, where apt-get ends with $2:" >&2
    cat "$stubs/quick.out" >&2
    failed=1
  fi
}
quick 1 0
quick 77 100
exit $failed
