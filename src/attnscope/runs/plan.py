"""The plan of a run: each model's cells, which of them are missing, and the batches they are measured in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnscope.errors import AttnscopeError
from attnscope.lens import Lens
from attnscope.measures import MEASURES
from attnscope.models.architecture import Architecture
from attnscope.models.cache import sha256
from attnscope.models.load import Description
from attnscope.runs.answers import Writing, writing_of
from attnscope.runs.batches import WRITTEN, Budget, batches, budget, bytes_in_cache, bytes_per_token
from attnscope.runs.cells import Cell, CellMaker, cell_key
from attnscope.runs.compatibility import chosen_layers, fitting_models
from attnscope.runs.engines import Batch
from attnscope.runs.manifest import Dropped, Manifest, ModelFacts, ModelFile
from attnscope.runs.request import MEASURING, RunRequest, versions
from attnscope.runs.store import Store
from attnscope.runs.tables import ModelAxes
from attnscope.study.schema import ModelSpec, Study


@dataclass(frozen=True)
class PlannedModel:
    """One model of the study, and its cells."""

    spec: ModelSpec
    description: Description
    maker: CellMaker
    cells: list[Cell]
    dropped: list[Dropped]


def look_up_models(request: RunRequest) -> list[tuple[ModelSpec, Description]]:
    """The study's models; refused if one of them, or a layer or head the study names, does not exist."""
    return fitting_models(request)


def plan_model(request: RunRequest, spec: ModelSpec, description: Description) -> PlannedModel:
    maker = CellMaker(request.study, request.prompts, spec, description.tokenization, description.facts.context)
    cells, dropped = maker.make()
    return PlannedModel(spec, description, maker, cells, dropped)


def missing_batches(cells: Sequence[tuple[Cell, str]], store: Store, limit: Budget, more: int = 0) -> list[Batch]:
    """The batches of cells that are not stored yet; identical cells are measured once. more: tokens of an answer."""
    unique = {key: (cell, key) for cell, key in reversed(cells)}
    missing = [unique[key] for key in dict.fromkeys(key for _, key in cells) if key not in store]
    numbers = batches([len(cell.tokens) + more for cell, _ in missing], limit)
    return [tuple(missing[number] for number in batch) for batch in numbers]


def same_model(before: Manifest | None, spec: ModelSpec, description: Description) -> ModelFacts | None:
    """What the manifest says about this model, if it has not changed: the same files, libraries and device."""
    facts = None if before is None else before.models.get(spec.label)
    if facts is None or facts.spec != spec.identity:
        return None
    if spec.device_map is None and facts.device_type != description.device.type:
        return None
    if facts.versions != versions() or facts.path != str(description.path.absolute()):
        return None
    described = {str(path.absolute()) for path in description.files}
    if described != {file.path for file in facts.files if not file.weights}:
        return None
    return facts if all(_is_unchanged(file) for file in facts.files) else None


def _is_unchanged(file: ModelFile) -> bool:
    try:
        now = Path(file.path).stat()
    except OSError:
        return False
    return (now.st_size, now.st_mtime_ns) == (file.bytes, file.modified)


def model_facts(spec: ModelSpec, description: Description, lens: Lens, study: Study) -> ModelFacts:
    loaded = lens.loaded
    hashes = loaded.fingerprint
    weights = [_file(path, hashes[path.name], weights=True) for path in loaded.files]
    described = [_file(path, sha256(path), weights=False) for path in description.files]
    return ModelFacts(
        spec=spec.identity,
        path=str(description.path.absolute()),
        versions=versions(),
        architecture=loaded.architecture,
        dtype=loaded.dtype,
        device=loaded.device,
        adapter_made_for=loaded.adapter_base,
        files=[*weights, *described],
        evidence=lens.evidence(["last"] if study.measure.queries == ["last"] else ["all"], study.measure.all_measures),
        depth=description.facts.layers,
        heads_by_layer=dict(lens.heads_by_layer),
    )


def _file(path: Path, digest: str, *, weights: bool) -> ModelFile:
    stat = path.stat()
    return ModelFile(
        path=str(path.absolute()), sha256=digest, bytes=stat.st_size, modified=stat.st_mtime_ns, weights=weights
    )


def model_axes(study: Study, name: str, facts: Architecture, heads_by_layer: Mapping[int, int]) -> ModelAxes:
    """What the study measures of a model. name: the model's."""
    chosen = chosen_layers(study.measure.layers, facts)
    heads = min(heads_by_layer[layer] for layer in chosen)
    for head in () if study.measure.heads == "all" else study.measure.heads:
        if head >= heads:
            raise AttnscopeError(
                f"{name} has no head {head}",
                where="measure.heads",
                allowed=f"heads 0 to {heads - 1}",
                todo="choose from these heads",
            )
    picked = list(range(heads)) if study.measure.heads == "all" else list(dict.fromkeys(study.measure.heads))
    sets, removed = study.set_rules, study.removed_rules
    return ModelAxes(chosen, picked, study.measure.queries, study.rules, sets, removed, study.measure.all_measures)


def key_facts(study: Study, axes: ModelAxes, facts: ModelFacts, *, proven: bool = True) -> dict[str, object]:
    """What a cell's numbers depend on, apart from its tokens; and that they are unproven, if they are."""
    writing = writing_of(study)
    return {
        **({} if proven else {"proven": False}),
        "measuring": MEASURING,
        "files": [[Path(file.path).name, file.sha256] for file in facts.files],
        "versions": facts.versions,
        "dtype": facts.dtype,
        "device": facts.device_type,
        "layers": list(axes.layers),
        "heads": list(axes.heads),
        "queries": study.measure.model_dump(mode="json")["queries"],
        "measures": sorted(axes.measures),
        "plugins": MEASURES.fingerprints if set(axes.measures) - set(MEASURES.built_in) else {},
        "generate": None if writing is None else writing.facts,
    }


def cell_keys(
    cells: Sequence[Cell], study: Study, axes: ModelAxes, facts: ModelFacts, *, proven: bool = True
) -> list[tuple[Cell, str]]:
    """Each cell with its key; proven: as in `key_facts`."""
    shared, writing = key_facts(study, axes, facts, proven=proven), writing_of(study)
    own = [{} if writing is None else writing.facts_of(cell) for cell in cells]
    return [(cell, cell_key({**shared, **each}, cell)) for cell, each in zip(cells, own, strict=True)]


def most_groups(study: Study, cells: Sequence[Cell]) -> int:
    """How many query groups a prompt has at most; those of an answer that is still to be generated included."""
    writing = writing_of(study)
    generated = (0 if writing is None else writing.tokens) * len(study.measure.series)
    return max((len(cell.groups) for cell in cells), default=0) + generated


def memory_budget(lens: Lens, axes: ModelAxes, groups: int, writing: Writing | None = None) -> Budget:
    """groups: how many query groups a prompt has at most.

    writing: the models write answers first, so every token is also kept in the cache, in all layers.
    """
    config = lens.model.config.get_text_config()
    hidden = int(getattr(config, "hidden_size", 1024))
    heads = max(lens.heads_by_layer.values())
    width = int(getattr(config, "head_dim", None) or hidden // heads)
    between = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    size = 2 if lens.loaded.dtype in ("bfloat16", "float16") else 4
    each = bytes_per_token(hidden, between, heads, width, len(axes.layers), groups, size)
    if writing is None:
        return budget(lens.free_memory(), each, lens.loaded.device)
    cached = bytes_in_cache(int(getattr(config, "num_key_value_heads", None) or heads), width, lens.loaded.layers, size)
    return budget(lens.free_memory(), each + cached, lens.loaded.device, WRITTEN)
