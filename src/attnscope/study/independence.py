"""Whether a study's prompts may not be independent although nothing says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from attnscope.study.schema import PromptsSpec
from attnscope.text.copies import near_copies
from attnscope.text.sets import PROMPT_SETS

MOST_OF_ONE = 0.5  # of the prompts in one cluster: beyond it, their mean is that cluster's, and nothing is tested


def cluster_field(spec: PromptsSpec) -> str | None:
    """The field that says which prompts belong together: the study's, or that of its set."""
    if spec.cluster is not None or spec.set is None or spec.set not in PROMPT_SETS.members:
        return spec.cluster
    return PROMPT_SETS.members[spec.set].cluster


def dependence(
    spec: PromptsSpec, prompts: Sequence[Mapping[str, str]], clusters: Sequence[Hashable] = ()
) -> str | None:
    """A warning, if prompts (given by their fields) are near copies and no cluster is given, or if one has most.

    clusters: of each prompt.
    """
    largest = max(Counter(clusters).values(), default=0)
    if largest > MOST_OF_ONE * len(clusters) and len(clusters) > 1:
        return (
            f"{largest} of the {len(clusters)} prompts are in one cluster, so nothing is tested: a mean over them says "
            "little about other clusters; add prompts of other kinds, or choose another field as prompts: cluster"
        )
    if cluster_field(spec) is not None:
        return None
    copies = near_copies(prompts)
    if copies is None:
        return None
    todo = f"add 'cluster: {copies.field}'" if copies.field else "name a field that says which belong together"
    return (
        f"many of the {copies.prompts} prompts are near copies of each other ({copies.groups} different ones), but "
        f"statistics take them as independent, so intervals are too narrow: {todo} under prompts"
    )
