"""`verify.tally`: a commutative monoid to the byte, whatever the order and the grouping."""

from __future__ import annotations

import json
import random
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.decide import BINS
from verify.tally import WORST, Binade, Tally, Worst, root, total
from verify.ulp import CLASSES

ADDED = (
    "inputs", *CLASSES, "undecided", "measured", "clamped", "sum", "sum_signed",
    "different", "closer", "farther", "tied", "mp_elements", "infinite",
)  # fmt: skip
LARGEST = ("max_ulp", "max_scaled", "max_int")


@st.composite
def parts(draw: st.DrawFn) -> list[Tally]:
    """Tallies of different chunks: counts, maxima with ties, worst elements of equal errors, shared binades."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    found = []
    for chunk in range(draw(st.integers(0, 7))):
        errors = [
            rng.choice([0.5, 1.0, 1.5, 0.1 + 0.2, 2.0**-1074, rng.uniform(0, 4)]) for _ in range(rng.randrange(7))
        ]
        worst = [
            Worst(e, chunk * 100 + rng.randrange(50), (rng.randrange(9),), 1, "0.1", rng.choice([0.25, 0.5, 3.0]))
            for e in errors
        ]
        scaled = sorted(worst, key=lambda w: w.order_scaled)[:1]
        worst.sort(key=lambda w: w.order)
        binades = tuple(
            (e, Binade(rng.randrange(9), rng.randrange(9), rng.randrange(9), rng.randrange(9), -rng.randrange(9)))
            for e in sorted(rng.sample(range(-5, 5), rng.randrange(4)))
        )
        found.append(
            Tally(
                **{name: rng.randrange(2**40) for name in ADDED if name != "sum_signed"},
                sum_signed=rng.randrange(-(2**70), 2**70),
                histogram=tuple(rng.randrange(2**20) for _ in BINS),
                max_ulp=max(errors, default=0.0),
                worst_scaled=tuple(scaled),
                max_scaled=rng.choice([0.0, 0.5, rng.random()]),
                max_int=rng.randrange(4),
                worst=tuple(worst[:WORST]),
                witnesses=tuple((name, rng.choice(worst)) for name in ("flushed", "zero_sign") if worst),
                binades=binades,
                digests=((chunk, rng.randrange(2**64)),),
                input_digests=((chunk, rng.randrange(2**64)),),
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
    for name in ADDED:
        assert getattr(merged, name) == sum(getattr(p, name) for p in pieces)
    for name in LARGEST:
        assert getattr(merged, name) == max((getattr(p, name) for p in pieces), default=0)
    assert merged.histogram == tuple(sum(p.histogram[k] for p in pieces) for k in range(len(BINS)))
    everything = sorted((w for p in pieces for w in p.worst), key=lambda w: (-w.ulp, w.index))
    assert [(w.ulp, w.index) for w in merged.worst] == [(w.ulp, w.index) for w in everything[:WORST]]
    for name, one in merged.witnesses:
        assert one.index == min(w.index for p in pieces for n, w in p.witnesses if n == name)
    assert [k for k, _ in merged.digests] == sorted(k for p in pieces for k, _ in p.digests)
    for exponent, binade in merged.binades:
        shares = [b for p in pieces for e, b in p.binades if e == exponent]
        assert binade.sum_signed == sum(b.sum_signed for b in shares)
        assert binade.maximum == max(b.maximum for b in shares)
    assert [e for e, _ in merged.binades] == sorted({e for p in pieces for e, _ in p.binades})


@given(parts())
def test_the_empty_tally_is_the_identity(pieces: list[Tally]) -> None:
    for piece in pieces:
        assert piece + Tally() == Tally() + piece == piece
        assert (piece + Tally()).to_bytes() == piece.to_bytes()


@given(parts())
def test_bytes_tell_every_field(pieces: list[Tally]) -> None:
    """No field is left out, so that a changed one changes the bytes."""
    for piece in pieces:
        assert set(json.loads(piece.to_bytes())) == {f.name for f in fields(Tally)}
        assert replace(piece, max_ulp=piece.max_ulp + 1).to_bytes() != piece.to_bytes()
        assert replace(piece, inputs=piece.inputs + 1).to_bytes() != piece.to_bytes()


def test_every_field_is_merged() -> None:
    """A field added to Tally and forgotten in `merge` would be dropped without a word."""
    one = Tally(
        **dict.fromkeys(ADDED, 1), histogram=(1,) * len(BINS), max_ulp=1.0, max_scaled=1.0, max_int=1,
        worst=(Worst(1.0, 1),), worst_scaled=(Worst(1.0, 1, scaled=0.5),), witnesses=(("worse", Worst(1.0, 1)),),
        binades=((0, Binade(1)),), digests=((0, 1),), input_digests=((0, 1),),
    )  # fmt: skip
    merged, empty = Tally() + one, Tally()
    for f in fields(Tally):
        assert getattr(merged, f.name) == getattr(one, f.name) != getattr(empty, f.name)


@pytest.mark.parametrize("field", ["digests", "input_digests"])
def test_the_same_chunk_twice_is_refused(field: str) -> None:
    one, other = Tally(**{field: ((3, 17),)}), Tally(**{field: ((2, 1), (3, 17))})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="same chunk"):
        one + other
    with pytest.raises(ValueError, match="same chunk"):
        one + one


def test_worst_elements_are_ordered_by_error_and_then_by_index() -> None:
    one = Tally(worst=tuple(Worst(1.0, k) for k in (5, 7)))
    other = Tally(worst=(Worst(2.0, 90), Worst(1.0, 2), Worst(0.5, 1)))
    assert [(w.ulp, w.index) for w in (one + other).worst] == [(2.0, 90), (1.0, 2), (1.0, 5), (1.0, 7), (0.5, 1)]
    assert len((one + other + Tally(worst=(Worst(3.0, 99),))).worst) == WORST


def test_means_are_of_the_measured_elements() -> None:
    tally = Tally(inputs=10, correct=6, measured=4, sum=3 * 65536, sum_signed=-65536)
    assert (tally.mean_ulp, tally.bias_ulp, tally.misrounded) == (0.75, -0.25, 4)
    assert (Tally().mean_ulp, Tally().bias_ulp) == (0.0, 0.0)


def test_classes_that_do_not_partition_the_inputs_are_an_error() -> None:
    Tally(inputs=3, correct=1, worse=1, undecided=1).check()
    with pytest.raises(AssertionError, match="3 of 4"):
        Tally(inputs=4, correct=1, worse=1, undecided=1).check()


def test_the_root_depends_on_chunk_numbers_and_digests() -> None:
    roots = {root(d) for d in ((), ((0, 1),), ((1, 1),), ((0, 2),), ((0, 1), (1, 1)))}
    assert len(roots) == 5
