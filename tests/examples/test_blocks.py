"""The recipe for the shipped fine-tune: it learns, it can be stopped, and the adapter is as good as its card says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from examples.blocks.card import write_card
from examples.blocks.evaluation import Asked, Share, answers, ask, chance, names, shares
from examples.blocks.puzzles import Puzzle, Stage, batches, encode, kind, stage_puzzles
from examples.blocks.recipe import HELD_OUT, HELD_OUT_SEED, SETTINGS
from examples.blocks.sweep import Tried, attempt, short
from examples.blocks.training import CHECKPOINT, Settings, Training, answer_logits

from attnscope.errors import AttnscopeError
from attnscope.models.builtin import BUILTINS
from attnscope.models.load import load
from attnscope.text.sets.blocks import make
from tests.models import tiny
from tests.tolerances import HALF, LOGITS

TIER = "command"

FEW = Stage(steps=6, puzzles=12, options={"moves": ["translate"], "least": 4, "most": 4})
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<s>answer\n{% endif %}"
)


def held_out(count: int, seed: int) -> list[Puzzle]:
    return make(count, seed, HELD_OUT)


def settings_of(*stages: Stage, **changes: Any) -> Settings:
    """The recipe's, for a short training."""
    return replace(SETTINGS, stages=stages, **{"rank": 2, **changes})


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A tiny random llama that takes chats."""
    folder = tmp_path / "model"
    tiny.save_model(folder)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.model
def test_a_few_steps_from_scratch_make_the_real_model_better(tmp_path: Path) -> None:
    settings = settings_of(Stage(steps=10, puzzles=20, options=FEW.options), batch=2, warmup=2, rank=16)
    training = Training(load("smollm2-135m-instruct"), settings, tmp_path)
    training.run()
    first, last = training.log[:3, 0].mean(), training.log[-3:, 0].mean()
    assert last < 0.6 * first


def test_training_stopped_and_resumed_ends_in_the_same_weights(model: str, tmp_path: Path) -> None:
    settings = settings_of(FEW, FEW, batch=2)
    straight = Training(load(model), settings, tmp_path / "straight")
    straight.run()
    Training(load(model), settings, tmp_path / "stopped").run(until=8)  # in the second stage
    resumed = Training(load(model), settings, tmp_path / "stopped")
    assert resumed.done == 8
    resumed.run()
    assert torch.equal(resumed.log, straight.log)
    assert all(torch.equal(each, straight.parameters[name]) for name, each in resumed.parameters.items())


def test_adapters_kept_on_the_way_are_those_of_a_training_that_ends_there(model: str, tmp_path: Path) -> None:
    settings = settings_of(FEW, batch=2, rate=0.05)
    Training(load(model), settings, tmp_path / "out").run(until=5, keep=2)
    assert sorted(path.name for path in (tmp_path / "out").glob("checkpoint-*")) == [
        f"checkpoint-{step}" for step in (2, 4, 5)
    ]
    short = Training(load(model), settings, tmp_path / "short")
    short.run(until=4)
    short.save_adapter(tmp_path / "short" / "adapter")
    kept, ended = (load(model, adapter=tmp_path / name) for name in ("out/checkpoint-4", "short/adapter"))
    weights = ended.model.state_dict()
    assert all(torch.equal(each, weights[name]) for name, each in kept.model.state_dict().items())


def test_a_placebo_has_the_same_puzzles_and_answers_but_not_together(model: str, tmp_path: Path) -> None:
    real, placebo = (
        Training(load(model), settings_of(FEW, placebo=each), tmp_path / f"{each}")._examples(FEW, 0)
        for each in (False, True)
    )
    assert [each.prompt for each in placebo] == [each.prompt for each in real]
    assert sorted(each.answer for each in placebo) == sorted(each.answer for each in real)
    assert sum(one.answer != two.answer for one, two in zip(real, placebo, strict=True)) > len(real) / 2


def test_a_checkpoint_of_other_settings_is_refused(model: str, tmp_path: Path) -> None:
    Training(load(model), settings_of(FEW), tmp_path).run(until=1)
    with pytest.raises(AttnscopeError, match=r"other settings.*--out"):
        Training(load(model), settings_of(FEW, rate=1e-4), tmp_path)


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(FEW)
    training = Training(load(model), settings, tmp_path)
    training.run(until=2)

    def half(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes((tmp_path / CHECKPOINT).read_bytes()[:1000])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("examples.blocks.training.save_file", half)
        with pytest.raises(KeyboardInterrupt):
            training.run(until=4, every=1)
    resumed = Training(load(model), settings, tmp_path)
    assert resumed.done == 2
    resumed.run()
    assert resumed.done == 6


def test_a_checkpoint_that_is_damaged_or_of_another_model_is_refused(model: str, tmp_path: Path) -> None:
    Training(load(model), settings_of(FEW), tmp_path).run(until=1)
    other = tiny.save_model(tmp_path / "other", seed=9)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path / "other")
    assert other is not None
    with pytest.raises(AttnscopeError, match="other settings or another model"):
        Training(load(str(tmp_path / "other")), settings_of(FEW), tmp_path)
    (tmp_path / CHECKPOINT).write_bytes((tmp_path / CHECKPOINT).read_bytes()[:-50])
    with pytest.raises(AttnscopeError, match="can't be read"):
        Training(load(model), settings_of(FEW), tmp_path)


def test_a_saved_adapter_is_loaded_as_it_was_trained_and_knows_its_base(model: str, tmp_path: Path) -> None:
    training = Training(load(model), settings_of(FEW, rate=0.05), tmp_path / "out")
    training.run()
    training.save_adapter(tmp_path / "adapter")
    prompt = torch.arange(2, 40)[None]
    with torch.no_grad():
        want, found = training.model(prompt).logits, load(str(tmp_path / "adapter")).model(prompt).logits
    torch.testing.assert_close(found, want, atol=HALF * float(want.abs().max()), rtol=0)  # saved in half precision
    tiny.save_model(tmp_path / "other", seed=5)
    with pytest.raises(AttnscopeError, match="trained on other weights"):
        load(str(tmp_path / "other"), adapter=str(tmp_path / "adapter"))


def test_only_answers_are_learned_and_padding_changes_nothing(model: str) -> None:
    loaded = load(model)
    examples = [encode(puzzle, loaded.tokenization) for puzzle in stage_puzzles(FEW, 1)[:3]]
    examples[0].prompt[:] = examples[0].prompt[5:]  # so that lengths differ
    with torch.no_grad():
        together, wanted, row = answer_logits(loaded.model, examples)
        for number, example in enumerate(examples):
            full = loaded.model(torch.tensor([example.prompt + example.answer])).logits[0]
            alone = full[len(example.prompt) - 1 : -1]
            torch.testing.assert_close(together[row == number], alone, atol=LOGITS * float(alone.abs().max()), rtol=0)
            assert wanted[row == number].tolist() == example.answer


def test_each_pass_takes_every_puzzle_once_in_another_order(model: str) -> None:
    examples = [encode(puzzle, load(model).tokenization) for puzzle in stage_puzzles(FEW, 1)]
    made = [[tuple(each.prompt) for each in batch] for batch in batches(examples, 4, 6, seed=1)]
    first, second = list(chain(*made[:3])), list(chain(*made[3:]))
    assert sorted(first) == sorted(second) == sorted(tuple(each.prompt) for each in examples)
    assert first != second


def test_nothing_the_recipe_trains_on_is_asked() -> None:
    asked = {puzzle["drawing"] for puzzle in held_out(150, HELD_OUT_SEED)}
    small = [Stage(each.steps, 600, each.options) for each in SETTINGS.stages]
    for number, stage in enumerate(small):
        assert not asked & {puzzle["drawing"] for puzzle in stage_puzzles(stage, SETTINGS.seed + number)}


def test_the_choice_is_the_answer_the_model_finds_likeliest(model: str) -> None:
    loaded = load(model)
    puzzle = held_out(1, 3)[0]
    (found,) = ask(loaded, [puzzle])
    from examples.blocks.evaluation import _choices

    choices = _choices(puzzle)
    assert puzzle["worked"] in choices
    assert len({choice.split(":")[0] + choice.split(":")[1] for choice in choices}) == len(choices)
    surprises = []
    for choice in choices:
        example = encode({**puzzle, "worked": choice}, loaded.tokenization)
        logits, wanted, _ = answer_logits(loaded.model, [example])
        surprises.append(float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum")))
    assert found.chosen == (choices[surprises.index(min(surprises))] == puzzle["worked"])
    assert found.choices == len(choices)


def test_shares_are_counted_by_kind_and_chance_is_what_blind_guessing_gets() -> None:
    asked = [Asked("translate", "translate up 1", "", named, True, 4) for named in (True, True, False)]
    asked.append(Asked("scale up", "scale up", "", False, False, 2))
    assert shares(asked, "named") == {"translate": Share(2, 3), "scale up": Share(0, 1), "all": Share(2, 4)}
    assert chance(asked, "named") == 3 / 4
    assert chance(asked, "chosen") == pytest.approx((3 / 4 + 1 / 2) / 4)
    low, high = Share(50, 100).interval
    assert (round(low, 4), round(high, 4)) == (0.4038, 0.5962)  # Wilson's, as tables give it


@pytest.mark.model
def test_the_shipped_adapter_is_as_good_as_its_card_says() -> None:
    folder = BUILTINS["smollm2-135m-blocks"].adapter
    assert folder is not None
    card = json.loads((folder / "evaluation.json").read_text())
    small, text = Share(*card["small"]), (folder / "README.md").read_text()
    puzzles = held_out(small.of, card["seed"])
    said = answers(load("smollm2-135m-blocks"), puzzles)
    right = sum(names(each, puzzle) for each, puzzle in zip(said, puzzles, strict=True))
    low, high = small.interval
    assert low <= right / small.of <= high
    before, after = (Share(*card["named"][when]["all"]) for when in ("before", "after"))
    assert str(after) in text
    assert str(small) in text
    assert after.interval[0] > max(before.interval[1], card["named"]["chance"])


def test_the_card_says_what_was_asked(tmp_path: Path) -> None:
    puzzles = held_out(10, 1)
    before = [Asked(kind(each), each["answer"], "?", False, False, 8) for each in puzzles]
    after = [Asked(kind(each), each["answer"], each["worked"], True, True, 8) for each in puzzles]
    write_card(tmp_path, before, after, after[:4], 7, seed=3)
    text = (tmp_path / "README.md").read_text()
    assert "seed 3" in text
    assert "| all | 0.0% (0.0% to 27.8%, 0 of 10) | 100.0% (72.2% to 100.0%, 10 of 10) |" in text
    assert json.loads((tmp_path / "evaluation.json").read_text())["named"]["after"]["all"] == [10, 10]


def test_a_sweep_reports_held_out_puzzles_at_each_rate(model: str, tmp_path: Path) -> None:
    def tried(rate: float) -> Tried:
        settings = replace(short(rate, 30), rank=2, batch=2, warmup=2)
        return attempt(load(model), settings, tmp_path / str(rate), 8, lambda _: None)

    none, some = tried(1e-9), tried(0.05)
    assert some.loss < none.loss
    assert 0 <= none.tokens <= some.tokens <= 1
