"""One effect under every reasonable choice of how to count, to see which conclusions depend on a choice.

Choices: how tokens that mix classes are shared, which queries attention comes from, mean or median over heads, with or
without the model's special tokens (whose attention is then left out, and the rest adds up to 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.compared import class_statistics, value_pairs
from attnscope.analysis.comparisons import Comparison
from attnscope.analysis.dense import dense, token_rows
from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.analysis.one_way import one_way
from attnscope.analysis.received import HeadChoice, read_attention
from attnscope.analysis.sides import MASS, Side, absent_classes
from attnscope.analysis.values import Values
from attnscope.records.rest import shares_of_rest
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
    """token_class, the choices, difference, low, high, p, n; one row per class and choice. The sides are paired.

    Each choice is tested as the comparison is, so the study's own way to count has the comparison's numbers. Classes
    that the edits alone change are left out, and so is `other`. Where a choice leaves a class without tokens, there is
    no number.
    """
    one, two = comparison.one, comparison.two
    rows = []
    for queries in one.run.queries:
        left_out = {*one_way(one, two, queries, MASS), OTHER}
        names = [name for name in one.run.classes if name not in left_out and name in two.run.classes]
        pairs = value_pairs(comparison, queries, MASS)
        for share, special in product(SHARES, SPECIAL):
            counts = [_Count(side, queries, share, special) for side in (one, two)]
            counted = [(counts[0].of(mine), counts[1].of(theirs)) for mine, theirs in pairs]
            for heads in OVER_HEADS:
                table = class_statistics(comparison, counted, median=heads == "median")
                chosen = dict(zip(CHOICES, (share, queries, heads, special), strict=True))
                rows += [
                    {"token_class": name, **chosen, **table.row(by_predicate=pl.col("token_class") == name, named=True)}
                    for name in names
                ]
    numbers = {**dict.fromkeys(("difference", "low", "high", "p"), pl.Float64), "n": pl.Int64}
    schema = {"token_class": pl.String, **dict.fromkeys(CHOICES, pl.String), **numbers}
    return pl.DataFrame([{name: row[name] for name in schema} for row in rows], schema=schema, orient="row")


@dataclass(frozen=True)
class _Count:
    """One way to count the classes of a side."""

    side: Side
    queries: str
    share: str
    special: str

    def of(self, values: Values) -> Values:
        """A class's masses counted this way; those of other sets of tokens, and of the study's own way, as they are."""
        run = self.side.run
        rules = run.study.rules.values()
        is_own = self.special == SPECIAL[0] and all(shared_by(rule, self.share) == rule for rule in rules)
        if is_own or values.token_class not in run.classes:
            return values
        every = counted_masses(self.side, self.queries)
        mass = every[
            :, SHARES.index(self.share), SPECIAL.index(self.special), ..., run.classes.index(values.token_class)
        ]
        return replace(values, values=mass, absent=np.asarray(np.isnan(mass).all((1, 2))))


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
def counted_masses(side: Side, queries: str) -> Floats:
    """(prompts, SHARES, SPECIAL, layers, heads, classes); NaN where a prompt lacks the class, or nothing is left."""
    run = side.run
    rows = cached_result(run, ("multiverse", side.model, side.condition, queries), lambda: _computed(side, queries))
    (values,) = dense(rows, _axes(side), ["mass"], f"{run.path}: multiverse", missing=True)
    return values


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
    layers, heads = run.layers(side.model), run.heads(side.model)
    chosen = HeadChoice(side.model, queries, layers, heads, over="all", with_views=True, every_token=True)
    members = dict(_memberships(side))
    parts = []
    for attention in read_attention(run, chosen, side.condition):
        tokens = members[attention.prompt]
        ways = []
        for removed in (tokens.removed, tokens.removed | tokens.special):
            left = attention.attention
            if run.study.without or removed is not tokens.removed:
                left = np.where(removed, 0.0, shares_of_rest(left, removed))
            ways.append((left, np.where(removed, 0.0, attention.uniform)))
        parts.append([[_of_classes(left, uniform, each) for left, uniform in ways] for each in tokens.shares])
    axes = _axes(side)
    places = [each.ravel() for each in np.indices([len(labels) for labels in axes.values()])]
    columns = {
        name: pl.Series(list(labels)).gather(place) for (name, labels), place in zip(axes.items(), places, strict=True)
    }
    return pl.DataFrame({**columns, "mass": np.asarray(parts).ravel()})


def _of_classes(left: Floats, uniform: Floats, shares: Floats) -> Floats:
    """(layers, heads, classes) of attention and of uniform attention (layers, heads, keys); shares: (classes, keys)."""
    return np.where(absent_classes(uniform @ shares.T), np.nan, left @ shares.T)


@dataclass(frozen=True)
class _Members:
    """The tokens of a prompt. shares: the members of classes under each of SHARES."""

    shares: list[Floats]
    special: NDArray[np.bool_]
    removed: NDArray[np.bool_]


def _memberships(side: Side) -> Iterator[tuple[int, _Members]]:
    """By prompt."""
    columns = ["position", "token_id", "text", "start", "end", "special"]
    rows = token_rows(side.run, side.model, side.condition, ["prompt", *columns, "removed"])
    tokens = rows.partition_by("prompt", as_dict=True)
    prompts = side.run.rows("prompts", side.model, side.condition, ["prompt", "text", "spans"])
    ways = [{name: shared_by(rule, share) for name, rule in side.run.study.rules.items()} for share in SHARES]
    for row in prompts.iter_rows(named=True):
        frame = tokens[row["prompt"],]
        made = [Token(*each) for each in frame.select(columns).iter_rows()]
        spans = [Span(**span) for span in row["spans"]]
        shares = [membership(rules, row["text"], made, spans) for rules in ways]
        yield row["prompt"], _Members(shares, frame["special"].to_numpy(), frame["removed"].to_numpy())
