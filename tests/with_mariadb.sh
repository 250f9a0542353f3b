#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with two more arguments: --mysql, and the client of a MariaDB server that was started
# for it and ends with it.
#
# Usage: tests/with_mariadb.sh SERVER CLIENT COMMAND [ARG...]
#
# SERVER is mariadbd and CLIENT mariadb, or their paths.
set -euo pipefail

server=$1
client=$2
shift 2
source "$(dirname "$0")/own_server.sh"
# Without its tables of users the server needs no installation.
mkdir -p "$directory/data/shop"
"${guard[@]}" "$server" --no-defaults --user="$(id -un)" --datadir="$directory/data" \
  --socket="$directory/s" --pid-file="$directory/pid" --skip-networking --skip-grant-tables \
  --innodb-buffer-pool-size=16M >"$directory/server.log" 2>&1 &
server_pid=$!
client="$client --no-defaults --socket=$directory/s shop"
for ((i = 0; i < 400; i++)); do
  if $client -e 'SELECT 1' >/dev/null 2>&1; then
    "$@" --mysql "$client"
    exit
  fi
  kill -0 "$server_pid" 2>/dev/null || break
  sleep 0.05
done
echo "with_mariadb.sh: the server did not start:" >&2
tail -n 20 "$directory/server.log" >&2
exit 1
