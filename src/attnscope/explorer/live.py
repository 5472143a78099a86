"""Prompts tried in the browser: measured one after the other, each as a small run of its own that all views show."""

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
from attnscope.explorer import responses
from attnscope.explorer.runs import Shelf

MOST_WAITING = 20
MOST_KEPT = 20  # tries; the oldest goes when there are more
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
    chat: StrictBool = Field(False, description="As a user's message in the model's chat template.")
    edit: Literal["nothing", "repeat", "sentence", "random_tokens", "shuffle", "text"] = Field(
        "nothing", description="What to insert: see the study file's conditions."
    )
    insertion: str = Field("...", min_length=1, max_length=20_000, description="The text of repeat and text.")
    tokens: Whole = Field(20, ge=1, le=4096, description="How many tokens the insertion has; of text all it has.")
    place: Literal["before", "after"] = Field("before", description="Of the prompt.")

    def study(self, model: str) -> dict[str, Any]:
        """As a study file would have it."""
        made: dict[str, Any] = {
            "title": f"Tried: {_line(self.text)}",
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
            made["conditions"].append({"name": EDITED, "insert": insert, self.place: "text", **length})
        return made


def _line(text: str) -> str:
    """The beginning of a text, on one line."""
    shown = "".join(sign if sign.isprintable() else " " for sign in text[:200])
    return " ".join(shown.split())[:60] or "a prompt"


class Tried(BaseModel):
    """How a try stands."""

    id: int
    status: Literal["waiting", "measuring", "done", "failed"]
    before: int = 0
    """Tries that come first."""
    doing: str = ""
    share: float = 0.0
    """Of what is being done."""
    run: str | None = None
    """The run that shows it."""
    edited: bool = False
    trouble: responses.Trouble | None = None


class _Watcher:
    """Tells a try how its measuring goes."""

    def __init__(self, tried: Tried) -> None:
        self.tried, self.total, self.done = tried, 1, 0

    def begin(self, what: str, tokens: int) -> None:
        self.tried.doing, self.tried.share = what, 0.0
        self.total, self.done = max(1, tokens), 0

    def advance(self, tokens: int) -> None:
        self.done += tokens
        self.tried.share = min(1.0, self.done / self.total)

    def say(self, text: str) -> None:
        self.tried.doing = text


class Desk:
    """Takes tries, measures them in order in a thread of its own, and puts them on the shelf."""

    def __init__(self, model: str, shelf: Shelf) -> None:
        self.model, self.shelf = model, shelf
        self._folder = Path(tempfile.mkdtemp(prefix="attnscope-tries-"))
        self._tries: dict[int, Tried] = {}
        self._waiting: deque[tuple[Tried, Trial]] = deque()
        self._turn = threading.Condition()
        self._lenses: dict[Any, Any] = {}
        threading.Thread(target=self._work, daemon=True).start()

    def close(self) -> None:
        """Remove what was tried."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def take(self, trial: Trial) -> Tried:
        with self._turn:
            if len(self._waiting) >= MOST_WAITING:
                raise AttnscopeError(
                    f"{MOST_WAITING} tries are waiting already",
                    where="try it",
                    allowed="a few at a time",
                    todo="wait until some are done",
                )
            tried = Tried(id=len(self._tries) + 1, status="waiting", edited=trial.edit != "nothing")
            self._tries[tried.id] = tried
            self._waiting.append((tried, trial))
            self._turn.notify()
        return self.look(tried.id)

    def look(self, number: int) -> Tried:
        tried = self._tries.get(number)
        if tried is None:
            raise AttnscopeError(
                f"there is no try {number}",
                where="try it",
                allowed=f"1 to {len(self._tries)}" if self._tries else "none so far",
                todo="try a prompt first",
            )
        order = [each.id for each, _ in list(self._waiting)]
        tried.before = order.index(number) + 1 if number in order else 0
        return tried

    def _work(self) -> None:
        while True:
            with self._turn:
                while not self._waiting:
                    self._turn.wait()
                tried, trial = self._waiting.popleft()
            tried.status, tried.doing, tried.before = "measuring", "loading the model", 0
            try:
                tried.run = self._measure(tried, trial)
                tried.status = "done"
            except AttnscopeError as error:
                where = error.where.replace(str(self._folder), "try it")
                tried.trouble = responses.Trouble(what=error.what, where=where, allowed=error.allowed, todo=error.todo)
                tried.status = "failed"
            except Exception as error:  # whatever it was, the next try has its turn
                told = f"{type(error).__name__}: {error}"[:300]
                tried.trouble = responses.Trouble(
                    what=told, where="try it", allowed="prompts that the model can read", todo="try another prompt"
                )
                tried.status = "failed"

    def _measure(self, tried: Tried, trial: Trial) -> str:
        from attnscope.studies import perform_request, request_study

        name = f"try-{tried.id}"
        file, folder = self._folder / f"{name}.yaml", self._folder / name
        file.write_text(yaml.safe_dump(trial.study(self.model), sort_keys=False, allow_unicode=True), encoding="utf-8")
        outcome = perform_request(request_study(str(file)), folder, _Watcher(tried), load=self._lens, second_look=False)
        for dropped in outcome.dropped:
            raise AttnscopeError(
                dropped.reason,
                where=dropped.condition,
                allowed="prompts that can be measured with their insertion",
                todo="try another",
            )
        shown = self.shelf.add(name, folder)
        done = [each.run for each in self._tries.values() if each.run]
        for old in done[: max(0, len(done) + 1 - MOST_KEPT)]:
            shutil.rmtree(self.shelf.path(old), ignore_errors=True)
            self.shelf.remove(old)
        return shown

    def _lens(self, source: str, **options: Any) -> Any:
        """The model, loaded once."""
        from attnscope.lens import load

        key = (source, *sorted((name, str(value)) for name, value in options.items()))
        if key not in self._lenses:
            self._lenses[key] = load(source, **options)
        return self._lenses[key]
