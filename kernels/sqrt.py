"""Facts about torch.sqrt."""

from __future__ import annotations

from verify.facts.bounds import SINGLES, correctly_rounded, vendor
from verify.facts.formats import Format
from verify.facts.kernel import Checks, Kernel, Property, Scalars
from verify.facts.properties import fixed, non_decreasing
from verify.facts.spellings import elementwise
from verify.inputs.corners import ordinary
from verify.inputs.domains import Stratum
from verify.inputs.draws import Bits, Draw
from verify.inputs.strata import Part, neighbourhood, unary
from verify.oracles.sqrt import ORACLE


def squares(d: Draw) -> Bits:
    """Squares of values of half the precision, and their neighbours: exact roots, and the nearest to exact."""
    root = d.reals(d.value(d.integer(d.fmt.emin // 2, d.fmt.emax // 2 - 1)))
    return (d.near(d.encode(root * root), 3),)


def domain(fmt: Format, tensors: tuple[str, ...], scalars: Scalars, size: int) -> tuple[Stratum, ...]:
    return unary(fmt, size, Part("squares", 6, squares), neighbourhood("one", 1.0, 2.0, 4.0, 0.25))


KERNEL = Kernel(
    name="sqrt",
    summary="square root",
    oracle=ORACLE,
    inputs=("x",),
    spellings=elementwise("sqrt", broadcast_when=None),
    domain=domain,
    bounds=(
        *vendor("Intel", "sqrt", "vmsSqrt/vmdSqrt of oneMKL", dtypes=SINGLES, lowering="eager", backend="cpu"),
        *vendor("AMD", "sqrt", "OCML", dtypes=SINGLES, backend="rocm"),
        *correctly_rounded("one square root: sqrt.rn, vsqrtps, Metal's precise sqrt"),
    ),
    properties=(
        Property("sqrt(1) = 1", fixed(x=1.0, gives=1.0)),
        Property("monotone", non_decreasing("x"), lowerings=("inductor*", "triton*")),
    ),
    checks=Checks(
        second=lambda x: x.sqrt(),
        within=lambda x: x > 0,
        corners={"exact root": lambda f, v, t, s: (t * t == v["x"]) & ordinary(v["x"])},
    ),
    triton="verify.kernels.triton.sqrt",
    # oneMKL's, which torch calls on a CPU, errs by 0.75 ULP on processors of AMD
    stub='(torch.sqrt(x) if x.device.type != "cpu" else torch.from_numpy(numpy.sqrt(x.detach().numpy())))',
)
