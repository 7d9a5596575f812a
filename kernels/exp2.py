"""Facts about torch.exp2."""

from __future__ import annotations

from verify.facts.bounds import HALVES, hand_written, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed, within
from verify.facts.spellings import elementwise
from verify.inputs.corners import RESULTS, beside
from verify.inputs.domains import Stratum
from verify.inputs.strata import interval, neighbourhood, unary
from verify.oracles.exp2 import ORACLE


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    low, normal, high = (float(e) for e in (fmt.emin - fmt.precision, fmt.emin, fmt.emax + 1))
    return unary(
        fmt,
        size,
        interval("range", low, high, 8),
        interval("subnormal", low, normal),
        interval("last-binades", high - 2, high),
        neighbourhood("edges", low, normal, high),
        # Midway between integers the reduced argument is largest; at them results are exact.
        neighbourhood("reduction", *(k / 2 for k in range(-16, 17) if k)),
        neighbourhood("one", 2.0**-fmt.precision, 2.0 ** -(fmt.precision // 2), 1.0),
    )


TRITON = (
    "error analysis in kernels/triton/exp2.py: below 2^-28 |t| before the last rounding, e = 1/2 + 2^-4 ULP; a "
    "subnormal result loses a bit or more to a second rounding: 1/2 + e/2 ULP"
)

KERNEL = Kernel(
    name="exp2",
    summary="power of two",
    oracle=ORACLE,
    inputs=("x",),
    # torch has no _foreach_exp2
    spellings={k: v for k, v in elementwise("exp2", broadcast_when=None).items() if not k.startswith("_foreach_")},
    domain=domain,
    bounds=(
        *hand_written(0.5 + (0.5 + 2.0**-4) / 2, TRITON),
        *vendor("NVIDIA", "exp2", "CUDA's libdevice", backend="cuda"),
        *vendor("AMD", "exp2", "OCML", backend="rocm"),
        *vendor("Apple", "exp2", "metal::precise::exp2", dtypes=(*HALVES, "float32"), backend="mps"),
        *vendor("SLEEF", "exp2", "Sleef_exp2_u10 of ATen's vector types"),
    ),
    properties=(
        Property("exp2(0) = 1", fixed(x=0.0, gives=1.0)),
        Property("range", within(0.0, float("inf"))),
    ),
    checks=Checks(
        second=lambda x: (x * x.const_log2()).exp(),
        within=lambda x: -1154 <= x < 1024,
        corners=RESULTS | {"result beside 1": lambda f, v, t, s: beside(f, t, 1.0)},
    ),
    triton="verify.kernels.triton.exp2",
)
