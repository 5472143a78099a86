"""PEFT adapters, merged into a model's weights; refused unless every tensor finds its place and changes the model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from attnscope.errors import AttnscopeError, Parameter, Words, near
from attnscope.models import bases, hub
from attnscope.models.builtin import BUILTINS
from attnscope.models.memory import is_out_of_memory
from attnscope.models.narration import libraries_silenced
from attnscope.models.sources import find_source
from attnscope.models.weights import safetensors_header
from attnscope.study.model_folder import ADAPTER_CONFIG as _CONFIG
from attnscope.study.model_folder import ADAPTER_PICKLED as _PICKLED
from attnscope.study.model_folder import ADAPTER_SAFE as SAFE
from attnscope.study.model_folder import is_adapter as is_adapter

_NAME = "attnscope_adapter"

Changing = Callable[[Sequence[torch.nn.Parameter]], None]

# These add learned vectors beside or before the text's own tokens, which can't be merged into weights.
_NOT_IN_WEIGHTS = frozenset(
    {"PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE", "ADAPTION_PROMPT"}
)


def find_adapter(name: str, *, allow_pickle: bool) -> Path:
    """The folder of an adapter (a folder, a Hub id or a built-in), with its weight file checked for completeness."""
    try:
        source = find_source(name)
    except AttnscopeError as error:
        built_in = near(name, [each for each, part in BUILTINS.items() if part.adapter is not None])
        what = f"a folder, a Hub id (org/name), or a built-in ({built_in})"
        raise _refusal("there is no such adapter", name, what, "check the adapter's name") from error
    own = BUILTINS[source.name].adapter if source.kind == "builtin" else None
    if own is not None:
        folder = own
    elif source.kind == "hub":
        folder = hub.fetch_adapter(source.name, source.revision, allow_pickle=allow_pickle)
    elif source.kind == "folder" and source.path is not None:
        folder = source.path
    else:
        raise _refusal("this is not an adapter", name, "an adapter is a folder or a Hub id", "check the adapter's name")
    if not (folder / _CONFIG).is_file():
        raise _refusal(
            "this is not an adapter", str(folder), f"an adapter has an {_CONFIG}", "check the adapter's name"
        )
    _settings(folder)
    if (folder / SAFE).is_file():
        safetensors_header(folder / SAFE)
    elif not (folder / _PICKLED).is_file():
        raise _refusal("the adapter has no weights", str(folder), f"they are in {SAFE}", "check or download it again")
    elif not allow_pickle:
        raise _refusal(
            "the adapter has only pickled weights, which can run any code when opened",
            str(folder / _PICKLED),
            "safetensors files are always read",
            ("save it as safetensors or, if you trust its author, pass ", Parameter("allow_pickle", True)),
        )
    return folder


def apply_adapter(
    model: PreTrainedModel, folder: Path, *, name: str, about_to_change: Changing = lambda _: None
) -> PreTrainedModel:
    """The model with an adapter merged into its weights, still of the same class. name: the model's.

    The model you pass in can't be used afterwards, even if the adapter is refused. about_to_change: called with the
    weights that merging will change in place.
    """
    settings = _settings(folder)
    try:
        with libraries_silenced():
            _refuse_other_base(model, folder, settings)
            weights = _weights(model, folder)
            if not settings.get("ensure_weight_tying"):
                _untie_if_adapted(model, weights)
            before = bit_sums(model)
            merged = _merged(model, folder, weights, about_to_change)
    except AttnscopeError:
        raise
    except Exception as error:  # each kind of adapter fails in its own way on a model it wasn't made for
        if is_out_of_memory(error):
            raise
        raise _mismatch(folder, settings, _first_lines(error)) from error
    after = bit_sums(merged)
    if type(merged) is not type(model) or after.keys() != before.keys():
        raise _refusal(
            "the adapter can't be merged into the model",
            str(folder),
            f"{settings['peft_type']} leaves its own modules in the model",
            "use an adapter that changes weights, such as LoRA",
        )
    if after == before:
        raise _refusal(
            "the adapter changes nothing",
            str(folder),
            f"in {merged.dtype}, all {len(after)} weights of {name} are the same with and without it",
            "train the adapter, or leave it out",
        )
    merged.train(False)
    return merged


def adapter_file(folder: Path) -> Path:
    """The file that holds an adapter's weights."""
    return folder / SAFE if (folder / SAFE).is_file() else folder / _PICKLED


def settings_file(folder: Path) -> Path:
    """The file that says how an adapter's weights are put on a model."""
    return folder / _CONFIG


def made_for(folder: Path) -> tuple[str | None, str | None]:
    """The base model that an adapter names, and its revision: only a hint, since models go by many names."""
    settings = _settings(folder)
    named, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    return (str(named) if named else None), (str(revision) if revision else None)


def _refuse_other_base(model: PreTrainedModel, folder: Path, settings: dict[str, Any]) -> None:
    from safetensors import safe_open

    if adapter_file(folder).name != SAFE:
        return
    with safe_open(folder / SAFE, "pt") as file:
        header = file.metadata() or {}
    far = bases.distance(model, header)
    if far is not None and not far < bases.CLOSE:
        away = f"{far:.2g} away (rounding alone: 0.001, unrelated weights: 1)"
        how = away if far < math.inf else "the model's weights have other names"
        raise _mismatch(folder, settings, f"it was trained on other weights: {how}")


def _weights(model: PreTrainedModel, folder: Path) -> dict[str, torch.Tensor]:
    from peft.utils import load_peft_weights

    renamed = getattr(model, "_checkpoint_conversion_mapping", {})
    return dict(load_peft_weights(str(folder), device="cpu", key_mapping=renamed))


def _untie_if_adapted(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> None:
    # Merging into a tied weight would change both ends; in training the adapter changed only one.
    embeddings: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None or getattr(head, "weight", None) is not getattr(embeddings, "weight", None):
        return
    ends = [name.rpartition(".")[2] for name, module in model.named_modules() if module is head or module is embeddings]
    if any(end in key.split(".") for key in weights for end in ends):
        head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = model.config.get_text_config().tie_word_embeddings = False


def _merged(
    model: PreTrainedModel, folder: Path, weights: dict[str, torch.Tensor], about_to_change: Changing
) -> PreTrainedModel:
    from peft import PeftConfig, PeftModel
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import set_peft_model_state_dict

    config = PeftConfig.from_pretrained(str(folder))
    config.inference_mode = True
    wrapped = PeftModel(model, config, adapter_name=_NAME)
    layers = [each.get_base_layer() for each in wrapped.modules() if isinstance(each, BaseTunerLayer)]
    about_to_change([weight for layer in layers for weight in layer.parameters(recurse=False)])
    result: Any = set_peft_model_state_dict(wrapped, weights, adapter_name=_NAME)
    without_place = list(result.unexpected_keys)
    without_weights = [key for key in result.missing_keys if _NAME in key.split(".")]
    if without_place or without_weights or not weights:
        raise _mismatch(folder, _settings(folder), _unlanded(len(weights), without_place, without_weights))
    return wrapped.merge_and_unload(safe_merge=True)  # type: ignore[no-any-return]


def _unlanded(count: int, without_place: list[str], without_weights: list[str]) -> str:
    if without_place:
        return f"{len(without_place)} of its {count} tensors have no place in the model, such as {without_place[0]}"
    if without_weights:
        return f"it has no weights for {len(without_weights)} adapted places, such as {without_weights[0]}"
    return "it holds no tensors"


def bit_sums(model: PreTrainedModel) -> dict[str, int]:
    """By name of each weight: its bits summed as integers, so equal weights give equal sums and no copy is needed."""
    return {
        name: int(weight.detach().contiguous().view(_INTEGERS[weight.itemsize]).sum(dtype=torch.int64))
        for name, weight in model.named_parameters()
    }


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _settings(folder: Path) -> dict[str, Any]:
    file = folder / _CONFIG
    try:
        settings = dict(json.loads(file.read_text(encoding="utf-8")))
        kind = str(settings["peft_type"])
    except (ValueError, KeyError, TypeError) as error:
        raise _refusal(
            "the adapter's configuration can't be read", str(file), f"it needs a peft_type ({error})", "save it again"
        ) from error
    if kind in _NOT_IN_WEIGHTS:
        raise _refusal(
            f"a {kind} adapter can't be measured",
            str(file),
            "it adds vectors that are no tokens of the text, so the text's tokens don't receive all of the attention",
            "use an adapter that changes weights, such as LoRA",
        )
    return settings


def _mismatch(folder: Path, settings: dict[str, Any], how: str) -> AttnscopeError:
    base = settings.get("base_model_name_or_path")
    return _refusal(
        "the adapter does not fit the model",
        str(folder),
        how,
        f"load it on the model it was made for{f', {base}' if base else ''}",
    )


def _refusal(what: str, where: str, allowed: str, todo: Words) -> AttnscopeError:
    return AttnscopeError(what, where=where, allowed=allowed, todo=todo)


def _first_lines(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
