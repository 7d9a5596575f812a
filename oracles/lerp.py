"""lerp(a, b, w) = a + w (b - a), torch.lerp with a tensor weight or a Python scalar one.

Special values: IEEE 754-2019, 6.1 to 6.3, on the spelling that torch documents, a + w * (b - a);
an implementation that takes b - (1 - w) * (b - a) for large weights deviates there, e.g. NaN for
w = 1 and an infinite b. In formulas storage(.) is rounding to the tensors' dtype, double(.)
arithmetic on the host; every other operation rounds to the compute dtype, which is float32 for
the 16-bit formats.
"""

from __future__ import annotations

from typing import Any

from verify.facts.oracle import Oracle, formula, written


def lerp(n: Any, a: Any, b: Any, w: Any) -> Any:
    return a + w * (b - a)


def scale(n: Any, a: Any, b: Any, w: Any) -> Any:
    return abs(a) + abs(w * (b - a))


def intermediates(n: Any, a: Any, b: Any, w: Any) -> tuple[Any, ...]:
    return (b - a, w * (b - a), (1 - w) * (b - a), w * b, (1 - w) * a)


def underflow(n: Any, a: Any, b: Any, w: Any) -> Any:
    """Half a unit of each of two products; b - a is exact where it is subnormal (Hauser 1996)."""
    return n.const(1)


def weight(n: Any, w: Any) -> Any:
    """The weight in the compute dtype, where 1 - w is rounded: the exact double stays out of it."""
    return n.scalar(w) if isinstance(w, float) else w


def low(n: Any, a: Any, b: Any, w: Any) -> Any:
    return abs(weight(n, w)) < 0.5


def stored_low(n: Any, a: Any, b: Any, w: Any) -> Any:
    return abs(n.scalar(w, n.storage) if isinstance(w, float) else w) < 0.5


def exactly_low(n: Any, a: Any, b: Any, w: float) -> bool:
    return abs(w) < 0.5


def two_sides(scalars: dict[str, float]) -> bool:
    """A scalar weight below 1/2 takes the low side only, which is a formula of its own."""
    return abs(scalars.get("w", 1.0)) >= 0.5


def whole(scalars: dict[str, float]) -> bool:
    """With a scalar weight other than 1 the form with -(1 - w) has the same zeros, too."""
    return scalars.get("w", 1.0) == 1.0


# The vector body of eager CPU: fmadd of a selected base and coefficient (Lerp.h, lerp_vec).
@formula("|w| < 1/2: fma(w, b-a, a); else: fma(w-1, b-a, b)", applies=whole)
def two_sided_selected(n: Any, a: Any, b: Any, w: Any) -> Any:
    low, w = abs(weight(n, w)) < 0.5, weight(n, w)
    return n.fma(n.where(low, w, w - 1), b - a, n.where(low, a, b))


# Inductor C++ with emulate_precision_casts, for a scalar weight. Named apart from those that Lerp.h excuses.
@formula("a + storage(w*storage(b-a)); |w| >= 1/2: b - storage(double(1-w)*storage(b-a))", scalars=("w",))
def two_sided_steps(n: Any, a: Any, b: Any, w: float) -> Any:
    d = n.cast(b - a, n.storage)
    return a + n.cast(n.scalar(w) * d, n.storage) if abs(w) < 0.5 else b - n.cast(n.scalar(1 - w) * d, n.storage)


ORACLE = Oracle(
    lerp,
    scale=scale,
    intermediates=intermediates,
    underflow=underflow,
    arithmetic=True,
    formulas=(
        two_sided_selected,
        # Eager CUDA and CPU from AVX2 on: Lerp.h, contracted. Inductor Triton for a tensor weight.
        written("|w| < 1/2: fma(w, b-a, a); else: fma(-(1-w), b-a, b)", when=low, applies=two_sides),
        # Eager CPU without SIMD; Inductor C++ for a tensor weight.
        written("|w| < 1/2: a + w*(b-a); else: b - (1-w)*(b-a)", when=low, applies=two_sides),
        # Inductor Triton for a scalar weight: the host computes 1 - w.
        written(
            "|w| < 1/2: fma(w, b-a, a); else: fma(-double(1-w), b-a, b)",
            when=exactly_low,
            scalars=("w",),
            applies=two_sides,
        ),
        # Inductor C++ for a scalar weight.
        written(
            "|w| < 1/2: a + w*(b-a); else: b - double(1-w)*(b-a)", when=exactly_low, scalars=("w",), applies=two_sides
        ),
        # In-place _foreach_lerp_ under Inductor: the polyfill computes 1 - w in the tensors' dtype.
        written(
            "|w| < 1/2: fma(storage(w), b-a, a); else: fma(-storage(1-storage(w)), b-a, b)",
            when=stored_low,
            applies=two_sides,
        ),
        written(
            "|w| < 1/2: a + storage(w)*(b-a); else: b - storage(1-storage(w))*(b-a)", when=stored_low, applies=two_sides
        ),
        # A scalar weight that became a tensor of the operands' dtype.
        written(
            "|w| < 1/2: fma(storage(w), b-a, a); else: fma(-(1-storage(w)), b-a, b)",
            when=stored_low,
            scalars=("w",),
            applies=two_sides,
        ),
        written(
            "|w| < 1/2: a + storage(w)*(b-a); else: b - (1-storage(w))*(b-a)",
            when=stored_low,
            scalars=("w",),
            applies=two_sides,
        ),
        # The same as torch's decomposition spells it, which differs in signs of zeros.
        written(
            "|w| < 1/2: fma(storage(w), b-a, a); else: fma(storage(w)-1, b-a, b)",
            when=stored_low,
            scalars=("w",),
            applies=two_sides,
        ),
        # Eager MPS for a tensor weight: not exact at w = 1.
        written("fma(w, b-a, a)", admissible=True),
        # Inductor C++ for _foreach_lerp, whatever the weight.
        written("a + w*(b-a)", admissible=True),
        # Eager MPS for a scalar weight: everything has the tensors' type (BinaryKernel.metal).
        written("a + storage(storage(w)*storage(b-a))"),
        two_sided_steps,
        # Convex combinations, as hand-written kernels often spell them.
        written("fma(w, b, fma(-w, a, a))"),
        written("fma(w, b, (1-w)*a)"),
        written("(1-w)*a + w*b"),
    ),
)
