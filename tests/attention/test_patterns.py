"""Patterns are summed exactly: on any architecture, in padded batches, for one query and for all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnscope.attention.meter import Meter, Request
from attnscope.measures import MEASURES
from attnscope.measures.patterns import MOST, NEAR, PATTERNS
from attnscope.measures.received import RECEIVED
from tests.attention import architectures, reference
from tests.tolerances import SHALLOW, SUMMED

NAMES = [
    "llama",
    "gemma2, softcap and window",
    "mistral, window",
    "gpt-oss, sinks and window",
    "llama4 text, chunks",
    "bert",
    "falcon",
    "gpt-neo, window",
]
LONG = torch.randint(3, 12, (40,), generator=torch.Generator().manual_seed(2)).tolist()  # few kinds, so many repeat


def masks(ids: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """(patterns, queries, keys), written out by hand."""
    count = len(ids)
    made = np.zeros((len(PATTERNS), count, count))
    for query in range(count):
        same = [key for key in range(query) if ids[key] == ids[query]][-MOST:]
        made[PATTERNS.index("previous"), query, max(0, query - 1) : query] = 1
        made[PATTERNS.index("next"), query, query + 1 : query + 2] = 1
        made[PATTERNS.index("repeated"), query, same] = 1
        made[PATTERNS.index("induction"), query, [key + 1 for key in same if key + 1 < query]] = 1
        if query >= 2 * NEAR:
            made[PATTERNS.index("local"), query, query - NEAR + 1 : query + 1] = 1
    return made


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_the_pairs_are_those_of_the_definitions(ids: list[int]) -> None:
    by_hand = masks(ids)
    for place, name in enumerate(PATTERNS):
        pairs = MEASURES.members[name].pairs
        assert pairs is not None
        flags = np.zeros((len(ids), len(ids)))
        flags[pairs(ids)] += 1
        assert (flags == by_hand[place]).all()


def meter_on(name: str) -> Meter:
    return Meter(architectures.tiny(name), name, 3, {}, lambda count: LONG[: min(count, 40)])


REQUEST = Request(["all", "last"], [0, 1, 2], (RECEIVED, *(MEASURES.members[name] for name in PATTERNS)))


@pytest.mark.parametrize("name", NAMES)
def test_a_pattern_receives_what_eager_attention_gives_its_keys(name: str) -> None:
    meter = meter_on(name)
    prompts = [LONG, LONG[5:30], [7]]
    for ids, numbers in zip(prompts, meter.read(prompts, REQUEST), strict=True):
        wanted = torch.from_numpy(masks(ids))
        attentions = reference.eager(meter.model, {"input_ids": torch.tensor([ids])}).attentions
        for layer, attention in enumerate(attentions):
            sums = torch.einsum("hqk,pqk->hpq", attention[0].double(), wanted)
            for place, pattern in enumerate(PATTERNS):
                having = numbers.arrays[f"{pattern}.defined"][numbers.arrays["view"][layer]]  # (heads or 1, groups)
                want = torch.stack([sums[:, place].mean(-1), sums[:, place, -1]], -1).float()
                got = torch.from_numpy(numbers.arrays[pattern][layer] * having)
                torch.testing.assert_close(got, want, atol=SHALLOW, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_what_uniform_attention_gives_counts_visible_keys_only(name: str) -> None:
    meter = meter_on(name)
    arrays = meter.read([LONG], REQUEST)[0].arrays
    attentions = reference.eager(meter.model, {"input_ids": torch.tensor([LONG])}).attentions
    wanted = torch.from_numpy(masks(LONG))
    for layer, attention in enumerate(attentions):
        visible = (attention[0] > 0).double()  # random weights leave nothing visible at zero
        hits = torch.einsum("hqk,pqk->hpq", visible, wanted)
        expected = (hits / visible.sum(-1)[:, None]).mean(-1)
        having = (hits > 0).double().mean(-1)
        view = arrays["view"][layer]
        for place, pattern in enumerate(PATTERNS):
            got = torch.from_numpy(arrays[f"{pattern}.defined"][view, :, 0]).double()
            torch.testing.assert_close(got.expand(len(having)), having[:, place], atol=SUMMED, rtol=0)
            uniform = torch.from_numpy(arrays[f"{pattern}.uniform"][view, :, 0]).double() * got
            torch.testing.assert_close(uniform.expand(len(having)), expected[:, place], atol=SUMMED, rtol=0)
