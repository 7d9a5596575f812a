"""One element, taken apart: its exact value, what every lowering makes of it, and the formulas step by step.

What is printed of it is in `verify.reports.rows`; errors and classes are those of `verify.check` and `verify.ulp`.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from verify import assess, backends
from verify.assess import Instance, Judge, cases_of, settings_of
from verify.backends import Backend
from verify.check import pattern
from verify.domains import Domain
from verify.exact import Elementwise, Exact, decimal, finite
from verify.formats import FORMATS, Format
from verify.identify import candidates
from verify.kernel import Composite, Kernel, NothingToCompare, Scalars, UsageError, elementwise, is_file, load, suggest
from verify.launch import LoweringError, launch_checked
from verify.lowerings import Lowering, NotLowered, Target, lowering_names, lowerings, user_lowering
from verify.numbers import mp
from verify.numbers.ieee import IeeeSystem
from verify.numbers.trace import trace
from verify.oracle import Oracle
from verify.truth import HUGE, TINY, Truth

#: The element is launched this often at once, a multiple of every vector's length: it takes the loop that it takes
#: inside a large tensor, and not the one of a tensor's last elements.
COPIES = 64
#: Relative width of an enclosure that gives 20 digits.
NARROW = Fraction(1, 10**21)


@dataclass(frozen=True)
class Element:
    """One input of a kernel's case, as patterns, on a backend."""

    kernel: Kernel
    scalars: Scalars
    dtype: str
    backend: Backend
    patterns: tuple[int, ...]

    @property
    def fmt(self) -> Format:
        return FORMATS[self.dtype]

    @property
    def names(self) -> tuple[str, ...]:
        return self.kernel.tensors(self.scalars)

    @property
    def copies(self) -> tuple[torch.Tensor, ...]:
        """The inputs as tensors of COPIES equal elements."""
        domain = Domain("list", self.fmt, self.names, patterns=(self.patterns,) * COPIES)
        tensors: tuple[torch.Tensor, ...] = domain.chunk(0, self.backend.check_device)
        return tensors

    def target(self, spelling: str) -> Target:
        return Target(self.kernel, self.scalars, spelling, self.dtype, self.backend)


def explain(
    kernel: str,
    inputs: list[str],
    *,
    dtype: str = "float32",
    scalars: Scalars | None = None,
    lowerings: tuple[str, ...] = (),
    spellings: tuple[str, ...] = (),
    backend: str | None = None,
) -> dict[str, Any]:
    """The facts about one element, as plain data.

    inputs     literals of `Format.parse`, one for each tensor input in the kernel's order
    scalars    Python scalars; None: those of the first case with as many tensors as inputs are given
    lowerings  names, shell patterns or FILE.py:FUNCTION; empty: all
    spellings  names; empty: the default one, and every one for the first lowering
    backend    empty: the first present

    Errors are in ULPs of the exact value and, where the kernel has a scale, in ULPs of that; those of
    'rounded_scalars' refer to the value with the scalars rounded to `dtype`. Raises UsageError for bad input,
    NothingToCompare for an absent backend.
    """
    facts, fmt = elementwise(kernel), FORMATS[dtype]
    place = _backend(backend)
    chosen, wanted = _lowerings(facts, lowerings), _spellings(facts, spellings)
    case = _case(facts, len(inputs), scalars)
    element = Element(facts, case, dtype, place, _patterns(fmt, facts.tensors(case), inputs))
    judges = {"": Exact(Elementwise(facts.oracle, fmt, element.names, case), fmt)}
    rounded = {name: fmt.to_float(fmt.round_float(value)) for name, value in case.items()}
    if rounded != case:
        judges["rounded_scalars"] = Exact(Elementwise(facts.oracle, fmt, element.names, rounded), fmt)
    told: dict[str, Any] = {
        "kernel": kernel,
        "dtype": dtype,
        "backend": place.name,
        "scalars": dict(case),
        "inputs": {name: fmt.hex(bits) for name, bits in zip(element.names, element.patterns, strict=True)},
        **_exactly(judges[""], element),
        "special": special(facts.oracle, judges[""], element),
    }
    if "rounded_scalars" in judges:
        told["rounded_scalars"] = {"scalars": rounded, **_exactly(judges["rounded_scalars"], element)}
    told["lowerings"] = list(_told(element, chosen, wanted, judges))
    told["formulas"] = list(_formulas(element, told["lowerings"]))
    return told


def explain_place(
    kernel: str,
    place: int,
    *,
    output: str | None = None,
    spelling: str | None = None,
    setting: Mapping[str, str] | None = None,
    dtype: str = "float32",
    scalars: Scalars | None = None,
    lowerings: tuple[str, ...] = (),
    backend: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """The facts about element `place` (C order) of an output of a composite kernel, on the problem that a
    setting and `seed` make; the first output and the first setting of the dtype unless given.

    Raises UsageError for bad input, NothingToCompare for an absent backend.
    """
    facts = load(kernel)
    assert isinstance(facts, Composite)
    where = _backend(backend)
    (chosen, *_), (case, *_) = (
        settings_of(facts, setting, (spelling,) if spelling else (), "default", dtype),
        cases_of(facts, scalars, "default"),
    )
    output = facts.outputs[0] if output is None else output
    if output not in facts.outputs:
        raise UsageError(suggest(f"output of {kernel}", output, facts.outputs))
    instance = Instance(facts, chosen, case, dtype, where, seed)
    if output not in instance.outputs:
        having = ", ".join(instance.outputs)
        raise UsageError(f"{kernel} has no {output} in the setting {chosen.name}; expected one of {having}")
    told: dict[str, Any] = {
        "kernel": kernel,
        "dtype": dtype,
        "backend": where.name,
        "scalars": dict(case),
        "spelling": chosen.name,
        "output": output,
        "index": place,
    }
    target = Target(facts, case, chosen.name, dtype, where)
    entries, judge = [], None
    for lowering in _composite_lowerings(facts, lowerings):
        entry: dict[str, Any] = {"lowering": lowering.name, "reason": lowering.reason(target) or ""}
        if not entry["reason"]:
            try:
                outputs, _ = assess.launch(lowering.build(target), instance.problem, where, lowering.name)
                judge, found = _placed(instance, target, lowering, outputs, output, place)
                entry |= found
            except (NotLowered, LoweringError) as why:
                if is_file(lowering.name):
                    raise
                entry["reason"] = str(why)
        entries.append(entry)
    if judge is None:
        reasons = "; ".join(f"{entry['lowering']}: {entry['reason']}" for entry in entries)
        raise NothingToCompare(f"no lowering gives {output or 'the output'} here: {reasons}")
    truth, scale = truth_of(judge.exact, (place,)), judge.exact.scale((place,))
    told |= {
        "place": judge.named(place),
        "exact": digits(truth),
        "rounded": rounding(truth, judge.fmt) or "undecided",
        "scale": digits(scale) if scale is not None else "",
        "terms": [list(line) for line in instance.source.explain(output, place)],
        "lowerings": entries,
    }
    told["formulas"] = [
        {
            "text": text,
            "output": _hex(t, place),
            "matches": [e["lowering"] for e in entries if e.get("output") == _hex(t, place)],
        }
        for text, t in instance.predicted(output)
    ]
    return told


def _placed(
    instance: Instance, target: Target, lowering: Lowering, outputs: Mapping[str, torch.Tensor], output: str, place: int
) -> tuple[Judge, dict[str, Any]]:
    """The judge of `output` and what it says of one element."""
    if output not in outputs:
        raise NotLowered(f"it gives no {output}; it gives {', '.join(outputs)}")
    y = outputs[output]
    if place >= y.numel():
        raise UsageError(f"--index {place}; expected less than {y.numel()}, the elements of {output or 'the output'}")
    judge = instance.judge(output, y)
    bits = pattern(y.reshape(-1)[place], judge.fmt)
    limit = instance.kernel.limit(instance.problem, target, lowering, output)
    _, verdict = judge.exact.verdict((place,), bits)
    measured = verdict is not None and verdict.high is not None
    return judge, {
        "output": judge.fmt.hex(bits),
        "ulp": finite(verdict.high) if verdict and measured else None,
        "scaled_ulp": finite(verdict.scaled) if verdict and measured else None,
        "share": judge.share(place, bits, limit) if limit is not None else None,
        "error_class": verdict.cls if verdict else "undecided",
    }


def _composite_lowerings(facts: Composite, given: tuple[str, ...]) -> list[Lowering]:
    known = lowering_names(facts)
    for text in given:
        if not is_file(text) and not fnmatch.filter(known, text):
            raise UsageError(suggest("lowering", text, known))
    chosen = [one for one in lowerings(facts) if not given or any(fnmatch.fnmatchcase(one.name, p) for p in given)]
    return [*(assess.user_lowering(text) for text in given if is_file(text)), *chosen]


def _hex(t: torch.Tensor, place: int) -> str:
    fmt = FORMATS[str(t.dtype).removeprefix("torch.")]
    return fmt.hex(pattern(t.reshape(-1)[place], fmt)) if place < t.numel() else ""


# What is asked for


def _case(facts: Kernel, count: int, given: Scalars | None) -> Scalars:
    """The scalars: as given, else of the first case with `count` tensors. Raises UsageError where there is none."""
    cases = [case for case in facts.cases if given is None or set(case) == set(given)]
    if not cases:
        known = sorted({", ".join(case) or "none" for case in facts.cases})
        raise UsageError(
            f"scalars {', '.join(given or ())} of {facts.name}; expected one of these sets: {'; '.join(known)}"
        )
    fitting = [case for case in cases if len(facts.tensors(case)) == count]
    if not fitting:
        forms = dict.fromkeys(facts.tensors(case) for case in cases)
        counts = " or ".join(f"{len(names)} ({', '.join(names)})" for names in forms)
        raise UsageError(f"--input has {count} values; {facts.name} takes {counts}")
    return fitting[0] if given is None else dict(given)


def _patterns(fmt: Format, names: Sequence[str], texts: Sequence[str]) -> tuple[int, ...]:
    return tuple(_pattern(fmt, name, text) for name, text in zip(names, texts, strict=True))


def _pattern(fmt: Format, name: str, text: str) -> int:
    """Bits of a literal. Raises UsageError, also where an exponent is so long that it could not be computed."""
    try:
        if re.search(r"[ep][+-]?\d{6}", text.lower()):
            raise ValueError(f"{text!r} has an exponent far outside {fmt.name}")
        return fmt.parse(text)
    except (ValueError, ZeroDivisionError) as error:
        why = str(error) if fmt.name in str(error) else f"{text!r} is no number"
        raise UsageError(
            f"--input {name}: {why}; expected a hex float such as 0x1.8p+0, a decimal, inf, nan or raw bits "
            f"such as '#{fmt.parse('1.5'):0{fmt.bits // 4}x}'"
        ) from None


def _backend(name: str | None) -> Backend:
    if name is not None:
        chosen = backends.load(name)
        if (why := chosen.unavailable()) is not None:
            raise NothingToCompare(f"backend {name} is not present: {why}")
        return chosen
    present = (one for one in map(backends.load, backends.names()) if one.unavailable() is None)
    found = next(present, None)
    if found is None:
        raise NothingToCompare(f"no backend is present of {', '.join(backends.names())}")
    return found


def _lowerings(facts: Kernel, given: tuple[str, ...]) -> tuple[Lowering, ...]:
    """The user's own first; all registered ones where none is named."""
    known = lowering_names(facts)
    wanted = [text for text in given if not is_file(text)]
    for text in wanted:
        if not fnmatch.filter(known, text):
            raise UsageError(suggest("lowering", text, known))
    registered = [
        one for one in lowerings(facts) if not wanted or any(fnmatch.fnmatchcase(one.name, p) for p in wanted)
    ]
    return (*(user_lowering(text) for text in given if is_file(text)), *registered)


def _spellings(facts: Kernel, given: tuple[str, ...]) -> tuple[str, ...]:
    for name in given:
        if name not in facts.spellings:
            raise UsageError(suggest("spelling", name, tuple(facts.spellings)))
    return given


# The truth


def truth_of(exact: Exact, patterns: tuple[int, ...]) -> Truth:
    """The truth, narrow enough for 20 digits and for its correct rounding, or as narrow as the cap allows."""
    truth = Truth("nan")
    for truth in exact.truths(patterns):
        narrow = truth.exact or truth.hi - truth.lo <= NARROW * min(abs(truth.lo), abs(truth.hi))
        if narrow and rounding(truth, exact.fmt) is not None:
            break
    return truth


def rounding(truth: Truth, fmt: Format) -> str | None:
    """The correctly rounded result in hex, or None where the enclosure is too wide to tell."""
    if truth.kind != "real":
        fixed = {"nan": "nan", "+inf": "inf", "-inf": "-inf", "+0": "0x0p+0", "-0": "-0x0p+0"}
        return fixed.get(truth.kind, "0x0p+0 or -0x0p+0")
    low, high = fmt.round(truth.lo), fmt.round(truth.hi)
    return fmt.hex(low) if low == high else None


def _exactly(exact: Exact, element: Element) -> dict[str, str]:
    truth = truth_of(exact, element.patterns)
    return {"exact": digits(truth), "rounded": rounding(truth, element.fmt) or "undecided"}


def digits(truth: Truth) -> str:
    """The truth to 20 digits; what lies beyond the limits of `verify.truth` is told as such."""
    if truth.kind == "real" and TINY in (abs(truth.lo), abs(truth.hi)):
        return f"{'-' if truth.lo < 0 else ''}2^-20000 or smaller in magnitude, not zero"
    if truth.kind == "real" and HUGE in (abs(truth.lo), abs(truth.hi)):
        return f"{'-' if truth.lo < 0 else ''}2^20000 or larger in magnitude"
    return decimal(truth)


def special(oracle: Oracle, exact: Exact, element: Element) -> str:
    """Which rule decided, where the real function did not: a special row's outcome and source; empty elsewhere."""
    n = mp.MpSystem(96)
    values = {name: n.input(bits, exact.fmt) for name, bits in zip(element.names, element.patterns, strict=True)}
    values |= {name: n.const(value) for name, value in element.scalars.items()}
    for row in oracle.rows:
        if row.when(n, **values):
            return f"{row.gives} ({row.source})"
    if oracle.arithmetic and truth_of(exact, element.patterns).kind != "real":
        return "infinities, NaNs and signs of zeros by IEEE 754-2019, 6.1 to 6.3"
    return ""


# The lowerings


def _told(
    element: Element, chosen: Sequence[Lowering], wanted: tuple[str, ...], judges: Mapping[str, Exact]
) -> Iterator[dict[str, Any]]:
    """One entry for each lowering and output, spellings that agree together; one for each that does not run."""
    first = lowering_names(element.kernel)[0]
    for lowering in chosen:
        every = [name for name, one in element.kernel.spellings.items() if one.applies(element.scalars)]
        names = wanted or every[: None if lowering.name == first else 1]  # the first needs no compiling
        found: dict[int, list[str]] = {}
        reasons: dict[str, list[str]] = {}
        for spelling in names:
            try:
                outputs = outputs_of(element, lowering, spelling)
            except NotLowered as why:
                reasons.setdefault(str(why), []).append(spelling)
                continue
            for bits, count in outputs.items():
                note = "" if count == COPIES else f" ({count} of {COPIES} copies)"
                found.setdefault(bits, []).append(spelling + note)
        for bits, where in found.items():
            agreed = "every spelling" if not wanted and len(where) > 1 and where == every else ", ".join(where)
            yield {"lowering": lowering.name, "spelling": agreed, "reason": "", **_entry(element, bits, judges)}
        for reason, where in reasons.items():
            yield {
                "lowering": lowering.name,
                "spelling": ", ".join(where),
                "output": "",
                "ulp": None,
                "scaled_ulp": None,
                "int_ulp": None,
                "error_class": "",
                "reason": reason,
            }


def outputs_of(element: Element, lowering: Lowering, spelling: str) -> Counter[int]:
    """Patterns that `COPIES` equal elements give, by how many of them: several where vector body and tail differ.

    Raises NotLowered where the lowering does not run there, LoweringError where it misbehaves.
    """
    target = element.target(spelling)
    if (reason := lowering.reason(target)) is not None:
        raise NotLowered(reason)
    inputs = element.copies
    try:
        y = launch_checked(lowering.build(target), inputs, element.backend, lowering.name).output
    except LoweringError as error:
        if is_file(lowering.name):
            raise
        raise NotLowered(str(error)) from error
    return Counter(pattern(one, element.fmt) for one in y)


def _entry(element: Element, bits: int, judges: Mapping[str, Exact]) -> dict[str, Any]:
    """Output, error and class by the exact scalars; those by rounded ones under names of their own."""
    entry: dict[str, Any] = {"output": element.fmt.hex(bits)}
    for name, exact in judges.items():
        _, verdict = exact.verdict(element.patterns, bits)
        measured = verdict is not None and verdict.high is not None
        scaled = exact.scale(element.patterns) is not None
        facts = {
            "ulp": finite(verdict.high) if verdict and measured else None,
            "scaled_ulp": finite(verdict.scaled) if verdict and measured and scaled else None,
            "int_ulp": verdict.steps if verdict and measured else None,
            "error_class": verdict.cls if verdict else "undecided",
        }
        entry |= {f"{key}_{name}": value for key, value in facts.items()} if name else facts
    return entry


# The formulas


def _formulas(element: Element, entries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every candidate, step by step, and the lowerings whose output it gives."""
    fmt = element.fmt
    n = IeeeSystem(FORMATS["float32"] if fmt.bits < 32 else fmt, fmt)
    tensors = {name: t[:1] for name, t in zip(element.names, element.copies, strict=True)}
    for formula in candidates(element.kernel.oracle, element.scalars, fmt):
        output, steps = trace(n, formula, tensors, element.scalars)
        same = [entry["lowering"] for entry in entries if entry["output"] and _equal(entry["output"], output)]
        yield {
            "text": formula.text,
            "output": output,
            "matches": list(dict.fromkeys(same)),
            "steps": [{"expression": step.expression, "value": step.value} for step in steps],
        }


def _equal(a: str, b: str) -> bool:
    """The same bits; NaNs count as equal."""
    return a == b or (a.startswith(("nan", "-nan")) and b.startswith(("nan", "-nan")))
