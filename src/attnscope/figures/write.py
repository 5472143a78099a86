"""A figure from a run or from tables, and its files: the picture, its description, its numbers, its reading."""

from __future__ import annotations

import json
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
from attnscope.figures import KINDS
from attnscope.figures.compose import Description, drawable
from attnscope.figures.kind import Kind, Look
from attnscope.figures.options import Options
from attnscope.figures.prose import Document, alt_text, markdown
from attnscope.figures.save import SCALE
from attnscope.figures.selection import layout_words, refuse_missing, removed_words
from attnscope.figures.validation import options_of, refuse_figure
from attnscope.places import writing, written_whole
from attnscope.runs.evidence import NONE
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
    reading: Document
    legend: str = ""
    """What the signs and shades in the picture mean, after its caption."""

    @property
    def alt(self) -> str:
        """The reading on one line, as alternative text."""
        return alt_text(self.reading)

    @cached_property
    def description(self) -> dict[str, Any]:
        """The chart as data (Vega-Lite), with its reading as alternative text."""
        chart: dict[str, Any] = drawable(self.chart)
        chart["description"] = drawable(self.alt)
        return chart


def make_figure(run: Run, options: Options, room: int | None = None) -> Figure:
    """room: width in pixels of a screen that shows title and caption itself."""
    where = f"figure {options.name}"
    kind = KINDS.find(options.kind, where)
    with KINDS.blamed(kind.name, "table"):
        table = kind.checked(kind.table(run, options), where)
    with KINDS.blamed(kind.name, "look"):
        look = kind.look(run, options, table)
        unproven = " Unproven numbers (evidence: none)." if run.manifest.evidence == NONE else ""
        look = replace(
            look, room=room, caption=look.caption + removed_words(run, options) + layout_words(run, options) + unproven
        )
    with KINDS.blamed(kind.name, "legend"):
        legend = kind.legend(table, look)
    return replace(_drawn(kind, options.name, table, look), legend=legend)


def _drawn(kind: Kind[Any], name: str, table: pl.DataFrame, look: Look) -> Figure:
    with KINDS.blamed(kind.name, "chart"):
        chart: object = kind.chart(table, look)
    if not isinstance(chart, dict):
        raise KINDS.mistake(kind.name, "chart", f"returns a {type(chart).__name__}", "a chart in Vega-Lite, as a dict")
    with KINDS.blamed(kind.name, "prose"):
        reading: object = kind.prose(table, look)
    if not isinstance(reading, Document):
        raise KINDS.mistake(kind.name, "prose", f"returns a {type(reading).__name__}", "an object of type Document")
    return Figure(name, kind.name, table, look, chart, reading)


def figure_of(run: Run, figure: FigureSpec, room: int | None = None) -> Figure:
    """A figure asked for by hand: refused where it asks for what the run does not have. room: as in make_figure."""
    refuse_figure(run.study, figure)
    shown = options_of(figure).among(run)
    if shown is None:
        raise AttnscopeError(
            "what this figure shows was not measured",
            where=figure.name,
            allowed=f"models {', '.join(run.models)}; conditions {', '.join(run.conditions)}",
            todo="choose others",
        )
    refuse_missing(run, shown)
    return make_figure(run, shown, room)


def study_lines(figure: FigureSpec) -> str:
    """What to add to a study file's `figures` to get this figure."""
    lines = figure.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump([lines], sort_keys=False, allow_unicode=True, width=100)


def draw_tables(kind_name: str, tables: Mapping[str, pl.DataFrame], look: Look) -> Figure:
    """A figure from any table that has the kind's columns; several, by label, are drawn side by side."""
    kind = KINDS.find(kind_name, "figure")
    parts = [kind.checked(table, label) for label, table in tables.items()]
    if len(parts) > 1:
        parts = [
            part.with_columns((pl.lit(f"{label}: ") + pl.col(kind.apart)).alias(kind.apart))
            for label, part in zip(tables, parts, strict=True)
        ]
    whole = pl.concat(parts)
    return _drawn(kind, " and ".join(tables), whole, look)


def write_figure(figure: Figure, folder: Path) -> list[Path]:
    """All of its files, each whole or not at all."""
    with writing(folder, "the figure"):
        folder.mkdir(parents=True, exist_ok=True)
    return [write_file(figure, folder / f"{figure.name}{ending}") for ending in FILES]


def write_file(figure: Figure, path: Path) -> Path:
    """One file, in the format its name ends with."""
    ending = next(each for each in FILES if path.name.endswith(each))
    drawn = content(figure, ending)
    with written_whole(path, "the figure") as partial:
        partial.write_bytes(drawn)
    return path


def content(figure: Figure, ending: str) -> bytes:
    """What a file of one of the FILES endings holds."""
    with KINDS.blamed(figure.kind, "chart or prose"):
        return _CONTENT[ending](figure)


def _svg(figure: Figure) -> bytes:
    from xml.sax.saxutils import escape

    svg = vlc.vegalite_to_svg(json.dumps(figure.description))
    start = svg.index(">", svg.index("<svg")) + 1
    title, text = (escape(drawable(words)) for words in (figure.look.title or figure.name, figure.alt))
    return f"{svg[:start]}<title>{title}</title><desc>{text}</desc>{svg[start:]}".encode()


_CONTENT: dict[str, Callable[[Figure], bytes]] = {
    ".svg": _svg,
    ".png": lambda figure: vlc.vegalite_to_png(json.dumps(figure.description), scale=SCALE),
    ".pdf": lambda figure: vlc.vegalite_to_pdf(json.dumps(figure.description)),
    ".vl.json": lambda figure: json.dumps(figure.description, indent=1, ensure_ascii=False).encode(),
    ".csv": lambda figure: figure.table.write_csv().encode(),
    ".md": lambda figure: markdown(figure.reading).encode(),
}
