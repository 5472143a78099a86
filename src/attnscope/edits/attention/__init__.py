"""Attention edits: changes to attention while a model runs. One per module of this package or of a plugin.

They are data, with no tensors in them: `attnscope.attention` applies them. A plugin offers its own under the entry
points `attnscope.attention_edits`:

    [project.entry-points."attnscope.attention_edits"]
    sharpen = "my_package.sharpen:Sharpen"
"""

from __future__ import annotations

from typing import Annotated

from attnscope.edits.attention.edit import AttentionEdit
from attnscope.registry import Registry
from attnscope.spec import OneOf

ATTENTION_EDITS: Registry[type[AttentionEdit]] = Registry(
    "attention edit",
    package="attnscope.edits.attention",
    group="attnscope.attention_edits",
    is_member=lambda thing: isinstance(thing, type) and issubclass(thing, AttentionEdit) and thing is not AttentionEdit,
    named_by="key",
)

AnyAttentionEdit = Annotated[AttentionEdit, OneOf("an attention edit", AttentionEdit, lambda: ATTENTION_EDITS.members)]
"""In a study file: a mapping with the key of one edit."""

__all__ = ["ATTENTION_EDITS", "AnyAttentionEdit", "AttentionEdit"]
