"""Progress while a model loads: our own lines on standard error, without the libraries' bars and warnings."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from functools import partial
from threading import RLock, Timer
from typing import Any

from rich.console import Console

A_WHILE = 1.0  # seconds
_silent = ContextVar("silent", default=False)
_SILENCING = RLock()  # what is silenced belongs to all threads; put back out of order, it would stay silent


@contextmanager
def silenced(*, only: bool = True) -> Iterator[None]:
    """Inside, nothing is shown. only: whether to do so at all."""
    before = _silent.set(only or _silent.get())
    try:
        yield
    finally:
        _silent.reset(before)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show on standard error what is being done: a spinner on a terminal, elsewhere one line if it takes a while."""
    if _silent.get():
        yield
        return
    console = Console(file=sys.stderr)  # made here, so that it survives the redirection in libraries_silenced
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        say = partial(console.print, text, highlight=False, markup=False, soft_wrap=True)
        timer = Timer(A_WHILE, say)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def say(text: str) -> None:
    """One permanent line on standard error."""
    if not _silent.get():
        Console(file=sys.stderr).print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def libraries_silenced() -> Iterator[None]:
    """No progress bars, warnings or log lines from transformers and the Hub client; restored afterwards."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    with _SILENCING:
        verbosity, had_bars, hub_had_bars = (
            logging.get_verbosity(),
            logging.is_progress_bar_enabled(),
            not are_progress_bars_disabled(),
        )
        logging.set_verbosity(logging.FATAL)
        logging.disable_progress_bar()
        disable_progress_bars()
        try:
            # Some bars (GGUF's) heed no setting.
            with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                yield
        finally:
            logging.set_verbosity(verbosity)
            if had_bars:
                logging.enable_progress_bar()
            if hub_had_bars:
                enable_progress_bars()
