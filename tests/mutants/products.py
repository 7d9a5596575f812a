"""Planted defects of matrix products, each a product as someone has written it, wrong in one place; `honest` is right.

`Product` computes in float64 or float32 what the dtype's kernels do, so that a fault is all that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from verify.families.composite import Problem
from verify.families.products_data import decoded

Tensor = torch.Tensor
Change = Callable[[Tensor], Tensor]


def same(t: Tensor) -> Tensor:
    return t


@dataclass(frozen=True)
class Product:
    """act(alpha (scales a b) + beta bias) with sums in float32 (float64); each field but the default is a fault, those
    of `VARIANTS` excepted."""

    a: Change = same
    b: Change = same
    whole: Change = same  # the product
    out: Change = same
    accumulator: torch.dtype | None = None  # in which blocks of 16 are added
    scale: int = 1  # how often scales are applied
    stored: bool = False  # the product is rounded to the dtype before the rest
    parts: int = 1
    wrapped: int = 0  # bits of an integer accumulator
    pairs: bool = False  # sums of two neighbouring products are saturated in 16 bits
    given: Callable[[Problem], Problem] = lambda problem: problem
    bias: Change = same
    early: bool = False  # the activation comes before the bias

    def __call__(self, problem: Problem) -> dict[str, Tensor]:
        problem = decoded(self.given(problem))
        tensors, scalars = problem.tensors, problem.scalars
        activation = problem.extra["shape"].activation
        act: Change = getattr(torch.nn.functional, activation) if activation != "none" else same
        dtype = tensors["a"].dtype
        wide = torch.float64 if dtype in (torch.float64, torch.int8) else torch.float32
        a, b = (change(tensors[name].to(wide)) for name, change in (("a", self.a), ("b", self.b)))
        y = self.whole(self._summed(a, b))
        if self.wrapped:
            y = (y + 2.0 ** (self.wrapped - 1)) % 2.0**self.wrapped - 2.0 ** (self.wrapped - 1)
        if "scale_a" in tensors:
            for _ in range(self.scale):
                y = y * tensors["scale_a"] * tensors["scale_b"]
        result = tensors["bias"].dtype if "bias" in tensors else dtype
        result = torch.bfloat16 if dtype.itemsize == 1 and dtype.is_floating_point else result
        y = y.to(result).to(wide) if self.stored else y
        if "bias" in tensors:
            alpha, beta = scalars.get("alpha", 1.0), scalars.get("beta", 1.0)
            y = act(y) if self.early else y
            y = alpha * y + (beta * self.bias(tensors["bias"].to(wide)) if beta else 0.0)
        y = y if self.early else act(y)
        return {"": self.out(y) if dtype == torch.int8 else self.out(y).to(result)}

    def _summed(self, a: Tensor, b: Tensor) -> Tensor:
        if self.pairs:
            rest = a.shape[-1] % 2
            both = (
                a[..., k::2, None][..., : b.shape[-2] // 2, :] * b[None, k::2][:, : b.shape[-2] // 2] for k in (0, 1)
            )
            y = sum(both).clamp(-32768, 32767).sum(-2)
            return y + a[..., -1:] @ b[-1:] if rest else y
        if self.accumulator is not None or self.parts > 1:
            step = 16 if self.accumulator is not None else -(-a.shape[-1] // self.parts)
            kind = self.accumulator or a.dtype
            total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=kind)
            for k in range(0, a.shape[-1], max(step, 1)):
                total = total + (a[..., k : k + step] @ b[..., k : k + step, :]).to(kind)
            return total.to(a.dtype)
        return a @ b


def rounded(dtype: torch.dtype) -> Change:
    return lambda t: t.to(dtype).to(t.dtype)


def cut(bits: int) -> Change:
    """Of a float32, the lower bits cleared."""
    return lambda t: (t.float().view(torch.int32) & -(1 << bits)).view(torch.float32).to(t.dtype)


def dropped(start: int, count: int) -> Change:
    """Zeros in place of some terms of each row of a."""

    def change(t: Tensor) -> Tensor:
        t = t.clone()
        t[..., start : start + count] = 0
        return t

    return change


def last_block(t: Tensor) -> Tensor:
    return dropped(t.shape[-1] // 16 * 16 if t.shape[-1] % 16 else t.shape[-1] - 16, 16)(t)


def twice(t: Tensor) -> Tensor:
    """A block of terms counted twice."""
    t = t.clone()
    t[..., 16:32] *= 2
    return t


def swapped(t: Tensor) -> Tensor:
    """Rows 4 and 5 in each other's place."""
    t = t.clone()
    t[..., [4, 5], :] = t[..., [5, 4], :]
    return t


def one_element(t: Tensor) -> Tensor:
    """One element moved by a unit in its last place."""
    t = t.clone()
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    t.view(bits)[..., 3, 2] += 1
    return t


def of(**changes: Change) -> Callable[[Problem], Problem]:
    """Other tensors in the place of those of these names."""
    return lambda x: replace(x, tensors={**x.tensors, **{name: f(x.tensors[name]) for name, f in changes.items()}})


def exchanged(t: Tensor) -> Tensor:
    """Each two neighbours along the first axis in each other's place."""
    return t.reshape(-1, 2, *t.shape[1:]).flip(1).reshape(t.shape)


def last_group(x: Problem) -> Problem:
    return of(a=lambda t: dropped(t.shape[-1] - x.extra["shape"].group, t.shape[-1])(t))(x)


EVERY = ("float16", "bfloat16", "float32", "float64")
HALVES, SINGLE, EIGHTHS = ("float16", "bfloat16"), ("float32",), ("float8_e4m3fn", "float8_e5m2")
#: (fault, product, dtypes) of mm.
FAULTS: tuple[tuple[str, Product, tuple[str, ...]], ...] = (
    ("tf32 for float32", Product(a=cut(13), b=cut(13)), SINGLE),
    ("tf32 of one factor", Product(b=cut(13)), SINGLE),
    ("bfloat16 for float32", Product(a=rounded(torch.bfloat16), b=rounded(torch.bfloat16)), SINGLE),
    ("bfloat16 for float16", Product(a=rounded(torch.bfloat16)), ("float16",)),
    ("bfloat16 sums", Product(accumulator=torch.bfloat16), ("bfloat16", "float32")),
    ("float16 sums", Product(accumulator=torch.float16), ("float16", "float32")),
    ("float32 sums of float64", Product(accumulator=torch.float32), ("float64",)),
    ("the last block dropped", Product(a=last_block), EVERY),
    ("one term dropped", Product(a=dropped(7, 1)), EVERY),
    ("a block added twice", Product(a=twice), EVERY),
    ("two rows swapped", Product(out=swapped), EVERY),
    ("the second column in the place of the first", Product(out=lambda t: t.roll(1, -1)), EVERY),
    ("transposed", Product(b=lambda t: t.flip(-2)), EVERY),
    ("scaled by 1 + 2^-7", Product(whole=lambda t: t * (1 + 2.0**-7)), EVERY),
    ("cut to 12 bits", Product(whole=cut(12)), SINGLE),
    ("one exact element off by a last place", Product(out=one_element), SINGLE),
    ("infinities saturated", Product(a=lambda t: t.nan_to_num(nan=float("nan"))), EVERY),
)
#: The same of the other kernels.
OF_KERNELS: dict[str, tuple[tuple[str, Product, tuple[str, ...]], ...]] = {
    "bmm": (
        ("the first matrix for all", Product(given=of(b=lambda t: t[:1].expand_as(t))), EVERY),
        ("the last matrix is that before it", Product(given=of(a=lambda t: t[[*range(len(t) - 1), -2]])), EVERY),
        ("two rows swapped", Product(out=swapped), EVERY),
    ),
    "addmm": (
        ("no bias", Product(bias=torch.zeros_like), EVERY),
        ("the bias of the next column", Product(bias=lambda t: t.roll(-1)), EVERY),
        ("the bias added twice", Product(bias=lambda t: 2 * t), EVERY),
        ("the bias in bfloat16", Product(bias=rounded(torch.bfloat16)), ("float16", "float32")),
        ("one term dropped", Product(a=dropped(7, 1)), EVERY),
    ),
    "linear": (
        ("the activation before the bias", Product(early=True), EVERY),
        ("the bias added twice", Product(bias=lambda t: 2 * t), EVERY),
        ("the last block dropped", Product(a=last_block), EVERY),
    ),
    "scaled_mm": (
        ("scales applied twice", Product(scale=2), EIGHTHS),
        ("scales not applied", Product(scale=0), EIGHTHS),
        ("sizes of scales alone", Product(given=of(scale_a=torch.abs)), EIGHTHS),
        ("two row scales swapped", Product(given=of(scale_a=exchanged)), EIGHTHS),
        ("scales of columns one off", Product(given=of(scale_b=lambda t: t.roll(1, -1))), EIGHTHS),
        ("the last block dropped", Product(a=last_block), EIGHTHS),
    ),
    "int_mm": (
        ("wrapped in 8 bits", Product(wrapped=8), ("int8",)),
        ("wrapped in 16 bits", Product(wrapped=16), ("int8",)),
        ("pairs saturated in 16 bits", Product(pairs=True), ("int8",)),
        ("saturated in 16 bits", Product(whole=lambda t: t.clamp(-32768, 32767)), ("int8",)),
        ("off by one", Product(out=lambda t: t + 1), ("int8",)),
        ("-128 as -127", Product(a=lambda t: t.clamp(min=-127)), ("int8",)),
        ("a block added twice", Product(a=twice), ("int8",)),
        ("two rows swapped", Product(out=swapped), ("int8",)),
    ),
    "int4_mm": (
        ("scales of two groups swapped", Product(given=of(scale=exchanged)), HALVES),
        ("zeros of two groups swapped", Product(given=of(zero=exchanged)), HALVES),
        ("zero point 7 for 8", Product(given=of(b=lambda t: t + 1)), HALVES),
        ("nibbles swapped", Product(given=of(b=exchanged)), HALVES),
        ("codes with a sign", Product(given=of(b=lambda t: torch.where(t > 7, t - 16, t) + 8)), HALVES),
        ("the last group dropped", Product(given=last_group), HALVES),
        ("the scale applied twice", Product(given=of(scale=lambda t: t.double() ** 2)), HALVES),
        ("the zero scaled", Product(given=lambda x: of(zero=lambda t: t * x.tensors["scale"])(x)), HALVES),
        ("no zero", Product(given=of(zero=torch.zeros_like)), HALVES),
        ("groups one term early", Product(given=of(b=lambda t: t.roll(1, 0), a=lambda t: t.roll(1, -1))), HALVES),
    ),
}  # fmt: skip

#: (variant, product) that are correct, of all dtypes.
VARIANTS: tuple[tuple[str, Product], ...] = (
    ("honest", Product()),
    ("in two parts", Product(parts=2)),
    ("in seven parts", Product(parts=7)),
    ("backwards", Product(a=lambda t: t.flip(-1), b=lambda t: t.flip(-2))),
)


def faults() -> Iterator[tuple[str, str, Product, str]]:
    """Of every kernel: its name, the fault, the product and the dtype."""
    for kernel, listed in {"mm": FAULTS, **OF_KERNELS}.items():
        for name, fault, dtypes in listed:
            for dtype in dtypes:
                yield kernel, name, fault, dtype


def variants() -> Iterator[tuple[str, str, Product, str]]:
    """As `faults`."""
    for kernel, listed in {"mm": FAULTS, **OF_KERNELS}.items():
        for dtype in sorted({dtype for _, _, dtypes in listed for dtype in dtypes}):
            for name, variant in VARIANTS[:1] if kernel == "int_mm" else VARIANTS:
                yield kernel, name, variant, dtype
