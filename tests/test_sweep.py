"""Sweeps in ranges: any division, order and interruption gives the bytes of the undivided one."""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from test_jobs import bare, without_timing
from verify import backends
from verify.cli import commands, conduct
from verify.facts.formats import FORMATS
from verify.facts.kernel import UsageError
from verify.inputs.domains import Domain
from verify.judge import tally
from verify.numbers.decide import digest
from verify.reports import store
from verify.reports.schema import Report
from verify.walk import pointwise, sweep
from verify.walk import walk as walking
from verify.walk.cells import cells_of, part_of
from verify.walk.merge import merged
from verify.walk.plan import Job, Selection, jobs_of, planned
from verify.walk.walk import walk

SMALL = 1 << 12  # elements of a portion, of which 16-bit patterns have 16
SWEEP = Selection(("reciprocal",), ("cpu",), ("float16",), ("eager",), ("out-of-place",), "quick")


def wrong(x: torch.Tensor) -> torch.Tensor:
    """The reciprocal, one step off in two of three places: many ties, and elements that fail."""
    bits = (1 / x).view(torch.int16)
    place = x.view(torch.int16).int() % 3
    return torch.where(x.isfinite() & (x != 0), bits + (place - 1).short(), bits).view(torch.float16)


OWN = replace(SWEEP, lowerings=(), functions={"mine": wrong})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends.load("cpu"), "portion", SMALL)
    for name, value in (("CHUNK", SMALL), ("LEAST", SMALL), ("FEWEST", 1), ("HOST_MOST", 1)):
        monkeypatch.setattr(pointwise, name, value)


def plain(cells: list[dict[str, Any]]) -> str:
    return json.dumps(bare(cells), sort_keys=True)


@functools.cache
def job() -> tuple[Job, Domain]:
    (one,) = [one for one in jobs_of(OWN, backends.load("cpu")) if one.mine and not one.arranged]
    domain = planned([one], OWN).sweeps[0]
    return one, domain


@functools.cache
def parts() -> list[Mapping[str, Any]]:
    one, domain = job()
    held: list[Any] = []
    found = [part_of(one, at, at + SMALL, held, OWN) for at in range(0, domain.size, SMALL)]
    return [json.loads(json.dumps(part)) for part in found]  # as a journal has them


@functools.cache
def undivided() -> str:
    one, domain = job()
    return plain(cells_of(one, part_of(one, 0, domain.size, [], OWN), OWN, domain))


def in_any_order(rng: random.Random) -> str:
    """The cells of all parts, joined in random groups at random times."""
    held = [*parts()]
    while len(held) > 1:
        rng.shuffle(held)
        k = rng.randint(2, 5)
        held = [*sweep.joined(held[:k]), *held[k:]]
        held = sweep.joined(held) if rng.random() < 0.2 else held
    one, domain = job()
    return plain(cells_of(one, held[0], OWN, domain))


@given(st.integers(0, 2**32))
def test_any_division_and_order_gives_the_undivided_cell(seed: int) -> None:
    cell = json.loads(undivided())[0]
    assert cell["status"] == "exceeds-bound" and cell["domain"]["size"] == cell["inputs"] == 1 << 16
    assert len(cell["chunks"]) == 16 and cell["calls"]["made"] and cell["properties"]
    assert in_any_order(random.Random(seed)) == undivided()


def test_elements_that_wait_for_other_portions_give_the_same_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    judged = walking._Held.judged

    def counted(held: Any, *given: Any) -> Any:
        waited.append(held.count)
        return judged(held, *given)

    monkeypatch.setattr(walking._Held, "judged", counted)
    one, domain = job()
    for most in (walking.HELD, -1):
        monkeypatch.setattr(walking, "HELD", most)
        part = part_of(one, 0, domain.size, [], OWN)
        assert plain(cells_of(one, part, OWN, domain)) == undivided()
    assert waited[0] > 16 and waited[-1] == 0


def test_a_tie_decided_by_arrival_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    undivided()

    def arrived(found: Any) -> Any:
        return tuple(sorted(found, key=lambda one: -one[0])[: tally.LEADERS])

    monkeypatch.setattr(tally, "leading", arrived)
    monkeypatch.setattr(sweep, "sorted", lambda one, key: list(one), raising=False)
    held = [*parts()]
    monkeypatch.setattr(sweep, "total", lambda all_: sum(list(all_)[::-1], tally.Tally()))
    assert plain(cells_of(job()[0], sweep.joined(held)[0], OWN, job()[1])) != undivided()


def test_a_portion_lost_at_a_boundary_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    one, domain = job()
    monkeypatch.setattr("verify.walk.cells.walk", lambda c, j, r, e: walk(c, j, r, range(e.start, e.stop - SMALL)))
    short = part_of(one, 0, 4 * SMALL, [], OWN)
    with pytest.raises(RuntimeError, match="12288 of 16384 elements were counted"):
        cells_of(one, short, OWN, domain)


def test_each_result_of_an_unsteady_lowering_is_judged() -> None:
    calls: list[int] = []

    def coin(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return 1 / x * (1 + len(calls) % 2)

    own = replace(OWN, functions={"coin": coin})
    (one,) = [one for one in jobs_of(own, backends.load("cpu")) if one.mine and not one.arranged]
    held: list[Any] = []
    (part,) = sweep.joined([part_of(one, k * SMALL, (k + 1) * SMALL, held, own) for k in (1, 0)])
    (cell,) = cells_of(one, part, own, job()[1])
    assert part["launched"]["distinct"] == 2 and "different results" in cell["reason"] and cell["inputs"] > 2 * SMALL


def test_ranges_are_neither_many_nor_small() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pointwise, "LEAST", 1 << 24)
        patch.setattr(pointwise, "FEWEST", 4)
        for size, unit, count in ((32, 20, 256), (32, 28, 4), (48, 20, 256), (27, 20, 8), (21, 20, 1)):
            found = pointwise.ranges_of(1 << 48, (1 << 48) + (1 << size), 1 << unit)
            assert len(found) == count and all(a % (1 << unit) == 0 for a, _ in found)
            assert (found[0][0], found[-1][1]) == (1 << 48, (1 << 48) + (1 << size))
            assert all(a[1] == b[0] for a, b in itertools.pairwise(found))


def test_parts_that_overlap_or_differ_are_refused() -> None:
    first, second, third, *_ = parts()
    assert [(p["start"], p["stop"]) for p in sweep.joined([third, first])] == [(0, SMALL), (2 * SMALL, 3 * SMALL)]
    with pytest.raises(UsageError, match="elements 0 to 4095 of a sweep are in two parts"):
        sweep.joined([first, second, first])
    with pytest.raises(UsageError, match="different bounds"):
        sweep.joined([first, {**second, "device": {**second["device"], "ftz": True}}])


def test_the_first_error_is_that_of_the_cell() -> None:
    first, second, third, *_ = parts()
    failed = [{"start": p["start"], "stop": p["stop"], "cells": [{"status": "error", "at": k}]}
              for k, p in enumerate((second, third))]  # fmt: skip
    (found,) = sweep.joined([failed[1], first, failed[0]])
    assert found == {"start": 0, "stop": 3 * SMALL, "cells": [{"status": "error", "at": 0}]}


TRIPLES = Selection(
    ("addcmul",), ("cpu",), ("float16",), ("eager",), ("out-of-place",), "exhaustive", triples=True,
    scalars={"value": 1.0},
)  # fmt: skip
LERP = replace(TRIPLES, kernels=("lerp",), scalars=None)
FIRST = 0x3C01_4000_3800  # where a, b and c are ordinary


def test_triples_are_judged_in_any_ranges() -> None:
    (one,) = jobs_of(TRIPLES, backends.load("cpu"))
    plan = planned([one], TRIPLES, 7, 100_000)
    domain, spans = plan.sweeps[0], [task.elements for task in plan.tasks if task.elements]
    assert domain.size == 1 << 48 and len(spans) == pointwise.RANGES
    assert spans[0].start == (1 << 48) // SMALL * 6 // 100_000 * SMALL
    assert all(a.stop == b.start for a, b in itertools.pairwise(spans))
    held: list[Any] = []
    edges = [FIRST - FIRST % SMALL + k * SMALL for k in (0, 1, 3, 4)]
    some = [part_of(one, a, b, held, TRIPLES) for a, b in itertools.pairwise(edges)]
    (part,) = sweep.joined(some[::-1])
    (whole,) = sweep.joined([part_of(one, edges[0], edges[-1], [], TRIPLES)])
    (cell,) = cells_of(one, part, TRIPLES, domain)
    assert plain([cell]) == plain(cells_of(one, whole, TRIPLES, domain))
    assert cell["status"] == "passed" and cell["inputs"] == 4 * SMALL and 0.4 < cell["error"]["max_ulp"] <= 0.5001
    assert cell["worst"][0]["index"] in range(edges[0], edges[-1])
    y = torch.addcmul(*domain.span(edges[0], edges[-1], "cpu"), value=1.0)
    index = edges[0] // pointwise.LONG_CHUNK
    assert cell["chunks"] == [
        f"{digest(y.view(torch.int16), FORMATS['float16'], edges[0] % pointwise.LONG_CHUNK):016x}"
    ]
    assert sweep.tallies_of(part)["exact"].sums.keys() == {index}


def test_triples_are_asked_for_and_told_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["kernel", "lerp", "--backend", "cpu", "--dtype", "float16", "--lowering", "eager", "--scalar", "none"]
    words += ["--spelling", "out-of-place", "--jobs", "1"]
    assert commands.main([*words, "--triples"]) == 2
    assert "--triples is for --profile exhaustive" in capsys.readouterr().err
    assert "lerp: 2^24 of 2^48 triples are drawn" in next(conduct._ahead(replace(LERP, triples=False), None))  # type: ignore
    assert not list(conduct._ahead(replace(LERP, kernels=("exp",), triples=False), None))  # type: ignore[arg-type]
    files = [str(tmp_path / f"{k}.json") for k in range(3)]
    for k in (1, 2):
        given = ("--profile", "exhaustive", "--triples", "--shard", f"{3 * k}/{1 << 32}", "--json", files[k])
        assert commands.main([*words, *given]) == 0
        told = capsys.readouterr().err
        assert "1 cell of three 16-bit inputs: 65536 of 2^48 triples, some 0 s on 1 cores" in told
        assert "passed so far" in told
    assert commands.main(["merge", *files[1:], "-o", files[0]]) == 2
    told = capsys.readouterr().err
    assert "2.328e-08% of its 281474976710656 inputs" in told
    assert f"{(1 << 32) - 2} of {1 << 32} shards are missing" in told
    assert len(store.read(files[0]).shard.parts) == 2  # type: ignore[union-attr]


def test_shards_of_a_sweep_are_merged_to_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["kernel", "reciprocal", "--backend", "cpu", "--dtype", "float16", "--lowering", "eager"]
    words += ["--spelling", "out-of-place", "--profile", "quick", "--json"]
    files = [str(tmp_path / f"{k}.json") for k in range(4)]
    assert commands.main([*words, files[0]]) == 0
    for k in (1, 2, 3):
        capsys.readouterr()
        assert commands.main([*words, files[k], "--shard", f"{k}/3"]) == 0
        assert "passed so far" in capsys.readouterr().err
    whole, some = tmp_path / "whole.json", str(tmp_path / "some.json")
    assert commands.main(["merge", *files[:0:-1], "-o", str(whole)]) == 0
    assert without_timing(whole) == without_timing(Path(files[0]))
    assert commands.main(["merge", files[3], files[1], "-o", some]) == 2
    told = capsys.readouterr().err
    assert "31.25% of its 65536 inputs are judged, from element 0" in told and "1 of 3 shards is missing" in told
    assert commands.main(["merge", some, files[2], "-o", str(whole)]) == 0
    assert without_timing(whole) == without_timing(Path(files[0]))
    for file in files[1:]:  # as of a GPU that this machine lacks
        Path(file).write_text(Path(file).read_text().replace('"cpu"', '"cuda"'))
    assert commands.main(["merge", *files[1:], "-o", some]) == 0
    assert without_timing(Path(some)).replace('"cuda"', '"cpu"') == without_timing(whole)
    with pytest.raises(UsageError, match="in two parts"):
        merged([store.read(file) for file in (files[1], files[2], files[1])])
    assert commands.main([*words, files[1], "--shard", "17/40"]) == 0  # of 16 units, and none


def test_shards_of_other_versions_of_a_users_file_are_not_merged(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    words = ["kernel", "reciprocal", "--backend", "cpu", "--dtype", "float16", "--lowering", f"{own}:f"]
    words += ["--spelling", "out-of-place", "--profile", "quick", "--json"]
    files = [str(tmp_path / f"{k}.json") for k in (1, 2)]
    for k, body in enumerate(("torch.reciprocal(x)", "1 / x"), 1):
        own.write_text(f"import torch\n\n\ndef f(x):\n    return {body}\n")
        assert commands.main([*words, files[k - 1], "--shard", f"{k}/2"]) == 0
    assert [len(store.read(file).shard.parts) for file in files] == [1, 1]  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="run from different files"):
        merged([store.read(file) for file in files])


def test_parts_of_other_files_are_not_joined(tmp_path: Path) -> None:
    words = ["kernel", "reciprocal", "--backend", "cpu", "--dtype", "float16", "--lowering", "eager"]
    words += ["--spelling", "out-of-place", "--profile", "quick", "--json"]
    files = [tmp_path / f"{k}.json" for k in (1, 2)]
    for k, file in enumerate(files, 1):
        assert commands.main([*words, str(file), "--shard", f"{k}/2"]) == 0
    value = json.loads(files[1].read_text())
    value["shard"]["parts"][0]["source"] = "0" * 16
    with pytest.raises(UsageError, match="different jobs or files"):
        merged([store.read(files[0]), Report.model_validate(value)])


#: A module that changes what it is imported into, the processes of a run among them.
SLOWED = """
import time
from verify import backends
from verify.walk import pointwise, run

backends.load("cpu").portion = pointwise.CHUNK = pointwise.LEAST = {small}
pointwise.FEWEST = pointwise.HOST_MOST = 1
part_of = run.part_of

def slowly(*given):
    time.sleep(0.2)
    return part_of(*given)

def worker(*given):
    return made(*given)

made, run.part_of, run._worker = run._worker, slowly, worker
"""
KILLED = "import sys, slowed; from verify.cli import commands; sys.exit(commands.main(sys.argv[1:]))"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_sweep_that_is_killed_loses_what_was_in_flight(tmp_path: Path) -> None:
    script, out, whole = tmp_path / "killed.py", tmp_path / "r.json", tmp_path / "whole.json"
    (tmp_path / "slowed.py").write_text(SLOWED.format(small=SMALL))
    script.write_text(KILLED)
    words = ["kernel", "reciprocal", "--backend", "cpu", "--dtype", "float16", "--lowering", "eager"]
    words += ["--spelling", "out-of-place", "--profile", "quick", "--json"]
    journal, environment = Path(f"{out}.journal"), os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}

    def records() -> int:
        return len(journal.read_bytes().splitlines()) - 1 if journal.exists() else 0

    for jobs, resume in (("1", ()), ("2", ("--resume",))):
        before = records()
        command = [sys.executable, str(script), *words, str(out), "--jobs", jobs, *resume]
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 120
            while records() < before + 3 and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            process.kill()
        assert process.wait() == -9 and before + 3 <= records() < 15 and not out.exists()
    kept = journal.read_bytes()
    assert b'"part": {' in kept and b'"cells"' not in kept
    journal.write_bytes(kept.replace(b'"mp": 0', b'"mp": 1', 1))
    assert commands.main([*words, str(out), "--resume"]) == 2  # a digit is another one
    journal.write_bytes(kept)
    assert commands.main([*words, str(out), "--resume", "--shard", "1/2"]) == 2  # which is divided elsewhere
    assert commands.main([*words, str(out), "--resume", "--jobs", "1"]) == 0
    assert commands.main([*words, str(whole), "--jobs", "1"]) == 0
    assert without_timing(out) == without_timing(whole)
