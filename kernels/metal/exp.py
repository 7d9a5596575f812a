"""exp(x): a polynomial of our own under safe math, Metal's fast::exp under fast math.

metal::precise::exp, within 4 ULP, is what eager and Inductor call; ours is below 1/2 + 2^-5 ULP.
"""

from __future__ import annotations

from verify.kernels.metal.arithmetic import EXP, EXP_CONSTANTS
from verify.kernels.metal.elementwise import Operation, Operations


def exp(scalar: float | None) -> Operation:
    return Operation(
        EXP + "\ninline float operation(float x) { return accurate_exp(x); }\n",
        fast="inline float operation(float x) { return fast::exp(x); }\n",
        constants=EXP_CONSTANTS,
    )


OPERATIONS: Operations = {"t": exp}
