"""Prompt edits: changes to a prompt; together they make a condition. One per module of this package or of a plugin.

A plugin offers its own under the entry points `attnscope.prompt_edits`:

    [project.entry-points."attnscope.prompt_edits"]
    drop = "my_package.drop:Drop"
"""

from __future__ import annotations

from typing import Annotated

from attnscope.edits.prompt.edit import EditContext, EditProblem, Lines, PromptEdit
from attnscope.registry import Registry
from attnscope.spec import OneOf

PROMPT_EDITS: Registry[type[PromptEdit]] = Registry(
    "prompt edit",
    package="attnscope.edits.prompt",
    group="attnscope.prompt_edits",
    is_member=lambda thing: isinstance(thing, type) and issubclass(thing, PromptEdit) and thing is not PromptEdit,
    named_by="key",
)

AnyPromptEdit = Annotated[PromptEdit, OneOf("an edit", PromptEdit, lambda: PROMPT_EDITS.members)]
"""In a study file: a mapping with the key of one edit."""

__all__ = ["PROMPT_EDITS", "AnyPromptEdit", "EditContext", "EditProblem", "Lines", "PromptEdit"]
