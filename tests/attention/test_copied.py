"""Which key is copied, as the full matrix says: on any architecture, beside pads, for few rows and for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import attnscope
from attnscope import AttnscopeError
from attnscope.attention.ask import Ask, token_ids
from attnscope.attention.backends.backend import Backend
from attnscope.attention.backends.blocked import BLOCKED
from attnscope.attention.backends.reference import REFERENCE, attention_matrix
from attnscope.attention.backends.rows import ROWS
from attnscope.attention.call import Call
from attnscope.attention.meter import Meter, Request
from attnscope.attention.uniform import view_numbers
from attnscope.attention.view import look
from attnscope.measures import MEASURES, Measure
from attnscope.measures.received import RECEIVED
from attnscope.records import DEFINED, UNIFORM
from tests.attention import architectures, reference
from tests.attention.running import prompt, written
from tests.models import tiny
from tests.tolerances import SUMMED

NAMES = [
    "llama",
    "qwen2",
    "mistral, window",
    "gemma2, softcap and window",
    "gpt-oss, sinks and window",
    "llama4 text, chunks",
    "bloom",
    "falcon, alibi",
    "mpt",
    "bert",
]
TEXT = torch.randint(3, 8, (64,), generator=torch.Generator().manual_seed(4)).tolist()  # few kinds, so much is copied
NEAR = 1e-5  # weights this close may change places by rounding
COPIED = MEASURES.members["copied"]

Floats = NDArray[np.float64]


def by_hand(matrix: Any, ids: list[int], rows: list[int], places: list[int]) -> tuple[Floats, Floats, float]:
    """(heads, keys) of the group `rows`; (heads,) what near-ties could change; the share of rows with a value.

    matrix (heads, queries, keys); places: of the tokens, pads left out. rows: among the places.
    """
    heads, _, keys = matrix.shape
    copied, loose, having = np.zeros((heads, keys)), np.zeros(heads), 0
    for row in rows:
        if row + 1 == len(places):
            continue
        having += 1
        query, coming = places[row], ids[places[row + 1]]
        for head in range(heads):
            weights = matrix[head, query].tolist()
            top = max(range(keys), key=lambda key: (weights[key], -key))
            if top <= query and ids[top] == coming:
                copied[head, top] += 1
            loose[head] += sorted(weights)[-1] - sorted(weights)[-2] <= NEAR if keys > 1 else 0
    many = max(1, having)
    return copied / many, loose / many, having / len(rows)


def agrees(got: Any, want: Floats, loose: Floats) -> None:
    apart = np.abs(np.asarray(got, dtype=np.float64) - want).max(-1)
    assert (apart <= loose + SUMMED).all(), (apart, loose)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_copied_is_what_the_full_matrix_says_for_all_rows_and_for_few(name: str) -> None:
    meter = Meter(architectures.tiny(name), name, 3, {}, lambda count: TEXT[: min(count, 64)])
    prompts = [TEXT, TEXT[5:30], TEXT[3:5]]
    some = [{"some": sorted({0, len(ids) // 2, len(ids) - 2})} for ids in prompts]
    for queries in (["all", "last", "some"], ["last", "some"]):
        numbers = meter.read(prompts, Request(queries, [0, 1, 2], (RECEIVED, COPIED)), some)
        for ids, mine, each in zip(prompts, some, numbers, strict=True):
            rows = {"all": list(range(len(ids))), "last": [len(ids) - 1], **mine}
            attentions = reference.eager(meter.model, {"input_ids": torch.tensor([ids])}).attentions
            for layer, matrix in enumerate(attentions):
                for place, group in enumerate(queries):
                    want, loose, share = by_hand(matrix[0], ids, rows[group], list(range(len(ids))))
                    agrees(each.arrays["copied"][layer][:, place], want, loose)
                    view = each.arrays["view"][layer]
                    np.testing.assert_allclose(each.arrays["copied.defined"][view][:, place], share, atol=SUMMED)
    assert numbers[0].arrays["copied"].sum() > 0


@pytest.mark.parametrize("name", NAMES)
def test_uniform_attention_copies_by_chance(name: str) -> None:
    meter = Meter(architectures.tiny(name), name, 3, {}, lambda count: TEXT[: min(count, 64)])
    ids = TEXT[:40]
    arrays = meter.read([ids], Request(["all"], [0, 1, 2], (RECEIVED, COPIED)))[0].arrays
    attentions = reference.eager(meter.model, {"input_ids": torch.tensor([ids])}).attentions
    for layer, matrix in enumerate(attentions):
        visible = (matrix[0] > 0).double().numpy()  # random weights leave nothing visible at zero
        want = np.zeros((len(visible), len(ids)))
        for query in range(len(ids) - 1):
            for key in range(query + 1):
                if ids[key] == ids[query + 1]:
                    want[:, key] += visible[:, query, key] / visible[:, query].sum(-1)
        got = arrays[f"copied{UNIFORM}"][arrays["view"][layer]][:, 0]
        np.testing.assert_allclose(np.broadcast_to(got, want.shape), want / (len(ids) - 1), atol=SUMMED)


@pytest.mark.parametrize("side", ["none", "left", "right", "middle"])
@pytest.mark.parametrize("name", ["llama", "mistral, window", "bloom", "bert"])
def test_beside_pads_the_next_token_is_the_next_of_the_text(name: str, side: str) -> None:
    model, ids = architectures.tiny(name), torch.tensor([TEXT[:24], TEXT[24:48]])
    mask = torch.ones_like(ids)
    if side != "none":
        mask[0, {"left": slice(0, 5), "right": slice(19, None), "middle": slice(9, 12)}[side]] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    with attnscope.record(model, queries=["all", "last"], measures=["copied"]) as record, torch.no_grad():
        model(**inputs)
    (step,) = record.steps
    attentions = reference.eager(model, inputs).attentions
    for row in range(2):
        places = mask[row].nonzero().flatten().tolist()
        for layer in range(3):
            every = list(range(len(places)))
            for group, rows in (("all", every), ("last", every[-1:])):
                want, loose, share = by_hand(attentions[layer][row], ids[row].tolist(), rows, places)
                at: dict[str, int | str] = {"prompt": row, "layer": layer, "queries": group}
                got = step["copied"].at(**at).values
                if share:
                    agrees(got, want, loose)
                else:
                    assert np.isnan(got).all()
                np.testing.assert_allclose(step.defined("copied").at(**at).values, share, atol=SUMMED)


SIZES = st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(2, 34))


@settings(deadline=None, max_examples=50)
@given(
    sizes=SIZES,
    seed=st.integers(0, 99),
    block=st.integers(1, 17),
    window=st.sampled_from([None, 1, 4]),
    way=st.sampled_from([BLOCKED, REFERENCE, ROWS]),
)
def test_every_backend_agrees_with_the_definition_however_rows_are_cut(
    sizes: tuple[int, int, int, int], seed: int, block: int, window: int | None, way: Backend
) -> None:
    batch, kv_heads, group, length = sizes
    chance = torch.Generator().manual_seed(seed)
    query = torch.randn(batch, kv_heads * group, length, 8, generator=chance)
    key, value = (torch.randn(batch, kv_heads, length, 8, generator=chance) for _ in range(2))
    ids = torch.randint(0, 4, (batch, length), generator=chance).tolist()
    call = Call(query, key, value, None, True, 0.5, window=window)
    rows = torch.arange(length) if way is REFERENCE or length < 16 else torch.tensor([3, length - 1])
    way = BLOCKED if way is ROWS and len(rows) == length else way
    view = look(call, rows, block=block)
    weights = torch.full((batch, 1, len(rows)), 1 / len(rows))
    tokens = [token_ids(each, length, None, query.device) for each in ids]
    ask = Ask(weights, rows, False, (RECEIVED, COPIED), ids=tokens)
    assert way.unsupported(call, view, ask) is None
    sums = way.attend(call, view, ask).values["copied"][:, :, 0]
    share = view_numbers(view, ask, length)[f"copied{DEFINED}"]
    whole = attention_matrix(call, look(call, torch.arange(length)))
    for prompt_number, matrix in enumerate(whole):
        want, loose, having = by_hand(matrix, ids[prompt_number], rows.tolist(), list(range(length)))
        agrees(sums[prompt_number], want * having, loose)
        np.testing.assert_allclose(share[prompt_number], having, atol=SUMMED)


def test_a_head_that_looks_at_what_comes_next_copies_all_of_it() -> None:
    """Known answer: the second half of a text repeats the first; every query's weight lies where its next token was."""
    ids = [11, 12, 13, 14, 15, 11, 12, 13, 14, 15]
    matrix = torch.zeros(1, 10, 10)
    for query in range(10):
        matrix[0, query, query - 4 if query >= 4 else 0] = 1
    tokens = token_ids(ids, 10, None, matrix.device)
    assert COPIED.reference is not None
    assert COPIED.block is not None
    q = k = torch.arange(10)
    for values in (COPIED.reference(matrix, tokens), COPIED.block(matrix, q, k, tokens)):
        looked = values[0].nonzero().tolist()
        assert [each for each in looked if each[0] < 9] == [[query, query - 4] for query in range(4, 9)]
    assert ids[0] == ids[5]  # query 4 writes the first token again


def test_a_key_after_the_query_is_not_copied_in_an_encoder() -> None:
    matrix = torch.zeros(1, 3, 3)
    matrix[0, 0, 1] = matrix[0, 1, 2] = matrix[0, 2, 0] = 1  # every query looks at its next token itself
    tokens = token_ids([7, 8, 7], 3, None, matrix.device)
    assert COPIED.reference is not None
    assert COPIED.block is not None
    q = torch.arange(3)
    assert COPIED.block(matrix, q, q, tokens)[:, :2].sum() == COPIED.reference(matrix, tokens)[:, :2].sum() == 0


@pytest.mark.parametrize("name", ["llama", "mistral, window", "bloom"])
def test_while_a_model_writes_the_newest_query_has_no_value(name: str) -> None:
    model, ids = architectures.tiny(name), torch.tensor([TEXT[:20], TEXT[20:40]])
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with attnscope.record(model, queries=["all", "last"], measures=["copied"]) as record:
        written(model, ids, attention_mask=mask, max_new_tokens=3)
    first, *later = record.steps
    shares = first.defined("copied").at(layer=0, head=0).values
    np.testing.assert_allclose(shares, [[15 / 16, 0], [19 / 20, 0]], atol=SUMMED)
    assert len(later) == 2
    for step in later:
        assert not step.defined("copied").values.any()
        assert np.isnan(step["copied"].values).all()


def test_a_text_given_in_parts_with_a_cache_is_refused() -> None:
    model, ids = architectures.tiny("llama"), prompt(1, 12)
    cache = tf.DynamicCache(config=model.config)
    with attnscope.record(model, measures=["copied"]), torch.no_grad():
        model(ids[:, :6], past_key_values=cache)
        with pytest.raises(AttnscopeError, match=r"'copied' needs the token ids of the whole text"):
            model(ids[:, 6:], past_key_values=cache)


def test_a_lens_and_a_recording_agree_and_a_mass_without_a_value_is_none() -> None:
    model = tf.LlamaForCausalLM(tiny.llama_config()).eval()
    lens = attnscope.Lens(model, tiny.tokenizer())
    read = lens.measure_tokens(TEXT[:30], queries=["last", "all"], measures=["copied"])
    with attnscope.record(model, queries=["last", "all"], measures=["copied"]) as record, torch.no_grad():
        model(torch.tensor([TEXT[:30]]))
    np.testing.assert_allclose(record.steps[0]["copied"].values[0], read["copied"].values, atol=SUMMED)
    masses = read.mass({"early": "position:0-9"}, measure="copied")
    assert masses.filter(queries="last")["mass"].is_null().all()
    assert masses.filter(queries="last")["expected"].is_null().all()
    early = masses.filter(pl.col("token_class") == "early", queries="all", layer=1, head=2)["mass"].item()
    assert early == pytest.approx(read["copied"].at(layer=1, head=2, queries="all").values[:10].sum())


def shifted(weights: Any, q: Any, k: Any, ids: Any) -> Any:
    return weights * (ids.at[k] == ids.at[q][:, None])


def test_a_measure_of_ones_own_is_given_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_same(matrix: Any, ids: Any) -> Any:
        queries, keys = matrix.shape[-2:]
        return torch.einsum("hqk,qk->hq", matrix, (ids.at[keys - queries :, None] == ids.at[None, :]).to(matrix))

    same = Measure(
        name="same",
        meaning="Attention on tokens with the query's id.",
        needs_ids=True,
        block=lambda *given: shifted(*given).sum(-1),
        reference=on_same,
    )
    monkeypatch.setitem(MEASURES.members, "same", same)
    lens = attnscope.Lens(tf.LlamaForCausalLM(tiny.llama_config()).eval(), tiny.tokenizer())
    read = lens.measure_tokens(TEXT[:30], queries=["all"], measures=["same"])
    attentions = reference.eager(lens.model, {"input_ids": torch.tensor([TEXT[:30]])}).attentions
    flags = torch.tensor([[one == two for two in TEXT[:30]] for one in TEXT[:30]])
    want = [(matrix[0] * flags).sum(-1).mean(-1).tolist() for matrix in attentions]
    np.testing.assert_allclose(read["same"].at(queries="all").values, want, atol=1e-5)
    assert (read.defined("same").values == 1).all()


@pytest.mark.parametrize("more", [{"needs_ids": True}, {"needs_next": True}])
def test_pairs_need_no_declaration_about_ids(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="pairs are given the ids"):
        Measure(name="mine", meaning="Mine.", pairs=lambda ids: (np.zeros(0, int), np.zeros(0, int)), **more)
