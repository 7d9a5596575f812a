"""Admission: every operation that enclosures and formulas rest on, with faults planted in each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from judging import library_error
from verify import backends
from verify.cli.commands import main
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.inputs.domains import domain_of
from verify.judge.chunk import Judge
from verify.judge.element import CLASSES, Limits
from verify.judge.fused import cpp
from verify.numbers import NotAdmitted, admit, arithmetic, casts, primitives
from verify.numbers.ball import Ball64
from verify.numbers.functions import FUNCTIONS, LIBRARY
from verify.numbers.ieee import IeeeSystem, _fma_double
from verify.walk import pointwise
from verify.walk.instance import Instance
from verify.walk.pointwise import Pointwise

Tensor = torch.Tensor
SINGLE, HALF, BF16 = FORMATS["float32"], FORMATS["float16"], FORMATS["bfloat16"]


def in_place_of(function: Any, planted: Callable[..., Any]) -> Callable[[Any], Any]:
    """A form in which `function` is another; the others are as they are."""
    return lambda given: planted if given is function else given


def result(name: str, changed: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """A form in which one result of `casts.converted` is changed."""

    def planted(*tensors: Tensor) -> list[Tensor]:
        results = list(casts.converted(*tensors))
        k = casts.OPERATIONS.index(name)
        results[k] = changed(results[k])
        return results

    return in_place_of(casts.converted, planted)


def flushed(t: Tensor) -> Tensor:
    return torch.where(t.abs() < torch.finfo(t.dtype).smallest_normal, t * 0, t)


def toward_zero(t: Tensor) -> Tensor:
    """As a cast that truncates would give: every second number the neighbour nearer to zero."""
    odd = torch.arange(t.numel()) % 2 == 0
    return torch.where(odd & t.isfinite(), torch.nextafter(t, torch.zeros(())), t)


# What must hold here, and what it is compared with.


def test_this_machine_is_admitted() -> None:
    assert [a.name for a in admit.library("cpu")] == list(LIBRARY)
    assert not admit.refused("cpu") and not primitives.complaints("cpu")
    for one in admit.library("cpu"):
        assert 0 < one.seen <= one.bound / admit.SAFETY and one.points > 1000 and one.form == "eager"
    assert admit.library("cpu") == admit.library(torch.device("cpu"))


@pytest.mark.parametrize("fmt", [HALF, BF16, SINGLE], ids=lambda f: f.name)
def test_the_integers_of_casts_are_those_of_the_formats(fmt: Any) -> None:
    """`verify.facts.formats` rounds rationals: another way to the same bits."""
    patterns, _ = casts._cases()
    mask = (1 << fmt.bits) - 1
    mine = patterns[casts.FORMS.index(fmt)][:: 61 if fmt.bits < 32 else 11]
    for word, bits in zip(mine.tolist(), casts.widened(mine, fmt).view(np.float64).tolist(), strict=True):
        due = fmt.to_float(word & mask)
        assert (due == bits and math.copysign(1, due) == math.copysign(1, bits)) or (due != due and bits != bits)
    doubles = patterns[3][::11]
    for value, word in zip(doubles.view(np.float64).tolist(), casts.narrowed(doubles, fmt).tolist(), strict=True):
        if math.isfinite(value):
            assert word & mask == fmt.round_float(value), value
        else:
            assert fmt.is_nan(word & mask) == math.isnan(value) and fmt.is_inf(word & mask) == math.isinf(value)


def test_the_arguments_of_casts_hold_what_they_should() -> None:
    _, _, single, double = casts._cases()[0]
    values = double.view(np.float64)
    for fmt in (HALF, BF16, SINGLE):
        near = casts.widened(casts.narrowed(double, fmt), fmt).view(np.float64)
        with np.errstate(invalid="ignore"):
            ties = np.isfinite(near) & (
                np.abs(values - near) * 2 == np.spacing(np.abs(near)) * 2.0 ** (53 - fmt.precision)
            )
            subnormal = (near != 0) & (np.abs(near) < float(fmt.smallest_normal))
        assert ties.sum() > 1000 and subnormal.sum() > 500
        assert {float(fmt.max_finite), math.inf} <= set(np.abs(near).tolist())
    exponents, fractions = single >> 23 & 255, single & 0x7FFFFF
    assert len(np.unique(exponents)) == 256 and (exponents == 0).sum() > casts.SIZE / 8
    assert (fractions & 1).mean() > 0.4  # full significands, not short ones
    assert (double & 1).mean() > 0.3


def test_what_is_due_of_arithmetic() -> None:
    pairs = list(zip(*arithmetic._operands(), strict=True))
    f64 = FORMATS["float64"]
    due = {name: values for name, _, values in arithmetic._due()}
    exactly = {"+": Fraction.__add__, "-": Fraction.__sub__, "*": Fraction.__mul__}
    for operation, exact in exactly.items():
        for (x, y), value in list(zip(pairs, due[f"float64 {operation}"][0].tolist(), strict=True))[::7]:
            if math.isfinite(x) and math.isfinite(y):
                assert f64.to_float(f64.round(exact(Fraction(x), Fraction(y)))) == value
    for name, exact in (("TwoSum", Fraction.__add__), ("TwoProd", Fraction.__mul__)):
        parts = due[name].T.tolist()
        for (x, y), (near, error) in list(zip(pairs, parts, strict=True))[::7]:
            assert near != near or Fraction(near) + Fraction(error) == exact(Fraction(x), Fraction(y))
        assert sum(error != 0 and error == error for _, error in parts) > 700
    size = np.abs(due["float64 *"])
    assert ((size > 0) & (size < 2.0**-1022)).sum() > 100


@pytest.mark.parametrize("name", LIBRARY)
def test_truths_of_functions(name: str) -> None:
    """Against Python's own, within an ULP or two, and by class."""
    truths = admit._truths(FUNCTIONS[name], admit.POINTS)
    own = {"pow": pow, "rsqrt": lambda x: x**-0.5}.get(name) or getattr(math, name)
    for arguments, high in list(zip(zip(*truths.arguments, strict=True), truths.high.tolist(), strict=True))[::5]:
        try:
            value = own(*arguments)
        except (OverflowError, ValueError, ZeroDivisionError):
            continue
        if not isinstance(value, complex) and math.isfinite(value) and math.isfinite(high):
            assert math.isclose(value, high, rel_tol=2.0**-50, abs_tol=2.0**-1070), arguments
    first = np.abs(np.array(truths.arguments[0]))
    first[np.isnan(first)], nans = 0.0, int(np.isnan(first).sum())
    assert nans and np.isinf(first).any() and ((first > 0) & (first < 2.0**-1022)).sum() > 20
    ordinary = first[(first > 2.0**-1022) & (first < 2.0**1023)]  # of full significands every second is odd
    assert (np.frexp(ordinary)[0] * 2.0**53 % 2 == 1).mean() > 0.3
    assert truths.exactly.sum() == len(FUNCTIONS[name].special)


def test_one_error() -> None:
    assert library_error("exp", (1.0,), math.e) < 1
    assert 1 < library_error("pow", (2.0, 0.5), math.nextafter(math.sqrt(2.0), 2.0)) < 3
    assert library_error("exp", (800.0,), math.inf) == 0 and library_error("exp", (1.0,), -math.e) == math.inf


# Planted faults. Each is refused under the operation's name.

#: One stratum of each function's arguments.
BOXES: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("exp", lambda x: (x > 1) & (x < 2)),
    ("exp", lambda x: (x > 700) & (x < 709)),
    ("exp", lambda x: x.abs() < 2.0**-60),
    ("expm1", lambda x: (x.abs() < 2.0**-500) & (x.abs() > 2.0**-900)),
    ("expm1", lambda x: (x < -30) & (x > -60)),
    ("log", lambda x: x < 2.0**-1022),
    ("log", lambda x: (x > 1) & (x < 1 + 2.0**-20)),
    ("log", lambda x: x > 2.0**1000),
    ("log1p", lambda x: x < -0.999),
    ("log1p", lambda x: x > 2.0**60),
    ("exp2", lambda x: (x > 1) & (x < 2)),
    ("exp2", lambda x: (x < -500) & (x > -900)),
    ("log2", lambda x: (x > 1) & (x < 1 + 2.0**-20)),
    ("log2", lambda x: x < 2.0**-1022),
    ("erf", lambda x: (x.abs() > 3) & (x.abs() < 6)),
    ("erf", lambda x: (x.abs() < 2.0**-500) & (x.abs() > 2.0**-900)),
    ("sin", lambda x: x.abs() > 2.0**1000),
    ("sin", lambda x: torch.sin(x).abs() < 2.0**-40),
    ("sqrt", lambda x: x < 2.0**-1022),
    ("sqrt", lambda x: (x > 2) & (x < 3)),
    ("rsqrt", lambda x: x > 2.0**1000),
    ("tanh", lambda x: x.abs() > 15),
    ("tanh", lambda x: (x.abs() > 0.5) & (x.abs() < 0.7)),
    ("pow", lambda x, y: (x - 1).abs() < 2.0**-20),
    ("pow", lambda x, y: x < 0),
    ("pow", lambda x, y: x < 2.0**-1022),
    ("pow", lambda x, y: torch.pow(x, y).log2() > 1000),
    ("pow", lambda x, y: y.abs() < 2.0**-500),
]


@pytest.mark.parametrize(("name", "box"), BOXES, ids=[f"{k}-{name}" for k, (name, _) in enumerate(BOXES)])
def test_a_function_off_by_2_to_the_minus_40_in_one_stratum(name: str, box: Callable[..., Tensor]) -> None:
    function = FUNCTIONS[name].tensor

    def planted(*arguments: Tensor) -> Tensor:
        y = function(*arguments)
        return torch.where(box(*arguments), y * (1 + 2.0**-40), y)

    form = in_place_of(function, planted)
    assert [a.name for a in admit.library("cpu", form)] == [n for n in LIBRARY if n != name]
    assert list(admit.refused("cpu", form)) == [name]
    assert admit.refused("cpu", form)[name].startswith(f"{name} is not admitted on cpu (compiled): of ")


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("expm1", lambda x, y: torch.where(x == 0, 0.0, y)),  # of -0 it gives +0
        ("tanh", lambda x, y: torch.where(y.abs() < 2.0**-1000, y * 0, y).abs().copysign(x + 0.0)),
        ("log1p", lambda x, y: torch.where(x == -1, torch.nan, y)),
        ("log", lambda x, y: torch.where(x < 0, -torch.inf, y)),
        ("exp", lambda x, y: torch.where(x > 709, torch.inf, y)),  # overflows too early
        ("exp", lambda x, y: torch.where(torch.isnan(x), 1.0, y)),
        ("sqrt", lambda x, y: torch.where(x < 2.0**-1022, 0.0, y)),
        ("sqrt", lambda x, y: torch.nextafter(torch.nextafter(y, y * 2), y * 2)),
    ],
)
def test_signs_specials_and_overflow(name: str, spoil: Callable[[Tensor, Tensor], Tensor]) -> None:
    function = FUNCTIONS[name].tensor
    form = in_place_of(function, lambda x: spoil(x, function(x)))
    assert list(admit.refused("cpu", form)) == [name]


@pytest.mark.parametrize(("arguments", "due"), FUNCTIONS["pow"].special)
def test_each_special_power_counts(arguments: tuple[float, float], due: float) -> None:
    truths = admit._truths(FUNCTIONS["pow"], admit.POINTS)
    x, y = (torch.tensor(column, dtype=torch.float64) for column in truths.arguments)
    given = torch.pow(x, y)
    assert truths.errors(FUNCTIONS["pow"], given.numpy()).max() < 4.0
    hit = torch.ones_like(x, dtype=torch.bool)
    for t, value in zip((x, y), arguments, strict=True):
        hit &= torch.isnan(t) if value != value else (t == value) & (t.signbit() == (math.copysign(1, value) < 0))
    wrong = torch.where(hit, 7.0 if due != due else -due if due == 0 else torch.nan, given)
    assert hit.sum() == 1 and truths.errors(FUNCTIONS["pow"], wrong.numpy())[hit.numpy()] == math.inf


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("float64 to float32", toward_zero),
        ("float64 to float32", flushed),
        ("float64 to float32", lambda t: torch.where(t.isinf(), torch.finfo(t.dtype).max * t.sign(), t)),
        ("float16 to float64", lambda t: torch.where(t.abs() < 2.0**-14, t * 0, t)),
        ("float16 to float64", lambda t: torch.where(t.isnan(), 0.0, t)),
        ("bfloat16 to float64", lambda t: torch.where(t.abs() < 2.0**-126, t * 0, t)),
        ("float32 to float64", lambda t: torch.where(t.abs() < 2.0**-126, t * 0, t)),
        ("float32 to float64", lambda t: torch.where(t == 0, 0.0, t)),
        ("float32 to float64", lambda t: t.float()),
        ("float16 to float32", lambda t: torch.where(t.abs() < 2.0**-14, t * 0, t)),
        ("bfloat16 to float32", lambda t: flushed(t)),
        ("float32 to float16", flushed),
        ("float32 to bfloat16", flushed),
        ("rounding to float16", lambda t: flushed(t)),
        ("rounding to bfloat16", toward_zero),
        ("rounding to float32", toward_zero),
        ("float64 to int64", lambda t: t + (t < 0).long()),
        ("int64 to float64", lambda t: t.float().double()),
    ],
)
def test_a_cast_that_truncates_flushes_or_loses(name: str, changed: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(NotAdmitted, match=f"^{name} is not admitted on cpu"):
        admit.library("cpu", result(name, changed))


def test_a_half_rounded_twice() -> None:
    """By way of float32, as torch's cast from float64 does."""

    def planted(*tensors: Tensor) -> list[Tensor]:
        results = list(casts.converted(*tensors))
        results[casts.OPERATIONS.index("rounding to float16")] = tensors[3].to(torch.float16)
        return results

    with pytest.raises(NotAdmitted, match=r"^rounding to float16 is not admitted"):
        admit.library("cpu", in_place_of(casts.converted, planted))


def quick_two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Dekker's, exact for |a| >= |b| only."""
    s = a + b
    return s, b - (s - a)


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("float64 [+]", lambda a, b, good: ((a.float() + b.float()).double(), *good[1:])),
        ("float64 -", lambda a, b, good: (good[0], flushed(good[1]), *good[2:])),
        ("float64 [*]", lambda a, b, good: (*good[:2], flushed(good[2]), *good[3:])),
        ("float64 /", lambda a, b, good: (*good[:3], a * (1 / b), *good[4:])),
        ("float64 /", lambda a, b, good: (*good[:3], torch.where(b == 0, torch.nan, good[3]), *good[4:])),
        ("TwoSum", lambda a, b, good: (*good[:5], torch.zeros_like(a), *good[6:])),
        ("TwoSum", lambda a, b, good: (*good[:4], *quick_two_sum(a, b), *good[6:])),
        ("TwoProd", lambda a, b, good: (*good[:7], torch.zeros_like(a), *good[8:])),
        ("TwoSum of a product", lambda a, b, good: (*good[:8], *contracted(a, b), *good[10:])),
        ("float64 sqrt", lambda a, b, good: (*good[:10], torch.nextafter(good[10], good[10] * 2), *good[11:])),
        ("float32 [+]", lambda a, b, good: (*good[:11], toward_zero(good[11].float()).double(), *good[12:])),
        ("float32 [*]", lambda a, b, good: (*good[:13], flushed(good[13].float()).double(), *good[14:])),
        ("float32 /", lambda a, b, good: (*good[:14], (a.float() * (1 / b.float())).double(), *good[15:])),
        ("float32 sqrt", lambda a, b, good: (*good[:15], toward_zero(good[15].float()).double(), good[16])),
        ("float32 fma", lambda a, b, good: (*good[:16], (a.float() * b.float() + a.float()).double())),
    ],
)
def test_arithmetic_that_is_not_what_it_says(name: str, planted: Callable[..., Any]) -> None:
    form = in_place_of(arithmetic.computed, lambda a, b: planted(a, b, arithmetic.computed(a, b)))
    with pytest.raises(NotAdmitted, match=f"^{name} is not admitted on cpu"):
        admit.library("cpu", form)


def contracted(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """TwoSum(a b, a) where the compiler made one fma of product and sum."""
    p, s = a * b, _fma_double(a, b, a)
    t = s - p
    return s, (p - (s - t)) + (a - t)


def test_a_processor_that_flushes_is_not_admitted() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush")
    try:
        with pytest.raises(NotAdmitted, match="float64"):
            admit.library("cpu", lambda function: function)
    finally:
        torch.set_flush_denormal(False)


# What is not admitted is not used.


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A torch whose cast from bfloat16 flushes."""
    good = casts.converted

    def converted(*tensors: Tensor) -> tuple[Tensor, ...]:
        h, b, *rest = good(*tensors)
        return (h, torch.where(b.abs() < 2.0**-126, b * 0, b), *rest)

    primitives.complaints.cache_clear()
    admit._judged.cache_clear()
    monkeypatch.setattr(casts, "converted", converted)
    yield
    primitives.complaints.cache_clear()
    admit._judged.cache_clear()


def test_number_systems_refuse_a_device_that_is_not_admitted(broken: None) -> None:
    match = "^bfloat16 to float64 is not admitted on cpu \\(eager\\)"
    with pytest.raises(NotAdmitted, match=match):
        Ball64("cpu")
    n = IeeeSystem(SINGLE, SINGLE)
    with pytest.raises(NotAdmitted, match=match):
        n.input(torch.ones(1))
    with pytest.raises(NotAdmitted, match=match):
        n.result(1.0)
    with pytest.raises(NotAdmitted, match=match):
        admit.library("cpu")


def test_a_trace_does_not_disturb_admission() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    primitives.complaints.cache_clear()
    for mode in ("real", "fake"):
        graph = make_fx(lambda x: Ball64("cpu").input(x).mid * 2, tracing_mode=mode)(torch.ones(3))
        assert len(list(graph.graph.nodes)) == 4  # the input, a cast, a product, the output
        assert not primitives.complaints("cpu")


def test_the_truth_is_in_doubt_where_a_device_is_not_admitted(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A cell that says so, not a traceback."""
    given = ["kernel", "exp", "--dtype", "float32", "--lowering", "eager", "--profile", "quick", "--spelling"]
    assert main([*given, "out-of-place", "--jobs", "1"]) == 4
    assert "bfloat16 to float64 is not admitted on cpu" in " ".join(capsys.readouterr().out.split())


def test_tensors_serve_where_what_is_compiled_is_not_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged() -> dict[str, dict[str, int]]:
        """The classes by region."""
        facts, target = backends.load("cpu"), kernel.load("exp")
        domain = domain_of(target, SINGLE, {}, "quick", limit=1 << 12)
        case = Pointwise(target, {}, "float32", facts, domain)
        (y,) = map(torch.exp, case.given(0))
        engine = case.engine(0, "", "exact")
        assert (engine is None) == bool(admit.primitives.complaints("cpu", cpp.mapped))
        tally = Judge(SINGLE, Limits(ulp=2.0)).tally(case.sources(0, "", y)["exact"], y, engine=engine)
        return {name: {c: one.counts[c] for c in CLASSES} for name, one in tally.regions.items()}

    fused = judged()
    monkeypatch.setattr(pointwise, "_ENGINES", {})
    monkeypatch.setattr(primitives, "complaints", lambda device, wrap=None: {"float64 +": "planted"} if wrap else {})
    assert judged() == fused


COMPOSITES = [name for name in kernel.names() if isinstance(kernel.load(name), kernel.Composite)]


@pytest.mark.part(2)
@pytest.mark.parametrize("name", COMPOSITES)
def test_a_later_stage_asks_for_no_function_that_the_first_has_not(name: str) -> None:
    """So that `trust` names the same ones, whichever lowerings and elements came before."""
    facts, backend = kernel.load(name), backends.load("cpu")
    assert isinstance(facts, kernel.Composite) and facts.custom is not None
    compared = 0
    for given in (*facts.sized(33), *(given for given, _ in facts.further[::6])):
        setting = facts.custom(given)
        for dtype in set(setting.dtypes) - {"float64"}:
            one = Instance(facts, setting, facts.cases[0], dtype, backend, 0)
            if sum(t.numel() for t in one.problem.tensors.values()) > 1 << 14:  # in double-double whole rows are taken
                continue
            sizes = {output: len(one.source.enclose(output)[0].mid[0]) for output in one.outputs}
            first = frozenset(one._bounds.asked)
            for output, size in sizes.items():
                one.source.enclose(output, torch.arange(min(size, 100)), double=True)
            assert one._bounds.asked == first
            assert {found.name for found in one.trusted} == first
            compared += 1
    assert compared
