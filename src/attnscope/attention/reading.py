"""A reading: one prompt's received attention, with what is needed to ask it questions. No model, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.text.classes import OTHER, membership
from attnscope.text.tokens import Token


@dataclass(frozen=True)
class Reading:
    """received[layer, head, query group, key]; `layers`, `heads` and `queries` name the first three axes."""

    text: str
    tokens: Sequence[Token]
    layers: Sequence[int]
    heads: Sequence[int]
    queries: Sequence[str]
    received: NDArray[np.float32]
    uniform: NDArray[np.float32]
    """[layer, head or 1, query group, key]: what a gaze at all visible keys alike would give."""
    seen: NDArray[np.float32]
    """[layer, head or 1, query group, key]: the share of the group's queries that can see the key."""
    entropy: NDArray[np.float32] | None
    """[layer, head, query group] in nats, of the gaze among keys; None unless it was asked for."""
    evidence: Mapping[str, Any]
    patterns: NDArray[np.float32] | None = None
    """[layer, head, pattern, query group, 3]: attention on the pattern's keys, what a uniform gaze would put there, and
    the share of queries that have such a key; the patterns are `meter.patterns.PATTERNS`. None unless asked for."""

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.received.shape))
        return f"Reading({len(self.tokens)} tokens; received {shape}: layers, heads, {', '.join(self.queries)}, keys)"

    @property
    def row_sums(self) -> NDArray[np.float32]:
        """[layer, head, query group]: one, but for models whose rows leave a share to a sink."""
        return np.asarray(self.received.sum(-1))

    def mass(self, classes: Mapping[str, str]) -> pl.DataFrame:
        """How much of each head's gaze lands on each class, and what a uniform gaze would put there.

        A tidy table: layer, head, queries, token_class, mass, expected; `other` holds what no class claims.
        """
        shares = membership(classes, self.text, self.tokens)
        mass = self.received.astype(np.float64) @ shares.T  # (layers, heads, groups, classes)
        expected = np.broadcast_to(self.uniform.astype(np.float64) @ shares.T, mass.shape)
        names = [*classes, OTHER]
        layer, head, group, name = np.indices(mass.shape).reshape(4, -1)
        return pl.DataFrame(
            {
                "layer": np.asarray(self.layers, dtype=np.int64)[layer],
                "head": np.asarray(self.heads, dtype=np.int64)[head],
                "queries": np.asarray(self.queries)[group],
                "token_class": np.asarray(names)[name],
                "mass": mass.ravel(),
                "expected": expected.ravel(),
            }
        )

    def unmatched(self, classes: Mapping[str, str]) -> list[str]:
        """The classes that match no token of this prompt."""
        found = np.asarray(membership(classes, self.text, self.tokens).sum(1))
        return [name for number, name in enumerate(classes) if not found[number]]

    def as_json(self, classes: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Everything, as plain lists and numbers."""
        made: dict[str, Any] = {
            "tokens": [vars(token) for token in self.tokens],
            "queries": list(self.queries),
            "layers": list(self.layers),
            "heads": list(self.heads),
            "received": self.received.tolist(),
        }
        if self.entropy is not None:
            made["entropy"] = self.entropy.tolist()
        if classes:
            made["mass"] = self.mass(classes).to_dicts()
        made["evidence"] = dict(self.evidence)
        return made
