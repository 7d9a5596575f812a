"""The tests of the walk: every planted error must be caught on the default domain of its kernel, or a test fails.

Errors planted in the truth itself are in test_oracles.py (the shared expression) and test_check.py (a ball function).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from mutants.boxes import kill_rate, random_boxes
from mutants.planted import MUTANTS, Kept, Mutant, caught, cell, cells, differing, domain, flush, next_up
from verify import kernel
from verify.domains import domain_of
from verify.formats import FORMATS
from verify.kernel import Scalars
from verify.lowerings import EAGER, Call


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{m.kernel}: {m.name}" for m in MUTANTS])
def test_no_mutant_survives(mutant: Mutant) -> None:
    assert caught(mutant), f"{mutant.kernel}: {mutant.name} survives its default domain"


def test_a_kernel_that_is_right_is_not_caught() -> None:
    """Else the test above would pass whatever the walk says. The original as a user's own, on a mutant's elements."""
    mutant = next(m for m in MUTANTS if m.kernel == "div")
    on = differing(mutant)
    assert on is not None
    same = replace(mutant, spoil=lambda original: original)
    assert differing(same) is None
    mine, original = cells(same, on)
    assert mine["status"] == original["status"] == "passed"
    assert mine["formula"] == original["formula"] and mine["formula"]["identified"]
    assert mine["digest"] == original["digest"]


def flush_large(original: Call) -> Call:
    """Subnormal results of eight steps and more as zeros: a zero for less than 4 ULP is no flush (`verify.ulp`)."""

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = original(a, b)
        return torch.where(y.abs() < 2.0**-146, y, flush(y))

    return call


def test_flushing_fails_unless_declared() -> None:
    mutant = Mutant("results of eight steps and more flushed", "div", flush_large)
    on = differing(mutant, "quick")
    assert on is not None
    undeclared, _ = cells(mutant, on)
    declared, _ = cells(mutant, on, ftz=True)
    assert undeclared["status"] == "exceeds-bound" and "flushed" in undeclared["reason"]
    assert declared["status"] == "passed" and declared["ftz"]
    assert declared["error"]["flushed"] == undeclared["error"]["flushed"] > 100


@pytest.mark.parametrize("name", ["subnormal results flushed", "subnormal inputs flushed"])
def test_flushed_elements_have_a_class_of_their_own(name: str) -> None:
    mutant = next(m for m in MUTANTS if m.name == name)
    on = differing(mutant, "quick")
    assert on is not None
    mine, _ = cells(mutant, on, ftz=True)
    assert mine["error"]["flushed"] > mine["error"]["worse"]
    assert "flushed" not in mine["reason"]
    assert mine["error"]["undecided"] == 0


def walked(mutant: Mutant, profile: str) -> dict[str, Any]:
    """The mutant's cell on a whole domain, by way of `verify.run`."""
    whole = domain_of(mutant.target.kernel, FORMATS[mutant.dtype], mutant.scalars, profile)
    return cell(mutant, mutant.lowering(), whole)


def test_one_pattern_of_all_is_found_by_the_whole_walk() -> None:
    """Exhaustive in every profile, as are all kernels of one 16-bit input."""
    mutant = next(m for m in MUTANTS if m.name == "one pattern of 2^16")
    cell = walked(mutant, "default")
    original = walked(replace(mutant, spoil=lambda original: original), "default")
    assert (cell["status"], original["status"]) == ("exceeds-bound", "passed")
    assert cell["inputs"] == 1 << 16
    assert cell["worst"][0]["inputs"] == [FORMATS["float16"].hex(0x3555)]
    assert cell["against_eager"]["different"] == cell["against_eager"]["farther"] == 1
    assert cell["error"]["misrounded"] == original["error"]["misrounded"] + 1


@pytest.mark.exhaustive
def test_one_element_of_2_to_the_24_is_found_by_the_sweep() -> None:
    """One in 2^24 of all 2^32 float32 patterns, by the walk."""

    def spoil(original: Call) -> Call:
        def call(x: torch.Tensor) -> torch.Tensor:
            y = original(x)
            return torch.where((x.view(torch.int32) & 0xFFFFFF) == 0x345678, next_up(y), y)

        return call

    cell = walked(Mutant("one in 2^24", "reciprocal", spoil), "exhaustive")
    assert cell["inputs"] == 1 << 32
    assert cell["status"] == "exceeds-bound"
    assert cell["error"]["misrounded"] == cell["against_eager"]["different"] == 256


#: The least share that a profile's domain finds.
FOUND = {"quick": 0.8, "default": 0.97}


def of_several_inputs() -> list[tuple[str, Scalars]]:
    """Each elementwise kernel with the first of its cases that has two, and three, tensor inputs."""
    found = []
    for name in kernel.elementwise_names():
        facts, seen = kernel.load(name), {1}
        for scalars in facts.cases:
            arity = len(facts.tensors(scalars))
            if arity not in seen:
                seen.add(arity)
                found.append((name, scalars))
    return found


@pytest.mark.parametrize("profile", FOUND)
@pytest.mark.parametrize(("name", "scalars"), of_several_inputs(), ids=str)
def test_kill_rates_of_random_boxes(profile: str, name: str, scalars: Scalars) -> None:
    """Of kernels each wrong only in a random box that the domain knows nothing of."""
    drawn = domain(name, dict(scalars), "float32", profile)
    assert kill_rate(drawn, random_boxes(drawn.fmt, len(drawn.names), 0)) >= FOUND[profile]


@pytest.mark.parametrize("name", ["div", "pow"])
def test_every_element_of_a_quick_domain_is_in_the_default_one(name: str) -> None:
    """So a mutant that quick finds need not be looked for in 2^22 elements."""
    quick, whole = (domain(name, {}, "float32", profile) for profile in ("quick", "default"))
    held = set(zip(*(c.tolist() for c in whole.columns), strict=True))
    assert quick.size == 1 << 17 and held >= set(zip(*(c.tolist() for c in quick.columns), strict=True))


def test_kept_domains_are_the_default_ones() -> None:
    """Mutants are judged on what `verify run` draws."""
    kept = domain("div", {}, "float32")
    target = next(m for m in MUTANTS if m.kernel == "div").target
    drawn = domain_of(target.kernel, FORMATS["float32"], {}, "default")
    assert isinstance(kept, Kept) and kept.size == drawn.size
    for start in (0, drawn.size // 2, drawn.size - 50):
        ours, theirs = kept.bits(start, start + 50, "cpu"), drawn.bits(start, start + 50, "cpu")
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert EAGER.build(target)(*kept.span(0, 4, "cpu")).shape == (4,)
