# SPDX-License-Identifier: Apache-2.0
# What Doxygen reads instead of a Markdown document: each heading has a name of its own, FILE_ANCHOR, and a link to a
# heading is a reference to that name. Doxygen knows neither the anchors of headings nor links to them.

function anchor_of(heading) {
  heading = tolower(heading)
  sub(/^#+ +/, "", heading)
  gsub(/[^a-z0-9 _-]/, "", heading)
  gsub(/ /, "-", heading)
  return heading
}

function stem(path) {
  sub(/.*\//, "", path)
  sub(/\.md$/, "", path)
  return tolower(path)
}

/^ *```/ { fenced = !fenced }
fenced || /^    / || /^ *```/ { print; next }
/^##+ / {
  anchor = anchor_of($0)
  if (anchor in seen) anchor = anchor "-" seen[anchor]++
  else seen[anchor] = 1
  print $0 " {#" stem(FILENAME) "_" anchor "}"
  next
}
# The words of a link must be in one line.
/\[[^]]*$/ && !/`[^`]*\[[^`]*`[^[]*$/ {
  held = held $0 " "
  next
}
{
  line = held $0
  held = ""
  out = ""
  while (match(line, /\]\([^)]*#[^)]+\)/)) {
    target = substr(line, RSTART + 2, RLENGTH - 3)
    out = out substr(line, 1, RSTART - 1)
    at = index(target, "#")
    file = substr(target, 1, at - 1)
    if (file ~ /:/ || (file != "" && file !~ /\.md$/)) {
      out = out "](" target ")"
    } else {
      out = out "](@ref " (file == "" ? stem(FILENAME) : stem(file)) "_" substr(target, at + 1) ")"
    }
    line = substr(line, RSTART + RLENGTH)
  }
  print out line
}
END { if (held != "") print held }
