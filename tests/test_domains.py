"""Domains: the same bits everywhere, exact sizes, and strong enough to catch mutants that are wrong in a corner."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
import torch

from judging import to_bits
from mutants.boxes import kill_rate, random_boxes
from verify import native
from verify.facts.formats import FORMATS, Format, floor_log2
from verify.facts.kernel import Kernel, Scalars, elementwise, elementwise_names, load
from verify.inputs import domains, draws, strata
from verify.inputs.corners import negative_zero, subnormal
from verify.inputs.domains import CHUNK, Domain, Draw, Stratum, domain_of
from verify.numbers.ball import Ball64

UNARY = [name for name in elementwise_names() if load(name).inputs == ("x",)]
CASES = [
    pytest.param(load(name), case, id=f"{name}-{case}") for name in elementwise_names() for case in load(name).cases
]
FORMAT_IDS = list(FORMATS)


def draw(fmt: Format, count: int = 1 << 12, stratum: str = "test") -> Draw:
    return Draw(fmt, torch.arange(count), 0, stratum)


def unsigned(fmt: Format, bits: torch.Tensor) -> list[int]:
    return [int(b) & ((1 << fmt.bits) - 1) for b in bits]


# The generator


def lowbias32(word: int) -> int:
    """The published code, on unsigned 32-bit words."""
    word ^= word >> 16
    word = word * 0x7FEB352D % 2**32
    word ^= word >> 15
    word = word * 0x846CA68B % 2**32
    return word ^ (word >> 16)


def test_mix_is_lowbias32() -> None:
    words = [0, 1, 2, 0x80000000, 0xFFFFFFFF, *(lowbias32(i) for i in range(1000))]
    expected = [lowbias32(word) for word in words]
    assert [draws.mix(word) for word in words] == expected
    assert draws.mix(torch.tensor(words)).tolist() == expected


#: Patterns of the elements 0, 1, 1000003 and 4294967295 of a stratum 'vector' under seed 12345.
VECTORS = {
    "float16": [0x65F6, 0x71B1, 0x18CB, 0x1F09],
    "bfloat16": [0x65F6, 0x71B1, 0x18CB, 0x1F09],
    "float32": [0x65F6A16B, 0x71B12B85, 0x18CB9744, 0x1F09FF89],
    "float64": [0x65F6A16B5673B65C, 0x71B12B850FFC4CE0, 0x18CB9744F9E05A53, 0x1F09FF89256E5E78],
}


@pytest.mark.parametrize("name", FORMAT_IDS)
def test_published_vectors(name: str) -> None:
    fmt = FORMATS[name]
    d = Draw(fmt, torch.tensor([0, 1, 1000003, 4294967295]), 12345, "vector")
    assert unsigned(fmt, d.bits()) == VECTORS[name]


def test_words_depend_on_seed_stratum_and_lane() -> None:
    index = torch.arange(1 << 16)
    first = Draw(FORMATS["float32"], index, 0, "a")
    words = [first.word(), first.word(), Draw(first.fmt, index, 1, "a").word(), Draw(first.fmt, index, 0, "b").word()]
    for i, one in enumerate(words):
        for other in words[:i]:
            assert (one == other).sum() <= 3  # 2^16 pairs agree by chance with probability 2^-16


def test_words_are_the_same_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    index = torch.cat([torch.arange(1000), torch.arange(2**32 - 1000, 2**32)])
    fast = Draw(FORMATS["float32"], index, 7, "s").word()
    monkeypatch.setattr(native, "host", lambda: None)
    assert torch.equal(Draw(FORMATS["float32"], index, 7, "s").word(), fast)


def test_words_are_uniform() -> None:
    word = draw(FORMATS["float32"], 1 << 18).word()
    assert word.min() >= 0
    assert word.max() < 1 << 32
    counts = torch.bincount(word >> 24, minlength=256).double()
    assert float(((counts - 1024) ** 2 / 1024).sum()) < 360  # chi-squared, 255 degrees of freedom: 1e-5
    for bit in range(32):
        assert abs(float((word >> bit & 1).double().mean()) - 0.5) < 0.005


def test_draws_reach_all_of_their_range() -> None:
    d = draw(FORMATS["float32"])
    assert set(d.integer(-3, 4).tolist()) == set(range(-3, 5))
    assert set(d.integer(d.index % 3, 2).sub(d.index % 3).tolist()) == {0, 1, 2}
    assert set(d.pick([7, 0, 9]).tolist()) == {7, 0, 9}
    even = float((d.either(d.index * 0, d.index * 0 + 1) == 0).double().mean())
    assert 0.45 < even < 0.55
    reals = d.real(-2.0, 6.0)
    assert -2.0 <= float(reals.min()) < -1.9
    assert 5.9 < float(reals.max()) < 6.0
    lengths = [abs(int(step)).bit_length() for step in d.spread(9)]
    assert set(lengths) == set(range(10))
    assert 0.08 < lengths.count(0) / len(lengths) < 0.12
    signs = d.signed(d.index * 0) >> 31
    assert 0.45 < float(signs.double().mean()) < 0.55


def every_domain(kernel: str, name: str, most: int) -> Iterator[Domain]:
    """Those that are drawn, of a kernel in a format."""
    facts = elementwise(kernel)
    for scalars in facts.cases if name in facts.dtypes else ():
        domain = domain_of(facts, FORMATS[name], scalars, "default", most=most)
        if domain.kind == "strata":
            yield domain


@pytest.mark.gpu
@pytest.mark.parametrize("name", FORMAT_IDS)
@pytest.mark.parametrize("kernel", elementwise_names())
def test_a_gpu_draws_the_same_bits(kernel: str, name: str) -> None:
    device = torch.accelerator.current_accelerator()
    for domain in every_domain(kernel, name, 3 << 20):
        words = [t.view(getattr(torch, f"int{domain.fmt.bits}")) for t in domain.span(0, domain.size, device)]
        for here, there in zip(domain.bits(0, domain.size, "cpu"), words, strict=True):
            assert torch.equal(here.to(there.dtype), there.cpu())


@pytest.mark.part(2)
@pytest.mark.parametrize("name", FORMAT_IDS)
@pytest.mark.parametrize("kernel", elementwise_names())
def test_strata_that_are_drawn_together_are_the_same(kernel: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As GPUs draw them, of several blocks."""
    monkeypatch.setattr(domains, "BLOCK", 1 << 12)
    for domain in every_domain(kernel, name, 9000):
        start, stop = 100, domain.size - 77
        alone = domain.bits(start, stop, "cpu")
        for most in (1 << 22, 3000):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(domains, "HOST", ())
                patch.setattr(domains, "TOGETHER_THERE", most)
                assert all(map(torch.equal, alone, domain.bits(start, stop, "cpu")))


# Bit patterns and guides


@pytest.mark.parametrize("name", FORMAT_IDS)
def test_encode_rounds_toward_zero(name: str) -> None:
    fmt = FORMATS[name]
    d = draw(fmt, 500)
    exponent = d.integer(max(fmt.emin - fmt.precision - 2, -1022), fmt.emax)
    wide = draws.with_sign(
        FORMATS["float64"], draws.pack(FORMATS["float64"], exponent, d.wide() >> 10), -(d.word() >> 31)
    ).view(torch.float64)
    for value, bits in zip(wide.tolist(), unsigned(fmt, d.encode(wide)), strict=True):
        magnitude = fmt.fraction(bits & ~fmt.sign_bit)
        assert magnitude <= abs(Fraction(value)) < fmt.fraction((bits & ~fmt.sign_bit) + 1)
        assert (bits & fmt.sign_bit != 0) == (math.copysign(1, value) < 0)


@pytest.mark.parametrize("name", FORMAT_IDS)
def test_patterns_of_tensors(name: str) -> None:
    fmt = FORMATS[name]
    bits = draw(fmt).bits()
    assert torch.equal(to_bits(draws.to_tensor(fmt, bits)), bits)
    finite = draw(fmt, 200).finite()
    for pattern, value in zip(unsigned(fmt, finite), draws.to_reals(fmt, finite).tolist(), strict=True):
        assert fmt.fraction(pattern) == Fraction(value)


@pytest.mark.parametrize("name", FORMAT_IDS)
def test_step_stops_at_zero_and_infinity(name: str) -> None:
    fmt = FORMATS[name]
    bits = torch.tensor([draws.as_int64(fmt, b) for b in (0, 1, fmt.inf_bits - 1, fmt.sign_bit | 1, fmt.inf_bits)])
    up, down = torch.full_like(bits, 1 << 53), torch.full_like(bits, -(1 << 53))
    sign = [0, 0, 0, fmt.sign_bit, 0]
    assert unsigned(fmt, draws.step(fmt, bits, up))[2:] == [
        fmt.inf_bits,
        sign[3] | min(1 + (1 << 53), fmt.inf_bits),
        fmt.inf_bits,
    ]
    assert unsigned(fmt, draws.step(fmt, bits[:2], down[:2])) == [0, 0]


def test_log2_and_exp2_series() -> None:
    d = draw(FORMATS["float64"])
    values = draws.to_reals(d.fmt, d.value(d.integer(d.fmt.emin, d.fmt.emax))).abs()
    near_one = draws.to_reals(d.fmt, d.near(d.constant("1"), 40))
    for x, y in zip(
        values.tolist() + near_one.tolist(), draws.log2(torch.cat([values, near_one])).tolist(), strict=True
    ):
        assert math.isclose(y, math.log2(x), rel_tol=2.0**-44, abs_tol=2.0**-60)
    exponents = d.real(-1020.0, 1020.0)
    for x, y in zip(exponents.tolist(), draws.exp2(exponents).tolist(), strict=True):
        assert math.isclose(y, 2.0**x, rel_tol=2.0**-42)


@pytest.mark.parametrize("name", FORMAT_IDS)
def test_quotients_near_midpoints(name: str) -> None:
    fmt = FORMATS[name]
    d = draw(fmt, 500)
    a, b = strata.quotient_near_midpoint(d, d.integer(-2, 2), d.integer(-2, 2))
    near = 0
    for x, y in zip(unsigned(fmt, a), unsigned(fmt, b), strict=True):
        quotient = abs(fmt.fraction(x) / fmt.fraction(y))
        midpoints = quotient * Fraction(2) ** (fmt.precision - floor_log2(quotient))  # odd integers are midpoints
        near += round(midpoints) % 2 == 1 and abs(midpoints - round(midpoints)) <= Fraction(4, 2 ** (fmt.precision - 1))
    assert near > 250


# Strata and domains


def test_specials_enumerate_every_tuple() -> None:
    fmt = FORMATS["float16"]
    listed = strata.specials(fmt)
    first, *_ = strata.compose(fmt, 2, 1 << 14, strata.bits(2))
    domain = Domain("strata", fmt, ("x", "y"), (first,))
    pairs = {domain.replay(i) for i in range(first.size)}
    assert pairs == {(x, y) for x in listed for y in listed}
    values = {fmt.hex(p) for p in listed}
    assert {"0x0p+0", "-0x0p+0", "inf", "-inf", "nan", "0x1p+0", "-0x1p+0", "0x1.ffcp+15", "0x0.004p-14"} <= values


@pytest.mark.parametrize("profile", ["quick", "default"])
@pytest.mark.parametrize(("kernel", "case"), CASES)
def test_sizes_are_exact(kernel, case, profile: str) -> None:  # type: ignore[no-untyped-def]
    for fmt in FORMATS.values():
        domain = domain_of(kernel, fmt, case, profile)
        if len(domain.names) == 1 and fmt.bits == 16:
            assert (domain.kind, domain.size) == ("exhaustive", 1 << 16)
        else:
            power = {"quick": 14, "default": 18} if fmt.bits == 64 else {"quick": 17, "default": 22}
            assert domain.size == 1 << power[profile]
            assert len({s.name for s in domain.strata}) == len(domain.strata)


@pytest.mark.parametrize("kernel", ["addcmul", "pow"])
def test_elements_do_not_depend_on_the_span(kernel: str) -> None:
    for fmt in FORMATS.values():
        domain = domain_of(load(kernel), fmt, load(kernel).cases[0], "quick")
        whole = domain.bits(0, domain.size, "cpu")
        parts = [domain.bits(i, min(i + 1777, domain.size), "cpu") for i in range(0, domain.size, 1777)]
        for column, pieces in zip(whole, zip(*parts, strict=True), strict=True):
            assert torch.equal(column, torch.cat(pieces))
        tensors = domain.chunk(0, "cpu")
        assert all(torch.equal(to_bits(t), column) for t, column in zip(tensors, whole, strict=True))
        index = domain.size // 2
        assert domain.replay(index) == tuple(unsigned(fmt, c[index : index + 1])[0] for c in whole)


def test_seeds_give_other_elements() -> None:
    one, other = (domain_of(load("add"), FORMATS["float32"], {"alpha": 1.0}, "quick", seed) for seed in (0, 1))
    same = one.bits(0, one.size, "cpu")[0] == other.bits(0, other.size, "cpu")[0]
    assert same.sum() < one.strata[0].size + one.size // 10


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_exhaustive_domains_count_up(name: str) -> None:
    fmt = FORMATS[name]
    domain = domain_of(load("exp"), fmt, {}, "exhaustive")
    assert domain.size == 1 << fmt.bits
    assert len(domain.chunks()) == max(1, domain.size // CHUNK)
    for number in {0, len(domain.chunks()) // 2, len(domain.chunks()) - 1}:
        (tensor,) = domain.chunk(number, "cpu")
        bits = to_bits(tensor)
        assert tensor.dtype == getattr(torch, name)
        assert torch.equal(bits, torch.arange(len(bits)) + number * CHUNK)
    middle = domain.size // 2
    assert to_bits(domain.span(middle - 2, middle + 2, "cpu")[0]).tolist() == list(range(middle - 2, middle + 2))
    assert domain.replay(domain.size - 1) == (domain.size - 1,)


def test_triples_count_up_where_they_are_asked_for() -> None:
    fmt, facts = FORMATS["bfloat16"], load("addcmul")
    assert domain_of(facts, fmt, {"value": 1.0}, "exhaustive").size == 1 << 24
    assert domain_of(facts, FORMATS["float32"], {"value": 1.0}, "exhaustive", triples=True).size == 1 << 24
    domain = domain_of(facts, fmt, {"value": 1.0}, "exhaustive", triples=True)
    assert (domain.kind, domain.size) == ("exhaustive", 1 << 48)
    for start, stop in ((0x7FFF_FFFE_0000, 0x8000_0001_0000), (0xFFFF_FFFF_FF00, 1 << 48), (0x1234_5678_9ABC, None)):
        stop = stop or start + 70_000
        index = torch.arange(start, stop)
        for t, shift in zip(domain.span(start, stop, "cpu"), (32, 16, 0), strict=True):
            assert torch.equal(to_bits(t), index >> shift & 0xFFFF) and t.is_contiguous()
    assert domain.replay(0x1234_5678_9ABC) == (0x1234, 0x5678, 0x9ABC)


@pytest.mark.parametrize("name", FORMAT_IDS)
def test_listed_domains_replay(name: str) -> None:
    fmt = FORMATS[name]
    patterns = ((fmt.nan_bits, 0), (fmt.sign_bit | 1, fmt.inf_bits), (fmt.sign_bit | fmt.nan_bits, 1))
    domain = Domain("list", fmt, ("a", "b"), patterns=patterns)
    assert tuple(domain.replay(i) for i in range(domain.size)) == patterns
    columns = zip(*(unsigned(fmt, to_bits(t)) for t in domain.chunk(0, "cpu")), strict=True)
    assert tuple(columns) == patterns


def test_impossible_domains_are_refused() -> None:
    fmt = FORMATS["float64"]
    with pytest.raises(ValueError, match="expected 'strata', 'exhaustive' or 'list'"):
        Domain("random", fmt, ("x",))
    with pytest.raises(ValueError, match="at most 48 bits"):
        Domain("exhaustive", fmt, ("x",))
    with pytest.raises(ValueError, match="1 patterns for the 2 inputs a, b"):
        Domain("list", fmt, ("a", "b"), patterns=((1,),))
    with pytest.raises(ValueError, match="expected one of quick, default, exhaustive"):
        domain_of(load("add"), fmt, {"alpha": 1.0}, "full")
    with pytest.raises(ValueError, match="32 bits"):
        Stratum("huge", 1 << 33, lambda d: ())


# Strength


def elements(kernel: Kernel, fmt: Format, case: Scalars) -> tuple[dict[str, Any], Any, Any]:
    """The default domain's first chunk as float64 values, scalars too; the result in float64, and its scale."""
    domain = domain_of(kernel, fmt, case, "default")
    columns = domain.bits(0, min(domain.size, CHUNK), "cpu")
    values = {name: draws.to_reals(fmt, bits) for name, bits in zip(domain.names, columns, strict=True)}
    like = next(iter(values.values()))
    values |= {name: torch.full_like(like, scalar) for name, scalar in case.items()}
    n = Ball64("cpu")
    functions = kernel.oracle.function, kernel.oracle.scale or kernel.oracle.function
    t, s = (function(n, **{name: n.input(v) for name, v in values.items()}).mid for function in functions)
    return values, t, s.abs()


CORNERS = [
    pytest.param(load(name), case, corners, fmt, id=f"{name}-{dict(case)}-{fmt}")
    for name in elementwise_names()
    for case, corners in ((load(name).cases[0], load(name).checks.corners), *load(name).checks.in_cases)
    for fmt in ("float32", "bfloat16")
    if fmt == "float32" or (len(load(name).inputs) > 1 and case == {})
]


@pytest.mark.parametrize(("kernel", "case", "corners", "name"), CORNERS)
def test_kernels_that_are_wrong_in_a_corner_are_caught(kernel, case, corners, name: str) -> None:  # type: ignore[no-untyped-def]
    fmt = FORMATS[name]
    values, t, s = elements(kernel, fmt, case)
    found = {corner: int(wrong(fmt, values, t, s).sum()) for corner, wrong in corners.items()}
    # One element would do to catch a mutant; 50 say that the corner is aimed at, not met by chance.
    assert found and {corner: count for corner, count in found.items() if count < 50} == {}


@pytest.mark.parametrize("name", FORMAT_IDS)
@pytest.mark.parametrize("kernel", elementwise_names())
def test_quick_domains_hold_every_class_of_values(kernel: str, name: str) -> None:
    fmt = FORMATS[name]
    domain = domain_of(load(kernel), fmt, load(kernel).cases[0], "quick")
    for bits in domain.bits(0, domain.size, "cpu"):
        values = draws.to_reals(fmt, bits)
        classes = (
            values.isnan(),
            values == math.inf,
            values == -math.inf,
            negative_zero(values),
            subnormal(fmt, values),
        )
        assert all(bool(c.any()) for c in classes)
        assert float((values.isfinite() & (values != 0)).double().mean()) > 0.7


@pytest.mark.parametrize("name", FORMAT_IDS)
def test_nans_are_quiet(name: str) -> None:
    fmt = FORMATS[name]
    quiet = fmt.nan_bits ^ fmt.inf_bits
    for bits in domain_of(load("pow"), fmt, {}, "quick").bits(0, 1 << 12, "cpu"):
        nan = draws.to_reals(fmt, bits).isnan()
        assert nan.any()
        assert bool((bits[nan] & quiet != 0).all())


@pytest.mark.parametrize("kernel", [name for name in elementwise_names() if len(load(name).inputs) > 1])
def test_results_are_mostly_finite(kernel: str) -> None:
    fmt = FORMATS["float32"]
    _, t, _ = elements(load(kernel), fmt, load(kernel).cases[0])
    normal = (t.abs() >= float(fmt.smallest_normal)) & (t.abs() <= float(fmt.max_finite))
    assert float(normal.double().mean()) > 0.5


# Random boxes


def test_boxes_are_reproducible_and_inside_the_format() -> None:
    fmt = FORMATS["float64"]
    boxes = random_boxes(fmt, 2, 7)
    assert boxes == random_boxes(fmt, 2, 7) != random_boxes(fmt, 2, 8)
    assert len(boxes) == 200
    for box in boxes:
        assert all(0 <= low < high <= 1 << 64 for low, high in zip(box.low, box.high, strict=True))
        inside = torch.tensor([[draws.as_int64(fmt, edge)] for edge in box.low])
        outside = torch.tensor([[draws.as_int64(fmt, edge % (1 << 64))] for edge in box.high])
        assert bool(box.contains(inside).all())
        assert not bool(box.contains(outside).any())


def test_an_exhaustive_domain_kills_every_box() -> None:
    fmt = FORMATS["float16"]
    assert kill_rate(domain_of(load("exp"), fmt, {}), random_boxes(fmt, 1, 0)) == 1.0


def test_a_narrow_domain_kills_few_boxes() -> None:
    fmt = FORMATS["float32"]
    narrow = Domain("list", fmt, ("x",), patterns=((0,), (fmt.parse("1"),)))
    assert kill_rate(narrow, random_boxes(fmt, 1, 0)) < 0.2


def test_a_small_domain_has_no_empty_stratum() -> None:
    facts = elementwise("pow")
    for size in (1, 2, 7, 128, 896):
        domain = domain_of(facts, FORMATS["float32"], {}, "default", limit=size)
        assert domain.size == size and all(s.size for s in domain.strata)


def test_the_first_elements_are_those_of_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "_KEPT", {})
    monkeypatch.setattr(draws, "MOST_KEPT", 100)
    made: list[int] = []

    def twice(draw: draws.Draw) -> torch.Tensor:
        made.append(len(draw.index))
        return torch.stack([draws.normal(draw), draw.integer(-3, 3).double()])

    def asked(count: int, stratum: str = "s", seed: int = 0) -> torch.Tensor:
        found: torch.Tensor = draws.beginning(twice, FORMATS["float32"], count, seed, stratum)
        due = draws.Draw(FORMATS["float32"], torch.arange(count), seed, stratum)
        assert torch.equal(found, torch.stack([draws.normal(due), due.integer(-3, 3).double()]))
        return found

    for count in (3, 50, 7, 0, 50, 101, 50, 102):
        assert asked(count).shape == (2, count)
    assert made == [3, 50, 101, 102]  # too many are not kept, and put none of fewer away
    asked(9, "t")
    asked(9, seed=1)
    assert made[4:] == [9, 9] and len(draws._KEPT) == 3
    for k in range(draws.STRATA_KEPT):
        asked(1, f"{k}")
    assert len(draws._KEPT) == draws.STRATA_KEPT
