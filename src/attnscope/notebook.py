"""A run whose views display themselves in a notebook: the explorer's heat map, head and prompt as objects."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from attnscope.analysis import run as analysis
from attnscope.analysis.head_kinds import head_kinds
from attnscope.arguments import names_of, path_of, place_of, text_of
from attnscope.errors import AttnscopeError, near
from attnscope.figures import prose
from attnscope.figures.write import Figure, content, figure_of, study_lines, write_figure
from attnscope.measures.names import SCORES
from attnscope.study.schema import FigureSpec


@dataclass(frozen=True)
class View:
    """Figures with their readings. It displays itself in a notebook; `print` shows the readings."""

    title: str
    facts: tuple[str, ...]
    specs: tuple[FigureSpec, ...]
    figures: tuple[Figure, ...]

    @property
    def study(self) -> str:
        """The lines of a study file that give these figures."""
        return "".join(study_lines(spec) for spec in self.specs)

    def save(self, folder: Path | str) -> list[Path]:
        """Every figure as svg, png, pdf, vl.json, csv and md."""
        path = Path(path_of(folder, "folder", "a folder for the files"))
        return [file for figure in self.figures for file in write_figure(figure, path)]

    def __repr__(self) -> str:
        return "\n\n".join(
            [self.title, *self.facts, *(prose.markdown(figure.reading).strip() for figure in self.figures)]
        )

    def _repr_html_(self) -> str:
        blocks = [f"<h3>{html.escape(self.title)}</h3>", *(f"<p>{html.escape(fact)}</p>" for fact in self.facts)]
        for figure in self.figures:
            svg = base64.b64encode(content(figure, ".svg")).decode()
            text = html.escape(figure.alt, quote=True)
            blocks.append(
                f'<p><img alt="{text}" src="data:image/svg+xml;base64,{svg}" style="max-width: 100%"></p>'
                f"<details><summary>Reading</summary>{prose.html(figure.reading)}</details>"
            )
        return "\n".join(blocks)


class Run(analysis.Run):
    """An open run. `run.table("mass")` and the like are lazy; its views display themselves in a notebook."""

    def heatmap(
        self,
        measure: str | Sequence[str] | None = None,
        *,
        model: str | None = None,
        condition: str | None = None,
        minus: str | None = None,
        queries: str | None = None,
        value: Literal["mass", "enrichment"] = "mass",
        sort: Literal["depth", "effect"] = "depth",
    ) -> View:
        """All heads, by a class or another measure. minus: the condition or model that is subtracted."""
        label, name = self._model(model), self._named(condition, self.conditions, "condition")
        several = measure is not None and not isinstance(measure, str)
        options: dict[str, Any] = {"measure": names_of(measure, "measure", self.classes[0]) if several else measure}
        minus = None if minus is None else text_of(minus, "minus", "the name of a condition or a model")
        if minus is None:
            options |= {"models": [label], "conditions": [name]}
        elif minus in self.models:
            options |= {"conditions": [name], "difference": [minus, label]}
        else:
            options |= {"models": [label], "difference": [minus, name]}
        group = self._queries(queries)
        return self._view("All heads", [], kind="heatmap", queries=group, value=value, sort=sort, **options)

    def head(
        self,
        layer: int,
        head: int,
        *,
        model: str | None = None,
        conditions: Sequence[str] | None = None,
        queries: str | None = None,
    ) -> View:
        """One head: along the prompt, by class, and prompt by prompt. queries: the study's first group by default."""
        label, layer, head = self._model(model), place_of(layer, "layer"), place_of(head, "head")
        group = self._queries(queries) or self.queries[0]
        names = [] if conditions is None else names_of(conditions, "conditions", self.conditions[0])
        names = names or self.conditions
        place: dict[str, Any] = {"models": [label], "layers": [layer], "heads": [head]}
        shown: dict[str, Any] = {"conditions": names, "queries": group}
        panel = [{"model": label, "layer": layer, "head": head}]
        specs = [
            _figure_spec(kind="lines", panels=panel, form="both" if len(names) > 1 else "full", **shown),
            _figure_spec(kind="bars", **place, **shown),
            _figure_spec(kind="spread", **place, **shown),
        ]
        view = self._views(f"{label}: layer {layer}, head {head}", [], specs)
        facts = [self._kind(label, name, group, layer, head) for name in names if self.has(label, name)]
        return View(view.title, tuple(facts), view.specs, view.figures)

    def prompt(
        self,
        number: int = 0,
        *,
        model: str | None = None,
        condition: str | None = None,
        beside: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        queries: str | None = None,
    ) -> View:
        """A prompt's text, shaded by attention received. beside: another condition or model to show next to it."""
        labels, names = [self._model(model)], [self._named(condition, self.conditions, "condition")]
        number = place_of(number, "number")
        if beside is not None:
            other = text_of(beside, "beside", "the name of a condition or a model")
            (labels if other in self.models else names).append(other)
        options: dict[str, Any] = {"layers": "all" if layer is None else [place_of(layer, "layer")]}
        options["heads"] = "all" if head is None else [place_of(head, "head")]
        about = {"models": labels, "conditions": names, "queries": self._queries(queries), "prompt": number, **options}
        return self._view(f"Prompt {number}", [], kind="strip", **about)

    def _kind(self, model: str, condition: str, queries: str, layer: int, head: int) -> str:
        row = head_kinds(self, model, condition, queries).filter(layer=layer, head=head).row(0, named=True)
        scores = ", ".join(f"{name} {row[name]:.2f}" for name in SCORES if row[name] is not None)
        return f"{condition}: {row['kind'] or 'kind unknown, because patterns were not measured'} ({scores})"

    def _model(self, model: str | None) -> str:
        return self._named(model, self.models, "model")

    def _queries(self, queries: str | None) -> str | None:
        return None if queries is None else self._named(queries, [group.name for group in self.groups], "query group")

    def _named(self, word: str | None, known: Sequence[str], what: str) -> str:
        if word is not None and (not isinstance(word, str) or word not in known):
            raise AttnscopeError(
                f"there is no {what} '{word}' in this run",
                where=str(self.path),
                allowed=near(word, known),
                todo="use one of these",
            )
        return known[0] if word is None else word

    def _view(self, title: str, facts: Sequence[str], **options: Any) -> View:
        return self._views(title, facts, [_figure_spec(**options)])

    def _views(self, title: str, facts: Sequence[str], specs: Sequence[FigureSpec]) -> View:
        return View(title, tuple(facts), tuple(specs), tuple(figure_of(self, spec) for spec in specs))


def _figure_spec(**options: Any) -> FigureSpec:
    return FigureSpec(name=options["kind"], **{key: value for key, value in options.items() if value is not None})
