"""Measures in this process, one batch after another."""

from __future__ import annotations

from dataclasses import dataclass

from attnscope.runs.engines.engine import Job


@dataclass(frozen=True)
class Local:
    name: str = "local"
    meaning: str = "In this process, one batch after another."

    def run(self, job: Job) -> None:
        for batch in job.batches:
            results = job.measure(batch)
            job.store.write(results)
            job.done(batch, results)


LOCAL = Local()
