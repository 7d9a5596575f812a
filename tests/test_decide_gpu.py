"""The Triton form of the decision against `decide_tensors`, bit for bit: in the interpreter, and on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from verify import backends
from verify.decide import BINS, COUNTS, Enclosure, decide_tensors, digest_tensors, salts
from verify.formats import FORMATS

pytest.importorskip("triton")

FLOAT32 = FORMATS["float32"]
#: First patterns of rows: 1.0, zero and the subnormals, negative numbers, exp's overflow, the largest finite and NaNs.
FIRSTS = (0x3F800000, 0, -0x80000000, 0x42B00000, 0x7F000000)


def rows(first: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Starts, truths and outputs of two rows: the first off by a step at most, the second by more, and wild."""
    starts = torch.tensor([first, first + n], dtype=torch.int64)
    x = (starts[:, None] + torch.arange(n)).to(torch.int32).view(torch.float32)
    t = torch.exp(x.double())
    k = torch.arange(2 * n).view(2, n) * 2654435761
    steps = torch.where((k >> 7) % 3 == 0, (k >> 11) % 5 - 2, 0).to(torch.int32)
    steps[0] = steps[0].clamp(-1, 1) * torch.isfinite(t[0]) * (t[0] > 1e-30)
    y = (t.float().view(torch.int32) + steps).view(torch.float32)
    wild = torch.tensor([0.0, -0.0, torch.nan, torch.inf, 1e30])[(k >> 5) % 5]
    return starts, t, torch.where((k >> 13) % torch.tensor([[1 << 30], [50]]) == 7, wild, y)


def require_equal(first: int, factor: float, form: str, sure: bool, with_eager: bool, device: str) -> None:
    from verify.native.decide_gpu import PIECE, judge_rows, patterns

    n = PIECE
    starts, t, y = (part.to(device) for part in rows(first, n))
    counted = first % (1 << 32) + torch.arange(n, device=device)
    assert torch.equal(patterns(first % (1 << 32), n, device).view(torch.int32), counted.to(torch.int32))
    eager = t.float() if with_eager else None
    mid = t * factor
    relative, absolute = 2.0**-51, 2.0**-1022
    place = torch.arange(2 * n, device=device).view(2, n)
    codes = torch.where(place % 7 == 0, 1, torch.where((place % 91 == 5) & (place >= n), 2, 0)).to(torch.uint8)
    rad = mid.abs() * relative + absolute
    rad = torch.where(codes == 1, 0.0, torch.where(codes == 2, torch.nan, rad))
    given = {"plain": None, "radius": rad, "codes": codes}[form]
    counts, maxima, digest = judge_rows(
        starts, y, mid, given, eager, sure=sure, relative=relative, absolute=absolute
    )  # fmt: skip
    magnitude = (starts[:, None] + torch.arange(n, device=device)).to(torch.int32) & 0x7FFFFFFF
    subnormal = (magnitude > 0) & (magnitude < 1 << FLOAT32.mantissa_bits)
    enclosure = Enclosure(mid, None if form == "plain" else rad, None, sure, relative, absolute)
    wanted = decide_tensors(y, enclosure, FLOAT32, eager=eager, subnormal=subnormal)
    names = [*COUNTS, *BINS]
    differing = {names[k]: (counts[k], wanted.counts[k]) for k in (counts != wanted.counts).any(1).nonzero()[:, 0]}
    assert not differing
    assert torch.equal(maxima, wanted.maxima)
    assert torch.equal(digest, digest_tensors(y.view(torch.int32), FLOAT32, salts(n, 0, device)))


@pytest.mark.gpu
@pytest.mark.parametrize("with_eager", [False, True])
@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize("form", ["plain", "radius", "codes"])
@pytest.mark.parametrize("factor", [1.0, -1.0, 1 + 2.0**-23, 2.0**-140])
@pytest.mark.parametrize("first", FIRSTS)
def test_the_kernel_counts_as_the_tensors_do(
    first: int, factor: float, form: str, sure: bool, with_eager: bool
) -> None:
    backend = backends.load("cuda")
    if (why := backend.unavailable()) is not None:
        pytest.skip(why)
    require_equal(first, factor, form, sure, with_eager, backend.device)


#: First pattern, factor, form of the radius, sure, with eager.
INTERPRETED = (
    (0x3F800000, 1.0, "codes", True, False),
    (0, 2.0**-140, "plain", False, True),
    (-0x80000000, -1.0, "radius", True, True),
    (0x42B00000, 1.0, "plain", True, False),
    (0x7F000000, 1 + 2.0**-23, "codes", False, True),
)


def test_the_kernel_counts_as_the_tensors_do_in_the_interpreter() -> None:
    """In a process of its own: Triton reads TRITON_INTERPRET when it is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["equal"] * len(INTERPRETED)


@pytest.mark.parametrize("radius", [0, 1, 2])
@pytest.mark.parametrize("target", [("cuda", 90, 32), ("hip", "gfx942", 64)], ids=lambda target: target[1])
def test_the_kernels_compile_and_contract_nothing(target: tuple[str, object, int], radius: int) -> None:
    import triton
    from triton.backends.compiler import GPUTarget

    from verify.native.decide_gpu import BLOCK, STEPS, WARPS, _easy, _full

    types = {"y_ptr": "*fp32", "mid_ptr": "*fp64", "rad_ptr": ("*fp64", "*fp64", "*u8")[radius], "eager_ptr": "*fp32"}
    types |= {"first_ptr": "*i64", "constants_ptr": "*fp64", "out_ptr": "*i64", "maxima_ptr": "*fp64"}
    types |= {"hard_ptr": "*i32", "row_size": "i32", "pieces": "i32"}
    fixed = {"RADIUS": radius, "HAS_EAGER": True, "SURE": True, "SIZE": BLOCK, "STEPS": STEPS}
    for kernel, facts in ((_easy, fixed), (_full, fixed | {"EDGES": BINS})):
        source = triton.compiler.ASTSource(kernel, types | dict.fromkeys(facts, "constexpr"), facts)
        made = triton.compile(
            source, target=GPUTarget(*target), options={"num_warps": WARPS, "enable_fp_fusion": False}
        )
        text = made.asm.get("ptx") or made.asm["amdgcn"]
        assert "fma.rn.f64" not in text and "v_fma_f64" not in text


if __name__ == "__main__":
    for one in INTERPRETED:
        require_equal(*one, "cpu")
        print("equal", flush=True)
