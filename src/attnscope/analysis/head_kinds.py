"""Common kinds of heads: sinks, previous- and next-token heads, copying heads, local and uniform ones.

Every score is a share between 0 and 1, a mean over prompts. sink: attention on the first token, from queries that see
it. previous, next, repeated, induction, local: attention on such keys, from queries that have one
(`measures.patterns`); derived from `received` for a single query, otherwise available only if the study measured them.
uniform: 1 minus the distance between the group's mean attention and uniform attention over all visible keys; an
overestimate for several queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.analysis.cache import cached_result
from attnscope.analysis.dense import dense, token_rows
from attnscope.analysis.head_values import head_values, per_head_measures
from attnscope.analysis.received import HeadChoice, PromptAttention, by_head, read_attention
from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_of_seen
from attnscope.measures.names import SCORES, SINK, UNIFORM
from attnscope.measures.patterns import PAIRS, PATTERNS

Floats = NDArray[np.float64]

MIXED = "mixed"
LEAST = 0.4  # a head is of a kind if its score is at least this
TIMES = 2.0  # and this many times what uniform attention would score
EVEN = 0.8  # from here on attention is called uniform


@dataclass(frozen=True)
class Scores:
    """Per score: (prompts, layers, heads) of one side and query group; NaN where a prompt has no value."""

    prompts: list[int]
    scores: dict[str, Floats]
    chance: dict[str, Floats]
    """(layers, heads): what uniform attention would score on average."""


@lru_cache(maxsize=8)
def scores(run: Run, model: str, condition: str, queries: str) -> Scores:
    """The scores of each prompt; patterns that were not measured and don't follow from `received` are left out."""
    question = ("scores", model, condition, queries)
    chosen = HeadChoice(
        model, queries, run.layers(model), run.heads(model), over="all", with_views=True, every_token=True
    )
    rows = cached_result(run, question, lambda: _as_frame(chosen, _scores(run, chosen, condition)))
    names = [name for name in rows.columns if name in SCORES]
    columns = [*names, *(f"chance of {name}" for name in names)]
    prompts, lacking = run.lacking(model, condition, [queries])
    axes: dict[str, Sequence[Any]] = {
        "prompt": prompts[~lacking[:, 0]].tolist(),
        "layer": run.layers(model),
        "head": run.heads(model),
    }
    arrays = dict(zip(columns, dense(rows, axes, columns, f"{run.path}: scores", missing=True), strict=True))
    chance = {name: arrays[f"chance of {name}"] for name in names}
    means = {name: each[0] if len(each) else each.sum(0) for name, each in chance.items()}
    return Scores(list(axes["prompt"]), {name: arrays[name] for name in names}, means)


def _as_frame(chosen: HeadChoice, result: Scores) -> pl.DataFrame:
    """One row per prompt, layer and head."""
    chance = {f"chance of {name}": np.tile(each.ravel(), len(result.prompts)) for name, each in result.chance.items()}
    return by_head(result.prompts, chosen, {**result.scores, **chance})


def _scores(run: Run, chosen: HeadChoice, condition: str) -> Scores:
    model, queries = chosen.model, chosen.queries
    prompts: list[int] = []
    by_score: dict[str, list[Floats]] = {}
    chance: dict[str, list[Floats]] = {}
    measured = {
        name: head_values(run, model, condition, queries, name) for name in PATTERNS if name in per_head_measures(run)
    }
    places = {number: place for place, number in enumerate(run.cells_of(model, condition)["prompt"].to_list())}
    ids = _ids(run, model, condition) if queries == "last" and len(measured) < len(PATTERNS) else {}
    for prompt_attention in read_attention(run, chosen, condition):
        prompts.append(prompt_attention.prompt)
        place = places[prompt_attention.prompt]
        patterns = {name: (each.value[place], each.expected[place]) for name, each in measured.items()}
        for name, (score, expected) in (
            _of_received(prompt_attention, ids.get(prompt_attention.prompt)) | patterns
        ).items():
            by_score.setdefault(name, []).append(score)
            chance.setdefault(name, []).append(expected)
    means = {name: mean_of_seen(np.stack(each), 0) for name, each in chance.items()}
    return Scores(prompts, {name: np.stack(each) for name, each in by_score.items()}, means)


def head_kinds(run: Run, model: str, condition: str, queries: str) -> pl.DataFrame:
    """layer, head, kind, n and every available score; one row per head."""
    result = scores(run, model, condition, queries)
    means = {name: mean_of_seen(values, 0) for name, values in result.scores.items()}
    layers, heads = np.meshgrid(run.layers(model), run.heads(model), indexing="ij")
    table = pl.DataFrame(
        {
            "layer": layers.ravel().astype(np.int64),
            "head": heads.ravel().astype(np.int64),
            "kind": _kinds(means, result.chance).ravel().tolist(),
            **{name: means[name].ravel() if name in means else [None] * layers.size for name in SCORES},
        },
        schema_overrides={"kind": pl.String, **dict.fromkeys(SCORES, pl.Float64)},
    )
    return table.with_columns(pl.col(SCORES).fill_nan(None), n=pl.lit(len(result.prompts), dtype=pl.Int64))


def _kinds(means: Mapping[str, Floats], chance: Mapping[str, Floats]) -> NDArray[Any]:
    """The highest score that is high enough; None where a pattern that was not measured might be higher.

    The previous token does not count as local.
    """
    shape = means[SINK].shape
    every = all(name in means for name in PATTERNS)
    best, kind = np.full(shape, LEAST), np.full(shape, MIXED if every else None, dtype=object)
    kind[means[UNIFORM] >= EVEN] = UNIFORM
    available = [name for name in PATTERNS if name in means and (name != "local" or "previous" in means)]
    for name in (SINK, *available):
        score = np.nan_to_num(means[name] - means["previous"] if name == "local" else means[name])
        enough = (score >= best) & (score >= TIMES * np.nan_to_num(chance[name]))
        kind[enough] = name
        best = np.where(enough, score, best)
    return kind


def _of_received(prompt_attention: PromptAttention, ids: Sequence[int] | None) -> dict[str, tuple[Floats, Floats]]:
    """By name: the score, and that of uniform attention. ids: the prompt's token ids, if the last one is the query."""
    attention, uniform, seen = prompt_attention.attention, prompt_attention.uniform, prompt_attention.seen
    by_name = {
        SINK: (_over(attention[..., 0], seen[..., 0]), _over(uniform[..., 0], seen[..., 0])),
        UNIFORM: (1 - np.abs(attention - uniform).sum(-1) / 2, np.ones(attention.shape[:2])),
    }
    if ids is None:
        return by_name
    for name, pairs in PAIRS.items():
        queries, keys = pairs(ids)
        mine = keys[queries == len(ids) - 1]
        visible = np.sign(uniform[..., mine].sum(-1))
        by_name[name] = (_over(attention[..., mine].sum(-1), visible), _over(uniform[..., mine].sum(-1), visible))
    return by_name


def _over(share: Floats, having: Floats) -> Floats:
    quotient: Floats = np.divide(share, having, out=np.full(share.shape, np.nan), where=having > 0)
    return quotient


def _ids(run: Run, model: str, condition: str) -> dict[int, list[int]]:
    """The token ids of each prompt, by position."""
    rows = token_rows(run, model, condition, ["prompt", "token_id"])
    return dict(rows.group_by("prompt", maintain_order=True).agg(pl.col("token_id")).iter_rows())
