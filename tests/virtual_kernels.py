"""Triton kernels that only tests launch: Triton reads their source, so that they need a file."""

from __future__ import annotations

import triton.language as tl

from verify.kernels.triton.elementwise import Device


@Device
def total(x_ptr, out_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of BLOCK numbers."""
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK)), axis=0))
