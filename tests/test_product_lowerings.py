"""Lowerings of matrix products of our own: what compilers make of them for GPUs that are not here, and pieces of k."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton", reason="triton is not installed")

from test_product_formulas import facts, named  # noqa: E402
from verify import backends  # noqa: E402
from verify.backends import cuda, rocm  # noqa: E402
from verify.families import products_lowerings  # noqa: E402
from verify.families.products_settings import setting  # noqa: E402
from verify.kernels.triton import products  # noqa: E402
from verify.lower.lowering import NotLowered, Target  # noqa: E402
from verify.numbers.units import SPLITS, Plan, scalar  # noqa: E402
from verify.virtual.compile import Launch, described  # noqa: E402
from verify.walk import run  # noqa: E402
from verify.walk.plan import Selection  # noqa: E402

CPU = backends.load("cpu")


def compiled(target: str, dtype: torch.dtype = torch.float32, k: int = 128, **given: Any) -> list[Launch]:
    """The launches of a product of 64 x k x 64."""
    caught: list[Launch] = []
    options: Any = (cuda if target.startswith("sm") else rocm).triton_options("own")
    a, b = torch.zeros(64, k, dtype=dtype), torch.zeros(k, 64, dtype=given.pop("codes", dtype))
    with described(target, caught.append):
        products.run(a, b, out=given.pop("out", dtype), options=options, **given)
    return caught


# Input precisions

#: Operations that leave the numbers as they are.
PASSED = r"(?:ttg\.(?:local_load|local_alloc|convert_layout|memdesc_trans)|ttng\.warp_group_dot_wait|arith\.extf)"


def order(ttgir: str) -> tuple[list[tuple[int, int]], str]:
    """Parts of a and of b of each dot of the first loop in turn, 0 the largest, and what the last one is added to."""
    body = ttgir[ttgir.index("scf.for") :]
    body = body[: body.index("scf.yield")]
    part: dict[str, int] = {}  # of what is a part; what is left to be parted has the number of parts before it, negated
    dots: list[tuple[int, int]] = []
    results: dict[str, str] = {}  # the dot, or what became of it, by its name
    added = ""
    for line in body.splitlines():
        name, _, told = line.strip().partition(" = ")
        name, names = name.split(":")[0], [one.split("#")[0] for one in re.findall(r"%\w+(?:#\d)?", told)]
        if "cvt.rna.tf32" in told or "arith.truncf" in told:
            part[name] = -part.get(names[0], 0)
        elif "arith.subf" in told:
            part[name] = -(part[names[1]] + 1)
            if "f32" in told and "truncf" not in body and part[names[1]] == 0:
                part[name] = 1  # tf32's second part is what the first leaves, as it is
        elif "warp_group_dot " in told or "tt.dot " in told:
            dots.append((abs(part[names[0]]), abs(part[names[1]])))
            results[name] = results.get(names[2], "zero" if names[2].startswith("%cst") else names[2]) + "+"
        elif "arith.select" in told and names[-1] in results and names[1].startswith("%cst"):
            results[name] = results[names[-1]] + "NaN to 0"
        elif re.match(PASSED, told) and names and names[0] in results:
            results[name] = results[names[0]]
        elif re.match(PASSED, told) and names and names[0] in part:
            part[name] = part[names[0]]
        elif "arith.addf" in told and names[0] in results:
            added = f"{results[names[0]]} then {names[1]}"
    return dots, added


CODE = [("sm_90", "tf32x3", "tf32"), ("sm_90", "bf16x3", "bf16"), ("sm_90", "bf16x6", "bf16"),
        ("sm_80", "tf32x3", "tf32"), ("gfx942", "bf16x3", "bf16")]  # fmt: skip
MATRIX = re.compile(r"wgmma\.mma_async\S*\.(\w+)\.\1|mma\.sync\S*\.(\w+)\.\2\.f32|v_mfma_f32_\w+?_x?(bf16|f32)")


@pytest.mark.parametrize(("target", "precision", "kind"), CODE)
def test_products_of_parts_are_taken_in_the_order_of_the_formula(target: str, precision: str, kind: str) -> None:
    """From the code that Triton compiles: which products, in which order, from 0, and the sum added to what was before;
    so many instructions as products, for each block."""
    (launch,) = compiled(target, precision=precision)
    dots, added = order(launch.files["ttgir"].read_text())
    pairs = list(SPLITS[precision][2])
    assert dots == pairs
    assert re.fullmatch(r"zero" + r"\+" * (len(pairs) - 1) + r"NaN to 0\+ then %arg\d+", added), added
    found = [next(filter(None, one.groups())) for one in MATRIX.finditer(launch.code)]
    assert set(found) == {kind} and len(found) % len(pairs) == 0


def test_a_precision_that_triton_has_not_for_a_gpu_is_not_run() -> None:
    own = setting("own", m=64, k=64, n=64)
    target = Target(facts("mm"), {}, own.name, "float32", backends.load("rocm"))
    [one] = [one for one in products_lowerings.lowerings() if one.name == "triton-tf32x3"]
    with (
        described("gfx942", lambda launch: None),
        pytest.raises(NotLowered, match=r"does not support this precision .*Got tf32x3"),
    ):
        one.build(target)(facts("mm").problem("float32", own, {}, 0))


# Other sums


GROUPS = torch.ones(4, 64), torch.ones(4, 64)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize(
    ("dtype", "given", "instruction"),
    [
        (torch.bfloat16, {"parts": 4}, r"wgmma\S*f32\.bf16\.bf16|v_mfma_f32_\w+bf16"),
        (torch.float16, {"accumulator": torch.float16}, r"wgmma\S*f16\.f16\.f16|v_mfma_f32_\w+f16"),
        (torch.bfloat16, {"codes": torch.int8, "groups": GROUPS}, r"wgmma\S*f32\.bf16|v_mfma_f32_\w+bf16"),
    ],
)
def test_they_compile_to_matrix_instructions(target: str, dtype: Any, given: Any, instruction: str) -> None:
    launches = compiled(target, dtype, k=512, **given)
    assert re.search(instruction, launches[0].code)
    assert len(launches) == (2 if "parts" in given else 1)
    if "parts" in given:  # the sums of pieces, then these added: no product is left
        assert launches[0].grid == (1, 1, 4) and launches[1].grid == (1, 1, 1)


def test_sums_of_eighths_are_promoted_where_it_is_asked_for() -> None:
    def adds(**given: Any) -> int:
        (launch,) = compiled("sm_90", torch.float8_e4m3fn, out=torch.bfloat16, **given)
        return len(re.findall(r"add(?:\.rn)?\.f32", launch.code))

    own = products_lowerings.TRITON["triton-promoted"]
    assert adds(**own) > adds(blocks=own["blocks"]) == 0


def test_pieces_of_k_are_added_in_their_order() -> None:
    """Under the interpreter, whose products of blocks are numpy's."""
    problem = facts("mm").problem("float32", setting("own", m=20, k=517, n=24), {}, 0)
    a, b = problem.tensors.values()
    run = products.interpreted()
    y = run(a, b, out=torch.float32, parts=3)
    pieces = [run(a[:, k], b[k], out=torch.float32) for k in (slice(0, 192), slice(192, 384), slice(384, None))]
    assert torch.equal(y, pieces[0] + pieces[1] + pieces[2])
    assert not torch.equal(y, pieces[2] + pieces[1] + pieces[0])
    assert not torch.equal(y, run(a, b, out=torch.float32))
    # beside a bias, and in a stack
    bias = torch.randn(24)
    assert torch.equal(run(a, b, out=torch.float32, parts=3, bias=bias, alpha=0.5), y * 0.5 + bias)
    stack = run(torch.stack([a, 2 * a]), b.expand(2, -1, -1), out=torch.float32, parts=3)
    assert torch.equal(stack, torch.stack([y, 2 * y]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_inductor_decomposes_has_a_name(dtype: str) -> None:
    own, part = (setting("own", m=8, k=k, n=8) for k in (1024, 128))
    problem, piece = (facts("mm").problem(dtype, one, {}, 0) for one in (own, part))
    if str(Plan(scalar(dtype))) not in named(piece, torch.mm(*piece.tensors.values()), dtype, CPU):
        pytest.skip("this processor's library adds 128 terms otherwise than in one chain")
    y = products_lowerings.decomposed(Target(facts("mm"), {}, own.name, dtype, CPU), problem)(*problem.tensors.values())
    assert str(Plan(scalar(dtype), every=128)) in named(problem, y, dtype, CPU)
    short = facts("mm").problem(dtype, setting("own", m=8, k=100, n=8), {}, 0)
    with pytest.raises(NotLowered, match="decomposes no 8 x 100 x 8"):
        products_lowerings.decomposed(Target(facts("mm"), {}, own.name, dtype, CPU), short)


def test_the_interpreter_gives_silu_as_far_as_it_can() -> None:
    selection = Selection(
        ("linear",), ("cpu",), ("float32", "float64"), ("triton-interpreter",), ("64x80x48 silu",), "default"
    )
    single, double = run.run(selection)["cells"]
    assert single["status"] in ("deviates", "passed")  # from triton 3.9 on its fma rounds once
    assert double["status"] == "not-run" and "libdevice" in double["reason"]


def test_a_gpu_pads_nothing_by_trial() -> None:
    """Or a product has a kernel of Inductor's in some runs alone."""
    from torch._inductor import config

    compiled = [one for one in products_lowerings.lowerings() if one.name.startswith("inductor")]
    for lowering in compiled:
        for device, due in (("cpu", {}), ("cuda", {"shape_padding": False})):
            target: Any = SimpleNamespace(backend=SimpleNamespace(device=device, usual_options={}))
            assert {k: v for k, v in lowering.flags(target).items() if "padding" in k} == due, lowering.name
            tried = "max_autotune_gemm" in lowering.flags(target) and device == "cuda"
            assert lowering.flags(target).get("deterministic", False) == tried, lowering.name
    assert len(compiled) == 3 and {"shape_padding", "deterministic"} <= config.get_config_copy().keys()
