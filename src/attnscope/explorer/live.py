"""Prompts typed in the browser: measured one after the other, each as a small run that all pages can show."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from attnscope.errors import AttnscopeError
from attnscope.explorer.responses import Problem
from attnscope.explorer.runs import ServedRuns

MOST_WAITING = 20
MOST_KEPT = 20  # trials; beyond that, the oldest is removed
CLASSES = {"digits": "re:\\d", "words": "re:[^\\W\\d_]", "signs": "re:[^\\w\\s]|_"}
EDITED = "edited"


def _whole(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError("a number is needed")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]


class Trial(BaseModel):
    """A prompt to measure, and what to insert into a copy of it."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=200_000, description="The prompt.")
    chat: StrictBool = Field(False, description="Send it as a user message, in the model's chat template.")
    edit: Literal["nothing", "repeat", "sentence", "random_tokens", "shuffle", "text"] = Field(
        "nothing", description="What to insert; see the conditions of a study file."
    )
    insertion: str = Field("...", min_length=1, max_length=20_000, description="The text, for repeat and text.")
    tokens: Whole = Field(20, ge=1, le=4096, description="Length of the insertion in tokens; ignored for text.")
    place: Literal["before", "after"] = Field("before", description="Where to insert it: before or after the prompt.")

    def study(self, model: str) -> dict[str, Any]:
        """The same as a study file."""
        study: dict[str, Any] = {
            "title": f"Trial: {_line(self.text)}",
            "models": [{"label": model, "source": model}],
            "prompts": {"items": [{"text": self.text}], "chat" if self.chat else "plain": "{text}"},
            "conditions": ["none"],
            "classes": CLASSES,
            "measure": {"queries": ["last", "all"]},
        }
        if self.edit != "nothing":
            values = {"repeat": self.insertion, "text": self.insertion, "sentence": "random", "random_tokens": True}
            length = {} if self.edit == "text" else {"tokens": self.tokens}
            insert = {self.edit: values.get(self.edit, "text")}
            study["conditions"].append({"name": EDITED, "insert": insert, self.place: "text", **length})
        return study


def _line(text: str) -> str:
    """The beginning of a text, on one line."""
    printable = "".join(character if character.isprintable() else " " for character in text[:200])
    return " ".join(printable.split())[:60] or "a prompt"


class TrialStatus(BaseModel):
    """How far a trial has got."""

    id: int
    status: Literal["waiting", "measuring", "done", "failed"]
    ahead: int = 0
    """How many trials have to be measured first."""
    step: str = ""
    """What is being done."""
    progress: float = 0.0
    """The part of the step that is done, from 0 to 1."""
    run: str | None = None
    """The run that shows it."""
    edited: bool = False
    problem: Problem | None = None


class _Watcher:
    """Writes the progress of a measurement into a trial's status."""

    def __init__(self, status: TrialStatus) -> None:
        self.status, self.total, self.done = status, 1, 0

    def begin(self, what: str, tokens: int) -> None:
        self.status.step, self.status.progress = what, 0.0
        self.total, self.done = max(1, tokens), 0

    def advance(self, tokens: int) -> None:
        self.done += tokens
        self.status.progress = min(1.0, self.done / self.total)

    def say(self, text: str) -> None:
        self.status.step = text


class TrialQueue:
    """Measures trials in order, in its own thread, and adds them to the served runs."""

    def __init__(self, model: str, runs: ServedRuns) -> None:
        self.model, self.runs = model, runs
        self._folder = Path(tempfile.mkdtemp(prefix="attnscope-trials-"))
        self._statuses: dict[int, TrialStatus] = {}
        self._waiting: deque[tuple[TrialStatus, Trial]] = deque()
        self._changed = threading.Condition()
        self._lenses: dict[Any, Any] = {}
        threading.Thread(target=self._work, daemon=True).start()

    def close(self) -> None:
        """Remove the files of all trials."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def submit(self, trial: Trial) -> TrialStatus:
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                raise AttnscopeError(
                    f"{MOST_WAITING} prompts are waiting already",
                    where="try it",
                    allowed=f"up to {MOST_WAITING} at a time",
                    todo="wait until some are done",
                )
            status = TrialStatus(id=len(self._statuses) + 1, status="waiting", edited=trial.edit != "nothing")
            self._statuses[status.id] = status
            self._waiting.append((status, trial))
            self._changed.notify()
        return self.status(status.id)

    def status(self, number: int) -> TrialStatus:
        status = self._statuses.get(number)
        if status is None:
            raise AttnscopeError(
                f"there is no trial {number}",
                where="try it",
                allowed=f"1 to {len(self._statuses)}" if self._statuses else "none so far",
                todo="try a prompt first",
            )
        order = [each.id for each, _ in list(self._waiting)]
        status.ahead = order.index(number) + 1 if number in order else 0
        return status

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                status, trial = self._waiting.popleft()
            status.status, status.step, status.ahead = "measuring", "loading the model", 0
            try:
                status.run = self._measure(status, trial)
                status.status = "done"
            except AttnscopeError as error:
                where = error.where.replace(str(self._folder), "try it")
                status.problem = Problem(what=error.what, where=where, allowed=error.allowed, todo=error.todo)
                status.status = "failed"
            except Exception as error:  # whatever it is, the next trial must be measured
                what = f"{type(error).__name__}: {error}"[:300]
                status.problem = Problem(
                    what=what, where="try it", allowed="prompts that the model can read", todo="try another prompt"
                )
                status.status = "failed"

    def _measure(self, status: TrialStatus, trial: Trial) -> str:
        from attnscope.studies import perform_request, request_study

        name = f"try-{status.id}"
        file, folder = self._folder / f"{name}.yaml", self._folder / name
        file.write_text(yaml.safe_dump(trial.study(self.model), sort_keys=False, allow_unicode=True), encoding="utf-8")
        outcome = perform_request(request_study(str(file), evidence="quick"), folder, _Watcher(status), load=self._lens)
        for dropped in outcome.dropped:
            raise AttnscopeError(
                dropped.reason,
                where=dropped.condition,
                allowed="prompts that can be measured with their insertion",
                todo="try another prompt",
            )
        served = self.runs.add(name, folder)
        done = [each.run for each in self._statuses.values() if each.run]
        for oldest in done[: max(0, len(done) + 1 - MOST_KEPT)]:
            if oldest in self.runs.names:
                shutil.rmtree(self.runs.path(oldest), ignore_errors=True)
                self.runs.remove(oldest)
        return served

    def _lens(self, source: str, **options: Any) -> Any:
        """The model, loaded only once."""
        from attnscope.lens import load

        key = (source, *sorted((name, str(value)) for name, value in options.items()))
        if key not in self._lenses:
            self._lenses[key] = load(source, **options)
        return self._lenses[key]
