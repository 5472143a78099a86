"""The second stage of a run: makes each model's trials from what was measured, and has an engine score them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.edits.attention import ATTENTION_EDITS
from attnscope.edits.attention.hide import Hide
from attnscope.errors import AttnscopeError, StoppingError
from attnscope.lens import Lens
from attnscope.models.load import Description
from attnscope.records import RECEIVED, Record
from attnscope.runs.cells import Cell
from attnscope.runs.engines import Batch
from attnscope.runs.guard import Guard, wrong_trial
from attnscope.runs.manifest import Dropped, ModelFacts
from attnscope.runs.plan import PlannedModel
from attnscope.runs.request import SCORING, RunRequest
from attnscope.runs.scoring import TrialScorer
from attnscope.runs.sources import Borrowing, Sources
from attnscope.runs.store import Store
from attnscope.runs.tables import Finished
from attnscope.runs.trials import Answers, Received, Trial, TrialMaker, trial_key
from attnscope.runs.variants import HeadMeans, Variant, variants_of
from attnscope.study.interventions import InterventionSpec
from attnscope.study.schema import Study

TOGETHER, MOST_TOKENS = 32, 200_000  # trials and tokens of a shard, at most

NO_OUTCOME = "no outcome: "

RankedHeads = dict[str, dict[int, list[int]]]
"""By intervention, the heads by layer that it changes, where they were chosen by rank."""


@dataclass(frozen=True)
class Scoring:
    """The trials of one model: those that were scored, and those that can't be."""

    trials: list[tuple[Trial, str]]
    dropped: list[Dropped]
    ranked: RankedHeads
    measured: int


def score_trials(
    request: RunRequest,
    plan: PlannedModel,
    facts: ModelFacts,
    finished: Sequence[Finished],
    store: Store,
    load: Callable[[], Lens],
    means: HeadMeans,
    begin: Callable[[int], Callable[[int], None]],
) -> Scoring:
    """Score the trials of one model.

    finished: its cells, with their numbers. means: what heads are ranked by. begin: called with the number of tokens
    that have to be computed; what it gives is called with those that are done.
    """
    study = request.study
    variants = variants_of(study, plan.spec.label, facts.heads_by_layer, facts.depth, means)
    sources = Sources([cell for cell, _, _ in finished if cell.model == plan.spec.label])
    trials, dropped = _trials(request, plan, facts, finished, store, variants, sources)
    if trials:
        _refuse_without_prompts(variants, trials, study)
    shared = _key_facts(facts)
    keyed = [(trial, trial_key(shared, trial)) for trial in trials]
    batches = _batches(keyed, store)
    no_room: dict[str, str] = {}
    if batches:
        heard = begin(sum(trial.size for batch in batches for trial, _ in batch))
        guard = Guard(request.engine, batches, store, wrong=wrong_trial, heard=heard)
        needed = sources.needed(
            edit for trial in trials for variants in trial.edits for each in variants for edit in each
        )
        no_room = guard.run(TrialScorer(load, Borrowing(needed)))
    scored = []
    for trial, key in keyed:
        reason = no_room.get(key) or store.refusal(key)
        if reason is None:
            scored.append((trial, key))
        else:
            dropped.append(_dropped(trial.cell.model, trial.cell.condition, trial.cell.prompt.number, reason))
    return Scoring(scored, dropped, _ranked(variants), sum(len(batch) for batch in batches))


def refuse_impossible(study: Study, label: str, description: Description, cells: Sequence[Cell], chat: bool) -> None:
    """Refuse interventions that can't be made in a model or its prompts, as far as shows before anything is measured.

    Only later is it known which heads are chosen by rank, and what a model's own answer is. chat: prompts are chats.
    """
    variants = _expected(study, label, description)
    answer = study.prompts.answer
    if not variants or (answer is not None and answer.generate is not None):
        return
    known = [variant for variant in variants if variant.ranks is None]
    first = {(variant.intervention, variant.token_class): variant for variant in reversed(known)}
    answers = Answers(study, description.tokenization, description.facts.context, chat=chat)
    maker = TrialMaker(study, _heads_of(description), list(first.values()), Sources(cells), answers)
    trials, dropped = _made(study, description, [(cell, partial(_nothing, len(cell.tokens))) for cell in cells], maker)
    if not trials and dropped:
        raise AttnscopeError(
            f"no prompt has an outcome: {dropped[0].reason.removeprefix(NO_OUTCOME)}",
            where="outcome",
            allowed="prompts that have the answer",
            todo="fix the prompts or the outcome",
        )
    if trials:
        _refuse_without_prompts(known, trials, study)


def tokens_to_score(study: Study, label: str, description: Description, cells: Sequence[Cell]) -> float:
    """How many tokens the interventions take, about: a variant begins at the first layer that it changes."""
    if study.outcome is None:
        return 0.0
    layers, heads = description.facts.layers, _heads_of(description)
    firsts = [
        [min(edit.named(sorted(heads)), default=0) for edit in each.edits]
        for each in _expected(study, label, description)
    ]
    forwards = 1 + sum(1 - min(first, default=0) / layers for first in firsts)
    conditions = study.outcome.conditions or [spec.name for spec in study.conditions]
    choices = 1 + (len(study.outcome.choices) if isinstance(study.outcome.choices, list) else 0)
    return forwards * choices * sum(len(cell.tokens) for cell in cells if cell.condition in conditions)


def _heads_of(description: Description) -> dict[int, int]:
    return dict.fromkeys(description.facts.softmax_layers, description.facts.heads)


def _expected(study: Study, label: str, description: Description) -> list[Variant]:
    """The variants of a model before anything is measured: heads that are chosen by rank are any heads."""
    heads = _heads_of(description)
    every = {(layer, head): 0.0 for layer, count in heads.items() for head in range(count)}
    return variants_of(study, label, heads, description.facts.layers, lambda top: every)


def _trials(
    request: RunRequest,
    plan: PlannedModel,
    facts: ModelFacts,
    finished: Sequence[Finished],
    store: Store,
    variants: Sequence[Variant],
    sources: Sources,
) -> tuple[list[Trial], list[Dropped]]:
    context, chat = plan.description.facts.context, plan.maker.layout.chat
    answers = Answers(request.study, plan.description.tokenization, context, chat=chat)
    maker = TrialMaker(request.study, facts.heads_by_layer, variants, sources, answers)
    mine = [(cell, key) for cell, key, _ in finished if cell.model == plan.spec.label]
    return _made(
        request.study,
        plan.description,
        ((cell, partial(_received, store.record(cell, key))) for cell, key in mine),
        maker,
    )


def _made(
    study: Study, description: Description, cells: Iterable[tuple[Cell, Received]], maker: TrialMaker
) -> tuple[list[Trial], list[Dropped]]:
    """The trials of cells under the conditions that the outcome names, and what can't be one."""
    assert study.outcome is not None  # noqa: S101
    wanted = study.outcome.conditions or [spec.name for spec in study.conditions]
    trials, dropped = [], []
    for cell, received in cells:
        if cell.condition not in wanted:
            continue
        try:
            trials.append(maker.trial(cell, received))
        except StoppingError:
            raise
        except AttnscopeError as error:
            dropped.append(_dropped(cell.model, cell.condition, cell.prompt.number, str(error)))
    return trials, dropped


def _refuse_without_prompts(variants: Sequence[Variant], trials: Sequence[Trial], study: Study) -> None:
    """An intervention that can be made in no prompt is a mistake; a control that attnscope added may be impossible."""
    known = {place.intervention for trial in trials for place in trial.places}
    for name in dict.fromkeys(variant.intervention for variant in variants):
        spec = study.intervention(name)
        if name not in known and not spec.is_added:
            raise AttnscopeError(
                f"'{spec.name}' can be made in no prompt: {_why_not(spec)}",
                where=f"interventions, model {trials[0].cell.model}",
                allowed="interventions that some prompt can have",
                todo="check its tokens with 'attnscope tokens', or remove it",
            )


def _why_not(spec: InterventionSpec) -> str:
    if spec.like is not None:
        return "there is too little else to draw from"
    hides = any(change.kind is Hide for change in spec.every_change)
    return "no token is hidden" if hides else "there is no other prompt, or no token that two conditions share"


def _dropped(model: str, condition: str, prompt: int, reason: str) -> Dropped:
    return Dropped(model=model, condition=condition, prompt=prompt, reason=f"{NO_OUTCOME}{reason}")


def _received(record: Record, layers: Sequence[int] | None, heads: Sequence[int] | None) -> NDArray[np.float64]:
    """(tokens,): what each token receives from the first query group, mean over these layers and heads."""
    rows = [place for place, layer in enumerate(record.layers) if layers is None or layer in layers]
    columns = [place for place, head in enumerate(record.heads) if heads is None or head in heads]
    received = record.arrays[RECEIVED][:, :, 0]
    missing = [each for each in layers or () if each not in record.layers] + [
        each for each in heads or () if each not in record.heads
    ]
    if not rows or not columns or missing:
        raise AttnscopeError(
            "the attention that a control is matched on was not measured",
            where="interventions",
            allowed="layers and heads that the study measures",
            todo="measure these layers and heads, or use a random control",
        )
    return np.asarray(received[rows][:, columns].mean((0, 1)), dtype=np.float64)


def _nothing(tokens: int, layers: Sequence[int] | None, heads: Sequence[int] | None) -> NDArray[np.float64]:
    """What tokens receive, before anything is measured."""
    return np.zeros(tokens)


def _batches(keyed: Sequence[tuple[Trial, str]], store: Store) -> list[Batch]:
    """The trials that are not stored yet, the largest first; identical ones are scored once."""
    missing = {key: trial for trial, key in reversed(keyed) if key not in store}
    order = sorted(missing, key=lambda key: (-missing[key].size, key))
    batches: list[list[tuple[Trial, str]]] = []
    room = 0
    for key in order:
        trial = missing[key]
        if not batches or len(batches[-1]) == TOGETHER or trial.size > room:
            batches.append([])
            room = MOST_TOKENS
        batches[-1].append((trial, key))
        room -= trial.size
    return [tuple(batch) for batch in batches]


def _key_facts(facts: ModelFacts) -> dict[str, Any]:
    """What a trial's numbers depend on, apart from its tokens and edits."""
    return {
        "scoring": SCORING,
        "files": [[Path(file.path).name, file.sha256] for file in facts.files],
        "versions": facts.versions,
        "dtype": facts.dtype,
        "device": facts.device_type,
        "plugins": ATTENTION_EDITS.fingerprints,
    }


def _ranked(variants: Sequence[Variant]) -> RankedHeads:
    """For the manifest: the heads that are changed where some were chosen by rank."""
    chosen: RankedHeads = {}
    for variant in variants:
        if variant.ranks is not None and variant.draw is None:
            heads: dict[int, set[int]] = {}
            for edit in variant.edits:
                for layer, some in edit.named(()).items() if edit.changes == "outputs" else ():
                    heads.setdefault(layer, set()).update(some)
            chosen[variant.intervention] = {layer: sorted(some) for layer, some in sorted(heads.items())}
    return chosen
