"""A causal model's loss on a plain text, with its BOS token before it and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.device import input_device
from attnscope.attention.forward import without_extras
from attnscope.attention.input import InputCheck
from attnscope.attention.interface import quiet

MOST = 64  # tokens of the text: logits of a large vocabulary take a megabyte per token
ROWS = 8  # logits that are turned into losses at a time


def check_input(
    model: PreTrainedModel, tokenizer: Any, ids: Sequence[int], *, causal: bool, vocabulary: int
) -> InputCheck:
    """ids: a plain text's tokens as the tokenizer gives them, what it puts around them included.

    vocabulary: how many tokens the model knows. A model that can't predict gets a reason instead of losses.
    """
    bos: int | None = tokenizer.bos_token_id
    added = bool(len(ids)) and ids[0] == bos
    text = list(ids[1:] if added else ids)[:MOST]
    check = {"tokens": len(text), "bos": tokenizer.bos_token, "bos_id": bos, "added": added}
    reason = _obstacle(model, [*text, *([] if bos is None else [bos])], len(text), causal=causal, vocabulary=vocabulary)
    if reason is not None:
        return InputCheck(**check, reason=reason)
    try:
        without = _losses(model, text)
        within = None if bos is None else _losses(model, [bos, *text])[1:]
    except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        return InputCheck(**check, reason=f"its logits can't be computed ({str(error).splitlines()[0][:200]})")
    if not bool(without.isfinite().all()) or (within is not None and not bool(within.isfinite().all())):
        return InputCheck(**check, reason="its logits are not finite")
    if within is None:
        return InputCheck(**check, without_bos=float(without.mean()))
    apart = without - within
    return InputCheck(
        **check,
        with_bos=float(within.mean()),
        without_bos=float(without.mean()),
        standard_error=float(apart.std() / len(apart) ** 0.5),
    )


def _obstacle(model: PreTrainedModel, ids: Sequence[int], tokens: int, *, causal: bool, vocabulary: int) -> str | None:
    """Why a model has no loss on these tokens, if it has none."""
    if not causal:
        return "it does not predict the next token"
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None:
        return "it has no language model head"
    if tokens < 3:
        return "the text is too short"
    unknown = [token for token in ids if token >= vocabulary]
    return f"its tokenizer has token {unknown[0]}, and the model only {vocabulary:,} tokens" if unknown else None


def _losses(model: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """(tokens - 1,): how surprising each token but the first is, in nats."""
    given = torch.tensor([list(ids)], device=input_device(model))
    with quiet(model):
        logits = model(**without_extras(model, {"input_ids": given})).logits  # (1, tokens, vocabulary)
        if logits.dim() != 3 or logits.shape[1] != given.shape[1]:
            raise ValueError(f"logits of shape {tuple(logits.shape)}")
        wanted = given[0, 1:].to(logits.device)
        losses = [_surprise(logits[0], wanted, start) for start in range(0, len(wanted), ROWS)]
    return torch.cat(losses).double().cpu()


def _surprise(logits: Tensor, wanted: Tensor, start: int) -> Tensor:
    """Of a few rows only: logits of a large vocabulary are not to be copied as a whole."""
    some = wanted[start : start + ROWS]
    return torch.nn.functional.cross_entropy(logits[start : start + len(some)].float(), some, reduction="none")
