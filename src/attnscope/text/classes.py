"""Classes: kinds of token, each defined by a rule.

A rule is written `PREFIX:ARGUMENT`, as in `re:[0-9]+`, `segment:question`, `special:` or `special:[SEP]`; the package
`rules` and installed plugins define the prefixes. Text without a prefix is a set of characters: `#*` is any `#` or `*`.
`in:SEGMENT:` before characters or a pattern limits them to one segment. `whole:`, `majority:` or `first:` before all of
it says how a token that mixes classes is counted.

A prefix is a word of two or more letters, digits, `_` or `-` that begins with a letter, right at the start and followed
by a colon. So `:`, `:;,` and `a:` are characters, while `token:42`, `Segment:question` and `http:` have a prefix. An
unknown prefix is refused. To use such text as characters, write `chars:` before it.

A character goes to the first class that claims it, or to `other` if none does. A token that mixes classes belongs to
each by its share of characters. A class may instead take tokens as a whole: those of which it has any character
(whole), at least half of them (majority), or the first one (first). The first class that takes a token so has all of
it; of tokens it doesn't take such a class has nothing, and its characters there count as `other`. So memberships add up
to one for every token, and masses to the row's sum.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnscope.errors import AttnscopeError, Parameter, Words, near
from attnscope.text.rules import RULES, Claims, ClassRule, Tokenized
from attnscope.text.segments import Span, characters_of
from attnscope.text.tokens import Token

OTHER = "other"
REMOVED = "removed"
"""The set of tokens that a study leaves out."""
WITHIN, CHARACTERS = "in:", "chars"
ROUNDING = 1e-9  # of a token
SHARES = ("characters", "whole", "majority", "first")
"""How a token that mixes classes is counted; the first is the default."""
PREFIX = re.compile(r"[^\W\d_][\w-]+(?=:)")
"""A word that looks like a rule's name; see above."""


@dataclass(frozen=True)
class Rule:
    """A parsed class rule. within: the segment it is limited to, if any. share: one of SHARES."""

    kind: ClassRule
    argument: str
    within: str | None = None
    share: str = SHARES[0]

    def claims(self, prompt: Tokenized) -> Claims:
        with RULES.blamed(self.kind.name, "claims"):
            claims: object = self.kind.claims(self.argument, prompt)
        if not isinstance(claims, Claims):
            raise RULES.mistake(
                self.kind.name, "claims", f"returns a {type(claims).__name__}", "an object of type Claims"
            )
        for word, flags, length in (
            ("characters", claims.characters, len(prompt.text)),
            ("tokens", claims.tokens, len(prompt.tokens)),
        ):
            if flags is not None and not _is_bools(flags, length):
                what = f"of shape {flags.shape}" if isinstance(flags, np.ndarray) else f"in a {type(flags).__name__}"
                allowed = f"an array of {length} bools, one for each of the {word}"
                raise RULES.mistake(self.kind.name, "claims", f"claims {word} {what}", allowed)
        if self.within is None or claims.characters is None:
            return claims
        inside = characters_of(self.within, len(prompt.text), prompt.spans)
        return Claims(claims.characters & inside, claims.tokens)


def _is_bools(flags: object, length: int) -> bool:
    return isinstance(flags, np.ndarray) and flags.shape == (length,) and flags.dtype == np.bool_


def parse_rule(rule: str) -> Rule:
    """Parse a rule such as `re:[0-9]`; refused if the prefix is unknown or the argument is wrong."""
    share, unshared = _split_share(rule)
    within, inner = _split_within(unshared)
    prefix = PREFIX.match(inner)
    if prefix is None:
        kind, argument = RULES.members[CHARACTERS], inner
    elif prefix[0] in RULES.members:
        kind, argument = RULES.members[prefix[0]], inner[prefix.end() + 1 :]
    else:
        raise AttnscopeError(
            f"unknown class rule '{prefix[0]}:'",
            where=f"'{rule}'",
            allowed=near(prefix[0], [*RULES.members, WITHIN.rstrip(":"), *SHARES]),
            todo=f"use one of these, or write chars:{inner} for a set of characters",
        )
    problem = argument_problem(kind, argument, within)
    if problem is not None:
        raise AttnscopeError(
            problem, where=f"'{rule}'", allowed=f"{kind.prefix} {kind.meaning}", todo="change what follows the colon"
        )
    return Rule(kind, argument, within, share)


def argument_problem(kind: ClassRule, argument: str, within: str | None) -> str | None:
    """What is wrong with a rule's argument, or None."""
    if within is not None and not kind.within:
        limited = [each.prefix for each in RULES.members.values() if each.within]
        return f"only {' and '.join(limited)} can be limited to a segment, not {kind.prefix}"
    if not argument and not kind.argument_optional:
        return f"nothing follows {kind.prefix if within is None else f'{WITHIN}{within}:'}"
    with RULES.blamed(kind.name, "problem"):
        return kind.problem(argument) if argument else None


def written_rule(kind: ClassRule, argument: str, within: str | None = None, share: str = SHARES[0]) -> str:
    """The rule as `parse_rule` reads it; `chars:` only if the characters would be read as another rule."""
    bare = kind.name == CHARACTERS and PREFIX.match(argument) is None
    rule = argument if bare else f"{kind.prefix}{argument}"
    rule = rule if within is None else f"{WITHIN}{within}:{rule}"
    return rule if share == SHARES[0] else f"{share}:{rule}"


def shared_by(rule: str, share: str) -> str:
    """The same rule with another way to count tokens that mix classes."""
    unshared = _split_share(rule)[1]
    return unshared if share == SHARES[0] else f"{share}:{unshared}"


def _split_share(rule: str) -> tuple[str, str]:
    """`whole:#` -> `("whole", "#")`; without a share -> `("characters", rule)`."""
    share, colon, rest = rule.partition(":")
    return (share, rest) if colon and share in SHARES else (SHARES[0], rule)


def _split_within(rule: str) -> tuple[str | None, str]:
    """`in:drawing:#` -> `("drawing", "#")`; a rule for the whole text -> `(None, rule)`."""
    if not rule.startswith(WITHIN):
        return None, rule
    segment, _, inner = rule.removeprefix(WITHIN).partition(":")
    return segment, inner


def parse_classes(rules: Sequence[str]) -> dict[str, str]:
    """`["hash=#", "star=*"]` -> `{"hash": "#", "star": "*"}`, every rule checked."""
    classes: dict[str, str] = {}
    for rule in rules:
        name, equals, pattern = rule.partition("=")
        if not equals or not name.strip() or not pattern:
            prefixes = ", ".join(f"NAME={each.prefix}..." for each in RULES.members.values())
            raise AttnscopeError(
                "can't read a class",
                where=f"'{rule}'",
                allowed=f"NAME=CHARACTERS, {prefixes}",
                todo="write it as in 'hash=#'",
            )
        if name.strip() in classes or name.strip() == OTHER:
            raise _taken(name.strip(), rule)
        parse_rule(pattern)
        classes[name.strip()] = pattern
    return classes


def membership(
    classes: Mapping[str, str], text: str, tokens: Sequence[Token], spans: Sequence[Span] = ()
) -> NDArray[np.float64]:
    """(classes + 1, tokens): each token's share in each class, `other` last; every column sums to one."""
    given: object = classes
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for pair in given.items() for each in pair):
        raise AttnscopeError(
            "classes are not rules by name",
            where=Parameter("classes", given),
            allowed="a mapping such as {'hash': '#'}",
            todo="give each class a name and a rule",
        )
    if OTHER in classes:
        raise _taken(OTHER, f"{OTHER}={classes[OTHER]}")
    character_owner = np.full(len(text), len(classes))
    token_owner = np.full(len(tokens), len(classes))
    prompt = Tokenized(text, tokens, spans)
    rules = [parse_rule(rule) for rule in classes.values()]
    ways = [rule.share for rule in rules]
    for number, rule in reversed(list(enumerate(rules))):
        claims = rule.claims(prompt)
        if claims.characters is not None:
            character_owner[claims.characters] = number
        if claims.tokens is not None:
            token_owner[claims.tokens] = number
    shares = np.zeros((len(classes) + 1, len(tokens)))
    for place, token in enumerate(tokens):
        if token.special or token.start == token.end:
            shares[token_owner[place], token.position] = 1.0
        else:  # a character's class or its token's, whichever comes first
            owners = np.minimum(character_owner[token.start : token.end], token_owner[place])
            shares[:, token.position] = _shared(owners, ways)
    return shares


def refuse_failing(rules: Iterable[str], text: str, tokens: Sequence[Token], spans: Sequence[Span] = ()) -> None:
    """Refuse rules that can't be applied to a prompt: a pattern that never ends, or a package's rule that fails."""
    prompt = Tokenized(text, tokens, spans)
    for rule in rules:
        parse_rule(rule).claims(prompt)


def set_membership(
    sets: Mapping[str, str], text: str, tokens: Sequence[Token], spans: Sequence[Span] = ()
) -> NDArray[np.float64]:
    """(sets, tokens): each token's share in each set, whatever the others have."""
    shares = [membership({name: rule}, text, tokens, spans)[0] for name, rule in sets.items()]
    return np.stack(shares) if shares else np.zeros((0, len(tokens)))


def taken_by(
    classes: Mapping[str, str], text: str, tokens: Sequence[Token], spans: Sequence[Span] = ()
) -> dict[str, set[str]]:
    """For each class, the earlier classes that took tokens which its own rule claims too."""
    shares = membership(classes, text, tokens, spans)
    alone = set_membership(classes, text, tokens, spans)
    names = list(classes)
    taken: dict[str, set[str]] = {name: set() for name in names}
    for place, name in enumerate(names):
        lost = alone[place] > shares[place] + ROUNDING
        taken[name] |= {names[other] for other in range(place) if (shares[other, lost] > 0).any()}
    return taken


def both_count(
    classes: Mapping[str, str],
    sets: Mapping[str, str],
    one: str,
    two: str,
    text: str,
    tokens: Sequence[Token],
    spans: Sequence[Span] = (),
) -> NDArray[np.bool_]:
    """(tokens,): of which tokens two of the classes and sets count the same part. Classes never do."""
    if two not in sets:
        one, two = two, one
    if two not in sets:
        return np.zeros(len(tokens), dtype=bool)
    prompt = text, tokens, spans
    names = [*classes, OTHER, *sets]
    shares = np.concatenate([membership(classes, *prompt), set_membership(sets, *prompt)])
    mine, theirs = shares[names.index(one)], shares[names.index(two)]
    earlier = {} if one in sets else dict(list(classes.items())[: names.index(one)])
    rest = membership({**earlier, two: sets[two]}, *prompt)[-2]  # what the set has of the tokens that `one` can claim
    kept = np.zeros(len(tokens))  # `other` claims all of them
    if one != OTHER:
        rule = sets[one] if one in sets else classes[one]
        kept = membership({**earlier, one: rule, two: sets[two]}, *prompt)[-2]
    more = (mine + theirs > 1 + ROUNDING) | (rest > kept + ROUNDING)
    return np.asarray((mine > 0) & (theirs > 0) & more)


def refuse_segments(classes: Mapping[str, str], where: Callable[[str, str], Words]) -> None:
    """For a text without segments, in which a class of one would silently match nothing.

    where: (name, rule) -> where the class is given, for the error.
    """
    for name, written in classes.items():
        rule = parse_rule(written)
        if rule.within is not None or rule.kind.segments(rule.argument):
            raise AttnscopeError(
                f"class '{name}' needs segments, which only the prompts of a study have",
                where=where(name, written),
                allowed="rules for characters and special tokens",
                todo="write a study file: attnscope new FILE",
            )


def removed_tokens(
    rules: Sequence[str], text: str, tokens: Sequence[Token], spans: Sequence[Span] = ()
) -> NDArray[np.bool_]:
    """(tokens,): which tokens rules claim any part of."""
    whole = {f"{place}": shared_by(rule, "whole") for place, rule in enumerate(rules)}
    return np.asarray(set_membership(whole, text, tokens, spans).any(0))


def _shared(owners: NDArray[np.int64], ways: Sequence[str]) -> NDArray[np.float64]:
    """How one token is shared. owners: the class of each of its characters; ways: one of SHARES for each class."""
    counts = np.bincount(owners, minlength=len(ways) + 1)
    takes = {
        "whole": counts > 0,
        "majority": 2 * counts >= len(owners),
        "first": np.arange(len(counts)) == owners[0],
    }
    for number, way in enumerate(ways):
        if way in takes and takes[way][number]:
            taken: NDArray[np.float64] = np.zeros(len(counts))
            taken[number] = 1.0
            return taken
    shares: NDArray[np.float64] = counts / len(owners)
    for number, way in enumerate(ways):
        if way in takes:
            shares[-1] += shares[number]
            shares[number] = 0.0
    return shares


def _taken(name: str, rule: str) -> AttnscopeError:
    return AttnscopeError(
        f"there is already a class '{name}'",
        where=f"'{rule}'",
        allowed=f"every name once, and not '{OTHER}', which holds what no class claims",
        todo="choose another name",
    )
