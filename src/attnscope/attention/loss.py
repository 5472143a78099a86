"""A causal model's loss on a plain text, with its BOS token before it and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnscope.attention.forward import input_device
from attnscope.attention.input import InputCheck
from attnscope.attention.interface import quiet


def check_input(model: PreTrainedModel, tokenizer: Any, ids: Sequence[int], *, causal: bool) -> InputCheck:
    """ids: a plain text's tokens as the tokenizer gives them, what it puts around them included."""
    bos: int | None = tokenizer.bos_token_id
    added = bool(len(ids)) and ids[0] == bos
    text = list(ids[1:] if added else ids)
    check = {"tokens": len(text), "bos": tokenizer.bos_token, "bos_id": bos, "added": added}
    if not causal:
        return InputCheck(**check, reason="it does not predict the next token")
    try:
        without = _losses(model, text)
        within = None if bos is None else _losses(model, [bos, *text])[1:]
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        return InputCheck(**check, reason=f"it has no language model head ({error})")
    if len(without) < 2:
        return InputCheck(**check, reason="the text is too short")
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


def _losses(model: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """(tokens - 1,): how surprising each token but the first is, in nats."""
    given = torch.tensor([list(ids)], device=input_device(model))
    with quiet(model):
        logits = model(input_ids=given).logits  # (1, tokens, vocabulary)
    if logits.dim() != 3 or logits.shape[1] != given.shape[1]:
        raise ValueError(f"logits of shape {tuple(logits.shape)}")
    return torch.nn.functional.cross_entropy(logits[0, :-1].double().cpu(), given[0, 1:].cpu(), reduction="none")
