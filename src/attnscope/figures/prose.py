"""Prose about numbers as a small tree: a document of sections, each with paragraphs, bullets and tables.

Readings, evidence and comparisons are written as this tree and rendered from it: as Markdown, HTML, JSON, or one line
of alternative text. Nothing parses what was rendered, and text stays text in every form: a label that looks like markup
is escaped by the renderer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape


@dataclass(frozen=True)
class Strong:
    """Words that stand out."""

    text: str


Text = str | tuple[str | Strong, ...]
"""A sentence or a few; with emphasis, a sequence of words and `Strong` ones."""


@dataclass(frozen=True)
class Paragraph:
    text: Text


@dataclass(frozen=True)
class Bullets:
    items: tuple[Text, ...]


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    faint: tuple[bool, ...]
    """Which rows are shown in gray or italics."""


@dataclass(frozen=True)
class Section:
    heading: str
    blocks: tuple[Block, ...]


Block = Paragraph | Bullets | Table | Section


@dataclass(frozen=True)
class Document:
    title: str
    sections: tuple[Section, ...]


def document(title: str, sections: Mapping[str, Sequence[Text | Table | None]]) -> Document:
    """Bullets and tables under headings; what doesn't hold (None or empty) and sections without any are left out."""
    bullets = [bulleted(heading, texts) for heading, texts in sections.items()]
    return Document(title, tuple(section for section in bullets if section.blocks))


def bulleted(heading: str, texts: Iterable[Text | Table | None]) -> Section:
    """A section of bullets, without those that are None or empty, and of tables below them."""
    given = [each for each in texts if each]
    items = tuple(each for each in given if not isinstance(each, Table))
    return Section(
        heading, ((Bullets(items),) if items else ()) + tuple(each for each in given if isinstance(each, Table))
    )


def by_panel(titles: Sequence[str], facts: Mapping[str, Mapping[str, str | None]]) -> list[Text | Table]:
    """Facts about panels: a sentence for each fact if there is one panel, else a table with a row for each panel.

    facts: by name, the words of each panel that has it.
    """
    known = {what: found for what, found in facts.items() if any(found.values())}
    if len(titles) == 1 or not known:
        return [f"{what}: {found[titles[0]]}." for what, found in known.items()]
    rows = tuple((title, *(found.get(title) or "" for found in known.values())) for title in titles)
    return [Table(("", *known), rows, tuple(False for _ in rows))]


def pieces(text: Text) -> list[tuple[str, bool]]:
    """The words of a text and whether they stand out, on one line: runs of white space become one space."""
    parts = [(text, False)] if isinstance(text, str) else [_piece(part) for part in text]
    single = [(re.sub(r"\s+", " ", words), strong) for words, strong in parts]
    return [(words, strong) for words, strong in single if words]


def _piece(part: str | Strong) -> tuple[str, bool]:
    return (part.text, True) if isinstance(part, Strong) else (part, False)


def plain(text: Text) -> str:
    """A text without emphasis, on one line."""
    return "".join(words for words, _ in pieces(text)).strip()


# Markdown

_SPECIAL = re.compile(r"[\\`*\[\]~]|<(?=[a-zA-Z/!?])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
_AT_END = re.compile(r"(?<![\\#])#+$")
_AT_START = re.compile(r"^(\s*)([#>]|[+-](?![\w.])|\d+(?=[.)](\s|$)))")


def markdown(doc: Document) -> str:
    """The whole document. Its title is the first heading."""
    lines = [_heading(doc.title, 1)]
    for section in doc.sections:
        lines += _section_lines(section, 2)
    return "\n\n".join(lines) + "\n"


def _heading(text: str, level: int) -> str:
    """Signs # at its end would be taken for the end of the heading."""
    return f"{'#' * level} {_AT_END.sub(_backslash, _escaped(plain(text), start=True))}"


def _section_lines(section: Section, level: int) -> Iterator[str]:
    yield _heading(section.heading, level)
    for block in section.blocks:
        match block:
            case Section():
                yield from _section_lines(block, level + 1)
            case Paragraph():
                yield _inline(block.text)
            case Bullets():
                yield "\n".join(f"- {_inline(item)}" for item in block.items)
            case Table():
                lines = zip(block.rows, block.faint, strict=True)
                rows = [_row([_cell(cell, faint) for cell in row]) for row, faint in lines]
                head = [_cell(column, False) for column in block.columns]
                yield "\n".join([_row(head), _row(["---"] * len(head)), *rows])


def _inline(text: Text, *, start: bool = True) -> str:
    written = ""
    for words, strong in pieces(text):
        escaped = _escaped(words, start=start and not written)
        inner = escaped.strip()
        written += escaped.replace(inner, f"**{inner}**", 1) if strong and inner else escaped
    return written.strip()


def _escaped(text: str, *, start: bool) -> str:
    """Text that Markdown shows as it is; start: it begins a block, where a few more characters have a meaning."""
    shown = _SPECIAL.sub(_backslash, text)
    if start:
        shown = _AT_START.sub(_guarded, shown)
    return shown


def _backslash(found: re.Match[str]) -> str:
    return f"\\{found.group()}"


def _guarded(found: re.Match[str]) -> str:
    """Before a list number the dot is what counts; a digit itself can't be escaped."""
    space, sign = found.group(1), found.group(2)
    return f"{space}{sign}\\" if sign.isdigit() else f"{space}\\{sign}"


def _cell(text: str, faint: bool) -> str:
    shown = _inline(text, start=False)
    return f"*{shown}*" if faint and shown else shown


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def html(part: Document | Section, level: int = 4) -> Markup:
    """What is below the title or heading, with headings from this level down; those above are left to the page."""
    blocks = part.sections if isinstance(part, Document) else part.blocks
    return Markup("\n").join(each for block in blocks for each in _block_html(block, level))


def _block_html(block: Block, level: int) -> Iterator[Markup]:
    match block:
        case Section():
            yield Markup("<h{0}>{1}</h{0}>").format(level, plain(block.heading))
            for inner in block.blocks:
                yield from _block_html(inner, level + 1)
        case Paragraph():
            yield Markup("<p>{}</p>").format(_inline_html(block.text))
        case Bullets():
            items = Markup("\n").join(Markup("<li>{}</li>").format(_inline_html(item)) for item in block.items)
            yield Markup("<ul>\n{}\n</ul>").format(items)
        case Table():
            yield _table_html(block)


def _table_html(table: Table) -> Markup:
    """A table in a box that scrolls; faint rows have the class `gray`."""
    head = Markup("").join(Markup("<th>{}</th>").format(column) for column in table.columns)
    rows = [
        Markup("<tr{}>{}</tr>").format(
            Markup(' class="gray"') if faint else "",
            Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row),
        )
        for row, faint in zip(table.rows, table.faint, strict=True)
    ]
    shown = Markup('<div class="scroll"><table>\n<thead><tr>{}</tr></thead>\n<tbody>{}</tbody>\n</table></div>')
    return shown.format(head, Markup("\n").join(rows))


def _inline_html(text: Text) -> Markup:
    return Markup("").join(
        Markup("<strong>{}</strong>").format(words) if strong else escape(words) for words, strong in pieces(text)
    )


def as_json(doc: Document) -> dict[str, Any]:
    """Title and sections; an item is a list of {text, strong}."""
    return {"title": plain(doc.title), "sections": [section_json(section) for section in doc.sections]}


def section_json(section: Section) -> dict[str, Any]:
    """Heading and items; of tables, the columns and rows; sections within it under `sections`."""
    known: dict[str, Any] = {"heading": plain(section.heading), "items": []}
    for block in section.blocks:
        match block:
            case Section():
                known.setdefault("sections", []).append(section_json(block))
            case Paragraph():
                known["items"].append(_json(block.text))
            case Bullets():
                known["items"] += [_json(item) for item in block.items]
            case Table():
                rows = [list(row) for row in block.rows]
                shown = {"columns": list(block.columns), "rows": rows, "faint": list(block.faint)}
                known.setdefault("tables", []).append(shown)
    return known


def _json(text: Text) -> list[dict[str, Any]]:
    return [{"text": words, "strong": strong} for words, strong in pieces(text)]


def alt_text(doc: Document) -> str:
    """All of its prose on one line, for those who hear a picture instead of seeing it."""
    said = [plain(doc.title), *(each for section in doc.sections for each in _spoken(section))]
    return " ".join(" ".join(said).split())


def _spoken(section: Section) -> Iterator[str]:
    yield f"{plain(section.heading)}:"
    for block in section.blocks:
        match block:
            case Section():
                yield from _spoken(block)
            case Paragraph():
                yield plain(block.text)
            case Bullets():
                yield from (plain(item) for item in block.items)
            case Table():
                yield from (_spoken_row(block.columns, row) for row in block.rows)


def _spoken_row(columns: Sequence[str], row: Sequence[str]) -> str:
    """The first cell names the row."""
    cells = [f"{column}: {cell}" for column, cell in zip(columns[1:], row[1:], strict=True) if cell]
    return f"{row[0]}: {'; '.join(cells)}."
