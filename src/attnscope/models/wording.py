"""A model's way with text: its chat template and its tokenizer, without its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError

from attnscope.errors import AttnscopeError
from attnscope.study.tokens import Token


class Wording:
    """Renders messages and cuts text into the tokens the model sees."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.tokenizer = tokenizer
        self.name = name

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Messages in the model's chat template, up to where the model would answer."""
        if not self.tokenizer.chat_template:
            raise AttnscopeError(
                f"{self.name} has no chat template",
                where="chat",
                allowed="models whose tokenizer has one",
                todo="measure the text as it is: leave --chat out, or lay a study's prompts out plain",
            )
        try:
            return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))
        except TemplateError as error:
            raise AttnscopeError(
                f"{self.name}'s chat template refuses this text: {error}",
                where="chat",
                allowed="what the template takes as messages",
                todo="measure the text as it is: leave --chat out, or lay a study's prompts out plain",
            ) from error

    def tokenize(self, text: str, *, chat: bool = False) -> list[Token]:
        """The tokens the model sees, each with its characters in the text. chat: the text has its marks already."""
        made = self.tokenizer(text, return_offsets_mapping=True, add_special_tokens=not chat)
        tokens = []
        for position, (token, (start, end)) in enumerate(zip(made["input_ids"], made["offset_mapping"], strict=True)):
            word = text[start:end] if end > start else self.tokenizer.convert_ids_to_tokens(token)
            tokens.append(Token(position, int(token), str(word), int(start), int(end), token in self.special_ids))
        if not tokens:
            raise AttnscopeError(
                "the prompt is empty", where="prompt", allowed="at least one token of text", todo="give it some text"
            )
        return tokens

    def spelled(self, ids: Sequence[int], text: str = "", position: int = 0) -> tuple[str, list[Token]]:
        """Tokens given by id, one after the other behind `text`: the whole text, and the tokens in it."""
        tokens = []
        for place, token in enumerate(ids, position):
            word = str(self.tokenizer.decode([token]))
            start = len(text)
            text += word
            tokens.append(Token(place, int(token), word, start, len(text), token in self.special_ids))
        return text, tokens

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The model's own marks. The token for unknown text is not one of them: it stands for characters."""
        return frozenset(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}

    @cached_property
    def words(self) -> list[str]:
        """The vocabulary's plain words: letters behind a blank, which stay one token wherever they stand."""
        found = (str(self.tokenizer.decode([token])) for token in range(len(self.tokenizer)))
        return sorted({word for word in found if word[:1] == " " and len(word) > 3 and word[1:].isalpha()})
