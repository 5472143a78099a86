"""The forward pass that all are compared with: SDPA, no LM head, no cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def prepare(folder: Path) -> Callable[[list[int]], None]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")

    def run(tokens: list[int]) -> None:
        with torch.inference_mode():
            model.base_model(torch.tensor([tokens]), use_cache=False)

    return run
