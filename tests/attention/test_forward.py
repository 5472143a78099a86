"""A reading costs only what was asked for, and leaves the model as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from attnscope.attention.groups import row_weights
from tests.attention import architectures
from tests.attention.reading import modules, read, real_rows, received
from tests.tolerances import LOGITS, SHALLOW


def inputs() -> dict[str, Any]:
    return {"input_ids": torch.randint(3, architectures.VOCAB, (2, 12), generator=torch.Generator().manual_seed(1))}


def state(model: nn.Module) -> dict[str, Any]:
    return {
        name: (
            module.training,
            getattr(getattr(module, "config", None), "_attn_implementation", None),
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
        )
        for name, module in model.named_modules()
    }


@pytest.mark.parametrize("name", ["llama", "gemma3 inside a multimodal model", "falcon"])
def test_the_model_is_left_as_it_was_found_also_when_the_forward_raises(name: str) -> None:
    model = architectures.tiny(name)
    found = modules(model, inputs()) if name == "falcon" else None
    model.train()
    before, grad = state(model), torch.is_grad_enabled()
    weights = row_weights(["all"], real_rows(inputs()))
    read(model, inputs(), weights, range(3), eager=found)
    assert state(model) == before
    with pytest.raises(IndexError):
        read(model, {"input_ids": torch.tensor([[10**6] * 12] * 2)}, weights, range(3), eager=found)
    assert state(model) == before
    assert torch.is_grad_enabled() == grad
    model.eval()


def test_nothing_runs_after_the_last_layer_asked_for() -> None:
    model = architectures.tiny("llama")
    ran: list[str] = []
    handles = [
        module.register_forward_hook(lambda *_, name=name: ran.append(name)) for name, module in model.named_modules()
    ]
    read(model, inputs(), row_weights(["all"], real_rows(inputs())), [0, 1])
    for handle in handles:
        handle.remove()
    assert "model.layers.1.self_attn.v_proj" in ran
    assert not [name for name in ran if name.startswith("model.layers.2") or name == "lm_head"]
    assert "model.layers.1.mlp" not in ran


def test_the_head_runs_when_logits_are_wanted_and_the_layers_do_not_change_them() -> None:
    model = architectures.tiny("llama")
    with torch.inference_mode():
        plain = model(**inputs()).logits
    weights = row_weights(["all"], real_rows(inputs()))
    for layers in ([0], [0, 2], [1, 2]):
        measured = read(model, inputs(), weights, layers, logits=True)
        assert sorted(measured.layers) == layers
        torch.testing.assert_close(measured.logits, plain, atol=LOGITS, rtol=LOGITS)


def test_a_subset_of_layers_has_the_numbers_of_the_whole() -> None:
    model = architectures.tiny("gemma2, softcap and window")
    weights = row_weights(["last"], real_rows(inputs()))
    whole = read(model, inputs(), weights, range(3))
    part = read(model, inputs(), weights, [2, 0])
    assert set(part.layers) == {0, 2}
    for layer in (0, 2):
        torch.testing.assert_close(received(part)[layer], received(whole)[layer], atol=SHALLOW, rtol=0)


def test_right_padded_batches_without_a_mask_give_each_prompt_what_it_gets_alone() -> None:
    model = architectures.tiny("mistral, window")
    ids = inputs()["input_ids"]
    lengths = [12, 7]
    real = torch.arange(12) < torch.tensor(lengths)[:, None]
    weights = row_weights(["last", "all"], real)
    both = read(model, {"input_ids": ids}, weights, range(3), lengths=lengths)
    for prompt, length in enumerate(lengths):
        one = {"input_ids": ids[prompt : prompt + 1, :length]}
        alone = read(model, one, row_weights(["last", "all"], real_rows(one)), range(3))
        for layer in range(3):
            got = received(both)[layer][prompt]
            torch.testing.assert_close(got[..., :length], received(alone)[layer][0], atol=SHALLOW, rtol=0)
            assert float(got[..., length:].abs().sum()) == 0
