"""What goes wrong in a run: too little memory, damaged files, layers that are not there, text that means harm."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import transformers
import yaml

from attnscope.errors import AttnscopeError, NoRoomError
from attnscope.lens import Lens
from attnscope.report.write import report_run
from attnscope.runs.plan import look_up_models, plan_model
from attnscope.studies import perform_request, request_study, run_study
from attnscope.text import patterns
from tests.handmade import exported
from tests.models import tiny
from tests.runs.conftest import save_tiny
from tests.runs.test_runs import contents
from tests.tolerances import SHALLOW

TIER = "command"


def test_a_batch_that_does_not_fit_is_split_and_what_never_fits_is_reported(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = perform_request(request_study(str(study_file)), tmp_path / "whole")
    measure, sizes = Lens.measure_prepared, []

    def narrow(self: Lens, prompts: Any, *more: Any, **options: Any) -> Any:
        sizes.append(len(prompts))
        if len(prompts) > 1 or len(prompts[0][1]) > 100:
            raise NoRoomError("no room", where="here", allowed="less", todo="wait")
        return measure(self, prompts, *more, **options)

    monkeypatch.setattr(Lens, "measure_prepared", narrow)
    split = perform_request(request_study(str(study_file)), tmp_path / "split")
    assert max(sizes) > 1
    assert split.measured + len(split.dropped) == whole.measured == 18
    assert split.dropped
    assert all("no room" in each.reason for each in split.dropped)
    held = exported(tmp_path / "split")
    keys = ["model", "condition", "prompt", "queries", "layer", "head"]
    both = held.join(exported(tmp_path / "whole"), on=keys, suffix="_whole")
    assert len(both) == len(held) > 0
    for mine, theirs in zip(both["received"], both["received_whole"], strict=True):
        np.testing.assert_allclose(mine.to_numpy(), theirs.to_numpy(), atol=SHALLOW)


def test_a_condition_that_no_prompt_can_have_is_an_error_and_nothing_is_written(
    tiny_models: tuple[Path, Path], tmp_path: Path
) -> None:
    conditions = ["none", {"name": "turned", "order": {"of": "question", "by": "reversed"}}]
    items = [{"question": "Where?"}, {"question": "When?"}]
    study = {"models": [str(tiny_models[0])], "prompts": {"items": items, "plain": "{question}"}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({**study, "conditions": conditions}), encoding="utf-8")
    with pytest.raises(AttnscopeError) as refusal:
        run_study(str(tmp_path / "study.yaml"), tmp_path / "run")
    assert str(refusal.value) == (
        "no prompt can be measured under condition 'turned': 'question' has one item, so it has only one order "
        f"({tmp_path}/study.yaml, line 3, conditions.1: {tiny_models[0]}, turned, prompt 0): lists of two or more "
        "items; remove the prompt, or the edit"
    )
    assert not (tmp_path / "run").exists()


def test_a_study_without_any_prompt_that_can_be_measured_says_why_in_one_message(
    tiny_models: tuple[Path, Path], tmp_path: Path
) -> None:
    study = {"models": [str(tiny_models[0])], "prompts": {"items": [{"q": "", "n": "a"}], "id": "n", "plain": "{q}"}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    with pytest.raises(AttnscopeError) as refusal:
        run_study(str(tmp_path / "study.yaml"), tmp_path / "run")
    assert str(refusal.value) == (
        f"no prompt could be measured: field 'q' is empty ({tmp_path}/study.yaml, line 3, prompts: {tiny_models[0]}, "
        "none, prompt a): some text in every field, item and message; add text, or remove the prompt"
    )


STRICT = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>{% endfor %}"
)


def test_a_chat_that_a_template_refuses_is_reported_with_its_prompt_its_condition_and_a_way_out(
    tmp_path: Path,
) -> None:
    model = save_tiny(tmp_path / "strict", 1)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = STRICT
    tokenizer.save_pretrained(model)
    messages = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    alone = [{"role": "user", "content": "Hi"}]
    study = {
        "models": [{"label": "strict", "source": str(model)}],
        "prompts": {"items": [{"m": messages}, {"m": alone}, {"m": [*alone, *alone]}], "chat": "{m}"},
        "conditions": ["none", {"name": "gone", "delete": "turn[role=assistant]"}],
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    request = request_study(str(tmp_path / "study.yaml"))
    ((spec, description),) = look_up_models(request)
    reasons = [each.reason for each in plan_model(request, spec, description).dropped]
    refused = f"{description.name}'s chat template refuses this text: roles must alternate"
    accepted = "messages that the template accepts; lay the prompts out with plain instead of chat"
    assert reasons[0] == f"{refused} (prompt 2): {accepted}"
    assert f"{refused} (prompt 0, condition gone): {accepted}, or change the edit" in reasons


@pytest.mark.parametrize(
    ("changes", "whose"),
    [
        ({"classes": {"endless": "re:(a|aa)+$"}}, "a class takes too long.*line .*, classes.endless"),
        ({"also": {"endless": "re:(a|aa)+$"}}, "a class takes too long.*line .*, also.endless"),
        ({"without": ["re:(a|aa)+$"]}, "a class takes too long.*line .*, without.0"),
        ({"measure": {"queries": {"match": "(a|aa)+$"}}}, "a query group takes too long.*line .*, measure.queries"),
    ],
)
def test_a_pattern_that_never_ends_is_refused_before_a_model_is_looked_up(
    tiny_models: tuple[Path, Path], tmp_path: Path, changes: dict[str, Any], whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.2)
    items = [{"question": f"{number} {'a' * 60}b"} for number in range(5)]
    study = {"models": [str(tiny_models[0])], "prompts": {"items": items, "plain": "{question}"}, **changes}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    monkeypatch.setattr("attnscope.runs.compatibility.look_up", lambda *_, **__: pytest.fail("a model was looked up"))
    with pytest.raises(AttnscopeError, match=f"^the pattern of {whose}.*at most 0.2 seconds of computing"):
        run_study(str(tmp_path / "study.yaml"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[entropy]", "[entropy]\n  layers: [0, 7]", "layer 7 of one.*measure.layers"),
        ("[entropy]", "[entropy]\n  heads: [9]", "head 9 of one.*measure.heads"),
        ("layer: 1, head: 2", "layer: 1, head: 4", "head 4 of one.*figure along.*heads 0 to 3"),
        ("layer: 1, head: 2", "layer: 5, head: 2", "layer 5 of one.*figure along.*layers 0 to 1"),
        ("{label: one,", "{label: one, device: cuda:7,", "no such device"),
        ("{label: two,", "{label: two, adapter: nowhere/at/all,", "nowhere/at/all"),
    ],
)
def test_what_a_model_lacks_is_reported_before_any_is_loaded(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, problem: str
) -> None:
    def never(*_: Any, **__: Any) -> None:
        pytest.fail("a model was loaded")

    monkeypatch.setattr("attnscope.models.load.read_model", never)
    text = study_file.read_text()
    assert old in text
    study_file.write_text(text.replace(old, new))
    with pytest.raises(AttnscopeError, match=problem):
        run_study(str(study_file), tmp_path / "run")


def test_a_figure_that_cant_be_drawn_is_reported_and_the_others_are_drawn(study_file: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("change", ["config", "template", "versions", "moved"])
def test_a_run_of_another_model_is_never_taken_for_this_one(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    folder = save_tiny(tmp_path / "mine", 1)
    options: dict[str, Any] = {"models": ["one"], "swaps": {"one": str(folder)}}
    first = perform_request(request_study(str(study_file), **options), tmp_path / "run")
    again = perform_request(request_study(str(study_file), **options), tmp_path / "run")
    assert again.unchanged
    if change == "config":
        config = json.loads((folder / "config.json").read_text())
        config["rms_norm_eps"] = 0.5
        (folder / "config.json").write_text(json.dumps(config))
    elif change == "template":
        template = folder / "chat_template.jinja"
        template.write_text("Hear! " + template.read_text())
    elif change == "versions":
        monkeypatch.setattr("attnscope.runs.request.version", lambda name: f"another {name}")
    else:
        folder.rename(tmp_path / "elsewhere")
        options["swaps"]["one"] = str(tmp_path / "elsewhere")
        assert perform_request(request_study(str(study_file), **options), tmp_path / "run").reused == first.measured
        return
    changed = perform_request(request_study(str(study_file), **options), tmp_path / "run")
    assert (changed.measured, changed.reused) == (first.measured, 0)
    fresh = tmp_path / "fresh"
    perform_request(request_study(str(study_file), **options), fresh)
    assert contents(fresh) == contents(tmp_path / "run")


def test_an_adapters_settings_are_part_of_what_a_cell_depends_on(study_file: Path, tmp_path: Path) -> None:
    adapter = tiny.save_adapter(tmp_path / "adapter", tiny.llama_config(max_position_embeddings=512))
    text = study_file.read_text().replace("{label: one,", f"{{label: one, adapter: {adapter},")
    study_file.write_text(text)
    perform_request(request_study(str(study_file), models=["one"]), tmp_path / "run")
    settings = json.loads((adapter / "adapter_config.json").read_text())
    settings["lora_alpha"] = 100 * settings["lora_alpha"]
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    assert perform_request(request_study(str(study_file), models=["one"]), tmp_path / "run").reused == 0


def test_new_cells_get_the_dtype_that_the_old_ones_had(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform_request(request_study(str(study_file), models=["one"], limit=1), tmp_path / "run")
    monkeypatch.setattr("attnscope.models.load._default_dtype", lambda *_: "bfloat16")
    perform_request(request_study(str(study_file), models=["one"]), tmp_path / "run")
    monkeypatch.undo()
    perform_request(request_study(str(study_file), models=["one"]), tmp_path / "fresh")
    one, two = (exported(tmp_path / name) for name in ("run", "fresh"))
    for mine, theirs in zip(one["received"], two["received"], strict=True):
        np.testing.assert_allclose(mine.to_numpy(), theirs.to_numpy(), atol=SHALLOW)


def test_what_was_measured_stays_until_you_ask_to_forget_it(study_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert perform_request(request_study(str(study_file)), run).measured == 18
    assert perform_request(request_study(str(study_file), limit=1), run).reused == 6
    assert perform_request(request_study(str(study_file)), run).reused == 18
    perform_request(request_study(str(study_file), limit=1, models=["one"], forget=True), run)
    assert perform_request(request_study(str(study_file)), run).measured > 0


def test_a_refused_cell_is_remembered_and_goes_on_to_the_same_tables(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, calls = Lens.measure_prepared, []

    def picky(self: Lens, prompts: Any, *more: Any, **options: Any) -> Any:
        calls.append(len(prompts))
        if any("two signs" in text for text, _ in prompts):
            raise AttnscopeError("not this one", where="here", allowed="others", todo="leave it out")
        return measure(self, prompts, *more, **options)

    monkeypatch.setattr(Lens, "measure_prepared", picky)
    first = perform_request(request_study(str(study_file)), tmp_path / "run")
    assert {each.prompt for each in first.dropped} == {2}
    before, calls[:] = contents(tmp_path / "run"), []
    study_file.write_text(study_file.read_text().replace("title: A tiny study", "title: Another title"))
    again = perform_request(request_study(str(study_file)), tmp_path / "run")
    assert (again.dropped, calls, contents(tmp_path / "run")) == (first.dropped, [], before)
    with pytest.raises(AttnscopeError, match="strict=True"):
        perform_request(request_study(str(study_file), strict=True), tmp_path / "run")


def test_a_mistake_leaves_a_finished_run_as_it_was(study_file: Path, tmp_path: Path) -> None:
    run = run_study(str(study_file), tmp_path / "run")
    with pytest.raises(AttnscopeError, match="nowhere"):
        run_study(str(study_file), tmp_path / "run", swaps={"one": "./nowhere"})
    assert report_run(run.path).page.is_file()
    with pytest.raises(AttnscopeError, match="nowhere"):
        run_study(str(study_file), tmp_path / "new", swaps={"one": "./nowhere"})
    assert not (tmp_path / "new").exists()


def test_a_report_of_an_earlier_state_is_written_again(study_file: Path, tmp_path: Path) -> None:
    run = run_study(str(study_file), tmp_path / "run", models=["one"])
    study_file.write_text(study_file.read_text().replace("title: A tiny study", "title: Another title"))
    perform_request(request_study(str(study_file), models=["one"]), run.path)  # stopped before its report, as it were
    run_study(str(study_file), tmp_path / "run", models=["one"])
    assert "Another title" in (run.path / "report.html").read_text(encoding="utf-8")


def test_another_programs_manifest_is_left_alone(study_file: Path, tmp_path: Path) -> None:
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / "manifest.json").write_text('{"manifest_version": 3}')
    with pytest.raises(AttnscopeError, match="not a run"):
        run_study(str(study_file), tmp_path / "extension")
    assert (tmp_path / "extension" / "manifest.json").read_text() == '{"manifest_version": 3}'
    with pytest.raises(AttnscopeError, match="manifest can't be read"):
        report_run(tmp_path / "extension")


def test_a_segment_that_a_bundled_set_lacks_is_reported(tmp_path: Path) -> None:
    study = tmp_path / "s.yaml"
    head = "models: [smollm2-135m-instruct]\nprompts: {set: problems}\n"
    for wrong, problem in (
        ("conditions: [none, {name: x, insert: {repeat: /}, times: 3, before: qestion}]", "near: question"),
        ("conditions: [none, {name: x, insert: {shuffle: qestion}, before: question}]", "near: question"),
        ("classes: {q: 'segment:qestion'}", "near: question"),
        ("measure: {queries: [qestion]}", "near: question"),
    ):
        study.write_text(f"{head}{wrong}\n")
        with pytest.raises(AttnscopeError, match=f"s.yaml, line 3.*{problem}"):
            request_study(str(study))


def test_shared_lines_hold_the_same_tokens_where_a_window_hides_some(tmp_path: Path) -> None:
    """In a model with a sliding window, an insertion moves early tokens out of the last queries' sight."""
    folder = tmp_path / "window"
    config = transformers.MistralConfig(
        **{**tiny.llama_config(max_position_embeddings=512).to_dict(), "sliding_window": 12, "model_type": "mistral"}
    )
    tiny.save_model(folder, config, "MistralForCausalLM", seed=3)
    content = {
        "models": [{"label": "m", "source": str(folder)}],
        "prompts": {"items": [{"a": "abcd" * size, "b": "efgh"} for size in (1, 2, 3)], "plain": "{a}{b}"},
        "conditions": ["none", {"name": "x", "insert": {"repeat": "/"}, "tokens": 5, "before": "b"}],
        "measure": {"queries": ["b"]},
        "figures": [{"name": "l", "kind": "lines", "panels": [{"model": "m", "layer": 1, "head": 0}]}],
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    run = run_study(str(tmp_path / "s.yaml"), tmp_path / "run")
    drawn = pl.read_csv(run.path / "figures" / "l.csv").filter(form="shared")
    sides = [drawn.filter(series=name).select("position", "n") for name in ("none", "x")]
    assert sides[0].equals(sides[1])
    assert 0 < len(sides[0]) < 16
