"""Saves the default model and a long prompt where contestants without attnscope can read them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import attnscope
from bench.pairs import MODEL
from bench.prompts import text_tokens


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    lens = attnscope.load(MODEL)
    lens.model.save_pretrained(arguments.folder)
    lens.tokenizer.save_pretrained(arguments.folder)
    tokens = text_tokens(lens.tokenizer.encode, arguments.tokens)
    (arguments.folder / "tokens.json").write_text(json.dumps(tokens))
    arguments.out.write_text(json.dumps({"tokens": len(tokens)}))


if __name__ == "__main__":
    main()
