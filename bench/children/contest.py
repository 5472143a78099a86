"""One contestant: timed alternating with a plain forward pass in the same process, or run once for its peak memory."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.clock import interleave
from bench.contestants import CONTESTANTS
from bench.memory import peak_of
from bench.prompts import read_tokens

WARM_TOKENS = 16  # loads weights and libraries into memory, so that they don't count towards the call


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("time", "peak"))
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--received", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    tokens = read_tokens(arguments.folder / "tokens.json", arguments.tokens)
    run = _prepare(arguments.contestant, arguments.folder)
    run(tokens[:WARM_TOKENS])
    result: dict[str, Any]
    if arguments.mode == "time":
        plain = _prepare("plain", arguments.folder)
        say = partial(print, "   ", flush=True)
        timing = interleave(lambda: plain(tokens), lambda: run(tokens), arguments.rounds, say)
        result = {"timing": asdict(timing)}
    else:
        results: list[Any] = []
        result = {"peak": asdict(peak_of(lambda: results.append(run(tokens))))}
        if arguments.received is not None:
            np.save(arguments.received, results[0])
    arguments.out.write_text(json.dumps(result))


def _prepare(contestant: str, folder: Path) -> Callable[[list[int]], Any]:
    prepare: Callable[[Path], Callable[[list[int]], Any]]
    prepare = importlib.import_module(f"bench.contestants.{contestant}").prepare
    return prepare(folder)


if __name__ == "__main__":
    main()
