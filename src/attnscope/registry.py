"""Families of things that can be added: measures, edits, class rules, prompt sets, figures, backends, engines.

A family is one `Registry`. Its members are the objects that the modules of one package define, and whatever installed
packages offer under the family's entry points. Being defined is being registered: there is no second list.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from attnscope.errors import AttnscopeError, near

T = TypeVar("T")


class Registry(Generic[T]):
    """One family, by name.

    word: what a user calls a member. package: whose modules define the built-in ones. group: the entry points'
    name. is_member: tells a member from the other things a module defines. name_of: a member's name.
    """

    def __init__(
        self,
        word: str,
        *,
        package: str,
        group: str,
        is_member: Callable[[Any], bool],
        name_of: Callable[[T], str] = lambda member: str(member.name),  # type: ignore[attr-defined]
    ) -> None:
        self.word, self.package, self.group = word, package, group
        self._is_member, self._name_of = is_member, name_of

    @cached_property
    def members(self) -> dict[str, T]:
        """Every member, the built-in ones first."""
        found: dict[str, T] = {}
        origins: dict[str, str] = {}
        for member, origin in [*self._built_in(), *self._installed()]:
            name = self._name_of(member)
            if name in found and found[name] is not member:
                raise AttnscopeError(
                    f"two packages define the {self.word} '{name}'",
                    where=f"{origins[name]} and {origin}",
                    allowed="each name once",
                    todo="uninstall one of them, or rename its member",
                )
            found[name], origins[name] = member, origin
        return found

    def find(self, name: str, where: str) -> T:
        """The member of this name; refused with the nearest names if there is none."""
        if name not in self.members:
            raise AttnscopeError(
                f"unknown {self.word} '{name}'", where=where, allowed=near(name, self.members), todo="use one of these"
            )
        return self.members[name]

    def _built_in(self) -> list[tuple[T, str]]:
        package = importlib.import_module(self.package)
        modules = [
            importlib.import_module(f"{self.package}.{each.name}") for each in pkgutil.iter_modules(package.__path__)
        ]
        members: dict[int, tuple[T, str]] = {}
        for module in modules:
            for thing in vars(module).values():
                if self._is_member(thing):
                    members.setdefault(id(thing), (thing, "attnscope"))
        return list(members.values())

    def _installed(self) -> list[tuple[T, str]]:
        return [(self._loaded(each), _origin(each)) for each in sorted(entry_points(group=self.group))]

    def _loaded(self, entry: EntryPoint) -> T:
        try:
            member: T = entry.load()
        except Exception as error:
            raise self._unusable(entry, f"{type(error).__name__}: {error}") from error
        if not self._is_member(member):
            raise self._unusable(entry, f"it is a {type(member).__name__}")
        return member

    def _unusable(self, entry: EntryPoint, why: str) -> AttnscopeError:
        return AttnscopeError(
            f"the {self.word} '{entry.name}' of an installed package can't be used: {why}",
            where=f"{_origin(entry)}, entry point {self.group}: {entry.value}",
            allowed=f"an object as docs/extending.md describes a {self.word}",
            todo="fix the package or uninstall it",
        )


def _origin(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
