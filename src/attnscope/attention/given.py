"""What a forward of somebody else's code was given: its arguments by name, its cache, and which tokens are pads."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.attention.view import HIDING
from attnscope.errors import AttnscopeError, Parameter


def caches_of(cache: Any, queries: int, layers: frozenset[int]) -> dict[int, tuple[int, int]]:
    """By layer: how many tokens came before this forward, and how many of these the cache has let go of."""
    if cache is None:
        return {}
    if not hasattr(cache, "get_mask_sizes"):
        raise AttnscopeError(
            f"a cache of type {type(cache).__name__} can't be recorded",
            where="past_key_values",
            allowed="transformers' own caches",
            todo="convert it, for example with DynamicCache",
        )
    try:
        return {
            layer: (int(cache.get_seq_length(layer)), int(cache.get_mask_sizes(queries, layer)[1])) for layer in layers
        }
    except ValueError as error:  # layers that use another layer's keys and values
        raise AttnscopeError(
            "layers without a cache of their own can't be recorded with a cache",
            where=Parameter("layers"),
            allowed="layers that keep their own keys and values",
            todo="leave out the last layers, or run the model with use_cache=False",
        ) from error


def arguments_of(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a forward by name, however they were passed."""
    try:
        given = dict(inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments)
    except TypeError:  # the forward itself will say what is wrong
        return dict(kwargs)
    named = {**given, **kwargs}
    if "input_ids" not in named and args and isinstance(args[0], Tensor):  # a wrapper that passes on what it gets
        named["input_ids"] = args[0]
    return named


def refuse_weights(module: nn.Module, named: dict[str, Any]) -> None:
    """While attention is recorded the model does not make the matrices that this asks for."""
    asked = named.get("output_attentions")
    if getattr(getattr(module, "config", None), "output_attentions", False) if asked is None else asked:
        raise AttnscopeError(
            "the model is asked for its attention weights while attention is recorded",
            where="output_attentions=True",
            allowed="forwards without output_attentions",
            todo="leave it out: the recording has the attention",
        )


def real_tokens(mask: Any, batch: int, queries: int, cached: int) -> tuple[Tensor | None, Tensor]:
    """(B, keys) False at pads, where a mask says so; and (B, queries) for the tokens of this forward.

    A mask of four dimensions says what each query sees, not which tokens are pads: those that see nothing are, and
    those that see everything while nobody sees them, as rows of pads are sometimes let do. If it says the same of all
    queries at once, the keys that it hides are pads.
    """
    mask = mask.get("full_attention", next(iter(mask.values()), None)) if isinstance(mask, dict) else mask
    if isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[2] == 1 and queries > 1:
        mask = (mask if mask.dtype == torch.bool else mask > HIDING).any(1)[:, 0].expand(batch, -1)
    if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape[1] >= queries:
        start = min(cached, mask.shape[1] - queries)  # a mask may be as long as a cache that is not full yet
        return mask[:, : start + queries].bool(), _some(mask[:, start : start + queries].bool().cpu())
    everything = torch.ones(batch, queries, dtype=torch.bool)
    if not isinstance(mask, Tensor) or mask.dim() != 4 or mask.shape[2] != queries:
        return None, everything
    seen = (mask if mask.dtype == torch.bool else mask > HIDING).any(1)  # (B or 1, queries, keys), by any head
    opened_up = seen.all(-1) & ~seen[:, -1:].all(-1)
    start = min(cached, seen.shape[-1] - queries)  # a cache of a window has let go of the first keys
    visible = (seen & ~opened_up[..., None]).any(1)[:, start : start + queries]
    real = seen.any(-1) & ~(opened_up & ~visible)
    if (real & ~visible)[:, -1].any():
        raise AttnscopeError(
            "the mask does not say whether the last token is a pad: it sees others, and no query sees it",
            where="attention_mask, of four dimensions",
            allowed="masks in which some query sees the last token, or a mask of two dimensions",
            todo="let the last token see itself, or give the pads in a mask of two dimensions",
        )
    return None, _some(real.expand(batch, -1).cpu())


def _some(real: Tensor) -> Tensor:
    """Refuse prompts that are pads only: nothing in them attends."""
    alone = (~real.any(1)).nonzero()
    if len(alone):
        raise AttnscopeError(
            f"prompt {int(alone[0, 0])} of the batch has no token in this forward, only pads",
            where="attention_mask",
            allowed="batches in which every prompt has a token",
            todo="leave that prompt out, or check the attention mask",
        )
    return real


def refuse_mask(module: nn.Module, mask: Any) -> None:
    """Eager attention adds a mask to the scores: one of True and False hides nothing from it."""
    eager = getattr(getattr(module, "config", None), "_attn_implementation", None) == "eager"
    if eager and isinstance(mask, Tensor) and mask.dim() == 4 and mask.dtype == torch.bool:
        raise AttnscopeError(
            "eager attention adds a mask to its scores, so one of True and False hides nothing",
            where="attention_mask, of four dimensions",
            allowed="0 where a query sees a key and -inf where it doesn't, or a mask of two dimensions",
            todo="give numbers, or load the model with attn_implementation='sdpa'",
        )
