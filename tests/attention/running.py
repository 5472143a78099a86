"""Models run as users run them, and what is on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.attention import architectures

PROMPT, NEW = 30, 6


def prompt(batch: int = 1, length: int = PROMPT, seed: int = 0) -> Tensor:
    return torch.randint(3, architectures.VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def written(model: Any, ids: Tensor, **more: Any) -> Tensor:
    given = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0, **more}
    made: Tensor = model.generate(ids, **given)
    return made


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
