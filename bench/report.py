"""Results -> the page docs/benchmarks.md."""

from __future__ import annotations

from typing import Any

from bench.cases import CASES
from bench.store import Results
from bench.tables import advantage, analysis_table, contest_table, cost_table, explorer_table, peak_table

DISTURBED = 0.03  # a control this far from 1 means that the machine was too noisy
FASTER, LESS = 4, 20  # the project's targets against every other tool at 2,048 tokens

INTRODUCTION = """\
# Benchmarks

What a measurement costs, on SmolLM2-135M-Instruct in fp32 unless noted. The benchmark writes this page:

```
make bench                                  # everything; leave the machine idle meanwhile
.venv/bin/python -m bench --quick           # a quick run with short prompts, into build/bench/
.venv/bin/python -m bench --only all-2048   # repeat one case, keep the other results
```
"""

READING = """\
## How to read it

Runs alternate in one process, after a warm-up round; the base runs twice per round. A process's ratio is the median
over its rounds of the measured time divided by the mean of the round's two base times. Every case runs in several
processes, because where a process lands on the machine moves its ratio by a few percent for as long as it lives. A
**ratio** is the median of the processes' ratios; beside it are the lowest, the highest and how many there were. The
**A/A control** is the same for the base's second time divided by its first, so its distance from 1 is what noise alone
does to a ratio. A difference between two ratios that is smaller than this distance means nothing.

Ratios depend on the processor too. The base's attention is torch's fused kernel, which has its own exp; the
measurement's is made of matrix products and torch's exp2. An earlier version used torch's exp, which takes three times
as long as exp2 on the AMD EPYC of this page: all queries cost 1.06 of a plain forward pass there at 2,048 tokens, and
their attention alone 1.25 times SDPA's, where an Intel Xeon had shown 0.97 to 1.03 for the whole forward pass.

The base is `model.base_model(input_ids, use_cache=False)` with SDPA attention under `inference_mode`: no LM head. The
public interface stops after the last layer's attention, which saves the rest of that layer, at most a thirtieth of the
default model. Ratios include this saving; the row "run to its end" shows the cost without it. Models with few layers,
where it would flatter, always run to their end.

For answers, the base is `model.generate` and both sides tokenize and decode. Not included is what attnscope
does once per model: it answers two test prompts together and alone, to see whether prompts can share a batch.

For `TrainerCallback`, the base is one step of the LoRA training in examples/blocks, on its shortest puzzles, so a ratio
is in steps. A training pays for the beginning and the last measurement in any case; those between wait until all of it
is within the share allowed, by default 2 % of the training's time.

**Extra peak memory** is the kernel's high-water mark of a process with a single call, minus what it used before; the
mark is reset after the model is loaded and warmed up on 16 tokens. It is the median of several processes per case.

Contestants do the same work: attention received by each key from all queries and from the last one, mean over rows, in
every layer and head. Each alternates with a plain SDPA forward pass in its own process; TransformerLens and nnsight run
in their own environments. **Faster by** divides the two ratios; **takes less by** divides the extra peaks, including
what a plain forward pass needs anyway; **less by** divides what is beyond that (anything of ours under 10 MiB, the
noise of such a difference, counts as 10). **Largest difference** is between its numbers and attnscope's. The tools are
used as a careful user would use them: each layer reduced while the model runs, no LM head or one position of it, no
weights folded. `output_attentions` and the row "cache" keep every layer's matrix and reduce at the end.
"""


def page(results: Results) -> str:
    parts = [
        INTRODUCTION,
        "## Cost\n",
        *cost_table(results, "cost"),
        "\n## Cost of special kinds of attention\n",
        *cost_table(results, "feature"),
        "\n## Memory\n",
        *peak_table(results, "memory"),
        "\n## The same work done by other tools\n",
        *contest_table(results),
        "\n## Statistics\n",
        "On stored numbers, without a model.\n",
        *analysis_table(results),
        "\n## The explorer\n",
        *explorer_table(results),
        "\n## A long prompt\n",
        "Run once each, so without a control: the ratio of their times is rough. SmolLM2 was trained",
        "on 8,192 tokens; numbers beyond that mean little, but their cost is real. The memory of a single run varies",
        "a lot: at 8,192 tokens, three runs took 331 to 486 MiB, and two of the version before 331 and 439.\n",
        *peak_table(results, "long"),
        "\n" + READING,
        "## Findings\n",
        *_findings(results),
        "\n## Made with\n",
        *_made_with(results),
    ]
    return "\n".join(parts) + "\n"


def _findings(results: Results) -> list[str]:
    noise = {
        name: abs(found["timing"]["control_ratio"] - 1) for name, found in results.cases.items() if "timing" in found
    }
    lines = [f"- Noise: the control furthest from 1 is off by {max(noise.values()):.1%}."] if noise else []
    disturbed = [f"`{name}`" for name, distance in noise.items() if distance > DISTURBED]
    if disturbed:
        lines.append(f"- Too noisy, repeat on a quiet machine (control off by over {DISTURBED:.0%}): ")
        lines[-1] += f"{', '.join(disturbed)}."
    for case in CASES:
        found = results.cases.get(case.name)
        if found is None:
            lines.append(f"- Not measured: {case.title}, {case.tokens:,} tokens (`{case.name}`).")
        elif "failed" in found:
            lines.append(f"- Failed: {case.title}, {found['tokens']:,} tokens: {found['failed']}.")
        elif "timing" in found and case.aim and found["timing"]["ratio"] > float(case.aim):
            timing = found["timing"]
            words = f"{case.title}, {found['tokens']:,} tokens: {timing['ratio']:.3f}"
            words += f", control {timing['control_ratio']:.3f}"
            lines.append(f"- Above its aim of {case.aim}: {words}.")
        elif case.table == "contest" and found["tokens"] >= 2048:
            lines += _short_of_aims(results, case.title, found)
    return lines


def _short_of_aims(results: Results, title: str, found: dict[str, Any]) -> list[str]:
    factors = advantage(results, found)
    if factors is None:
        return []
    faster, less, beyond = factors.words()
    lines = []
    if factors.faster < FASTER:
        bound = found["timing"]["ratio"]  # of a tool that costs no more than a plain forward pass
        lines.append(f"- Short of the aim of {FASTER}x faster: {title}, {faster}; a free measurement: {bound:.1f}x.")
    if factors.less < LESS:
        lines.append(
            f"- Short of the aim of {LESS}x less extra memory: {title}, {less}; beyond a plain forward's {beyond}."
        )
    return lines


def _made_with(results: Results) -> list[str]:
    lines = [f"- {key}: {value}" for key, value in results.machine.items()]
    for name, versions in results.versions.items():
        packages = ", ".join(f"{package} {number}" for package, number in versions.items())
        lines.append(f"- environment of {name}: {packages}")
    elsewhere: dict[str, list[str]] = {}
    for name, found in sorted(results.cases.items()):
        if found["cpu"] != results.machine["cpu"]:
            elsewhere.setdefault(found["cpu"], []).append(f"`{name}`")
    for cpu, names in elsewhere.items():
        lines.append(
            f"- measured with an earlier version, in one process each, on another processor, {cpu}: {', '.join(names)}"
        )
    dates = sorted({found["date"] for found in results.cases.values()})
    if len(dates) > 1:
        lines.append(f"- not all on one day: {', '.join(dates)}; bench/results.json has the date of each case")
    return lines
