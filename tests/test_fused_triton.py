"""The fused engine in Triton against the tensors' reduction, bit for bit: in the interpreter, and on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

import verify
from test_fused import CASES, by_tensors, case, require_same, spoiled
from verify import backends
from verify.facts.formats import FORMATS
from verify.families.elementwise import Elementwise, judgement, plain_judgement
from verify.inputs.domains import Domain
from verify.judge.element import Limits
from verify.judge.fused import Unsupported, cpp
from verify.numbers import admit, graph
from verify.numbers.decide import WORDS, digests
from verify.numbers.functions import LIBRARY
from verify.numbers.ieee import HOST

pytest.importorskip("triton")

Tensor = torch.Tensor
#: Cases of the interpreter: kernel, scalars, metric, bound; dtype.
INTERPRETED = ((CASES[1], "float32"), (CASES[0], "float16"), (CASES[5], "bfloat16"))


class Numpy(TorchFunctionMode):
    """Gives library functions the form that Triton's interpreter calls."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in graph.LIBRARY or name == "sqrt":
            return torch.from_numpy(np.asarray(getattr(np, name)(*(a.numpy() for a in args))))
        return function(*args, **(kwargs or {}))


class Host(TorchFunctionMode):
    """Gives library functions the form that the GPU's kernels call."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.form = form

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in graph.LIBRARY or name == "sqrt":
            return self.form(getattr(torch, name))(*torch.broadcast_tensors(*args))
        return function(*args, **(kwargs or {}))


def require_equal(
    given: Any, dtype: str, device: str, n: int, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Judged in full, and plain elements first."""
    from verify.judge.fused import triton as fused

    name, scalars, metric, value = given
    about, inputs, y, predict = case(name, scalars, dtype, n, 7)
    about = Elementwise(about.oracle, about.fmt, about.names, about.scalars, device, LIBRARY)
    inputs, y = tuple(t.to(device) for t in inputs), y.to(device)
    predicted = predict(inputs)
    eager = torch.where(torch.arange(y.numel(), device=device) % 5 == 0, spoiled(y.cpu(), about.fmt, 3).to(device), y)
    dtypes = (y.dtype,) * len(inputs)
    traced = Elementwise(about.oracle, about.fmt, about.names, about.scalars, HOST, LIBRARY)
    judge = fused.compiled(
        judgement(traced), dtypes, True, 4, predict if predicted else None, plain_judgement(traced)
    )  # fmt: skip
    limits = Limits.of(metric, value)
    expected = by_tensors(about, inputs, y, eager, limits, predicted, form)
    monkeypatch.setattr(fused, "SPARE", 1)
    for swept, again in ((1, 3), (2 * len(y), fused.AGAIN), (2 * len(y), 3)):
        monkeypatch.setattr(fused, "SWEPT", swept)
        monkeypatch.setattr(fused, "AGAIN", again)
        require_same(judge(inputs, y, eager, limits.values), expected)


@pytest.mark.parametrize("all_of_them", [pytest.param(True, marks=pytest.mark.exhaustive), False])  # a minute
def test_the_interpreter_finds_what_the_tensors_find(all_of_them: bool) -> None:
    """In a process of its own: Triton reads TRITON_INTERPRET when it is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-W", "ignore", __file__, *(["all"] * all_of_them)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["equal"] * (len(INTERPRETED) + 3 if all_of_them else 1)


def require_in_order(dtype: str, device: str, n: int, start: int, form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triples by their index: the pass over all of them does not read the inputs."""
    from verify.judge.fused import triton as fused

    name, scalars, metric, value = CASES[5]
    about, inputs, _, predict = case(name, scalars, dtype, 8, 7)
    about = Elementwise(about.oracle, about.fmt, about.names, about.scalars, device, LIBRARY)
    inputs = Domain("exhaustive", about.fmt, about.names).span(start, start + n, device)
    a, b, c = (t.double() for t in inputs)
    y = (a + scalars["value"] * b * c).to(inputs[0].dtype)
    y = torch.where(torch.arange(n, device=device) % 97 == 0, spoiled(y.cpu(), about.fmt, 3).to(device), y)
    traced = Elementwise(about.oracle, about.fmt, about.names, about.scalars, HOST, LIBRARY)
    judge = fused.compiled(
        judgement(traced), (y.dtype,) * 3, True, 4, predict, plain_judgement(traced), every=True
    )  # fmt: skip
    limits = Limits.of(metric, value)
    expected = by_tensors(about, inputs, y, y, limits, predict(inputs), form)
    monkeypatch.setattr(fused, "SPARE", 1)
    for swept, again in ((1, fused.AGAIN), (2 * n, 3)):
        monkeypatch.setattr(fused, "SWEPT", swept)
        monkeypatch.setattr(fused, "AGAIN", again)
        require_same(judge(inputs, y, y, limits.values, start=start), expected)


#: Where triples begin whose a, b and c are ordinary, and of which c passes from one binade to the next; all special.
PLACES = (0x3C01_4000_3BF0, 0xBC01_C000_FBF0, 0x7BFF_7C00_FBF0)


@pytest.mark.gpu
@pytest.mark.parametrize("place", PLACES, ids=hex)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_gpu_judges_triples_by_their_index(dtype: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from verify.judge.fused import triton as fused

    if (why := (backend := backends.load("cuda")).unavailable()) is not None:
        pytest.skip(why)
    require_in_order(dtype, backend.device, 40_000, place, Host(fused.mapped), monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("given", CASES, ids=[c[0] for c in CASES])
def test_a_gpu_finds_what_the_tensors_find(given: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from verify.judge.fused import triton as fused

    backend = backends.load("cuda")
    if (why := backend.unavailable()) is not None:
        pytest.skip(why)
    require_equal(given, dtype, backend.device, 20_003, Host(fused.mapped), monkeypatch)


@pytest.mark.gpu
def test_the_functions_of_a_gpu_are_admitted() -> None:
    from verify.judge.fused import triton as fused

    backend = backends.load("cuda")
    if (why := backend.unavailable()) is not None:
        pytest.skip(why)
    assert {a.name for a in admit.library(backend.device, fused.mapped)} == set(LIBRARY)


@pytest.mark.parametrize(
    ("target", "every"), [(("cuda", 90, 32), False), (("hip", "gfx942", 64), False), (("cuda", 90, 32), True)],
    ids=["sm_90", "gfx942", "sm_90 in order"],
)  # fmt: skip
def test_the_kernels_compile_and_contract_nothing(target: tuple[str, object, int], every: bool) -> None:
    import triton
    from triton.backends.compiler import GPUTarget

    from verify.judge.fused import triton as fused

    dtype = "float16" if every else "float32"
    about, _, y, predict = case("addcmul", {"value": 0.3}, dtype, 300, 7)
    judge = fused.compiled(judgement(about), (y.dtype,) * 3, True, 4, predict, plain_judgement(about), every=every)
    tables = ("counts", "steps", "tops", "binades", "wrong", "first")
    types = {f"in{k}": "*fp16" if every else "*fp32" for k in range(5)}
    types |= {"start": "i64", "parameters": "*fp64", "listed": "*i64"} | dict.fromkeys(
        ("n", "each", "room", "shift"), "i32"
    )
    types |= {f"{name}_ptr": "*i64" for name in tables}
    types |= {f"{name}_ptr": "*i32" for name in ("left", "count", "region", "open")}
    types |= {f"{name}_ptr": "*fp64" for name in ("upper", "scaled", "share")}
    plain = [judge.module.plain, judge.module.again_plain] if every else []
    for kernel in (judge.module.run, judge.module.again, judge.module.compare, *plain):
        signature = {name: types[name] for name in kernel.arg_names if name != "BLOCK"} | {"BLOCK": "constexpr"}
        source = triton.compiler.ASTSource(kernel, signature, {"BLOCK": fused.BLOCK})
        options = {"num_warps": fused.WARPS, "enable_fp_fusion": False}
        made = triton.compile(source, target=GPUTarget(*target), options=options)
        if target[0] == "cuda":  # AMD's divisions are made of them
            assert "fma.rn.f64" not in made.asm["ptx"]


def test_an_operation_that_triton_lacks_is_named() -> None:
    from verify.judge.fused import triton as fused

    with pytest.raises(Unsupported, match="rub"):
        fused.expression(graph.Node("rub"), [])


def test_both_engines_compile_the_same_fields() -> None:
    from verify.judge.fused import triton as fused

    about = case("exp", {}, "float32", 64, 1)[0]
    made = graph.trace(cpp.fields_of(judgement(about), 1, True), [torch.float32] * 3, parameters=4)
    assert set(fused._FIELDS) == set(made.outputs)
    assert FORMATS["float32"] == about.fmt


def require_plain(device: str, form: Any, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consecutive patterns, nearly all of them plain."""
    from verify.judge.fused import triton as fused

    about, _, _, predict = case("exp", {}, "float32", 8, 7)
    about = Elementwise(about.oracle, about.fmt, about.names, about.scalars, device, LIBRARY)
    # in the second a binade ends after the first tile of a program
    starts = (0x3F000000, 0x40000000 - size // 2 - fused.BLOCK, 0x42D00000, 0xC2B40000, 0x7FC00000, 0x3C000000)
    words = torch.cat([torch.arange(s, s + size) for s in starts])
    x = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32).view(torch.float32).to(device)
    exact = torch.exp(x.double())
    y = exact.float()
    other = torch.nextafter(y, torch.where(exact > y.double(), torch.inf, 0.0).float())
    fifth = (torch.arange(y.numel(), device=device) % 5 == 0) & torch.isfinite(other) & (other.double() != exact)
    y = torch.where(fifth & (exact.float().double() != exact), other, y)
    y[3] *= 2  # beyond what is plain
    limits = Limits.of("ulp", 1.5)
    traced = Elementwise(about.oracle, about.fmt, about.names, about.scalars, HOST, LIBRARY)
    judge = fused.compiled(
        judgement(traced), (torch.float32,), True, 4, predict if predict((x,)) else None, plain_judgement(traced)
    )  # fmt: skip
    full, judged = fused.Judge._full, []

    def counted(self: Any, columns: list[Tensor], *given: Any) -> Any:
        judged.append(len(columns[-1]))
        return full(self, columns, *given)

    monkeypatch.setattr(fused.Judge, "_full", counted)
    monkeypatch.setattr(fused, "SWEPT", 1)
    expected = by_tensors(about, (x,), y, y, limits, predict((x,)), form)
    found = judge((x,), y, y, limits.values)
    require_same(found, expected)
    assert 0 < judged[0] <= y.numel() // 4, judged
    assert found.regions[6].counts[2] == 1 or len(found.open)
    monkeypatch.setattr(fused, "SPARE", y.numel())  # room for one element: all are judged in full
    require_same(judge((x,), y, y, limits.values), expected)
    assert judged[1:] == [y.numel()]


@pytest.mark.gpu
def test_a_gpu_settles_plain_tiles_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from verify.judge.fused import triton as fused

    backend = backends.load("cuda")
    if (why := backend.unavailable()) is not None:
        pytest.skip(why)
    require_plain(backend.device, Host(fused.mapped), 1 << 16, monkeypatch)


@pytest.mark.gpu
def test_a_gpu_finds_what_is_wrong_where_float64_decides_nothing_alone() -> None:
    """A root that is the other neighbour of those few which lie within 2^-25 of an ULP of halfway between two: its
    error is more than half an ULP by that."""
    if (why := (backend := backends.load("cuda")).unavailable()) is not None:
        pytest.skip(why)
    planted = []

    def root(x: torch.Tensor) -> torch.Tensor:
        # In parts, since other tests take memory of the same GPU.
        return torch.cat([part(some) for some in x.reshape(-1).split(1 << 26)]).reshape(x.shape)

    def part(x: torch.Tensor) -> torch.Tensor:
        y = torch.sqrt(x)
        beyond = torch.where(y.double().square() < x.double(), torch.inf, 0.0).to(y.dtype)
        other = torch.nextafter(y, beyond)
        one, middle = y.double(), (y.double() + other.double()) / 2
        # with exact products: of numbers of 24 and 25 bits
        near = (x.double() - middle.square()).abs() < 2 * one * (other.double() - one).abs() * 2.0**-25
        near = near & (x >= 2.0**-100) & x.isfinite()
        planted.append(int(near.sum()))
        return torch.where(near, other, y)

    with pytest.raises(verify.Inaccurate) as raised:
        verify.check(root, "sqrt", dtype=torch.float32, device=backend.device, profile="exhaustive")
    found = [cell for cell in raised.value.cells if cell.lowering.endswith("root")]
    assert any(planted) and {cell.status for cell in found} == {"exceeds-bound"}, [(c.status, c.reason) for c in found]
    assert all(0.5 < cell.error.max_ulp < 0.5 + 2.0**-24 for cell in found)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_gpu_hashes_as_the_host_does(dtype: str) -> None:
    if (why := (backend := backends.load("cuda")).unavailable()) is not None:
        pytest.skip(why)
    fmt = FORMATS[dtype]
    words = torch.randint(-(1 << 15), 1 << 15, (10_000,)).to(WORDS[fmt.bits]) << (fmt.bits - 16)
    for start in (0, 3 << 32):
        assert digests(words.to(backend.device), fmt, 4096, start) == digests(words, fmt, 4096, start)


if __name__ == "__main__":
    graph.Graph._multiplied = lambda self, place: None  # type: ignore[method-assign]  # the interpreter has no fma
    whole = sys.argv[1:] == ["all"]
    for one, kind in INTERPRETED if whole else ():
        with pytest.MonkeyPatch.context() as patch:
            require_equal(one, kind, "cpu", 200, Numpy(), patch)
        print("equal", flush=True)
    with pytest.MonkeyPatch.context() as patch:
        if whole:
            require_plain("cpu", Numpy(), 512, patch)
            print("equal", flush=True)
    with pytest.MonkeyPatch.context() as patch:
        for k, place in enumerate(PLACES[: 2 if whole else 1]):
            require_in_order(("bfloat16", "float16")[k % 2], "cpu", 264, place, Numpy(), patch)
            print("equal", flush=True)


@given(st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=1, max_size=4), st.integers(0, 2))
def test_of_equal_numbers_the_first_are_the_largest(rows: list[list[int]], more: int) -> None:
    from verify.judge.fused import triton as fused

    table = torch.tensor(rows, dtype=torch.float64).repeat(1, 1 + more)  # of fewer and of more than LEADERS
    for row, found in zip(table.tolist(), fused._largest(table).tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda k: (-row[k], k))[: fused.LEADERS]
        assert [k for k, one in enumerate(found) if one] == sorted(k for k in order if row[k] > 0)
