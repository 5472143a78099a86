"""Class rules: which characters or tokens belong to a class. One per module of this package or of a plugin.

A plugin offers its own under the entry points `attnscope.class_rules`:

    [project.entry-points."attnscope.class_rules"]
    id = "my_package.token_id:TOKEN_ID"
"""

from __future__ import annotations

from attnscope.errors import AttnscopeError
from attnscope.registry import Registry
from attnscope.text.rules.rule import Claims, ClassRule, Tokenized

RULES: Registry[ClassRule] = Registry(
    "class rule",
    package="attnscope.text.rules",
    group="attnscope.class_rules",
    is_member=lambda thing: isinstance(thing, ClassRule),
)


def rules_by_key() -> dict[str, ClassRule]:
    """Every rule by its key in a study file."""
    by_key: dict[str, ClassRule] = {}
    for rule in RULES.members.values():
        if rule.study_key in by_key:
            raise AttnscopeError(
                f"two class rules have the study-file key '{rule.study_key}'",
                where=f"{by_key[rule.study_key].prefix} and {rule.prefix}",
                allowed="each key once",
                todo="rename the key of the plugin's rule, or uninstall the plugin",
            )
        by_key[rule.study_key] = rule
    return by_key


__all__ = ["RULES", "Claims", "ClassRule", "Tokenized", "rules_by_key"]
