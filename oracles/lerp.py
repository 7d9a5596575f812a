"""lerp(a, b, w) = a + w (b - a), torch.lerp with a tensor weight or a Python scalar one.

Special values: IEEE 754-2019, 6.1 to 6.3, on the spelling that torch documents, a + w * (b - a);
an implementation that takes b - (1 - w) * (b - a) for large weights deviates there, e.g. NaN for
w = 1 and an infinite b. In formulas storage(.) is rounding to the tensors' dtype, double(.)
arithmetic on the host; every other operation rounds to the compute dtype, which is float32 for
the 16-bit formats.
"""

from __future__ import annotations

from typing import Any

from verify.oracle import Oracle, formula, written


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


def two_sides(scalars: dict[str, float]) -> bool:
    """A scalar weight below 1/2 takes the low side only, which is a formula of its own."""
    return abs(scalars.get("w", 1.0)) >= 0.5


# Eager CUDA and CPU from AVX2 on: Lerp.h, contracted. Inductor Triton for a tensor weight.
@formula("|w| < 1/2: fma(w, b-a, a); else: fma(-(1-w), b-a, b)", applies=two_sides)
def two_sided_fused(n: Any, a: Any, b: Any, w: Any) -> Any:
    w, d = weight(n, w), b - a
    return n.where(abs(w) < 0.5, n.fma(w, d, a), n.fma(-(1 - w), d, b))


# The vector body of eager CPU: fmadd of a selected base and coefficient (Lerp.h, lerp_vec).
@formula("|w| < 1/2: fma(w, b-a, a); else: fma(w-1, b-a, b)", scalars=())
def two_sided_selected(n: Any, a: Any, b: Any, w: Any) -> Any:
    low = abs(w) < 0.5
    return n.fma(n.where(low, w, w - 1), b - a, n.where(low, a, b))


# Eager CPU without SIMD; Inductor C++ for a tensor weight.
@formula("|w| < 1/2: a + w*(b-a); else: b - (1-w)*(b-a)", applies=two_sides)
def two_sided(n: Any, a: Any, b: Any, w: Any) -> Any:
    w, d = weight(n, w), b - a
    return n.where(abs(w) < 0.5, a + w * d, b - (1 - w) * d)


# Inductor Triton for a scalar weight: the host computes 1 - w.
@formula("|w| < 1/2: fma(w, b-a, a); else: fma(-double(1-w), b-a, b)", scalars=("w",), applies=two_sides)
def two_sided_host_fused(n: Any, a: Any, b: Any, w: float) -> Any:
    d = b - a
    return n.fma(n.scalar(w), d, a) if abs(w) < 0.5 else n.fma(n.scalar(-(1 - w)), d, b)


# Inductor C++ for a scalar weight.
@formula("|w| < 1/2: a + w*(b-a); else: b - double(1-w)*(b-a)", scalars=("w",), applies=two_sides)
def two_sided_host(n: Any, a: Any, b: Any, w: float) -> Any:
    d = b - a
    return a + n.scalar(w) * d if abs(w) < 0.5 else b - n.scalar(1 - w) * d


# In-place _foreach_lerp_ under Inductor: the polyfill computes 1 - w in the tensors' dtype.
@formula("|w| < 1/2: fma(storage(w), b-a, a); else: fma(-storage(1-storage(w)), b-a, b)", applies=two_sides)
def two_sided_storage_fused(n: Any, a: Any, b: Any, w: Any) -> Any:
    w, d = stored_weight(n, w), b - a
    return n.where(abs(w) < 0.5, n.fma(w, d, a), n.fma(-n.cast(1 - w, n.storage), d, b))


@formula("|w| < 1/2: a + storage(w)*(b-a); else: b - storage(1-storage(w))*(b-a)", applies=two_sides)
def two_sided_storage(n: Any, a: Any, b: Any, w: Any) -> Any:
    w, d = stored_weight(n, w), b - a
    return n.where(abs(w) < 0.5, a + w * d, b - n.cast(1 - w, n.storage) * d)


def stored_weight(n: Any, w: Any) -> Any:
    return n.scalar(w, n.storage) if isinstance(w, float) else w


# A scalar weight that became a tensor of the operands' dtype.
@formula("|w| < 1/2: fma(storage(w), b-a, a); else: fma(-(1-storage(w)), b-a, b)", scalars=("w",), applies=two_sides)
def two_sided_rounded_fused(n: Any, a: Any, b: Any, w: float) -> Any:
    rounded, d = n.scalar(w, n.storage), b - a
    return n.where(abs(rounded) < 0.5, n.fma(rounded, d, a), n.fma(-(1 - rounded), d, b))


@formula("|w| < 1/2: a + storage(w)*(b-a); else: b - (1-storage(w))*(b-a)", scalars=("w",), applies=two_sides)
def two_sided_rounded(n: Any, a: Any, b: Any, w: float) -> Any:
    rounded, d = n.scalar(w, n.storage), b - a
    return n.where(abs(rounded) < 0.5, a + rounded * d, b - (1 - rounded) * d)


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
        two_sided_fused,
        two_sided,
        two_sided_host_fused,
        two_sided_host,
        two_sided_storage_fused,
        two_sided_storage,
        two_sided_rounded_fused,
        two_sided_rounded,
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
