#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that is too slow for every change; takes hours. Called by `tests/run.sh matrix`. A part that
# cannot be run here is no failure; the end of the output lists them.
set -uo pipefail
cd "$(dirname "$0")"

failed=()
skipped=()
part() {  # COMMAND...
  echo "=== $*"
  local status=0
  "$@" || status=$?
  case $status in
    0) ;;
    77) skipped+=("$*") ;; # it has said why it could not be run
    *) failed+=("$*") ;;
  esac
}
part ./debian.sh bookworm tests/run.sh
part ./debian.sh bookworm examples/run.sh
part env RLOCK_PRESET=bench ./debian.sh trixie tests/run.sh
part ./debian.sh trixie examples/run.sh
part ./servers.sh
part ./topologies.sh
part ./packages.sh bookworm
part ./packages.sh trixie
part ./conan.sh
part ./vcpkg.sh
part ./commands.sh
part ./abi.sh
part ./prometheus.sh ../../build/release/examples/prometheus
part ./clang.sh 14
part ./debian.sh trixie tests/matrix/clang.sh 19
part ./races.sh
part ./analyzer.sh
# All breaks take hours: each day has a twelfth of its own.
part ../mutants/run.sh --shard "$((10#$(date +%j) % 12 + 1))/12"
if ((${#skipped[@]} > 0)); then
  printf 'matrix: NOT RUN: %s\n' "${skipped[@]}"
fi
if ((${#failed[@]} > 0)); then
  printf 'matrix: failed: %s\n' "${failed[@]}"
  exit 1
fi
if ((${#skipped[@]} > 0)); then
  echo "matrix: passed, but for ${#skipped[@]} parts that could not be run here"
else
  echo "matrix: passed"
fi
