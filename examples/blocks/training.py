"""LoRA training that can be stopped at any time: a step depends only on its number.

Only the worked answers are learned, not the drawings, and the language model's head is applied to their tokens only.
A checkpoint is one safetensors file: the adapter, the optimizer's two moments, the loss and accuracy of every step so
far, and the settings; training resumed from it ends with the same weights as without a stop.
"""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from attnscope.errors import AttnscopeError
from attnscope.models.bases import as_metadata, projections_of
from attnscope.models.cache import let_read
from attnscope.models.load import Loaded

from .puzzles import Example, Stage, batches, encode, stage_puzzles

CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True)
class Settings:
    """Everything that training depends on, apart from the model."""

    stages: tuple[Stage, ...]
    seed: int
    rank: int
    alpha: int
    rate: float
    floor: float
    """The share of the rate that remains at the end."""
    betas: tuple[float, float]
    clip: float
    batch: int
    warmup: int
    adapted: tuple[str, ...]
    placebo: bool = False
    """Whether each puzzle gets the answer of another one: what training then changes is no sign of solving puzzles."""

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)

    def rate_at(self, step: int) -> float:
        """Rises over the first steps, then falls along half a cosine."""
        fall = self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.rate * fall * min(1.0, (step + 1) / self.warmup)


Progress = Callable[[int, float, float], None]
"""Called after each step with how many are done, and the loss and the share answered right in its batch."""


class Training:
    """Trains an adapter; `run` continues from the checkpoint in its folder, if there is one."""

    def __init__(self, loaded: Loaded, settings: Settings, folder: Path) -> None:
        self.loaded, self.settings, self.folder = loaded, settings, folder
        torch.manual_seed(settings.seed)
        lora = LoraConfig(
            r=settings.rank, lora_alpha=settings.alpha, target_modules=list(settings.adapted), task_type="CAUSAL_LM"
        )
        lora.base_model_name_or_path = loaded.name
        self.projections = as_metadata(projections_of(loaded.model))
        self.model = PeftModel(loaded.model, lora)
        self.parameters = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
        self.optimizer = torch.optim.AdamW(self.parameters.values(), betas=settings.betas, weight_decay=0.0)
        self.log = torch.zeros(0, 2)  # loss and share right, one row per step
        if (folder / CHECKPOINT).is_file():
            self._resume(folder / CHECKPOINT)

    @property
    def done(self) -> int:
        return len(self.log)

    def run(
        self,
        until: int | None = None,
        *,
        every: int = 50,
        keep: int | None = None,
        progress: Progress = lambda *_: None,
    ) -> None:
        """Train to the last step, or to step `until`; save a checkpoint every `every` steps and at the end.

        keep: also keep the adapter of every `keep`-th step and of the last one, in folders such as `checkpoint-40`.
        """
        end = min(until or self.settings.steps, self.settings.steps)
        for number, batch in islice(enumerate(self.batches()), self.done, end):
            loss, right = self.step(number, batch)
            self.log = torch.cat([self.log, torch.tensor([[loss, right]])])
            if self.done % every == 0 or self.done == end:
                self._save(self.folder / CHECKPOINT)
            if keep is not None and (self.done % keep == 0 or self.done == end):
                self._keep(self.folder / f"checkpoint-{self.done}")
            progress(self.done, loss, right)

    def save_adapter(self, folder: Path) -> None:
        """The adapter in half precision, as PEFT reads it, with checksums of the weights it was trained on."""
        folder.mkdir(parents=True, exist_ok=True)
        config = copy.copy(self.model.peft_config["default"])
        config.inference_mode = True
        config.save_pretrained(str(folder))
        tensors = {name: each.half().contiguous() for name, each in self._state().items()}
        weights = folder / "adapter_model.safetensors"
        save_file(tensors, weights, metadata={"format": "pt", **self.projections})
        let_read(weights)

    def _keep(self, folder: Path) -> None:
        partial = folder.with_suffix(".part")
        self.save_adapter(partial)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)

    def _state(self) -> dict[str, torch.Tensor]:
        return dict(get_peft_model_state_dict(self.model, save_embedding_layers=False))  # else peft asks the Hub

    @property
    def _metadata(self) -> dict[str, str]:
        return {"settings": json.dumps(asdict(self.settings)), **self.projections}

    def batches(self) -> Iterator[list[Example]]:
        """What each step learns from, in order."""
        settings = self.settings
        return chain.from_iterable(
            batches(self._examples(stage, number), settings.batch, stage.steps, settings.seed + number)
            for number, stage in enumerate(settings.stages)
        )

    def _examples(self, stage: Stage, number: int) -> list[Example]:
        puzzles = stage_puzzles(stage, self.settings.seed + number)
        if self.settings.placebo:
            answers = [puzzle["worked"] for puzzle in puzzles]
            Random(f"{self.settings.seed + number} answers").shuffle(answers)  # noqa: S311
            puzzles = [{**puzzle, "worked": answer} for puzzle, answer in zip(puzzles, answers, strict=True)]
        return [encode(puzzle, self.loaded.tokenization) for puzzle in puzzles]

    def step(self, number: int, batch: list[Example]) -> tuple[float, float]:
        """Learn from a batch, at the rate of this step; the loss, and the share answered right."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate_at(number)
        logits, wanted, row = answer_logits(self.model.get_base_model(), batch)
        loss = torch.nn.functional.cross_entropy(logits, wanted)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        wrong = set(row[logits.argmax(-1) != wanted].tolist())
        return float(loss.detach()), 1 - len(wrong) / len(batch)

    def _save(self, path: Path) -> None:
        tensors = {f"weight {name}": each.detach() for name, each in self.parameters.items()}
        for name, each in self.parameters.items():
            state = self.optimizer.state[each]
            tensors |= {f"first {name}": state["exp_avg"], f"second {name}": state["exp_avg_sq"]}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        save_file(tensors | {"log": self.log}, partial, metadata=self._metadata)
        let_read(partial)
        os.replace(partial, path)

    def _resume(self, path: Path) -> None:
        with _opened(path) as file:
            if file.metadata() != self._metadata:
                raise AttnscopeError(
                    "this folder has a checkpoint with other settings or another model",
                    where=str(path),
                    allowed="a checkpoint with the same settings and model",
                    todo="remove it, or choose another folder with --out",
                )
            self.log = file.get_tensor("log")
            for name, each in self.parameters.items():
                each.data.copy_(file.get_tensor(f"weight {name}"))
                self.optimizer.state[each] = {
                    "step": torch.tensor(float(self.done)),
                    "exp_avg": file.get_tensor(f"first {name}"),
                    "exp_avg_sq": file.get_tensor(f"second {name}"),
                }


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, "pt")
    except SafetensorError as error:
        raise AttnscopeError(
            f"the checkpoint can't be read: {error}",
            where=str(path),
            allowed="a file that the training wrote",
            todo="remove it; training then starts again",
        ) from error


def answer_logits(model: Any, batch: list[Example]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each token of each answer: the logits that predict it, the token itself, and the example it belongs to."""
    longest = max(example.length for example in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)  # padded on the right, which no token attends to
    rows: list[int] = []
    columns: list[int] = []
    wanted: list[int] = []
    for row, example in enumerate(batch):
        ids[row, : example.length] = torch.tensor(example.prompt + example.answer)
        rows += [row] * len(example.answer)
        columns += range(len(example.prompt) - 1, example.length - 1)
        wanted += example.answer
    hidden = model.model(ids, use_cache=False).last_hidden_state
    return model.lm_head(hidden[rows, columns]), torch.tensor(wanted), torch.tensor(rows)
