"""Facts about torch.reciprocal: 1/x."""

from __future__ import annotations

from verify.facts.bounds import HALVES, correctly_rounded, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed, odd
from verify.facts.spellings import elementwise
from verify.inputs.corners import RESULTS, negative_zero
from verify.inputs.domains import Stratum
from verify.inputs.strata import neighbourhood, unary
from verify.oracles.reciprocal import ORACLE


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    limit = 2.0**-fmt.emax  # 1/x overflows just below it, and is subnormal above its inverse
    return unary(
        fmt,
        size,
        neighbourhood("overflow", limit, limit / 2, limit * 2),
        neighbourhood("underflow", 2.0 ** (fmt.emax - 1), 2.0**fmt.emax),
        neighbourhood("halves", 1.0, 2.0, 0.5, 1.5, 3.0),
    )


KERNEL = Kernel(
    name="reciprocal",
    summary="1/x",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("reciprocal", broadcast_when=None),
    domain=domain,
    bounds=(
        *vendor(
            "NVIDIA",
            "div.full",
            "Triton's / on float32 operands, which division_rounding leaves alone for an integer constant (torch 2.11)",
            dtypes=(*HALVES, "float32"),
            lowering="inductor*",
            backend="cuda",
        ),
        *vendor(
            "OpenCL",
            "div",
            "AMD states no limit of its own for Triton's /; its compiler implements OpenCL's",
            dtypes=(*HALVES, "float32"),
            lowering="inductor*",
            backend="rocm",
        ),
        *vendor("Apple", "fast 1.0/x", "Metal's fast math", dtypes=(*HALVES, "float32"), lowering="metal-fast"),
        *correctly_rounded("one division"),
    ),
    properties=(
        Property("negation", odd("x")),
        Property("1/1 = 1", fixed(x=1.0, gives=1.0)),
    ),
    checks=Checks(
        second=lambda x: type(x)(x.denominator, x.numerator),
        rational=True,
        reference=lambda c, x: 1 / x,
        corners=RESULTS | {"negative zero": lambda f, v, t, s: negative_zero(v["x"])},
    ),
    triton="verify.kernels.triton.reciprocal",
)
