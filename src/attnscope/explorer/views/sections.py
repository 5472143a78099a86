"""A written reading (Markdown with headings and bullet points) as sections of plain lines."""

from __future__ import annotations

from attnscope.explorer.responses import Section


def sections(document: str) -> list[Section]:
    parts: list[Section] = []
    for line in document.splitlines():
        if line.startswith("## "):
            parts.append(Section(heading=line[3:], lines=[]))
        elif line.startswith("- ") and parts:
            parts[-1].lines.append(line[2:])
    return parts
