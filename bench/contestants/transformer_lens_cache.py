"""TransformerLens as its guides show it first: a cache of the patterns, then the means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.contestants.transformer_lens_hooks import bridge


def prepare(folder: Path) -> Callable[[list[int]], np.ndarray[Any, Any]]:
    model = bridge(folder)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    wanted = set(names)

    def run(tokens: list[int]) -> np.ndarray[Any, Any]:
        with torch.inference_mode():
            _, cache = model.run_with_cache(
                torch.tensor([tokens]),
                names_filter=lambda name: name in wanted,
                return_type=None,
                logits_to_keep=1,
                use_cache=False,
            )
            received = [torch.stack((cache[name][0].mean(1), cache[name][0, :, -1]), 1) for name in names]
            return torch.stack(received).numpy()

    return run
