"""One contestant: timed in turn with a plain forward of its own process, or run once for its peak memory."""

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

WARM_TOKENS = 16  # brings weights and libraries into memory, so that they don't count as the call's own


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("time", "peak"))
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--received", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    tokens = read_tokens(asked.folder / "tokens.json", asked.tokens)
    run = _prepare(asked.contestant, asked.folder)
    run(tokens[:WARM_TOKENS])
    found: dict[str, Any]
    if asked.mode == "time":
        plain = _prepare("plain", asked.folder)
        say = partial(print, "   ", flush=True)
        timing = interleave(lambda: plain(tokens), lambda: run(tokens), asked.rounds, say)
        found = {"timing": asdict(timing)}
    else:
        results: list[Any] = []
        found = {"peak": asdict(peak_of(lambda: results.append(run(tokens))))}
        if asked.received is not None:
            np.save(asked.received, results[0])
    asked.out.write_text(json.dumps(found))


def _prepare(contestant: str, folder: Path) -> Callable[[list[int]], Any]:
    prepare: Callable[[Path], Callable[[list[int]], Any]]
    prepare = importlib.import_module(f"bench.contestants.{contestant}").prepare
    return prepare(folder)


if __name__ == "__main__":
    main()
