"""A request: a study with its prompts, and how to perform it. Created before any model library is loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from attnscope.edits.attention import ATTENTION_EDITS
from attnscope.edits.prompt import PROMPT_EDITS
from attnscope.edits.sources import SOURCES
from attnscope.measures import MEASURES
from attnscope.registry import fingerprints
from attnscope.runs.evidence import FULL, Level
from attnscope.runs.manifest import VERSION
from attnscope.study.file import loaded, place_in
from attnscope.study.prompts import Prompt, PromptList
from attnscope.study.schema import ModelSpec, Study
from attnscope.text.groups import GROUPS
from attnscope.text.query_rules import QUERY_RULES
from attnscope.text.rules import RULES
from attnscope.text.sets import PROMPT_SETS

LOCAL = "local"

_FAMILIES = (MEASURES, RULES, GROUPS, QUERY_RULES, PROMPT_EDITS, ATTENTION_EDITS, SOURCES, PROMPT_SETS)
_IN_TABLES = tuple(family.group for family in _FAMILIES)

MEASURING = 5  # raise it when the same cell would get different numbers,
WRITING = 3  # and this when a model would write another answer to the same prompt, or measure it from other tokens
SCORING = 1  # and this when the same answer would get another score under the same intervention


@dataclass(frozen=True)
class RunRequest:
    """What to perform, and how."""

    study: Study
    text: str
    """The study file as it was written."""
    prompts: PromptList
    file: str = "the study"
    """The study file's name, for errors."""
    strict: bool = False
    forget: bool = False
    """Remove what was measured for other versions of the study."""
    command: str | None = None
    """The command line it came from, for the report."""
    trust_remote_code: bool = False
    allow_pickle: bool = False
    engine: str = LOCAL
    """Where batches are measured: the name of a registered engine."""
    evidence: Level = FULL
    """How much evidence to gather; more than that stays if it is there."""

    def place(self, at: Sequence[str | int]) -> str:
        """The line and key of the study file that a path leads to, for an error."""
        return place_in(self.text, self.file, at)

    def place_of_model(self, spec: ModelSpec) -> str | None:
        """The line of the study file that names a model; None if it was named elsewhere."""
        given = loaded(self.text)["models"]
        for number, model in enumerate(given if isinstance(given, list) else [given]):
            keys = model if isinstance(model, dict) else {"source": model}
            if spec.family is not None and keys.get("label") == spec.family:
                return self.place(("models", number, "checkpoints" if "checkpoints" in keys else "revisions"))
            if keys.get("source") == spec.source:
                return self.place(("models", number, "source"))
        return None

    @property
    def key(self) -> str:
        """Changes with anything the tables depend on, except the models."""
        answer = self.study.prompts.answer
        measured = len(self.prompts.prompts)
        content = {
            "study": self.study.model_dump(mode="json"),
            "prompts": list(map(_content, self.prompts.prompts)),
            **({"others": list(map(_content, self.prompts.every))} if measured < len(self.prompts.every) else {}),
            "versions": versions(),
            "plugins": plugins(_IN_TABLES),
            "format": VERSION,
            "measuring": MEASURING,
            **({"scoring": SCORING} if self.study.interventions else {}),
            **({"writing": WRITING} if answer is not None and answer.generate is not None else {}),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _content(prompt: Prompt) -> list[object]:
    """What a prompt consists of, as plain data."""
    beside = [*map(list, prompt.beside.items()), *([name, list(items)] for name, items in prompt.lists.items())]
    return [prompt.name, repr(dict(prompt.fields)), prompt.answer, prompt.cluster, *beside]


def plugins(groups: Sequence[str] = (*_IN_TABLES, "attnscope.figures")) -> dict[str, str]:
    """The fingerprints of what installed packages add to tables and figures, by entry point."""
    return {f"{group}: {name}": each for group in groups for name, each in fingerprints(group).items()}


def versions() -> dict[str, str]:
    """The versions of the packages that numbers depend on."""
    return {name: version(name) for name in ("attnscope", "torch", "transformers", "tokenizers")}
