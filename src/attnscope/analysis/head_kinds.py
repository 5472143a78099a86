"""The kinds of head anyone looks for first: sinks, previous- and next-token heads, copying, local and uniform ones.

Every score is a share between 0 and 1, a mean over prompts. sink: what the queries that see the first token give it.
previous, next, repeated, induction, local: what the queries that have such a key give to it (see `measures.patterns`);
from `received` where the group is one query, otherwise only if the study measured them. uniform: 1 minus the distance
of the group's mean attention to uniform attention over all visible keys; with several queries it is rather too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached
from attnscope.analysis.dense import dense, token_rows
from attnscope.analysis.head_values import head_values, measured_per_head
from attnscope.analysis.received import Gaze, Heads, by_head, gazes
from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_of_seen
from attnscope.measures.names import SCORES, SINK, UNIFORM
from attnscope.measures.patterns import PATTERNS, pattern_pairs

Numbers = NDArray[np.float64]

MIXED = "mixed"
LEAST = 0.4  # of the attention makes a head one of a kind,
TIMES = 2.0  # if it is so many times what uniform attention would give
EVEN = 0.8  # from here on attention is called uniform


@dataclass(frozen=True)
class Scores:
    """By score: (prompts, layers, heads) of one side and query group; NaN where a prompt can't show it."""

    prompts: list[int]
    scores: dict[str, Numbers]
    chance: dict[str, Numbers]
    """(layers, heads): what uniform attention would score on average."""


@lru_cache(maxsize=8)
def scores(run: Run, model: str, condition: str, queries: str) -> Scores:
    """Prompt by prompt; patterns that were not measured and don't follow from `received` are left out."""
    question = ("scores", model, condition, queries)
    chosen = Heads(model, queries, run.layers(model), run.heads(model), over="all", outlook=True)
    rows = cached(run, question, lambda: _as_frame(chosen, _scores(run, chosen, condition)))
    names = [name for name in rows.columns if name in SCORES]
    columns = [*names, *(f"chance of {name}" for name in names)]
    axes: dict[str, Sequence[Any]] = {
        "prompt": run.cells_of(model, condition)["prompt"].to_list(),
        "layer": run.layers(model),
        "head": run.heads(model),
    }
    arrays = dict(zip(columns, dense(rows, axes, columns, f"{run.path}: scores", nothing=True), strict=True))
    chance = {name: arrays[f"chance of {name}"] for name in names}
    means = {name: each[0] if len(each) else each.sum(0) for name, each in chance.items()}
    return Scores(list(axes["prompt"]), {name: arrays[name] for name in names}, means)


def _as_frame(chosen: Heads, found: Scores) -> pl.DataFrame:
    """A row per prompt, layer and head."""
    chance = {f"chance of {name}": np.tile(each.ravel(), len(found.prompts)) for name, each in found.chance.items()}
    return by_head(found.prompts, chosen, {**found.scores, **chance})


def _scores(run: Run, chosen: Heads, condition: str) -> Scores:
    model, queries = chosen.model, chosen.queries
    prompts: list[int] = []
    found: dict[str, list[Numbers]] = {}
    chance: dict[str, list[Numbers]] = {}
    measured = {
        name: head_values(run, model, condition, queries, name) for name in PATTERNS if name in measured_per_head(run)
    }
    ids = _ids(run, model, condition) if queries == "last" and len(measured) < len(PATTERNS) else {}
    for place, gaze in enumerate(gazes(run, chosen, condition)):
        prompts.append(gaze.prompt)
        patterns = {name: (each.value[place], each.expected[place]) for name, each in measured.items()}
        for name, (score, expected) in (_of_received(gaze, ids.get(gaze.prompt)) | patterns).items():
            found.setdefault(name, []).append(score)
            chance.setdefault(name, []).append(expected)
    means = {name: mean_of_seen(np.stack(each), 0) for name, each in chance.items()}
    return Scores(prompts, {name: np.stack(each) for name, each in found.items()}, means)


def head_kinds(run: Run, model: str, condition: str, queries: str) -> pl.DataFrame:
    """layer, head, kind, n, and every score that is known; one row per head."""
    held = scores(run, model, condition, queries)
    means = {name: mean_of_seen(values, 0) for name, values in held.scores.items()}
    layers, heads = np.meshgrid(run.layers(model), run.heads(model), indexing="ij")
    made = pl.DataFrame(
        {
            "layer": layers.ravel().astype(np.int64),
            "head": heads.ravel().astype(np.int64),
            "kind": _kinds(means, held.chance).ravel().tolist(),
            **{name: means[name].ravel() if name in means else [None] * layers.size for name in SCORES},
        },
        schema_overrides={"kind": pl.String, **dict.fromkeys(SCORES, pl.Float64)},
    )
    return made.with_columns(pl.col(SCORES).fill_nan(None), n=pl.lit(len(held.prompts), dtype=pl.Int64))


def _kinds(means: Mapping[str, Numbers], chance: Mapping[str, Numbers]) -> NDArray[Any]:
    """The highest score that is high enough, the previous token not counting as local; nothing where a pattern that is
    not known might be it.
    """
    shape = means[SINK].shape
    every = all(name in means for name in PATTERNS)
    best, kind = np.full(shape, LEAST), np.full(shape, MIXED if every else None, dtype=object)
    kind[means[UNIFORM] >= EVEN] = UNIFORM
    known = [name for name in PATTERNS if name in means and (name != "local" or "previous" in means)]
    for name in (SINK, *known):
        score = np.nan_to_num(means[name] - means["previous"] if name == "local" else means[name])
        enough = (score >= best) & (score >= TIMES * np.nan_to_num(chance[name]))
        kind[enough] = name
        best = np.where(enough, score, best)
    return kind


def _of_received(gaze: Gaze, ids: Sequence[int] | None) -> dict[str, tuple[Numbers, Numbers]]:
    """Score and what uniform attention would score, by name. ids: of a prompt's tokens, if only the last one looks."""
    attention, uniform, seen = gaze.attention, gaze.uniform, gaze.seen
    found = {
        SINK: (_over(attention[..., 0], seen[..., 0]), _over(uniform[..., 0], seen[..., 0])),
        UNIFORM: (1 - np.abs(attention - uniform).sum(-1) / 2, np.ones(attention.shape[:2])),
    }
    if ids is None:
        return found
    queries, keys, patterns = pattern_pairs(ids)
    for place, name in enumerate(PATTERNS):
        mine = keys[(queries == len(ids) - 1) & (patterns == place)]
        there = np.sign(uniform[..., mine].sum(-1))
        found[name] = (_over(attention[..., mine].sum(-1), there), _over(uniform[..., mine].sum(-1), there))
    return found


def _over(share: Numbers, having: Numbers) -> Numbers:
    found: Numbers = np.divide(share, having, out=np.full(share.shape, np.nan), where=having > 0)
    return found


def _ids(run: Run, model: str, condition: str) -> dict[int, list[int]]:
    """The token ids of each prompt, in the order of positions."""
    rows = token_rows(run, model, condition, ["prompt", "token_id"])
    return dict(rows.group_by("prompt", maintain_order=True).agg(pl.col("token_id")).iter_rows())
