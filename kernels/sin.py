"""Facts about torch.sin."""

from __future__ import annotations

import functools
import math

from verify.facts.bounds import HALVES, SINGLES, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed, odd, within
from verify.facts.spellings import elementwise
from verify.inputs.corners import beside, subnormal
from verify.inputs.domains import Stratum
from verify.inputs.draws import Bits, Draw
from verify.inputs.strata import Part, interval, neighbourhood, unary
from verify.oracles.sin import ORACLE


def turns(d: Draw) -> Bits:
    """Numbers next to a multiple of pi/2, small ones as often as large ones: the reduction cancels most bits."""
    import torch

    return (d.near(d.encode(d.spread(2 * d.fmt.precision // 3).to(torch.float64) * (math.pi / 2)), 2),)


@functools.cache
def nearest(fmt: Format) -> tuple[float, ...]:
    """For each k the m 2^k, m of at most p bits, nearest to a multiple of pi, where an error of a reduction shows most:
    m is the last denominator below 2^p of the convergents of 2^k / pi (Muller, Elementary Functions, 2016, 11.3.2)."""
    from mpmath.libmp import pi_fixed

    bits, found = fmt.emax + 3 * fmt.precision, []
    pi = pi_fixed(bits)
    for k in range(1 - fmt.precision, fmt.emax - fmt.precision + 2):
        a, b = 1 << bits + max(k, 0), pi << max(-k, 0)
        before, m = 0, 1
        while (a := a % b) and (following := b // a * m + before) < 1 << fmt.precision:
            a, b, before, m = b, a, m, following
        found.append(math.ldexp(m, k))
    return tuple(sorted(set(found)))


def reductions(d: Draw) -> Bits:
    """Those next to a multiple of pi, one after another."""
    import torch

    table = torch.tensor(nearest(d.fmt), dtype=torch.float64, device=d.index.device)
    return (d.signed(d.encode(table[d.index % len(table)])),)


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    return unary(
        fmt,
        size,
        interval("turn", -2 * math.pi, 2 * math.pi, 8),
        interval("many-turns", -40000.0, 40000.0, 4),
        Part("multiples", 6, turns),
        Part("nearest", 1, reductions),
        # Where implementations take a longer reduction: CUDA's 105615, SLEEF's 125 and 39000.
        neighbourhood("reductions", *(x for x in (125.0, 39000.0, 105615.0) if x < fmt.max_finite)),
        neighbourhood("linear", 2.0 ** -(fmt.precision // 2), 2.0 ** -(fmt.precision // 3), 2.0**-fmt.precision),
    )


KERNEL = Kernel(
    name="sin",
    summary="sine",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("sin", broadcast_when=None),
    domain=domain,
    bounds=(
        *vendor("NVIDIA", "sin", "CUDA's libdevice", backend="cuda"),
        *vendor("AMD", "sin", "OCML", backend="rocm"),
        *vendor("Apple", "sin", "metal::precise::sin", dtypes=(*HALVES, "float32"), backend="mps"),
        *vendor("Intel", "sin", "vmsSin/vmdSin of oneMKL", dtypes=SINGLES, lowering="eager", backend="cpu"),
        *vendor(
            "SLEEF",
            "sin_u35",
            "Sleef_sinf_u35 of ATen's vectors of float32, through which Inductor takes half types",
            dtypes=(*HALVES, "float32"),
            lowering="inductor*",
        ),
        *vendor("SLEEF", "sin", "Sleef_sin_u10 of ATen's other vector types"),
    ),
    properties=(
        Property("negation", odd("x")),
        Property("sin(0) = 0", fixed(x=0.0, gives=0.0)),
        Property("range", within(-1.0, 1.0)),
    ),
    checks=Checks(
        second=lambda x: 2 * (x / 2).sin() * (x / 2).cos(),
        corners={
            "result beside 1": lambda f, v, t, s: beside(f, t, 1.0),
            "next to a multiple of pi": lambda f, v, t, s: (t.abs() < 2.0 ** (2 - f.precision)) & (v["x"].abs() > 1),
            "huge x": lambda f, v, t, s: v["x"].abs() > 2.0 ** (f.emax // 2),
            "tiny x": lambda f, v, t, s: subnormal(f, t),
        },
    ),
    triton="verify.kernels.triton.sin",
)
