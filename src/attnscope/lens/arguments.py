"""What callers may write for prompts, queries, layers, heads, measures and edits, and the errors for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from attnscope.arguments import count_of, in_words, listed, names_of, numbers_of, shown_parameter, text_of, whole_number
from attnscope.attention.groups import refuse_group_names
from attnscope.edits.attention import ATTENTION_EDITS, AttentionEdit
from attnscope.errors import AttnscopeError, Parameter, Words
from attnscope.measures import MEASURES, Measure
from attnscope.measures.received import RECEIVED
from attnscope.study.file import problem_of
from attnscope.study.sampling import Sample
from attnscope.text.groups.writing import WRITING
from attnscope.text.tokens import Token

Messages = Sequence[Mapping[str, str]]
"""A chat, as chat templates take it: messages with `role` and `content`."""


def chosen_measures(names: Sequence[str] | str) -> tuple[Measure, ...]:
    """`received` and those named, each once."""
    wanted = names_of(names, "measures", "entropy")
    members = [MEASURES.find(name, Parameter("measures")) for name in dict.fromkeys(wanted)]
    return (RECEIVED, *(each for each in members if each is not RECEIVED))


def chosen_queries(names: Sequence[str] | str) -> list[str]:
    """The names of query groups, each once."""
    wanted = names_of(names, "queries", "last")
    refuse_group_names(wanted)
    return wanted


def chosen_layers(given: object, name: str, unreadable: Mapping[int, str], readable: Sequence[int]) -> list[int]:
    """Layers of a model that can be measured, each once."""
    layers = list(dict.fromkeys(numbers_of(given, "layers")))
    for layer in layers:
        if layer not in readable:
            raise AttnscopeError(
                f"layer {layer} of {name} can't be measured: {unreadable.get(layer, 'there is no such layer')}",
                where=Parameter("layers"),
                allowed=in_words("layers", readable),
                todo="choose layers from these",
            )
    return layers


def chosen_heads(given: object, name: str, count: int) -> list[int]:
    """Heads of a model with so many, each once."""
    heads = list(dict.fromkeys(numbers_of(given, "heads")))
    for head in heads:
        if not 0 <= head < count:
            raise AttnscopeError(
                f"{name} has no head {head}",
                where=Parameter("heads"),
                allowed=in_words("heads", range(count)),
                todo="choose heads from these",
            )
    return heads


def known_ids(given: object, name: str, vocabulary: int) -> list[int]:
    """Token ids that a model has; one beyond the embedding's rows would end the forward with an index error."""
    ids = numbers_of(given, "ids", ordered=True)
    for position, token in enumerate(ids):
        if not 0 <= token < vocabulary:
            raise AttnscopeError(
                f"token {token} at position {position} is unknown to {name}",
                where="prompt",
                allowed=f"ids 0 to {vocabulary - 1}",
                todo="check that the tokenizer belongs to the model",
            )
    return ids


def texts_of(given: object) -> list[str]:
    """The prompts of a batch; one text alone is not a batch, nor are its characters."""
    others = "a string; several texts go to measure_batch, token ids to measure_tokens"
    return [text_of(text, allowed=others) for text in _several(given, "a list of texts; one text goes to measure")]


def texts_or_chats_of(given: object) -> list[str | Messages]:
    """The prompts of a batch that is to be answered: each a text or a chat."""
    prompts = _several(given, "a list of texts or chats; one of them goes to generate")
    if all(isinstance(each, Mapping) for each in prompts):
        raise _not_several("the prompts are the messages of one chat", "a list of chats; one chat goes to generate")
    others = "a string, or a list of messages; several go to generate_batch, token ids to generate_tokens"
    return [text_of(each, allowed=others) if not is_chat(each) else messages_of(each) for each in prompts]


def is_chat(given: object) -> bool:
    """Whether it is a list of messages."""
    messages = listed(given, ordered=True)
    return bool(messages) and all(isinstance(each, Mapping) for each in messages or ())


def messages_of(given: object) -> Messages:
    """The messages of a chat."""
    messages = []
    for message in listed(given, ordered=True) or ():
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise AttnscopeError(
                "a chat has something else than messages",
                where=shown_parameter("text", message),
                allowed='messages such as {"role": "user", "content": "Hello"}',
                todo="give every message its role and its content, and nothing else",
            )
        messages.append({key: text_of(message[key], key) for key in ("role", "content")})
    return messages


def _several(given: object, allowed: str) -> list[object]:
    prompts = listed(given, ordered=True)
    if prompts is None:
        raise _not_several(f"the prompts are a {type(given).__name__}", allowed)
    refuse_if_empty(prompts, "prompts", "texts")
    return prompts


def _not_several(what: str, allowed: str) -> AttnscopeError:
    return AttnscopeError(what, where=Parameter("texts"), allowed=allowed, todo="put the texts in a list")


def sample_of(given: object) -> Sample | None:
    """How to draw tokens; None for the likeliest ones."""
    if isinstance(given, bool):
        return Sample() if given else None
    if not isinstance(given, Sample):
        raise AttnscopeError(
            f"sample is of type {type(given).__name__}",
            where=shown_parameter("sample", given),
            allowed="True, False or a Sample",
            todo="write sample=attnscope.Sample(temperature=0.8)",
        )
    return given


def seeds_of(given: object, prompts: int) -> list[int]:
    """A seed for each prompt: those given, or numbers that count up from one."""
    several = listed(given, ordered=True)
    if several is None:
        first = count_of(given, "seed", "choose any such number", least=0)
        return list(range(first, first + prompts))
    if len(several) != prompts:
        raise AttnscopeError(
            f"{len(several)} seeds are given for {prompts} prompts",
            where=Parameter("seed"),
            allowed="one seed per prompt, or one number",
            todo="add a seed for each prompt",
        )
    return [count_of(each, "seed", "choose any such number", least=0) for each in several]


def prompts_of(given: object) -> list[tuple[str, list[Token]]]:
    """Prompts that have their tokens already."""
    prompts = listed(given, ordered=True)
    if prompts is None:
        raise _not_prepared(f"the prompts are a {type(given).__name__}")
    refuse_if_empty(prompts, "prompts", "prompts")
    return [_prompt(each, number) for number, each in enumerate(prompts)]


def _prompt(given: object, number: int) -> tuple[str, list[Token]]:
    parts = listed(given, ordered=True) or []
    if len(parts) != 2:
        raise _not_prepared(f"prompt {number} is not a text and its tokens")
    text, things = text_of(parts[0]), listed(parts[1], ordered=True)
    tokens = [token for token in things or () if isinstance(token, Token)]
    if things is None or len(tokens) < len(things):
        raise _not_prepared(f"what goes with the text of prompt {number} are not tokens")
    if not tokens:
        raise _not_prepared(f"prompt {number} has no tokens")
    for place, token in enumerate(tokens):
        if not _is_at(token, place, len(text)):
            raise _not_prepared(f"token {place} of prompt {number} is not at this place in the text")
    return text, tokens


def _is_at(token: Token, place: int, length: int) -> bool:
    try:
        position, start, end = map(whole_number, (token.position, token.start, token.end))
    except TypeError:
        return False
    return position == place and 0 <= start <= end <= length


def _not_prepared(what: str) -> AttnscopeError:
    return AttnscopeError(
        what,
        where=Parameter("prompts"),
        allowed="a list of pairs, each a text and all of its tokens",
        todo="make the tokens with lens.tokenize(text)",
    )


def edits_of(given: object) -> list[AttentionEdit]:
    """Attention edits."""
    things = list(given) if isinstance(given, list | tuple) else [None]
    edits = [each for each in things if isinstance(each, AttentionEdit)]
    if len(edits) < len(things):
        raise AttnscopeError(
            "edits are not attention edits",
            where=shown_parameter("edits", given),
            allowed="a list of edits such as edits=[Hide(hide='#')]",
            todo="put Hide, Ablate or edits of your own in a list",
        )
    return edits


def named_edits(
    hide: str | Sequence[int] | None,
    ablate: Mapping[int, Sequence[int]] | None,
    queries: str | Sequence[int] | None,
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
    how: str | None,
) -> list[AttentionEdit]:
    """The edits that a caller names by parameters. how: of hide or, if heads are ablated, of ablate."""
    edits = []
    if hide is not None:
        among = {"queries": WRITING.name if queries is None else queries, "layers": layers, "heads": heads}
        edits.append(_edit("hide", hide, {**among, "how": how if ablate is None else None}))
    if ablate is not None:
        edits.append(_edit("ablate", ablate, {"how": how}))
    return edits


def _edit(key: str, value: object, options: Mapping[str, object]) -> AttentionEdit:
    """An edit, from its fields. key: the field that names it; options: its other fields, None if not given."""
    given = {name: each for name, each in options.items() if each is not None}
    try:
        return ATTENTION_EDITS.members[key].model_validate({key: value, **given})
    except ValidationError as error:
        problem = problem_of(error)
        raise AttnscopeError(
            problem.what,
            where=Parameter(str(problem.at[0]) if problem.at else key),
            allowed=problem.allowed,
            todo="choose from these",
        ) from None


def refuse_rows(rows: object, prompts: int) -> None:
    """Refuse rows that are not one mapping per prompt, from names of groups to positions."""
    if rows is None:
        return
    if not isinstance(rows, Sequence) or not all(isinstance(each, Mapping) for each in rows):
        raise AttnscopeError(
            "rows are not mappings",
            where=shown_parameter("rows", rows),
            allowed="for each prompt, positions by name of a query group, such as {'mine': [0, 1]}",
            todo="map each group's name to its positions",
        )
    if len(rows) != prompts:
        raise AttnscopeError(
            f"rows are given for {len(rows)} of {prompts} prompts",
            where=Parameter("rows"),
            allowed="one mapping per prompt",
            todo="add a mapping for each prompt",
        )


def refuse_if_empty(items: Sequence[object], what: str, where: str) -> None:
    if len(items) == 0:
        raise AttnscopeError(f"there are no {what}", where=Parameter(where), allowed="at least one", todo="add one")


def refuse_if_too_long(count: int, name: str, context: int | None, otherwise: Words = "shorten it") -> None:
    """Refuse a prompt that is longer than the model was made for. otherwise: what the caller can do about it."""
    if context is not None and count > context:
        raise AttnscopeError(
            f"the prompt has {count} tokens, more than {name} was made for",
            where="prompt",
            allowed=f"at most {context} tokens",
            todo=otherwise,
        )
