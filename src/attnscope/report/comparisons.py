"""Comparisons as files: every number as csv, what is worth reading as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from attnscope.analysis.comparisons import Compared
from attnscope.figures.prose import markdown
from attnscope.places import writing
from attnscope.report.comparison_tables import comparisons_document

_KEYS = {
    "comparison": "what is compared, such as 'filler minus none, SmolLM2-135M': the second side minus the first",
    "queries": "the query group",
    "quantity": "mass, enrichment, change, dilution, redistribution, taken, kept or moved; see statistics.md",
    "token_class": "the class; `(all)` for a quantity that has none",
}
_STATISTICS = {
    "n": "how many prompts both sides have a value for",
    "one": "the first side's mean over prompts",
    "two": "the second side's mean over prompts",
    "difference": "the second minus the first, mean within prompts",
    "low": "lower end of its 95 % interval",
    "high": "upper end of its 95 % interval",
    "size": "the difference in standard deviations of the differences of single prompts",
    "p": "sign-flip permutation test, two-sided; empty if not tested",
    "q": "its false discovery rate; empty if not tested",
    "floor": "the difference that rounding alone causes on average; empty if not known",
    "sure": "whether q < 0.05 and the difference is larger than the floor; empty if not tested",
}
HEADS = {
    **_KEYS,
    "layer": "of the first side, from 0",
    "head": "of the first side, from 0",
    "layer_two": "of the second side; differs where heads of two models are not matched by number",
    "head_two": "of the second side, likewise",
    **_STATISTICS,
    "rank": "the head's rank by the size of its difference; 1 is the largest",
}
"""The columns of heads.csv: one row per head."""
CLASSES = {
    **_KEYS,
    **_STATISTICS,
    "heads": "how many heads are compared",
    "up": "heads in which it rises significantly; empty if not tested",
    "down": "heads in which it falls significantly; empty if not tested",
    "reliability": "of the ranking of heads, split-half, from 0 to 1",
}
"""The columns of classes.csv: one row per class, the mean over heads."""


def write_comparisons(found: Sequence[Compared], folder: Path) -> list[Path]:
    """heads.csv, classes.csv and comparisons.md in a folder."""
    with writing(folder, "the comparisons"):
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in ("heads.csv", "classes.csv", "comparisons.md")]
        for path, part in zip(paths, ("heads", "overall"), strict=False):
            named = [(pl.lit(each.comparison.name).alias("comparison"), getattr(each, part)) for each in found]
            pl.concat([frame.select(name, pl.all()) for name, frame in named]).write_csv(path)
        paths[2].write_text(markdown(comparisons_document(found)), encoding="utf-8")
    return paths
