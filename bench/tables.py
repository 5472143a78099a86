"""Results -> Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from bench.cases import CASES, Case, Table
from bench.store import Results


def cost_table(results: Results, table: Table) -> list[str]:
    lines = _head("what is measured", "tokens", "ratio", "middle half", "A/A control", "aim", "median", "against")
    for case, found in _rows(results, table):
        if "failed" in found:
            lines.append(_failed(case, found, 8))
            continue
        timing = found["timing"]
        cells = [case.title, f"{found['tokens']:,}", f"**{timing['ratio']:.3f}**", _spread(timing)]
        cells += [f"{timing['control_ratio']:.3f}", f"<= {case.aim}" if case.aim else "", _seconds(timing["arm"])]
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


def contest_table(results: Results) -> list[str]:
    names = ["tool", "tokens", "ratio to plain", "middle half", "A/A control", "attnscope is faster by"]
    names += ["extra peak memory", "beyond plain's", "attnscope takes less by", "largest difference"]
    lines = _head(*names)
    for case, found in _rows(results, "contest"):
        if "failed" in found:
            lines.append(_failed(case, found, len(names)))
            continue
        timing, extra = found["timing"], found["peak"]["extra_mib"]
        ours = found["contestant"] == "attnscope_meter"
        factors = advantage(results, found)
        faster, less = ("", "") if factors is None else (f"**{factor:.1f}x**" for factor in factors)
        cells = [case.title, f"{found['tokens']:,}", f"{timing['ratio']:.3f}", _spread(timing)]
        cells += [f"{timing['control_ratio']:.3f}", faster, _mib(extra), _beyond(results, found), less]
        lines.append(_row(*cells, "" if ours else f"{found['difference']:.1e}"))
    return lines


def advantage(results: Results, found: dict[str, Any]) -> tuple[float, float] | None:
    """How many times faster attnscope is than this contestant, and how many times less extra memory it takes."""
    own = results.of("attnscope_meter", found["tokens"], timed=True)
    if own is None or found["contestant"] == "attnscope_meter":
        return None
    faster = found["timing"]["ratio"] / own["timing"]["ratio"]
    return faster, found["peak"]["extra_mib"] / max(1.0, own["peak"]["extra_mib"])


def _rows(results: Results, table: Table) -> Iterable[tuple[Case, dict[str, Any]]]:
    return [(case, results.cases[case.name]) for case in CASES if case.table == table and case.name in results.cases]


def _beyond(results: Results, found: dict[str, Any]) -> str:
    plain = results.of("plain", found["tokens"], timed=False)
    if plain is None or found["contestant"] == "plain":
        return ""
    return f"{found['peak']['extra_mib'] - plain['peak']['extra_mib']:+,.0f} MiB"


def _spread(timing: dict[str, Any]) -> str:
    return f"{timing['low']:.3f} to {timing['high']:.3f}"


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
