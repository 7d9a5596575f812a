"""Matrix instructions as a number system on tensors: the bits of a matrix unit's dot products.

A unit takes `terms` exact products and the accumulator c as a block; blocks follow one another along k, the result of
one being c of the next. Which unit has which numbers, and who says so, is in units.toml. The rules:

aligned  The exponent of a product is e(a) + e(b), unnormalised, a subnormal operand having its format's least one; that
         of c is its own, at least -126. All terms are cut (towards zero) to `fraction` bits below the largest exponent
         of those that are not 0, at least `floor`, and summed exactly. The sum is cut to `kept` bits of float32,
         subnormal results to their grid, or rounded to nearest even in float16; from 2^128 on it is infinite. (MMA-Sim,
         arXiv 2511.10909; arXiv 2512.07004.)
chain    fused multiply-adds, one after another, in the result's format.
apart    as chain, but for products, which are rounded before they are added.
tree     CDNA 2: products and the sums of pairs of neighbours in float32, to nearest even, then c is added; subnormal
         operands, partial sums and results are flushed to zero.
late     CDNA 3: products cut at `fraction` bits and summed (`halves`: of even and odd terms, these cut once more); the
         sum is rounded down to 31 bits and c to `fraction` bits below the larger exponent, their sum to nearest even.
pairs    AMX: one chain of even terms and one of odd ones from 0, in float32; their sum is added to c; subnormal numbers
         are flushed to zero.
dots     AVX512_BF16: the odd term of a pair, then the even one, as fused multiply-adds; flushed likewise.

A NaN among the terms, 0 times infinity and infinities of either sign give NaN; NVIDIA's has all bits but the sign set.
A result of 0 is +0. Values are held in float64, which has every product and every aligned sum exactly.
"""

from __future__ import annotations

import ctypes
import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import groupby
from pathlib import Path

import torch

from verify import native
from verify.facts.formats import FORMATS, Format
from verify.numbers.ieee import IeeeSystem, Rounded
from verify.numbers.transforms import power_of_two, round_to

Tensor = torch.Tensor
SINGLE, HALF = FORMATS["float32"], FORMATS["float16"]
#: The least exponent of a normal operand.
EMIN = {
    "float64": -1022, "float32": -126, "tf32": -126, "bfloat16": -126, "float16": -14, "float8_e4m3fn": -6,
    "float8_e5m2": -14, "float8_e4m3fnuz": -7, "float8_e5m2fnuz": -15,
}  # fmt: skip
#: The exponent of a zero: with any other's it is below every floor.
NOTHING = -8192
#: Elements that are computed at once on the host: three tensors of them stay in a core's cache.
TILE = 1 << 14
#: Elements of the sums of pieces that are computed at once.
STACK = 1 << 20


@dataclass(frozen=True)
class Unit:
    """One matrix instruction's arithmetic; the numbers are explained in units.toml."""

    architecture: str
    operands: str
    result: str
    rule: str
    terms: int
    fraction: int = 0
    kept: int = 23
    floor: int = -126
    groups: int = 1
    run: int = 1
    separate: int = 0
    emin: int = 0
    halves: bool = False
    instruction: str = ""
    chips: tuple[str, ...] = ()
    source: str = ""
    confirmed: bool = False

    def __str__(self) -> str:
        told = f"{self.architecture} {self.operands}" + (f" {self.instruction}" if self.instruction else "")
        return told + (" to float16" if self.result == "float16" else "")

    @property
    def least(self) -> int:
        """The least exponent of an operand."""
        return self.emin or EMIN[self.operands]

    def operand(self, t: Tensor) -> Tensor:
        """Operands as float64: tf32 ones lose the lower 13 bits of a float32 (PTX ISA, mma .tf32)."""
        if self.operands == "tf32":
            t = (t.to(torch.float32).view(torch.int32) & -(1 << 13)).view(torch.float32)
        t = t.to(torch.float64)
        return _flushed(t) if self.rule in ("tree", "pairs", "dots") else t

    def dot(self, a: Tensor, b: Tensor, c: Tensor | float = 0.0) -> Tensor:
        """a, b of shapes (..., k) that broadcast, c (...): sum a b + c along the last axis, in the result's dtype."""
        found = self._sum(self.operand(a).movedim(-1, 0), self.operand(b).movedim(-1, 0), self.accumulator(c, a.device))
        return self.stored(found)

    def matmul(self, a: Tensor, b: Tensor, c: Tensor | float = 0.0) -> Tensor:
        """a (m, k) times b (k, n) plus c, which broadcasts to (m, n), in the result's dtype."""
        return self.stored(self.product(a, b, c))

    def product(self, a: Tensor, b: Tensor, c: Tensor | float = 0.0) -> Tensor:
        """As `matmul`, in float64; of stacks (p, m, k) and (p, k, n) too."""
        if (found := self._natively(a, b, c)) is not None:
            return found
        left = self.operand(a).movedim(-1, 0).unsqueeze(-1).contiguous()
        right = self.operand(b).movedim(-2, 0).unsqueeze(-2).contiguous()
        total = self.accumulator(c, a.device).expand(*a.shape[:-1], b.shape[-1])
        rows = max(1, TILE // max(1, b[..., 0, :].numel() if b.shape[-2] else 1)) if a.is_cpu else max(1, a.shape[-2])
        parts = [
            self._sum(left[..., start : start + rows, :], right, total[..., start : start + rows, :])
            for start in range(0, a.shape[-2], rows)
        ]
        return torch.cat(parts, -2) if parts else total.clone()

    def _natively(self, a: Tensor, b: Tensor, c: Tensor | float) -> Tensor | None:
        """`product` in C++; None where there is none: on other devices, by other rules, without a compiler."""
        function = _NATIVE.get((self.rule, self.result))
        if function is None or not a.is_cpu or (library := native.host()) is None:
            return None
        dtype = getattr(torch, self.result) if self.rule != "aligned" else torch.float64
        left, right = self.operand(a), self.operand(b)
        k, order = a.shape[-1], None
        if self.rule == "dots":  # the odd term of a pair first, where there is one
            order = (torch.arange(k) ^ 1).clamp(max=max(k - 1, 0))
        blocks = self._places(k) if self.rule == "aligned" else []
        if self.groups > 1 and blocks:
            order = torch.cat(blocks)
        if order is not None:
            left, right = left[..., order], right[..., order, :]
        left, right = left.to(dtype).contiguous(), right.to(dtype).contiguous()
        total = self.accumulator(c, a.device).expand(*a.shape[:-1], b.shape[-1]).to(dtype)
        total = total.clone(memory_format=torch.contiguous_format)
        sizes = [a.shape[-2], b.shape[-1], k, *([self.terms] if self.rule == "pairs" else [])]
        ends = torch.tensor([len(block) for block in blocks], dtype=torch.int64).cumsum(0)
        if self.rule == "aligned":
            sizes += [
                self.separate,
                self.fraction,
                self.kept,
                self.floor,
                self.least,
                self.result == "float16",
            ]
        given = [*map(ctypes.c_int64, sizes), *([ctypes.c_void_p(ends.data_ptr())] if self.rule == "aligned" else [])]
        call, count = getattr(library, function), math.prod(a.shape[:-2]) if total.numel() else 0
        for p in range(count):
            places = (ctypes.c_void_p(t.data_ptr() + p * (t.nbytes // count)) for t in (left, right, total))
            if call(*given, *places) == 0:
                return None
        return total.to(torch.float64)

    def accumulator(self, c: Tensor | float, device: torch.device) -> Tensor:
        """c as float64, rounded to nearest in the result's format."""
        given = torch.as_tensor(c, device=device).to(torch.float64)
        return round_to(given, FORMATS[self.result])

    def stored(self, t: Tensor) -> Tensor:
        """Results as the dtype has them, with the NaN that the hardware gives."""
        found = t.to(torch.float32) if self.result != "float64" else t  # exact
        nan = found.isnan()
        if self.rule == "aligned" and bool(nan.any()):
            found = torch.where(nan, _NAN.to(found.device), found)
        return found.to(getattr(torch, self.result))

    def _sum(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """a, b: float64, k first."""
        rule, shape = _RULES[self.rule], (a[:1] * b[:1] * c).shape[1:]
        exponents = [_exponents(t, self.least) for t in (a, b)] if self.rule in ("aligned", "late") else [a, b]
        total = c.expand(shape)
        for start in range(0, len(a), self.separate or max(len(a), 1)):
            stop = min(len(a), start + self.separate) if self.separate else len(a)
            before, total = total, torch.zeros_like(total) if self.separate else total
            for block in self._blocks(start, stop):
                total = rule(self, *(t[block] for t in (a, b, *exponents)), total)
            if self.separate:
                total = round_to(before + total, FORMATS[self.result])
        return total if len(a) else total.clone()

    def _places(self, k: int) -> list[Tensor]:
        """The terms of each block."""
        step, places = self.separate or max(k, 1), torch.arange(k)
        return [places[block] for start in range(0, k, step) for block in self._blocks(start, min(k, start + step))]

    def _blocks(self, start: int, stop: int) -> list[slice | Tensor]:
        """The places of each block's terms."""
        if self.groups == 1:
            return [slice(k, min(stop, k + self.terms)) for k in range(start, stop, self.terms)]
        span = self.groups * self.terms
        spans = [torch.arange(k, min(stop, k + span)) for k in range(start, stop, span)]
        blocks = [some[(some // self.run) % self.groups == g] for some in spans for g in range(self.groups)]
        return [block for block in blocks if len(block)]


@dataclass(frozen=True)
class Split:
    """A unit that multiplies float32 numbers as sums of `parts` parts, as Triton's input precision of that name does
    (lib/Dialect/TritonGPU/Transforms/F32DotTC.cpp): products of two parts are one chain after another in one
    accumulator, which begins with 0; before the last, that of the largest parts, a NaN in it becomes 0.

    terms: `pairs` of (part of a, part of b), 0 the largest, in the order of their chains. The parts of tf32x3 are the
    number rounded to tf32, ties away from 0, and what that leaves, which the unit cuts; of bf16x3 and bf16x6 each is
    what the ones before leave, rounded to bfloat16, ties to even.
    """

    name: str
    unit: Unit

    def __str__(self) -> str:
        return f"{self.name} on {self.unit}"

    @property
    def terms(self) -> int:
        return self.unit.terms

    @property
    def result(self) -> str:
        return self.unit.result

    @property
    def operands(self) -> str:
        return "float32"

    @property
    def accumulator(self) -> Callable[..., Tensor]:
        return self.unit.accumulator

    def parted(self, t: Tensor) -> list[Tensor]:
        """The parts of float32 numbers, which add up to these but for what the last one's rounding leaves."""
        t, found = t.to(torch.float32), []
        fmt, parts, _ = SPLITS[self.name]
        for _ in range(parts):
            bits = t.view(torch.int32)
            away = torch.where(t.isfinite(), (bits + (1 << 12)) & -(1 << 13), bits).view(torch.float32)
            found.append(t.to(torch.bfloat16).to(torch.float32) if fmt == BFLOAT16 else away)
            t = t - found[-1]
        if fmt != BFLOAT16:  # as it is
            found[-1] = found[-1] + t
        return found

    def product(self, a: Tensor, b: Tensor, c: Tensor | float = 0.0) -> Tensor:
        """c plus a (m, k) times b (k, n), in float64."""
        left, right = self.parted(a), self.parted(b)
        total: Tensor | float = 0.0
        for i, j in SPLITS[self.name][2]:
            if isinstance(total, Tensor) and (i, j) == (0, 0):
                total = torch.where(total.isnan(), 0.0, total)
            total = self.unit.product(left[i], right[j], total)
        return round_to(self.accumulator(c, a.device) + total, SINGLE)


TF32, BFLOAT16 = Format("tf32", 19, 11, 127), FORMATS["bfloat16"]
_PAIRS = ((1, 0), (0, 1), (0, 0))
#: By input precision: format of the parts, how many, and the pairs that are multiplied, in order.
SPLITS: dict[str, tuple[Format, int, tuple[tuple[int, int], ...]]] = {
    "tf32": (TF32, 1, ((0, 0),)), "bf16": (BFLOAT16, 1, ((0, 0),)), "tf32x3": (TF32, 2, _PAIRS),
    "bf16x3": (BFLOAT16, 2, _PAIRS), "bf16x6": (BFLOAT16, 3, ((1, 1), (2, 0), (0, 2), *_PAIRS)),
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How one dot product is made of a unit's chains: pieces of k, each a chain from 0, and how they are added.

    unit     of each piece; a plan of its own where pieces are made of smaller ones
    parts    so many pieces; their length is ceil(k / parts), rounded up to whole blocks
    every    pieces of this length instead (0: none): what a promotion to float32 every so many terms gives
    panel    pieces of at most this length, the last two of equal length, as BLAS libraries cut k (Goto, van de Geijn,
             ACM TOMS 34(3), 2008)
    grain    what lengths of parts and panels are rounded up to a multiple of, or the terms that are dealt at once (0:
             whole blocks of the unit)
    dealt    grains are dealt to the parts in turn, rather than cut into contiguous ones
    tile     a piece begins with what whole tiles of this length leave of it, as CUTLASS loads them (0: it does not)
    tree     how sums of pieces are added: '' in order; 'neighbours' a piece and the next, then these sums;
             'halves' the first half and the second, then the halves of these sums
    apart    with 'halves': so many pieces, as far apart as can be, are added in order first, as a thread does
    near     with 'halves': so many neighbours are added before others, as a warp does (both powers of 2)
    adding   the format in which they are added; '': float32, or float64 of float64
    stored   the format that sums of pieces are rounded to before they are added; '': that of `adding`; 'float32' with a
             narrower `adding`: the running sum is kept in `adding`, as by cuBLASLt's reductions in place
             (CUBLASLT_REDUCTION_SCHEME_INPLACE)
    """

    unit: Unit | Split | Plan
    parts: int = 1
    every: int = 0
    panel: int = 0
    grain: int = 0
    dealt: bool = False
    tile: int = 0
    tree: str = ""
    apart: int = 1
    near: int = 1
    adding: str = ""
    stored: str = ""

    def __str__(self) -> str:
        if self.every:
            told = f"promoted every {self.every}"
        elif self.panel:
            told = f"in panels of at most {self.panel}" + (f" by {self.grain}" if self.grain else "")
        elif self.parts > 1:
            told = f"in {self.parts} {'dealt' if self.dealt else 'contiguous'} parts"
            told += f" by {self.grain}" if self.grain else ""
        else:
            return f"{self.unit}: one chain" + self._begun
        told += self._begun + (f", added by {self.tree}" if self.tree else "")
        told += f", {self.apart} far apart first" if self.apart > 1 else ""
        told += f", {self.near} neighbours first" if self.near > 1 else ""
        if self.in_place:
            return f"{self.unit}: chains {told}, one after another added to what is kept in {self.adding}"
        told += f", stored in {self.stored}" if self.stored else ""
        return f"{self.unit}: chains {told}" + (f" in {self.adding}" if self.adding else "")

    @property
    def in_place(self) -> bool:
        """Whether sums in float32 meet a sum that is kept in a narrower format."""
        return self.stored == "float32" != self.adding and bool(self.adding)

    @property
    def _begun(self) -> str:
        return f", begun with what tiles of {self.tile} leave" if self.tile else ""

    @property
    def terms(self) -> int:
        return 1 if isinstance(self.unit, Plan) else self.unit.terms

    @property
    def result(self) -> str:
        return self.unit.result

    @property
    def operands(self) -> str:
        return self.unit.operands

    @property
    def accumulator(self) -> Callable[..., Tensor]:
        return self.unit.accumulator

    def lengths(self, k: int) -> list[int]:
        """The terms of each piece."""
        grain = self.grain or max(self.terms, 1)
        if self.dealt:
            turns, rest = divmod(k, grain * self.parts)
            lasts = (min(max(rest - p * grain, 0), grain) for p in range(self.parts))
            return [n for last in lasts if (n := turns * grain + last)]
        step = self.every or self.panel or -(-k // (self.parts * grain)) * grain
        found: list[int] = []
        if not self.panel:
            return [step] * (k // step) + ([k % step] if k % step else []) if k else []
        while k:
            length = min(step, k)
            if step < k < 2 * step:
                length = min(k, -(-k // (2 * max(self.grain, 1))) * max(self.grain, 1))
            found.append(length)
            k -= length
        return found

    def pieces(self, k: int) -> list[Tensor]:
        """The places of the terms of each piece."""
        places, grain = torch.arange(k), self.grain or max(self.terms, 1)
        if self.dealt:
            return [places[(places // grain) % self.parts == p] for p in range(self.parts) if p * grain < k]
        return list(torch.split(places, self.lengths(k)))

    def sums(self, a: Tensor, b: Tensor, c: Tensor | float = 0.0) -> list[Tensor]:
        """What each piece's chain gives, a (..., m, k) times b (..., k, n), in float64; c: what the first has to begin
        with."""
        start = self.unit.accumulator(c, a.device).expand(*a.shape[:-1], b.shape[-1])
        pieces, found = self.pieces(a.shape[-1]), list[Tensor]()
        # pieces of one length at once, as memory allows
        at_once = max(1, STACK // max(1, start.numel()))
        for length, alike in groupby(pieces, len):
            for many in torch.split(torch.stack(list(alike)), at_once):
                total = torch.zeros(len(many), *start.shape, dtype=torch.float64, device=a.device)
                if not found:
                    total[0] = start
                first = length % self.tile if self.tile else 0
                for which in (many[:, :first], many[:, first:]) if first else (many,):
                    total = self.unit.product(a[..., which].movedim(-2, 0), b[..., which, :].movedim(-3, 0), total)
                found += total
        return found or [start]

    def product(self, a: Tensor, b: Tensor, c: Tensor | float = 0.0) -> Tensor:
        """a (..., m, k) times b (..., k, n), in float64; c: what the first piece begins with."""
        return self.added(self.sums(a, b, c))

    def added(self, sums: Sequence[Tensor]) -> Tensor:
        """The sum of those of pieces."""
        if len(sums) == 1:
            return sums[0]
        fmt = self.format
        if self.in_place:
            return reduce(lambda kept, part: self.kept(kept + part), sums[1:], self.kept(sums[0]))
        t = round_to(torch.stack(list(sums)), FORMATS[self.stored] if self.stored else fmt)
        if self.tree == "halves":
            rest = max(1, (1 << (len(t) - 1).bit_length()) // self.apart)
            t = _in_order(torch.split(t, rest), fmt)
            return _halved(torch.stack([_halved(some, fmt) for some in torch.split(t, self.near)]), fmt)
        while self.tree and len(t) > 1:
            even = len(t) // 2 * 2
            t = torch.cat([round_to(t[:even:2] + t[1:even:2], fmt), t[even:]])
        return _in_order(t, fmt)

    def kept(self, total: Tensor) -> Tensor:
        """A sum in float32 as it is kept between pieces."""
        return round_to(round_to(total, SINGLE), self.format)

    @property
    def format(self) -> Format:
        """In which pieces are added."""
        return FORMATS[self.adding or ("float64" if self.unit.result == "float64" else "float32")]


def _in_order(parts: Iterable[Tensor], fmt: Format) -> Tensor:
    """Their sum; one that is shorter is added to the first of a longer one's."""
    return reduce(lambda x, y: torch.cat([round_to(x[: len(y)] + y, fmt), x[len(y) :]]), parts)


def _halved(t: Tensor, fmt: Format) -> Tensor:
    """The sum along the first axis: its second half is added to the first, and so on; from a length that is
    no power of 2 the next one's."""
    while (count := len(t)) > 1:
        half = 1 << (count - 1).bit_length() - 1
        t = torch.cat([round_to(t[: count - half] + t[half:], fmt), t[count - half : half]])
    return t[0]


#: Functions of `verify.native` by rule and result.
_NATIVE = {
    ("chain", "float32"): "chain32", ("chain", "float64"): "chain64", ("apart", "float32"): "apart32",
    ("pairs", "float32"): "pairs32", ("dots", "float32"): "dots32", ("aligned", "float32"): "aligned",
    ("aligned", "float16"): "aligned",
}  # fmt: skip
#: NVIDIA's NaN (MMA-Sim; the same in float16).
_NAN = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)


@cache
def units() -> tuple[Unit, ...]:
    """All of units.toml, one for each operand and result."""
    data = tomllib.loads((Path(__file__).with_name("units.toml")).read_text(encoding="utf-8"))
    found = []
    for entry in data["unit"]:
        operands, results = entry.pop("operands"), entry.pop("results", ("float32",))
        chips, sources, confirmed = tuple(entry.pop("chips")), entry.pop("sources"), entry.pop("confirmed", ())
        source = "; ".join(data["sources"][name] for name in sources)
        found += [
            Unit(operands=one, result=result, chips=chips, source=source, confirmed=result in confirmed, **entry)
            for one in operands
            for result in results
        ]
    return tuple(found)


#: Architectures of NVIDIA's GPUs by compute capability.
CAPABILITIES = {
    "sm_70": "volta", "sm_75": "turing", "sm_80": "ampere", "sm_86": "ampere", "sm_89": "ada", "sm_90": "hopper",
    "sm_100": "blackwell",
}  # fmt: skip


def architecture(capability: str) -> str:
    """The architecture that `units` has of 'sm_90' or 'gfx942:sramecc+'; the capability itself where none is known."""
    return CAPABILITIES.get(capability, capability.split(":")[0])


def unit(architecture: str, operands: str, result: str = "float32", instruction: str = "") -> Unit:
    """The one of an architecture. Raises KeyError, which names those there are."""
    known = [u for u in units() if u.architecture == architecture]
    for one in known:
        if (one.operands, one.result) == (operands, result) and instruction in ("", one.instruction):
            return one
    architectures = ", ".join(sorted({u.architecture for u in units()}))
    listed = ", ".join(map(str, known)) or f"none; architectures: {architectures}"
    raise KeyError(f"no {architecture} unit of {operands} with {result} results {instruction} (known: {listed})")


def scalar(fmt: str, fused: bool = True) -> Unit:
    """No matrix unit: fused multiply-adds of `fmt` one after another, or multiplications and additions."""
    if fused:
        return Unit("scalar", fmt, fmt, "chain", 1, source="IEEE 754-2019, 5.4.1: fusedMultiplyAdd", confirmed=True)
    source = "IEEE 754-2019, 5.4.1: multiplication, addition"
    return Unit("scalar", fmt, fmt, "apart", 1, instruction="without fma", source=source, confirmed=True)


# Exponents


def exponent(t: Tensor) -> Tensor:
    """floor(log2|t|) of float64 tensors as int64: -1023 of 0 and of float64's subnormal numbers."""
    return ((t.contiguous().view(torch.int64) >> 52) & 0x7FF) - 1023


def _exponents(t: Tensor, least: int) -> Tensor:
    """Of operands, int16: at least `least`, and NOTHING of zeros and of what is not finite."""
    found = exponent(t)
    return torch.where((t == 0) | (found == 1024), NOTHING, found.clamp(min=least)).to(torch.int16)


def _largest(ea: Tensor, eb: Tensor) -> Tensor:
    """The largest exponent of the products, int64."""
    top = ea[0] + eb[0]
    other = torch.empty_like(top)
    for j in range(1, len(ea)):
        torch.maximum(top, torch.add(ea[j], eb[j], out=other), out=top)
    return top.to(torch.int64)


def _cut(t: Tensor, kept: int) -> Tensor:
    """Towards zero to so many fraction bits of float32, with its subnormal numbers and its infinities."""
    cut = (t.view(torch.int64) & -(1 << (52 - kept))).view(torch.float64)
    least = 2.0 ** (SINGLE.emin - kept)
    cut = torch.where(t.abs() < 2.0**SINGLE.emin, (t * (1 / least)).trunc() * least, cut)
    return torch.where(cut.abs() >= 2.0 ** (SINGLE.emax + 1), torch.copysign(_INFINITE.to(t.device), t), cut)


_INFINITE = torch.tensor(math.inf, dtype=torch.float64)


def _flushed(t: Tensor) -> Tensor:
    return torch.where(t.abs() < 2.0**SINGLE.emin, t * 0.0, t)


# Rules: rule(unit, a, b, exponents of a, exponents of b, c) -> c of the next block; terms first.


def _aligned(u: Unit, a: Tensor, b: Tensor, ea: Tensor, eb: Tensor, c: Tensor) -> Tensor:
    ec = torch.where((c == 0) | ~c.isfinite(), u.floor, exponent(c).clamp(min=SINGLE.emin))
    top = torch.maximum(_largest(ea, eb), ec).clamp(min=u.floor)
    up, down = power_of_two(u.fraction - top), power_of_two(top - u.fraction)
    total = (c * up).trunc_().add_(0.0)
    term = torch.empty_like(total)
    for j in range(len(a)):
        total += torch.mul(a[j], b[j], out=term).mul_(up).trunc_()
    total *= down
    return (round_to(total, HALF) if u.result == "float16" else _cut(total, u.kept)).add_(0.0)


def _fma(fmt: str, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """RN(a b + c), operands of float64 tensors in the format."""
    n = IeeeSystem(FORMATS[fmt], FORMATS[fmt])
    return n.fma(*(Rounded(t, n) for t in (a, b, c))).tensor


def _chain(u: Unit, a: Tensor, b: Tensor, ea: Tensor, eb: Tensor, c: Tensor) -> Tensor:
    for j in range(len(a)):
        c = _fma(u.result, a[j], b[j], c)
    return c


def _apart(u: Unit, a: Tensor, b: Tensor, ea: Tensor, eb: Tensor, c: Tensor) -> Tensor:
    fmt = FORMATS[u.result]
    for j in range(len(a)):
        c = round_to(c + round_to(a[j] * b[j], fmt), fmt)
    return c


def _tree(u: Unit, a: Tensor, b: Tensor, ea: Tensor, eb: Tensor, c: Tensor) -> Tensor:
    terms = [_flushed(round_to(x * y, SINGLE)) for x, y in zip(a, b, strict=True)]
    while len(terms) > 1:
        pairs = [_flushed(round_to(x + y, SINGLE)) for x, y in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return _flushed(round_to(_flushed(c) + terms[0], SINGLE))


def _late(u: Unit, a: Tensor, b: Tensor, ea: Tensor, eb: Tensor, c: Tensor) -> Tensor:
    def summed(which: slice) -> tuple[Tensor, Tensor]:
        """The sum of cut products and their exponent, at least -126."""
        top = _largest(ea[which], eb[which]).clamp(min=SINGLE.emin)
        up, total = power_of_two(u.fraction - top), torch.zeros_like(c)
        for x, y in zip(a[which], b[which], strict=True):
            term = x * y
            term = torch.where(term.abs() >= 2.0 ** (SINGLE.emax + 1), term.sign() * math.inf, term)
            total = total + (term * up).trunc_()
        return total * power_of_two(top - u.fraction), top

    down = torch.trunc if u.halves else torch.floor
    if u.halves and len(a) > 1:
        (even, e), (odd, o) = summed(slice(0, None, 2)), summed(slice(1, None, 2))
        top = torch.maximum(e, o)
        total = _to(even, u.fraction, top, torch.trunc) + _to(odd, u.fraction, top, torch.trunc)
    else:
        total, top = summed(slice(None))
    top = torch.maximum(top, exponent(c).clamp(SINGLE.emin, SINGLE.emax))
    return round_to(_to(total, 31, top, down) + _to(c, u.fraction, top, down), SINGLE)


def _to(t: Tensor, bits: int, top: Tensor, rounding: Callable[[Tensor], Tensor]) -> Tensor:
    """t rounded to a multiple of 2^(top - bits)."""
    return rounding(t * power_of_two(bits - top)) * power_of_two(top - bits)


def _pairs(u: Unit, a: Tensor, b: Tensor, ea: Tensor, eb: Tensor, c: Tensor) -> Tensor:
    sums = []
    for first in (0, 1):
        total = torch.zeros_like(c)
        for x, y in zip(a[first::2], b[first::2], strict=True):
            total = _flushed(_fma("float32", x, y, total))
        sums.append(total)
    return _flushed(round_to(_flushed(c) + _flushed(round_to(sums[0] + sums[1], SINGLE)), SINGLE))


def _dots(u: Unit, a: Tensor, b: Tensor, ea: Tensor, eb: Tensor, c: Tensor) -> Tensor:
    for j in reversed(range(len(a))):
        c = _flushed(_fma("float32", a[j], b[j], _flushed(c)))
    return c


_RULES: dict[str, Callable[..., Tensor]] = {
    "aligned": _aligned, "chain": _chain, "apart": _apart, "tree": _tree, "late": _late, "pairs": _pairs,
    "dots": _dots,
}  # fmt: skip
