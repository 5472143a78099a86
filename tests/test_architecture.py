"""The page on the architecture names what exists, and lists the rooms as the import rules have them."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(attnscope(?:\.\w+)+)`", PAGE)))


def layers() -> list[str]:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = [rule for rule in rules if rule["type"] == "layers"]
    listed: list[str] = contract["layers"]
    return listed


def resolved(name: str) -> Any:
    """What a dotted name stands for: the longest part that is a module is imported, the rest are attributes."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[count:]:
            thing = getattr(thing, attribute)
        return thing
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_on_the_page_exists(name: str) -> None:
    assert resolved(name) is not None


def test_a_name_that_does_not_exist_would_be_noticed() -> None:
    for name in ("attnscope.text.nowhere", "attnscope.lens.Lens.nothing"):
        with pytest.raises((AttributeError, ModuleNotFoundError)):
            resolved(name)


def test_the_rooms_are_those_of_the_import_rules_in_the_order_data_flows() -> None:
    _, _, section = PAGE.partition("## The rooms")
    section, _, _ = section.partition("\n## ")
    assert re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE) == layers()[::-1]


def test_the_walk_visits_every_room_that_has_a_part_in_it() -> None:
    _, _, walk = PAGE.partition("## The walk of one prompt")
    visited = {".".join(name.split(".")[:2]) for name in re.findall(r"`(attnscope(?:\.\w+)+)`", walk)}
    assert set(layers()) - visited == {"attnscope.places", "attnscope.registry", "attnscope.spec"}
