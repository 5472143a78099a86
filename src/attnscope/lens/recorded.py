"""Recording attention while somebody else's code runs a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attnscope.arguments import text_of
from attnscope.attention.recording import Recording, recording
from attnscope.lens.arguments import chosen_heads, chosen_layers, chosen_measures, chosen_queries
from attnscope.models.architecture import describe
from attnscope.models.in_memory import unwrapped


@contextmanager
def record(
    model: Any,
    *,
    queries: Sequence[str] | str = ("last",),
    layers: Sequence[int] | int | None = None,
    heads: Sequence[int] | int | None = None,
    measures: Sequence[str] | str = (),
    name: str | None = None,
) -> Iterator[Recording]:
    """Record attention while your own code runs a model: a training or evaluation loop, `generate`, a plain forward.

        with attnscope.record(model, queries=["last"], layers=[0, 16]) as record:
            model.generate(**inputs, max_new_tokens=64)
        record.received  # one entry per forward step, with labelled axes

    model: any transformers model, also compiled or wrapped by PEFT; nothing stays on it afterwards. queries: `last` and
    `all`, of the tokens that each forward is given. layers, heads: all by default. measures: what else to measure, by
    name. Gradients flow as without it. The model is first compared with its own eager attention on a few tokens.
    """
    inner = unwrapped(model)
    given = None if name is None else text_of(name, "name")
    label = given or getattr(inner.config, "name_or_path", None) or type(inner).__name__
    facts = describe(inner.config, label)
    readable = facts.softmax_layers
    chosen = readable if layers is None else chosen_layers(layers, label, facts.unreadable, readable)
    wanted = None if heads is None else chosen_heads(heads, label, facts.heads)
    groups, others = chosen_queries(queries), chosen_measures(measures)
    with recording(inner, label, queries=groups, layers=chosen, heads=wanted, measures=others) as recorded:
        yield recorded
