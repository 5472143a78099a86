"""The kinds of head anyone looks for first: sinks, previous- and next-token heads, copying, local and uniform ones.

Every score is a share between 0 and 1, a mean over prompts. sink: what the queries that see the first token give it.
previous, next, repeated, induction, local: what the queries that have such a key give to it (see `study.patterns`);
from `received` where the group is one query, otherwise only if the study measured patterns. uniform: one minus the
distance of the group's mean attention to attention on all visible keys alike, which several queries make too large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.gazes import Gaze, Heads, gazes
from attnscope.analysis.kept import kept
from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_of_seen
from attnscope.study.measures import SCORES, SINK, UNIFORM
from attnscope.study.patterns import PATTERNS, pattern_pairs

Numbers = NDArray[np.float64]

MIXED = "mixed"
LEAST = 0.4  # of the attention makes a head one of a kind,
TIMES = 2.0  # if it is so many times what a uniform gaze would give
EVEN = 0.8  # from here on a gaze is called uniform


@dataclass(frozen=True)
class Scores:
    """By score: (prompts, layers, heads) of one arm and query group; NaN where a prompt can't show it."""

    prompts: list[int]
    scores: dict[str, Numbers]
    chance: dict[str, Numbers]
    """(layers, heads): what a uniform gaze would score on average."""


@lru_cache(maxsize=8)
def scores(run: Run, model: str, condition: str, queries: str) -> Scores:
    """Prompt by prompt; patterns are left out where they are neither measured nor told by `received`."""
    question = ("scores", model, condition, queries)
    held = kept(run, question, lambda: _as_frame(_scores(run, model, condition, queries)))
    shape = (-1, len(run.layers(model)), len(run.heads(model)))
    names = [name for name in held.columns if name in SCORES]
    values = {name: held[name].to_numpy().reshape(shape) for name in names}
    chance = {name: held[f"chance of {name}"].to_numpy().reshape(shape) for name in names}
    prompts = held["prompt"].unique(maintain_order=True).to_list()
    return Scores(prompts, values, {name: each[0] if len(each) else each.sum(0) for name, each in chance.items()})


def _as_frame(found: Scores) -> pl.DataFrame:
    """A row a prompt, layer and head."""
    prompts = len(found.prompts)
    each = next(iter(found.scores.values())).size // max(1, prompts) if found.scores else 0
    chance = {f"chance of {name}": np.tile(values.ravel(), prompts) for name, values in found.chance.items()}
    columns = {name: values.ravel() for name, values in found.scores.items()} | chance
    return pl.DataFrame({"prompt": np.repeat(np.asarray(found.prompts, dtype=np.int64), each), **columns})


def _scores(run: Run, model: str, condition: str, queries: str) -> Scores:
    chosen = Heads(model, queries, run.layers(model), run.heads(model), over="all", outlook=True)
    prompts: list[int] = []
    found: dict[str, list[Numbers]] = {}
    chance: dict[str, list[Numbers]] = {}
    measured = _measured_patterns(run, model, condition, queries)
    ids = _ids(run, model, condition) if queries == "last" and measured is None else {}
    for gaze in gazes(run, chosen, condition):
        prompts.append(gaze.prompt)
        for name, score, expected in _of_prompt(gaze, measured, ids):
            found.setdefault(name, []).append(score)
            chance.setdefault(name, []).append(expected)
    means = {name: mean_of_seen(np.stack(each), 0) for name, each in chance.items()}
    return Scores(prompts, {name: np.stack(each) for name, each in found.items()}, means)


def head_kinds(run: Run, model: str, condition: str, queries: str) -> pl.DataFrame:
    """layer, head, kind, n, and every score that is known; one row a head."""
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
    """The highest score that is high enough, the previous token not counting as local; nothing where patterns are not
    known and might be.
    """
    shape = means[SINK].shape
    best, kind = np.full(shape, LEAST), np.full(shape, MIXED if PATTERNS[0] in means else None, dtype=object)
    kind[means[UNIFORM] >= EVEN] = UNIFORM
    for name in (SINK, *(each for each in PATTERNS if each in means)):
        score = np.nan_to_num(means[name] - means["previous"] if name == "local" else means[name])
        enough = (score >= best) & (score >= TIMES * np.nan_to_num(chance[name]))
        kind[enough] = name
        best = np.where(enough, score, best)
    return kind


def _of_prompt(
    gaze: Gaze, measured: Mapping[int, Numbers] | None, ids: Mapping[int, list[int]]
) -> Iterator[tuple[str, Numbers, Numbers]]:
    """Name, score and what a uniform gaze would score."""
    attention, uniform, seen = gaze.attention, gaze.uniform, gaze.seen
    yield SINK, _over(attention[..., 0], seen[..., 0]), _over(uniform[..., 0], seen[..., 0])
    yield UNIFORM, 1 - np.abs(attention - uniform).sum(-1) / 2, np.ones(attention.shape[:2])
    if measured is not None:
        for place, name in enumerate(PATTERNS):
            share, expected, having = np.moveaxis(measured[gaze.prompt][:, :, place], -1, 0)
            yield name, _over(share, having), _over(expected, having)
    elif gaze.prompt in ids:
        last = len(ids[gaze.prompt]) - 1
        queries, keys, patterns = pattern_pairs(ids[gaze.prompt])
        for place, name in enumerate(PATTERNS):
            mine = keys[(queries == last) & (patterns == place)]
            there = np.sign(uniform[..., mine].sum(-1))
            yield name, _over(attention[..., mine].sum(-1), there), _over(uniform[..., mine].sum(-1), there)


def _over(share: Numbers, having: Numbers) -> Numbers:
    found: Numbers = np.divide(share, having, out=np.full(share.shape, np.nan), where=having > 0)
    return found


def _measured_patterns(run: Run, model: str, condition: str, queries: str) -> dict[int, Numbers] | None:
    """By prompt: (layers, heads, patterns, 3); None if the study didn't measure them."""
    if not run.study.measure.patterns:
        return None
    wanted = ["prompt", "queries", "attention", "expected", "queries_with"]
    rows = run.rows("patterns", model, condition, wanted).filter(pl.col("queries") == queries)
    held = rows.partition_by("prompt", as_dict=True, maintain_order=True)
    shape = (len(run.layers(model)), len(run.heads(model)), len(PATTERNS), 3)
    columns = ("attention", "expected", "queries_with")
    return {int(key[0]): part.select(columns).to_numpy().reshape(shape) for key, part in held.items()}


def _ids(run: Run, model: str, condition: str) -> dict[int, list[int]]:
    rows = run.rows("tokens", model, condition, ["prompt", "token_id"])
    rows = rows.group_by("prompt", maintain_order=True).agg(pl.col("token_id"))
    return {row["prompt"]: row["token_id"] for row in rows.iter_rows(named=True)}
