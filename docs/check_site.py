#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a link within the generated site leads nowhere.

Usage: check_site.py FOLDER
"""
import pathlib
import re
import sys

folder = pathlib.Path(sys.argv[1])
pages = {path.name: path.read_text(errors="replace") for path in folder.glob("*.html")}
anchors = {name: set(re.findall(r'(?:id|name)="([^"]+)"', page)) for name, page in pages.items()}
dead = set()
count = 0
for name, page in pages.items():
    for link in re.findall(r'href="([^"]+)"', page):
        # Doxygen itself links to a section that it leaves out when no nested class is public.
        if re.match(r"[a-z]+:", link) or link == "#nested-classes":
            continue
        count += 1
        target, _, anchor = link.partition("#")
        target = target or name
        if not (folder / target).exists() or (anchor and target in anchors and anchor not in anchors[target]):
            dead.add(f"{name}: {link}")
if dead or count < 1000:
    sys.exit("\n".join(sorted(dead)) + f"\n{len(dead)} of {count} links are dead")
