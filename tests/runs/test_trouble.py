"""What goes wrong in a run: too little memory, damaged files, layers that are not there, text that means harm."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from attnscope.errors import AttnscopeError, NoRoomError
from attnscope.lens import Lens
from attnscope.report.write import report_run
from attnscope.studies import order_study, perform_order, run_study
from tests.runs.test_runs import contents


def test_a_batch_that_does_not_fit_is_split_and_what_never_fits_is_told(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = perform_order(order_study(str(study_file)), tmp_path / "whole")
    measure, sizes = Lens.measure_prepared, []

    def narrow(self: Lens, prompts: Any, *more: Any, **options: Any) -> Any:
        sizes.append(len(prompts))
        if len(prompts) > 1 or len(prompts[0][1]) > 100:
            raise NoRoomError("no room", where="here", allowed="less", todo="wait")
        return measure(self, prompts, *more, **options)

    monkeypatch.setattr(Lens, "measure_prepared", narrow)
    split = perform_order(order_study(str(study_file)), tmp_path / "split")
    assert max(sizes) > 1
    assert split.measured + len(split.dropped) == whole.measured == 18
    assert split.dropped
    assert all("no room" in each.reason for each in split.dropped)
    held = pl.read_parquet(tmp_path / "split" / "received.parquet")
    keys = ["model", "condition", "prompt", "queries", "layer", "head"]
    both = held.join(pl.read_parquet(tmp_path / "whole" / "received.parquet"), on=keys, suffix="_whole")
    assert len(both) == len(held) > 0
    for mine, theirs in zip(both["received"], both["received_whole"], strict=True):
        np.testing.assert_allclose(mine.to_numpy(), theirs.to_numpy(), atol=1e-6)


def test_a_damaged_cell_is_measured_again(study_file: Path, tmp_path: Path) -> None:
    perform_order(order_study(str(study_file)), tmp_path / "run")
    before = contents(tmp_path / "run")
    shard = next((tmp_path / "run" / "cells").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:40])
    (tmp_path / "run" / "mass.parquet").unlink()
    again = perform_order(order_study(str(study_file)), tmp_path / "run")
    assert again.measured > 0
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("entropy: true", "entropy: true\n  layers: [0, 7]", "layer 7 of one.*measure.layers"),
        ("entropy: true", "entropy: true\n  heads: [9]", "head 9 of one.*measure.heads"),
        ("layer: 1, head: 2", "layer: 1, head: 4", "head 4 of one.*figure along.*heads 0 to 3"),
        ("layer: 1, head: 2", "layer: 5, head: 2", "layer 5 of one.*figure along.*layers 0 to 1"),
        ("{label: one,", "{label: one, device: cuda:7,", "no such device"),
        ("{label: two,", "{label: two, adapter: nowhere/at/all,", "nowhere/at/all"),
    ],
)
def test_what_a_model_has_not_is_told_before_any_is_loaded(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, told: str
) -> None:
    def never(*_: Any, **__: Any) -> None:
        pytest.fail("a model was loaded")

    monkeypatch.setattr("attnscope.models.load.read_model", never)
    text = study_file.read_text()
    assert old in text
    study_file.write_text(text.replace(old, new))
    with pytest.raises(AttnscopeError, match=told):
        run_study(str(study_file), tmp_path / "run")


def test_a_figure_that_cant_be_drawn_is_told_and_the_others_are_drawn(study_file: Path, tmp_path: Path) -> None:
    text = study_file.read_text().replace("kind: strip,", "kind: strip, prompt: 3,")
    study_file.write_text(text.replace("  chat:", '    - {intro: "", question: "Empty"}\n  chat:', 1))
    run = run_study(str(study_file), tmp_path / "run")
    made = report_run(run.path)
    assert list(made.undrawn) == ["text"]
    assert "prompt 3 was not measured" in made.undrawn["text"]
    assert {figure.name for figure in made.figures} == {"mass", "along", "map", "models"}
    assert "prompt 3 was not measured" in made.page.read_text(encoding="utf-8")


HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>{{7*7}}\u202e</pre>&lt;'


class Elements(HTMLParser):
    """The elements a browser would make of a page, and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def test_prompt_text_and_names_are_data_in_the_report(study_file: Path, tmp_path: Path) -> None:
    hostile = json.dumps(HOSTILE)
    text = study_file.read_text().replace('"What # is *?"', hostile).replace("title: A tiny study", f"title: {hostile}")
    study_file.write_text(text.replace("  - name: filler\n", f"  - name: filler\n    label: {hostile}\n"))
    run = run_study(str(study_file), tmp_path / "run", models=["one"])
    page = Elements()
    page.feed((run.path / "report.html").read_text(encoding="utf-8"))
    assert not [tag for tag, _ in page.found if tag in ("img", "iframe", "object", "embed", "link", "base")]
    assert not [names for _, names in page.found if any(name.startswith("on") for name in names)]
    assert len(page.scripts) == 4  # the chart library, two lots of numbers, and what draws them
    assert HOSTILE in json.dumps(json.loads(page.scripts[1]), ensure_ascii=False).replace('\\"', '"')
    assert "owned" not in page.scripts[0]
    assert "owned" not in page.scripts[3]
    for svg in (run.path / "figures").glob("*.svg"):
        assert "<script" not in svg.read_text(encoding="utf-8")
