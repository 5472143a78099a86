"""Patterns are summed exactly: on any architecture, in padded batches, for one query and for all."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnscope.attention.meter import Meter
from attnscope.measures.patterns import MOST, NEAR, PATTERNS, pattern_pairs
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
    queries, keys, patterns = pattern_pairs(ids)
    made = np.zeros((len(PATTERNS), len(ids), len(ids)))
    made[patterns, queries, keys] += 1
    assert (made == masks(ids)).all()
    assert all(one <= two for one, two in pairwise(queries.tolist()))


@pytest.mark.parametrize("name", NAMES)
def test_a_pattern_receives_what_eager_attention_gives_its_keys(name: str) -> None:
    model = architectures.tiny(name)
    meter = Meter(model, name, 3, {})
    parity = meter.proven(LONG[:12])
    prompts = [LONG, LONG[5:30], [7]]
    found = meter.read(prompts, ["all", "last"], [0, 1, 2], parity=parity, patterns=True)
    for ids, one in zip(prompts, found, strict=True):
        assert one.patterns is not None
        wanted = torch.from_numpy(masks(ids))
        attentions = reference.eager(model, {"input_ids": torch.tensor([ids])}).attentions
        for layer, attention in enumerate(attentions):
            sums = torch.einsum("hqk,pqk->hpq", attention[0].double(), wanted)
            want = torch.stack([sums.mean(-1), sums[..., -1]], -1).float()
            torch.testing.assert_close(torch.from_numpy(one.patterns[layer, ..., 0]), want, atol=SHALLOW, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_uniform_gaze_gives_counts_visible_keys_only(name: str) -> None:
    model = architectures.tiny(name)
    meter = Meter(model, name, 3, {})
    found = meter.read([LONG], ["all"], [0, 1, 2], parity=meter.proven(LONG[:12]), patterns=True)[0]
    attentions = reference.eager(model, {"input_ids": torch.tensor([LONG])}).attentions
    wanted = torch.from_numpy(masks(LONG))
    for layer, attention in enumerate(attentions):
        visible = (attention[0] > 0).double()  # random weights leave nothing visible at zero
        hits = torch.einsum("hqk,pqk->hpq", visible, wanted)
        expected = (hits / visible.sum(-1)[:, None]).mean(-1)
        having = (hits > 0).double().mean(-1)
        assert found.patterns is not None
        numbers = torch.from_numpy(found.patterns[layer, :, :, 0]).double()
        torch.testing.assert_close(numbers[..., 1], expected, atol=SUMMED, rtol=0)
        torch.testing.assert_close(numbers[..., 2], having, atol=SUMMED, rtol=0)
