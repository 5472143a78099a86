"""What a model makes of an answer when its attention is changed: the same as eager attention changed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnscope.attention.interface import implementation, quiet
from attnscope.attention.meter import Meter, Request
from attnscope.attention.scoring import Scorer
from attnscope.attention.seam import PlacedEdits
from attnscope.edits.attention.ablate import Ablate
from attnscope.edits.attention.hide import Hide
from tests.attention import architectures
from tests.attention.intervened import ByHand, changed

EXACT = 1e-5  # of logits that are about 1
IDS = torch.randint(3, architectures.VOCAB, (40,), generator=torch.Generator().manual_seed(5)).tolist()
START = 36
SEEN_BY = [
    "llama",
    "llama, one kv head",
    "qwen3",
    "gemma2, softcap and window",
    "gemma3 text, window",
    "gemma3 inside a multimodal model",
    "mistral, window",
    "gpt2",
    "gpt-neox",
    "gpt-oss, sinks and window",
    "opt",
    "deepseek-v3, values narrower than keys",
    "phi3",
]


def scorer(name: str) -> Scorer:
    return Scorer(Meter(architectures.tiny(name), name, 3, {}, lambda count: IDS[: min(count, 40)]))


def by_hand(name: str, hand: ByHand) -> Tensor:
    """(tokens of the answer, vocabulary): log probabilities."""
    model: Any = architectures.tiny(name)
    with changed(model, hand):
        logits = model(input_ids=torch.tensor([IDS])).logits
    rows: Tensor = logits[0, START - 1 : -1].double().log_softmax(-1)
    return rows


def square(rows: list[int], keys: list[int], heads: list[int] | None = None) -> Tensor:
    hidden = torch.zeros(1 if heads is None else 4, 40, 40, dtype=torch.bool)
    for head in [0] if heads is None else heads:
        hidden[head, torch.tensor(rows)[:, None], torch.tensor(keys)] = True
    return hidden


KEYS, ROWS = [31, 33, 34], [35, 36, 38]
VARIANTS: dict[str, tuple[list[Any], ByHand]] = {
    "hide in two layers": (
        [Hide(hide=tuple(KEYS), queries=tuple(ROWS), layers=(1, 2))],
        ByHand(masks={1: square(ROWS, KEYS), 2: square(ROWS, KEYS)}),
    ),
    "hide from one head": (
        [Hide(hide=tuple(KEYS), queries=tuple(ROWS), layers=(0,), heads=(2,))],
        ByHand(masks={0: square(ROWS, KEYS, [2])}),
    ),
    "zero": (
        [Hide(hide=tuple(KEYS), queries=tuple(ROWS), layers=(1,), how="zero")],
        ByHand(zeros={1: square(ROWS, KEYS)}),
    ),
    "zero in one head": (
        [Hide(hide=tuple(KEYS), queries=tuple(ROWS), layers=(2,), heads=(3,), how="zero")],
        ByHand(zeros={2: square(ROWS, KEYS, [3])}),
    ),
    "ablate": ([Ablate(ablate={1: (0, 3)})], ByHand(outputs={(1, 0): torch.zeros_like, (1, 3): torch.zeros_like})),
    "ablate to the mean": (
        [Ablate(ablate={2: (1,)}, how="mean")],
        ByHand(outputs={(2, 1): lambda output: output.mean(1, keepdim=True).expand_as(output)}),
    ),
    "hide, then ablate": (
        [Hide(hide=tuple(KEYS), queries=tuple(ROWS), layers=(1,)), Ablate(ablate={2: (1,)})],
        ByHand(masks={1: square(ROWS, KEYS)}, outputs={(2, 1): torch.zeros_like}),
    ),
    "nothing": ([], ByHand()),
    "hide what is not seen": ([Hide(hide=(39,), queries=(3, 4), layers=(1,))], ByHand()),
}


@pytest.mark.parametrize("name", SEEN_BY)
def test_answers_get_the_log_probabilities_that_the_changed_model_gives_them(name: str) -> None:
    scored = scorer(name)
    base, found = scored.scores(IDS, START, [edits for edits, _ in VARIANTS.values()])
    plain = by_hand(name, ByHand())
    answer = torch.tensor(IDS[START:])
    for (variant, (_, hand)), scores in zip(VARIANTS.items(), found, strict=True):
        rows = by_hand(name, hand)
        chosen = rows.gather(-1, answer[:, None])[:, 0]
        np.testing.assert_allclose(scores.log_probs, chosen, atol=EXACT, err_msg=variant)
        np.testing.assert_array_equal(scores.likeliest, rows.argmax(-1), err_msg=variant)
        kl = (plain.exp() * (plain - rows)).sum(-1)
        np.testing.assert_allclose(scores.kl, kl, atol=EXACT, err_msg=variant)
        if variant not in ("nothing", "hide what is not seen"):
            assert np.abs(scores.log_probs - base.log_probs).max() > 10 * EXACT, variant
    np.testing.assert_array_equal(found[-2].log_probs, base.log_probs)
    np.testing.assert_allclose(found[-1].log_probs, base.log_probs, atol=1e-6)


OUTSIDE = ["falcon", "bloom", "gpt-j", "gpt-neo, window", "codegen", "xglm", "mpt"]
EDITS = {name: edits for name, (edits, _) in VARIANTS.items() if "mean" not in name}


class Softmax:
    """torch's softmax, changed by hand: the n-th call of a forward is layer n."""

    def __init__(self, hand: ByHand) -> None:
        self.hand, self.own, self.layer = hand, torch.nn.functional.softmax, -1

    def __call__(self, scores: Tensor, *args: Any, **options: Any) -> Tensor:
        self.layer += 1
        four = scores.view(-1, 4, *scores.shape[-2:])
        if self.layer in self.hand.masks:
            four = four.masked_fill(self.hand.masks[self.layer], torch.finfo(scores.dtype).min)
        weights = self.own(four, *args, **options)
        if self.layer in self.hand.zeros:
            weights = weights.masked_fill(self.hand.zeros[self.layer], 0)
        for layer, head in self.hand.outputs:
            if layer == self.layer:
                weights[:, head] = 0
        return weights.view(scores.shape)


@pytest.mark.parametrize("name", OUTSIDE)
def test_models_outside_the_interface_are_changed_in_their_own_softmax(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = scorer(name).scores(IDS, START, list(EDITS.values()))
    model: Any = architectures.tiny(name)
    answer = torch.tensor(IDS[START:])
    for variant, scores in zip(EDITS, found, strict=True):
        by_hand = Softmax(VARIANTS[variant][1])
        with monkeypatch.context() as patch, quiet(model), implementation(model, "eager"):
            patch.setattr(torch.nn.functional, "softmax", by_hand)
            logits = model(input_ids=torch.tensor([IDS]), output_attentions=True).logits
        assert by_hand.layer == 2
        rows = logits[0, START - 1 : -1].double().log_softmax(-1)
        chosen = rows.gather(-1, answer[:, None])[:, 0]
        np.testing.assert_allclose(scores.log_probs, chosen, atol=EXACT, err_msg=variant)
    want = [found[0].log_probs.sum(), found[-1].log_probs.sum()]
    assert abs(want[0] - want[1]) > EXACT


@pytest.mark.parametrize("name", SEEN_BY)
def test_variants_begin_where_they_change_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer before that does not run at all; what comes out is the same as from whole forwards."""
    scored = scorer(name)
    assert scored.can_resume
    runs = [0, 0, 0]
    stack = scored._stack
    assert stack is not None
    for place, layer in enumerate(stack):
        own = type(layer).forward

        def counted(*args: Any, own: Any = own, layer: Any = layer, place: int = place, **more: Any) -> Any:
            runs[place] += 1
            return own(layer, *args, **more)

        monkeypatch.setattr(layer, "forward", counted, raising=False)
    variants = [[Ablate(ablate={place: (0,)})] for place in (2, 1, 0)]
    _, found = scored.scores(IDS, START, variants)
    assert runs == [2, 3, 4]
    monkeypatch.undo()
    assert not any("forward" in vars(layer) for layer in stack)
    whole = scorer(name)
    whole.can_resume = False
    _, want = whole.scores(IDS, START, variants)
    for one, two in zip(found, want, strict=True):
        np.testing.assert_allclose(one.log_probs, two.log_probs, atol=1e-6)


@pytest.mark.parametrize("name", [*SEEN_BY, *OUTSIDE])
def test_edits_in_a_padded_batch_do_to_each_prompt_what_they_do_to_it_alone(name: str) -> None:
    meter = Meter(architectures.tiny(name), name, 3, {}, lambda count: IDS[: min(count, 40)])
    prompts = [IDS, IDS[5:22], IDS[::-1][:9]]
    edits: list[list[Any]] = [
        [Hide(hide=(3, 30), queries=(35, 39), layers=(1,)), Ablate(ablate={0: (2,)})],
        [Hide(hide=(4,), queries=(10, 16), how="zero", heads=(1,))],
        [Hide(hide=(2, 5), queries=(7, 8))],
    ]
    placed = PlacedEdits(edits, [len(prompt) for prompt in prompts])
    together = meter.read(prompts, Request(["last", "all"], [0, 1, 2], edits=placed))
    for prompt, own, batched in zip(prompts, edits, together, strict=True):
        (alone,) = meter.read([prompt], Request(["last", "all"], [0, 1, 2], edits=PlacedEdits([own], [len(prompt)])))
        (plain,) = meter.read([prompt], Request(["last", "all"], [0, 1, 2]))
        np.testing.assert_allclose(batched.arrays["received"], alone.arrays["received"], atol=EXACT)
        assert np.abs(alone.arrays["received"] - plain.arrays["received"]).max() > 100 * EXACT
