"""A whole study run, compared with the bare model's forward pass over the same tokens."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch

import attnscope
from attnscope.runs import perform as runs
from attnscope.runs.batches import Budget, batches
from attnscope.runs.cells import CellMaker
from attnscope.runs.folder import RunFolder
from attnscope.studies import request_study
from bench.pair import Pair

STUDY = """\
seed: 1
models: [{{label: default, source: smollm2-135m-instruct}}]
prompts: {{set: problems, count: {count}, chat: "{{instruction}}\\n\\n{{question}}"}}
conditions:
  - none
  - {{name: filler, insert: {{repeat: "/"}}, tokens: 55, before: question}}
  - {{name: sentence, insert: {{sentence: random}}, tokens: 120, before: question}}
classes: {{question: "segment:question", digits: "re:[0-9]"}}
measure: {{queries: [last, all]}}
"""


def study_run(prompts: int, *, batched: bool) -> Pair:
    """Prompts of three lengths. The run builds cells and batches, measures, and writes shards and tables; its model is
    loaded before, like the bare model, and the spot check is left out. batched: the bare model gets the run's own
    padded batches; otherwise one prompt at a time."""
    home = Path(tempfile.mkdtemp(prefix="attnscope-study-"))
    file = home / "study.yaml"
    file.write_text(STUDY.format(count=prompts // 3), encoding="utf-8")
    request = request_study(str(file), evidence="quick")
    lens = attnscope.load("smollm2-135m-instruct")
    lens.evidence(request.study.measure.queries, request.study.measure.all_measures)
    cells, _ = CellMaker(request.study, request.prompts, request.study.models[0], lens.tokenization, None).make()
    lengths = [len(cell.tokens) for cell in cells]
    groups = batches(lengths, Budget(2048)) if batched else [[number] for number in range(len(cells))]
    inputs = [_padded([cells[number].ids for number in group]) for group in groups]

    def base() -> None:
        lens.model.set_attn_implementation("sdpa")
        with torch.inference_mode():
            for ids, mask in inputs:
                lens.model.base_model(ids, attention_mask=mask, use_cache=False)

    def arm() -> None:
        shutil.rmtree(home / "run", ignore_errors=True)
        runs.perform(request, RunFolder(home / "run"), load=lambda *_, **__: lens)

    how = "in the run's own padded batches" if batched else "one prompt at a time"
    return Pair(base, arm, f"plain forward, sdpa, {how}", tokens=sum(lengths))


def _padded(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor | None]:
    longest = max(map(len, prompts))
    if min(map(len, prompts)) == longest:
        return torch.tensor(prompts), None
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    return torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts]), mask
