"""Facts about torch.log2."""

from __future__ import annotations

from verify.facts.bounds import HALVES, SINGLES, hand_written, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed
from verify.facts.spellings import elementwise
from verify.inputs.corners import beside, subnormal
from verify.inputs.domains import Stratum
from verify.inputs.strata import interval, neighbourhood, unary
from verify.oracles.log2 import ORACLE


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    return unary(
        fmt,
        size,
        # log2(1 + f) is nearly f / ln 2: all of the result's bits come from the difference to 1.
        neighbourhood("one", 1.0, weight=8),
        interval("around-one", 0.5, 2.0, 8),
        # Implementations change the exponent that they split off at sqrt(1/2), sqrt(2), 2/3 or 4/3.
        neighbourhood("reduction", 0.7071067811865476, 1.4142135623730951, 2 / 3, 4 / 3, 0.75, 1.5),
        # Exact results; beside them the fraction that is added to the exponent is smallest.
        neighbourhood("powers", 0.25, 0.5, 2.0, 4.0, 8.0, 1024.0),
    )


TRITON = "error analysis in kernels/triton/log2.py: below 0.1 ULP before the last rounding"

KERNEL = Kernel(
    name="log2",
    summary="binary logarithm",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("log2", broadcast_when=None),
    domain=domain,
    bounds=(
        *hand_written(0.6, TRITON),
        *vendor("NVIDIA", "log2", "CUDA's libdevice", backend="cuda"),
        *vendor("AMD", "log2", "OCML", backend="rocm"),
        *vendor("Apple", "log2", "metal::precise::log2", dtypes=(*HALVES, "float32"), backend="mps"),
        *vendor("Intel", "log2", "vmsLog2/vmdLog2 of oneMKL", dtypes=SINGLES, lowering="eager", backend="cpu"),
        *vendor("SLEEF", "log2", "Sleef_log2_u10 of ATen's vector types"),
    ),
    # CUDA's float64 gives 3 - 2^-51 for log2(8), an ULP off as documented: exact powers are no law.
    properties=(Property("log2(1) = 0", fixed(x=1.0, gives=0.0)),),
    checks=Checks(
        second=lambda x: x.log() / x.const_log2(),
        within=lambda x: x > 0,
        corners={
            "x beside 1": lambda f, v, t, s: beside(f, v["x"], 1.0),
            "x beside 8": lambda f, v, t, s: beside(f, v["x"], 8.0),
            "subnormal x": lambda f, v, t, s: subnormal(f, v["x"]) & (v["x"] > 0),
        },
    ),
    triton="verify.kernels.triton.log2",
)
