"""One effect under every reasonable choice of how to count, to see which conclusions depend on a choice.

Choices: how tokens that mix classes are shared, which queries attention comes from, mean or median over heads, with or
without the model's special tokens (whose attention is then left out, and the rest adds up to 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.comparisons import Comparison
from attnscope.analysis.dense import dense, token_rows
from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.effects import effects
from attnscope.analysis.matching import matched
from attnscope.analysis.one_way import one_way
from attnscope.analysis.received import HeadChoice, read_attention
from attnscope.analysis.sides import MASS, Side
from attnscope.analysis.spread import cut_to_differences
from attnscope.text.classes import OTHER, SHARES, membership, shared_by
from attnscope.text.groups import group_words
from attnscope.text.segments import Span
from attnscope.text.tokens import Token

Floats = NDArray[np.float64]

SPECIAL = ("with", "without")
OVER_HEADS = ("mean", "median")
CHOICES = ("share", "queries", "heads", "special")
"""The columns that say what was chosen."""
COUNTED = {"characters": "by characters", "majority": "by majority", "first": "by the first character"}
"""How tokens that mix classes are counted, in words."""


@lru_cache(maxsize=32)
def multiverse(comparison: Comparison) -> pl.DataFrame:
    """comparison, token_class, the choices, difference, low, high, p, n, clusters; one row per class and choice.

    Classes that the edits alone change are left out, and so is `other`. Where a choice leaves a class without tokens
    on both sides, there is no number.
    """
    one, two = comparison.one, comparison.two
    run, matching = one.run, matched(comparison.one, comparison.two)
    rows = []
    for queries in run.queries:
        left_out = {*one_way(one, two, queries, MASS), OTHER}
        names = [name for name in run.classes if name not in left_out and name in two.run.classes]
        sides = [_masses(side, queries) for side in (one, two)]
        prompts, mine, theirs = np.intersect1d(sides[0][0], sides[1][0], return_indices=True)
        for (turn, share), (again, special) in product(enumerate(SHARES), enumerate(SPECIAL)):
            for name in names:
                first = sides[0][1][mine, turn, again, ..., run.classes.index(name)][:, *matching.one]
                second = sides[1][1][theirs, turn, again, ..., two.run.classes.index(name)][:, *matching.two]
                for heads in OVER_HEADS:
                    apart = (np.nanmean if heads == "mean" else np.nanmedian)(second - first, axis=1)
                    chosen = dict(zip(CHOICES, (share, queries, heads, special), strict=True))
                    numbers = _numbers(apart, comparison, prompts) if first.any() or second.any() else {}
                    rows.append({"token_class": name, **chosen, **numbers, "n": len(prompts)})
    schema = {"token_class": pl.String, **dict.fromkeys(CHOICES, pl.String)}
    numbers_schema = {**dict.fromkeys(("difference", "low", "high", "p"), pl.Float64), "n": pl.Int64}
    table = pl.DataFrame(rows, schema={**schema, **numbers_schema}, orient="row")
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


def _numbers(apart: Floats, comparison: Comparison, prompts: NDArray[np.int64]) -> dict[str, float]:
    run = comparison.one.run
    effect = effects(apart[:, None], clusters=run.clusters(prompts), seed=run.study.seed)
    low, high = cut_to_differences(effect.low, effect.high)
    values = (effect.mean[0], low[0], high[0], effect.p[0])
    return dict(zip(("difference", "low", "high", "p"), map(float, values), strict=True))


def verdicts(table: pl.DataFrame) -> pl.DataFrame:
    """What choices agree on: token_class, choices, distinct, up, down, significant_up, significant_down, low, high,
    flips, empty.

    distinct: how many different numbers the choices lead to. low, high: the smallest and the largest difference. flips:
    the choices under which the sign is the rarer one. empty: how many more choices leave the class without tokens.
    """
    rows = []
    for (name,), every in table.group_by("token_class", maintain_order=True):
        part = every.filter(pl.col("difference").is_not_null())
        up, down = part.filter(pl.col("difference") > 0), part.filter(pl.col("difference") < 0)
        rarer = up if len(up) < len(down) else down
        sure = part.filter(pl.col("p") < FALSE_DISCOVERIES)["difference"]
        rows.append(
            {
                "token_class": name,
                "choices": len(part),
                "distinct": int(part["difference"].round(9).n_unique()),
                "up": len(up),
                "down": len(down),
                "significant_up": int((sure > 0).sum()),
                "significant_down": int((sure < 0).sum()),
                "low": part["difference"].min(),
                "high": part["difference"].max(),
                "flips": _common(part, rarer) if len(up) and len(down) else "",
                "empty": len(every) - len(part),
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _common(part: pl.DataFrame, rarer: pl.DataFrame) -> str:
    """The choices that the rarer sign goes with: those that all its rows share and that not all rows have.

    Where other rows have these choices too, it says in how many of them the sign is the rarer one.
    """
    words, such = [], part
    for choice in CHOICES:
        values = rarer[choice].unique(maintain_order=True).to_list()
        if len(values) < part[choice].n_unique():
            words.append(_in_words(choice, values))
            such = such.filter(pl.col(choice).is_in(values))
    if not words:
        return f"in {len(rarer)} of {len(part)} ways to count"
    some = f" ({len(rarer)} of {len(such)} such ways to count)" if len(rarer) < len(such) else ""
    return f"{' '.join(words)}{some}"


def _in_words(choice: str, values: Sequence[str]) -> str:
    """What was chosen, such as `in the mean over heads`."""
    either = " or ".join(group_words(value) if choice == "queries" else COUNTED.get(value, value) for value in values)
    words = {
        "share": f"with mixed tokens counted {either}",
        "queries": f"from {either}",
        "heads": f"in the {either} over heads",
        "special": f"{either} special tokens",
    }
    return words[choice]


@lru_cache(maxsize=12)  # every side is compared with several others
def _masses(side: Side, queries: str) -> tuple[NDArray[np.int64], Floats]:
    """Prompts, and (prompts, SHARES, SPECIAL, layers, heads, classes)."""
    run = side.run
    rows = cached_result(run, ("multiverse", side.model, side.condition, queries), lambda: _computed(side, queries))
    axes = _axes(side)
    (values,) = dense(rows, axes, ["mass"], f"{run.path}: multiverse", missing=True)
    return np.asarray(axes["prompt"], dtype=np.int64), values


def _axes(side: Side) -> dict[str, Sequence[Any]]:
    run = side.run
    return {
        "prompt": sorted(run.prompts(side.model, side.condition)),
        "share": SHARES,
        "special": SPECIAL,
        "layer": run.layers(side.model),
        "head": run.heads(side.model),
        "token_class": run.classes,
    }


def _computed(side: Side, queries: str) -> pl.DataFrame:
    run = side.run
    chosen = HeadChoice(side.model, queries, run.layers(side.model), run.heads(side.model), over="all")
    members = dict(_memberships(side))
    parts = []
    for attention in read_attention(run, chosen, side.condition):
        shares, special = members[attention.prompt]
        every = np.nan_to_num(attention.attention)
        plain = np.where(special, 0.0, every)
        total = plain.sum(-1, keepdims=True)
        plain = np.divide(plain, total, out=np.full_like(plain, np.nan), where=total > 0)
        parts.append([[received @ each.T for received in (every, plain)] for each in shares])
    axes = _axes(side)
    places = [each.ravel() for each in np.indices([len(labels) for labels in axes.values()])]
    columns = {
        name: pl.Series(list(labels)).gather(place) for (name, labels), place in zip(axes.items(), places, strict=True)
    }
    return pl.DataFrame({**columns, "mass": np.asarray(parts).ravel()})


def _memberships(side: Side) -> Iterator[tuple[int, tuple[list[Floats], NDArray[np.bool_]]]]:
    """By prompt: the members of classes under each of SHARES, and which tokens are special."""
    columns = ["position", "token_id", "text", "start", "end", "special"]
    rows = token_rows(side.run, side.model, side.condition, ["prompt", *columns])
    tokens = rows.partition_by("prompt", as_dict=True)
    prompts = side.run.rows("prompts", side.model, side.condition, ["prompt", "text", "spans"])
    ways = [{name: shared_by(rule, share) for name, rule in side.run.study.rules.items()} for share in SHARES]
    for row in prompts.iter_rows(named=True):
        frame = tokens[row["prompt"],]
        made = [Token(*each) for each in frame.select(columns).iter_rows()]
        spans = [Span(**span) for span in row["spans"]]
        shares = [membership(rules, row["text"], made, spans) for rules in ways]
        yield row["prompt"], (shares, frame["special"].to_numpy())
