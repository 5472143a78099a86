"""Times one pair of bench.pairs, taking turns."""

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
    arguments = parser.parse_args()
    pair = PAIRS[arguments.pair](arguments.tokens)
    timing = interleave(pair.base, pair.arm, arguments.rounds, partial(print, "   ", flush=True))
    result = {"timing": asdict(timing), "against": pair.against}
    arguments.out.write_text(json.dumps(result if pair.tokens is None else result | {"tokens": pair.tokens}))


if __name__ == "__main__":
    main()
