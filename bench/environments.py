"""An environment for a contestant that can't share ours: created once, and again when its requirement changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.prompts import ROOT

ENVIRONMENTS = ROOT / "bench" / "envs"


class SetupError(Exception):
    """The environment could not be created; the message is pip's last output."""


def ready(name: str, requirement: str, say: Callable[[str], None]) -> Path:
    """The environment's interpreter."""
    home = ENVIRONMENTS / name
    python, marker = home / "bin" / "python", home / "installed.txt"
    if marker.exists() and marker.read_text() == requirement:
        return python
    say(f"creating an environment for {requirement} (once; a gigabyte or two)")
    marker.unlink(missing_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", str(home)])
    _run([str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), requirement])
    marker.write_text(requirement)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        words = " ".join(errors or done.stderr.splitlines()[-3:])
        raise SetupError(f"{Path(command[0]).name} {' '.join(command[1:4])} ended with {done.returncode}: {words}")
