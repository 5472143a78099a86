"""results.json: the outcome of every case, the latest of each, with what made it."""

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
    """By environment: `attnscope` is ours."""
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Each with `tokens` and `date`, and either `failed` (why) or what its child found."""

    @classmethod
    def read(cls, path: Path) -> Results:
        if not path.exists():
            return cls(path)
        held = json.loads(path.read_text())
        return cls(path, held["machine"], held["versions"], held["cases"])

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        held = {"machine": self.machine, "versions": self.versions, "cases": self.cases}
        self.path.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n")

    def of(self, contestant: str, tokens: int, *, timed: bool) -> dict[str, Any] | None:
        """What a case found of this contestant at this length; timed: a case that has its time too."""
        for case in self.cases.values():
            same = case.get("contestant") == contestant and case["tokens"] == tokens
            if same and "failed" not in case and ("timing" in case or not timed):
                return case
        return None
