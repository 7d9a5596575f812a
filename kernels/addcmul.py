"""Facts about torch.addcmul: a + value * b * c."""

from __future__ import annotations

from fractions import Fraction

from verify.facts.bounds import HALVES, SINGLES, composite, correctly_rounded, rounded, through_float32
from verify.facts.formats import Format, floor_log2
from verify.facts.kernel import Bound, Checks, Kernel, Property, Scalars, Spelling
from verify.facts.properties import even, odd, symmetric
from verify.facts.spellings import as_tensor, elementwise, function, omitting
from verify.inputs.corners import SUMS, below_power_of_two, negative_zero, ordinary
from verify.inputs.domains import Stratum
from verify.inputs.draws import Bits, Draw, Ints
from verify.inputs.strata import compose, factors, general, sums
from verify.oracles.addcmul import ORACLE


def unit(scalars: Scalars) -> bool:
    return scalars["value"] == 1


def scaled(scalars: Scalars) -> bool:
    return not unit(scalars)


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    value = scalars["value"]
    shift = floor_log2(abs(Fraction(value)))

    def operands(d: Draw, exponent: Ints) -> Bits:
        return factors(d, exponent - shift)

    return compose(fmt, 3, size, *general(3), *sums(operands, lambda b, c: b * c * value))


CALL = function("addcmul", keywords=("value",))
FUSED = "one fma(b, c, a)"
HALF_EACH = "the product and the sum err by at most 1/2 ULP of |a| + |b c| each; an fma has no first error"
EXACT_PRODUCT = "b c is exact in float32 (2p <= 24)"

KERNEL = Kernel(
    name="addcmul",
    summary="a + value b c, a fused multiply-add with a scalar",
    oracle=ORACLE,
    inputs=("a", "b", "c", "value"),
    cases=({"value": 1.0}, {"value": 0.3}, {"value": -1.7}),
    quick_cases=2,
    spellings={
        **elementwise("addcmul", keywords=("value",)),
        "value omitted": Spelling(omitting("value", CALL), unit, omits="value"),
        "value as tensor": Spelling(as_tensor("value", CALL), scaled),
    },
    domain=domain,
    bounds=(
        *correctly_rounded(FUSED, dtypes=SINGLES, lowering="triton*", applies=unit),
        *correctly_rounded(
            f"{FUSED} (DeviceAddCmulCdiv.cuh)", dtypes=SINGLES, lowering="eager", backend="cuda", applies=unit
        ),
        *correctly_rounded(f"{FUSED} (MSL table 8.1)", dtypes=("float32",), lowering="metal", applies=unit),
        Bound(1.0, "scaled_ulp", HALF_EACH, dtypes=SINGLES, applies=unit),
        *through_float32(
            1, f"{EXACT_PRODUCT}; the sum's 1/2 ULP", metric="scaled_ulp", lowering="metal*", applies=unit
        ),
        *composite(2, "fma(value, RN(b c), a)", extra=1, lowering="metal"),
        *composite(3, "two products, in any order, and a sum", extra=1, lowering="metal-fast"),
        *rounded(
            4,
            "value, products and sum in the dtype (ATen's PointwiseOps.metal)",
            metric="scaled_ulp",
            dtypes=HALVES,
            backend="mps",
        ),
        *rounded(
            4,
            "value, products and sum each stored in the dtype by emulate_precision_casts",
            metric="scaled_ulp",
            dtypes=HALVES,
            lowering="inductor-strict*",
        ),
        *through_float32(1, f"{EXACT_PRODUCT}; the sum's 1/2 ULP", metric="scaled_ulp", applies=unit),
        *composite(3, "two products, in any order, and a sum", spelling="value as tensor", truth="rounded"),
        *composite(2, "fma(value, RN(b c), a)", extra=1, lowering="triton*"),
        *composite(3, "two products, in any order, and a sum; an fma spares one rounding", extra=1),
    ),
    properties=(
        Property("commutes", symmetric("b", "c"), applies=unit),
        Property("negation", odd("a", "b")),
        Property("sign of the product", even("b", "c")),
    ),
    checks=Checks(
        second=lambda a, b, c, value: (a / value + c * b) * value,
        within=lambda a, b, c, value: value != 0,
        rational=True,
        reference=lambda library, a, b, c, value: a + value * b * c,
        corners=SUMS
        | {
            "negative zero": lambda f, v, t, s: negative_zero(v["c"]) & ordinary(v["a"]) & ordinary(v["b"]),
            "below a power of two": lambda f, v, t, s: (
                below_power_of_two(f, v["b"]) & ordinary(v["a"]) & ordinary(v["c"])
            ),
        },
        in_cases=(({"value": 0.3}, SUMS),),
    ),
    triton="verify.kernels.triton.addcmul",
)
