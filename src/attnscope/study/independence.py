"""Whether a study's prompts may not be independent although nothing says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from attnscope.study.schema import PromptsSpec
from attnscope.text.copies import near_copies
from attnscope.text.sets import PROMPT_SETS

FEWEST = 6  # clusters; with five, p can't be below 0.05, and a bootstrap has little to draw from


BALANCED = 4  # as many clusters of one size must say as much as those at hand: fewer have most of the prompts


def testable(sizes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether there are clusters enough for a test, and not a few with most of the prompts. sizes: (clusters, ...)."""
    enough: NDArray[np.bool_] = ((sizes > 0).sum(0) >= FEWEST) & ~lopsided(sizes)
    return enough


def lopsided(sizes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether a few of the clusters have most of the prompts. sizes: (clusters, ...)."""
    alike, uneven = effective_clusters(sizes), sizes.max(0, initial=0.0) > 1
    few: NDArray[np.bool_] = uneven & (alike < np.minimum(BALANCED, 0.8 * (sizes > 0).sum(0)))
    return few


def cluster_field(spec: PromptsSpec) -> str | None:
    """The field that says which prompts belong together: the study's, or that of its set."""
    if spec.cluster is not None or spec.set is None or spec.set not in PROMPT_SETS.members:
        return spec.cluster
    return PROMPT_SETS.members[spec.set].cluster


def effective_clusters(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many clusters of one size would say as much about a mean. sizes: (clusters, ...)."""
    total, squares = sizes.sum(0), (sizes**2).sum(0)
    alike: NDArray[np.float64] = np.divide(total**2, squares, out=np.zeros(np.shape(total)), where=squares > 0)
    return alike


def dependence(
    spec: PromptsSpec, prompts: Sequence[Mapping[str, str]], clusters: Sequence[Hashable] = ()
) -> str | None:
    """A warning, if prompts (given by their fields) are near copies and no cluster is given, or if few have most.

    clusters: of each prompt.
    """
    sizes = Counter(clusters)
    if len(sizes) >= FEWEST and not testable(np.array([*sizes.values()], dtype=np.float64)):
        return (
            f"most of the {len(clusters)} prompts are in a few of {len(sizes)} clusters ({max(sizes.values())} in the "
            "largest), so nothing is tested: their mean says little about other clusters; add prompts to the others, "
            "or choose another field as prompts: cluster"
        )
    if cluster_field(spec) is not None:
        return None
    copies = near_copies(prompts)
    if copies is None:
        return None
    is_column = copies.field is not None and "." not in copies.field  # an item of a list or a message is none
    todo = f"add 'cluster: {copies.field}'" if is_column else "name a field that says which belong together"
    return (
        f"many of the {copies.prompts} prompts are near copies of each other ({copies.groups} different ones), but "
        f"statistics take them as independent, so intervals are too narrow: {todo} under prompts"
    )
