"""The loops around every elementwise Triton kernel, and the launch, compiled or interpreted.

The arithmetic lives in one file a kernel; helpers that several of them share are in `arithmetic`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

#: Elements a program: 8 a thread, so that every dtype moves in 16-byte accesses.
BLOCK = 1024
WARPS = 4
#: Sizes and addresses that Triton treats apart.
MULTIPLE = 16
#: The interpreter runs a program as numpy calls on whole blocks; large blocks amortise them.
INTERPRETER_BLOCK = 1 << 16

COMPUTE = {
    torch.float16: tl.float32,
    torch.bfloat16: tl.float32,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}


class Device(triton.JITFunction):  # type: ignore[misc]
    """A device function: Triton compiles it; the interpreter calls it as plain Python.

    `triton.jit` decides between the two when it decorates, by an environment variable; here one
    process can do both.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.fn(*args, **kwargs)
        if result is None:  # what a function of libdevice gives outside of Triton's compiler
            raise NotImplementedError(
                f"{self.__name__} has no value: the Triton interpreter cannot run libdevice; name a kernel that needs "
                "it under interpreter-libdevice or interpreter-float64-libdevice in kernels/ledger/cpu.toml"
            )
        return result


class Loop(Device):
    """A kernel over elements, compiled in two forms.

    Triton makes one of it for sizes of 1, one for multiples of 16 and one for the rest, and so for each address: as
    many as 18 of three inputs. Here it is one for tensors of which size and addresses are multiples of 16, which are
    read and written in wide accesses, and whose operations AMD's compiler packs and contracts otherwise, and one for
    all others.
    """

    def __init__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(fn, *args, **kwargs)
        parameters = inspect.signature(fn).parameters.values()
        names = [one.name for one in parameters if "constexpr" not in str(one.annotation)]
        self._any = Device(fn, do_not_specialize=names, do_not_specialize_on_alignment=names)

    def over(self, *tensors: torch.Tensor) -> Device:
        """What to launch for tensors of the same size."""
        wide = tensors[0].numel() % MULTIPLE == 0 and all(t.data_ptr() % MULTIPLE == 0 for t in tensors)
        return self if wide else self._any


@Loop
def unary(x_ptr, out_ptr, size, OP: tl.constexpr, SCALAR: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside).to(COMPUTE)
    if SCALAR is None:
        result = OP(x)
    else:
        result = OP(x, SCALAR)
    tl.store(out_ptr + offsets, result.to(out_ptr.dtype.element_ty), mask=inside)


@Loop
def binary(
    x_ptr, y_ptr, out_ptr, size, OP: tl.constexpr, SCALAR: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside).to(COMPUTE)
    y = tl.load(y_ptr + offsets, mask=inside).to(COMPUTE)
    if SCALAR is None:
        result = OP(x, y)
    else:
        result = OP(x, y, SCALAR)
    tl.store(out_ptr + offsets, result.to(out_ptr.dtype.element_ty), mask=inside)


@Loop
def ternary(
    x_ptr,
    y_ptr,
    z_ptr,
    out_ptr,
    size,
    OP: tl.constexpr,
    SCALAR: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside).to(COMPUTE)
    y = tl.load(y_ptr + offsets, mask=inside).to(COMPUTE)
    z = tl.load(z_ptr + offsets, mask=inside).to(COMPUTE)
    if SCALAR is None:
        result = OP(x, y, z)
    else:
        result = OP(x, y, z, SCALAR)
    tl.store(out_ptr + offsets, result.to(out_ptr.dtype.element_ty), mask=inside)


LOOPS = {1: unary, 2: binary, 3: ternary}


def compiled(operation: Device, scalar: float | None, options: Mapping[str, Any]) -> Callable[..., torch.Tensor]:
    """`operation` over tensors on a GPU, with Triton's compile `options`.

    The scalar is a compile-time constant, as Inductor does it: a new value is a new kernel.
    """

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        inputs = [t.contiguous() for t in torch.broadcast_tensors(*tensors)]
        out = torch.empty_like(inputs[0])
        size = out.numel()
        if size:
            LOOPS[len(inputs)].over(*inputs, out)[(triton.cdiv(size, BLOCK),)](
                *inputs,
                out,
                size,
                OP=operation,
                SCALAR=scalar,
                COMPUTE=COMPUTE[out.dtype],
                BLOCK=BLOCK,
                num_warps=WARPS,
                **options,
            )
        return out

    return run


def interpreted(operation: Device, scalar: float | None) -> Callable[..., torch.Tensor]:
    """`operation` under the Triton interpreter, on CPU tensors; numpy's warnings are kept quiet."""
    import numpy as np
    from triton.runtime.interpreter import InterpretedFunction

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        inputs = [t.contiguous() for t in torch.broadcast_tensors(*tensors)]
        out = torch.empty_like(inputs[0])
        size = out.numel()
        if size:
            block = min(INTERPRETER_BLOCK, triton.next_power_of_2(size))
            kernel = InterpretedFunction(LOOPS[len(inputs)].fn)[(triton.cdiv(size, block),)]
            with np.errstate(all="ignore"):
                kernel(*inputs, out, size, OP=operation, SCALAR=scalar, COMPUTE=COMPUTE[out.dtype], BLOCK=block)
        return out

    return run
