"""An engine: the batches in this process, the last one first."""

from __future__ import annotations

from dataclasses import dataclass

from attnscope.runs.engines import Job


@dataclass(frozen=True)
class Backwards:
    """Measures the last batch first; the shards are the same whatever the order."""

    name: str = "backwards"
    meaning: str = "In this process, the last batch first."

    def run(self, job: Job) -> None:
        for batch in reversed(job.batches):
            results = job.measure(batch)
            job.store.write(results)
            job.done(batch, results)


BACKWARDS = Backwards()
