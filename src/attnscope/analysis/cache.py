"""Results that take long, cached beside the tables they are made from, so that a reader need not wait for them.

A run's report makes them; whoever reads later finds them, and what is not there is computed. A file is named by a hash
of the question, of the tables and of what else answers depend on (the seed, how far rounding moves numbers), so a
result of other tables is never found; and by the checksum of its own bytes, so a damaged one is never used.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import polars as pl

from attnscope.analysis.run import Run
from attnscope.runs.integrity import sha256

FOLDER = "cached"
EDITION = 2  # raised when the same question would get another answer
_DIGITS = 32  # of a hash, in names


def cached(run: Run, question: tuple[str, ...], answer: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """The answer to a question about a run: from the cache, or computed now."""
    if not run.is_whole:  # of tables that someone changed, nothing is cached
        return answer()
    content = json.dumps([EDITION, version("attnscope"), run.tables_key, run.statistics_key, question])
    name = hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]
    for path in (run.path / FOLDER).glob(f"{name}-*.parquet"):
        data = _intact(path)
        if data is not None:
            if run.caching is not None:
                run.caching.add(path.name)
            return pl.read_parquet(io.BytesIO(data))
    result = answer()
    if run.caching is not None:
        run.caching.add(_write(run.path / FOLDER, name, result))
    return result


def _intact(path: Path) -> bytes | None:
    """A cached file's bytes, if they are those it was written with."""
    try:
        data = path.read_bytes()
    except OSError:
        data = b""
    if path.stem.partition("-")[2] == sha256(data)[:_DIGITS]:
        return data
    warnings.warn(f"{path} was changed or damaged: its numbers are computed again", stacklevel=3)
    return None


def _write(folder: Path, name: str, result: pl.DataFrame) -> str:
    """The name of the file written."""
    buffer = io.BytesIO()
    result.write_parquet(buffer, compression="zstd")
    file = f"{name}-{sha256(buffer.getvalue())[:_DIGITS]}.parquet"
    folder.mkdir(exist_ok=True)
    partial = folder / f".{file}.partial"
    partial.write_bytes(buffer.getvalue())
    partial.replace(folder / file)
    return file


@contextmanager
def caching(run: Run) -> Iterator[None]:
    """Cache what is computed of a run; what was cached of other tables is removed."""
    run.caching = set()
    try:
        yield
        for left in (run.path / FOLDER).glob("*"):
            if left.name not in run.caching:
                left.unlink()
    finally:
        run.caching = None
