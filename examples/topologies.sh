# SPDX-License-Identifier: Apache-2.0
# Part of examples/run.sh: a Redis Cluster, or a master with Sentinels, on free ports of the loopback interface.

cli=${RLOCK_TEST_REDIS_CLI:-redis-cli}
if ! command -v "$cli" >/dev/null; then
  echo "run.sh: $cli not found" >&2
  exit 1
fi
# A master counts as failed after so many milliseconds.
failure_timeout=1000

# Waits until a command succeeds.
await() {  # WHAT COMMAND...
  local what=$1 i
  shift
  for ((i = 0; i < 300; i++)); do
    if "$@" >/dev/null 2>&1; then
      return 0
    fi
    sleep 0.1
  done
  echo "run.sh: $what in vain" >&2
  exit 1
}

says() {  # PORT PATTERN COMMAND...
  local answer
  answer=$("$cli" -h 127.0.0.1 -p "$1" "${@:3}" 2>/dev/null) && grep -q "$2" <<<"$answer"
}

start_cluster() {
  local ports=() i
  for ((i = 0; i < 6; i++)); do
    start_server "${plain[@]}" --cluster-enabled yes --cluster-node-timeout "$failure_timeout" \
      --cluster-config-file nodes.conf --repl-diskless-sync-delay 0
    ports+=("$port")
  done
  "$cli" --cluster create "${ports[@]/#/127.0.0.1:}" --cluster-replicas 1 --cluster-yes \
    >"$directory/cluster.log" 2>&1 || {
    cat "$directory/cluster.log" >&2
    exit 1
  }
  for port in "${ports[@]}"; do
    await "waited for the cluster" says "$port" 'cluster_state:ok' cluster info
  done
  for port in "${ports[@]}"; do
    if ! says "$port" 'role:master' info replication; then
      await "waited for a replica" says "$port" 'master_link_status:up' info replication
    fi
  done
  data_ports=("${ports[@]}")
  export RLOCK_URI=redis+cluster://127.0.0.1:${ports[0]},127.0.0.1:${ports[1]},127.0.0.1:${ports[2]}
  echo "a private cluster of three masters and three replicas is at $RLOCK_URI until this ends"
}

start_sentinel() {
  local sentinels=() i master
  start_server "${plain[@]}" --repl-diskless-sync-delay 0
  master=$port
  data_ports=("$port")
  for ((i = 0; i < 2; i++)); do
    start_server "${plain[@]}" --replicaof 127.0.0.1 "$master"
    data_ports+=("$port")
    await "waited for a replica" says "$port" 'master_link_status:up' info replication
  done
  for ((i = 0; i < 3; i++)); do
    cat >"$directory/sentinel$i.conf" <<CONF
sentinel monitor example 127.0.0.1 $master 2
sentinel down-after-milliseconds example $failure_timeout
sentinel failover-timeout example 5000
CONF
    start_server "$directory/sentinel$i.conf" --sentinel
    sentinels+=("$port")
  done
  for port in "${sentinels[@]}"; do
    await "waited for the Sentinels" says "$port" 'slaves=2,sentinels=3' info sentinel
  done
  export RLOCK_URI=redis+sentinel://127.0.0.1:${sentinels[0]},127.0.0.1:${sentinels[1]},127.0.0.1:${sentinels[2]}/example
  echo "a private master with two replicas is behind the Sentinels at $RLOCK_URI until this ends"
}

# The port of the master that has the demonstration's lock.
master_port() {
  local port
  for port in "${data_ports[@]}"; do
    if says "$port" 'role:master' info replication && says "$port" . keys 'example:contend:*'; then
      echo "$port"
      return
    fi
  done
}

# Says so in the file "killed" when it is done.
kill_master_later() {
  local port='' pid
  sleep 2
  while [[ -z $port ]]; do
    port=$(master_port)
    sleep 0.05
  done
  pid=$("$cli" -p "$port" info server | sed -n 's/^process_id:\([0-9]*\).*/\1/p')
  if [[ " ${server_pids[*]} " == *" $pid "* ]]; then
    kill -KILL "$pid"
    touch "$directory/killed"
    echo "run.sh: the master 127.0.0.1:$port (pid $pid) was killed; a replica takes over"
  fi
}
