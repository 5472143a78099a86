"""The manifest: a run's description of itself. Typed and versioned; everything reads and writes it through this module.

It lists every table and every shard in use with its checksum, and contains its own: the SHA-256 of its text with zeros
in that place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from attnscope.errors import AttnscopeError
from attnscope.measures import MEASURES
from attnscope.runs.evidence import FULL, NONE, QUICK, Level, least
from attnscope.runs.integrity import DamagedError, sha256
from attnscope.study.schema import Study
from attnscope.text.query_rules import Group

MANIFEST, STUDY = "manifest.json", "study.yaml"
VERSION = 8
_ZEROS = "0" * 64

Status = Literal["running", "stopped", "finished"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Dropped(_Section):
    """A cell that can't be measured, and why."""

    model: str
    condition: str
    prompt: int
    reason: str


class ModelFile(_Section):
    """A file that a model was loaded from."""

    path: str
    sha256: str
    bytes: int
    modified: int
    weights: bool


class Noise(_Section):
    """How far rounding moves attention; `reason` if this could not be measured."""

    dtype: str
    reference: str | None = None
    moved: dict[str, list[list[float]]] = Field(default_factory=dict)
    """Per query group, or series of groups: (layers, heads), mean over the sample."""
    most: dict[str, float] = Field(default_factory=dict)
    reason: str | None = None


class Sample(_Section):
    """What the spot check found on some of the run's own prompts."""

    cells: list[str]
    difference: float
    row_sum_error: float
    tokens: int
    rows: int
    noise: Noise


class ModelFacts(_Section):
    """A model as it was measured."""

    spec: dict[str, Any]
    path: str
    versions: dict[str, str]
    architecture: str
    dtype: str
    device: str
    adapter_made_for: str | None = None
    files: list[ModelFile]
    evidence: dict[str, Any]
    depth: int
    """How many layers the model has, measured or not."""
    heads_by_layer: dict[int, int]
    layers: list[int] = Field(default_factory=list)
    """The layers that were measured."""
    heads: list[int] = Field(default_factory=list)
    layout: str | None = None
    sample: Sample | None = None
    unproven: int = 0
    """How many of its cells were measured without a proof."""

    @property
    def device_type(self) -> str:
        return self.device.split(":")[0]

    @property
    def is_proven(self) -> bool:
        """Whether the model was compared with eager attention."""
        return self.evidence.get("difference") is not None

    @property
    def level(self) -> Level:
        """How much evidence there is for its numbers."""
        if self.unproven or not self.is_proven:
            return NONE
        return QUICK if self.sample is None else FULL

    @property
    def weights(self) -> set[str]:
        """The checksums of its weight files."""
        return {file.sha256 for file in self.files if file.weights}


class TableFacts(_Section):
    """A table as it was written."""

    sha256: str
    rows: int


class ShardFacts(_Section):
    """A shard in use; its name is its SHA-256."""

    sha256: str
    cells: list[str]


class Machine(_Section):
    system: str
    python: str


class Timings(_Section):
    """What the last command that changed the run spent on it."""

    seconds: float
    """From its beginning to its end, with its figures."""
    tokens: int
    cells_measured: int
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds by phase (attnscope.clock.PHASES); no second counts twice."""
    earlier: float = 0.0
    """Seconds that earlier commands spent on the same run, those that were stopped too."""


class Manifest(_Section):
    """A run's description of itself."""

    sha256: str = _ZEROS
    version: Literal[8] = 8
    status: Status
    key: str
    """Changes with anything the tables depend on, except the models."""
    study: Study
    study_sha256: str
    """The checksum of the study file next to the manifest."""
    prompts: str
    """Where they come from, in words."""
    models: dict[str, ModelFacts]
    engine: str
    command: str | None
    cells: int
    dropped: list[Dropped]
    versions: dict[str, str]
    plugins: dict[str, str] = Field(default_factory=dict)
    """What installed packages add to the tables and figures, by entry point: package, version, checksum of the code."""
    machine: Machine
    timings: Timings
    groups: list[Group]
    """The query groups that prompts in the tables have, in the study's order."""
    overlaps: dict[str, list[str]] = Field(default_factory=dict)
    """For each class that lost tokens to earlier ones: which these are."""
    ranked: dict[str, dict[str, dict[int, list[int]]]] = Field(default_factory=dict)
    """By model and intervention, the heads by layer that it changes, where they were chosen by rank."""
    tables: dict[str, TableFacts]
    shards: list[ShardFacts]

    @property
    def evidence(self) -> Level:
        """How much evidence there is for the numbers of every model."""
        return least(self.models[spec.label].level for spec in self.study.models if spec.label in self.models)

    @property
    def tables_key(self) -> str | None:
        """Changes with the content of any table; None before the first tables are written."""
        if not self.tables:
            return None
        return sha256(json.dumps({name: table.sha256 for name, table in sorted(self.tables.items())}).encode())

    def text(self) -> str:
        """The text to write, with its checksum."""
        content = json.dumps({**self.model_dump(mode="json"), "sha256": _ZEROS}, indent=1, ensure_ascii=False) + "\n"
        return content.replace(_ZEROS, sha256(content.encode()), 1)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in a folder, or None; refused if it is damaged, of another version, or another program's."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    content = _content(path, data)
    digest = str(content.get("sha256", ""))
    if digest and sha256(data.replace(digest.encode(), _ZEROS.encode(), 1)) != digest:
        raise _changed(path)
    if content.get("version") != VERSION:
        raise _of_another_version(folder, content)
    if not digest:
        raise _changed(path)
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise without_packages(path, content.get("plugins"), why) or _unreadable(path, why) from error
    for name in manifest.study.measure.measures:
        if name not in MEASURES.members:
            why = f"unknown measure '{name}'"
            raise without_packages(path, manifest.plugins, why) or _unreadable(path, why)
    return manifest


def _content(path: Path, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise _changed(path) from error
    if not isinstance(content, dict):
        raise _unreadable(path, "it is not a mapping")
    return content


def without_packages(where: Path, plugins: Any, why: str) -> AttnscopeError | None:
    """The error for something unknown in a run that was made with packages that are not installed here; else None.

    plugins: as a manifest has them, or whatever stands there. why: what is unknown.
    """
    missing = list(dict.fromkeys(_missing_packages(plugins if isinstance(plugins, dict) else {})))
    if not missing:
        return None
    listed = " and ".join(missing)
    return AttnscopeError(
        f"this run was made with {listed}, which {'is' if len(missing) == 1 else 'are'} not installed here: {why}",
        where=str(where),
        allowed="an environment with the packages that added to the run's study",
        todo=f"install {listed}",
    )


def _missing_packages(plugins: Mapping[str, Any]) -> Iterator[str]:
    """The packages, with their versions, that the run was made with and that are not installed here."""
    for entry, fingerprint in plugins.items():
        group, _, name = entry.partition(": ")
        if not entry_points(group=group, name=name):
            yield str(fingerprint).partition(", code ")[0]


def is_attnscopes(content: Any) -> bool:
    """Whether any version of attnscope wrote a manifest; many programs write a manifest.json."""
    return isinstance(content, dict) and "attnscope" in (content.get("versions") or ())


def _of_another_version(folder: Path, content: Mapping[str, Any]) -> AttnscopeError:
    path = folder / MANIFEST
    if not is_attnscopes(content):
        return _unreadable(path, "another program wrote it")
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        return AttnscopeError(
            f"this run was written by a newer version of attnscope (format {version})",
            where=str(path),
            allowed=f"runs of format {VERSION}",
            todo="install that version: pip install --upgrade attnscope",
        )
    return OldFormatError(
        "this run was written by an earlier version of attnscope",
        where=str(path),
        allowed=f"runs of format {VERSION}",
        todo=f"measure it again: 'attnscope run {folder / STUDY} --out {folder}'",
    )


class OldFormatError(AttnscopeError):
    """A run that has to be measured again."""


def _unreadable(path: Path, why: str) -> AttnscopeError:
    return AttnscopeError(
        f"this run's manifest can't be read: {why}",
        where=str(path),
        allowed="a manifest that this version of attnscope wrote",
        todo="run the study into another folder",
    )


def _changed(path: Path) -> DamagedError:
    return DamagedError(
        "this run's manifest was changed or damaged after it was written",
        where=str(path),
        allowed="the manifest as 'attnscope run' wrote it",
        todo=f"repair the run: 'attnscope run {path.parent / STUDY} --out {path.parent}'",
    )
