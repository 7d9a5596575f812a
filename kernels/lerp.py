"""Facts about torch.lerp: a + w (b - a), with a tensor weight or a Python scalar one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verify.facts.bounds import HALVES, rounded, through_float32
from verify.facts.formats import Format
from verify.facts.kernel import Bound, Checks, Kernel, Property, Scalars, Spelling
from verify.facts.properties import finite, fixed, odd
from verify.facts.spellings import as_tensor, elementwise, function
from verify.inputs.corners import RESULTS, SUMS, beside, ordinary
from verify.inputs.domains import Stratum
from verify.inputs.draws import Bits, Draw
from verify.inputs.strata import Part, compose, general
from verify.oracles.lerp import ORACLE


def scalar(scalars: Scalars) -> bool:
    return "w" in scalars


def tensor(scalars: Scalars) -> bool:
    return "w" not in scalars


def above(scalars: Scalars) -> bool:
    return scalars.get("w", 0.0) > 2


def below(scalars: Scalars) -> bool:
    return scalars.get("w", 0.0) <= -0.5


#: Where implementations switch sides, and where one end point is the result.
EDGES = ("0", "0.5", "1", "2", "-0.5", "-1", "1.5", "0.25")


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    weight = scalars.get("w")

    def inside(d: Draw) -> Any:
        """A weight in [0, 1), or the scalar's; float64."""
        return d.real(0.0, 1.0) if weight is None else d.real(weight, weight)

    def done(d: Draw, a: Any, b: Any, w: Any) -> Bits:
        """The case's tensors, of patterns a and b and of a float64 weight."""
        return (a, b) if weight is not None else (a, b, d.encode(w))

    def ordinary(d: Draw) -> Bits:
        exponent = d.integer(d.fmt.emin, d.fmt.emax - 1)
        return done(d, d.value(exponent), d.value(exponent + d.integer(-4, 4)), inside(d))

    def near_ends(d: Draw) -> Bits:
        a = d.finite()
        return done(d, a, d.near(a, d.fmt.precision), inside(d))

    def cancel(d: Draw) -> Bits:
        # a + w (b - a) = 0 at b = a - a/w: b is placed near it, for any weight.
        a, w = d.value(d.integer(d.fmt.emin, d.fmt.emax)), inside(d)
        real = d.reals(a)
        return done(d, a, d.near(d.encode(real - real / (w + 2.0**-60)), d.fmt.precision), w)

    def subnormal(d: Draw) -> Bits:
        low, high = d.fmt.emin - d.fmt.mantissa_bits, d.fmt.emin + 1
        return done(d, d.value(d.integer(low, high)), d.value(d.integer(low, high)), inside(d))

    def overflow(d: Draw) -> Bits:
        # Ends of either sign in the last two binades: b - a overflows, or the result is near the limit.
        a, b = (
            d.either(d.value(d.fmt.emax - d.integer(0, 1)), d.signed(d.near(d.constant("inf"), 4))) for _ in range(2)
        )
        return done(d, a, b, inside(d))

    parts = [Part("ordinary", 4, ordinary), Part("near-ends", 4, near_ends), Part("cancel", 4, cancel)]
    parts += [Part("subnormal", 4, subnormal), Part("overflow", 4, overflow)]
    if weight is None:

        def edges(d: Draw) -> Bits:
            exponent = d.integer(d.fmt.emin, d.fmt.emax - 1)
            points = d.pick([d.fmt.parse(text) for text in EDGES])
            ends = d.value(exponent), d.value(exponent + d.integer(-2, 2))
            return *ends, d.near(points, d.fmt.precision)

        def half(d: Draw) -> Bits:
            exponent = d.integer(d.fmt.emin, d.fmt.emax - 1)
            ends = d.value(exponent), d.value(exponent + d.integer(-2, 2))
            return *ends, d.near(d.constant("0.5"), 3)

        def outside(d: Draw) -> Bits:
            exponent = d.integer(d.fmt.emin // 2, d.fmt.emax // 2)
            ends = d.value(exponent), d.value(exponent + d.integer(-2, 2))
            return *ends, d.value(d.integer(-1, d.fmt.emax // 4))

        def cancelling_weight(d: Draw) -> Bits:
            a, b = (
                d.value(d.integer(d.fmt.emin // 2, d.fmt.emax // 2)),
                d.value(d.integer(d.fmt.emin // 2, d.fmt.emax // 2)),
            )
            difference = d.reals(b) - d.reals(a)
            nonzero = difference + (difference == 0) * 1.0
            return a, b, d.near(d.encode(-d.reals(a) / nonzero), d.fmt.precision)

        parts += [Part("edges", 4, edges), Part("half", 2, half), Part("outside", 4, outside)]
        parts += [Part("cancelling-weight", 4, cancelling_weight)]
    arity = len(tensors)
    return compose(fmt, arity, size, *general(arity), *parts)


LOW = "|w| < 1/2: difference, product and sum err by 3u(|a| + |w (b - a)|)"
#: |b - w'(b - a)| with w' = 1 - w: three roundings on w'(b - a), one on the result, |result| <= |a| + |w (b - a)|.
HIGH_SCALAR = (
    "w in [1/2, 2]: 1 - w is exact for a rounded w (Sterbenz), whose own rounding moves the result by u |w (b - a)|, "
    "or is rounded once from the host's double; difference, product and result follow, on |1 - w| <= |w|"
)
HIGH_TENSOR = (
    "w in [1/2, 2]: 1 - w is exact (Sterbenz); w <= -1/2: it has one rounding and |1 - w| <= 3|w|, so that "
    "coefficient, difference and product count 9 and the result 1"
)
#: Beyond, where 1 - w is rounded too.
ABOVE = "w > 2: |1 - w| < |w|, so that weight, coefficient, difference, product and result count 1 each"
BELOW = "w <= -1/2: |1 - w| <= 3|w|, so that coefficient, difference and product count 9, weight and result 1 each"


def finite_ends(a: Any, b: Any, w: Any) -> Any:
    return finite(a, b, b - a)


def far(n: int, why: str, applies: Callable[[Scalars], bool]) -> tuple[Bound, ...]:
    """Of a scalar weight, for n roundings in the compute dtype; one more where half types round it first, or all."""
    where: dict[str, Any] = {"metric": "scaled_ulp", "applies": applies}
    strict = f"every step in the dtype, the weight too; {why}"
    return (
        *rounded(n + 1, strict, dtypes=HALVES, lowering="inductor-strict*", **where),
        *through_float32(n + 1, why, lowering="metal*", **where),
        *rounded(n + 1, strict, dtypes=HALVES, backend="mps", **where),
        *rounded(n, why, **where),
        *through_float32(n + 1, why, **where),
    )


TWO_SIDED = ("eager", "inductor*", "triton*", "metal*")

KERNEL = Kernel(
    name="lerp",
    summary="a + w (b - a), linear interpolation",
    oracle=ORACLE,
    inputs=("a", "b", "w"),
    stub="(a + w * (b - a))",  # torch's two-sided form has other bits in other layouts
    cases=({}, {"w": 0.9}, {"w": 0.4}, {"w": 0.1}, {"w": 0.5}, {"w": 0.9999}),
    quick_cases=3,
    spellings={
        **elementwise("lerp"),
        "w as tensor": Spelling(as_tensor("w", function("lerp")), scalar),
    },
    domain=domain,
    bounds=(
        *far(5, ABOVE, above),
        *far(11, BELOW, below),
        *rounded(
            10,
            f"every step in the dtype; {HIGH_TENSOR}",
            metric="scaled_ulp",
            dtypes=HALVES,
            lowering="inductor-strict*",
            applies=tensor,
        ),
        *rounded(
            5,
            f"every step in the dtype, the weight too; {HIGH_SCALAR}",
            metric="scaled_ulp",
            dtypes=HALVES,
            lowering="inductor-strict*",
            applies=scalar,
        ),
        *through_float32(
            10 / (1 - 10 * 2.0**-24), f"{LOW}; {HIGH_TENSOR}", metric="scaled_ulp", lowering="metal*", applies=tensor
        ),
        *through_float32(5, f"{LOW}; {HIGH_SCALAR}", metric="scaled_ulp", lowering="metal*", applies=scalar),
        *rounded(10, f"every step in the dtype; {HIGH_TENSOR}", metric="scaled_ulp", dtypes=HALVES, backend="mps"),
        *rounded(10, f"{LOW}; {HIGH_TENSOR}", metric="scaled_ulp", applies=tensor),
        *through_float32(10 / (1 - 10 * 2.0**-24), f"{LOW}; {HIGH_TENSOR}", metric="scaled_ulp", applies=tensor),
        *rounded(4, f"{LOW}; {HIGH_SCALAR}", metric="scaled_ulp", spelling="w as tensor", truth="rounded"),
        *through_float32(5, f"{LOW}; {HIGH_SCALAR}", metric="scaled_ulp", spelling="w as tensor", truth="rounded"),
        *rounded(4, f"{LOW}, the rounding of w counts one more; {HIGH_SCALAR}", metric="scaled_ulp"),
        *through_float32(5, f"{LOW}, the rounding of w counts one more; {HIGH_SCALAR}", metric="scaled_ulp"),
    ),
    properties=(
        Property("w = 0 gives a", fixed(w=0.0, gives="a", when=finite_ends), applies=tensor, lowerings=TWO_SIDED),
        Property("w = 1 gives b", fixed(w=1.0, gives="b", when=finite_ends), applies=tensor, lowerings=TWO_SIDED),
        Property("negation", odd("a", "b")),
    ),
    checks=Checks(
        second=lambda a, b, w: (1 - w) * a + w * b,
        rational=True,
        reference=lambda c, a, b, w: a + w * (b - a),
        corners=SUMS
        | {
            "w beside 1/2": lambda f, v, t, s: beside(f, v["w"], 0.5),
            "w beside 1": lambda f, v, t, s: beside(f, v["w"], 1.0),
            "w = 1/2": lambda f, v, t, s: (v["w"] == 0.5) & ordinary(v["a"]) & ordinary(v["b"]),
            "w beyond 1": lambda f, v, t, s: (v["w"] > 1) & t.isfinite() & ordinary(v["a"]),
            "a beside b": lambda f, v, t, s: beside(f, v["a"] / v["b"], 1.0, 3),
        },
        in_cases=(({"w": 0.9}, {name: SUMS[name] for name in SUMS if name not in RESULTS}),),
        scalars=({"w": 0.25}, {"w": 0.3}, {"w": -0.7}, {"w": 3.0}),
    ),
    triton="verify.kernels.triton.lerp",
)
