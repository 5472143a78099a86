"""The page of one head: what kind of head it is, its rank among all heads, and what changes in it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from attnscope.analysis.compared import family
from attnscope.analysis.comparisons import Comparison, comparisons
from attnscope.analysis.head_kinds import head_kinds
from attnscope.analysis.run import Run
from attnscope.analysis.sides import MASS, masses
from attnscope.analysis.spread import mean_of_seen
from attnscope.explorer.responses import HeadFacts, Rank
from attnscope.explorer.views.choices import HeadChoice
from attnscope.figures import selection
from attnscope.measures.names import SCORES


def head_facts(run: Run, choice: HeadChoice) -> HeadFacts:
    choice.check(run)
    kinds = []
    for name in run.conditions:
        if run.has(choice.model, name):
            table = head_kinds(run, choice.model, name, choice.queries)
            row = table.filter(pl.col("layer") == choice.layer, pl.col("head") == choice.head).row(0, named=True)
            scores = {score: row[score] for score in SCORES if row[score] is not None}
            kinds.append({"condition": name, "kind": row["kind"], "scores": scores, "n": row["n"]})
    return HeadFacts(
        model=choice.model,
        layer=choice.layer,
        head=choice.head,
        kinds=kinds,
        ranks=list(_ranks(run, choice)),
        changes=list(_changes(run, choice)),
    )


def _ranks(run: Run, choice: HeadChoice) -> Iterator[Rank]:
    """The head's rank by mass on each class, under each condition."""
    for name in run.conditions:
        if not run.has(choice.model, name):
            continue
        arrays = masses(run, choice.model, name, choice.queries)
        means = mean_of_seen(arrays.mass, 0)  # (layers, heads, classes and sets)
        for number, token_class in enumerate(arrays.names):
            every_head = means[..., number]
            if np.isnan(every_head[choice.index(run)]):
                continue
            value = float(every_head[choice.index(run)])
            label = f"{selection.class_label(run, token_class)}, {selection.condition_label(run, name)}"
            yield Rank(what=label, value=value, rank=1 + int((every_head > value).sum()), of=every_head.size)


def _changes(run: Run, choice: HeadChoice) -> Iterator[Rank]:
    """The head's differences, in every comparison that its model is a side of."""
    for each in comparisons(run):
        sides = {each.one.model: ("layer", "head"), each.two.model: ("layer_two", "head_two")}
        if choice.model not in sides:
            continue
        layer, head = sides[choice.model]
        tested = family(each, choice.queries, MASS)
        if tested is None:
            continue
        table = tested[0]
        rows = table.filter(pl.col(layer) == choice.layer, pl.col(head) == choice.head, pl.col("n") > 0)
        heads = table.select("layer", "head").unique().height
        for row in rows.iter_rows(named=True):
            if not row["one"] and not row["two"]:  # no token belongs to the class
                continue
            what = f"{selection.class_label(run, row['token_class'])}: {_comparison_label(run, each)}"
            numbers = {key: row[key] for key in ("low", "high", "q", "rank")}
            yield Rank(what=what, value=row["difference"], of=heads, significant=row["sure"], **numbers)


def _comparison_label(run: Run, each: Comparison) -> str:
    """Its sides as figures name them; the model or condition that both share is added if there are others."""
    labels = [selection.condition_label(run, side.condition) for side in (each.two, each.one)]
    if each.kind == "model":
        condition = f", {labels[0]}" if len(run.conditions) > 1 else ""
        return f"{each.two.model} minus {each.one.model}{condition}"
    return f"{labels[0]} minus {labels[1]}{f', {each.one.model}' if len(run.models) > 1 else ''}"
