"""Facts about torch.tanh."""

from __future__ import annotations

from verify.facts.bounds import SINGLES, hand_written, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed, odd, within
from verify.facts.spellings import elementwise
from verify.inputs.corners import beside, subnormal
from verify.inputs.domains import Stratum
from verify.inputs.strata import interval, neighbourhood, unary
from verify.oracles.tanh import ORACLE


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    # 1 - tanh(x) is about 2 exp(-2x): below half a place of 1 from x = (p + 1) ln(2)/2 on.
    saturation = (fmt.precision + 1) * 0.34657359027997264
    return unary(
        fmt,
        size,
        interval("range", -saturation, saturation, 8),
        interval("middle", -1.5, 1.5, 6),
        neighbourhood("saturation", saturation, -saturation),
        neighbourhood("switches", 0.55, 0.5625, 0.625, 0.5 * 1.0986122886681098, 1.0),
        neighbourhood("linear", 2.0 ** -(fmt.precision // 2), 2.0 ** -(fmt.precision // 3), 2.0**-fmt.precision),
    )


TRITON = "error analysis in kernels/triton/tanh.py: below 0.1 ULP before the last rounding"

KERNEL = Kernel(
    name="tanh",
    summary="hyperbolic tangent",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("tanh", broadcast_when=None),
    domain=domain,
    bounds=(
        *hand_written(0.6, TRITON),
        *vendor("NVIDIA", "tanh", "CUDA's libdevice", backend="cuda"),
        *vendor("AMD", "tanh", "OCML", backend="rocm"),
        *vendor("Apple", "tanh", "metal::precise::tanh", dtypes=("float16", "bfloat16", "float32"), backend="mps"),
        *vendor("Intel", "tanh", "vmsTanh/vmdTanh of oneMKL", dtypes=SINGLES, lowering="eager", backend="cpu"),
        *vendor("SLEEF", "tanh", "Sleef_tanh_u10 of ATen's vector types"),
    ),
    properties=(
        Property("negation", odd("x")),
        Property("tanh(0) = 0", fixed(x=0.0, gives=0.0)),
        Property("range", within(-1.0, 1.0)),
    ),
    checks=Checks(
        second=lambda x: (2 * x).expm1() / ((2 * x).exp() + 1),
        within=lambda x: abs(x) <= 400,  # beyond, exp(2x) is too long for the second truth
        corners={
            "result beside 1": lambda f, v, t, s: beside(f, t, 1.0),
            "tiny x": lambda f, v, t, s: subnormal(f, t),
        },
    ),
    triton="verify.kernels.triton.tanh",
)
