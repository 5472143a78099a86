"""Lets a model write answers, several prompts at a time, with its cache: transformers' `generate`, made reproducible.

A prompt gets the answer that it would get alone. A model that looks at pads, or across the batch, is found out on two
test prompts and writes one answer at a time. What is left is rounding, which only matters where two tokens are nearly
tied: there the text so far is read once more, alone and without the cache, and that decides.

What a checkpoint's generation_config asks for (temperatures, penalties, forced and suppressed tokens, lengths) is not
applied, only its end-of-sequence tokens are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from attnscope.attention.choice import Choice
from attnscope.attention.device import input_device
from attnscope.attention.interface import quiet
from attnscope.attention.precision import can_widen, widened
from attnscope.attention.room import room_for
from attnscope.attention.rotary import length_matters
from attnscope.errors import AttnscopeError

CLOSE = 5e-5  # of the largest logit: 25 times what sharing a batch was seen to change in float32
NARROW = (torch.float16, torch.bfloat16)
STEPS = 3  # tokens that are written to see whether prompts can share a batch
SHORT = 48  # tokens of the longer test prompt, unless a window is to bind


@dataclass(frozen=True)
class Written:
    """The tokens of an answer. ended: whether the model ended it, rather than the limit."""

    ids: list[int]
    ended: bool


class Writer:
    """Lets one model write. probe: a plain text's first so many token ids."""

    def __init__(self, model: PreTrainedModel, name: str, probe: Callable[[int], list[int]]) -> None:
        self.model, self.name = model, name
        self._probe = probe
        self._shared: dict[tuple[int, bool], bool] = {}

    def write(self, prompts: Sequence[Sequence[int]], most: Sequence[int], choice: Choice) -> list[Written]:
        """The answer to each prompt (token ids), of at most so many tokens; the token that ends it is not part of it.

        choice: knows the prompts by their number.
        """
        self._refuse_if_without_head()
        answers: dict[int, Written] = {}
        for limit in dict.fromkeys(most):  # who is near the end of the context writes less
            group = [number for number, each in enumerate(most) if each == limit]
            for batch in [group] if self._can_share([prompts[each] for each in group]) else [[each] for each in group]:
                texts = [prompts[number] for number in batch]
                pen = _Pen(self.name, choice, batch, texts, self._ends, self._read_again)
                if limit > 0:
                    self._generate(texts, limit, pen)
                answers |= {
                    number: Written(ids, ended) for number, ids, ended in zip(batch, pen.ids, pen.ended, strict=True)
                }
        return [answers[number] for number in range(len(prompts))]

    def _refuse_if_without_head(self) -> None:
        if not self.model.can_generate():
            raise AttnscopeError(
                f"{self.name} writes no text",
                where=type(self.model).__name__,
                allowed="models with a language model head",
                todo="load the model with its head, or choose another one",
            )

    @property
    def _ends(self) -> list[int]:
        """The tokens that end an answer."""
        own = getattr(self.model, "generation_config", None)
        ends = getattr(own, "eos_token_id", None)
        if ends is None:
            ends = getattr(self.model.config.get_text_config(), "eos_token_id", None)
        several = ends.tolist() if isinstance(ends, Tensor) else ends
        return [] if several is None else list(several) if isinstance(several, list | tuple) else [several]

    def _generate(self, prompts: Sequence[Sequence[int]], most: int, pen: LogitsProcessor) -> None:
        """Prompts of different lengths are padded on the left, so that all continue at the same place."""
        longest, model = max(map(len, prompts)), self.model
        pad = getattr(model.config.get_text_config(), "pad_token_id", None)
        pad = pad if isinstance(pad, int) and pad >= 0 else 0
        ids = torch.tensor([[pad] * (longest - len(each)) + list(each) for each in prompts])
        real = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in prompts])
        device = input_device(model)
        config = _Settings(  # type: ignore[no-untyped-call]
            max_new_tokens=most,
            do_sample=False,
            num_beams=1,
            use_cache=True,
            eos_token_id=self._ends or None,
            pad_token_id=pad,
        )
        with room_for("these answers", f"{self.name}, {tuple(ids.shape)} tokens and {most} more each"), quiet(model):
            model.generate(  # type: ignore[operator]
                ids.to(device),
                attention_mask=real.to(device),
                generation_config=config,
                logits_processor=LogitsProcessorList([pen]),
            )

    def _read_again(self, ids: Sequence[int]) -> Tensor | None:
        """(1, vocabulary): the logits after a text that is read alone, all at once; None if it would not help."""
        if self.model.dtype in NARROW:
            return None
        return self._logits([ids], 1)[0]

    def _logits(self, prompts: Sequence[Sequence[int]], steps: int) -> list[Tensor]:
        """(prompts, vocabulary) for each step."""
        kept = _Kept()
        self._generate(prompts, steps, kept)
        return kept.logits

    def _can_share(self, prompts: Sequence[Sequence[int]]) -> bool:
        """Whether these prompts can be answered together; tried out once for each kind of batch."""
        lengths = {len(each) for each in prompts}
        mixed, config = len(lengths) > 1, self.model.config
        if len(prompts) == 1:
            return True
        if mixed and length_matters(config):
            return False
        text = config.get_text_config()
        windows = [getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size")]
        binding = [each for each in windows if isinstance(each, int) and each < max(lengths)]
        key = (SHORT + max(binding, default=0), mixed)
        if key not in self._shared:
            narrow = self.model.dtype in NARROW
            if narrow and can_widen(self.model, torch.float32) is None:
                with widened(self.model, torch.float32):
                    self._shared[key] = self._is_same_together(*key, CLOSE / 4)
            else:
                self._shared[key] = self._is_same_together(*key, 5e-2 if narrow else CLOSE / 4)
        return self._shared[key]

    def _is_same_together(self, tokens: int, mixed: bool, limit: float) -> bool:
        """Whether two test prompts get the logits that each gets alone."""
        long = self._probe(tokens)[:-STEPS]
        short = long[: len(long) // 3] if mixed else long[::-1]
        if not short:
            return False
        try:
            together = self._logits([short, long], STEPS)
            alone = [self._logits([each], STEPS) for each in (short, long)]
        except (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError, AttnscopeError):
            return False
        return all(_agree([step[row] for step in together], [step[0] for step in alone[row]], limit) for row in (0, 1))


def _agree(together: Sequence[Tensor], alone: Sequence[Tensor], limit: float) -> bool:
    """Whether two rows of logits agree, step by step, as long as both chose the same tokens."""
    for one, two in zip(together, alone, strict=False):
        if not float((one - two).abs().max()) <= limit * float(two.abs().max()):
            return False
        if int(one.argmax()) != int(two.argmax()):
            break
    return True


class _Settings(GenerationConfig):
    """Is not filled up with what the checkpoint's own generation_config says, as `generate` does with others."""

    def update(self, defaults_only: bool = False, allow_custom_entries: bool = False, **given: Any) -> dict[str, Any]:
        if allow_custom_entries:  # which only the checkpoint's own are given
            return {}
        unused: dict[str, Any] = super().update(defaults_only=defaults_only, **given)  # type: ignore[no-untyped-call]
        return unused


class _Kept(LogitsProcessor):
    """Keeps the logits of every step."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.logits.append(scores)
        return scores


class _Pen(LogitsProcessor):
    """Chooses the tokens of a batch's answers, and leaves `generate` no other choice.

    again: the logits after a text that is read alone; None if they would not be better.
    """

    def __init__(
        self,
        name: str,
        choice: Choice,
        numbers: Sequence[int],
        prompts: Sequence[Sequence[int]],
        ends: Sequence[int],
        again: Callable[[Sequence[int]], Tensor | None],
    ) -> None:
        self.name, self.choice, self.numbers = name, choice, numbers
        self.prompts, self.ends, self.again = prompts, ends, again
        self.ids: list[list[int]] = [[] for _ in prompts]
        self.ended = [False] * len(prompts)
        self.step = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        rows = [row for row, ended in enumerate(self.ended) if not ended]
        tokens = self._tokens(scores[rows], rows)
        only = torch.full_like(scores, -torch.inf)
        only[:, 0] = 0.0  # of a row that has ended, `generate` takes a pad anyway
        for row, token in zip(rows, tokens, strict=True):
            only[row, 0], only[row, token] = -torch.inf, 0.0
            self.ended[row] = token in self.ends
            if not self.ended[row]:
                self.ids[row].append(token)
        self.step += 1
        return only

    def _tokens(self, logits: Tensor, rows: Sequence[int]) -> list[int]:
        numbers = [self.numbers[row] for row in rows]
        chosen = self.choice.choose(logits, numbers, self.step, self._slack(logits))
        tokens = []
        for row, number, (token, certain) in zip(rows, numbers, chosen, strict=True):
            better = None if certain else self.again([*self.prompts[row], *self.ids[row]])
            if better is not None:
                ((token, _),) = self.choice.choose(better, [number], self.step, self._slack(better))
            tokens.append(token)
        return tokens

    def _slack(self, logits: Tensor) -> list[float]:
        """How far the logits of each row may be off."""
        if not bool(logits.amax(-1).isfinite().all()):
            raise AttnscopeError(
                f"{self.name} computes numbers that are not finite",
                where=f"logits of token {self.step} of an answer",
                allowed="finite logits",
                todo="check the model's weights, or try another dtype",
            )
        largest: list[float] = logits.abs().nan_to_num(posinf=0.0).amax(-1).tolist()  # some tokens may be ruled out
        return [CLOSE * each for each in largest]
