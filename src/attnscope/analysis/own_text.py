"""The prompts' own text in a run, without what a model's template, a condition or an answer adds."""

from __future__ import annotations

import polars as pl

from attnscope.analysis.run import Run
from attnscope.study.independence import dependence
from attnscope.text.segments import ANSWER, INSERTED, TEMPLATE


def own_text(run: Run) -> dict[int, list[tuple[str, str]]]:
    """By prompt: its segments and their texts, in order."""
    here = (pl.col("model") == run.models[0]) & (pl.col("condition") == run.conditions[0])
    rows = run.table("prompts").filter(here).select("prompt", "text", "spans").sort("prompt").collect()
    return {
        row["prompt"]: [
            (span["segment"], row["text"][span["start"] : span["end"]])
            for span in row["spans"]
            if span["segment"] not in (TEMPLATE, INSERTED, ANSWER)
        ]
        for row in rows.iter_rows(named=True)
    }


def dependence_of(run: Run) -> str | None:
    """A warning, if the prompts are near copies of each other and no cluster is given, or if one cluster has most."""
    texts = own_text(run)
    clusters = [run.cluster_of[prompt] for prompt in texts]
    return dependence(run.study.prompts, [dict(segments) for segments in texts.values()], clusters)
