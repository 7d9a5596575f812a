"""Elements with outputs of every kind, and what each path of the judge says of them: for tests of the judge.

A path gives, for each element, what it says, or None where it leaves the element to another path.
"""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from verify import backends
from verify.facts import kernel
from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import Kernel
from verify.facts.truth import Truth
from verify.families.composite import Limit
from verify.families.elementwise import Chunk, Elementwise, Patterns
from verify.inputs.domains import Domain, domain_of
from verify.inputs.draws import spread
from verify.judge.chunk import patterns
from verify.judge.element import CLASSES, Facts, Judged, Limits, decide
from verify.judge.exact import Exact, Outcome
from verify.judge.regions import REGIONS
from verify.judge.status import KINDS
from verify.lower.lowering import Lowering, Target
from verify.lower.pytorch import EAGER
from verify.numbers import admit
from verify.numbers.decide import WORDS, Enclosure
from verify.numbers.functions import function
from verify.numbers.scaled import times_power
from verify.walk.cells import cell_of
from verify.walk.instance import OfOutput, Placed
from verify.walk.plan import Job
from verify.walk.pointwise import Pointwise
from verify.walk.walk import walk

Tensor = torch.Tensor
DTYPES = ("float32", "float16", "bfloat16")


def to_bits(tensor: Tensor) -> Tensor:
    """Patterns as int64, those narrower than 64 bits non-negative: what `verify.inputs.draws.to_tensor` takes."""
    bits = 8 * tensor.element_size()
    found = tensor.view(getattr(torch, f"int{bits}")).to(torch.int64)
    return found if bits == 64 else found & ((1 << bits) - 1)


def library_error(name: str, arguments: tuple[float, ...], given: float) -> float:
    """|given - f| in units of 2^-53 |f| at finite arguments where f is real and not 0; see `admit.Truths.errors`."""
    high, low = admit._value(function(name), arguments)
    one = admit.Truths(tuple((x,) for x in arguments), np.array([high]), np.array([low]), np.array([False]))
    return float(one.errors(function(name), np.array([given]))[0])


@functools.cache
def bounds() -> dict[str, float]:
    """Of the library functions that are admitted here."""
    return {a.name: a.bound for a in admit.library("cpu")}


def hashed(*words: Any) -> int:
    return zlib.crc32(repr(words).encode())


def tensor(bits: Sequence[int], fmt: Format) -> Tensor:
    """Patterns as a tensor of the format's dtype."""
    signed = [b - (1 << fmt.bits) if b & fmt.sign_bit else b for b in bits]
    return torch.tensor(signed, dtype=WORDS[fmt.bits]).view(getattr(torch, fmt.name))


# ---------------------------------------------------------------- elements


@dataclass(frozen=True)
class Elements:
    """Elements of one case of a kernel, with its eager outputs."""

    facts: Kernel
    scalars: Mapping[str, float]
    fmt: Format
    about: Elementwise
    exact: Exact
    inputs: tuple[Tensor, ...]
    eager: Tensor

    @property
    def keys(self) -> list[tuple[int, ...]]:
        return list(zip(*(patterns(t, self.fmt) for t in self.inputs), strict=True))

    @property
    def chunk(self) -> Chunk:
        return Chunk(self.about, self.exact, self.inputs)

    def nearest(self) -> Tensor:
        """RN(t), as double-double gives it."""
        facts = self.about.facts(self.inputs, self.eager, double=True)
        tail = 0.0 if facts.truth.tail is None else facts.truth.tail
        near = facts.truth.mid + tail
        return (near if facts.unit is None else times_power(near, facts.unit)).to(self.eager.dtype)


def any_pattern(fmt: Format, rng: random.Random) -> int:
    """Special, subnormal, near the ends, near 1, or any."""
    unit, one = 1 << fmt.mantissa_bits, fmt.emax << fmt.mantissa_bits
    magnitude = rng.choice(
        (
            rng.choice((0, 1, unit - 1, unit, fmt.inf_bits - 1, fmt.inf_bits, fmt.nan_bits)),
            rng.randrange(unit),
            one + rng.randrange(-unit, unit),
            rng.randrange(fmt.inf_bits),
        )
    )
    return magnitude | rng.choice((0, fmt.sign_bit))


def elements(
    name: str, scalars: Mapping[str, float], dtype: str, size: int, *, functions: Any = None, wild: int | None = None
) -> Elements:
    """Of the kernel's quick domain, spread over it, and of any patterns (`wild`: how many; a third of all)."""
    facts, fmt = kernel.elementwise(name), FORMATS[dtype]
    rng = random.Random(hashed(name, sorted(scalars.items()), dtype, size))
    domain = domain_of(facts, fmt, scalars, "quick")
    drawn = domain.chunk(0, "cpu")
    wild = size // 3 if wild is None else wild
    places = torch.tensor(spread(len(drawn[0]), size - wild))
    strange = [tensor([any_pattern(fmt, rng) for _ in range(wild)], fmt) for _ in drawn]
    inputs = tuple(torch.cat([t[places], s]) for t, s in zip(drawn, strange, strict=True))
    spelling = next(s for s, call in facts.spellings.items() if call.applies(scalars))
    eager = EAGER.build(Target(facts, dict(scalars), spelling, dtype, backends.load("cpu")))(*inputs)
    about = Elementwise(facts.oracle, fmt, domain.names, scalars, "cpu", bounds(), functions)
    exact = Exact(Patterns(facts.oracle, fmt, domain.names, dict(scalars)), fmt)
    return Elements(facts, scalars, fmt, about, exact, inputs, eager)


def flushed(t: Tensor, fmt: Format) -> Tensor:
    return torch.where(t.abs() < float(fmt.smallest_normal), torch.copysign(torch.zeros_like(t), t), t)


def outputs(given: Elements, turn: int) -> Tensor:
    """Eager's outputs, RN(t) and its neighbours, bits flipped, zeros, infinities, NaNs, and what flushing of inputs and
    outputs gives: a hashed choice for each element; `turn` makes another."""
    fmt, near = given.fmt, given.nearest()
    rng = random.Random(hashed(given.facts.name, fmt.name, turn))
    call = EAGER.build(
        Target(
            given.facts,
            dict(given.scalars),
            next(s for s, call in given.facts.spellings.items() if call.applies(given.scalars)),
            fmt.name,
            backends.load("cpu"),
        )
    )
    by_zero = patterns(call(*(flushed(t, fmt) for t in given.inputs)), fmt)
    found = []
    for eager, right, zeroed in zip(patterns(given.eager, fmt), patterns(near, fmt), by_zero, strict=True):
        sign, magnitude = right & fmt.sign_bit, right & ~fmt.sign_bit
        moved = sign | max(0, min(fmt.inf_bits, magnitude + rng.choice((-900, -3, -2, -1, 1, 2, 3, 5, 900))))
        subnormal = 0 < magnitude < 1 << fmt.mantissa_bits
        found.append(
            rng.choice(
                (
                    eager, eager, right, moved, moved, zeroed, sign if subnormal else zeroed,
                    eager ^ 1 << rng.randrange(fmt.bits),
                    rng.choice((0, fmt.sign_bit, fmt.inf_bits, fmt.inf_bits | fmt.sign_bit, fmt.nan_bits, sign)),
                )
            )
        )  # fmt: skip
    return tensor(found, fmt)


def limits(given: Elements, turn: int) -> Limits:
    """A bound in some metric, or none, with or without FTZ."""
    rng = random.Random(hashed(given.facts.name, given.fmt.name, "limits", turn))
    metric = ("ulp", "scaled_ulp", "int_ulp", None)[(turn + hashed(given.facts.name)) % 4]
    return Limits.of(metric, rng.choice((0.5, 1.0, 2.0, 4.0)) if metric else torch.inf, bool(turn & 1))


# ---------------------------------------------------------------- paths


@dataclass(frozen=True)
class Said:
    """What a path says of an element; kind: why it fails, None where it does not."""

    region: str
    cls: str
    kind: str | None
    lost: bool
    unjudged: bool
    steps: int

    @classmethod
    def of(cls, judged: Judged, k: int) -> Said | None:
        if bool(judged.open[k]):
            return None
        kind, fails = int(judged.kind[k]), bool(judged.fails[k])
        assert fails == (kind >= 0)
        return cls(
            REGIONS[int(judged.region[k])], CLASSES[int(judged.cls[k])], KINDS[kind] if fails else None,
            bool(judged.lost[k]), bool(judged.unjudged[k]), int(judged.steps[k]),
        )  # fmt: skip

    @classmethod
    def by(cls, o: Outcome | None) -> Said | None:
        """What multiprecision found."""
        if o is None:
            return None
        counted = o.verdict.high is not None and o.verdict.cls != "flushed"
        return cls(o.region, o.verdict.cls, o.kind, o.lost, o.unjudged, o.verdict.steps if counted else 0)


def judged(given: Elements, y: Tensor, limits: Limits, *, double: bool, zeroed: bool) -> Judged:
    return decide(y, given.about.facts(given.inputs, y, double=double, zeroed=zeroed), given.fmt, limits)


def by_tensors(double: bool, zeroed: bool) -> Callable[[Elements, Tensor, Limits], list[Said | None]]:
    def path(given: Elements, y: Tensor, limits: Limits) -> list[Said | None]:
        found = judged(given, y, limits, double=double, zeroed=zeroed)
        return [Said.of(found, k) for k in range(len(y))]

    return path


def by_first_pass(given: Elements, y: Tensor, limits: Limits) -> list[Said | None]:
    """What fails is left to the next."""
    return [one if one is None or one.kind is None else None for one in by_tensors(False, False)(given, y, limits)]


def by_multiprecision(given: Elements, y: Tensor, limits: Limits) -> list[Said | None]:
    keyed = zip(given.keys, patterns(y, given.fmt), strict=True)
    return [Said.by(given.exact.outcome(key, bits, limits)) for key, bits in keyed]


class AsOutput:
    """Elements as a composite kernel's output (`verify.families.composite.Source`), known by their place."""

    def __init__(self, given: Elements, y: Tensor) -> None:
        self.given, self.y = given, y

    def enclose(
        self, output: str, index: Any = None, double: bool = False, scaled: bool = True
    ) -> tuple[Enclosure, Tensor | None]:  # fmt: skip
        facts = self.given.about.facts(self.given.inputs, self.y, double=double)
        found, low = facts.truth, None if facts.scale is None else facts.scale[0][None]
        rad = found.rad
        if rad is None:
            rad = torch.where(found.mid.isinf(), 0.0, found.mid.abs() * found.relative + found.absolute)
        mid, rad = found.mid.expand_as(self.y)[None], rad.expand_as(self.y)[None]
        whole = Enclosure(mid, rad, None if found.tail is None else found.tail[None], found.sure)
        if index is None:
            return whole, low
        part = Enclosure(
            mid[:, index], rad[:, index], None if whole.tail is None else whole.tail[:, index], whole.sure
        )  # fmt: skip
        return part, None if low is None else low[:, index]

    def exact(self, output: str, index: int) -> Any:
        return self.given.exact.about.enclosures(self.given.keys[index])

    def scale(self, output: str, index: int) -> Truth | None:
        return self.given.exact.about.scale(self.given.keys[index])


def output_of(given: Elements, y: Tensor, limit: float) -> OfOutput:
    """As an output of a composite kernel, whose elements may be off by `limit` in absolute terms; by two and four
    times as much they are suspect."""
    source = AsOutput(given, y)
    exact = Exact(Placed(source, ""), given.fmt)  # type: ignore[arg-type]
    bound, twice, wide = (torch.full(y.shape, limit * size, dtype=torch.float64) for size in (1, 2, 4))
    limits = Limit(bound, "", (("probable", twice), ("order", wide)))
    return OfOutput(source, "", tuple(y.shape), given.fmt, exact, given.facts.name, limits)  # type: ignore[arg-type]


def by_output(
    given: Elements, y: Tensor, limit: float, *, exactly: bool = False, double: bool = False
) -> list[Said | None]:
    about, index = output_of(given, y, limit), torch.arange(len(y))
    if exactly:
        return of_outcomes(about, y, given.fmt, Limits(), index)
    return of_facts(about, y, given.fmt, Limits(), index if double else None, double=double)


def of_facts(
    about: OfOutput, y: Tensor, fmt: Format, limits: Limits, index: Tensor | None, *, double: bool
) -> list[Said | None]:
    """What tensors say of the outputs y of elements at `index`, None for all."""
    facts: Facts = about.facts(index, y, double=double, zeroed=False)
    found = decide(y, facts, fmt, limits)
    return [Said.of(found, k) for k in range(len(y))]


def of_outcomes(about: OfOutput, y: Tensor, fmt: Format, limits: Limits, index: Tensor) -> list[Said | None]:
    """What multiprecision says of them."""
    keyed = zip(about.keys(index), patterns(y, fmt), strict=True)
    return [Said.by(about.exact.outcome(key, bits, limits, about.allowed(key))) for key, bits in keyed]


def elsewhere(y: Tensor, fmt: Format, rng: random.Random) -> Tensor:
    """Outputs in whose place others may be: as they are, some steps away, with another sign or a bit flipped, zeros,
    infinities, NaNs and the largest number."""
    found = []
    for bits in patterns(y, fmt):
        sign, magnitude = bits & fmt.sign_bit, bits & ~fmt.sign_bit
        moved = sign | max(0, min(fmt.inf_bits, magnitude + rng.choice((-900, -40, -7, -2, -1, 1, 2, 7, 40, 900))))
        ends = (0, fmt.inf_bits, fmt.inf_bits - 1, fmt.nan_bits)
        flipped = bits ^ 1 << rng.randrange(fmt.bits)
        found.append(rng.choice((bits, moved, moved, bits ^ fmt.sign_bit, flipped, sign | rng.choice(ends))))
    return tensor(found, fmt)


#: The paths of elements, by name.
PATHS: dict[str, Callable[[Elements, Tensor, Limits], list[Said | None]]] = {
    "first pass": by_first_pass,
    "float64": by_tensors(False, True),
    "double-double": by_tensors(True, True),
    "multiprecision": by_multiprecision,
}


def contradictions(
    given: Elements, y: Tensor, limits: Limits, paths: Mapping[str, Callable[..., list[Said | None]]] = PATHS
) -> list[str]:
    """Elements of which two paths say something different, or of which none says anything. No float64 tensors enclose
    float64 outputs."""
    stages = [name for name in paths if given.fmt.bits < 64 or name in ("double-double", "multiprecision")]
    told = {name: paths[name](given, y, limits) for name in stages}
    found = []
    for k, key in enumerate(given.keys):
        mine = {name: one[k] for name, one in told.items() if one[k] is not None}
        if len(set(mine.values())) != 1:
            shown = ", ".join(given.fmt.hex(b) for b in key)
            said = "; ".join(f"{name}: {one}" for name, one in mine.items())
            place = f"{given.facts.name}{dict(given.scalars)}({shown})"
            bits = given.fmt.hex(patterns(y[k : k + 1], given.fmt)[0])
            found.append(f"{place} = {bits} {given.fmt.name} {limits}: {said or 'nothing'}")
    return found


# ---------------------------------------------------------------- chunks


class Double(Chunk):
    """Elements that are known in double-double alone."""

    def facts(self, index: Tensor | None, y: Tensor, *, double: bool, zeroed: bool) -> Facts:
        return super().facts(index, y, double=True, zeroed=zeroed)


class Unknown(Chunk):
    """Elements of which tensors know nothing."""

    def facts(self, index: Tensor | None, y: Tensor, *, double: bool, zeroed: bool) -> Facts:
        found = super().facts(index, y, double=double, zeroed=zeroed)
        nothing = torch.full_like(found.truth.mid, torch.nan)
        return replace(found, truth=replace(found.truth, rad=nothing))


# ---------------------------------------------------------------- cells


def cell(
    name: str,
    scalars: Mapping[str, float],
    dtype: str,
    patterns: Sequence[tuple[int, ...]],
    call: Callable[..., Tensor],
    *,
    ftz: bool = False,
    mine: bool = False,
    lowering: str = "mutant",
    **changes: Any,
) -> dict[str, Any]:
    """The cell of a lowering on listed elements, as a run fills it. mine: of a user's own file.
    changes: of the kernel's facts."""
    facts = replace(kernel.elementwise(name), **changes)
    cpu, fmt = backends.load("cpu"), FORMATS[dtype]
    spelling = next(s for s, how in facts.spellings.items() if how.applies(scalars))
    target = Target(facts, dict(scalars), spelling, dtype, cpu)
    listed = Domain("list", fmt, facts.tensors(scalars), patterns=tuple(patterns))
    own = Lowering(lowering, lambda target: call, lambda target: None, ftz=lambda target: ftz)
    job = Job(target, own, mine=mine)
    case = Pointwise(facts, scalars, dtype, cpu, listed)
    found, launched = walk(case, job, EAGER)
    return cell_of(case, job, found[""], launched)


def hexes(fmt: Format, *rows: str) -> list[tuple[int, ...]]:
    """Patterns of elements given as hex floats, the inputs of each in one string."""
    return [tuple(fmt.parse(text) for text in row.split()) for row in rows]
