"""Families of things that can be added: measures, edits, class rules, prompt sets, figures, backends, engines.

A family is one `Registry`. Its members are the objects that the modules of one package define, and whatever installed
packages offer under the family's entry points. Being defined is being registered: there is no second list.

Nothing is imported until a family is first asked for its members, so that `--help` stays quick and a broken plugin
stops only what uses it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from attnscope.errors import AttnscopeError, PluginError, Words, near

T = TypeVar("T")

EXPLAINED_BY = ("meaning", "about")  # where members say what they are, in the families that do

_BUILT_IN_ONLY: ContextVar[bool] = ContextVar("built_in_only", default=False)
_OWN = "_attnscope_own"


@contextmanager
def built_in_only() -> Iterator[None]:
    """Inside, every family has its built-in members alone: for the reference pages, which no plugin may change."""
    before = _BUILT_IN_ONLY.set(True)
    try:
        yield
    finally:
        _BUILT_IN_ONLY.reset(before)


@contextmanager
def not_blamed() -> Iterator[None]:
    """Inside, a member's code has called attnscope back: what is raised here is not the member's mistake."""
    try:
        yield
    except BaseException as error:
        setattr(error, _OWN, True)  # on the error itself, so that it is known after a way through another process too
        raise


def with_article(word: str) -> str:
    return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}"


class Registry(Generic[T]):
    """One family, by name.

    word: what a user calls a member. package: whose modules define the built-in ones. group: the entry points'
    name. is_member: whether something a module defines is a member. named_by: the attribute with a member's name.
    """

    def __init__(
        self,
        word: str,
        *,
        package: str,
        group: str,
        is_member: Callable[[Any], bool],
        named_by: str = "name",
    ) -> None:
        self.word, self.package, self.group = word, package, group
        self._is_member, self._named_by = is_member, named_by
        self._origins: dict[str, str] = {}

    @property
    def members(self) -> dict[str, T]:
        """Every member, the built-in ones first."""
        return self.built_in if _BUILT_IN_ONLY.get() else self._every

    @cached_property
    def built_in(self) -> dict[str, T]:
        """The members that come with attnscope, whatever else is installed."""
        return self._by_name(self._defined())

    @cached_property
    def _every(self) -> dict[str, T]:
        return self._by_name([*self._defined(), *self._installed()])

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of every entry point of an installed package: the package, its version and the checksum of its code.

        What was computed with a package's members is out of date once its fingerprint changes. Nothing is imported.
        """
        return fingerprints(self.group)

    def find(self, name: str, where: Words) -> T:
        """The member of this name; refused with the nearest names if there is none."""
        if name not in self.members:
            raise AttnscopeError(
                f"unknown {self.word} '{name}'", where=where, allowed=near(name, self.members), todo="use one of these"
            )
        return self.members[name]

    @contextmanager
    def blamed(
        self, name: str, part: str, excused: Callable[[BaseException], bool] = lambda error: False
    ) -> Iterator[None]:
        """Inside, a member's own code runs: whatever it raises is reported as the member's mistake, in one line.

        part: of the member, as in "claims". excused: errors that are not its fault. The mistakes of built-in members
        are bugs of attnscope and keep their traceback; so are errors out of `not_blamed`, however wrapped.
        """
        try:
            yield
        except (AttnscopeError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a plugin's sys.exit() too
            own = _out_of_attnscope(error)
            if own is not None and own is not error:
                raise own from own.__cause__
            if name in self.built_in or own is not None or excused(error):
                raise
            raise self.mistake(name, part, f"fails with {_shown(error)}") from error

    def mistake(self, name: str, part: str, what: str, allowed: str = "") -> PluginError:
        """The error for a member that does what it must not. what: as in "returns None"; allowed: instead of that."""
        package = f", package {self._origins[name]}" if name in self._origins else ""
        return PluginError(
            f"the {self.word} '{name}' {what}",
            where=f"its {part}{package}",
            allowed=allowed or f"{with_article(self.word)} as docs/extending.md describes it",
            todo=f"fix the {self.word}, or leave it out",
        )

    def _by_name(self, members: Sequence[tuple[T, str]]) -> dict[str, T]:
        by_name: dict[str, T] = {}
        origins = self._origins
        for member, origin in members:
            name = getattr(member, self._named_by)
            if name in by_name and by_name[name] is not member:
                raise AttnscopeError(
                    f"two packages define the {self.word} '{name}'",
                    where=f"{origins[name]} and {origin}",
                    allowed="each name once",
                    todo="uninstall one of them, or rename its member",
                )
            by_name[name], origins[name] = member, origin
        return by_name

    def _defined(self) -> list[tuple[T, str]]:
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
        return [(self._loaded(each), _origin(each)) for each in _entries(self.group)]

    def _loaded(self, entry: EntryPoint) -> T:
        try:
            member: T = entry.load()
            problem = self._problem(member)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a module that calls sys.exit() too
            raise self._unusable(entry, _shown(error)) from error
        if problem is not None:
            raise self._unusable(entry, problem)
        return member

    def _problem(self, member: Any) -> str | None:
        """Why what an entry point loads can't be a member."""
        if not self._is_member(member):
            kind = f"the class {member.__name__}" if isinstance(member, type) else with_article(type(member).__name__)
            return f"it is {kind}"
        for part in (self._named_by, *(part for part in EXPLAINED_BY if hasattr(member, part))):
            text = getattr(member, part, None)
            if not isinstance(text, str) or not text.strip():
                return f"its {part} is {text!r}, not a text"
        return None

    def _unusable(self, entry: EntryPoint, why: str) -> AttnscopeError:
        return AttnscopeError(
            f"the {self.word} '{entry.name}' of an installed package can't be used: {why}",
            where=f"{_origin(entry)}, entry point {self.group}: {entry.value}",
            allowed=f"an object as docs/extending.md describes {with_article(self.word)}",
            todo="fix the package or uninstall it",
        )


@cache
def fingerprints(group: str) -> dict[str, str]:
    """Of every entry point of a group: the package, its version and the checksum of its code."""
    return {each.name: _fingerprint(each) for each in _entries(group)}


def _entries(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group))


def _out_of_attnscope(error: BaseException) -> BaseException | None:
    """The error of attnscope's own that this one is, or was raised from."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        if hasattr(each, _OWN):
            return each
        seen.append(each)
        each = each.__cause__ or each.__context__
    return None


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _origin(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _fingerprint(entry: EntryPoint) -> str:
    """The code too, not the version alone: whoever writes a plugin changes one without the other."""
    version = entry.dist.version if entry.dist is not None else "of unknown version"
    digest = hashlib.sha256()
    spec = importlib.util.find_spec(entry.module.partition(".")[0])
    places = [] if spec is None else spec.submodule_search_locations or [spec.origin or ""]
    for root in map(Path, places):
        for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    return f"{_origin(entry)} {version}, code {digest.hexdigest()[:16]}"
