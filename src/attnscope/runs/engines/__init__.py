"""Engines: where the batches of a run are measured. Each is one module of this package or of a plugin.

A plugin offers its own under the entry points `attnscope.engines`:

    [project.entry-points."attnscope.engines"]
    cluster = "my_package:cluster"

Batches are planned before an engine gets them, so every engine stores the same shards.
"""

from __future__ import annotations

from attnscope.registry import Registry
from attnscope.runs.engines.engine import Batch, Engine, Job, Measurer, Writer

ENGINES: Registry[Engine] = Registry(
    "engine",
    package="attnscope.runs.engines",
    group="attnscope.engines",
    is_member=lambda thing: isinstance(thing, Engine) and not isinstance(thing, type),
)

__all__ = ["ENGINES", "Batch", "Engine", "Job", "Measurer", "Writer"]
