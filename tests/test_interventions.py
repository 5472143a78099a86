"""Interventions: a head that carries an answer is found by its effect, not one that looks and is ignored."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers as tf

from attnscope import AttnscopeError, Lens, Outcome
from attnscope.edits.attention.head_outputs import mean_output
from attnscope.edits.attention.hide import Hide
from attnscope.edits.attention.patch import Patch
from attnscope.lens.intervening import Answered
from attnscope.text.tokens import Token
from tests.models import tiny

HALF = 260  # of the hidden states: what a token is, and what is to be written
assert len(tiny.VOCABULARY) <= HALF
HEADS, EACH = 4, 64
READER, DECOY = 1, 2
"""The head that copies the token, and the one that looks harder and adds nothing."""


@pytest.fixture(scope="module")
def lens() -> Lens:
    return Lens(planted(), tiny.tokenizer())


def planted() -> Any:
    """One layer that writes `#` again: the reader's output goes to the logits, the decoy's nowhere."""
    size = len(tiny.VOCABULARY)
    config = tf.LlamaConfig(
        vocab_size=size,
        hidden_size=2 * HALF,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=EACH,
        max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 1e30},  # the last dimensions do not turn
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model: Any = tf.LlamaForCausalLM(config).eval()
    mark = tiny.tokenizer()("#", add_special_tokens=False)["input_ids"][0]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
        block = model.model.layers[0].self_attn
        model.model.embed_tokens.weight[:, :size] = torch.eye(size)
        model.lm_head.weight[:, HALF : HALF + size] = torch.eye(size)
        for head, strength in ((READER, 0.02), (DECOY, 0.08)):
            last = (head + 1) * EACH - 1
            block.q_proj.weight[last, :size] = 1.0
            block.k_proj.weight[last, mark] = strength
            block.v_proj.weight[head * EACH, mark] = 1.0
        block.o_proj.weight[HALF + mark, READER * EACH] = 1.0
    return model


TEXT, ANSWER = "move # here and there", "#"


def test_the_head_that_carries_the_answer_is_found_by_its_effect_and_not_by_attention(lens: Lens) -> None:
    mass = lens.measure(TEXT).mass({"mark": "#"}).filter(pl.col("token_class") == "mark").sort("head")["mass"]
    assert int(np.argmax(mass)) == DECOY
    assert mass[DECOY] > 2 * mass[READER] > 2 * mass[0]
    swept = lens.sweep(TEXT, ANSWER, "heads").sort("head")
    assert swept["head"].to_list() == list(range(HEADS))
    assert swept["change"][READER] < -0.5
    assert all(abs(swept["change"][head]) < 1e-6 for head in range(HEADS) if head != READER)
    hidden = lens.sweep(TEXT, ANSWER, "heads", hide="#").sort("head")
    assert hidden["change"][READER] < -0.5
    assert all(abs(hidden["change"][head]) < 1e-6 for head in range(HEADS) if head != READER)


def test_hiding_the_token_changes_the_answer_and_hiding_others_does_not(lens: Lens) -> None:
    outcome = lens.intervene(TEXT, ANSWER, hide="#")
    assert outcome.change < -0.5
    assert max(outcome.control_changes, key=abs) > 0.0  # without other tokens more of the attention is on this one
    assert outcome.beyond == 1 / 11
    assert outcome.control == "as many random tokens"
    assert outcome.tokens == ["#"]
    assert f"{outcome.before.log_prob:.2f} -> {outcome.after.log_prob:.2f}" in repr(outcome)


def test_the_same_seed_draws_the_same_controls(lens: Lens) -> None:
    one, two, three = (lens.intervene(TEXT, ANSWER, ablate={0: [0]}, draws=6, seed=seed) for seed in (5, 5, 6))
    assert one.control_changes == two.control_changes != three.control_changes


def test_layers_classes_and_heads_are_swept_with_what_each_alone_does(lens: Lens) -> None:
    layers = lens.sweep(TEXT, ANSWER, hide="#", draws=2)
    alone = lens.intervene(TEXT, ANSWER, hide="#", layers=[0], draws=2)
    assert layers["layer"].to_list() == [0]
    assert layers["change"][0] == pytest.approx(alone.change, abs=1e-6)
    assert layers["control"][0] == pytest.approx(np.mean(alone.control_changes), abs=1e-6)
    classes = lens.sweep(TEXT, ANSWER, "classes", classes={"mark": "#", "e": "e"}, draws=0)
    assert classes["token_class"].to_list() == ["mark", "e"]
    assert classes["change"][0] == pytest.approx(alone.change, abs=1e-6)
    assert classes["control"].null_count() == 2


def test_an_outcome_shows_its_numbers_as_tables_and_as_escaped_html(lens: Lens) -> None:
    outcome = lens.intervene("a < b #", "<", hide="b", draws=3)
    table = outcome.table()
    assert table["variant"].to_list() == ["as it is", "changed", *["control"] * 3]
    assert table["change"][0] == 0
    assert outcome.by_token()["after"].sum() == pytest.approx(outcome.after.log_prob)
    assert "<td>&lt;</td>" in outcome._repr_html_()


WITHOUT = "move e here and there"
"""As many tokens as TEXT, and no `#`."""


def test_the_reader_patched_from_a_prompt_with_the_mark_carries_the_answer_over_and_the_decoy_does_not(
    lens: Lens,
) -> None:
    (reader, decoy), (taken, _) = (
        [lens.intervene(text, ANSWER, patch={0: [head]}, source=source) for head in (READER, DECOY)]
        for text, source in ((WITHOUT, TEXT), (TEXT, WITHOUT))
    )
    assert not reader.before.writes(reader.ids)
    assert reader.after.writes(reader.ids)
    assert reader.after.log_prob == pytest.approx(taken.before.log_prob, abs=1e-6)
    assert taken.after.log_prob == pytest.approx(reader.before.log_prob, abs=1e-6)
    assert abs(decoy.change) < 1e-6
    assert reader.control == "as many random heads of the same layers"
    assert reader.beyond == 1 / 11
    assert max(map(abs, reader.control_changes)) < 1e-6


def test_only_aligned_tokens_are_patched(lens: Lens) -> None:
    last, source = len(lens.tokenize(WITHOUT)) - 1, "now #"
    match = len(lens.tokenize(source)) - 1
    written, earlier = (
        lens.intervene(WITHOUT, ANSWER, patch={0: [READER]}, source=source, align={place: match}).change
        for place in (last, last - 1)
    )
    assert written > 0.5
    assert abs(earlier) < 1e-6


def test_without_alignment_the_answers_tokens_are_patched_as_well(lens: Lens) -> None:
    """The source is followed by the answer too, and its tokens are matched with those of the answer here."""
    answer = "me"
    whole = lens.intervene(WITHOUT, answer, patch={0: [READER]}, source=TEXT).after
    np.testing.assert_allclose(whole.log_probs, lens.log_probs(TEXT, answer), rtol=1e-6)
    tokens = len(lens.tokenize(TEXT))
    prompt_only = dict(zip(range(tokens), range(tokens), strict=True))
    part = lens.intervene(WITHOUT, answer, patch={0: [READER]}, source=TEXT, align=prompt_only).after
    assert part.log_probs[0] == pytest.approx(whole.log_probs[0], abs=1e-6)
    assert abs(part.log_probs[1] - whole.log_probs[1]) > 1e-3


def test_a_resampled_head_gives_what_it_gives_at_random_tokens_of_the_source(lens: Lens) -> None:
    def resampled(head: int, seed: int, source: str) -> Outcome:
        return lens.intervene(TEXT, ANSWER, ablate={0: [head]}, how="resample", source=source, seed=seed)

    assert resampled(READER, 0, "nothing here").change < -0.5
    assert abs(resampled(DECOY, 0, "nothing here").change) < 1e-6
    mixed = "and now # here"  # what the reader gives depends on the token that is drawn
    changes = [resampled(READER, seed, mixed).change for seed in range(9)]
    assert changes == [resampled(READER, seed, mixed).change for seed in range(9)]
    assert len(set(changes)) > 1


def test_a_texts_head_outputs_can_be_read_in_a_batch_and_patched_as_an_edit(lens: Lens) -> None:
    prompts = [(text, lens.tokenize(text)) for text in (TEXT, "a # b", WITHOUT)]
    batch = lens.head_outputs_prepared(prompts, {0: [READER, DECOY]})
    for (text, tokens), outputs in zip(prompts, batch, strict=True):
        alone = lens.head_outputs(text, {0: [READER, DECOY]})
        assert outputs[0][READER].shape == (len(tokens), EACH)
        for head in (READER, DECOY):
            np.testing.assert_allclose(outputs[0][head], alone[0][head], rtol=1e-6, atol=1e-6)
    own = Patch(patch={0: [READER]}, values=batch[0], align=range(len(prompts[0][1])))
    assert lens.intervene(TEXT, ANSWER, [own], draws=0).change == pytest.approx(0, abs=1e-6)
    mean = Patch(patch={0: [READER]}, values=mean_output([batch[2]]))
    assert lens.intervene(TEXT, ANSWER, [mean]).change < -0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no changes of attention"),
        ({"patch": {0: [1]}}, "no prompt to take the outputs of heads from.*source="),
        ({"ablate": {0: [1]}, "how": "resample"}, "no prompt to take the outputs of heads from.*source="),
        ({"source": WITHOUT}, "nothing is taken from the source"),
        ({"ablate": {0: [1]}, "source": WITHOUT}, "nothing is taken from the source"),
        ({"patch": {0: [1]}, "source": "move # here"}, "the prompt has 21 tokens and the source 11.*align="),
        ({"patch": {0: [9]}, "source": WITHOUT}, "layer 0 of .* has no head 9.*patch="),
        ({"patch": {7: [1]}, "source": WITHOUT}, "no attention to read in layer 7.*patch="),
        ({"ablate": {7: [1]}, "how": "resample", "source": WITHOUT}, "no attention to read in layer 7.*ablate="),
        ({"patch": {}, "source": WITHOUT}, "patch names no heads"),
        ({"patch": {0: []}, "source": WITHOUT}, "patch names no heads"),
        ({"patch": {0: [1]}, "source": 3}, "source is of type int"),
        ({"patch": {0: [1]}, "source": WITHOUT, "align": {}}, "align matches no tokens"),
        ({"patch": {0: [1]}, "source": WITHOUT, "align": {40: 1}}, "no token 40 in the prompt"),
        ({"patch": {0: [1]}, "source": WITHOUT, "align": {1: 40}}, "no token 40 in the source"),
        ({"patch": {0: [1]}, "source": WITHOUT, "align": {-1: 4}}, "align can't be -1"),
        (
            {"ablate": {0: [1]}, "how": "resample", "source": WITHOUT, "align": {1: 4}},
            "no heads are patched along the alignment",
        ),
        ({"ablate": {0: [1]}, "how": "resample", "source": "a"}, "no token besides the first"),
        ({"ablate": {0: [1]}, "how": "resampel"}, "zero, mean, resample"),
        ({"hide": "#", "how": "resample"}, "'renormalise' or 'zero'"),
        ({"hide": "re:zzz"}, "matches no token"),
        ({"hide": "#", "how": "soft"}, "how.*'renormalise' or 'zero'"),
        ({"hide": "#", "queries": "lst"}, "matches no token"),
        ({"hide": "#", "layers": [4]}, "layers 0"),
        ({"hide": "#", "heads": [4]}, "no head 4"),
        ({"hide": "re:."}, "sees no key"),
        ({"ablate": {0: [9]}}, "no head 9"),
        ({"ablate": {"0.5": [1]}}, "ablate"),
        ({"hide": "#", "draws": -1}, "draws"),
    ],
)
def test_nonsense_is_refused_in_words(lens: Lens, options: dict[str, Any], words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        lens.intervene(TEXT, ANSWER, **options)


@pytest.mark.parametrize(
    ("over", "options", "words"),
    [
        ("layer", {"hide": "#"}, "near: layers"),
        ("layers", {}, "needs keys to hide"),
        ("classes", {}, "needs classes"),
        ("layers", {"hide": "#", "window": 0}, "window"),
        ("layers", {"hide": "#", "window": 2}, "at most 1 layers"),
    ],
)
def test_sweeps_of_nothing_are_refused(lens: Lens, over: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        lens.sweep(TEXT, ANSWER, over, **options)


def test_where_too_little_else_can_be_hidden_there_is_no_control_and_that_is_said(lens: Lens) -> None:
    outcome = lens.intervene("ab#", ANSWER, hide="re:[ab]")
    assert isinstance(outcome, Outcome)
    assert outcome.controls == []
    assert outcome.beyond is None
    assert "too little else" in repr(outcome)


def test_an_answer_without_tokens_is_refused(lens: Lens) -> None:
    with pytest.raises(AttnscopeError, match="no tokens in the answer"):
        lens.intervene(TEXT, "", hide="#")


def test_what_writes_a_special_token_of_the_answer_is_among_the_queries() -> None:
    token = [Token(place, place, "x", place, place + 1, special=place == 3) for place in range(5)]
    answered = Answered.of("xxx", "xxxxx", token, 3)
    assert Hide(hide=(0,), queries="writing").placed(answered.prompt).query_positions == (2, 3)
    assert Hide(hide=(0,), queries="answer").placed(answered.prompt).query_positions == (3, 4)
