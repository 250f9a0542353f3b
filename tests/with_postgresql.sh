#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with RLOCK_TEST_PSQL, the command line of a client of a PostgreSQL server that was started for it and ends
# with it.
#
# Usage: tests/with_postgresql.sh COMMAND [ARG...]
#
# Exit status 77: there is no PostgreSQL.
set -euo pipefail

bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
PATH=$PATH:$bin
for program in initdb postgres psql; do
  if ! command -v "$program" >/dev/null; then
    echo "with_postgresql.sh: there is no $program" >&2
    exit 77
  fi
done
source "$(dirname "$0")/own_server.sh"
# It leaves shared memory behind when it is killed.
end_server() {
  kill -QUIT "$server_pid" 2>/dev/null && wait "$server_pid" || true
  server_pid=
}
trap 'end_server; cleanup' EXIT
# The server does not run as root.
as=()
if [[ $(id -u) == 0 ]]; then
  as=(setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups)
  chown nobody "$directory"
fi
cd "$directory"
"${as[@]}" initdb -D "$directory/data" -U postgres -A trust --no-sync --no-locale -E UTF8 >"$directory/log" 2>&1 || {
  cat "$directory/log" >&2
  exit 1
}
if command -v setpriv >/dev/null; then
  as=(setpriv --pdeathsig QUIT "${as[@]:1}")
fi
"${as[@]}" postgres -D "$directory/data" -k "$directory" -c listen_addresses= -c fsync=off -c shared_buffers=1MB \
  -c max_connections=5 >"$directory/log" 2>&1 &
server_pid=$!
export RLOCK_TEST_PSQL="psql -X -q -A -t -v ON_ERROR_STOP=1 -h $directory -U postgres postgres"
for ((i = 0; i < 400; i++)); do
  if $RLOCK_TEST_PSQL -c 'SELECT 1' >/dev/null 2>&1; then
    "$@"
    exit
  fi
  kill -0 "$server_pid" 2>/dev/null || break
  sleep 0.05
done
echo "with_postgresql.sh: the server did not start:" >&2
tail -n 20 "$directory/log" >&2
exit 1
