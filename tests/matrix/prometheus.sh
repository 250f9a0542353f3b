#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Grafana dashboard against a real Prometheus: the example `prometheus` is scraped, and each
# query of docs/grafana/rlock-dashboard.json must be one that Prometheus accepts and has data for.
# promtool, if it is there, checks names and help texts.
#
# Usage: tests/matrix/prometheus.sh EXAMPLE     the program `prometheus` of a build
#
# Exit status 77: there is no prometheus. Needs redis-server, python3, and prometheus (PROMETHEUS, PROMTOOL: other places of them).
set -euo pipefail

example=$(realpath "${1:?usage: tests/matrix/prometheus.sh EXAMPLE}")
root=$(cd "$(dirname "$0")/../.." && pwd)
prometheus=${PROMETHEUS:-prometheus}
promtool=${PROMTOOL:-promtool}
seconds=25

if ! command -v "$prometheus" >/dev/null; then
  echo "prometheus.sh: NOT RUN: $prometheus not found" >&2
  exit 77
fi

directory=$(mktemp -d)
pids=()
cleanup() {
  local pid
  for pid in "${pids[@]}"; do
    kill "$pid" 2>/dev/null || true
  done
  wait || true
  rm -rf "$directory"
}
trap cleanup EXIT

fail() {
  echo "prometheus.sh: $*" >&2
  tail -n 20 "$directory"/*.log >&2 || true
  exit 1
}

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
redis-server --unixsocket "$directory/redis" --port 0 --save '' --dir "$directory" >"$directory/redis.log" &
pids+=($!)
for _ in {1..100}; do
  [[ -S $directory/redis ]] && break
  sleep 0.1
done

"$example" --seconds "$seconds" "unix://$directory/redis" >"$directory/example.log" 2>&1 &
pids+=($!)
metrics=
for _ in {1..100}; do
  metrics=$(sed -n 's/^port //p' "$directory/example.log")
  [[ -n $metrics ]] && break
  sleep 0.1
done
[[ -n $metrics ]] || fail "the example does not serve"

cat >"$directory/prometheus.yml" <<YAML
global: { scrape_interval: 1s }
scrape_configs:
  - job_name: rlock
    static_configs: [{ targets: ["127.0.0.1:$metrics"] }]
YAML
"$prometheus" --config.file="$directory/prometheus.yml" --storage.tsdb.path="$directory/data" \
  --web.listen-address="127.0.0.1:$port" >"$directory/prometheus.log" 2>&1 &
pids+=($!)

METRICS=$metrics PORT=$port DASHBOARD=$root/docs/grafana/rlock-dashboard.json PROMTOOL=$promtool \
  SECONDS_LEFT=$seconds python3 - <<'PYTHON' || fail "see above"
import json, os, shutil, subprocess, sys, time, urllib.parse, urllib.request

def get(url):
    with urllib.request.urlopen(url, timeout=5) as reply:
        return reply.read().decode()

queries = [(panel["title"], target["expr"])
           for panel in json.load(open(os.environ["DASHBOARD"]))["panels"]
           for target in panel["targets"]]
if len(queries) < 10:
    sys.exit("the dashboard has hardly any queries")

def data(expr):
    expr = expr.replace("$__rate_interval", "10s").replace("$client", ".*")
    url = f"http://127.0.0.1:{os.environ['PORT']}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
    answer = json.loads(get(url))
    # Without events in the interval a quantile is no number.
    return [one for one in answer["data"]["result"] if one["value"][1] != "NaN"]

until = time.monotonic() + int(os.environ["SECONDS_LEFT"]) - 3
missing, answered = queries, None
while missing and time.monotonic() < until:
    time.sleep(1)
    try:
        missing = [query for query in missing if not data(query[1])]
        answered = True
    except urllib.error.HTTPError as refused:
        sys.exit(f"Prometheus refuses a query: {refused.read().decode()}")
    except (urllib.error.URLError, ConnectionError):
        continue
if not answered:
    sys.exit("Prometheus does not answer")
for title, expr in missing:
    print(f"no data: {title}: {expr}", file=sys.stderr)

tool = shutil.which(os.environ["PROMTOOL"])
if tool:
    page = get(f"http://127.0.0.1:{os.environ['METRICS']}/metrics")
    lint = subprocess.run([tool, "check", "metrics"], input=page, text=True, capture_output=True)
    if lint.returncode != 0:
        print(lint.stdout + lint.stderr, file=sys.stderr)
        sys.exit(1)
sys.exit(1 if missing else 0)
PYTHON
echo "all queries of the dashboard have data"
