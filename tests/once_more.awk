# SPDX-License-Identifier: Apache-2.0
# Reads ctest's LastTest.log and prints a line for each failed test about which the host has something to say
# (tests/support/host_report.cpp):
#
#   safety NAME    a failed case of it checks safety
#   stalled NAME   the host stood still while each of its failed cases ran
#
# With -v cases=1 it reads what test programs print, each file from one program, and the names are those of cases.

function say(what) {
  print what, name
}

cases && FNR == 1 { verdict = "" }
/^[0-9]+\/[0-9]+ Test: / {
  name = $0
  sub(/^[0-9]+\/[0-9]+ Test: /, "", name)
  failed = excused = safety = 0
  verdict = ""
}
# A case's verdict stands before its result.
/^\[   HOST   \] stood still for [0-9]+ ms$/ { verdict = "stalled" }
/^\[   HOST   \] not asked: a check of safety$/ { verdict = "safety" }
/^\[  FAILED  \] .* \([0-9]+ ms\)$/ {
  ++failed
  excused += verdict == "stalled"
  safety += verdict == "safety"
  if (cases && verdict != "") {
    name = $4
    sub(/,$/, "", name)
    say(verdict)
  }
  verdict = ""
}
/^Test Failed\.$/ && !cases {
  if (safety > 0) {
    say("safety")
  } else if (failed > 0 && failed == excused) {
    say("stalled")
  }
}
