"""The evidence card of a run: what a careful reader asks before believing its numbers, answered in sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from attnscope.analysis.own_text import dependence_of
from attnscope.analysis.run import Run
from attnscope.attention.input import InputCheck
from attnscope.clock import duration, phases_in_words
from attnscope.figures import sentences
from attnscope.figures.prose import Document, bulleted
from attnscope.figures.selection import LAYOUTS
from attnscope.records import RECEIVED
from attnscope.runs.evidence import FULL, LEVELS, NONE, UNPROVEN
from attnscope.runs.manifest import Noise, Timings
from attnscope.study.independence import cluster_field

MOST_REASONS = 5


def evidence_card(run: Run, timings: Timings | None = None) -> Document:
    """How much was checked, one section per model, then the prompts and what the run was made with.

    Of a training, the first and the last checkpoint have sections; those between have a line each.

    timings: of the command, if the manifest does not have all of them yet.
    """
    checked = bulleted("How much was checked", _checked(run))
    models = [bulleted(label, _of_model(run, label)) for label in run.compared_models]
    between = {name: labels[1:-1] for name, labels in run.families.items()}
    models += [
        bulleted(f"{name}, checkpoints between", (_of_checkpoint(run, label) for label in labels))
        for name, labels in between.items()
        if labels
    ]
    made = bulleted("Made with", _made_with(run, timings or run.manifest.timings))
    return Document("Evidence", (checked, *models, bulleted("Prompts", _of_prompts(run)), made))


def _checked(run: Run) -> Iterator[str]:
    """The level of evidence, and what therefore is not known."""
    level = run.manifest.evidence
    yield f"Evidence: {level} ({LEVELS[level]})."
    if level == NONE:
        yield f"WARNING: {UNPROVEN}"
    if level != FULL:
        yield (
            "No prompt of the run was measured a second time, so it is not known how far rounding moves its numbers, "
            "nor whether they agree with eager attention on these very prompts. Run it with evidence: full to know."
        )


def _of_checkpoint(run: Run, label: str) -> str:
    """What shows that a checkpoint was read exactly, on one line."""
    known = run.manifest.models[label]
    own = [file for file in known.files if file.weights][-1]  # an adapter's file comes after those of its base
    differences = [float(known.evidence["difference"]), *([known.sample.difference] if known.sample else [])]
    where = known.spec.get("adapter") or known.spec.get("revision") or known.spec["source"]
    return (
        f"Step {run.study.model(label).step}: {where}, SHA-256 {own.sha256}; against eager attention, no share differs "
        f"by more than {max(differences):.1e}."
    )


def _way(way: str) -> str:
    return f"the {way}" if way.startswith("attention interface") else way.replace("eager,", "eager attention,")


def _of_model(run: Run, label: str) -> Iterator[str]:
    known = run.manifest.models[label]
    proof, sample = known.evidence, known.sample
    adapter = known.spec.get("adapter")
    yield (
        f"{known.architecture} from {known.spec['source']}{f' with adapter {adapter}' if adapter else ''}, in "
        f"{known.dtype} on {known.device}, measured through {_way(proof['way'])}."
    )
    if proof.get("weights_made_from"):
        yield f"Its weights are those of {proof['weights_made_from']}."
    if proof.get("licence"):
        yield f"Licence: {proof['licence']}."
    yield from _input(run, label, proof)
    if known.is_proven:
        yield (
            f"Against eager attention, on a text of {proof['tokens']} tokens made for the check, no share differs "
            f"by more than {proof['difference']:.1e}."
        )
    else:
        yield "Not compared with eager attention."
    if known.unproven:
        yield f"{sentences.counted(known.unproven, 'cell')} of it were measured without a proof: UNPROVEN."
    if sample is not None:
        cells = sentences.counted(len(sample.cells), "prompt")
        yield (
            f"Against eager attention, on {cells} of this run, as far as the first {sample.tokens} tokens of each "
            f"({sample.rows} single rows and the mean of all): {sample.difference:.1e}; rows add up to 1 within "
            f"{sample.row_sum_error:.1e}."
        )
        yield from _rounding(sample.noise)
    yield from _row_sums(run, label, float(proof["sink_share"]))
    for kind, layers in _masks(proof["masks"]).items():
        yield f"Mask: {kind}, {_range(layers)}."
    for file in known.files:
        if file.weights:
            yield f"Weights: {file.path.rsplit('/', 1)[-1]}, SHA-256 {file.sha256}."


def _input(run: Run, label: str, proof: dict[str, Any]) -> Iterator[str]:
    """Whether prompts begin as the model expects."""
    if "input" not in proof:
        return
    check = InputCheck(**proof["input"])
    layout = LAYOUTS.get(run.layout(label) or "")
    if layout:
        yield f"Prompts {layout}."
    if check.reason:
        yield f"No loss on a plain text: {check.reason}."
    elif check.with_bos is None:
        yield f"Loss on a plain text of {check.tokens} tokens: {check.without_bos:.2f} per token. It has no BOS token."
    else:
        yield (
            f"Loss on a plain text of {check.tokens} tokens: {check.with_bos:.2f} per token with {check.bos} before "
            f"it, {check.without_bos:.2f} without. The tokenizer "
            f"{'adds it to' if check.added else 'does not add it to'} plain text."
        )
    first = beginnings(run, label)
    if check.bos is not None:
        count = sum(ids[0] == check.bos_id for ids in first)
        yield f"{count} of {sentences.counted(len(first), 'prompt')} begin with {check.bos}."
    yield from (f"WARNING: {warning}" for warning in input_warnings(run, label))


def input_warnings(run: Run, label: str) -> list[str]:
    """What is wrong with how a model's prompts begin, and with how many of them."""
    data = run.manifest.models[label].evidence.get("input")
    if data is None:
        return []
    check, first = InputCheck(**data), beginnings(run, label)
    plain = run.layout(label) != "chat"
    warnings = Counter(warning for ids in first if (warning := check.warning(ids, plain=plain)))
    return [
        f"{count} of {len(first)} prompts for {label} may be wrong: {warning}." for warning, count in warnings.items()
    ]


def beginnings(run: Run, label: str) -> list[tuple[int, ...]]:
    """The first two token ids of each of a model's prompts, under every condition."""
    tokens = run.table("tokens").filter((pl.col("model") == label) & (pl.col("position") < 2))
    ids = tokens.sort("position").group_by("condition", "prompt").agg(pl.col("token_id")).collect()["token_id"]
    return [tuple(each) for each in ids.to_list()]


def _rounding(noise: Noise) -> Iterator[str]:
    if not noise.moved:
        yield f"How far rounding in {noise.dtype} moves attention was not measured: {noise.reason}."
        return
    for group, moved in noise.moved.items():
        heads = np.asarray(moved)
        yield (
            f"Rounding: the same prompts in {noise.reference} instead of {noise.dtype} move {heads.max():.1e} of "
            f"the worst head's attention on average ({noise.most[group]:.1e} in its worst prompt) and "
            f"{np.median(heads):.1e} in the median head (queries: {group}). In these, no class's mass is off by more."
        )


def _row_sums(run: Run, label: str, sink_share: float) -> Iterator[str]:
    keys = ["condition", "prompt", "queries", "layer", "head"]
    sums = (
        run.table("mass")
        .filter(model=label, measure=RECEIVED)
        .filter(pl.col("token_class").is_in(run.classes))  # sets overlap with classes
        .filter(pl.col("mass").is_not_null())  # where nothing is left, there are no shares
        .group_by(keys)
        .agg(pl.col("mass").sum())
        .select(least=pl.col("mass").min(), most=pl.col("mass").max())
        .collect()
    )
    least, most = sums.row(0)
    if least is None:
        return
    if sink_share > 0:
        yield f"Shares of all keys add up to {least:.3f} to {most:.6f} in every cell; the rest goes to sinks."
    else:
        yield f"Shares of all keys add up to 1 in every cell, within {max(abs(least - 1), abs(most - 1)):.1e}."


def _masks(masks: dict[str, str]) -> dict[str, list[int]]:
    layers: dict[str, list[int]] = {}
    for layer, kind in masks.items():
        layers.setdefault(kind, []).append(int(layer))
    return layers


def _range(layers: list[int]) -> str:
    if layers == list(range(layers[0], layers[-1] + 1)) and len(layers) > 1:
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layer{'s' * (len(layers) > 1)} {sentences.listed([str(layer) for layer in layers])}"


def _clusters(run: Run, prompts: int) -> Iterator[str]:
    """What counts as independent."""
    field, clusters = cluster_field(run.study.prompts), len(set(run.cluster_of.values()))
    if field is not None:
        yield (
            f"Prompts with the same {field} count as one: {sentences.counted(clusters, 'cluster')} are the unit of all "
            "intervals and tests."
        )
    elif clusters < prompts:
        yield (
            f"{sentences.counted(prompts - clusters, 'prompt')} are copies of others: {clusters} different prompts are "
            "the unit of all intervals and tests."
        )
    copies = dependence_of(run)
    if copies:
        yield f"WARNING: {copies}."


def _of_prompts(run: Run) -> Iterator[str]:
    prompts = run.table("prompts").select("model", "condition", "prompt", "aligned", "remerged").collect()
    counts = {tuple(side): count for *side, count in prompts.group_by("model", "condition").len().iter_rows()}
    wanted = [(model.label, part.name) for model in run.study.models for part in run.study.conditions]
    for model, condition in wanted:
        count = counts.get((model, condition), 0)
        yield f"{model}, {condition}: {sentences.counted(count, 'prompt') if count else 'NO PROMPT'}."
    arms = len(wanted)
    whole = prompts.group_by("prompt").len().filter(pl.col("len") == arms)
    every = prompts["prompt"].n_unique()
    yield f"{len(whole)} of {sentences.counted(every, 'prompt')} were measured under every model and condition."
    yield from _clusters(run, every)
    dropped = run.manifest.dropped
    if not dropped:
        yield "No prompt was dropped."
    reasons = Counter((each.model, each.condition, _kind(each.reason)) for each in dropped).most_common()
    for (model, condition, reason), count in reasons[:MOST_REASONS]:
        yield f"Dropped, {model}, {condition}, {sentences.counted(count, 'prompt')}: {reason}."
    if len(reasons) > MOST_REASONS:
        others = sum(count for _, count in reasons[MOST_REASONS:])
        yield f"Dropped, {sentences.counted(others, 'prompt')} more; the manifest has them all."
    if not prompts["aligned"].all():
        astray = sentences.counted(int((~prompts["aligned"]).sum()), "prompt")
        yield f"{astray} can't be aligned to the base prompt, so none of their tokens is shared."
    merged = int(prompts["remerged"].sum())
    if merged:
        yield f"{sentences.counted(merged, 'token')} of base text have no counterpart in the base prompt."


def _time(timings: Timings) -> Iterator[str]:
    """What the last command spent, phase by phase."""
    if timings.seconds:
        phases = phases_in_words(timings.phases)
        earlier = f" Earlier commands on this run took {duration(timings.earlier)}." if timings.earlier else ""
        yield f"Time: {duration(timings.seconds)}{f' ({phases})' if phases else ''}.{earlier}"


def _kind(reason: str) -> str:
    """A reason without the numbers of one prompt, so that prompts dropped for the same reason are counted together."""
    return re.sub(r"\d[\d,]*", "N", reason.split(" (")[0])


def _made_with(run: Run, timings: Timings) -> Iterator[str]:
    manifest = run.manifest
    versions = [f"{name} {number}" for name, number in manifest.versions.items()]
    yield f"{sentences.listed(versions)}; Python {manifest.machine.python}; {manifest.machine.system}."
    if manifest.plugins:
        packages = sorted({each.partition(", code ")[0] for each in manifest.plugins.values()})
        yield f"Installed packages that add to attnscope: {sentences.listed(packages)}."
    yield from _time(timings)
    yield f"Seed {run.study.seed}; the random numbers of the statistics come from it too."
    yield f"The run's key, a hash of study, prompts and versions: {manifest.key}."
