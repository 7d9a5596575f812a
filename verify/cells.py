"""What a report's cell says of tallies: the error record, the status, one worst case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verify.check import Checked
from verify.decide import BINS, QUANTUM
from verify.formats import Format
from verify.kernel import Bound
from verify.tally import Tally, Worst
from verify.ulp import FAILING


def error_of(found: Checked, binades: bool = False) -> dict[str, Any]:
    """The error record: classes over all inputs, maxima and sums over those inside the normal range."""
    whole, main = found.all, found.main
    names = ("correct", "faithful", "worse", "flushed", "nan_mismatch", "inf_mismatch", "zero_sign")
    return {
        "max_ulp": main.max_ulp,
        "max_scaled_ulp": main.max_scaled,
        "max_int_ulp": main.max_int,
        "mean_ulp": main.mean_ulp,
        "bias_ulp": main.bias_ulp,
        **{name: getattr(whole, name) for name in names},
        "misrounded": whole.inputs - whole.correct,
        "range": found.range.inputs,
        "range_max_ulp": found.range.max_ulp,
        "range_excess_ulp": found.excess[0],
        "range_excess_scaled_ulp": found.excess[1],
        "undecided": whole.undecided,
        "histogram": {f"<={edge:g}": n for edge, n in zip(BINS, main.histogram, strict=True)},
        "clamped": main.clamped,
        "binades": [
            {
                "exponent": exponent,
                "measured": b.measured,
                "misrounded": b.misrounded,
                "max_ulp": b.maximum / QUANTUM,
                "mean_ulp": b.sum / QUANTUM / b.measured,
                "bias_ulp": b.sum_signed / QUANTUM / b.measured,
            }
            for exponent, b in main.binades
            if b.measured and binades
        ],
    }


def status_of(found: Checked, bound: Bound | None, ftz: bool) -> tuple[str, str, tuple[str, ...]]:
    """Status, reason and the kinds of failure, on the elements inside the normal range."""
    excess = ""
    if bound is not None and (most := measured(found.main, bound)) > bound.value:
        excess = f"{bound.metric} {exceeds(most, bound.value)}"
    beyond = ""
    if bound is not None and not ftz:
        metric = "scaled_ulp" if bound.metric == "scaled_ulp" else "ulp"
        # n steps are at most 2 n + 1/2 ULP
        limit = 2 * bound.value + 0.5 if bound.metric == "int_ulp" else bound.value
        most = found.excess[metric == "scaled_ulp"]
        beyond = f"{metric} {exceeds(most, limit, ' beyond underflow')}" if most > limit else ""
    return conclude(found, ftz, excess, beyond, bounded=bound is not None)


def exceeds(most: float, limit: float, where: str = "") -> str:
    """`most` over `limit` in as many digits as tell them apart."""
    digits = next(d for d in range(6, 18) if f"{most:.{d}g}" != f"{limit:.{d}g}")
    return f"{most:.{digits}g}{where} exceeds {limit:.{digits}g}"


def conclude(
    found: Checked, ftz: bool, excess: str, beyond: str = "", *, bounded: bool
) -> tuple[str, str, tuple[str, ...]]:
    """Status, reason and the kinds of failure; `excess` tells by how much a bound is exceeded, if it is,
    `beyond` by how much outside the normal range."""
    failures = {kind: text for kind, text in (("bound", excess), ("range", beyond)) if text}
    counts = {name: getattr(found.main, name) for name in FAILING if not (ftz and name == "flushed")}
    if bounded:  # which decides on overflow beside the threshold, where an infinity is measured as 2^(emax + 1)
        counts["inf_mismatch"] = found.main.infinite
    failures |= {name: f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count}
    if found.all.undecided:
        failures["undecided"] = f"{found.all.undecided} undecided"
    status = "exceeds-bound" if failures else "passed"
    return status, "; ".join(failures.values()) or ("" if bounded else "no bound is declared"), tuple(failures)


def measured(main: Tally, bound: Bound) -> float:
    return {"ulp": main.max_ulp, "scaled_ulp": main.max_scaled, "int_ulp": float(main.max_int)}[bound.metric]


def worst_list(found: Mapping[str, Checked], bound: Bound | None, fmt: Format) -> list[dict[str, Any]]:
    """The element that has the cell's error, in the bound's metric and against its truth; then those of the largest
    errors in ULPs against the exact truth; then the first of each class that no bound excuses."""
    name = bound.truth if bound and bound.truth in found else "exact"
    meant, exact = found[name], found["exact"]
    first = meant.main.worst_scaled if bound and bound.metric == "scaled_ulp" else meant.main.worst[:1]
    entries = [worst_of(w, fmt) | ({} if name == "exact" else {"truth": name}) for w in first]
    known = {w.index for w in first} if name == "exact" else set()
    entries += [worst_of(w, fmt) for w in exact.main.worst if w.index not in known]
    return entries + [worst_of(w, fmt) | {"error_class": cls} for cls, w in meant.main.witnesses]


def worst_of(w: Worst, fmt: Format) -> dict[str, Any]:
    return {
        "index": w.index,
        "inputs": [fmt.hex(p) for p in w.inputs],
        "output": fmt.hex(w.output),
        "exact": w.exact,
        "ulp": w.ulp,
        "scaled_ulp": w.scaled,
    }
