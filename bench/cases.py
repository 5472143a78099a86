"""Everything the benchmark measures, in order. To add a case, add one entry here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from attnscope.analysis.effects import effects
from bench import explorer
from bench.clock import over_processes
from bench.session import LONGEST, Session

Table = Literal["cost", "feature", "memory", "contest", "long", "analysis", "explorer"]


@dataclass(frozen=True)
class Case:
    name: str
    table: Table
    title: str
    tokens: int
    run: Callable[[Session, int], dict[str, Any]]
    aim: str = ""
    """The project's own target, for comparison."""


def _pair(pair: str, rounds: int, processes: int = 5) -> Callable[[Session, int], dict[str, Any]]:
    """rounds: of each process."""

    def run(session: Session, tokens: int) -> dict[str, Any]:
        words = [pair, "--tokens", str(tokens), "--rounds", str(session.rounds(rounds))]
        results = [session.child("pair", words) for _ in range(session.processes(processes))]
        return {**results[0], "timing": over_processes([each["timing"] for each in results])}

    return run


def _peak(contestant: str, processes: int) -> Callable[[Session, int], dict[str, Any]]:
    """The process with the median extra memory, and the extra memory of all."""

    def run(session: Session, tokens: int) -> dict[str, Any]:
        count = session.processes(processes)
        peaks = [session.contest("peak", contestant, tokens)["peak"] for _ in range(count)]
        peaks.sort(key=lambda peak: peak["extra_mib"])
        extras = [peak["extra_mib"] for peak in peaks]
        return {"contestant": contestant, "peak": peaks[count // 2], "extras_mib": extras}

    return run


def _contest(contestant: str, rounds: int, processes: int = 3) -> Callable[[Session, int], dict[str, Any]]:
    def run(session: Session, tokens: int) -> dict[str, Any]:
        session.say("one process per run, for memory and numbers")
        outcome = _peak(contestant, 3)(session, tokens)
        if contestant != "attnscope_meter":
            outcome["difference"] = session.difference(contestant, tokens)
        session.say("alternating with a plain forward pass, for time")
        count = session.processes(processes)
        timings = [session.contest("time", contestant, tokens, session.rounds(rounds))["timing"] for _ in range(count)]
        return outcome | {"timing": over_processes(timings)}

    return run


def _statistics(session: Session, prompts: int) -> dict[str, Any]:
    values = np.random.default_rng(0).normal(0.02, 1, (prompts, 1024))
    times = []
    for _ in range(session.rounds(7)):
        start = time.perf_counter()
        effects(values)
        times.append(time.perf_counter() - start)
    return {"seconds": times}


def _explorer(session: Session, prompts: int) -> dict[str, Any]:
    return explorer.measure(session.scratch / "explored", prompts, session.rounds(40), session.say)


STUDY_AIM = "1.176"  # 85 % of the tokens per second

CASES = [
    Case("last-2048", "cost", "last token", 2048, _pair("last", 3), "1.04"),
    Case("all-512", "cost", "all queries", 512, _pair("all", 7), "1.06"),
    Case("all-2048", "cost", "all queries", 2048, _pair("all", 3), "1.06"),
    Case("all-8192", "cost", "all queries", 8192, _pair("all", 1, 3), "1.20"),
    Case("groups-16-2048", "cost", "all queries in 16 groups", 2048, _pair("groups-16", 3), "1.10"),
    Case("groups-256-2048", "cost", "all queries in 256 groups", 2048, _pair("groups-256", 3, 3)),
    Case("to-the-end-2048", "cost", "all queries, last layer run to its end", 2048, _pair("to-the-end", 3)),
    Case("first-layers-2048", "cost", "layers 0 to 3 of 30, all queries", 2048, _pair("first-layers", 3), "0.20"),
    Case("qwen-shape-2048", "cost", "Qwen2.5-1.5B's shape, 3 layers", 2048, _pair("qwen-shape", 3), "1.03"),
    Case("qwen-attention-2048", "cost", "its attention alone", 2048, _pair("qwen-attention", 5)),
    Case(
        "qwen-attention-large-2048",
        "cost",
        "its attention alone, scores too large for the fast path",
        2048,
        _pair("qwen-attention-large", 5),
    ),
    Case(
        "study-one-by-one", "cost", "study of 204 prompts, run whole", 204, _pair("study-one-by-one", 1, 3), STUDY_AIM
    ),
    Case("study-batched", "cost", "the same study", 204, _pair("study-batched", 1, 3), STUDY_AIM),
    Case("answers", "cost", "answers of 20 tokens to 8 prompts", 20, _pair("answers", 3, 3), "1.3"),
    Case("answers-sampled", "cost", "the same, sampled", 20, _pair("answers-sampled", 3, 3), "1.3"),
    Case("sweep-512", "cost", "30 single-layer knock-outs of one prompt", 512, _pair("sweep", 1, 3), "0.60"),
    Case("callback", "cost", "one measurement of `TrainerCallback`, 8 prompts", 8, _pair("callback", 3, 3)),
    Case("callback-begins", "cost", "its beginning, with the proof", 8, _pair("callback-begins", 3, 3)),
    Case("padded-batch", "feature", "batch of 4, padded on the left", 1024, _pair("padded-batch", 3, 3)),
    Case("window", "feature", "sliding window of 512 (Mistral)", 2048, _pair("window", 3)),
    Case("softcap", "feature", "softcap and alternating windows (Gemma 2)", 2048, _pair("softcap", 3)),
    Case("sinks", "feature", "sinks and alternating windows (gpt-oss)", 2048, _pair("sinks", 3)),
    Case("softcap-sdpa", "feature", "the same Gemma 2", 2048, _pair("softcap-sdpa", 3)),
    Case("sinks-sdpa", "feature", "the same gpt-oss", 2048, _pair("sinks-sdpa", 3)),
    Case("patterns-2048", "feature", "all queries, with patterns", 2048, _pair("patterns", 3, 3)),
    Case("explorer", "explorer", "2 models x 2 conditions x 30 layers x 9 heads", 500, _explorer, "0.2"),
    Case("statistics", "analysis", "32 x 32 heads: differences, intervals, p, q", 500, _statistics),
    Case("memory-plain-512", "memory", "plain forward", 512, _peak("plain", 3)),
    Case("memory-plain", "memory", "plain forward", 2048, _peak("plain", 9)),
    Case("memory-attnscope", "memory", "attnscope, all and last", 2048, _peak("attnscope_meter", 9), "plain + 100 MiB"),
    Case("contest-attnscope", "contest", "attnscope", 2048, _contest("attnscope_meter", 3, 5)),
    Case("contest-eager", "contest", "transformers `output_attentions`", 2048, _contest("output_attentions", 2)),
    Case("contest-lens", "contest", "TransformerLens, hooks", 2048, _contest("transformer_lens_hooks", 2)),
    Case("contest-lens-cache", "contest", "TransformerLens, cache", 2048, _contest("transformer_lens_cache", 2)),
    Case("contest-nnsight", "contest", "nnsight", 2048, _contest("nnsight_trace", 2)),
    Case("contest-attnscope-512", "contest", "attnscope", 512, _contest("attnscope_meter", 7, 5)),
    Case("contest-eager-512", "contest", "transformers `output_attentions`", 512, _contest("output_attentions", 5)),
    Case("long-plain", "long", "plain forward", LONGEST, _peak("plain", 1)),
    Case("long-attnscope", "long", "attnscope, all and last", LONGEST, _peak("attnscope_meter", 1), "completes"),
]
