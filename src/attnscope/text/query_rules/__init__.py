"""Query rules: query groups that follow from a prompt, such as one per token of the answer. One rule per module of this
package or of a plugin.

A plugin offers its own under the entry points `attnscope.query_rules`:

    [project.entry-points."attnscope.query_rules"]
    lines = "my_package.lines:Lines"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from attnscope.errors import AttnscopeError
from attnscope.registry import Registry
from attnscope.spec import OneOf
from attnscope.text.groups import GROUPS, Rows
from attnscope.text.query_rules.rule import MOST, Group, Groups, Prompt, QueryRule, Series, sources_of

QUERY_RULES: Registry[type[QueryRule]] = Registry(
    "query rule",
    package="attnscope.text.query_rules",
    group="attnscope.query_rules",
    is_member=lambda thing: isinstance(thing, type) and issubclass(thing, QueryRule) and thing is not QueryRule,
    named_by="key",
)


class NameOrRule(OneOf):
    """Annotates a field that contains a query group's name or a query rule."""

    def chosen(self, data: Any) -> Any:
        return data if isinstance(data, str) else super().chosen(data)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.chosen,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda each, info: (
                    each if isinstance(each, str) else each.model_dump(mode=info.mode, exclude_none=True)
                ),
                info_arg=True,
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        known = list(GROUPS.members)
        text = {"anyOf": [{"type": "string", "enum": known}, {"type": "string", "minLength": 1}]}
        return {"anyOf": [text, *super().__get_pydantic_json_schema__(schema, handler)["anyOf"]]}


Queries = Annotated[str | QueryRule, NameOrRule("a query rule", QueryRule, lambda: QUERY_RULES.members)]
"""In a study file: the name of a query group or a segment, or a mapping with the key of one rule."""


def groups_of(queries: Sequence[str | QueryRule], prompt: Prompt) -> dict[Group, Rows]:
    """The rows of every group of a prompt, in the order of the study; groups without queries are not among them."""
    rows: dict[Group, Rows] = {}
    for each in queries:
        rows |= {group: places for group, places in _groups(each, prompt).items() if places}
    if len(rows) > MOST:
        raise AttnscopeError(
            f"the study asks for {len(rows):,} query groups in one prompt",
            where="measure.queries",
            allowed=f"at most {MOST:,}",
            todo="take fewer, larger groups: {bins: {of: answer, count: 64}}",
        )
    return rows


def _groups(entry: str | QueryRule, prompt: Prompt) -> dict[Group, Rows]:
    return {Group(entry): prompt.rows(entry)} if isinstance(entry, str) else _checked(entry, prompt)


def in_order(queries: Sequence[str | QueryRule], groups: Iterable[Group]) -> list[Group]:
    """Groups that some prompts have, each once: in the order of the study, those of a series by number."""
    titles = titles_of(queries)
    return sorted(set(groups), key=lambda each: (titles.index(each.series or each.name), each.number or 0))


def in_series(queries: Sequence[str | QueryRule]) -> list[str]:
    """The titles of the series that a study's queries make."""
    return [each.title for each in queries if isinstance(each, QueryRule) and each.word is not None]


def titles_of(queries: Sequence[str | QueryRule]) -> list[str]:
    """What the entries of a study's queries are called: groups by name, rules by title."""
    return [each if isinstance(each, str) else each.title for each in queries]


def _checked(rule: QueryRule, prompt: Prompt) -> dict[Group, Rows]:
    with QUERY_RULES.blamed(rule.key, "groups"):
        groups = {
            rule.group(index(number)): tuple(index(row) for row in rows)
            for number, rows in sorted(rule.groups(prompt).items())
        }
    for group, rows in groups.items():
        if len(set(rows)) < len(rows) or not all(0 <= row < len(prompt.tokens) for row in rows):
            what = f"gives '{group.name}' positions that are not in the prompt, or repeats one: {rows[:8]}"
            raise QUERY_RULES.mistake(
                rule.key, "groups", what, f"whole numbers from 0 to {len(prompt.tokens) - 1}, each once"
            )
    return {group: tuple(sorted(rows)) for group, rows in groups.items()}


__all__ = [
    "MOST",
    "QUERY_RULES",
    "Group",
    "Groups",
    "Prompt",
    "Queries",
    "QueryRule",
    "Series",
    "groups_of",
    "in_order",
    "in_series",
    "sources_of",
    "titles_of",
]
