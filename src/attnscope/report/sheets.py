"""A comparison in rows of words and numbers, the same for the terminal, for Markdown and for the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from attnscope.analysis.arms import CHANGE, DILUTION, ENRICHMENT, MASS, REDISTRIBUTION, Arm
from attnscope.analysis.comparisons import Compared
from attnscope.analysis.effects import FALSE_DISCOVERIES, FEWEST
from attnscope.analysis.matching import BY_NUMBER
from attnscope.analysis.two_runs import PROMPTS
from attnscope.figures import sentences
from attnscope.figures.selection import laid_out
from attnscope.study.measures import KEPT, MOVED, TAKEN

TOP = 3  # heads named of each class

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sheet:
    """A small table with a title; grayed: which rows may be chance."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    grayed: Sequence[bool]


def sheets(found: Compared, queries: str) -> list[Sheet]:
    """What one query group shows: mean over heads by class, what the insertion does, and the heads that change most."""
    overall = found.overall.filter(pl.col("queries") == queries)
    heads = found.heads.filter(pl.col("queries") == queries)
    sides = found.comparison.sides
    made = [_classes(overall, sides)]
    if found.comparison.inserts:
        made += [_parts(overall)] if found.comparison.same_base else []
        made.append(_insertion(overall, sides))
    made.append(_top(heads, overall))
    return [each for each in made if each.rows]


def facts(found: Compared) -> list[str]:
    """Sentences on how the comparison was made."""
    n = found.overall.filter(pl.col("n") > 0)["n"]
    least, most = int(n.min() or 0), int(n.max() or 0)  # type: ignore[arg-type]
    many = f"{most}" if least == most else f"{least} to {most}"
    one, two = found.comparison.prompts_of
    if found.comparison.paired:
        told = [f"n = {many} prompt{'s' * (most != 1)}, paired by prompt; {found.method}."]
        left = len(one ^ two)
        told += [f"{sentences.counted(left, 'prompt')} that only one side has are left out."] if left else []
    else:
        told = [f"n = {len(one)} and {len(two)} prompts, others in each run, so not paired; {found.method}."]
    told += _differing(found)
    if found.method != BY_NUMBER:
        arms = _arms(found)
        pairs = found.heads.unique(["layer", "head"])
        every = [len(arm.run.layers(arm.model)) * len(arm.run.heads(arm.model)) for arm in arms]
        theirs = len(found.heads.unique(["layer_two", "head_two"]))
        mine = f"{len(pairs)} of {every[0]} heads of {arms[0].model}"
        told.append(f"Compared are {mine} and {theirs} of {every[1]} of {arms[1].model}.")
    if most < FEWEST:
        told.append(f"With fewer than {FEWEST} prompts there is no interval and no test.")
    if found.heads["floor"].is_null().all():
        told.append("How far rounding moves attention was not measured.")
    else:
        worst: Any = found.heads.filter(pl.col("quantity") == MASS)["floor"].max()
        told.append(f"Rounding makes differences in mass of {worst:.1g} on average in the worst head.")
    return told


def _differing(found: Compared) -> list[str]:
    """What the two sides differ in, apart from what the comparison is of."""
    layouts = [arm.run.layout(arm.model) for arm in _arms(found)]
    differ = None not in layouts and layouts[0] != layouts[1]
    thing, lines = found.comparison.thing, []
    if thing:
        also = differ and thing != PROMPTS
        lines.append(f"The runs differ in {thing} {'and in how prompts are laid out' if also else 'alone'}.")
    if differ:
        words = laid_out(list(zip(found.comparison.sides, layouts, strict=True)))
        lines.append(f"{words}: part of a difference may come from that.")
    return lines


def _arms(found: Compared) -> tuple[Arm, Arm]:
    return found.comparison.one, found.comparison.two


def _classes(overall: pl.DataFrame, sides: tuple[str, str]) -> Sheet:
    rows, grayed = [], []
    times = {row["token_class"]: row for row in _of(overall, ENRICHMENT)}
    for row in _of(overall, MASS):
        enriched = times.get(row["token_class"])
        rows.append(
            (
                row["token_class"],
                sentences.number(row["one"]),
                sentences.number(row["two"]),
                ends(row),
                _ratio(enriched),
                sign(row["q"]),
                _counts(row),
                share(row["reliability"]),
            )
        )
        grayed.append(row["sure"] is False)
    columns = ("class", *sides, "difference", "enrichment", "q", "heads", "reliability")
    return Sheet("mass by class, mean over the heads compared", columns, rows, grayed)


def _parts(overall: pl.DataFrame) -> Sheet:
    rows, grayed = [], []
    spread = {row["token_class"]: row for row in _of(overall, REDISTRIBUTION)}
    diluted = {row["token_class"]: row for row in _of(overall, DILUTION)}
    for row in _of(overall, CHANGE):
        name = row["token_class"]
        other = spread[name]
        if not row["difference"] and not other["difference"]:
            continue
        cells = (ends(row), ends(diluted[name]), ends(other), sign(other["q"]), _counts(other))
        rows.append((name, *cells))
        grayed.append(row["sure"] is False)
    columns = ("class", "change", "dilution", "redistribution", "q of it", "heads")
    return Sheet("why it changes: taken from all alike, or moved", columns, rows, grayed)


def _insertion(overall: pl.DataFrame, sides: tuple[str, str]) -> Sheet:
    words = {
        TAKEN: "share of attention on inserted tokens",
        KEPT: "share that the other tokens keep",
        MOVED: "share of that on other tokens than before",
    }
    rows, grayed = [], []
    for quantity, meaning in words.items():
        for row in _of(overall, quantity):
            first, second = sentences.number(row["one"]), sentences.number(row["two"])
            rows.append((meaning, first, second, ends(row), sign(row["q"]), _counts(row)))
            grayed.append(row["sure"] is False)
    return Sheet("the insertion", ("quantity", *sides, "difference", "q", "heads"), rows, grayed)


def _top(heads: pl.DataFrame, overall: pl.DataFrame) -> Sheet:
    rows, grayed = [], []
    for each in _of(overall, MASS):
        mine = heads.filter(pl.col("quantity") == MASS, pl.col("token_class") == each["token_class"])
        for row in mine.sort("rank", "layer", "head").head(TOP if len(mine) else 0).iter_rows(named=True):
            if not row["difference"]:
                continue
            place = f"layer {row['layer']} head {row['head']}"
            if (row["layer"], row["head"]) != (row["layer_two"], row["head_two"]):
                place += f" and layer {row['layer_two']} head {row['head_two']}"
            rows.append(
                (row["token_class"], f"{row['rank']} of {len(mine)}", place, ends(row), sign(row["q"]), size(row))
            )
            grayed.append(row["sure"] is False)
    return Sheet(
        "heads that change most (chosen on these prompts, so rather too large)",
        ("class", "rank", "head", "difference", "q", "size"),
        rows,
        grayed,
    )


def _of(frame: pl.DataFrame, quantity: str) -> Iterator[Row]:
    yield from frame.filter(pl.col("quantity") == quantity, pl.col("n") > 0).iter_rows(named=True)


def _counts(row: Row) -> str:
    """How many heads surely change; nothing where that was not tested."""
    return "" if row["up"] is None else f"{row['up']} up, {row['down']} down of {row['heads']}"


def ends(row: Row) -> str:
    """A difference with its sign and interval."""
    told = sentences.with_interval(row["difference"], row["low"], row["high"])
    return f"+{told}" if row["difference"] > 0 else told


def _ratio(row: Row | None) -> str:
    if row is None or row["one"] is None:
        return ""
    return f"x{row['one']:.2f} to x{row['two']:.2f}"


def sign(q: float | None) -> str:
    if q is None:
        return ""
    return "< 0.0001" if q < 1e-4 else f"{q:.2g}"


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def size(row: Row) -> str:
    return "" if row["size"] is None else f"{row['size']:.2f}"


def markdown(found: Sequence[Compared]) -> str:
    """All comparisons as a document."""
    lines = ["# Comparisons", ""]
    for each in found:
        lines += [f"## {each.comparison.name}", "", " ".join(facts(each)), ""]
        for queries in dict.fromkeys(each.overall["queries"]):
            for sheet in sheets(each, queries):
                lines += [f"### {queries}: {sheet.title}", "", _row(sheet.columns), _row(["---"] * len(sheet.columns))]
                for row, gray in zip(sheet.rows, sheet.grayed, strict=True):
                    lines.append(_row([f"*{cell}*" if gray and cell else cell for cell in row]))
                lines.append("")
    lines.append(
        f"*In italics*: may be chance (q >= {FALSE_DISCOVERIES}), or under what rounding makes. No q: not tested."
    )
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
