"""An adapter lands whole and changes the model, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peft import PeftModel, PromptTuningConfig, get_peft_model

from attnscope.errors import AttnscopeError
from attnscope.models.load import load
from tests.tolerances import LOGITS

from . import tiny

PROMPT = torch.arange(2, 30)[None]


def test_adapter_lands_and_gives_what_peft_gives_unmerged(llama: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "adapter")
    loaded = load(str(llama), adapter=str(adapter))
    base = transformers.LlamaForCausalLM.from_pretrained(llama)
    with torch.no_grad():
        plain = base(PROMPT).logits
        expected = PeftModel.from_pretrained(base, str(adapter)).eval()(PROMPT).logits
        found = loaded.model(PROMPT).logits
    assert type(loaded.model) is transformers.LlamaForCausalLM
    assert not loaded.model.training
    torch.testing.assert_close(found, expected, atol=LOGITS, rtol=LOGITS)
    assert (found - plain).abs().max() > 1e-3
    assert set(loaded.fingerprint) == {"model.safetensors", "adapter_model.safetensors"}


@pytest.mark.parametrize(
    "lora",
    [
        {"target_modules": ["lm_head"]},
        {"target_modules": ["embed_tokens"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    ],
)
def test_adapter_on_one_end_of_tied_embeddings_leaves_the_other_alone(tmp_path: Path, lora: dict[str, Any]) -> None:
    config = tiny.llama_config(tie_word_embeddings=True)
    tiny.save_model(tmp_path / "model", config)
    adapter = tiny.save_adapter(tmp_path / "adapter", config, **lora)
    with torch.no_grad():
        base = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model")
        expected = PeftModel.from_pretrained(base, str(adapter)).eval()(PROMPT).logits
        found = load(str(tmp_path / "model"), adapter=str(adapter)).model(PROMPT).logits
    torch.testing.assert_close(found, expected, atol=LOGITS, rtol=LOGITS)


def test_adapter_for_another_width_is_refused(llama: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "wide", tiny.llama_config(hidden_size=64))
    with pytest.raises(AttnscopeError, match=r"does not fit.*size mismatch"):
        load(str(llama), adapter=str(adapter))


def test_adapter_for_more_layers_is_refused(llama: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "deep", tiny.llama_config(num_hidden_layers=3))
    with pytest.raises(AttnscopeError, match=r"4 of its 12 tensors have no place"):
        load(str(llama), adapter=str(adapter))


def test_adapter_for_fewer_layers_is_refused(llama: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "shallow", tiny.llama_config(num_hidden_layers=1))
    with pytest.raises(AttnscopeError, match=r"no weights for 4 adapted places"):
        load(str(llama), adapter=str(adapter))


def test_adapter_for_other_module_names_is_refused(llama: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "other")
    settings = json.loads((adapter / "adapter_config.json").read_text())
    settings["target_modules"], settings["base_model_name_or_path"] = ["c_attn"], "someone/gpt2"
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(AttnscopeError, match=r"does not fit.*c_attn.*someone/gpt2"):
        load(str(llama), adapter=str(adapter))


def test_adapter_whose_tensor_names_differ_is_refused(llama: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = tiny.save_adapter(tmp_path / "renamed") / "adapter_model.safetensors"
    save_file({name.replace(".layers.", ".h."): tensor for name, tensor in load_file(file).items()}, file)
    with pytest.raises(AttnscopeError, match=r"8 of its 8 tensors have no place"):
        load(str(llama), adapter=str(file.parent))


def test_adapter_that_changes_nothing_is_refused(llama: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "zero", zero=True)
    with pytest.raises(AttnscopeError, match=r"changes nothing"):
        load(str(llama), adapter=str(adapter))


def test_adapter_too_faint_for_the_dtype_is_refused(llama: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = tiny.save_adapter(tmp_path / "faint") / "adapter_model.safetensors"
    save_file({name: tensor * 1e-9 for name, tensor in load_file(file).items()}, file)
    with pytest.raises(AttnscopeError, match=r"changes nothing"):
        load(str(llama), adapter=str(file.parent), dtype="bfloat16")


def test_adapter_with_virtual_tokens_is_refused(llama: Path, tmp_path: Path) -> None:
    model = transformers.LlamaForCausalLM(tiny.llama_config())
    prompt = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    get_peft_model(model, prompt).save_pretrained(str(tmp_path / "prompt"))
    with pytest.raises(AttnscopeError, match=r"PROMPT_TUNING.*no tokens of the text"):
        load(str(llama), adapter=str(tmp_path / "prompt"))


def test_pickled_adapter_is_refused_unless_allowed(llama: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    adapter = tiny.save_adapter(tmp_path / "pickled")
    torch.save(load_file(adapter / "adapter_model.safetensors"), adapter / "adapter_model.bin")
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(AttnscopeError, match=r"pickled.*allow_pickle"):
        load(str(llama), adapter=str(adapter))
    assert load(str(llama), adapter=str(adapter), allow_pickle=True).adapter == str(adapter)


def test_truncated_adapter_is_refused(llama: Path, tmp_path: Path) -> None:
    file = tiny.save_adapter(tmp_path / "cut") / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(AttnscopeError, match=r"adapter_model.safetensors.*100 bytes short"):
        load(str(llama), adapter=str(file.parent))


def test_model_folder_given_as_adapter_is_refused(llama: Path) -> None:
    with pytest.raises(AttnscopeError, match=r"not an adapter.*adapter_config.json"):
        load(str(llama), adapter=str(llama))


def test_adapter_lands_on_a_gguf(gguf: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "adapter")
    plain, adapted = load(str(gguf)).model, load(str(gguf), adapter=str(adapter)).model
    with torch.no_grad():
        assert (plain(PROMPT).logits - adapted(PROMPT).logits).abs().max() > 1e-3


def marked(adapter: Path, base: Any) -> Path:
    """The adapter with marks of its base's weights, as the recipe for the built-in one writes them."""
    from safetensors.torch import load_file, save_file

    from attnscope.models.bases import as_metadata, projections_of

    file = adapter / "adapter_model.safetensors"
    save_file(load_file(file), file, metadata={"format": "pt", **as_metadata(projections_of(base))})
    return adapter


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_adapter_that_knows_its_base_lands_on_it_in_any_dtype(llama: Path, tmp_path: Path, dtype: str) -> None:
    adapter = marked(tiny.save_adapter(tmp_path / "a"), transformers.LlamaForCausalLM.from_pretrained(llama))
    assert load(str(llama), adapter=str(adapter), dtype=dtype).dtype == dtype


@pytest.mark.parametrize("kind", ["another", "tuned", "quantized", "rescaled", "other embeddings"])
def test_adapter_that_knows_its_base_is_refused_on_other_weights_of_the_same_shape(
    llama: Path, tmp_path: Path, kind: str
) -> None:
    adapter = marked(tiny.save_adapter(tmp_path / "a"), transformers.LlamaForCausalLM.from_pretrained(llama))
    other = tiny.save_model(tmp_path / "other", seed=0 if kind != "another" else 7)
    with torch.no_grad():
        for name, weight in other.named_parameters():
            if kind == "rescaled":
                weight.mul_(1.05)
            if kind == "other embeddings" and "embed" in name:
                weight.add_(0.5 * weight.std() * torch.randn_like(weight))
            if kind == "tuned":
                weight.add_(0.02 * weight.std() * torch.randn_like(weight))
            if kind == "quantized":
                step = weight.abs().max() / 7
                weight.copy_((weight / step).round() * step)
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(AttnscopeError, match=r"does not fit.*trained on other weights"):
        load(str(tmp_path / "other"), adapter=str(adapter))


def test_an_adapter_folder_stands_for_its_base_with_the_adapter_on_it(llama: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "adapter")
    settings = json.loads((adapter / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = str(llama)
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    alone, together = load(str(adapter)), load(str(llama), adapter=str(adapter))
    assert torch.equal(alone.model(PROMPT).logits, together.model(PROMPT).logits)
    assert (alone.adapter, alone.fingerprint) == (str(adapter), together.fingerprint)
    with pytest.raises(AttnscopeError, match=r"has an adapter already.*is an adapter for"):
        load(str(adapter), adapter=str(adapter))


def test_an_adapter_made_on_top_of_another_is_not_put_on_the_bare_model(llama: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "adapter")
    settings = json.loads((adapter / "adapter_config.json").read_text())
    for base in ("smollm2-135m-blocks", str(tiny.save_adapter(tmp_path / "first"))):
        settings["base_model_name_or_path"] = base
        (adapter / "adapter_config.json").write_text(json.dumps(settings))
        with pytest.raises(AttnscopeError, match=r"made for a model that has an adapter itself"):
            load(str(adapter))


@pytest.mark.model
def test_the_built_in_fine_tune_is_its_base_with_its_adapter_and_takes_no_second_one(tmp_path: Path) -> None:
    tuned, put_on = load("smollm2-135m-blocks"), load("smollm2-135m-instruct", adapter="smollm2-135m-blocks")
    assert torch.equal(tuned.model(PROMPT).logits, put_on.model(PROMPT).logits)
    assert set(tuned.fingerprint) == {"model.safetensors", "adapter_model.safetensors"}
    assert (tuned.layers, tuned.heads, tuned.made_from) == (
        30,
        9,
        put_on.made_from,
    )
    with pytest.raises(AttnscopeError, match=r"has an adapter already.*adapter for smollm2-135m-instruct"):
        load("smollm2-135m-blocks", adapter=str(tmp_path))


@pytest.mark.model
def test_the_built_in_adapter_is_refused_on_any_other_model(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(AttnscopeError, match=r"does not fit.*smollm2-135m-instruct"):
        load(str(llama), adapter="smollm2-135m-blocks")
    twin = load("smollm2-135m-instruct")
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in twin.model.parameters():  # as a short fine-tune would leave it
            weight.add_(0.01 * weight.std() * torch.randn_like(weight))
    twin.model.save_pretrained(tmp_path / "twin")
    twin.tokenizer.save_pretrained(tmp_path / "twin")
    with pytest.raises(AttnscopeError, match=r"does not fit.*trained on other weights.*smollm2-135m-instruct"):
        load(str(tmp_path / "twin"), adapter="smollm2-135m-blocks")
