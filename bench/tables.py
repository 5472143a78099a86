"""Results -> Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.cases import CASES, Case, Table
from bench.store import Results

NOISE_MIB = 10.0  # median peaks of a plain forward pass differ by about this much between benchmark runs


def cost_table(results: Results, table: Table) -> list[str]:
    names = ["what is measured", "tokens", "ratio", "of processes", "A/A control", "of processes", "aim", "median"]
    lines = _head(*names, "against")
    for case, found in _rows(results, table):
        if "failed" in found:
            lines.append(_failed(case, found, 9))
            continue
        timing = found["timing"]
        cells = [case.title, f"{found['tokens']:,}", f"**{timing['ratio']:.3f}**", _spread(timing["ratios"])]
        cells += [f"{timing['control_ratio']:.3f}", _spread(timing["control_ratios"])]
        cells += [f"<= {case.aim}" if case.aim else "", _seconds(timing["arm"])]
        lines.append(_row(*cells, found["against"]))
    return lines


def peak_table(results: Results, table: Table) -> list[str]:
    lines = _head("what runs", "tokens", "extra peak memory", "beyond a plain forward's", "aim", "seconds, run once")
    for case, found in _rows(results, table):
        if "failed" in found:
            lines.append(_failed(case, found, 6))
            continue
        peak = found["peak"]
        extras = found["extras_mib"]
        range_ = f" ({min(extras):,.0f} to {max(extras):,.0f} in {len(extras)})" if len(extras) > 1 else ""
        cells = [
            case.title,
            f"{found['tokens']:,}",
            _mib(peak["extra_mib"]) + range_,
            _beyond(results, found),
            case.aim,
        ]
        lines.append(_row(*cells, f"{peak['seconds']:.1f}"))
    return lines


CLICKS = {
    "start": "`attnscope serve` until it answers",
    "map": "a map of a measure",
    "change": "a map of a change",
    "head": "a head: kind, ranks and lines along the prompt",
    "rest": "the rest of its page: bars and spread",
    "prompt": "a prompt under two conditions",
    "drawn": "the next head, until its charts are drawn in Chromium",
}


def explorer_table(results: Results) -> list[str]:
    lines = ["| | prompts | median | 95 of 100 under | longest |", "|---|---|---|---|---|"]
    for _, found in _rows(results, "explorer"):
        for name, words in CLICKS.items():
            times = found.get("clicks", {}).get(name)
            if times:
                most = statistics.quantiles(times, n=20, method="inclusive")[-1]
                numbers = (statistics.median(times), most, max(times))
                lines.append(_row(words, f"{found['tokens']:,}", *(f"{1000 * each:.0f} ms" for each in numbers)))
    return [
        *lines,
        "",
        "A run of random numbers, 2 models x 2 conditions x 30 layers x 9 heads, with its report. Every click requests",
        "something new from a server that was started four seconds before; requests of one click are sent at",
        "once, as in a browser. The aims: under 2 s to start, under 200 ms for a click.",
    ]


def analysis_table(results: Results) -> list[str]:
    lines = _head("what is computed", "prompts", "median", "least and most")
    for case, found in _rows(results, "analysis"):
        times = found["seconds"]
        spread = f"{min(times):.2f} to {max(times):.2f} s in {len(times)}"
        lines.append(_row(case.title, f"{found['tokens']:,}", f"{statistics.median(times):.2f} s", spread))
    return lines


def contest_table(results: Results) -> list[str]:
    names = ["tool", "tokens", "ratio to plain", "of processes", "A/A control", "attnscope is faster by"]
    names += ["extra peak memory", "attnscope takes less by", "beyond plain's", "less by", "largest difference"]
    lines = _head(*names)
    for case, found in _rows(results, "contest"):
        if "failed" in found:
            lines.append(_failed(case, found, len(names)))
            continue
        timing, extra = found["timing"], found["peak"]["extra_mib"]
        ours = found["contestant"] == "attnscope_meter"
        factors = advantage(results, found)
        faster, less, beyond = ("", "", "") if factors is None else factors.words()
        cells = [case.title, f"{found['tokens']:,}", f"{timing['ratio']:.3f}", _spread(timing["ratios"])]
        cells += [f"{timing['control_ratio']:.3f}", faster, _mib(extra), less, _beyond(results, found), beyond]
        lines.append(_row(*cells, "" if ours else f"{found['difference']:.1e}"))
    return lines


@dataclass(frozen=True)
class Advantage:
    """How many times faster attnscope is than a contestant, and how many times less extra memory it takes."""

    faster: float
    less: float
    beyond: float | None
    """For memory beyond that of a plain forward pass."""
    floored: bool
    """Our memory beyond plain is within the noise, so `beyond` is a lower bound."""

    def words(self) -> tuple[str, str, str]:
        beyond = "" if self.beyond is None else f"**{'> ' if self.floored else ''}{self.beyond:.1f}x**"
        return f"**{self.faster:.1f}x**", f"**{self.less:.1f}x**", beyond


def advantage(results: Results, found: dict[str, Any]) -> Advantage | None:
    own = results.of("attnscope_meter", found["tokens"], timed=True)
    if own is None or found["contestant"] == "attnscope_meter":
        return None
    ours, theirs = beyond_plain(results, own), beyond_plain(results, found)
    return Advantage(
        faster=found["timing"]["ratio"] / own["timing"]["ratio"],
        less=found["peak"]["extra_mib"] / own["peak"]["extra_mib"],
        beyond=None if ours is None or theirs is None else theirs / max(NOISE_MIB, ours),
        floored=ours is not None and ours < NOISE_MIB,
    )


def beyond_plain(results: Results, found: dict[str, Any]) -> float | None:
    """MiB of extra peak memory beyond that of a plain forward pass at this length, if measured."""
    plain = results.of("plain", found["tokens"], timed=False)
    if plain is None or found["contestant"] == "plain":
        return None
    return float(found["peak"]["extra_mib"] - plain["peak"]["extra_mib"])


def _rows(results: Results, table: Table) -> Iterable[tuple[Case, dict[str, Any]]]:
    return [(case, results.cases[case.name]) for case in CASES if case.table == table and case.name in results.cases]


def _beyond(results: Results, found: dict[str, Any]) -> str:
    beyond = beyond_plain(results, found)
    return "" if beyond is None else f"{beyond:+,.0f} MiB"


def _spread(ratios: list[float]) -> str:
    return f"{min(ratios):.3f} to {max(ratios):.3f} ({len(ratios)})"


def _seconds(taken: list[float]) -> str:
    return f"{statistics.median(taken):.3f} s of {len(taken)}"


def _mib(size: float) -> str:
    return f"{size:,.0f} MiB"


def _head(*names: str) -> list[str]:
    return [_row(*names), _row(*["---"] * len(names))]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _failed(case: Case, found: dict[str, Any], columns: int) -> str:
    reason = str(found["failed"]).replace("|", "\\|")
    return _row(case.title, f"{found['tokens']:,}", f"failed: {reason}", *[""] * (columns - 3))
