"""Tokenizers that tell the whole of each token's characters, blanks included."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer


def with_whole_spans(tokenizer: Any) -> Any:
    """The same tokenizer, with no blanks trimmed off its tokens' character spans.

    Tokenizers in the manner of GPT-2 may say that `' #'` covers only the `#`, and that a blank covers nothing. Ids
    stay as they are.
    """
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    if _untrim(described.get("post_processor")):
        tokenizer._tokenizer = Tokenizer.from_str(json.dumps(described))
    return tokenizer


def _untrim(part: Any) -> bool:
    """Switch trimming off in a post-processor and those inside it; whether there was any."""
    if isinstance(part, list):
        found = [_untrim(each) for each in part]  # all of them, not just up to the first
        return any(found)
    if not isinstance(part, dict):
        return False
    inside = [_untrim(each) for each in part.values() if isinstance(each, (list, dict))]
    trims = part.get("trim_offsets") is True
    if trims:
        part["trim_offsets"] = False
    return trims or any(inside)
