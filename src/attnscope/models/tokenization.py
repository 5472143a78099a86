"""How a model reads text: its chat template and its tokenizer, without its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from attnscope.errors import AttnscopeError, Parameter, Words
from attnscope.text.tokens import Token

HALF = "\N{REPLACEMENT CHARACTER}"  # what bytes of an incomplete character are decoded to
PREFIX = "▁"  # how SentencePiece spells a space
CHAT = Parameter("chat")
AS_IT_IS = ("measure the text as it is: leave out ", Parameter("chat", True))
CONTEXT = 8  # how many tokens the spelling of the next one may depend on


class Tokenization:
    """Renders messages and splits text into the tokens the model sees.

    bos_before_chats: put BOS before a rendered chat that does not begin with it. A GGUF file that adds BOS to texts
    means it so; other tokenizers leave it to the chat template.
    """

    def __init__(self, tokenizer: Any, name: str, *, bos_before_chats: bool = False) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self.bos_before_chats = bos_before_chats

    @property
    def has_template(self) -> bool:
        """Whether it can render messages."""
        return bool(self.tokenizer.chat_template)

    def render(self, messages: Sequence[Mapping[str, str]], *, where: Words = CHAT, todo: Words = AS_IT_IS) -> str:
        """Messages in the model's chat template, up to where the model would answer.

        where, todo: for errors, where the messages come from and what to do if they can't be rendered.
        """
        if not self.has_template:
            raise AttnscopeError(
                f"{self.name} has no chat template",
                where=where,
                allowed="models whose tokenizer has one",
                todo=todo,
            )
        try:
            return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))
        except Exception as error:  # a template may fail in any way
            raise AttnscopeError(
                f"{self.name}'s chat template refuses this text: {error}",
                where=where,
                allowed="messages that the template accepts",
                todo=todo,
            ) from error

    def tokenize(self, text: str, *, chat: bool = False) -> list[Token]:
        """The tokens the model sees, each with its characters in the text. chat: the text is a rendered chat."""
        tokens = self._tokens(text, special=not chat)
        bos = self.tokenizer.bos_token_id
        if chat and self.bos_before_chats and [token.id for token in tokens[:1]] != [bos]:
            first = Token(0, bos, self._name(bos), 0, 0, True)
            tokens = [first, *(replace(token, position=token.position + 1) for token in tokens)]
        if not tokens:
            raise AttnscopeError(
                "the prompt is empty", where="prompt", allowed="at least one token of text", todo="write some text"
            )
        return tokens

    def spelled(self, ids: Sequence[int], text: str = "", before: Sequence[int] = ()) -> tuple[str, list[Token]]:
        """Tokens given by id, after a `text` of tokens `before`: the whole text, and each token's characters in it.

        A token is decoded after its neighbours, because its spelling may depend on them. A token that holds only part
        of a character covers the whole character.
        """
        if not before and not text:
            text = self._decode(ids)
            again = self.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
            if list(again["input_ids"]) == list(ids):  # nearly always, and much faster
                return text, self._tokens(text, special=False)
            text = ""
        tokens: list[Token] = []
        first, done, partial = 0, len(text), ""  # the tokens since `first` spell `partial` so far
        for place, token in enumerate(ids):
            context = [*before, *ids[:first]][-CONTEXT:]
            spelt = self._decode([*context, *ids[first : place + 1]])[len(self._decode(context)) :]
            whole = spelt.rstrip(HALF)
            cut = len(whole) < len(spelt) and place + 1 < len(ids)
            start = done + len(partial.rstrip(HALF))
            end = done + len(whole) + (1 if cut else len(spelt) - len(whole))
            tokens.append(Token(len(before) + place, int(token), "", start, end, token in self.special_ids))
            partial = spelt
            if not cut:
                text, first, done, partial = text + spelt, place + 1, done + len(spelt), ""
        return text, [replace(token, text=text[token.start : token.end] or self._name(token.id)) for token in tokens]

    def _tokens(self, text: str, *, special: bool) -> list[Token]:
        encoded = self.tokenizer(text, return_offsets_mapping=True, add_special_tokens=special)
        ids, places = list(encoded["input_ids"]), [tuple(each) for each in encoded["offset_mapping"]]
        tokens = []
        for position, (token, (start, end)) in enumerate(zip(ids, places, strict=True)):
            follows = places[position + 1][0] if position + 1 < len(places) else None
            if start < end and follows == start and self._is_prefix(token, text[start:end]):
                end = start
            word = text[start:end] if end > start else self._name(token)
            tokens.append(Token(position, int(token), str(word), int(start), int(end), token in self.special_ids))
        return tokens

    def _is_prefix(self, token: int, shown: str) -> bool:
        """Whether a token is the space that a tokenizer puts before a text: it has none of the text's characters."""
        return self._name(token) == PREFIX and not shown.isspace() and PREFIX not in shown

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _name(self, token: int) -> str:
        return str(self.tokenizer.convert_ids_to_tokens(token))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The model's special tokens. The unknown token is not one of them: it stands for characters."""
        added = {number for number, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        return frozenset({*self.tokenizer.all_special_ids, *added} - {self.tokenizer.unk_token_id})

    @cached_property
    def words(self) -> list[str]:
        """The vocabulary's plain words: letters after a space, which are one token wherever they occur."""
        some = self.tokenizer("a", add_special_tokens=False)["input_ids"][-1:]  # alone, a space may not be spelled
        prefix = len(self._decode(some))
        spelled = (self._decode([*some, token])[prefix:] for token in range(len(self.tokenizer)))
        return sorted({word for word in spelled if word[:1] == " " and len(word) > 3 and word[1:].isalpha()})
