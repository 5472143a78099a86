"""GGUF files: checked for completeness, converted once to a safetensors folder, tokenized as their metadata says.

Reading a GGUF takes a minute or more, most of it spent on the tokenizer, so the result is kept in the cache under the
SHA-256 of the file. What transformers would leave out of a file is applied or refused: see gguf_text and gguf_unused.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from attnscope.errors import AttnscopeError
from attnscope.models.architecture import describe
from attnscope.models.cache import CONVERSION, let_read, prepared, sha256
from attnscope.models.checkpoint import model_class, read_config, read_model, read_tokenizer
from attnscope.models.gguf_reader import CONVERTING, damage_explained, open_gguf, parsed_once
from attnscope.models.gguf_text import TextRules, obey, puts_space_before, text_rules
from attnscope.models.gguf_unused import refuse_unused_settings, refuse_unused_weights
from attnscope.models.memory import free_memory, shortage_explained, size
from attnscope.models.narration import libraries_silenced, step

HEADER = "gguf.json"  # in the converted folder
COPIES = 2  # of the weights in float32, held in memory while a file is converted


@dataclass(frozen=True)
class Header:
    """A GGUF file that was converted: what it is, and how its texts are tokenized."""

    sha256: str
    tensors: int
    values: int
    quantization: str | None
    """The number format of its weights, such as Q4_K_M; None if it doesn't say."""
    licence: str | None
    begins_with_bos: bool
    ends_with_eos: bool
    space_before: bool


def gguf_folder(path: Path) -> Path:
    """The converted folder of a GGUF file, made first if the cache doesn't have this very content."""
    with step(f"Reading {path.name}"):
        digest = _digest(path)

    def fill(folder: Path) -> None:
        convert(path, folder, digest)
        if _digest(path) != digest:
            raise AttnscopeError(
                "the model file changed while it was being converted",
                where=str(path),
                allowed="a file that nothing writes to",
                todo="wait until it is complete, then run again",
            )

    return prepared(f"gguf-{digest[:32]}", f"sha256:{digest} as {CONVERSION}", fill)


def convert(path: Path, folder: Path, digest: str) -> None:
    """Write a GGUF's weights (expanded to float32), tokenizer and chat template as a safetensors folder.

    digest: the file's SHA-256. Refuses, before memory is allocated, a file that is cut short, damaged, doesn't hold all
    it describes, or holds what the converted model would not have.
    """
    doing = f"Converting {path.name} to safetensors (once; it takes a minute or two)"
    with CONVERTING, step(doing), shortage_explained(path.name):
        reader = open_gguf(path)
        with damage_explained(path):
            metadata = _metadata(reader)
            architecture = str(metadata.get("general.architecture"))
            _refuse_if_empty(path, reader)
            rules = text_rules(path, architecture, metadata)
        with parsed_once(path, reader):
            config = read_config(path, trust_remote_code=False)
        with damage_explained(path):
            describe(config, path.name)  # refuses what could not be measured anyway
            _apply_window(config, architecture, metadata)
            refuse_unused_settings(path, architecture, reader.fields, config)
            values = sum(int(tensor.n_elements) for tensor in reader.tensors)
            outline = _outline(path, len(reader.tensors), values, config)
            refuse_unused_weights(path, architecture, [tensor.name for tensor in reader.tensors], outline, reader)
        _refuse_if_too_large(path, 4 * values)
        _refuse_if_disk_is_full(folder, 4 * values)
        with parsed_once(path, reader):
            tokenizer = read_tokenizer(path, trust_remote_code=False)
            model: Any = read_model(path, config, dtype="float32", device=torch.device("cpu"))
        obey(tokenizer, rules)
        header = _header(digest, reader, metadata, rules, space_before=puts_space_before(tokenizer))
        with _full_disk_recognized(folder):
            _save(model, tokenizer, header, folder)


def converted_from(folder: Path) -> Header:
    """The header of the GGUF file that a folder was converted from."""
    try:
        return Header(**json.loads((folder / HEADER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise AttnscopeError(
            "a converted model in the cache is damaged",
            where=str(folder / HEADER),
            allowed=f"it can't be read ({error})",
            todo=f"delete the folder {folder} and run again",
        ) from error


def _digest(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise AttnscopeError(
            "the model file can't be read",
            where=str(path),
            allowed=f"a file you can read ({error.strerror})",
            todo="check the path and its permissions",
        ) from error


def _metadata(reader: Any) -> dict[str, Any]:
    """What the file says of itself; of the lists with an entry per token only how long they are."""
    return {
        key: len(field.data) if key.startswith("tokenizer.") and len(field.types) > 1 else field.contents()
        for key, field in reader.fields.items()
    }


def _header(digest: str, reader: Any, metadata: dict[str, Any], rules: TextRules, *, space_before: bool) -> Header:
    from gguf import LlamaFileType

    try:
        number_format = LlamaFileType(metadata.get("general.file_type", -1)).name
    except ValueError:
        number_format = None
    licence = metadata.get("general.license")
    return Header(
        sha256=digest,
        tensors=len(reader.tensors),
        values=sum(int(tensor.n_elements) for tensor in reader.tensors),
        quantization=number_format and number_format.removeprefix("MOSTLY_").removeprefix("ALL_"),
        licence=None if licence is None else str(licence),
        begins_with_bos=rules.begins_with_bos,
        ends_with_eos=rules.ends_with_eos,
        space_before=space_before,
    )


def _refuse_if_empty(path: Path, reader: Any) -> None:
    if not reader.tensors:
        raise AttnscopeError(
            "this GGUF file has no weights",
            where=str(path),
            allowed="a file with tensors (some have only a vocabulary)",
            todo="download the whole model",
        )


def _apply_window(config: Any, architecture: str, metadata: dict[str, Any]) -> None:
    """Transformers does not take Phi-3's window from a file; its configuration has a place for it."""
    if architecture == "phi3":
        config.sliding_window = metadata.get("phi3.attention.sliding_window") or None


def _outline(path: Path, tensors: int, values: int, config: Any) -> Any:
    """The model without memory for its weights; refuses a file that describes more weights than it holds."""
    text = config.get_text_config()
    described = int(getattr(text, "num_hidden_layers", 0) or 0)
    if described <= tensors:  # else not even one tensor per layer, and too many modules to make
        with torch.device("meta"), libraries_silenced():
            auto = model_class(config)
            model = auto(config) if hasattr(auto, "base_model_prefix") else auto.from_config(config)
        wanted = sum(weight.numel() for weight in model.parameters())
        if wanted <= values:
            return model
        how = f"it describes a model of {wanted:,} values and has {values:,}"
    else:
        how = f"it describes {described:,} layers and has {tensors:,} tensors"
    raise AttnscopeError(
        "this GGUF file has only part of its model",
        where=str(path),
        allowed=how,
        todo="download the whole model; if it is split into several files, join them first",
    )


def _refuse_if_too_large(path: Path, needed: int) -> None:
    free = free_memory(torch.device("cpu"))
    if COPIES * needed > free:
        raise AttnscopeError(
            "not enough memory to convert the model",
            where=str(path),
            allowed=f"it takes {size(COPIES * needed)}, whatever dtype you load it in, and {size(free)} is free",
            todo="free some memory, convert it on a larger machine and copy the cache, or load the original model",
        )


def _refuse_if_disk_is_full(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise AttnscopeError(
            "not enough disk space to convert the model",
            where=str(folder.parent.parent),
            allowed=f"it takes {size(needed)} and {size(free)} is free",
            todo="free some disk space, or set ATTNSCOPE_CACHE to a folder on another disk",
        )


def _save(model: Any, tokenizer: Any, header: Header, folder: Path) -> None:
    # A GGUF-loaded model counts as quantized, which save_pretrained refuses; its weights are plain float32.
    model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    with libraries_silenced():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    _as_written(folder / "tokenizer_config.json")
    (folder / HEADER).write_text(json.dumps(asdict(header), indent=1) + "\n", encoding="utf-8")
    for weights in folder.glob("*.safetensors"):
        let_read(weights)


def _as_written(config: Path) -> None:
    """Have tokenizer.json loaded as it is; a model's own class of tokenizer would split text in its own way."""
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "TokenizersBackend"
    config.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _full_disk_recognized(folder: Path) -> Iterator[None]:
    """Safetensors and tokenizers have their own errors for a disk that fills up; make it the system's."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if any(phrase in str(error) for phrase in ("os error 28", "code: 28", os.strerror(errno.ENOSPC))):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise
