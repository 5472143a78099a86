"""The lens: a loaded model with the meter on it. Text in, readings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.meter.answer import write_answer
from attnscope.meter.card import Card, evidence_card
from attnscope.meter.forward import input_device
from attnscope.meter.groups import Rows
from attnscope.meter.input import InputCheck
from attnscope.meter.loss import check_input
from attnscope.meter.meter import Meter
from attnscope.meter.parity import Parity
from attnscope.meter.reading import Reading
from attnscope.models.load import Loaded
from attnscope.models.load import load as load_model
from attnscope.models.memory import free_memory
from attnscope.models.precision import widen
from attnscope.study.tokens import Token

PROBE = (
    "The town lies on both sides of a river, and three bridges join its halves. In 1887 the oldest of them was washed "
    'away; it took 4 years and 250 workers to build it again. "We count the boats," says the keeper, "12 + 7 = 19 '
    'today, # for the large ones, * for the small."\nEvery spring the water rises, and every spring people carry their '
    "boats up the hill until the river is calm again.\n"
)


def load(name: str, **options: Any) -> Lens:
    """A lens on a built-in model, a Hub id (`org/name`, `org/name@revision`), a folder or a .gguf file.

    Options: adapter, revision, dtype, device, device_map, trust_remote_code, allow_pickle; see docs/models.md.
    """
    return Lens(load_model(name, **options))


class Lens:
    """Measures where one model looks."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.model = loaded.model
        self.wording = loaded.wording
        self.tokenizer = loaded.wording.tokenizer
        self.name = loaded.name
        self._meter = Meter(loaded.model, loaded.name, loaded.layers, loaded.unreadable)

    def measure(
        self,
        text: str,
        queries: Sequence[str] = ("last",),
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        *,
        chat: bool = False,
        rows: Mapping[str, Rows] | None = None,
        entropy: bool = False,
        patterns: bool = False,
        beyond_context: bool = False,
    ) -> Reading:
        """What every key receives from the query groups, in the layers and heads asked for (all of them by default).

        queries: `last`, `all`, or names of groups whose positions `rows` gives. chat: put the text through the model's
        chat template as a user message. entropy, patterns: measure these too. beyond_context: measure a prompt longer
        than the model was made for.
        """
        each = None if rows is None else [rows]
        return self.measure_batch(
            [text],
            queries,
            layers,
            heads,
            chat=chat,
            rows=each,
            entropy=entropy,
            patterns=patterns,
            beyond_context=beyond_context,
        )[0]

    def measure_batch(
        self,
        texts: Sequence[str],
        queries: Sequence[str] = ("last",),
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        *,
        chat: bool = False,
        rows: Sequence[Mapping[str, Rows]] | None = None,
        entropy: bool = False,
        patterns: bool = False,
        beyond_context: bool = False,
    ) -> list[Reading]:
        """`measure` for several prompts in one forward; each gets the numbers it would get alone."""
        _refuse_if_empty(texts, "prompts")
        for text in texts:
            if not isinstance(text, str):
                raise AttnscopeError(
                    f"a prompt is a {type(text).__name__}",
                    where="measure",
                    allowed="text; several texts go to measure_batch, token ids to measure_tokens",
                    todo="give a str",
                )
        rendered = [self.render(text) if chat else text for text in texts]
        tokens = [self.tokenize(text, chat=chat) for text in rendered]
        return self.measure_prepared(
            list(zip(rendered, tokens, strict=True)),
            queries,
            layers,
            heads,
            chat=chat,
            rows=rows,
            entropy=entropy,
            patterns=patterns,
            beyond_context=beyond_context,
        )

    def measure_tokens(
        self,
        ids: Sequence[int],
        queries: Sequence[str] = ("last",),
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        *,
        rows: Mapping[str, Rows] | None = None,
        entropy: bool = False,
        patterns: bool = False,
        beyond_context: bool = False,
    ) -> Reading:
        """`measure` for a prompt given as token ids; its text is the tokens' own, one after the other."""
        _refuse_if_empty(ids, "token ids")
        text, tokens = self.wording.spelled(ids)
        each = None if rows is None else [rows]
        return self.measure_prepared(
            [(text, tokens)],
            queries,
            layers,
            heads,
            rows=each,
            entropy=entropy,
            patterns=patterns,
            beyond_context=beyond_context,
        )[0]

    def measure_prepared(
        self,
        prompts: Sequence[tuple[str, Sequence[Token]]],
        queries: Sequence[str] = ("last",),
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        *,
        chat: bool = False,
        rows: Sequence[Mapping[str, Rows]] | None = None,
        entropy: bool = False,
        patterns: bool = False,
        beyond_context: bool = False,
    ) -> list[Reading]:
        """`measure_batch` for prompts that have their tokens already: each a text and its tokens.

        chat: they went through the chat template.
        """
        texts, tokens = [text for text, _ in prompts], [each for _, each in prompts]
        chosen = self._layers(layers)
        groups = [queries] if isinstance(queries, str) else list(queries)
        if rows is not None and len(rows) != len(tokens):
            raise AttnscopeError(
                f"rows are given for {len(rows)} of {len(tokens)} prompts",
                where="rows",
                allowed="one mapping a prompt",
                todo="give each prompt its rows",
            )
        for each in tokens:
            self._refuse_if_too_long(len(each), beyond_context)
            self._refuse_if_unknown(each)
        parity, check = self.parity, self.input_check
        ids = [[token.id for token in each] for each in tokens]
        picked = self._heads(heads, chosen)
        found = self._meter.read(ids, groups, chosen, parity=parity, rows=rows, entropy=entropy, patterns=patterns)
        return [
            Reading(
                text=text,
                tokens=each,
                layers=chosen,
                queries=groups,
                heads=picked,
                received=one.received[:, picked],
                uniform=one.uniform if one.uniform.shape[1] == 1 else one.uniform[:, picked],
                seen=one.seen if one.seen.shape[1] == 1 else one.seen[:, picked],
                entropy=None if one.entropy is None else one.entropy[:, picked],
                evidence={
                    **self._evidence(parity, one.masks, one.received.sum(-1)),
                    "input": {**vars(check), "warning": check.warning([token.id for token in each], plain=not chat)},
                },
                patterns=None if one.patterns is None else one.patterns[:, picked],
            )
            for text, each, one in zip(texts, tokens, found, strict=True)
        ]

    def render(self, text: str) -> str:
        """The text as a user message in the model's chat template, up to where the model would answer."""
        return self.wording.render([{"role": "user", "content": text}])

    def tokenize(self, text: str, *, chat: bool = False) -> list[Token]:
        """The tokens the model sees, each with its characters in the text."""
        return self.wording.tokenize(text, chat=chat)

    @cached_property
    def parity(self) -> Parity:
        """The evidence that this model is read exactly; made on a short prompt before the first reading."""
        probe = [token.id for token in self.tokenize(PROBE)]
        return self._meter.proven(probe[: self.loaded.context])

    @cached_property
    def input_check(self) -> InputCheck:
        """How well the model predicts a plain text with its BOS token before it and without."""
        probe = [token.id for token in self.tokenize(PROBE)]
        longest = None if self.loaded.context is None else self.loaded.context - 1  # one token is left for BOS
        return check_input(
            self.model,
            self.tokenizer,
            probe[:longest],
            causal=self.parity.causal,
            vocabulary=self._meter.vocabulary,
        )

    def check(self, *, tokens: int = 256, rounds: int = 5) -> Card:
        """The evidence card: parity with eager attention, row sums, calls per layer, masks and the cost."""
        self._refuse_if_check_too_long(tokens)
        ids = [token.id for token in self.tokenize(PROBE * (1 + tokens // 16))]
        return evidence_card(self._meter, self.parity, ids[:tokens], rounds=rounds)

    def compared(self, ids: Sequence[int]) -> Parity:
        """How a prompt's numbers compare with eager attention, which holds every layer's matrix: for short prompts."""
        return self._meter.compared(ids)

    def widen(self) -> str:
        """Compute in a wider number format from now on, with the same weights; its name. Refused where it can't be."""
        return widen(self.loaded)

    def answer(self, ids: Sequence[int], most: int) -> list[int]:
        """The tokens the model itself writes after a prompt, at most so many, always the likeliest next."""
        return write_answer(self.model, ids, most)

    def free_memory(self) -> int:
        """Bytes that are free where the model is."""
        return free_memory(input_device(self.model))

    def evidence(self) -> dict[str, Any]:
        """What shows that this model is read exactly, as plain data."""
        facts = {key: value for key, value in vars(self.parity).items() if key != "eager"}
        for key in ("calls", "masks", "heads"):
            facts[key] = {str(layer): value for layer, value in facts[key].items()}
        facts["input"] = vars(self.input_check)
        facts["weights_made_from"], facts["licence"] = self.loaded.made_from, self.loaded.licence
        return facts

    def _evidence(self, parity: Parity, masks: Mapping[int, str], sums: Any) -> dict[str, Any]:
        kept = {key: value for key, value in vars(parity).items() if key not in ("eager", "calls", "masks", "heads")}
        return {
            "model": self.name,
            "architecture": self.loaded.architecture,
            "adapter": self.loaded.adapter,
            "adapter_made_for": self.loaded.adapter_base,
            "weights_made_from": self.loaded.made_from,
            "licence": self.loaded.licence,
            "dtype": self.loaded.dtype,
            "device": self.loaded.device,
            "check": kept,
            "row_sums": {"least": float(sums.min()), "most": float(sums.max())},
            "masks": {str(layer): kind for layer, kind in masks.items()},
            "versions": {name: version(name) for name in ("attnscope", "torch", "transformers")},
        }

    def _layers(self, layers: Sequence[int] | None) -> list[int]:
        readable = self._meter.readable
        if layers is None:
            unread = self._meter.unreadable
            if unread:
                reason = next(iter(unread.values()))
                raise AttnscopeError(
                    f"{self.name} has {len(unread)} layers that have no attention to measure: {reason}",
                    where=f"layers {', '.join(map(str, unread))}",
                    allowed=f"layers {', '.join(map(str, readable))}",
                    todo="name the layers to measure, with --layers",
                )
            return list(readable)
        layers = _numbers(layers, "layers")
        for layer in layers:
            if layer not in readable:
                why = self._meter.unreadable.get(layer, "it has no such layer")
                raise AttnscopeError(
                    f"layer {layer} of {self.name} can't be measured: {why}",
                    where="--layers",
                    allowed=_range(readable),
                    todo="choose layers from these",
                )
        return list(dict.fromkeys(layers))

    def _heads(self, heads: Sequence[int] | None, layers: Sequence[int]) -> list[int]:
        counts = {self.parity.heads[layer] for layer in layers}
        if len(counts) > 1:
            raise AttnscopeError(
                f"{self.name}'s layers have {' and '.join(map(str, sorted(counts)))} heads",
                where="--layers",
                allowed="layers with the same number of heads",
                todo="measure them apart",
            )
        every = range(counts.pop())
        heads = None if heads is None else _numbers(heads, "heads")
        for head in heads or ():
            if head not in every:
                raise AttnscopeError(
                    f"{self.name} has no head {head}",
                    where="--heads",
                    allowed=f"heads 0 to {len(every) - 1}",
                    todo="choose heads from these",
                )
        return list(every if heads is None else dict.fromkeys(heads))

    def _refuse_if_check_too_long(self, tokens: int) -> None:
        """The eager attention that the check compares with holds every layer's matrix, and works on copies of one."""
        heads = self.parity.heads
        matrices = sum(heads.values()) + 3 * max(heads.values())
        fits = int((0.8 * self.free_memory() / (4 * matrices)) ** 0.5)
        most = min(fits, self.loaded.context or fits)
        if tokens > most:
            raise AttnscopeError(
                f"eager attention over {tokens} tokens can't be compared with",
                where="--tokens",
                allowed=f"at most {most} tokens of this model in the memory that is free"
                if most == fits
                else f"at most {most} tokens, what the model was made for",
                todo="give fewer",
            )

    def _refuse_if_too_long(self, count: int, beyond_context: bool) -> None:
        context = self.loaded.context
        if context is not None and count > context and not beyond_context:
            raise AttnscopeError(
                f"the prompt has {count} tokens, more than {self.name} was made for",
                where="prompt",
                allowed=f"at most {context} tokens",
                todo="shorten it, or pass --beyond-context to measure it all the same",
            )

    def _refuse_if_unknown(self, tokens: Sequence[Token]) -> None:
        """A token beyond the embedding's rows would end the forward with an index error."""
        most = self._meter.vocabulary
        for token in tokens:
            if not 0 <= token.id < most:
                raise AttnscopeError(
                    f"token {token.id} at position {token.position} is unknown to {self.name}",
                    where="prompt",
                    allowed=f"ids 0 to {most - 1}",
                    todo="check that the tokenizer belongs to the model",
                )


def _numbers(given: Sequence[int] | int, what: str) -> list[int]:
    """Layers or heads as a caller may write them: one number or several."""
    numbers = [given] if isinstance(given, int) else list(given)
    if not numbers or any(isinstance(number, str | bool) or number != int(number) for number in numbers):
        raise AttnscopeError(
            f"{what} are not numbers",
            where=f"{what}={given!r}",
            allowed=f"a list such as {what}=[0, 16]",
            todo="give numbers",
        )
    return [int(number) for number in numbers]


def _refuse_if_empty(items: Sequence[object], what: str) -> None:
    if len(items) == 0:
        raise AttnscopeError(f"there are no {what}", where="measure", allowed="at least one", todo="give some")


def _range(layers: Sequence[int]) -> str:
    if list(layers) == list(range(len(layers))):
        return f"layers 0 to {len(layers) - 1}"
    return f"layers {', '.join(map(str, layers))}"
