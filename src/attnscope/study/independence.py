"""Whether a study's prompts may not be independent although nothing says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnscope.study.schema import PromptsSpec
from attnscope.text.copies import near_copies
from attnscope.text.sets import PROMPT_SETS


def cluster_field(spec: PromptsSpec) -> str | None:
    """The field that says which prompts belong together: the study's, or that of its set."""
    if spec.cluster is not None or spec.set is None or spec.set not in PROMPT_SETS.members:
        return spec.cluster
    return PROMPT_SETS.members[spec.set].cluster


def dependence(spec: PromptsSpec, prompts: Sequence[Mapping[str, str]]) -> str | None:
    """A warning, if prompts (given by their fields) are near copies and no cluster is given."""
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
