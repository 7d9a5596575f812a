"""Launches kept in a folder and replayed: equal bits, planted faults, and folders that are none."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from verify.backends import load
from verify.cli.commands import main
from verify.virtual import approx, keep, lanes, ptx
from verify.virtual.compile import Argument, Launch
from verify.virtual.replay import replay

pytestmark = pytest.mark.part(2)

if why := load("virtual-cuda").unavailable():
    pytest.skip(why, allow_module_level=True)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the virtual GPU gave for a lowering with approximations, one without, and sums and a softmax of rows."""
    place = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(keep.VARIABLE, "")  # what the command sets goes with it
        given = ["--backend", "virtual-cuda", "--dtype", "float32", "--profile", "quick", "--keep-code", str(place)]
        assert main(["kernel", "exp", "--lowering", "triton-libdevice", *given]) == 0
        assert main(["kernel", "addcmul", "--lowering", "triton", *given]) == 0
        assert main(["kernel", "softmax", "--lowering", "triton", "--spelling", "rows", *given]) == 0
    return place


def test_kept_launches_give_the_same_bits(kept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "replay.json"
    assert main(["replay", str(kept), "--json", str(out)]) == 0
    text = capsys.readouterr().out
    count = len(list((kept / "launches").glob("*.json")))
    assert count >= 4 and f"{count} of {count} launches gave the bits that were kept" in text
    assert "ex2.approx.ftz.f32 recorded on sm_90" in text
    told = json.loads(out.read_text())["launches"]
    assert {one["name"] for one in told} == {"unary", "ternary", "softmax_rows"}
    assert all(one["chunks"] and not one["differing"] for one in told)


def test_where_triton_launches_nothing_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It failed each lowering of a CPU without a GPU beside it."""
    monkeypatch.setenv(keep.VARIABLE, "")
    given = ["--backend", "cpu", "--dtype", "float16", "--profile", "quick", "--keep-code", str(tmp_path / "kept")]
    assert main(["kernel", "reciprocal", "--lowering", "eager", "--spelling", "out-of-place", *given]) == 0
    assert not list((tmp_path / "kept").iterdir())


def _off_by_one(patched: pytest.MonkeyPatch) -> None:
    table = approx.recorded("sm_90", "ex2")
    assert table is not None
    wrong = table.clone()
    wrong[1 << 20 : 3 << 20] += 1
    patched.setattr(approx, "recorded", lambda chip, name: wrong)


def _directed(patched: pytest.MonkeyPatch) -> None:
    right = lanes.arithmetic
    patched.setattr(lanes, "arithmetic", lambda *a, **k: right(*a, **k | {"rounding": "rz"}))


def _flushed(patched: pytest.MonkeyPatch) -> None:
    right = lanes.arithmetic
    patched.setattr(lanes, "arithmetic", lambda *a, **k: right(*a, **k | {"ftz": True}))


def _swapped(patched: pytest.MonkeyPatch) -> None:
    right = lanes.arithmetic
    patched.setattr(lanes, "arithmetic", lambda name, *a, **k: right(name, *a[::-1] if name == "fma" else a, **k))


def _other_lane(patched: pytest.MonkeyPatch) -> None:
    right = ptx._Decoder._shfl

    def wrong(self: Any, op: str, rest: set[str], kinds: list[ptx.Kind], o: list[str]) -> Any:
        return right(self, op, rest, kinds, [*o[:2], str(int(o[2]) ^ 5), *o[3:]])

    patched.setattr(ptx._Decoder, "_shfl", wrong)


@pytest.mark.parametrize(
    ("plant", "caught"),
    [
        (_off_by_one, {"unary"}),
        (_directed, {"unary", "ternary", "softmax_rows"}),
        (_flushed, {"ternary"}),
        (_swapped, {"ternary", "unary"}),
        (_other_lane, {"softmax_rows"}),
    ],
)
def test_a_fault_planted_in_the_virtual_gpu_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], caught: set[str], kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptx.program_of.cache_clear()
    try:
        plant(monkeypatch)
        assert {one.name for one in replay(kept) if one.differing} >= caught
    finally:
        ptx.program_of.cache_clear()


def test_one_wrong_element_is_told_with_its_place(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(kept, tmp_path / "kept"))
    launches = {path: json.loads(path.read_text()) for path in sorted((place / "launches").glob("*.json"))}
    named = ((path, one) for path, one in launches.items() if one["name"] == "ternary")
    path, record = next((path, one) for path, one in named if len(one["after"]["out_ptr"]) == 32)
    record["after"]["out_ptr"][2] = "0" * 16
    path.write_text(json.dumps(record))
    assert main(["replay", str(place)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "out_ptr: 1 of 32 chunks of 4096 elements, the first from element 8192" in text
    count = len(list((place / "launches").glob("*.json")))
    assert f"{count - 1} of {count} launches gave the bits" in text


def test_what_cannot_be_replayed_is_refused(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path)]) == 2
    assert "expected a folder written by --keep-code" in capsys.readouterr().err
    place = Path(shutil.copytree(kept, tmp_path / "kept"))
    for path in (place / "code").glob("*.ptx"):
        path.write_text(path.read_text().replace("\tret;", "\tmma.sync.m8n8k4 %r1, %r1, %r1, %r1;\n\tret;"))
    assert main(["replay", str(place)]) == 3
    assert "the PTX instruction mma.sync.m8n8k4" in " ".join(capsys.readouterr().err.split())
    for path in (place / "launches").glob("*.json"):
        path.write_text(path.read_text().replace('"data": "', '"data": "../'))
    assert main(["replay", str(place)]) == 2
    assert "is not a kept launch" in capsys.readouterr().err


def test_what_is_unpacked_is_put_away_at_sigterm(kept: Path, tmp_path: Path) -> None:
    archive, room = tmp_path / "kept.tar", tmp_path / "room"
    room.mkdir()
    with tarfile.open(archive, "w") as file:
        file.add(kept, "kept")
    code = "import sys, time; from verify.virtual import ptx; ptx.launch = lambda *given: time.sleep(60)\n"
    code += "from verify.cli.commands import main; sys.exit(main(sys.argv[1:]))"
    given = os.environ | {"TMPDIR": str(room), "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", code, "replay", str(archive)]
    with subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while not any(room.glob("*/*/launches/*.json")) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        assert any(room.iterdir())
        process.terminate()
        told = process.communicate(timeout=30)[1]
    assert process.returncode == 143 and "terminated" in told and not any(room.iterdir()), told


def _cut(place: Path, record: dict[str, Any]) -> None:
    """Memory of two bytes."""
    (place / "data" / record["arguments"][0]["data"]).write_bytes(lzma.compress(b"xx"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda place, record: record["arguments"][0].update(dtype="flout32"),
        lambda place, record: record["arguments"][0].update(shape=[10**12]),
        lambda place, record: record["arguments"][0].update(stride=["a"]),
        lambda place, record: record["arguments"][0].update(offset=-5),
        lambda place, record: record.update(grid=[1, 2]),
        lambda place, record: record.update(grid=[2**40, 1, 1]),
        lambda place, record: record.update(grid=[0, 1, 1]),
        lambda place, record: record.update(label=None),
        lambda place, record: record.update(name=5),
        lambda place, record: record.update(num_warps=3),
        lambda place, record: record.update(num_warps="4"),
        lambda place, record: record.update(shared=2**50),
        lambda place, record: record.update(shared=-1),
        lambda place, record: record["arguments"].append({"name": "n", "kind": "i32", "value": "x"}),
        lambda place, record: record.update(after=[1]),
        lambda place, record: record["after"].update({name: due[:-1] for name, due in record["after"].items()}),
        lambda place, record: record["after"].update(nope=["0"]),
        lambda place, record: record["after"].popitem(),
        lambda place, record: record.update(arguments=[]),
        lambda place, record: record.update(arguments=7),
        lambda place, record: (place / "code" / record["code"]).write_bytes(b"\xff\xfe"),
        lambda place, record: (place / "code" / record["code"]).unlink(),
        _cut,
    ],
)
def test_a_damaged_launch_is_one_line(
    damage: Callable[[Path, dict[str, Any]], None], kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(kept, tmp_path / "kept"))
    first, *others = sorted((place / "launches").glob("*.json"))
    for other in others:
        other.unlink()
    record = json.loads(first.read_text())
    damage(place, record)
    first.write_text(json.dumps(record))
    assert main(["replay", str(place)]) == 2
    assert "is not a kept launch" in capsys.readouterr().err


WRITES = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry writes(
	.param .u64 .ptr .global .align 1 x,
	.param .u64 .ptr .global .align 1 y,
	.param .u64 .ptr .global .align 1 z
)
.reqntid 32
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.b64 %rd1, [x];
	mov.b32 %r1, 7;
	st.global.b32 [ %rd1 ], { %r1 };
	ret;
}
"""


def test_memories_of_equal_bytes_are_told_apart_and_one_may_be_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an H200's gradients, two fresh outputs, were not."""
    monkeypatch.setenv(keep.VARIABLE, str(tmp_path / "kept"))
    (code := tmp_path / "writes.ptx").write_text(WRITES)
    x, y, z = torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32), torch.empty(0, dtype=torch.int32)
    given = tuple(Argument(name, "*i32", t) for name, t in (("x", x), ("y", y), ("z", z)))
    about = SimpleNamespace(
        num_warps=1, shared=0, global_scratch_size=0, enable_fp_fusion=False, triton_version="3.6.0",
        target=SimpleNamespace(backend="cuda"),
    )  # fmt: skip
    keep.keep("two", Launch("writes", "sm_90", (1, 1, 1), given, about, {"ptx": code}), lambda: x[:1].fill_(7))
    (found,) = replay(tmp_path / "kept")
    assert (found.reason, found.differing, found.chunks) == ("", {}, 2)


RECORDED = Path(__file__).parents[1] / "reports" / "recorded" / "launches-h200.tar.xz"


def test_an_h200_gave_the_bits_that_its_virtual_one_gives(tmp_path: Path) -> None:
    """A part of what is recorded; `verify replay` of all of it takes half a minute."""
    with tarfile.open(RECORDED) as archive:
        archive.extractall(tmp_path, filter="data")
    wanted = {
        "exp float32 inductor out-of-place", "pow float32 triton-libdevice-toolkit out-of-place",
        "pow float32 inductor out-of-place", "softmax float16 inductor columns", "softmax float32 triton rows",
        "mm bfloat16 triton k=0", "mm float64 triton 33x517x20", "flex_attention float16 triton exact",
    }  # fmt: skip
    labels = {path: json.loads(path.read_text())["label"] for path in (tmp_path / "launches").glob("*.json")}
    assert len(labels) == 217 and wanted <= set(labels.values())
    for path, label in labels.items():
        if label not in wanted:
            path.unlink()
    found = list(replay(tmp_path))
    assert len(found) >= len(wanted) and {one.target for one in found} == {"sm_90"}
    assert not [one for one in found if one.reason or one.differing]


def test_an_archive_is_replayed_as_its_folder(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (archive := tmp_path / "kept.tar.xz").touch()
    with tarfile.open(archive, "w:xz") as packed:
        for part in ("launches", "data", "code"):
            packed.add(kept / part, part)
    assert [one.record() for one in replay(archive)] == [one.record() for one in replay(kept)]
    with tarfile.open(tmp_path / "named.tar", "w") as packed:  # as `tar cf named.tar kept` makes it
        packed.add(kept, "kept")
    assert [one.record() for one in replay(tmp_path / "named.tar")] == [one.record() for one in replay(kept)]
    with tarfile.open(tmp_path / "other.tar", "w") as packed:
        packed.add(kept / "code", "code")
    assert main(["replay", str(tmp_path / "other.tar")]) == 2
    assert "other.tar holds no kept launches" in capsys.readouterr().err
    archive.write_bytes(archive.read_bytes()[:-1000])
    assert main(["replay", str(archive)]) == 2
    assert "is not an archive of kept launches" in capsys.readouterr().err


def test_digests_take_nans_alike_and_zeros_apart() -> None:
    one = torch.tensor([1.0, float("nan"), 0.0])
    other = torch.from_numpy(np.array([0x3F800000, 0xFFC12345, 0], np.uint32).view(np.float32))
    assert keep.digests(one) == keep.digests(other)
    assert keep.digests(one) != keep.digests(torch.tensor([1.0, float("nan"), -0.0]))
