"""Facts about torch.pow: x^y, with tensors for both or a Python scalar for one of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from verify.facts.bounds import (
    HALVES,
    LOG_RANGE,
    SINGLES,
    composite,
    correctly_rounded,
    hand_written,
    published,
    rounded,
    through_float32,
    vendor,
)
from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import USERS, Bound, Checks, Kernel, Property, Scalars, Spelling
from verify.facts.properties import even, fixed
from verify.facts.spellings import SCALAR_LOOPS, as_tensor, elementwise, function
from verify.inputs.corners import RESULTS, beside, last_binades, tie
from verify.inputs.domains import Stratum
from verify.inputs.draws import Bits, Draw, Reals, exp2, log2
from verify.inputs.strata import Part, compose, general, integers, interval, neighbourhood, unary
from verify.oracles.pow import ORACLE


def tensors_only(scalars: Scalars) -> bool:
    return not scalars


def scalar_exponent(scalars: Scalars) -> bool:
    return "y" in scalars


def tensor_base(scalars: Scalars) -> bool:
    return "x" not in scalars


def exponent_in(*values: float) -> Callable[[Scalars], bool]:
    return lambda scalars: scalars.get("y") in values


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    if "y" in scalars:
        return of_bases(fmt, scalars["y"], size)
    if "x" in scalars:
        return of_exponents(fmt, scalars["x"], size)
    return compose(fmt, 2, size, *general(2, uniform=60), *PAIRS)


def targets(fmt: Format) -> dict[str, Callable[[Draw], Reals]]:
    """log2 |x^y| to aim at: the whole range, and just inside and outside of each end of it."""
    low, emin, high = float(fmt.emin - fmt.precision), float(fmt.emin), float(fmt.emax + 1)

    def close(edge: float) -> Callable[[Draw], Reals]:
        def draw(d: Draw) -> Reals:
            # Log-uniform distances of either sign from one binade down to the last place of y log2 x.
            tiny = exp2(d.real(-float(d.fmt.precision), 0.0))
            return edge + tiny.where(d.word() >> 31 == 0, -tiny)

        return draw

    return {
        "range": lambda d: d.real(low - 2.0, high + 2.0),
        "last-binades": lambda d: d.real(high - 2.0, high),
        "subnormal": lambda d: d.real(low, emin),
        "overflow-edge": close(high),
        "normal-edge": close(emin),
        "underflow-edge": close(low),
        "near-one-result": lambda d: exp2(d.real(-float(d.fmt.precision) - 2.0, 0.0)) * (d.real(-1.0, 1.0)),
    }


def of_bases(fmt: Format, y: float, size: int) -> tuple[Stratum, ...]:
    """Bases for the scalar exponent y whose results have the targets' exponents, unless y is 0."""

    def part(name: str, aim: Callable[[Draw], Reals]) -> Part:
        def draw(d: Draw) -> Bits:
            base = d.encode(exp2(aim(d) * (1.0 / y)))
            return (d.signed(base) if y.is_integer() else base,)

        return Part(name, 4, draw)

    parts = [part(name, aim) for name, aim in targets(fmt).items()] if y else []
    one = neighbourhood("near-one-base", 1.0, -1.0, width=fmt.precision - 1, weight=4)
    return unary(fmt, size, *parts, one, integers(1, 2))


def of_exponents(fmt: Format, x: float, size: int) -> tuple[Stratum, ...]:
    """Exponents for the scalar base x whose results have the targets' exponents, unless x is 0, 1 or -1."""
    logarithm = math.log2(abs(x)) if x else 0.0

    def part(name: str, aim: Callable[[Draw], Reals]) -> Part:
        return Part(name, 4, lambda d: (d.encode(aim(d) * (1.0 / logarithm)),))

    parts = [part(name, aim) for name, aim in targets(fmt).items()] if logarithm else []
    return unary(fmt, size, *parts, integers(1, 4), interval("small", -4.0, 4.0))


def exponent_for(d: Draw, base: Any, target: Reals) -> Any:
    """Patterns of y = target / log2 |x|, for patterns of a finite base other than +-1."""
    logarithm = log2(d.reals(base))
    return d.encode(target / (logarithm + (logarithm == 0) * 1.0))


def aimed(name: str) -> Part:
    """Positive bases of every exponent, y chosen for the target."""

    def draw(d: Draw) -> Bits:
        x = d.value(d.integer(d.fmt.emin, d.fmt.emax)) & (d.fmt.sign_bit - 1)
        return x, exponent_for(d, x, targets(d.fmt)[name](d))

    return Part(name, 4, draw)


def near_one_base(d: Draw) -> Bits:
    """1 + k steps, k log-uniform, and exponents so large that the result leaves 1 far behind."""
    x = d.near(d.constant("1"), d.fmt.precision - 2)
    return x, exponent_for(d, x, d.real(float(d.fmt.emin - d.fmt.precision), float(d.fmt.emax + 1)))


def near_one_base_edges(d: Draw) -> Bits:
    x = d.near(d.constant("1"), d.fmt.precision - 2)
    edges = targets(d.fmt)
    aim = d.either(edges["overflow-edge"](d), d.either(edges["normal-edge"](d), edges["last-binades"](d)))
    return x, exponent_for(d, x, aim)


def integer_exponents(d: Draw) -> Bits:
    """Either sign of the base, integers of 1 to 2^p as exponents, results over the whole range."""
    import torch

    y = d.spread(d.fmt.precision).to(torch.float64)
    nonzero = y + (y == 0) * 1.0
    target = d.real(float(d.fmt.emin - d.fmt.precision), float(d.fmt.emax + 1))
    return d.signed(d.encode(exp2(target / nonzero))), d.encode(y)


def exact(d: Draw) -> Bits:
    """Small integers and their halves to small integer powers, powers of two to any, squares to halves."""
    import torch

    y = d.integer(-8, 8).to(torch.float64) * 0.5
    root = d.integer(-32, 32).to(torch.float64) * 0.5
    power = d.near(d.encode(exp2(d.integer(-30, 30).to(torch.float64))), 0)
    return d.either(d.near(d.encode(root * root), 1), power), d.encode(y)


def ties(d: Draw) -> Bits:
    """Squares midway between neighbours: of odd integers whose square has one bit more than the format."""
    import torch

    low, high = (math.isqrt((1 << bits) - 1) for bits in (d.fmt.precision, d.fmt.precision + 1))
    root = (d.integer(low + 1, high - 1) | 1).to(torch.float64)
    shift = d.integer(-(d.fmt.emax // 2), (d.fmt.emax - d.fmt.precision - 1) // 2)
    return d.signed(d.encode(root * exp2(shift.to(torch.float64)))), d.constant("2")


def fixed_exponents(d: Draw) -> Bits:
    """The exponents that implementations treat apart, and their neighbours; bases of any exponent."""
    points = [d.fmt.parse(text) for text in ("0.5", "-0.5", "1", "-1", "2", "-2", "3", "4", "0", "0.25", "1.5")]
    return d.finite(), d.near(d.pick(points), 2)


PAIRS = (
    *(aimed(name) for name in targets(FORMATS["float32"])),
    Part("near-one-base", 6, near_one_base),
    Part("near-one-base-edges", 4, near_one_base_edges),
    Part("integer-exponents", 6, integer_exponents),
    Part("exact", 2, exact),
    Part("ties", 1, ties),
    Part("fixed-exponents", 4, fixed_exponents),
)


CASES: tuple[Scalars, ...] = (
    {},
    {"y": 3.7},
    {"y": 7.0},
    {"y": -2.0},
    {"x": 2.0},
    *({"y": y} for y in (-1.0, -0.5, 0.5, 2.0, 3.0, 17.0, 31.0)),
    *({"x": x} for x in (0.9, 10.0)),
)

DIV_FULL = published("NVIDIA", "div.full", "float32")
OPENCL_DIV = published("OpenCL", "div", "float32")


def small_powers(*, dtype: str, division: float, why: str, **where: Any) -> tuple[Bound, ...]:
    """Inductor's pow_recursive for every integral exponent of the cases: square and multiply, 1/x first if negative.

    Squaring doubles the roundings and adds one, so x^n has n - 1; r of the reciprocal count n times.
    """
    bounds: list[Bound] = []
    for y in (case["y"] for case in CASES if case.get("y", 0.5).is_integer()):
        n = abs(int(y))
        count = n - 1 + (n * division if y < 0 else 0)
        given = f"pow_recursive: {n - 1} multiplications" + (
            f", 1/x within {division:g}u {n} times; {why}" if y < 0 else ""
        )
        if count == 1:
            bounds += correctly_rounded(
                given, dtypes=HALVES if dtype == "half" else (dtype,), applies=exponent_in(y), **where
            )
        elif dtype == "half":
            bounds += through_float32(count / (1 - count * 2.0**-24), given, applies=exponent_in(y), **where)
        else:
            bounds += rounded(count, given, dtypes=(dtype,), applies=exponent_in(y), **where)
    return tuple(bounds)


RECURSIVE = (
    *small_powers(dtype="float64", division=1, why="IEEE division", lowering="inductor*"),
    *(
        bound
        for dtype in ("float32", "half")
        for backend, division, why in (
            ("cuda", DIV_FULL.roundings, DIV_FULL.source),
            ("rocm", OPENCL_DIV.roundings, OPENCL_DIV.source),
            ("*", 1.0, "IEEE division"),
        )
        for bound in small_powers(dtype=dtype, division=division, why=why, lowering="inductor*", backend=backend)
    ),
)


def widened(name: str, why: str, **where: Any) -> tuple[Bound, ...]:
    """Half types by a vendor's float32 pow, a scalar entering as float32: its rounding counts, where it has one.

    Of the exponent: (dy/y) |ln t| |t|, at most u * 89 |t| in normal range. Of the base: (dx/x) |y| |t|, with
    |y| = |ln t / ln x|.
    """
    figure = published(name, "pow", "float32")
    given = f"{why}: {figure.source}"

    def moved(dtype: str, scalars: Scalars) -> Bound:
        by = LOG_RANGE / (abs(math.log(abs(scalars["x"]))) if scalars.get("x") else 1.0)
        note = f"{given}; the scalar's rounding to float32 moves the result by {by:.4g} ULP of float32"
        return through_float32(figure.ulps + by, note, dtypes=(dtype,), **where)[0]

    plain = through_float32(figure.ulps, given, **where)
    return *(replace(one, applies=_rounded, by_scalars=partial(moved, one.dtypes[0])) for one in plain), *plain


def _rounded(scalars: Scalars) -> bool:
    """Whether float32 does not hold a scalar."""
    single = FORMATS["float32"]
    finite = (value for value in scalars.values() if math.isfinite(value))
    return any(single.to_float(single.round_float(value)) != value for value in finite)


#: log2 x to 2^-50 relative, times y: 2^-42 absolute; exp2 to 2^-46; so 2^-41 |t|, 2^-17 ULP of float32.
TRITON = "error analysis in kernels/triton/pow.py, in float64: below 2^-17 ULP before the last rounding"
SCALAR_LOOP = "ATen's scalar loop: std::pow of float and the double exponent, in double"
OWN = "ATen computes it by operators of the dtype"
FOREACH = "_foreach_*"
AS_TENSOR = "y as tensor"
NO_SHORTCUT = "a tensor's exponent takes no shortcut"
FOLDED = (
    f"{NO_SHORTCUT}; Inductor folds a constant tensor as the float32 that it was made of, not rounded to half types"
)
LISTS = "powf, pow of ATen's foreach functor, which takes a scalar in float32 for half types"


def eager_shortcuts() -> tuple[Bound, ...]:
    """The exponents that ATen's pow_tensor_scalar computes by other operations (Pow.cpp, PowKernel.cu)."""
    return (
        *correctly_rounded("x * x", lowering="eager", applies=exponent_in(2.0)),
        *correctly_rounded("1/x", lowering="eager", applies=exponent_in(-1.0)),
        *rounded(2, "x * x * x", dtypes=SINGLES, lowering="eager", applies=exponent_in(3.0)),
        *rounded(2, "1/(x * x)", dtypes=SINGLES, lowering="eager", applies=exponent_in(-2.0)),
        *rounded(2, OWN, dtypes=HALVES, lowering="eager", applies=exponent_in(3.0, -2.0)),
        *vendor(
            "Intel",
            "sqrt",
            "vmsSqrt/vmdSqrt of oneMKL",
            dtypes=SINGLES,
            lowering="eager",
            backend="cpu",
            applies=exponent_in(0.5),
        ),
        *correctly_rounded("one square root", lowering="eager", applies=exponent_in(0.5)),
        *vendor("NVIDIA", "rsqrt", "rsqrt", lowering="eager", backend="cuda", applies=exponent_in(-0.5)),
        *vendor("AMD", "rsqrt", "rsqrt", lowering="eager", backend="rocm", applies=exponent_in(-0.5)),
        *rounded(2, "1/sqrt(x)", dtypes=SINGLES, lowering="eager", applies=exponent_in(-0.5)),
        *rounded(2, OWN, dtypes=HALVES, lowering="eager", applies=exponent_in(-0.5)),
    )


def by_vendor(name: str, why: str, **where: Any) -> tuple[Bound, ...]:
    """A library's pow: float32 and float64 with the scalar in their dtype; half types eagerly so, else in float32."""
    singles: tuple[str, ...] = ("float32",) if name == "Apple" else SINGLES
    eager = {**where, "lowering": "eager"}
    narrow = published(name, "pow", "float32").ulps < 2
    return (
        *(
            bound
            for bound in composite(
                2,
                "x * x * x, 1/(x * x) or 1/sqrt(x), as ATen",
                metric="ulp",
                lowering=USERS,
                applies=exponent_in(3.0, -2.0, -0.5),
                **where,
            )
            if narrow
        ),
        *vendor(name, "pow", why, dtypes=singles, truth="rounded", **where),
        *vendor(name, "pow", why, dtypes=HALVES, truth="rounded", **eager),
        *vendor(name, "pow", why, dtypes=HALVES, spelling="y as tensor", truth="rounded", **where),
        *widened(name, why, **where),
    )


def _second(x: Any, y: Any) -> Any:
    return x**y if x > 0 else (-x) ** y * (1 - 2 * (int(y.unique_fmpz()) % 2))


def _affordable(x: Any, y: Any) -> bool:
    size = abs(float(y)) * abs(math.log2(abs(float(x)))) if x else math.inf
    return x != 0 and (x > 0 or y.denominator == 1) and size < 15000  # a Truth ends at 2^20000


#: Exponents that people write, gamma's and sRGB's among them.
APART = (4.5, -10, -10.0, -5.0, 2.2, 1 / 2.2, 2.4, 1 / 2.4, 0.2)

KERNEL = Kernel(
    name="pow",
    summary="x^y",
    oracle=ORACLE,
    inputs=("x", "y"),
    cases=CASES,
    quick_cases=5,
    apart={"y": (1 + 2.0**-10, 0.5 + 2.0**-21, 5 + 2.0**-18, 2.7109375, 2.0**-13, *APART)},
    # in float32 torch has sqrt(x) for the scalar 0.5, with a NaN of -inf, and in 16 bits the power itself
    stub="torch.pow(x, y if dtype.itemsize > 2 or torch.is_tensor(y) else torch.full_like(x, y))",
    spellings={
        **elementwise("pow", in_place_when=tensor_base, broadcast_when=tensors_only),
        "y as tensor": Spelling(as_tensor("y", function("pow")), scalar_exponent),
    },
    domain=domain,
    bounds=(
        *hand_written(0.5 + 2.0**-16, TRITON),
        *vendor("NVIDIA", "pow", "CUDA's libdevice", dtypes=("float64",), lowering="triton*", backend="cuda"),
        *vendor(
            "NVIDIA",
            "pow",
            "CUDA's libdevice",
            dtypes=("float32",),
            lowering="triton-*",
            backend="cuda",
            truth="rounded",
        ),
        *widened("NVIDIA", "CUDA's libdevice", lowering="triton-*", backend="cuda"),
        *(
            bound
            for backend, name in (("cuda", "NVIDIA"), ("rocm", "AMD"), ("cpu", "SLEEF"))
            for bound in (
                *vendor(
                    name, "pow", NO_SHORTCUT, lowering="eager", backend=backend, spelling=AS_TENSOR, truth="rounded"
                ),
                *vendor(
                    name,
                    "pow",
                    NO_SHORTCUT,
                    dtypes=SINGLES,
                    lowering="inductor*",
                    backend=backend,
                    spelling=AS_TENSOR,
                    truth="rounded",
                ),
                *widened(name, FOLDED, lowering="inductor*", backend=backend, spelling=AS_TENSOR),
            )
        ),
        *correctly_rounded("one square root", lowering="inductor*", applies=exponent_in(0.5)),
        *RECURSIVE,
        *vendor(
            "NVIDIA", "pow", LISTS, dtypes=SINGLES, lowering="eager", backend="cuda", spelling=FOREACH, truth="rounded"
        ),
        *widened("NVIDIA", LISTS, lowering="eager", backend="cuda", spelling=FOREACH),
        *eager_shortcuts(),
        *(
            Bound(
                0.5 + 2.0**-28,
                "ulp",
                f"{SCALAR_LOOP}: 1 ULP of float64, then one rounding; {published('glibc', 'pow', 'float64').source}",
                "eager",
                "cpu",
                layout,
                ("float32",),
                scalar_exponent,
            )
            for layout in SCALAR_LOOPS
            if layout != "broadcast"
        ),
        *by_vendor("NVIDIA", "powf, pow of CUDA", backend="cuda"),
        *by_vendor("AMD", "OCML", backend="rocm"),
        *by_vendor("Apple", "metal::precise::pow", backend="mps"),
        *by_vendor("SLEEF", "Sleef_pow_u10 of ATen's vector types"),
    ),
    properties=(
        # no x^1 = x: no library promises it, and CUDA's float64 pow breaks it
        Property("x^0 = 1", fixed(y=0.0, gives=1.0), applies=tensors_only),
        Property("1^y = 1", fixed(x=1.0, gives=1.0), applies=tensors_only),
        Property("even power", even("x"), applies=exponent_in(2.0, -2.0)),
    ),
    checks=Checks(
        second=_second,
        within=_affordable,
        corners=RESULTS
        | {
            "result in the last two binades": lambda f, v, t, s: last_binades(f, t, 2),
            "base beside 1, result far from it": lambda f, v, t, s: beside(f, v["x"], 1.0, 6) & t.isfinite() & (t > 4),
            "negative base to a large odd power": lambda f, v, t, s: (
                (v["x"] < 0) & ((v["y"] % 2).abs() == 1) & (v["y"].abs() > 40) & t.isfinite() & (t != 0)
            ),
            "ties": lambda f, v, t, s: tie(f, t) & (v["y"] != 1),
        },
        in_cases=(*(({"y": y}, RESULTS) for y in (3.7, -2.0, 17.0)), *(({"x": x}, RESULTS) for x in (2.0, 0.9))),
    ),
    triton="verify.kernels.triton.pow",
)
