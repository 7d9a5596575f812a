"""From a tally to a cell: the records of its regions, their statuses, and the cell's. Only here do elements get a
status; `verify.judge.status` orders statuses. A cell's status is its worst region's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from verify.facts.formats import Format
from verify.judge import status as st
from verify.judge.chunk import Formulas, Judge, OracleViolation, Source, Tensor, measured
from verify.judge.element import Limits
from verify.judge.exact import Allowed, Exact, Key, Outcome, decimal, finite
from verify.judge.reduce import METRICS
from verify.judge.regions import REGIONS
from verify.judge.tally import WORST, Element, InRegion, Tally
from verify.numbers.decide import BINS, QUANTUM

if TYPE_CHECKING:
    from torch import Tensor

#: The largest share of region `normal` about which nothing may be stated before the cell is `unjudged`.
UNJUDGED = Fraction(1, 100)
#: The smallest share of a composite kernel's cell that a resolving stratum may hold.
STRATUM = 0.05
_COLUMN = {"ulp": "ulp", "scaled_ulp": "scaled", "share": "share"}
_SLACK = 1 + 2.0**-40  # of upper bounds computed in floating point
_WORDS = {
    "nan": "NaN where a number is due, or a number where NaN is",
    "infinity": "of another value where the truth is infinite, or finite where it is far beyond the range",
    "zero-sign": "zero of the wrong sign",
    "flush": "flushed to zero",
    "undecided": "undecided",
    "order": "beyond the known algorithms, within any order or form: declare yours with --algorithm tree:float32 (or "
    "sequential:float32, blocked=128:float32...)",
    "probable": "within the proven bound, beyond what independent roundings give at most once in 10^6 runs",
}


@dataclass(frozen=True)
class Stated:
    """The bound of a cell: its value in `metric`, its source, and the truth of the scalars it applies to ('exact' or
    'rounded')."""

    value: float
    metric: str
    source: str
    truth: str = "exact"


@dataclass(frozen=True)
class Extremes:
    """Exact maxima of a region, and its elements with the largest values of each metric, in multiprecision."""

    top: Mapping[str, float]
    elements: Mapping[str, tuple[tuple[float, Element, Outcome], ...]]


class Reader:
    """Reads tallies of one truth: `exact` is multiprecision's judge of the elements, `allowed` what one of them may be
    (see `verify.judge.chunk.Source`), `place` its name for messages, `inputs` how they are written."""

    def __init__(
        self, exact: Exact, fmt: Format, limits: Limits, *, scale: bool,
        allowed: Callable[[Key], Allowed | None] = lambda key: None, place: Callable[[Key], str] = str,
        inputs: Callable[[Key], list[str]] | None = None,
    ) -> None:  # fmt: skip
        self.exact, self.fmt, self.limits, self.scale = exact, fmt, limits, scale
        self.allowed, self.place = allowed, place
        self.inputs = inputs or (lambda key: [fmt.hex(p) for p in key])
        self._outcomes: dict[tuple[Key, int], Outcome | None] = {}

    def extremes(self, one: InRegion) -> Extremes:
        """Raises OracleViolation where multiprecision finds a value above its upper bound."""
        top: dict[str, float] = {}
        elements: dict[str, tuple[tuple[float, Element, Outcome], ...]] = {}
        for metric, leaders in zip(METRICS, one.leaders, strict=True):
            found: list[tuple[float, Element, Outcome]] = []
            shown = WORST if metric in ("ulp", "scaled") else 1
            for upper, element in leaders:
                if len(found) >= shown and upper < sorted(value for value, _, _ in found)[-shown]:
                    break  # nor is any that follows among the worst
                outcome = self.outcome(element)
                if outcome is None or not measured(outcome):
                    continue
                value = {
                    "ulp": outcome.verdict.high, "scaled": outcome.verdict.scaled, "share": outcome.share,
                }[metric]  # fmt: skip
                exact = finite(value)
                if exact > upper * _SLACK + 2.0**-30 and metric != "share":
                    raise OracleViolation(
                        f"{self.place(element.key)}: {metric} is {exact!r}, above its upper bound {upper!r}"
                    )
                found.append((exact, element, outcome))
            found.sort(key=lambda f: (-f[0], f[1].index))
            top[metric] = found[0][0] if found else 0.0
            elements[metric] = tuple(found)
        return Extremes(top, elements)

    def outcome(self, element: Element) -> Outcome | None:
        """Multiprecision's judgement, computed once."""
        place = (element.key, element.output)
        if place not in self._outcomes:
            self._outcomes[place] = self.exact.outcome(*place, self.limits, self.allowed(element.key))
        return self._outcomes[place]

    def error(self, one: InRegion, top: Mapping[str, float], bounded: bool) -> dict[str, Any]:
        """The error record of some elements; see `verify.reports.schema.Error`."""
        names = ("correct", "faithful", "worse", "flushed", "nan_mismatch", "inf_mismatch", "zero_sign")
        return {
            "max_ulp": top.get("ulp", 0.0),
            "max_scaled_ulp": top.get("scaled", 0.0) if self.scale else None,
            "max_share": top.get("share", 0.0) if bounded else None,
            "max_int_ulp": one.steps,
            "mean_ulp": one.mean_ulp,
            "bias_ulp": one.bias_ulp,
            **{name: one.counts.get(name, 0) for name in names},
            "misrounded": one.misrounded,
            "range": 0,
            "undecided": one.undecided,
            "histogram": {f"<={edge:g}": n for edge, n in zip(BINS, one.histogram, strict=True)},
            "clamped": one.counts.get("clamped", 0),
        }

    def worst(self, one: InRegion, extremes: Extremes, metric: str, kind: str = "") -> list[dict[str, Any]]:
        """The elements of the largest error in `metric`, then in ULP, then one of each kind of failure. kind: why the
        region fails; the element that tells it comes first."""
        chosen: dict[int, dict[str, Any]] = {}
        telling = self.telling(one, kind)
        if telling is not None and (outcome := self.outcome(telling)) is not None:
            chosen[telling.index] = self.record(telling, outcome)
        for name in (_COLUMN.get(metric, "ulp"), "ulp"):
            for _, element, outcome in extremes.elements.get(name, ())[:WORST]:
                if len(chosen) < WORST:
                    chosen.setdefault(element.index, self.record(element, outcome))
        for what, element in one.witnesses.items():
            if element.index in chosen or what not in st.KINDS:
                continue
            again = self.outcome(element)
            if again is not None:
                chosen[element.index] = self.record(element, again)
        return list(chosen.values())

    def telling(self, one: InRegion, kind: str) -> Element | None:
        """The element that fails as `kind`: with the largest share of its bound where elements of several kinds have
        one, None where the largest errors tell; else the first."""
        if kind == "bound" and not one.fails.keys() & set(st.DOUBTS):
            return None
        for _, element in one.leaders[METRICS.index("share")] if kind in ("bound", *st.DOUBTS) else ():
            outcome = self.outcome(element)
            if outcome is not None and outcome.kind == kind:
                return element
        return one.witnesses.get(kind)

    def record(self, element: Element, outcome: Outcome) -> dict[str, Any]:
        verdict = outcome.verdict
        number = verdict.high is not None
        return {
            "index": element.index,
            "inputs": self.inputs(element.key),
            "output": self.fmt.hex(element.output),
            "exact": decimal(outcome.truth),
            "ulp": finite(verdict.high) if number else None,
            "scaled_ulp": finite(verdict.scaled) if self.scale and number else None,
            "share": None if outcome.share is None else finite(outcome.share),
            "int_ulp": verdict.steps if number else None,
            "error_class": verdict.cls,
        }

    def regions(
        self, tally: Tally, bound: Stated | None, resolution: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The records of all regions that hold elements, by name."""
        accounted = accounting(tally)
        records = {}
        for name in REGIONS:
            one = tally.regions.get(name)
            if one is None or not one.inputs:
                continue
            extremes = self.extremes(one)
            value = _in_metric(one, extremes.top, bound.metric) if bound else 0.0
            status, reason = self._status(name, one, bound, value, accounted)
            records[name] = {
                "inputs": one.inputs,
                "error": self.error(one, extremes.top, bound is not None),
                "bound": None if bound is None else _bound(bound, value),
                "status": status,
                "reason": reason,
                "unjudged": one.counts.get("unjudged", 0),
                "resolution": (resolution or {}).get(name),
                "worst": self.worst(one, extremes, bound.metric if bound else "ulp", reason["kind"]),
            }
        return records

    def _status(
        self, name: str, one: InRegion, bound: Stated | None, value: float, accounted: str | None
    ) -> tuple[str, dict[str, Any]]:
        status = _standing(name, one, bound is not None, accounted)
        note = ""
        if one.lost and accounted is not None:
            note = f"{_many(sum(one.lost.values()))} where an intermediate overflows: the bits of {accounted}"
        ids = sorted({entry for entry, _ in one.deviates})
        deviating = f"{_many(sum(one.deviates.values()))} as the ledger says ({', '.join(ids)})" if ids else ""
        unjudged = one.counts.get("unjudged", 0)
        if fails := _fails(one, accounted):
            kinds = [kind for kind in st.KINDS if kind in fails]
            texts = [self._failure(one, kind, fails[kind], bound, value) for kind in kinds]
            return status, _reason(kinds[0], _joined(*texts, deviating, note), ids)
        if status == "unbounded":
            return status, _reason("no-bound", _joined("no bound is declared", deviating, note), ids)
        if status == "unjudged":
            told = f"nothing is stated of {unjudged} of {one.inputs} elements"
            return status, _reason("no-bound", _joined(told, deviating, note), ids)
        if unjudged:
            note = _joined(note, f"nothing is stated of {_many(unjudged)}")
        if status == "deviates":
            kinds = [kind for kind in st.FAILURES if any(k == kind for _, k in one.deviates)]
            return status, _reason(kinds[0], _joined(deviating, note), ids)
        return status, _reason("", note)

    def _failure(self, one: InRegion, kind: str, count: int, bound: Stated | None, value: float) -> str:
        element = self.telling(one, kind)
        outcome = None if element is None else self.outcome(element)
        if kind in st.DOUBTS:
            assert element is not None and outcome is not None and outcome.share is not None
            allowed = self.allowed(element.key)
            assert allowed is not None
            told = f"{finite(outcome.share):.6g} times the bound of {float(allowed.bound):.4g}"
            return f"{self.place(element.key)} is off by {told}: {_WORDS[kind]} ({_many(count)})"
        if kind != "bound":
            return f"{_many(count)} {_WORDS[kind]}"
        assert bound is not None
        value = value if outcome is None else finite(outcome.share)
        limit, metric = (1.0, "share of the bound") if bound.metric == "share" else (bound.value, bound.metric)
        # a bound with underflow terms is exceeded in their sum, whatever the maximum in one metric
        told = f"{metric} {exceeds(value, limit)}" if value > limit else f"beyond {limit:g} {metric} and underflow"
        return f"{told} ({_many(count)})"


def _fails(one: InRegion, accounted: str | None) -> dict[str, int]:
    """How many elements fail, by kind; those lost where an intermediate overflows too, unless a formula accounts for
    them."""
    fails = dict(one.fails)
    if one.undecided:
        fails["undecided"] = one.undecided
    for kind, count in one.lost.items() if accounted is None else ():
        fails[kind] = fails.get(kind, 0) + count
    return fails


def _standing(name: str, one: InRegion, stated: bool, accounted: str | None) -> str:
    """The status of a region. stated: its elements have a bound."""
    if fails := _fails(one, accounted):
        return "suspect" if set(fails) <= set(st.DOUBTS) else "exceeds-bound"
    if not stated and one.counts.get("measured", 0) and name not in ("special", "exact-zero"):
        return "unbounded"
    if name == "normal" and one.counts.get("unjudged", 0) > UNJUDGED * one.inputs:
        return "unjudged"
    return "deviates" if one.deviates else "passed"


def standing(tally: Tally) -> str:
    """The status of a cell whose elements have a bound, without what a person reads of it."""
    accounted = accounting(tally)
    return st.worst(_standing(name, one, True, accounted) for name, one in tally.regions.items() if one.inputs)


def standing_of(
    judge: Judge, source: Source, y: Tensor, eager: Tensor | None = None, *, briefly: bool = False,
    errors: list[float] | None = None,
) -> str:  # fmt: skip
    """The status of outputs that have a bound; where a few settle it, which are far beyond theirs, of these alone.
    briefly: only whether they pass is asked; errors: see `Judge.doubts`."""
    if True not in source.stages and len(far := source.far(y)):
        found = standing(judge.rest(source, far, y, eager, Formulas(), settled=False))
        if found == "exceeds-bound" or (briefly and found not in ("passed", "deviates")):
            return found
    return standing(judge.doubts(source, y, eager, briefly=briefly, errors=errors))


def failing(judge: Judge, reader: Reader, source: Source, y: Tensor) -> tuple[Element, Outcome] | None:
    """An element of outputs y that fails, of those looked at one that is far beyond its bound, and its judgement."""
    few = source.far(y) if True not in source.stages else y.new_empty(0)
    tally = judge.rest(source, few, y, None, Formulas(), settled=False) if len(few) else judge.doubts(source, y)
    for one in tally.regions.values():
        leaders = (element for _, element in one.leaders[METRICS.index("share")])
        for element in (*leaders, *one.witnesses.values()) if _fails(one, None) else ():
            outcome = reader.outcome(element)
            if outcome is not None and outcome.kind is not None:
                return element, outcome
    return None


def overall(reader: Reader, tally: Tally, stated: Stated | None) -> dict[str, Any]:
    """The error record over all regions; stated: the bound that the tally was judged against."""
    tops = [reader.extremes(one).top for one in tally.regions.values()]
    most = {metric: max((top[metric] for top in tops), default=0.0) for metric in METRICS}
    error = reader.error(tally.whole, most, stated is not None)
    return error | {"range": tally["intermediate"].inputs}


def accounting(tally: Tally) -> str | None:
    """The admissible formula that every element follows that fails where an intermediate overflows, or None."""
    if not any(one.lost for one in tally.regions.values()):
        return None
    lost = sum(sum(one.lost.values()) for one in tally.regions.values())
    tried = {text: fit.lost for text, fit in tally.formulas.items() if fit.admissible}
    return next((text for text, wrong in tried.items() if lost and not wrong), None)


def conclude(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Status, reason, kind of reason and ledger ids of a cell, from the records of its regions."""
    worst = st.worst(record["status"] for record in records.values())
    telling = [(name, r) for name, r in records.items() if r["status"] == worst]
    others = [(name, r) for name, r in records.items() if r["status"] != worst]
    texts = [f"{name}: {r['reason']['text']}" for name, r in (*reversed(telling), *others) if r["reason"]["text"]]
    kinds = [r["reason"]["kind"] for _, r in reversed(telling)]
    ids = sorted({i for r in records.values() for i in r["reason"]["ledger"]})
    return {"status": worst, "reason": "; ".join(texts), "reason_kind": next(iter(kinds), ""), "ledger": ids}


def unresolved(resolution: Tensor, of: Tensor, names: Sequence[str], parts: Sequence[float], fmt: Format) -> str:
    """Why no fault would be seen that is not as large as the elements themselves; '' where a stratum would show it.

    resolution, of: of some elements (NaN: zero or no number, which do not count), and their strata, places in `names`;
    parts: how much of the cell each stratum is.
    """
    most = max(2.0**-8, 4 * 2.0 ** (1 - fmt.precision))
    real = ~resolution.isnan()
    medians = {}
    for k, name in enumerate(names):
        known = real & (of == k)
        if bool(known.any()) and parts[k] * int(known.sum()) >= STRATUM * int((of == k).sum()):
            medians[name] = float(resolution[known].quantile(0.5, interpolation="lower"))
    if any(median <= most for median in medians.values()):
        return ""
    best = min(medians, key=lambda name: medians[name], default="")
    told = f"; {best} is best with {medians[best]:.3g}" if best else ""
    return f"no stratum of {STRATUM:.0%} of the elements or more has a median resolution of at most {most:.3g}{told}"


def leaning(tally: Tally) -> str:
    """How far outputs lie to one side of what every known formula gives, where each element is rounded by itself; ''
    where they lie about the results of one, or none is asked about."""
    leans = [fit.lean for fit in tally.formulas.values() if fit.lean.count]
    if not all(one.aside for one in leans) or not leans:
        return ""
    one = min(leans, key=lambda one: abs(one.mean))
    side = "along the number line" if abs(one.along) >= abs(one.outward) else "away from zero"
    return (
        f"rounded to one side: {one.mean:+.3g} steps {side}, in the mean of {_many(one.count)}, from what the nearest "
        "known algorithm gives, which rounds to nearest"
    )


def binades(tally: Tally) -> list[dict[str, Any]]:
    return [
        {
            "exponent": exponent,
            "measured": b.measured,
            "misrounded": b.misrounded,
            "max_ulp": b.maximum / QUANTUM,
            "mean_ulp": b.sum / QUANTUM / b.measured,
            "bias_ulp": b.sum_signed / QUANTUM / b.measured,
        }
        for exponent, b in tally.binades.items()
        if b.measured
    ]


def exceeds(most: float, limit: float) -> str:
    """`most` over `limit` in as many digits as tell them apart."""
    digits = next((d for d in range(6, 18) if f"{most:.{d}g}" != f"{limit:.{d}g}"), 17)
    return f"{most:.{digits}g} exceeds {limit:.{digits}g}"


def _in_metric(one: InRegion, top: Mapping[str, float], metric: str) -> float:
    return float(one.steps) if metric == "int_ulp" else top[_COLUMN[metric]]


def _bound(bound: Stated, value: float) -> dict[str, Any]:
    return {
        "value": bound.value, "metric": bound.metric, "source": bound.source, "truth": bound.truth, "measured": value,
    }  # fmt: skip


def _reason(kind: str, text: str, ids: Iterable[str] = ()) -> dict[str, Any]:
    return {"kind": kind, "text": text, "ledger": list(ids)}


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _many(count: int) -> str:
    return f"{count} element" if count == 1 else f"{count} elements"
