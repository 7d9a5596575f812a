"""Composite kernels: launch a lowering on a problem, judge every output against its truth, fill the cells.

The tallies, classes and errors are those of `verify.check`; here an element is known by its place in an
output, and the bound is a tensor that the lowering's algorithm has proved (`verify.composite.Limit`).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import torch

from verify import admit, ledger
from verify.backends import Backend, judged_on
from verify.cells import conclude, error_of, exceeds
from verify.check import (
    Checked,
    OracleViolation,
    balls_of,
    digests,
    leaders,
    patterns,
    require_inside,
    tally_of,
)
from verify.composite import KEPT, Limit, Problem, Source
from verify.decide import COUNTS, Enclosure, binade, decide, decide_tensors, error_bounds
from verify.domains import CHUNK
from verify.draws import mix
from verify.exact import Exact, decimal, finite
from verify.formats import FORMATS, Format
from verify.identify import Identification, count
from verify.kernel import Composite, Scalars, Setting, UsageError, suggest
from verify.launch import POISON, LoweringError
from verify.lowerings import Lowering, NotLowered, Target, describe, user_function
from verify.oracle import OracleError
from verify.tally import WORST, Tally, root
from verify.truth import Truth
from verify.ulp import FAILING, clamp

Tensor = torch.Tensor
Outputs = dict[str, Tensor]
SAMPLE = 8  # elements of every output that are re-evaluated in multiprecision
SAMPLE_FLOAT64 = 256  # elements of a float64 output that are judged, each in multiprecision
_UP = 1.0 + 2.0**-45
_INFINITE = 2.0**1000  # a share that has no number: something is wrong where nothing may be


@dataclass(frozen=True)
class Placed:
    """Elements of one output of a source, known by their place in it (see `verify.exact.Elements`)."""

    source: Source
    output: str

    def enclosures(self, key: tuple[int, ...]) -> Iterator[Truth]:
        return self.source.exact(self.output, key[0])

    def scale(self, key: tuple[int, ...]) -> Truth | None:
        return self.source.scale(self.output, key[0])

    def zeroed(self, key: tuple[int, ...]) -> None:
        return None


@dataclass(frozen=True)
class Found:
    """What is known of one output: tallies, the largest |y - t| / bound, the worst elements as the report
    has them, and how many elements were judged."""

    checked: Checked
    share: float
    worst: tuple[dict[str, Any], ...]


class Judge:
    """Judges outputs named `output` of one source, of shape `shape` and in the format `fmt`."""

    def __init__(self, source: Source, output: str, shape: tuple[int, ...], fmt: Format, place: str) -> None:
        self.source, self.output, self.shape, self.fmt, self.place = source, output, shape, fmt, place
        self.exact = Exact(Placed(source, output), fmt)
        self._kept: tuple[Enclosure, Tensor | None] | None = None

    def judge(self, y: Tensor, eager: Tensor | None, limit: Limit | None) -> Found:
        """y, eager: outputs of one shape and dtype. Raises OracleViolation."""
        flat = y.contiguous().reshape(1, -1)
        other = None if eager is None else eager.contiguous().reshape(1, -1)
        bound = None if limit is None else limit.bound.to(flat.device, torch.float64).expand(self.shape).reshape(-1)
        if self.fmt.bits == 64:
            return self._sampled(flat, other, bound)
        found, scale = self._enclosed()
        outside = None if bound is None else ~torch.isfinite(bound)[None]
        parts = []
        for mask in (None,) if outside is None or not bool(outside.any()) else (~outside, outside):
            parts.append(self._part(flat, other, found, scale, mask, bound))
        main, worst, share = parts[0]
        self._sample(flat, found, scale)
        limits = parts[1][0] if len(parts) > 1 else Tally()
        return Found(Checked(main, limits), share, self._entries(worst, flat, bound))

    def _enclosed(self) -> tuple[Enclosure, Tensor | None]:
        if self._kept is None:
            self._kept = self.source.enclose(self.output)
        return self._kept

    def _part(
        self, y: Tensor, eager: Tensor | None, found: Enclosure, scale: Tensor | None, mask: Tensor | None,
        bound: Tensor | None,
    ) -> tuple[Tally, list[int], float]:  # fmt: skip
        """Tally, places of candidates for the worst case, and largest share of the masked elements."""
        decision = decide(y, found, self.fmt, eager=eager, scale=scale, mask=mask)
        tally = replace(tally_of(decision), max_ulp=0.0, max_scaled=0.0)
        settled = ~decision.open[0] if mask is None else ~decision.open[0] & mask[0]
        every = torch.arange(y.shape[1], device=y.device)
        chosen, share = self._candidates(every, y, found, scale, settled, bound)
        if tally.undecided:
            tally = replace(tally, inputs=tally.inputs - tally.undecided, undecided=0)
            index = decision.open[0].nonzero()[:, 0]
            closer, narrow = self.source.enclose(self.output, index, double=True)
            part, theirs = y[:, index], None if eager is None else eager[:, index]
            second = decide_tensors(part, closer, self.fmt, eager=theirs, scale=narrow)
            counted = tally_of(second)
            tally += replace(counted, inputs=counted.inputs - counted.undecided, undecided=0, max_ulp=0.0)
            limits = None if bound is None else bound[index]
            more, high = self._candidates(index, part, closer, narrow, ~second.open[0], limits)
            chosen, share = [*chosen, *more], max(share, high)
            rest = second.open[0].nonzero()[:, 0]
            if len(rest):
                places = index[rest].tolist()
                others = None if theirs is None else patterns(theirs[0, rest], self.fmt)
                ys = patterns(part[0, rest], self.fmt)
                tally += self.exact.tally(places, [(k,) for k in places], ys, others)
                chosen += places[: 4 * WORST]
                if limits is not None:
                    share = max(
                        share,
                        *(
                            self._share(k, b, float(limits[r]))
                            for k, b, r in zip(places, ys, rest.tolist(), strict=True)
                        ),
                    )
        tally, chosen = self._ranked(tally, chosen, y)
        return self._witnesses(tally, y, found, scale, mask), chosen, share

    def _candidates(
        self, index: Tensor, y: Tensor, found: Enclosure, scale: Tensor | None, keep: Tensor, bound: Tensor | None
    ) -> tuple[list[int], float]:
        """Places that may have the largest error, scaled error or share, and the largest share."""
        signed, spread, inverse = error_bounds(y.to(torch.float64), found, self.fmt)
        error, spread, inverse = signed[0].abs() + spread[0], spread[0], inverse[0]
        usable = keep & torch.isfinite(error) & ~torch.isnan(found.mid[0])
        if not bool(usable.any()):
            return [], 0.0
        high = torch.where(usable, error, -1.0)
        chosen = [leaders(high, spread, WORST)]
        if scale is not None:
            weight = 2.0 ** (self.fmt.precision - 1) / binade(scale[0], self.fmt)
            chosen.append(leaders(torch.where(usable, high / inverse * weight, -1.0), spread / inverse * weight, 1))
        share = 0.0
        if bound is not None:
            distance = torch.where(usable, error * _UP, 0.0) / inverse
            part = torch.where(distance == 0, 0.0, distance * _UP / bound).nan_to_num(nan=0.0, posinf=_INFINITE)
            share = float(part.max())
            chosen.append(part.topk(min(WORST, part.numel())).indices)
        return index[torch.cat(chosen).unique()].tolist(), share  # type: ignore[no-untyped-call]

    def _ranked(self, tally: Tally, chosen: list[int], y: Tensor) -> tuple[Tally, list[int]]:
        """Exact maxima over the candidates."""
        top, scaled, steps = tally.max_ulp, tally.max_scaled, tally.max_int
        for place, bits in zip(chosen, patterns(y[0, chosen], self.fmt), strict=True):
            truth, verdict = self.exact.verdict((place,), bits)
            found, _ = self._enclosed()
            (ball,) = balls_of(found, torch.tensor([place], device=y.device))
            require_inside(ball, truth, self.fmt, self.named(place))
            if verdict is None or verdict.high is None or verdict.cls == "flushed":
                continue
            top, scaled = max(top, finite(verdict.high)), max(scaled, finite(verdict.scaled))
        return replace(tally, max_ulp=top, max_scaled=scaled, max_int=steps), list(dict.fromkeys(chosen))

    def _entries(self, places: list[int], y: Tensor, bound: Tensor | None) -> tuple[dict[str, Any], ...]:
        """The worst elements as the report has them: the largest share of the bound first."""
        rows = []
        for place, bits in zip(places, patterns(y[0, places], self.fmt), strict=True):
            truth, verdict = self.exact.verdict((place,), bits)
            if verdict is None:
                continue
            row: dict[str, Any] = {
                "index": place,
                "inputs": [],
                "output": self.fmt.hex(bits),
                "exact": decimal(truth),
                "ulp": None if verdict.high is None else finite(verdict.high),
                "error_class": verdict.cls,
            }
            if verdict.scaled is not None:
                row["scaled_ulp"] = finite(verdict.scaled)
            if bound is not None and verdict.high is not None:
                row["share"] = self._share(place, bits, float(bound[place]))
            rows.append(row)
        failing = [r for r in rows if r["error_class"] in FAILING][:2]
        rest = sorted(
            (r for r in rows if r not in failing),
            key=lambda r: (-(r.get("share") or 0.0), -(r["ulp"] or 0.0), r["index"]),
        )
        return (*failing, *rest)[:WORST]

    def _share(self, place: int, bits: int, bound: float) -> float:
        """|y - t| / bound of one element, rounded up."""
        truth, _ = self.exact.verdict((place,), bits)
        if truth.kind != "real" or self.fmt.is_nan(bits) or not math.isfinite(bound):
            return 0.0
        y = clamp(self.fmt.fraction(bits), self.fmt) if not self.fmt.is_inf(bits) else _beyond(bits, self.fmt)
        far = max(abs(y - clamp(truth.lo, self.fmt)), abs(y - clamp(truth.hi, self.fmt)))
        if not far:
            return 0.0
        # A float64's error over its bound may be more than a float holds: compared as rationals.
        return float(far / Fraction(bound)) * _UP if far < Fraction(_INFINITE) * Fraction(bound) else _INFINITE

    def _witnesses(self, tally: Tally, y: Tensor, found: Enclosure, scale: Tensor | None, mask: Tensor | None) -> Tally:
        """The first element of each class that no bound excuses."""
        missing = [c for c in FAILING if getattr(tally, c) and c not in dict(tally.witnesses)]
        if not missing:
            return tally
        decision = decide_tensors(y, found, self.fmt, scale=scale, mask=mask)
        assert decision.codes is not None
        for name in missing:
            hits = (decision.codes == COUNTS.index(name)) & ~decision.open
            hits = hits if mask is None else hits & mask
            if bool(hits.any()):
                place = int(hits[0].to(torch.uint8).argmax())
                (bits,) = patterns(y[0, [place]], self.fmt)
                truth, verdict = self.exact.verdict((place,), bits)
                error = finite(verdict.high) if verdict is not None else 0.0
                tally += Tally(witnesses=((name, self.exact.entry(place, (place,), bits, truth, error)),))
        return tally

    def _sample(self, y: Tensor, found: Enclosure, scale: Tensor | None) -> None:
        """Re-evaluate a fixed spread of elements in multiprecision."""
        picks = torch.tensor(spread(y.shape[1], SAMPLE), device=y.device)
        seen = decide_tensors(
            y[:, picks], found.take((slice(None), picks)), self.fmt, scale=None if scale is None else scale[:, picks]
        )
        assert seen.codes is not None
        columns = (picks.tolist(), balls_of(found, picks), seen.codes[0].tolist(), seen.open[0].tolist())
        for place, ball, code, open_, bits in zip(*columns, patterns(y[0, picks], self.fmt), strict=True):
            truth, verdict = self.exact.verdict((place,), bits)
            require_inside(ball, truth, self.fmt, self.named(place))
            if verdict is not None and not open_ and verdict.cls != COUNTS[code]:
                where = self.named(place)
                raise OracleViolation(f"{where}: tensors say {COUNTS[code]}, multiprecision {verdict.cls}")

    def _sampled(self, y: Tensor, eager: Tensor | None, bound: Tensor | None) -> Found:
        """float64: no wider tensor format exists, so a spread of elements is taken in multiprecision. As elsewhere,
        nothing but truths is told of those without a bound."""
        places = spread(y.shape[1], SAMPLE_FLOAT64)
        tallies, share = [Tally(), Tally()], 0.0
        for outside in (False, True):
            part = [k for k in places if (bound is not None and not torch.isfinite(bound[k])) == outside]
            if not part:
                continue
            ys = patterns(y[0, part], self.fmt)
            others = None if eager is None else patterns(eager[0, part], self.fmt)
            tallies[outside] = self.exact.tally(part, [(k,) for k in part], ys, others)
            if bound is not None:
                share = max(share, *(self._share(k, bits, float(bound[k])) for k, bits in zip(part, ys, strict=True)))
        main, limits = tallies
        worst = [w.index for w in main.worst] + [w.index for _, w in main.witnesses]
        return Found(Checked(main, limits), share, self._entries(worst, y, bound))

    def share(self, place: int, bits: int, limit: Limit) -> float:
        """|y - t| / bound of one element, rounded up; `bits` is the output's pattern."""
        return self._share(place, bits, float(limit.bound.expand(self.shape).reshape(-1)[place]))

    def named(self, place: int) -> str:
        """The element as its index in the output, for messages."""
        spot = []
        for size in reversed(self.shape):
            place, rest = divmod(place, size)
            spot.append(rest)
        return f"{self.place} {self.output}{list(reversed(spot))}".strip()


def spread(n: int, size: int) -> list[int]:
    """`size` places of n, or all: one of each of as many equal parts, the first and the last of n among them. Where in
    its part is hashed: equal distances would fall on the same few columns of every row and lanes of every block."""
    size = min(n, size)
    edges = [k * n // max(size, 1) for k in range(size + 1)]
    places = [low + mix(k) % (high - low) for k, (low, high) in enumerate(pairwise(edges))]
    return [0, *places[1:-1], n - 1] if size > 1 else places


def _beyond(bits: int, fmt: Format) -> Fraction:
    top = Fraction(2) ** (fmt.emax + 1)
    return -top if bits & fmt.sign_bit else top


# ---------------------------------------------------------------- one problem, all its lowerings


class Instance:
    """A problem of a kernel on a backend: truths and the reference's outputs are kept for the next lowering."""

    def __init__(
        self, facts: Composite, setting: Setting, scalars: Scalars, dtype: str, backend: Backend, seed: int
    ) -> None:
        self.kernel, self.setting, self.scalars, self.dtype = facts, setting, dict(scalars), dtype
        self.backend, self.seed = backend, seed
        host: Problem = facts.problem(dtype, setting, dict(scalars), seed)
        self.digest = problem_digest(host)
        self.problem = host.to(backend.check_device)
        self.library = admit.library(backend.check_device)
        bounds = {a.name: a.bound for a in self.library}
        self.outputs = facts.outputs_of(setting)
        self.source: Source = facts.truth(self.problem, backend.check_device, bounds)
        self._judges: dict[tuple[str, str, tuple[int, ...]], Judge] = {}
        self._reference: Outputs | None = None
        self._predicted: dict[tuple[str, str], Tensor] = {}

    def serves(self, facts: Composite, setting: Setting, scalars: Scalars, dtype: str, backend: Backend) -> bool:
        """Whether a job with these facts is one of this instance."""
        mine = (self.kernel.name, self.setting, self.scalars, self.dtype, self.backend.name)
        return mine == (facts.name, setting, dict(scalars), dtype, backend.name)

    def judge(self, output: str, y: Tensor) -> Judge:
        fmt = _format(y)
        key = (output, fmt.name, tuple(y.shape))
        if key not in self._judges:
            place = f"{self.kernel.name} {self.setting.name}"
            self._judges[key] = Judge(self.source, output, tuple(y.shape), fmt, place)
        return self._judges[key]

    def reference(self, lowering: Lowering, target: Target) -> Outputs | None:
        """What the first lowering gives; None where it does not exist or does not run."""
        if self._reference is None:
            if lowering.reason(target):
                return None
            try:
                self._reference, _ = launch(lowering.build(target), self.problem, self.backend, lowering.name)
            except (LoweringError, NotLowered):
                return None
        return self._reference

    def predicted(self, output: str) -> Iterator[tuple[str, Tensor]]:
        """What each formula gives for `output`, evaluated once as far as KEPT bytes hold it."""
        if self.kernel.formulas is None:
            return
        for text, make in self.kernel.formulas(self.problem, output).items():
            found = self._predicted.get((output, text))
            if found is None:
                found = make()
                if sum(t.nbytes for t in self._predicted.values()) + found.nbytes <= KEPT:
                    self._predicted[output, text] = found
            yield text, found


def problem_digest(problem: Problem) -> str:
    """SHA-256 over the tensors' names, shapes and bytes and the parameters, 16 hex digits."""
    hasher = hashlib.sha256()
    for name, t in problem.tensors.items():
        hasher.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        hasher.update(t.contiguous().view(torch.uint8).reshape(-1).numpy().tobytes())
    facts = {"parameters": dict(problem.parameters), "scalars": dict(problem.scalars), "dtype": problem.dtype}
    hasher.update(json.dumps(facts, sort_keys=True, default=str).encode())
    return hasher.hexdigest()[:16]


def launch(call: Callable[[Problem], Any], problem: Problem, backend: Backend, name: str) -> tuple[Outputs, float]:
    """Outputs by name, where they are judged, and the seconds to synchronized completion. Raises LoweringError."""
    given = problem.to(backend.device)
    backend.synchronize()
    began = time.perf_counter()
    try:
        with torch.no_grad():
            outputs = call(given)
        backend.synchronize()
    except (UsageError, NotLowered):
        raise
    except Exception as error:
        shapes = ", ".join(f"{key} {tuple(t.shape)}" for key, t in problem.tensors.items())
        raise LoweringError(f"lowering {name} raised {describe(error)} on {shapes}") from error
    seconds = time.perf_counter() - began
    for key, t in outputs.items():
        if not isinstance(t, torch.Tensor):
            raise LoweringError(
                f"lowering {name} returned {type(t).__name__} for {key or 'its output'}; expected a tensor"
            )
    return {key: t.detach().to(backend.check_device) for key, t in outputs.items()}, seconds


def launch_twice(
    call: Callable[[Problem], Any], problem: Problem, backend: Backend, name: str
) -> tuple[list[Outputs], float]:
    """The distinct results of two launches on memory poisoned with another byte each time (one result: the
    lowering is deterministic), and the seconds of the second. Raises LoweringError where an input was modified."""
    given = problem.to(backend.device)
    before = {key: t.clone() for key, t in given.tensors.items()}
    size = max((t.nbytes for t in given.tensors.values()), default=0)
    results: list[Outputs] = []
    seconds = 0.0
    for pattern in POISON:
        with backend.poisoned(size, pattern):
            outputs, seconds = launch(call, given, backend, name)
        results.append({key: t.clone() for key, t in outputs.items()})
        for key, kept in before.items():
            if not _same(given.tensors[key], kept):
                raise LoweringError(f"lowering {name} modified its input {key} in place")
    first, second = results
    if first.keys() == second.keys() and all(
        first[key].shape == second[key].shape and _same(first[key], second[key]) for key in first
    ):
        return [second], seconds
    return results, seconds


def _same(a: Tensor, b: Tensor) -> bool:
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    differ = a.contiguous().view(words).ne(b.contiguous().view(words)) & ~(a.isnan() & b.isnan())
    return not bool(differ.any())


def _format(y: Tensor) -> Format:
    name = str(y.dtype).removeprefix("torch.")
    if name not in FORMATS:
        raise LoweringError(f"an output has dtype {name}; expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def user_lowering(text: str) -> Lowering:
    """The user's FILE.py:FUNCTION for composite kernels: called with the problem's tensors by position and,
    where it has parameters of their names, the setting's parameters and scalars by keyword."""
    label, function = user_function(text)

    def build(target: Target) -> Callable[[Problem], Any]:
        outputs = target.kernel.outputs

        def run(problem: Problem) -> Outputs:
            given = {**problem.parameters, **problem.scalars}
            accepted = inspect.signature(function).parameters
            keywords = {name: value for name, value in given.items() if name in accepted}
            result = function(*problem.tensors.values(), **keywords)
            if isinstance(result, torch.Tensor):
                result = (result,)
            if not isinstance(result, Mapping):
                result = dict(zip(outputs, result, strict=False))
            return dict(result)

        return run

    return Lowering(label, build, lambda target: None)


def cells(
    target: Target, lowering: Lowering, reference: Lowering, instance: Instance, blank: dict[str, Any]
) -> list[dict[str, Any]]:
    """One cell for each output that `lowering` gives on the instance; `blank` holds what identifies them."""
    began = time.perf_counter()
    empty = [blank | {"output": name} for name in instance.outputs]
    try:
        results, seconds = launch_twice(lowering.build(target), instance.problem, instance.backend, lowering.name)
        _complete(results, instance.outputs, lowering)
        eager = None
        if reference.name != lowering.name:
            eager = instance.reference(reference, target)
        else:
            instance._reference = results[0]
        filled = [
            _cell(target, lowering, instance, name, [r[name] for r in results], eager, blank)
            for name in instance.outputs
            if name in results[0]
        ]
        absent = [cell for cell in empty if cell["output"] not in results[0]]
    except NotLowered as why:
        return [cell | {"status": "not-run", "reason": str(why)} for cell in empty]
    except LoweringError as error:
        return [cell | {"status": "error", "reason": str(error)} for cell in empty]
    except (OracleViolation, OracleError) as violation:
        return [
            cell | {"status": "oracle-violation", "reason": str(violation), "error": error_of(Checked())}
            for cell in empty
        ]
    check_s = max(time.perf_counter() - began - seconds, 0.0)
    for cell in filled:
        if "timing" in cell:
            cell["timing"] |= {"kernel_s": seconds / len(filled), "check_s": check_s / len(filled)}
    return filled + [
        cell | {"status": "not-run", "reason": "the lowering does not give this output"} for cell in absent
    ]


def _complete(results: list[Outputs], defined: tuple[str, ...], lowering: Lowering) -> None:
    for outputs in results:
        unknown = [name for name in outputs if name not in defined]
        if unknown or not outputs:
            expected = ", ".join(defined) or "one"
            raise LoweringError(f"lowering {lowering.name} returned outputs {sorted(outputs)}; expected {expected}")


def _cell(
    target: Target, lowering: Lowering, instance: Instance, output: str, results: list[Tensor], eager: Outputs | None,
    blank: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    facts, problem = instance.kernel, instance.problem
    judge = instance.judge(output, results[0])
    theirs = None if eager is None else eager.get(output)
    if theirs is not None and (theirs.shape != results[0].shape or theirs.dtype != results[0].dtype):
        if theirs.shape != results[0].shape:
            raise LoweringError(
                f"lowering {lowering.name} returned {output or 'an output'} of shape {tuple(results[0].shape)}; "
                f"expected {tuple(theirs.shape)}"
            )
        theirs = None
    limit: Limit | None = facts.limit(problem, target, lowering, output)
    if limit is not None and limit.bound.numel() not in (1, results[0].numel()):
        raise LoweringError(
            f"lowering {lowering.name} returned {output or 'an output'} of shape {tuple(results[0].shape)}; "
            f"expected {tuple(limit.bound.shape)}"
        )
    if not results[0].numel():
        return blank | {"output": output, "status": "not-run", "reason": "the output has no element"}
    everything = [judge.judge(y, theirs, limit) for y in results]
    found = max(everything, key=lambda f: (f.share, f.checked.main.max_ulp))
    y = results[everything.index(found)]
    whole = found.checked.all.check()
    fmt = judge.fmt
    identified = Identification()
    for text, t in instance.predicted(output):
        if t.shape == y.shape and t.dtype == y.dtype:
            count(identified, {text: t}, fmt, (), y)
    excess = f"share of the bound {exceeds(found.share, 1.0)}" if found.share > 1 else ""
    status, reason, kinds = conclude(found.checked, lowering.ftz(target), excess, bounded=limit is not None)
    if status == "exceeds-bound":
        explained = bool(identified.survivors) or (theirs is not None and not whole.different)
        known = ledger.excuse(
            target.backend.name, kinds, explained, lowering=lowering.name, kernel=facts.name, dtype=target.dtype,
            spelling=target.spelling,
        )  # fmt: skip
        if known is not None:
            status, reason = "passed", f"known deviation: {known} ({reason})"
    if len(results) > 1:
        reason = f"not deterministic: two launches differ, the worse is reported{'; ' if reason else ''}{reason}"
    error = error_of(found.checked)
    if fmt.bits < 64 and judge._enclosed()[1] is None:
        error["max_scaled_ulp"] = None
    chunks = _chunks(y, fmt)
    cell = blank | {
        "output": output,
        "status": status,
        "reason": reason,
        "inputs": whole.inputs,
        "error": error | {"max_share": found.share if limit is not None else None},
        "worst": list(found.worst),
        "domain": {
            "kind": "problem" if whole.inputs == y.numel() else f"{whole.inputs} of {y.numel()}",
            "size": whole.inputs, "seed": instance.seed, "digest": instance.digest,
        },
        "digest": root(chunks),
        "chunks": [f"{value:016x}" for _, value in chunks],
        "flags": lowering.flags(target),
        "ftz": lowering.ftz(target),
        "trust": [
            {"library": f"torch.{a.name} float64, {a.form} on {judged_on(instance.backend)}", "bound_ulp": a.bound,
             "seen_ulp": a.seen, "admitted_on": a.points}
            for a in instance.library
        ],
        "timing": {"mp_elements": whole.mp_elements},
    }  # fmt: skip
    if theirs is not None:
        cell["against_eager"] = {k: getattr(whole, k) for k in ("different", "closer", "farther", "tied")}
    if identified.mismatches:
        cell["formula"] = {
            "identified": identified.identified,
            "mismatches": identified.mismatches,
            "survivors": identified.survivors,
        }
    if len(results) > 1:
        cell |= {"repeats": len(results), "distinct": len(results)}
    if limit is not None:
        cell["bound"] = {
            "value": 1.0, "metric": "share", "source": limit.source, "truth": "exact", "measured": found.share,
        }  # fmt: skip
    return cell


def _chunks(y: Tensor, fmt: Format) -> tuple[tuple[int, int], ...]:
    flat = y.contiguous().reshape(-1)
    total = Tally()
    for number, start in enumerate(range(0, flat.numel(), CHUNK)):
        total += digests(number, (), flat[start : start + CHUNK], fmt)
    return total.digests


def settings_of(
    facts: Composite, given: Mapping[str, str] | None, spellings: tuple[str, ...], profile: str, dtype: str
) -> list[Setting]:
    """The user's own setting, those named (a name of NAME=VALUE words is one's own), or those of the profile,
    as far as they exist for `dtype`. Raises UsageError."""
    if given:
        return [_own(facts, given)]
    if spellings:
        own = [_own(facts, own_setting(name) or {}) for name in spellings if own_setting(name)]
        return own + [s for s in facts.settings if s.name in spellings and dtype in s.dtypes]
    return [s for s in facts.settings if dtype in s.dtypes and (s.quick or profile != "quick")]


def own_setting(spelling: str) -> dict[str, str] | None:
    """The NAME=VALUE words that `spelling` consists of, or None where it is a name."""
    words = spelling.split()
    if not words or not all("=" in word for word in words):
        return None
    return dict(word.split("=", 1) for word in words)


def _own(facts: Composite, given: Mapping[str, str]) -> Setting:
    """A setting of the user's own; its name gives it back, see `own_setting`."""
    if facts.custom is None:
        raise UsageError(f"{facts.name} takes no --set; its settings are {', '.join(facts.spellings)}")
    for name in given:
        if name not in facts.parameters:
            raise UsageError(suggest(f"parameter of {facts.name}", name, tuple(facts.parameters)))
    return replace(facts.custom(given), name=" ".join(f"{name}={value}" for name, value in given.items()))


def cases_of(facts: Composite, given: Scalars | None, profile: str) -> list[Scalars]:
    """The cases of the profile; with scalars given, the first case that has these, with them as given."""
    if not given:
        return list(facts.cases[: facts.quick_cases] if profile == "quick" else facts.cases)
    known = tuple(dict.fromkeys(name for case in facts.cases for name in case))
    if not known:
        raise UsageError(f"{facts.name} takes no --scalar; its parameters are given by --set, see `verify show`")
    for name in given:
        if name not in known:
            raise UsageError(suggest(f"scalar of {facts.name}", name, known))
    return [{**next(case for case in facts.cases if given.keys() <= case.keys()), **given}]
