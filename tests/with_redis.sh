#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with RLOCK_URI naming a redis-server that was started for it and ends with it.
#
# Usage: tests/with_redis.sh COMMAND [ARG...]
#
# The server listens on a Unix socket in a temporary directory, so no port can collide.
# RLOCK_TEST_REDIS_SERVER names the server program; the default is redis-server in PATH.
set -euo pipefail

server=${RLOCK_TEST_REDIS_SERVER:-redis-server}
if ! command -v "$server" >/dev/null; then
  echo "with_redis.sh: $server not found" >&2
  exit 1
fi

source "$(dirname "$0")/own_server.sh"
"${guard[@]}" "$server" --port 0 --unixsocket "$directory/redis.sock" --dir "$directory" \
  --save "" --appendonly no --daemonize no >"$directory/server.log" 2>&1 &
server_pid=$!

for ((i = 0; i < 200; i++)); do
  [[ -S $directory/redis.sock ]] && break
  kill -0 "$server_pid" 2>/dev/null || break
  sleep 0.05
done
if [[ ! -S $directory/redis.sock ]]; then
  echo "with_redis.sh: the server did not start:" >&2
  cat "$directory/server.log" >&2
  exit 1
fi

RLOCK_URI="unix://$directory/redis.sock" "$@"
