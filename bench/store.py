"""results.json: the latest outcome of every case, with the machine and versions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Results:
    path: Path
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    """Per environment; `attnscope` is ours."""
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Each with `tokens` and `date`, and either `failed` (the reason) or the results."""

    @classmethod
    def read(cls, path: Path) -> Results:
        if not path.exists():
            return cls(path)
        content = json.loads(path.read_text())
        return cls(path, content["machine"], content["versions"], content["cases"])

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {"machine": self.machine, "versions": self.versions, "cases": self.cases}
        self.path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")

    def of(self, contestant: str, tokens: int, *, timed: bool) -> dict[str, Any] | None:
        """The outcome for this contestant at this length. timed: only of a case with times."""
        for case in self.cases.values():
            same = case.get("contestant") == contestant and case["tokens"] == tokens
            if same and "failed" not in case and ("timing" in case or not timed):
                return case
        return None
