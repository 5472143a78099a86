"""Slow results, cached next to the tables they come from, so that readers need not wait for them.

A run's report writes them; later readers use them and compute what is missing. A file name contains a hash of the
question, the tables and everything else the answer depends on (the seed, the rounding error), so a result of other
tables is never used; and a checksum of that hash and the file's bytes, so one that is damaged or that was given the
name of another question is never used: the answer is computed again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import polars as pl

from attnscope.analysis.run import Run
from attnscope.runs.integrity import sha256

FOLDER = "cached"
EDITION = 12  # raise it when the same question would get a different answer
_DIGITS = 32  # of a hash, in file names


def cached_result(run: Run, question: tuple[str, ...], answer: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """The answer to a question about a run: from the cache, or computed now. answer: computes it."""
    if not run.is_whole:  # nothing is cached if someone changed the tables
        return answer()
    content = json.dumps([EDITION, version("attnscope"), run.tables_key, run.statistics_key, question])
    name = hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]
    for path in (run.path / FOLDER).glob(f"{name}-*.parquet"):
        data = _intact(path, name)
        if data is not None:
            if run.cached_files is not None:
                run.cached_files.add(path.name)
            return pl.read_parquet(io.BytesIO(data))
    result = answer()
    if run.cached_files is not None:
        run.cached_files.add(_write(run.path / FOLDER, name, result))
    return result


def _file_name(name: str, data: bytes) -> str:
    """name: the hash of the question."""
    return f"{name}-{sha256(name.encode() + data)[:_DIGITS]}.parquet"


def _intact(path: Path, name: str) -> bytes | None:
    """A cached file's bytes, if they are what was written as the answer to this question."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if path.name == _file_name(name, data) else None


def _write(folder: Path, name: str, result: pl.DataFrame) -> str:
    """Write a result; return its file name."""
    buffer = io.BytesIO()
    result.write_parquet(buffer, compression="zstd")
    file = _file_name(name, buffer.getvalue())
    folder.mkdir(exist_ok=True)
    partial = folder / f".{file}.partial"
    partial.write_bytes(buffer.getvalue())
    partial.replace(folder / file)
    return file


@contextmanager
def caching_results(run: Run) -> Iterator[None]:
    """Cache the results computed for a run, and remove those of other tables."""
    run.cached_files = set()
    try:
        yield
        for stale in (run.path / FOLDER).glob("*"):
            if stale.name not in run.cached_files:
                stale.unlink()
    finally:
        run.cached_files = None
