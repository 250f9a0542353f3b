# SPDX-License-Identifier: Apache-2.0
# The code in backticks in the running text of Markdown documents, each in a line: FILE, a tab, the code. It may go on in the
# next line of the text.

function flush_paragraph(   span) {
  while (match(paragraph, /`[^`]+`/)) {
    span = substr(paragraph, RSTART + 1, RLENGTH - 2)
    paragraph = substr(paragraph, RSTART + RLENGTH)
    print document "\t" span
  }
  paragraph = ""
}

FNR == 1 {
  flush_paragraph()
  document = FILENAME
  fenced = 0
}
/^ *```/ {
  flush_paragraph()
  fenced = !fenced
  next
}
fenced || /^    / { next }
/^ *$/ || /^[|#]/ { flush_paragraph() }
{ paragraph = paragraph (paragraph == "" ? "" : " ") $0 }
END { flush_paragraph() }
