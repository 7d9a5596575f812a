"""`verify.judge.tally`: a commutative monoid to the byte, whatever the order and the grouping."""

from __future__ import annotations

import json
import math
import random
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.judge.reduce import COUNTED, LEADERS, METRICS
from verify.judge.regions import REGIONS
from verify.judge.status import FAILURES
from verify.judge.tally import Binade, Element, Fit, InRegion, Lean, Tally, leading, restored, root, total
from verify.numbers.decide import BINS
from verify.numbers.ulp import CLASSES

IDS = ("first-entry", "second-entry")
TEXTS = ("fma(a, b, c)", "a + rn(b * c)")


def element(rng: random.Random, chunk: int) -> Element:
    """An index belongs to one chunk, and decides the element."""
    index = chunk * 100 + rng.randrange(50)
    return Element(index, (index % 7, index % 11), index % 13)


def region(rng: random.Random, chunk: int) -> InRegion:
    """Counts, maxima with ties, shared witnesses."""
    values = [rng.choice([0.5, 1.0, 1.5, 0.1 + 0.2, 2.0**-1074, rng.uniform(0, 4)]) for _ in range(rng.randrange(7))]
    return InRegion(
        counts={name: rng.randrange(-(2**70) if name == "sum_signed" else 0, 2**40) for name in COUNTED},
        undecided=rng.randrange(3),
        mp=rng.randrange(9),
        histogram=tuple(rng.randrange(2**20) for _ in BINS),
        steps=rng.randrange(4),
        leaders=tuple(leading((v, element(rng, chunk)) for v in values) for _ in METRICS),
        fails={kind: rng.randrange(1, 9) for kind in FAILURES if rng.random() < 0.3},
        lost={kind: rng.randrange(1, 9) for kind in FAILURES if rng.random() < 0.3},
        deviates={(i, kind): rng.randrange(1, 9) for i in IDS for kind in FAILURES if rng.random() < 0.2},
        witnesses={name: element(rng, chunk) for name in (*FAILURES, *IDS) if rng.random() < 0.3},
    )


def lean(rng: random.Random) -> Lean:
    return Lean(rng.randrange(9), rng.randrange(-9, 9), rng.randrange(-9, 9), rng.randrange(9))


@st.composite
def parts(draw: st.DrawFn) -> list[Tally]:
    """Tallies of different chunks."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    found = []
    for chunk in range(draw(st.integers(0, 6))):
        exponents = rng.sample(range(-5, 5), rng.randrange(4))
        found.append(
            Tally(
                regions={name: region(rng, chunk) for name in rng.sample(REGIONS, rng.randrange(4))},
                binades={e: Binade(*(rng.randrange(9) for _ in range(4)), -rng.randrange(9)) for e in exponents},
                formulas={
                    text: Fit(
                        count, element(rng, chunk) if count else None, rng.randrange(3), rng.random() < 0.5, lean(rng)
                    )
                    for text in TEXTS
                    if (count := rng.randrange(4)) or rng.random() < 0.5
                },
                digests=((chunk, rng.randrange(2**64)),),
                input_digests=((chunk, rng.randrange(2**64)),),
                sums={chunk // 2: rng.randrange(2**64)},
            )
        )
    return found


def grouped(pieces: list[Tally], rng: random.Random) -> Tally:
    """Any order and any binary tree."""
    pool = [*pieces, Tally()]
    while len(pool) > 1:
        a, b = (pool.pop(rng.randrange(len(pool))) for _ in range(2))
        pool.append(a + b)
    return pool[0]


@given(parts(), st.integers(0, 2**32))
def test_any_order_and_grouping_gives_the_same_bytes(pieces: list[Tally], seed: int) -> None:
    rng = random.Random(seed)
    first = total(pieces).to_bytes()
    for _ in range(3):
        assert grouped(pieces, rng).to_bytes() == first


@given(parts())
def test_the_merged_tally_is_the_sum_and_maximum_of_its_parts(pieces: list[Tally]) -> None:
    merged = total(pieces)
    for name in REGIONS:
        own = [p.regions[name] for p in pieces if name in p.regions]
        one = merged[name]
        assert (name in merged.regions) == bool(own)
        assert all(one.counts.get(c, 0) == sum(p.counts[c] for p in own) for c in COUNTED)
        assert one.inputs == sum(p.inputs for p in own)
        assert (one.undecided, one.mp) == (sum(p.undecided for p in own), sum(p.mp for p in own))
        assert one.steps == max((p.steps for p in own), default=0)
        assert one.histogram == tuple(sum(p.histogram[k] for p in own) for k in range(len(BINS)))
        for k in range(len(METRICS)):
            everything = sorted((leader for p in own for leader in p.leaders[k]), key=lambda w: (-w[0], w[1].index))
            assert list(one.leaders[k]) == everything[:LEADERS]
        for part in ("fails", "lost", "deviates"):
            keys = {key for p in own for key in getattr(p, part)}
            assert dict(getattr(one, part)) == {key: sum(getattr(p, part).get(key, 0) for p in own) for key in keys}
        for what, witness in one.witnesses.items():
            assert witness.index == min(p.witnesses[what].index for p in own if what in p.witnesses)
    for text, fit in merged.formulas.items():
        fits = [p.formulas[text] for p in pieces if text in p.formulas]
        assert (fit.mismatches, fit.lost) == (sum(f.mismatches for f in fits), sum(f.lost for f in fits))
        indices = [f.witness.index for f in fits if f.witness]
        assert (fit.witness.index if fit.witness else None) == min(indices, default=None)
    assert [k for k, _ in merged.digests] == sorted(k for p in pieces for k, _ in p.digests)
    for exponent, binade in merged.binades.items():
        shares = [p.binades[exponent] for p in pieces if exponent in p.binades]
        assert binade.sum_signed == sum(b.sum_signed for b in shares)
        assert binade.maximum == max(b.maximum for b in shares)
    whole = merged.whole
    assert whole.inputs == sum(one.inputs for one in merged.regions.values())


@given(parts())
def test_the_empty_tally_is_the_identity(pieces: list[Tally]) -> None:
    for piece in pieces:
        assert (piece + Tally()).to_bytes() == (Tally() + piece).to_bytes() == total([piece]).to_bytes()
        assert piece + Tally() == Tally() + piece == piece


def full_region() -> InRegion:
    return InRegion(
        counts=dict.fromkeys(COUNTED, 1), undecided=1, mp=1, histogram=(1,) * len(BINS), steps=1,
        leaders=(((1.0, Element(1)),),) * len(METRICS), fails={"bound": 1}, lost={"nan": 1},
        deviates={("id", "flush"): 1}, witnesses={"bound": Element(1)},
    )  # fmt: skip


def full() -> Tally:
    fit = Fit(1, Element(1), 1, True, Lean(1, 1, 1, 1))
    return Tally({"normal": full_region()}, {0: Binade(1, 1, 1, 1, 1)}, {"f": fit},
                 ((0, 1),), ((0, 1),), {0: 1})  # fmt: skip


@given(parts(), st.booleans())
def test_a_record_is_the_tally_again(pieces: list[Tally], beyond: bool) -> None:
    """As it comes back from a journal, an infinite share of a bound of 0 included."""
    more = Tally({"normal": InRegion(leaders=((), (), ((math.inf, Element(3)),)))}) if beyond else Tally()
    one = total([*pieces, more])
    again = restored(json.loads(json.dumps(one.record(), allow_nan=False)))
    assert again == one and again.to_bytes() == one.to_bytes() and list(again.regions) == list(one.regions)


@pytest.mark.parametrize(("make", "empty"), [(full, Tally()), (full_region, InRegion())])
def test_every_field_is_merged_and_in_the_bytes(make: object, empty: object) -> None:
    """A field added and forgotten in the sum would be dropped without a word."""
    one = make()  # type: ignore[operator]
    merged = empty + one
    for f in fields(one):
        assert getattr(merged, f.name) == getattr(one, f.name) != getattr(empty, f.name), f.name
    told = json.loads(full().to_bytes())
    assert set(told) == {f.name for f in fields(Tally)}
    assert set(told["regions"]["normal"]) == {f.name for f in fields(InRegion)}
    assert set(told["formulas"]["f"]) == {f.name for f in fields(Fit)}
    assert set(told["binades"]["0"]) == {f.name for f in fields(Binade)}


def test_the_bytes_tell_an_entry_from_its_kind() -> None:
    """Ids and kinds are a pair in `deviates`, and stay one in the bytes."""
    a = Tally({"normal": InRegion(deviates={("x", "bound"): 1, ("x", "nan"): 2})})
    b = Tally({"normal": InRegion(deviates={("x", "bound"): 2, ("x", "nan"): 1})})
    assert a.to_bytes() != b.to_bytes()


@pytest.mark.parametrize("field", ["digests", "input_digests"])
def test_the_same_chunk_twice_is_refused(field: str) -> None:
    one, other = Tally(**{field: ((3, 17),)}), Tally(**{field: ((2, 1), (3, 17))})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="same chunk"):
        one + other
    with pytest.raises(ValueError, match="same chunk"):
        one + one


def test_leaders_are_ordered_by_value_and_then_by_index() -> None:
    one = leading([(1.0, Element(7)), (2.0, Element(90)), (1.0, Element(2)), (0.5, Element(1))])
    assert [(v, e.index) for v, e in one] == [(2.0, 90), (1.0, 2), (1.0, 7), (0.5, 1)]
    assert len(leading((1.0, Element(k)) for k in range(3 * LEADERS))) == LEADERS


def test_means_are_of_the_measured_elements() -> None:
    one = InRegion({"correct": 6, "worse": 4, "measured": 4, "sum": 3 * 65536, "sum_signed": -65536})
    assert (one.mean_ulp, one.bias_ulp, one.misrounded, one.inputs) == (0.75, -0.25, 4, 10)
    assert (InRegion().mean_ulp, InRegion().bias_ulp) == (0.0, 0.0)


def test_what_is_undecided_is_counted_among_the_inputs() -> None:
    one = InRegion({"correct": 3, "worse": 1}, undecided=2)
    assert one.inputs == 6 and one.misrounded == 3
    assert {*CLASSES} <= {*COUNTED}


def test_the_root_depends_on_chunk_numbers_and_digests() -> None:
    roots = {root(d) for d in ((), ((0, 1),), ((1, 1),), ((0, 2),), ((0, 1), (1, 1)))}
    assert len(roots) == 5
