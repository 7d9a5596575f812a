"""flex_attention: its truth against a second one, its bounds against honest and planted lowerings, laws of attention.

The oracle's expression is shared by balls and multiprecision; what is written here with Arb shares nothing with it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from composites import cells
from mutants import flex as mutants
from verify import backends
from verify.facts.formats import FORMATS
from verify.facts.kernel import UsageError, load
from verify.facts.truth import Truth
from verify.families import attention, products_formulas
from verify.families.composite import Problem
from verify.kernels import _flex, _flex_algorithms, _flex_formulas, _flex_lowerings
from verify.kernels.flex_attention import HALVES_AND_SINGLE, OPTIONS, RECIPES, Shape, custom, setting
from verify.lower import switches
from verify.lower.lowering import NotLowered, Target
from verify.numbers import units
from verify.numbers.ball import Ball64
from verify.numbers.fixed import FixedMatrices, Opaque, RationalMatrices, places_for
from verify.numbers.matmul import DDMatrices, RowBalls, matmul
from verify.oracles import _attention as oracle
from verify.walk import run as runs
from verify.walk.plan import Selection
from verify.walk.settings import own_setting

pytestmark = pytest.mark.part(2)

try:
    import flint
except ImportError:
    flint = None
needs_flint = pytest.mark.skipif(flint is None, reason="python-flint, the second truth, is not installed")

Tensor = torch.Tensor
LIBRARY = {"exp": 4.0, "log": 4.0, "tanh": 8.0}
CPU = backends.load("cpu")
FACTS: Any = load("flex_attention")
#: Lowerings that need no compiler: the first calls the operator below flex_attention.
HOST = ("eager", "sdpa-math", "sdpa-flash")


def problem(dtype: str, seed: int = 0, **values: Any) -> Problem:
    return _flex.problem(dtype, setting("test", **values), {}, seed)


def truth(given: Problem) -> _flex.AttentionTruth:
    return _flex.AttentionTruth(given, "cpu", LIBRARY)


def run(name: str, given: Problem) -> dict[str, Tensor]:
    lowering = next(x for x in _flex_lowerings.lowerings() if x.name == name)
    own = setting("test", **given.parameters)
    facts = dataclasses.replace(FACTS, settings=(own,))
    with torch.no_grad():
        outputs: dict[str, Tensor] = lowering.build(Target(facts, {}, "test", given.dtype, CPU))(given)  # type: ignore[arg-type]
    return outputs


def bounds(name: str, given: Problem, backend: str = "cpu") -> dict[str, Tensor]:
    found = _flex_algorithms.algorithm_of(name, backend, given.dtype, given.extra["shape"])
    return _flex_algorithms.bounds(given, found)


def distances(given: Problem, outputs: dict[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Lower and upper bounds of |y - t| for each output, NaN as infinitely far."""
    source, found = truth(given), {}
    for name, y in outputs.items():
        enclosure, _ = source.enclose(name)
        mid, rad = (t.reshape(-1).clone() for t in (enclosure.mid, enclosure.rad) if t is not None)
        wide = (rad > 2.0**-30 * mid.abs()).nonzero()[:, 0]  # of faint weights' gradients
        if len(wide):
            finer, _ = source.enclose(name, wide, double=True)
            mid[wide], rad[wide] = finer.take(0).mid, finer.take(0).rad
        mid, rad = mid.reshape(y.shape), rad.reshape(y.shape)
        far = torch.where(mid == y.double(), 0.0, (y.double() - mid).abs()).nan_to_num(nan=math.inf)
        found[name] = ((far - rad).clamp(min=0), torch.where(far + rad > rad, far + rad, 0.0))
    return found


def shares(
    name: str, given: Problem, outputs: dict[str, Tensor], backend: str = "cpu"
) -> dict[str, tuple[float, float]]:
    """Between which numbers the largest share of each output's bound lies."""
    limit = bounds(name, given, backend)
    return {
        key: tuple(float(torch.where(d == 0, 0.0, d / limit[key]).max()) for d in pair)  # type: ignore[misc]
        for key, pair in distances(given, outputs).items()
    }


# Number systems


def fractions(a: Tensor) -> list[list[Fraction]]:
    return [[Fraction(x) for x in row] for row in a.double().tolist()]


def exact_product(a: Tensor, b: Tensor) -> list[list[Fraction]]:
    left, right = fractions(a), fractions(b)
    return [[sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in zip(*right, strict=True)]
            for row in left]  # fmt: skip


def holds(mid: Tensor, rad: Tensor, tail: Tensor | float, exact: list[list[Fraction]]) -> None:
    tail = torch.as_tensor(tail, dtype=torch.float64).expand_as(mid)
    rad = torch.as_tensor(rad, dtype=torch.float64).expand_as(mid)
    for i, row in enumerate(exact):
        for j, t in enumerate(row):
            off = abs(Fraction(float(mid[i, j])) + Fraction(float(tail[i, j])) - t)
            assert off <= Fraction(float(rad[i, j])), (i, j, float(off), float(rad[i, j]))


@settings(max_examples=25, deadline=None)
@given(
    dtype=st.sampled_from(HALVES_AND_SINGLE), k=st.sampled_from((1, 2, 16, 64, 130, 700)), spread=st.integers(0, 40),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_products_enclose_the_exact_ones(dtype: str, k: int, spread: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    exponent = 6 if dtype == "float16" else spread

    def draw(*size: int) -> Tensor:
        scale = torch.exp2(torch.randint(-exponent // 2, exponent // 2 + 1, size, generator=generator).double())
        return (torch.randn(size, generator=generator, dtype=torch.float64) * scale).to(getattr(torch, dtype))

    a, b = draw(3, k), draw(k, 2)
    exact = exact_product(a, b)
    rows, doubled, single = RowBalls("cpu"), DDMatrices("cpu"), Ball64("cpu")
    found = rows.matmul(rows.input(a), rows.input(b))
    holds(found.mid, found.radius, 0.0, exact)
    dd = doubled.matmul(doubled.input(a), doubled.input(b))
    holds(dd.mid, dd.radius, dd.tail, exact)  # type: ignore[arg-type]
    ball = matmul(single, single.input(a), single.input(b))
    holds(ball.mid, ball.radius, 0.0, exact)
    third = [[x / 3 for x in row] for row in exact]
    found = rows.matmul(rows.input(a) * Fraction(1, 3), rows.input(b))
    holds(found.mid, found.radius, 0.0, third)
    dd = doubled.matmul(doubled.input(a) * Fraction(1, 3), doubled.input(b))
    holds(dd.mid, dd.radius, dd.tail, third)  # type: ignore[arg-type]
    n = FixedMatrices(places_for(a.double().numpy()) + places_for(b.double().numpy()) + 64)
    fixed = n.matmul(n.input(a.double().numpy()), n.input(b.double().numpy()))
    assert fixed.rad is None
    for (i, j), mid in np.ndenumerate(fixed.mid):
        assert Fraction(int(mid), 1 << n.places) == exact[i][j]


def test_scores_of_half_types_are_exact() -> None:
    """Their products lie on one grid, so that float64 holds them whatever the order of the sum."""
    given = problem("bfloat16", data="competing")
    n = RowBalls("cpu")
    query, key = given.tensors["query"][0, 0], given.tensors["key"][0, 0]
    assert n.matmul(n.input(query), n.input(key.T)).point


@needs_flint
@settings(max_examples=60, deadline=None)
@given(a=st.fractions(-300, 300), b=st.fractions(Fraction(1, 1000), 1000))
def test_functions_enclose_arbs(a: Fraction, b: Fraction) -> None:
    flint.ctx.prec = 300
    x, y = (flint.arb(flint.fmpq(v.numerator, v.denominator)) for v in (a, b))
    wanted = {"exp": x.exp(), "tanh": x.tanh(), "log": y.log(), "sqrt": y.sqrt()}
    fixed, rows, doubled = FixedMatrices(100), RowBalls("cpu"), DDMatrices("cpu")
    for name, value in wanted.items():
        argument = a if name in ("exp", "tanh") else b
        found = getattr(fixed, name)(fixed.const(argument)).truth(0, 0) if argument < 90 else None
        if found is not None and found.kind == "real":
            assert inside(value, found.lo, found.hi), (name, argument)
        for n in (rows, doubled):
            if name == "exp" and abs(argument) > 690:
                continue
            ball = getattr(n, name)(n.const(argument))
            rad = float(torch.as_tensor(ball.radius))
            mid = Fraction(float(ball.mid)) + Fraction(float(torch.as_tensor(getattr(ball, "tail", 0.0))))
            assert math.isnan(rad) or inside(value, mid - Fraction(rad), mid + Fraction(rad)), (name, argument, n)


def test_sums_of_short_products_are_exact_beside_long_ones() -> None:
    """Of whatever rows they share: a bound of 0 is then decided, without multiprecision. 1,642 of 16,384 elements of a
    product of 32 x 512 x 512 were open."""
    a = torch.randn(8, 40, dtype=torch.float64)
    b = torch.randn(40, 6, dtype=torch.float64)
    a[:4], b[:, :3] = (t.mul(64).round().div(64) for t in (a[:4], b[:, :3]))
    a[3], a[4] = 0.0, 2.0**-200
    n = DDMatrices("cpu")
    found = n.matmul(n.input(a), n.input(b))
    short = torch.zeros(8, 6, dtype=torch.bool)
    short[:4, :3], short[3] = True, True
    assert torch.equal(
        torch.as_tensor(found.radius).expand(8, 6)[short] == 0, torch.ones(int(short.sum()), dtype=torch.bool)
    )
    exact = [[sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)) for column in b.T.tolist()]
             for row in a.tolist()]  # fmt: skip
    for i, row in enumerate(exact):
        for j, value in enumerate(row):
            off = abs(Fraction(float(found.mid[i, j])) + Fraction(float(found.tail[i, j])) - value)
            assert off <= Fraction(float(torch.as_tensor(found.radius).expand(8, 6)[i, j]))


def inside(value: Any, lo: Fraction, hi: Fraction) -> bool:
    """Whether Arb's ball may hold a point of [lo, hi]: false proves the enclosure wrong."""
    low, high = (flint.arb(flint.fmpq(v.numerator, v.denominator)) for v in (lo, hi))
    return not (value < low or value > high)


def test_rationals_cancel_what_they_do_not_know() -> None:
    n = RationalMatrices()
    scores = n.tanh(n.input(np.array([[2.0, 2.0, 3.0]])))
    seen = np.array([[True, True, False]])
    weights = n.masked(seen, n.exp(n.masked(seen, scores - n.shift(scores, seen))))
    assert weights.values.tolist() == [[1, 1, 0]] and n.sum(weights).truth(0, 0) == Truth.real(Fraction(2), Fraction(2))
    assert isinstance(scores.values[0, 0], Opaque) and scores.truth(0, 0) is None


# The truth


SHAPES = {
    "plain": {"q_len": 3, "kv_len": 5},
    "causal": {"q_len": 5, "kv_len": 4, "mask_mod": "causal", "data": "competing"},
    "capped window": {"q_len": 4, "kv_len": 4, "score_mod": "soft_cap", "mask_mod": "sliding_window", "heads": 2,
                      "kv_heads": 1, "data": "competing"},
    "alibi documents": {"q_len": 6, "kv_len": 6, "score_mod": "alibi", "mask_mod": "document"},
    "bias": {"q_len": 3, "kv_len": 4, "score_mod": "relative_bias", "data": "extreme"},
    "rows": {"q_len": 4, "kv_len": 3, "mask_mod": "masked_rows"},
    "one key": {"q_len": 2, "kv_len": 1},
    "uniform": {"q_len": 2, "kv_len": 8, "data": "uniform"},
}  # fmt: skip


def arb_attention(given: Problem, b: int, h: int) -> dict[str, Any]:
    """out, logsumexp, dq and the head's shares of dk and dv from the definitions, by the softmax's Jacobian.

    Written apart from the oracle; what a query sees and what is added to a score too.
    """
    flint.ctx.prec = 400
    shape: Shape = given.extra["shape"]
    tables = {name: t.tolist() for name, t in given.extra["buffers"].items() if isinstance(t, torch.Tensor)}

    def real(x: float) -> Any:
        exact = Fraction(x)
        return flint.arb(flint.fmpq(exact.numerator, exact.denominator))

    g = h // shape.group
    query, key, value, grad = (
        [[real(x) for x in row] for row in given.tensors[name][b, at].double().tolist()]
        for name, at in (("query", h), ("key", g), ("value", g), ("grad_out", h))
    )
    d, scale = shape.head_dim, real(shape.scale)

    def sees(i: int, j: int) -> bool:
        return {
            "none": True,
            "causal": j <= i,
            "sliding_window": i - 20 <= j <= i,
            "document": tables["query_document"][i] == tables["key_document"][j],
            "masked_rows": j <= i and i % 5 != 2,
        }[shape.mask_mod] and (shape.score_mod != "causal" or j <= i)

    def scored(i: int, j: int) -> tuple[Any, Any]:
        s = sum((query[i][c] * key[j][c] for c in range(d)), flint.arb(0)) * scale
        if shape.score_mod == "soft_cap":
            return 50 * (s / 50).tanh(), 1 / (s / 50).cosh() ** 2
        if shape.score_mod == "alibi":
            return s + real(tables["slopes"][h]) * (j - i), flint.arb(1)
        if shape.score_mod == "relative_bias":
            return s + real(tables["bias"][h][max(-16, min(16, j - i)) + 16]), flint.arb(1)
        return s, flint.arb(1)

    none = [flint.arb(0)] * d
    found: dict[str, Any] = {"out": [], "logsumexp": [], "dq": []}
    found |= {name: [list(none) for _ in range(shape.kv_len)] for name in ("dk", "dv")}
    for i in range(shape.q_len):
        keys = [j for j in range(shape.kv_len) if sees(i, j)]
        pairs = {j: scored(i, j) for j in keys}
        total = sum((pairs[j][0].exp() for j in keys), flint.arb(0))
        weight = {j: pairs[j][0].exp() / total for j in keys}
        found["out"].append([sum((weight[j] * value[j][c] for j in keys), flint.arb(0)) for c in range(d)])
        found["logsumexp"].append([total.log()] if keys else [None])
        passed = {j: sum((grad[i][c] * value[j][c] for c in range(d)), flint.arb(0)) for j in keys}
        change = {
            j: pairs[j][1]
            * sum((passed[m] * weight[m] * ((1 if m == j else 0) - weight[j]) for m in keys), flint.arb(0))
            for j in keys
        }
        found["dq"].append([scale * sum((change[j] * key[j][c] for j in keys), flint.arb(0)) for c in range(d)])
        for j in keys:
            for c in range(d):
                found["dk"][j][c] += scale * change[j] * query[i][c]
                found["dv"][j][c] += weight[j] * grad[i][c]
    return found


@needs_flint
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_truth_is_arbs(name: str, dtype: str) -> None:
    """Every element in multiprecision, double-double and float64 holds Arb's number; what is undecided is NaN."""
    given = problem(dtype, seed=3, head_dim=4, **{"heads": 1, "kv_heads": 1, **SHAPES[name]})
    shape, source = given.extra["shape"], truth(given)
    heads = [arb_attention(given, 0, h) for h in range(shape.heads)]
    for output, size in shape.outputs.items():
        wide = source.enclose(output)[0]
        narrow, scale = source.enclose(output, torch.arange(math.prod(size)), double=True)
        assert scale is not None and wide.rad is not None and narrow.rad is not None and narrow.tail is not None
        for place in range(math.prod(size)):
            at = np.unravel_index(place, size)
            h, row, column = int(at[1]), int(at[2]), int(at[3]) if len(at) == 4 else 0
            if output in ("dk", "dv"):
                value = sum(
                    (heads[i][output][row][column] for i in range(h * shape.group, (h + 1) * shape.group)), flint.arb(0)
                )
            else:
                value = heads[h][output][row][column]
            mp = list(zip(range(2), source.exact(output, place), strict=False))[-1][1]
            if value is None:
                assert mp == Truth("-inf") and wide.mid[0, place] == -math.inf and wide.rad[0, place] == 0
                continue
            if mp.kind != "real":
                assert mp.kind in ("+0", "either-zero") and value.contains(0)
            else:
                assert inside(value, mp.lo, mp.hi), (output, at)
                assert not value.contains(0) or not mp.exact
            for e in (wide, narrow):
                rad = float(e.rad[0, place])  # type: ignore[index]
                mid = Fraction(float(e.mid[0, place])) + Fraction(
                    float(e.tail[0, place]) if e.tail is not None else 0.0
                )
                assert not math.isnan(rad) and inside(value, mid - Fraction(rad), mid + Fraction(rad)), (output, at)


@pytest.mark.parametrize("name", ["alibi documents", "capped window", "uniform", "causal"])
def test_exact_zeros_and_ties_are_decided(name: str) -> None:
    """No element keeps an enclosure that will never tell: zeros of gradients, and means of equal weights."""
    given = problem("bfloat16", head_dim=16, **SHAPES[name])
    source = truth(given)
    for output, size in given.extra["shape"].outputs.items():
        for place in range(0, math.prod(size), 7):
            for _, found in zip(range(4), source.exact(output, place), strict=False):
                decided = found.exact or FORMATS["float32"].round(found.lo) == FORMATS["float32"].round(found.hi)
            assert decided, (output, place, found)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("window", "some"), [(0, ("dq", "dk")), (2, ("dq",))])
def test_exact_zeros_of_gradients_are_decided_on_tensors(window: int, some: tuple[str, ...], double: bool) -> None:
    """A query that sees one key has dS = 0, which no interval of its terms shows."""
    given = problem("float16", q_len=9, kv_len=9, head_dim=16, mask_mod="sliding_window", window=window)
    source = truth(given)
    for output in ("dq", "dk", "dv"):
        index = torch.arange(math.prod(given.extra["shape"].outputs[output]))
        found, _ = source.enclose(output, index, double=double)
        assert found.rad is not None
        zero = torch.tensor([next(source.exact(output, k)).kind == "either-zero" for k in index.tolist()])
        either = torch.zeros_like(zero[None]) if found.either is None else found.either
        assert torch.equal((found.mid == 0) & (found.rad == 0) & either, zero[None])
        assert bool(zero.any()) == (output in some)


def test_a_gradient_that_is_nearly_zero_is_not_taken_for_one() -> None:
    """Values that differ by 2^-80 alone: float64 sees no difference, and every enclosure of dq holds 0."""
    given = problem("float32", q_len=3, kv_len=4, head_dim=16)
    value = given.tensors["value"].clone()
    value[:] = value[:, :, :1]
    value[..., 0] = torch.tensor([1.0, 2.0, 3.0, 4.0]) * 2.0**-80
    given = part_of(given, value=value)
    source = truth(given)
    index = torch.arange(math.prod(given.extra["shape"].outputs["dq"]))
    for double in (False, True):
        found, _ = source.enclose("dq", index, double=double)
        assert found.rad is not None and bool((found.rad > 0).all())
        assert double or bool((found.mid.abs() <= found.rad).all())
    assert {next(source.exact("dq", k)).kind for k in index.tolist()} == {"real"}


@pytest.mark.parametrize("name", ["alibi", "relative_bias", "soft_cap"])
def test_the_lowerings_score_mod_is_the_oracles(name: str) -> None:
    """Two texts of one function and of its derivative, the second by autograd in float64."""
    shape = Shape(score_mod=name, q_len=9, kv_len=40)
    tables = _flex.widened(_flex.buffers(shape, 0))
    scores = torch.linspace(-90, 90, 9 * 40, dtype=torch.float64).reshape(9, 40).requires_grad_()
    places = torch.tensor([[0]]), torch.tensor([[1]]), torch.arange(9)[:, None], torch.arange(40)[None, :]
    ours = _flex_lowerings.score_mod(shape, tables)
    assert ours is not None
    value = ours(scores, *places)
    n = RowBalls("cpu")
    exact = oracle.SCORE_MODS[name](n, n.input(scores.detach()), *places, tables)
    assert torch.allclose(value.detach(), exact.mid, rtol=1e-13, atol=1e-13)
    (slope,) = torch.autograd.grad(value.sum(), scores)
    ball = oracle.derivative(n, oracle.SCORE_MODS[name], n.input(scores.detach()), oracle.Place(*places), tables)
    assert torch.allclose(
        slope, torch.ones(9, 40).double() if isinstance(ball, int) else ball.mid, rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_eager_rounds_the_gradients_of_scores_with_a_bias_twice(seed: int) -> None:
    """The graph of the modification's derivative casts to the dtype: of few keys the bound of one rounding was
    exceeded with these seeds."""
    given = {"batch": "3", "heads": "3", "q_len": "60", "kv_len": "16", "head_dim": "32", "mask_mod": "causal"}
    own = custom(given | {"score_mod": "relative_bias", "reach": "64", "biases": "large"})
    found = cells(FACTS, own, _flex_lowerings.lowerings()[0], "bfloat16", CPU, seed=seed)
    assert {cell["status"] for cell in found} <= {"passed", "unjudged"}  # these settings are for no resolution


def test_nothing_is_stated_of_products_beyond_the_range() -> None:
    """A sum was bounded that float32 does not hold."""
    any_order = attention.Algorithm("any", _flex_algorithms.EXP_U20)
    n = any_order.system(FORMATS["bfloat16"], "cpu", False)
    for size, finite in ((2.0**58, True), (2.0**61, False)):  # of 64 products the square
        x, y = (torch.full(shape, size, dtype=torch.float64) for shape in ((3, 64), (64, 5)))
        found = attention.product(n, any_order, x, y, 64)
        assert bool(found.value.error.isfinite().all()) == finite


def test_what_no_format_holds_is_a_zero_of_either_sign() -> None:
    """Of weights below exp(-2^14) multiprecision found no sign, and the cell was refused."""
    given = problem("float32", batch=1, heads=3, kv_heads=3, q_len=15, kv_len=4, head_dim=16, score_mod="causal",
                    data="steep", scale=0.951, seed=64)  # fmt: skip
    source = truth(given)
    kinds = [list(source.exact("dq", place))[-1].kind for place in range(0, 15 * 16, 16)]
    assert "either-zero" in kinds and set(kinds) <= {"either-zero", "real"}


def test_explain_names_the_terms() -> None:
    given = problem("float32", q_len=12, kv_len=12, mask_mod="causal", data="competing")
    source = truth(given)
    lines = dict(source.explain("out", 64 * 7 + 3))
    assert lines["query 7"] == "batch 0, head 0, column 3" and lines["hidden keys"] == "4"
    keys = [text for name, text in lines.items() if name.startswith("key ")]
    weights = [float(text.split("weight ")[1].split(",")[0]) for text in keys]
    assert len(keys) == 8 and sum(weights) == pytest.approx(1.0, abs=1e-7)
    (exact,) = (t for _, t in zip(range(1), source.exact("out", 64 * 7 + 3), strict=False))
    assert sum(map(term, keys)) == pytest.approx(float(exact.lo), rel=1e-6)
    assert "sees no key" in truth(problem("float32", mask_mod="masked_rows")).explain("logsumexp", 2)[1][0]


@pytest.mark.parametrize("output", ["out", "dq", "dk", "dv"])
def test_the_terms_sum_to_the_element(output: str) -> None:
    given = problem("float32", q_len=7, kv_len=9, kv_heads=1, score_mod="soft_cap", mask_mod="causal")
    source, place = truth(given), 64 * 4 + 5
    lines = dict(source.explain(output, place))
    sums = [float(text.split("sum to ")[1]) for name, text in lines.items() if name.startswith("further")]
    total = sum(term(text) for text in lines.values() if "term " in text) + sum(sums)
    (exact,) = (t for _, t in zip(range(1), source.exact(output, place), strict=False))
    assert total == pytest.approx(float(exact.lo), rel=1e-5)


def term(text: str) -> float:
    return float(text.split("term ")[1])


# Bounds


DESCRIPTORS = st.fixed_dictionaries(
    {
        "q_len": st.integers(1, 40), "kv_len": st.integers(1, 70), "head_dim": st.sampled_from((16, 64)),
        "score_mod": st.sampled_from(tuple(oracle.SCORE_MODS)), "mask_mod": st.sampled_from(tuple(oracle.MASK_MODS)),
        "data": st.sampled_from(tuple(RECIPES)), "heads": st.sampled_from((1, 2)), "kv_heads": st.just(1),
    }
)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    values=DESCRIPTORS, dtype=st.sampled_from(HALVES_AND_SINGLE), name=st.sampled_from(HOST), seed=st.integers(0, 99)
)
def test_honest_lowerings_keep_their_bounds(values: dict[str, Any], dtype: str, name: str, seed: int) -> None:
    given = problem(dtype, seed, **values)
    try:
        outputs = run(name, given)
    except NotLowered:
        assume(False)
    for output, (_, high) in shares(name, given, outputs).items():
        assert high <= 1, (output, high)
    assert set(outputs) >= {"out", "dq", "dk", "dv"}


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("data", RECIPES)
def test_a_lowering_of_ones_own_may_normalize_weights_first_or_last(data: str, dtype: str, backend: str) -> None:
    given = problem(dtype, data=data, batch=2, heads=2, q_len=5, kv_len=40, head_dim=16, mask_mod="causal")
    own = _flex_algorithms.algorithm_of("mine.py:f", backend, dtype, given.extra["shape"])
    either, first, last = (
        _flex_algorithms.bounds(given, dataclasses.replace(own, first=which)) for which in (own.first, True, False)
    )
    assert own.first is None
    for name, bound in either.items():
        widest = torch.maximum(first[name], last[name])
        assert bool((bound * (1 + 2**-40) >= widest).all()) and bool((bound <= widest * (1 + 2**-8)).all()), name


@pytest.mark.parametrize("dtype", HALVES_AND_SINGLE)
@pytest.mark.parametrize("data", RECIPES)
def test_the_same_code_without_a_defect_keeps_it(data: str, dtype: str) -> None:
    given = problem(dtype, q_len=37, kv_len=101, backward=False, data=data, mask_mod="causal")
    for output, (_, high) in shares("mine.py:attention", given, mutants.honest(given)).items():
        assert high <= 1, (output, high)


def test_a_planted_defect_fails_its_cell() -> None:
    """Through the engine: the status, the reason and the place."""
    own = setting("competing", q_len=20, kv_len=40, data="competing", backward=False)
    facts = dataclasses.replace(FACTS, settings=(own,))
    lowering = dataclasses.replace(
        _flex_lowerings.lowerings()[0], name="mine", build=lambda target: mutants.rounded_scores
    )
    found = cells(facts, own, lowering, "bfloat16", CPU)
    assert {c["output"]: c["status"] for c in found} == {"out": "exceeds-bound", "logsumexp": "exceeds-bound"}
    assert "share of the bound" in found[0]["reason"] and found[0]["error"]["undecided"] == 0


def test_constants_of_the_fast_exponential() -> None:
    """K of ATen's fexp_u20 on a grid; between two points of it 2^f - 1 - f + K moves by less than 2e-6 * 2."""
    f = np.linspace(0, 1, 500_001)
    c = [
        float(np.float32(x))
        for x in (0.00010703434948458272, 0.30354260500649682, -0.22433836478672356, -0.079204240219773236)
    ]
    exponent = f - (c[0] + f * (c[1] + f * (c[2] + f * c[3])))
    whole = np.floor(exponent)
    relative = 2.0**whole * (1 + exponent - whole) / 2.0**f - 1
    assert 1.0650e-4 < np.abs(relative).max() < 1.0652e-4 < _flex_algorithms.FEXP_U20
    assert abs(float(np.float32(1.44269504)) * math.log(2) - 1) <= _flex_algorithms.RCP_LN2


# Laws of attention, within the bounds


LAWS = st.fixed_dictionaries(
    {"q_len": st.integers(1, 20), "kv_len": st.integers(1, 40), "head_dim": st.just(16), "backward": st.just(False),
     "data": st.sampled_from(tuple(RECIPES))}
)  # fmt: skip


def part_of(given: Problem, **changes: Any) -> Problem:
    """The problem with other tensors, and a setting that fits them."""
    tensors = dict(given.tensors) | {k: v for k, v in changes.items() if k in given.tensors}
    shape = dataclasses.replace(
        given.extra["shape"], q_len=tensors["query"].shape[2], kv_len=tensors["key"].shape[2],
        **{k: v for k, v in changes.items() if k not in tensors},
    )  # fmt: skip
    facts = {f.name: getattr(shape, f.name) for f in dataclasses.fields(shape) if f.name != "function"}
    return Problem(tensors, facts, {}, given.dtype, given.extra | {"shape": shape, "limits": {}})


@settings(max_examples=20, deadline=None)
@given(values=LAWS, dtype=st.sampled_from(HALVES_AND_SINGLE), name=st.sampled_from(HOST[1:]), seed=st.integers(0, 99))
def test_rows_lie_in_the_hull_of_the_values(values: dict[str, Any], dtype: str, name: str, seed: int) -> None:
    given = problem(dtype, seed, mask_mod="causal", **values)
    out, bound = run(name, given)["out"].double(), bounds(name, given)["out"]
    for i in range(given.extra["shape"].q_len):
        seen = given.tensors["value"][:, :, : i + 1].double()
        assert bool((out[:, :, i] >= seen.amin(2) - bound[:, :, i]).all())
        assert bool((out[:, :, i] <= seen.amax(2) + bound[:, :, i]).all())


@settings(max_examples=20, deadline=None)
@given(values=LAWS, dtype=st.sampled_from(HALVES_AND_SINGLE), name=st.sampled_from(HOST[1:]), seed=st.integers(0, 99))
def test_the_order_of_keys_does_not_matter(values: dict[str, Any], dtype: str, name: str, seed: int) -> None:
    given = problem(dtype, seed, **values)
    order = torch.randperm(values["kv_len"], generator=torch.Generator().manual_seed(seed))
    other = part_of(given, key=given.tensors["key"][:, :, order], value=given.tensors["value"][:, :, order])
    far = (run(name, given)["out"].double() - run(name, other)["out"].double()).abs()
    assert bool((far <= bounds(name, given)["out"] + bounds(name, other)["out"]).all())


@settings(max_examples=20, deadline=None)
@given(values=LAWS, dtype=st.sampled_from(HALVES_AND_SINGLE), name=st.sampled_from(HOST[1:]), seed=st.integers(0, 99))
def test_masked_keys_are_as_removed(values: dict[str, Any], dtype: str, name: str, seed: int) -> None:
    given = problem(dtype, seed, mask_mod="causal", **values)
    row = min(values["q_len"], values["kv_len"]) - 1
    short = {k: given.tensors[k][:, :, : row + 1] for k in ("key", "value")}
    alone = part_of(given, query=given.tensors["query"][:, :, row : row + 1], mask_mod="none", **short)
    far = (run(name, given)["out"][:, :, row].double() - run(name, alone)["out"][:, :, 0].double()).abs()
    assert bool((far <= bounds(name, given)["out"][:, :, row] + bounds(name, alone)["out"][:, :, 0]).all())


@settings(max_examples=15, deadline=None)
@given(values=LAWS, dtype=st.sampled_from(HALVES_AND_SINGLE), name=st.sampled_from(HOST[1:]), seed=st.integers(0, 99))
def test_equal_scores_give_the_mean(values: dict[str, Any], dtype: str, name: str, seed: int) -> None:
    given = problem(dtype, seed, **values | {"data": "uniform"})
    mean = given.tensors["value"].double().mean(2, keepdim=True)
    far = (run(name, given)["out"].double() - mean).abs()
    assert bool((far <= bounds(name, given)["out"] + 1e-14).all())


# Lowerings


def test_the_operator_gives_what_the_public_function_gives() -> None:
    """On the CPU gradients come from the operator below flex_attention: the same output bits."""
    values = {"q_len": 33, "kv_len": 47, "heads": 2, "kv_heads": 1, "score_mod": "alibi", "mask_mod": "causal"}
    forward = run("eager", problem("bfloat16", **values, backward=False))
    both = run("eager", problem("bfloat16", **values))
    assert set(both) == set(FACTS.outputs) and set(forward) == {"out", "logsumexp"}
    assert all(torch.equal(forward[name], both[name]) for name in forward)


def test_compiled_on_the_cpu_gives_the_output_alone() -> None:
    given = problem("float32", q_len=19, kv_len=37, head_dim=16, mask_mod="causal", data="competing")
    outputs = run("compiled", given)
    assert set(outputs) == {"out"}
    assert shares("compiled", given, outputs)["out"][1] <= 1


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("values", [{"mask_mod": "document", "score_mod": "soft_cap", "heads": 2, "kv_heads": 1},
                                    {"mask_mod": "masked_rows", "score_mod": "relative_bias"}],
                         ids=["capped", "biased"])  # fmt: skip
def test_the_triton_kernels_keep_their_bounds(values: dict[str, Any], dtype: str) -> None:
    """Interpreted: forward and backward, lengths that are not multiples of the block."""
    pytest.importorskip("triton", reason="triton is not installed")
    given = problem(dtype, q_len=37, kv_len=41, head_dim=16, data="competing", **values)
    outputs = run("triton-interpreter", given)
    assert set(outputs) == set(FACTS.outputs)
    for output, (_, high) in shares("triton-interpreter", given, outputs).items():
        assert high <= 1, (output, high)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize(("kernel", "dtype", "precision"),
                         [("forward", "bf16", "ieee"), ("gradient_of_keys", "fp32", "ieee"),
                          ("forward", "fp32", "tf32")], ids=["forward", "keys", "tf32"])  # fmt: skip
def test_the_triton_kernels_compile(kernel: str, dtype: str, precision: str, target: str) -> None:
    triton = pytest.importorskip("triton", reason="triton is not installed")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from verify.kernels.triton import flex_attention as kernels

    where = {"sm_90": ("cuda", GPUTarget("cuda", 90, 32)), "gfx942": ("rocm", GPUTarget("hip", "gfx942", 64))}[target]
    options = backends.load(where[0]).triton_options("own")
    if precision == "tf32" and target == "gfx942":
        pytest.skip("gfx942 has no tf32 in Triton's dot")
    static = {"D": 64, "CAUSAL": False, "MOD": 3, "MASK": 3, "WINDOW": 20, "CAP": 50.0, "PRECISION": precision,
              "BLOCK_M": 32, "BLOCK_N": 32}  # fmt: skip
    function = getattr(kernels, kernel)
    names = [p.name for p in function.params]
    single = {"lse_ptr", "mean_ptr", "slopes_ptr", "bias_ptr"}
    kinds = {name: "constexpr" if name in static else "fp32" if name == "scale" else "i32" for name in names}
    kinds |= {
        n: "*i64" if "document" in n else "*fp32" if n in single else f"*{dtype}" for n in names if n.endswith("_ptr")
    }
    source = ASTSource(
        function, kinds, {(names.index(name),): value for name, value in static.items() if name in names}
    )
    code = triton.compile(source, target=where[1], options=dict(options)).asm  # type: ignore[arg-type]
    text = code.get("ptx") or code["amdgcn"]
    if target == "sm_90":
        assert ("tf32" in text) == (precision == "tf32") and ("mma" in text) == (dtype == "bf16" or precision == "tf32")


def test_tf32_is_named_or_its_absence_explained() -> None:
    host = {x.name: x for x in _flex_lowerings.lowerings()}
    target = Target(FACTS, {}, FACTS.settings[0].name, "float32", CPU)
    ran = _flex_lowerings.multiplied_in("cpu", "high", Shape.of(FACTS.settings[0].parameters))
    assert set(ran) <= {"ieee", "tf32", "bf16"}
    for name in ("eager-tf32", "compiled-tf32", "sdpa-math-tf32"):
        assert (host[name].reason(target) is None) == ("tf32" in ran)
    exact = {"scores_multiplied_in": "ieee", "values_multiplied_in": "ieee"}
    assert host["eager"].flags(target) == {"float32_matmul_precision": "highest", **exact}
    assert _flex_lowerings.template_precision("highest") == "ieee"
    half = dataclasses.replace(target, dtype="bfloat16")
    assert "float32 alone" in str(host["eager-tf32"].reason(half)) and host["eager"].flags(half) == {}
    before = torch.get_float32_matmul_precision()
    with _flex_lowerings.precision("high"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


# What a user gives


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"heads": "3", "kv_heads": "2"}, "heads=3 is not a multiple of kv_heads=2"),
        ({"kv_len": "0"}, "kv_len=0: expected at least 1"),
        ({"head_dim": "-4"}, "head_dim=-4: expected at least 1"),
        ({"length": "ten"}, "length=ten: expected a whole number"),
        ({"mask_mod": "casual"}, "did you mean causal?"),
        ({"data": "compete"}, "did you mean competing?"),
        ({"score_mod": "softcap"}, "did you mean soft_cap?"),
        ({"score_mod": "nowhere.py:mod"}, "nowhere.py does not exist"),
        ({"backward": "true"}, "expected yes or no"),
        ({"length": "1000000"}, "expected at most"),
    ],
    ids=lambda v: " ".join(f"{k}={x}" for k, x in v.items()) if isinstance(v, dict) else "",
)
def test_settings_of_ones_own_are_checked_first(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        custom(given)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_setting_of_ones_own_reads_back() -> None:
    own = custom({"heads": "4", "kv_heads": "2", "length": "33", "mask_mod": "causal", "backward": "no"})
    shape = Shape.of(own.parameters)
    assert (shape.heads, shape.kv_heads, shape.q_len, shape.kv_len, shape.backward) == (4, 2, 33, 33, False)
    assert custom(own_setting(own.name) or {}) == own
    assert set(shape.outputs) == {"out", "logsumexp"}


USER = """
def tilted(n, score, batch, head, query, key):
    return n.tanh(score / 20) * 20 - n.const("1/16") * n.index(query - key)

def wide(n, score, batch, head, query, key):
    import torch
    return score.to(torch.float64)

def whole(n, score, batch, head, query, key):
    return query - key

def broken(n, score, batch, head, query, key):
    return n.sqrt(score)

def outside(n, score, batch, head, query, key):
    return score.relu()

def short(n, score):
    return score
"""


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "mods.py"
    path.write_text(USER)
    return path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wide", "returned torch.float64 for float32 scores"),
        ("whole", "returned torch.int64 for float32 scores"),
        ("broken", "returned NaN for the score -200.0 at query 0, key 0"),
        ("outside", "in a number system: use n.const"),
        ("short", "takes (n, score); expected n, score, batch, head, query, key"),
        ("absent", "has no function 'absent'"),
    ],
)
def test_a_bad_score_mod_is_refused_before_anything_runs(own_file: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        custom({"score_mod": f"{own_file}:{name}"})
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_score_mod_of_ones_own_is_judged(own_file: Path, dtype: str) -> None:
    """One text is the truth, the bound and what runs; its derivative follows."""
    given = _flex.problem(dtype, custom({"score_mod": f"{own_file}:tilted", "q_len": "9", "kv_len": "14"}), {}, 0)
    lowering = _flex_lowerings.lowerings()[0]
    with torch.no_grad():
        outputs = lowering.build(Target(FACTS, {}, FACTS.settings[0].name, dtype, CPU))(given)  # type: ignore[arg-type]
    for output, (_, high) in shares("eager", given, outputs).items():  # type: ignore[arg-type]
        assert high <= 1, (output, high)
    with pytest.raises(NotLowered, match="is not a sum"):
        _flex_lowerings._mask(given)


# A GPU


def gpu() -> Any:
    return next(b for b in map(backends.load, backends.names()) if b.name != "cpu" and not b.unavailable())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES_AND_SINGLE)
def test_every_lowering_of_a_gpu_keeps_its_bound(dtype: str) -> None:
    where, ran = gpu(), 0
    for own in (
        setting("test", q_len=70, kv_len=150, data="competing"),
        setting("test", q_len=33, kv_len=33, score_mod="soft_cap", mask_mod="causal", data="competing"),
    ):
        facts = dataclasses.replace(FACTS, settings=(own,))
        target = Target(facts, {}, own.name, dtype, where)
        for lowering in _flex_lowerings.lowerings():
            if lowering.reason(target) is None:
                for found in cells(facts, own, lowering, dtype, where):
                    expected = {"passed", "not-run", "unjudged"}  # other settings resolve what this one does not
                    assert found["status"] in expected or found["allowance"], (lowering.name, found["reason"])
                    ran += found["status"] == "passed"
    assert ran >= 20


@pytest.mark.exhaustive  # half a minute
def test_an_allowance_is_for_the_outputs_that_it_names() -> None:
    """Where gradients that are added up in the half type do not resolve, the output still does."""
    selection = Selection(
        ("flex_attention",), ("cpu",), ("bfloat16",), ("sdpa-flash",), spellings=("exact",), profile="quick"
    )
    found = {
        one["output"]: (one["status"], one["allowance"])
        for one in runs.run(selection)["cells"]
        if one["output"] != "logsumexp"
    }
    allowed = ("unjudged", "flash-gradients-in-half-types")
    assert found == {"out": ("passed", ""), "dq": allowed, "dk": allowed, "dv": allowed}


@pytest.mark.gpu
def test_tf32_on_a_gpu_is_named_and_exceeds_the_bound_of_float32() -> None:
    where, given = gpu(), problem("float32", q_len=64, kv_len=128, data="competing", backward=False)
    own = setting("test", **given.parameters)
    target = Target(dataclasses.replace(FACTS, settings=(own,)), {}, "test", "float32", where)
    named = {x.name: x for x in _flex_lowerings.lowerings()}
    if (why := named["eager-tf32"].reason(target)) is not None:
        pytest.skip(why)
    flags = named["eager-tf32"].flags(target)
    assert "tf32" in (flags["scores_multiplied_in"], flags["values_multiplied_in"])
    found = {}
    for name in ("eager", "eager-tf32"):
        with torch.no_grad():
            outputs: Any = named[name].build(target)(given.to(where.device))  # type: ignore[arg-type]
        found[name] = shares("eager", given, {key: y.cpu() for key, y in outputs.items()}, where.name)
    assert all(high <= 1 for _, high in found["eager"].values()), found
    assert max(low for low, _ in found["eager-tf32"].values()) > 1, found


# Formulas of its products


def of_a_score(given: Problem, unit: units.Unit, what: str) -> Tensor:
    """The logsumexp of queries that one key outweighs, by a matrix unit."""
    query, key = given.tensors["query"], given.tensors["key"]
    s = torch.stack([unit.matmul(q, k[:1].mT) for q, k in zip(query[0], key[0], strict=True)])[None, ..., 0]
    scaled, log2 = s * given.extra["shape"].scale, math.log(2)
    return {"after": scaled, "by log 2": scaled / log2 * log2, "in base 2": scaled * 1.44269504 * log2}[what]


def told(given: Problem, output: str, y: Tensor, backend: Any = CPU) -> list[str]:
    """Formulas that explain all of an output."""
    found = _flex_formulas.searched(given, backend, output, y)
    return [text for text, make in found.items() if torch.equal(make().reshape(-1), y.reshape(-1))]


@dataclasses.dataclass(frozen=True)
class Hopper:
    name: str = "cuda"

    def capability(self) -> str:
        return "sm_90"


@pytest.mark.part(2)
@pytest.mark.parametrize("what", ["after", "by log 2", "in base 2"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_product_of_queries_and_keys_is_named(dtype: str, what: str) -> None:
    """Of a GPU's matrix unit, with what is done to scores; a unit that differs from it in one number is not, but where
    that makes it another one that is known."""
    given, unit = problem(dtype, data="alone", q_len=60, kv_len=9, backward=False), units.unit("hopper", dtype)
    [text] = told(given, "logsumexp", of_a_score(given, unit, what), Hopper())
    assert text == f"score: hopper {dtype}: one chain; {products_formulas.EPILOGUES[what]}"
    others: tuple[dict[str, Any], ...] = ({"fraction": 24}, {"fraction": 26}, {"terms": 4}, {"kept": 22})
    for changes in others:
        wrong = of_a_score(given, dataclasses.replace(unit, **changes), what)
        assert told(given, "logsumexp", wrong, Hopper()) == []
    shorter = of_a_score(given, dataclasses.replace(unit, terms=8), what)
    [text] = told(given, "logsumexp", shorter, Hopper())
    assert text == f"score: hopper {dtype} m16n8k8: one chain; {products_formulas.EPILOGUES[what]}"


@pytest.mark.parametrize("name", HOST)
def test_what_the_host_computes_is_named(name: str) -> None:
    """In float32, where every product that an output shows is a chain of fused multiply-adds, in pieces or not."""
    given = problem("float32", data="uniform", q_len=60, kv_len=32)
    found = run(name, given)
    for output, what in (("out", "weights times values"), ("dv", "weights times grad_out")):
        texts = told(given, output, found[output])
        # products by a weight of 1/32 are exact, so that none tells whether they are fused
        assert texts and all(text.startswith(f"{what}: scalar float32") for text in texts), (output, texts)
        assert told(given, output, found[output].flip(-1)) == []
    one = problem("float32", data="alone", q_len=60, kv_len=9, backward=False)
    y = run(name, one).get("logsumexp")
    if y is not None:  # as torch/_higher_order_ops/flex_attention.py has it
        after = products_formulas.EPILOGUES["by log 2"]
        [text] = told(one, "logsumexp", y)  # one chain on Intel's processors, parts of vectors on AMD's
        assert text.startswith("score: scalar float32") and text.endswith(f"; {after}")


@pytest.mark.parametrize(
    "values",
    [
        {"data": "normal"},
        {"data": "uniform", "kv_len": 33},
        {"data": "uniform", "mask_mod": "causal"},
        {"data": "uniform", "heads": 4, "kv_heads": 2},
        {"data": "alone", "score_mod": "alibi"},
    ],
)
def test_outputs_that_are_no_product_have_no_formula(values: dict[str, Any]) -> None:
    given = problem("float32", **{"q_len": 20, "kv_len": 32} | values)
    for output, size in given.extra["shape"].outputs.items():
        assert _flex_formulas.searched(given, CPU, output, torch.zeros(size)) == {}, output


def test_every_two_options_meet_in_a_problem_that_lowerings_are_called_with() -> None:
    tried = [given for given, _ in FACTS.further]
    for first, second in itertools.combinations(OPTIONS, 2):
        for a, b in itertools.product(first, second):
            absent = {k for kind, one in ((first, a), (second, b)) for other in kind for k in other} - {*a, *b}
            assert any(a.items() <= one.items() and b.items() <= one.items() and not absent & {*one} for one in tried)


def test_the_precision_of_products_is_put_back() -> None:
    """Else a function of a file differs from what it is in a process of its own, and is judged in the caller's."""
    with switches.fresh():
        before = switches.read()
        for name in ("high", "highest"):
            with _flex_lowerings.precision(name):
                assert torch.get_float32_matmul_precision() == name and switches.read() != before
            assert switches.read() == before
