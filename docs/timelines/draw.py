#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the timelines of the documents.

Usage: draw.py            writes NAME.svg beside each NAME.txt
       draw.py --check    fails if one of them is not what its text says

A text has one statement in each line; times are numbers in the unit of the axis:

    title TEXT
    axis FROM TO UNIT [TICK...]
    lane NAME TEXT
    bar LANE FROM TO STYLE TEXT           STYLE: valid, lease, wait, away, lost
    arrow LANE TIME LANE TIME TEXT        a message, between neighbouring lanes
    point LANE TIME TEXT                  an event
"""
import html
import pathlib
import sys

WIDTH, LEFT, RIGHT = 860, 150, 24
LANE, BAR, TOP, FOOT = 84, 26, 62, 44
FILL = {"valid": "#2e9e6b", "lease": "#3b76c4", "wait": "#d9982b", "away": "#9aa3ad", "lost": "#c8453b"}


class Timeline:
    def __init__(self, path):
        self.path = path
        self.lanes, self.bars, self.arrows, self.points, self.ticks = [], [], [], [], []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                try:
                    self.read(*line.split(None, 1))
                except (KeyError, TypeError, ValueError) as error:
                    sys.exit(f"{path.name}:{number}: {line}: {error}")

    def read(self, word, rest):
        if word == "title":
            self.title = rest
        elif word == "axis":
            first, last, self.unit, *ticks = rest.split()
            self.first, self.last, self.ticks = float(first), float(last), ticks
        elif word == "lane":
            name, text = rest.split(None, 1)
            self.lanes.append((name, text))
        elif word == "bar":
            lane, first, last, style, text = rest.split(None, 4)
            self.bars.append((self.row(lane), float(first), float(last), FILL[style], text))
        elif word == "arrow":
            sender, sent, receiver, received, text = rest.split(None, 4)
            self.arrows.append((self.row(sender), float(sent), self.row(receiver), float(received), text))
        elif word == "point":
            lane, when, text = rest.split(None, 2)
            self.points.append((self.row(lane), float(when), text))
        else:
            raise ValueError("no such statement")

    def row(self, name):
        return [lane for lane, _ in self.lanes].index(name)

    def x(self, time):
        return LEFT + (time - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    @staticmethod
    def y(row):
        return TOP + row * LANE + 20

    def draw(self):
        height = TOP + len(self.lanes) * LANE + FOOT
        out = []

        def text(x, y, words, anchor="start", size=13, fill="#1f2933", weight="normal"):
            out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}" '
                       f'font-weight="{weight}">{html.escape(words)}</text>')

        def line(x1, y1, x2, y2, more):
            out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {more}/>')

        out.append(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
                   f'font-family="sans-serif"><title>{html.escape(self.title)}</title>')
        out.append('<!-- SPDX-License-Identifier: Apache-2.0; drawn by draw.py -->')
        out.append('<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                   'orient="auto"><path d="M0 0L8 4L0 8z" fill="#1f2933"/></marker></defs>')
        out.append(f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>')
        text(WIDTH / 2, 28, self.title, "middle", 16, weight="bold")
        axis = TOP + len(self.lanes) * LANE
        for tick in self.ticks:
            x = self.x(float(tick))
            line(x, TOP - 12, x, axis, 'stroke="#e1e5ea"')
            text(x, axis + 18, tick, "middle", 12, "#52606d")
        text(WIDTH - RIGHT, axis + 36, self.unit, "end", 12, "#52606d")
        for row, (_, name) in enumerate(self.lanes):
            text(16, self.y(row) + BAR / 2 + 5, name, weight="bold")
            line(LEFT, self.y(row) + BAR / 2, WIDTH - RIGHT, self.y(row) + BAR / 2, 'stroke="#9aa3ad"')
        line(LEFT, axis, WIDTH - RIGHT, axis, 'stroke="#52606d"')
        for row, first, last, fill, words in self.bars:
            x, width = self.x(first), self.x(last) - self.x(first)
            out.append(f'<rect x="{x:.1f}" y="{self.y(row)}" width="{width:.1f}" height="{BAR}" rx="3" fill="{fill}"/>')
            if words != "-":
                text(x + width / 2, self.y(row) + BAR / 2 + 5, words, "middle", 12, "#ffffff")
        for sender, sent, receiver, received, words in self.arrows:
            down = receiver > sender
            y1 = self.y(sender) + (BAR if down else 0)
            y2 = self.y(receiver) + (0 if down else BAR)
            line(self.x(sent), y1, self.x(received), y2, 'stroke="#1f2933" stroke-width="1.4" marker-end="url(#tip)"')
            if words != "-":
                text((self.x(sent) + self.x(received)) / 2 + 7, (y1 + y2) / 2 + 4, words, size=12)
        for row, when, words in self.points:
            x, y = self.x(when), self.y(row)
            out.append(f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="#1f2933"/>')
            near_end = x > WIDTH - 190
            text(x + (-4 if near_end else 4), y - 8, words, "end" if near_end else "start", 12)
        out.append("</svg>")
        return "\n".join(out) + "\n"


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = []
    for path in sorted(pathlib.Path(__file__).parent.glob("*.txt")):
        drawn, picture = Timeline(path).draw(), path.with_suffix(".svg")
        if not check:
            picture.write_text(drawn)
        elif not picture.exists() or picture.read_text() != drawn:
            stale.append(picture.name)
    if stale:
        sys.exit("not what their texts say, run draw.py: " + " ".join(stale))


main()
