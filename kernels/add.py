"""Facts about torch.add with alpha: a + alpha * b. `sub` is the same with the sign of alpha turned."""

from __future__ import annotations

from fractions import Fraction

from verify.facts.bounds import HALVES, SINGLES, correctly_rounded, rounded, through_float32
from verify.facts.formats import Format, floor_log2
from verify.facts.kernel import Bound, Checks, Kernel, Property, Scalars, Spelling
from verify.facts.properties import odd, symmetric
from verify.facts.spellings import SCALAR_LOOPS, as_tensor, elementwise, function, omitting
from verify.inputs.corners import SUMS, negative_zero, ordinary
from verify.inputs.domains import Stratum
from verify.inputs.draws import Bits, Draw, Ints
from verify.inputs.strata import compose, general, sums
from verify.oracles.add import ORACLE


def unit(scalars: Scalars) -> bool:
    return scalars["alpha"] == 1


def scaled(scalars: Scalars) -> bool:
    return not unit(scalars)


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int, sign: int = 1) -> tuple[Stratum, ...]:
    alpha = scalars["alpha"] * sign
    shift = floor_log2(abs(Fraction(alpha)))

    def operands(d: Draw, exponent: Ints) -> Bits:
        return (d.value((exponent - shift).clamp(max=d.fmt.emax)),)

    return compose(fmt, 2, size, *general(2), *sums(operands, lambda b: b * alpha))


def spellings(name: str) -> dict[str, Spelling]:
    call = function(name, keywords=("alpha",))
    return {
        **elementwise(name, keywords=("alpha",)),
        "alpha omitted": Spelling(omitting("alpha", call), unit, omits="alpha"),
        "alpha as tensor": Spelling(as_tensor("alpha", call), scaled),
    }


#: |RN(alpha b)| <= |a| + |alpha b| = S; a sum beyond the power of two above S is nearest to that power, at less
#: than the 1/2 ULP by which the product was rounded up, so no binade doubles the second error.
HALF_EACH = "the product and the sum err by at most 1/2 ULP of |a| + |alpha b| each; an fma has no first error"
IN_DTYPE = f"{HALF_EACH}; both are rounded to the dtype itself"

BOUNDS: tuple[Bound, ...] = (
    *correctly_rounded("one addition (fma(1, b, a) is the same)", applies=unit),
    Bound(1.0, "scaled_ulp", HALF_EACH, dtypes=SINGLES, truth="rounded"),
    Bound(1.0, "scaled_ulp", IN_DTYPE, spelling="alpha as tensor", dtypes=HALVES, truth="rounded"),
    *(
        Bound(1.0, "scaled_ulp", f"ATen's scalar loop: {IN_DTYPE}", "eager", "cpu", layout, HALVES, truth="rounded")
        for layout in SCALAR_LOOPS
    ),
    *through_float32(
        1,
        "ATen's CPU vector loop rounds alpha to the dtype; alpha b is exact in float32 (2p <= 24), so that only the "
        "sum errs, by 1/2 ULP",
        metric="scaled_ulp",
        lowering="eager",
        backend="cpu",
        truth="rounded",
    ),
    *rounded(
        3,
        "alpha, product and sum in the dtype (ATen's BinaryKernel.metal)",
        metric="scaled_ulp",
        dtypes=HALVES,
        backend="mps",
    ),
    *rounded(
        3,
        "alpha, product and sum each stored in the dtype by emulate_precision_casts",
        metric="scaled_ulp",
        dtypes=HALVES,
        lowering="inductor-strict*",
    ),
    *through_float32(2, f"alpha rounded to float32: at most 1 ULP of alpha b; {HALF_EACH}", metric="scaled_ulp"),
)

KERNEL = Kernel(
    name="add",
    summary="a + alpha b, a sum with a Python scalar factor",
    oracle=ORACLE,
    inputs=("a", "b", "alpha"),
    cases=({"alpha": 1.0}, {"alpha": 0.3}, {"alpha": -2.5}),
    quick_cases=2,
    spellings=spellings("add"),
    domain=domain,
    bounds=BOUNDS,
    properties=(
        Property("negation", odd("a", "b")),
        Property("commutes", symmetric("a", "b"), applies=unit),
    ),
    checks=Checks(
        second=lambda a, b, alpha: sum((a, b * alpha)),
        rational=True,
        reference=lambda c, a, b, alpha: a + alpha * b,
        corners=SUMS
        | {
            "negative zero": lambda f, v, t, s: negative_zero(v["b"]) & ordinary(v["a"]),
            "opposite operands": lambda f, v, t, s: (v["a"] == -v["b"]) & (v["a"] != 0),
        },
        in_cases=(({"alpha": 0.3}, SUMS),),
    ),
    triton="verify.kernels.triton.add",
    stub="(a + alpha * b)",  # torch's own has an fma in vectors and none beside them
)
