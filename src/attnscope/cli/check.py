"""`attnscope check`: the evidence card of a model."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from attnscope.cli import options


def check(
    model: options.Model,
    tokens: Annotated[int, typer.Option(min=2, help="Length of the longer of the two test prompts.")] = 256,
    as_json: Annotated[bool, typer.Option("--json", help="Print a single JSON object.")] = False,
    adapter: options.Adapter = None,
    revision: options.Revision = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    device_map: options.DeviceMap = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    quiet: options.Quiet = False,
) -> None:
    """Check that a model is measured exactly, and what it costs."""
    import attnscope
    from attnscope.models.narration import silenced

    with silenced(only=quiet):
        lens = attnscope.load(
            model,
            adapter=adapter,
            revision=revision,
            dtype=dtype,
            device=device,
            device_map=device_map,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
        )
    card = lens.check(tokens=tokens)
    if as_json:
        facts = {"short": card.short.as_data(), "few_rows": card.few.as_data(), "long": card.long.as_data()}
        evidence = {
            "model": lens.name,
            "architecture": lens.loaded.architecture,
            **facts,
            "input": vars(lens.input_check),
            "cost": card.cost,
        }
        print(json.dumps(evidence))  # noqa: T201
        return
    from attnscope.cli.terminal import show_card

    show_card(lens, card)
