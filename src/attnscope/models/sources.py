"""What a model's name refers to: a built-in, a folder, a GGUF file or a model on the Hub."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnscope.errors import AttnscopeError, Parameter, near
from attnscope.models.builtin import BUILTINS

_HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_WEIGHT_FILES = (".gguf", ".safetensors", ".bin", ".pt", ".pth")


@dataclass(frozen=True)
class Source:
    """Where a model comes from. `path` is set for folders and GGUF files, `revision` only for the Hub."""

    kind: Literal["builtin", "folder", "gguf", "hub"]
    name: str
    path: Path | None = None
    revision: str | None = None


def find_source(name: str, revision: str | None = None) -> Source:
    """The source that a name refers to; nothing is downloaded or opened yet."""
    source = _named(name, revision)
    if revision is not None and source.kind != "hub":
        raise AttnscopeError(
            "a revision was given for a model that has none",
            where=(f"{name}, ", Parameter("revision", revision)),
            allowed="only models on the Hub (org/name) have revisions",
            todo="leave the revision out",
        )
    return source


def _named(name: str, revision: str | None) -> Source:
    if name in BUILTINS:
        return Source("builtin", name)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return Source("folder", name, path.absolute())
    if name and path.is_file():
        if path.suffix.lower() == ".gguf":
            return Source("gguf", name, path.absolute())
        raise AttnscopeError(
            "this file is not a model by itself",
            where=name,
            allowed="a model is a folder (config.json, tokenizer, safetensors) or a .gguf file",
            todo=f"name the folder instead: {path.absolute().parent}",
        )
    if _looks_like_a_path(name):
        parent = path.parent
        raise AttnscopeError(
            "there is no model at this path",
            where=name,
            allowed=_beside(path) if parent.is_dir() else f"the folder {parent} doesn't exist either",
            todo="check the path",
        )
    hub_id = _HUB_ID.fullmatch(name)
    if hub_id:
        return Source("hub", hub_id["repo"], revision=revision or hub_id["revision"])
    raise AttnscopeError(
        "unknown model",
        where=repr(name),
        allowed=near(name, BUILTINS),
        todo="name a built-in model, a folder, a .gguf file or a Hub id (org/name)",
    )


def _looks_like_a_path(name: str) -> bool:
    return (
        name.startswith((".", "~", os.sep))
        or name.lower().endswith(_WEIGHT_FILES)
        or name.endswith(os.sep)
        or (name.count("/") > 1 and "@" not in name)
    )


def _beside(path: Path) -> str:
    names = [entry.name for entry in path.parent.iterdir() if entry.is_dir() or entry.suffix.lower() == ".gguf"]
    return near(path.name, names) if names else f"{path.parent} holds no folder and no .gguf file"
