"""`attnscope models`: what can be measured by name, and which architectures were verified."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """List the built-in models, where each is cached, and the architectures verified."""
    from attnscope.models.builtin import BUILTINS
    from attnscope.models.cache import is_whole, place
    from attnscope.models.package import origin
    from attnscope.models.verified import BY_EAGER, BY_INTERFACE

    rows = [
        {
            "name": model.name,
            "layers": model.layers,
            "heads": model.heads,
            "licence": model.licence,
            "folder": str(place(model.name)),
            "cached": is_whole(place(model.name), origin(model)),
        }
        for model in BUILTINS.values()
    ]
    verified = {"attention interface": BY_INTERFACE, "eager, one layer at a time": BY_EAGER}
    if as_json:
        print(json.dumps({"models": rows, "verified": verified}))  # noqa: T201
        return
    from attnscope.cli.terminal import show_models

    show_models(rows, verified)
