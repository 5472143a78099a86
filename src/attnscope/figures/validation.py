"""A figure's line in a study -> the options of its kind, before anything runs.

`study` reads a file without knowing kinds of figure, as rooms import in the order data flows. It checks what all kinds
share and keeps a figure's other keys as written. Here they get their types, and what is wrong is reported with the
file's line and key, as for any other part of a study.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import models_json_schema

from attnscope.errors import AttnscopeError, near
from attnscope.figures import KINDS
from attnscope.figures.options import Options
from attnscope.study import consistency
from attnscope.study.consistency import Problem
from attnscope.study.file import problem_of, refuse
from attnscope.study.schema import CheckpointsSpec, FigureSpec, Study

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def options_of(figure: FigureSpec, where: str | None = None) -> Options:
    """The figure as its kind reads it. where: for the error, if not the figure's name."""
    options = _read(figure)
    if isinstance(options, Problem):
        raise AttnscopeError(
            options.what,
            where=where or f"figure {figure.name}: {_key(options)}",
            allowed=options.allowed,
            todo="fix the figure's options",
        )
    return options


def with_options(study: Study, path: Path) -> Study:
    """The study with every figure as its kind reads it; refused at the line of its file that is wrong."""
    refuse(figure_problems(study), path)
    return study.model_copy(update={"figures": [options_of(figure) for figure in study.figures]})


def figure_problems(study: Study, prompts: int | None = None) -> Iterator[Problem]:
    """What a study's figures ask for that their kinds or the study do not have. prompts: how many, once known."""
    for number, figure in enumerate(study.figures):
        for problem in _problems(study, figure, prompts):
            yield replace(problem, at=("figures", number, *problem.at))


def refuse_figure(study: Study, figure: FigureSpec) -> None:
    """Refuse a figure that was asked for outside a study file, if something is wrong with it."""
    shared = (replace(each, at=each.at[2:]) for each in consistency.figure_problems(study, figure))
    for problem in (*shared, *_problems(study, figure, None)):
        raise AttnscopeError(
            problem.what, where=_key(problem) or "figure", allowed=problem.allowed, todo="choose something else"
        )


def _problems(study: Study, figure: FigureSpec, prompts: int | None) -> Iterator[Problem]:
    options = _read(figure)
    if isinstance(options, Problem):
        yield options
    else:
        with KINDS.blamed(options.kind, "options"):
            problems = list(options.problems(study, prompts))
        yield from problems


def _read(figure: FigureSpec) -> Options | Problem:
    if isinstance(figure, Options):
        return figure
    kinds = KINDS.members
    if figure.kind not in kinds:
        return Problem(("kind",), f"unknown kind of figure '{figure.kind}'", near(figure.kind, kinds))
    try:
        options: Options = kinds[figure.kind].options.model_validate(figure.model_dump(exclude_unset=True))
    except ValidationError as error:
        return problem_of(error)
    return options


def _key(problem: Problem) -> str:
    return ".".join(str(step) for step in problem.at)


def study_schema() -> dict[str, Any]:
    """The JSON schema of a study file, with the options of every kind of figure that is installed."""
    kinds = KINDS.members
    references, shared = models_json_schema([(kind.options, "validation") for kind in kinds.values()])
    declared = {"$schema": DIALECT, **Study.model_json_schema()}
    definitions: dict[str, Any] = {**declared["$defs"], **shared["$defs"]}
    definitions.pop(FigureSpec.__name__, None)
    union: dict[str, Any] = {"discriminator": {"propertyName": "kind", "mapping": {}}, "oneOf": []}
    for name, kind in kinds.items():
        reference = references[kind.options, "validation"]
        definition = definitions[reference["$ref"].rsplit("/", 1)[-1]]
        definition["properties"]["kind"] |= {"const": name, "description": f"{name}: {kind.about}"}
        union["oneOf"].append(reference)
        union["discriminator"]["mapping"][name] = reference["$ref"]
    declared["properties"]["figures"]["items"] = union
    entry = CheckpointsSpec.model_json_schema()
    definitions |= {CheckpointsSpec.__name__: entry, **entry.pop("$defs", {})}
    several = {"$ref": f"#/$defs/{CheckpointsSpec.__name__}"}
    models = declared["properties"]["models"]
    models["items"] = {"anyOf": [models["items"], several]}
    described = {key: models.pop(key) for key in ("description", "title") if key in models}
    declared["properties"]["models"] = {**described, "anyOf": [models, several]}
    declared["$defs"] = dict(sorted(definitions.items()))
    return declared
