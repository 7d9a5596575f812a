"""The order in which known code sums and scans rows, and the errors of the functions that it calls.

Facts about ATen, cub, Inductor and this project's Triton and Metal kernels, for the row kernels' `algorithms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from verify import backends
from verify.facts.bounds import published
from verify.facts.formats import FORMATS
from verify.families.rows import Algorithm, Place
from verify.numbers.documented import Documented
from verify.numbers.orders import Order

if TYPE_CHECKING:
    from torch import Tensor

#: The end of the text on what a user's own lowering is held to.
WIDE = "each rounding to float32 (float64 for float64), the result then to the dtype"
#: Elements of a row that a hand-written Triton kernel holds at a time.
BLOCK = 1024
#: Documented relative errors in units of u that `kernels/vendor_bounds.toml` lacks: (value, source).
DOCUMENTED = {
    ("glibc", "exp", "float32"): (2.0, "GNU C Library Reference Manual, Known Maximum Errors: expf 1 ULP"),
    ("glibc", "exp", "float64"): (2.0, "GNU C Library Reference Manual, Known Maximum Errors: exp 1 ULP"),
    ("glibc", "log1p", "float64"): (2.0, "GNU C Library Reference Manual, Known Maximum Errors: log1p 1 ULP"),
    ("glibc", "log1p", "float32"): (
        2.6,
        "Zimmermann et al., Accuracy of Mathematical Functions in Single, Double...: log1pf of glibc 1.30 ULP",
    ),
    ("NVIDIA", "log1p", "float32"): (3.0, "CUDA Programming Guide, 5.5: log1pf 1 step from the rounded result"),
    ("NVIDIA", "log1p", "float64"): (3.0, "CUDA Programming Guide, 5.5: log1p 1 step from the rounded result"),
    ("AMD", "log1p", "float32"): (3.0, "hip-tests, catch/unit/math: log1pf 1 step"),
    ("AMD", "log1p", "float64"): (3.0, "hip-tests, catch/unit/math: log1p 1 step"),
    ("own", "exp", "float32"): (1.125, "kernels/triton/exp.py: below 1/2 + 2^-5 ULP"),
    ("own", "log1p", "float32"): (4.0, "kernels/triton/scans.py: below 2 ULP"),
    ("metal", "exp", "float32"): (2.13, "kernels/metal/logcumsumexp.py: 1.06 u, and 1 of the argument's correction"),
    ("metal", "log1p", "float32"): (3.1, "kernels/metal/logcumsumexp.py: 2 + u, the quotient and the last fma"),
}
#: An exponential that underflows may be flushed: it is off by the smallest normal number at most.
FLUSHED = ("exp",)
#: The error of Triton's / on float32 on NVIDIA GPUs: div.full.f32, 2 ULP (PTX ISA, 9.7.3).
FULL = Documented(4.0, "PTX ISA, div.full.f32: 2 ULP")


def documented(library: str, *names: str, fmt: str) -> dict[str, Documented]:
    """The documented errors of a library's functions in one format. Raises KeyError where there are none."""
    found = {}
    for name in names:
        known = DOCUMENTED.get((library, name, fmt))
        if known is None:
            figure = published(library, name, fmt)
            known = figure.roundings, figure.source
        lost = float(FORMATS[fmt].smallest_normal) if name in FLUSHED else 0.0
        found[name] = Documented(*known, absolute=lost)
    return found


def vendor(place: Place) -> str:
    """The vendor whose functions the backend's own code calls."""
    return backends.load(place.backend).library


def library(place: Place) -> str:
    """The library whose functions a lowering calls."""
    if place.lowering.startswith("triton"):
        return "own" if place.wide.name == "float32" else vendor(place)
    return "metal" if place.lowering == "metal" else vendor(place)


def of(
    formula: Callable[..., Any], orders: Callable[[Place], Order | None], *functions: str
) -> Callable[[Place], tuple[Algorithm, ...]]:
    """The algorithms of a kernel with one formula, whose order is all that lowerings differ in. Everything is computed
    in float32 (float64), or in the accumulator where that is wider."""

    def algorithms(place: Place) -> tuple[Algorithm, ...]:
        order = orders(place)
        if order is None:
            return ()
        compute = order.accumulator if order.accumulator.precision > place.wide.precision else place.wide
        return (Algorithm(formula, order, compute, documented(library(place), *functions, fmt=compute.name)),)

    return algorithms


def exact(formula: Callable[..., Any]) -> Callable[[Place], tuple[Algorithm, ...]]:
    """The algorithm of a kernel that rounds nothing in any lowering."""

    def algorithms(place: Place) -> tuple[Algorithm, ...]:
        return (Algorithm(formula, Order("sequential", place.storage), place.storage, text="exact by definition"),)

    return algorithms


# ---------------------------------------------------------------- sums


def sums(place: Place) -> Order | None:
    """The order of sums of whole rows; None where nothing is known."""
    wide = place.wide
    if place.lowering.startswith("triton"):
        return Order("blocked", wide, BLOCK, text=f"{BLOCK} running sums, then any order")
    if place.lowering == "eager" and place.backend == "cpu":
        depth = float(cascade_depth(place.n))
        text = f"cascade_sum of ATen's SumKernel.cpp, at most {depth:g} additions on a path"
        return Order("any", wide, paths=lambda counts: counts * 0 + depth, text=text)
    return anything(place)


def anything(place: Place) -> Order | None:
    """Any order, for ATen's and Inductor's code where it is known; None elsewhere."""
    known = place.lowering == "eager" or place.lowering.startswith("inductor")
    return Order("any", place.wide, text="any order") if known and place.backend in ("cpu", "cuda", "rocm") else None


def cascade_depth(n: int) -> int:
    """Additions on the longest path of ATen's cascade_sum, for vectors of 1 to 16 lanes, whole or split by threads."""
    found, threads = 0, backends.threads()
    for size in {n, -(-n // max(threads, 1))}:
        for lanes in (1, 2, 4, 8, 16, 32):
            for rows in (size // lanes, size // lanes // 4):
                found = max(found, _levels(rows) + 3 + 3 + lanes + lanes)
    return int(min(max(n - 1, 0), found + threads + 2))


def _levels(size: int) -> int:
    """Additions in multi_row_sum: four levels of 2^power steps, the last one open, then one for each level."""
    power = max(4, (max(size - 1, 0)).bit_length() // 4)
    step = 1 << power
    closed = sum(min(step, (size >> level * power) + 1) for level in range(3))
    return closed + (size >> 3 * power) + 1 + 3


# ---------------------------------------------------------------- scans


def scans(place: Place) -> Order | None:
    """The order of scans; None where nothing is known."""
    wide, storage = place.wide, place.storage
    if place.lowering.startswith("triton"):
        text = f"blocks of {BLOCK} from left to right, any order inside"
        return Order("any", wide, paths=lambda counts: _in_blocks(counts, BLOCK), text=text)
    if place.lowering == "metal":
        return Order("sequential", wide, text="sequential in float32, one thread a row (kernels/metal/logcumsumexp.py)")
    if place.lowering == "eager" and place.backend == "cpu":
        # at::acc_type<scalar_t, false>: double for float
        accumulator = FORMATS["float32"] if storage.bits == 16 else FORMATS["float64"]
        return Order("sequential", accumulator, text=f"sequential in {accumulator.name} (ATen's ReduceOpsKernel.cpp)")
    if place.lowering == "eager" and place.backend in ("cuda", "rocm"):
        each = storage if storage.bits == 16 else wide
        if place.rows == 1:  # whichever dimension it lies along (scan_dim, ScanUtils.cuh)
            text = f"cub's decoupled look-back in {each.name}, tiles of {TILE} or more (DeviceScan, agent_scan.cuh)"
            return Order("any", each, paths=_looking_back, adjacent=True, text=text)
        if place.last:
            threads = inner_threads(place.rows, place.n)
            levels = threads.bit_length() + 1
            text = f"Sklansky's scan of blocks of {2 * threads} in {each.name} (ScanUtils.cuh)"
            paths = lambda counts: (((counts - 1) / (2 * threads)).floor() + 1) * levels  # noqa: E731
            return Order("any", each, paths=paths, adjacent=True, text=text)
        return Order("sequential", each, text=f"sequential in {each.name} (ScanUtils.cuh)")
    return anything(place) if place.lowering != "eager" else None


def _in_blocks(counts: Tensor, block: int) -> Tensor:
    """Combinations of the term i = count - 1: those inside its block, and one for each block before it."""
    i = counts - 1
    return i.clamp(max=block - 1.0) + (i / block).floor()


#: Elements of a tile of cub's DeviceScan at least: its policies for every architecture since 2.0 have 128 threads or
#: more of 9 items or more, for items of 4 bytes; smaller ones get more of them.
TILE = 1024


def _looking_back(counts: Tensor) -> Tensor:
    """Two combinations for each tile before an element's own (its window's sum with what came before, and that with
    its own), at most 32 items of a thread, five levels of a warp, 32 warps one by one, and five levels of a window."""
    return 2.0 * ((counts - 1) / TILE).floor() + 32 + 5 + 32 + 5 + 2


def inner_threads(rows: int, n: int) -> int:
    """Threads along a row of ATen's CUDA scan (get_log_num_threads_x_inner_scan, ScanUtils.cuh)."""
    difference = max(n - 1, 0).bit_length() - max(rows - 1, 0).bit_length()
    half = int((9 + difference) / 2)  # C++ divides toward zero
    return 1 << int(min(max(half, 4), 9))
