"""What a folder holds, by the names of its files: a model, an adapter, or neither. Nothing is opened."""

from __future__ import annotations

from pathlib import Path

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER_SAFE, ADAPTER_PICKLED = "adapter_model.safetensors", "adapter_model.bin"
TRAINER_STATE = "trainer_state.json"
"""What the Trainer of transformers says about a checkpoint; no number depends on it."""


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no model."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / CONFIG).is_file()


def is_model(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def is_pickled(name: str) -> bool:
    """Whether a file of this name is part of a model's pickled weights."""
    return name.startswith("pytorch_model") and name.endswith((".bin", ".bin.index.json"))


def has_weights(folder: Path) -> bool:
    """Whether the weights of its model or adapter are there, as far as names show."""
    if is_adapter(folder):
        return any((folder / name).is_file() for name in (ADAPTER_SAFE, ADAPTER_PICKLED))
    return any((folder / name).is_file() for name in (SINGLE, INDEX)) or any(
        is_pickled(path.name) for path in folder.iterdir()
    )


def has_tokenizer(folder: Path) -> bool:
    return any(any(folder.glob(pattern)) for pattern in ("tokenizer*", "*vocab*", "*.model"))
