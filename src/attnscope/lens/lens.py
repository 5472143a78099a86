"""The lens: one model, ready to be measured. Text in, records out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.arguments import count_of, text_of, whole_number
from attnscope.attention.backends import blocks
from attnscope.attention.card import Card, evidence_card
from attnscope.attention.choice import Drawn, Greedy
from attnscope.attention.device import input_device
from attnscope.attention.groups import Rows
from attnscope.attention.input import InputCheck
from attnscope.attention.loss import check_input
from attnscope.attention.meter import Meter, Numbers, Request
from attnscope.attention.precision import wider
from attnscope.attention.proof import Proof
from attnscope.attention.scoring import Scorer, Variant
from attnscope.attention.seam import PlacedEdits, placed_in
from attnscope.attention.writing import Writer
from attnscope.clock import Clock
from attnscope.edits.attention import AttentionEdit
from attnscope.errors import AttnscopeError, Parameter
from attnscope.lens.answer import Answer
from attnscope.lens.arguments import (
    Messages,
    chosen_heads,
    chosen_layers,
    chosen_measures,
    chosen_queries,
    edits_of,
    is_chat,
    known_ids,
    messages_of,
    named_edits,
    prompts_of,
    refuse_if_empty,
    refuse_if_too_long,
    refuse_rows,
    sample_of,
    seeds_of,
    texts_of,
    texts_or_chats_of,
)
from attnscope.lens.intervening import HEADS, Answered, controls_of, sweep_table, swept
from attnscope.lens.patching import FromSource, Heads, alignment_of, heads_of, refuse_without_source, resampled_heads
from attnscope.lens.placed import placed_edits, with_named_rows
from attnscope.measures.received import RECEIVED
from attnscope.models.in_memory import adapters_are_off, in_memory
from attnscope.models.load import Loaded
from attnscope.models.load import load as load_model
from attnscope.models.memory import eager_tokens, free_memory
from attnscope.records import Outcome, Record, Scores
from attnscope.study.sampling import Sample
from attnscope.text.groups import GROUPS
from attnscope.text.tokens import Token

PROBE = (
    "The town lies on both sides of a river, and three bridges join its halves. In 1887 the oldest of them was washed "
    'away; it took 4 years and 250 workers to build it again. "We count the boats," says the keeper, "12 + 7 = 19 '
    'today, # for the large ones, * for the small."\nEvery spring the water rises, and every spring people carry their '
    "boats up the hill until the river is calm again.\n"
)


def load(
    name: str | Path,
    *,
    adapter: str | Path | None = None,
    revision: str | None = None,
    tokenizer: str | Path | None = None,
    dtype: str | None = None,
    device: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> Lens:
    """A lens on a built-in model, a Hub id (`org/name`, `org/name@revision`), a folder or a .gguf file.

    adapter: a PEFT adapter to put on it (folder, Hub id or built-in name). tokenizer: where the tokenizer comes from,
    if not with the weights. dtype: float32 on a CPU if it fits, else the checkpoint's own. device: the best there is by
    default. device_map: spread a large model over devices. Code and pickled weights that come with a model are refused
    unless you allow them. See docs/models.md.
    """
    return Lens.of(
        load_model(
            name,
            adapter=adapter,
            revision=revision,
            tokenizer=tokenizer,
            dtype=dtype,
            device=device,
            device_map=device_map,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
        )
    )


class Lens:
    """Measures where one model looks.

    model: any transformers model in memory, also compiled or wrapped by PEFT; it is left as it was found. While a new
    path is compared with eager attention, its weights are in a wider format: other threads should not run it then.
    tokenizer: the model's own. name: what errors and evidence call the model.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str | None = None) -> None:
        self._set_up(in_memory(model, tokenizer, name))

    @classmethod
    def of(cls, loaded: Loaded) -> Lens:
        """A lens on a model that attnscope loaded."""
        if not isinstance(loaded, Loaded):
            raise AttnscopeError(
                f"a {type(loaded).__name__} is not a model that attnscope loaded",
                where=Parameter("loaded"),
                allowed="what attnscope.models.load.load returns",
                todo="use attnscope.load(name), or Lens(model, tokenizer) for a model in memory",
            )
        lens = cls.__new__(cls)
        lens._set_up(loaded)
        return lens

    def _set_up(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.model = loaded.model
        self.tokenization = loaded.tokenization
        self.tokenizer = loaded.tokenization.tokenizer
        self.name = loaded.name
        self._meter = Meter(loaded.model, loaded.name, loaded.layers, loaded.unreadable, self._probe)
        self._writer = Writer(loaded.model, loaded.name, self._probe)
        self._scorer = Scorer(self._meter)

    def measure(
        self,
        text: str,
        queries: Sequence[str] | str = ("last",),
        layers: Sequence[int] | int | None = None,
        heads: Sequence[int] | int | None = None,
        *,
        chat: bool = False,
        rows: Mapping[str, Rows] | None = None,
        measures: Sequence[str] | str = (),
        edits: Sequence[AttentionEdit] = (),
        beyond_context: bool = False,
        allow_unproven: bool = False,
    ) -> Record:
        """What every key receives from the query groups, in the layers and heads asked for (all of them by default).

        queries: `last`, `all`, another query group, or names of your own whose positions `rows` gives. chat: put the
        text through the model's chat template as a user message. measures: what else to measure, by name, such as
        `entropy` (docs/measures.md). edits: changes to attention made while the model runs, such as `Hide(hide="#")` or
        `Ablate(ablate={8: [0]})`. beyond_context: measure a prompt longer than the model was made for. allow_unproven:
        get numbers even where they can't be compared with eager attention; the evidence says which.
        """
        return self.measure_batch(
            [text],
            queries,
            layers,
            heads,
            chat=chat,
            rows=None if rows is None else [rows],
            measures=measures,
            edits=edits,
            beyond_context=beyond_context,
            allow_unproven=allow_unproven,
        )[0]

    def measure_batch(
        self,
        texts: Sequence[str],
        queries: Sequence[str] | str = ("last",),
        layers: Sequence[int] | int | None = None,
        heads: Sequence[int] | int | None = None,
        *,
        chat: bool = False,
        rows: Sequence[Mapping[str, Rows]] | None = None,
        measures: Sequence[str] | str = (),
        edits: Sequence[AttentionEdit] = (),
        beyond_context: bool = False,
        allow_unproven: bool = False,
    ) -> list[Record]:
        """`measure` for several prompts in one forward; each gets the numbers it would get alone."""
        rendered = [self.render(text) if chat else text for text in texts_of(texts)]
        tokens = [self.tokenize(text, chat=chat) for text in rendered]
        return self.measure_prepared(
            list(zip(rendered, tokens, strict=True)),
            queries,
            layers,
            heads,
            chat=chat,
            rows=rows,
            measures=measures,
            edits=edits,
            beyond_context=beyond_context,
            allow_unproven=allow_unproven,
        )

    def measure_tokens(
        self,
        ids: Sequence[int],
        queries: Sequence[str] | str = ("last",),
        layers: Sequence[int] | int | None = None,
        heads: Sequence[int] | int | None = None,
        *,
        rows: Mapping[str, Rows] | None = None,
        measures: Sequence[str] | str = (),
        edits: Sequence[AttentionEdit] = (),
        beyond_context: bool = False,
        allow_unproven: bool = False,
    ) -> Record:
        """`measure` for a prompt given as token ids; its text is the tokens' own, one after the other."""
        return self.measure_prepared(
            [self.tokenization.spelled(self._known(ids))],
            queries,
            layers,
            heads,
            rows=None if rows is None else [rows],
            measures=measures,
            edits=edits,
            beyond_context=beyond_context,
            allow_unproven=allow_unproven,
        )[0]

    def measure_prepared(
        self,
        prompts: Sequence[tuple[str, Sequence[Token]]],
        queries: Sequence[str] | str = ("last",),
        layers: Sequence[int] | int | None = None,
        heads: Sequence[int] | int | None = None,
        *,
        chat: bool = False,
        rows: Sequence[Mapping[str, Rows]] | None = None,
        measures: Sequence[str] | str = (),
        edits: Sequence[AttentionEdit] = (),
        beyond_context: bool = False,
        allow_unproven: bool = False,
        partial: bool = False,
    ) -> list[Record]:
        """`measure_batch` for prompts that have their tokens already: each a text and its tokens.

        chat: they went through the chat template. partial: a prompt may lack a group that others have: `rows` does not
        give it any, and its record does not have the group.
        """
        given = prompts_of(prompts)
        request = Request(
            queries=chosen_queries(queries),
            layers=self._layers(layers),
            measures=chosen_measures(measures),
            edits=placed_edits(given, edits_of(edits)),
            allow_unproven=allow_unproven,
            partial=partial,
        )
        refuse_rows(rows, len(given))
        ids = [self._known([token.id for token in tokens]) for _, tokens in given]
        if not beyond_context:
            todo = ("shorten it, or pass ", Parameter("beyond_context", True), " to measure it all the same")
            refuse_if_too_long(max(map(len, ids)), self.name, self.loaded.context, todo)
        wanted = None if heads is None else chosen_heads(heads, self.name, self.loaded.heads)
        numbers = self._meter.read(ids, request, with_named_rows(given, request.queries, rows))
        records = []
        for (text, tokens), each in zip(given, numbers, strict=True):
            record = self._record(text, tokens, request, each, chat=chat)
            known = None if wanted is None else chosen_heads(wanted, self.name, len(record.heads))
            records.append(record if known is None else record.of_heads(known))
        return records

    def head_outputs(
        self, text: str, heads: Mapping[int, Sequence[int]], *, chat: bool = False
    ) -> dict[int, dict[int, NDArray[Any]]]:
        """What heads give at each token of a text, by layer and head: arrays (tokens, width).

            lens.head_outputs(text, {18: [6, 7]})[18][6]

        That is what the head makes of the values it looks at, before the output projection, in float32 unless the model
        is wider. heads: by layer. `Patch` puts it into another text.
        """
        rendered = self.render(text) if chat else text_of(text)
        return self.head_outputs_prepared([(rendered, self.tokenize(rendered, chat=chat))], heads)[0]

    def head_outputs_prepared(
        self, prompts: Sequence[tuple[str, Sequence[Token]]], heads: Mapping[int, Sequence[int]]
    ) -> list[dict[int, dict[int, NDArray[Any]]]]:
        """`head_outputs` for several prompts in one forward, each a text and its tokens; as each would get it alone."""
        ids = [self._known([token.id for token in tokens]) for _, tokens in prompts_of(prompts)]
        refuse_if_too_long(max(map(len, ids)), self.name, self.loaded.context)
        return self._meter.head_outputs(ids, heads_of(heads, "heads", self.name, self.heads_by_layer))

    def log_probs(
        self, text: str, answer: str, *, chat: bool = False, edits: Sequence[AttentionEdit] = ()
    ) -> NDArray[np.float64]:
        """The log probability of each of the answer's tokens after the text, the earlier ones given.

        edits: changes to attention, as in `measure`; positions and query groups count the answer's tokens too.
        """
        answered = self._answered(text, answer, chat=chat)
        _, (scores,) = self.scores(answered, [placed_in(answered.prompt, edits_of(edits))])
        return scores.log_probs

    def intervene(
        self,
        text: str,
        answer: str,
        edits: Sequence[AttentionEdit] = (),
        *,
        hide: str | Sequence[int] | None = None,
        ablate: Mapping[int, Sequence[int]] | None = None,
        queries: str | Sequence[int] | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        how: str | None = None,
        patch: Mapping[int, Sequence[int]] | None = None,
        source: str | None = None,
        align: Mapping[int, int] | None = None,
        chat: bool = False,
        draws: int = 10,
        seed: int = 0,
    ) -> Outcome:
        """How an answer's probability changes when attention is changed: does the model use what it looks at?

            lens.intervene(prompt, " Paris", hide="re:France", layers=range(8, 16))

        hide: keys, by a class rule or by position, that the tokens that write the answer can't see, or other `queries`,
        in these layers and heads (all by default); how: `renormalise`, as if they were masked, or `zero`. ablate: heads
        by layer whose output is replaced by zeros, by its `mean` over the prompt or, with `resample`, by what the head
        gives at random tokens of another prompt, the source (how). patch: heads by layer whose output at each token is
        replaced by that in the source, followed by the same answer; align: the position in the source for each position
        to patch, by default one by one. edits: any others, instead or as well. draws: how often as much is changed at
        random, to compare with; seed: of all that is drawn. Segments are `prompt` and `answer`; positions and query
        groups count the answer's tokens too.
        """
        answered = self._answered(text, answer, chat=chat)
        count = count_of(draws, "draws", "choose how often to draw; 0 for no control", least=0)
        resample = resampled_heads(ablate, how)
        given = FromSource(
            patch=self._heads(patch, "patch"),
            resample=self._heads(resample, "ablate"),
            align=alignment_of(align),
            seed=whole_number(seed),
        )
        wanted = edits_of(list(edits))
        if resample is None:
            wanted += named_edits(hide, ablate, queries, layers, heads, how)
        else:
            wanted += named_edits(hide, None, queries, layers, heads, None)
        wanted += self._patches(answered, given, source, answer, chat=chat, controlled=count > 0)
        refuse_if_empty(wanted, "changes of attention to make: give hide, ablate, patch or edits", "edits")
        placed = placed_in(answered.prompt, wanted)
        self._meter.refuse_edits(PlacedEdits([placed], [len(answered.prompt.tokens)]))
        controls, words = controls_of(placed, answered.prompt, self.heads_by_layer, count, whole_number(seed))
        before, (after, *drawn) = self.scores(answered, [placed, *controls])
        ids = answered.ids[: answered.start]
        likeliest = [self.tokenization.spelled([int(each)], "", ids)[0] for each in after.likeliest]
        return Outcome(answer, answered.answer_tokens, answered.answer_ids, before, after, drawn, words, likeliest)

    def sweep(
        self,
        text: str,
        answer: str,
        over: str = "layers",
        *,
        hide: str | Sequence[int] | None = None,
        classes: Mapping[str, str] | None = None,
        queries: str | Sequence[int] | None = None,
        window: int = 1,
        how: str | None = None,
        chat: bool = False,
        draws: int = 3,
        seed: int = 0,
    ) -> pl.DataFrame:
        """`intervene` many times over, one row each: layer by layer, head by head, or class by class.

        over: `layers` hides keys in a window of so many layers that slides over depth (`layer` is its first); `heads`
        hides keys from every head alone or, without `hide`, switches every head off alone; `classes` hides each of the
        `classes` (rules by name) alone. Columns: layer, head or token_class; log_prob and its change; kl of the first
        token of the answer; exact, whether the likeliest tokens are the answer's; and control, the mean change of as
        much hidden at random (over heads there is none: the other heads are what to compare with). Layers before a
        change are computed once and used again.
        """
        answered = self._answered(text, answer, chat=chat)
        wide = count_of(window, "window", "choose how many layers are changed at once")
        count = count_of(draws, "draws", "choose how often to draw; 0 for no control", least=0)
        variants = swept(over, self.heads_by_layer, hide, classes or {}, queries, wide, how)
        placed = [placed_in(answered.prompt, [each.edit]) for each in variants]
        drawn = [
            []
            if over == HEADS
            else controls_of(each, answered.prompt, self.heads_by_layer, count, whole_number(seed))[0]
            for each in placed
        ]
        before, scores = self.scores(answered, [*placed, *(control for controls in drawn for control in controls)])
        return sweep_table(variants, before, scores, [len(each) for each in drawn], answered.answer_ids)

    def _patches(
        self, answered: Answered, given: FromSource, source: str | None, answer: str, *, chat: bool, controlled: bool
    ) -> list[AttentionEdit]:
        """The edits that take outputs of heads from another prompt. controlled: with those of their layers' others."""
        refuse_without_source(given, source)
        if source is None:
            return []
        other = self._answered(text_of(source, "source"), answer, chat=chat)
        every = {layer: list(range(self.heads_by_layer[layer])) for layer in given.heads}
        values = self._meter.head_outputs([self._known(other.ids)], every if controlled else given.heads)[0]
        return given.edits(answered, other, values)

    def _heads(self, given: object, what: str) -> Heads:
        """Heads by layer; none if none are named."""
        return {} if given is None else heads_of(given, what, self.name, self.heads_by_layer)

    def scores(self, answered: Answered, variants: Sequence[Variant]) -> tuple[Scores, list[Scores]]:
        """What the model makes of an answer, as it is and under each variant: edits with positions in the text."""
        return self._scorer.scores(self._known(answered.ids), answered.start, variants)

    def _answered(self, text: str, answer: str, *, chat: bool) -> Answered:
        """The text with the answer after it."""
        more = self.tokenizer(text_of(answer, "answer"), add_special_tokens=False)["input_ids"]
        rendered = self.render(text) if chat else text_of(text)
        before = self.tokenize(rendered, chat=chat)
        refuse_if_empty(more, "tokens in the answer", "answer")
        whole, tokens = self.tokenization.spelled(more, rendered, [token.id for token in before])
        refuse_if_too_long(len(before) + len(tokens), self.name, self.loaded.context)
        return Answered.of(rendered, whole, [*before, *tokens], len(before))

    def generate(
        self,
        text: str | Messages,
        tokens: int = 64,
        *,
        chat: bool = False,
        sample: Sample | bool = False,
        seed: int = 0,
    ) -> Answer:
        """What the model writes after a text, at most so many tokens; `str(answer)` is its text.

        text: or a chat, as a list of `{"role": ..., "content": ...}`. chat: put the text through the model's chat
        template as a user message; a chat always goes through it. sample: draw tokens by chance, as in
        `Sample(temperature=0.8, top_p=0.95)`; True draws from the model's own probabilities; by default each token is
        the likeliest. seed: of the draw. The same text and seed get the same answer, alone or in a batch. Of the
        model's generation_config only the end-of-sequence tokens count. See docs/how-it-works.md.
        """
        return self.generate_batch([text], tokens, chat=chat, sample=sample, seed=seed)[0]

    def generate_batch(
        self,
        texts: Sequence[str | Messages],
        tokens: int = 64,
        *,
        chat: bool = False,
        sample: Sample | bool = False,
        seed: int | Sequence[int] = 0,
    ) -> list[Answer]:
        """`generate` for several prompts at once; each gets the answer it would get alone.

        seed: one for each prompt; or the first one's, from which the others count up.
        """
        prompts = []
        for each in texts_or_chats_of(texts):
            whole = each if isinstance(each, str) and not chat else self.render(each)
            prompts.append((whole, self.tokenize(whole, chat=chat or not isinstance(each, str))))
        return self.generate_prepared(prompts, tokens, sample=sample, seed=seed)

    def generate_tokens(
        self, ids: Sequence[int], tokens: int = 64, *, sample: Sample | bool = False, seed: int = 0
    ) -> Answer:
        """`generate` for a prompt given as token ids."""
        prompt = self.tokenization.spelled(self._known(ids))
        return self.generate_prepared([prompt], tokens, sample=sample, seed=seed)[0]

    def generate_prepared(
        self,
        prompts: Sequence[tuple[str, Sequence[Token]]],
        tokens: int = 64,
        *,
        sample: Sample | bool = False,
        seed: int | Sequence[int] = 0,
    ) -> list[Answer]:
        """`generate_batch` for prompts that have their tokens already: each a text and its tokens."""
        count = count_of(tokens, "tokens", "choose how many tokens it may write")
        given = prompts_of(prompts)
        ids = [self._known([token.id for token in each]) for _, each in given]
        context = self.loaded.context
        refuse_if_too_long(max(map(len, ids)), self.name, context)
        room = [count if context is None else min(count, context - len(each)) for each in ids]
        drawn, seeds = sample_of(sample), seeds_of(seed, len(ids))
        written = self._writer.write(ids, room, Greedy() if drawn is None else Drawn(drawn, seeds))
        return [
            Answer(text, before, self._followed(text, before, each.ids), each.ids, each.ended)
            for (text, _), before, each in zip(given, ids, written, strict=True)
        ]

    def _followed(self, text: str, before: Sequence[int], ids: Sequence[int]) -> str:
        """What tokens spell after a text."""
        return self.tokenization.spelled(ids, text, before)[0][len(text) :]

    def _record(self, text: str, tokens: Sequence[Token], request: Request, numbers: Numbers, *, chat: bool) -> Record:
        sums = numbers.arrays[RECEIVED.name].sum(-1)
        check = self.input_check
        evidence = {
            **self._facts,
            **({"adapter": None} if self.loaded.adapter and adapters_are_off(self.model) else {}),
            "check": numbers.proof.as_data(),
            "input": {**vars(check), "warning": check.warning([token.id for token in tokens], plain=not chat)},
            "row_sums": {"least": float(sums.min()), "most": float(sums.max())},
            "masks": {str(layer): kind for layer, _, kind in sorted(numbers.paths)},
            "backends": {str(layer): backend for layer, backend, _ in sorted(numbers.paths)},
            "unproven": numbers.unproven,
        }
        every = range(numbers.arrays[RECEIVED.name].shape[1])
        return Record(text, tokens, request.layers, list(every), numbers.queries, numbers.arrays, evidence)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        loaded = self.loaded
        return {
            "model": self.name,
            "architecture": loaded.architecture,
            "adapter": loaded.adapter,
            "adapter_made_for": loaded.adapter_base,
            "weights_made_from": loaded.made_from,
            "licence": loaded.licence,
            "dtype": loaded.dtype,
            "device": loaded.device,
            "blocked_loop": blocks.compiled()[1] or "compiled",
            "versions": {name: version(name) for name in ("attnscope", "torch", "transformers")},
        }

    def render(self, text: str | Messages) -> str:
        """The text as a user message in the model's chat template, up to where the model would answer; or a chat."""
        messages = messages_of(text) if is_chat(text) else [{"role": "user", "content": text_of(text)}]
        return self.tokenization.render(messages)

    def tokenize(self, text: str, *, chat: bool = False) -> list[Token]:
        """The tokens the model sees, each with its characters in the text."""
        return self.tokenization.tokenize(text_of(text), chat=chat)

    def _probe(self, count: int) -> list[int]:
        """A plain text's first so many tokens, with what the tokenizer puts around it."""
        count = min(count, self.loaded.context or count)
        ids = [token.id for token in self.tokenize(PROBE)]
        while len(ids) < count:
            ids += [token.id for token in self.tokenize(PROBE) if not token.special]
        return ids[:count]

    def proof(self, *, few: bool = False) -> Proof:
        """The evidence that every layer is read exactly, on a short text; few: on the path that reads few rows."""
        return self._meter.proof(Request(["all"], self._meter.readable), few=few)

    @property
    def proving(self) -> bool:
        """Whether a new path is compared with eager attention before it is read. If you switch that off, nothing is
        compared, and every record says of all its layers that they are unproven.
        """
        return self._meter.proving

    @proving.setter
    def proving(self, proving: bool) -> None:
        self._meter.proving = proving

    @property
    def clock(self) -> Clock:
        """Counts the time that proofs take; a run gives the lens its own."""
        return self._meter.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._meter.clock = clock

    @property
    def heads_by_layer(self) -> dict[int, int]:
        """How many heads each layer has whose attention can be measured."""
        return self._meter.heads

    @cached_property
    def input_check(self) -> InputCheck:
        """How well the model predicts a plain text with its BOS token before it and without."""
        probe = [token.id for token in self.tokenize(PROBE)]
        most = None if self.loaded.context is None else self.loaded.context - 1  # one token is left for BOS
        return check_input(
            self.model, self.tokenizer, probe[:most], causal=self._meter.causal, vocabulary=self._meter.vocabulary
        )

    def check(self, *, tokens: int = 256, rounds: int = 5) -> Card:
        """The evidence card: parity with eager attention, row sums, masks and the cost."""
        count = count_of(tokens, "tokens", "leave it out for 256, or choose a larger number")
        repeats = count_of(rounds, "rounds", "leave it out for 5, or choose a larger number")
        self._refuse_if_no_room(count, "tokens")
        return evidence_card(self._meter, self._probe(count), rounds=repeats)

    def compared(self, ids: Sequence[int]) -> Proof:
        """How a prompt's numbers compare with eager attention, which computes whole matrices: for short prompts."""
        numbers = self._known(ids)
        self._refuse_if_no_room(len(numbers), "ids")
        return self._meter.compared(numbers, Request(["all"], self._meter.readable))

    @contextmanager
    def wider(self) -> Iterator[str]:
        """Inside, the model computes in the next wider number format with the same weights; gives its name."""
        with wider(self.model, self.name) as dtype:
            yield dtype

    def free_memory(self) -> int:
        """Bytes that are free where the model is."""
        return free_memory(input_device(self.model))

    def evidence(self, queries: Sequence[str] = ("all",), measures: Sequence[str] = ()) -> dict[str, Any]:
        """What shows that every layer is read exactly for these query groups and measures, as plain data."""
        loaded = self.loaded
        groups = chosen_queries(queries)
        for name in groups:
            GROUPS.find(name, Parameter("queries"))
        request = Request(groups, self._meter.readable, chosen_measures(measures))
        with self.clock.phase("proof" if self.proving else "loading"):
            shown = {
                **self._meter.proof(request, few=request.queries == ["last"]).as_data(),
                "input": vars(self.input_check),
            }
        return {
            **shown,
            "weights_made_from": loaded.made_from,
            "licence": loaded.licence,
        }

    def _layers(self, layers: Sequence[int] | int | None) -> list[int]:
        readable = self._meter.readable
        if layers is None:
            unread = self._meter.unreadable
            if unread:
                reason = next(iter(unread.values()))
                raise AttnscopeError(
                    f"{self.name} has {len(unread)} layers that have no attention to measure: {reason}",
                    where=f"layers {', '.join(map(str, unread))}",
                    allowed=f"layers {', '.join(map(str, readable))}",
                    todo=("name the layers to measure: ", Parameter("layers")),
                )
            return list(readable)
        return chosen_layers(layers, self.name, self._meter.unreadable, readable)

    def _known(self, ids: object) -> list[int]:
        return known_ids(ids, self.name, self._meter.vocabulary)

    def _refuse_if_no_room(self, tokens: int, where: str) -> None:
        fits = eager_tokens(self.free_memory(), max(self.heads_by_layer.values()))
        most = min(fits, self.loaded.context or fits)
        if tokens > most:
            raise AttnscopeError(
                f"eager attention over {tokens} tokens can't be compared with",
                where=Parameter(where),
                allowed=f"at most {most} tokens of this model in the memory that is free"
                if most == fits
                else f"at most {most} tokens, what the model was made for",
                todo="choose fewer tokens",
            )
