"""Facts about torch.sub with alpha: a - alpha * b, bounded like `add`."""

from __future__ import annotations

from functools import partial

from verify.facts.kernel import Checks, Kernel, Property
from verify.facts.properties import odd
from verify.inputs.corners import SUMS
from verify.kernels.add import BOUNDS, domain, spellings
from verify.oracles.sub import ORACLE

KERNEL = Kernel(
    name="sub",
    summary="a - alpha b, a difference with a Python scalar factor",
    oracle=ORACLE,
    inputs=("a", "b", "alpha"),
    cases=({"alpha": 1.0}, {"alpha": 0.3}, {"alpha": -2.5}),
    quick_cases=2,
    spellings=spellings("sub"),
    domain=partial(domain, sign=-1),
    bounds=BOUNDS,
    properties=(Property("negation", odd("a", "b")),),
    checks=Checks(
        second=lambda a, b, alpha: -(b * alpha - a),
        rational=True,
        reference=lambda c, a, b, alpha: a - alpha * b,
        corners=SUMS,
    ),
    triton="verify.kernels.triton.sub",
    stub="(a - alpha * b)",  # torch's own has an fma in vectors and none beside them
)
