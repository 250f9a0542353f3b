#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs an example against a Redis server of its own.
#
# Usage: examples/run.sh [NAME] [ARGUMENT...]
#
#   examples/run.sh                  the demonstration: several processes contend for one lock, the
#                                    one that holds it is killed, another takes over
#   examples/run.sh --processes 8    the same with more processes
#   examples/run.sh contend --help   what else it can be told
#   examples/run.sh coroutine        one of the small examples, which are:
#                                    @EXAMPLES@
#   examples/run.sh --topology cluster [--keep-nodes] [NAME] [ARGUMENT...]
#   examples/run.sh --topology sentinel ...
#                                    against a Redis Cluster of three masters with a replica each, or
#                                    a master with two replicas and three Sentinels; two seconds
#                                    after the demonstration begins the master with its lock is
#                                    killed, unless --keep-nodes; if none was, the exit status is 1
#
# Environment:
#   RLOCK_URI       the server to use, such as redis://localhost:6379 or
#                   redis+cluster://host1:7000,host2:7000; unset: one is started for the occasion and
#                   ended afterwards
#   RLOCK_PRESET    preset of CMakePresets.json to build (default: a build of the examples alone)
#   RLOCK_JOBS      parallel compilations (default: processors)
set -euo pipefail
script=$(cd "$(dirname "$0")" && pwd)/run.sh
cd "$(dirname "$0")/.."

examples=(asio callback config coroutine count_down_latch cron fair_lock fenced future inspect job_pool leader lease_lost lock log_json log_spdlog multi_lock non_reentrant object_store own_loop permits prometheus rate_limit read_write red_lock semaphore sender simple_lock spin_lock std_guards std_mutex stock try_lock unit_test)

topology=single
kill_node=yes
while [[ ${1:-} == --topology || ${1:-} == --keep-nodes ]]; do
  if [[ $1 == --keep-nodes ]]; then
    kill_node=
    shift
    continue
  fi
  topology=${2:-}
  case $topology in
    single | sentinel | cluster) shift 2 ;;
    *)
      echo "run.sh: --topology is single, sentinel or cluster, not '$topology'" >&2
      exit 2
      ;;
  esac
done
if [[ $topology != single && -n ${RLOCK_URI:-} ]]; then
  echo "run.sh: --topology starts servers of its own, but RLOCK_URI names some" >&2
  exit 2
fi

name=contend
case ${1:-} in
  -h | --help)
    sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$script" | sed "s/@EXAMPLES@/${examples[*]}/"
    exit 0
    ;;
  '' | -*) ;;
  *)
    name=$1
    shift
    if [[ " contend ${examples[*]} " != *" $name "* ]]; then
      echo "run.sh: there is no example $name; there are: contend ${examples[*]}" >&2
      exit 2
    fi
    ;;
esac

server=${RLOCK_TEST_REDIS_SERVER:-redis-server}
groups=(build)
if [[ -z ${RLOCK_URI:-} || -n ${RLOCK_PRESET:-} ]]; then
  groups+=(test)
fi
# The other examples do without what these need besides.
case $name in
  asio | unit_test) groups+=(test) ;;
  log_spdlog | prometheus) groups+=(metrics) ;;
esac
bash cmake/install_packages.sh "${groups[@]}"

directory=$(mktemp -d)
server_pids=()
program_pid=
killer_pid=
signalled=
end_server() {  # PID
  while kill -KILL "$1" 2>/dev/null; do
    sleep 0.01
  done
}
cleanup() {
  local pid
  if [[ -n $killer_pid && ! -e $directory/killed ]]; then
    kill "$killer_pid" 2>/dev/null || true
  fi
  for pid in "${server_pids[@]}"; do
    end_server "$pid"
  done
  rm -rf "$directory"
}
interrupt() {  # STATUS
  if [[ -z $program_pid ]]; then
    exit "$1"
  fi
  signalled=$1
  kill -TERM "$program_pid" 2>/dev/null || true
}
trap cleanup EXIT
trap 'interrupt 129' HUP
trap 'interrupt 130' INT
trap 'interrupt 143' TERM

# Starts a command that ends with this script, even if this script is killed, and that a Ctrl-C does
# not reach by itself.
guarded() {  # SIGNAL COMMAND...
  local signal=$1
  shift
  if command -v setpriv >/dev/null && command -v setsid >/dev/null; then
    exec setpriv --pdeathsig "$signal" setsid "$@"
  fi
  exec "$@"
}

# --------------------------------------------------------------------------------------------- build

preset=${RLOCK_PRESET:-release}
build=build/$preset
configure=(cmake --preset "$preset")
if [[ -z ${RLOCK_PRESET:-} && ! -f $build/build.ninja ]]; then
  build=build/examples
  configure+=(-B "$build" -DRLOCK_BUILD_TESTS=OFF)
fi
# A build can only use it if the directory was configured with it.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi

# Runs a command; what it prints is shown only if it fails.
quietly() {  # COMMAND...
  if ! "$@" >"$directory/build.log" 2>&1 </dev/null; then
    grep -nE 'error:|Error|FAILED' "$directory/build.log" | head -20 >&2 || true
    tail -n 40 "$directory/build.log" >&2
    echo "run.sh: failed: $*" >&2
    exit 1
  fi
}

# A package that has come since may make an example possible.
if [[ ! -f $build/build.ninja || ! -x $build/examples/$name ]]; then
  quietly "${configure[@]}"
fi
compile=(cmake --build "$build" -j "${RLOCK_JOBS:-$(nproc)}" --target rlock_examples)
if [[ -t 1 ]]; then
  "${compile[@]}"
else
  quietly "${compile[@]}"
fi
if [[ ! -x $build/examples/$name ]]; then
  echo "run.sh: $name was not built: what it needs besides rlock is not there" >&2
  exit 1
fi

# -------------------------------------------------------------------------------------------- server

# Starts a server in a folder of its own. Its pid is in $started, its port in $port then.
try_server() {  # PORT ARGUMENT...
  local log folder i
  port=$1
  shift
  folder=$directory/$port
  log=$folder/server.log
  mkdir -p "$folder"
  guarded KILL "$server" "$@" --port "$port" --bind 127.0.0.1 --dir "$folder" --daemonize no \
    >"$log" 2>&1 </dev/null &
  started=$!
  # Nobody is told when it is killed.
  disown "$started"
  for ((i = 0; i < 200; i++)); do
    if grep -qE 'Ready to accept connections|Sentinel ID is' "$log"; then
      server_pids+=("$started")
      return 0
    fi
    kill -0 "$started" 2>/dev/null || break
    sleep 0.05
  done
  end_server "$started"
  return 1
}

start_server() {  # [CONFIGURATION FILE] ARGUMENT...
  # The server itself finds out whether a port is free. That of a cluster node needs another, 10000 above.
  local attempt
  for ((attempt = 0; attempt < 10; attempt++)); do
    if try_server $((20000 + RANDOM % 12000)) "$@"; then
      return 0
    fi
  done
  echo "run.sh: $server did not start:" >&2
  cat "$directory/$port/server.log" >&2
  exit 1
}

plain=(--save "" --appendonly no)
if [[ $topology != single ]]; then
  source examples/topologies.sh
  "start_$topology"
elif [[ -z ${RLOCK_URI:-} ]]; then
  start_server "${plain[@]}"
  export RLOCK_URI=redis://127.0.0.1:$port
  echo "a private $server listens on 127.0.0.1:$port (pid $started) until this ends"
fi

# ----------------------------------------------------------------------------------------------- run

TMPDIR=$directory guarded TERM "$build/examples/$name" "$@" &
program_pid=$!
if [[ $topology != single && -n $kill_node && $name == contend && " $* " != *" --help "* ]]; then
  kill_master_later &
  killer_pid=$!
  disown "$killer_pid"
fi
status=0
wait "$program_pid" || status=$?
# A signal ends the first wait; the program then takes its time to end well.
while kill -0 "$program_pid" 2>/dev/null; do
  status=0
  wait "$program_pid" || status=$?
done
if [[ -n $signalled && $status != [01] ]]; then
  status=$signalled
fi
# Otherwise the demonstration has shown less than it says.
if [[ -n $killer_pid && -z $signalled && $status == 0 && ! -e $directory/killed ]]; then
  echo "run.sh: no master was killed before the end; --seconds makes it last longer, --keep-nodes kills none" >&2
  status=1
fi
exit "$status"
