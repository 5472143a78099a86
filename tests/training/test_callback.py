"""The callback: training ends in the same weights, the Trainer's loggers get the numbers, failures stop nothing."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers import TrainerCallback as Callback

import attnscope
from attnscope.analysis.levels import level
from attnscope.analysis.sides import Side
from attnscope.errors import AttnscopeError
from attnscope.lens import Lens
from attnscope.study.file import read_study
from attnscope.study.schema import ClassSpec, ModelSpec
from attnscope.training.allowance import Allowance
from tests.models import tiny

TIER = "command"
DIGITS = (pl.col("condition") == "none", pl.col("token_class") == "digits")
ALWAYS = float("inf")
STUDY = """
models: [{label: mine, checkpoints: "nowhere/checkpoint-*"}]
prompts:
  items:
    - {rule: Be brief., question: "2 + 3?"}
    - {rule: Be brief., question: "Which of 7 and 9 is odd?"}
    - {rule: Be kind., question: "Who?"}
  plain: "{rule} {question}"
conditions:
  - none
  - {name: filler, insert: {repeat: "/"}, tokens: 6, before: question}
classes: {digits: "re:[0-9]", question: "segment:question", filler: "segment:inserted"}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(STUDY)
    return file


class Texts(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(2, 200, (12,), generator=torch.Generator().manual_seed(place))
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


class Reporter(Callback):
    """Stands where TensorBoard and W&B stand: before callbacks of one's own."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
        assert not self.closed
        self.logged.append((state.global_step, dict(logs)))

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.closed = True


def small_model(*, peft: bool = False, **changes: Any) -> Any:
    torch.manual_seed(0)
    from transformers import LlamaForCausalLM

    model: Any = LlamaForCausalLM(tiny.llama_config(attention_dropout=0.1, **changes))
    if peft:
        model = get_peft_model(
            model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.2, task_type="CAUSAL_LM")
        )
    return model


def trained(model: Any, folder: Path, callbacks: list[Callback], **changes: Any) -> Trainer:
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 2,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
    }
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**{**settings, **changes}),
        train_dataset=Texts(),
        processing_class=tiny.tokenizer(),
        callbacks=callbacks,
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("changes", [{}, {"gradient_checkpointing": True}, {"bf16": True}])
@pytest.mark.parametrize("peft", [False, True])
def test_training_ends_in_the_same_weights_bit_for_bit(
    study: Path, tmp_path: Path, peft: bool, changes: dict[str, Any]
) -> None:
    plain, watched = small_model(peft=peft), small_model(peft=peft)
    trained(plain, tmp_path / "plain", [], **changes)
    callback = attnscope.TrainerCallback(study, every=1, share=ALWAYS)
    trained(watched, tmp_path / "watched", [callback], **changes)
    assert len(callback.table()["step"].unique()) >= 2
    weights = plain.state_dict()
    assert weights.keys() == watched.state_dict().keys()
    for name, weight in watched.state_dict().items():
        assert torch.equal(weight, weights[name]), name


def test_the_loggers_get_the_numbers_at_the_right_steps_whatever_the_order_of_callbacks(
    study: Path, tmp_path: Path
) -> None:
    before, after = Reporter(), Reporter()
    callback = attnscope.TrainerCallback(study, every=2, share=ALWAYS)
    trainer = trained(small_model(), tmp_path / "out", [before, callback, after])
    names = {f"attention/{where}/{name}" for where in ("none", "filler") for name in ("question", "digits")}
    names.add("attention/filler/filler")
    for reporter in (before, after):
        measured = [(step, logs) for step, logs in reporter.logged if "attention/none/question" in logs]
        assert [step for step, _ in measured] == [0, 2, 4, 6]
        assert all(names <= set(logs) and "loss" not in logs for _, logs in measured)
        losses = [step for step, logs in reporter.logged if "loss" in logs]
        assert losses == [2, 4, 6]  # the Trainer's own logs are all there
    kept = [entry for entry in trainer.state.log_history if "attention/none/question" in entry]
    assert [entry["step"] for entry in kept] == [0, 2, 4, 6]
    table = callback.table().filter(pl.col("condition") == "none", pl.col("token_class") == "question")
    assert table["mass"].to_list() == [entry["attention/none/question"] for entry in kept]


def test_the_numbers_are_those_of_a_lens_on_the_trained_model(study: Path, tmp_path: Path) -> None:
    model = small_model(peft=True)
    callback = attnscope.TrainerCallback(study, every=100)
    trained(model, tmp_path / "out", [callback])
    lens = Lens(model, tiny.tokenizer())
    texts = ["Be brief. 2 + 3?", "Be brief. Which of 7 and 9 is odd?"]  # the third prompt has no digit
    masses = [
        lens.measure(text).mass({"digits": "re:[0-9]"}).filter(pl.col("token_class") == "digits")["mass"]
        for text in texts
    ]
    last = callback.table().filter(pl.col("step") == 6, *DIGITS)
    assert last["mass"][0] == pytest.approx(np.mean([each.mean() for each in masses]), abs=1e-6)
    layers = callback.table(by_layer=True).filter(pl.col("step") == 6, *DIGITS)
    assert layers["layer"].to_list() == [0, 1]
    assert layers["mass"].mean() == pytest.approx(last["mass"][0], abs=1e-9)
    first = callback.table().filter(pl.col("step") == 0, *DIGITS)
    assert first["mass"][0] != last["mass"][0]


def test_a_class_counts_in_the_prompts_that_have_it_as_in_a_run(study: Path, tmp_path: Path) -> None:
    model = small_model().eval()
    model.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    content = yaml.safe_load(STUDY) | {"models": [{"label": "mine", "source": str(tmp_path / "model")}]}
    content["measure"] = {"queries": ["last"]}
    study.write_text(yaml.safe_dump(content))
    run = attnscope.run_study(study, tmp_path / "run", evidence="none")
    callback = attnscope.TrainerCallback(study)
    logged = callback.begin(model, tiny.tokenizer())
    rows = {(row["condition"], row["token_class"]): row for row in callback.table().iter_rows(named=True)}
    assert len(rows) == 2 * 4
    for (condition, name), row in rows.items():
        one = level(Side(run, "mine", condition), "last", name)
        place = f"attention/{condition}/{name}"
        assert row["n"] == (0 if one is None else one.n)
        assert row["mass"] == (None if one is None else pytest.approx(one.value, abs=1e-6))
        assert logged.get(place) == row["mass"]
        assert logged.get(f"{place}/n") == (2 if name == "digits" else None)
    assert rows["none", "filler"]["n"] == 0


def test_quantities_are_said_not_to_be_measured(study: Path, caplog: pytest.LogCaptureFixture) -> None:
    study.write_text(f"{STUDY}quantities: {{apart: {{contrast: digits, minus: question}}}}\n")
    with caplog.at_level(logging.WARNING, "attnscope"):
        attnscope.TrainerCallback(study)
    assert caplog.messages == ["quantities are not measured during training, only classes and sets: apart"]


def seed() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(1))  # noqa: S311


def test_the_model_is_left_as_it_was_in_training_mode_with_its_randomness(study: Path) -> None:
    model = small_model().train()
    model.gradient_checkpointing_enable()
    model.lm_head.weight.grad = torch.ones_like(model.lm_head.weight)
    hooks = {name: len(module._forward_hooks) for name, module in model.named_modules()}
    seed()
    expected = drawn()
    seed()
    callback = attnscope.TrainerCallback(study, share=ALWAYS)
    assert "attention/filler/filler" in callback.begin(model, tiny.tokenizer())
    assert drawn() == expected
    assert all(module.training for module in model.modules())
    assert model.is_gradient_checkpointing
    assert torch.is_grad_enabled()
    assert torch.equal(model.lm_head.weight.grad, torch.ones_like(model.lm_head.weight))
    assert hooks == {name: len(module._forward_hooks) for name, module in model.named_modules()}


def test_a_measurement_that_fails_is_one_line_and_training_goes_on(
    study: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Poisoned(Callback):
        """Makes the weights unusable for a while, as an overflow would."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if state.global_step == 2:
                with torch.no_grad():
                    given["model"].model.layers[0].self_attn.q_proj.weight.fill_(float("nan"))

    callback = attnscope.TrainerCallback(study, every=2, share=ALWAYS)
    with caplog.at_level(logging.WARNING, "attnscope"):
        trainer = trained(small_model(), tmp_path / "out", [Poisoned(), callback])
    assert trainer.state.global_step == 6
    assert sorted(set(callback.table()["step"])) == [0, 2]
    lines = [record.getMessage() for record in caplog.records if record.name == "attnscope"]
    assert [line.split(":")[0] for line in lines] == [f"attention was not measured at step {step}" for step in (4, 6)]
    assert not any("\n" in line for line in lines)


def test_only_the_first_process_measures_and_no_part_of_a_spread_model(
    study: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = attnscope.TrainerCallback(study)
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    given = {"model": small_model(), "processing_class": tiny.tokenizer()}
    other = TrainerState(is_world_process_zero=False, max_steps=1, global_step=1)
    for event in (callback.on_train_begin, callback.on_step_end, callback.on_train_end):
        event(args, other, TrainerControl(), **given)
    assert callback.table().is_empty()
    args.fsdp = "full_shard"
    with caplog.at_level(logging.WARNING, "attnscope"):
        callback.on_train_begin(args, TrainerState(), TrainerControl(), **given)
    assert "FSDP" in caplog.text
    assert callback.table().is_empty()


def test_a_training_that_continues_keeps_the_rows_of_its_csv(study: Path, tmp_path: Path) -> None:
    file = tmp_path / "attention.csv"
    first = attnscope.TrainerCallback(study, every=2, share=ALWAYS, csv=file)
    settings = {"save_strategy": "steps", "save_steps": 4}
    trained(small_model(), tmp_path / "out", [first], **settings)
    assert sorted(set(pl.read_csv(file)["step"])) == [0, 2, 4, 6]
    again = attnscope.TrainerCallback(study, every=2, share=ALWAYS, csv=file)
    model = small_model()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(tmp_path / "out"), max_steps=6, report_to=[], use_cpu=True, disable_tqdm=True, seed=3
        ),
        train_dataset=Texts(),
        processing_class=tiny.tokenizer(),
        callbacks=[again],
    )
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    assert sorted(set(pl.read_csv(file)["step"])) == [0, 2, 4, 6]
    same = pl.read_csv(file).filter(pl.col("step") == 2)
    assert same["mass"].to_list() == first.table().filter(pl.col("step") == 2)["mass"].to_list()


def test_a_training_stopped_early_has_its_last_step_measured(study: Path, tmp_path: Path) -> None:
    class Stop(Callback):
        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            control.should_training_stop = state.global_step == 3

    callback = attnscope.TrainerCallback(study, every=100)
    trained(small_model(), tmp_path / "out", [callback, Stop()])
    assert sorted(set(callback.table()["step"])) == [0, 3]


def test_it_waits_until_measuring_stays_within_its_share_of_the_time() -> None:
    now = [0.0]
    allowance = Allowance(0.02, clock=lambda: now[0])

    def measure(seconds: float) -> None:
        with allowance.spending(measuring=True):
            now[0] += seconds

    measure(1.0)
    assert not allowance.allows_another()
    now[0] += 149.0
    assert not allowance.allows_another()  # 1 s spent, 1 s more, 1 s for the last one: 150 s of training
    now[0] += 1.0
    assert allowance.allows_another()
    measure(1.0)
    assert not allowance.allows_another()
    spent = []
    for _ in range(10_000):
        now[0] += 0.5
        if allowance.allows_another():
            measure(1.0)
        spent.append((allowance.spent + allowance.last) / allowance.training)
    assert max(spent) <= 0.02
    assert allowance.spent == pytest.approx(0.02 * allowance.training, abs=2.1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"study": "symbls"}, r"no such study.*near: symbols"),
        ({"every": 0}, r"every can't be 0"),
        ({"share": 0}, r"not a share.*share=0"),
        ({"prompts": "all"}, r"prompts can't be 'all'"),
    ],
)
def test_mistakes_are_refused_when_it_is_made(study: Path, changes: dict[str, Any], words: str) -> None:
    given = {"study": study, **changes}
    with pytest.raises(AttnscopeError, match=words):
        attnscope.TrainerCallback(**given)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("segment:question", "segment:qestion", r"no segment 'qestion'.*line 12"),
        ("classes:", "clases:", r"unknown key 'clases'"),
        ('plain: "{rule} {question}"', 'plain: "{rule} {question}"\n  answer: {generate: 4}', "takes too long"),
    ],
)
def test_mistakes_in_the_study_are_refused_too(study: Path, before: str, after: str, words: str) -> None:
    study.write_text(STUDY.replace(before, after))
    with pytest.raises(AttnscopeError, match=words):
        attnscope.TrainerCallback(study)


def test_a_study_object_will_do_and_a_trainer_without_tokenizer_is_refused(study: Path, tmp_path: Path) -> None:
    as_object = read_study(study, ModelSpec(label="x", source="x"))
    callback = attnscope.TrainerCallback(as_object, tokenizer=tiny.tokenizer())
    settings = TrainingArguments(output_dir=str(tmp_path), max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True)
    Trainer(model=small_model(), args=settings, train_dataset=Texts(), callbacks=[callback]).train()
    assert sorted(set(callback.table()["step"])) == [0, 1]
    without = attnscope.TrainerCallback(as_object)
    with pytest.raises(AttnscopeError, match="no tokenizer"):
        Trainer(model=small_model(), args=settings, train_dataset=Texts(), callbacks=[without]).train()
    wrong = ClassSpec.model_validate({"segment": "qestion"})
    broken = as_object.model_copy(update={"classes": {"x": wrong}})
    with pytest.raises(AttnscopeError, match="no segment 'qestion'"):
        attnscope.TrainerCallback(broken)


def test_a_loop_of_ones_own_gets_the_same_numbers(study: Path) -> None:
    callback = attnscope.TrainerCallback(study, every=3, share=ALWAYS)
    with pytest.raises(AttnscopeError, match="has not begun"):
        callback.step(300)
    model = small_model()
    numbers = [callback.begin(model, tiny.tokenizer()), *(callback.step(step) for step in range(1, 6)), callback.end(5)]
    assert [bool(each) for each in numbers] == [True, False, False, True, False, False, True]
    assert numbers[0] == numbers[3] == numbers[6]  # nobody trained
    assert callback.end(5) == {}


def test_importing_attnscope_loads_neither_torch_nor_transformers() -> None:
    code = "import attnscope, sys; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
