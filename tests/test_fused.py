"""The fused engine: what it compiles gives the bits of torch, and its judge the numbers of the tensors' reduction."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from judging import library_error
from verify import native
from verify.facts import kernel
from verify.facts.formats import FORMATS, Format
from verify.families.elementwise import Elementwise, judgement, plain_judgement
from verify.inputs.domains import domain_of
from verify.judge.element import Judged, Limits, Plain, Usual, decide, plainly
from verify.judge.fused import Unsupported, compiled, cpp, mapped, on
from verify.judge.identify import candidates
from verify.judge.reduce import Reduced, joined, reduce
from verify.judge.regions import REGIONS
from verify.numbers import admit, graph, ieee
from verify.numbers.decide import Line, binade
from verify.numbers.functions import LIBRARY
from verify.numbers.transforms import round_to

pytestmark = pytest.mark.part(2)

Tensor = torch.Tensor
WORDS = {16: torch.int16, 32: torch.int32, 64: torch.int64}


@pytest.fixture(autouse=True, scope="module")
def _compiler() -> None:
    try:
        mapped(torch.neg)(torch.ones(1))
    except Unsupported as reason:
        pytest.skip(str(reason))


class Fused(TorchFunctionMode):
    """Gives library functions the form that compiled code calls: the C library's, not torch's."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if (name in graph.LIBRARY or name == "sqrt") and {getattr(a, "dtype", None) for a in args} == {torch.float64}:
            return mapped(getattr(torch, name))(*(t.contiguous() for t in torch.broadcast_tensors(*args)))
        return function(*args, **(kwargs or {}))


# ---------------------------------------------------------------- the judge


def patterns(fmt: Format, n: int, seed: int) -> Tensor:
    """Any patterns, a third of them of moderate size, a third of numbers that differ in their last bits only."""
    generator = torch.Generator().manual_seed(seed)
    word = WORDS[fmt.bits]
    info = torch.iinfo(word)
    wild = torch.randint(info.min, info.max + 1, (n,), generator=generator, dtype=torch.int64).to(word)
    dtype: torch.dtype = getattr(torch, fmt.name)
    moderate = torch.randn(n, generator=generator).to(dtype).view(word)
    edges = [0, fmt.sign_bit, fmt.inf_bits, 1, fmt.nan_bits, fmt.inf_bits - 1, 1 << fmt.mantissa_bits]
    bases = torch.tensor([b - (1 << fmt.bits) if b >> (fmt.bits - 1) else b for b in edges], dtype=torch.int64)
    near = bases[torch.randint(len(edges), (n,), generator=generator)] + torch.randint(-2, 3, (n,), generator=generator)
    kind = torch.randint(3, (n,), generator=generator)
    return torch.where(kind == 0, wild, torch.where(kind == 1, moderate, near.to(word))).view(dtype)


def spoiled(y: Tensor, fmt: Format, seed: int) -> Tensor:
    """Outputs, a quarter of them off by a few steps, and some that are anything."""
    generator = torch.Generator().manual_seed(seed)
    word, n = WORDS[fmt.bits], y.numel()
    steps = torch.randint(-3, 4, (n,), generator=generator).to(word)
    pick = torch.randint(64, (n,), generator=generator)
    off = torch.where(torch.isfinite(y) & (pick < 16), (y.view(word) + steps).view(y.dtype), y)
    return torch.where(pick == 63, patterns(fmt, n, seed + 1), off)


def case(
    name: str, scalars: dict[str, float], dtype: str, n: int, seed: int
) -> tuple[Elementwise, tuple[Tensor, ...], Tensor, Callable[..., list[Tensor]]]:
    """A kernel's facts, inputs of its domain and of any patterns, spoiled outputs, and what its formulas predict."""
    facts, fmt = kernel.elementwise(name), FORMATS[dtype]
    about = Elementwise(facts.oracle, fmt, facts.tensors(scalars), scalars, "cpu", LIBRARY)
    drawn = domain_of(facts, fmt, scalars, "quick").chunk(0, "cpu")
    step = max(1, 2 * drawn[0].numel() // n)
    inputs = tuple(torch.cat([t[::step], patterns(fmt, n, seed + k)]) for k, t in enumerate(drawn))
    n_ = ieee.IeeeSystem(FORMATS["float32"], fmt)
    named = candidates(facts.oracle, scalars, fmt)

    def predict(tensors: tuple[Tensor, ...]) -> list[Tensor]:
        values = {name: n_.input(t) for name, t in zip(about.names, tensors, strict=True)}
        return [n_.result(f.evaluate(n_, **values, **scalars)) for f in named]

    with Fused():
        truth = about.facts(inputs, inputs[0]).truth.mid
    y = spoiled(truth.to(getattr(torch, dtype)), fmt, seed)
    return about, inputs, y, predict


def by_tensors(
    about: Elementwise, inputs: tuple[Tensor, ...], y: Tensor, eager: Tensor | None, limits: Limits,
    predicted: Sequence[Tensor], form: TorchFunctionMode | None = None,
) -> Reduced:  # fmt: skip
    with form or Fused():
        judged = judgement(about)(inputs, y, eager, limits.values)
    judged = replace(judged, open=judged.open | judged.fails)
    word = WORDS[about.fmt.bits]
    wrong = tuple((p.view(word) != y.view(word)) & ~(p.isnan() & y.isnan()) for p in predicted)
    return reduce(judged, inputs[0], about.fmt, wrong)


def require_same(found: Reduced, wanted: Reduced) -> None:
    for mine, theirs in zip(found.regions, wanted.regions, strict=True):
        assert mine == theirs
    assert found.binades == wanted.binades
    assert found.formulas == wanted.formulas
    assert torch.equal(found.open, wanted.open.cpu())
    assert found.open.dtype == torch.int64, "places in a domain of 2^32 elements and more are added to it"


CASES = (
    ("exp", {}, "ulp", 1.0),
    ("sqrt", {}, "ulp", 0.5),
    ("add", {"alpha": 1.0}, "ulp", 0.5),
    ("div", {}, "ulp", 0.5),
    ("pow", {}, "ulp", 1.0),
    ("addcmul", {"value": 0.3}, "scaled_ulp", 4.0),
    ("lerp", {}, "scaled_ulp", 4.0),
)


@pytest.mark.part(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("name", "scalars", "metric", "value"), CASES, ids=[c[0] for c in CASES])
def test_the_judge_finds_what_the_tensors_find(
    name: str, scalars: dict[str, float], metric: str, value: float, dtype: str
) -> None:
    about, inputs, y, predict = case(name, scalars, dtype, 5003, 7)
    element = judgement(about)
    predicted = predict(inputs)
    eager = torch.where(torch.arange(y.numel()) % 5 == 0, spoiled(y, about.fmt, 3), y)
    dtypes = (y.dtype,) * len(inputs)
    limits = Limits.of(metric, value)
    wanted = by_tensors(about, inputs, y, eager, limits, predicted)
    for plain in (None, plain_judgement(about)):
        judge = compiled(element, dtypes, True, 4, predict if predicted else None, plain)
        found = judge(inputs, y, eager, limits.values, threads=1)
        require_same(found, wanted)
    assert sum(sum(r.counts[:7]) for r in found.regions) + len(found.open) == y.numel()
    alone = compiled(element, dtypes, False, 4, plain=plain_judgement(about))
    for other in (Limits.of(metric, value / 4, ftz=True), Limits.of(None), limits):
        require_same(alone(inputs, y, None, other.values), by_tensors(about, inputs, y, None, other, ()))


#: First patterns of runs of one input: 1.0, a binade's end, zero and the subnormals, -1.0, exp's overflow, infinity.
FIRSTS = (0x3F800000, 0x3FFFFE00, 0, 0xBF800000, 0x42B17000, 0x7F7FFC00, 0xC2CFF000, 0x43100000, 0xC3800000, 0x7E900000)


def undecided(inputs: tuple[Tensor, ...], y: Tensor, eager: Tensor | None, given: tuple[Any, ...]) -> Judged:
    """Leaves every element open, so that what is found is what plain elements are."""
    about = Elementwise(kernel.elementwise("exp").oracle, FORMATS["float32"], ("x",), {}, "cpu", LIBRARY)
    judged = judgement(about)(inputs[:1], y, eager, given)
    return replace(judged, open=judged.open | True)


@pytest.mark.parametrize("with_eager", [False, True])
@pytest.mark.parametrize("name", ["exp", "sqrt", "sigmoid", "reciprocal"])
def test_runs_of_patterns_are_judged_alike(name: str, with_eager: bool) -> None:
    """Whole tiles of plain elements take a shorter way."""
    facts, fmt = kernel.elementwise(name), FORMATS["float32"]
    about = Elementwise(facts.oracle, fmt, facts.tensors({}), {}, "cpu", LIBRARY)
    judge = compiled(judgement(about), (torch.float32,), with_eager, 4, plain=plain_judgement(about))
    without = compiled(undecided, (torch.float32,), with_eager, 4, plain=plain_judgement(about))
    plain = 0
    for first in FIRSTS:
        bits = torch.arange(first, first + 4 * cpp.TILE + 3, dtype=torch.int64)
        x = torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32).view(torch.float32)
        with Fused():
            truth = about.facts((x,), x).truth.mid.float()
        off = (truth.view(torch.int32) + (bits % 3 == 0)).view(torch.float32)
        y = torch.where(torch.isfinite(truth) & (bits % 1024 < 600), off, truth)  # two tiles are faithful
        y[2 * cpp.TILE + 5] = -y[2 * cpp.TILE + 5]
        y[3 * cpp.TILE + 1] = 7.0
        limits = Limits.of("ulp", 1.0)
        eager = torch.where(bits % 1024 == 300, -y, y) if with_eager else None
        wanted = by_tensors(about, (x,), y, eager, limits, ())
        for threads in (1, 2):
            require_same(judge((x,), y, eager, limits.values, threads=threads), wanted)
        left = len(without((x,), y, eager, limits.values).open)
        plain += left < y.numel() // 2
    assert plain >= len(FIRSTS) // 2


def perturbed(y: Tensor, fmt: Format, how: int) -> Tensor:
    """Results near y, which the truth rounds to, and others: the same, steps off, negated, zeros, infinities, NaNs."""
    generator = torch.Generator().manual_seed(how)
    word, n = WORDS[fmt.bits], y.numel()

    def some(share: float) -> Tensor:
        return torch.rand(n, generator=generator) < share

    if how in (1, 2):
        return (y.view(word) + (some(0.5).to(word) * (3 - 2 * how))).view(y.dtype)
    if how == 3:
        return torch.where(some(0.3), -y, y)
    if how == 4:
        return torch.where(some(0.3), 0.0, torch.where(some(0.3), float("inf"), y)).to(y.dtype)
    if how == 5:
        off = (y.view(word) + torch.randint(-3, 4, (n,), generator=generator).to(word)).view(y.dtype)
        return torch.where(some(0.3), float("nan"), off).to(y.dtype)
    return y


#: What lowerings may be held to.
HELD = (
    Limits(ulp=2.0), Limits(ulp=0.5), Limits(scaled=1.0), Limits(steps=1.0), Limits(steps=0.0),
    Limits(ulp=0.75, scaled=3.0), Limits(), Limits(ulp=1.0, ftz=1.0),
)  # fmt: skip
#: Kernels of which fewer elements are plain: their domains have more special numbers.
FEWER = {"addcdiv", "addcmul", "lerp", "pow"}


def said_alike(whole: Judged, plain: Plain) -> Tensor:
    """Which elements have the same judgement."""
    region = torch.full_like(whole.region, REGIONS.index("normal"))
    for name in ("overflow", "small", "operand", "nan"):
        index = {"small": "subnormal-result", "operand": "subnormal-operand", "nan": "special"}.get(name, name)
        region = torch.where(getattr(plain, name), REGIONS.index(index), region)
    same = (whole.region == region) & (whole.measured == ~plain.nan) & (whole.cls == plain.faithful.long())
    same &= (whole.steps == plain.faithful) & ((whole.negative == plain.negative) | (plain.error == 0))
    for field in ("error", "upper", "scaled", "share"):
        same &= getattr(whole, field) == getattr(plain, field)
    return same


def in_normal(whole: Judged) -> Tensor:
    return whole.region == REGIONS.index("normal")


def require_plain(about: Elementwise, inputs: tuple[Tensor, ...], least: float) -> None:
    """Where `plainly` says anything, it says what `decide` does, and of that share of rounded truths at least."""
    fmt = about.fmt
    nearly = about.facts(inputs, inputs[0]).truth.mid.float().to(inputs[0].dtype)
    for how in range(6):
        y = perturbed(nearly, fmt, how)
        given, likely = about.facts(inputs, y), about.likely(inputs, y)
        for limits, eager in itertools.product(HELD, (None, nearly)):
            whole = decide(y, given, fmt, limits, eager, 2.0**-17)
            plain = plainly(y, likely, fmt, limits, eager, 2.0**-17)
            assert not (whole.open | whole.fails | whole.unjudged | whole.different)[plain.holds].any()
            assert bool(said_alike(whole, plain)[plain.holds].all()), (fmt.name, about.scalars, how, limits)
            usual = replace(plain, **vars(plain.usual))
            assert bool((said_alike(whole, usual) & plain.holds & in_normal(whole))[usual.holds].all())
            assert torch.equal(usual.holds, plain.holds & in_normal(whole))
        if how == 0:
            held = plainly(y, likely, fmt, Limits(scaled=4.0), None, 2.0**-17).holds
            assert held.double().mean() > least, (fmt.name, about.scalars)


@pytest.mark.part(2)
@pytest.mark.parametrize("name", kernel.elementwise_names())
def test_plain_elements_are_judged_as_all_are(name: str) -> None:
    facts = kernel.elementwise(name)
    for k, dtype in enumerate(d for d in ("float32", "float16", "bfloat16") if d in facts.dtypes):
        fmt, scalars = FORMATS[dtype], facts.cases[k % len(facts.cases)]
        about = Elementwise(facts.oracle, fmt, facts.tensors(scalars), scalars, "cpu", admit.Bounds("cpu"))
        drawn = domain_of(facts, fmt, scalars, "quick", limit=1 << 12)
        inputs = drawn.span(0, min(drawn.size, 1 << 12), "cpu")
        require_plain(about, inputs, 0.4 if name in FEWER else 0.65)


@pytest.mark.parametrize("name", [k for k in kernel.elementwise_names() if len(kernel.elementwise(k).tensors({})) == 2])
def test_pairs_of_any_patterns_are_plain_too(name: str) -> None:
    """As in sweeps of 2^32 pairs, where many results are beyond the format, and powers beyond float64."""
    for dtype in ("float16", "bfloat16"):
        generator = torch.Generator().manual_seed(11)
        drawn = torch.randint(-(1 << 15), 1 << 15, (2, 1 << 14), generator=generator).to(torch.int16)
        about = Elementwise(
            kernel.elementwise(name).oracle, FORMATS[dtype], kernel.elementwise(name).tensors({}), {}, "cpu",
            admit.Bounds("cpu"),
        )  # fmt: skip
        require_plain(about, tuple(drawn.view(getattr(torch, dtype))), 0.9)


def invented(inputs: tuple[Tensor, ...], y: Tensor, eager: Tensor | None, given: tuple[Any, ...]) -> Judged:
    """Judgements made up from the inputs' patterns, so that every field takes every value: of 512 patterns in a row all
    are plain, or else anything."""
    word = inputs[0].view(torch.int32).to(torch.int64)
    hashed = (word * 0x2545F4914F6CDD1D) >> 20
    mode = (word >> 9) & 15

    def bits(shift: int, count: int) -> Tensor:
        return (hashed >> shift) & ((1 << count) - 1)

    def flag(shift: int, count: int = 2) -> Tensor:
        return bits(shift, count) == 0

    wild = mode >= 12
    some = (mode == 11) & flag(0, 6)  # one in 64 of a run
    odd = wild | some
    region = torch.where(odd, bits(3, 3).clamp(max=6), torch.where(mode < 6, 6, torch.where(mode < 9, 4, 0)))
    open_, measured = odd & flag(7), torch.where(odd, ~flag(9), region != 0)
    cls = torch.where(odd, bits(11, 3).clamp(max=6), torch.where(measured, bits(11, 1), 0))
    # up to 1, or in one run of plain elements 1.25; else far beyond 1024
    quarters = torch.where(odd, bits(12, 14), bits(12, 2) + 1 + (mode == 5)).to(torch.float64) / 4
    error = torch.where(measured, quarters, 0.0)
    different = odd & flag(27)
    none = torch.zeros_like(open_)
    return Judged(
        region=region,
        cls=cls,
        open=open_,
        measured=measured,
        error=error,
        negative=flag(29, 1),
        upper=error * 1.25,
        scaled=torch.where(measured, bits(15, 3).to(torch.float64), 0.0),
        share=torch.where(measured, bits(17, 9).to(torch.float64) * given[0], 0.0),
        steps=torch.where(measured, torch.where(odd, bits(14, 9), cls), 0),
        fails=odd & flag(31, 4),
        kind=cls,
        lost=none,
        unjudged=odd & flag(33, 3),
        different=different,
        closer=different & flag(36, 1),
        farther=different & flag(37, 1),
    )


def invented_plain(inputs: tuple[Tensor, ...], y: Tensor, eager: Tensor | None, given: tuple[Any, ...]) -> Plain:
    """What is plain of them."""
    one = invented(inputs, y, eager, given)
    regular = (one.region == 6) | (one.region == 4) | (one.region == 0)
    holds = ~(one.open | one.fails | one.unjudged | one.different) & regular & (one.cls <= 1) & (one.error <= 1)
    holds = holds & (one.measured == (one.region != 0)) & (one.steps == one.cls)
    none = torch.zeros_like(one.open)
    nan, overflow, faithful = one.region == 0, one.region == 4, one.cls == 1
    usual = Usual(holds & (one.region == 6), faithful, one.error, one.upper, one.scaled)
    return Plain(
        holds, nan, none, none, overflow, faithful, one.error, one.negative, one.upper, one.scaled, one.share, usual
    )


def wrong_of(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """What two formulas predict: one that is seldom wrong, one that often is."""
    word = inputs[0].view(torch.int32)
    return [torch.where((word & 1023) == 1000, -inputs[0], inputs[0]), torch.where((word & 7) == 3, inputs[0], 1.0)]


@pytest.mark.parametrize("n", [1 << 15, 77_777])
@pytest.mark.parametrize("first", [0x3F7F0000, 0, 0x7F7FC000])
def test_every_number_of_a_chunk_is_added_up(first: int, n: int) -> None:
    x = torch.arange(first, first + n, dtype=torch.int32).view(torch.float32)
    y = x.clone()
    judge = compiled(invented, (torch.float32,), False, 1, wrong_of, invented_plain)
    judged = invented((x,), y, None, (0.5,))
    word = torch.int32
    wrong = tuple((p.view(word) != y.view(word)) & ~(p.isnan() & y.isnan()) for p in wrong_of((x,)))
    judged = replace(judged, open=judged.open | judged.fails)
    wanted = reduce(judged, x, FORMATS["float32"], wrong)
    assert 0.5 < invented_plain((x,), y, None, (0.5,)).holds.double().mean() < 1
    for threads in (1, 2, 3):
        require_same(judge((x,), y, None, (0.5,), threads=threads), wanted)
    assert all(min(r.counts) > 0 or r.counts[10] != 0 for r in wanted.regions)


def test_plain_elements_of_many_binades() -> None:
    about = Elementwise(kernel.elementwise("exp").oracle, FORMATS["float32"], ("x",), {}, "cpu", LIBRARY)
    x = torch.linspace(2.0**-3, 2.0**3, 6 * cpp.TILE)
    y = torch.exp(x.double()).float()
    judge = compiled(judgement(about), (torch.float32,), False, 4, plain=plain_judgement(about))
    limits = Limits.of("ulp", 1.0)
    found = judge((x,), y, None, limits.values)
    require_same(found, by_tensors(about, (x,), y, None, limits, ()))
    assert len(found.binades) >= 6


def test_the_number_of_threads_changes_nothing() -> None:
    about, inputs, y, predict = case("addcmul", {"value": 0.3}, "float32", 200_003, 11)
    judge = compiled(judgement(about), (y.dtype,) * 3, True, 4, predict, plain_judgement(about))
    eager = spoiled(y, about.fmt, 5)
    limits = Limits.of("scaled_ulp", 2.0).values
    one = judge(inputs, y, eager, limits, threads=1)
    assert len(cpp._pieces(y.numel(), 5)) == 5
    for threads in (2, 3, 5, None):
        require_same(judge(inputs, y, eager, limits, threads=threads), one)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, cpp.TILE - 1, cpp.TILE + 1])
def test_any_number_of_elements(n: int) -> None:
    about, inputs, y, predict = case("lerp", {}, "bfloat16", 4096, 2)
    judge = compiled(judgement(about), (y.dtype,) * 3, False, 4, predict, plain_judgement(about))
    limits = Limits.of("scaled_ulp", 2.0)
    few = tuple(t[:n] for t in inputs)
    found = judge(few, y[:n], None, limits.values)
    if n:
        require_same(found, by_tensors(about, few, y[:n], None, limits, predict(few)))
    else:
        assert not any(sum(r.counts) for r in found.regions)
        assert len(found.open) == 0


def test_a_caller_that_flushes_subnormals_changes_nothing() -> None:
    about, inputs, y, _ = case("add", {"alpha": 1.0}, "float32", 3000, 4)
    judge = compiled(judgement(about), (y.dtype,) * 2, False, 4, plain=plain_judgement(about))
    limits = Limits.of("ulp", 0.5).values
    wanted = judge(inputs, y, None, limits, threads=1)
    small = torch.full((8,), 2.0**-1060, dtype=torch.float64)
    if not torch.set_flush_denormal(True):
        pytest.skip("no flushing on this processor")
    try:
        assert not (small * 2).any()
        require_same(judge(inputs, y, None, limits, threads=1), wanted)
        assert mapped(torch.add)(small, small).eq(2.0**-1059).all()
        assert not (small * 2).any()  # as the caller left it
    finally:
        torch.set_flush_denormal(False)


def test_each_device_has_its_engine() -> None:
    assert on(torch.device("cpu")) is cpp
    pytest.importorskip("triton")
    assert on(torch.device("meta")).__name__ == "verify.judge.fused.triton"


def test_parts_of_a_chunk_are_joined() -> None:
    about, inputs, y, predict = case("addcmul", {"value": 0.3}, "float32", 9001, 5)
    judge = compiled(judgement(about), (y.dtype,) * 3, False, 4, predict, plain_judgement(about))
    limits, edges = Limits.of("scaled_ulp", 2.0).values, (0, 100, 4096, len(y))
    parts = [
        (low, judge(tuple(t[low:high] for t in inputs), y[low:high], None, limits))
        for low, high in itertools.pairwise(edges)
    ]
    require_same(joined(parts), judge(inputs, y, None, limits))


# ---------------------------------------------------------------- the graph


def test_every_registered_kernel_is_compiled() -> None:
    """The operations that a case needs are known, whatever its scalars."""
    traced = 0
    for name in kernel.elementwise_names():
        facts = kernel.elementwise(name)
        for k, scalars in enumerate(facts.cases):
            for dtype in ("float32", "float16", "bfloat16")[: 1 if k else 3]:
                if dtype not in facts.dtypes:
                    continue
                fmt, names = FORMATS[dtype], facts.tensors(scalars)
                about = Elementwise(facts.oracle, fmt, names, scalars, "cpu", LIBRARY)
                kinds = [getattr(torch, dtype)] * (len(names) + 2)
                whole = cpp.fields_of(judgement(about), len(names), True)
                counts = []
                for fields in (whole, cpp.plain_fields_of(plain_judgement(about), len(names), True)):
                    made = graph.trace(fields, kinds, 4)
                    counts.append(cpp.tile_source(made, [(p, "") for p in made.outputs.values()]).count("const "))
                assert 50 < counts[1] < counts[0] / 1.5
                traced += 1
    assert traced >= 70


def test_an_unknown_operation_is_named() -> None:
    with pytest.raises(Unsupported, match=r"aten\.special_bessel_j0"):
        mapped(torch.special.bessel_j0)(torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x if bool((x > 0).any()) else -x, "aten.any"),
        (lambda x: x if x[0] > 0 else -x, "aten"),
        (lambda x: x + torch.arange(x.numel()), "elements differ"),
        (lambda x: x.sum() + x, "aten.sum"),
        (lambda x: x.flip(0), "aten.flip"),
        (lambda x: x.half() + 1, "on torch.float16"),
        (lambda x: x**2, "Python number"),
        (lambda x: x[x > 0], "aten.index"),
    ],
)
def test_what_is_no_function_of_single_elements_is_refused(function: Callable[[Tensor], Tensor], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        mapped(function)(torch.ones(graph.SIZE, dtype=torch.float64))


def test_float64_outputs_are_refused() -> None:
    with pytest.raises(Unsupported, match="float64"):
        compiled(lambda x, y, eager, given: None, (torch.float64,), False)  # type: ignore[arg-type, return-value]


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFY_NATIVE", "0")
    native._compiler.cache_clear()
    try:
        with pytest.raises(Unsupported, match="VERIFY_NATIVE"):
            cpp.build("int one = 1;")
    finally:
        monkeypatch.undo()
        native._compiler.cache_clear()


# ---------------------------------------------------------------- operations, bit for bit


def doubles(n: int, seed: int) -> Tensor:
    """Any patterns of float64, numbers of float32's range and beyond, near ties, zeros, infinities and NaNs."""
    generator = torch.Generator().manual_seed(seed)
    wild = torch.randint(-(1 << 63), (1 << 63) - 1, (n,), generator=generator, dtype=torch.int64).view(torch.float64)
    scale = torch.randint(-160, 140, (n,), generator=generator).double()
    moderate = torch.randn(n, generator=generator).double() * torch.pow(2.0, scale)
    tie = (moderate.float().double().view(torch.int64) + (1 << 28)).view(torch.float64)
    near = (tie.view(torch.int64) + torch.randint(-1, 2, (n,), generator=generator)).view(torch.float64)
    edges = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -1.0, 2.0**-1074, 2.0**128, 65520.0])
    odd = edges.double()[torch.randint(len(edges), (n,), generator=generator)]
    kind = torch.randint(5, (n,), generator=generator)
    return torch.stack([wild, moderate, tie, near, odd])[kind, torch.arange(n)]


Values = dict[str, list[Tensor]]


def grown(rng: random.Random, pool: Values) -> tuple[str, Tensor]:
    """One more value, by a random operation on those of the pool; its kind."""

    def any_of(kind: str) -> Tensor:
        return rng.choice(pool[kind])

    number = rng.choice([0.0, -0.0, 1.0, 2.0, -0.5, 2.0**-126, 3.0, 2.0**100, torch.inf])
    a, b, c, d = any_of("d"), any_of("d"), any_of("m"), any_of("f")
    i, j, w = any_of("i"), any_of("i"), any_of("w")
    single, half, brain = (Line(FORMATS[name]) for name in ("float32", "float16", "bfloat16"))
    choices: list[tuple[str, Callable[[], Tensor]]] = [
        ("d", lambda: a + b), ("d", lambda: a - b), ("d", lambda: a * b), ("d", lambda: a / b),
        ("d", lambda: number * a), ("d", lambda: a - number), ("d", lambda: number / a), ("d", lambda: -a),
        ("d", lambda: a.abs()), ("d", lambda: torch.copysign(a, torch.where(b.isnan(), 1.0, b))),
        ("d", lambda: torch.where(c, a, b)),
        ("d", lambda: torch.where(c, number, a)), ("d", lambda: a.clamp(-4.0, 2.0**20)),
        ("d", lambda: a.clamp(min=1.5)),
        ("d", lambda: a.floor()), ("d", lambda: a.ceil()), ("d", lambda: a.trunc()), ("d", lambda: a.round()),
        ("d", lambda: torch.where(a == b, a, torch.maximum(a, b))),  # of zeros torch takes either
        ("d", lambda: torch.where(a == b, a, torch.minimum(a, b))),
        ("d", lambda: d.double()), ("d", lambda: c.double()), ("d", lambda: i.to(torch.float64)),
        ("d", lambda: a.nan_to_num(nan=3.0, posinf=2.0**1000)), ("d", lambda: a.nan_to_num()),
        ("d", lambda: a.masked_fill(c, 7.0)), ("d", lambda: round_to(a, FORMATS["float32"])),
        ("d", lambda: round_to(a, FORMATS["bfloat16"])), ("d", lambda: any_of("h").double()),
        ("d", lambda: binade(a, single)), ("d", lambda: b / (binade(a, half) * 4)),
        ("d", lambda: b / (1 / torch.minimum(binade(a, brain), binade(b, brain)) * 128)),
        ("f", lambda: a.float()), ("f", lambda: d + any_of("f")), ("f", lambda: d * any_of("f")), ("f", lambda: d / 3),
        ("f", lambda: w.view(torch.float32)), ("f", lambda: d.abs()), ("f", lambda: d.clamp(min=0.1)),
        ("f", lambda: torch.where(c, d, -d)), ("f", lambda: any_of("h").float()),
        ("h", lambda: a.to(torch.bfloat16)), ("h", lambda: -any_of("h")), ("q", lambda: a.to(torch.float16)),
        ("d", lambda: any_of("q").double()), ("q", lambda: any_of("q").abs()),
        ("m", lambda: a < b), ("m", lambda: a <= number), ("m", lambda: a == b), ("m", lambda: number != a),
        ("m", lambda: d > 0.1), ("m", lambda: c & any_of("m")), ("m", lambda: c | any_of("m")), ("m", lambda: ~c),
        ("m", lambda: c ^ any_of("m")), ("m", lambda: c > any_of("m")), ("m", lambda: c == any_of("m")),
        ("m", lambda: torch.where(c, any_of("m"), any_of("m"))), ("m", lambda: c != any_of("m")),
        ("m", lambda: a.isnan()), ("m", lambda: a.isinf()), ("m", lambda: d.isfinite()), ("m", lambda: i > j),
        ("m", lambda: i == 3), ("m", lambda: torch.logical_and(c, i != 0)), ("m", lambda: c <= any_of("m")),
        ("m", lambda: w < 5), ("m", lambda: any_of("h") >= 0.5), ("m", lambda: any_of("q") < 2.0**-14),
        ("i", lambda: i + j), ("i", lambda: i - 3), ("i", lambda: i * 5), ("i", lambda: i & j), ("i", lambda: i | 1),
        ("i", lambda: i ^ j), ("i", lambda: i >> 7), ("i", lambda: i << 3), ("i", lambda: i.abs()), ("i", lambda: -i),
        ("i", lambda: ~i), ("i", lambda: torch.where(c, i, 9)), ("i", lambda: i.clamp(-5, 100)),
        ("i", lambda: torch.where(a.isnan(), 0.0, a).view(torch.int64)), ("i", lambda: c.to(torch.int64)),
        ("i", lambda: w.to(torch.int64)), ("i", lambda: a.clamp(-1e9, 1e9).nan_to_num().to(torch.int64)),
        ("i", lambda: torch.maximum(i, j)),
        ("w", lambda: w + any_of("w")), ("w", lambda: w * 3), ("w", lambda: w << 5), ("w", lambda: w >> 2),
        ("w", lambda: torch.where(d.isnan(), 0.0, d).view(torch.int32)), ("w", lambda: -w),
        ("w", lambda: i.to(torch.int32)),
        ("w", lambda: w & 0x7FFFFF), ("w", lambda: ~w), ("w", lambda: w.abs()),
    ]  # fmt: skip
    kind, make = rng.choice(choices)
    return kind, make()


def bits_of(t: Tensor) -> Tensor:
    """Patterns, all NaNs alike."""
    if not t.dtype.is_floating_point:
        return t
    word = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return torch.where(t.isnan(), 0, t.view(word) ^ 1)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_give_the_bits_of_torch(seed: int) -> None:
    def program(a: Tensor, b: Tensor, d: Tensor, h: Tensor, q: Tensor, i: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        rng = random.Random(seed)
        pool: Values = {"d": [a, b], "f": [d], "h": [h], "q": [q], "i": [i], "w": [w], "m": [a < b]}
        for _ in range(150):
            kind, value = grown(rng, pool)
            pool[kind].append(value)
        return tuple(t for kind in pool for t in pool[kind])

    n = 4099
    a, b = doubles(n, seed), doubles(n, seed + 100)
    d, h, q = (
        patterns(FORMATS["float32"], n, seed),
        patterns(FORMATS["bfloat16"], n, 1),
        patterns(FORMATS["float16"], n, 2),
    )
    i, w = doubles(n, seed + 200).view(torch.int64), d.view(torch.int32) ^ 0x1234
    given = (a, b, d, h, q, i, w)
    found, wanted = mapped(program)(*given), program(*given)
    for k, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert mine.dtype == theirs.dtype
        same = bits_of(mine) == bits_of(theirs)
        assert bool(same.all()), (k, theirs.dtype, mine[~same][:3], theirs[~same][:3])


def test_library_functions_are_admitted_in_their_compiled_form() -> None:
    assert {a.name for a in admit.library("cpu", mapped)} == set(LIBRARY)


def test_exp_is_within_its_claim() -> None:
    """1.5 units of 2^-53; what leaves float64's range is 0 or infinity."""
    rng = random.Random(3)
    points = [rng.uniform(-0.4, 0.4) for _ in range(3000)] + [rng.uniform(-708, 709.7) for _ in range(3000)]
    edges = [0.0, -0.0, torch.inf, -torch.inf, 709.782712893384, 709.782712893385, -745.2, -1e300, 1e300]
    values = mapped(torch.exp)(torch.tensor([*points, *edges], dtype=torch.float64)).tolist()
    assert max(library_error("exp", (x,), v) for x, v in zip(points, values, strict=False)) < 1.5
    assert values[len(points) :] == [1, 1, torch.inf, 0, values[len(points) + 4], torch.inf, 0, 0, torch.inf]
    assert values[len(points) + 4] == pytest.approx(1.797693134862273e308, rel=1e-12)
    assert torch.isnan(mapped(torch.exp)(torch.tensor([torch.nan], dtype=torch.float64))).all()
