"""A tenth of all that is planted, judged as a user's own lowering is, and how domains and classes tell mutants.

Errors planted in the truth itself are in test_oracles.py (the shared expression) and test_check.py (a ball function).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

import chosen
from mutants import whole
from mutants.boxes import kill_rate, random_boxes
from mutants.planted import MUTANTS, Kept, Mutant, cell, cells, differing, domain, flush, next_up
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.facts.kernel import Scalars
from verify.inputs.domains import domain_of
from verify.lower.lowering import Call
from verify.lower.pytorch import EAGER

TENTH = [one for one in whole.tenth(chosen.commit()) if one.label not in whole.KNOWN]
TABLE = json.loads((whole.ROOT / "reports" / "measured" / "mutants.json").read_text())["verdicts"]
#: What the quick profile kills by the committed table: kernel, fault, dtype and length.
KILLED = {(v["kernel"], v["name"], v["dtype"], v["length"]) for v in TABLE if v["holds"] and v["profile"] == "quick"}


@pytest.mark.parametrize(("name", "dtype"), sorted({(one.kernel, one.dtype) for one in TENTH}))
def test_a_tenth_of_all_that_is_planted_is_told_from_what_is_correct(name: str, dtype: str) -> None:
    """The commit chooses which, under quick: of the faults those that the kill table says it kills. `tox -e mutants`
    judges all of them, under default too, and what is right in other calls, which test_stubs.py does for each kernel.
    """
    wrong = []
    for v in verdicts([one for one in TENTH if (one.kernel, one.dtype) == (name, dtype)]):
        if v.item.wrong:
            holds = not missed(v)
        else:
            holds = v.cell["status"] in ("passed", v.item.status)
        if not holds:
            wrong.append(f"{v.item.label} at {v.length}: {v.cell['status']}: {v.cell['reason']}")
    assert not wrong, "\n".join(wrong)


def missed(v: whole.Verdict) -> bool:
    """Whether a fault survives that the table says is killed."""
    return not v.holds and (v.item.kernel, v.item.name, v.item.dtype, v.length) in KILLED


def verdicts(items: list[whole.Planted]) -> list[whole.Verdict]:
    """Those of plain calls, where they kill a fault: other calls take three quarters of the time."""
    found = whole.judge(items, profiles=("quick",), calls=lambda one: False)  # together: with the same truths
    alive = {v.item.name for v in found if v.item.wrong and missed(v)}
    more = whole.judge([one for one in items if one.wrong and one.name in alive], profiles=("quick",))
    return [*(v for v in found if not v.item.wrong or v.item.name not in alive), *more]


def test_what_only_another_call_tells_is_killed_in_the_end() -> None:
    def cached(call: Call) -> Call:
        """Right but for rows that are not contiguous."""
        return lambda x: call(x) if x.is_contiguous() else torch.zeros_like(x)

    mutant = replace(next(m for m in MUTANTS if m.name == "one pattern of 2^16"), spoil=cached)
    lowering = replace(mutant.lowering(), name=whole.NAME)
    item = whole.Planted(mutant.kernel, mutant.name, mutant.dtype, lowering, scalars=mutant.scalars)
    assert [v.holds for v in whole.judge([item], profiles=("quick",), calls=lambda one: False)] == [False]
    assert [v.holds for v in verdicts([item])] == [True]


def test_what_is_right_survives_as_a_fault() -> None:
    """Else the test above would pass whatever becomes of a fault."""
    mutant = next(m for m in MUTANTS if m.name == "one pattern of 2^16")
    right = replace(mutant, spoil=lambda original: original)
    for one, held in ((mutant, True), (right, False)):
        lowering = replace(one.lowering(), name=whole.NAME)
        item = whole.Planted(one.kernel, one.name, one.dtype, lowering, scalars=one.scalars)
        assert [v.holds for v in whole.judge([item])] == [held]
        assert [v.holds for v in whole.judge([replace(item, wrong=False)])] == [not held]


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
    """Subnormal results of eight steps and more as zeros: a zero for less than 4 ULP is no flush (see `ulp`)."""

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
    """The mutant's cell on a whole domain, by way of `verify.walk.run`."""
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
