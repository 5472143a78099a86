"""`attnscope measure`: one prompt, measured and shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.arguments import counted
from attnscope.cli import completion, options
from attnscope.errors import AttnscopeError
from attnscope.text.classes import parse_classes, refuse_segments

if TYPE_CHECKING:
    from attnscope.records import Record


def measure(
    text: Annotated[str | None, typer.Argument(help="The prompt, taken literally.")] = None,
    file: Annotated[Path | None, typer.Option(help="Read the prompt from a UTF-8 file; - is standard input.")] = None,
    model: Annotated[
        str,
        typer.Option(help="A built-in name, org/name, a folder or a .gguf file.", autocompletion=completion.models),
    ] = options.DEFAULT_MODEL,
    queries: Annotated[str, typer.Option(help="Which tokens look: last, all, or both as last,all.")] = "last",
    layers: Annotated[str, typer.Option(help="Layers from 0: 0,16,20 or 0-3; all by default.")] = "all",
    heads: Annotated[str, typer.Option(help="Heads from 0: 0,3 or 0-3; all by default.")] = "all",
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", help="A token class: 'hash=#', 'digits=re:[0-9]', 'special=special:'. Repeatable."),
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Apply the model's chat template.")] = False,
    measures: Annotated[str, typer.Option(help="What else to measure, by name: entropy,distance.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a single JSON object.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Save a figure as a .png, .svg, .pdf or .html file.")] = None,
    beyond_context: Annotated[
        bool, typer.Option("--beyond-context", help="Measure a prompt longer than the model's context.")
    ] = False,
    allow_unproven: Annotated[
        bool, typer.Option("--allow-unproven", help="Show numbers that can't be compared with eager attention.")
    ] = False,
    adapter: options.Adapter = None,
    revision: options.Revision = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    device_map: options.DeviceMap = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure where every layer and head looks in one prompt."""
    rules = parse_classes(classes or [])
    refuse_segments(rules, lambda name, rule: f"--class {name}={rule}")
    groups = _groups(queries)
    chosen_layers, chosen_heads = options.numbers(layers, "--layers"), options.numbers(heads, "--heads")
    prompt = prompt_of(text, file, "measure")
    if picture is not None:
        from attnscope.figures.save import check_path

        check_path(picture)

    import attnscope
    from attnscope.models.narration import silenced

    with silenced(only=quiet):
        lens = attnscope.load(
            model,
            adapter=adapter,
            revision=revision,
            dtype=dtype,
            device=device,
            device_map=device_map,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
        )
    record = lens.measure(
        prompt,
        groups,
        chosen_layers,
        chosen_heads,
        chat=chat,
        measures=[name.strip() for name in measures.split(",") if name.strip()],
        beyond_context=beyond_context,
        allow_unproven=allow_unproven,
    )
    if not quiet:
        _warn(record, rules, lens.name)
    _show(record, rules, picture, as_json=as_json)


def _warn(record: Record, rules: Mapping[str, str], model: str) -> None:
    for name in record.unmatched(rules):
        tokens = counted(len(record.tokens), "token")
        print(f"attnscope: warning: class '{name}' matches 0 of {tokens}", file=sys.stderr)  # noqa: T201
    warning = record.evidence["input"]["warning"]
    if warning:
        print(f"attnscope: warning: {model} may expect another prompt: {warning}", file=sys.stderr)  # noqa: T201


def _show(record: Record, rules: Mapping[str, str], picture: Path | None, *, as_json: bool) -> None:
    if picture is not None:
        from attnscope.figures.prompt import mass_by_layer, received_along_prompt
        from attnscope.figures.save import save

        save(mass_by_layer(record, rules) if rules else received_along_prompt(record), picture)
    if as_json:
        print(json.dumps(record.as_json(rules), ensure_ascii=False))  # noqa: T201
        return
    from attnscope.cli.terminal import show_record

    show_record(record, rules)
    if picture is not None:
        print(f"picture: {picture}")  # noqa: T201


def _groups(queries: str) -> list[str]:
    groups = [name.strip() for name in queries.split(",") if name.strip()]
    for name in groups:
        if name not in ("last", "all"):
            raise AttnscopeError(
                f"unknown query group '{name}'", where="--queries", allowed="last, all", todo="use one or both"
            )
    if not groups or len(set(groups)) < len(groups):
        raise AttnscopeError(
            "query groups are missing or repeated",
            where="--queries",
            allowed="last, all, or last,all",
            todo="name each once",
        )
    return groups


def prompt_of(text: str | None, file: Path | None, verb: str) -> str:
    """The prompt, given as text or in a file."""
    if (text is None) == (file is None):
        raise AttnscopeError(
            "there is no prompt" if text is None else "there are two prompts",
            where=verb,
            allowed="a text or --file FILE",
            todo="give one of the two",
        )
    if file is not None:
        try:
            raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
            text = raw.decode("utf-8")  # read as bytes, so that line endings are preserved
        except OSError as error:
            raise AttnscopeError(
                "can't read the prompt",
                where=str(file),
                allowed=f"a file you can read ({error.strerror})",
                todo="check the path",
            ) from error
        except UnicodeDecodeError as error:
            raise AttnscopeError(
                "the prompt is not UTF-8 text",
                where=f"{file}, byte {error.start}",
                allowed="UTF-8",
                todo="convert the file first",
            ) from error
    try:
        (text or "").encode("utf-8")
    except UnicodeEncodeError as error:
        raise AttnscopeError(
            "the prompt is not UTF-8 text",
            where=f"character {error.start}",
            allowed="UTF-8",
            todo="use --file, or a UTF-8 terminal",
        ) from error
    if not text:
        raise AttnscopeError(
            "the prompt is empty", where="prompt", allowed="at least one token of text", todo="write some text"
        )
    return text
