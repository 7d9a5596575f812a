"""Facts about torch.erf."""

from __future__ import annotations

from verify.facts.bounds import SINGLES, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed, odd, within
from verify.facts.spellings import elementwise
from verify.inputs.corners import beside, subnormal
from verify.inputs.domains import Stratum
from verify.inputs.strata import interval, neighbourhood, unary
from verify.oracles.erf import ORACLE


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    # 1 - erf(x) is below exp(-x^2): under half a place of 1 from x^2 = (p + 1) ln(2) on.
    saturation = float((fmt.precision + 1) * 0.6931471805599453) ** 0.5
    return unary(
        fmt,
        size,
        interval("range", -saturation, saturation, 8),
        interval("middle", -1.0, 1.0, 6),
        neighbourhood("saturation", saturation, -saturation),
        # Where implementations change polynomials: fdlibm's, and those of CUDA and of fast approximations.
        neighbourhood("switches", 0.84375, 1.25, 1 / 0.35, 0.927734375, 1.0, 2.0, 0.5),
        neighbourhood("linear", 2.0 ** -(fmt.precision // 2), 2.0 ** -(fmt.precision // 3), 2.0**-fmt.precision),
    )


KERNEL = Kernel(
    name="erf",
    summary="error function",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("erf", broadcast_when=None),
    domain=domain,
    bounds=(
        *vendor("NVIDIA", "erf", "CUDA's libdevice", backend="cuda"),
        *vendor("AMD", "erf", "OCML", backend="rocm"),
        *vendor("Intel", "erf", "vmsErf/vmdErf of oneMKL", dtypes=SINGLES, lowering="eager", backend="cpu"),
        *vendor("SLEEF", "erf", "Sleef_erf_u10 of ATen's vector types", backend="cpu"),
    ),
    properties=(
        Property("negation", odd("x")),
        Property("erf(0) = 0", fixed(x=0.0, gives=0.0)),
        Property("range", within(-1.0, 1.0)),
    ),
    checks=Checks(
        second=lambda x: 1 - x.erfc(),
        within=lambda x: abs(x) <= 28,  # beyond, 1 - erf(x) is too small for the second truth
        corners={
            "result beside 1": lambda f, v, t, s: beside(f, t, 1.0),
            "tiny x": lambda f, v, t, s: subnormal(f, t),
        },
    ),
    triton="verify.kernels.triton.erf",
)
