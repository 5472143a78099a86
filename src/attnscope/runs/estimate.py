"""What a run would take, roughly: seconds and bytes, from the prompts and the size of the weights alone."""

from __future__ import annotations

from collections.abc import Sequence

from attnscope.models.weights import folder_weights
from attnscope.runs.audit import Audit
from attnscope.runs.compatibility import chosen_layers
from attnscope.runs.evidence import FULL, NONE, Level
from attnscope.runs.request import RunRequest
from attnscope.runs.spot_check import COMPARED, choose_sample

# How many tokens' matrix products each part of a run costs, as measured on small runs
MEASURED = 2.2  # a token of a cell: attention, norms, pads, tables
PROVEN = 900  # a model: proofs on test prompts, the loss on a plain text
LOOKED_AT = 400  # a model without proofs: its heads and windows on test prompts, the loss on a plain text
SAMPLED = 200  # a cell of the spot check
AGAINST_EAGER, AT_HIGHER_PRECISION = 9, 4  # a token of it

LOADED = 2e8  # bytes of weights a second, with their checksums
STARTED, DRAWN = 8.0, 1.0  # seconds for the libraries and the page, and for each figure

PAGE, FIGURE = 1_500_000, 1_500_000  # bytes of a report without figures, and of each figure's files
COMPARED_HEAD = 1_500  # bytes of one head and class in a comparison, all quantities together


def estimated_seconds(audit: Audit, speed: float, evidence: Level = FULL, scored: float = 0.0) -> float | None:
    """To load a model, prove it, measure it and check a sample; None if its weights are not on this machine yet.

    speed: multiply-adds a second. evidence: how much is gathered. scored: how many tokens the interventions take.
    """
    path, config = audit.description.path, audit.description.config.get_text_config()
    if audit.description.source.kind == "hub":
        return None
    weights = folder_weights(path, allow_pickle=True)
    table = int(getattr(config, "vocab_size", 0)) * int(getattr(config, "hidden_size", 0))  # looked up, not multiplied
    tokens = (LOOKED_AT if evidence == NONE else PROVEN) + MEASURED * sum(len(cell.tokens) for cell in audit.cells)
    tokens += scored
    for cell, _ in choose_sample([(cell, "") for cell in audit.cells] if evidence == FULL else []):
        count = len(cell.tokens)
        tokens += SAMPLED + AGAINST_EAGER * min(count, COMPARED) + AT_HIGHER_PRECISION * count
    return weights.stored_bytes / LOADED + tokens * (weights.values - table) / speed


def estimated_bytes(request: RunRequest, audit: Audit) -> int:
    """The size of a model's shards and tables on disk, before compression."""
    keys = sum(len(cell.tokens) for cell in audit.cells)
    rows = _rows(request, audit)
    return 4 * rows * keys + 16 * rows * len(request.study.token_sets) * len(audit.cells)


def estimated_report(request: RunRequest, audits: Sequence[Audit]) -> tuple[float, int]:
    """Seconds and bytes that a run takes whatever its models: the start, the figures, the comparisons, the page."""
    study = request.study
    figures = len(study.figures)
    sides = len(study.conditions) - 1 + (len(study.models) > 1)
    compared = sides * len(study.token_sets) * sum(_rows(request, audit) for audit in audits)
    return STARTED + DRAWN * figures, PAGE + FIGURE * figures + COMPARED_HEAD * compared


def _rows(request: RunRequest, audit: Audit) -> int:
    """How many rows of attention are stored for each prompt."""
    measure, facts = request.study.measure, audit.description.facts
    heads = facts.heads if measure.heads == "all" else len(measure.heads)
    return (
        len(chosen_layers(measure.layers, facts)) * heads * max((len(cell.groups) for cell in audit.cells), default=1)
    )
