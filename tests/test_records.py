"""A record shows itself in a notebook: its text shaded, its strongest heads named, nothing that text could break."""

from __future__ import annotations

import copy
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from attnscope.errors import AttnscopeError
from attnscope.lens import load
from attnscope.records import RECEIVED, SEEN, VIEW, Record
from attnscope.text.tokens import Token
from tests.models import tiny

TEXTS = ["<s>", "<script>", " & ", "'\"", "x"]


def handmade(received: np.ndarray) -> Record:
    """Layers 3 and 7, heads 0 and 2, one query group."""
    spots = np.cumsum([0, *map(len, TEXTS)])
    tokens = [Token(n, n, text, int(spots[n]), int(spots[n + 1])) for n, text in enumerate(TEXTS)]
    seen = np.ones((1, 1, 1, len(TEXTS)), dtype=np.float32)
    arrays = {RECEIVED: received, VIEW: np.zeros(2, dtype=np.int32), SEEN: seen}
    return Record("".join(TEXTS), tokens, [3, 7], [0, 2], ["last"], arrays)


def test_the_strongest_heads_are_listed_first_by_their_own_numbers() -> None:
    received = np.full((2, 2, 1, 5), 0.01, dtype=np.float32)
    received[..., 0] = 0.5  # every head looks at the first token most, which says nothing about the heads
    received[1, 1, 0, 4] = 0.4
    received[0, 0, 0, 2] = 0.3
    page = handmade(received)._repr_html_()
    rows = re.findall(r"<tr>(.*?)</tr>", page)[1:]
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
    assert cells[0] == ["7", "2", "&#x27;x&#x27;", "4", "0.400"]
    assert cells[1][:2] == ["3", "0"]
    assert cells[1][3:] == ["2", "0.300"]


def test_the_shade_is_the_share_of_the_largest_mean_and_the_first_token_has_none() -> None:
    received = np.zeros((2, 2, 1, 5), dtype=np.float32)
    received[..., 0], received[..., 1], received[..., 2] = 0.6, 0.32, 0.08
    shades = [float(each) for each in re.findall(r"rgba\(\d+,\d+,\d+,([0-9.]+)\)", handmade(received)._repr_html_())]
    np.testing.assert_allclose(shades, [0, 0.85, 0.425, 0, 0], atol=0.006)


def test_text_is_text() -> None:
    page = handmade(np.full((2, 2, 1, 5), 0.2, dtype=np.float32))._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def measured() -> Record:
    record = handmade(np.full((2, 2, 1, 5), 0.2, dtype=np.float32))
    entropy = np.arange(4, dtype=np.float32).reshape(2, 2, 1) / 4
    return replace(record, arrays={**record.arrays, "entropy": entropy, "entropy.uniform": entropy[:1]})


def test_one_number_is_a_number() -> None:
    entropy = measured()["entropy"]
    one = entropy.at(layer=7, head=2, queries="last")
    assert float(one) == 0.75
    assert repr(one) == "Labelled(0.75)"
    assert repr(entropy.at(layer=7)) == "Labelled(head: 2, queries: 1)"
    with pytest.raises(
        AttnscopeError, match=r"an array with axes is not one number.*choose.*at\(head=\.\.\., queries=\.\.\.\)"
    ):
        float(entropy.at(layer=7))


def test_a_measure_that_is_taken_for_an_attribute_is_answered_with_how_to_read_it() -> None:
    record = measured()
    with pytest.raises(AttributeError, match=r"no attribute 'entropy': read it as record\['entropy'\]$"):
        _ = record.entropy  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'entrpy': near: entropy.*record\['received'\]"):
        _ = record.entrpy  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'recieved': near: received"):
        _ = record.recieved  # type: ignore[attr-defined]
    assert not hasattr(record, "_repr_png_")
    assert copy.deepcopy(record).measures == pickle.loads(pickle.dumps(record)).measures == record.measures  # noqa: S301


def test_a_measure_that_no_query_has_is_no_number(tmp_path: Path) -> None:
    tiny.save_model(tmp_path)
    record = load(str(tmp_path)).measure("a b c", measures=["local", "next", "entropy"])
    for name in ("local", "next"):  # too short for the one, no encoder for the other
        assert (record.defined(name).values == 0).all()
        assert np.isnan(record[name].values).all()
        assert set(record.head_table().filter(pl.col("measure") == name)["value"]) == {None}
    shown = json.loads(json.dumps(record.as_json(), allow_nan=False))
    assert shown["next"] == [[[None]] * 4] * 2
    assert np.isfinite(record["entropy"].values).all()
    assert np.isfinite(shown["entropy"]).all()
