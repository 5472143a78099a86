"""nnsight as a careful user would: a trace of the body without its LM head, saving only each layer's means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nnsight
import numpy as np
import torch
from transformers import AutoModelForCausalLM


def prepare(folder: Path) -> Callable[[list[int]], np.ndarray[Any, Any]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    body: Any = nnsight.NNsight(model.base_model)

    def run(tokens: list[int]) -> np.ndarray[Any, Any]:
        with torch.inference_mode():
            with body.trace(input_ids=torch.tensor([tokens]), use_cache=False):
                received = nnsight.save([])
                for layer in body.layers:
                    weights = layer.self_attn.output[1]
                    received.append(torch.stack((weights[0].mean(1), weights[0, :, -1]), 1))
                    del weights  # otherwise it keeps matrices of earlier layers in memory
            return torch.stack(list(received)).numpy()

    return run
