"""A run of any size without a model: random attention over made-up words, in the format of `attnscope run`.

python -m bench.random_run FOLDER [--prompts 500]
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from attnscope.records import Record
from attnscope.runs.cells import Cell, cell_key
from attnscope.runs.folder import RunFolder
from attnscope.runs.integrity import sha256
from attnscope.runs.manifest import Machine, Manifest, ModelFacts, ModelFile, Timings
from attnscope.runs.request import RunRequest, versions
from attnscope.runs.store import MeasuredCell, Store
from attnscope.runs.tables import Finished, ModelAxes, write_tables
from attnscope.study.prompts import Prompt, read_prompts
from attnscope.study.schema import Study
from attnscope.text.alignment import align
from attnscope.text.layout import lay_out
from attnscope.text.query_rules import Group
from attnscope.text.segments import INSERTED, Piece, Text, numbered, segments_of
from attnscope.text.tokens import Token

WORDS = ("one", "head", "looks", "at", "#", "*", "seven", "rows", "of", "a", "grid", ".", "and", "moves", "it", "left")
BATCH = 8
GROUPS = (Group("last"), Group("all"))


def study_content(prompts: int, models: int) -> dict[str, Any]:
    return {
        "title": "A made-up run",
        "question": "How fast is the explorer?",
        "models": [{"label": label, "source": "none"} for label in ("base", "tuned")[:models]],
        "prompts": {
            "items": [{"question": _sentence(np.random.default_rng(number), 100)} for number in range(prompts)],
            "plain": "{question}",
        },
        "conditions": [
            "none",
            {"name": "filler", "insert": {"repeat": "..."}, "before": "question", "tokens": 20, "separator": " "},
        ],
        "classes": {"hash": "#", "star": "*", "marks": "re:[.]", "words": "re:[a-z]+"},
        "measure": {"queries": ["last", "all"]},
        "figures": [
            {"name": "change", "kind": "heatmap", "measure": "hash", "difference": ["none", "filler"]},
            {"name": "mass", "kind": "bars", "layers": [0, 9, 19, 29]},
        ],
    }


def _sentence(chance: np.random.Generator, about: int) -> str:
    return " ".join(chance.choice(WORDS, about + int(chance.integers(-20, 21))))


def make_run(path: Path, prompts: int = 500, layers: int = 30, heads: int = 9, models: int = 2) -> None:
    """Write the run. Every head has the same preferences in all prompts, so that there is something to find."""
    text = yaml.safe_dump(study_content(prompts, models), sort_keys=False)
    study = Study.model_validate(yaml.safe_load(text))
    request = RunRequest(study, text, read_prompts(study, path), command=None)
    folder = RunFolder(path)
    axes = ModelAxes(range(layers), range(heads), study.measure.queries, study.rules)
    preference = np.random.default_rng(1).gamma(1.0, 1.0, (layers, heads, 1, len(WORDS) + 1))
    finished: list[Finished] = []
    with folder.locked():
        store = Store(path)
        folder.write_study(text)
        batch: dict[str, MeasuredCell] = {}
        for number, model in enumerate(study.models):
            for condition in ("none", "filler"):
                for prompt in request.prompts.prompts:
                    cell = _cell(model.label, condition, prompt)
                    key = cell_key({"model": number}, cell)
                    batch[key] = MeasuredCell(_record(cell, axes, preference, number))
                    finished.append((cell, key, axes))
                    if len(batch) == BATCH:
                        store.write(batch)
                        batch = {}
        store.write(batch)
        tables = write_tables(folder, store, finished)
        shards = store.facts([key for _, key, _ in finished])
        manifest = _manifest(request, study, layers, heads, len(finished))
        folder.write_manifest(manifest.model_copy(update={"tables": tables, "shards": shards}))


def _cell(model: str, condition: str, prompt: Prompt) -> Cell:
    base, base_tokens = _text(prompt.texts["question"], 0)
    text, tokens = _text(prompt.texts["question"], 20 if condition == "filler" else 0)
    aligned = align(text, tokens, base, base_tokens)
    segments = tuple(segments_of(tokens, text.spans))
    return Cell(model, condition, prompt, text, tuple(tokens), segments, aligned, GROUPS, {})


def _text(question: str, inserted: int) -> tuple[Text, list[Token]]:
    own = numbered(Piece("question", f"{word} ") for word in question.split())
    pieces = [*[Piece(INSERTED, "... ")] * inserted, *own]
    tokens, at = [], 0
    for place, piece in enumerate(pieces):
        token_id = WORDS.index(piece.text.strip()) if piece.segment == "question" else len(WORDS)
        tokens.append(Token(place, token_id, piece.text, at, at + len(piece.text)))
        at += len(piece.text)
    return lay_out([(None, pieces)], None), tokens


def _record(cell: Cell, axes: ModelAxes, preference: Any, model: int) -> Record:
    chance = np.random.default_rng([cell.prompt.number, model])
    keys = len(cell.tokens)
    weights = preference[..., cell.ids] * chance.gamma(2.0, 1.0, (*preference.shape[:2], 2, keys)) + 0.05 * model
    weights[..., 0] += 20
    seen = np.stack([np.ones(keys), np.arange(keys, 0, -1) / keys])
    weights *= seen
    uniform = np.stack([np.full(keys, 1 / keys), np.cumsum(1 / np.arange(keys, 0, -1))[::-1] / keys])
    arrays = {
        "received": (weights / weights.sum(-1, keepdims=True)).astype(np.float32),
        "view": np.zeros(preference.shape[0], dtype=np.int32),
        "received.uniform": uniform[None, None].astype(np.float32),
        "seen": seen[None, None].astype(np.float32),
    }
    return Record(cell.text.text, cell.tokens, list(axes.layers), list(axes.heads), cell.queries, arrays)


def _manifest(request: RunRequest, study: Study, layers: int, heads: int, cells: int) -> Manifest:
    facts = ModelFacts(
        spec={},
        path="",
        versions=versions(),
        architecture="made up",
        dtype="float32",
        device="cpu",
        files=[ModelFile(path="made-up", sha256="0", bytes=0, modified=0, weights=True)],
        evidence={"way": "nothing", "tokens": 0, "difference": 0.0, "sink_share": 0.0, "masks": {}},
        depth=layers,
        heads_by_layer=dict.fromkeys(range(layers), heads),
        layers=list(range(layers)),
        heads=list(range(heads)),
    )
    return Manifest(
        status="finished",
        key=request.key,
        study=study,
        study_sha256=sha256(request.text.encode()),
        prompts=request.prompts.origin,
        models={spec.label: facts.model_copy(update={"spec": spec.model_dump(mode="json")}) for spec in study.models},
        engine=request.engine,
        command=None,
        cells=cells,
        dropped=[],
        versions=versions(),
        machine=Machine(system=platform.platform(), python=platform.python_version()),
        timings=Timings(seconds=0, tokens=0, cells_measured=cells),
        groups=list(GROUPS),
        tables={},
        shards=[],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.random_run", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompts", type=int, default=500)
    arguments = parser.parse_args()
    make_run(arguments.folder, arguments.prompts)
    sys.exit(0)
