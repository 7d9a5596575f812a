"""One element in detail: its exact value and region, every lowering's result and verdict, and the formulas step by
step.

The judge is that of a run (`verify.judge`), in multiprecision. `verify.reports.explain_page` prints it.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from verify import backends
from verify.backends import Backend
from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import (
    BackendAbsent,
    Composite,
    Kernel,
    NothingToCompare,
    Scalars,
    UsageError,
    elementwise,
    is_file,
    load,
    suggest,
)
from verify.facts.oracle import Oracle
from verify.facts.truth import HUGE, TINY, Truth
from verify.inputs.domains import Domain
from verify.judge import ledger
from verify.judge.cell import Stated
from verify.judge.chunk import Formulas, patterns
from verify.judge.exact import Exact, Key, decimal, finite
from verify.judge.tally import Element as Judged
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.lower.lowerings import lowering_names, lowerings, unknown
from verify.numbers import mp
from verify.numbers.ieee import IeeeSystem
from verify.numbers.trace import trace
from verify.walk.cases import Case, Terms, format_of, terms
from verify.walk.instance import Instance
from verify.walk.pointwise import Pointwise
from verify.walk.settings import cases_of, settings_of
from verify.workers import isolated, isolated_composite
from verify.workers.launch import LoweringError, launch_steady

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
    def case(self) -> Pointwise:
        """The case whose domain is COPIES equal elements."""
        domain = Domain("list", self.fmt, self.names, patterns=(self.patterns,) * COPIES)
        return Pointwise(self.kernel, self.scalars, self.dtype, self.backend, domain)

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
    'rounded_scalars' refer to the value with the scalars rounded to `dtype`. Of each output told beside them: what the
    judge says of it (see `judgement`). Raises UsageError for bad input, NothingToCompare for an absent backend.
    """
    facts = elementwise(kernel)
    _exists(facts, dtype)
    fmt = FORMATS[dtype]
    place = _backend(backend)
    chosen, wanted = _lowerings(facts, lowerings), _spellings(facts, spellings)
    given = _case(facts, len(inputs), scalars)
    element = Element(facts, given, dtype, place, _patterns(fmt, facts.tensors(given), inputs))
    case = element.case
    told: dict[str, Any] = {
        "kernel": kernel,
        "dtype": dtype,
        "backend": place.name,
        "scalars": dict(given),
        "inputs": {name: fmt.hex(bits) for name, bits in zip(element.names, element.patterns, strict=True)},
        **_exactly(case.exact["exact"], element),
        "special": special(facts.oracle, case.exact["exact"], element),
    }
    if "rounded" in case.truths:
        told["rounded_scalars"] = {"scalars": case.truths["rounded"], **_exactly(case.exact["rounded"], element)}
    told["lowerings"] = list(_told(element, case, chosen, wanted))
    told["formulas"] = list(_formulas(element, case, told["lowerings"]))
    return told


def _settings(facts: Composite, dtype: str) -> list[str]:
    return [one.name for one in facts.settings if dtype in one.dtypes]


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
    _exists(facts, dtype)
    where = _backend(backend)
    found = settings_of(facts, setting, (spelling,) if spelling else (), "default", dtype)
    if not found:
        raise UsageError(suggest(f"spelling of {kernel} in {dtype}", spelling or "", _settings(facts, dtype)))
    chosen, case = found[0], cases_of(facts, scalars, "default")[0]
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
    entries, y = [], None
    for lowering in _lowerings(facts, lowerings, scalars):
        entry: dict[str, Any] = {"lowering": lowering.name, "reason": lowering.reason(target) or ""}
        if not entry["reason"]:
            try:
                y = _placed(instance, target, lowering, output, place)
                entry |= judgement(instance, target, lowering, output, y, place)
            except (NotLowered, LoweringError) as why:
                if is_file(lowering.name):
                    raise
                entry["reason"] = str(why)
        entries.append(entry)
    if y is None:
        reasons = "; ".join(f"{entry['lowering']}: {entry['reason']}" for entry in entries)
        raise NothingToCompare(f"no lowering gives {output or 'the output'} here: {reasons}")
    elements, formulas = instance.sources(0, output, y)["exact"], instance.formulas(0, output, y)
    exact, fmt = elements.exact, format_of(y)
    truth, scale = truth_of(exact, (place,)), exact.scale((place,))
    told |= {
        "place": elements.place((place,)),
        "exact": digits(truth),
        "rounded": rounding(truth, fmt) or "undecided",
        "scale": digits(scale) if scale is not None else "",
        "terms": [list(line) for line in instance.source.explain(output, place)],
        "lowerings": entries,
    }
    told["formulas"] = [
        {"text": text, "output": bits, "matches": [e["lowering"] for e in entries if e.get("output") == bits]}
        for text, t in formulas.predict(torch.tensor([place], device=y.device)).items()
        for bits in [fmt.hex(patterns(t, fmt)[0])]
    ]
    return told


def _placed(instance: Instance, target: Target, lowering: Lowering, output: str, place: int) -> torch.Tensor:
    """The lowering's output `output`, which must have an element `place`."""
    given = lowering.build(target), instance.problem, instance.backend, lowering.name
    outputs = launch_steady(*given, repeats=1, names=instance.outputs).results[0]
    if output not in outputs:
        raise NotLowered(f"it gives no {output}; it gives {', '.join(outputs)}")
    if place >= outputs[output].numel():
        raise UsageError(
            f"--index {place}; expected less than {outputs[output].numel()}, the elements of {output or 'the output'}"
        )
    return outputs[output]


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
        raise UsageError(f"--input has {count} value{'s' * (count != 1)}; {facts.name} takes {counts}")
    return fitting[0] if given is None else dict(given)


def _patterns(fmt: Format, names: Sequence[str], texts: Sequence[str]) -> tuple[int, ...]:
    return tuple(_pattern(fmt, name, text) for name, text in zip(names, texts, strict=True))


def _pattern(fmt: Format, name: str, text: str) -> int:
    """Bits of a literal. Raises UsageError, also where an exponent is so long that it could not be computed."""
    try:
        if re.search(r"[ep][+-]?\d{6}", text.lower()):
            raise ValueError(f"{text!r} has an exponent far outside {fmt.name}")
        bits = fmt.parse(text)
        if text.startswith("#") and len(text) - 1 < fmt.bits // 4:  # of a narrower format, most likely
            raise ValueError(f"{text!r} has {len(text) - 1} digits, where patterns of {fmt.name} have {fmt.bits // 4}")
        return bits
    except (ValueError, ZeroDivisionError) as error:
        why = str(error) if fmt.name in str(error) else f"{text!r} is not a number"
        raise UsageError(
            f"--input {name}: {why}; expected a hex float such as 0x1.8p+0, a decimal, inf, nan or raw bits "
            f"such as '#{fmt.parse('1.5'):0{fmt.bits // 4}x}'"
        ) from None


def _backend(name: str | None) -> Backend:
    if name is not None:
        chosen = backends.load(name)
        if (why := chosen.unavailable()) is not None:
            raise BackendAbsent.of({name: why})
        return chosen
    present = (one for one in map(backends.load, backends.names()) if one.unavailable() is None)
    found = next(present, None)
    if found is None:
        raise NothingToCompare(f"no backend is present of {', '.join(backends.names())}")
    return found


def _lowerings(
    facts: Kernel | Composite, given: tuple[str, ...], fixed: Scalars | None = None
) -> list[Lowering]:  # fmt: skip
    """The user's own first, then the registered ones that are named, or all where none is named. A composite kernel's,
    which take long, are added to a user's own only where they are named."""
    own, wanted = [text for text in given if is_file(text)], [text for text in given if not is_file(text)]
    known, composite = lowering_names(facts), isinstance(facts, Composite)
    named: set[str] = set()
    for text in wanted:
        if not (found := fnmatch.filter(known, text)):
            raise unknown(text, known)
        named.update(found)
    every = not wanted and not (composite and own)
    registered = [one for one in lowerings(facts) if every or one.name in named]
    mine = [isolated_composite(text, fixed=fixed) if composite else isolated(text) for text in own]
    return [*mine, *registered]


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
    """The truth to 20 digits; what lies beyond the limits of `verify.facts.truth` is shown as such."""
    if truth.kind == "real" and TINY in (abs(truth.lo), abs(truth.hi)):
        return f"{'-' if truth.lo < 0 else ''}2^-20000 or smaller in magnitude, not zero"
    if truth.kind == "real" and HUGE in (abs(truth.lo), abs(truth.hi)):
        return f"{'-' if truth.lo < 0 else ''}2^20000 or larger in magnitude"
    return decimal(truth)


def special(oracle: Oracle, exact: Exact, element: Element) -> str:
    """Outcome and source of the special row that decided the truth; empty where the real function did."""
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
    element: Element, case: Pointwise, chosen: Sequence[Lowering], wanted: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """One entry for each lowering and judgement, spellings that agree together; one for each that does not run."""
    first = lowering_names(element.kernel)[0]
    for lowering in chosen:
        every = [name for name, one in element.kernel.spellings.items() if one.applies(element.scalars)]
        names = wanted or every[: None if lowering.name == first else 1]  # the first needs no compiling
        found: list[tuple[dict[str, Any], list[str]]] = []
        reasons: dict[str, list[str]] = {}
        for spelling in names:
            try:
                y = outputs_of(element, case, lowering, spelling)
            except NotLowered as why:
                reasons.setdefault(str(why), []).append(spelling)
                continue
            bits = patterns(y, element.fmt)
            for one in dict.fromkeys(bits):
                facts = judgement(case, element.target(spelling), lowering, "", y, bits.index(one))
                note = "" if bits.count(one) == COPIES else f" ({bits.count(one)} of {COPIES} copies)"
                said = facts | {"source": ""}
                same = next(((known, where) for known, where in found if known | {"source": ""} == said), None)
                if same is None:
                    found.append((facts, [spelling + note]))
                    continue
                known, where = same
                where.append(spelling + note)
                known["source"] = "; ".join(dict.fromkeys((*known["source"].split("; "), facts["source"])))
        for facts, where in found:
            agreed = "every spelling" if not wanted and len(where) > 1 and where == every else ", ".join(where)
            yield {"lowering": lowering.name, "spelling": agreed, "reason": "", **facts}
        for reason, where in reasons.items():
            names_ = ("ulp", "scaled_ulp", "int_ulp", "share")
            texts = dict.fromkeys(("output", "error_class", "truth", "region", "may_be", "source", "status", "why"), "")
            about = {"lowering": lowering.name, "spelling": ", ".join(where), "reason": reason}
            yield {**about, **texts, **dict.fromkeys(names_), "ledger": {}}


def outputs_of(element: Element, case: Pointwise, lowering: Lowering, spelling: str) -> torch.Tensor:
    """What `COPIES` equal elements give: several outputs where vector body and tail differ.

    Raises NotLowered where the lowering does not run there, LoweringError where it misbehaves.
    """
    target = element.target(spelling)
    if (reason := lowering.reason(target)) is not None:
        raise NotLowered(reason)
    try:
        found = launch_steady(lowering.build(target), case.given(0), element.backend, lowering.name, repeats=2)
        if not found.steady:
            raise LoweringError(f"lowering {lowering.name} is not deterministic: {found.told}", "unsteady")
    except LoweringError as error:
        if is_file(lowering.name):
            raise
        raise NotLowered(str(error)) from error
    return found.output


def judgement(
    case: Case, target: Target, lowering: Lowering, output: str, y: torch.Tensor, place: int
) -> dict[str, Any]:
    """What the judge says, in multiprecision, of element `place` of the outputs y of the case's first portion.

    output, ulp, scaled_ulp, int_ulp, error_class  as in a report, by the exact scalars; by rounded ones with the suffix
                '_rounded_scalars', where these are others
    truth       'exact' or 'rounded': the truth of the scalars that the bound and all that follows refer to
    region      where the element lies; may_be: what it may be, in words; source: of the bound
    share       |y - t| over what it may be; None where no number says it
    status      of the element, as if it were alone; why: what fails, or what accounts for it
    ledger      id -> reason of the entries that account for it
    """
    mine = is_file(lowering.name)
    eager = case.eager(0, lowerings(target.kernel)[0], target) if mine else None
    other = None if eager is None or output not in eager else eager[output].reshape(-1)
    stated, on = terms(case, target, lowering, 0, output, y, user=mine)
    formulas = case.formulas(0, output, y)
    flat, index = y.reshape(-1), torch.tensor([place], device=y.device)
    truth, one = next((truth, one) for truth, one in on.items() if one.meant)
    (key,), (bits,) = one.elements.keys(index), patterns(flat[index], one.judge.fmt)
    ((region, record),) = one.reader.regions(
        one.judge.exactly(one.elements, index, flat, other, formulas), stated
    ).items()  # fmt: skip
    outcome = one.reader.outcome(Judged(place, key, bits))
    reasons = {entry.id: entry.reason for entry in ledger.deviations(case.backend.name)}
    told: dict[str, Any] = {"output": one.judge.fmt.hex(bits), **_error(on["exact"], key, bits)}
    if "rounded" in on:
        told |= {f"{name}_rounded_scalars": value for name, value in _error(on["rounded"], key, bits).items()}
    return told | {
        "truth": truth,
        "region": region,
        "may_be": may_be(one, stated, key, formulas),
        "source": stated.source if stated else "",
        "share": None if outcome is None or outcome.share is None or stated is None else finite(outcome.share),
        "status": record["status"],
        "why": record["reason"]["text"],
        "ledger": {name: reasons[name] for name in record["reason"]["ledger"]},
    }


def may_be(one: Terms, stated: Stated | None, key: Key, formulas: Formulas) -> str:
    """What an element may be, in words: its bound, with what underflow may add."""
    exact, limits = one.elements.exact, one.judge.limits
    truth, about, allowed = truth_of(exact, key), exact.circumstances(key), one.elements.allowed(key)
    if about is None:
        return "undecided"
    about = about.held_to(limits)
    if truth.kind in ("nan", "+inf", "-inf"):
        told = {"nan": "NaN", "+inf": "inf", "-inf": "-inf"}[truth.kind]
    elif stated is None:
        told = "anything: no bound is declared"
    elif about.slack is None or (allowed is not None and allowed.bound == math.inf):
        told = "anything: nothing is stated" + (" where an intermediate underflows" if about.slack is None else "")
    elif allowed is not None:
        told = f"within {float(allowed.bound):.4g} of the exact value"
        told += "".join(f" ({kind}: within {float(wider):.4g})" for kind, wider in allowed.beyond)
    else:
        told = f"within {stated.value:g} {stated.metric}"
        if about.slack:
            units = finite(about.slack / one.judge.fmt.smallest_subnormal)
            told += f" + {units:.4g} smallest subnormals, since an intermediate underflows"
        if truth.kind in ("+0", "-0"):
            told += f", a zero being {truth.kind}"
        if stated.truth == "rounded":
            told += ", the scalars rounded"
    if about.over and formulas.admissible:
        told += "; or, since an intermediate overflows, the bits of " + " or of ".join(sorted(formulas.admissible))
    if float(limits.ftz):
        told += "; or what flushing to zero makes of it, which is declared"
    return told


def _error(one: Terms, key: Key, bits: int) -> dict[str, Any]:
    """The error of output `bits`, and its class."""
    _, verdict = one.elements.exact.verdict(key, bits)
    measured = verdict is not None and verdict.high is not None
    return {
        "ulp": finite(verdict.high) if verdict and measured else None,
        "scaled_ulp": finite(verdict.scaled) if verdict and measured and one.elements.scaled else None,
        "int_ulp": verdict.steps if verdict and measured else None,
        "error_class": verdict.cls if verdict else "undecided",
    }


# The formulas


def _formulas(element: Element, case: Pointwise, entries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every candidate, step by step, and the lowerings whose output it gives."""
    fmt = element.fmt
    n = IeeeSystem(FORMATS["float32"] if fmt.bits < 32 else fmt, fmt)
    tensors = {name: t[:1] for name, t in zip(element.names, case.given(0), strict=True)}
    for formula in case.candidates:
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


def _exists(facts: Kernel | Composite, dtype: str) -> None:
    """Raise UsageError where the kernel is not there for the dtype."""
    if dtype not in facts.dtypes:
        raise UsageError(f"{facts.name} is not there for {dtype}; expected --dtype {', '.join(facts.dtypes)}")
