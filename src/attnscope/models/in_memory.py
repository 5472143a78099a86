"""A model that is in memory already -> what the lens needs to know of it. Nothing is copied or changed."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from attnscope.arguments import text_of
from attnscope.errors import AttnscopeError, Parameter
from attnscope.models.architecture import describe
from attnscope.models.load import Loaded
from attnscope.models.tokenization import Tokenization


def in_memory(model: nn.Module, tokenizer: Any, name: str | None = None) -> Loaded:
    """The facts of a transformers model, also one that is compiled or wrapped by PEFT."""
    inner = unwrapped(model)
    if not getattr(tokenizer, "is_fast", False):
        raise AttnscopeError(
            f"a {type(tokenizer).__name__} does not say which characters a token covers",
            where=Parameter("tokenizer"),
            allowed="a fast tokenizer of transformers, as AutoTokenizer gives it",
            todo="load the model's tokenizer with AutoTokenizer.from_pretrained",
        )
    given = None if name is None else text_of(name, "name")
    label = given or getattr(inner.config, "name_or_path", None) or type(inner).__name__
    facts = describe(inner.config, label)
    weight = next(inner.parameters())
    return Loaded(
        name=label,
        source=None,
        model=inner,
        tokenization=Tokenization(tokenizer, label),
        architecture=facts.model_type,
        layers=facts.layers,
        heads=facts.heads,
        context=facts.context,
        unreadable=facts.unreadable,
        adapter=_adapter(model),
        adapter_base=None,
        dtype=str(inner.dtype).removeprefix("torch."),
        device=str(weight.device),
        files=(),
        made_from=None,
        licence=None,
    )


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside wrappers; its modules are the wrapped model's own."""
    for _ in range(4):
        if isinstance(model, PreTrainedModel):
            return model
        if hasattr(model, "peft_config"):
            _refuse_virtual_tokens(model)
            model = model.get_base_model()  # type: ignore[operator]
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        elif isinstance(getattr(model, "module", None), nn.Module):
            model = model.module  # type: ignore[assignment]
        else:
            break
    raise AttnscopeError(
        f"a {type(model).__name__} can't be read",
        where=Parameter("model"),
        allowed="a transformers model, also compiled or wrapped by PEFT",
        todo="give the transformers model itself",
    )


def _refuse_virtual_tokens(model: Any) -> None:
    """Prompt tuning puts tokens before the prompt that no tokenizer knows."""
    for name, config in model.peft_config.items():
        if getattr(config, "is_prompt_learning", False):
            raise AttnscopeError(
                f"the adapter '{name}' puts virtual tokens before the prompt",
                where="model",
                allowed="adapters that change weights, such as LoRA",
                todo="merge the adapter, or measure the base model",
            )


def adapters_are_off(model: Any) -> bool:
    """Whether PEFT's adapters don't count at the moment."""
    return any(getattr(each, "disable_adapters", False) is True for each in model.modules())


def _adapter(model: Any) -> str | None:
    active = getattr(model, "active_adapters", None) if hasattr(model, "peft_config") else None
    return None if active is None else ", ".join(active)
