"""The pairs that are timed against each other: a measurement and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import PreTrainedModel

import attnscope
from attnscope.attention.ask import Ask
from attnscope.attention.backends.blocked import BLOCKED
from attnscope.attention.call import Call
from attnscope.attention.groups import row_weights
from attnscope.attention.interface import implementation, opened, quiet
from attnscope.attention.recorder import Recorder, Wanted
from attnscope.attention.view import look
from attnscope.measures.patterns import PATTERNS
from bench.answers import answers
from bench.callback import callback
from bench.clock import Run
from bench.pair import Pair
from bench.prompts import random_tokens, text_tokens
from bench.random_models import random_model
from bench.study_run import study_run
from bench.sweep import sweep

MODEL = "smollm2-135m-instruct"


def default_model(tokens: int, queries: str, measures: Sequence[str] = ()) -> Pair:
    """The default model on real text, through the public interface."""
    lens = attnscope.load(MODEL)
    ids = text_tokens(lens.tokenizer.encode, tokens)
    lens.model.set_attn_implementation("sdpa")
    return Pair(
        base=_plain(lens.model, {"input_ids": torch.tensor([ids])}),
        arm=lambda: lens.measure_tokens(ids, queries=[queries], measures=measures, beyond_context=True),
        against="plain forward, sdpa",
    )


def query_groups(tokens: int, count: int) -> Pair:
    """The default model, all queries in groups of consecutive tokens, as `bins` makes them."""
    lens = attnscope.load(MODEL)
    ids = text_tokens(lens.tokenizer.encode, tokens)
    lens.model.set_attn_implementation("sdpa")
    rows = {
        f"bin {number}": [row for row in range(tokens) if row * count // tokens == number] for number in range(count)
    }
    return Pair(
        base=_plain(lens.model, {"input_ids": torch.tensor([ids])}),
        arm=lambda: lens.measure_tokens(ids, queries=list(rows), rows=rows, beyond_context=True),
        against="plain forward, sdpa",
    )


def to_the_end(tokens: int) -> Pair:
    """As `all`, but the forward pass runs to the end of the last layer, as the plain one does."""
    lens = attnscope.load(MODEL)
    lens.model.set_attn_implementation("sdpa")
    inputs = {"input_ids": torch.tensor([text_tokens(lens.tokenizer.encode, tokens)])}
    return Pair(_plain(lens.model, inputs), _metered(lens.model, inputs), "plain forward, sdpa")


def first_layers(tokens: int) -> Pair:
    lens = attnscope.load(MODEL)
    ids = text_tokens(lens.tokenizer.encode, tokens)
    return Pair(
        base=lambda: lens.measure_tokens(ids, queries=["all"], beyond_context=True),
        arm=lambda: lens.measure_tokens(ids, queries=["all"], layers=[0, 1, 2, 3], beyond_context=True),
        against="all 30 layers measured",
    )


def padded_batch(tokens: int) -> Pair:
    """Four prompts of a quarter, a half, three quarters and all of the length, padded on the left."""
    lens = attnscope.load(MODEL)
    lens.model.set_attn_implementation("sdpa")
    ids = torch.tensor([text_tokens(lens.tokenizer.encode, tokens)] * 4)
    mask = torch.ones_like(ids)
    for prompt in range(4):
        mask[prompt, : tokens * (3 - prompt) // 4] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    return Pair(_plain(lens.model, inputs), _metered(lens.model, inputs), "the same batch plain, sdpa")


def random_weights(name: str, tokens: int) -> Pair:
    model = random_model(name)
    inputs = {"input_ids": torch.tensor([random_tokens(model.config.vocab_size, tokens)])}
    against = f"plain forward, {model.config._attn_implementation} (what transformers picks)"
    return Pair(_plain(model, inputs), _metered(model, inputs), against)


def without_feature(name: str, tokens: int) -> Pair:
    """Where transformers picks eager attention, a slow base: compare with SDPA, without softcap and sinks."""
    model, bare = random_model(name), random_model(name, softcapped=False)
    inputs = {"input_ids": torch.tensor([random_tokens(model.config.vocab_size, tokens)])}
    plain = _plain(bare, inputs)

    def base() -> object:
        with implementation(bare, "sdpa"):
            return plain()

    return Pair(base, _metered(model, inputs), "plain forward of the model without it, sdpa forced on it")


def attention_alone(tokens: int, size: float) -> Pair:
    """12 heads on 2 kv heads of width 128. size: of the queries; large ones give scores that overflow exp."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 12, tokens, 128, generator=generator) * size
    key, value = (torch.randn(1, 2, tokens, 128, generator=generator) for _ in range(2))
    scale = 128**-0.5
    rows = torch.arange(tokens)
    call = Call(query, key, value, None, True, scale)
    view, ask = look(call, rows), Ask(torch.full((1, 1, tokens), 1 / tokens), rows)

    def base() -> Tensor:
        output = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
        return output.transpose(1, 2).contiguous()  # as transformers passes it on

    def arm() -> object:
        return BLOCKED.attend(call, view, ask)

    return Pair(_often(base, 10), _often(arm, 10), "`scaled_dot_product_attention`")


def _plain(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Run:
    def run() -> object:
        with torch.inference_mode():
            return model.base_model(**inputs, use_cache=False)

    return run


def _metered(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Run:
    """Every layer, all queries, to the end: in a model of few layers, stopping at the last layer's attention, as the
    public interface does, would skip a good part of the forward pass and flatter the ratio.
    """
    mask = inputs.get("attention_mask")
    real = torch.ones(inputs["input_ids"].shape, dtype=torch.bool) if mask is None else mask.bool()
    layers = frozenset(range(model.config.num_hidden_layers))
    wanted = Wanted(row_weights(["all"], real), layers, stop=False, real=None if mask is None else real)

    def run() -> object:
        recorder = Recorder(wanted)
        with quiet(model), opened(model, recorder):
            model.base_model(**inputs, use_cache=False)
        return recorder.results

    return run


def _often(run: Run, times: int) -> Run:
    """Repeats a call that is too short to time."""

    def repeated() -> Any:
        for _ in range(times):
            run()

    return repeated


PAIRS: dict[str, Callable[[int], Pair]] = {  # by tokens; a study by prompts
    "last": lambda tokens: default_model(tokens, "last"),
    "all": lambda tokens: default_model(tokens, "all"),
    "patterns": lambda tokens: default_model(tokens, "all", PATTERNS),
    "groups-16": lambda tokens: query_groups(tokens, 16),
    "groups-256": lambda tokens: query_groups(tokens, 256),
    "to-the-end": to_the_end,
    "first-layers": first_layers,
    "qwen-shape": lambda tokens: random_weights("qwen_shape", tokens),
    "qwen-attention": lambda tokens: attention_alone(tokens, 1.0),
    "qwen-attention-large": lambda tokens: attention_alone(tokens, 8.0),
    "padded-batch": padded_batch,
    "window": lambda tokens: random_weights("window", tokens),
    "softcap": lambda tokens: random_weights("softcap", tokens),
    "sinks": lambda tokens: random_weights("sinks", tokens),
    "softcap-sdpa": lambda tokens: without_feature("softcap", tokens),
    "sinks-sdpa": lambda tokens: without_feature("sinks", tokens),
    "answers": lambda tokens: answers(tokens, sampled=False),
    "answers-sampled": lambda tokens: answers(tokens, sampled=True),
    "sweep": sweep,
    "callback": lambda prompts: callback(prompts, beginning=False),
    "callback-begins": lambda prompts: callback(prompts, beginning=True),
    "study-one-by-one": lambda prompts: study_run(prompts, batched=False),
    "study-batched": lambda prompts: study_run(prompts, batched=True),
}
