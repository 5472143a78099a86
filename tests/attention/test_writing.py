"""Answers that models write: a batch gets what each prompt gets alone, from any architecture, whatever its settings."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor, nn

from attnscope.attention.choice import Drawn, Greedy
from attnscope.attention.writing import Writer, Written
from attnscope.errors import AttnscopeError, NoRoomError
from attnscope.study.sampling import Sample
from tests.attention import architectures
from tests.attention.running import hooks, prompt

LENGTHS = (3, 30, 11, 24, 30)
MOST = 12
SAMPLE = Sample(temperature=1.3, top_k=40, top_p=0.95)
WRITERS = [name for name in architectures.EVERY if name not in ("bert", "modernbert")]


def texts(lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    return [prompt(1, length, seed)[0].tolist() for seed, length in enumerate(lengths)]


def writer(model: Any) -> Writer:
    return Writer(model, "tiny", lambda count: prompt(1, min(count, 100), 99)[0].tolist())


def plain(model: Any, ids: list[int], **more: Any) -> list[int]:
    """What transformers writes to one prompt, without any settings of the checkpoint."""
    given = torch.tensor([ids])
    settings = {"max_new_tokens": MOST, "do_sample": False, "pad_token_id": 0, **more}
    with torch.no_grad():
        made: Tensor = model.generate(given, attention_mask=torch.ones_like(given), **settings)
    written: list[int] = made[0, len(ids) :].tolist()
    return written


def endless(model: Any) -> Any:
    """The model, without tokens that end an answer."""
    model.generation_config.eos_token_id = None
    model.config.get_text_config().eos_token_id = None
    return model


def cut(ids: list[int], ends: Sequence[int]) -> list[int]:
    return ids[: min([place for place, token in enumerate(ids) if token in ends], default=len(ids))]


@pytest.fixture
def llama() -> Any:
    return copy.deepcopy(architectures.tiny("llama"))


@pytest.mark.parametrize("name", WRITERS)
def test_a_batch_gets_the_answers_that_transformers_writes_to_each_prompt_alone(name: str) -> None:
    model = copy.deepcopy(architectures.tiny(name))
    endless(model)
    together = writer(model).write(texts(), [MOST] * 5, Greedy())
    assert together == [Written(plain(model, ids, eos_token_id=None), ended=False) for ids in texts()]


GROUPED = architectures.GROUPED
HYBRIDS: dict[str, Any] = {
    "linear attention": lambda: tf.Qwen3NextForCausalLM(
        tf.Qwen3NextConfig(
            **{**GROUPED, "num_hidden_layers": 4},
            layer_types=["linear_attention", "full_attention"] * 2,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
        )
    ),
    "convolutions": lambda: tf.Lfm2ForCausalLM(
        tf.Lfm2Config(**GROUPED, layer_types=["conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False)
    ),
    "state space": lambda: tf.BambaForCausalLM(
        tf.BambaConfig(
            **GROUPED, attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=16
        )
    ),
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_hybrid_writes_what_it_writes_alone_too(name: str) -> None:
    torch.manual_seed(5)
    model = endless(HYBRIDS[name]().eval())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)
    together = writer(model).write(texts(), [MOST] * 5, Greedy())
    assert [each.ids for each in together] == [plain(model, ids, eos_token_id=None) for ids in texts()]


SHARED = ["llama", "qwen2", "gemma3 text, window", "mistral, window", "gpt2", "falcon, alibi", "bloom", "gpt-neox"]


@pytest.mark.parametrize("name", SHARED)
def test_prompts_of_different_lengths_are_answered_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = architectures.tiny(name)
    shapes = []
    generate: Any = model.generate

    def counted(ids: Tensor, **more: Any) -> Any:
        shapes.append(tuple(ids.shape))
        return generate(ids, **more)

    monkeypatch.setattr(model, "generate", counted)
    pen = writer(model)
    pen.write(texts(), [MOST] * 5, Greedy())
    assert (5, 30) in shapes
    before = len(shapes)
    pen.write(texts(), [MOST] * 5, Greedy())
    again = shapes[before:]
    assert again[0] == (5, 30)
    assert all(rows == 1 for rows, _ in again[1:])  # close calls only: the test prompts are not tried twice


class Leaky(nn.Module):
    """An embedding that mixes in the mean over all tokens, pads included."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    @property
    def weight(self) -> Any:
        return self.inner.weight

    def forward(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.inner(ids)
        return vectors + 0.5 * vectors.mean(1, keepdim=True)


def test_a_model_that_looks_at_pads_writes_one_answer_at_a_time(llama: Any) -> None:
    llama.set_input_embeddings(Leaky(llama.get_input_embeddings()))
    endless(llama)
    together = writer(llama).write(texts(), [MOST] * 5, Greedy())
    assert [each.ids for each in together] == [plain(llama, ids, eos_token_id=None) for ids in texts()]


def test_a_model_that_looks_across_the_batch_writes_one_answer_at_a_time(llama: Any) -> None:
    def mix(_module: nn.Module, _given: Any, output: Tensor) -> Tensor:
        return output + 0.3 * output.mean(0, keepdim=True)

    llama.model.norm.register_forward_hook(mix)
    endless(llama)
    same = texts((20, 20, 20))
    together = writer(llama).write(same, [MOST] * 3, Greedy())
    assert [each.ids for each in together] == [plain(llama, ids, eos_token_id=None) for ids in same]


def test_positions_scaled_by_the_inputs_length_are_those_of_each_prompt(llama: Any) -> None:
    torch.manual_seed(1)
    scaled = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "rope_theta": 10000.0}
    config = tf.Phi3Config(
        **{**architectures.COMMON, "num_key_value_heads": 2, "initializer_range": 0.3},
        original_max_position_embeddings=16,
        rope_parameters=scaled,
    )
    model = tf.Phi3ForCausalLM(config).eval()
    pen = writer(model)
    together = pen.write(texts(), [4] * 5, Greedy())
    assert together == [pen.write([ids], [4], Greedy())[0] for ids in texts()]


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3 text, window", "bloom"])
def test_a_draw_does_not_depend_on_the_batch_or_the_order(name: str) -> None:
    pen, seeds = writer(architectures.tiny(name)), [11, 12, 13, 14, 15]
    prompts = texts()
    together = pen.write(prompts, [MOST] * 5, Drawn(SAMPLE, seeds))
    backwards = pen.write(prompts[::-1], [MOST] * 5, Drawn(SAMPLE, seeds[::-1]))[::-1]
    alone = [pen.write([ids], [MOST], Drawn(SAMPLE, [seed]))[0] for ids, seed in zip(prompts, seeds, strict=True)]
    assert together == backwards == alone
    assert pen.write(prompts, [MOST] * 5, Drawn(SAMPLE, [21, 22, 23, 24, 25])) != together


def test_copies_of_a_prompt_get_draws_of_their_own(llama: Any) -> None:
    answers = writer(llama).write(texts((8,)) * 12, [MOST] * 12, Drawn(Sample(), range(12)))
    assert len({tuple(each.ids) for each in answers}) > 8


def test_drawing_from_one_candidate_is_greedy(llama: Any) -> None:
    pen = writer(llama)
    greedy = pen.write(texts(), [MOST] * 5, Greedy())
    assert pen.write(texts(), [MOST] * 5, Drawn(Sample(top_k=1, temperature=3), range(5))) == greedy


def test_first_tokens_are_drawn_with_the_models_probabilities(llama: Any) -> None:
    endless(llama)
    ids, count = texts((6,))[0], 3000
    drawn = writer(llama).write([ids] * count, [1] * count, Drawn(Sample(), range(count)))
    with torch.no_grad():
        want = llama(torch.tensor([ids])).logits[0, -1].double().softmax(-1)
    shares = torch.bincount(torch.tensor([each.ids[0] for each in drawn]), minlength=len(want)) / count
    assert bool(((shares - want).abs() <= 5 * (want * (1 - want) / count).sqrt() + 1e-3).all())


def test_any_of_several_tokens_ends_an_answer_and_is_not_part_of_it(llama: Any) -> None:
    free = [plain(llama, ids, eos_token_id=None) for ids in texts()]
    ends = [free[0][3], free[1][5], free[2][0]]
    llama.generation_config.eos_token_id = ends
    answers = writer(llama).write(texts(), [MOST] * 5, Greedy())
    assert [each.ids for each in answers] == [cut(ids, ends) for ids in free]
    assert [each.ended for each in answers] == [len(cut(ids, ends)) < MOST for ids in free]
    assert answers[2] == Written([], ended=True)
    endless(llama).config.eos_token_id = free[0][3]
    assert writer(llama).write(texts()[:1], [MOST], Greedy())[0].ids == cut(free[0], free[0][3:4])


def test_answers_end_where_the_context_does() -> None:
    model = copy.deepcopy(architectures.tiny("gpt2"))
    endless(model)
    prompts = texts((128, 125, 20, 125, 6))
    room = [0, 3, MOST, 3, MOST]
    answers = writer(model).write(prompts, room, Greedy())
    assert [len(each.ids) for each in answers] == room
    assert answers[1].ids == plain(model, prompts[1], eos_token_id=None, max_new_tokens=3)


ODD: dict[str, Any] = {
    "do_sample": True,
    "temperature": 3.0,
    "top_k": 2,
    "repetition_penalty": 5.0,
    "no_repeat_ngram_size": 1,
    "suppress_tokens": list(range(3, 60)),
    "begin_suppress_tokens": list(range(60, 90)),
    "forced_bos_token_id": 7,
    "forced_eos_token_id": 8,
    "min_new_tokens": 9,
    "max_length": 5,
    "num_beams": 3,
    "num_return_sequences": 2,
    "bad_words_ids": [[4], [5]],
    "output_scores": True,
    "return_dict_in_generate": True,
    "cache_implementation": "static",
    "stop_strings": ["a"],
    "max_time": 0.0,
}


@pytest.mark.parametrize("setting", ODD)
def test_settings_of_the_checkpoint_do_not_change_an_answer(setting: str, llama: Any) -> None:
    endless(llama)
    want = [plain(llama, ids, eos_token_id=None) for ids in texts()]
    setattr(llama.generation_config, setting, ODD[setting])
    before = llama.generation_config.to_dict()
    assert [each.ids for each in writer(llama).write(texts(), [MOST] * 5, Greedy())] == want
    assert llama.generation_config.to_dict() == before


def test_the_model_is_left_as_it_was_found(llama: Any) -> None:
    llama.train()
    settings, modes = llama.generation_config, [module.training for module in llama.modules()]
    content, config, before = settings.to_dict(), llama.config.to_dict(), hooks(llama)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    answers = writer(llama).write(texts(), [MOST] * 5, Drawn(SAMPLE, range(5)))
    assert torch.equal(torch.get_rng_state(), state)
    assert llama.generation_config is settings
    assert (settings.to_dict(), llama.config.to_dict()) == (content, config)
    assert [module.training for module in llama.modules()] == modes
    assert hooks(llama) == before
    llama.eval()
    assert writer(llama).write(texts(), [MOST] * 5, Drawn(SAMPLE, range(5))) == answers


def test_a_close_call_is_decided_by_reading_the_text_alone(llama: Any) -> None:
    """Two tokens with the same vector are tied everywhere, but for what a batch adds to one of them."""
    head = llama.get_output_embeddings()
    with torch.no_grad():
        head.weight[50] = head.weight[60] * 3
        head.weight[60] = head.weight[50]
    endless(llama)
    alone = [writer(llama).write([ids], [MOST], Greedy())[0].ids for ids in texts()]
    assert any(token in (50, 60) for ids in alone for token in ids)

    def shaken(_module: nn.Module, _given: Any, output: Tensor) -> Tensor:
        if output.shape[0] > 1:
            output = output.clone()
            output[..., 60] += 1e-6 * output.abs().max()
        return output

    hook = head.register_forward_hook(shaken)
    together = [each.ids for each in writer(llama).write(texts(), [MOST] * 5, Greedy())]
    hook.remove()
    assert together == alone


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_number_formats_write_in_batches_too(dtype: torch.dtype, llama: Any) -> None:
    model = llama.to(dtype)
    answers = writer(model).write(texts(), [MOST] * 5, Greedy())
    assert model.dtype == dtype
    assert [0 <= len(each.ids) <= MOST for each in answers] == [True] * 5
    assert writer(model).write(texts(), [MOST] * 5, Greedy()) == answers


def test_logits_that_are_not_finite_are_refused(llama: Any) -> None:
    with torch.no_grad():
        llama.get_output_embeddings().weight[5] = torch.nan
    with pytest.raises(AttnscopeError, match=r"tiny computes numbers that are not finite.*token 0"):
        writer(llama).write(texts(), [MOST] * 5, Greedy())


def test_answers_that_do_not_fit_into_memory_say_so(llama: Any) -> None:
    def full(*_: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    llama.model.register_forward_pre_hook(full)
    with pytest.raises(NoRoomError, match=r"these answers \(tiny, \(1, 3\) tokens and 12 more each\)"):
        writer(llama).write(texts()[:1], [MOST], Greedy())
