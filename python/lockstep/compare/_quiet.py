"""Turns dropout off in runs that are compared, since its random numbers depend on the layout, and makes the
perturbations that show what rounding explains, with random numbers of generators that the program does not see."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

import torch

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


def turn_dropout_off(note: Callable[[str], None]) -> None:
    """`note` is called when a dropout is met that would have changed something."""
    functional: Any = torch.nn.functional

    def without(name: str) -> None:
        original = getattr(functional, name)
        is_default: bool = inspect.signature(original).parameters["training"].default  # it is not that of all of them

        @functools.wraps(original)
        def dropout(input: torch.Tensor, p: float = 0.5, training: bool = is_default, inplace: bool = False) -> Any:
            if training and p > 0:
                note("dropout was switched off")
            return original(input, p, False, inplace)

        setattr(functional, name, dropout)

    for each in _DROPOUTS:
        without(each)
    attention = functional.scaled_dot_product_attention

    @functools.wraps(attention)
    def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                                     *args: Any, **kwargs: Any) -> Any:
        if dropout_p > 0:
            note("dropout was switched off")
        return attention(query, key, value, attn_mask, 0.0, *args, **kwargs)

    functional.scaled_dot_product_attention = scaled_dot_product_attention


class Rounding(torch.autograd.Function):
    """Changes each element by half a unit in the last place of 1, up or down, and each gradient on its way back."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        ctx.generator = generator
        return _rounded(value, generator)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _rounded(gradient, ctx.generator), None


def _rounded(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    signs = torch.empty(value.shape, dtype=torch.float32).bernoulli_(0.5, generator=generator).mul_(2).sub_(1)
    # In float64: in the dtype itself, 1 + half a unit is 1.
    half = torch.finfo(value.dtype).eps / 2
    return (value.double() * (1 + half * signs.to(value.device).double())).to(value.dtype)
