#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command and draws what it prints, when it prints it, as an animated picture.

Usage: record.py PICTURE.svg COMMAND [ARGUMENT...]

From the project's folder: docs/recording/record.py docs/recording/contend.svg examples/run.sh
"""
import html
import re
import subprocess
import sys
import time

COLUMN, ROW, MARGIN, PAUSE = 7.83, 18, 18, 8.0
COLOURS = ((r"kill -9|killed|is dead", "#ff8f8f"), (r"(lost updates|two inside at once) +0$", "#8ce99a"),
           (r"^\$ ", "#ffffff"))


def record(command):
    """Each line with the seconds after which it came; what takes time before the first line is left out."""
    lines = []
    began = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            began = began or time.monotonic()
            lines.append((1.0 + time.monotonic() - began, line.rstrip("\n")))
    if process.returncode != 0:
        sys.exit(f"{command[0]} ended with {process.returncode}")
    return [(0.0, "$ " + " ".join(command))] + lines


def draw(lines):
    length = lines[-1][0] + PAUSE
    width = 2 * MARGIN + COLUMN * max(len(text) for _, text in lines)
    height = 2 * MARGIN + ROW * len(lines)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="monospace" '
           f'font-size="13" role="img"><title>{html.escape(lines[0][1][2:])}</title>',
           "<!-- SPDX-License-Identifier: Apache-2.0; drawn by record.py -->",
           f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#1f2933"/>']
    for row, (at, text) in enumerate(lines):
        if not text:
            continue
        colour = next((c for pattern, c in COLOURS if re.search(pattern, text)), "#d3dae2")
        shown = at / length
        # A viewer that does not move pictures shows the whole.
        moves = (f'<animate attributeName="opacity" values="0;1;1" keyTimes="0;{shown:.4f};1" calcMode="discrete" '
                 f'dur="{length:.1f}s" repeatCount="indefinite"/>') if at else ""
        out.append(f'<text xml:space="preserve" x="{MARGIN}" y="{MARGIN + ROW * row + 13}" fill="{colour}">'
                   f"{html.escape(text)}{moves}</text>")
    out.append("</svg>")
    return "\n".join(out) + "\n"


if len(sys.argv) < 3:
    sys.exit(__doc__)
picture = draw(record(sys.argv[2:]))
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write(picture)
