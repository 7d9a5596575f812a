"""Facts about torch.div: a / b, with a tensor divisor or a Python scalar one."""

from __future__ import annotations

from verify.facts.bounds import HALVES, SINGLES, correctly_rounded, published, rounded, through_float32, vendor
from verify.facts.formats import Format
from verify.facts.kernel import USERS, Bound, Checks, Kernel, Property, Scalars, Spelling
from verify.facts.properties import even, fixed, odd
from verify.facts.spellings import as_tensor, elementwise, function
from verify.inputs.corners import RESULTS, below_power_of_two, negative_zero, ordinary
from verify.inputs.domains import Stratum
from verify.inputs.draws import Bits, Draw
from verify.inputs.strata import (
    Part,
    compose,
    fraction,
    general,
    neighbourhood,
    quotient_near_midpoint,
    unary,
)
from verify.oracles.div import ORACLE


def scalar(scalars: Scalars) -> bool:
    return "b" in scalars


def tensor(scalars: Scalars) -> bool:
    return "b" not in scalars


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    if "b" in scalars:
        return by_scalar(fmt, abs(scalars["b"]), size)

    def near_midpoint(d: Draw) -> Bits:
        divisor = d.integer(d.fmt.emin // 2, d.fmt.emax // 2 - 1)
        return quotient_near_midpoint(d, d.integer(d.fmt.emin // 2, d.fmt.emax // 2 - 1), divisor)

    def near_value(d: Draw) -> Bits:
        # a = b q moved by a few steps: quotients at and beside a representable q.
        q, b = (d.reals(d.value(d.integer(d.fmt.emin // 2, d.fmt.emax // 2 - 1))) for _ in range(2))
        return d.near(d.encode(q * b), 3), d.encode(b)

    def results(d: Draw) -> Bits:
        return fraction(d, d.integer(d.fmt.emin - d.fmt.precision, d.fmt.emax + 1))

    def subnormal(d: Draw) -> Bits:
        return fraction(d, d.integer(d.fmt.emin - d.fmt.precision - 1, d.fmt.emin))

    def overflow(d: Draw) -> Bits:
        b = d.value(d.integer(d.fmt.emin, -1))
        return d.near(d.encode(d.reals(b) * float(d.fmt.max_finite)), 4), b

    parts = {"near-midpoint": near_midpoint, "near-value": near_value, "results": results}
    parts |= {"subnormal": subnormal, "overflow": overflow}
    return compose(fmt, 2, size, *general(2), *(Part(name, 4, draw) for name, draw in parts.items()))


def by_scalar(fmt: Format, b: float, size: int) -> tuple[Stratum, ...]:
    """One dividend, its quotients by `b` among the strata."""
    limit, normal = float(fmt.max_finite), float(fmt.smallest_normal)

    def multiples(d: Draw) -> Bits:
        q = d.reals(d.value(d.integer(d.fmt.emin // 2, d.fmt.emax // 2)))
        return (d.near(d.encode(q * b), 3),)

    return unary(
        fmt,
        size,
        Part("multiples", 4, multiples),
        neighbourhood("overflow", limit * b if b < 1 else limit),
        neighbourhood("underflow", normal * b, normal * b * 0.5, normal),
    )


RECIPROCAL = (
    "a * RN(1/b), 1/b taken in float64 on the host (BinaryDivTrueKernel.cu; Inductor's lowering for a constant): its "
    "rounding to the compute dtype, which 2^-29 of double rounding exceeds, and the product's"
)
GAMMA_2 = 2 / (1 - 2 * 2.0**-24)
FOLDED = "Inductor folds a constant tensor as the float32 that it was made of, not rounded to half types"
TWO = 2 + 2.0**-28
DIVISION = "Triton's / on float32 operands"
FAST = "Metal's fast math"

KERNEL = Kernel(
    name="div",
    summary="a / b, true division",
    oracle=ORACLE,
    inputs=("a", "b"),
    cases=({}, {"b": 7.0}, {"b": 0.1}, {"b": 3.0}, {"b": 10.0}, {"b": 255.0}),
    quick_cases=3,
    spellings={
        **elementwise("div", broadcast_when=tensor),
        "operator": Spelling(lambda torch, a, b: a / b),
        "b as tensor": Spelling(as_tensor("b", function("div")), scalar),
    },
    domain=domain,
    bounds=(
        *vendor(
            "Apple",
            "fast x/y",
            FAST,
            dtypes=(*HALVES, "float32"),
            lowering="metal-fast",
            applies=tensor,
        ),
        *vendor("Apple", "fast x/y", FAST, dtypes=("float32",), lowering="metal-fast", truth="rounded"),
        *through_float32(
            published("Apple", "fast x/y", "float32").ulps + 1,
            f"the scalar rounded to float32; {FAST}: {published('Apple', 'fast x/y', 'float32').source}",
            lowering="metal-fast",
        ),
        *vendor(
            "NVIDIA",
            "div.full",
            f"{DIVISION}, half ones in spite of division_rounding",
            dtypes=HALVES,
            lowering="inductor*",
            backend="cuda",
            applies=tensor,
        ),
        *correctly_rounded(
            "division_rounding: div.rn",
            dtypes=("float32",),
            lowering="inductor-strict*",
            backend="cuda",
            applies=tensor,
        ),
        *vendor(
            "NVIDIA", "div.full", DIVISION, dtypes=("float32",), lowering="inductor*", backend="cuda", applies=tensor
        ),
        *vendor(
            "OpenCL",
            "div",
            f"{DIVISION}; AMD states no limit of its own, its compiler implements OpenCL's",
            dtypes=(*HALVES, "float32"),
            lowering="inductor*",
            backend="rocm",
            applies=tensor,
        ),
        *vendor(
            "NVIDIA",
            "div.full",
            DIVISION,
            dtypes=("float32",),
            lowering="inductor*",
            backend="cuda",
            spelling="b as tensor",
            truth="rounded",
        ),
        *through_float32(
            published("NVIDIA", "div.full", "float32").ulps + 1,
            f"{FOLDED}; {DIVISION}: {published('NVIDIA', 'div.full', 'float32').source}",
            lowering="inductor*",
            backend="cuda",
            spelling="b as tensor",
        ),
        *through_float32(GAMMA_2, f"{FOLDED}; one division: gamma_2", lowering="inductor*", spelling="b as tensor"),
        *rounded(TWO, RECIPROCAL, dtypes=("float64",), lowering="inductor*", backend="cuda", spelling="b as tensor"),
        *correctly_rounded("one division by the rounded scalar", spelling="b as tensor", truth="rounded"),
        *correctly_rounded("one division", applies=tensor),
        *(
            bound
            for backend in ("cuda", "rocm")
            for lowering in ("eager", "inductor*")
            for bound in (
                *rounded(TWO, RECIPROCAL, lowering=lowering, backend=backend),
                *through_float32(TWO, RECIPROCAL, lowering=lowering, backend=backend),
            )
        ),
        *rounded(3, "the scalar, or its reciprocal, and the result in the dtype", dtypes=HALVES, backend="mps"),
        Bound(
            0.5 + 2.0**-29,
            "ulp",
            "one division by the scalar as it is, in float64, whose rounding counts 2^-29 before the one to float32",
            USERS,
            dtypes=("float32",),
            applies=scalar,
        ),
        *correctly_rounded("one division by the scalar in the dtype", dtypes=SINGLES, truth="rounded"),
        *through_float32(GAMMA_2, "the scalar rounded to float32, one division: gamma_2"),
    ),
    properties=(
        Property("a / 1 = a", fixed(b=1.0, gives="a"), applies=tensor),
        Property("negation", odd("a")),
        Property("sign", even("a", "b"), applies=tensor),
    ),
    checks=Checks(
        second=lambda a, b: type(a)(a.numerator * b.denominator, a.denominator * b.numerator),
        rational=True,
        reference=lambda c, a, b: a / b,
        corners=RESULTS
        | {
            "negative zero": lambda f, v, t, s: negative_zero(v["a"]) & ordinary(v["b"]),
            "below a power of two": lambda f, v, t, s: below_power_of_two(f, v["b"]) & ordinary(v["a"]),
        },
        scalars=({"b": -2.5}, {"b": 1.1}),
    ),
    # a GPU multiplies by the reciprocal of a Python number
    stub="torch.div(a, b if torch.is_tensor(b) else torch.full_like(a, b))",
    triton="verify.kernels.triton.div",
)
