"""What can be compared in a run.

Conditions are compared with the base prompt, controls with the condition they control for, a control's second draw (its
placebo) with the control, models with the first one. Of a training's checkpoints, the last is compared with the first;
what happens between them is a trajectory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnscope.analysis.matching import weights_of
from attnscope.analysis.placebo import placebo_of
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, base_condition

Kind = Literal["condition", "control", "placebo", "model", "run"]


@dataclass(frozen=True)
class Comparison:
    """Side two minus side one.

    paired: prompts with the same number are the same prompt. differs_in: what two runs differ in.
    """

    kind: Kind
    one: Side
    two: Side
    paired: bool = True
    differs_in: str = ""

    @property
    def name(self) -> str:
        """For example 'filler minus none, SmolLM2-135M' or 'tuned minus base, none'."""
        one, two = self.one, self.two
        if self.kind == "run":
            names = zip((two, one), reversed(self.sides), strict=True)
            return " minus ".join(f"{side.model}, {side.condition} ({name})" for side, name in names)
        if self.kind == "model":
            return f"{two.model} minus {one.model}, {one.condition}"
        return f"{two.condition} minus {one.condition}, {one.model}"

    @property
    def prompts(self) -> int:
        """How many prompts can be compared: those that both sides have, or the size of the smaller set."""
        return len(self.prompts_of[0] & self.prompts_of[1]) if self.paired else min(map(len, self.prompts_of))

    @property
    def prompts_of(self) -> tuple[set[int], set[int]]:
        """The prompt numbers of both sides."""
        one, two = (side.run.prompts(side.model, side.condition) for side in (self.one, self.two))
        return one, two

    @property
    def inserts(self) -> bool:
        """Whether at least one side inserts something."""
        return self.one.inserts or self.two.inserts

    @property
    def same_base(self) -> bool:
        """Whether both sides edit the same prompts of the same model, so that a change can be split into parts."""
        return self.kind != "model" and self.paired and weights_of(self.one) == weights_of(self.two)

    @property
    def sides(self) -> tuple[str, str]:
        """Short names that distinguish the two sides."""
        one, two = self.one, self.two
        if self.kind == "run":
            return _shortest_distinct(one.run.path, two.run.path)
        return (one.model, two.model) if self.kind == "model" else (one.condition, two.condition)


def _shortest_distinct(one: Path, two: Path) -> tuple[str, str]:
    """The shortest ends of two paths that differ."""
    parts = [path.resolve().parts for path in (one, two)]
    for count in range(1, 1 + max(map(len, parts))):
        first, second = ("/".join(each[-count:]) for each in parts)
        if first != second:
            return first, second
    return f"{one}", f"{two} again"


def comparisons(run: Run) -> list[Comparison]:
    """All comparisons the study implies, in its order, except between sides without a common prompt."""
    return [each for each in (*_of_conditions(run), *_of_models(run)) if each.prompts]


def _of_conditions(run: Run) -> Iterator[Comparison]:
    base = base_condition(run)
    specs = {name: run.study.condition(name) for name in run.conditions}
    edits = [name for name, spec in specs.items() if not spec.is_base and spec.redraws is None]
    placebos = {name: spec.redraws for name, spec in specs.items() if spec.redraws in edits}
    for model in run.compared_models:
        if base is not None:
            yield from (Comparison("condition", Side(run, model, base), Side(run, model, name)) for name in edits)
        for name in edits:
            for controlled in _controlled(run, name):
                if controlled in edits:
                    yield Comparison("control", Side(run, model, name), Side(run, model, controlled))
        for name, redrawn in placebos.items():
            yield Comparison("placebo", Side(run, model, redrawn), Side(run, model, name))


def _controlled(run: Run, name: str) -> list[str]:
    """The conditions whose length it has: those it matches, those that these match, and so on."""
    found: list[str] = []
    waiting = list(run.study.condition(name).matched)
    while waiting:
        found.append(waiting.pop(0))
        waiting += [each for each in run.study.condition(found[-1]).matched if each not in found]
    return found


def _of_models(run: Run) -> Iterator[Comparison]:
    trained = {labels[-1]: labels[0] for labels in run.families.values() if len(labels) > 1}
    for model in run.compared_models:
        other = trained.get(model, run.models[0])
        if model not in trained and _is_start(run, model) and _weights(run, model) == _weights(run, other):
            continue  # two trainings that began with the same model
        names = [name for name in run.conditions if run.study.condition(name).redraws is None]
        if model != other:
            yield from (Comparison("model", Side(run, other, name), Side(run, model, name)) for name in names)


def _is_start(run: Run, model: str) -> bool:
    return any(labels[0] == model for labels in run.families.values())


def _weights(run: Run, model: str) -> set[str]:
    return run.manifest.models[model].weights


def placebo_for(comparison: Comparison) -> Comparison | None:
    """The placebo to read a comparison of conditions against: a random side, and its own second draw."""
    if comparison.kind not in ("condition", "control"):
        return None
    run, model = comparison.one.run, comparison.one.model
    for name in (comparison.two.condition, comparison.one.condition):
        again = placebo_of(run, name)
        if again is not None:
            made = Comparison("placebo", Side(run, model, name), Side(run, model, again))
            return made if made.prompts else None
    return None
