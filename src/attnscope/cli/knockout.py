"""`attnscope knockout`: does an answer change when the model can't look at something?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from attnscope.cli import completion, options
from attnscope.cli.grid import numbers, print_grid, text
from attnscope.cli.measure import prompt_of
from attnscope.errors import AttnscopeError
from attnscope.text.classes import parse_classes, refuse_segments

if TYPE_CHECKING:
    from attnscope.records import Outcome


def knockout(
    prompt: Annotated[str | None, typer.Argument(metavar="TEXT", help="The prompt, taken literally.")] = None,
    answer: Annotated[str, typer.Option(help="The answer whose probability is looked at, such as ' Paris'.")] = "",
    file: Annotated[Path | None, typer.Option(help="Read the prompt from a UTF-8 file; - is standard input.")] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option(help="Tokens that can't be seen, as a class: 'hash=#', 'digits=re:[0-9]'. Repeatable."),
    ] = None,
    ablate: Annotated[
        str | None, typer.Option(help="Heads that are switched off, each as LAYER.HEAD: 18.6,18.7,23.2.")
    ] = None,
    queries: Annotated[
        str,
        typer.Option("--from", help="Which tokens can't see them: writing (those that write the answer), last, all."),
    ] = "writing",
    layers: Annotated[str, typer.Option(help="Layers from 0: 0,16,20 or 10-20; all by default.")] = "all",
    heads: Annotated[str, typer.Option(help="Heads from 0: 0,3 or 0-3; all by default.")] = "all",
    how: Annotated[
        str | None,
        typer.Option(
            help="Of --hide: renormalise (as if masked) or zero (other weights stay). Of --ablate: zero, mean (over "
            "the prompt) or resample (from --source)."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="With --how resample: a prompt whose random tokens the heads' outputs come from.")
    ] = None,
    draws: Annotated[int, typer.Option(help="How often as much is hidden or switched off at random, to compare.")] = 20,
    seed: Annotated[int, typer.Option(help="The seed of these draws.")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="Apply the model's chat template.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a single JSON object.")] = False,
    model: Annotated[
        str,
        typer.Option(help="A built-in name, org/name, a folder or a .gguf file.", autocompletion=completion.models),
    ] = options.DEFAULT_MODEL,
    adapter: options.Adapter = None,
    revision: options.Revision = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    device_map: options.DeviceMap = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    quiet: options.Quiet = False,
) -> None:
    """Hide tokens from the answer, or switch heads off, and see how much likelier the answer is with them."""
    rules = parse_classes(hide or [])
    refuse_segments(rules, lambda name, rule: f"--hide {name}={rule}")
    chosen_layers, chosen_heads = options.numbers(layers, "--layers"), options.numbers(heads, "--heads")
    ablated = _heads(ablate)
    _refuse_if_nothing(answer, rules, ablated)
    words = prompt_of(prompt, file, "knockout")

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
    variants: dict[str, dict[str, object]] = {
        name: {"hide": rule, "queries": queries, "layers": chosen_layers, "heads": chosen_heads}
        for name, rule in rules.items()
    }
    if ablated:
        variants["heads"] = {"ablate": ablated}
    outcomes = {
        name: lens.intervene(words, answer, **each, how=how, source=source, chat=chat, draws=draws, seed=seed)  # type: ignore[arg-type]
        for name, each in variants.items()
    }
    if as_json:
        print(json.dumps(_as_json(answer, outcomes), ensure_ascii=False))  # noqa: T201
        return
    _show(answer, outcomes)


def _heads(written: str | None) -> dict[int, list[int]]:
    """`18.6,18.7` -> heads by layer."""
    heads: dict[int, list[int]] = {}
    for each in [] if written is None else written.split(","):
        layer, _, head = each.strip().partition(".")
        if not layer.isdecimal() or not head.isdecimal():
            raise AttnscopeError(
                f"can't read '{each.strip()}'",
                where="--ablate",
                allowed="heads from 0 as LAYER.HEAD, such as 18.6,18.7",
                todo="list the heads",
            )
        heads.setdefault(int(layer), []).append(int(head))
    return heads


def _refuse_if_nothing(answer: str, rules: object, ablated: object) -> None:
    if not answer:
        raise AttnscopeError(
            "there is no answer", where="--answer", allowed="a text that may follow the prompt", todo="give one"
        )
    if bool(rules) == bool(ablated):
        raise AttnscopeError(
            "there is nothing to knock out" if not rules else "tokens and heads are knocked out at once",
            where="knockout",
            allowed="--hide 'hash=#', or --ablate 18.6",
            todo="give one of the two",
        )


def _as_json(answer: str, outcomes: dict[str, Outcome]) -> dict[str, object]:
    return {
        "answer": answer,
        "knockouts": {
            name: {
                "log_prob": each.before.log_prob,
                "changed": each.after.log_prob,
                "change": each.change,
                "kl": float(each.after.kl[0]),
                "control": each.control,
                "control_changes": each.control_changes,
                "share_of_draws_beyond": each.beyond,
                "tokens": each.by_token().to_dicts(),
            }
            for name, each in outcomes.items()
        },
    }


def _show(answer: str, outcomes: dict[str, Outcome]) -> None:
    first = next(iter(outcomes.values()))
    rows = [("as it is", f"{first.before.log_prob:.3f}", "", "", "", "")]
    for name, each in outcomes.items():
        drawn = sorted(each.control_changes)
        control = f"{sum(drawn) / len(drawn):+.3f}" if drawn else ""
        ends = f"{drawn[0]:+.3f} to {drawn[-1]:+.3f}" if drawn else ""
        cells = f"{each.after.log_prob:.3f}", f"{each.change:+.3f}", control, ends, repr("".join(each.likeliest))
        rows.append((f"without {name}", *cells))
    columns = [*text("knockout"), *numbers("log prob.", "change", "control", "its draws"), *text("likeliest")]
    print_grid(Console(), f"log probability of {answer!r}", columns, rows)
    for each in {each.control: each for each in outcomes.values()}.values():
        if each.controls:
            print(f"control: {each.control}; mean of {len(each.controls)} draws, and the least and most")  # noqa: T201
        else:
            print(f"attnscope: warning: no control: {each.control}", file=sys.stderr)  # noqa: T201
