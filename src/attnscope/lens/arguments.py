"""What callers may write for layers, heads and measures, and the errors for what they may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnscope.errors import AttnscopeError, Parameter
from attnscope.measures import MEASURES, Measure
from attnscope.measures.received import RECEIVED


def chosen_measures(names: Sequence[str] | str) -> tuple[Measure, ...]:
    """`received` and those named, each once."""
    wanted = [names] if isinstance(names, str) else list(names)
    members = [MEASURES.find(name, Parameter("measures")) for name in dict.fromkeys(wanted)]
    return (RECEIVED, *(each for each in members if each is not RECEIVED))


def no_such_layer(name: str, layer: int, unreadable: Mapping[int, str], readable: Sequence[int]) -> AttnscopeError:
    return AttnscopeError(
        f"layer {layer} of {name} can't be measured: {unreadable.get(layer, 'there is no such layer')}",
        where=Parameter("layers"),
        allowed=_range(readable),
        todo="choose layers from these",
    )


def no_such_head(name: str, head: int, count: int) -> AttnscopeError:
    return AttnscopeError(
        f"{name} has no head {head}",
        where=Parameter("heads"),
        allowed=f"heads 0 to {count - 1}",
        todo="choose heads from these",
    )


def numbers_of(given: Sequence[int] | int, what: str) -> list[int]:
    """Layers or heads as a caller may write them: one number or several."""
    numbers = [given] if isinstance(given, int) else list(given)
    if not numbers or any(isinstance(number, str | bool) or number != int(number) for number in numbers):
        raise AttnscopeError(
            f"{what} are not numbers",
            where=Parameter(what, given),
            allowed=f"a list such as {what}=[0, 16]",
            todo="give numbers",
        )
    return [int(number) for number in numbers]


def refuse_if_empty(items: Sequence[object], what: str, where: str) -> None:
    if len(items) == 0:
        raise AttnscopeError(f"there are no {what}", where=Parameter(where), allowed="at least one", todo="give some")


def _range(layers: Sequence[int]) -> str:
    if list(layers) == list(range(len(layers))):
        return f"layers 0 to {len(layers) - 1}"
    return f"layers {', '.join(map(str, layers))}"
