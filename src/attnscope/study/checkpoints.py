"""Checkpoints of a training: an entry of `models` that stands for several models, one per checkpoint.

They are found while the study is read, so that everything after it, the manifest too, has each model as if it had been
written out: its label (such as `blocks step 200`), where it comes from, its step and the family it belongs to.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnscope.study.model_folder import TRAINER_STATE, has_tokenizer, has_weights, is_adapter, is_model
from attnscope.study.schema import CheckpointsSpec

_NAMED = re.compile(r"(?:step|checkpoint|ckpt|iter)s?[-_ ]?(\d+)", re.IGNORECASE)
_TODO = "write the steps yourself, such as {200: NAME, 400: NAME}"
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


class CheckpointsError(Exception):
    """A mistake in an entry with checkpoints. key: of the entry."""

    def __init__(self, key: str, what: str, allowed: str, todo: str = "fix the study file") -> None:
        super().__init__(what)
        self.key, self.what, self.allowed, self.todo = key, what, allowed, todo


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint: a folder or a revision, and how many steps of training it has seen."""

    name: str
    step: int


def is_entry(entry: object) -> bool:
    """Whether an entry of `models`, as written, stands for several checkpoints."""
    return isinstance(entry, Mapping) and not {"checkpoints", "revisions"}.isdisjoint(entry)


def models_of(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The models that an entry stands for, in the order of their steps, each as it would be written out.

    Raises a ValidationError for what is wrong with its keys, a CheckpointsError for what is wrong with the checkpoints.
    """
    spec = CheckpointsSpec.model_validate(entry)
    checkpoints = sorted(_checkpoints(spec), key=lambda each: each.step)
    _refuse_same_steps(spec, checkpoints)
    if spec.revisions is not None:
        models = [{"source": spec.source, "revision": each.name, "step": each.step} for each in checkpoints]
    else:
        models = _folders(spec, checkpoints)
    shared = spec.model_dump(include={"dtype", "device", "device_map", "colour"}, exclude_none=True)
    return [{"label": f"{spec.label} step {each['step']}", **each, "family": spec.label, **shared} for each in models]


def _checkpoints(spec: CheckpointsSpec) -> Iterator[Checkpoint]:
    if isinstance(spec.revisions, dict):
        yield from (Checkpoint(name, step) for step, name in spec.revisions.items())
    elif spec.revisions is not None:
        yield from (Checkpoint(name, _step_in(name, "revisions")) for name in spec.revisions)
    elif isinstance(spec.checkpoints, dict):
        yield from (Checkpoint(name, step) for step, name in spec.checkpoints.items())
    else:
        yield from (Checkpoint(name, _step_of(Path(name).expanduser())) for name in _named(spec.checkpoints))


def _named(given: str | Sequence[str] | None) -> list[str]:
    """The folders that a pattern matches, or those of a list."""
    if not isinstance(given, str):
        return list(given or ())
    folders = [path for path in sorted(glob.glob(str(Path(given).expanduser()))) if Path(path).is_dir()]
    if not folders:
        raise CheckpointsError(
            "checkpoints",
            f"no folder matches '{given}'",
            f"a pattern such as out/checkpoint-*, from where you are ({Path.cwd()})",
            "check the pattern, or train first",
        )
    return folders


def _step_of(folder: Path) -> int:
    """As the Trainer wrote it beside the weights, else by the folder's name."""
    try:
        step = json.loads((folder / TRAINER_STATE).read_text(encoding="utf-8"))["global_step"]
        if isinstance(step, int) and step >= 0:
            return step
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return _step_in(folder.name, "checkpoints")


def _step_in(name: str, key: str) -> int:
    """The number after a word such as step, or the only number in a name."""
    named, numbers = _NAMED.findall(name), re.findall(r"\d+", name)
    candidates = named if len(named) == 1 else numbers
    is_commit = key == "revisions" and _COMMIT.fullmatch(name) is not None
    if len(candidates) == 1 and not is_commit:
        return int(candidates[0])
    found = f"{len(numbers)} numbers" if len(numbers) > 1 and not is_commit else "no step"
    state = f", or a {TRAINER_STATE} in the folder" if key == "checkpoints" else ""
    raise CheckpointsError(
        key, f"the name '{name}' has {found} in it", f"a name such as checkpoint-200 or step200{state}", _TODO
    )


def _refuse_same_steps(spec: CheckpointsSpec, checkpoints: Sequence[Checkpoint]) -> None:
    key = "checkpoints" if spec.revisions is None else "revisions"
    if not checkpoints:
        raise CheckpointsError(key, f"there are no {key}", "at least one")
    for one, two in pairwise(checkpoints):
        if one.step == two.step:
            what = f"'{one.name}' and '{two.name}' are both of step {one.step}"
            raise CheckpointsError(key, what, "one checkpoint per step", "leave one out")


def _folders(spec: CheckpointsSpec, checkpoints: Sequence[Checkpoint]) -> list[dict[str, Any]]:
    """The models of folders; `source` is what training began with: the base of adapters, and step 0."""
    adapters = [_holds_adapter(Path(each.name).expanduser()) for each in checkpoints]
    if len(set(adapters)) > 1:
        one, other = checkpoints[adapters.index(True)].name, checkpoints[adapters.index(False)].name
        what = f"'{one}' is an adapter and '{other}' a whole model"
        raise CheckpointsError("checkpoints", what, "checkpoints of one training", "use an entry for each")
    models = []
    if spec.source is not None and checkpoints[0].step > 0:
        models.append({"source": spec.source, "step": 0})
    for each, adapter in zip(checkpoints, adapters, strict=True):
        model: dict[str, Any] = {"source": each.name, "step": each.step}
        if adapter and spec.source is not None:
            model = {"source": spec.source, "adapter": each.name, "step": each.step}
        elif not adapter and spec.source is not None and not has_tokenizer(Path(each.name).expanduser()):
            model["tokenizer"] = spec.source  # the Trainer saves one only if it was given one
        models.append(model)
    return models


def _holds_adapter(folder: Path) -> bool:
    """Whether it is an adapter or a whole model; refused if it is neither, or not written to its end."""
    if not folder.is_dir():
        raise CheckpointsError("checkpoints", f"there is no folder '{folder}'", "folders, from where you are")
    if not is_adapter(folder) and not is_model(folder):
        what = f"'{folder}' is no checkpoint: it has neither a config.json nor an adapter_config.json"
        raise CheckpointsError("checkpoints", what, "folders that hold a model or an adapter", "leave it out")
    if not has_weights(folder):
        raise CheckpointsError(
            "checkpoints",
            f"'{folder}' has no weights, as if it were half-written",
            "checkpoints that are complete",
            "wait until it is written, or leave it out",
        )
    return is_adapter(folder)
