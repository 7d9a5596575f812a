"""Facts about torch.atan."""

from __future__ import annotations

import math

from verify.facts.bounds import HALVES, SINGLES, hand_written, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed, odd, within
from verify.facts.spellings import elementwise
from verify.inputs.corners import beside, subnormal
from verify.inputs.domains import Stratum
from verify.inputs.strata import interval, neighbourhood, unary
from verify.oracles.atan import ORACLE


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    # pi/2 - atan(x) is nearly 1/x: below half a place of pi/2 from 2^(p - 1) on.
    saturation = 2.0 ** (fmt.precision - 1)
    return unary(
        fmt,
        size,
        interval("middle", -1.0, 1.0, 6),
        interval("range", -8.0, 8.0, 8),
        neighbourhood("saturation", *(x for x in (saturation, 2 * saturation) if x < fmt.max_finite)),
        # Where implementations change their reduction: 1, tan(pi/8) and tan(3 pi/8), fdlibm's.
        neighbourhood("reductions", 1.0, 2**0.5 - 1, 2**0.5 + 1, 0.4375, 0.6875, 1.1875, 2.4375),
        neighbourhood("linear", 2.0 ** -(fmt.precision // 2), 2.0 ** -(fmt.precision // 3), 2.0**-fmt.precision),
    )


TRITON = "error analysis in kernels/triton/atan.py: in float64, below 2^-20 ULP before the one rounding"

KERNEL = Kernel(
    name="atan",
    summary="arctangent",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("atan", broadcast_when=None),
    domain=domain,
    bounds=(
        *hand_written(0.5001, TRITON),
        *vendor("NVIDIA", "atan", "CUDA's libdevice", backend="cuda"),
        *vendor("AMD", "atan", "OCML", backend="rocm"),
        *vendor("Apple", "atan", "metal::precise::atan", dtypes=(*HALVES, "float32"), backend="mps"),
        *vendor("Intel", "atan", "vmsAtan/vmdAtan of oneMKL", dtypes=SINGLES, lowering="eager", backend="cpu"),
        *vendor("SLEEF", "atan", "Sleef_atan_u10 of ATen's vector types", backend="cpu"),
    ),
    properties=(
        Property("negation", odd("x")),
        Property("atan(0) = 0", fixed(x=0.0, gives=0.0)),
        Property("range", within(-1.5708, 1.5708)),
    ),
    checks=Checks(
        second=lambda x: x.atan(),
        corners={
            "x beside 1": lambda f, v, t, s: beside(f, v["x"], 1.0),
            "result beside pi/2": lambda f, v, t, s: beside(f, t, math.pi / 2),
            "tiny x": lambda f, v, t, s: subnormal(f, t),
        },
    ),
    triton="verify.kernels.triton.atan",
)
