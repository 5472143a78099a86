"""The page docs/api.md: every public name with its types and docstring, made from the code; see `reference.py`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

import attnscope
from attnscope.attention.recording import Step
from attnscope.edits.attention import ATTENTION_EDITS
from attnscope.notebook import View
from attnscope.records import Scores

START = """\
# Python API

Made from the code by `make docs`. `import attnscope` has the names below and loads no model library; `load`, `Lens`,
`record` and `TrainerCallback` do. Everything that you can cause and fix is an `AttnscopeError`. What the measures mean
is in [measures](measures.md), how a model is read in [how it works](how-it-works.md)."""
ORDER = (
    "load",
    "Lens",
    "Answer",
    "Outcome",
    "Sample",
    "record",
    "Recording",
    "Record",
    "Labelled",
    "run_study",
    "Run",
    "TrainerCallback",
    "Measure",
    "AttnscopeError",
)
RETURNED = {"Recording": Step, "Run": View, "Outcome": Scores}
"""What the members of a class return, documented right after it."""
LISTENING = ("abandon", "attention", "begin", "end", "real", "written")
"""Members of a recording that attnscope itself calls while the model runs."""
WIDTH = 100


def page() -> Iterator[str]:
    """The page's lines."""
    yield START
    assert sorted(ORDER) == sorted(attnscope.__all__), "name every public object in ORDER"  # noqa: S101
    for name in ORDER:
        thing = getattr(attnscope, name)
        yield from _class(thing, "attnscope") if inspect.isclass(thing) else _function(thing, f"attnscope.{name}", "##")
        if name in RETURNED:
            yield from _class(RETURNED[name], RETURNED[name].__module__)
    yield "\n## Attention edits\n"
    yield "For `edits=` of `Lens.measure`, `Lens.intervene`, `Lens.log_probs` and `record`. How they are applied: "
    yield "[how it works](how-it-works.md)."
    for edit in ATTENTION_EDITS.members.values():
        yield f"\n### {edit.__module__}.{edit.__name__}\n"
        yield from _fields(edit)
    yield "\n`Numbers` is a sequence of numbers from 0, `Chosen` is `'all'` or such a sequence, `HeadsByLayer` maps"
    yield "layers to such sequences, `GivenOutputs` maps layers to heads and these to arrays."


def _fields(kind: type[BaseModel]) -> Iterator[str]:
    yield _doc(kind)
    yield "\n| field | type | default | meaning |\n|---|---|---|---|"
    hints = _annotations(kind)
    for field, info in kind.model_fields.items():
        default = "required" if info.is_required() else f"`{info.get_default(call_default_factory=True)!r}`"
        type_ = hints.get(field, "Chosen").replace("|", "or")
        yield f"| `{field}` | `{type_}` | {default} | {info.description} |"


def _class(kind: type, home: str) -> Iterator[str]:
    yield f"\n## {home}.{kind.__name__}\n"
    if issubclass(kind, BaseModel):
        yield from _fields(kind)
        return
    if "__init__" in vars(kind) or is_dataclass(kind) or kind.__mro__[1].__module__.startswith("attnscope"):
        yield from _code(kind.__name__, inspect.signature(kind), returns=False)
    yield _doc(kind)
    for base in kind.__mro__[1:]:
        if base.__module__.startswith("attnscope"):
            yield f"\n{_doc(base)}"
    attributes = {name: each for name, each in _attributes(kind).items() if each[1]}
    if attributes:
        yield "\n| attribute | type | meaning |\n|---|---|---|"
        for name, (annotation, meaning) in attributes.items():
            yield f"| `{name}` | `{annotation.replace('|', 'or')}` | {' '.join(meaning.split())} |"
    inner = [name for name in members(kind) if kind is attnscope.Recording and name in LISTENING]
    for name in members(kind):
        if name not in inner:
            yield from _member(kind, name)
    if inner:
        called = ", ".join(f"`{name}`" for name in inner)
        yield f"\n{called}: called by attnscope while the model runs; not for your own code."


def members(kind: type) -> list[str]:
    """The public methods and properties of a class, its own first; and indexing, if it is the class's own."""
    names: dict[str, None] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("attnscope"):
            known = [name for name, each in vars(base).items() if _is_member(name, each)]
            names |= dict.fromkeys(known)
    return list(names)


def _is_member(name: str, thing: Any) -> bool:
    kinds = (property, cached_property, classmethod, staticmethod)
    return name == "__getitem__" or (
        not name.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, kinds))
    )


def _member(kind: type, name: str) -> Iterator[str]:
    thing = inspect.getattr_static(kind, name)
    if isinstance(thing, property | cached_property):
        getter = thing.fget if isinstance(thing, property) else thing.func
        returns = inspect.signature(getter).return_annotation
        yield f"\n### {kind.__name__}.{name}\n\n```python\n{name}: {_type(returns)}\n```\n"
        yield _doc(getter)
    elif name == "__getitem__":
        yield from _function(getattr(kind, name), f"{kind.__name__}[...]", "###", "__getitem__")
    else:
        yield from _function(getattr(kind, name), f"{kind.__name__}.{name}", "###")


def _function(function: Any, title: str, level: str, name: str = "") -> Iterator[str]:
    yield f"\n{level} {title}\n"
    signature = inspect.signature(function)
    if inspect.isgeneratorfunction(inspect.unwrap(function)):  # used as `with record(...) as recording`
        entered = _type(signature.return_annotation).removeprefix("Iterator")
        signature = signature.replace(return_annotation=f"AbstractContextManager{entered}")
    yield from _code(name or title.rpartition(".")[2], signature)
    yield _doc(function)


def _code(name: str, signature: inspect.Signature, *, returns: bool = True) -> Iterator[str]:
    """A signature, on one line if it fits, else one parameter per line."""
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    shown = [_parameter(each) for each in parameters]
    first = next((place for place, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY), None)
    if first is not None and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        shown.insert(first, "*")
    end = f") -> {_type(signature.return_annotation)}" if returns else ")"
    line = f"{name}({', '.join(shown)}{end}"
    if len(line) > WIDTH:
        line = "\n".join([f"{name}(", *(f"    {each}," for each in shown), end])
    yield f"```python\n{line}\n```\n"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else f" = {_value(parameter.default)}"
    return f"{stars}{parameter.name}: {_type(parameter.annotation)}{default}"


def _value(default: Any) -> str:
    return "..." if "factory" in repr(default) or callable(default) else repr(default)


def _type(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        raise TypeError("a public parameter without a type")
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _doc(thing: Any) -> str:
    """The docstring as Markdown: its indented examples become code."""
    text = inspect.cleandoc(thing.__doc__ or "")
    return re.sub(r"(?m)(?:^    .*\n?)+", lambda code: f"```python\n{textwrap.dedent(code[0]).rstrip()}\n```\n", text)


def _annotations(kind: type) -> dict[str, str]:
    return {
        name: str(each)
        for base in reversed(kind.__mro__)
        for name, each in vars(base).get("__annotations__", {}).items()
    }


def _attributes(kind: type) -> dict[str, tuple[str, str]]:
    """Fields of a class, and what its methods set on it with a type: the type, and the docstring that follows it."""
    attributes: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("attnscope"):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        for block in (node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)):
            for node, after in zip(block, [*block[1:], None], strict=True):
                if not isinstance(node, ast.AnnAssign):
                    continue
                name = _named(node.target, of_self=block is not tree.body[0].body)  # type: ignore[attr-defined]
                if name is not None and not name.startswith("_"):
                    said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                    attributes[name] = ast.unparse(node.annotation), str(after.value.value) if said else ""  # type: ignore[union-attr]
    return attributes


def _named(target: ast.expr, *, of_self: bool) -> str | None:
    if of_self:
        is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
        return target.attr if is_own and isinstance(target, ast.Attribute) else None
    return target.id if isinstance(target, ast.Name) else None
