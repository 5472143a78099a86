"""Comparisons as files: every number as csv, a page to read as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from attnscope.analysis.compared import Compared
from attnscope.analysis.multiverse import multiverse
from attnscope.figures.prose import markdown
from attnscope.places import writing
from attnscope.report.comparison_page import comparison_page

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
    "p": "studentised bootstrap over clusters of prompts, two-sided; empty if not tested",
    "q": "its false discovery rate; empty if not tested",
    "floor": "the difference that rounding alone causes on average; empty if not known",
    "sure": "whether q < 0.05 and the difference is larger than the floor; empty if not tested",
}
_MORE = {
    "clusters": "how many clusters these prompts are in; without clusters, how many different prompts",
    "error": "the standard error of the difference, over clusters",
    "size_low": "lower end of the 95 % interval of the size",
    "size_high": "upper end of it",
    "skew": "the skewness of the clusters' differences",
    "smallest_p": "the smallest p that so many clusters can have",
    "same_q": "q of the test that the difference is within the study's margin, that is no change; empty without one",
}
HEADS = {
    **_KEYS,
    "layer": "of the first side, from 0",
    "head": "of the first side, from 0",
    "layer_two": "of the second side; differs where heads of two models are not matched by number",
    "head_two": "of the second side, likewise",
    **_STATISTICS,
    "rank": "the head's rank by the size of its difference; 1 is the largest",
    **_MORE,
    "half": "the difference in one half of the prompts (whole clusters, drawn at random)",
    "other_half": "the difference in the other half",
    "chosen": "whether it is significant in the one half; empty if not tested, or if there are too few prompts",
    "held": "whether it is also significant in the other half among the chosen, with the same sign",
}
"""The columns of heads.csv: one row per head."""
CLASSES = {
    **_KEYS,
    **_STATISTICS,
    "heads": "how many heads are compared",
    "up": "heads in which it rises significantly; empty if not tested",
    "down": "heads in which it falls significantly; empty if not tested",
    "reliability": "of the ranking of heads, split-half, from 0 to 1",
    **_MORE,
    "median": "the median over heads of their differences",
    "rising": "the share of heads whose difference is above zero",
    "falling": "the share of heads whose difference is below zero",
    "top_ten": "the share of all heads' changes, whatever their sign, that the ten largest carry",
    "true_at_least": "at least so many of the heads counted in up and down have an effect, at 95 % confidence",
    "tested": "how many heads and classes were tested together",
    "chosen": "heads that are significant in one half of the prompts; empty if there are too few to split",
    "held": "how many of these are also significant in the other half, with the same sign",
    "same": "heads whose difference is within the study's margin (same_q < 0.05), significant or not",
}
"""The columns of classes.csv: one row per class, the mean over heads."""


MULTIVERSE = {
    "comparison": "what is compared",
    "token_class": "the class",
    "share": "how tokens that mix classes are shared: characters, whole, majority or first",
    "queries": "the query group",
    "heads": "mean or median over heads",
    "special": "with the model's special tokens, or without (the rest then adds up to 1)",
    "difference": "the second side minus the first, within prompts, mean over prompts; empty without tokens",
    "low": "lower end of its 95 % interval",
    "high": "upper end of its 95 % interval",
    "p": "of this row alone, as in classes.csv",
    "n": "how many prompts have the class",
}
"""The columns of multiverse.csv: one row per class and choice of how to count."""


def write_comparisons(found: Sequence[Compared], folder: Path) -> list[Path]:
    """heads.csv, classes.csv, comparisons.md and multiverse.csv in a folder."""
    with writing(folder, "the comparisons"):
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in ("heads.csv", "classes.csv", "comparisons.md")]
        for path, part in zip(paths, ("heads", "overall"), strict=False):
            named = [(pl.lit(each.comparison.name).alias("comparison"), getattr(each, part)) for each in found]
            pl.concat([frame.select(name, pl.all()) for name, frame in named]).write_csv(path)
        paths[2].write_text(markdown(comparison_page(found)), encoding="utf-8")
        several = [each.comparison for each in found if each.comparison.paired]
        if several:
            named = [(pl.lit(each.name).alias("comparison"), multiverse(each)) for each in several]
            paths.append(folder / "multiverse.csv")
            pl.concat([frame.select(name, pl.all()) for name, frame in named]).write_csv(paths[-1])
    return paths
