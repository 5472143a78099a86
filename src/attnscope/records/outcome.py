"""What a model makes of an answer: as it is, with its attention changed, and with as much changed at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

import numpy as np
import polars as pl
from numpy.typing import NDArray

AS_IS, CHANGED, CONTROL = "as it is", "changed", "control"


@dataclass(frozen=True)
class Scores:
    """What a model makes of an answer, token by token, each given those before it."""

    log_probs: NDArray[np.float64]
    """The log probability of the answer's token."""
    likeliest: NDArray[np.int64]
    """The id of the token that the model finds likeliest in its place."""
    kl: NDArray[np.float64]
    """How far the prediction is from that of the model as it is: KL(as it is || changed), in nats."""

    @property
    def log_prob(self) -> float:
        """The answer's log probability: the sum over its tokens."""
        return float(self.log_probs.sum())

    def writes(self, ids: Sequence[int]) -> bool:
        """Whether the model, always writing the likeliest token, would write exactly this answer."""
        return bool((self.likeliest == np.asarray(ids)).all())


@dataclass(frozen=True)
class Outcome:
    """An answer's probability before and after a change of attention.

    `change` is the effect of the change; `controls` say what changing as much at random does.
    """

    answer: str
    tokens: list[str]
    """The texts of the answer's tokens."""
    ids: list[int]
    """Their ids."""
    before: Scores
    """As the model is."""
    after: Scores
    """With the changes."""
    controls: list[Scores]
    """With as much changed at random, draw by draw; empty if nothing was drawn."""
    control: str
    """What was drawn, in words, or why nothing was."""
    likeliest: list[str]
    """The texts of the tokens that the changed model finds likeliest in the answer's places."""

    @property
    def change(self) -> float:
        """How much the answer's log probability changes."""
        return self.after.log_prob - self.before.log_prob

    @cached_property
    def control_changes(self) -> list[float]:
        """The same for each draw."""
        return [each.log_prob - self.before.log_prob for each in self.controls]

    @property
    def beyond(self) -> float | None:
        """The share of draws that change it at least as much in the same direction; None without draws.

        With the change counted among the draws, so that it is never 0.
        """
        if not self.controls:
            return None
        side = -1.0 if self.change < 0 else 1.0
        as_much = sum(side * each >= side * self.change for each in self.control_changes)
        return (as_much + 1) / (len(self.controls) + 1)

    def table(self) -> pl.DataFrame:
        """One row for the model as it is, one for the changed model, and one per draw: log_prob, change, kl, exact."""
        rows = [(AS_IS, self.before), (CHANGED, self.after), *((CONTROL, each) for each in self.controls)]
        return pl.DataFrame(
            {
                "variant": [name for name, _ in rows],
                "log_prob": [each.log_prob for _, each in rows],
                "change": [each.log_prob - self.before.log_prob for _, each in rows],
                "kl": [float(each.kl[0]) for _, each in rows],
                "exact": [each.writes(self.ids) for _, each in rows],
            }
        )

    def by_token(self) -> pl.DataFrame:
        """Each token of the answer: its log probability as the model is and changed, and what is likeliest then."""
        return pl.DataFrame(
            {
                "token": self.tokens,
                "before": self.before.log_probs,
                "after": self.after.log_probs,
                "likeliest": self.likeliest,
                "kl": self.after.kl,
            }
        )

    def __repr__(self) -> str:
        words = f"log probability of {self.answer!r}: {self.before.log_prob:.2f} -> {self.after.log_prob:.2f}"
        return f"{words} ({self._controls()})"

    def _controls(self) -> str:
        if not self.controls:
            return f"no control: {self.control}"
        ends = [each.log_prob for each in self.controls]
        drawn = f"{len(ends)} draw{'s' * (len(ends) > 1)}"
        spread = f"; {min(ends):.2f} to {max(ends):.2f} in {drawn}" if len(ends) > 1 else ""
        return f"{self.control}: {float(np.mean(ends)):.2f}{spread}"

    def _repr_html_(self) -> str:
        cells = [
            f"<tr><td>{escape(token)}</td><td>{before:.3f}</td><td>{after:.3f}</td><td>{escape(likeliest)}</td></tr>"
            for token, before, after, likeliest, _ in self.by_token().iter_rows()
        ]
        head = "<tr><th>token</th><th>log probability</th><th>changed</th><th>likeliest then</th></tr>"
        table = f"<table>{head}{''.join(cells)}</table>"
        return f'<div style="font-family:sans-serif"><p>{escape(repr(self))}</p>{table}</div>'
