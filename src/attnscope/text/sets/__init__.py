"""Sets of prompts, one per module of this package or of a plugin.

A plugin offers its own under the entry points `attnscope.prompt_sets`:

    [project.entry-points."attnscope.prompt_sets"]
    sums = "my_package.sums:SUMS"
"""

from __future__ import annotations

from attnscope.registry import Registry
from attnscope.text.sets.prompt_set import PromptSet, shuffled_file

PROMPT_SETS: Registry[PromptSet] = Registry(
    "set of prompts",
    package="attnscope.text.sets",
    group="attnscope.prompt_sets",
    is_member=lambda thing: isinstance(thing, PromptSet),
)

__all__ = ["PROMPT_SETS", "PromptSet", "shuffled_file"]
