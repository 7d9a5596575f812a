"""Facts about torch.addcdiv: a + value * b / c."""

from __future__ import annotations

from fractions import Fraction

from verify.facts.bounds import HALVES, SINGLES, composite, published, rounded, through_float32
from verify.facts.formats import Format, floor_log2
from verify.facts.kernel import Bound, Checks, Kernel, Property, Scalars, Spelling
from verify.facts.properties import even, odd
from verify.facts.spellings import as_tensor, elementwise, function, omitting
from verify.inputs.corners import SUMS
from verify.inputs.domains import Stratum
from verify.inputs.draws import Bits, Draw, Ints
from verify.inputs.strata import compose, fraction, general, sums
from verify.oracles.addcdiv import ORACLE


def unit(scalars: Scalars) -> bool:
    return scalars["value"] == 1


def scaled(scalars: Scalars) -> bool:
    return not unit(scalars)


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    value = scalars["value"]
    shift = floor_log2(abs(Fraction(value)))

    def operands(d: Draw, exponent: Ints) -> Bits:
        return fraction(d, exponent - shift)

    return compose(fmt, 3, size, *general(3), *sums(operands, lambda b, c: b / c * value))


CALL = function("addcdiv", keywords=("value",))
HALF_EACH = "the quotient and the sum err by at most 1/2 ULP of |a| + |b/c| each"
DIV_FULL = published("NVIDIA", "div.full", "float32")
APPROXIMATE = f"Triton's / on float32 is div.full ({DIV_FULL.source}), within {DIV_FULL.roundings:g}u; product and sum"

KERNEL = Kernel(
    name="addcdiv",
    summary="a + value b / c, the step of Adam and its kin",
    oracle=ORACLE,
    inputs=("a", "b", "c", "value"),
    cases=({"value": 1.0}, {"value": 0.3}, {"value": -0.001}),
    quick_cases=2,
    spellings={
        **elementwise("addcdiv", keywords=("value",)),
        "value omitted": Spelling(omitting("value", CALL), unit, omits="value"),
        "value as tensor": Spelling(as_tensor("value", CALL), scaled),
    },
    domain=domain,
    bounds=(
        *rounded(
            4,
            "value, product, quotient and sum in the dtype (ATen's PointwiseOps.metal)",
            metric="scaled_ulp",
            dtypes=HALVES,
            backend="mps",
        ),
        *rounded(
            4,
            "value, quotient, product and sum each stored in the dtype by emulate_precision_casts (a quotient of "
            "div.full adds 2^-10 ULP at most)",
            metric="scaled_ulp",
            dtypes=HALVES,
            lowering="inductor-strict*",
        ),
        *rounded(
            DIV_FULL.roundings + 2,
            APPROXIMATE,
            metric="scaled_ulp",
            dtypes=("float32",),
            lowering="inductor*",
            backend="cuda",
            truth="rounded",
        ),
        *through_float32(
            DIV_FULL.roundings + 3,
            f"{APPROXIMATE}; value rounded to float32, a tensor's too (Inductor folds it as the constant it was given)",
            metric="scaled_ulp",
            lowering="inductor*",
            backend="cuda",
        ),
        Bound(1.0, "scaled_ulp", HALF_EACH, dtypes=SINGLES, applies=unit),
        *through_float32(2 / (1 - 2 * 2.0**-24), "a quotient and a sum: gamma_2", metric="scaled_ulp", applies=unit),
        *composite(
            3,
            "a product and a quotient, in any order, and a sum; the tensor holds value in the dtype",
            lowering="eager",
            spelling="value as tensor",
            truth="rounded",
        ),
        *composite(2, "fma(value, RN(b/c), a)", extra=1, lowering="triton*"),
        *composite(3, "a product and a quotient, in any order, and a sum; an fma spares one rounding", extra=1),
    ),
    properties=(
        Property("negation", odd("a", "b")),
        Property("sign of the quotient", even("b", "c")),
    ),
    checks=Checks(
        second=lambda a, b, c, value: (a * c + b * value) / c,
        rational=True,
        reference=lambda library, a, b, c, value: a + value * (b / c),
        corners=SUMS,
        in_cases=(({"value": 0.3}, SUMS),),
    ),
    triton="verify.kernels.triton.addcdiv",
)
