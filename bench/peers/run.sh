#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs other lock clients, in the versions that are pinned here, and measures rlock beside them.
#
# Usage: bench/peers/run.sh [--build-only] [OPTION OF measure.py]...      measure.py --help lists them
#
# A client that cannot be had (no Go, no Java, no package registry) is left out with a word about it. All that
# is installed goes to build/peers, and so do the results: tables on standard output, results.json, and the
# plots that plot.py makes of it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
programs=$PWD/build/peers
clients=$here/clients
build_only=
if [[ ${1:-} == --build-only ]]; then
  build_only=yes
  shift
fi
mkdir -p "$programs"

# Runs what installs a client; says so if it cannot be had.
install() {  # CLIENT FUNCTION
  if ! (set -e && "$2") >"$programs/$2.log" 2>&1; then
    echo "$1 is left out, see build/peers/$2.log" >&2
  fi
}

cpp() {
  cmake --preset bench
  cmake --build --preset bench --target bench_rlock_peer bench_hiredis_peer
  cp build/bench/bench/{rlock,hiredis}_peer "$programs"
}

go_clients() {
  cp -r "$clients/go" "$programs/"
  cd "$programs/go"
  go mod tidy
  go build -o "$programs/go_peer" .
}

redisson() {
  mvn -q -B -f "$clients/java/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory="$programs/java/lib"
  javac -nowarn -cp "$programs/java/lib/*" -d "$programs/java/classes" "$clients/java/RedissonPeer.java"
}

node_redlock() {
  cp -r "$clients/node" "$programs/"
  cd "$programs/node"
  npm install --silent --no-package-lock --no-audit --no-fund
}

redis_py() {
  python3 -m venv "$programs/python"
  "$programs/python/bin/pip" -q install -r "$clients/python/requirements.txt"
  cp "$clients/python/peer.py" "$programs/python/"
}

# Without these two nothing is compared.
cpp >"$programs/cpp.log" 2>&1 || { tail -n 20 "$programs/cpp.log" >&2; exit 1; }
install "redsync and rueidislock" go_clients
install Redisson redisson
install "node redlock" node_redlock
install redis-py redis_py
if [[ -n $build_only ]]; then
  exit
fi
python3 "$here/measure.py" --programs "$programs" --out "$programs/results" "$@"
python3 "$here/plot.py" "$programs/results/results.json" "$programs/results"
