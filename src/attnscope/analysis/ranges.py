"""Between which numbers a quantity lies: no interval of it reaches beyond them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attnscope.analysis.run import Run
from attnscope.analysis.sides import ENRICHMENT, MASS, PARTS
from attnscope.analysis.spread import SHARES, Bounds
from attnscope.measures import MEASURES
from attnscope.measures.names import KEPT, MOVED, SCORES, TAKEN


def bounds_of(run: Run, quantity: str) -> Bounds:
    """Of a quantity that sides are compared by, of one of the study's, of a score or a measure of heads."""
    if quantity in run.study.quantities:
        return run.study.quantities[quantity].limits
    if quantity in (MASS, TAKEN, MOVED, *SCORES):
        return SHARES
    if quantity in (ENRICHMENT, KEPT):
        return 0.0, math.inf
    if quantity in PARTS:  # of a difference between shares
        return -1.0, 1.0
    return SHARES if MEASURES.find(quantity, "measure").unit.startswith("share") else (-math.inf, math.inf)


def bounds_shown(run: Run, names: Sequence[str], *, enrichment: bool) -> Bounds:
    """Of what a figure shows: a measure, or the sum of some classes."""
    if names[0] in run.token_sets:
        return bounds_of(run, ENRICHMENT if enrichment else MASS)
    return bounds_of(run, names[0])
