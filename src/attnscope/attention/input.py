"""Whether a model gets input like that it was trained on: does it begin with BOS where the model wants it to?

A model that always saw a BOS token first reads a text without one poorly, and its attention sink moves to another
token: plausible numbers from a wrong input. Its loss on a plain text with BOS and without shows which it wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CLEAR = 0.3  # nats per token by which one loss must be below the other
ERRORS = 3.0  # and by so many standard errors of their difference


@dataclass(frozen=True)
class InputCheck:
    """How well a model predicts a plain text, with its BOS token before it and without. Losses in nats per token."""

    tokens: int
    """Of the text; the loss is of all but the first, which nothing predicts without BOS."""
    bos: str | None
    """The BOS token's text; None for a model without one."""
    bos_id: int | None
    added: bool
    """Whether the tokenizer puts it before a plain text."""
    with_bos: float | None = None
    without_bos: float | None = None
    standard_error: float | None = None
    """Of the difference between the two."""
    reason: str | None = None
    """Why there are no losses, where there are none."""

    @property
    def wants_bos(self) -> bool | None:
        """Whether the model predicts clearly better with BOS, or clearly better without; None if neither is clear."""
        if self.with_bos is None or self.without_bos is None or self.standard_error is None:
            return None
        gain = self.without_bos - self.with_bos
        return gain > 0 if abs(gain) > max(CLEAR, ERRORS * self.standard_error) else None

    def warning(self, ids: Sequence[int], *, plain: bool = True) -> str | None:
        """What is wrong with the beginning of a prompt, if anything is.

        plain: whether it is laid out as the text that the losses are of. A chat template may begin in its own way.
        """
        begins = bool(len(ids)) and ids[0] == self.bos_id
        if begins and len(ids) > 1 and ids[1] == self.bos_id:
            return f"it begins with {self.bos} twice: the text has one, and the tokenizer adds another"
        if not plain or self.wants_bos is None or self.wants_bos == begins:
            return None
        better, worse = sorted((self.with_bos or 0.0, self.without_bos or 0.0))
        how = "does not begin with" if self.wants_bos else "begins with"
        other = "with it" if self.wants_bos else "without it"
        return (
            f"it {how} {self.bos}, but {other} the model predicts a plain text far better (loss {better:.2f} instead "
            f"of {worse:.2f} per token): this is not the input it was trained on"
        )
