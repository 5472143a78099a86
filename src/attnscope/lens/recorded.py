"""Recording attention while somebody else's code runs a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from attnscope.arguments import text_of
from attnscope.attention.recording import Recording, recording
from attnscope.edits.attention import AttentionEdit
from attnscope.errors import AttnscopeError
from attnscope.lens.arguments import chosen_heads, chosen_layers, chosen_measures, chosen_queries, edits_of
from attnscope.models.architecture import describe
from attnscope.models.in_memory import unwrapped


def record(
    model: Any,
    *,
    queries: Sequence[str] | str = ("last",),
    layers: Sequence[int] | int | None = None,
    heads: Sequence[int] | int | None = None,
    measures: Sequence[str] | str = (),
    edits: Sequence[AttentionEdit] = (),
    name: str | None = None,
) -> AbstractContextManager[Recording]:
    """Record attention while your own code runs a model: a training or evaluation loop, `generate`, a plain forward.

        with attnscope.record(model, queries=["last"], layers=[0, 16]) as record:
            model.generate(**inputs, max_new_tokens=64)
        record.received  # one entry per forward step, with labelled axes

    model: any transformers model, also compiled or wrapped by PEFT; nothing stays on it afterwards. queries: `last` and
    `all`, of the tokens that each forward is given. layers, heads: all by default. measures: what else to measure, by
    name. edits: changes to attention made in every forward, such as `Hide(hide=(3, 4))`, with keys named by position;
    gradients can't flow then, otherwise they flow as without it. The model is first compared with its own eager
    attention on a few tokens.
    """
    return _Once(_recorded(model, queries, layers, heads, measures, edits, name))


class _Once(AbstractContextManager[Recording]):
    """A recording that has not begun yet; says how it is used to whoever uses it otherwise."""

    def __init__(self, recorded: AbstractContextManager[Recording]) -> None:
        self._recorded: AbstractContextManager[Recording] | None = recorded
        self._exit: Callable[..., bool | None] = recorded.__exit__

    def __enter__(self) -> Recording:
        recorded, self._recorded = self._recorded, None
        if recorded is None:
            raise AttnscopeError(
                "this recording has been used already",
                where="record",
                allowed="one with block for each recording",
                todo="call attnscope.record again",
            )
        return recorded.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._exit(*error)

    if not TYPE_CHECKING:  # a type checker knows what it has

        def __getattr__(self, name: str) -> NoReturn:
            """Say what to write."""
            words = f"this has no '{name}' before the recording begins: with attnscope.record(model) as recording: ..."
            raise AttributeError(words, name=name)


@contextmanager
def _recorded(
    model: Any,
    queries: Sequence[str] | str,
    layers: Sequence[int] | int | None,
    heads: Sequence[int] | int | None,
    measures: Sequence[str] | str,
    edits: Sequence[AttentionEdit],
    name: str | None,
) -> Iterator[Recording]:
    inner = unwrapped(model)
    given = None if name is None else text_of(name, "name")
    label = given or getattr(inner.config, "name_or_path", None) or type(inner).__name__
    facts = describe(inner.config, label)
    readable = facts.softmax_layers
    chosen = readable if layers is None else chosen_layers(layers, label, facts.unreadable, readable)
    wanted = None if heads is None else chosen_heads(heads, label, facts.heads)
    groups, others = chosen_queries(queries), chosen_measures(measures)
    with recording(
        inner,
        label,
        queries=groups,
        layers=chosen,
        heads=wanted,
        measures=others,
        edits=edits_of(list(edits)),
        context=facts.context,
    ) as recorded:
        yield recorded
