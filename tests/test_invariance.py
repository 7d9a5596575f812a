"""Whether a row's bits depend on its batch: planted lowerings that do, and one that does not."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sample_reports import cell, report
from verify import backends
from verify.cli import commands
from verify.facts import kernel
from verify.lower import stubs
from verify.lower.lowering import Lowering, Target
from verify.lower.lowerings import lowerings
from verify.reports import invariance, markdown, store
from verify.reports.embedded import embed
from verify.reports.run_page import kernel_page
from verify.reports.schema import Report
from verify.walk import invariance as invariance_walk
from verify.walk.invariance import SIZES, invariance_of

#: How the rows of x are summed.
PLANTED = {
    "alike": lambda x: torch.stack([row.double().sum().float() for row in x]),
    "by size": lambda x: ordered(x, len(x) < 16),
    "by place": lambda x: torch.cat([ordered(x[k : k + 1], k % 2 == 0) for k in range(len(x))]),
    "by others": lambda x: ordered(x, bool(x[1::2].abs().sum() > x[::2].abs().sum() * 1.5)),
}


#: What is no sum of rows, whatever the batch.
WRONG = {
    "another shape": (lambda x: x[:, :1].double().sum(1, keepdim=True).float(), "shape"),
    "another dtype": (lambda x: x.double().sum(1), "float64"),
    "not all written": (lambda x: torch.empty(len(x)), "not all"),
    "by chance": (lambda x: x.sum(1) * torch.rand(1), "not deterministic"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_row_of_the_kernels_is_no_finding(name: str) -> None:
    call, told = WRONG[name]
    own = Lowering("mine.py:f", lambda target: lambda problem: {"": call(problem.tensors["x"])}, lambda target: None)
    found = invariance_of(target_of("sum"), own, 100)
    assert found.failed and told in found.reason and not found.invariant


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_numbers_between_two_are_counted_beyond_63_bits(a: float, b: float) -> None:
    ordinals = (invariance_walk._ordinal(torch.tensor([v], dtype=torch.float64)).numpy() for v in (a, b))
    found = invariance_walk._steps(*ordinals)
    assert found == abs(place(a) - place(b))


def place(v: float) -> int:
    """The number of a float64 among all of them, from 0 up and down."""
    size = int.from_bytes(struct.pack(">d", abs(v)), "big")
    return -size if v < 0 else size


def ordered(x: torch.Tensor, forwards: bool) -> torch.Tensor:
    total = torch.zeros(len(x))
    for column in x.unbind(1) if forwards else reversed(x.unbind(1)):
        total = total + column
    return total


def planted(name: str) -> Any:
    def build(target: Any) -> Any:
        return lambda problem: {"": PLANTED[name](problem.tensors["x"])}

    lowering = Lowering(name, build, lambda target: None)
    return invariance_of(target_of("sum"), lowering, 100)


def target_of(name: str, **scalars: float) -> Target:
    facts = kernel.load(name)
    assert isinstance(facts, kernel.Composite)
    return Target(facts, {**facts.cases[0], **scalars}, facts.settings[0].name, "float32", backends.load("cpu"))


def test_rows_that_are_summed_alone_are_invariant() -> None:
    found = planted("alike")
    assert not found.reason and found.invariant and (found.sizes, found.differing) == (len(SIZES), ())


def test_another_order_from_a_size_on_is_found() -> None:
    found = planted("by size")
    assert found.differing == tuple(size for size in SIZES if size >= 16)
    assert found.row >= 0 and found.steps > 0 and not found.invariant


def test_the_place_and_the_other_rows_are_found() -> None:
    assert planted("by place").place
    found = planted("by others")
    assert found.contents and not found.invariant


@pytest.mark.parametrize("length", [1, max(SIZES)])
def test_weights_are_no_rows(length: int) -> None:
    """Where a row is as long as the largest batch has rows, too."""
    target = target_of("rms_norm")
    found = invariance_of(target, lowerings(target.kernel)[0], length)
    assert not found.reason and found.invariant


def test_a_function_that_takes_keywords_has_them(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(stubs.source(kernel.load("flex_attention")))
    words = ["kernel", "flex_attention", "--invariance", "--length", "16", "--dtype", "float32", "--backend", "cpu"]
    assert commands.main([*words, "--lowering", f"{own}:flex_attention", "--json", str(tmp_path / "i.json")]) == 0
    assert [one["reason"] for one in json.loads((tmp_path / "i.json").read_text())["rows"]] == ["", ""]


def test_the_command_tells_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["kernel", "cumsum", "--invariance", "--length", "33", "--dtype", "float32", "--lowering", "eager"]
    assert commands.main([*words, "--backend", "cpu", "--json", str(tmp_path / "i.json")]) == 0
    assert "0 of 16" in capsys.readouterr().out
    told = json.loads((tmp_path / "i.json").read_text())
    assert told["rows"][0] | {"invariant": True, "length": 33} == told["rows"][0] and told["environment"]["cpu"]
    assert commands.main(["kernel", "exp", "--invariance", "--backend", "cpu"]) == 2
    assert "kernels of rows" in capsys.readouterr().err
    assert commands.main(["kernel", "cumsum", "--length", "33"]) == 2
    assert "--length is for --invariance" in capsys.readouterr().err
    refused = "--shard 1/2|--resume|--journal j|--jobs 2|--engine ray|--address a:1|--keep-code k|--profile quick"
    for option in map(str.split, f"{refused}|--algorithm any:float32|--set n=3|--spelling rows".split("|")):
        assert commands.main([*words, *option]) == 2
        assert f"{option[0]} is of no use with --invariance" in capsys.readouterr().err


def test_scalars_and_seed_are_those_that_are_asked_for(tmp_path: Path) -> None:
    """Planted: bits that depend on the batch for one eps alone, or for the numbers of one seed."""
    own = tmp_path / "mine.py"
    own.write_text(
        "import torch\n\ndef f(x, weight, eps):\n"
        "    y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)\n"
        "    return y * 1.5 if eps == 0.125 and len(x) > 40 else y\n"
    )
    words = ["kernel", "rms_norm", "--invariance", "--length", "16", "--dtype", "float32", "--backend", "cpu"]
    words += ["--lowering", f"{own}:f", "--json", str(tmp_path / "i.json")]
    for options, eps, differing in (([], None, 0), (["--scalar", "eps=0.125"], 0.125, 5)):
        assert commands.main([*words, *options]) == 0
        (found,) = (one for one in json.loads((tmp_path / "i.json").read_text())["rows"] if one["lowering"] != "eager")
        assert len(found["differing"]) == differing and (eps is None or found["scalars"] == {"eps": eps})
    target = target_of("sum")
    drawn: list[torch.Tensor] = []
    lowering = Lowering(
        "own", lambda target: lambda problem: drawn.append(problem.tensors["x"]) or {"": problem.tensors["x"].sum(1)},
        lambda target: None,
    )  # fmt: skip
    firsts = []
    for seed in (0, 7):
        drawn.clear()
        invariance_of(target, lowering, 16, seed)
        firsts.append(drawn[0])
    assert not torch.equal(*firsts)


@pytest.mark.parametrize(
    ("name", "options", "code", "told"),
    [
        ("raises", "", 2, "raised RuntimeError: boom"),
        ("unfit", "", 3, "sum: nothing was compared: "),
        ("right", "", 0, ""),
        ("right", "--dtype int8", 3, "sum: nothing was compared: "),
    ],
)
def test_the_exit_code_says_what_was_not_run(
    name: str, options: str, code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        "import torch\n\ndef raises(x, dim): raise RuntimeError('boom')\n\ndef unfit(x, y, z): return x\n\n"
        "def right(x, dim): return torch.sum(x, dim)\n"
    )
    line = ["kernel", "sum", "--invariance", "--length", "16", "--backend", "cpu", "--lowering", f"{own}:{name}"]
    assert commands.main([*line, *(options or "--dtype float32").split()]) == code
    problem = capsys.readouterr().err
    assert told in problem and (not problem or bool(told)) and "Traceback" not in problem


def test_reports_and_the_page_tell_what_was_measured_of_the_same_device(tmp_path: Path) -> None:
    """Beside the row kernel's cells, and of no other device, torch or dtype."""
    path = invariance.MEASURED / "invariance-cpu-inductor.json"
    here = json.loads(path.read_text())["environment"]["cpu"]
    (row,) = (one for one in json.loads(path.read_text())["rows"] if one["kernel"] == "softmax")
    told = invariance.told("softmax", "inductor", "float32", here)
    assert told == f"no: 16 of 16 sizes, from 2 on, row {row['row']}, {row['steps']} steps, length {row['length']}"
    assert invariance.told("softmax", "eager", "float16", here) == "yes: 48 sizes, length 64, 1000, 4096"
    assert invariance.told("softmax", "inductor", "float16", here) == invariance.told("exp", "eager", "float32", here)
    release = here["torch"].partition("+")[0]
    for same in (release, f"{release}+cu130"):
        assert invariance.told("softmax", "inductor", "float32", here | {"torch": same}) == told
    for change in ({"chip": "another"}, {"torch": "2.12.0"}, {"capability": "AVX2"}):
        assert not invariance.told("softmax", "inductor", "float32", here | change)
    one = cell(kernel="softmax", lowering="inductor")
    both = report(one, cell(kernel="exp"), environment={"cpu": here})
    for name, there in (("softmax", True), ("exp", False)):
        shown = "".join(markdown.lines(kernel_page(Report.model_validate(both), name)))
        assert ("batch invariant" in shown, "16 of 16 sizes" in shown) == (there, there)
    store.write(Report.model_validate(both), tmp_path / "r.json")
    found = json.loads(gzip.decompress(base64.b64decode(embed([tmp_path / "r.json"]).data)))
    assert sorted(found["values"][index] for index in found["columns"]["batch"]) == ["-", told]
