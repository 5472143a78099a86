"""Writes the table of outcomes from scored trials; `columns` declares it. Rows are in the study's order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from attnscope.places import writing
from attnscope.runs.columns import OUTCOMES
from attnscope.runs.folder import RunFolder
from attnscope.runs.integrity import file_sha256
from attnscope.runs.manifest import TableFacts
from attnscope.runs.parquet import batch_of, parquet_writer
from attnscope.runs.store import ScoredTrial, Store
from attnscope.runs.trials import Place, Trial
from attnscope.study.interventions import NONE
from attnscope.text.segments import ANSWER

GROUP = 64  # trials per row group


def write_outcomes(folder: RunFolder, store: Store, trials: Iterable[tuple[Trial, str]]) -> TableFacts:
    """Write the table, trial by trial in the order given. Each trial comes with its key."""
    path = folder.path / f"{OUTCOMES}.parquet"
    partial = folder.path / f".{OUTCOMES}.partial.parquet"
    rows = 0
    with writing(folder.path, "the run's tables"):
        writer = parquet_writer(OUTCOMES, partial)
        try:
            waiting: list[pa.RecordBatch] = []
            for trial, key in trials:
                waiting.append(outcome_rows(trial, store.scored(key)))
                if len(waiting) == GROUP:
                    rows += _write(writer, waiting)
                    waiting = []
            rows += _write(writer, waiting)
            writer.close()
            partial.replace(path)
        finally:
            writer.close()
            partial.unlink(missing_ok=True)
    return TableFacts(sha256=file_sha256(path), rows=rows)


def _write(writer: Any, batches: list[pa.RecordBatch]) -> int:
    if not batches:
        return 0
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    writer.write_table(table)
    return len(table)


def outcome_rows(trial: Trial, scored: ScoredTrial) -> pa.RecordBatch:
    """One row for the model as it is, and one per variant."""
    cell, ids = trial.cell, trial.answers[0].answer_ids
    places = [Place(NONE, None, None, None, 0), *trial.places]
    count = len(places)
    has_choices = len(trial.answers) > 1
    chosen = [int(np.argmax(row)) for row in scored.choices]
    texts = [answer.prompt.text[answer.prompt.spans[-1].start :] for answer in trial.answers]
    columns: dict[str, Any] = {
        "model": cell.model,
        "condition": cell.condition,
        "prompt": cell.prompt.number,
        "intervention": [place.intervention for place in places],
        "layer": [place.layer for place in places],
        "head": [place.head for place in places],
        "token_class": [place.token_class for place in places],
        "logprob": [each.log_prob for each in scored.answers],
        "tokens": len(ids),
        "kl": [float(each.kl[0]) for each in scored.answers],
        "exact": [each.writes(ids) for each in scored.answers],
        "choice": [texts[each] if has_choices else None for each in chosen],
        "right": [each == 0 if has_choices else None for each in chosen],
        "edited": [place.edited for place in places],
    }
    return batch_of(OUTCOMES, columns, count)


__all__ = ["ANSWER", "outcome_rows", "write_outcomes"]
