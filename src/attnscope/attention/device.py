"""Where a model computes, also one whose weights accelerate keeps elsewhere until they are needed."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel


def input_device(model: PreTrainedModel) -> torch.device:
    """Where the model wants its token ids."""
    embeddings = model.get_input_embeddings()
    device = next(embeddings.parameters()).device
    if device.type != "meta":
        return device
    hook = getattr(embeddings, "_hf_hook", None)
    return torch.device(getattr(hook, "execution_device", None) or "cpu")


def is_spread(model: PreTrainedModel) -> bool:
    """Whether its weights come and go, or lie on several devices."""
    devices = {each.device for each in model.parameters()}
    return bool(getattr(model, "hf_device_map", None)) or len(devices) > 1 or torch.device("meta") in devices
