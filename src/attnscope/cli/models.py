"""`attnscope models`: the built-in models, and the verified architectures."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print a single JSON object.")] = False,
) -> None:
    """List the built-in models, where each is cached, and the verified architectures."""
    from attnscope.models.builtin import BUILTINS
    from attnscope.models.cache import is_whole, place
    from attnscope.models.package import origin
    from attnscope.models.verified import BY_EAGER, BY_INTERFACE

    rows = [
        {
            "name": builtin.name,
            "layers": builtin.packed.layers,
            "heads": builtin.packed.heads,
            "licence": builtin.packed.licence,
            "quantization": builtin.packed.quantization,
            "adapter_on": builtin.packed.name if builtin.adapter else None,
            "folder": str(place(builtin.packed.name)),
            "cached": is_whole(place(builtin.packed.name), origin(builtin.packed)),
        }
        for builtin in BUILTINS.values()
    ]
    verified = {"attention interface": BY_INTERFACE, "eager, one layer at a time": BY_EAGER}
    if as_json:
        print(json.dumps({"models": rows, "verified": verified}))  # noqa: T201
        return
    from attnscope.cli.terminal import show_models

    show_models(rows, verified)
