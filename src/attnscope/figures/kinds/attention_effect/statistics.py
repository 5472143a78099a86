"""Run -> attention and effect of every head, in the same prompts, and how the two are correlated over heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from attnscope.analysis.attention_effect import correlations, head_pairs
from attnscope.analysis.intervention_effects import CHANGE, intervention_effects
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.figures import selection, sentences
from attnscope.figures.interventions import panel_title, score_of, shown_interventions, sides_of
from attnscope.figures.kind import Column
from attnscope.figures.kinds.attention_effect.options import AttentionEffectOptions
from attnscope.study.interventions import InterventionSpec

COLUMNS = (
    Column("panel", pl.String, "the panel's title; in order"),
    Column("layer", pl.Int64, "of the head"),
    Column("head", pl.Int64, "its number in the layer"),
    Column("attention", pl.Float64, "across: the mean over prompts of the class or measure"),
    Column("effect", pl.Float64, "up: the score's change when this head is changed, mean over the same prompts"),
    Column("measure", pl.String, "what is across, in words", optional=True, gaps=True),
    Column("score", pl.String, "logprob, accuracy, flips or kl", optional=True, gaps=True),
    Column("n", pl.Int64, "how many prompts have both", optional=True, gaps=True),
    Column("clusters", pl.Int64, "how many clusters these are in", optional=True, gaps=True),
    Column("q", pl.Float64, "the effect's false discovery rate; empty if not tested", optional=True, gaps=True),
    Column("tested", pl.Int64, "how many prompts q is over: all that have the effect", optional=True, gaps=True),
    Column("spearman", pl.Float64, "of the panel: the correlation of ranks over heads", optional=True, gaps=True),
    Column("spearman_low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Column("spearman_high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
    Column("pearson", pl.Float64, "of the panel: the linear correlation over heads", optional=True, gaps=True),
    Column("pearson_low", pl.Float64, "lower end of its interval", optional=True, gaps=True),
    Column("pearson_high", pl.Float64, "upper end of its interval", optional=True, gaps=True),
)
KEYS = ("panel", "layer", "head")


def table(run: Run, options: AttentionEffectOptions) -> pl.DataFrame:
    spec = swept(run, options)
    rows = [row for side in sides_of(run, options) for row in _of_side(run, options, side, spec)]
    if not rows:
        raise AttnscopeError(
            f"no prompt has both {', '.join(shown_measures(run, options))} and an outcome of '{spec.name}'",
            where=f"figure {options.name}: measure",
            allowed="measures that some prompt has, of heads that are swept over",
            todo="choose another",
        )
    return pl.DataFrame(rows, schema={column.name: column.type for column in COLUMNS})


def swept(run: Run, options: AttentionEffectOptions) -> InterventionSpec:
    """The sweep over heads that is shown."""
    return shown_interventions(run, None if options.intervention is None else [options.intervention], "heads")[0]


def shown_measures(run: Run, options: AttentionEffectOptions) -> list[str]:
    return options.measures or selection.named_classes(run)[:1]


def measure_words(run: Run, options: AttentionEffectOptions) -> str:
    """What is across."""
    names = shown_measures(run, options)
    labels = sentences.listed([selection.class_label(run, each) for each in names])
    relative = options.value == "enrichment" and set(names) <= set(run.token_sets)
    words = selection.measure_words(run, names[0]) or f"attention on {labels}"
    return f"{words}, relative to uniform attention" if relative else words


def _of_side(run: Run, options: AttentionEffectOptions, side: Side, spec: InterventionSpec) -> Iterator[dict[str, Any]]:
    score, queries = score_of(run, options.score), selection.queries(run, options)
    names, where = shown_measures(run, options), f"figure {options.name}: measure"
    enrichment = options.value == "enrichment"
    pairs = head_pairs(side, spec.name, score, queries, names, enrichment=enrichment, where=where)
    if not pairs.heads:
        return
    clusters = run.clusters(pairs.prompts)
    panel: dict[str, Any] = {"panel": panel_title(run, options, side, spec, many=False), "score": score}
    panel["measure"] = measure_words(run, options)
    for name, found in correlations(pairs, clusters, seed=run.study.seed).items():
        panel |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    effects = intervention_effects(run, score).filter(
        model=side.model, condition=side.condition, intervention=spec.name, kind=CHANGE
    )
    tests = {(row["layer"], row["head"]): row for row in effects.iter_rows(named=True)}
    means = zip(*(mean_of_seen(each, 0).tolist() for each in (pairs.attention, pairs.effect)), strict=True)
    for place, (head, (attention, effect)) in enumerate(zip(pairs.heads, means, strict=True)):
        has = ~np.isnan(pairs.effect[:, place])
        yield {
            **panel,
            "layer": head[0] + options.number_from,
            "head": head[1] + options.number_from,
            "attention": attention,
            "effect": effect,
            "n": int(has.sum()),
            "clusters": len(np.unique(clusters[has])),
            "q": tests[head]["q"],
            "tested": tests[head]["n"],
        }
