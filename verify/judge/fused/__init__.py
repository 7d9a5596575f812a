"""The judge of elements in one pass over them: code made from the traced tensor function that defines the judgement.

`on` gives the module that makes it for a device, C++ (`cpp`) or Triton (`triton`), with `compiled` and, for admission,
`mapped`; those of the host are here too. `verify.numbers.graph` holds what is traced and the meaning of aten's
operations. What is not known is `Unsupported`; tensors serve then.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from verify.judge.fused import cpp
from verify.judge.fused.cpp import compiled, mapped, settling
from verify.native import Unsupported

__all__ = ["Unsupported", "compiled", "mapped", "on", "settling"]


def on(device: torch.device) -> Any:
    """The module whose `compiled` and `mapped` make code for tensors on `device`. Raises Unsupported."""
    if torch.zeros(0, device=device).is_cpu:
        return cpp
    if importlib.util.find_spec("triton") is None:
        raise Unsupported("triton is not installed")
    from verify.judge.fused import triton

    return triton
