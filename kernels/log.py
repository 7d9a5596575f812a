"""Facts about torch.log."""

from __future__ import annotations

from verify.facts.bounds import HALVES, SINGLES, hand_written, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed
from verify.facts.spellings import elementwise
from verify.inputs.corners import beside, subnormal
from verify.inputs.domains import Stratum
from verify.inputs.strata import interval, neighbourhood, unary
from verify.oracles.log import ORACLE


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    return unary(
        fmt,
        size,
        # log(1 + f) is nearly f: all of the result's bits come from the difference to 1.
        neighbourhood("one", 1.0, weight=8),
        interval("around-one", 0.5, 2.0, 8),
        # Implementations change the exponent that they split off at sqrt(1/2), sqrt(2), 2/3 or 4/3.
        neighbourhood("reduction", 0.7071067811865476, 1.4142135623730951, 2 / 3, 4 / 3, 0.75, 1.5),
        neighbourhood("integers-of-e", 2.718281828459045, 0.36787944117144233, 7.38905609893065),
    )


#: 2^-30 of the polynomial, the pair's roundings of 2^-4 ULP and the tail of e ln 2.
TRITON = "error analysis in kernels/triton/log.py: below 0.1 ULP before the last rounding"
METAL = (
    "the algorithm of kernels/triton/log.py in kernels/metal/log.py: below 0.1 ULP before the last rounding, on "
    "operations correctly rounded to nearest (MSL 8.4, table 8.1; 8.2 leaves the direction to the device, and the "
    "report's environment measures it)"
)

KERNEL = Kernel(
    name="log",
    summary="natural logarithm",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("log", broadcast_when=None),
    domain=domain,
    bounds=(
        *hand_written(0.6, TRITON),
        *hand_written(0.6, METAL, lowerings=("metal",)),
        *vendor("Apple", "fast::log", "Metal's fast math", dtypes=(*HALVES, "float32"), lowering="metal-fast"),
        *vendor("NVIDIA", "log", "CUDA's libdevice, to which tl.math.log lowers too", backend="cuda"),
        *vendor("AMD", "log", "OCML", backend="rocm"),
        *vendor("Apple", "log", "metal::precise::log", dtypes=("float16", "bfloat16", "float32"), backend="mps"),
        *vendor("Intel", "log", "vmsLn/vmdLn of oneMKL", dtypes=SINGLES, lowering="eager", backend="cpu"),
        *vendor("SLEEF", "log", "Sleef_log_u10 of ATen's vector types"),
    ),
    properties=(Property("log(1) = 0", fixed(x=1.0, gives=0.0)),),
    checks=Checks(
        second=lambda x: x.log(),
        within=lambda x: x > 0,
        corners={
            "x beside 1": lambda f, v, t, s: beside(f, v["x"], 1.0),
            "subnormal x": lambda f, v, t, s: subnormal(f, v["x"]) & (v["x"] > 0),
        },
    ),
    triton="verify.kernels.triton.log",
)
