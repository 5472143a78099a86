"""A figure's files: the picture, its description, its numbers, its reading."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert as vlc
import yaml

from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.figures.compose import Description
from attnscope.figures.kind import Look, find_kind
from attnscope.figures.save import SCALE
from attnscope.figures.selection import layout_words, present, refuse_missing
from attnscope.study.consistency import figure_problems
from attnscope.study.schema import FigureSpec

FILES = (".svg", ".png", ".pdf", ".vl.json", ".csv", ".md")


@dataclass(frozen=True)
class Figure:
    """A figure made from a run."""

    name: str
    kind: str
    table: pl.DataFrame
    look: Look
    chart: Description
    reading: str
    marks: str = ""
    """What the marks in the picture mean, after its caption."""

    @cached_property
    def description(self) -> dict[str, Any]:
        """The chart as data (Vega-Lite), with its reading as alternative text."""
        made: dict[str, Any] = _drawable(self.chart)
        made["description"] = plain(self.reading).translate(_SIGNS)
        return made


# What a picture's file may not hold: control characters become their signs, what is no character becomes a box.
_SIGNS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
_SIGNS |= dict.fromkeys([0x7F, *range(0x80, 0xA0), 0xFFFE, 0xFFFF, *range(0xD800, 0xE000)], 0x25A1)


def _drawable(value: Any) -> Any:
    if isinstance(value, str):
        return value.translate(_SIGNS)
    if isinstance(value, dict):
        return {_drawable(key): _drawable(each) for key, each in value.items()}
    return [_drawable(each) for each in value] if isinstance(value, list) else value


def make_figure(run: Run, part: FigureSpec, room: int | None = None) -> Figure:
    """room: pixels across, of a screen that tells title and caption itself."""
    kind = find_kind(part.kind, f"figure {part.name}")
    table = kind.checked(kind.table(run, part), f"figure {part.name}")
    look = kind.look(run, part, table)
    look = replace(look, room=room, caption=look.caption + layout_words(run, part))
    drawn, reading = kind.draw(table, look), kind.read(table, look)
    return Figure(part.name, part.kind, table, look, drawn, reading, kind.marks(table, look))


def figure_of(run: Run, part: FigureSpec, room: int | None = None) -> Figure:
    """A figure that was asked for by hand: refused where it asks for what the run has not. room: as in make_figure."""
    find_kind(part.kind, "kind")
    for problem in figure_problems(run.study, part):
        raise AttnscopeError(
            problem.what,
            where=".".join(str(each) for each in problem.at[2:]) or "figure",
            allowed=problem.allowed,
            todo="choose another",
        )
    shown = present(run, part)
    if shown is None:
        raise AttnscopeError(
            "what this figure shows was not measured",
            where=part.name,
            allowed=f"models {', '.join(run.models)}; conditions {', '.join(run.conditions)}",
            todo="choose others",
        )
    refuse_missing(run, shown)
    return make_figure(run, shown, room)


def study_lines(part: FigureSpec) -> str:
    """What to add to a study file's `figures` to get this figure."""
    told = part.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump([told], sort_keys=False, allow_unicode=True, width=100)


def draw_tables(kind_name: str, tables: Mapping[str, pl.DataFrame], look: Look) -> Figure:
    """A figure from any table that has the kind's columns; several, by label, are drawn side by side."""
    kind = find_kind(kind_name, "figure")
    parts = [kind.checked(table, label) for label, table in tables.items()]
    if len(parts) > 1:
        parts = [
            part.with_columns((pl.lit(f"{label}: ") + pl.col(kind.apart)).alias(kind.apart))
            for label, part in zip(tables, parts, strict=True)
        ]
    whole = pl.concat(parts)
    return Figure(" and ".join(tables), kind_name, whole, look, kind.draw(whole, look), kind.read(whole, look))


def write_figure(figure: Figure, folder: Path) -> list[Path]:
    """All of its files, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_file(figure, folder / f"{figure.name}{ending}") for ending in FILES]


def write_file(figure: Figure, path: Path) -> Path:
    """One file, in the format its name ends with."""
    ending = next(each for each in FILES if path.name.endswith(each))
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(content(figure, ending))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def content(figure: Figure, ending: str) -> bytes:
    """What a file of one of the FILES endings holds."""
    return _CONTENT[ending](figure)


def plain(reading: str) -> str:
    """A reading without its marks, on one line, as alternative text."""
    lines = (re.sub(r"^(#+|-) ", "", line).replace("**", "") for line in reading.splitlines())
    return " ".join(" ".join(lines).split())


def _svg(figure: Figure) -> bytes:
    from xml.sax.saxutils import escape

    made = vlc.vegalite_to_svg(json.dumps(figure.description))
    start = made.index(">", made.index("<svg")) + 1
    told = f"<title>{escape(figure.look.title or figure.name)}</title><desc>{escape(plain(figure.reading))}</desc>"
    return f"{made[:start]}{told}{made[start:]}".encode()


_CONTENT: dict[str, Callable[[Figure], bytes]] = {
    ".svg": _svg,
    ".png": lambda figure: vlc.vegalite_to_png(json.dumps(figure.description), scale=SCALE),
    ".pdf": lambda figure: vlc.vegalite_to_pdf(json.dumps(figure.description)),
    ".vl.json": lambda figure: json.dumps(figure.description, indent=1, ensure_ascii=False).encode(),
    ".csv": lambda figure: figure.table.write_csv().encode(),
    ".md": lambda figure: re.sub(r"<(?=[a-zA-Z/!?])", r"\\<", figure.reading).encode(),  # text, not markup
}
