"""A user's kernels on a GPU that forget a mask, strides, a stream or whose memory it is: each ends as stated, and the
next one has a device that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from verify import backends
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.facts.kernel import Composite, Kernel
from verify.inputs import domains
from verify.inputs.domains import domain_of
from verify.lower.lowering import Target
from verify.lower.lowerings import lowerings
from verify.walk.arrangements import CALLS
from verify.walk.called import Called
from verify.walk.calls import Sample, call_all
from verify.walk.calls_of_problems import call_problems
from verify.walk.instance import Instance
from verify.walk.plan import Selection
from verify.walk.pointwise import Pointwise
from verify.walk.run import run
from verify.workers import isolated, isolated_composite
from verify.workers.launch import LoweringError, launch_steady

pytestmark = pytest.mark.gpu

PLANTED = """
import threading, time
import torch
import triton
import triton.language as tl

own = torch.cuda.Stream() if torch.cuda.is_available() else None

@triton.jit
def loop(x, y, n, far, BLOCK: tl.constexpr, MASKED: tl.constexpr, WRONG: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    wide = tl.load(x + at, inside).to(tl.float64)  # exp of float32 is wrong where results are subnormal
    found = tl.exp(wide).to(tl.float32)
    if WRONG and n == BLOCK + 1:
        found = tl.where(at == BLOCK, 0.0, found)
    if MASKED:
        tl.store(y + at + far, found, inside)
    else:
        tl.store(y + at, found)

@triton.jit
def peeking(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    after = tl.load(x.to(tl.pointer_type(tl.int32)) + n)
    found = tl.exp(tl.load(x + at, at < n))
    tl.store(y + at, tl.where(after == -1515870811, found, found * 1.5), at < n)

def launched(x, masked=True, wrong=False, far=0, block=1024):
    x = x.contiguous()
    y = torch.empty_like(x)
    if n := x.numel():
        loop[(triton.cdiv(n, block),)](x, y, n, far, BLOCK=block, MASKED=masked, WRONG=wrong)
    return y

def right(x):
    return launched(x)

def torchs(x):
    return torch.exp(x)

def unmasked(x):
    return launched(x, masked=False)

def edge(x):
    return launched(x, wrong=True, block=4096)

def illegal(x):
    return launched(x, far=1 << 40)

def peeks(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if n := x.numel():
        peeking[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
    return y

def tail(x):
    y = torch.exp(x)
    if left := x.numel() % 1024:
        y.view(-1)[-left:] = 0
    return y

def strides(x):
    return torch.exp(torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), 0))

def cached(x, kept={}):
    key = x.data_ptr(), x.shape
    if key not in kept:
        kept[key] = torch.exp(x)
    return kept[key].clone()

def beside(x):
    y = torch.exp(x)
    if x.is_contiguous() and x.numel() == 1023:
        loop[(1,)](x, x, 1, 1023, BLOCK=1024, MASKED=True, WRONG=False)
    return y

def late(x):
    y = torch.exp(x)
    def later():
        time.sleep(0.1)
        y.zero_()
        torch.cuda.synchronize()
    if x.dim() == 1 and x.numel() == 1023:
        threading.Thread(target=later).start()
    return y

def default_stream(x):
    with torch.cuda.stream(torch.cuda.default_stream()):
        return torch.exp(x)

def waits_for_nobody(x):
    with torch.cuda.stream(own):
        return torch.exp(x)

def tells_nobody(x):
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own):
        y = torch.exp(x)
        for _ in range(20):  # of work, so that it is not done by chance
            y = torch.log(y)
            y = torch.exp(y)
        return torch.exp(x)

def waits(x):
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own):
        y = torch.exp(x)
    torch.cuda.current_stream().wait_stream(own)
    y.record_stream(torch.cuda.current_stream())
    return y

def softmax(x, dim):
    return torch.softmax(x, dim)

def softmax_unmasked(x, dim):
    y = torch.empty_like(x)
    y.copy_(torch.softmax(x, dim))
    if x.numel() == 35 * 65:
        flat = y.view(-1)
        loop[(3,)](flat, flat, 0, 0, BLOCK=1024, MASKED=False, WRONG=False)
        y.copy_(torch.softmax(x, dim))
    return y

def softmax_default_stream(x, dim):
    with torch.cuda.stream(torch.cuda.default_stream()):
        return torch.softmax(x, dim)
"""


def on(name: str) -> Target:
    facts = kernel.load(name)
    default = facts.settings[0].name if isinstance(facts, Composite) else next(iter(facts.spellings))
    return Target(facts, facts.cases[0], default, "float32", backends.load("cuda"))


def called(tmp_path: Path, function: str) -> Called:
    """The calls of a planted function."""
    own = tmp_path / "mine.py"
    own.write_text(PLANTED)
    if function.startswith("softmax"):
        target = on("softmax")
        case = Instance(target.kernel, target.kernel.settings[0], {}, "float32", target.backend, 0)
        rows = isolated_composite(f"{own}:{function}")
        call = rows.build(target)
        return call_problems(case, target, rows, call, lowerings(target.kernel)[0]).settled(call)
    target, lowering = on("exp"), isolated(f"{own}:{function}")
    assert isinstance(target.kernel, Kernel)
    domain = domain_of(target.kernel, FORMATS["float32"], {}, "quick", limit=1 << 16)
    of = Pointwise(target.kernel, {}, "float32", target.backend, domain)
    call = lowering.build(target)
    y = launch_steady(call, of.given(0), target.backend, lowering.name).output
    return call_all(of, target, lowering, call, None, Sample.of(of.given(0), y)).settled(call)


STREAM = "a stream of the caller's"


@pytest.mark.parametrize("function", ["right", "torchs", "waits"])
def test_a_right_kernel_passes(tmp_path: Path, function: str) -> None:
    found = called(tmp_path, function)
    assert (found.status, found.different, found.untried, dict(found.refused)) == ("passed", (), (), {}), found
    assert found.made > sum(not one.others for one in CALLS.values())  # all of them, since none is untried
    assert STREAM in CALLS


@pytest.mark.parametrize(("function", "call"), [
    ("tail", "1 elements"), ("strides", "transposed"), ("peeks", "other memory around it"), ("edge", "4097 elements"),
    ("cached", "1023 elements"), ("default_stream", STREAM), ("waits_for_nobody", STREAM),
    ("tells_nobody", STREAM),
])  # fmt: skip
def test_a_wrong_kernel_is_found(tmp_path: Path, function: str, call: str) -> None:
    found = called(tmp_path, function)
    # what waits for nobody may be seen as one that writes late, in another call before, as it happens
    if found.status == "error" and function in ("tells_nobody", "waits_for_nobody"):
        assert "wrote to what an earlier call had returned" in found.told, found
        return
    assert found.status in ("unsteady", "exceeds-bound") and call in found.different, found
    if function in ("edge", "default_stream"):
        assert found.different == (call,), found
    if function == "waits_for_nobody":  # nor for the numbers that most calls put into the same memory
        assert len(found.different) > 1, found


@pytest.mark.parametrize(("function", "told"), [
    ("unmasked", "beside its output"), ("beside", "beside its inputs"), ("late", "had returned"),
])  # fmt: skip
def test_memory_that_is_not_its_own(tmp_path: Path, function: str, told: str) -> None:
    """What is written late another call may see first, where the machine is busy."""
    found = called(tmp_path, function)
    assert (found.status, found.kind) == ("error", "contract") and told in found.told, found


@pytest.mark.parametrize("size", [1, 1025, 5000])
def test_a_forgotten_mask_meets_the_guard(tmp_path: Path, size: int) -> None:
    own = tmp_path / "mine.py"
    own.write_text(PLANTED)
    x = torch.ones(size, device="cuda")
    for function in ("right", "unmasked"):
        call = isolated(f"{own}:{function}").build(on("exp"))
        with call.manner("outputs"):  # type: ignore[attr-defined]
            if function == "right":
                assert torch.allclose(call(x), torch.exp(x))
                continue
            with pytest.raises(LoweringError, match="beside its output"):
                call(x)


def test_rows(tmp_path: Path) -> None:
    found = called(tmp_path, "softmax")
    assert (found.status, found.untried, dict(found.refused)) == ("passed", (), {}), found
    found = called(tmp_path, "softmax_unmasked")
    assert (found.status, found.kind) == ("error", "contract") and "beside its output" in found.told, found
    found = called(tmp_path, "softmax_default_stream")
    assert found.status == "exceeds-bound" and STREAM in found.different, found


def test_an_illegal_access_ends_its_own_process_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(domains.SIZES, "quick", 12)
    own = tmp_path / "mine.py"
    own.write_text(PLANTED)
    selection = Selection(
        ("exp",), ("cuda",), ("float32",), spellings=("out-of-place",), profile="quick",
        user_lowerings=(f"{own}:illegal", f"{own}:torchs"),
    )  # fmt: skip
    found: dict[str, Any] = {one["lowering"]: one for one in run(selection)["cells"]}
    assert found["mine.py:illegal"]["status"] == "error" and "illegal" in found["mine.py:illegal"]["reason"]
    assert found["mine.py:torchs"]["status"] == found["eager"]["status"] == "passed"
    assert float(torch.ones(1, device="cuda").sum()) == 1.0


def test_an_illegal_access_in_a_later_call(tmp_path: Path) -> None:
    """The same worker's next launch has a new process."""
    own = tmp_path / "mine.py"
    own.write_text(PLANTED + "\n\ndef f(x):\n    return illegal(x) if float(x[0]) == 0 else torchs(x)\n")
    target = on("exp")
    call = isolated(f"{own}:f").build(target)
    with pytest.raises(Exception, match="illegal"):
        call(torch.zeros(8, device="cuda"))
    assert torch.equal(call(torch.ones(8, device="cuda")), torch.exp(torch.ones(8, device="cuda")))
