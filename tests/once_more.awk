# SPDX-License-Identifier: Apache-2.0
# Reads ctest's LastTest.log and prints a line for each failed test about which the host has something to say
# (tests/support/host_report.cpp), or that ended in a way that no host is to blame for:
#
#   safety NAME    a failed case of it checks safety, a sanitizer reported, or a case did not come to its end
#   stalled NAME   the host stood still while each of its failed cases ran
#
# With -v cases=1 it reads what test programs print, each file from one program, and the names are those of cases.

function say(what) {
  print what, name
}

# The program before ended inside a case, or a sanitizer has reported there.
function end_program() {
  if (running != "" || reported) {
    print "safety", running != "" ? running : last
  }
  running = ""
  reported = 0
}

cases && FNR == 1 {
  end_program()
  verdict = ""
}
/^[0-9]+\/[0-9]+ Test: / {
  name = $0
  sub(/^[0-9]+\/[0-9]+ Test: /, "", name)
  failed = excused = safety = reported = 0
  verdict = running = ""
}
/^\[ RUN      \] / { running = last = $4 }
/^\[       OK \] |^\[  SKIPPED \] .* \([0-9]+ ms\)$/ { running = "" }
/(Thread|Address|Leak|UndefinedBehavior)Sanitizer|: runtime error: / { reported = 1 }
# A case's verdict stands before its result.
/^\[   HOST   \] stood still for [0-9]+ ms$/ { verdict = "stalled" }
/^\[   HOST   \] not asked: a check of safety$/ { verdict = "safety" }
/^\[  FAILED  \] .* \([0-9]+ ms\)$/ {
  running = ""
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
  if (safety > 0 || reported || running != "") {
    say("safety")
  } else if (failed > 0 && failed == excused) {
    say("stalled")
  }
}
END {
  if (cases) {
    end_program()
  }
}
