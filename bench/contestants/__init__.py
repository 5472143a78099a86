"""Tools that can measure what every key receives, all given the same work.

A contestant is a module here with `prepare(folder)`, which loads the model saved there and returns a function from
token ids to received [layer, head, (all, last), key], mean over query rows. It runs in its own environment, without
attnscope, so it imports nothing else of the benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contestant:
    module: str
    title: str
    requirement: str | None = None
    """What pip installs for it; None if it runs in our own environment."""


CONTESTANTS = {
    each.module: each
    for each in (
        Contestant("plain", "plain forward, measures nothing"),
        Contestant("attnscope_meter", "attnscope"),
        Contestant("output_attentions", "transformers, eager `output_attentions`"),
        Contestant("transformer_lens_hooks", "TransformerLens, hooks reduce each pattern", "transformer-lens==4.3.0"),
        Contestant("transformer_lens_cache", "TransformerLens, `run_with_cache`", "transformer-lens==4.3.0"),
        Contestant("nnsight_trace", "nnsight, trace reduces each layer", "nnsight==0.8.1"),
    )
}
