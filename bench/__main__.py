"""`python -m bench [--quick] [--only NAME]`: measures, prints, writes docs/benchmarks.md and bench/results.json."""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from pathlib import Path

from bench.cases import CASES, Case
from bench.contestants import CONTESTANTS
from bench.environments import ENVIRONMENTS, SetupError
from bench.machine import description, versions
from bench.prompts import ROOT
from bench.report import page
from bench.session import ChildError, Session
from bench.store import Results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short prompts, two rounds; writes to build/bench/")
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES], help="this case (repeatable)")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if arguments.only is None or case.name in arguments.only]
    home = ROOT / "build" / "bench"
    written = home / "benchmarks.md" if arguments.quick else ROOT / "docs" / "benchmarks.md"
    results = Results.read((home if arguments.quick else ROOT / "bench") / "results.json")
    results.machine = description()
    with tempfile.TemporaryDirectory(prefix="attnscope-bench-") as scratch:
        session = Session(quick=arguments.quick, scratch=Path(scratch))
        for number, case in enumerate(chosen, 1):
            print(f"[{number}/{len(chosen)}] {case.name}: {case.title}", flush=True)
            _measure(session, case, results)
            results.versions = _environments()
            results.write()
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(page(results))
    print(f"wrote {written.relative_to(ROOT)} and {results.path.relative_to(ROOT)}")
    failed = [case.name for case in chosen if "failed" in results.cases[case.name]]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _measure(session: Session, case: Case, results: Results) -> None:
    tokens, started = session.tokens(case.tokens), time.monotonic()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    outcome = {"tokens": tokens, "date": date, "cpu": results.machine["cpu"]}
    try:
        outcome |= case.run(session, tokens)
    except (ChildError, SetupError) as problem:
        outcome["failed"] = str(problem)
        print(f"    failed: {problem}", flush=True)
    results.cases[case.name] = outcome
    print(f"    {_words(outcome)} ({time.monotonic() - started:.0f} s in all)", flush=True)


def _words(outcome: dict[str, object]) -> str:
    words = [f"{outcome['tokens']:,} tokens"]
    timing, peak = outcome.get("timing"), outcome.get("peak")
    if isinstance(timing, dict):
        words.append(
            f"ratio {timing['ratio']:.3f}, control {timing['control_ratio']:.3f}, {len(timing['ratios'])} processes"
        )
    if isinstance(peak, dict):
        words.append(f"extra peak {peak['extra_mib']:,.0f} MiB in {peak['seconds']:.1f} s")
    if "difference" in outcome:
        words.append(f"largest difference {outcome['difference']:.1e}")
    return "; ".join(words)


def _environments() -> dict[str, dict[str, str]]:
    by_environment = {"attnscope": versions(Path(sys.executable))}
    for contestant in CONTESTANTS.values():
        if contestant.requirement is not None:
            name = contestant.requirement.split("=")[0]
            python = ENVIRONMENTS / name / "bin" / "python"
            if python.exists():
                by_environment[name] = versions(python)
    return by_environment


if __name__ == "__main__":
    sys.exit(main())
