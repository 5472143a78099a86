"""Measures in a recording: what the full matrix gives, beside pads, with caches and under autocast too."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from torch import Tensor

import attnscope
from attnscope import AttnscopeError
from attnscope.measures.patterns import PAIRS
from tests.attention import architectures, reference
from tests.attention.running import prompt, written
from tests.models import tiny
from tests.tolerances import SHALLOW

TIER = "model"  # for the time it takes

NAMES = ["llama", "mistral, window", "bloom", "bert"]
PAIRED = list(PAIRS)


def by_definition(weights: Any, ids: list[int], measure: str, places: list[int]) -> list[tuple[float, float]]:
    """By head: the mean of a paired measure over the queries that have it, and their share. places: of the tokens."""
    queries, keys = (
        np.asarray(places)[np.asarray(each, dtype=int)] for each in PAIRS[measure]([ids[p] for p in places])
    )
    found = []
    for head in weights:
        sums: dict[int, float] = {}
        for query, key in zip(queries.tolist(), keys.tolist(), strict=True):
            if head[query, key] > 0:
                sums[query] = sums.get(query, 0.0) + float(head[query, key])
        found.append((sum(sums.values()) / len(sums) if sums else np.nan, len(sums) / len(places)))
    return found


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_a_paired_measure_is_the_mean_over_the_queries_that_have_a_pair(name: str, side: str) -> None:
    model, ids = architectures.tiny(name), prompt(2, 24)
    ids[:, 9], ids[:, 15] = ids[:, 4], ids[:, 4]
    mask = torch.ones_like(ids)
    if side != "none":
        mask[0, slice(0, 5) if side == "left" else slice(19, None)] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    with attnscope.record(model, queries=["all"], measures=PAIRED) as record, torch.no_grad():
        model(**given)
    (step,) = record.steps
    attentions = reference.eager(model, given).attentions
    for row in range(2):
        places = mask[row].nonzero().flatten().tolist()
        for measure in PAIRED:
            for layer in range(2):
                want = by_definition(attentions[layer][row], ids[row].tolist(), measure, places)
                got = step[measure].at(prompt=row, layer=layer, queries="all").values
                share = step.defined(measure).at(prompt=row, layer=layer, queries="all").values
                np.testing.assert_allclose(got, [mean for mean, _ in want], atol=SHALLOW, err_msg=measure)
                np.testing.assert_allclose(share, [part for _, part in want], atol=1e-6, err_msg=measure)


def test_a_lens_and_a_recording_agree_on_every_measure() -> None:
    model = tf.LlamaForCausalLM(tiny.llama_config()).eval()
    ids = [5, 6, 7, 8, 6, 9, 10, 7, 11, 12, 13, 5, 6, 14, 15, 16, 17, 18, 19, 20]
    names = ["top1", "distance", "concentration", "entropy", *PAIRED]
    lens = attnscope.Lens(model, tiny.tokenizer())
    read = lens.measure_tokens(ids, queries=["last", "all"], measures=names)
    with attnscope.record(model, queries=["last", "all"], measures=names) as record, torch.no_grad():
        model(torch.tensor([ids]))
    for name in ("received", *names):
        np.testing.assert_allclose(record.steps[0][name].values[0], read[name].values, atol=SHALLOW, err_msg=name)
        np.testing.assert_allclose(record.steps[0].defined(name).values[0], read.defined(name).values, atol=1e-6)


@pytest.mark.parametrize("name", ["gpt-j", "falcon", "codegen", "llama"])
def test_keys_of_a_cache_that_are_not_written_yet_are_not_counted(name: str) -> None:
    model, ids = architectures.tiny(name), prompt(1, 12)
    with attnscope.record(model, queries=["last", "all"], measures=["distance"]) as record, torch.no_grad():
        model(ids)
        model(ids, past_key_values=tf.StaticCache(config=model.config, max_cache_len=40))
    plain, static = record.steps
    for measure in ("received", "distance"):
        np.testing.assert_allclose(static[measure].values, plain[measure].values, atol=1e-5)


@pytest.mark.parametrize("name", ["bloom", "gpt-j", "llama"])
def test_left_pads_and_a_static_cache_are_recorded_together(name: str) -> None:
    model, ids = architectures.tiny(name), prompt(2, 12)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with attnscope.record(model) as dynamic:
        one = written(model, ids, attention_mask=mask)
    with attnscope.record(model) as static:
        two = written(model, ids, attention_mask=mask, cache_implementation="static")
    assert torch.equal(one, two)
    for here, there in zip(dynamic.received, static.received, strict=True):
        np.testing.assert_allclose(here.values, there.values, atol=SHALLOW)


def test_a_mask_that_is_the_same_for_all_queries_says_which_tokens_are_pads() -> None:
    model, ids = architectures.tiny("bert"), prompt(2, 14)
    mask = torch.ones_like(ids)
    mask[0, 9:] = 0
    added = torch.zeros(2, 1, 1, 14).masked_fill(mask[:, None, None] == 0, torch.finfo(torch.float32).min)
    with attnscope.record(model, queries=["last", "all"]) as record, torch.no_grad():
        model(ids, attention_mask=mask)
        model(ids, attention_mask=added)
    one, two = record.received
    np.testing.assert_allclose(one.values, two.values, atol=SHALLOW)


@pytest.mark.parametrize("name", ["mistral, window", "gemma3 text, window", "llama4 text, chunks"])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_prompt_in_which_no_window_binds_is_recorded_step_by_step(name: str, length: int) -> None:
    model, ids = architectures.tiny(name), prompt(1, length)
    with attnscope.record(model) as record:
        whole = written(model, ids, max_new_tokens=4)
    attentions = reference.eager(model, {"input_ids": whole}).attentions
    for number, received in enumerate(record.received):
        row = length - 1 + number
        for layer in range(2):
            want = attentions[layer][0, :, row, : row + 1]
            np.testing.assert_allclose(received.at(prompt=0, layer=layer, queries="last").values, want, atol=SHALLOW)


@pytest.mark.parametrize("positions", [16, 40])
def test_a_model_with_few_positions_is_recorded(positions: int) -> None:
    size: dict[str, Any] = {
        "n_positions": positions,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": architectures.VOCAB,
    }
    model, ids = tf.GPT2LMHeadModel(tf.GPT2Config(**size)).eval(), prompt(1, 10)
    with attnscope.record(model) as record, torch.no_grad():
        model(ids)
    want = reference.eager(model, {"input_ids": ids}).attentions[1][:, :, -1]
    np.testing.assert_allclose(record.received[0].at(layer=1, queries="last").values, want, atol=SHALLOW)


def under_autocast(model: Any, ids: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output: Tensor = model(input_ids=ids, labels=ids).loss
    return output


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("queries", [["last"], ["all"]])
def test_under_autocast_sums_are_in_float32_and_the_model_computes_what_it_does_outside(
    queries: list[str], implementation: str, trains: bool
) -> None:
    model = tf.LlamaForCausalLM._from_config(tiny.llama_config(), attn_implementation=implementation).train(trains)
    ids = prompt(1, 40)
    with torch.set_grad_enabled(trains):
        outside = under_autocast(model, ids)
        with attnscope.record(model, queries=queries, measures=["entropy"]) as record:
            inside = under_autocast(model, ids)
    assert torch.equal(outside, inside)
    np.testing.assert_allclose(record.received[0].values.sum(-1), 1, atol=1e-6)
    with torch.no_grad():
        whole = reference.eager(model, {"input_ids": ids}).attentions[0]
    want = whole.mean(2) if queries == ["all"] else whole[:, :, -1]
    np.testing.assert_allclose(record.received[0].at(layer=0, queries=queries[0]).values, want, atol=5e-3)


@pytest.mark.parametrize("name", ["bloom", "gpt-j", "mpt"])
def test_models_read_by_their_own_weights_are_recorded_under_autocast(name: str) -> None:
    model, ids = architectures.tiny(name), prompt(1, 20)
    with torch.no_grad(), attnscope.record(model, queries=["all"]) as record, torch.autocast("cpu", torch.bfloat16):
        model(ids)
    want = reference.eager(model, {"input_ids": ids}).attentions[0].mean(2)
    np.testing.assert_allclose(record.received[0].at(layer=0, queries="all").values, want, atol=1e-2)


def test_a_users_hook_runs_once_in_a_recorded_forward_also_on_a_short_prompt() -> None:
    model, ids, seen = copy.deepcopy(architectures.tiny("mistral, window")), prompt(1, 5), []
    with attnscope.record(model), attnscope.record(model, queries=["all"]), torch.no_grad():
        model.model.layers[0].register_forward_hook(lambda *given: seen.append(given[1][0].shape))
        model(ids)
    assert seen == [(1, 5, 32)]


def test_state_that_recurrent_layers_keep_is_left_as_it_was() -> None:
    shape: dict[str, Any] = {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "vocab_size": architectures.VOCAB,
    }
    more: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8, "lru_width": 32}
    blocks = ["recurrent", "attention"]
    config = tf.RecurrentGemmaConfig(**shape, **more, attention_window_size=8, block_types=blocks)
    model, ids = tf.RecurrentGemmaForCausalLM(config).eval(), prompt(1, 7)
    plain = written(model, ids)
    with attnscope.record(model, layers=[1]) as record:
        assert torch.equal(written(model, ids), plain)
    assert len(record) > 1


def test_layers_with_different_numbers_of_heads_are_refused_in_words() -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    shape: dict[str, Any] = {
        **architectures.GROUPED,
        **experts,
        "shared_expert_intermediate_size": 16,
        "sliding_window": 7,
    }
    config = tf.LagunaConfig(**shape, num_attention_heads_per_layer=[4, 2, 4])
    model, ids = tf.LagunaForCausalLM(config).eval(), prompt(1, 12)
    with pytest.raises(AttnscopeError, match=r"layers have 2 and 4 heads"), attnscope.record(model):
        model(ids)


def test_a_recording_that_has_not_begun_or_is_over_says_how_it_is_used() -> None:
    model, ids = architectures.tiny("llama"), prompt(1, 12)
    begun = attnscope.record(model)
    with pytest.raises(AttributeError, match=r"with attnscope.record\(model\) as recording"):
        begun.received  # type: ignore[attr-defined]  # noqa: B018
    with begun as record:
        model(ids)
    assert len(record) == 1
    with pytest.raises(AttnscopeError, match="has been used already"), begun:
        model(ids)
