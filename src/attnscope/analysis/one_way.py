"""What an edit of the prompt changes by construction: a test of it would find something whatever the model does.

Taken, kept, moved and dilution can only go one way when text is inserted, and grow with its length. A class that
inserted tokens join gains attention because it gains tokens. Enrichment is relative to uniform attention, which changes
with the number of tokens: a head that ignores an insertion of 50 tokens gains enrichment on all others. Where inserted
tokens are queries too, those before a class can't see it, and its mean over queries falls. Such differences have a size
and an interval, but no p and no q.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import polars as pl

from attnscope.analysis.insertion import class_tokens
from attnscope.analysis.sides import ENRICHMENT, EVERY, MASS, ONE_WAY, Side, masses
from attnscope.analysis.spread import mean_of_seen
from attnscope.measures.names import OF_INSERTIONS, SINK
from attnscope.text.groups.every import ALL
from attnscope.text.segments import INSERTED

ALIKE = 0.05  # of all inserted tokens: with so many more on one side, a class is not the same class there
STEADY = (SINK, "previous", "next", "local")
"""Scores of attention on keys that an insertion elsewhere leaves as they are."""
WHOLE = 1e-6  # of uniform attention: with less elsewhere, classes cover all tokens
SAME = 0.01  # of uniform attention on a class: a smaller difference does not count


def one_way(one: Side, two: Side, queries: str, quantity: str) -> set[str]:
    """The classes whose difference between two sides follows from the edits alone; EVERY among them if all do."""
    if quantity in ONE_WAY:
        return {*one.run.token_sets, EVERY} if _inserts_more(one, two) else set()
    derived = one.run.study.quantities.get(quantity)
    if derived is not None:
        if {name for _, name in derived.conditions} & {one.condition, two.condition}:
            return {EVERY}  # it is 0 there by construction
        changed = one_way(one, two, queries, MASS) & {name for _, name in derived.token_sets}
        return {EVERY} if changed else set()
    if quantity not in (MASS, ENRICHMENT) or same_edits(one, two):
        return set()
    if more_queries(one, two, queries):
        return {*one.run.token_sets}
    joined = _joined(one, two) | _come_and_gone(one, two, queries)
    if quantity == ENRICHMENT:
        return joined | _other_uniform(one, two, queries)
    if not _longer(one, two):
        return joined
    return joined | {name for name in one.run.token_sets if any(_covers(each, queries, [name]) for each in (one, two))}


def score_by_edits_alone(one: Side, two: Side, queries: str, score: str) -> bool:
    """Whether a score of heads differs between two sides through the edits alone.

    Where one side has more queries, any score may. Where it only has more keys, those do that look at all keys: how
    alike attention is to uniform attention, its entropy, how far it reaches, what repeats. Attention on the first token
    or on neighbours has the same keys on both sides.
    """
    return more_queries(one, two, queries) or (_longer(one, two) and score not in STEADY)


def more_queries(one: Side, two: Side, queries: str) -> bool:
    """Whether a mean over all queries is over other queries: more of them, or in other places.

    Where segments are deleted or moved, other queries see a key.
    """
    if queries not in (ALL.name, INSERTED) or same_edits(one, two):
        return False
    return not _only_insert(one, two) or _inserts_more(one, two)


def by_edits_alone(one: Side, two: Side, queries: str, classes: Collection[str], quantity: str = MASS) -> bool:
    """Whether a sum over classes differs between two sides through the edits alone.

    It does if one of the classes does. It also does if together they are all that a side has: they can only lose what
    inserted tokens take.
    """
    if one_way(one, two, queries, quantity) & set(classes):
        return True
    return quantity == MASS and _longer(one, two) and any(_covers(side, queries, classes) for side in (one, two))


def measure_by_edits_alone(one: Side, two: Side, queries: str, names: Sequence[str], quantity: str = MASS) -> bool:
    """Whether what a map or a trajectory shows differs through the edits alone: classes, a quantity or a score."""
    run = one.run
    if names[0] in (*OF_INSERTIONS, *run.study.quantities):
        return bool(one_way(one, two, queries, names[0]))
    if not set(names) <= set(run.token_sets):
        return score_by_edits_alone(one, two, queries, names[0])
    return by_edits_alone(one, two, queries, names, quantity)


def _covers(side: Side, queries: str, classes: Collection[str]) -> bool:
    """Whether every token that queries see belongs to one of the classes."""
    known = [name for name in side.run.token_sets if name in classes]
    if queries not in [group.name for group in side.run.groups] or not known:
        return False
    _, expected = masses(side.run, side.model, side.condition, queries).of(known)
    return bool((np.nan_to_num(expected, nan=1.0) > 1 - WHOLE).all())


def same_edits(one: Side, two: Side) -> bool:
    """Whether both sides edit prompts in the same way."""
    edits = [[edit.model_dump() for edit in side.run.study.condition(side.condition).edits] for side in (one, two)]
    return edits[0] == edits[1]


def _inserts_more(one: Side, two: Side) -> bool:
    """Whether one side has clearly more inserted tokens; of sides that insert text and do nothing else."""
    if not (one.inserts and two.inserts):
        return one.inserts != two.inserts
    counts = [float(class_tokens(each.run, each.model, each.condition)["inserted"].sum()) for each in (one, two)]
    return abs(counts[0] - counts[1]) > ALIKE * max(counts)


def _only_insert(one: Side, two: Side) -> bool:
    """Whether nothing is done to either side's prompts but that text is inserted."""
    return all(side.inserts or side.is_base for side in (one, two))


def _longer(one: Side, two: Side) -> bool:
    """Whether prompts of one side are clearly longer, so that there are more keys to look at."""
    if same_edits(one, two):
        return False
    if _only_insert(one, two):
        return _inserts_more(one, two)
    lengths = [float(class_tokens(each.run, each.model, each.condition)["tokens"].sum()) for each in (one, two)]
    return abs(lengths[0] - lengths[1]) > SAME * max(lengths)


def _joined(one: Side, two: Side) -> set[str]:
    """Classes that have clearly more tokens on one side."""
    both = class_tokens(one.run, one.model, one.condition).join(
        class_tokens(two.run, two.model, two.condition), on="token_class", suffix="_two"
    )
    apart = (pl.col("inserted_two") - pl.col("inserted")).abs()
    most = pl.max_horizontal(pl.col("inserted").sum(), pl.col("inserted_two").sum())
    if one.inserts and two.inserts:
        return set(both.filter(apart > ALIKE * most)["token_class"])
    tokens = (pl.col("tokens_two") - pl.col("tokens")).abs() > ALIKE * pl.max_horizontal("tokens", "tokens_two")
    inserts_only = one.inserts or two.inserts
    return set(both.filter(apart > 0 if inserts_only else tokens)["token_class"])


def _come_and_gone(one: Side, two: Side, queries: str) -> set[str]:
    """Classes that queries see in some prompt on one side only: on the other they count as nothing there."""
    sides = [masses(side.run, side.model, side.condition, queries) for side in (one, two)]
    both = one.run.having(one.model, one.condition, queries) & two.run.having(two.model, two.condition, queries)
    absent = [each.absent[np.isin(each.prompts, list(both))] for each in sides]
    first, second = (dict(zip(each.names, flags.T, strict=True)) for each, flags in zip(sides, absent, strict=True))
    return {name for name in first.keys() & second.keys() if (first[name] != second[name]).any()}


def _other_uniform(one: Side, two: Side, queries: str) -> set[str]:
    """Classes on which uniform attention differs."""
    means = []
    for side in (one, two):
        arrays = masses(side.run, side.model, side.condition, queries)
        expected = np.nan_to_num(mean_of_seen(arrays.expected, (0, 1, 2)))
        means.append(dict(zip(arrays.names, expected.tolist(), strict=True)))
    first, second = means
    return {
        name for name in first.keys() & second.keys() if not np.isclose(first[name], second[name], rtol=SAME, atol=0)
    }
