"""Runs Python code in processes forked from this one, which has imported the large libraries but nothing of attnscope.

A request is a line of JSON on standard input, the answer a line with the exit code. Each process imports attnscope
itself, with the folders of the request on its path, as a process started anew would; only torch and the like are there.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

LIBRARIES = ("torch", "transformers.models.llama.modeling_llama", "polars", "altair", "scipy.stats", "pyarrow.parquet")


def become(request: dict[str, Any]) -> None:
    """Make this process the one that the request describes."""
    for number, path in enumerate((os.devnull, request["out"], request["err"])):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = request["path"]
    sys.argv = ["-c", *request["words"]]


def serve() -> str | None:
    """The code to run, in a forked process; None in the first one, when there are no more requests."""
    while line := sys.stdin.readline():
        request = json.loads(line)
        process = os.fork()
        if process == 0:
            become(request)
            code: str = request["code"]
            return code
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return None


if __name__ == "__main__":
    for library in LIBRARIES:
        import_module(library)
    assert not any(name.partition(".")[0] == "attnscope" for name in sys.modules)
    if (code := serve()) is not None:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
