"""The few marks a reading uses, as HTML: headings, lists, bold. Everything else is text and stays text."""

from __future__ import annotations

import re

from markupsafe import escape


def as_html(reading: str) -> str:
    made, inside = [], False
    for line in reading.splitlines():
        item = line.startswith("- ")
        if inside and not item:
            made.append("</ul>")
        if item and not inside:
            made.append("<ul>")
        inside = item
        if item:
            made.append(f"<li>{_bold(line[2:])}</li>")
        elif line.startswith("## "):
            made.append(f"<h4>{_bold(line[3:])}</h4>")
        elif line.startswith("# "):
            continue  # the figure's title stands above it already
        elif line.strip():
            made.append(f"<p>{_bold(line)}</p>")
    return "\n".join([*made, *(["</ul>"] if inside else [])])


def _bold(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text)))
