"""Facts about torch.exp."""

from __future__ import annotations

from verify.facts.bounds import HALVES, LOG_RANGE, SINGLES, hand_written, published, rounded, through_float32, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed, within
from verify.facts.spellings import elementwise
from verify.inputs.corners import RESULTS, beside
from verify.inputs.domains import Stratum
from verify.inputs.strata import interval, neighbourhood, unary
from verify.oracles.exp import ORACLE

LN2 = 0.6931471805599453


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    low, normal, high = (LN2 * e for e in (fmt.emin - fmt.precision, fmt.emin, fmt.emax + 1))
    return unary(
        fmt,
        size,
        interval("range", low, high, 8),
        interval("subnormal", low, normal),
        interval("last-binades", high - 2 * LN2, high),
        neighbourhood("edges", low, normal, high),
        # Midway between multiples of ln 2 the reduced argument is largest; at them it cancels.
        neighbourhood("reduction", *(LN2 * k / 2 for k in range(-16, 17) if k)),
        neighbourhood("one", 2.0**-fmt.precision, 2.0 ** -(fmt.precision // 2), 1.0),
    )


EX2 = published("NVIDIA", "ex2.approx", "float32")
ROUNDINGS = 2 * LOG_RANGE + EX2.roundings
TL_EXP = (
    "ex2.approx(x * log2 e): the product's rounding and the constant's change the exponent by 2u |x|, |x| <= 89 where "
    f"the result is normal; {EX2.source}, within {EX2.roundings:g}u"
)
#: 2^-33 of the polynomial and 2^-29 of its roundings, relative to t: below 2^-28, or 2^-4 ULP of float32.
TRITON = (
    "error analysis in kernels/triton/exp.py: below 2^-28 |t| before the last rounding, e = 1/2 + 2^-4 ULP; a "
    "subnormal result loses a bit or more to a second rounding: 1/2 + e/2 ULP"
)

METAL = (
    "the algorithm of kernels/triton/exp.py in kernels/metal/arithmetic.py: below 2^-28 |t| before the last rounding, "
    "e = 1/2 + 2^-4 ULP, on operations correctly rounded to nearest (MSL 8.4, table 8.1; 8.2 leaves the direction to "
    "the device, and the report's environment measures it); a subnormal result is rounded a second time: 1/2 + e/2 ULP"
)

KERNEL = Kernel(
    name="exp",
    summary="exponential",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("exp", broadcast_when=None),
    domain=domain,
    bounds=(
        *rounded(ROUNDINGS, TL_EXP, dtypes=("float32",), lowering="triton-tlmath*"),
        *through_float32(ROUNDINGS / (1 - ROUNDINGS * 2.0**-24), TL_EXP, lowering="triton-tlmath*"),
        *hand_written(0.5 + (0.5 + 2.0**-4) / 2, TRITON),
        *hand_written(0.5 + (0.5 + 2.0**-4) / 2, METAL, lowerings=("metal",)),
        *vendor("Apple", "fast::exp", "Metal's fast math", dtypes=(*HALVES, "float32"), lowering="metal-fast"),
        *vendor("NVIDIA", "exp", "CUDA's libdevice", backend="cuda"),
        *vendor("AMD", "exp", "OCML", backend="rocm"),
        *vendor("Apple", "exp", "metal::precise::exp", dtypes=("float16", "bfloat16", "float32"), backend="mps"),
        *vendor("Intel", "exp", "vmsExp/vmdExp of oneMKL", dtypes=SINGLES, lowering="eager", backend="cpu"),
        *vendor("SLEEF", "exp", "Sleef_exp_u10 of ATen's vector types"),
    ),
    properties=(
        Property("exp(0) = 1", fixed(x=0.0, gives=1.0)),
        Property("range", within(0.0, float("inf"))),
    ),
    checks=Checks(
        second=lambda x: 1 / (-x).exp(),
        within=lambda x: -800 <= x <= 709.78,
        corners=RESULTS | {"result beside 1": lambda f, v, t, s: beside(f, t, 1.0)},
    ),
    triton="verify.kernels.triton.exp",
)
