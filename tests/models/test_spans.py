"""Character spans are whole, whatever the tokenizer's own habits."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from attnscope.models.spans import with_whole_spans

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TEXT = "a # b  c\nd é"


def gpt2_like(processor: Any) -> Any:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<s>", "</s>", *letters, "Ġ#", "ĠĠ"]
    backend = Tokenizer(
        models.BPE(vocab={word: place for place, word in enumerate(words)}, merges=[("Ġ", "#"), ("Ġ", "Ġ")])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.post_processor = processor
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)


@pytest.mark.parametrize(
    "processor",
    [
        processors.ByteLevel(trim_offsets=True),
        processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True),
        processors.Sequence([processors.ByteLevel(trim_offsets=True)]),
    ],
)
def test_blanks_belong_to_the_tokens_they_are_part_of(processor: Any) -> None:
    tokenizer = gpt2_like(processor)
    ids = tokenizer(TEXT)["input_ids"]
    whole = with_whole_spans(tokenizer)(TEXT, return_offsets_mapping=True)
    assert whole["input_ids"] == ids
    spans = [TEXT[start:end] for start, end in whole["offset_mapping"] if end > start]
    assert " #" in spans
    assert "  " in spans
    covered = {place for start, end in whole["offset_mapping"] for place in range(start, end)}
    assert covered == set(range(len(TEXT)))
