"""Each test is in one tier, and a unit test can't use real weights by accident."""

from __future__ import annotations

import pytest

import attnscope
from tests.conftest import SMOLLM2

TIERS = ("unit", "command", "model", "browser")


def test_every_test_is_in_exactly_one_tier(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        assert sum(item.get_closest_marker(tier) is not None for tier in TIERS) == 1, item.nodeid


def test_a_unit_test_that_loads_a_built_in_model_fails() -> None:
    with pytest.raises(attnscope.AttnscopeError, match=f"can't download {SMOLLM2}"):
        attnscope.load(SMOLLM2)
