#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that is too slow for every change; takes hours. Called by `tests/run.sh matrix`.
set -uo pipefail
cd "$(dirname "$0")"

failed=()
part() {  # COMMAND...
  echo "=== $*"
  local status=0
  "$@" || status=$?
  # It has said why it could not be run.
  ((status == 0 || status == 77)) || failed+=("$*")
}
part ./debian.sh trixie tests/run.sh
part ./debian.sh trixie examples/run.sh
part ./servers.sh
part ./topologies.sh
part ./packages.sh bookworm
part ./packages.sh trixie
part ./conan.sh
part ./abi.sh
part ./prometheus.sh ../../build/release/examples/prometheus
part ./clang.sh 14
part ./debian.sh trixie tests/matrix/clang.sh 19
if ((${#failed[@]} > 0)); then
  printf 'matrix: failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "matrix: passed"
