# SPDX-License-Identifier: Apache-2.0
# The commands of Markdown documents, each in a line: FILE, a tab, the command without its comment.
#
# A command is a line of a ```sh block, a statement of a ```cmake block, a line of another block that begins with "$ " or
# with a program, or an indented line that begins with a program or a variable of ours.

function emit(command) {
  # A remark beside a command is a comment, or three blanks away from it.
  sub(/ +# .*$/, "", command)
  if (!cmake) sub(/   +.*$/, "", command)
  gsub(/[ \t]+/, " ", command)
  sub(/^ /, "", command)
  sub(/ $/, "", command)
  if (command != "") print FILENAME "\t" command
}
function looks_like_a_command(line) {
  return line ~ /^(\$ |RLOCK_[A-Z_]+=|(cmake|tests|examples|bench|build)\/[^ ]|(cmake|ctest|grep|yes|rlock|redis-cli|apt-get|conan|vcpkg|c\+\+) )/
}

FNR == 1 { fenced = 0; held = "" }
/^ *```/ {
  fenced = !fenced
  language = fenced ? $0 : ""
  sub(/^ *```/, "", language)
  cmake = language == "cmake"
  next
}
fenced && language == "sh" {
  line = held $0
  held = ""
  if (line ~ /\\$/) {
    held = substr(line, 1, length(line) - 1)
    next
  }
  emit(line)
}
fenced && cmake {
  line = held $0
  if (gsub(/\(/, "(", line) > gsub(/\)/, ")", line)) {
    held = line " "
    next
  }
  held = ""
  emit(line)
}
fenced && language == "" && looks_like_a_command($0) {
  line = $0
  sub(/^\$ /, "", line)
  emit(line)
}
!fenced && /^    / {
  line = substr($0, 5)
  if (looks_like_a_command(line)) emit(line)
}
