"""The properties of a device on which `ball` and `ieee` rely, and their check: see `arithmetic` and `casts`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes, is_in_torch_dispatch_mode

from verify.numbers import NotAdmitted, arithmetic, casts

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def require(device: Any) -> None:
    """Raise NotAdmitted, which names the operation, where one is wrong on the device in eager mode.
    `verify.numbers.admit.library` admits compiled forms.
    """
    if torch.compiler.is_compiling():
        return
    for complaint in complaints(str(device)).values():
        raise NotAdmitted(complaint)


@functools.cache
def complaints(device: str, wrap: Wrap | None = None) -> Mapping[str, str]:
    """The operations that are wrong on a device, each with the first argument that shows it.

    wrap: how a pure function of tensors of one shape is transformed before use (torch.compile, say); None: eager.
    """

    def form(function: Callable[..., Any]) -> Callable[..., Any]:
        return wrap(function) if wrap else function

    where = f"on {device} ({'compiled' if wrap else 'eager'})"
    tracing = is_in_torch_dispatch_mode()
    with _disable_current_modes() if tracing else contextlib.nullcontext():
        found = arithmetic.complaints(device, form) | casts.complaints(device, form)
    return {name: f"{name} is not admitted {where}: {why}" for name, why in found.items()}
