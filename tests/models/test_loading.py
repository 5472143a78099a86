"""Any kind of text model loads as what it was saved as, with every weight from the checkpoint, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import dynamic_module_utils

from attnscope.errors import AttnscopeError
from attnscope.models.load import load
from attnscope.models.memory import shortage_explained

from . import tiny

VOCABULARY = len(tiny.VOCABULARY)
SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def change_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_folder_loads_with_its_facts(llama: Path) -> None:
    loaded = load(str(llama))
    assert (loaded.layers, loaded.heads, loaded.context, loaded.unreadable) == (2, 4, 128, {})
    assert (loaded.architecture, loaded.dtype, loaded.device) == ("LlamaForCausalLM", "float32", "cpu")
    assert loaded.source is not None
    assert loaded.source.kind == "folder"
    assert not loaded.model.training
    assert len(loaded.fingerprint["model.safetensors"]) == 64


def test_a_folder_may_hold_a_gguf_json_of_its_own(tmp_path: Path) -> None:
    tiny.save_model(tmp_path)
    (tmp_path / "gguf.json").write_text('{"a": 1}')
    assert load(str(tmp_path)).made_from is None


def test_a_gguf_file_loads_with_tokenizer_and_chat_template(gguf: Path) -> None:
    loaded = load(str(gguf))
    assert (loaded.layers, loaded.heads, loaded.dtype) == (2, 4, "float32")
    assert loaded.tokenizer("a b", return_offsets_mapping=True)["offset_mapping"] == [(0, 1), (1, 2), (2, 3)]
    assert loaded.tokenizer.chat_template


def test_nothing_is_printed_by_the_libraries(llama: Path, gguf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(str(llama))
    load(str(gguf))
    assert capfd.readouterr() == ("", "")


def test_a_checkpoint_in_half_precision_is_float32_on_a_cpu_unless_told(tmp_path: Path) -> None:
    tiny.save_model(tmp_path).to(torch.bfloat16).save_pretrained(tmp_path)
    assert load(str(tmp_path)).dtype == "float32"
    assert load(str(tmp_path), dtype="bfloat16").dtype == "bfloat16"


def test_a_checkpoint_that_fits_only_in_its_own_dtype_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.save_model(tmp_path).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    room = sum(weight.numel() for weight in model.parameters()) * 3
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": room}))
    assert load(str(tmp_path)).dtype == "bfloat16"


def test_a_model_larger_than_free_memory_is_refused_with_the_numbers(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1000}))
    with pytest.raises(AttnscopeError, match=r"not enough memory.*need 0.12 MiB and 0.00 MiB is free"):
        load(str(llama))


def test_running_out_of_memory_while_loading_is_said() -> None:
    with pytest.raises(AttnscopeError, match=r"not enough memory for the model \(huge\)"), shortage_explained("huge"):
        torch.empty(1 << 50, dtype=torch.uint8)


def test_the_text_model_of_a_multimodal_one_loads_as_what_it_was_saved_as(tmp_path: Path) -> None:
    text = {**SMALL, "intermediate_size": 32, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 28, "patch_size": 14}
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1)
    tiny.save_model(tmp_path, config, "Gemma3ForConditionalGeneration")
    loaded = load(str(tmp_path))
    assert loaded.architecture == "Gemma3ForConditionalGeneration"
    assert (loaded.layers, loaded.heads, loaded.context) == (2, 4, 64)


@pytest.mark.parametrize("model_class", ["BertForMaskedLM", "BertModel", "BertForSequenceClassification"])
def test_encoders_load_as_what_they_were_saved_as(tmp_path: Path, model_class: str) -> None:
    tiny.save_model(tmp_path, transformers.BertConfig(**SMALL, intermediate_size=32), model_class)
    assert load(str(tmp_path)).architecture == model_class


def test_a_missing_pooler_does_not_matter(tmp_path: Path) -> None:
    tiny.save_model(tmp_path, transformers.BertConfig(**SMALL, intermediate_size=32), "BertForMaskedLM")
    change_config(tmp_path, architectures=["BertModel"])
    assert load(str(tmp_path)).architecture == "BertModel"


def test_tied_embeddings_are_not_missing(tmp_path: Path) -> None:
    tiny.save_model(tmp_path, tiny.llama_config(tie_word_embeddings=True))
    assert load(str(tmp_path)).layers == 2


@pytest.mark.parametrize("lost", ["model.layers.1.self_attn.q_proj.weight", "lm_head.weight", "model.norm.weight"])
def test_weights_that_would_be_random_are_refused(tmp_path: Path, lost: str) -> None:
    tiny.save_model(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(file).items() if name != lost}, file, {"format": "pt"})
    with pytest.raises(AttnscopeError, match=rf"lacks 1 of.*{lost}"):
        load(str(tmp_path))


def test_a_config_with_more_layers_than_the_weights_is_refused(tmp_path: Path) -> None:
    tiny.save_model(tmp_path)
    change_config(tmp_path, num_hidden_layers=3)
    with pytest.raises(AttnscopeError, match=r"lacks 9 of"):
        load(str(tmp_path))


def test_a_config_with_another_width_than_the_weights_is_refused(tmp_path: Path) -> None:
    tiny.save_model(tmp_path)
    change_config(tmp_path, intermediate_size=64)
    with pytest.raises(AttnscopeError, match=r"weights can't be loaded"):
        load(str(tmp_path))


@pytest.mark.parametrize("keep", [0, 5, 300, -1000, -1])
def test_truncated_safetensors_is_refused_naming_the_file(tmp_path: Path, keep: int) -> None:
    tiny.save_model(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:keep])
    with pytest.raises(AttnscopeError, match=r"truncated.*model\.safetensors") as refusal:
        load(str(tmp_path))
    if keep < 0:
        assert f"{-keep:,} bytes short of {len(whole):,}" in str(refusal.value)


@pytest.mark.parametrize("keep", [0, 3, 20, 700, 4000, -20000, -1])
def test_truncated_gguf_is_refused_naming_the_file(gguf: Path, tmp_path: Path, keep: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf.read_bytes()[:keep])
    with pytest.raises(AttnscopeError, match=r"truncated.*cut\.gguf") as refusal:
        load(str(cut))
    if keep < 0:
        assert "bytes short of" in str(refusal.value)


def test_a_gguf_of_garbage_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.gguf").write_bytes(b"this is not a model" * 100)
    with pytest.raises(AttnscopeError, match=r"noise\.gguf"):
        load(str(tmp_path / "noise.gguf"))


def test_a_missing_shard_is_refused_naming_the_file(tmp_path: Path) -> None:
    tiny.save_model(tmp_path).save_pretrained(tmp_path, max_shard_size="40KB")
    (tmp_path / "model.safetensors").unlink(missing_ok=True)
    assert load(str(tmp_path)).layers == 2
    lost = sorted(tmp_path.glob("model-*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(AttnscopeError, match=rf"missing.*{lost.name}"):
        load(str(tmp_path))


def test_pickled_weights_are_refused_unless_allowed(tmp_path: Path) -> None:
    model = tiny.save_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(AttnscopeError, match=r"pickled.*allow_pickle"):
        load(str(tmp_path))
    assert load(str(tmp_path), allow_pickle=True).layers == 2


def test_code_that_comes_with_a_model_is_never_run_unless_allowed(tmp_path: Path) -> None:
    tiny.save_model(tmp_path)
    ran = tmp_path / "ran"
    (tmp_path / "own.py").write_text(f"open({str(ran)!r}, 'w')\n")
    change_config(tmp_path, model_type="own", auto_map={"AutoConfig": "own.Config"})
    with pytest.raises(AttnscopeError, match=r"own code.*trust_remote_code"):
        load(str(tmp_path))
    assert not ran.exists()


def test_code_that_comes_with_a_model_runs_when_allowed(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    own = tmp_path / "model"
    tiny.save_model(own)
    (own / "own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class Config(LlamaConfig):\n    model_type = 'own'\n"
        "class OwnForCausalLM(LlamaForCausalLM):\n    config_class = Config\n"
    )
    code = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    change_config(own, model_type="own", architectures=["OwnForCausalLM"], auto_map=code)
    assert load(str(own), trust_remote_code=True).architecture == "OwnForCausalLM"
    assert load(str(llama), trust_remote_code=True).architecture == "LlamaForCausalLM"


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    tiny.save_model(tmp_path)
    change_config(tmp_path, model_type="neverheard")
    with pytest.raises(AttnscopeError, match=r"neverheard"):
        load(str(tmp_path))


def test_state_space_and_encoder_decoder_folders_are_refused_before_their_weights_are_read(tmp_path: Path) -> None:
    for name, config in (("mamba", transformers.MambaConfig()), ("t5", transformers.T5Config())):
        config.save_pretrained(tmp_path / name)
        with pytest.raises(AttnscopeError, match=rf"can't measure a {name} model"):
            load(str(tmp_path / name))


@pytest.mark.parametrize("model_class", ["ViTModel", "CLIPModel"])
def test_models_that_do_not_read_text_alone_are_refused(tmp_path: Path, model_class: str) -> None:
    config_class = getattr(transformers, model_class).config_class
    config = config_class()
    config.architectures = [model_class]
    config.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(AttnscopeError, match=r"can't measure a (vit|clip) model"):
        load(str(tmp_path))


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    tiny.save_model(tmp_path)
    for file in tmp_path.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(AttnscopeError, match=r"no tokenizer"):
        load(str(tmp_path))


def test_a_broken_config_or_tokenizer_is_refused(tmp_path: Path) -> None:
    tiny.save_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(AttnscopeError, match=r"no tokenizer"):
        load(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(AttnscopeError, match=r"configuration can't be used"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "float3"}, r"unknown dtype \(dtype='float3'\): near: float32"),
        ({"device": "cuda:99"}, r"no such device \(device='cuda:99'\)"),
        ({"device": "cpu", "device_map": "auto"}, r"both a device and a device map"),
        ({"revision": "main"}, r"a revision was given"),
    ],
)
def test_options_that_make_no_sense_are_refused(llama: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(AttnscopeError, match=said):
        load(str(llama), **options)


def test_a_device_map_is_passed_through(llama: Path) -> None:
    assert load(str(llama), device_map={"": "cpu"}).device == "cpu"
