#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what measure.py has written: pairs over threads, and acquisitions of one lock over threads, as SVG.

Usage: plot.py RESULTS_JSON DIRECTORY
"""
import html
import json
import math
import sys

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 200, 50, 50
COLOURS = ['#c1272d', '#1f5fa8', '#3a8f4d', '#8a5bb5', '#d98a1e', '#0f8b8d', '#6b6b6b', '#b0568f']


def points_of(rows):
    """For each client its (threads, per second), in the order of the report."""
    lines = {}
    for row in rows:
        command, *_, threads = row['command'].split()
        if command != 'async':
            lines.setdefault(row['client'], []).append((int(threads), row['per_second']))
    return lines


def round_up(value):
    """The next of 1, 2, 5, 10, 20, ... times a power of ten."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


class Chart:
    def __init__(self, title, lines):
        self.title, self.lines = title, lines
        self.threads = sorted({threads for line in lines.values() for threads, _ in line})
        self.top = round_up(max(rate for line in lines.values() for _, rate in line))
        self.out = []

    def x(self, threads):
        return LEFT + (WIDTH - LEFT - RIGHT) * self.threads.index(threads) / max(1, len(self.threads) - 1)

    def y(self, rate):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / self.top

    def text(self, x, y, words, more=''):
        self.out.append(f'<text x="{x:.0f}" y="{y:.0f}" {more}>{html.escape(words)}</text>')

    def axes(self):
        for i in range(6):
            rate = self.top * i / 5
            self.out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(rate):.0f}" y2="{self.y(rate):.0f}" '
                            'stroke="#ddd"/>')
            self.text(LEFT - 8, self.y(rate) + 4, f'{rate:,.0f}', 'text-anchor="end"')
        for threads in self.threads:
            self.text(self.x(threads), HEIGHT - BOTTOM + 20, str(threads), 'text-anchor="middle"')
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, 'threads', 'text-anchor="middle"')
        self.text(LEFT, 25, self.title, 'font-size="15" font-weight="bold"')

    def names(self):
        """The names stand beside the ends of their lines, far enough from each other to be read."""
        ends = sorted(((self.y(line[-1][1]), name) for name, line in self.lines.items()))
        last = -math.inf
        places = {}
        for end, name in ends:
            last = places[name] = max(end, last + 15)
        below = last - (HEIGHT - BOTTOM)
        return {name: place - max(0, below) for name, place in places.items()}

    def svg(self):
        self.axes()
        names = self.names()
        for colour, (name, line) in zip(COLOURS, self.lines.items()):
            width = 3 if name == 'rlock' else 1.6
            path = ' '.join(f'{self.x(threads):.1f},{self.y(rate):.1f}' for threads, rate in line)
            self.out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
            for threads, rate in line:
                self.out.append(f'<circle cx="{self.x(threads):.1f}" cy="{self.y(rate):.1f}" r="{width + .8}" '
                                f'fill="{colour}"/>')
            end = self.x(line[-1][0]) + 10
            self.text(end, names[name] + 4, name, f'fill="{colour}"' + (' font-weight="bold"' if name == 'rlock' else ''))
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
                f'font-size="12">\n<!-- SPDX-License-Identifier: Apache-2.0 -->\n'
                f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + '\n'.join(self.out) + '\n</svg>\n')


def main():
    with open(sys.argv[1]) as file:
        workloads = json.load(file)['workloads']
    for workload, title in (('pairs', 'Uncontended pairs of lock and unlock per second'),
                            ('contended', 'Acquisitions per second of one lock in one process')):
        lines = points_of(workloads.get(workload, []))
        if lines:
            with open(f'{sys.argv[2]}/{workload}.svg', 'w') as out:
                out.write(Chart(title, lines).svg())


main()
