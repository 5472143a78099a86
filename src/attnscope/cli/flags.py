"""Library errors name parameters (`layers=`); here they become the flags of the command that was given (`--layers`)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnscope.errors import Parameter

OTHERWISE_NAMED = {"swaps": "--model", "instead": "--model"}  # every other flag is spelled like its parameter


def speller(group: Any, words: Sequence[str]) -> Callable[[Parameter], str]:
    """How the command on the command line spells a parameter; one it has no flag for stays as Python has it."""
    known = flags_of(group, words)

    def spell(parameter: Parameter) -> str:
        flag = flag_name(parameter.name)
        if flag not in known:
            return str(parameter)
        if parameter.value is None or parameter.value is True:
            return flag
        return f"{flag} {shlex.quote(_written(parameter.value))}"

    return spell


def _written(value: object) -> str:
    """A value as the command line takes it: lists as a,b and mappings as a=b."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def flag_name(parameter: str) -> str:
    return OTHERWISE_NAMED.get(parameter, f"--{parameter.replace('_', '-')}")


def flags_of(group: Any, words: Sequence[str]) -> set[str]:
    """The flags of the command that the words begin with; of the only command where there are no verbs."""
    verbs = getattr(group, "commands", None)
    command = group if verbs is None else next((verbs[word] for word in words if word in verbs), None)
    return {flag for option in getattr(command, "params", ()) for flag in option.opts if flag.startswith("--")}
