"""`verify.check` and `verify.admit`: small domains element by element against the exact judge, and planted faults."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verify import admit, kernel
from verify.cells import exceeds, status_of
from verify.check import BLOCK, Checker, OracleViolation, leaders
from verify.domains import domain_of
from verify.formats import FORMATS, Format, floor_log2
from verify.kernel import Bound
from verify.lowerings import EAGER, Target
from verify.numbers import mp
from verify.numbers.ball import LIBRARY
from verify.run import Case, Job, Selection, fill, run
from verify.truth import Truth
from verify.ulp import CLASSES, RANKS, Verdict, judge

WORDS = {16: torch.int16, 32: torch.int32, 64: torch.int64}
CASES: list[tuple[str, dict[str, float], str]] = [
    ("exp", {}, "float16"),
    ("add", {"alpha": 0.3}, "bfloat16"),
    ("addcmul", {"value": 1.0}, "float32"),
    ("addcmul", {"value": 0.3}, "float16"),
    ("lerp", {}, "float32"),
    ("div", {}, "float16"),
    ("pow", {}, "float32"),
    ("pow", {"y": 3.7}, "float32"),
    ("sigmoid", {}, "bfloat16"),
    ("log", {}, "float32"),
    ("addcdiv", {"value": 1.0}, "float64"),
]
SIZE = 192


def bounds() -> dict[str, float]:
    return {a.name: a.bound for a in admit.library("cpu")}


def patterns(t: torch.Tensor, fmt: Format) -> list[int]:
    return [b & ((1 << fmt.bits) - 1) for b in t.contiguous().view(WORDS[fmt.bits]).tolist()]


def tensor(bits: list[int], fmt: Format) -> torch.Tensor:
    signed = [b - (1 << fmt.bits) if b & fmt.sign_bit else b for b in bits]
    return torch.tensor(signed, dtype=WORDS[fmt.bits]).view(getattr(torch, fmt.name))


def spoilt(bits: list[int], fmt: Format, rng: random.Random) -> list[int]:
    """Results of every class: right ones, neighbours, zeros, infinities, NaNs and other signs."""
    found = []
    for b in bits:
        step = (b & ~fmt.sign_bit) + rng.choice([-2, -1, 1, 2])
        moved = (b & fmt.sign_bit) | max(0, min(fmt.inf_bits, step))
        strange = rng.choice([0, fmt.sign_bit, fmt.inf_bits, fmt.nan_bits, b ^ fmt.sign_bit])
        found.append(rng.choice([b, b, b, moved, moved, strange]))
    return found


def verdict_of(checker: Checker, row: tuple[int, ...], bits: int) -> Verdict:
    """The exact judge, with nothing of the checker but its names."""
    given = dict(zip(checker.names, row, strict=True))
    scale: Truth | None = None
    if checker.oracle.scale is not None:
        n = mp.MpSystem(200)
        values = {name: n.input(b, checker.fmt) for name, b in given.items()}
        values |= {name: n.const(v) for name, v in checker.scalars.items()}
        found = n.value(checker.oracle.scale(n, **values)).truth()
        scale = found if found.kind == "real" else None
    for truth in mp.enclosures(checker.oracle, given, checker.scalars, checker.fmt):
        verdict = judge(bits, truth, checker.fmt, scale)
        if verdict is not None:
            return verdict
    raise AssertionError(f"{row} is undecided")


@pytest.mark.parametrize(("name", "scalars", "dtype"), CASES, ids=[f"{n} {s} {d}" for n, s, d in CASES])
def test_a_checked_chunk_is_what_the_exact_judge_says_of_each_element(
    name: str, scalars: dict[str, float], dtype: str
) -> None:
    facts, fmt, rng = kernel.load(name), FORMATS[dtype], random.Random(1)
    whole = domain_of(facts, fmt, scalars, "quick")
    chunk = whole.chunk(0, "cpu")
    size = chunk[0].numel()
    # a subnormal input may excuse a wrong result as flushed, which the exact judge alone does not know
    index = [k for k in rng.sample(range(size), 3 * SIZE) if all(not tiny(t[k], fmt) for t in chunk)][:SIZE]
    inputs = tuple(t[index].clone() for t in chunk)
    spelling = next(n for n, s in facts.spellings.items() if s.applies(scalars))
    target = Target(facts, scalars, spelling, dtype, Backend)  # type: ignore[arg-type]
    eager = EAGER.build(target)(*inputs)
    results = spoilt(patterns(eager, fmt), fmt, rng)
    checker = Checker(facts.oracle, fmt, whole.names, scalars, "cpu", bounds())
    found = checker.check(1000, inputs, tensor(results, fmt), eager)
    tally = found.all.check()
    rows = list(zip(*(patterns(t, fmt) for t in inputs), strict=True))
    verdicts = [verdict_of(checker, row, bits) for row, bits in zip(rows, results, strict=True)]
    assert tally.undecided == 0 and tally.inputs == len(index)
    expected = Counter(v.cls for v in verdicts)
    assert {cls: getattr(tally, cls) for cls in CLASSES if getattr(tally, cls)} == dict(expected)
    assert len(expected) >= 4
    numbers = [v for v in verdicts if v.high is not None and v.cls not in ("flushed", "nan_mismatch")]
    assert tally.measured == len(numbers)
    assert max(found.main.max_ulp, found.range.max_ulp) == max(capped(v.high) for v in numbers)
    assert max(found.main.max_scaled, found.range.max_scaled) == max(capped(v.scaled) for v in numbers)
    assert tally.max_int == max(v.steps for v in numbers)
    worst = max(range(len(index)), key=lambda k: (capped(verdicts[k].high) if verdicts[k] in numbers else -1, -k))
    first = tally.worst[0]
    assert (first.index, first.inputs, first.output) == (1000 + worst, rows[worst], results[worst])
    check_against_eager(
        tally,
        verdicts,
        [verdict_of(checker, r, b) for r, b in zip(rows, patterns(eager, fmt), strict=True)],
        results,
        patterns(eager, fmt),
        fmt,
    )


@pytest.mark.parametrize(("name", "scalars", "dtype"), CASES, ids=[f"{n} {s} {d}" for n, s, d in CASES])
def test_sums_and_statistics_by_binade_are_of_the_exact_errors(
    name: str, scalars: dict[str, float], dtype: str
) -> None:
    """Of measured elements inside the normal range, each error within a unit of 2^-16 ULP."""
    facts, fmt, rng = kernel.elementwise(name), FORMATS[dtype], random.Random(3)
    whole = domain_of(facts, fmt, scalars, "quick")
    chunk = whole.chunk(0, "cpu")
    index = [k for k in rng.sample(range(chunk[0].numel()), 3 * SIZE) if all(not tiny(t[k], fmt) for t in chunk)][:SIZE]
    inputs = tuple(t[index].clone() for t in chunk)
    spelling = next(n for n, s in facts.spellings.items() if s.applies(scalars))
    target = Target(facts, scalars, spelling, dtype, Backend)  # type: ignore[arg-type]
    results = spoilt(patterns(EAGER.build(target)(*inputs), fmt), fmt, rng)
    checker = Checker(facts.oracle, fmt, whole.names, scalars, "cpu", bounds())
    y = tensor(results, fmt)
    found = checker.check(0, inputs, y, None).main
    rows = list(zip(*(patterns(t, fmt) for t in inputs), strict=True))
    outside = checker.leaves_range(tuple(t[None] for t in inputs), y[None])
    expected: dict[int, list[Fraction]] = {}
    total, signs = [0, Fraction(0), Fraction(0)], []
    for k, (row, bits) in enumerate(zip(rows, results, strict=True)):
        if outside is not None and bool(outside[0, k]):
            continue
        verdict = verdict_of(checker, row, bits)
        if verdict.high is None or verdict.cls == "flushed":
            continue
        error = min(verdict.high, Fraction(1024))
        total = [total[0] + 1, total[1] + error, total[2] + error * verdict.sign]
        if fmt.is_nan(row[0]) or row[0] & ~fmt.sign_bit in (0, fmt.inf_bits):
            continue
        size = fmt.fraction(row[0])
        one = expected.setdefault(floor_log2(abs(size)), [Fraction(0)] * 5)
        wrong = Fraction(verdict.cls != "correct")
        one[:] = [one[0] + 1, one[1] + wrong, max(one[2], error), one[3] + error, one[4] + error * verdict.sign]
        signs.append(verdict.sign)
    assert found.measured == total[0] and {-1, 1} <= set(signs)
    assert abs(found.sum - total[1] * 65536) <= total[0] >= abs(found.sum_signed - total[2] * 65536)
    assert [e for e, _ in found.binades] == sorted(expected) and len(expected) >= 10
    for exponent, b in found.binades:
        count, wrong, most, sum_, signed = expected[exponent]
        assert (b.measured, b.misrounded) == (count, wrong), exponent
        assert abs(b.maximum - most * 65536) <= 1, exponent
        assert abs(b.sum - sum_ * 65536) <= count >= abs(b.sum_signed - signed * 65536), exponent


def test_large_errors_of_cancelled_sums_hide_no_scaled_error() -> None:
    """Worst cases are ranked block by block: one of millions of ULP comes before the only one of 3 scaled ULP."""
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(4 * BLOCK, generator=generator) for _ in range(3))
    a[:BLOCK] = -(b[:BLOCK] * c[:BLOCK])
    a[-1], b[-1], c[-1] = 1.0, 0.25, 1.0
    y = a + b * c
    y[-1] += 3 * 2.0**-23
    checker = Checker(
        kernel.elementwise("addcmul").oracle, FORMATS["float32"], ("a", "b", "c"), {"value": 1.0}, "cpu", {}
    )
    found = checker.check(0, (a, b, c), y, None).main
    assert found.max_ulp > 1e6 and found.max_scaled == 3.0
    bound = Bound(1.0, "scaled_ulp", "two roundings")
    assert status_of(checker.check(0, (a, b, c), y, None), bound, ftz=False)[0] == "exceeds-bound"


@pytest.mark.parametrize(("name", "scalars"), [("div", {}), ("pow", {"y": -2.0}), ("addcdiv", {"value": 0.3})])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_wrong_quotient_by_zero_is_excused_by_no_overflow(name: str, scalars: dict[str, float], dtype: str) -> None:
    facts, fmt = kernel.elementwise(name), FORMATS[dtype]
    names = facts.tensors(scalars)
    inputs = tuple(torch.tensor([1.5, 2.0, 3.0], dtype=getattr(torch, dtype)) for _ in names)
    inputs[-1][1] = 0.0
    spelling = next(n for n, s in facts.spellings.items() if s.applies(scalars))
    y = EAGER.build(Target(facts, scalars, spelling, dtype, Backend))(*inputs)  # type: ignore[arg-type]
    checker = Checker(facts.oracle, fmt, names, scalars, "cpu", bounds())
    assert checker.check(0, inputs, y, None).all.correct == 3
    y[1] = 42.0
    assert Checker(facts.oracle, fmt, names, scalars, "cpu", bounds()).check(0, inputs, y, None).main.inf_mismatch == 1


def test_who_is_closer_is_told_by_the_last_bit_of_the_truth() -> None:
    """Errors of 1/2 -+ 2^-125 ULP: the double-double truth is exact, its distance in float64 is not."""
    fmt = FORMATS["float32"]
    inputs = tuple(tensor([fmt.parse(x)], fmt) for x in ("-0x1p-126", "0x1p-1", "0x0.000002p-126"))
    near, far = (tensor([fmt.parse(x)], fmt) for x in ("-0x0.fffffep-126", "-0x1p-126"))
    oracle = kernel.elementwise("lerp").oracle
    for mine, other, counts in ((near, far, (1, 0, 0)), (far, near, (0, 1, 0)), (near, near, (0, 0, 0))):
        found = Checker(oracle, fmt, ("a", "b", "w"), {}, "cpu", {}).check(0, inputs, mine, other).all
        assert (found.closer, found.farther, found.tied) == counts


def test_a_histogram_tells_an_error_from_the_edge_next_to_it() -> None:
    """In float64, where every error is exact: 1/2 + 2^-70 ULP is more than 1/2."""
    one = torch.ones(1, dtype=torch.float64)
    checker = Checker(kernel.elementwise("add").oracle, FORMATS["float64"], ("a", "b"), {"alpha": 1.0}, "cpu", {})
    found = checker.check(0, (one, one * 2.0**-123), torch.nextafter(one, one * 0), None).main
    assert found.histogram[:2] == (0, 1) and found.faithful == 0 and found.worse == 1


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 8)), min_size=1, max_size=40), st.integers(1, 5))
def test_leaders_hold_the_largest_wherever_they_lie_in_their_intervals(
    pairs: list[tuple[int, int]], count: int
) -> None:
    """The `count` largest, for truths at either end of each interval."""
    high = torch.tensor([float(h) for h, _ in pairs], dtype=torch.float64)
    spread = torch.tensor([min(s, h) / 2 for h, s in pairs], dtype=torch.float64)
    chosen = set(leaders(high, spread, count).tolist())
    low = high - 2 * spread
    for k in set(range(len(pairs))) - chosen:
        assert int((low > high[k]).sum()) >= min(count, len(pairs))


def capped(error: Fraction | None) -> float:
    """As a double; a larger one than 2^1000 counts as that."""
    return float(min(error or Fraction(0), Fraction(2) ** 1000))


def tiny(x: torch.Tensor, fmt: Format) -> bool:
    return fmt.is_subnormal(patterns(x.reshape(1), fmt)[0])


class Backend:
    """Enough of a backend to build eager calls."""

    name = "cpu"
    device = "cpu"


def check_against_eager(
    tally: Any, mine: list[Verdict], theirs: list[Verdict], ours: list[int], eager: list[int], fmt: Format
) -> None:
    """Who is closer, from the enclosures of both errors."""
    wins = loses = different = 0
    for a, b, x, y in zip(mine, theirs, ours, eager, strict=True):
        if x == y or (fmt.is_nan(x) and fmt.is_nan(y)):
            continue
        different += 1
        if a.high is None or b.high is None or a.low is None or b.low is None:
            wins += RANKS.get(a.cls, 1) < RANKS.get(b.cls, 1)
            loses += RANKS.get(a.cls, 1) > RANKS.get(b.cls, 1)
            continue
        wins += a.high < b.low
        loses += a.low > b.high
    assert (tally.different, tally.closer + tally.farther + tally.tied) == (different, different)
    assert (tally.closer, tally.farther) == (wins, loses)


def test_a_fault_planted_once_in_a_ball_function_is_a_violation() -> None:
    """exp off by 2^-30: far above its bound, far below what a float32 result shows."""
    facts, fmt = kernel.load("exp"), FORMATS["float32"]
    whole = domain_of(facts, fmt, {}, "quick")
    x = whole.chunk(0, "cpu")[0]
    y = torch.exp(x)

    def faulty(t: torch.Tensor) -> torch.Tensor:
        return torch.exp(t) * (1 + 2.0**-30)

    Checker(facts.oracle, fmt, ("x",), {}, "cpu", bounds()).check(0, (x,), y, None)
    with pytest.raises(OracleViolation, match=r"misses the truth|tensors say"):
        Checker(facts.oracle, fmt, ("x",), {}, "cpu", bounds(), {"exp": faulty}).check(0, (x,), y, None)


@given(st.floats(min_value=2.0**-20, max_value=1e300))
def test_an_excess_is_told_in_digits_that_show_it(limit: float) -> None:
    most = math.nextafter(limit, math.inf)
    told, allowed = map(float, exceeds(most, limit).split(" exceeds "))
    assert told > allowed
    assert exceeds(1200.0, 3.0) == "1200 exceeds 3"


@pytest.mark.parametrize("name", ["addcmul", "lerp", "pow"])
def test_the_first_worst_element_is_the_one_that_has_the_error(name: str) -> None:
    """In the bound's metric, against the bound's truth, on every path: tensors, multiprecision, several blocks."""
    selection = Selection((name,), dtypes=("float16", "float32", "float64"), lowerings=("eager",), profile="quick")
    metrics = set()
    for cell in run(selection)["cells"]:
        metric, first = cell["bound"]["metric"], cell["worst"][0]
        if metric != "int_ulp":
            assert first[metric] == cell["bound"]["measured"], cell
            metrics.add(metric)
        assert (first["scaled_ulp"] is None) == (kernel.elementwise(name).oracle.scale is None)
        assert first.get("truth", cell["bound"]["truth"]) == cell["bound"]["truth"]
    assert metrics


def test_a_violation_is_the_status_of_the_cell_and_never_a_pass() -> None:
    facts, fmt = kernel.load("exp"), FORMATS["float16"]
    from verify import backends

    cpu = backends.load("cpu")
    spelling = next(iter(facts.spellings))
    case = Case(facts, {}, "float16", cpu, domain_of(facts, fmt, {}, "quick"))
    job, selection = Job(Target(facts, {}, spelling, "float16", cpu), EAGER), Selection(("exp",), profile="quick")
    assert fill(job, case, selection)["status"] == "passed"
    case.checkers["exact"] = Checker(
        facts.oracle, fmt, ("x",), {}, "cpu", bounds(), {"exp": lambda t: torch.exp(t) * (1 + 2.0**-30)}
    )
    cell = fill(job, case, selection)
    assert cell["status"] == "oracle-violation" and "exp(" in cell["reason"]


# Admission


def replaced(name: str, planted: Callable[..., torch.Tensor]) -> Callable[[Any], Any]:
    """A form of the library in which one function is another."""
    return lambda function: planted if getattr(function, "__name__", "") == name else function


FAULTS: list[tuple[str, str, Callable[..., torch.Tensor]]] = [
    ("exp", "2^-45 off", lambda x: torch.exp(x) * (1 + 2.0**-45)),
    ("expm1", "cancels for tiny arguments", lambda x: torch.exp(x) - 1),
    ("log1p", "cancels for tiny arguments", lambda x: torch.log(1 + x)),
    ("log", "in float32", lambda x: torch.log(x.float()).double()),
    ("tanh", "zero for tiny arguments", lambda x: torch.where(x.abs() < 1e-8, 0.0, torch.tanh(x))),
    ("pow", "by way of exp and log", lambda x, y: torch.exp(y * torch.log(x))),
]


@pytest.mark.parametrize(("name", "fault", "planted"), FAULTS, ids=[f"{n}: {f}" for n, f, _ in FAULTS])
def test_an_inaccurate_function_is_not_admitted(
    name: str, fault: str, planted: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admit, "POINTS", 256)
    monkeypatch.setattr(admit, "LIBRARY", {k: v for k, v in LIBRARY.items() if k in (name, "exp", "log")})
    admitted = {a.name for a in admit.library("cpu", replaced(name, planted))}
    healthy = {a.name for a in admit.library("cpu", replaced("nothing", planted))}
    assert name in healthy and name not in admitted
    assert admitted == healthy - {name}


@pytest.mark.parametrize(
    "fault",
    [
        lambda a, b, good: (good[0].float().double(), *good[1:]),
        lambda a, b, good: (*good[:3], a * (1 / b), *good[4:]),
        lambda a, b, good: (*good[:5], torch.zeros_like(a), *good[6:]),
        lambda a, b, good: (*good[:7], torch.zeros_like(a)),
    ],
    ids=["addition in float32", "division by a reciprocal", "TwoSum folded away", "TwoProd folded away"],
)
def test_arithmetic_that_does_not_round_correctly_admits_nothing(fault: Callable[..., Any]) -> None:
    def wrap(everything: Any) -> Any:
        return lambda a, b: fault(a, b, everything(a, b))

    with pytest.raises(admit.NotAdmitted):
        admit.arithmetic("cpu", wrap)


def test_what_is_not_admitted_goes_to_multiprecision_and_stays_right() -> None:
    facts, fmt = kernel.load("exp"), FORMATS["float32"]
    x = domain_of(facts, fmt, {}, "quick").chunk(0, "cpu")[0][:64].clone()
    y = torch.exp(x)
    with_library = Checker(facts.oracle, fmt, ("x",), {}, "cpu", bounds()).check(0, (x,), y, None).all
    without = Checker(facts.oracle, fmt, ("x",), {}, "cpu", {}).check(0, (x,), y, None).all
    assert without.mp_elements > with_library.mp_elements
    assert without.undecided == with_library.undecided == 0
    assert [getattr(without, c) for c in CLASSES] == [getattr(with_library, c) for c in CLASSES]
    assert without.max_ulp == with_library.max_ulp


def underflowing(dtype: str) -> tuple[Checker, tuple[torch.Tensor, ...], torch.Tensor]:
    """addcmul with value 0.3 where b * c is subnormal or vanishes, and its results by separate operations."""
    fmt = FORMATS[dtype]
    k = torch.arange(64, dtype=torch.float64)
    unit = 2.0 ** (fmt.emin // 2)
    a = ((k * 37 % 101) - 50) * 2.0 ** (fmt.emin - fmt.mantissa_bits + 3)
    b, c = (1 + (k * 13 % 17) / 17) * unit * 0.2, (1 + (k * 7 % 23) / 23) * unit
    inputs = tuple(t.to(getattr(torch, dtype)) for t in (a, b, c))
    checker = Checker(kernel.elementwise("addcmul").oracle, fmt, ("a", "b", "c"), {"value": 0.3}, "cpu", bounds())
    return checker, inputs, inputs[0] + 0.3 * (inputs[1] * inputs[2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_underflow_explains_the_errors_of_a_subnormal_product_and_nothing_beyond(dtype: str) -> None:
    checker, inputs, y = underflowing(dtype)
    honest = checker.check(0, inputs, y, None)
    assert honest.range.inputs == 64 and honest.excess[1] <= 1
    wrong = y.clone()
    wrong[11] += 40 * float(FORMATS[dtype].smallest_subnormal)
    spoilt_ = checker.check(0, inputs, wrong, None)
    assert 30 < spoilt_.excess[1] <= 40
    nan = y.clone()
    nan[5] = torch.nan
    assert checker.check(0, inputs, nan, None).excess[1] > 1e300


def test_an_error_beyond_underflow_fails_the_cell() -> None:
    checker, inputs, y = underflowing("float32")
    y[11] += 40 * 2.0**-149
    bound = Bound(3.0, "scaled_ulp", "three roundings")
    status, reason, kinds = status_of(checker.check(0, inputs, y, None), bound, ftz=False)
    assert status == "exceeds-bound" and kinds == ("range",) and "beyond underflow exceeds 3" in reason
    assert status_of(checker.check(0, inputs, y, None), bound, ftz=True)[0] == "passed"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_overflow_beside_the_threshold_is_the_bounds_business(dtype: str) -> None:
    """An infinity is measured as 2^(emax + 1). One for a number, or a number for one, is excused by no bound."""
    fmt = FORMATS[dtype]
    half, infinity = fmt.round(fmt.max_finite / 2), fmt.inf_bits
    checker = Checker(kernel.elementwise("add").oracle, fmt, ("a", "b"), {"alpha": 1.0}, "cpu", bounds())

    places = itertools.count()

    def kinds(a: int, b: int, y: int, bound: float) -> tuple[str, ...]:
        inputs = tensor([a], fmt), tensor([b], fmt)
        found = checker.check(next(places) << 20, inputs, tensor([y], fmt), None)
        return status_of(found, Bound(bound, "ulp", "here"), ftz=False)[2]

    assert kinds(half, half, infinity, 1.0) == ()  # the sum is the largest number, one ULP below 2^(emax + 1)
    assert kinds(half, half, infinity, 0.5) == ("bound",)
    assert kinds(half, 0, infinity, 3.0) == ("bound",)
    assert kinds(infinity, half, half, 3.0) == ("inf_mismatch",)
    assert kinds(infinity, half, infinity | fmt.sign_bit, 3.0) == ("inf_mismatch",)
    assert kinds(infinity, half, infinity, 3.0) == ()
