"""Scores the trials of a batch: what a model makes of each answer, as it is and in every variant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnscope.errors import AttnscopeError, NoRoomError, StoppingError
from attnscope.lens import Lens
from attnscope.records import Scores
from attnscope.registry import not_blamed
from attnscope.runs.engines import Batch
from attnscope.runs.sources import Borrowing
from attnscope.runs.store import NoRoom, RefusedCell, Result, ScoredTrial
from attnscope.runs.trials import Trial


@dataclass
class TrialScorer:
    """Scores batches of one model's trials. Sent to another process, it loads the model again there."""

    load: Callable[[], Lens]
    borrowing: Borrowing
    """What heads give elsewhere in the study."""
    lens: Lens | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "lens": None}

    def __call__(self, batch: Batch) -> dict[str, Result]:
        trials = [(trial, key) for trial, key in batch if isinstance(trial, Trial) and isinstance(key, str)]
        if len(trials) < len(batch):
            raise TypeError("measure was given something else than trials, each with its key")
        with not_blamed():  # on the engine
            return {key: self._result(trial) for trial, key in trials}

    def _result(self, trial: Trial) -> Result:
        self.lens = self.lens or self.load()
        try:
            return scored(self.lens, trial, self.borrowing)
        except NoRoomError as error:
            return NoRoom(str(error))
        except StoppingError:
            raise
        except AttnscopeError as error:
            return RefusedCell(str(error))


def scored(lens: Lens, trial: Trial, borrowing: Borrowing) -> ScoredTrial:
    """The scores of a trial's answers."""
    answers: list[Scores] = []
    choices = []
    for answer, variants in zip(trial.answers, trial.edits, strict=True):
        before, after = lens.scores(answer, borrowing.patched(lens, variants))
        answers = answers or [before, *after]
        choices.append([each.log_prob for each in (before, *after)])
    return ScoredTrial(answers, np.asarray(choices).T)
