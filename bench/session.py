"""One run of the benchmark: its scratch files, and how it starts a child and reads the result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.contestants import CONTESTANTS
from bench.environments import ready
from bench.prompts import ROOT

LONGEST = 32768


class ChildError(Exception):
    """A child failed; the message is the last line of its errors, or the signal that ended it."""


@dataclass
class Session:
    quick: bool
    scratch: Path
    _folder: Path | None = None
    _seen: dict[tuple[str, int], Path] = field(default_factory=dict)

    def say(self, words: str) -> None:
        print(f"    {words}", flush=True)

    def tokens(self, wanted: int) -> int:
        return min(wanted, 512) if self.quick else wanted

    def rounds(self, wanted: int) -> int:
        return 2 if self.quick else wanted

    def processes(self, wanted: int) -> int:
        return 1 if self.quick else wanted

    def python(self, contestant: str) -> Path:
        requirement = CONTESTANTS[contestant].requirement
        if requirement is None:
            return Path(sys.executable)
        return ready(requirement.split("=")[0], requirement, self.say)

    def folder(self) -> Path:
        """The default model, saved for contestants that have no attnscope."""
        if self._folder is None:
            folder = self.scratch / "model"
            self.say("saving the default model and a long prompt for all contestants")
            self.child("save_model", ["--folder", str(folder), "--tokens", str(LONGEST)])
            self._folder = folder
        return self._folder

    def contest(self, mode: str, contestant: str, tokens: int, rounds: int = 1) -> dict[str, Any]:
        python, folder = self.python(contestant), self.folder()
        arguments = [mode, contestant, "--folder", str(folder), "--tokens", str(tokens), "--rounds", str(rounds)]
        if mode == "peak" and contestant != "plain" and tokens < LONGEST:
            received = self.scratch / f"{contestant}-{tokens}.npy"
            arguments += ["--received", str(received)]
            self._seen[contestant, tokens] = received
        return self.child("contest", arguments, python)

    def difference(self, contestant: str, tokens: int) -> float:
        """The largest difference between the numbers of this contestant and attnscope at this length."""
        if ("attnscope_meter", tokens) not in self._seen:
            self.contest("peak", "attnscope_meter", tokens)
        ours, theirs = (np.load(self._seen[name, tokens]) for name in ("attnscope_meter", contestant))
        if ours.shape != theirs.shape:
            raise ChildError(f"gave numbers of shape {theirs.shape}, attnscope {ours.shape}")
        return float(np.abs(ours - theirs).max())

    def child(self, program: str, arguments: list[str], python: Path | None = None) -> dict[str, Any]:
        """Run bench.children.PROGRAM with offline libraries; its output goes to the terminal."""
        out, errors = self.scratch / "result.json", self.scratch / "errors.txt"
        out.unlink(missing_ok=True)
        command = [str(python or sys.executable), "-m", f"bench.children.{program}", *arguments, "--out", str(out)]
        quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
        if python is not None:
            quiet["HF_HUB_OFFLINE"] = "1"
        with errors.open("w") as sink:
            done = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, stderr=sink, check=False)
        if done.returncode or not out.exists():
            raise ChildError(_reason(done.returncode, errors.read_text(errors="replace")))
        result: dict[str, Any] = json.loads(out.read_text())
        return result


def _reason(code: int, errors: str) -> str:
    if code < 0:
        return f"ended by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -signal.SIGKILL else "")
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {code}"
