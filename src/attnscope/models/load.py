"""Loads a model by name: built-ins, folders, GGUF files, the Hub, and adapters on any of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from attnscope.arguments import path_of, shown_parameter, text_of
from attnscope.errors import AttnscopeError, Parameter, near
from attnscope.models import hub
from attnscope.models.adapters import adapter_file, apply_adapter, find_adapter, is_adapter, made_for, settings_file
from attnscope.models.architecture import Architecture, describe
from attnscope.models.builtin import BUILTINS
from attnscope.models.cache import recorded_hashes, sha256
from attnscope.models.checkpoint import read_config, read_model, read_tokenizer
from attnscope.models.gguf import Header, converted_from, gguf_folder
from attnscope.models.memory import free_memory, refuse_if_too_large, shortage_explained
from attnscope.models.package import builtin_folder
from attnscope.models.sources import Source, find_source
from attnscope.models.tokenization import Tokenization
from attnscope.models.weights import Weights, folder_weights
from attnscope.study.model_folder import TRAINER_STATE

_DESCRIPTIONS = (".json", ".jinja", ".py", ".model", ".txt")
NAMES = "a built-in model, a folder, a .gguf file or a Hub id (org/name)"
_DTYPES = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True)
class Description:
    """What is known about a model before its weights are read."""

    name: str
    source: Source
    path: Path
    config: Any
    facts: Architecture
    tokenization: Tokenization
    device: torch.device
    adapter: str | None
    adapter_folder: Path | None
    tokenizer_path: Path
    """Where the tokenizer comes from: `path`, unless another was named."""

    @property
    def files(self) -> list[Path]:
        """What its numbers depend on besides weights: configuration, tokenizer, template, code, adapter settings."""
        inside = [path for home in {self.path, self.tokenizer_path} if home.is_dir() for path in home.iterdir()]
        described = [path for path in inside if path.is_file() and _describes(path.name)]
        return sorted([*described, *([settings_file(self.adapter_folder)] if self.adapter_folder else [])])


def _describes(name: str) -> bool:
    return name.endswith(_DESCRIPTIONS) and not name.startswith(".") and name != TRAINER_STATE


@dataclass(frozen=True)
class Loaded:
    """A model in evaluation mode with its tokenizer and what is known about it."""

    name: str
    source: Source | None
    """None for a model that was in memory already."""
    model: PreTrainedModel
    tokenization: Tokenization
    architecture: str
    layers: int
    heads: int
    context: int | None
    unreadable: dict[int, str]  # layer -> why its attention can't be read
    adapter: str | None
    adapter_base: str | None  # the base that the adapter names: a hint, not checked
    dtype: str
    device: str
    files: tuple[Path, ...]
    made_from: str | None
    """The GGUF file that the weights were converted from: name, SHA-256, number format. None for other models."""
    licence: str | None
    """As stated by a built-in's entry or a GGUF file; None if neither does."""

    @property
    def tokenizer(self) -> Any:
        return self.tokenization.tokenizer

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """SHA-256 by file name of the weights, the adapter's included; read from disk on first use.

        Refuses files of the cache that are not what was put there.
        """
        recorded = {folder: recorded_hashes(folder) or {} for folder in {file.parent for file in self.files}}
        hashes = {}
        for file in self.files:
            hashes[file.name] = sha256(file)
            if recorded[file.parent].get(file.name, hashes[file.name]) != hashes[file.name]:
                raise AttnscopeError(
                    "a model in the cache was changed or damaged",
                    where=str(file),
                    allowed=f"SHA-256 {recorded[file.parent][file.name]}, as noted when it was put there",
                    todo=f"delete the folder {file.parent} and run again",
                )
        return hashes


def look_up(
    name: str | Path,
    *,
    adapter: str | Path | None = None,
    revision: str | None = None,
    tokenizer: str | Path | None = None,
    device: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> Description:
    """A model's configuration and tokenizer, without its weights; refuses all that can be refused without them.

    A built-in model is fetched first if this machine doesn't have it, and a GGUF file is converted if it wasn't yet.
    """
    target = _device(device, device_map)
    name = path_of(name, "name", NAMES)
    chosen = (
        None if revision is None else text_of(revision, "revision", "a branch, tag or commit of a model on the Hub")
    )
    given = None if adapter is None else path_of(adapter, "adapter", "a folder, a Hub id (org/name) or a built-in")
    source, named_adapter = _base_and_adapter(find_source(name, chosen), given)
    path = _on_this_machine(source, code=trust_remote_code)
    with shortage_explained(name):
        config = read_config(path, trust_remote_code=trust_remote_code)
        facts = describe(config, name)
        origin, home = _tokenizer_home(source, path, tokenizer, code=trust_remote_code)
        header = _gguf_header(origin, home)
        tokenization = Tokenization(
            read_tokenizer(home, trust_remote_code=trust_remote_code),
            name,
            bos_before_chats=header is not None and header.begins_with_bos,
        )
        folder = find_adapter(named_adapter, allow_pickle=allow_pickle) if named_adapter else None
        return Description(name, source, path, config, facts, tokenization, target, named_adapter, folder, home)


def _tokenizer_home(source: Source, path: Path, tokenizer: str | Path | None, *, code: bool) -> tuple[Source, Path]:
    """Where the tokenizer is read from: beside the weights, or where another name leads."""
    if tokenizer is None:
        return source, path
    named, _ = _base_and_adapter(find_source(path_of(tokenizer, "tokenizer", NAMES)), None)
    return named, _on_this_machine(named, code=code)


def load(
    name: str | Path,
    *,
    adapter: str | Path | None = None,
    revision: str | None = None,
    tokenizer: str | Path | None = None,
    dtype: str | None = None,
    device: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> Loaded:
    """Load a model by built-in name, folder, .gguf file or Hub id (org/name, org/name@revision).

    A folder with a PEFT adapter stands for the base model it names, with the adapter on it. adapter: an adapter to
    merge into the weights (folder, Hub id or built-in name). tokenizer: where the tokenizer comes from, if not with the
    weights. dtype: by default float32 on a CPU if it fits, else the
    checkpoint's own. device: by default a CUDA device, else Apple's, else the CPU. device_map: spread the model over
    devices, as transformers does. Code and pickled weights that come with a model are refused unless you allow them.
    """
    known_dtype(dtype)
    described = look_up(
        name,
        adapter=adapter,
        revision=revision,
        tokenizer=tokenizer,
        device=device,
        device_map=device_map,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
    )
    model = read_base(
        described,
        dtype=dtype,
        device_map=device_map,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
    )
    if described.adapter_folder:
        with shortage_explained(described.name):
            model = apply_adapter(model, described.adapter_folder, name=described.name)
    return loaded_as(described, model, allow_pickle=allow_pickle)


def read_base(
    described: Description,
    *,
    dtype: str | None,
    device_map: str | dict[str, Any] | None,
    trust_remote_code: bool,
    allow_pickle: bool,
) -> PreTrainedModel:
    """The model that was looked up, without its adapter."""
    source, path, config, target = described.source, described.path, described.config, described.device
    with shortage_explained(described.name):
        if source.kind == "hub":
            hub.fetch_weights(source.name, path, allow_pickle=allow_pickle)
        weights = folder_weights(path, allow_pickle=allow_pickle)
        chosen = dtype or _default_dtype(config, weights, target)
        if device_map is None:
            refuse_if_too_large(described.name, _bytes(config, weights, chosen), target, chosen)
        return read_model(
            path,
            config,
            dtype=chosen,
            device=target,
            device_map=device_map,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
        )


def loaded_as(described: Description, model: PreTrainedModel, *, allow_pickle: bool) -> Loaded:
    """A model that was read, its adapter on it, with what is known about it."""
    source, path, facts, adapter_folder = described.source, described.path, described.facts, described.adapter_folder
    files = folder_weights(path, allow_pickle=allow_pickle).files
    if adapter_folder:
        files = (*files, adapter_file(adapter_folder))
    return Loaded(
        name=described.name,
        source=source,
        model=model,
        tokenization=described.tokenization,
        architecture=type(model).__name__,
        layers=facts.layers,
        heads=facts.heads,
        context=facts.context,
        unreadable=facts.unreadable,
        adapter=described.adapter,
        adapter_base=made_for(adapter_folder)[0] if adapter_folder else None,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        files=files,
        made_from=_made_from(source, path),
        licence=_licence(source, path),
    )


def _base_and_adapter(source: Source, adapter: str | None) -> tuple[Source, str | None]:
    """Where the weights come from, and the adapter on them; some sources are an adapter that names its base."""
    if not _is_adapter(source):
        return source, adapter
    if source.path is None:
        named: tuple[str | None, str | None] = BUILTINS[source.name].packed.name, None
    else:
        named = made_for(source.path)
    base, revision = named
    if adapter:
        raise AttnscopeError(
            "the model has an adapter already",
            where=(f"{source.name}, ", Parameter("adapter", adapter)),
            allowed=f"{source.name} is an adapter for {base or 'a model it does not name'}",
            todo="put one adapter on the base model",
        )
    try:
        base_source = find_source(base or "")
    except AttnscopeError as error:
        raise AttnscopeError(
            "this folder is an adapter, not a model, and its base model can't be found",
            where=source.name,
            allowed=f"it names {base} as its base" if base else "it doesn't name its base",
            todo=("load the base model and pass this folder as ", Parameter("adapter")),
        ) from error
    if _is_adapter(base_source):
        raise AttnscopeError(
            "the adapter was made for a model that has an adapter itself",
            where=f"{source.name}, base {base}",
            allowed="one adapter on one model",
            todo="merge the base's adapter, save the result, and name that as the base",
        )
    if base_source.kind == "hub":
        base_source = replace(base_source, revision=base_source.revision or revision)
    return base_source, source.name


def _is_adapter(source: Source) -> bool:
    if source.kind == "builtin":
        return BUILTINS[source.name].adapter is not None
    return source.path is not None and is_adapter(source.path)


def _made_from(source: Source, path: Path) -> str | None:
    header = _gguf_header(source, path)
    if header is None:
        return None
    file = BUILTINS[source.name].packed.weights if source.kind == "builtin" else Path(source.name).name
    stored = f"from {header.quantization} " if header.quantization else ""
    note = "" if header.quantization else "; the file does not state its number format"
    return f"{file} (SHA-256 {header.sha256}), expanded {stored}to float32{note}"


def _licence(source: Source, path: Path) -> str | None:
    if source.kind == "builtin":
        return BUILTINS[source.name].packed.licence
    header = _gguf_header(source, path)
    return header.licence if header else None


def _gguf_header(source: Source, path: Path) -> Header | None:
    """Of the GGUF file that a model was converted from; None for one that wasn't."""
    packed = BUILTINS[source.name].packed.weights if source.kind == "builtin" else ""
    return converted_from(path) if source.kind == "gguf" or packed.endswith(".gguf") else None


def _on_this_machine(source: Source, *, code: bool) -> Path:
    if source.kind == "builtin":
        return builtin_folder(BUILTINS[source.name].packed)
    if source.kind == "hub":
        return hub.fetch_description(source.name, source.revision, code=code)
    if source.path is None:
        raise ValueError(f"a {source.kind} has a path")
    return gguf_folder(source.path) if source.kind == "gguf" else source.path


def _device(device: str | None, device_map: str | dict[str, Any] | None) -> torch.device:
    if device_map is not None and (not isinstance(device_map, str | dict) or not device_map):
        raise AttnscopeError(
            "this is not a device map",
            where=shown_parameter("device_map", device_map),
            allowed="'auto', or devices by name of a module, such as {'': 'cpu'}",
            todo="leave it out to use one device",
        )
    if device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if device_map is not None:
        raise AttnscopeError(
            "both a device and a device map were given",
            where=(Parameter("device", device), ", ", Parameter("device_map", device_map)),
            allowed="a model is on one device, or spread over several",
            todo="leave one of them out",
        )
    available = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    available += ["cuda"] if torch.cuda.is_available() else []
    available += ["mps"] if torch.backends.mps.is_available() else []
    if not isinstance(device, str) or device not in available:
        raise AttnscopeError(
            "there is no such device",
            where=shown_parameter("device", device),
            allowed=near(device, available),
            todo="choose one of these",
        )
    return torch.device(device)


def known_dtype(dtype: str | None) -> None:
    if dtype is not None and (not isinstance(dtype, str) or dtype not in _DTYPES):
        raise AttnscopeError(
            "unknown dtype",
            where=shown_parameter("dtype", dtype),
            allowed=near(dtype, _DTYPES),
            todo="choose one of these",
        )


def _default_dtype(config: Any, weights: Weights, device: torch.device) -> str:
    own = str(config.get_text_config().dtype or config.dtype or weights.dtype or "float32").removeprefix("torch.")
    if device.type == "cpu" and _bytes(config, weights, "float32") <= free_memory(device):
        return "float32"
    return own


def _bytes(config: Any, weights: Weights, dtype: str) -> int:
    if getattr(config, "quantization_config", None) is not None:
        return weights.stored_bytes
    return int(weights.values * getattr(torch, dtype).itemsize)
