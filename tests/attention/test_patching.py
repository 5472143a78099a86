"""Outputs of heads: read as eager attention makes them, and put into another text as hooks would put them there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnscope import AttnscopeError
from attnscope.attention.forward import measure_forward
from attnscope.attention.meter import Meter
from attnscope.attention.probe import padded
from attnscope.attention.recorder import Wanted
from attnscope.attention.scoring import Scorer
from attnscope.attention.seam import PlacedEdits
from attnscope.edits.attention.ablate import Ablate
from attnscope.edits.attention.head_outputs import HeadOutputs, mean_output
from attnscope.edits.attention.patch import Patch
from tests.attention import architectures
from tests.attention.intervened import ByHand, changed
from tests.attention.test_scoring import EXACT, IDS, OUTSIDE, SEEN_BY, START

OTHER = torch.randint(3, architectures.VOCAB, (40,), generator=torch.Generator().manual_seed(6)).tolist()
PROMPTS = [IDS, IDS[5:22], OTHER[::-1][:9]]
HEADS = {1: (0, 3), 2: (1,)}
EVERY = tuple(range(40))
ALIGN = (None, 0, *range(2, 20), *[None] * 5, *range(39, 24, -1))
"""Some tokens match another, some the same, some none."""


def meter(name: str) -> Meter:
    return Meter(architectures.tiny(name), name, 3, {}, lambda count: IDS[: min(count, 40)])


def eager_outputs(name: str, ids: list[int]) -> dict[tuple[int, int], Tensor]:
    """By layer and head: (tokens, width)."""
    outputs: dict[tuple[int, int], Tensor] = {}

    def noting(place: tuple[int, int]) -> Callable[[Tensor], Tensor]:
        def note(output: Tensor) -> Tensor:
            outputs[place] = output[0].clone()
            return output

        return note

    places = [(layer, head) for layer, heads in HEADS.items() for head in heads]
    with changed(architectures.tiny(name), ByHand(outputs={place: noting(place) for place in places})):
        architectures.tiny(name)(input_ids=torch.tensor([ids]))
    return outputs


def flat(outputs: HeadOutputs) -> dict[tuple[int, int], NDArray[Any]]:
    return {(layer, head): each for layer, heads in outputs.items() for head, each in heads.items()}


@pytest.mark.parametrize("name", [*SEEN_BY, "bert", "modernbert"])
def test_outputs_are_those_of_eager_attention_alone_and_in_a_padded_batch(name: str) -> None:
    reading = meter(name)
    for prompt, batched in zip(PROMPTS, reading.head_outputs(PROMPTS, HEADS), strict=True):
        alone, want = flat(reading.head_outputs([prompt], HEADS)[0]), eager_outputs(name, prompt)
        assert alone.keys() == flat(batched).keys() == want.keys()
        for place, outputs in want.items():
            assert alone[place].dtype == np.float32
            np.testing.assert_allclose(alone[place], outputs, atol=EXACT)
            np.testing.assert_allclose(flat(batched)[place], outputs, atol=EXACT)


def by_hand(name: str, changes: dict[tuple[int, int], Callable[[Tensor], Tensor]]) -> Tensor:
    """(40, vocabulary): logits."""
    model: Any = architectures.tiny(name)
    with changed(model, ByHand(outputs=changes)):
        logits: Tensor = model(input_ids=torch.tensor([IDS])).logits[0]
    return logits


def becoming(given: Tensor, align: tuple[int | None, ...]) -> Callable[[Tensor], Tensor]:
    def change(output: Tensor) -> Tensor:
        output = output.clone()
        for position, match in enumerate(align):
            if match is not None:
                output[:, position] = given[match]
        return output

    return change


def variants(name: str, values: HeadOutputs) -> dict[str, tuple[Patch, dict[tuple[int, int], Any]]]:
    """Patches, and the same by hand with what eager attention gives."""
    eager = eager_outputs(name, OTHER)
    means = mean_output([values])
    one: Any = {1: HEADS[1]}
    return {
        "token by token": (
            Patch(patch=HEADS, values=values),
            {place: becoming(given, EVERY) for place, given in eager.items()},
        ),
        "aligned": (
            Patch(patch=HEADS, values=values, align=ALIGN),
            {place: becoming(given, ALIGN) for place, given in eager.items()},
        ),
        "mean of the other text": (
            Patch(patch=one, values=means),
            {
                place: becoming(each.mean(0).expand(40, -1), tuple(range(40)))
                for place, each in eager.items()
                if place[0] == 1
            },
        ),
    }


@pytest.mark.parametrize("begins", ["in the middle", "at the beginning"])
@pytest.mark.parametrize("name", SEEN_BY)
def test_a_patched_model_gives_the_logits_of_eager_attention_patched_by_hand(name: str, begins: str) -> None:
    scorer = Scorer(meter(name))
    assert scorer.can_resume
    scorer.can_resume = begins == "in the middle"
    values = meter(name).head_outputs([OTHER], HEADS)[0]
    pairs = variants(name, values)
    base, scored = scorer.scores(IDS, START, [[patch] for patch, _ in pairs.values()])
    answer = torch.tensor(IDS[START:])
    for (variant, (_, changes)), scores in zip(pairs.items(), scored, strict=True):
        rows = by_hand(name, changes)[START - 1 : -1].double().log_softmax(-1)
        np.testing.assert_allclose(
            scores.log_probs, rows.gather(-1, answer[:, None])[:, 0], atol=EXACT, err_msg=variant
        )
        assert np.abs(scores.log_probs - base.log_probs).max() > 10 * EXACT, variant


@pytest.mark.parametrize("name", SEEN_BY)
def test_each_prompt_of_a_padded_batch_gets_its_own_patch_and_its_own_mean(name: str) -> None:
    model: Any = architectures.tiny(name)
    lengths = [len(prompt) for prompt in PROMPTS]
    values = meter(name).head_outputs([OTHER], HEADS)[0]
    aligns = [ALIGN[:length] for length in lengths]
    mean = Ablate(ablate={0: (2,)}, how="mean")
    edits = [[mean, Patch(patch=HEADS, values=values, align=align)] for align in aligns]
    ids, real = padded(PROMPTS)
    wanted = Wanted(torch.zeros(3, 0, 40), frozenset(), edits=PlacedEdits(edits, lengths), stop=False)
    batch = {"input_ids": ids, "attention_mask": real.long()}
    logits = measure_forward(model, batch, wanted, logits=True).logits
    assert logits is not None
    eager = eager_outputs(name, OTHER)
    for place, (prompt, align) in enumerate(zip(PROMPTS, aligns, strict=True)):
        changes: dict[tuple[int, int], Any] = {at: becoming(given, align) for at, given in eager.items()}
        changes[0, 2] = lambda output: output.mean(1, keepdim=True).expand_as(output)
        with changed(model, ByHand(outputs=changes)):
            want = model(input_ids=torch.tensor([prompt])).logits[0]
        torch.testing.assert_close(logits[place, : len(prompt)], want, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("name", SEEN_BY)
def test_patched_with_their_own_outputs_heads_change_nothing_at_all(name: str) -> None:
    values = meter(name).head_outputs([IDS], HEADS)[0]
    base, (own,) = Scorer(meter(name)).scores(IDS, START, [[Patch(patch=HEADS, values=values)]])
    np.testing.assert_array_equal(own.log_probs, base.log_probs)
    assert not own.kl.any()


def test_outputs_in_bfloat16_are_kept_in_float32_and_change_nothing_either() -> None:
    model: Any = architectures.tiny("llama")
    try:
        reading = Meter(model.to(torch.bfloat16), "llama", 3, {}, lambda count: IDS[: min(count, 40)])
        values = reading.head_outputs([IDS], HEADS)[0]
        base, (own,) = Scorer(reading).scores(IDS, START, [[Patch(patch=HEADS, values=values)]])
    finally:
        architectures.tiny.cache_clear()
    assert values[1][0].dtype == np.float32
    np.testing.assert_array_equal(own.log_probs, base.log_probs)


@pytest.mark.parametrize("name", OUTSIDE)
def test_models_outside_the_interface_refuse_outputs_and_patches(name: str) -> None:
    with pytest.raises(AttnscopeError, match=r"outputs of .* heads can't be read .*transformers' attention interface"):
        meter(name).head_outputs([IDS], HEADS)
    patch = Patch(patch={0: (1,)}, values={0: {1: np.ones(8)}})
    with pytest.raises(AttnscopeError, match="only switched off"):
        Scorer(meter(name)).scores(IDS, START, [[patch]])


@pytest.mark.parametrize(
    ("heads", "words"), [({7: [0]}, "no attention to edit in layer 7"), ({1: [0, 4]}, "layer 1 .* has no head 4")]
)
def test_heads_that_do_not_exist_have_no_outputs(heads: Any, words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        meter("llama").head_outputs([IDS], heads)


def test_outputs_that_are_not_finite_are_refused() -> None:
    model: Any = architectures.tiny("llama")
    try:
        reading = meter("llama")
        reading.heads  # noqa: B018  (the proof is of the model as it was)
        with torch.no_grad():
            model.model.layers[1].self_attn.v_proj.weight[0] = torch.inf
        with pytest.raises(AttnscopeError, match=r"not finite .*layer 1"):
            reading.head_outputs([IDS], HEADS)
    finally:
        architectures.tiny.cache_clear()
