"""`verify.decide`: the tensor form against the exact definition, the native form against the tensor form, digests.

Hypothesis draws a descriptor of a batch; `expand` turns it into results around midpoints that lie on and beside
values, midpoints of values, powers of two, zero and overflow.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verify.decide import (
    BINS,
    CLAMP_ULP,
    COUNTS,
    QUANTUM,
    Decision,
    Enclosure,
    bound_of,
    decide_native,
    decide_tensors,
    digest,
    digest_tensors,
    exceeding,
    native_reason,
    salts,
)
from verify.formats import FORMATS, Format
from verify.truth import Truth
from verify.ulp import CLASSES, RANKS, Verdict, judge

WORDS = {16: torch.int16, 32: torch.int32}
RADII = ("exact", "tight", "wide", "undecided", "relative", "mixed")
native = pytest.mark.skipif(native_reason() is not None, reason=f"no native decision: {native_reason()}")


@dataclass(frozen=True)
class Batch:
    """What Hypothesis draws and shrinks; `expand` is a function of it."""

    dtype: str
    size: int
    seed: int
    radii: str
    sure: bool = False
    eager: bool = False
    scale: bool = False
    mask: bool = False
    subnormal: bool = False


@dataclass(frozen=True)
class Elements:
    fmt: Format
    y: torch.Tensor
    ball: Enclosure
    eager: torch.Tensor | None = None
    scale: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    subnormal: torch.Tensor | None = None

    def options(self) -> dict[str, torch.Tensor | None]:
        return {"eager": self.eager, "scale": self.scale, "mask": self.mask, "subnormal": self.subnormal}

    def one_by_one(self) -> Elements:
        """Each element in a row of its own, so that every one has its own counts."""

        def turned(t: torch.Tensor | None) -> torch.Tensor | None:
            return None if t is None else t.reshape(-1, 1)

        ball = replace(self.ball, mid=self.ball.mid.reshape(-1, 1), rad=turned(self.ball.rad))
        options = {name: turned(t) for name, t in self.options().items()}
        return Elements(self.fmt, self.y.reshape(-1, 1), ball, **options)


def batches(max_size: int, dtypes: Sequence[str] = ("float16", "bfloat16", "float32")) -> st.SearchStrategy[Batch]:
    flag = st.booleans()
    return st.builds(
        Batch,
        st.sampled_from(list(dtypes)),
        st.integers(1, max_size),
        st.integers(0, 2**32 - 1),
        st.sampled_from(RADII),
        flag,
        flag,
        flag,
        flag,
        flag,
    )


def pattern(fmt: Format, rng: random.Random) -> int:
    """A magnitude: special, subnormal, near the top, near a power of two, or any."""
    unit = 1 << fmt.mantissa_bits
    bits = rng.choice(
        [
            rng.choice([0, 1, 2, unit - 1, unit, unit + 1, fmt.inf_bits - 1, fmt.inf_bits]),
            rng.randrange(unit),
            fmt.inf_bits - 1 - rng.randrange(4),
            rng.randrange(1, fmt.inf_bits // unit) * unit + rng.choice([-1, 0, 1]),
            rng.randrange(fmt.inf_bits),
        ]
    )
    return bits | rng.choice([0, fmt.sign_bit])


def quantum(fmt: Format, bits: int) -> float:
    """Spacing of the values at a pattern."""
    field = bits >> fmt.mantissa_bits & ((1 << (fmt.bits - fmt.precision)) - 1)
    return float(2.0 ** (max(min(field, 2 * fmt.emax), 1) - fmt.emax - fmt.mantissa_bits))


def midpoint(fmt: Format, bits: int, rng: random.Random) -> float:
    if rng.random() < 0.05:
        huge = rng.choice([2.0**1000, 1e300, 2.0 ** (fmt.emax + 2)])
        return rng.choice([0.0, -0.0, float("inf"), float("-inf"), float("nan"), huge, -huge, -(2.0**-1000)])
    magnitude = min(bits & ~fmt.sign_bit, fmt.inf_bits - 1)
    value = float(fmt.fraction(magnitude)) * (-1 if bits & fmt.sign_bit else 1)
    step = quantum(fmt, bits)
    offset = rng.choice([0, 0.5, 1, 1.5, 0.25, -0.5, -0.25, -1, rng.uniform(-3, 3)])
    nudge = rng.choice([0, 0, 2.0**-12, -(2.0**-12), 2.0**-20, rng.uniform(-1e-6, 1e-6)])
    return value + (offset + nudge) * step


def result(fmt: Format, bits: int, rng: random.Random) -> int:
    """A result near the pattern, or a special one."""
    kind = rng.random()
    if kind < 0.08:
        return rng.choice([0, fmt.sign_bit, fmt.inf_bits, fmt.inf_bits | fmt.sign_bit, fmt.nan_bits])
    if kind < 0.14:
        return pattern(fmt, rng)
    sign, magnitude = bits & fmt.sign_bit, bits & ~fmt.sign_bit
    return sign | max(0, min(fmt.inf_bits, magnitude + rng.choice([0, 0, 0, 0, 1, 1, -1, -1, 2, -2, 5])))


def radius(mid: float, step: float, kind: str, rng: random.Random) -> float:
    """0, or at least 2^-52 |mid|, as `Enclosure` demands; NaN means undecided."""
    if kind == "mixed":
        kind = rng.choice(["exact", "tight", "wide", "undecided"])
    if kind == "exact":
        return 0.0
    if kind == "undecided":
        return rng.choice([float("nan"), float("inf"), 0.0])
    spread = step * rng.choice([2.0**-30, 2.0**-12, 0.25] if kind == "tight" else [0.5, 1.0, 8.0, 1e6])
    if kind == "wide" and math.isfinite(mid):
        spread = rng.choice([spread, spread, abs(mid) / 4, abs(mid) / 2])
    return max(spread, abs(mid) * 2.0**-52)


def expand(batch: Batch) -> Elements:
    fmt, rng = FORMATS[batch.dtype], random.Random(batch.seed)
    base = [pattern(fmt, rng) for _ in range(batch.size)]
    mid = [midpoint(fmt, bits, rng) for bits in base]
    y, eager = ([result(fmt, bits, rng) for bits in base] for _ in range(2))
    sizes = [quantum(fmt, bits) for bits in base]
    rad = [radius(m, size, batch.radii, rng) for m, size in zip(mid, sizes, strict=True)]
    scale = [rng.choice([0.0, 1.0, 16.0, 2.0**20]) * size * 2.0**fmt.mantissa_bits for size in sizes]
    relative = rng.choice([2.0**-50, 2.0**-30, 2.0**-8])
    absolute = rng.choice([0.0, 2.0**-1022, float(fmt.smallest_subnormal) / 8])
    if batch.radii == "relative":
        ball = Enclosure(doubles(mid), None, None, batch.sure, relative, absolute)
    else:
        ball = Enclosure(doubles(mid), doubles(rad), None, batch.sure)

    def chosen(wanted: bool, share: float) -> torch.Tensor | None:
        return torch.tensor([[rng.random() < share for _ in range(batch.size)]]) if wanted else None

    return Elements(
        fmt,
        patterns(y, fmt),
        ball,
        patterns(eager, fmt) if batch.eager else None,
        doubles(scale) if batch.scale else None,
        chosen(batch.mask, 0.7),
        chosen(batch.subnormal, 0.3),
    )


def doubles(values: Sequence[float]) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def patterns(bits: Sequence[int], fmt: Format) -> torch.Tensor:
    signed = [b - (1 << fmt.bits) if b & fmt.sign_bit else b for b in bits]
    return torch.tensor([signed], dtype=WORDS[fmt.bits]).view(getattr(torch, fmt.name))


def bits_of(t: torch.Tensor, fmt: Format) -> list[int]:
    return [b & ((1 << fmt.bits) - 1) for b in t.reshape(-1).view(WORDS[fmt.bits]).tolist()]


def same(a: Decision, b: Decision) -> None:
    names = [*COUNTS, *(f"<= {edge:g}" for edge in BINS)]
    left, right = (
        dict(zip(names, a.counts[:, 0].tolist(), strict=True)),
        dict(zip(names, b.counts[:, 0].tolist(), strict=True)),
    )
    assert left == right
    assert torch.equal(a.maxima.view(torch.int64), b.maxima.view(torch.int64))
    assert torch.equal(a.open, b.open)


@native
@settings(max_examples=150)
@given(batches(6000))
def test_native_and_tensor_decisions_are_equal_bit_for_bit(batch: Batch) -> None:
    e = expand(batch)
    same(decide_native(e.y, e.ball, e.fmt, **e.options()), decide_tensors(e.y, e.ball, e.fmt, **e.options()))


@native
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("radius", [None, 0.0, 2.0**-40])
@pytest.mark.parametrize("spoilt", ["nothing", "sign", "far side", "two steps", "zero", "infinite", "negative zero"])
def test_native_blocks_without_a_wrong_element_take_the_short_path(
    dtype: str, radius: float | None, spoilt: str
) -> None:
    """Several blocks of 4096 correct and faithful results, which have code of their own, one element spoilt or not,
    and alone or beside eager's results, a scale, a mask or subnormal inputs."""
    fmt = FORMATS[dtype]
    generator = torch.Generator().manual_seed(5)
    size = 3 * 4096 + 17
    reach = min(fmt.emax - 1, 60)
    mid = torch.randn(1, size, dtype=torch.float64, generator=generator)
    mid *= torch.exp2(torch.randint(-reach, reach, (1, size), generator=generator).double())
    mid = torch.where(mid.abs() < 2.0 ** (fmt.emin - fmt.precision - 2), 1.0, mid).clamp(-1e4, 1e4)
    if spoilt == "negative zero":
        mid[0, 5000] = 2.0 ** (fmt.emin - fmt.precision - 3)
    y = mid.to(getattr(torch, dtype))
    toward = torch.where(y.double() < mid, torch.inf, -torch.inf).to(y.dtype)
    other = torch.where(y.double() == mid, y, torch.nextafter(y, toward))
    y[:, ::7] = other[:, ::7]
    y[0, 5000] = {
        "nothing": y[0, 5000],
        "sign": -y[0, 5000],
        "far side": away(y[0, 5000], mid[0, 5000], 1),
        "two steps": away(y[0, 5000], mid[0, 5000], 2),
        "zero": 0 * y[0, 5000],
        "infinite": torch.tensor(torch.inf),
        "negative zero": torch.tensor(-0.0),
    }[spoilt]
    rad = None if radius is None else mid.abs() * radius
    ball = Enclosure(mid, rad, None, True, 2.0**-50, 2.0**-1022)
    tensors = decide_tensors(y, ball, fmt, eager=y.clone())
    same(decide_native(y, ball, fmt, eager=y.clone()), tensors)
    assert tensors.counts[COUNTS.index("faithful"), 0] > 100
    settled = {name: int(tensors.counts[COUNTS.index(name), 0]) for name in CLASSES}
    assert sum(settled.values()) - settled["correct"] - settled["faithful"] == int(spoilt != "nothing")
    other_eager, some = y.clone(), torch.ones(1, size, dtype=torch.bool)
    other_eager[0, 5000] = away(y[0, 5000], mid[0, 5000], 1)
    some[0, 3000:5000] = False
    for options in ({"eager": other_eager}, {"mask": some}, {"scale": mid.abs() * 4}, {"subnormal": some}):
        same(decide_native(y, ball, fmt, **options), decide_tensors(y, ball, fmt, **options))


@native
@settings(max_examples=100)
@given(batches(6000), st.sampled_from(["any", "equal", "equal in blocks"]))
def test_one_midpoint_for_all_elements_is_decided_as_many_equal_ones(batch: Batch, results: str) -> None:
    """The native form reads it once, and decides a block of equal results once."""
    e = expand(replace(batch, size=max(batch.size, 2)))
    mid = e.ball.mid[:, :1].expand_as(e.y)
    rad = None if e.ball.rad is None else e.ball.rad[:, :1].expand_as(e.y)
    if rad is not None and mid[0, 0] != 0:
        rad = torch.where(rad[:, :1] == 0, 0.0, rad[:, :1].clamp(min=abs(float(mid[0, 0])) * 2.0**-52)).expand_as(e.y)
    first = e.y[:, :1].expand_as(e.y)
    y = {"any": e.y, "equal": first, "equal in blocks": torch.where(torch.arange(e.y.numel()) < 4096, first, e.y)}
    options = e.options() | ({"eager": y[results].clone()} if results == "equal" and batch.eager else {})
    shared = replace(e.ball, mid=mid, rad=rad)
    spread = replace(shared, mid=mid.contiguous(), rad=None if rad is None else rad.contiguous())
    tensors = decide_tensors(y[results], spread, e.fmt, **options)
    same(decide_native(y[results], shared, e.fmt, **options), tensors)
    same(decide_native(y[results], spread, e.fmt, **options), tensors)


@native
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize("radius", [0.0, 2.0**-52, 2.0**-36, 2.0**-22, "subnormal"])
def test_close_calls_leave_the_short_path(dtype: str, sure: bool, radius: float | str) -> None:
    """A midpoint at and around half and whole steps from a result, in every binade and beside powers of two. Each in
    a block of its own, so that no other element sends it on to the general code."""
    fmt, rng = FORMATS[dtype], random.Random(7)
    offsets = [side * (base + k * 2.0**-23) for base in (0.0, 0.5, 1.0) for k in range(-12, 13, 3) for side in (1, -1)]
    offsets += [side * base for base in (0.2, 0.7, 0.9, 1.3, 1.7) for side in (1, -1)] * 2
    offsets += [side * (0.5 + tiny) for tiny in (2.0**-28, -(2.0**-30), 2.0**-32, 2.0**-34) for side in (1, -1)] * 2
    fields = [0, 1, 2, fmt.emax, fmt.emax + 1, 2 * fmt.emax - 1, 2 * fmt.emax]
    unit = 1 << fmt.mantissa_bits
    places = [(field, m) for field in fields for m in (0, 1, unit - 1, rng.randrange(unit))]
    chosen = rng.sample([(field, m, o) for field, m in places for o in offsets], 120)
    mids, results = [], []
    for field, mantissa, offset in chosen:
        bits = field << fmt.mantissa_bits | mantissa
        sign = rng.choice([0, fmt.sign_bit])
        mids.append((float(fmt.fraction(bits)) + offset * quantum(fmt, bits)) * (-1 if sign else 1))
        results.append(bits | sign)
    y, mid = patterns(results, fmt), doubles(mids)
    plain = torch.ones(1, 512, dtype=torch.float64) * 1.25
    for k in range(len(chosen)):
        mid_k, y_k = plain.clone(), plain.to(y.dtype)
        mid_k[0, k], y_k[0, k] = mid[0, k], y[0, k]
        ball = Enclosure(mid_k, mid_k * 0, None, sure)
        if radius == "subnormal":  # reaches over zero, and past an end of its binade
            least = float(fmt.smallest_subnormal)
            ball = Enclosure(mid_k, None, None, sure, 2.0**-52, least * rng.choice([0.05, 0.25]))
        elif radius:
            ball = Enclosure(mid_k, None, None, sure, float(radius), 0.0)
        same(decide_native(y_k, ball, fmt), decide_tensors(y_k, ball, fmt))
        eager = torch.nextafter(y_k, torch.where(y_k.double() < mid_k, torch.inf, -torch.inf).to(y_k.dtype))
        same(decide_native(y_k, ball, fmt, eager=eager), decide_tensors(y_k, ball, fmt, eager=eager))


@native
@settings(max_examples=100)
@given(batches(3000), st.sampled_from([0.0, 0.25, 0.4999, 0.5, 1.0, 3.0, 1e6]))
def test_elements_that_may_exceed_a_floor(batch: Batch, floor: float) -> None:
    """The native form against tensors, and both against the bounds that the decision gives one by one."""
    e = expand(replace(batch, eager=False, scale=False, mask=False, subnormal=False))
    found = exceeding(e.y, e.ball, e.fmt, floor, e.y.numel())
    single = e.one_by_one()
    maxima = decide_tensors(single.y, single.ball, e.fmt).maxima[0]
    assert found is not None and found.tolist() == sorted(set(found.tolist()))
    assert set((maxima > floor).nonzero()[:, 0].tolist()) <= set(found.tolist())
    with mock.patch("verify.decide.native_reason", return_value="not now"):
        by_tensors = exceeding(e.y, e.ball, e.fmt, floor, e.y.numel())
    assert by_tensors is not None and found.tolist() == by_tensors.tolist()
    if len(found):
        assert exceeding(e.y, e.ball, e.fmt, floor, len(found) - 1) is None


def away(y: torch.Tensor, mid: torch.Tensor, steps: int) -> torch.Tensor:
    """The neighbour of RN(mid), or the one after it, on the side where mid is not."""
    nearest = mid.to(y.dtype)
    for _ in range(steps):
        y = torch.nextafter(nearest, torch.where(mid > nearest, -torch.inf, torch.inf).to(y.dtype))
        nearest = y
    return y


def possible(mid: float, rad: float, sure: bool, rng: random.Random) -> list[Truth]:
    """Truths that the ball admits: its ends, its midpoint and random points; `sure` keeps the sign of mid."""
    if mid != mid:
        return [Truth("nan")] if rad == 0 else []
    if abs(mid) == float("inf"):
        large = Fraction(2) ** 1030
        kind = Truth("+inf") if mid > 0 else Truth("-inf")
        return [kind, *([Truth.real(large, large)] if mid > 0 else [Truth.real(-large, -large)])] if rad == 0 else []
    if rad != rad or rad == float("inf"):
        return []
    centre, reach = Fraction(mid), Fraction(rad)
    if not reach:
        zero = Truth("-0") if str(mid)[0] == "-" else Truth("+0")
        return [Truth.real(centre, centre) if centre else zero]
    points = [centre, centre - reach, centre + reach]
    points += [centre + reach * Fraction(rng.uniform(-1, 1)) for _ in range(2)]
    negative = str(mid)[0] == "-"
    if sure:
        tiny = Fraction(1, 2**900)
        points = [p if (p < 0) == negative and p else (-tiny if negative else tiny) for p in points]
    found = [Truth.real(p, p) for p in points if p]
    if not sure and abs(centre) <= reach:
        found += [Truth("+0"), Truth("-0")]
    return found


def verdict_of(bits: int, truth: Truth, fmt: Format, scale: float | None) -> Verdict:
    size = None if scale is None else Truth.real(Fraction(scale or 2.0**-1000), Fraction(scale or 2.0**-1000))
    verdict = judge(bits, truth, fmt, size)
    assert verdict is not None
    return verdict


@settings(max_examples=150)
@given(batches(60))
def test_tensor_decisions_agree_with_the_exact_ones_on_every_truth_in_the_ball(batch: Batch) -> None:
    e = expand(batch)
    fmt, rng = e.fmt, random.Random(batch.seed + 1)
    single = e.one_by_one()
    decision = decide_tensors(single.y, single.ball, fmt, **single.options())
    width, rad = e.ball.within(fmt)[0], e.ball.within(fmt)[1]
    limit = 2.0 ** (fmt.emax + 2)
    assert bool((width.abs() <= limit).logical_or(width.isnan()).all())
    given_eager = None if e.eager is None else bits_of(e.eager, fmt)
    for k, bits in enumerate(bits_of(e.y, fmt)):
        counts = dict(zip(COUNTS, decision.counts[:, k].tolist(), strict=False))
        looked_at = e.mask is None or bool(e.mask[0, k])
        settled = looked_at and not bool(decision.open[k, 0])
        classes = {name for name in CLASSES if counts[name]}
        assert counts["open"] == int(looked_at and not settled)
        assert len(classes) == int(settled) and sum(counts[name] for name in CLASSES) == int(settled)
        mid = float(e.ball.mid[0, k])
        reach = float(rad[0, k]) if e.ball.rad is None else float(e.ball.rad[0, k])
        truths = possible(mid, reach, e.ball.sure, rng)
        scale = None if e.scale is None else float(e.scale[0, k])
        verdicts = [verdict_of(bits, truth, fmt, scale) for truth in truths]
        if not settled:
            explained = e.subnormal is not None and bool(e.subnormal[0, k])
            far = given_eager is not None and any(v.high is not None and v.high > 8 for v in verdicts)
            if reach == 0 and abs(mid) != float("inf") and looked_at:
                assert explained or far, f"{fmt.hex(bits)} against {mid.hex()} is open, though exact"
            continue
        assert classes == {v.cls for v in verdicts}, (fmt.hex(bits), mid.hex(), reach.hex())
        check_numbers(counts, decision.maxima[:, k].tolist(), verdicts, reach == 0)
        if given_eager is not None:
            check_eager(counts, bits, given_eager[k], truths, fmt)


def check_numbers(counts: dict[str, int], maxima: list[float], verdicts: list[Verdict], exact: bool) -> None:
    """Sums, steps and maxima of one settled element."""
    assert counts["measured"] == int(
        any(v.high is not None and v.cls not in ("flushed", "nan_mismatch") for v in verdicts)
    )
    if not counts["measured"]:
        assert counts["sum"] == counts["max_int"] == counts["clamped"] == 0 and maxima == [0.0, 0.0]
        return
    numbers = [v for v in verdicts if v.high is not None and v.low is not None]
    assert {v.steps for v in numbers} == {counts["max_int"]}
    highest = max(float(v.high) for v in numbers if v.high is not None)
    assert highest <= maxima[0] or highest == float("inf")
    assert float(max(v.scaled or 0 for v in numbers)) <= maxima[1] * (1 + 2.0**-50)
    if exact:
        only = numbers[0]
        assert only.high is not None and {v.high for v in numbers} == {only.high}
        error = min(only.high, Fraction(CLAMP_ULP))
        assert maxima[0] <= float(only.high) * (1 + 2.0**-40)
        assert abs(Fraction(counts["sum"], int(QUANTUM)) - error) <= Fraction(1, 2**17) + error * Fraction(1, 2**50)
        assert counts["sum_signed"] == counts["sum"] * (only.sign or 1)
        assert counts["clamped"] == int(only.high > CLAMP_ULP)


def check_eager(counts: dict[str, int], mine: int, theirs: int, truths: list[Truth], fmt: Format) -> None:
    """Who is closer, for every truth alike."""
    alike = mine == theirs or (fmt.is_nan(mine) and fmt.is_nan(theirs))
    assert counts["different"] == int(not alike)
    assert counts["closer"] + counts["farther"] + counts["tied"] == counts["different"]
    if alike:
        return
    for truth in truths:
        a, b = verdict_of(mine, truth, fmt, None), verdict_of(theirs, truth, fmt, None)
        if a.cls == "flushed":
            continue
        if a.high is None or b.high is None:
            ours, other = RANKS.get(a.cls, 1), RANKS.get(b.cls, 1)
        else:
            ours, other = a.high, b.high
        side = "closer" if ours < other else "farther" if ours > other else "tied"
        assert counts[side] == 1, (fmt.hex(mine), fmt.hex(theirs), truth)


@pytest.mark.parametrize("truth", [1.0, float("nan"), float("inf"), -0.0])
@pytest.mark.parametrize("form", [decide_tensors, decide_native])
def test_a_nan_is_closer_where_it_is_due_and_farther_elsewhere(truth: float, form: Callable[..., Decision]) -> None:
    if form is decide_native and (reason := native_reason()):
        pytest.skip(reason)
    mine, theirs = torch.tensor([[1.0, torch.nan]]), torch.tensor([[torch.nan, 1.0]])
    exact = Enclosure(torch.full((1, 2), truth, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64))
    counts = dict(zip(COUNTS, form(mine, exact, FORMATS["float32"], eager=theirs).counts[:, 0].tolist(), strict=False))
    number_is_open = truth == torch.inf  # a number for an infinite truth is multiprecision's business
    assert (counts["closer"], counts["farther"], counts["tied"]) == (1 - number_is_open, 1, 0)


@settings(max_examples=60)
@given(batches(40), st.sampled_from([0.0, 2.0**-108, 2.0**-80]))
def test_tails_decide_what_float64_leaves_open(batch: Batch, relative: float) -> None:
    """Double-double midpoints: on a tie or a value to within the tail, which alone tells the side."""
    e = expand(replace(batch, radii="exact", eager=False, scale=False, mask=False, subnormal=False, sure=False))
    rng, fmt = random.Random(batch.seed + 2), e.fmt
    mid = torch.nan_to_num(e.ball.mid, nan=1.0, posinf=2.0, neginf=-2.0)
    unit = torch.frexp(mid)[0].sign() * torch.exp2(torch.frexp(mid)[1].double() - 54).clamp(min=2.0**-1000)
    tail = unit * doubles([rng.choice([0, 1, -1, 0.5, 2.0**-20, -(2.0**-20)]) for _ in range(batch.size)])
    ball = Enclosure(mid, mid.abs() * relative, tail)
    column = Enclosure(mid.reshape(-1, 1), (mid.abs() * relative).reshape(-1, 1), tail.reshape(-1, 1))
    decision = decide_tensors(e.y.reshape(-1, 1), column, fmt)
    for k, bits in enumerate(bits_of(e.y, fmt)):
        centre = Fraction(float(ball.mid[0, k])) + Fraction(float(tail[0, k]))
        reach = Fraction(float(column.rad[k, 0])) if column.rad is not None else Fraction(0)
        settled = not bool(decision.open[k, 0])
        if not reach:
            assert settled
        if not settled:
            continue
        (cls,) = [name for name in CLASSES if decision.counts[COUNTS.index(name), k]]
        zero = Truth("-0") if str(float(ball.mid[0, k]))[0] == "-" else Truth("+0")
        for t in (centre - reach, centre, centre + reach):
            assert verdict_of(bits, Truth.real(t, t) if t else zero, fmt, None).cls == cls


def test_a_tail_alone_tells_the_side_of_a_tie() -> None:
    tie = 1 + 2.0**-24  # halfway between 1 and the next float32
    y = torch.tensor([[1.0, 1.0, 1.0, 1 + 2.0**-23, 1 + 2.0**-23]], dtype=torch.float32)
    tail = doubles([0.0, -(2.0**-90), 2.0**-90, 2.0**-90, -(2.0**-90)])
    ball = Enclosure(torch.full((1, 5), tie, dtype=torch.float64), torch.zeros(1, 5, dtype=torch.float64), tail)
    decision = decide_tensors(y, ball, FORMATS["float32"])
    assert decision.codes is not None
    classes = [COUNTS[code] for code in decision.codes[0].tolist()]
    assert classes == ["correct", "correct", "faithful", "correct", "faithful"]


@pytest.mark.parametrize("radius", [float("inf"), float("nan")])
@pytest.mark.parametrize("mid", [1.0, float("inf"), 2.0**1000, float("nan")])
def test_a_radius_that_is_not_finite_is_undecided(mid: float, radius: float) -> None:
    """Also where the midpoint overflowed: the real value may be anything."""
    for bits in (0x3F800000, 0x7F800000, 0x7FC00000):
        y = patterns([bits], FORMATS["float32"])
        ball = Enclosure(doubles([mid]), doubles([radius]))
        assert bool(decide_tensors(y, ball, FORMATS["float32"]).open.all())
        if native_reason() is None:
            assert bool(decide_native(y, ball, FORMATS["float32"]).open.all())


@pytest.mark.parametrize("steps", [1, 2, 3, 700, 5000])
def test_the_bound_of_an_exact_error(steps: int) -> None:
    """By which a sweep tells errors apart that differ by one float."""
    y, ball = patterns([0x3F800000 + steps], FORMATS["float32"]), Enclosure(doubles([1.0]), doubles([0.0]))
    assert decide_tensors(y, ball, FORMATS["float32"]).maxima[0, 0] == bound_of(float(steps))


def test_the_native_form_refuses_tails() -> None:
    one = doubles([1.0])
    with pytest.raises(ValueError, match="no tails"):
        decide_native(torch.ones(1, 1), Enclosure(one, one * 0, one * 0), FORMATS["float32"])


# Digests


def mix(z: int) -> int:
    """Stafford's variant 13, in Python's integers."""
    mask = (1 << 64) - 1
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def written_out(bits: Sequence[int], fmt: Format, start: int = 0) -> int:
    total = 0
    for k, b in enumerate(bits):
        total += mix((fmt.nan_bits if fmt.is_nan(b) else b) ^ (start + k + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
    return total & (1 << 64) - 1


#: Published: format, patterns, position of the first, digest. A digest in a report can be checked against these.
#: The first one is splitmix64's first output for seed 0 (Steele, Lea & Flood 2014).
VECTORS = [
    ("float32", (0x00000000,), 0, "0xe220a8397b1dcdaf"),
    ("float32", (0x3F800000, 0xBF800000, 0x7F800000), 0, "0xec94a5bcd4418418"),
    ("float32", (0x7FC00000, 0xFFFFFFFF, 0x80000000), 1 << 20, "0xf45102234c7751c8"),
    ("float16", (0x3C00, 0x8000, 0x7E01), 0, "0xe42cf68a0acc5b5c"),
    ("bfloat16", (0x3F80, 0x7F80, 0xFFC1), 7, "0x9d5fa92c27abedc9"),
    ("float64", (0x3FF0000000000000, 0x8000000000000000, 0x7FF8000000000000), 0, "0x5eef4704448473c0"),
]


def integers(bits: Sequence[int], fmt: Format) -> torch.Tensor:
    word = {16: torch.int16, 32: torch.int32, 64: torch.int64}[fmt.bits]
    return torch.tensor([b - (1 << fmt.bits) if b >> (fmt.bits - 1) else b for b in bits], dtype=word)


@pytest.mark.parametrize(("dtype", "bits", "start", "expected"), VECTORS)
def test_published_digests(dtype: str, bits: tuple[int, ...], start: int, expected: str) -> None:
    fmt = FORMATS[dtype]
    column = integers(bits, fmt)
    assert f"{digest(column, fmt, start):#018x}" == expected
    by_tensors = int(digest_tensors(column.reshape(1, -1), fmt, salts(column.numel(), start, "cpu"))) & ((1 << 64) - 1)
    assert f"{by_tensors:#018x}" == expected
    assert f"{written_out(bits, fmt, start):#018x}" == expected


@given(st.sampled_from(list(FORMATS)), st.integers(0, 2**32), st.integers(1, 300), st.integers(0, 2**40))
def test_digests_in_all_forms_agree_add_up_and_depend_on_position(dtype: str, seed: int, size: int, start: int) -> None:
    fmt, rng = FORMATS[dtype], random.Random(seed)
    bits = [rng.choice([rng.randrange(1 << fmt.bits), fmt.nan_bits + rng.randrange(4)]) for _ in range(size)]
    column = integers(bits, fmt)
    value = digest(column, fmt, start)
    assert value == int(digest_tensors(column.reshape(1, -1), fmt, salts(column.numel(), start, "cpu"))) & (
        (1 << 64) - 1
    )
    assert value == written_out(bits, fmt, start)
    cut = rng.randrange(size + 1)
    parts = digest(column[:cut], fmt, start) + digest(column[cut:], fmt, start + cut)
    assert value == parts & ((1 << 64) - 1)
    assert value != digest(column, fmt, start + 1)
    i, j = rng.randrange(size), rng.randrange(size)
    swapped = column.clone()
    swapped[[i, j]] = column[[j, i]]
    both_nan = fmt.is_nan(bits[i]) and fmt.is_nan(bits[j])
    assert (digest(swapped, fmt, start) == value) == (bits[i] == bits[j] or both_nan)
    flipped = column.clone()
    flipped[i] ^= 1
    same_nan = fmt.is_nan(bits[i]) and fmt.is_nan(bits[i] ^ 1)
    assert (digest(flipped, fmt, start) == value) == same_nan
