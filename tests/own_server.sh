# SPDX-License-Identifier: Apache-2.0
# For scripts that run a command with a server of its own: sets $directory, a temporary one that ends with the
# script, and $guard, the words before the server's command by which the kernel ends it, should the script be
# killed. The script sets server_pid once it has started the server, which then ends with it, too.
# shellcheck shell=bash disable=SC2034

directory=$(mktemp -d)
server_pid=
cleanup() {
  if [[ -n $server_pid ]]; then
    kill -KILL "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
  fi
  rm -rf "$directory"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

guard=()
if command -v setpriv >/dev/null; then
  guard=(setpriv --pdeathsig KILL)
fi
