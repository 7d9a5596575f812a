"""What differs between two results for the same inputs, and whether one regressed."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from verify.judge.regions import REGIONS
from verify.judge.status import STATUSES
from verify.numbers.ulp import FAILING
from verify.reports.baseline import COUNTS, MAXIMA, RANGE, Accepted, AcceptedRegion
from verify.reports.figures import ENCLOSURE
from verify.reports.text import upward

#: The maxima that a larger error is looked for in, by the metric of the bound: a distance of n steps leaves room
#: for 2 n + 1/2 ULP, so that the real error is looked at too. Where a forward error is unbounded it is not.
JUDGED = {"ulp": ("ulp",), "int_ulp": ("int_ulp", "ulp"), "scaled_ulp": ("scaled_ulp",), "share": ("share",)}

#: Of a median over elements of one problem, which enclosures and their bounds move by less.
RESOLVED = 1e-3

#: Calls of which a larger error is told.
CALLS = 3

#: Figures of elements outside the normal range; the one in the bound's metric is judged too.
OUTSIDE = ("range_ulp", *dict.fromkeys(RANGE.values()))


#: Everything of a result that `difference` looks at.
_figures = operator.attrgetter(
    "status", "error", "metric", "truth", *MAXIMA, *OUTSIDE, *COUNTS, "violations", "formula", "digest", "distinct",
    "mean_ulp", "bias_ulp", "inputs", "worst_index", "worst_inputs", "worst_output", "regions", "properties", "calls",
    "refused", "different", "bits", "errors", "binade_mean_ulp", "exact", "bound", "flags", "ftz",
)  # fmt: skip


@dataclass
class _Told:
    """What differs, in words: in `larger` what got worse. mixed: something in `other` is larger than it was, or is not
    there any more, so that nothing got better by what is smaller."""

    larger: list[str] = field(default_factory=list)
    smaller: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    mixed: bool = False

    def add(self, label: str, before: float | None, after: float | None, judged: bool) -> None:
        if after is None and before is not None:
            self.other.append(f"{label} {before} -> none")
            self.mixed = True
            return
        before, after = before or 0, after or 0
        if before == after:
            return
        group = self.smaller if after < before else self.larger if judged else self.other
        texts = (str(before), str(after)) if isinstance(after, int) else _apart(before, after)
        group.append(f"{label} {' -> '.join(texts)}")
        self.mixed |= group is self.other and after > before


def differences(new: Accepted, old: Accepted) -> list[tuple[str, str]]:
    """What differs between two results for the same inputs: at most one of regressed, changed and improved.

    Inputs are fixed, so no difference is noise, but that of enclosures: see ENCLOSURE. Regressed: a larger maximum in
    the metrics of JUDGED, or more bad elements of any kind in COUNTS or `violations`, or more unjudged ones; in any
    region, whatever the others show. Improved: other bits, something smaller, nothing larger. Changed: neither, and
    other bits, another formula, other figures or a worse status for the same bits.
    """
    return difference(new, old)[0]


def difference(new: Accepted, old: Accepted) -> tuple[list[tuple[str, str]], str]:
    """As `differences`, and the region that tells most: the first that got worse, else the first that got better."""
    if _figures(new) == _figures(old):
        return [], ""
    new = _without_noise(new, old)
    if _figures(new) == _figures(old):
        return [], ""
    steady = new.distinct == old.distinct == 1
    regions = {name: _between(new.regions[name], old.regions[name], steady) for name in _common(new, old)}
    told = _whole(new, old) if not regions else _Told()
    for name in sorted({*old.violations, *new.violations}):
        counts = old.violations.get(name, 0), new.violations.get(name, 0)
        told.add(f"violations of {name}", *counts, judged=True)
    for name, one in regions.items():
        at = _worst_text(new.regions[name]) if one.larger else ""
        told.larger += [f"in {name}: {', '.join(one.larger)}{at}"] if one.larger else []
        told.smaller += [f"in {name}: {', '.join(one.smaller)}"] if one.smaller else []
        told.other += [f"in {name}: {', '.join(one.other)}"] if one.other else []
    for name in sorted(new.regions.keys() ^ old.regions.keys()) if regions else ():
        told.other.append(f"region {name} is {'gone' if name in old.regions else 'new'}")
        told.mixed = True
    lost = [*_lost(new, old), *_judged_by_less(new, old)]
    told.other += lost
    told.mixed = told.mixed or bool(lost)
    if regions and _worse(new.status, old.status) and new.status not in (r.status for r in new.regions.values()):
        told.other.append(f"{old.status} -> {new.status}")  # by launches, other calls or resolution
        told.mixed = True
    bits = _bits(new, old)
    formula = f"formula {_formula(old)} -> {_formula(new)}" if steady and new.formula != old.formula else ""
    details = [*told.other, *filter(None, (bits, formula))]
    same = steady and not bits and bool(new.digest)
    if told.larger:
        details += ["the same bits, judged otherwise"] if same else []
        region = next((name for name, one in regions.items() if one.larger), "")
        return [("regressed", "; ".join([*told.larger, *told.smaller, *details]))], region
    if told.smaller and not (same or told.mixed or any(one.mixed for one in regions.values())):
        region = next((name for name, one in regions.items() if one.smaller), "")
        return [("improved", "; ".join([*told.smaller, *details]))], region
    details = [*told.smaller, *details]
    if same and told.smaller:
        details.insert(0, "the same bits, judged otherwise")
    if not details and steady and (otherwise := _same_bits(new, old)):
        details = [otherwise]
    return ([("changed", "; ".join(details))] if details else []), ""


def _lost(new: Accepted, old: Accepted) -> list[str]:
    """What was judged once and is no longer, or what no judgement tells: properties, calls that are refused now, not
    tried or of other bits, and figures against the truth that the bound does not mean."""
    gone = sorted({*(old.properties or ())} - {*(new.properties or ())})
    refused = sorted({*new.refused} - {*old.refused}) if old.calls is not None else []
    different = sorted({*(new.different or ())} - {*old.different}) if old.different is not None else []
    figures = [
        name
        for name, value in sorted(new.exact.items())
        if name in old.exact and value > old.exact[name] and not math.isclose(value, old.exact[name], rel_tol=ENCLOSURE)
    ]
    fewer = old.calls and new.calls is not None and new.calls < old.calls
    steady = new.distinct == old.distinct == 1
    others = sorted(name for name, bits in new.bits.items() if old.bits.get(name, bits) != bits) if steady else []
    farther = [
        f"{name}: {old.errors[name]:.3g} -> {error:.3g} ulp"
        for name, error in sorted(new.errors.items())
        if steady and name in old.errors and error > 2 * old.errors[name] + 0.5
    ]
    more = [f"and {len(farther) - CALLS} more"] if len(farther) > CALLS else []
    before, after = old.binade_mean_ulp, new.binade_mean_ulp
    worse = []
    if steady and before is not None and after is not None and after > before:
        worse.append(f"mean_ulp of the worst binade {' -> '.join(_apart(before, after))}")
    return [
        *(f"no longer judged: the property {name}" for name in gone),
        *([f"calls refused now: {', '.join(refused)}"] if refused else []),
        *([f"other calls {old.calls} -> {new.calls}"] if fewer else []),
        *([f"calls that give other bits now: {', '.join(different)}"] if different else []),
        *([f"calls that give bits other than their own: {', '.join(others)}"] if others else []),
        *([f"larger errors of other calls: {'; '.join((*farther[:CALLS], *more))}"] if farther else []),
        *worse,
        *(f"{name} against exact scalars {old.exact[name]:.6g} -> {new.exact[name]:.6g}" for name in figures),
    ]


def _judged_by_less(new: Accepted, old: Accepted) -> list[str]:
    """A bound that is wider, another one, or none where there was one; a resolution that is coarser, or none; flushing
    that is expected: what passes so may not have passed before."""
    told = []
    parts: list[tuple[str, Accepted | AcceptedRegion, Accepted | AcceptedRegion]] = [("", new, old)]
    parts += [(f" in {name}", new.regions[name], old.regions[name]) for name in _common(new, old)]
    for at, now, then in parts:
        if then.bound is not None and (now.bound is None or now.bound > then.bound or now.metric != then.metric):
            after = "none" if now.bound is None else f"{now.bound:.6g} {now.metric}"
            told.append(f"under the bound {then.bound:.6g} {then.metric} -> {after}{at}")
        fine, coarse = (getattr(one, "resolution", None) for one in (then, now))
        # nearer results make it coarser, too, up to twice
        most = 1 + RESOLVED if new.digest and new.digest == old.digest else 2.0
        if fine is not None and (coarse is None or coarse > fine * most):
            told.append(f"the resolution is {fine:.3g} -> {'none' if coarse is None else f'{coarse:.3g}'}{at}")
    if new.ftz and old.ftz is False:
        told.append("flushed numbers are expected now")
    if old.bound is not None and new.truth != old.truth:
        told.append(f"against {old.truth} -> {new.truth} scalars")
    return told


def _worse(new: str, old: str) -> bool:
    return STATUSES.index(new) < STATUSES.index(old)


def _common(new: Accepted, old: Accepted) -> list[str]:
    """The regions of both, `normal` first. Which there are follows from inputs and truth alone."""
    return sorted(new.regions.keys() & old.regions.keys(), key=lambda name: (name != "normal", REGIONS.index(name)))


def _whole(new: Accepted, old: Accepted) -> _Told:
    """The figures of two results that have no regions."""
    told = _Told()
    names = (*MAXIMA, *OUTSIDE, *COUNTS)
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in names}
    judged = [*JUDGED[new.metric], *([RANGE[new.metric]] if new.metric in RANGE else []), *COUNTS]
    if (new.metric, new.truth) == (old.metric, old.truth):
        pairs["error"] = (old.error, new.error)
        judged.insert(0, "error")
    for name in dict.fromkeys((*judged, *pairs)):
        if name == "error" and pairs[new.metric] == pairs["error"]:
            continue  # the bound's maximum is one of the maxima, unless it leaves elements out
        told.add(_label(name, new), *pairs[name], judged=name in judged)
    return told


def _between(new: AcceptedRegion, old: AcceptedRegion, steady: bool) -> _Told:
    """The figures of one region in two results. The mean is judged where the forward error is: what a maximum hides,
    it shows. Of results that differ, means and most counts are of as many elements as there were results, by chance."""
    told = _Told()
    if new.status != old.status:
        (told.larger if _worse(new.status, old.status) else told.smaller).append(f"{old.status} -> {new.status}")
    judged = [*JUDGED[new.metric], *FAILING]
    if steady:
        further = {"mean_ulp": "ulp" in judged, "unjudged": old.unjudged is not None}
        judged += [*COUNTS, *(name for name, known in further.items() if known)]
    names = (*judged, *MAXIMA, "mean_ulp") if steady else judged
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in names}
    if steady and abs(new.bias_ulp) > abs(old.bias_ulp):
        pairs["bias_ulp"] = (abs(old.bias_ulp), abs(new.bias_ulp))
    if new.metric == old.metric and pairs[new.metric] != (old.error, new.error):
        told.add(_label("error", new), old.error, new.error, judged=True)
    for name, (before, after) in pairs.items():
        told.add(_label(name, new), before, after, judged=name in judged)
    if not steady:
        _by_share(told, new, old)
    if steady and new.inputs != old.inputs:  # of others as many as there were results
        told.other.append(f"inputs {old.inputs} -> {new.inputs}")
        told.mixed = True
    return told


#: Of results that differ from launch to launch, how much a share of bad elements or a mean may move: a tenth, and six
#: standard deviations of as many independent elements.
CHANCE, DEVIATIONS = 0.1, 6.0
#: ULP with which an element enters a mean at most, see `verify.reports.schema.Error`.
CLAMP = 2.0**10


def _by_share(told: _Told, new: AcceptedRegion, old: AcceptedRegion) -> None:
    """Adds to `other` what is worse in a region by more than chance, where results differ, or did."""
    if not (new.inputs and old.inputs):
        return
    counted = (*COUNTS, *(("unjudged",) if old.unjudged is not None else ()))
    pairs = {name: ((getattr(old, name) or 0) / old.inputs, (getattr(new, name) or 0) / new.inputs) for name in counted}
    pairs["mean_ulp"] = old.mean_ulp, new.mean_ulp
    for name, (before, after) in pairs.items():
        most = CLAMP if name == "mean_ulp" and "ulp" not in JUDGED[new.metric] else 1  # of one element
        spread = math.sqrt(most * max(before, 1 / old.inputs) / min(new.inputs, old.inputs))
        if name not in FAILING and after > before * (1 + CHANCE) + DEVIATIONS * spread:
            told.other.append(f"{_label(name, new)} {before:.3g} -> {after:.3g}{' of all' if name in counted else ''}")
            told.mixed = True


def _worst_text(region: AcceptedRegion) -> str:
    if region.worst_index is None:
        return ""
    at = ",".join(region.worst_inputs) or f"element {region.worst_index}"
    return f", worst {at} -> {region.worst_output}" if region.worst_output else f", worst {at}"


def _without_noise(new: Accepted, old: Accepted) -> Accepted:
    """`new` with the old figures where they are, for the same bits, the same but for ENCLOSURE."""
    if not new.digest or _bits(new, old) or not new.distinct == old.distinct == 1:
        return new
    kept = _close(new, old, ("error", *MAXIMA, *OUTSIDE, "mean_ulp", "bias_ulp", "binade_mean_ulp"))
    regions = dict(new.regions)
    for name in _common(new, old):
        part, then = new.regions[name], old.regions[name]
        regions[name] = replace(part, **_close(part, then, ("error", *MAXIMA, "mean_ulp", "bias_ulp")))
    return replace(new, **kept, regions=regions)


def _close(new: Accepted | AcceptedRegion, old: Accepted | AcceptedRegion, names: Iterable[str]) -> dict[str, Any]:
    """The old values of the figures that are the same but for ENCLOSURE."""
    kept: dict[str, Any] = {}
    for name in names:
        before, after = getattr(old, name), getattr(new, name)
        least = ENCLOSURE if name in ("mean_ulp", "bias_ulp", "binade_mean_ulp") else 0.0
        both = isinstance(before, float) and isinstance(after, float)
        if both and math.isclose(before, after, rel_tol=ENCLOSURE, abs_tol=least):
            kept[name] = before
    return kept


def _label(name: str, new: Accepted | AcceptedRegion) -> str:
    return (
        f"bounded {new.metric}"
        if name == "error"
        else name.replace("_mismatch", " mismatches").replace("_sign", " signs")
    )


def _apart(a: float, b: float) -> tuple[str, str]:
    """Two different numbers with as few digits as tell them apart, four at least; rounded up, as everywhere."""
    for digits in (4, 6, 9):
        texts = upward(a, digits), upward(b, digits)
        if texts[0] != texts[1]:
            return texts
    return repr(a), repr(b)


def _bits(new: Accepted, old: Accepted) -> str:
    """'' where the bits are equal, or where the accepted lowering was known to give others in every launch."""
    if old.distinct > 1:
        return ""
    if new.distinct > 1:
        return f"no longer deterministic: {new.distinct} different results in {new.repeats} launches"
    if new.digest == old.digest:
        return ""
    return "other bits" if new.digest and old.digest else "bits not comparable: a digest is missing"


def _same_bits(new: Accepted, old: Accepted) -> str:
    """What is said otherwise of the same bits, so that the truth must be another one; '' where nothing is."""
    names = ("mean_ulp", "bias_ulp", "inputs", "worst_index", "worst_inputs", "worst_output")
    told = [
        f"{name} {getattr(old, name)} -> {getattr(new, name)}"
        for name in names
        if getattr(old, name) != getattr(new, name)
    ]
    for region in _common(new, old):
        before, after = old.regions[region], new.regions[region]
        told += [
            f"{name} in {region} {getattr(before, name)} -> {getattr(after, name)}"
            for name in names
            if getattr(before, name) != getattr(after, name)
        ]
    return f"the same bits, judged otherwise: {'; '.join(told)}" if told else ""


def _formula(cell: Accepted) -> str:
    if cell.formula is None:
        return "not looked for"
    return " or ".join(map(repr, cell.formula)) or "none"


def inputs_text(new: Accepted, old: Accepted) -> str:
    """'' where both are results for the same inputs."""
    digests = new.inputs_digest == old.inputs_digest
    if (new.domain, new.size) == (old.domain, old.size) and digests and (new.inputs_digest or new.seed == old.seed):
        return ""
    texts = [f"{one.domain} of {one.size}, seed {one.seed}" for one in (old, new)]
    if texts[0] == texts[1]:
        texts = [
            f"{text}, digest {one.inputs_digest or 'unknown'}" for text, one in zip(texts, (old, new), strict=True)
        ]
    return " -> ".join(texts)


def source_text(new: Accepted, old: Accepted) -> str:
    told = []
    if new.source and old.source and new.source != old.source:
        told.append("with other source files of the kernel")
    if _judged_by_less(new, old):
        pass  # which is more than stale
    elif (new.bound, new.metric, new.truth) != (old.bound, old.metric, old.truth):
        told.append(f"under the bound {bound_text(old)} -> {bound_text(new)}")
    else:
        pairs = {name: (old.regions[name].bound, new.regions[name].bound) for name in _common(new, old)}
        told += [f"under the bound {a} -> {b} in {name}" for name, (a, b) in pairs.items() if a != b]
    for name in _common(new, old):
        fine, coarse = old.regions[name].resolution, new.regions[name].resolution
        if fine is not None and coarse is not None and not math.isclose(fine, coarse, rel_tol=RESOLVED):
            told.append(f"with the resolution {fine:.3g} -> {coarse:.3g} in {name}")
    if new.flags != old.flags:
        told.append(f"with flags {json.dumps(old.flags)} -> {json.dumps(new.flags)}")
    return ", ".join(told)


def bound_text(cell: Accepted) -> str:
    return "none" if cell.bound is None else f"{cell.bound:.6g} {cell.metric} ({cell.truth} scalars)"
