"""`verify audit`: instructions of code for GPUs that are not here, counted and told in words."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from verify.cli.commands import main
from verify.facts.kernel import UsageError, names
from verify.families import products_lowerings
from verify.virtual import census
from verify.virtual.census import Census
from verify.walk import audit
from verify.walk.audit import Asked, Audited

pytestmark = pytest.mark.part(2)

OWN = """
import torch, triton, triton.language as tl

@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(x + i, inside)
    tl.store(out + i, a / tl.load(y + i, inside) + a, inside)

def div(a, b):
    out = torch.empty_like(a)
    kernel[(triton.cdiv(a.numel(), 256),)](a, b, out, a.numel(), BLOCK=256)
    return out
"""


def counted(one: Asked) -> Audited:
    return audit.disassembled([audit._compiled(one, 0.0)])[0]


def of(kernel: str, lowering: str, target: str, fusion: bool = True, own: bool = False) -> Census:
    found = counted(Asked(kernel, lowering, "float32", target, fusion, own))
    assert found.census is not None, found.reason
    return found.census


@pytest.mark.parametrize(
    ("name", "root", "kind"),
    [
        ("fma.rn.ftz.f32", "fma", "fma"), ("v_dual_fmac_f32", "fmac", "fma"), ("v_pk_fma_f32", "fma", "fma"),
        ("v_div_fixup_f32", "div_fixup", "div"), ("v_mfma_f32_32x32x2_f32", "mfma", "matrix"),
        ("v_rcp_iflag_f32", "rcp", "approx"),
        ("v_cvt_pk_bf16_f32", "cvt", "cvt"), ("v_subrev_f32", "subrev", "add"), ("v_fma_mix_f32", "fma_mix", "fma"),
        ("v_dot2_bf16_bf16", "dot2", "matrix"), ("v_wmma_f32_16x16x16_f16", "wmma", "matrix"),
        ("v_exp_f32", "exp", "approx"),
        ("wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32", "wgmma", "matrix"),
    ],
)  # fmt: skip
def test_names_fall_into_kinds(name: str, root: str, kind: str) -> None:
    assert census.root(name) == root
    assert Census("sm_90", {name: 3}).kinds()[kind] == 3


def test_division_differs_between_vendors_and_is_told() -> None:
    both = [Census("sm_90", {"div.full.f32": 8}), Census("gfx942", {"v_div_fixup_f32": 4, "v_rcp_f32": 4})]
    assert census.differences(both) == [
        "gfx942 divides correctly rounded (v_div_fixup_f32) where sm_90 divides by div.full.f32 (2 ULP)"
    ]
    same = [Census("sm_90", {"div.rn.f32": 8}), Census("gfx942", {"v_div_fixup_f32": 4, "v_rcp_f32": 4})]
    assert census.differences(same) == []


def test_code_is_that_of_the_prototype_s_table() -> None:
    """virtual_devices: what Triton makes of exp, pow and division on both vendors' GPUs."""
    pow90, pow942 = of("pow", "triton-libdevice", "sm_90"), of("pow", "triton-libdevice", "gfx942")
    assert pow90.assembly["ex2.approx.ftz.f32"] == 8 and pow90.kinds()["ftz"] > 100 and pow90.sass["MUFU.EX2"] == 8
    assert pow942.assembly["v_exp_f32"] == 4 and pow942.modes["float_denorm_mode_32"] == 3
    assert (
        of("div", "triton", "gfx942").assembly["v_div_fixup_f32"]
        == of("div", "triton", "sm_90").assembly["div.rn.f32"] / 2
    )
    for target in ("sm_90", "gfx942"):
        fused, plain = of("pow", "triton-libdevice", target), of("pow", "triton-libdevice", target, fusion=False)
        assert fused.kinds()["fma"] > plain.kinds()["fma"] and "contracts: it executes" in census.contraction(
            fused, plain
        )
        assert census.contraction(plain, plain) == ""


def test_what_ptxas_contracts_is_seen_in_sass(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    fused, plain = (of("div", f"{file}:div", "sm_90", on, own=True) for on in (True, False))
    assert fused.kinds()["fma"] == plain.kinds()["fma"] == 0
    assert "FFMA" in fused.sass and "FFMA" not in plain.sass
    assert census.contraction(fused, plain)


def test_the_command_tells_differences_and_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "audit.json"
    arguments = ["audit", "pow", "--target", "sm_90,gfx942", "--lowering", "triton-libdevice", "--json", str(out)]
    assert main(arguments) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "gfx942 takes powers of two by v_exp_f32 where sm_90 takes powers of two by ex2.approx.ftz.f32" in text
    told = json.loads(out.read_text())
    assert [row["target"] for row in told["rows"]] == ["sm_90", "sm_90", "gfx942", "gfx942"]
    assert told["rows"][0]["assembly"]["rcp.approx.ftz.f32"] == 8 and told["differences"][0]["told"]


def compiled(kernel: str, lowering: str, target: str, dtype: str = "float32", fusion: bool = True) -> audit.Audited:
    return audit._compiled(Asked(kernel, lowering, dtype, target, fusion), 0.0)


@pytest.mark.parametrize(
    ("kernel", "lowering", "dtype", "target", "blocks"),
    [
        ("mm", "triton", "float32", "sm_90", "16 x 16 x 32"),  # no matrix unit takes float32
        ("mm", "triton-tf32", "float32", "sm_90", "64 x 64 x 32"),  # wgmma, which 16 rows have not
        ("mm", "triton", "float32", "gfx942", "64 x 64 x 32"),  # v_mfma of several shapes
        ("mm", "triton", "float32", "gfx1100", "16 x 16 x 32"),
        ("mm", "triton-bf16x3", "float32", "gfx1100", "16 x 16 x 32"),  # v_wmma has one shape
        ("int_mm", "triton", "int8", "sm_90", "64 x 64 x 32"),
        ("scaled_mm", "triton-promoted", "float8_e4m3fn", "sm_90", "64 x 64 x 32"),
        ("flex_attention", "triton", "float16", "sm_90", ""),
        ("flex_attention", "triton", "float32", "sm_90", "16 x 16"),
        ("logcumsumexp", "triton", "float32", "sm_90", "256"), ("exp", "triton", "float32", "sm_90", ""),
    ],
)  # fmt: skip
def test_blocks_are_smaller_where_code_stays_the_same(
    kernel: str, lowering: str, dtype: str, target: str, blocks: str
) -> None:  # fmt: skip
    """The instructions that a matrix unit or none gives are those of the blocks that run."""
    found = compiled(kernel, lowering, target, dtype)
    assert found.census is not None and found.blocks == blocks, found.reason
    assert found.record().get("blocks", "") == blocks


@pytest.mark.parametrize(
    ("lowering", "dtype", "target"),
    [
        ("triton-tf32", "float32", "sm_90"), ("triton-bf16x3", "float32", "sm_90"), ("triton", "float32", "gfx942"),
        ("triton-tf32", "float32", "sm_120"), ("triton", "float16", "sm_100"), ("triton-bf16x3", "float32", "gfx942"),
        ("triton-bf16x3", "float32", "gfx1100"), ("triton", "float32", "sm_80"), ("triton", "float16", "gfx1201"),
    ],
)  # fmt: skip
def test_smaller_blocks_take_the_matrix_instructions_of_those_that_run(
    lowering: str, dtype: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    small = compiled("mm", lowering, target, dtype)
    with monkeypatch.context() as patched:
        patched.setattr(products_lowerings, "_blocks", lambda given, target: given)
        whole = compiled("mm", lowering, target, dtype)
    assert small.census and whole.census and small.blocks and not whole.blocks

    def named(one: Census) -> set[str]:
        return {name for name in one.assembly if census.root(name) != "cvt"}

    assert named(small.census) == named(whole.census)
    assert sum(small.census.assembly.values()) < sum(whole.census.assembly.values())


@pytest.mark.parametrize(
    ("kernel", "lowering", "dtype", "target", "told"),
    [
        ("scaled_mm", "triton", "float8_e4m3fn", "sm_80", "type fp8e4nv not supported in this architecture"),
        ("flex_attention", "triton-tf32", "float32", "gfx90a", "input_precision must be one of"),
    ],
)
def test_what_triton_refuses_is_told_in_its_words(
    kernel: str, lowering: str, dtype: str, target: str, told: str
) -> None:  # fmt: skip
    found = compiled(kernel, lowering, target, dtype)
    assert found.census is None and told in found.reason and "at 1:0" not in found.reason


def test_the_page_tells_smaller_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "mm", "--lowering", "triton", "--target", "sm_90,gfx1100"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "sm_90, gfx1100: compiled in blocks of 16 x 16 x 32, smaller than those that run" in text


def test_a_compilation_that_hangs_is_stopped_and_told(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(OWN.replace("def div(a, b):", "def div(a, b):\n    import time\n    time.sleep(60)"))
    each = [Asked("div", f"{file}:div", "float32", target, True, True) for target in ("sm_90", "gfx942")]
    rows = audit.audit(each, 1, limit=1.0)
    assert [row.reason for row in rows] == ["a compilation was stopped after 1 s"] * 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pow", "--target", "sm_91"], "unknown target 'sm_91'; did you mean sm_90"),
        (["pow", "--target", "sm_90 , gfx941"], "unknown target 'gfx941'; did you mean gfx942"),
        (["pow", "--baseline", os.devnull], "is not a census of `verify audit --json`"),
        (["pow", "--lowering", "triton-libdevise"], "did you mean triton-libdevice"),
        (["pwo"], "did you mean pow"),
    ],
)
def test_wrong_names_are_refused(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *arguments]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_lowering_that_launches_nothing_is_no_census(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plain.py"
    file.write_text("def div(a, b):\n    return a / b\n")
    assert main(["audit", "div", "--target", "sm_90", "--lowering", f"{file}:div"]) == 3
    assert "launches no Triton kernel" in capsys.readouterr().err
    with pytest.raises(UsageError):
        audit.asked(["div"], ["sm_90"], [], ["eager"], [])


def test_a_changed_census_fails_and_says_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "audit.json"
    arguments = ["audit", "addcmul", "--target", "sm_90,gfx942"]
    assert main([*arguments, "--json", str(out)]) == 0
    assert main([*arguments, "--baseline", str(out)]) == 0
    assert "every instruction is as accepted" in capsys.readouterr().out
    told = json.loads(out.read_text())
    row = next(row for row in told["rows"] if row["target"] == "sm_90" and row["fusion"])
    row["assembly"] = {"mul.rn.f32": 8, "add.rn.f32": 8}
    told["rows"] = [row, *(one for one in told["rows"] if one["target"] == "gfx942" and one["fusion"])]
    out.write_text(json.dumps(told))
    assert main([*arguments, "--baseline", str(out)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "addcmul triton float32 sm_90 fusion on: 8 add.rn.f32 are 0, 0 fma.rn.f32 are 8, 8 mul.rn.f32 are 0" in text
    assert "sm_90 fusion off: not in the baseline" in text
    out.write_text("{}")
    assert main([*arguments, "--baseline", str(out)]) == 2


def row_of(lowering: str = "triton", dtype: str = "float32", target: str = "sm_90", **found: Any) -> Audited:
    libraries, blocks = found.pop("libraries", {"libdevice": "5c2f"}), found.pop("blocks", "")
    one = Census(target, Counter({"fma.rn.f32": 8}), libraries=libraries, **{"version": "3.7.1", **found})
    return Audited(Asked("exp", lowering, dtype, target, True), one, blocks=blocks)


def test_a_reason_in_other_words_is_no_change() -> None:
    """Whether a row is compiled is; words are for people."""
    asked = row_of().asked

    def told(now: Audited, then: Audited) -> list[str]:
        return audit.changed([now], {audit._key(then.record()): then.record()})

    first, second = (Audited(asked, None, reason=text) for text in ("has it not for this GPU", "is not for this GPU"))
    assert told(first, second) == told(row_of(), row_of()) == []
    assert told(first, row_of()) == [f"{asked.label}: has it not for this GPU; accepted: compiled"]
    assert told(row_of(), first) == [f"{asked.label}: compiled; accepted: has it not for this GPU"]


def test_an_accepted_row_that_is_gone_is_told() -> None:
    """Of a lowering that has another name, or that no file has any more."""
    others = [row_of(name) for name in ("triton-old", "inductor", "a.py:f")]
    gone = [*others, row_of(dtype="float16"), row_of(target="gfx942")]
    before = {audit._key(row.record()): row.record() for row in (row_of(), *gone)}
    label = "exp {} sm_90 fusion on: accepted, and not there any more"

    def told(names: str = "", targets: str = "", dtypes: str = "", chosen: str = "", own: str = "") -> list[str]:
        return audit.vanished([row_of()], before, *(one.split() for one in (names, targets, dtypes, chosen, own)))

    old = label.format("triton-old float32")
    assert told(targets="sm_90") == told("exp", "sm_90") == [old]
    assert told() == [old, label.format("triton float32").replace("sm_90", "gfx942")]
    assert told("sqrt") == told("exp", "sm_100") == told(chosen="triton", targets="sm_90") == []
    assert told(targets="sm_90", chosen="triton*") == [old]
    assert told(dtypes="float16") == [label.format("triton float16")]
    assert told(chosen="inductor") == [label.format("inductor float32")]
    assert told(own="a.py:f") == [label.format("a.py:f float32")]


def test_a_gate_on_a_census_fails_for_a_row_that_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "audit.json"
    arguments = ["audit", "addcmul", "--target", "sm_90"]
    assert main([*arguments, "--json", str(out)]) == 0
    told = json.loads(out.read_text())
    told["rows"] += [{**row, "lowering": "triton-old"} for row in told["rows"]]
    told["rows"][0]["version"] = "3.0.0"
    out.write_text(json.dumps(told))
    assert main([*arguments, "--baseline", str(out)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "changed: addcmul triton-old float32 sm_90 fusion off: accepted, and not there any more" in text
    assert "another one than accepted: triton 3.0.0 is 3." in text and "(1 row)" in text


def test_what_else_was_recorded_is_told_where_it_is_another_one() -> None:
    before = {audit._key(row.record()): row.record() for row in (row_of(), row_of(target="sm_100"))}
    assert audit.renewed([row_of(), row_of(target="sm_100")], before) == []
    other = {"libdevice": "77"}
    two = [row_of(libraries=other), row_of(target="sm_100", libraries=other, blocks="BLOCK 16")]
    assert audit.changed(two, before) == []
    assert audit.renewed(two, before) == ["libdevice 5c2f is 77 (2 rows)", "blocks of all are of BLOCK 16 (1 row)"]
    assert audit.renewed([row_of(libraries={}, version="3.8")], before) == [
        "triton 3.7.1 is 3.8 (1 row)",
        "libdevice 5c2f is none (1 row)",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel", 3), ("fusion", "on"), ("reason", None), ("assembly", None), ("sass", {"FFMA": "8"}), ("modes", []),
        ("version", None), ("libraries", {"libdevice": 1}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("missing", [False, True])
def test_a_damaged_census_is_one_line(
    name: str, value: Any, missing: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = row_of().record()
    if missing and name == "libraries":
        row["reason"] = 3
    elif missing:
        del row[name]
    else:
        row[name] = value
    path = tmp_path / "audit.json"
    path.write_text(json.dumps({"schema": audit.SCHEMA, "rows": [row]}))
    assert main(["audit", "exp", "--baseline", str(path)]) == 2
    problem = capsys.readouterr().err
    assert problem.count("\n") == 1 and "is not a census of `verify audit --json`" in problem


def test_the_baseline_has_a_row_for_all_that_is_audited() -> None:
    """Written by `verify audit --target sm_90,gfx942 --json reports/baselines/audit.json`."""
    before = audit.accepted((Path(__file__).parents[1] / "reports" / "baselines" / "audit.json").read_text())
    each = audit.asked(names(), ["sm_90", "gfx942"], [], [], [])
    wanted = [one for one in each if not one.lowering.endswith("-interpreter")]
    assert {(one.kernel, one.lowering, one.dtype, one.target, one.fusion) for one in wanted} == set(before)


def test_one_census_of_the_baseline_is_still_given() -> None:
    before = audit.accepted((Path(__file__).parents[1] / "reports" / "baselines" / "audit.json").read_text())
    each = audit.asked(["mm", "logcumsumexp"], ["sm_90"], [], ["triton"], [])
    assert audit.changed([counted(one) for one in each], before) == []


def test_what_runs_on_the_host_is_not_audited() -> None:
    """Adam's Inductor variants would be compiled for this machine."""
    each = audit.asked(["adam_step", "lerp"], ["sm_90"], [], [], [])
    assert {(one.kernel, one.lowering) for one in each if not one.lowering.endswith("-interpreter")} == {
        ("adam_step", "triton"), ("lerp", "triton"),
    }  # fmt: skip
    with pytest.raises(UsageError, match="inductor-combo"):
        audit.asked(["adam_step"], ["sm_90"], [], ["inductor-combo"], [])


def test_kernels_disassembled_together_have_the_instructions_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    from triton import knobs

    rows = [audit._compiled(Asked(name, "triton", "float32", "sm_90", True), 0.0) for name in ("div", "sqrt", "add")]
    paths = [path for row in rows for path in row.cubins]
    monkeypatch.setattr(census, "cache", lambda: tmp_path)
    together = census.disassembled("sm_90", paths)
    command = [str(knobs.nvidia.nvdisasm.path), "-c", "-ndf"]
    for path, found in zip(paths, together, strict=True):
        lines = subprocess.run([*command, path], capture_output=True, text=True, check=True).stdout.splitlines()
        alone = [
            match[2] for line in lines if not census.SASS_IDIOM.search(line) for match in census.SASS.finditer(line)
        ]
        assert found == Counter(alone)
    assert len({tuple(sorted(one.items())) for one in together}) == 3
    assert census.disassembled("sm_90", paths[::-1]) == together[::-1]  # as kept


def test_inductor_s_code_is_generated_for_a_gpu_that_is_not_here() -> None:
    """By default Inductor divides by div.full and permits contraction; its strict flags round the quotient."""
    default, strict = of("div", "inductor", "sm_90"), of("div", "inductor-strict", "sm_90")
    assert "div.full.f32" in default.assembly and default.fusion
    assert "div.rn.f32" in strict.assembly and "div.full.f32" not in strict.assembly
    assert census.differences([default, Census("sm_100", strict.assembly)])
    told = counted(Asked("div", "inductor", "float32", "gfx942", True)).reason
    assert told == "Inductor generates code for AMD GPUs only where torch is built for ROCm"
