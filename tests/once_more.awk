# SPDX-License-Identifier: Apache-2.0
# Reads ctest's LastTest.log and prints the names of the failed tests that may run once more because the host stood
# still while each of their failed cases ran, and none of those checks safety (tests/support/host_report.cpp).

/^[0-9]+\/[0-9]+ Test: / {
  name = $0
  sub(/^[0-9]+\/[0-9]+ Test: /, "", name)
  failed = excused = 0
}
/^\[  FAILED  \] .* \([0-9]+ ms\)$/ { ++failed }
/^\[   HOST   \] stood still for [0-9]+ ms$/ { ++excused }
/^Test Failed\.$/ {
  if (failed > 0 && failed == excused) {
    print name
  }
}
