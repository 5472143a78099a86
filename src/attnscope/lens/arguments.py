"""What callers may write for prompts, queries, layers, heads, measures and edits, and the errors for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index

from attnscope.attention.groups import refuse_group_names
from attnscope.edits.attention import AttentionEdit
from attnscope.errors import AttnscopeError, Parameter
from attnscope.measures import MEASURES, Measure
from attnscope.measures.received import RECEIVED


def chosen_measures(names: Sequence[str] | str) -> tuple[Measure, ...]:
    """`received` and those named, each once."""
    wanted = _names_of(names, "measures", "entropy")
    members = [MEASURES.find(name, Parameter("measures")) for name in dict.fromkeys(wanted)]
    return (RECEIVED, *(each for each in members if each is not RECEIVED))


def chosen_queries(names: Sequence[str] | str) -> list[str]:
    """The names of query groups, each once."""
    wanted = _names_of(names, "queries", "last")
    refuse_group_names(wanted)
    return wanted


def _names_of(given: object, what: str, example: str) -> list[str]:
    """One name or several."""
    names = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [None]
    strings = [name for name in names if isinstance(name, str)]
    if len(strings) < len(names):
        raise AttnscopeError(
            f"{what} are not names",
            where=Parameter(what, given),
            allowed=f"a list such as {what}=['{example}']",
            todo="give names",
        )
    return strings


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


def numbers_of(given: object, what: str) -> list[int]:
    """Layers, heads or token ids as a caller may write them: one number or several, of any type of whole numbers."""
    try:
        numbers = _whole_numbers(given)
    except (TypeError, ValueError):  # ValueError: of an array's or a tensor's own making
        numbers = []
    if not numbers:
        raise AttnscopeError(
            f"{what} are not whole numbers",
            where=Parameter(what, given),
            allowed=f"a list such as {what}=[0, 16]",
            todo="give at least one number",
        )
    return numbers


def _whole_numbers(given: object) -> list[int]:
    try:
        return [_whole_number(given)]
    except (TypeError, ValueError):
        if isinstance(given, bytes) or not isinstance(given, Iterable):
            raise
        return [_whole_number(each) for each in given]


def _whole_number(given: object) -> int:
    if isinstance(given, bool):
        raise TypeError("a bool is not meant as a number")
    return index(given)  # type: ignore[arg-type]  # which says so itself


def texts_of(given: object) -> list[str]:
    """The prompts of a batch; one text alone is not a batch, nor are its characters."""
    prompts = list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else None
    if prompts is None:
        raise AttnscopeError(
            f"the prompts are a {type(given).__name__}",
            where=Parameter("texts"),
            allowed="a list of texts; one text goes to measure",
            todo="give a list",
        )
    refuse_if_empty(prompts, "prompts", "texts")
    for text in prompts:
        if not isinstance(text, str):
            raise AttnscopeError(
                f"a prompt is a {type(text).__name__}",
                where=Parameter("text"),
                allowed="text; several texts go to measure_batch, token ids to measure_tokens",
                todo="give a str",
            )
    return prompts


def edits_of(given: object) -> list[AttentionEdit]:
    """Attention edits."""
    things = list(given) if isinstance(given, list | tuple) else [None]
    edits = [each for each in things if isinstance(each, AttentionEdit)]
    if len(edits) < len(things):
        raise AttnscopeError(
            "edits are not attention edits",
            where=Parameter("edits", given),
            allowed="a list of edits such as edits=[Hide(hide='#')]",
            todo="give a list of them",
        )
    return edits


def refuse_rows(rows: object, prompts: int) -> None:
    """Refuse rows that are not one mapping per prompt, from names of groups to positions."""
    if rows is None:
        return
    if not isinstance(rows, Sequence) or not all(isinstance(each, Mapping) for each in rows):
        raise AttnscopeError(
            "rows are not mappings",
            where=Parameter("rows", rows),
            allowed="for each prompt, positions by name of a query group, such as {'mine': [0, 1]}",
            todo="give a mapping",
        )
    if len(rows) != prompts:
        raise AttnscopeError(
            f"rows are given for {len(rows)} of {prompts} prompts",
            where=Parameter("rows"),
            allowed="one mapping per prompt",
            todo="give each prompt its rows",
        )


def refuse_if_empty(items: Sequence[object], what: str, where: str) -> None:
    if len(items) == 0:
        raise AttnscopeError(f"there are no {what}", where=Parameter(where), allowed="at least one", todo="give some")


def _range(layers: Sequence[int]) -> str:
    if list(layers) == list(range(len(layers))):
        return f"layers 0 to {len(layers) - 1}"
    return f"layers {', '.join(map(str, layers))}"
