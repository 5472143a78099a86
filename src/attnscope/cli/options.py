"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnscope.cli import completion
from attnscope.errors import AttnscopeError

DEFAULT_MODEL = "smollm2-135m-instruct"

Adapter = Annotated[
    str | None, typer.Option(help="A PEFT adapter for the model: a folder, a Hub id or a built-in name.")
]
Revision = Annotated[str | None, typer.Option(help="Revision of a Hub model.")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; by default float32 on a CPU.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps; by default the best available.")]
DeviceMap = Annotated[str | None, typer.Option(help="Spread a large model over devices: auto, balanced, ...")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model. Only for models you trust.")
]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Load pickled weights, which can run code. Only for files you trust.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the result (or the path of what was written) and errors.")
]
Evidence = Annotated[
    str,
    typer.Option(
        help="full: compare each model with eager attention before the first reading (proof), and measure some prompts "
        "again (spot check); quick: proof only; none: neither, and all results say that they are unproven.",
        autocompletion=completion.levels,
    ),
]
RunFolder = Annotated[Path, typer.Argument(help="A run's folder.", autocompletion=completion.runs)]
Model = Annotated[
    str,
    typer.Argument(help="A built-in name, org/name, a folder or a .gguf file.", autocompletion=completion.models),
]


def numbers(text: str | None, option: str) -> list[int] | None:
    """`0,16,20`, `0-3`, `0-3,16` -> numbers; `all` or nothing -> None."""
    if text is None or text.strip() == "all":
        return None
    chosen: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            chosen.extend(range(int(first), int(last) + 1) if dash else [int(first)])
        except ValueError:
            raise AttnscopeError(
                f"can't read '{part.strip()}'",
                where=option,
                allowed="numbers from 0 such as 0,16,20 or 0-3, or all",
                todo="list the numbers, or leave the option out for all",
            ) from None
    if not chosen:
        raise AttnscopeError(
            f"'{text}' names nothing",
            where=option,
            allowed="numbers from 0 such as 0,16,20 or 0-3, or all",
            todo="list the numbers, or leave the option out for all",
        )
    return chosen
