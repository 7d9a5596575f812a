"""Kernels with one planted error each, as a user's lowerings, and whether the walk catches them.

A mutant is judged on those elements of its kernel's default domain where it differs from the original: the others
cannot tell the two apart. The quick domain, which is a part of the default one, is tried first. No input is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from verify import backends
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.inputs.domains import Domain, domain_of
from verify.inputs.draws import Bits
from verify.lower.lowering import Call, Lowering, Target
from verify.lower.pytorch import EAGER
from verify.numbers.transforms import two_sum
from verify.walk.cells import cell_of
from verify.walk.plan import Job
from verify.walk.pointwise import Pointwise
from verify.walk.walk import walk
from verify.workers.launch import bits as bits_of

Tensor = torch.Tensor
#: Differing elements that are judged, spread over the domain.
JUDGED = 4096


@dataclass(frozen=True)
class Kept(Domain):
    """A domain whose patterns are kept, not drawn again."""

    columns: Bits = ()

    @property
    def size(self) -> int:
        return int(self.columns[0].numel())

    def bits(self, start: int, stop: int, device: Any) -> Bits:
        return tuple(column[start:stop] for column in self.columns)


@dataclass(frozen=True)
class Mutant:
    """`spoil(original)` is the mutant's call; `scalars` the case of `kernel`."""

    name: str
    kernel: str
    spoil: Callable[[Call], Call]
    scalars: dict[str, float] = field(default_factory=dict)
    dtype: str = "float32"

    @property
    def target(self) -> Target:
        facts = kernel.load(self.kernel)
        spelling = next(name for name, s in facts.spellings.items() if s.applies(self.scalars))
        return Target(facts, self.scalars, spelling, self.dtype, backends.load("cpu"))

    def lowering(self, ftz: bool = False) -> Lowering:
        return Lowering(
            "mutant", lambda target: self.spoil(EAGER.build(target)), lambda target: None, ftz=lambda target: ftz
        )


def domain(name: str, scalars: dict[str, float], dtype: str, profile: str = "default") -> Kept:
    """A domain, drawn once."""
    return _drawn(name, tuple(scalars.items()), dtype, profile)


@functools.cache
def _drawn(name: str, scalars: tuple[tuple[str, float], ...], dtype: str, profile: str) -> Kept:
    whole = domain_of(kernel.load(name), FORMATS[dtype], dict(scalars), profile)
    return Kept("strata", whole.fmt, whole.names, columns=whole.bits(0, whole.size, "cpu"))


def differing(mutant: Mutant, profile: str = "default") -> Kept | None:
    """The domain's elements on which mutant and original differ, at most JUDGED; None where there are none."""
    whole = domain(mutant.kernel, mutant.scalars, mutant.dtype, profile)
    original = EAGER.build(mutant.target)
    inputs = whole.span(0, whole.size, "cpu")
    ours, theirs = mutant.spoil(original)(*inputs), original(*inputs)
    index = ((bits_of(ours) != bits_of(theirs)) & ~(ours.isnan() & theirs.isnan())).nonzero()[:, 0]
    if not len(index):
        return None
    index = index[:: -(-len(index) // JUDGED)]
    return Kept("strata", whole.fmt, whole.names, columns=tuple(column[index] for column in whole.columns))


def cells(mutant: Mutant, on: Domain, ftz: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """The mutant's cell and the original's."""
    return cell(mutant, mutant.lowering(ftz), on), cell(mutant, EAGER, on)


def cell(mutant: Mutant, lowering: Lowering, on: Domain) -> dict[str, Any]:
    """The cell of a lowering in the mutant's case, on any domain."""
    target = mutant.target
    case, job = Pointwise(target.kernel, target.scalars, target.dtype, target.backend, on), Job(target, lowering)
    found, launched = walk(case, job, None if lowering is EAGER else EAGER)
    return cell_of(case, job, found[""], launched)


# What is planted


def flush(t: Tensor) -> Tensor:
    """Subnormals as zeros of their sign."""
    return torch.where(t.abs() < torch.finfo(t.dtype).tiny, torch.copysign(torch.zeros_like(t), t), t)


def truncated(t: Tensor, kept: int) -> Tensor:
    """float32 with `kept` fraction bits: tf32 has 10."""
    lost = 23 - kept
    rounded = (t.view(torch.int32) + (1 << (lost - 1))) & -(1 << lost)
    return torch.where(t.isfinite(), rounded.view(torch.float32), t)


def next_up(t: Tensor) -> Tensor:
    """One step away from zero, in finite non-zero values."""
    word = {2: torch.int16, 4: torch.int32}[t.element_size()]
    moved = (t.view(word) + 1).view(t.dtype)
    return torch.where(t.isfinite() & (t != 0) & moved.isfinite(), moved, t)


def wrong_where(hit: Callable[..., Tensor]) -> Callable[[Call], Call]:
    """One step off where `hit(result, *inputs)`."""

    def spoil(original: Call) -> Call:
        def call(*inputs: Tensor) -> Tensor:
            y = original(*inputs)
            return torch.where(hit(y, *inputs), next_up(y), y)

        return call

    return spoil


def tie(y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Whether a + b lies halfway between two float32 values."""
    total, error = two_sum(a.double(), b.double())
    distance = (total - y.double()).abs()
    return (error == 0) & (distance > 0) & (distance * 2 == (next_up(y).double() - y.double()).abs())


def reduced_badly(original: Call) -> Call:
    """sin of large numbers whose reduction errs by 2^-45."""

    def call(x: Tensor) -> Tensor:
        wide = x.double()
        return torch.where(x.abs() > 2.0**17, (wide.sin() + wide.cos() * 2.0**-45).float(), original(x))

    return call


MUTANTS = (
    Mutant("subnormal results flushed", "div", lambda f: lambda a, b: flush(f(a, b))),
    Mutant("subnormal inputs flushed", "add", lambda f: lambda a, b: f(flush(a), flush(b)), {"alpha": 1.0}),
    Mutant("operands swapped", "div", lambda f: lambda a, b: f(b, a)),
    Mutant("ends swapped", "lerp", lambda f: lambda a, b, w: f(b, a, w)),
    Mutant("its input returned", "add", lambda f: lambda a, b: a.clone(), {"alpha": 1.0}),
    Mutant("wrong end at w = 1", "lerp", lambda f: lambda a, b, w: torch.where(w == 1, a, f(a, b, w))),
    Mutant(
        "scalar exponent as float16",
        "pow",
        lambda f: lambda x: torch.pow(x, float(torch.tensor(3.7, dtype=torch.float16))),
        {"y": 3.7},
    ),
    Mutant("reduction good to 2^-45", "sin", reduced_badly),
    Mutant("exponents with tf32's bits", "pow", lambda f: lambda x, y: f(x, truncated(y, 10))),
    Mutant(
        "last value of each binade",
        "add",
        wrong_where(lambda y, a, b: (y.view(torch.int32) & 0x7FFFFF) == 0x7FFFFF),
        {"alpha": 1.0},
    ),
    Mutant("subnormal results one off", "div", wrong_where(lambda y, a, b: y.abs() < 2.0**-126)),
    Mutant("w beside 1/2", "lerp", wrong_where(lambda y, a, b, w: (w - 0.5).abs() < 2.0**-20)),
    Mutant("halfway cases", "add", wrong_where(tie), {"alpha": 1.0}),
    Mutant(
        "operands as tf32",
        "addcmul",
        lambda f: lambda a, b, c: f(a, truncated(b, 10), truncated(c, 10)),
        {"value": 1.0},
    ),
    Mutant(
        "one pattern of 2^16",
        "exp",
        lambda f: lambda x: torch.where(x.view(torch.int16) == 0x3555, next_up(f(x)), f(x)),
        dtype="float16",
    ),
)

#: (variant, its status) that are correct: other formulas. lerp's overflow where eager's does, which the ledger has.
VARIANTS = (
    (Mutant("fma not fused", "addcmul", lambda f: lambda a, b, c: a + b * c, {"value": 1.0}), "passed"),
    (Mutant("one-sided", "lerp", lambda f: lambda a, b, w: a + w * (b - a)), "deviates"),
    (Mutant("eager's own", "div", lambda f: f), "passed"),
)
