"""The page on a run's comparisons that a person reads: what differs, how sure that is, and which heads carry it.

One table for each kind of comparison, of the query group that the study's answer is about; every other number is in the
csv files beside it, and the report has the tables of each comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from attnscope.analysis.compared import TEN, Compared, too_few
from attnscope.analysis.comparisons import Kind
from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.multiverse import multiverse, verdicts
from attnscope.analysis.sides import MASS
from attnscope.figures import sentences
from attnscope.figures.prose import Block, Bullets, Document, Paragraph, Section, Table
from attnscope.report.answer import answer
from attnscope.report.comparison_tables import ends, how_compared, sign, signed
from attnscope.report.effects import effects_section
from attnscope.report.focus import Focus, focus_of
from attnscope.study.independence import FEWEST

Row = Mapping[str, Any]

FAMILIES: dict[str, tuple[Kind, ...]] = {
    "Conditions against the base prompt": ("condition",),
    "Conditions against their controls, and against a second draw (placebo)": ("control", "placebo"),
    "Models against the first": ("model",),
    "Two runs": ("run",),
}
"""Which comparisons share a table, by its title."""
MOST_ROWS = 12  # of a table; classes.csv has the rest
STRONGEST = 3  # heads named
MOST_FLIPS = 3  # of the signs that depend on how one counts, named
NOTE = (
    f"The mean over heads of the share of attention on a class, the second side minus the first, with its q. ns: not "
    f"significant (q >= {FALSE_DISCOVERIES}, or within rounding error). Without q: not tested. -: no tokens."
)


def comparison_page(found: Sequence[Compared]) -> Document:
    """All comparisons of a run, or of two runs, on a page."""
    focus = _focus(found)
    families = {title: [each for each in found if each.comparison.kind in kinds] for title, kinds in FAMILIES.items()}
    tables = [_family(title, mine, focus.queries) for title, mine in families.items() if mine]
    sections = [*_short(found), *tables, *_carriers(found, focus), *_effects(found)]
    more = tuple(filter(None, [*_made(found), *_more(found, focus.queries)]))
    return Document("Comparisons", (*sections, Section("More", (Bullets(more),))))


def _made(found: Sequence[Compared]) -> Iterator[str]:
    """How the comparisons were made; what is not true of all of them says which it is about."""
    about: dict[str, list[str]] = {}
    for each in found:
        for sentence in how_compared(each):
            about.setdefault(sentence, []).append(each.comparison.name)
    for sentence, names in about.items():
        yield sentence if len(names) == len(found) else f"{sentences.few_named(names)}: {sentence}"


def _focus(found: Sequence[Compared]) -> Focus:
    """The comparisons, the query group and the classes that the page is mainly about."""
    first = found[0].comparison
    focus = None if first.kind == "run" else focus_of(first.one.run)
    return focus or Focus([each.comparison for each in found], first.one.run.queries[0], [])


def _short(found: Sequence[Compared]) -> Iterator[Section]:
    """The answer to the study's question."""
    if found[0].comparison.kind != "run":
        yield Section("In short", (Bullets(tuple(answer(found[0].comparison.one.run))),))


def _effects(found: Sequence[Compared]) -> Iterator[Section]:
    """What the run's interventions do to the answer."""
    section = None if found[0].comparison.kind == "run" else effects_section(found[0].comparison.one.run)
    if section is not None:
        yield section


def _family(title: str, found: Sequence[Compared], queries: str) -> Section:
    """A row for each comparison, a column for each class."""
    parts = [each.overall.filter(pl.col("quantity") == MASS, pl.col("queries") == queries) for each in found]
    classes = list(dict.fromkeys(name for part in parts for name in part["token_class"]))
    rows, faint = [], []
    for each, part in list(zip(found, parts, strict=True))[:MOST_ROWS]:
        of_class = {row["token_class"]: row for row in part.iter_rows(named=True)}
        rows.append((each.comparison.name, *(_cell(of_class.get(name)) for name in classes)))
        faint.append(not any(row["sure"] for row in of_class.values()))
    blocks: list[Block] = [Table(("", *classes), tuple(rows), tuple(faint))]
    left = len(found) - len(rows)
    blocks += [Paragraph(f"{sentences.counted(left, 'comparison')} more in classes.csv.")] if left else []
    return Section(f"{title} (queries: {queries})", tuple(blocks))


def _cell(row: Row | None) -> str:
    """A difference and its q."""
    if row is None or not row["n"] or not (row["one"] or row["two"]):
        return "-"
    if row["q"] is None:
        return signed(row["difference"])
    return f"{signed(row['difference'])} ({'' if row['sure'] else 'ns, '}q {sign(row['q'])})"


def _carriers(found: Sequence[Compared], focus: Focus) -> Iterator[Section]:
    """Which heads carry the differences that the study is about."""
    named = focus.classes[0] if focus.classes else _clearest(found, focus.queries)
    wanted = (pl.col("quantity") == focus.quantity, pl.col("queries") == focus.queries, pl.col("token_class") == named)
    what = f"attention on {named}" if focus.quantity == MASS else focus.quantity
    rows: list[tuple[str, ...]] = []
    faint = []
    for each in [each for each in found if focus.is_about(each.comparison)][:MOST_ROWS]:
        for row in each.overall.filter(*wanted, pl.col("n") > 0).iter_rows(named=True):
            rows.append((each.comparison.name, ends(row), *_heads(row), _strongest(each.heads.filter(*wanted))))
            faint.append(row["sure"] is False)
    if rows:
        columns = ("", "difference", "heads up / down", "real, at least", "share of ten heads", "strongest heads")
        yield Section(
            f"Who carries it: {what} (queries: {focus.queries})",
            (Table(columns, tuple(rows), tuple(faint)),),
        )


def _clearest(found: Sequence[Compared], queries: str) -> str | None:
    """The class that changes most clearly in the first comparison."""
    rows = found[0].overall.filter(pl.col("quantity") == MASS, pl.col("queries") == queries, pl.col("n") > 0)
    ordered = rows.sort(pl.col("q").is_null(), pl.col("size").abs(), descending=[False, True], nulls_last=True)
    return ordered["token_class"][0] if len(ordered) else None


def _heads(row: Row) -> tuple[str, str, str]:
    """How many heads change, how many of these have an effect, and the share of the ten strongest."""
    if row["up"] is None:
        counts, real = "not tested", ""
    elif too_few(row):
        counts, real = "too few prompts or clusters for one head alone", ""
    else:
        counts = f"{row['up']} / {row['down']} of {row['heads']}"
        real = "" if row["true_at_least"] is None else f"{row['true_at_least']}"
    ten = "" if row["top_ten"] is None or row["heads"] <= TEN else f"{row['top_ten']:.0%}"
    return counts, real, ten


def _strongest(heads: pl.DataFrame) -> str:
    """The significant heads that change most, as layer.head."""
    sure = heads.filter(pl.col("sure")).sort("rank", "layer", "head").head(STRONGEST)
    return ", ".join(
        f"{row['layer']}.{row['head']} ({signed(row['difference'])})" for row in sure.iter_rows(named=True)
    )


def _more(found: Sequence[Compared], queries: str) -> Iterator[str]:
    """How to read the tables, and what else there is."""
    yield NOTE
    yield (
        "Heads are named as layer.head, with their change; only significant ones. They are chosen on these prompts, so "
        "their changes are overestimated. Intervals are 95 %."
    )
    for group in dict.fromkeys(name for each in found for name in each.overall["queries"]):
        if group != queries:
            tested, sure = _counts(found, group)
            words = f"{sure} of {tested} tested differences of classes are significant"
            yield f"Queries {group}: {words if tested else f'not tested{_clusters(found, group)}'}."
    yield _flips(found)
    yield (
        "classes.csv has every class, query group and quantity (enrichment, dilution, redistribution, ...), heads.csv "
        "every head, multiverse.csv every way to count; report.html has the tables of each comparison."
    )


def _counts(found: Sequence[Compared], queries: str) -> tuple[int, int]:
    rows = [each.overall.filter(pl.col("quantity") == MASS, pl.col("queries") == queries) for each in found]
    return sum(part["q"].count() for part in rows), sum(int(part["sure"].sum()) for part in rows)


def _clusters(found: Sequence[Compared], queries: str) -> str:
    """How many clusters there are, in brackets, if these are too few for a test."""
    most: Any = max(each.overall.filter(pl.col("queries") == queries)["clusters"].max() or 0 for each in found)
    return f" ({sentences.counted(most, 'cluster')})" if most < FEWEST else ""


def _flips(found: Sequence[Compared]) -> str:
    """Where the sign depends on how one counts."""
    flips, choices = [], 0
    for each in found:
        if each.comparison.paired and each.comparison.kind != "placebo":
            for row in verdicts(multiverse(each.comparison)).iter_rows(named=True):
                choices += bool(row["choices"])
                flips += [f"{row['token_class']} in {each.comparison.name} ({row['flips']})"] if row["flips"] else []
    if not choices:
        return ""
    if not flips:
        return "No difference changes its sign with how one counts."
    some = (
        f", such as {sentences.listed(flips[:MOST_FLIPS])}"
        if len(flips) > MOST_FLIPS
        else f": {sentences.listed(flips)}"
    )
    change = "changes its sign" if len(flips) == 1 else "change their signs"
    return f"{len(flips)} of {choices} differences {change} with how one counts{some}."
