"""Attention while a model is trained: a callback that measures a small study on the model in memory."""

from __future__ import annotations

from attnscope.training.callback import TrainerCallback

__all__ = ["TrainerCallback"]
