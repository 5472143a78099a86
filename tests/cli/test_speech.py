"""Sentences fit the terminal they are printed on; files and pipes get them as they are."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from attnscope.analysis.run import Run
from attnscope.cli.speech import say
from tests.analysis.conftest import performed, study
from tests.runs.conftest import save_tiny

TIER = "command"
LINE = "In this study, attention on the question from the last token is higher, by 0.1 (n = 9 prompts; q < 0.05)."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("spoken")
    return performed(study([{"label": "one", "source": str(save_tiny(home / "one", 1))}]), home)


def printed_on_a_terminal(command: list[str], columns: int) -> list[str]:
    """The lines of what a command prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    known = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env={**known, "TERM": "dumb"})
    os.close(theirs)
    data = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as reader:
        while part := reader.read(1 << 16):
            data += part
    assert process.wait() == 0
    return data.decode().replace("\r\n", "\n").split("\n")


def test_on_a_terminal_no_line_is_longer_than_it_and_words_stay_whole() -> None:
    lines = printed_on_a_terminal(
        [sys.executable, "-c", f"from attnscope.cli.speech import say; say([{LINE!r}] * 2)"], columns=40
    )
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).split() == f"{LINE} {LINE}".split()
    assert not any(line.endswith(("q <", "n =")) for line in lines)


def test_in_a_pipe_a_sentence_is_one_line() -> None:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        say([LINE, LINE])
    assert written.getvalue() == f"{LINE}\n{LINE}\n"


def test_the_answer_and_how_it_was_compared_fit_the_terminal(run: Run) -> None:
    lines = printed_on_a_terminal([sys.executable, "-m", "attnscope", "compare", str(run.path)], columns=80)
    spoken = [line for line in lines if str(run.path) not in line and "comparisons" not in line]
    assert len(spoken) > 20
    assert max(map(len, spoken)) <= 80
