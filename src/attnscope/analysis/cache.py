"""Results that take long, kept beside the tables they are made from, so that a reader need not wait for them.

A run's report makes them; whoever reads later finds them, and what is not there is computed. They are named by a hash
of what was asked, of the tables' mark and of what else answers depend on (the seed, how far rounding moves numbers), so
a result of other tables is never found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

import polars as pl

from attnscope.analysis.run import Run

FOLDER = "kept"
EDITION = 1  # raised when the same question would get another answer


def cached(run: Run, question: tuple[str, ...], answer: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """The answer to a question about a run: as it is kept, or found now."""
    if not run.is_whole:  # of tables that someone changed, nothing is kept
        return answer()
    content = json.dumps([EDITION, version("attnscope"), run.mark, run.chance, question])
    name = f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.parquet"
    path = run.path / FOLDER / name
    if run.caching is not None:
        run.caching.add(name)
    if path.is_file():
        try:
            return pl.read_parquet(path, memory_map=False)
        except (OSError, pl.exceptions.PolarsError):  # spoilt: found anew
            pass
    found = answer()
    if run.caching is not None:
        partial = path.with_name(f".{name}.partial")
        path.parent.mkdir(exist_ok=True)
        found.write_parquet(partial, compression="zstd")
        partial.replace(path)
    return found


@contextmanager
def caching(run: Run) -> Iterator[None]:
    """Keep what is found out about a run; what was kept of it before, of other tables, goes."""
    run.caching = set()
    try:
        yield
        for left in (run.path / FOLDER).glob("*"):
            if left.name not in run.caching:
                left.unlink()
    finally:
        run.caching = None
