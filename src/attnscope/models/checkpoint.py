"""Reads configuration, tokenizer and model from a local folder or GGUF file, with every weight accounted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
)

from attnscope.errors import AttnscopeError, Parameter
from attnscope.models.gguf_unused import unused_weights
from attnscope.models.memory import is_out_of_memory
from attnscope.models.narration import libraries_silenced
from attnscope.models.spans import with_whole_spans
from attnscope.study.model_folder import has_tokenizer


def read_config(path: Path, *, trust_remote_code: bool) -> Any:
    """The configuration of a model folder or GGUF file."""
    if path.is_dir() and not (path / "config.json").is_file():
        inside = next(iter(sorted(path.glob("*.gguf"))), None)
        hint = f"name the file in it: {inside}" if inside else "check the folder"
        raise AttnscopeError(
            "this folder is not a model",
            where=str(path),
            allowed="a model folder has a config.json",
            todo=hint,
        )
    try:
        with libraries_silenced():
            return AutoConfig.from_pretrained(_folder(path), trust_remote_code=trust_remote_code, **_gguf(path))
    except Exception as error:  # a broken or unknown configuration makes transformers raise anything
        remote = "trust_remote_code" in str(error)
        raise AttnscopeError(
            "this model brings its own code" if remote else "the model's configuration can't be used",
            where=str(path),
            allowed="a model's own code runs only if you allow it" if remote else _first_sentence(error),
            todo=("if you trust its author, pass ", Parameter("trust_remote_code", True))
            if remote
            else f"check the file; transformers {transformers.__version__} must know this architecture",
        ) from error


def read_tokenizer(path: Path, *, trust_remote_code: bool) -> Any:
    """The tokenizer of a model; it must be able to say which characters each token covers."""
    problem = "no tokenizer files"
    tokenizer: Any = None
    if path.is_file() or has_tokenizer(path):
        try:
            with libraries_silenced():
                tokenizer = AutoTokenizer.from_pretrained(
                    _folder(path), trust_remote_code=trust_remote_code, **_gguf(path)
                )
        except Exception as error:
            problem = _first_sentence(error)
    if tokenizer is None or len(tokenizer) == 0:
        raise AttnscopeError(
            "the model has no tokenizer that can be read",
            where=str(path),
            allowed=problem,
            todo="put the files of its tokenizer (tokenizer.json, tokenizer_config.json) beside the weights",
        )
    if not tokenizer.is_fast:
        raise AttnscopeError(
            "the tokenizer can't say which characters a token covers",
            where=f"{path}, {type(tokenizer).__name__}",
            allowed="a tokenizer with a tokenizer.json can",
            todo="save it as tokenizer.json",
        )
    return with_whole_spans(tokenizer)


def read_model(
    path: Path,
    config: Any,
    *,
    dtype: str,
    device: torch.device,
    device_map: str | dict[str, Any] | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> PreTrainedModel:
    """The model in evaluation mode; refused if the checkpoint lacks some of its weights."""
    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "output_loading_info": True, **_gguf(path)}
    if trust_remote_code:
        options["trust_remote_code"] = True
    if path.is_dir() and not allow_pickle:
        options["use_safetensors"] = True
    if device_map is not None:
        options["device_map"] = device_map
    elif device.type != "cpu":
        options["device_map"] = {"": str(device)}
    try:
        with libraries_silenced():
            model, report = model_class(config).from_pretrained(_folder(path), config=config, **options)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise AttnscopeError(
            "the model's weights can't be loaded",
            where=str(path),
            allowed=_first_sentence(error),
            todo="check that weights and config.json belong together, or download the model again"
            if device_map is None
            else ("check the device map, or leave out ", Parameter("device_map")),
        ) from error
    _refuse_random_weights(model, report, path)
    if path.is_file() and report["unexpected_keys"]:
        raise unused_weights(path, sorted(report["unexpected_keys"]))
    model.eval()
    return model  # type: ignore[no-any-return]


def model_class(config: Any) -> Any:
    """The class the checkpoint was saved as, else the one transformers has for text with this configuration."""
    for saved_as in config.architectures or ():
        known = getattr(transformers, saved_as, None)
        if isinstance(known, type) and issubclass(known, PreTrainedModel) and known.config_class is type(config):
            return known
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMaskedLM):
        if type(config) in auto._model_mapping or "auto_map" in config.to_dict():
            return auto
    return AutoModel


def _refuse_random_weights(model: PreTrainedModel, report: dict[str, Any], path: Path) -> None:
    missing = sorted(key for key in report["missing_keys"] if _is_measured(model, key))
    if missing:
        raise AttnscopeError(
            f"the checkpoint lacks {len(missing)} of the model's weights",
            where=f"{path}, {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}",
            allowed="they would be random, and so would every number computed from them",
            todo="check that weights and config.json belong together, or download the model again",
        )


def _is_measured(model: PreTrainedModel, key: str) -> bool:
    # Attention depends on the body alone: a classifier or a BERT pooler may be missing. The language model head must be
    # there, because logits come from it (a tied one is never reported as missing).
    if "pooler" in key.split("."):
        return False
    prefix = model.base_model_prefix
    in_body = model.base_model is model or not prefix or key.startswith(f"{prefix}.")
    output_head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return in_body or getattr(output_head, "weight", None) is _parameter(model, key)


def _parameter(model: PreTrainedModel, key: str) -> object:
    try:
        return model.get_parameter(key)
    except AttributeError:
        return key


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _gguf(path: Path) -> dict[str, Any]:
    return {} if path.is_dir() else {"gguf_file": path.name}


def _first_sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
