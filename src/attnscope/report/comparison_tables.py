"""A comparison in sentences and small tables, the same for the terminal, for Markdown and for the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from attnscope.analysis.compared import TEN, Compared, too_few
from attnscope.analysis.discoveries import FALSE_DISCOVERIES, needed
from attnscope.analysis.effects import SKEWED
from attnscope.analysis.matching import BY_NUMBER
from attnscope.analysis.multiverse import multiverse, verdicts
from attnscope.analysis.run import Run
from attnscope.analysis.sides import DILUTION, ENRICHMENT, MASS, REDISTRIBUTION, Side
from attnscope.analysis.two_runs import PROMPTS
from attnscope.figures import selection, sentences
from attnscope.figures.prose import Paragraph, Section, Table
from attnscope.figures.selection import laid_out
from attnscope.measures.names import KEPT, MOVED, TAKEN
from attnscope.quantities import Quantity
from attnscope.study.independence import FEWEST

TOP = 3  # heads named of each class

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sheet:
    """A small table with a title; grayed: which rows are not significant."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    grayed: Sequence[bool]

    @property
    def table(self) -> Table:
        return Table(self.columns, tuple(self.rows), tuple(self.grayed))


def sheets(found: Compared, queries: str) -> list[Sheet]:
    """Of one query group: the mean over heads by class, what the insertion does, and the heads that change most."""
    overall = found.overall.filter(pl.col("queries") == queries)
    heads = found.heads.filter(pl.col("queries") == queries)
    sides = found.comparison.sides
    tables = [_classes(overall, sides)]
    if found.comparison.inserts:
        tables += [_decomposition(overall)] if found.comparison.same_base else []
        tables.append(_insertion(overall, sides))
    tables.append(_derived(overall, sides, found.comparison.one.run.study.quantities))
    tables.append(_top(heads, overall))
    return [each for each in tables if each.rows]


def summary(found: Compared, queries: str) -> list[Sheet]:
    """Of one query group: how each class changes in the mean over heads, and the head in which it changes most."""
    overall = found.overall.filter(pl.col("queries") == queries)
    rows, grayed = [], []
    for row in _of(overall, MASS):
        rows.append((row["token_class"], ends(row), sign(row["q"]), *_short_counts(row), signed(row["median"])))
        grayed.append(row["sure"] is False)
    names = ("class", "difference", "q", "heads up / down", "real, at least", "median head")
    many = f"{overall['heads'][0]} heads" if len(overall) else "heads"
    classes = Sheet(f"change in mass, mean over {many}", names, rows, grayed)
    top = _top(found.heads.filter(pl.col("queries") == queries), overall, 1)
    columns = [top.columns.index(name) for name in ("class", "head", "difference", "q")]
    strongest = [tuple(row[column] for column in columns) for row in top.rows]
    title = "the head that changes most (chosen on these prompts, so the change is overestimated)"
    heads = Sheet(title, tuple(top.columns[column] for column in columns), strongest, top.grayed)
    return [each for each in (classes, heads) if each.rows]


def how_compared(found: Compared) -> list[str]:
    """Sentences about what was compared and what the sides differ in."""
    some = found.overall.filter(pl.col("n") > 0)
    least, most = int(some["n"].min() or 0), int(some["n"].max() or 0)  # type: ignore[arg-type]
    clusters = int(some["clusters"].max() or 0)  # type: ignore[arg-type]
    one, two = found.comparison.prompts_of
    if found.comparison.paired:
        many = sentences.prompts_in_clusters(most, clusters)
        many = many if least == most else f"{least} to {many}"
        known = [f"n = {many}, paired by prompt; {found.method}."]
        left = len(one ^ two)
        known += [f"{sentences.counted(left, 'prompt')} that only one side has: left out."] if left else []
    else:
        known = [f"n = {len(one)} and {len(two)} prompts, different in each run, so not paired; {found.method}."]
    return [*known, *_differing(found), *_overlaps(found.comparison.one.run)]


def _overlaps(run: Run) -> Iterator[str]:
    """Which classes lost tokens to classes before them."""
    for name, others in run.manifest.overlaps.items():
        label, *labels = (selection.own_label(run, each) for each in (name, *others))
        claims = "claims" if len(labels) == 1 else "claim"
        yield f"Class {label} excludes tokens that {sentences.listed(labels)} {claims}."


def facts(found: Compared) -> list[str]:
    """Sentences about how the comparison was made."""
    some = found.overall.filter(pl.col("n") > 0)
    most, clusters = int(some["n"].max() or 0), int(some["clusters"].max() or 0)  # type: ignore[arg-type]
    known = how_compared(found)
    if found.method != BY_NUMBER:
        arms = _pairs_of_sides(found)
        pairs = found.heads.unique(["layer", "head"])
        every = [len(side.run.layers(side.model)) * len(side.run.heads(side.model)) for side in arms]
        theirs = len(found.heads.unique(["layer_two", "head_two"]))
        mine = f"{len(pairs)} of {every[0]} heads of {arms[0].model}"
        known.append(f"Compared: {mine} and {theirs} of {every[1]} of {arms[1].model}.")
    if clusters < FEWEST:
        what = "prompts" if clusters == most else "clusters of prompts"
        known.append(f"With fewer than {FEWEST} {what} there is no interval and no test.")
    elif found.overall["low"].is_null().all():
        known.append("A few clusters have most of the prompts, so there is no interval and no test.")
    known += [*_too_few(found), *_skewed(found)]
    if found.heads["floor"].is_null().all():
        known.append("How far rounding moves attention was not measured.")
    else:
        worst: Any = found.heads.filter(pl.col("quantity") == MASS)["floor"].max()
        known.append(f"Rounding causes differences in mass of {worst:.1g} on average in the worst head.")
    return known


def _too_few(found: Compared) -> Iterator[str]:
    """What so few prompts can't show."""
    tested = found.overall.filter(pl.col("quantity") == MASS, pl.col("p").is_not_null(), pl.col("tested") > 0)
    first = tested.filter(pl.col("queries") == pl.col("queries").first())
    for row in first.sort("smallest_p").head(1).iter_rows(named=True):  # classes may be in more or fewer prompts
        together = needed(row["smallest_p"], row["tested"])
        if together > 1:
            alone = min(1.0, row["smallest_p"] * row["tested"])
            yield (
                f"Few prompts: no p can be below {row['smallest_p']:.2g}, so among {row['tested']:,} tests the "
                f"smallest q that a single head can reach is {alone:.2g}; q < {FALSE_DISCOVERIES} takes "
                f"{together:,} heads at once."
            )


def _skewed(found: Compared) -> Iterator[str]:
    significant = found.heads.filter(pl.col("quantity") == MASS, pl.col("sure"))
    skewed = significant.filter(pl.col("skew").abs() > SKEWED)
    if len(skewed):
        yield (
            f"In {len(skewed)} of {sentences.counted(len(significant), 'significant test')} of single heads (mass, all "
            f"classes and query groups) the differences are strongly skewed (beyond {SKEWED}): a few prompts carry the "
            "mean there."
        )


def _differing(found: Compared) -> list[str]:
    """What the two sides differ in, apart from what the comparison is of."""
    layouts = [side.run.layout(side.model) for side in _pairs_of_sides(found)]
    differ = None not in layouts and layouts[0] != layouts[1]
    thing, lines = found.comparison.differs_in, []
    if thing:
        also = differ and thing != PROMPTS
        lines.append(f"The runs differ {'' if also else 'only '}in {thing}{' and in how prompts are laid out' * also}.")
    if differ:
        words = laid_out(list(zip(found.comparison.sides, layouts, strict=True)))
        lines.append(f"{words}: part of a difference may come from that.")
    return lines


def _pairs_of_sides(found: Compared) -> tuple[Side, Side]:
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
                ends(row) if row["one"] or row["two"] else "no tokens",
                _ratio(enriched),
                sign(row["q"]),
                _counts(row),
                signed(row["median"]),
                f"{row['rising']:.0%} / {row['falling']:.0%}",
                _ten(row),
                share(row["reliability"]),
            )
        )
        grayed.append(row["sure"] is False)
    columns = (
        *("class", *sides, "difference", "enrichment", "q", "heads"),
        *("median head", "rise / fall", "share of ten heads", "reliability"),
    )
    return Sheet("mass by class, mean over the heads compared", columns, rows, grayed)


def _decomposition(overall: pl.DataFrame) -> Sheet:
    rows, grayed = [], []
    spread = {row["token_class"]: row for row in _of(overall, REDISTRIBUTION)}
    diluted = {row["token_class"]: row for row in _of(overall, DILUTION)}
    for row in _of(overall, MASS):
        name = row["token_class"]
        other = spread.get(name)
        if other is None:  # the edit puts tokens into it
            continue
        if not row["difference"] and not other["difference"]:
            continue
        cells = (ends(row), ends(diluted[name]), ends(other), sign(other["q"]), _counts(other))
        rows.append((name, *cells))
        grayed.append(other["sure"] is False)  # as its q says, which is the one shown
    columns = ("class", "change", "dilution", "redistribution", "q of redistribution", "heads")
    return Sheet("why it changes: diluted like all tokens, or redistributed", columns, rows, grayed)


def _insertion(overall: pl.DataFrame, sides: tuple[str, str]) -> Sheet:
    words = {
        TAKEN: "share of attention on inserted tokens",
        KEPT: "share of attention that the other tokens keep",
        MOVED: "share of what is left that moved to other tokens",
    }
    return _quantities("the insertion", overall, sides, words)


def _derived(overall: pl.DataFrame, sides: tuple[str, str], quantities: Mapping[str, Quantity]) -> Sheet:
    words = {name: each.label or f"{name}: {each.title}" for name, each in quantities.items()}
    return _quantities("derived quantities, mean over the heads compared", overall, sides, words)


def _quantities(title: str, overall: pl.DataFrame, sides: tuple[str, str], words: Mapping[str, str]) -> Sheet:
    """Quantities that have no class. words: what to call each."""
    rows, grayed = [], []
    for quantity, meaning in words.items():
        for row in _of(overall, quantity):
            first, second = sentences.number(row["one"]), sentences.number(row["two"])
            rows.append((meaning, first, second, ends(row), sign(row["q"]), _counts(row)))
            grayed.append(row["sure"] is False)
    return Sheet(title, ("quantity", *sides, "difference", "q", "heads"), rows, grayed)


def _top(heads: pl.DataFrame, overall: pl.DataFrame, count: int = TOP) -> Sheet:
    rows, grayed = [], []
    for each in _of(overall, MASS):
        mine = heads.filter(pl.col("quantity") == MASS, pl.col("token_class") == each["token_class"])
        for row in mine.sort("rank", "layer", "head").head(count if len(mine) else 0).iter_rows(named=True):
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
        "heads that change most (chosen on these prompts, so the changes are overestimated)",
        ("class", "rank", "head", "difference", "q", "size"),
        rows,
        grayed,
    )


def _of(frame: pl.DataFrame, quantity: str) -> Iterator[Row]:
    yield from frame.filter(pl.col("quantity") == quantity, pl.col("n") > 0).iter_rows(named=True)


def _counts(row: Row) -> str:
    """How many heads change significantly, with a bound on how many of these have an effect."""
    if row["up"] is None:
        why = sentences.untested(row["n"], row["clusters"], same=row["error"] == 0)
        return "" if row["low"] is not None else why
    found = row["up"] + row["down"]
    same = "" if row["same"] is None else f"; {row['same']} within the margin"
    if too_few(row):
        return f"too few prompts or clusters for one head alone{same}"
    real = f" (at least {row['true_at_least']} real)" if found and row["true_at_least"] else ""
    return f"{row['up']} up, {row['down']} down of {row['heads']}{real}{same}"


def _short_counts(row: Row) -> tuple[str, str]:
    """How many heads rise and fall significantly, and how many of these have an effect at least."""
    if row["up"] is None:
        return "", ""
    if too_few(row):
        return "too few prompts or clusters for one head alone", ""
    return f"{row['up']} / {row['down']}", "" if row["true_at_least"] is None else f"{row['true_at_least']}"


def _ten(row: Row) -> str:
    return "" if row["top_ten"] is None or row["heads"] <= TEN else f"{row['top_ten']:.0%}"


def signed(value: float | None) -> str:
    return "" if value is None else f"{'+' * (value > 0)}{sentences.number(value)}"


def ends(row: Row) -> str:
    """A difference with its sign and interval."""
    words = sentences.with_interval(row["difference"], row["low"], row["high"])
    return f"+{words}" if row["difference"] > 0 else words


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
    """The effect size, with its interval."""
    if row["size"] is None or row["size_low"] is None:
        return "" if row["size"] is None else f"{row['size']:.2f}"
    return f"{row['size']:.2f} ({row['size_low']:.2f} to {row['size_high']:.2f})"


def comparison_section(found: Compared, groups: Sequence[str]) -> Section:
    """One comparison: how it was made, and its tables for each query group."""
    tables = [
        Section(f"{queries}: {sheet.title}", (sheet.table,)) for queries in groups for sheet in sheets(found, queries)
    ]
    return Section(found.comparison.name, (Paragraph(" ".join(facts(found))), *tables))


def robustness_sections(found: Sequence[Compared]) -> list[Section]:
    """For each comparison, what all ways of counting agree on, class by class."""
    sections = []
    for each in found:
        if not each.comparison.paired or each.comparison.kind == "placebo":
            continue
        rows = [
            (
                row["token_class"],
                f"{signed(row['low'])} to {signed(row['high'])}" if row["choices"] else "",
                f"{row['up']} up, {row['down']} down" + (f", {row['empty']} without tokens" if row["empty"] else ""),
                f"{row['distinct']}",
                f"{row['significant_up']} up, {row['significant_down']} down",
                f"reversed {row['flips']}" if row["flips"] else ("same sign under all" if row["choices"] else ""),
            )
            for row in verdicts(multiverse(each.comparison)).iter_rows(named=True)
        ]
        columns = (
            "class",
            "difference, smallest to largest",
            "of all choices",
            "different numbers",
            "with p < 0.05",
            "sign",
        )
        if rows:
            table = Table(columns, tuple(rows), tuple(False for _ in rows))
            sections.append(Section(each.comparison.name, (table,)))
    return sections
