"""What each page shows, made from a run: figures as study lines make them, and facts about heads and prompts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from attnscope.analysis.comparisons import Comparison, comparisons, family
from attnscope.analysis.dense import token_rows
from attnscope.analysis.effects import FALSE_DISCOVERIES, FEWEST, effects
from attnscope.analysis.head_kinds import head_kinds
from attnscope.analysis.matching import BY_NUMBER, matched
from attnscope.analysis.received import Heads, gazes
from attnscope.analysis.run import Run
from attnscope.analysis.sides import MASS, Side, empty_classes, masses, seen_classes
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError, near
from attnscope.explorer import responses
from attnscope.figures import selection, sentences
from attnscope.figures.selection import present
from attnscope.figures.write import content, figure_of, study_lines
from attnscope.measures.names import SCORES, map_measures, title_of
from attnscope.report.comparison_tables import facts as facts_of
from attnscope.report.comparison_tables import sheets
from attnscope.report.evidence import evidence_card
from attnscope.report.page import summary_of
from attnscope.report.write import is_reported
from attnscope.study.consistency import unmeasured
from attnscope.study.schema import FigureSpec, PanelSpec
from attnscope.text.classes import membership
from attnscope.text.segments import TEMPLATE, Span
from attnscope.text.tokens import Token, shown_texts

MOST_TOKENS = 3000  # of a prompt at once
MOST_CHARACTERS = 400  # of a token
MOST_PROMPTS = 50  # in a list
MOST_DROPPED = 100
TOP = 12  # heads told of a map
ARMS = 4  # of a run that are read before anyone asks
BEGINNING = 80  # characters


def look_ahead(run: Run) -> None:
    """Read what the first click on a run would wait for."""
    for model, condition in list(product(run.models, run.conditions))[:ARMS]:
        masses(run, model, condition)
    run.cells.verify_all()
    model = run.models[0]
    panel = PanelSpec(model=model, layer=run.layers(model)[0], head=run.heads(model)[0])
    figure_of(run, FigureSpec(name="first", kind="lines", panels=[panel]))


def run_facts(name: str, run: Run) -> responses.RunFacts:
    dropped = run.manifest.dropped
    prompts = {number for model in run.models for each in run.conditions for number in run.prompts(model, each)}
    return responses.RunFacts(
        name=name,
        title=run.study.title or name,
        question=run.study.question,
        status=run.status,
        planned=f"{sentences.counted(len(run.study.models), 'model')} and "
        f"{sentences.counted(len(run.study.conditions), 'condition')}",
        summary=summary_of(run),
        prompts=len(prompts),
        first_prompt=min(prompts),
        models=[_model(run, label) for label in run.models],
        conditions=[_condition(run, each) for each in run.conditions],
        queries=[responses.Named(name=each, label=selection.group_words(each)) for each in run.study.measure.queries],
        classes=[_class(run, each) for each in run.classes],
        measures=list(_measures(run)),
        figures=[_figure_line(part) for part in run.study.figures if present(run, part) is not None],
        empty=empty_classes(run),
        dropped=[responses.Drop(**each.model_dump()) for each in dropped[:MOST_DROPPED]],
        more_dropped=max(0, len(dropped) - MOST_DROPPED),
        command=run.manifest.command,
    )


def _model(run: Run, label: str) -> responses.ModelFacts:
    known = run.manifest.models[label]
    about = f"{known.architecture}, {known.dtype}"
    return responses.ModelFacts(
        label=label,
        about=about,
        layers=run.layers(label),
        heads=run.heads(label),
        conditions=[name for name in run.conditions if run.has(label, name)],
    )


def _condition(run: Run, name: str) -> responses.ConditionFacts:
    colours = selection.condition_colours(run, run.conditions)
    label = selection.condition_label(run, name)
    inserts = run.study.condition(name).insert is not None
    seen = {each for model in run.models for each in seen_classes(run, model, name)}
    without = [each for each in run.classes if each not in seen]
    return responses.ConditionFacts(name=name, label=label, colour=colours[label], inserts=inserts, without=without)


def _class(run: Run, name: str) -> responses.Named:
    label = selection.class_label(run, name)
    return responses.Named(name=name, label=label, colour=selection.class_colours(run, run.classes)[label])


def _measures(run: Run) -> Iterator[responses.MeasureFacts]:
    groups = run.study.measure.queries
    for name in run.classes:
        label = selection.class_label(run, name)
        yield responses.MeasureFacts(name=name, label=label, queries=groups, enrichment=True)
    for name in map_measures():
        there = [
            group
            for group in groups
            if name not in unmeasured(run.study, FigureSpec(name="map", kind="heatmap", queries=group))
        ]
        if there:
            label = f"{name}: {title_of(name)}"
            yield responses.MeasureFacts(name=name, label=label, queries=there, enrichment=False)


def _figure_line(part: FigureSpec) -> responses.FigureLine:
    told = part.model_dump(mode="json", exclude_defaults=True)
    return responses.FigureLine(name=part.name, kind=part.kind, title=part.title or part.name, part=told)


def drawn(run: Run, part: FigureSpec, room: int | None = None) -> responses.Drawn:
    made = figure_of(run, part, room)
    return responses.Drawn(
        title=made.look.title or part.name,
        caption=made.look.caption + made.marks,
        reading=reading_of(made.reading),
        chart=made.description,
        study=study_lines(part),
        top=_top(made.table) if part.kind == "heatmap" else [],
        reach=_reach(part.kind, made.table),
    )


def _reach(kind: str, table: pl.DataFrame) -> float | None:
    if kind == "lines":
        return float(table.select(pl.max_horizontal("attention", "high").max()).item())
    if kind == "bars":
        whole = table.group_by("group", "bar").agg(pl.col("mass").sum(), pl.col("total_high").first())
        return 1.08 * float(whole.select(pl.max_horizontal("mass", "total_high").max()).item())
    return None


def figure_file(run: Run, part: FigureSpec, ending: str) -> bytes:
    return content(figure_of(run, part), ending)


def reading_of(document: str) -> list[responses.Section]:
    """A written reading by its headings."""
    made: list[responses.Section] = []
    for line in document.splitlines():
        if line.startswith("## "):
            made.append(responses.Section(heading=line[3:], lines=[]))
        elif line.startswith("- ") and made:
            made[-1].lines.append(line[2:])
    return made


def _top(table: pl.DataFrame) -> list[dict[str, Any]]:
    """The heads of a map that stand out most, one panel after the other."""
    found = []
    sure = pl.col("q").is_null() | (
        (pl.col("q") < FALSE_DISCOVERIES) & (pl.col("value").abs() > pl.col("floor").fill_null(0))
    )
    for _, part in table.group_by("panel", maintain_order=True):
        rows = part.with_columns(sure=sure).sort(pl.col("value").abs(), descending=True, maintain_order=True).head(TOP)
        found += rows.select("panel", "layer", "head", "value", "low", "high", "q", "sure", "n").to_dicts()
    return found


def evidence(run: Run) -> list[responses.Section]:
    """The run's evidence card: as the report wrote it, or made now."""
    written = run.path / "evidence.md"
    if run.status == "finished" and written.is_file() and is_reported(run.path):
        return reading_of(written.read_text(encoding="utf-8"))
    return reading_of(evidence_card(run))


def compared(run: Run) -> list[responses.ComparisonSheets]:
    """Everything the study implies, as the report tells it."""
    made = []
    for each in run.compare():
        rows = [(queries, sheet) for queries in run.study.measure.queries for sheet in sheets(each, queries)]
        made.append(
            responses.ComparisonSheets(
                name=each.comparison.name,
                facts=facts_of(each),
                sheets=[
                    responses.SheetRows(
                        title=f"{queries}: {sheet.title}",
                        columns=list(sheet.columns),
                        rows=[list(row) for row in sheet.rows],
                        grayed=list(sheet.grayed),
                    )
                    for queries, sheet in rows
                ],
            )
        )
    return made


@dataclass(frozen=True)
class Place:
    """A head of a model, seen through a query group."""

    model: str
    layer: int
    head: int
    queries: str

    def checked(self, run: Run) -> Place:
        """Refused if the run has no such head."""
        named(self.model, run.models, "model")
        named(self.queries, run.study.measure.queries, "queries")
        for what, number, there in (
            ("layer", self.layer, run.layers(self.model)),
            ("head", self.head, run.heads(self.model)),
        ):
            if number not in there:
                raise AttnscopeError(
                    f"{what} {number} of {self.model} was not measured",
                    where=what,
                    allowed=f"{what}s {there[0]} to {there[-1]}",
                    todo="choose another",
                )
        return self

    def at(self, run: Run) -> tuple[int, int]:
        """Its place on the axes of arrays."""
        return run.layers(self.model).index(self.layer), run.heads(self.model).index(self.head)


def named(word: str, known: Sequence[str], what: str) -> str:
    if word not in known:
        raise AttnscopeError(
            f"there is no {what} '{word[:80]}'", where=what, allowed=near(word[:80], known), todo="choose another"
        )
    return word


def head_facts(run: Run, place: Place) -> responses.HeadFacts:
    place.checked(run)
    kinds = []
    for name in run.conditions:
        if run.has(place.model, name):
            held = head_kinds(run, place.model, name, place.queries)
            row = held.filter(pl.col("layer") == place.layer, pl.col("head") == place.head).row(0, named=True)
            scores = {score: row[score] for score in SCORES if row[score] is not None}
            kinds.append({"condition": name, "kind": row["kind"], "scores": scores, "n": row["n"]})
    return responses.HeadFacts(
        model=place.model,
        layer=place.layer,
        head=place.head,
        kinds=kinds,
        ranks=list(_ranks(run, place)),
        changes=list(_changes(run, place)),
    )


def _ranks(run: Run, place: Place) -> Iterator[responses.Rank]:
    group = run.study.measure.queries.index(place.queries)
    for name in run.conditions:
        if not run.has(place.model, name):
            continue
        means = masses(run, place.model, name).mass[:, group].mean(0)  # (layers, heads, classes)
        seen = seen_classes(run, place.model, name)
        for number, token_class in enumerate(run.classes):
            if token_class not in seen:
                continue
            mine = means[..., number]
            value = float(mine[place.at(run)])
            label = f"{selection.class_label(run, token_class)}, {selection.condition_label(run, name)}"
            yield responses.Rank(what=label, value=value, rank=1 + int((mine > value).sum()), of=mine.size)


def _changes(run: Run, place: Place) -> Iterator[responses.Rank]:
    """What is compared of this head: the comparisons that its model is a side of."""
    for each in comparisons(run):
        ends = {each.one.model: ("layer", "head"), each.two.model: ("layer_two", "head_two")}
        if place.model not in ends:
            continue
        columns = ends[place.model]
        found = family(each, place.queries, MASS)
        if found is None:
            continue
        rows = found[0].filter(pl.col(columns[0]) == place.layer, pl.col(columns[1]) == place.head, pl.col("n") > 0)
        heads = found[0].select("layer", "head").unique().height
        for row in rows.iter_rows(named=True):
            if not row["one"] and not row["two"]:  # no token belongs to it
                continue
            what = f"{selection.class_label(run, row['token_class'])}: {_named_comparison(run, each)}"
            numbers = {key: row[key] for key in ("low", "high", "q", "sure", "rank")}
            yield responses.Rank(what=what, value=row["difference"], of=heads, **numbers)


def _named_comparison(run: Run, each: Comparison) -> str:
    """As figures call its sides; the model or condition that both have is told if there are others."""
    labels = [selection.condition_label(run, side.condition) for side in (each.two, each.one)]
    if each.kind == "model":
        more = f", {labels[0]}" if len(run.conditions) > 1 else ""
        return f"{each.two.model} less {each.one.model}{more}"
    return f"{labels[0]} less {labels[1]}{f', {each.one.model}' if len(run.models) > 1 else ''}"


def find_prompts(run: Run, text: str) -> responses.PromptLines:
    """Prompts whose number, name or text has these words; all of them without any."""
    held = (
        run.table("prompts")
        .select("prompt", "name", "text", "tokens")
        .collect()
        .unique("prompt", keep="first", maintain_order=True)
        .sort("prompt")
    )
    words = text.strip().lower()
    if words:
        known = pl.col("text").str.to_lowercase().str.contains(words, literal=True)
        called = pl.col("name").str.to_lowercase().str.contains(words, literal=True)
        numbered = pl.col("prompt").cast(pl.String) == words
        held = held.filter(known | called | numbered).sort(numbered, called, descending=True, maintain_order=True)
    return responses.PromptLines(
        prompts=[
            responses.PromptLine(
                number=row["prompt"],
                name=row["name"][:BEGINNING],
                begins=_around(row["text"], words),
                tokens=row["tokens"],
            )
            for row in held.head(MOST_PROMPTS).iter_rows(named=True)
        ],
        found=len(held),
    )


def _around(text: str, words: str) -> str:
    """The part of a text where some words are, or its beginning."""
    at = max(0, text.lower().find(words)) if words else 0
    start = max(0, at - BEGINNING // 3)
    return " ".join(f"{'…' if start else ''}{text[start : start + BEGINNING]}".split())


@dataclass(frozen=True)
class Reading:
    """Which prompt is read, under which condition, by which head; without one, the mean over all."""

    prompt: int
    model: str
    condition: str
    queries: str
    layer: int | None = None
    head: int | None = None
    over: str = "visible"
    first: int = 0


def prompt_text(run: Run, wanted: Reading) -> responses.PromptText:
    named(wanted.model, run.models, "model")
    named(wanted.condition, run.conditions, "condition")
    named(wanted.queries, run.study.measure.queries, "queries")
    numbers = sorted(run.prompts(wanted.model, wanted.condition))
    if wanted.prompt not in numbers:
        raise AttnscopeError(
            f"prompt {wanted.prompt} was not measured on {wanted.model} under {wanted.condition}",
            where="prompt",
            allowed=f"{len(numbers)} prompts from {numbers[0]} to {numbers[-1]}" if numbers else "none so far",
            todo="choose another",
        )
    part = FigureSpec(
        name="prompt",
        kind="strip",
        models=[wanted.model],
        conditions=[wanted.condition],
        queries=wanted.queries,
        layers="all" if wanted.layer is None else [wanted.layer],
        heads="all" if wanted.head is None else [wanted.head],
        prompt=wanted.prompt,
        over="all" if wanted.over == "all" else "visible",
    )
    layers, heads = selection.layers(run, part, wanted.model), selection.heads(run, part, wanted.model)
    chosen = Heads(wanted.model, wanted.queries, layers, heads, part.over)
    gaze = next(gazes(run, chosen, wanted.condition, wanted.prompt))
    attention = mean_of_seen(gaze.attention, (0, 1))
    columns = ["position", "token_id", "text", "start", "end", "special", "segment"]
    held = token_rows(run, wanted.model, wanted.condition, columns, wanted.prompt)
    cell = run.rows("prompts", wanted.model, wanted.condition, ["name", "text", "spans"], wanted.prompt)
    row = cell.row(0, named=True)
    tokens = [Token(*each) for each in held.drop("segment").iter_rows()]
    spans = [Span(**span) for span in row["spans"]]
    shares = membership(run.study.rules, row["text"], tokens, spans)
    shared = _shared(tokens, held["segment"].to_list(), gaze.base, spans)
    made = list(_tokens(run, tokens, held["segment"].to_list(), attention, gaze.base, shared, shares))
    seen = np.sort(attention[~np.isnan(attention)])[::-1]
    place = numbers.index(wanted.prompt)
    return responses.PromptText(
        number=wanted.prompt,
        name=row["name"],
        model=wanted.model,
        condition=wanted.condition,
        caption=f"Gaze of {selection.group_words(wanted.queries)}, mean over "
        f"{selection.layers_words(run, part, [wanted.model])} and {selection.heads_words(run, part)}.",
        tokens=made[wanted.first : wanted.first + MOST_TOKENS],
        first=min(wanted.first, len(made)),
        count=len(made),
        highest=float(seen[0]) if len(seen) else 0.0,
        top=float(seen[1] if len(seen) > 1 else seen[0]) if len(seen) else 0.0,
        segments=list(dict.fromkeys(held["segment"])),
        reading=_told(made),
        before=numbers[place - 1] if place else None,
        after=numbers[place + 1] if place + 1 < len(numbers) else None,
    )


def _tokens(
    run: Run,
    tokens: Sequence[Token],
    segments: Sequence[str],
    attention: Any,
    base: Any,
    shared: Sequence[str | None],
    shares: Any,
) -> Iterator[responses.TokenFacts]:
    shown = shown_texts((token.text, token.start, token.end) for token in tokens)
    for place, token in enumerate(tokens):
        yield responses.TokenFacts(
            position=token.position,
            text=shown[place][:MOST_CHARACTERS],
            length=len(shown[place]),
            attention=None if np.isnan(attention[place]) else float(attention[place]),
            segment=segments[place],
            base=None if base[place] < 0 else int(base[place]),
            shared=shared[place],
            classes=[name for name, share in zip(run.classes, shares[:, place], strict=True) if share > 0],
        )


def _shared(tokens: Sequence[Token], segments: Sequence[str], base: Any, spans: Sequence[Span]) -> list[str | None]:
    """A token's place in its segment, which other conditions and models have too; a template's by its base position."""
    before: dict[str, int] = {}
    shift = {}
    for span in spans:
        shift[span.start] = before.get(span.segment, 0) - span.start
        before[span.segment] = before.get(span.segment, 0) + span.end - span.start
    starts = sorted(shift)
    made: list[str | None] = []
    for place, token in enumerate(tokens):
        if base[place] < 0:
            made.append(None)
        elif segments[place] == TEMPLATE or token.start == token.end:
            made.append(f"{base[place]} {token.text[:MOST_CHARACTERS]}")
        else:
            offset = shift[starts[max(0, bisect_right(starts, token.start) - 1)]]
            made.append(f"{segments[place]} {token.start + offset} {token.end + offset}")
    return made


def _told(tokens: Sequence[responses.TokenFacts]) -> list[str]:
    """The reading of a shaded text: where most of it is, token by token and segment by segment."""
    seen = [token for token in tokens if token.attention is not None]
    best = sorted(seen, key=lambda token: -(token.attention or 0))[:8]
    told = [f"{token.text[:30]!r} at {token.position} {sentences.number(token.attention or 0)}" for token in best]
    made = [f"Highest: {sentences.listed(told)}."] if told else ["No query sees any of these tokens."]
    by: dict[str, list[float]] = {}
    for token in seen:
        by.setdefault(token.segment, []).append(token.attention or 0)
    means = [f"{name} {sentences.number(float(np.mean(each)))} ({len(each)})" for name, each in by.items()]
    return [*made, f"Mean of a segment's tokens (how many): {'; '.join(means)}."] if means else made


@dataclass(frozen=True)
class HeadSide:
    """One side of a pair: a head under a condition."""

    place: Place
    condition: str

    def checked(self, run: Run) -> HeadSide:
        self.place.checked(run)
        named(self.condition, run.conditions, "condition")
        return self


def pair(run: Run, left: HeadSide, right: HeadSide) -> responses.Pair:
    """Right less left by class, within prompts."""
    sides = [side.checked(run) for side in (left, right)]
    held = [masses(run, side.place.model, side.condition) for side in sides]
    prompts, mine, theirs = np.intersect1d(held[0].prompts, held[1].prompts, return_indices=True)
    values = []
    for side, each, which in zip(sides, held, (mine, theirs), strict=True):
        group = run.study.measure.queries.index(side.place.queries)
        values.append(each.mass[which, group][:, *side.place.at(run)])  # (prompts, classes)
    apart = values[1] - values[0]
    apart[:, ~(values[0].any(0) & values[1].any(0))] = np.nan  # what one side has none of is not tested
    found = effects(apart, run.study.seed)
    floor = _pair_floor(run, sides)
    means = [mean_of_seen(each, 0) for each in values]
    rows = []
    for number, name in enumerate(run.classes):
        numbers = {key: _known(getattr(found, key)[number]) for key in ("low", "high", "q")}
        difference, q = _known(means[1][number] - means[0][number]), numbers["q"]
        tested = None if q is None or difference is None else q < FALSE_DISCOVERIES and abs(difference) > floor
        rows.append(
            responses.PairRow(
                token_class=selection.class_label(run, name),
                left=_known(means[0][number]),
                right=_known(means[1][number]),
                difference=difference,
                sure=tested,
                n=len(prompts),
                **numbers,
            )
        )
    return responses.Pair(rows=rows, facts=list(_pair_facts(run, left, right, len(prompts))))


def _pair_floor(run: Run, sides: Sequence[HeadSide]) -> float:
    """What rounding makes of the difference of two heads' masses; 0 if that is not known."""
    found = [(run.noise(side.place.model, side.place.queries), side.place.at(run)) for side in sides]
    return sum(0.0 if noise is None else float(noise[place]) for noise, place in found)


def _pair_facts(run: Run, left: HeadSide, right: HeadSide, prompts: int) -> Iterator[str]:
    yield f"Right less left, mass by class, within {sentences.counted(prompts, 'prompt')}."
    if prompts < FEWEST:
        yield f"With fewer than {FEWEST} prompts there is no interval and no test."
    else:
        yield "q: the false discovery rate among the classes of this pair; a pair that was sought out is a choice."
    if left.place.model != right.place.model:
        models = (Side(run, left.place.model, left.condition), Side(run, right.place.model, right.condition))
        if matched(*models).method != BY_NUMBER:
            yield "Heads of these models are not the same under the same number."


def _known(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
