"""GGUF files: checked for completeness, converted once to a safetensors folder, tokenized as their metadata says.

Reading a GGUF takes a minute or more, most of it spent on the tokenizer, so the result is cached under the SHA-256 of
the file. transformers' reader takes vocabulary, merges and chat template from a GGUF but not what goes around a text:
`add_bos_token`, `add_eos_token` and `add_space_prefix` are applied here.
"""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import decoders, pre_tokenizers

from attnscope.errors import AttnscopeError
from attnscope.models.architecture import describe
from attnscope.models.cache import CONVERSION, prepared, sha256
from attnscope.models.checkpoint import model_class, read_config, read_model, read_tokenizer
from attnscope.models.memory import refuse_if_too_large, shortage_explained, size
from attnscope.models.narration import libraries_silenced, step
from attnscope.models.weights import broken

# What a file without the flag means, by `tokenizer.ggml.model`: (begins with BOS, ends with EOS, begins with a space).
_DEFAULTS = {"llama": (True, False, True), "gpt2": (False, False, False), "t5": (False, True, True)}
# Byte-level vocabularies that begin with BOS anyway, by `tokenizer.ggml.pre`.
_BOS_ANYWAY = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken"}
)
HEADER = "gguf.json"  # in the converted folder
_AT_ONCE = 2  # copies of the weights in float32 while a file is converted


@dataclass(frozen=True)
class Header:
    """What a GGUF file says about itself."""

    tensors: int
    values: int
    quantization: str | None
    """The number format of its weights, such as Q4_K_M; None if it doesn't say."""
    licence: str | None
    begins_with_bos: bool
    ends_with_eos: bool
    space_before: bool


def gguf_folder(path: Path) -> Path:
    """The converted folder of a GGUF file; converted first if the cache doesn't have this exact file."""
    try:
        with step(f"Reading {path.name}"):
            digest = sha256(path)
    except OSError as error:
        raise AttnscopeError(
            "the model file can't be read",
            where=str(path),
            allowed=f"a file you can read ({error.strerror})",
            todo="check the path and its permissions",
        ) from error

    def fill(folder: Path) -> None:
        convert(path, folder)

    return prepared(f"gguf-{digest[:32]}", f"sha256:{digest} as {CONVERSION}", fill)


def convert(path: Path, folder: Path) -> None:
    """Write a GGUF's weights (expanded to float32), tokenizer and chat template as a safetensors folder.

    A file that is truncated, damaged or incomplete is refused before memory is allocated.
    """
    with (
        step(f"Converting {path.name} to safetensors (once; takes a minute or two)"),
        shortage_explained(path.name),
    ):
        reader = _reader(path)
        header = _header(path, reader)
        with _parsed_once(reader):
            config = read_config(path, trust_remote_code=False)
        describe(config, path.name)  # refuses what couldn't be measured
        _refuse_if_incomplete(path, header, config)
        needed = 4 * header.values
        refuse_if_too_large(path.name, _AT_ONCE * needed, torch.device("cpu"), "float32")
        _refuse_if_disk_is_full(folder, needed)
        with _parsed_once(reader):
            tokenizer = read_tokenizer(path, trust_remote_code=False)
            model: Any = read_model(path, config, dtype="float32", device=torch.device("cpu"))
        _wrap(tokenizer, header)
        # A GGUF-loaded model counts as quantized, which save_pretrained refuses; its weights are plain float32.
        model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        with libraries_silenced():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        (folder / HEADER).write_text(json.dumps(asdict(header), indent=1) + "\n", encoding="utf-8")


def converted_from(folder: Path) -> Header | None:
    """The header of the GGUF file that a folder was converted from; None if it wasn't."""
    try:
        return Header(**json.loads((folder / HEADER).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def _header(path: Path, reader: Any) -> Header:
    from gguf import LlamaFileType

    if not reader.tensors:
        raise AttnscopeError(
            "this GGUF file has no weights",
            where=str(path),
            allowed="a file with tensors (some have only a vocabulary)",
            todo="download the whole model",
        )

    def field_value(key: str, default: Any = None) -> Any:
        field = reader.fields.get(key)
        return default if field is None else field.contents()

    bos, eos, space = _DEFAULTS.get(field_value("tokenizer.ggml.model"), (False, False, False))
    bos = bos or field_value("tokenizer.ggml.pre") in _BOS_ANYWAY
    named = {end: field_value(f"tokenizer.ggml.{end}_token_id") is not None for end in ("bos", "eos")}
    for end, has in named.items():
        if field_value(f"tokenizer.ggml.add_{end}_token") and not has:
            raise AttnscopeError(
                f"this GGUF file adds {end.upper()} to texts but doesn't say which token that is",
                where=f"{path}, tokenizer.ggml.{end}_token_id",
                allowed="the id of a token",
                todo="convert the model again, or use its original files",
            )
    try:
        format_name = LlamaFileType(field_value("general.file_type")).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        format_name = None
    return Header(
        tensors=len(reader.tensors),
        values=sum(int(tensor.n_elements) for tensor in reader.tensors),
        quantization=format_name,
        licence=field_value("general.license"),
        begins_with_bos=bool(field_value("tokenizer.ggml.add_bos_token", bos and named["bos"])),
        ends_with_eos=bool(field_value("tokenizer.ggml.add_eos_token", eos and named["eos"])),
        space_before=bool(field_value("tokenizer.ggml.add_space_prefix", space)),
    )


def _reader(path: Path) -> Any:
    import gguf
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    class Checked(gguf.GGUFReader):
        """Stops at the end of the file, and computes where the last tensor should end before reading any."""

        @property
        def data(self) -> Any:
            return self._bytes

        @data.setter
        def data(self, mapped: Any) -> None:
            self._bytes = mapped.view(np.ndarray)  # slicing it is many times faster

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            numbers = super()._get(offset, dtype, count, override_order)
            if len(numbers) < count:
                raise ValueError(f"{count} numbers at byte {offset} don't fit")
            return numbers

        def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
            ends = [0]
            for field in fields:
                _, _, _, dims, kind, offset = field.parts
                block, bytes_of_block = GGML_QUANT_SIZES[GGMLQuantizationType(kind[0])]
                ends.append(start_offs + int(offset[0]) + math.prod(map(int, dims)) * bytes_of_block // block)
            missing = max(ends) - path.stat().st_size
            if missing > 0:
                raise broken(path, f"it is {missing:,} bytes short of {max(ends):,}")
            super()._build_tensors(start_offs, fields)

    try:
        return Checked(path)
    except (ValueError, IndexError, KeyError, OverflowError, OSError, struct.error) as error:
        size = path.stat().st_size
        raise broken(path, f"its header ends or breaks within its {size:,} bytes ({error})") from error


@contextmanager
def _parsed_once(reader: Any) -> Iterator[None]:
    """Give transformers a reader that has parsed the file already, instead of three new ones."""
    library: Any = import_module("gguf")
    own = library.GGUFReader
    library.GGUFReader = lambda _path: reader
    try:
        yield
    finally:
        library.GGUFReader = own


def _refuse_if_incomplete(path: Path, header: Header, config: Any) -> None:
    """Checked before memory is allocated for weights that the file describes but doesn't have."""
    text = config.get_text_config()
    described = int(getattr(text, "num_hidden_layers", 0) or 0)
    if described <= header.tensors:  # else less than one tensor per layer, and too many modules to build
        with torch.device("meta"), libraries_silenced():
            auto = model_class(config)
            model = auto(config) if hasattr(auto, "base_model_prefix") else auto.from_config(config)
        wanted = sum(weight.numel() for weight in model.parameters())
        if wanted <= header.values:
            return
        how = f"it describes a model of {wanted:,} values and has {header.values:,}"
    else:
        how = f"it describes {described:,} layers and has {header.tensors:,} tensors"
    raise AttnscopeError(
        "this GGUF file has only part of its model",
        where=str(path),
        allowed=how,
        todo="download the whole model; if it is split into several files, join them first",
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


def _wrap(tokenizer: Any, header: Header) -> None:
    """Make a tokenizer add what the file says around a text."""
    tokenizer.add_bos_token, tokenizer.add_eos_token = header.begins_with_bos, header.ends_with_eos
    backend = tokenizer.backend_tokenizer
    if isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace) and not header.space_before:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]  # no space to strip
        )
