"""Times one pair of bench.pairs in turn."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.clock import interleave
from bench.pairs import PAIRS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pair", choices=PAIRS)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    pair = PAIRS[asked.pair](asked.tokens)
    timing = interleave(pair.base, pair.arm, asked.rounds, partial(print, "   ", flush=True))
    told = {"timing": asdict(timing), "against": pair.against}
    asked.out.write_text(json.dumps(told if pair.tokens is None else told | {"tokens": pair.tokens}))


if __name__ == "__main__":
    main()
