"""How the statistics perform where the truth is known: the tables of docs/statistics.md.

`python scripts/simulations.py` draws from distributions; `--real RUN` also resamples the differences of a real run,
shifted so that their mean is zero. Every table says how many simulations it is from.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attnscope.analysis.comparisons import Comparison, comparisons
from attnscope.analysis.discoveries import FALSE_DISCOVERIES, needed
from attnscope.analysis.effects import effects, unpaired_effects
from attnscope.analysis.matching import matched
from attnscope.analysis.one_way import one_way
from attnscope.analysis.ranking import ranked_by_distance
from attnscope.analysis.run import Run
from attnscope.analysis.sides import MASS, base_condition, values_of

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

COUNTS = (8, 12, 20, 40)
SIMULATIONS = 4000  # of intervals
FAMILIES = 400  # of tests made together
HEADS = 270
SKEWED = 2.0
DRAWS: dict[str, Draw] = {
    "normal": lambda chance, shape: chance.normal(0, 1, shape),
    "heavy tails (t, 4 degrees)": lambda chance, shape: chance.standard_t(4, shape),
    "skewed (exponential, skew 2)": lambda chance, shape: chance.exponential(1, shape) - 1,
    "skewed (log-normal, skew 3.7)": lambda chance, shape: chance.lognormal(0, 0.8, shape) - np.exp(0.32),
}
NOTHING: dict[str, Draw] = {
    "normal": DRAWS["normal"],
    "skewed": DRAWS["skewed (exponential, skew 2)"],
    "skewed, heads of very different spread": lambda chance, shape: (
        (chance.exponential(1, shape) - 1) * chance.lognormal(0, 1.5, shape[1])
    ),
    "strongly skewed (gamma, skew 3.2), of different spread": lambda chance, shape: (
        (chance.gamma(0.4, 1, shape) - 0.4) * chance.lognormal(0, 1.5, shape[1])
    ),
    "nearly nothing in 4 of 5 prompts": lambda chance, shape: (
        np.where(chance.random(shape) < 0.2, chance.exponential(1, shape), 0.0) - 0.2 + chance.normal(0, 0.02, shape)
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, help="a run with conditions to compare")
    parser.add_argument("--families", type=int, default=FAMILIES)
    arguments = parser.parse_args()
    intervals_of_draws()
    nothing_in_draws(arguments.families)
    families_of_draws(arguments.families)
    shared_by_all_heads(arguments.families)
    clusters(arguments.families)
    unequal_groups()
    sizes_of_effects()
    if arguments.real is not None:
        run = Run(arguments.real)
        sources = dict(real_differences(run))
        intervals_of_real(sources)
        kinds_of_interval(sources)
        equivalence_of_real(sources)
        clusters_of_real(sources)
        families_of_real(sources, arguments.families)
        families_of_real_clusters(sources, arguments.families // 4)
        ranks(run)
    speed()


def header(first: str, columns: tuple[object, ...], title: str) -> None:
    print(f"\n{title}\n\n| {first} | " + " | ".join(map(str, columns)) + " |\n|---|" + "---|" * len(columns))


def share(flags: NDArray[np.bool_] | list[bool]) -> str:
    return f"{100 * np.mean(flags):.1f} %"


def covered(
    values: Floats,
    seed: int = 0,
    groups: NDArray[np.int64] | None = None,
    pools: Sequence[str] | None = None,
) -> NDArray[np.bool_]:
    found = effects(values, clusters=groups, pools=pools, seed=seed)
    return np.asarray((found.low <= 0) & (found.high >= 0))


def intervals_of_draws() -> None:
    header("differences", COUNTS, f"Coverage of the 95 % interval by n, {SIMULATIONS:,} simulations each")
    for name, draw in DRAWS.items():
        cells = [share(covered(draw(np.random.default_rng(n), (n, SIMULATIONS)))) for n in COUNTS]
        print(f"| {name} | {' | '.join(cells)} |")


def nothing_in_draws(families: int) -> None:
    """How often anything is found among heads without any effect."""
    header("differences", COUNTS, f"Families with any q < 0.05, {HEADS} heads without an effect, {families} of them")
    for name, draw in NOTHING.items():
        cells = []
        for n in COUNTS:
            found = [effects(draw(np.random.default_rng([n, turn]), (n, HEADS)), seed=turn) for turn in range(families)]
            cells.append(share([bool((each.q < FALSE_DISCOVERIES).any()) for each in found]))
        print(f"| {name} | {' | '.join(cells)} |")


def families_of_draws(families: int) -> None:
    """False discoveries and power, a third of the heads having an effect, by its size in standard deviations."""
    header("size of effect", COUNTS, f"Power (false discoveries), {HEADS} heads, {families // 4} families each")
    real = np.arange(HEADS) < HEADS // 3
    for size in (0.0, 0.3, 0.5, 0.8, 1.2):
        cells = []
        for n in COUNTS:
            wrong, found = [], []
            for seed in range(families // 4):
                values = np.random.default_rng([n, seed]).normal(0, 1, (n, HEADS)) + np.where(real, size, 0)
                called = effects(values, seed=seed).q < FALSE_DISCOVERIES
                mistaken = called if size == 0 else called & ~real
                wrong.append(mistaken.sum() / max(1, called.sum()))
                found.append((called & real).sum() / real.sum())
            cells.append(f"{np.mean(wrong):.1%}" if size == 0 else f"{np.mean(found):.0%} ({np.mean(wrong):.1%})")
        print(f"| {size or 'none'} | {' | '.join(cells)} |")


def shared_by_all_heads(families: int) -> None:
    """Differences that all heads share, with large values so rare that a few prompts may have none of them."""
    header(
        "large values in",
        COUNTS,
        f"Families with any q < 0.05 where all {HEADS} heads share one difference, {families} of them",
    )
    for rare in (0.05, 0.1, 0.2):
        cells = []
        for n in COUNTS:
            found = []
            for turn in range(families):
                chance = np.random.default_rng([n, turn])
                shared = np.where(chance.random((n, 1)) < rare, 1.0, 0.0) - rare
                values = shared + chance.normal(0, 0.02, (n, HEADS))
                found.append(bool((effects(values, seed=turn).q < FALSE_DISCOVERIES).any()))
            cells.append(share(found))
        print(f"| {rare:.0%} of prompts | {' | '.join(cells)} |")


def clusters(families: int) -> None:
    """Prompts that are not independent, taken as they are and in clusters."""
    header(
        "prompts", ("coverage, taken singly", "in clusters", "columns with q < 0.05, singly", "in clusters"), "Clusters"
    )
    for groups, copies, own in ((8, 5, 0.1), (20, 2, 0.7), (17, 4, 0.5)):
        chance = np.random.default_rng([groups, copies])
        which = np.repeat(np.arange(groups), copies)
        common = chance.normal(0, 1, (groups, SIMULATIONS))[which]
        values = np.sqrt(1 - own) * common + np.sqrt(own) * chance.normal(0, 1, (groups * copies, SIMULATIONS))
        cells = []
        for given in (None, which):
            cells.append(share(covered(values, groups=given)))
        for given in (None, which):
            called = [
                effects(values[:, start : start + HEADS], clusters=given).q < FALSE_DISCOVERIES
                for start in range(0, min(SIMULATIONS, families * HEADS), HEADS)
            ]
            cells.append(share(np.concatenate(called)))
        print(f"| {groups} x {copies}, {own:.0%} of the variance their own | {' | '.join(cells)} |")


def unequal_groups() -> None:
    columns = ("p < 0.05", "coverage")
    header("prompts and standard deviations", columns, f"Two sets of prompts, {SIMULATIONS:,} simulations each")
    for kind in ("normal", "skewed (exponential, skew 2)", "skewed (log-normal, skew 3.7)"):
        for sizes, spreads in (((8, 40), (3, 1)), ((40, 8), (3, 1)), ((20, 20), (1, 1)), ((12, 30), (1, 3))):
            chance = np.random.default_rng(sizes)
            one, two = (
                spread * DRAWS[kind](chance, (n, SIMULATIONS)) for n, spread in zip(sizes, spreads, strict=True)
            )
            found = unpaired_effects(one, two)
            inside = (found.low <= 0) & (found.high >= 0)
            name = f"{kind}: {sizes[0]} and {sizes[1]}, {spreads[0]} and {spreads[1]}"
            print(f"| {name} | {share(found.p < 0.05)} | {share(inside)} |")


def sizes_of_effects() -> None:
    header("size", COUNTS, f"Coverage of the interval of a size (d_z), {SIMULATIONS:,} simulations each")
    for kind in ("normal", "skewed (exponential, skew 2)"):
        for sign in (1, -1) if kind != "normal" else (1,):
            for size in (0.5, 1.5, 3.0):
                cells = []
                for n in COUNTS:
                    values = sign * DRAWS[kind](np.random.default_rng([n, 3]), (n, SIMULATIONS)) + size
                    found = effects(values)
                    cells.append(share((found.size_low <= size) & (found.size_high >= size)))
                tail = {1: "", -1: ", long tail towards zero"}[sign]
                print(f"| {kind}{tail}, {size:g} | {' | '.join(cells)} |")


def equivalence_of_real(sources: dict[str, Real], rounds: int = 4) -> None:
    """How often heads are shown to be within a margin when their true mean is exactly at it."""
    header("columns", COUNTS, f"Shown within the margin, true mean at the margin, {rounds} draws")
    names = (f"skew above {SKEWED:g}", "skew 1 to 2", "skew below 1")
    rows: dict[str, list[str]] = {name: [] for name in names}
    for n in COUNTS:
        flags: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in names}
        for number, each in enumerate(sources.values()):
            skew, spread = np.abs(skewness(each.values)), each.values.std(0)
            wide = spread >= 0.5 * np.median(spread)
            for turn in range(rounds):
                drawn = np.random.default_rng([n, number, turn]).integers(0, len(each.values), n)
                margin = 2 * float(np.median(spread))
                towards = np.sign((each.values**3).mean(0))  # the long tail points outwards, which is the worst case
                same = effects(each.values[drawn] + towards * margin, pools=each.classes, seed=turn, margin=margin).same
                for name, which in zip(names, (skew > SKEWED, (skew > 1) & (skew <= SKEWED), skew <= 1), strict=True):
                    flags[name].append((same < FALSE_DISCOVERIES)[which & wide])
        for name, every in flags.items():
            rows[name].append(share(np.concatenate(every)))
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


@dataclass(frozen=True)
class Real:
    """Differences of a comparison, less their mean: (prompts, heads of the classes that can be tested)."""

    values: Floats
    classes: list[str]
    """The class of each column."""
    clusters: NDArray[np.int64]
    """The cluster of each prompt."""


def real_differences(run: Run) -> Iterator[tuple[str, Real]]:
    """Of every comparison of conditions."""
    for each in comparisons(run):
        if each.kind in ("condition", "control", "placebo"):
            for queries in run.queries:
                found = _differences(each, queries)
                if found is not None:
                    yield f"{each.name}, {queries}", found


def _differences(comparison: Comparison, queries: str) -> Real | None:
    """None if the edits alone change every class."""
    certain = one_way(comparison.one, comparison.two, queries, MASS)
    matching = matched(comparison.one, comparison.two)
    first = {each.token_class: each for each in values_of(comparison.one, queries, MASS)}
    parts, classes = [], []
    clusters = np.zeros(0, dtype=np.int64)
    for second in values_of(comparison.two, queries, MASS):
        one = first[second.token_class]
        if second.token_class not in certain and one.values.any() and second.values.any():
            prompts, mine, theirs = np.intersect1d(one.prompts, second.prompts, return_indices=True)
            clusters = comparison.one.run.clusters(prompts)
            parts.append(second.values[theirs][:, *matching.two] - one.values[mine][:, *matching.one])
            classes += [second.token_class] * parts[-1].shape[1]
    if not parts:
        return None
    whole = np.concatenate(parts, 1)
    varies = np.flatnonzero(whole.std(0) > 0)
    return Real((whole - whole.mean(0))[:, varies], [classes[column] for column in varies], clusters)


def skewness(values: Floats) -> Floats:
    apart = values - values.mean(0)
    return np.asarray((apart**3).mean(0) / (apart**2).mean(0) ** 1.5)


def intervals_of_real(sources: dict[str, Real], rounds: int = 8) -> None:
    """Columns of all comparisons, prompts drawn from the run's."""
    header("columns", COUNTS, f"Coverage on resampled differences of the run, {rounds} draws of every column")
    strata = [_strata(each) for each in sources.values()]
    rows: dict[str, list[str]] = {name: [] for name in strata[0]}
    for n in COUNTS:
        flags: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in rows}
        for number, each in enumerate(sources.values()):
            for turn in range(rounds):
                drawn = np.random.default_rng([n, number, turn]).integers(0, len(each.values), n)
                inside = covered(each.values[drawn], seed=turn, pools=each.classes)  # together, as in a comparison
                for name, which in strata[number].items():
                    flags[name].append(inside[which])
        for name, every in flags.items():
            rows[name].append(share(np.concatenate(every)))
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


def _strata(each: Real) -> dict[str, NDArray[np.bool_]]:
    """Columns by their skew and by their spread relative to the median column's.

    A column that hardly varies is covered by the error that a typical one lends it, so those are shown apart.
    """
    skew, spread = np.abs(skewness(each.values)), each.values.std(0)
    spread = spread / np.median(spread)
    skewed = skew > SKEWED
    return {
        f"skew above {SKEWED:g}": skewed,
        f"skew above {SKEWED:g}, spread below a tenth of the median": skewed & (spread < 0.1),
        f"skew above {SKEWED:g}, spread above that": skewed & (spread >= 0.1),
        f"skew above {SKEWED:g}, spread above half of the median": skewed & (spread >= 0.5),
        f"skew above {2 * SKEWED:g}, spread above a tenth of the median": (skew > 2 * SKEWED) & (spread >= 0.1),
        "the others": ~skewed,
    }


def kinds_of_interval(sources: dict[str, Real], rounds: int = 4, columns: int = 200) -> None:
    """Other intervals than the one that is used, on heads with strong skew; some columns of each comparison."""
    header(
        "interval",
        COUNTS,
        f"Coverage on resampled differences with skew above {SKEWED:g} and at least half of the median spread, "
        f"{rounds} draws of some",
    )
    rows: dict[str, list[str]] = {}
    for n in COUNTS:
        flags: dict[str, list[NDArray[np.bool_]]] = {}
        for number, each in enumerate(sources.values()):
            chance = np.random.default_rng([n, number])
            spread = each.values.std(0)
            skewed = np.flatnonzero((np.abs(skewness(each.values)) > SKEWED) & (spread >= 0.5 * np.median(spread)))
            some = chance.permutation(skewed)[:columns]
            for turn in range(rounds):
                drawn = each.values[chance.integers(0, len(each.values), n)]
                used = covered(drawn, seed=turn, pools=each.classes)[some]
                inside = {**_other_intervals(drawn[:, some], chance), "the one used": used}
                varies = drawn[:, some].std(0) > 0
                for name, found in inside.items():
                    flags.setdefault(name, []).append(found[varies])
        for name, found in flags.items():
            rows.setdefault(name, []).append(share(np.concatenate(found)))
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


def _other_intervals(values: Floats, chance: np.random.Generator, draws: int = 1999) -> dict[str, NDArray[np.bool_]]:
    """Whether intervals of other kinds contain zero, by column."""
    n, mean = len(values), values.mean(0)
    apart = values - mean
    error = values.std(0, ddof=1) / n**0.5
    weights = chance.multinomial(n, np.full(n, 1 / n), draws).astype(np.float64)
    shift = weights @ apart / n  # (draws, columns)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(np.maximum(weights @ apart**2 / n - shift**2, 0.0) / (n - 1))
        t = np.nan_to_num(shift / spread, posinf=np.inf, neginf=-np.inf)
        bias = stats.norm.ppf(np.clip((shift < 0).mean(0), 1 / draws, 1 - 1 / draws))
        acceleration = (apart**3).sum(0) / (6 * (apart**2).sum(0) ** 1.5)
    half = stats.t.ppf(0.975, n - 1) * error
    ends = {"Student's t": (mean - half, mean + half)}
    ends["percentile"] = tuple(mean + np.quantile(shift, q, axis=0) for q in (0.025, 0.975))
    levels = [bias + stats.norm.ppf(q) for q in (0.025, 0.975)]
    shares = [stats.norm.cdf(bias + z / (1 - acceleration * z)) for z in levels]
    ordered = np.sort(shift, 0)
    places = [np.clip(np.nan_to_num(q) * draws, 0, draws - 1).astype(int) for q in shares]
    ends["BCa"] = tuple(mean + np.take_along_axis(ordered, each[None], 0)[0] for each in places)
    low, high = np.quantile(t, [0.025, 0.975], axis=0, method="nearest")
    ends["bootstrap-t, equal-tailed"] = (mean - high * error, mean - low * error)
    far = np.quantile(np.abs(t), 0.95, axis=0, method="nearest")
    ends["bootstrap-t, symmetric"] = (mean - far * error, mean + far * error)
    return {name: np.asarray((low <= 0) & (high >= 0)) for name, (low, high) in ends.items()}


def clusters_of_real(sources: dict[str, Real], rounds: int = 8) -> None:
    """Whole clusters drawn from the run's, as large as they are there."""
    counts = (8, 12, 17, 30)
    header("prompts", counts, f"Coverage where whole clusters of the run are drawn, by their number, {rounds} draws")
    rows: dict[str, list[str]] = {"taken singly": [], "in clusters": []}
    for n in counts:
        flags: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in rows}
        for number, each in enumerate(sources.values()):
            names = np.unique(each.clusters)
            for turn in range(rounds):
                drawn, groups = _drawn_clusters(each, names, n, [n, number, turn])
                for name, given in zip(rows, (None, groups), strict=True):
                    flags[name].append(covered(drawn, seed=turn, groups=given, pools=each.classes))
        for name in rows:
            rows[name].append(share(np.concatenate(flags[name])))
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


def families_of_real(sources: dict[str, Real], families: int) -> None:
    """How often anything is found where there is nothing, among all heads and classes of one comparison."""
    header(
        "differences", COUNTS, f"Families with any q < 0.05, {families} of them, on resampled differences of the run"
    )
    names = list(sources)
    for kind in ("as they are, mean zero", "made symmetric"):
        cells = []
        for n in COUNTS:
            flags, tests = [], 0
            for turn in range(families):
                each = sources[names[turn % len(names)]]
                chance = np.random.default_rng([n, turn, kind == "made symmetric"])
                drawn = each.values[chance.integers(0, len(each.values), n)]
                if kind == "made symmetric":
                    drawn = drawn * chance.choice([-1.0, 1.0], (n, 1))
                tests = drawn.shape[1]
                flags.append(bool((effects(drawn, pools=each.classes, seed=turn).q < FALSE_DISCOVERIES).any()))
            together = needed(2.0 ** (1 - n), tests)
            cells.append(share(flags) + (f" (q < 0.05 takes {together} of {tests})" if together > 1 else ""))
        print(f"| {kind} | {' | '.join(cells)} |")


def families_of_real_clusters(sources: dict[str, Real], families: int) -> None:
    """How often anything is found where there is nothing, whole clusters being drawn; one row per comparison."""
    counts = (8, 12, 17, 30)
    header("comparison", counts, f"Families with any q < 0.05, {families} of each, whole clusters of the run drawn")
    for number, (name, each) in enumerate(sources.items()):
        names, cells = np.unique(each.clusters), []
        for n in counts:
            flags = []
            for turn in range(families):
                drawn, groups = _drawn_clusters(each, names, n, [n, number, turn])
                found = effects(drawn, clusters=groups, pools=each.classes, seed=turn)
                flags.append(bool((found.q < FALSE_DISCOVERIES).any()))
            cells.append(share(flags))
        print(f"| {name} | {' | '.join(cells)} |")


def _drawn_clusters(each: Real, names: Floats, n: int, seed: list[int]) -> tuple[Floats, NDArray[np.int64]]:
    """The differences of n clusters drawn at random, and the cluster of each prompt."""
    prompts = [np.flatnonzero(each.clusters == name) for name in np.random.default_rng(seed).choice(names, n)]
    return each.values[np.concatenate(prompts)], np.repeat(np.arange(n), [len(some) for some in prompts])


def ranks(run: Run) -> None:
    """How reliable a ranking by distance is, and by what goes beyond the control."""
    columns = ("reliability", "beyond", "top head, half it is chosen on", "other half")
    model, base, queries = run.models[0], base_condition(run), run.queries[0]
    header("conditions", columns, f"Heads of {model} ranked by distance, attention from {queries}")
    pairs = [
        (each.one.condition, each.two.condition)
        for each in comparisons(run)
        if each.kind in ("condition", "control", "placebo") and each.one.model == model
    ]
    drawn = [name for name in run.conditions if run.study.condition(name).redraws is not None]
    for pair in [*pairs, *((base, name) for name in drawn if base is not None)]:
        ranked = ranked_by_distance(run, model, queries, "visible", *pair)
        first, second = (ranked.halves or {}).get(ranked.top(1)[0], (np.nan, np.nan))
        beyond = " and ".join(ranked.beyond) if ranked.beyond else "nothing"
        numbers = f"{ranked.reliability or 0:.3f} | {beyond} | {first:.2e} | {second:.2e}"
        print(f"| {' and '.join(pair)} | {numbers} |")


def speed() -> None:
    values = np.random.default_rng(0).normal(0.02, 1, (500, 1024))
    times = []
    for _ in range(7):
        start = time.perf_counter()
        effects(values)
        times.append(time.perf_counter() - start)
    print(f"\n32 x 32 heads, 500 prompts: median {np.median(times):.2f} s of 7 ({min(times):.2f} to {max(times):.2f})")


if __name__ == "__main__":
    main()
