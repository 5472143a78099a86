"""TransformerLens as a careful user would: a hook on each pattern that keeps only the means, raw weights (nothing
folded or centred), logits of one position only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, AutoTokenizer


def bridge(folder: Path) -> Any:
    """The saved model behind TransformerLens's interface; it wants eager attention for its hooks."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return TransformerBridge.boot_transformers(str(folder), hf_model=model, tokenizer=tokenizer, device="cpu")


def prepare(folder: Path) -> Callable[[list[int]], np.ndarray[Any, Any]]:
    model = bridge(folder)
    layers = range(model.cfg.n_layers)

    def run(tokens: list[int]) -> np.ndarray[Any, Any]:
        received: dict[str, torch.Tensor] = {}

        def keep(pattern: torch.Tensor, hook: Any) -> None:
            received[hook.name] = torch.stack((pattern[0].mean(1), pattern[0, :, -1]), 1)

        names = [f"blocks.{layer}.attn.hook_pattern" for layer in layers]
        with torch.inference_mode():
            model.run_with_hooks(
                torch.tensor([tokens]),
                fwd_hooks=[(name, keep) for name in names],
                return_type=None,
                logits_to_keep=1,
                use_cache=False,
            )
            return torch.stack([received[name] for name in names]).numpy()

    return run
