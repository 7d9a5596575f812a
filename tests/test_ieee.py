"""`verify.numbers.ieee` bit for bit against numpy's hardware arithmetic, libm's fma and exact rationals.

All comparisons are of float64 values that hold the narrow ones exactly; signs of zeros count, NaNs are all alike.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import math
import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from verify.facts.formats import FORMATS, Format
from verify.numbers import ieee
from verify.numbers.ieee import IeeeSystem, Rounded, evaluate
from verify.numbers.transforms import round_to, round_to_odd

HALF, BF16, SINGLE, DOUBLE = FORMATS.values()
TOY = Format("toy8", bits=8, precision=4, emax=7)
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
Array = np.ndarray[Any, np.dtype[Any]]

by_format = pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
by_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy reports overflow and invalid operations


def decode(fmt: Format, bits: Any) -> Array:
    """The float64 values of bit patterns, by integers and ldexp."""
    bits = np.asarray(bits).astype(np.uint64) & np.uint64((1 << fmt.bits) - 1)
    magnitude = bits & np.uint64(fmt.sign_bit - 1)
    field = (magnitude >> np.uint64(fmt.mantissa_bits)).astype(np.int64)
    fraction = (magnitude & np.uint64((1 << fmt.mantissa_bits) - 1)).astype(np.float64)
    significand = fraction + np.where(field > 0, 2.0**fmt.mantissa_bits, 0.0)
    value = np.ldexp(significand, np.maximum(field, 1) - fmt.emax - fmt.mantissa_bits)
    value = np.where(magnitude == fmt.inf_bits, np.inf, np.where(magnitude > fmt.inf_bits, np.nan, value))
    return np.where(bits & np.uint64(fmt.sign_bit), -value, value)


def special_bits(fmt: Format) -> list[int]:
    """Zero, the ends of the subnormals and of the normals, 1 and its neighbours, 3/2, infinity, NaN; both signs."""
    one, normal = fmt.round(Fraction(1)), 1 << fmt.mantissa_bits
    magnitudes = [0, 1, 2, 3, normal - 1, normal, normal + 1, one - 1, one, one + 1, fmt.round(Fraction(3, 2))]
    magnitudes += [fmt.inf_bits - 1, fmt.inf_bits - 2, fmt.inf_bits, fmt.nan_bits]
    return [sign | m for sign in (0, fmt.sign_bit) for m in magnitudes]


def random_bits(fmt: Format, count: int, rng: np.random.Generator) -> Array:
    return rng.integers(0, 2**fmt.bits, count, dtype=np.uint64)


def pairs(fmt: Format, count: int, seed: int = 0) -> tuple[Array, Array]:
    """Random patterns, patterns with a close partner (cancellation, quotients near 1), and all pairs of specials."""
    rng = np.random.default_rng(seed)
    a, b = random_bits(fmt, count, rng), random_bits(fmt, count, rng)
    near = a ^ (random_bits(fmt, count, rng) >> rng.integers(0, fmt.bits, count, dtype=np.uint64))
    near ^= rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(fmt.bits - 1)
    special = np.array(list(itertools.product(special_bits(fmt), repeat=2)), dtype=np.uint64)
    first, second = np.concatenate([a, a, special[:, 0]]), np.concatenate([b, near, special[:, 1]])
    return decode(fmt, first), decode(fmt, second)


def triples(fmt: Format, count: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """a, b, c for fma, where its roundings are hard.

    Random patterns; products and sums at every distance; c cancelling the product but for a few units in its last
    place; products exactly on a midpoint with a c that only breaks the tie; the thresholds of overflow and of the
    subnormals; all triples of specials.
    """
    rng = np.random.default_rng(seed)
    low, high = fmt.emin - fmt.mantissa_bits, fmt.emax

    def scaled(exponent: Array, significand: Array | None = None) -> Array:
        if significand is None:
            significand = rng.integers(2**fmt.mantissa_bits, 2**fmt.precision, len(exponent))
        sign = rng.choice([-1.0, 1.0], len(exponent))
        return represent(fmt, np.ldexp(sign * significand, exponent - fmt.mantissa_bits))

    groups = [tuple(decode(fmt, random_bits(fmt, count, rng)) for _ in range(3))]

    ea, eb = rng.integers(low, high + 1, (2, count))
    distance = rng.integers(-3 * fmt.precision - 15, 3 * fmt.precision + 15, count)
    groups.append((scaled(ea), scaled(eb), scaled((ea + eb + distance).clip(low, high))))

    a, b = scaled(ea), scaled((rng.integers(low, high + 1, count) - ea).clip(low, high))
    nudge = 1 + rng.integers(-3, 4, count) * 2.0**-fmt.mantissa_bits
    groups.append((a, b, represent(fmt, -(a * b) * nudge)))

    # 3 a is a midpoint for an odd significand below 2^(p+1) / 3.
    odd = rng.integers(2 ** (fmt.mantissa_bits - 1), 2 ** (fmt.precision + 1) // 6, count) * 2 + 1
    ea = rng.integers(low + fmt.precision, high - 2, count)
    tie_breaker = scaled((ea - rng.integers(fmt.precision, 6 * fmt.precision, count)).clip(low, high))
    groups.append((scaled(ea, odd), np.full(count, 3.0), tie_breaker))
    # The last 3 a that round below overflow, and the halves of subnormal units: products 2^(low-1) (2 k + 1).
    third = np.ldexp(2.0 ** (fmt.precision + 1) - 1, high - fmt.precision) / 3
    near_third = represent(fmt, third * (1 + rng.integers(-2, 3, count) * 2.0**-fmt.mantissa_bits))
    groups.append((near_third, np.full(count, 3.0), scaled(rng.integers(low, high, count))))
    half_unit = np.ldexp(rng.integers(0, 2 ** (fmt.precision - 1), count) * 2.0 + 1, low + 1)
    units = scaled(rng.integers(low, low + fmt.precision + 1, count))
    groups.append((represent(fmt, half_unit), np.full(count, 0.25), units))

    special = decode(fmt, list(itertools.product(special_bits(fmt), repeat=3)))
    groups.append((special[:, 0], special[:, 1], special[:, 2]))
    a, b, c = (np.concatenate(column) for column in zip(*groups, strict=True))
    return a, b, c


def represent(fmt: Format, values: Array) -> Array:
    """Some value of `fmt` close to each: drops the bits below the precision, clamps the range."""
    mantissa, exponent = np.frexp(values)
    places = np.minimum(fmt.precision, exponent - (fmt.emin - fmt.mantissa_bits))
    kept = np.ldexp(np.trunc(np.ldexp(mantissa, places)), exponent - places)
    return np.clip(kept, -float(fmt.max_finite), float(fmt.max_finite))


def blockwise(function: Callable[..., Any], n: IeeeSystem, *operands: Array) -> Array:
    """`function` of values of `n`, as a float64 array, block by block."""
    tensors = [torch.from_numpy(np.ascontiguousarray(x)) for x in operands]
    parts = zip(*(t.split(ieee.BLOCK) for t in tensors), strict=True)
    return torch.cat([function(*(Rounded(t, n) for t in part)).tensor for part in parts]).numpy()


def differences(actual: Array, expected: Array) -> Array:
    """Indices where two float64 arrays differ, NaNs being equal and zeros having signs."""
    assert actual.shape == expected.shape
    same = (actual.view(np.int64) == expected.view(np.int64)) | (np.isnan(actual) & np.isnan(expected))
    return np.flatnonzero(~same)


def assert_same(actual: Array, expected: Array, *operands: Array) -> None:
    wrong = differences(actual, expected)
    if wrong.size:
        i = wrong[0]
        inputs = ", ".join(float(x[i]).hex() for x in operands)
        got, due = float(actual[i]).hex(), float(expected[i]).hex()
        pytest.fail(f"{wrong.size} of {actual.size} differ; at ({inputs}): {got}, expected {due}")


def nearest(fmt: Format, value: Fraction) -> float:
    """RN(value) by exact rational arithmetic."""
    bits = fmt.round(value)
    if fmt.is_inf(bits):
        return -math.inf if bits & fmt.sign_bit else math.inf
    return math.copysign(float(fmt.fraction(bits)), -1.0 if bits & fmt.sign_bit else 1.0)


def exact_fma(fmt: Format, a: float, b: float, c: float) -> float:
    """fma by IEEE 754-2019, 5.4.1, 6.1, 6.3 and 7.2."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return float(np.float64(a) * b + c)
    if not math.isfinite(c):
        return c
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value:
        return nearest(fmt, value)
    product_sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    zeros = (a == 0 or b == 0) and c == 0
    return -0.0 if zeros and product_sign < 0 and math.copysign(1.0, c) < 0 else 0.0


def exact_operation(fmt: Format, symbol: str, a: float, b: float) -> float:
    """One operation by the same clauses; a zero or non-finite result has float64's, which rounds nothing there."""
    with np.errstate(all="ignore"):
        plain = float(OPERATIONS[symbol](np.float64(a), np.float64(b)))
    if plain == 0 or not math.isfinite(plain):
        return plain
    return nearest(fmt, OPERATIONS[symbol](Fraction(a), Fraction(b)))


def float32_to_bfloat16(values: Array) -> Array:
    """RN by the integer rule on float32 patterns: add half a unit less one, and one more where the last bit is odd."""
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = ((bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint64)
    return np.where(np.isnan(values), np.nan, decode(BF16, rounded))


def hardware(fmt: Format, operation: Callable[..., Array], *operands: Array) -> Array:
    """numpy's own arithmetic; bfloat16 by float32, whose 24 bits are enough for a second rounding (Figueroa 1995)."""
    if fmt == BF16:
        return float32_to_bfloat16(operation(*(x.astype(np.float32) for x in operands)))
    return operation(*(x.astype(fmt.name) for x in operands)).astype(np.float64)


def libm_fma(fmt: Format) -> Callable[..., Array]:
    """The C library's fma, which rounds once (C23 7.12.13.1)."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    function, kind = (libm.fmaf, ctypes.c_float) if fmt == SINGLE else (libm.fma, ctypes.c_double)
    function.restype, function.argtypes = kind, [kind] * 3
    vectorized = np.frompyfunc(function, 3, 1)
    return lambda a, b, c: vectorized(a, b, c).astype(np.float64)


def system(fmt: Format) -> IeeeSystem:
    return IeeeSystem(fmt, fmt)


class TestRounding:
    @pytest.mark.parametrize("fmt", [HALF, BF16, SINGLE, TOY], ids=lambda f: f.name)
    def test_every_midpoint_and_its_float64_neighbours(self, fmt: Format) -> None:
        """Midpoint +- 2^-53: what a float64 -> float32 -> half conversion rounds twice."""
        assert_rounds_midpoints(fmt)

    @pytest.mark.parametrize("fmt", [HALF, BF16], ids=lambda f: f.name)
    def test_a_cast_through_float32_is_caught(self, fmt: Format, monkeypatch: pytest.MonkeyPatch) -> None:
        dtype = getattr(torch, fmt.name)
        monkeypatch.setattr(f"{__name__}.round_to", lambda t, fmt: t.float().to(dtype).double())
        with pytest.raises(pytest.fail.Exception, match="differ"):
            assert_rounds_midpoints(fmt)

    @pytest.mark.parametrize("fmt", [HALF, BF16, SINGLE, TOY], ids=lambda f: f.name)
    def test_agrees_with_exact_rounding(self, fmt: Format) -> None:
        rng = np.random.default_rng(3)
        exponents = rng.integers(fmt.emin - fmt.precision - 4, fmt.emax + 4, 4000)
        values = np.ldexp(rng.uniform(-2, 2, 4000), exponents)
        values = np.concatenate([values, [5e-324, -5e-324, 1.7e308, -1.7e308]])
        expected = np.array([nearest(fmt, Fraction(v)) for v in values.tolist()])
        assert_same(round_to(torch.from_numpy(values), fmt).numpy(), expected, values)

    @pytest.mark.parametrize("fmt", [HALF, SINGLE], ids=lambda f: f.name)
    def test_agrees_with_numpy(self, fmt: Format) -> None:
        rng = np.random.default_rng(4)
        values = np.ldexp(rng.uniform(-2, 2, 2**20), rng.integers(fmt.emin - 30, fmt.emax + 3, 2**20))
        assert_same(round_to(torch.from_numpy(values), fmt).numpy(), values.astype(fmt.name).astype(np.float64), values)

    @pytest.mark.parametrize("fmt", [HALF, BF16, SINGLE, TOY, DOUBLE], ids=lambda f: f.name)
    def test_keeps_the_formats_own_values(self, fmt: Format) -> None:
        rng = np.random.default_rng(5)
        bits = np.arange(2**fmt.bits) if fmt.bits <= 16 else random_bits(fmt, 2**18, rng)
        values = decode(fmt, np.concatenate([bits, special_bits(fmt)]))
        assert_same(round_to(torch.from_numpy(values), fmt).numpy(), values, values)

    def test_to_odd(self) -> None:
        """1 + a tiny part goes to the odd neighbour on its side; an odd or an exact value stays."""
        ulp, infinity, nan = 2.0**-52, math.inf, math.nan
        high = torch.tensor([1.0, 1.0, -1.0, -1.0, 1 + ulp, 1 + ulp, 1.0, infinity, nan], dtype=torch.float64)
        low = torch.tensor([1e-30, -1e-30, 1e-30, -1e-30, 1e-30, -1e-30, 0.0, nan, nan], dtype=torch.float64)
        expected = [1 + ulp, 1 - ulp / 2, -1 + ulp / 2, -1 - ulp, 1 + ulp, 1 + ulp, 1.0, infinity, nan]
        assert_same(round_to_odd(high, low).numpy(), np.array(expected), high.numpy(), low.numpy())


def assert_rounds_midpoints(fmt: Format) -> None:
    last = fmt.inf_bits - 1
    lower = np.arange(last) if fmt.bits <= 16 else np.random.default_rng(1).integers(0, last, 2**18)
    lower = np.unique(np.concatenate([lower, np.arange(1, 2 * fmt.emax + 1) << fmt.mantissa_bits, [0, last - 1]]))
    low, high = decode(fmt, lower), decode(fmt, lower + 1)
    middle = (low + high) / 2
    threshold = float(fmt.max_finite) + 2.0 ** (fmt.emax - fmt.precision)
    low, high, middle = np.append(low, float(fmt.max_finite)), np.append(high, np.inf), np.append(middle, threshold)
    even = np.where(np.append(lower, last) % 2 == 0, low, high)
    given = np.concatenate([middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)])
    expected = np.concatenate([even, low, high])
    for sign in (1.0, -1.0):
        assert_same(round_to(torch.from_numpy(sign * given), fmt).numpy(), sign * expected, sign * given)


class TestOperations:
    @by_format
    @by_operation
    def test_hardware(self, fmt: Format, operation: Callable[..., Any]) -> None:
        a, b = pairs(fmt, 2**19)
        assert_same(blockwise(operation, system(fmt), a, b), hardware(fmt, operation, a, b), a, b)

    @by_format
    def test_sqrt(self, fmt: Format) -> None:
        a, b = pairs(fmt, 2**19)
        roots = represent(fmt, np.sqrt(np.abs(b)))
        a = np.concatenate([a, roots * roots]) if fmt == DOUBLE else a
        assert_same(blockwise(system(fmt).sqrt, system(fmt), a), hardware(fmt, np.sqrt, a), a)

    @pytest.mark.parametrize("ulps", [-1, 0, 1])
    def test_sqrt_corrects_a_root_one_ulp_off(self, ulps: int, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(2)
        roots = np.ldexp(rng.integers(2**25, 2**26, 2**16) + 0.0, -25)  # squares are exact, +-1 ulp hard
        squares = roots * roots
        edges = np.nextafter([1.0, 4.0], [4.0, 1.0])  # residuals of exactly -r and r
        near = [squares, np.nextafter(squares, 0), np.nextafter(squares, 9)]
        a = np.concatenate([*near, edges, rng.uniform(1, 4, 2**18)])

        def misrounded(x: torch.Tensor) -> torch.Tensor:
            root = torch.from_numpy(np.sqrt(x.numpy()))
            return torch.where((root > 0) & root.isfinite(), (root.view(torch.int64) + ulps).view(torch.float64), root)

        monkeypatch.setattr(torch, "sqrt", misrounded)
        assert_same(blockwise(system(DOUBLE).sqrt, system(DOUBLE), a), np.sqrt(a), a)

    @pytest.mark.parametrize("symbol", OPERATIONS)
    def test_every_pair_of_eight_bits(self, symbol: str) -> None:
        values = decode(TOY, np.arange(256))
        a, b = np.repeat(values, 256), np.tile(values, 256)
        expected = np.array([exact_operation(TOY, symbol, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
        assert_same(blockwise(OPERATIONS[symbol], system(TOY), a, b), expected, a, b)

    @pytest.mark.parametrize("fmt", [HALF, BF16], ids=lambda f: f.name)
    @by_operation
    def test_rows_of_sixteen_bits(self, fmt: Format, operation: Callable[..., Any]) -> None:
        assert_sixteen_bit_rows(fmt, operation, range(1, 2**16, 2039))

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("fmt", [HALF, BF16], ids=lambda f: f.name)
    @by_operation
    def test_every_pair_of_sixteen_bits(self, fmt: Format, operation: Callable[..., Any]) -> None:
        assert_sixteen_bit_rows(fmt, operation, range(2**16))


def assert_sixteen_bit_rows(fmt: Format, operation: Callable[..., Any], rows: Iterable[int]) -> None:
    """All 2^16 second operands with each first one in `rows`, against torch's float32 and its cast.

    Both are hardware there: 24 >= 2 p + 2 makes the second rounding innocuous (Figueroa 1995).
    """
    dtype = getattr(torch, fmt.name)
    patterns = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    n = system(fmt)
    seconds = patterns.split(ieee.BLOCK)
    inputs, singles = [n.input(b) for b in seconds], [b.float() for b in seconds]
    for row in rows:
        first = patterns[row]
        a = n.input(first)
        for b, single in zip(inputs, singles, strict=True):
            actual = n.result(operation(a, b)).view(torch.int16)
            expected = operation(first.float().expand_as(single), single).to(dtype)
            wrong = (actual != expected.view(torch.int16)) & ~(actual.view(dtype).isnan() & expected.isnan())
            if bool(wrong.any()):
                i = int(wrong.nonzero()[0])
                pytest.fail(f"({float(first).hex()}, {float(single[i]).hex()}): expected {float(expected[i]).hex()}")


def fma_errors(fmt: Format, expected: Callable[..., Array], count: int) -> Array:
    a, b, c = triples(fmt, count)
    return differences(blockwise(system(fmt).fma, system(fmt), a, b, c), expected(a, b, c))


def exact_fmas(fmt: Format) -> Callable[..., Array]:
    return lambda *abc: np.array([exact_fma(fmt, *t) for t in zip(*(x.tolist() for x in abc), strict=True)])


class TestFma:
    @pytest.mark.parametrize("fmt", [SINGLE, DOUBLE], ids=lambda f: f.name)
    def test_libm(self, fmt: Format) -> None:
        a, b, c = triples(fmt, 50_000)
        assert_same(blockwise(system(fmt).fma, system(fmt), a, b, c), libm_fma(fmt)(a, b, c), a, b, c)

    @by_format
    def test_exact_rationals(self, fmt: Format) -> None:
        a, b, c = triples(fmt, 1500, seed=1)
        assert_same(blockwise(system(fmt).fma, system(fmt), a, b, c), exact_fmas(fmt)(a, b, c), a, b, c)

    def test_every_triple_of_eight_bits(self) -> None:
        """Against integers: values are multiples of 2^-9, products and sums of 2^-18, all below 2^35."""
        n, values = system(TOY), decode(TOY, np.arange(256))
        finite = np.isfinite(values)
        grid = decode(TOY, np.arange(TOY.inf_bits))
        units = np.ldexp(grid, 9).astype(np.int64)
        overflow = 2 * units[-1] - units[-2]
        bounds = (units + np.append(units[1:], overflow)) << 9  # twice the upper midpoints, in units of 2^-18
        rounded = np.append(grid, np.inf)
        integers = np.where(finite, np.ldexp(values, 9), 0).astype(np.int64)
        columns = [values[i : i + 64].repeat(256) for i in range(0, 256, 64)]
        c, third = np.tile(values, 64), torch.from_numpy(np.tile(values, 64))
        for (a, integer), start in itertools.product(zip(values, integers, strict=True), range(4)):
            b, factor = columns[start], integers[64 * start : 64 * start + 64]
            exact = (integer * factor[:, None] + (integers << 9)[None, :]).reshape(-1)
            twice = 2 * np.abs(exact)
            index = np.searchsorted(bounds, twice, side="left")
            tie = bounds[np.minimum(index, len(bounds) - 1)] == twice
            index = index + (tie & (index % 2 == 1))
            plain = a * b + c  # float64: exact, so right for non-finite operands and for zeros
            ordinary = np.isfinite(plain) & (exact != 0)
            expected = np.where(ordinary, np.copysign(rounded[index], exact), plain)
            actual = n.fma(float(a), Rounded(torch.from_numpy(b), n), Rounded(third, n)).tensor.numpy()
            assert_same(actual, expected, np.full(b.shape, a), b, c)

    @pytest.mark.parametrize("fmt", [BF16, SINGLE, DOUBLE], ids=lambda f: f.name)
    def test_rounding_to_nearest_instead_of_odd_is_caught(self, fmt: Format, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = exact_fmas(fmt) if fmt == BF16 else libm_fma(fmt)
        assert fma_errors(fmt, expected, 1500).size == 0
        monkeypatch.setattr(ieee, "round_to_odd", lambda high, low: high)
        assert fma_errors(fmt, expected, 1500).size > 0

    @by_format
    def test_an_unfused_product_is_caught(self, fmt: Format, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(IeeeSystem, "fma", lambda n, a, b, c: a * b + c)
        assert fma_errors(fmt, exact_fmas(fmt), 200).size > 0

    def test_a_subnormal_result_rounded_twice_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Scaling the 53-bit result into the subnormals is what the integers are for."""
        monkeypatch.setattr(ieee, "_fma_integers", lambda a, b, c: a * b + c)
        assert fma_errors(DOUBLE, libm_fma(DOUBLE), 1500).size > 0

    def test_infinite_addend_with_an_overflowing_product(self) -> None:
        n = system(DOUBLE)
        assert n.fma(n.scalar(1e300), 1e300, -math.inf).tensor.item() == -math.inf

    def test_exact_zero_sums(self) -> None:
        n = system(SINGLE)
        for a, b, c in [(1.0, 1.0, -1.0), (-0.0, 1.0, 0.0), (0.0, 0.0, -0.0)]:
            assert math.copysign(1.0, n.fma(n.scalar(a), b, c).tensor.item()) == 1.0
        assert math.copysign(1.0, n.fma(n.scalar(-0.0), 1.0, -0.0).tensor.item()) == -1.0


class TestSystem:
    @by_format
    def test_input_and_result_are_inverse(self, fmt: Format) -> None:
        rng = np.random.default_rng(6)
        bits = np.concatenate([random_bits(fmt, 2**16, rng), np.array(special_bits(fmt), dtype=np.uint64)])
        tensor = torch.from_numpy(bits.astype(f"u{fmt.bits // 8}").view(f"i{fmt.bits // 8}")).view(
            getattr(torch, fmt.name)
        )
        for compute in (fmt, DOUBLE):
            n = IeeeSystem(compute, fmt)
            result = n.result(n.input(tensor))
            assert result.dtype == tensor.dtype
            assert_same(result.double().numpy(), decode(fmt, bits), decode(fmt, bits))

    def test_half_kernels_round_once_at_the_end(self) -> None:
        n = IeeeSystem(SINGLE, HALF)
        a = torch.tensor([1.0], dtype=torch.float16)
        value = n.input(a) + 2.0**-11 + 2.0**-23
        assert n.result(value).item() == 1 + 2.0**-10  # a midpoint and a bit
        assert n.result(n.cast(n.input(a) + 2.0**-11, HALF) + 2.0**-23).item() == 1.0

    def test_result_of_a_wider_value_rounds_once(self) -> None:
        n = IeeeSystem(SINGLE, HALF)
        wide = n.at(DOUBLE)
        assert n.result(wide.scalar(1 + 2.0**-11 + 2.0**-40)).item() == 1 + 2.0**-10
        assert n.result(n.value(wide.scalar(1 + 2.0**-11 + 2.0**-40))).item() == 1.0

    def test_scalars_round_when_they_meet_a_value(self) -> None:
        n = IeeeSystem(SINGLE, BF16)
        single, bf16 = float(np.float32(0.1)), float(decode(BF16, BF16.round(Fraction(0.1))))
        assert n.scalar(0.1).tensor.item() == single
        assert n.scalar(0.1, n.storage).tensor.item() == bf16
        assert n.cast(0.1, n.storage).tensor.item() == bf16
        assert n.at(BF16).cast(n.scalar(0.1), SINGLE).tensor.item() == bf16
        assert (n.scalar(0.0) + 0.1).tensor.item() == single
        assert (1 - n.scalar(0.1)).tensor.item() == float(np.float32(1) - np.float32(0.1))
        assert bool(n.scalar(0.1) == 0.1)
        assert n.result(0.1).item() == bf16

    def test_scalars_move_to_the_tensors_device(self) -> None:
        n = system(SINGLE)
        elsewhere = Rounded(torch.empty(3, dtype=torch.float64, device="meta"), n)
        assert {t.device.type for t in n._tensors(2.0, elsewhere, n.scalar(3.0))} == {"meta"}
        assert n.where(n.scalar(1.0) < 2, 3.0, elsewhere).tensor.device.type == "meta"

    def test_constants_round_once(self) -> None:
        third = Fraction(1, 3)
        assert system(HALF).const("1/3").tensor.item() == nearest(HALF, third)
        assert system(SINGLE).const(third).tensor.item() == nearest(SINGLE, third)
        assert system(HALF).const(Fraction(-(10**6))).tensor.item() == -math.inf
        assert system(DOUBLE).const(2).tensor.item() == 2.0

    def test_reversed_operators_keep_the_order(self) -> None:
        n = system(SINGLE)
        x = n.scalar(3.0)
        assert [(10 - x).tensor.item(), (6 / x).tensor.item(), (2 + x).tensor.item(), (2 * x).tensor.item()] == [
            7,
            2,
            5,
            6,
        ]
        assert n.recip(x).tensor.item() == float(np.float32(1) / np.float32(3))
        assert (-x).tensor.item() == -3
        assert abs(-x).tensor.item() == 3

    def test_operators_round_to_the_wider_format(self) -> None:
        n = IeeeSystem(SINGLE, SINGLE)
        third = 1 / n.at(DOUBLE).scalar(3.0)
        assert third.tensor.item() == 1 / 3
        assert (n.scalar(1.0) * third).tensor.item() == 1 / 3
        assert (third * n.scalar(1.0)).tensor.item() == 1 / 3
        assert n.fma(third, 1.0, 0.0).tensor.item() == float(np.float32(1 / 3))

    def test_where(self) -> None:
        n = IeeeSystem(SINGLE, SINGLE)
        x = n.input(torch.tensor([-1.0, 0.5, 2.0]))
        assert n.where(abs(x) < 1, x, 0.1).tensor.tolist() == [float(np.float32(0.1)), 0.5, float(np.float32(0.1))]
        assert n.where(True, 0.1, x) == 0.1  # host arithmetic stays on the host
        assert n.where((x >= 2) | (x == -1), x, -x).tensor.tolist() == [-1.0, -0.5, 2.0]

    def test_max_and_min(self) -> None:
        n = system(SINGLE)
        x = n.input(torch.tensor([0.0, -0.0, -0.0, 1.0, math.nan, math.inf]))
        y = n.input(torch.tensor([-0.0, 0.0, -0.0, 2.0, 1.0, math.nan]))
        assert_same(n.max(x, y).tensor.numpy(), np.array([0.0, 0.0, -0.0, 2.0, math.nan, math.nan]))
        assert_same(n.min(x, y).tensor.numpy(), np.array([-0.0, -0.0, -0.0, 1.0, math.nan, math.nan]))

    def test_predicates(self) -> None:
        n = system(SINGLE)
        x = n.input(torch.tensor([-0.0, 3.0, 4.0, 0.5, math.inf, math.nan]))
        assert n.is_zero(x).tolist() == [True, False, False, False, False, False]
        assert n.signbit(x).tolist()[0] is True
        assert n.is_odd(x).tolist() == [False, True, False, False, False, False]
        assert n.is_integer(x).tolist() == [True, True, True, False, False, False]
        assert n.is_inf(x).tolist()[4:] == [True, False]
        assert n.is_nan(x).tolist()[4:] == [False, True]
        assert ((x > 3).tolist(), (x <= 3).tolist(), (x != 3).tolist()[:2]) == (
            [False, False, True, False, True, False],
            [True, True, False, True, False, False],
            [True, False],
        )

    def test_evaluation_by_blocks_equals_the_whole(self) -> None:
        n = IeeeSystem(SINGLE, BF16)
        tensors = {name: torch.randn(3, 20_000, dtype=torch.bfloat16) for name in "ab"}
        formula = lambda n, a, b, w: n.fma(b - a, w, a)  # noqa: E731
        whole = n.result(formula(n, n.input(tensors["a"]), n.input(tensors["b"]), 0.3))
        result = evaluate(n, formula, tensors, {"w": 0.3})
        assert result.shape == (3, 20_000)
        assert torch.equal(result, whole)
        empty = evaluate(n, formula, {name: t[:, :0] for name, t in tensors.items()}, {"w": 0.3})
        assert empty.shape == (3, 0)

    def test_mistakes_are_named(self) -> None:
        n = IeeeSystem(SINGLE, HALF)
        with pytest.raises(TypeError, match=r"torch\.float32; expected the storage dtype torch\.float16"):
            n.input(torch.zeros(1))
        with pytest.raises(TypeError, match="Tensor in a formula"):
            n.scalar(1.0) + torch.zeros(1)  # type: ignore[operator]
        with pytest.raises(TypeError, match=r"n\.where"):
            bool(n.scalar(1.0))
        with pytest.raises(TypeError, match="neither contains the other"):
            n.at(HALF).scalar(1.0) + n.at(BF16).scalar(1.0)
        with pytest.raises(ValueError, match="float32 values"):
            IeeeSystem(Format("float48", bits=48, precision=36, emax=1023), SINGLE)


def everything(n: IeeeSystem, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Every operation of a system, as results in storage."""
    x, y, z = n.input(a), n.input(b), n.input(c)
    results = [x + y, x - y, x * y, x / y, 0.1 * x + 0.3, n.sqrt(x), n.fma(x, y, z), n.fma(x, 1 / 3, y)]
    results += [n.cast(x * y, n.storage) + z, n.where(abs(x) < 0.5, y, -z), n.max(x, y), n.min(y, z), 1 / (z * z)]
    return tuple(n.result(r) for r in results)


def assert_same_results(n: IeeeSystem, actual: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for index, (got, due) in enumerate(zip(actual, expected, strict=True)):
        wrong = differences(got.cpu().double().numpy(), due.double().numpy())
        assert wrong.size == 0, f"{n}: result {index} differs at {wrong[:5]}"


SYSTEMS = [system(SINGLE), IeeeSystem(SINGLE, HALF), IeeeSystem(SINGLE, BF16), system(HALF), system(BF16)]


def operands(n: IeeeSystem, count: int) -> tuple[torch.Tensor, ...]:
    dtype = getattr(torch, n.storage.name)
    return tuple(torch.from_numpy(x).to(dtype) for x in triples(n.storage, count, seed=7))  # exact


@pytest.mark.slow
def test_compiled_equals_eager() -> None:
    """The narrow formats have no control flow on data, so that a compiled form is possible where it is admitted.

    The formulas hold what compilers change: contraction, a cast that seems superfluous, a constant divisor.
    """
    formulas: list[Callable[..., Rounded]] = [
        lambda n, a, b, c: n.sqrt(n.fma(a, b, c)) / 3.0,
        lambda n, a, b, c: n.fma(a, b, c),
        lambda n, a, b, c: n.cast(a * b, n.storage) + c,
    ]

    def run(inputs: list[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
        cases = zip(SYSTEMS[:3], formulas, inputs, strict=True)
        return [n.result(formula(n, *(n.input(t) for t in abc))) for n, formula, abc in cases]

    inputs = [operands(n, 5000) for n in SYSTEMS[:3]]
    compiled = torch.compile(run, fullgraph=True, dynamic=False)(inputs)
    for n, actual, expected in zip(SYSTEMS[:3], compiled, run(inputs), strict=True):
        assert_same_results(n, (actual,), (expected,))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [*SYSTEMS, system(DOUBLE)], ids=lambda n: f"{n.compute.name}-{n.storage.name}")
def test_the_accelerator_equals_the_host(n: IeeeSystem) -> None:
    device = torch.accelerator.current_accelerator()
    host = operands(n, 50_000)
    assert_same_results(n, everything(n, *(t.to(device) for t in host)), everything(n, *host))
