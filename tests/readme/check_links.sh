#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That no link between the documents is dead: each file is there, and each heading that a link names.
#
# Usage: check_links.sh ROOT
set -euo pipefail
cd "$1"

documents=(README.md CHANGELOG.md docs/*.md tests/*.md tests/*/*.md examples/*/*.md)
existing=()
for document in "${documents[@]}"; do
  [[ -e $document ]] && existing+=("$document")
done

# "file#anchor" for each heading, and "file line target" for each link, code left out. An anchor is the heading in lower
# case without punctuation, with "-" for blanks; a heading that comes again gets a number.
awk '
  FNR == 1 { fenced = 0 }
  /^ *```/ { fenced = !fenced; next }
  fenced || /^    / { next }
  /^#+ / {
    anchor = tolower($0)
    sub(/^#+ +/, "", anchor)
    gsub(/[^a-z0-9 _-]/, "", anchor)
    gsub(/ /, "-", anchor)
    key = FILENAME "#" anchor
    if (key in seen) anchor = anchor "-" seen[key]++
    else seen[key] = 1
    print "anchor", FILENAME "#" anchor
  }
  {
    line = $0
    gsub(/`[^`]*`/, "", line)
    while (match(line, /\]\([^)]+\)/)) {
      print "link", FILENAME, FNR, substr(line, RSTART + 2, RLENGTH - 3)
      line = substr(line, RSTART + RLENGTH)
    }
  }
' "${existing[@]}" | {
  declare -A anchors=()
  links=()
  while read -r kind rest; do
    if [[ $kind == anchor ]]; then
      anchors[$rest]=1
    else
      links+=("$rest")
    fi
  done
  dead=0
  for link in "${links[@]}"; do
    read -r document line target <<<"$link"
    case $target in
      http://* | https://* | mailto:*) continue ;;
    esac
    file=${target%%#*}
    anchor=
    [[ $target == *#* ]] && anchor=${target#*#}
    if [[ -z $file ]]; then
      file=$document
    else
      file=$(realpath -m --relative-to=. "$(dirname "$document")/$file")
    fi
    if [[ ! -e $file ]]; then
      echo "$document:$line: there is no $file"
      dead=$((dead + 1))
    elif [[ -n $anchor && $file == *.md && -z ${anchors[$file#$anchor]:-} ]]; then
      echo "$document:$line: $file has no heading #$anchor"
      dead=$((dead + 1))
    fi
  done
  echo "${#links[@]} links, $dead dead"
  ((dead == 0 && ${#links[@]} > 100))
}
