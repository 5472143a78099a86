"""A model's weight files: which ones, whether they are complete, and how many values they have."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from attnscope.errors import AttnscopeError, Parameter
from attnscope.study.model_folder import INDEX as INDEX
from attnscope.study.model_folder import SINGLE as SINGLE
from attnscope.study.model_folder import is_pickled as is_pickled

# How transformers names what safetensors calls F32, BF16, ...
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Weights:
    """The weight files of a model, how many values they have, and the type most of them are stored in."""

    files: tuple[Path, ...]
    values: int
    stored_bytes: int
    dtype: str | None
    pickled: bool = False


def folder_weights(folder: Path, *, allow_pickle: bool) -> Weights:
    """The weights in a folder, with every safetensors file checked for completeness."""
    if (folder / INDEX).is_file():
        return _safetensors(tuple(folder / name for name in shards(folder / INDEX)))
    if (folder / SINGLE).is_file():
        return _safetensors((folder / SINGLE,))
    pickled = [path for path in sorted(folder.iterdir()) if is_pickled(path.name)]
    if not pickled:
        raise AttnscopeError(
            "this folder has no weights",
            where=str(folder),
            allowed=f"{SINGLE}, or the files listed in {INDEX}",
            todo="check the folder, or download the model again",
        )
    if not allow_pickle:
        raise pickle_refusal(str(pickled[0]))
    files = tuple(path for path in sorted(folder.iterdir()) if path.name.endswith(".bin") and is_pickled(path.name))
    stored = sum(file.stat().st_size for file in files)
    return Weights(files, values=stored // 2, stored_bytes=stored, dtype=None, pickled=True)


def pickle_refusal(where: str) -> AttnscopeError:
    """The error for a model that has only pickled weights."""
    return AttnscopeError(
        "this model has only pickled weights, which can run any code when opened",
        where=where,
        allowed="safetensors files are always read",
        todo=("convert it to safetensors or, if you trust its author, pass ", Parameter("allow_pickle", True)),
    )


def shards(index: Path) -> list[str]:
    """The file names listed in a safetensors index."""
    try:
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise AttnscopeError(
            "the index of the weights can't be read",
            where=str(index),
            allowed=f"it must be JSON with a weight_map ({error})",
            todo="download the model again",
        ) from error


def _safetensors(files: tuple[Path, ...]) -> Weights:
    stored: Counter[str] = Counter()
    for file in files:
        for kind, values in safetensors_header(file):
            stored[kind] += values
    most = stored.most_common(1)[0][0] if stored else ""
    size = sum(file.stat().st_size for file in files)
    return Weights(files, sum(stored.values()), size, _DTYPES.get(most))


def safetensors_header(path: Path) -> list[tuple[str, int]]:
    """Stored type and number of values of each tensor in a safetensors file; an incomplete file is refused."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            slices = [file.get_slice(name) for name in file.keys()]  # noqa: SIM118 - not a mapping
            return [(piece.get_dtype(), _product(piece.get_shape())) for piece in slices]
    except FileNotFoundError as error:
        raise AttnscopeError(
            "a weight file is missing",
            where=str(path),
            allowed="every file that the index lists",
            todo="download the model again",
        ) from error
    except SafetensorError as error:
        raise broken(path, _shortfall(path) or str(error)) from error


def _shortfall(path: Path) -> str | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
        if size < 8 or size < 8 + header:
            return f"it has {size:,} bytes, fewer than its header requires"
        try:
            tensors = json.loads(file.read(header))
            end = max(8 + header + tensor["data_offsets"][1] for name, tensor in tensors.items() if name[0] != "_")
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return None
    if end > size:
        return f"it is {end - size:,} bytes short of {end:,}"
    return f"it has {size - end:,} bytes too many" if end < size else None


def _product(sizes: list[int]) -> int:
    values = 1
    for size in sizes:
        values *= size
    return values


def broken(path: Path, how: str) -> AttnscopeError:
    """The error for an incomplete or damaged weight file."""
    return AttnscopeError(
        "a weight file is truncated or damaged", where=str(path), allowed=how, todo="download or copy it again"
    )
