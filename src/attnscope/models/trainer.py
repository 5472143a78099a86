"""What a callback needs of transformers' Trainer: its base class, its loggers, and randomness left as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import currentframe
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback as Callback
from transformers.trainer_callback import CallbackHandler

__all__ = ["Callback", "log", "randomness_kept", "sharded"]


def log(callback: Callback, args: Any, state: Any, control: Any, numbers: Mapping[str, float]) -> bool:
    """Log numbers at the current step to everything the Trainer logs to, as `Trainer.log` does.

    Call it from an event of the callback. A callback is handed no Trainer; and in `on_log`, the loggers (TensorBoard,
    W&B) have had their turn before callbacks of one's own. So the list of callbacks that is going through its event is
    looked up among the callers, and gets an `on_log` of its own. False if this is no event of a Trainer.
    """
    handler = _handler_of(callback)
    if handler is None:
        return False
    logs = {**numbers, **({} if state.epoch is None else {"epoch": state.epoch})}
    state.log_history.append({**logs, "step": state.global_step})
    due = control.should_log
    handler.on_log(args, state, control, logs)
    control.should_log = due  # `on_log` takes it as done, but the Trainer's own log is still to come
    return True


def _handler_of(callback: Callback) -> CallbackHandler | None:
    frame = currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, CallbackHandler) and any(each is callback for each in caller.callbacks):
            return caller
        frame = frame.f_back
    return None


def sharded(args: Any) -> str | None:
    """What spreads a model's weights over processes, so that no single one can run it; None if nothing does."""
    if getattr(args, "fsdp", None):
        return "FSDP"
    stage = getattr(getattr(args, "deepspeed_plugin", None), "zero_stage", 0)
    return f"DeepSpeed ZeRO-{stage}" if stage >= 3 else None


@contextmanager
def randomness_kept() -> Iterator[None]:
    """Inside, random numbers may be drawn; after, all generators go on as if none had been."""
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)
