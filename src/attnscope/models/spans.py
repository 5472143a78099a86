"""Tokenizers that report every character of a token, spaces included."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer


def with_whole_spans(tokenizer: Any) -> Any:
    """The same tokenizer, with spaces no longer trimmed from its tokens' character spans.

    GPT-2-style tokenizers may report that `' #'` covers only the `#`, and that a space covers nothing. Ids do not
    change.
    """
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    if _untrim(described.get("post_processor")):
        tokenizer._tokenizer = Tokenizer.from_str(json.dumps(described))
    return tokenizer


def _untrim(part: Any) -> bool:
    """Switch off trimming in a post-processor and those inside it; whether there was any."""
    if isinstance(part, list):
        trimmed = [_untrim(each) for each in part]  # a list, so that none is skipped
        return any(trimmed)
    if not isinstance(part, dict):
        return False
    inside = [_untrim(each) for each in part.values() if isinstance(each, (list, dict))]
    trims = part.get("trim_offsets") is True
    if trims:
        part["trim_offsets"] = False
    return trims or any(inside)
