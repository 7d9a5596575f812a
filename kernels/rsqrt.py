"""Facts about torch.rsqrt: 1/sqrt(x)."""

from __future__ import annotations

from verify.facts.bounds import HALVES, SINGLES, composite, rounded, through_float32, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Bound, Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed
from verify.facts.spellings import SCALAR_LOOPS, elementwise
from verify.inputs.domains import Stratum
from verify.inputs.draws import Bits, Draw
from verify.inputs.strata import Part, neighbourhood, unary
from verify.oracles.rsqrt import ORACLE


def inverse_squares(d: Draw) -> Bits:
    """x = 1/y^2 for arbitrary y, and neighbours: results at and beside a representable value."""
    y = d.reals(d.value(d.integer(d.fmt.emin // 2 + 1, d.fmt.emax // 2 - 1)))
    return (d.near(d.encode((y * 0.0 + 1.0) / (y * y)), 3),)


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    return unary(fmt, size, Part("inverse-squares", 6, inverse_squares), neighbourhood("one", 1.0, 2.0, 4.0, 0.25))


#: e = 1.5 ULP < 2^-22.4 before the step: its own error 3/2 e^2 < 2^-44, the residual's three roundings on 2e the same.
NEWTON = "a Newton step with a fused residual leaves 2^-19 ULP before the last rounding (kernels/triton/rsqrt.py)"

KERNEL = Kernel(
    name="rsqrt",
    summary="1/sqrt(x)",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("rsqrt", broadcast_when=None),
    domain=domain,
    bounds=(
        Bound(0.5 + 2.0**-18, "ulp", NEWTON, lowering="triton*", dtypes=SINGLES),
        *through_float32(0.5 + 2.0**-18, NEWTON, lowering="triton*"),
        *vendor("NVIDIA", "rsqrt", "rsqrtf and rsqrt of CUDA's libdevice", backend="cuda"),
        *vendor("AMD", "rsqrt", "OCML", backend="rocm"),
        *vendor("Apple", "rsqrt", "metal::precise::rsqrt", dtypes=(*HALVES, "float32"), backend="mps"),
        *(
            bound
            for layout in SCALAR_LOOPS
            if layout != "broadcast"
            for bound in rounded(
                2,
                "ATen's scalar loop: a square root and a division in the dtype",
                dtypes=HALVES,
                lowering="eager",
                backend="cpu",
                spelling=layout,
            )
        ),
        *composite(2, "a square root and a division", metric="ulp"),
    ),
    properties=(Property("rsqrt(1) = 1", fixed(x=1.0, gives=1.0)),),
    checks=Checks(
        second=lambda x: x.rsqrt(),
        within=lambda x: x > 0,
        reference=lambda c, x: 1 / c.sqrt(x),
        corners={"exact result": lambda f, v, t, s: t * t * v["x"] == 1},
    ),
    triton="verify.kernels.triton.rsqrt",
)
