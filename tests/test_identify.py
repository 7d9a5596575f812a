"""Identification: identified, ambiguous or none, and the inputs that say so."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import pytest
import torch

from verify.facts.formats import FORMATS
from verify.facts.kernel import elementwise
from verify.facts.oracle import Formula, formula, written
from verify.judge.chunk import differing, patterns
from verify.judge.identify import Identification, Probe, candidates, identify, predict, probing
from verify.judge.reduce import first_of
from verify.judge.tally import Element, Fit, Tally, total

Tensor = torch.Tensor
SINGLE = FORMATS["float32"]


@formula("a + b c, each rounded")
def separate(n: Any, a: Any, b: Any, c: Any) -> Any:
    return a + b * c


@formula("c b + a, each rounded")
def turned(n: Any, a: Any, b: Any, c: Any) -> Any:
    return c * b + a


@formula("fma(b, c, a)")
def fused(n: Any, a: Any, b: Any, c: Any) -> Any:
    return n.fma(b, c, a)


@formula("a - b c")
def wrong(n: Any, a: Any, b: Any, c: Any) -> Any:
    return a - b * c


ALL: tuple[Formula, ...] = (separate, turned, fused, wrong)
NAMES = ("a", "b", "c")


def fits(y: Tensor, inputs: tuple[Tensor, ...], start: int = 0, formulas: Sequence[Formula] = ALL) -> dict[str, Fit]:
    found = {}
    for text, expected in predict(tuple(formulas), SINGLE, NAMES, inputs, {}).items():
        differs = differing(expected, y)
        k = first_of(differs)
        key = tuple(patterns(t[k : k + 1], SINGLE)[0] for t in inputs) if k >= 0 else ()
        found[text] = Fit(int(differs.sum()), Element(start + k, key) if k >= 0 else None)
    return found


def numbers(count: int, whole: bool) -> tuple[Tensor, ...]:
    """Small integers, on which nothing rounds, or full significands."""
    generator = torch.Generator().manual_seed(3)
    if whole:
        return tuple(torch.randint(-50, 50, (count,), generator=generator).float() for _ in range(3))
    return tuple(torch.randn(count, generator=generator) for _ in range(3))


probes = probing(ALL, SINGLE, NAMES, {}, "cpu")


def test_one_formula_in_two_spellings_is_identified() -> None:
    a, b, c = inputs = numbers(500, whole=False)
    found = identify(fits(a + b * c, inputs), probes)
    assert found.survivors == (separate.text, turned.text)
    assert found.identified == separate.text and not found.ambiguous and not found.apart
    record = found.record(SINGLE)
    assert set(record["witnesses"]) == {fused.text, wrong.text}  # against every rival that is another formula
    assert record["mismatches"][separate.text] == 0 and record["mismatches"][fused.text] > 50
    for text, other in ((fused.text, fused), (wrong.text, wrong)):
        x = tuple(torch.tensor([float.fromhex(h)]) for h in record["witnesses"][text])
        assert predict((other,), SINGLE, NAMES, x, {})[text] != x[0] + x[1] * x[2]


def test_a_domain_that_rounds_nothing_leaves_it_ambiguous() -> None:
    a, b, c = inputs = numbers(500, whole=True)
    found = identify(fits(a + b * c, inputs), probes)
    assert found.survivors == found.ambiguous == (separate.text, turned.text, fused.text)
    assert found.identified is None and list(found.apart) == [fused.text]
    record = found.record(SINGLE)
    assert (record["identified"], record["ambiguous"]) == (None, list(found.ambiguous))
    x = tuple(torch.tensor([float.fromhex(h)]) for h in record["witnesses"][fused.text])
    predicted = predict((separate, fused), SINGLE, NAMES, x, {})
    assert predicted[separate.text] != predicted[fused.text]  # what the domain lacks


def test_none() -> None:
    a, b, c = inputs = numbers(500, whole=False)
    found = identify(fits(a * b * c, inputs), probes)
    assert (found.survivors, found.ambiguous, found.identified) == ((), (), None)
    assert len(found.record(SINGLE)["witnesses"]) == len(ALL)


def test_one_survivor_needs_no_probe() -> None:
    a, b, c = inputs = numbers(500, whole=False)

    def asked(texts: Sequence[str]) -> Iterable[Probe]:
        raise AssertionError("asked for other inputs")

    assert identify(fits(a + b * c, inputs, formulas=(separate, fused)), asked).identified == separate.text


def test_several_survivors_are_ambiguous_where_other_inputs_cannot_be_had() -> None:
    a, b, c = inputs = numbers(500, whole=True)
    found = identify(fits(a + b * c, inputs))
    assert found.ambiguous and not found.identified and not found.apart


def test_all_inputs_leave_no_doubt() -> None:
    found = identify({"f": Fit(), "g": Fit(), "h": Fit(3, Element(2, (5,)))}, lambda texts: ())
    assert (found.identified, found.ambiguous, found.survivors) == ("f", (), ("f", "g"))
    assert found.record(SINGLE)["witnesses"] == {"h": [SINGLE.hex(5)]}
    assert identify({}).record(SINGLE)["identified"] is None


def test_parts_merge_to_the_same_in_any_order_and_grouping() -> None:
    inputs = numbers(600, whole=False)
    y = torch.where(torch.arange(600) % 97 == 13, inputs[0], inputs[0] + inputs[1] * inputs[2])
    cuts = [0, 100, 101, 350, 350, 590, 600]
    parts = [
        Tally(formulas=fits(y[low:high], tuple(t[low:high] for t in inputs), low))
        for low, high in itertools.pairwise(cuts)
    ]
    whole = Tally(formulas=fits(y, inputs))
    for seed in range(20):
        order = random.Random(seed).sample(parts, len(parts))
        for merged in (reduce(Tally.__add__, order, Tally()), total(order)):
            assert merged.to_bytes() == whole.to_bytes()
            assert identify(merged.formulas, probes).record(SINGLE) == identify(whole.formulas, probes).record(SINGLE)
    assert whole.formulas[separate.text].witness == Element(13, tuple(patterns(t[13:14], SINGLE)[0] for t in inputs))
    with pytest.raises(AttributeError):
        identify(whole.formulas).fits = {}  # type: ignore[misc]


def test_nans_tell_nothing_apart() -> None:
    def one(predictions: Mapping[str, Tensor]) -> Callable[[Sequence[str]], list[Probe]]:
        return lambda texts: [Probe(predictions, (torch.tensor([1.0, 2.0]),))]

    nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    found = identify({"f": Fit(), "g": Fit()}, one({"f": nan, "g": torch.full((2,), torch.nan)}))
    assert found.identified == "f"
    zeros = identify({"f": Fit(), "g": Fit()}, one({"f": torch.zeros(2), "g": torch.tensor([0.0, -0.0])}))
    assert zeros.ambiguous == ("f", "g") and zeros.record(SINGLE)["witnesses"] == {"g": ["0x1p+1"]}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["addcmul", "lerp", "div"])
def test_probes_of_kernels_round(name: str, dtype: str) -> None:
    """Formulas that are told apart by nothing but these inputs are told apart."""
    fmt, kernel = FORMATS[dtype], elementwise(name)
    scalars = dict(kernel.cases[0])
    formulas = candidates(kernel.oracle, scalars, fmt)
    names = kernel.tensors(scalars)
    blank = {f.text: Fit() for f in formulas}
    found = identify(blank, probing(formulas, fmt, names, scalars, "cpu"))
    assert isinstance(found, Identification)
    drawn = list(probing(formulas, fmt, names, scalars, "cpu")([f.text for f in formulas]))
    assert all(t.dtype == getattr(torch, dtype) for probe in drawn for t in probe.inputs)
    near = drawn[1].inputs[0].double().abs()
    assert 2.0**-4 <= near.min() < near.max() < 2.0**4 and len(near.unique()) > 1000
    assert bool(found.ambiguous) == (len(formulas) > 1)
    for text, key in found.apart.items():
        x = tuple(torch.tensor([fmt.to_float(k)], dtype=torch.float64).to(near.dtype) for k in key)
        given = predict(formulas, fmt, names, tuple(t.to(getattr(torch, dtype)) for t in x), scalars)
        first = given[found.survivors[0]]
        assert bool(differing(given[text], first).all())


def test_a_scalar_rounded_to_float32_is_told_from_a_double() -> None:
    a, b = (torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) for k in (1, 2))
    rounded = float(torch.tensor(0.3, dtype=torch.float32))
    oracle = elementwise("add").oracle
    fmt, scalars = FORMATS["float64"], {"alpha": 0.3}
    found = predict(candidates(oracle, scalars, fmt), fmt, ("a", "b"), (a, b), scalars)
    assert torch.equal(found["a + single(alpha)*b"], a + rounded * b)
    assert torch.equal(found["a + alpha*b"], a + 0.3 * b)
    assert not torch.equal(found["a + single(alpha)*b"], found["a + alpha*b"])
    for dtype, alpha in (("float64", -2.5), ("float32", 0.3), ("float16", 0.3)):
        texts = [f.text for f in candidates(oracle, {"alpha": alpha}, FORMATS[dtype])]
        assert texts and not any("single(" in text for text in texts)


def test_an_integer_as_a_divisor_is_a_number() -> None:
    """1 / 0 is infinite in a formula, as it is in a kernel that takes the integer 0 for b."""
    x = torch.tensor([1.0, -2.0])
    (found,) = predict((written("a * (1/b)"),), FORMATS["float32"], ("a",), (x,), {"b": 0}).values()
    assert torch.equal(found, x * torch.inf)
