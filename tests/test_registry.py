"""Families: what a package offers is refused by name if it can't be a member."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from attnscope.attention.backends import BACKENDS, Backend
from attnscope.edits.attention import ATTENTION_EDITS
from attnscope.edits.prompt import PROMPT_EDITS
from attnscope.edits.sources import SOURCES
from attnscope.errors import AttnscopeError
from attnscope.figures import KINDS
from attnscope.measures import MEASURES
from attnscope.registry import Registry, not_blamed
from attnscope.runs.engines import ENGINES
from attnscope.text.groups import GROUPS
from attnscope.text.rules import RULES
from attnscope.text.sets import PROMPT_SETS

OF_OBJECTS: list[Registry[Any]] = [RULES, GROUPS, PROMPT_SETS, MEASURES, KINDS, BACKENDS, ENGINES]
OF_CLASSES: list[Registry[Any]] = [PROMPT_EDITS, SOURCES, ATTENTION_EDITS]
FAMILIES = [*OF_OBJECTS, *OF_CLASSES]

Offer = Callable[[Registry[Any], object], dict[str, Any]]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Offer:
    """The members of a family, with a package installed that offers one more."""

    def members(family: Registry[Any], thing: object) -> dict[str, Any]:
        module = ModuleType("broken")
        module.THING = thing  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "broken", module)
        entry = EntryPoint("thing", "broken:THING", family.group)
        monkeypatch.setattr("attnscope.registry.entry_points", lambda group: [entry] if group == family.group else [])
        monkeypatch.delitem(family.__dict__, "_every", raising=False)
        try:
            return family.members
        finally:
            family.__dict__.pop("_every", None)

    return members


def renamed(family: Registry[Any], **parts: Any) -> Any:
    """A built-in member with other attributes, whatever its own checks say."""
    member = next(iter(family.built_in.values()))
    if isinstance(member, type):
        odd: Any = type("Odd", (member,), {"__doc__": "x"})
        for name, value in parts.items():
            type.__setattr__(odd, name, value)
        return odd
    odd = object.__new__(type(member))
    for name, value in {**vars(member), **parts}.items():
        object.__setattr__(odd, name, value)
    return odd


@pytest.mark.parametrize("name", [None, "", " ", 3, b"x", ["x"]])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.word)
def test_a_member_needs_a_name(family: Registry[Any], name: object, offer: Offer) -> None:
    part = "key" if family in OF_CLASSES else "name"
    with pytest.raises(AttnscopeError, match=f"^the {family.word} 'thing' of an installed.* its {part} is ") as error:
        offer(family, renamed(family, **{part: name}))
    assert "broken" in error.value.where
    assert offer(family, renamed(family, **{part: "odd"}))["odd"]


@pytest.mark.parametrize("words", [None, "", 3])
@pytest.mark.parametrize("family", [RULES, GROUPS, PROMPT_SETS, MEASURES, KINDS, ENGINES], ids=lambda each: each.word)
def test_a_member_says_what_it_is(family: Registry[Any], words: object, offer: Offer) -> None:
    part = "about" if family in (PROMPT_SETS, KINDS) else "meaning"
    with pytest.raises(AttnscopeError, match=f"'thing' of an installed package can't be used: its {part} is "):
        offer(family, renamed(family, name="odd", **{part: words}))


class Nameless(Backend):
    """Its author forgot the name."""


class Raising(Backend):
    """Its name can't be read."""

    @property
    def name(self) -> str:  # type: ignore[override]
        raise KeyError("my name")


@pytest.mark.parametrize(("thing", "words"), [(Nameless(), "its name is None"), (Raising(), "KeyError: 'my name'")])
def test_a_name_that_cannot_be_read_is_refused(thing: object, words: str, offer: Offer) -> None:
    with pytest.raises(AttnscopeError, match=f"can't be used: {words}"):
        offer(BACKENDS, thing)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.word)
def test_families_have_the_right_article(family: Registry[Any], offer: Offer) -> None:
    right = {"engine": "an engine", "attention edit": "an attention edit"}.get(family.word, f"a {family.word}")
    with pytest.raises(AttnscopeError, match=f"describes {right};"):
        offer(family, SimpleNamespace())
    assert f": {right} as docs" in str(family.mistake("odd", "part", "fails"))


def test_what_is_raised_when_attnscope_is_called_back_is_not_blamed() -> None:
    def back() -> None:
        with not_blamed():
            raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"), ENGINES.blamed("odd", "run"):
        back()
    with pytest.raises(ValueError, match="ours"), ENGINES.blamed("odd", "run"):  # noqa: PT012
        try:
            back()
        except ValueError as error:
            raise KeyError("theirs") from error
