from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from attnscope.cli.main import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def refuses(self, *words: str) -> None:
        """One line in four parts on standard error, exit code 2, nothing on standard output."""
        assert self.code == 2, self
        assert self.out == ""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("attnscope: ")
        assert "(" in lines[0]
        assert "; " in lines[0]
        for word in words:
            assert word in lines[0], (word, lines[0])


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The attnscope command, in this process."""

    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["attnscope", *map(str, words)])
        capsys.readouterr()  # what the test's own preparations printed
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), said.out, said.err)

    return call
