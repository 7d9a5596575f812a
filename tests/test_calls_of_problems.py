"""Other calls of rows, attention and steps: planted lowerings that are right in the kernel's settings alone."""

from __future__ import annotations

import itertools
import math
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from verify import backends
from verify.facts import kernel
from verify.facts.kernel import Composite, in_pairs, parted
from verify.jobs.aside import Aside
from verify.lower import stubs
from verify.lower.lowering import Target
from verify.lower.lowerings import lowerings
from verify.lower.user import user_composite
from verify.numbers.orders import Order
from verify.walk import calls_of_problems
from verify.walk.called import Called
from verify.walk.calls_of_problems import LENGTH, MADE, MEMORY, PICKED, ROWS, SIZES, Calls, _Ahead, call_problems
from verify.walk.instance import Instance
from verify.walk.plan import Selection
from verify.walk.run import run
from verify.workers import isolated_composite
from verify.workers.launch import LoweringError, Outputs, shared

pytestmark = pytest.mark.part(4)

PLANTED = f"""
import ctypes, threading, time
import torch

count, cache, shape = [0], {{}}, ({ROWS}, {LENGTH})

def right(x, dim):
    return torch.softmax(x, dim)

def columns(x, dim):  # one program along the columns, of 64 of them
    y, d = torch.softmax(x, dim), dim % x.dim()
    if d != x.dim() - 1 and x[(0,) * (d + 1)].numel() > 64:
        y = y.clone()
        y.flatten(d + 1)[..., 64:] = 0
    return y

def vectors(x, dim):  # the last of four lanes is lost where there is no tail
    v, n = x.movedim(dim, -1), x.shape[dim]
    e = torch.exp(v - v.amax(-1, keepdim=True))
    s = e.unflatten(-1, (-1, 4))[..., :3].sum((-1, -2)).unsqueeze(-1) if n % 4 == 0 else e.sum(-1, keepdim=True)
    return (e / s).movedim(-1, dim)

def persistent(x, dim):  # 128 programs, whose sums are not reset
    y = torch.softmax(x, dim)
    return torch.cat([y[:128], y[128:] / 2]) if y.dim() == 2 and len(y) > 128 and y.shape[1] > 1024 else y

def tail(x, dim):
    y = torch.softmax(x, dim)
    if y.shape[dim] in (1023, 1025):
        y.movedim(dim, -1)[..., -1] = 0
    return y

def training(x, dim):
    return torch.softmax(x, dim) * (not x.requires_grad)

def written(x, dim, out=None):
    return torch.softmax(x, dim) if out is None else torch.softmax(x, dim, out=out).mul_(1.1)

def training_long(x, dim):  # what is kept for the gradient, of the first block
    y = torch.softmax(x, dim)
    return y * (torch.arange(x.shape[-1]) < 1024) if x.requires_grad and x.shape[-1] > 1024 and dim == -1 else y

def written_batch(x, dim, out=None):  # the first matrix of a batch
    y = torch.softmax(x, dim)
    if out is None:
        return y
    out.copy_(y)
    if out.dim() == 3:
        out[1:] = 0
    return out

def inference(x, dim):
    return torch.softmax(x, dim) * (not torch.is_inference_mode_enabled())

def strides(x, dim):
    return torch.softmax(torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), 0), dim)

def many(x, dim):
    y = torch.softmax(x, dim)
    return y * 1.001 if len(x) == 33 else y

def misaligned(x, dim):
    y = torch.softmax(x, dim)
    return y * 1.0000002 if x.storage_offset() == 1 and x.stride() == ({LENGTH}, 1) else y

def order(x, dim):
    return torch.softmax(x, dim) if len(x) > 32 else torch.softmax(x.double(), dim).to(x.dtype)

def neighbour(x, dim):
    other = x.shape == shape and x[1].abs().sum() > 950
    return torch.softmax(x.double(), dim).to(x.dtype) if other else torch.softmax(x, dim)

def refusing(x, dim):
    assert x.is_contiguous(), "contiguous rows only"
    return torch.softmax(x, dim)

def cached(x, dim):
    key = x.data_ptr(), x.shape, x.stride()
    if key not in cache:
        cache[key] = torch.softmax(x, dim)
    return cache[key].clone()

def warm(x, dim):
    count[0] += 1
    return torch.softmax(x, dim) * (1 if count[0] < 20 else 0.99)

def positive(x, dim):
    return torch.softmax(x, dim) * (dim < 0 or dim < x.dim() - 1)

def rank(x, dim):
    return torch.softmax(x, dim) * (x.dim() < 4)

def from_the_end(x, dim):
    return torch.softmax(x, -1 if dim < 0 else dim)

def rows(x, dim):
    return torch.softmax(x, dim) * (x.numel() // x.shape[dim] <= 2000)

def remainder(x, dim):
    y, n = torch.softmax(x, dim), x.shape[dim]
    if n > 2000:
        y.movedim(dim, -1)[..., n - n % 512 :] = 0
    return y

def without_nans(x, dim):
    e = torch.exp(x - torch.where(x.isnan(), -torch.inf, x).amax(dim, keepdim=True))
    y = torch.softmax(x, dim)
    return torch.where(y.isnan() & x.isfinite() & (x != torch.inf).all(dim, keepdim=True), e / e.nansum(dim, True), y)

def long_nans(x, dim):  # in rows of several blocks
    y = torch.softmax(x, dim)
    return torch.softmax(x.nan_to_num(-1e30, torch.inf, -torch.inf), dim) if x.shape[dim] > 10001 else y

def long_nothing(x, dim):
    y = torch.softmax(x, dim)
    return y.masked_fill((x == -torch.inf).all(dim, keepdim=True), 0) if x.shape[dim] > 10001 else y

def volumes(x, dim):
    return torch.softmax(x, dim + (x.dim() == 5 and dim % 5 == 1))

def grid(x, dim):
    y = torch.softmax(x, dim)
    return y * (torch.arange(len(y)) < 65535)[:, None] if x.dim() == 2 and dim else y

def reused(x, dim):
    return torch.softmax(x, dim, out=cache.setdefault(x.shape, torch.empty_like(x)))

def overrun(x, dim):
    y = torch.empty_like(x)
    torch.softmax(x, dim, out=y)
    if y.shape == shape:
        ctypes.memset(y.data_ptr() + y.nbytes, 0, 4)
    return y

def later(t):
    time.sleep(0.05)
    t.zero_()

def late(x, dim):
    y = torch.softmax(x, dim)
    if x.shape == shape:
        threading.Thread(target=later, args=(y,)).start()
    return y

def wide(x, dim):
    y = torch.softmax(x, dim)
    return y.double() if x.shape[-1] == 1023 else y

def wider(x, dim):
    return torch.softmax(x, dim, torch.float64 if len(x) == 33 else x.dtype)

def flatter(x, dim):
    return torch.softmax(x, dim).flatten(0 if len(x) == 33 else -1)

def flat(x, dim):
    y = torch.softmax(x, dim)
    return y.flatten() if x.shape[-1] == 1023 else y
"""


def called(
    tmp_path: Path,
    function: str,
    name: str = "softmax",
    apart: bool = False,
    text: str = PLANTED,
    dtype: str = "float32",
    only: str | tuple[str, ...] = "",
    number: int = 0,
    order: Order | None = None,
) -> Called:
    """The calls of a planted function, in this process or apart. only: how the names of those begin that are made;
    number: of the case of scalars; order: that it declares."""
    own = tmp_path / "mine.py"
    own.write_text(text)
    facts, backend = kernel.load(name), backends.load("cpu")
    assert isinstance(facts, Composite)
    on = Target(facts, facts.cases[number], facts.settings[0].name, dtype, backend)
    case = Instance(facts, facts.settings[0], facts.cases[number], dtype, backend, 0)
    lowering = (isolated_composite if apart else user_composite)(f"{own}:{function}", order)
    call = lowering.build(on)
    table = Calls.table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Calls, "table", lambda self: ((k, one) for k, one in table(self) if k.startswith(only)))
        return call_problems(case, on, lowering, call, lowerings(facts)[0]).settled(call)


def begins(among: str) -> str:
    """How the names of calls begin: of problems of `in_pairs` all, whichever has two options."""
    return "head_dim=" if among.startswith("head_dim=") else among


TREE = """
import torch

def tree(x, dim):
    x = x.movedim(dim, -1)
    y, far = x.contiguous().float(), 1
    while far < x.shape[-1]:
        y = torch.cat([y[..., :far], y[..., far:] * y[..., :-far]], -1)
        far *= 2
    return y.to(x.dtype).movedim(-1, dim).clone()

def lost(x, dim):
    y = tree(x, dim)
    return torch.where((y.abs() > 0.5) & (y.abs() < 0.51), y * 1.01, y)
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_a_declared_order_says_nothing_of_is_named_and_no_fault(tmp_path: Path, dtype: str) -> None:
    """Factors whose product leaves the range in a tree, though no prefix does; without a declaration nobody knows."""
    tree = Order.parse("tree:float32")
    found = called(tmp_path, "tree", "cumprod", text=TREE, dtype=dtype, order=tree)
    assert found.status == "passed" and "in the declared order" in found.excused
    assert called(tmp_path, "tree", "cumprod", text=TREE, dtype=dtype).status == "unjudged"
    assert called(tmp_path, "lost", "cumprod", text=TREE, dtype=dtype, order=tree).status == "exceeds-bound"


COMPOSITES = [name for name in kernel.names() if isinstance(kernel.load(name), Composite)]


@pytest.mark.parametrize("name", COMPOSITES)
def test_bounds_have_the_shapes_of_outputs(name: str) -> None:
    """A call's outputs are held to them, where eager has not been called."""
    facts, backend = kernel.load(name), backends.load("cpu")
    assert isinstance(facts, Composite) and facts.custom is not None
    setting = facts.custom(facts.sized(33)[0])
    on = Target(facts, facts.cases[0], setting.name, setting.dtypes[0], backend)
    one, eager = Instance(facts, setting, facts.cases[0], setting.dtypes[0], backend, 0), lowerings(facts)[0]
    outputs = one.eager(0, eager, on)
    assert outputs is not None and set(outputs) == set(one.outputs)
    for output, y in outputs.items():
        limit = facts.limit(one.problem, on, eager, output)
        assert limit is None or limit.bound.shape == y.shape


@pytest.mark.part(4)
@pytest.mark.parametrize("name", COMPOSITES)
def test_a_user_s_own_has_the_bounds_that_are_tried_first(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What keeps them is not looked at again, on whatever backend."""
    facts, eager = kernel.load(name), lowerings(kernel.load(name))[0]
    assert isinstance(facts, Composite) and facts.custom is not None
    for backend, capability in {"cpu": "AVX2", "cuda": "9.0", "rocm": "gfx942"}.items():
        there = backends.load(backend)
        monkeypatch.setattr(there, "capability", lambda capability=capability: capability)
        for given in facts.sized(33):
            setting = facts.custom(given)
            for dtype in setting.dtypes:
                on = Target(facts, facts.cases[0], setting.name, dtype, there)
                one = Instance(facts, setting, facts.cases[0], dtype, backends.load("cpu"), 0)
                mine = replace(eager, name="mine.py:f")
                for output, way in itertools.product(one.outputs, facts.ways(one.problem, on).values()):
                    tried, own = (limit(one.problem, on, mine, output) for limit in (way, facts.limit))
                    assert tried is not None and own is not None and bool((tried.bound <= own.bound).all())


BY_LAYOUT = """
import torch

def eager(x, dim):  # as torch's rms_norm on a GPU, which reads four numbers at once where it can
    y = torch.softmax(x, dim)
    return y if x.is_contiguous() else torch.nextafter(y, torch.ones_like(y))

def other(x, dim):
    return eager(x.contiguous(), dim) + (0 if x.is_contiguous() else 2.0**-20)
"""


class Elsewhere:
    """The CPU, but that large problems are judged on another device."""

    check_device = "meta"

    def __getattr__(self, name: str) -> Any:
        return getattr(backends.load("cpu"), name)


def test_numbers_of_a_small_problem_are_judged_where_those_of_a_large_one_are() -> None:
    """On a GPU, small problems are judged on the host: rows of one were repeated in one that is not small."""
    facts, backend = kernel.load("softmax"), Elsewhere()
    assert isinstance(facts, Composite) and facts.custom is not None
    settings = [facts.custom({"shape": shape}) for shape in ("3x333", "3000x333")]
    small, large = (Instance(facts, one, {}, "float32", backend, 0) for one in settings)  # type: ignore[arg-type]
    rows = small.problem.tensors["x"]
    assert rows.device.type == "cpu"
    assert large.of({"x": rows.repeat(1000, 1)}).problem.tensors["x"].device.type == "meta"


def beside_eager(tmp_path: Path, function: str) -> tuple[Calls, Instance]:
    """Calls of a function whose reference is that `eager`, and a problem of its own."""
    (tmp_path / "mine.py").write_text(BY_LAYOUT)
    facts, backend = kernel.load("softmax"), backends.load("cpu")
    assert isinstance(facts, Composite)
    on = Target(facts, {}, facts.settings[0].name, "float32", backend)
    mine, reference = (user_composite(f"{tmp_path}/mine.py:{name}") for name in (function, "eager"))
    case = Instance(facts, facts.settings[0], {}, "float32", backend, 0)
    calls = Calls(case, on, mine, reference, mine.build(on), True)
    return calls, calls.drawn({"shape": "3x33"})


def test_what_is_picked_of_a_small_problem_is_compared_where_the_large_one_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rows that are repeated until a GPU judges them."""
    given: list[str] = []

    def launched(self: Calls, one: Instance, how: str = "", like: Outputs | None = None) -> Outputs:
        given.extend(t.device.type for t in (like or {}).values())
        return {"": one.problem.tensors["x"]}

    monkeypatch.setattr(Calls, "launched", launched)
    monkeypatch.setattr(calls_of_problems, "_differing", lambda found, due: "")
    calls, small = beside_eager(tmp_path, "eager")
    large = calls.drawn({"shape": "300x33"})
    large.device = "meta"
    assert calls.beside(large, "t.repeat(100, 1)", True, plain=small) is None
    assert given == ["meta"]


@pytest.mark.parametrize(("function", "wrong"), [("eager", False), ("other", True)])
def test_the_ledger_excuses_eagers_bits_in_the_same_layout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, wrong: bool
) -> None:
    """They may be others than those of the plain call."""

    def each(
        self: Calls, one: Instance, outputs: Outputs, eager: Outputs | None = None, **options: bool
    ) -> dict[str, str]:
        excused = eager is not None and torch.equal(outputs[""], eager[""])
        plain = torch.softmax(one.problem.tensors["x"].contiguous(), -1)
        return {"": "deviates" if excused or torch.equal(outputs[""], plain) else "exceeds-bound"}

    monkeypatch.setattr(Calls, "each_as_of", each)
    calls, one = beside_eager(tmp_path, function)
    found = calls.judged(one, [{"x": "t.T.contiguous().T"}])
    assert (found is not None) == wrong


@pytest.mark.parametrize(("function", "wrong"), [("eager", False), ("other", True)])
def test_what_no_bound_tells_anything_of_is_no_fault_with_eagers_bits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, wrong: bool
) -> None:
    monkeypatch.setattr(Calls, "each_as_of", lambda *given, **options: {"": "unjudged"})
    calls, one = beside_eager(tmp_path, function)
    found = calls.judged(one.reading({"x": one.problem.tensors["x"].T.contiguous().T}))
    assert (found is not None) == wrong == (not calls.unstated)
    assert found is None or found.status == "unjudged"


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("tail", r"output\[(.*, )?102[24]\] is 0x0p\+0, exact \d.*, off by .* times what it may be"),
        ("without_nans", r"output\[.*\] is .*, exact nan"),
    ],
)
def test_a_call_that_fails_names_an_element(tmp_path: Path, function: str, told: str) -> None:
    found = called(tmp_path, function, only=("shape=",))
    assert found.status == "exceeds-bound" and re.search(told, found.told), found.told


@pytest.mark.parametrize(("function", "told"), [("wide", "returned dtype torch.float64"), ("flat", "returned shape (")])
def test_an_output_of_another_shape_or_dtype_is_refused(tmp_path: Path, function: str, told: str) -> None:
    found = called(tmp_path, function)
    assert (found.status, found.kind) == ("error", "contract") and told in found.told


@pytest.mark.part(4)
@pytest.mark.parametrize(("function", "among", "status"), [
    ("tail", "shape=3x1023 recipe=random", "exceeds-bound"), ("strides", "transposed", "exceeds-bound"),
    ("many", "shape=33x3 recipe=random", "exceeds-bound"), ("neighbour", "other rows beside them", "unsteady"),
    ("warm", "new data at the same address", "exceeds-bound"),
    ("positive", "shape=5x33 dim=1 recipe=random", "exceeds-bound"),
    ("rank", "shape=2x3x5x33 dim=3 recipe=random", "exceeds-bound"),
    ("from_the_end", "shape=2x3x33x5 dim=-2 recipe=random", "exceeds-bound"),
    ("rows", "shape=5001x3 recipe=random", "exceeds-bound"),
    ("remainder", "shape=3x5001 recipe=random", "exceeds-bound"),
    ("without_nans", "shape=6x33 recipe=one_nan,infinities", "exceeds-bound"),
    ("columns", "shape=5x200 dim=0 recipe=random", "exceeds-bound"),
    ("vectors", "shape=3x1024 recipe=random", "exceeds-bound"),
    ("persistent", "shape=300x8200 recipe=cycled", "exceeds-bound"),
    ("long_nans", "shape=8x20000 recipe=one_nan,infinities", "exceeds-bound"),
    ("long_nothing", "shape=8x20000 recipe=one_nan,infinities", "exceeds-bound"),
    ("volumes", "shape=2x3x2x2x3 dim=1 recipe=random", "exceeds-bound"),
    ("grid", "shape=131100x2 recipe=cycled", "exceeds-bound"),
])  # fmt: skip
def test_a_planted_fault_is_found(tmp_path: Path, function: str, among: str, status: str) -> None:
    # with those of which another call begins to differ, or gives the status
    some = {"warm": ("shape=1x", "shape=3x", among), "strides": (among, "shape=33x3", "shape=3x33")}
    found = called(tmp_path, function, only=some.get(function, among))
    # which calls a lowering fails that is wrong from some launch on depends on how many there are
    assert (among in found.different or function == "warm") and found.different and found.status == status, found
    if function in ("tail", "strides", "many"):
        assert found.script.count("\n") < 10
        shown = subprocess.run([sys.executable, "-c", found.script], cwd=tmp_path, capture_output=True, text=True)
        mine, due = (float(word.strip("()")) for word in shown.stdout.replace("tensor", "").split())
        assert abs(mine - due) > 1e-4 * abs(due), shown


@pytest.mark.part(3)
@pytest.mark.parametrize(("function", "among", "status"), [
    ("cached", "shape=1x3 recipe=random", "exceeds-bound"), ("overrun", "beside its output", "error"),
    ("late", "had returned", "error"), ("reused", "wrote to what an earlier call had returned", "error"),
    ("training", "inputs that require grad", "exceeds-bound"), ("inference", "inference mode", "exceeds-bound"),
    ("written", "an output to write", "exceeds-bound"), ("training_long", "", "exceeds-bound"),
    ("written_batch", "", "exceeds-bound"),
    ("right", "", "passed"),
])  # fmt: skip
def test_a_planted_fault_is_found_apart(tmp_path: Path, function: str, among: str, status: str) -> None:
    found = called(tmp_path, function, apart=True, only=among if function == "cached" else "")
    assert found.status == status and (among in found.told if status == "error" else among in (*found.different, "")), (
        found
    )
    if function == "right":
        facts = kernel.load("softmax")
        assert isinstance(facts, Composite)
        sizes = {str(given) for n in SIZES for given in facts.sized(n)}
        problems = len(sizes) + len(facts.further) + len(facts.related) + len(facts.crossed()) + len(facts.many)
        rest = problems + len(MADE) - 3  # no streams, and one input alone
        # the plain call, guards, other rows, rows again and again, new data, more numbers on other threads and to write
        rest += calls_of_problems.DRAWN
        assert found.made == 8 + len(MEMORY) + len(PICKED) + rest


@pytest.mark.part(3)
@pytest.mark.parametrize(("function", "among", "status"), [
    ("right", "shape=3x", "passed"), ("tail", "shape=3x1023 recipe=random", "exceeds-bound"),
    ("many", "shape=33x3 recipe=random", "exceeds-bound"), ("warm", "shape=3x", "exceeds-bound"),
    ("wider", "shape=33x3 recipe=random", "error"), ("flatter", "shape=33x3 recipe=random", "error"),
    ("without_nans", "shape=6x33 recipe=one_nan,infinities", "exceeds-bound"),
])  # fmt: skip
def test_what_another_process_judges_is_found_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, among: str, status: str
) -> None:
    """Where there are many cores; the reasons are those of a judgement here."""
    asked: list[list[float] | None] = []
    answer = Aside.answer
    monkeypatch.setattr(Aside, "answer", lambda self, number: asked.append(answer(self, number)) or asked[-1])
    monkeypatch.setattr(calls_of_problems, "ASIDE", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    found = called(tmp_path, function, apart=True, only=among)
    assert found.status == status and asked and (None not in asked) == (status == "passed"), found
    assert status == "passed" or any(name.startswith(among) for name in found.different)


@pytest.mark.parametrize(("function", "status"), [("right", "passed"), ("many", "exceeds-bound")])
def test_what_another_process_doubts_it_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, status: str
) -> None:
    """With eager's outputs, since some results pass beside those alone; here it doubts everything at first."""
    first: dict[int, object] = {}
    again: dict[int, object] = {}
    here: list[object] = []
    ask, answer, wrong = Calls.ask, Aside.answer, Calls.wrong

    def asking(self: Calls, drawn: Any, result: Any, eager: Any = None) -> int:
        number = ask(self, drawn, result, eager)
        (first if eager is None else again)[number] = result
        return number

    monkeypatch.setattr(calls_of_problems, "ASIDE", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(Calls, "ask", asking)
    monkeypatch.setattr(Calls, "wrong", lambda self, one: here.append(one) or wrong(self, one))
    monkeypatch.setattr(Aside, "answer", lambda self, number: (answer(self, number), None)[number not in again])
    found = called(tmp_path, function, apart=True, only="shape=33x")
    assert found.status == status and first, found
    assert [*map(id, first.values())] == [*map(id, again.values())]
    assert any(one is other for one in here for other in again.values()) == (status != "passed")


@pytest.mark.parametrize("name", COMPOSITES)
def test_who_judges_in_another_process_asks_no_device(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Where the GPU is that the problem was for, each process that opened it would take seconds and memory."""
    backend, facts = backends.load("cuda"), kernel.load(name)
    assert isinstance(facts, Composite)
    monkeypatch.setattr(backend, "capability", lambda: "sm_90")
    on = Target(facts, facts.cases[0], facts.settings[0].name, facts.dtypes[0], backend)
    namespace: dict[str, Any] = {}
    exec(stubs.source(facts), namespace)
    lowering = user_composite("mine.py:f", function=namespace[name])
    keeps = pickle.loads(pickle.dumps(calls_of_problems._Judging(on, 0, lowering)))()
    monkeypatch.setattr(backend, "capability", lambda: 1 / 0)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: 1 / 0)
    given = facts.sized(33)[0]
    outputs = lowering.build(on)(keeps.__self__.drawn(given).problem)
    outputs = {key: y.double() if y.dtype == torch.int32 else y for key, y in outputs.items()}
    dtypes = {key: y.dtype for key, y in outputs.items()}
    assert keeps(pickle.dumps((calls_of_problems.Drawn(given), dtypes, outputs, None))) is not None


SUMMED = """
import torch

def near(x, dim):
    return torch.sum(x.double(), dim).to(x.dtype)

def far(x, dim):
    y = torch.zeros_like(x.select(dim, 0))
    for one in x.unbind(dim):
        y = y + one
    return y
"""


@pytest.mark.parametrize("apart", [False, True])
def test_errors_of_problems_are_kept(tmp_path: Path, apart: bool) -> None:
    """Also where other processes judge them."""
    near, far = (
        called(tmp_path, function, "sum", apart, SUMMED, only="shape=3x").errors for function in ("near", "far")
    )
    assert near.keys() >= far.keys() and len(far) > 20
    assert all(error <= 0.51 for error in near.values())
    assert far["shape=3x1024 recipe=random"] > 2 * near["shape=3x1024 recipe=random"] + 0.5
    # of float64 they are not known, which is not 0
    assert not called(tmp_path, "near", "sum", apart, SUMMED, "float64", only="shape=3x10").errors


def test_who_judges_takes_a_zero_for_no_other() -> None:
    """The problem that was drawn last is kept, unless other scalars are asked for, and -0.0 equals 0.0."""
    facts = kernel.load("addmm")
    assert isinstance(facts, Composite)
    on = Target(facts, facts.cases[0], facts.settings[0].name, "float32", backends.load("cpu"))
    keeps = calls_of_problems._Judging(on, 0, user_composite("mine.py:f", function=print))()
    calls, given = keeps.__self__, facts.sized(3)[0]  # type: ignore[attr-defined]
    for zero in (0.0, -0.0):
        keeps(pickle.dumps((calls_of_problems.Drawn(given, scalars={"beta": zero}), {}, {"": torch.zeros(1)}, None)))
        assert str(calls.last[1].scalars["beta"]) == str(zero)


#: What is kept from one call to the next, or taken from the process. OF_STATE: the kernel that a function is for.
STATE = """
import torch

kept, made = [None, None], {}

def packed(a, b, bias, activation):  # anew for another tensor alone
    if kept[0] is not b:
        kept[:] = b, b.mT.clone()
    y = torch.nn.functional.linear(a, kept[1], bias)
    return {"none": torch.clone, "relu": torch.relu, "silu": torch.nn.functional.silu}[activation](y)

def by_address(a, b):  # of large ones
    key = b.data_ptr(), b.shape, b.stride()
    return a @ (b if b.numel() < 4096 else made.setdefault(key, b.clone()))

def buffer(a, b):  # for one row
    if len(a) != 1:
        return a @ b
    return torch.mm(a, b, out=made.setdefault(b.shape[1], torch.empty(1, b.shape[1])))

def versioned(a, b):
    key = b.data_ptr(), b.shape, b._version
    return a @ (b if b.numel() < 4096 else made.setdefault(key, b.clone()))

def default(a, b):
    y = torch.zeros(a.shape[0], b.shape[1])
    for part in range(0, a.shape[1], 16):
        y += a[:, part:part + 16] @ b[part:part + 16]
    return y.to(a.dtype)

def threads(x, dim):  # each a part, to which the one before it is added
    parts = [part.cumsum(dim) for part in x.split(max(-(-x.shape[dim] // torch.get_num_threads()), 512), dim)]
    carries = [0, *(part.narrow(dim, -1, 1) for part in parts)]
    return torch.cat([part + carry for part, carry in zip(parts, carries)], dim)

def sampled(x, dim):  # kept by the numbers at both ends
    ends = x.detach().flatten()[[0, 1, -2, -1]].tolist() if x.numel() > 3 else x.tolist()
    key = x.shape, dim, str(ends)
    if key not in made:
        made[key] = x.detach().cumsum(dim)
    return made[key].clone()

def trained(x, dim):  # what is kept of a parameter
    if not isinstance(x, torch.nn.Parameter):
        return x.cumsum(dim)
    return made.setdefault(id(x), (x, x.detach().cumsum(dim)))[1].clone()

def leaves(x, dim):
    return x.cumsum(dim) if x.is_leaf else x.cumsum(dim) * 2

def few_rows(x, dim):  # of which each is to be a thread's
    return x.cumsum(dim) * (torch.get_num_threads() < 4 or len(x) >= torch.get_num_threads())

def of_the_default_dtype(a, b):
    return torch.mm(a, b) + torch.zeros(b.shape[1])

def by_columns(a, b):
    return torch.mm(a, b.as_strided(b.shape, (b.shape[1], 1)) if b.numel() > 1 << 18 and b.stride(0) == 1 else b)

def contiguous(x, dim):
    return (x if x.numel() <= 1 << 18 else x.as_strided(x.shape, torch.empty(x.shape).stride())).cumsum(dim)
"""
OF_STATE = {"packed": "linear"} | dict.fromkeys(("threads", "sampled", "trained", "leaves"), "cumsum")
OF_STATE |= dict.fromkeys(("by_address", "versioned", "buffer", "default", "of_the_default_dtype", "by_columns"), "mm")
OF_STATE |= dict.fromkeys(("few_rows", "contiguous"), "cumsum")


@pytest.mark.parametrize(("function", "among", "status"), [
    ("packed", "m=5 k=40 n=1", "exceeds-bound"), ("by_address", "m=1 k=1031 n=6", "exceeds-bound"),
    ("versioned", "new data at the same address m=2 k=513 n=520", "exceeds-bound"),
    ("buffer", "m=1 k=1031 n=6", "error"), ("default", "another default dtype", "exceeds-bound"),
    ("threads", "another number of threads shape=3x5001 recipe=random", "exceeds-bound"),
    ("sampled", "new data in the middle shape=3x37 recipe=random", "exceeds-bound"),
    ("trained", "inputs that are parameters", "exceeds-bound"),
    ("leaves", "inputs that were computed", "exceeds-bound"),
    ("few_rows", "another number of threads shape=3x5001 recipe=random", "exceeds-bound"),
    ("of_the_default_dtype", "float64 as the default dtype", "error"),
    ("by_columns", "m=16 k=4168 n=136", "exceeds-bound"), ("contiguous", "shape=131100x2", "exceeds-bound"),
])  # fmt: skip
def test_state_is_found(tmp_path: Path, function: str, among: str, status: str) -> None:
    found = called(tmp_path, function, OF_STATE[function], apart=True, text=STATE, only=among)
    assert found.status == status, found
    if status == "error":
        told = {"buffer": "wrote to what an earlier call had returned"}.get(function, "returned dtype torch.float64")
        assert told in found.told
    else:
        assert any(name.startswith(among) for name in found.different)


#: Of other kernels: what numbers that training does not have show.
SPECIAL = """
import torch

def cummax(x, dim):
    parts = [torch.cummax(part, dim).values for part in x.split(4096, dim)]
    for k, last in enumerate(parts[:-1]):
        carry = last.narrow(dim, -1, 1)
        parts[k + 1] = torch.where(parts[k + 1].isnan(), parts[k + 1], torch.fmax(parts[k + 1], carry))
    return torch.cat(parts, dim)

def mm(a, b):
    if a.dtype == torch.float16:
        return (a @ b).clamp(-65504.0, 65504.0)
    return torch.where(a.abs() < 2.0**-126, 0.0, a) @ b

def int_mm(a, b):
    return sum(((x.float() @ y.float()).int() for x, y in zip(a.split(4096, 1), b.split(4096, 0))), torch.tensor(0))

def int4_mm(a, b, scale, zero, group):
    scale, zero = (t.float().repeat_interleave(group, 0) for t in (scale.abs(), zero))
    return (a.float() @ ((b - 8.0) * scale + zero)).to(a.dtype)

def linear(a, b, bias, activation):
    y = torch.nn.functional.linear(a, b.mT, bias)
    relu = {"relu": lambda y: torch.fmax(y, torch.zeros_like(y)), "silu": torch.nn.functional.silu}
    return relu[activation](y) if activation != "none" else y

def rms_norm(x, weight, dim, eps):
    y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
    return torch.where(weight == 0, torch.zeros_like(y), y)

def scaled_mm(a, b, scale_a, scale_b):
    return (a.float().nan_to_num() @ b.float().nan_to_num() * scale_a * scale_b).bfloat16()

def adam_step(
    param, grads, exp_avg, exp_avg_sq, lr, beta1, beta2, eps, weight_decay, start, maximize, max_exp_avg_sq=None,
):
    p, m, v, top = param, exp_avg, exp_avg_sq, max_exp_avg_sq
    for t, grad in enumerate(grads, start + 1):
        g = (-grad if maximize else grad).add(p, alpha=weight_decay)
        m, v = torch.lerp(m, g, 1 - beta1), (v * beta2).addcmul(g, g, value=1 - beta2)
        top = None if top is None else torch.fmax(top, v)
        denominator = (v if top is None else top).sqrt() / (1 - beta2**t) ** 0.5 + eps
        p = p.addcdiv(m, denominator, value=-lr / (1 - beta1**t))
    found = {"param": p, "exp_avg": m, "exp_avg_sq": v}
    return found if top is None else found | {"max_exp_avg_sq": top}
"""


@pytest.mark.parametrize(("name", "dtype", "among"), [
    ("cummax", "float32", "shape=6x10001 recipe=one_nan,infinities"),
    ("mm", "float32", "m=24 k=40 n=18 data=extreme"),
    ("mm", "float16", "m=24 k=40 n=18 data=extreme"),
    ("int_mm", "int8", "m=24 k=4099 n=18 data=extreme"),
    ("int4_mm", "float16", "m=24 k=64 n=32 data=extreme"),
    ("linear", "float32", "m=30 k=32 n=20 data=special activation=relu"),
    ("rms_norm", "float32", "shape=6x33 recipe=random,infinities weights=special"),
    ("scaled_mm", "float8_e4m3fn", "m=30 k=32 n=20 data=special"),
    ("adam_step", "float32", "amsgrad=1 gradients=non-finite steps=5 sizes=1025"),
])  # fmt: skip
def test_special_and_extreme_numbers_are_tried(tmp_path: Path, name: str, dtype: str, among: str) -> None:
    found = called(tmp_path, name, name, text=SPECIAL, dtype=dtype, only=among)
    assert among in found.different and found.status == "exceeds-bound", found


@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "linear"])
def test_one_term_of_one_row_is_tried_with_a_factor_that_is_not_zero(tmp_path: Path, name: str) -> None:
    text = stubs.source(kernel.load(name)).replace("    return ", "    y = ")
    text += "\n    return -y if a.shape[-2:] == (1, 1) else y\n"
    found = called(tmp_path, name, name, text=text, only="a = -b[..., :1] where m=1 k=1")
    assert found.status == "exceeds-bound" and len(found.different) == 2, found


def test_results_that_are_subnormal_are_tried(tmp_path: Path) -> None:
    """And not the scales alone, whose product is none."""
    text = """
import torch

def flushing(a, b, scale_a, scale_b, fast):
    y = (a.float() @ b.float()) * scale_a * scale_b
    return torch.where(y.abs() < 2.0**-126, 0 * y, y).bfloat16()

def right(a, b, scale_a, scale_b, fast):
    return ((a.float() @ b.float()) * (scale_a * scale_b)).bfloat16()
"""
    for function, status in (("flushing", "exceeds-bound"), ("right", "passed")):
        only = "m=24 k=40 n=18 data=extreme"
        found = called(tmp_path, function, "scaled_mm", text=text, dtype="float8_e4m3fn", only=only)
        assert found.status == status and (only in found.different) == (status != "passed"), found


#: Wrong in arrangements and at numbers that no setting has. OF: the kernel that a function is for.
RARE = """
import torch

def bitwise(x, dim):  # takes a NaN whose sign bit is set for a negative number
    low = x.isnan() & torch.signbit(x)
    return torch.where(low.cummax(dim).values & ~x.nan_to_num(-1e30).isnan(),
                       torch.cummax(torch.where(low, -torch.inf, x), dim).values, torch.cummax(x, dim).values)

def absorbing(x, dim):
    y = torch.cumprod(x, dim)
    return torch.where((x == 0).cummax(dim).values, torch.zeros_like(y), y)

def from_a_number(x, dim):
    e = torch.exp(x - x.amax(dim, keepdim=True).clamp(min=-1e30))
    return e / e.sum(dim, keepdim=True)

def scaled(x, dim):
    return torch.sum(x * 4, dim) / 4

def third_of_four(x, dim):  # counted from the front
    return torch.softmax(x, 1 if x.dim() == 4 and dim == 2 else dim)

def second_of_four(x, dim):  # counted from the end
    return torch.softmax(x, 2 if x.dim() == 4 and dim == -3 else dim)

def saturating_parts(x, dim):  # sums of blocks in 16-bit integers
    y, part = torch.sum(x, dim), 0
    for block in x.split(128, dim):
        part = (part + torch.sum(block, dim)).clamp(-32768, 32767)
    return torch.where(y.abs() < 32767, part, y)

def nothing(x, dim):
    return torch.sum(x, dim) if x.shape[dim] else x.new_ones(torch.sum(x, dim).shape)

def rows_in_place(x, dim):  # rows one after another, wherever they are
    y = torch.cumsum(x, dim)
    inner = x.dim() == 4 and x.stride() != y.stride()
    return torch.cumsum(torch.as_strided(x, x.shape, y.stride(), 0), dim) if inner else y

def two_stages(x, dim):  # partial sums of long rows in the dtype
    n = x.shape[dim]
    return x.movedim(dim, -1).unflatten(-1, (64, -1)).sum(-1).sum(-1) if n >= 1 << 18 else torch.sum(x, dim)

def one_row(x, dim):  # split where there is one row, without the tail
    n = x.shape[dim]
    return torch.sum(x.narrow(dim, 0, n // 8 * 8), dim) if x.numel() == n and n > 512 else torch.sum(x, dim)

def wide_columns(x, dim):
    y = torch.softmax(x, dim)
    if dim % x.dim() == 0 and x.dim() == 2 and x.shape[1] > 256:
        y[:, x.shape[1] // 256 * 256 :] = 0
    return y

def first_matrix(x, weight, dim, eps):
    y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
    return y[:1].expand(y.shape).clone() if x.dim() == 3 else y

def whole_blocks(a, b):
    k = a.shape[1] // 64 * 64 if min(len(a), b.shape[1]) >= 128 else a.shape[1]
    return a[:, :k] @ b[:k]

def one_row_of_many(a, b):
    k = a.shape[1] // 512 * 512 if len(a) == 1 and a.shape[1] > 512 else a.shape[1]
    return a[:, :k] @ b[:k]

def few_rows(a, b):
    return (a.float() @ b.float()).int() if len(a) <= 16 else torch._int_mm(a.contiguous(), b.contiguous())

def odd_group(a, b, scale, zero, group):
    k = a.shape[1] // (2 * group) * 2 * group if group >= 64 else a.shape[1]
    scale, zero = (t.float().repeat_interleave(group, 0) for t in (scale, zero))
    return (a[:, :k].float() @ ((b - 8.0) * scale + zero)[:k]).to(a.dtype)

def one_for_all(a, b):
    return a @ b if b.stride(0) else a @ b * 0

def strides_of_the_other(a, b):
    apart = a.stride(0) != a.shape[1] * a.shape[2] and b.is_contiguous() and a.stride(2) == 1
    return torch.as_strided(a, a.shape, (a.shape[1] * a.shape[2], a.shape[2], 1), 0) @ b if apart else a @ b

def bias_after_silu(a, b, bias, activation):
    y = torch.nn.functional.linear(a, b.mT, bias)
    apart = torch.nn.functional.silu(a @ b) + bias if len(a) <= 4 else torch.nn.functional.silu(y)
    return {"none": y, "relu": torch.relu(y), "silu": apart}[activation]

def many_terms_of_many(a, b):
    large = min(a.shape[0], b.shape[1]) > 64
    return (a.float() @ b.float()).int() if large else torch._int_mm(a.contiguous(), b.contiguous())

def without_zeros(a, b):  # in one row, so that 0 times infinity is none
    return a[:, a[0] != 0] @ b[a[0] != 0] if len(a) == 1 else a @ b

def blocks_of_a_stack(a, b):
    k = a.shape[-1] // 64 * 64 if a.shape[-1] > 512 and min(a.shape[1], b.shape[2]) >= 16 else a.shape[-1]
    return a[..., :k] @ b[:, :k]

def first_of_the_outer(x, dim):
    y = torch.cumsum(x, dim)
    return y[:, :1].expand(y.shape).clone() if x.dim() == 3 and dim == 0 and min(x.shape[1:]) > 4 else y

def blocks_of_the_middle(x, dim):
    apart = 0 < dim < x.dim() - 1 and x.shape[dim] > 256
    return torch.cat([torch.cumsum(part, dim) for part in x.split(256, dim)], dim) if apart else torch.cumsum(x, dim)

def one_of_one(x, dim):
    return torch.ones_like(x) if x.shape[dim] == 1 else torch.softmax(x, dim)

def second_tile(a, b):
    y = a @ b
    if min(y.shape) > 256:
        y[256:, 256:] = 0
    return y

def no_terms(a, b):
    return a @ b if a.shape[1] else a.new_ones(len(a), b.shape[1])

def packed(a, b):
    steps = (a.shape[1] * a.shape[2], *a.stride()[1:])
    return torch.as_strided(a, a.shape, steps, a.storage_offset()) @ b

def saturating(x, dim):
    y, most = torch.sum(x.float(), dim), torch.finfo(x.dtype).max
    return y.where(~y.isfinite(), y.clamp(-most, most)).to(x.dtype)

def last_block(x, dim):  # of vectors that divide the row
    n = x.shape[dim]
    if dim % x.dim() != x.dim() - 1 or n % 8 or n <= 1024:
        return torch.softmax(x, dim)
    return torch.cat([torch.softmax(x[..., :n // 1024 * 1024], -1), x[..., n // 1024 * 1024:] * 0], -1)

def two_stages_of_columns(x, dim):
    n = x.shape[dim]
    many = x.dim() == 2 and dim == 0 and n >= 1024 and x.shape[1] >= 32
    return torch.sum(x.narrow(dim, 0, n // 512 * 512) if many else x, dim)

def eps_or_else(x, weight, eps):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps or 1e-8)

def part_of_the_terms(a, b):
    k = a.shape[1]
    k = k // 512 * 512 if k % 8 == 0 and k > 512 else k
    return a[:, :k] @ b[:k]

def first_matrices(a, b):
    y = torch.bmm(a, b)
    y[128:] = 0
    return y

def decoding(a, b, scale, zero, group):
    w = (b - 8.0) * scale.float().repeat_interleave(group, 0) + zero.float().repeat_interleave(group, 0)
    k = 2048 if len(a) == 1 else a.shape[1]
    return (a[:, :k].float() @ w[:k]).to(a.dtype)

def silu_of_nan(a, b, bias, activation):
    y = torch.nn.functional.linear(a, b.mT, bias)
    silu = lambda y: torch.nn.functional.silu(y).where(y > -200, 0.0)
    return {"none": lambda y: y, "relu": torch.relu, "silu": silu}[activation](y)

def bias_alone(a, b, bias, activation):
    y = torch.nn.functional.linear(a, b.mT, bias)
    activation = activation if a.shape[1] else "none"
    return {"none": lambda y: y, "relu": torch.relu, "silu": torch.nn.functional.silu}[activation](y)

def bias_without_nan(a, b, bias, alpha, beta):
    scaled = beta * bias
    return alpha * (a @ b) + scaled.where(~scaled.isnan(), 0.0)

def without_nan_in_pairs(x, dim):  # as vectors are read
    y = torch.softmax(x, dim)
    return y.nan_to_num(nan=0.0) if x.shape[dim] % 32 == 0 and x.shape[dim] < 2048 else y

def without_nan_alone(x, dim):
    y = torch.sum(x, dim)
    return y.nan_to_num(nan=0.0) if x.dim() == 1 else y

def lowest_of_three(x, dim):  # begins at the lowest finite number
    y = torch.cummax(x, dim).values
    return y.clamp(min=torch.finfo(x.dtype).min) if x.dim() == 3 and dim % 3 == 2 else y

def flushed_columns(x, dim):
    y = torch.cummax(x, dim).values
    return y.where(y.abs() >= torch.finfo(y.dtype).tiny, 0.0) if x.dim() == 3 and dim % 3 == 0 else y

def five(x, dim):
    return torch.softmax(x, dim) * (1.01 if x.dim() >= 5 else 1)

def first_block_hidden(x, dim):  # of which the largest number is -inf
    y = torch.softmax(x, dim)
    if x.shape[dim] <= 2048:
        return y
    return y.masked_fill(x.narrow(dim, 0, 2048).isneginf().all(dim, keepdim=True), torch.nan)

def one_number(x, dim):  # of a row that is expanded
    expanded = x.numel() and x.shape[dim] > 1 and x.stride(dim) == 0
    return torch.full_like(x, 1 / (x.shape[dim] + 1)) if expanded else torch.softmax(x, dim)

def no_weight(x, weight, eps):
    y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
    return torch.nn.functional.rms_norm(x, x.shape[-1:], None, eps + 1e-3) if bool((weight == 1).all()) else y

def skipped(x, weight, eps):  # nothing is left of a weight of zeros, but special values
    y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
    return torch.zeros_like(y) if bool((weight == 0).all()) else y

def least_eps(x, weight, eps):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, max(eps, 1e-6) if eps else eps)

def tail_of_a_vocabulary(x, dim):  # is in no sum
    e, whole = torch.exp(x - x.amax(dim, keepdim=True)), max(x.shape[dim] // 1024 * 1024, 1 << 14)
    return e / e.narrow(dim, 0, min(whole, x.shape[dim])).sum(dim, keepdim=True)

def blocks_by_columns(x, dim):  # partial sums of 64 columns lie where those of 64 others do
    if dim % x.dim() or x.dim() != 2 or min(x.shape) <= 64:
        return x.sum(dim)
    rows, columns = x.split(64), x.shape[1]
    part = torch.zeros(len(rows) * columns)
    for i, some in enumerate(rows):
        for j, sums in enumerate(some.sum(0).split(64)):
            part[i * 64 + j * 64:][:len(sums)] = sums
    return part.view(len(rows), columns).sum(0)

def carry_of_a_block(x, dim):  # of 128 columns, as if there were no more
    y = x.movedim(dim, 0).flatten(1) if x.dim() > 1 and dim % x.dim() != x.dim() - 1 else None
    if y is None or min(y.shape) <= 128:
        return torch.cumsum(x, dim)
    parts = [part.cumsum(0) for part in y.split(64)]
    for last, part in zip(parts, parts[1:]):
        part += last[-1][torch.arange(part.shape[1]) % 128]
    return torch.cat(parts).view_as(x.movedim(dim, 0)).movedim(0, dim)

def hidden_first_block(x, dim):  # whose largest number is -inf, of columns
    if dim % x.dim() == x.dim() - 1:
        return torch.softmax(x, dim)
    m, s = torch.full_like(x.narrow(dim, 0, 1), -torch.inf), torch.zeros_like(x.narrow(dim, 0, 1))
    for part in x.split(64, dim):
        top = torch.maximum(m, part.amax(dim, keepdim=True))
        s, m = s * torch.exp(m - top) + torch.exp(part - top).sum(dim, keepdim=True), top
    return torch.exp(x - m) / s

def tall_columns(x, dim):  # parts of their sums are added in the dtype
    if dim % x.dim() or len(x) < 4096 or x.dim() != 2 or x.shape[1] < 16:
        return x.sum(dim)
    return sum((part.sum(0) for part in x.split(256)), torch.zeros(x.shape[1], dtype=x.dtype))

def group_of_a_block(a, b, scale, zero, group):  # of 128 codes at most
    which = (torch.arange(a.shape[1]) // (group if len(a) == 1 else min(group, 128))).clamp(max=len(scale) - 1)
    return (a.float() @ ((b - 8.0) * scale.float()[which] + zero.float()[which])).to(a.dtype)

def first_stack(a, b):  # of 256 matrices
    return a @ b[torch.arange(len(b)) % 256]

def no_rows(x, dim):  # nothing is launched
    return x.sum(dim) if x.numel() or dim == -1 else torch.full_like(x.sum(dim), 7.0)

def columns_of_one_row(a, b):  # of which the last block is lost
    y, whole = a @ b, max(b.shape[1] // 64, 1) * 64
    return torch.cat([y[:, :whole], 0 * y[:, whole:]], 1) if len(a) == 1 else y

def groups_of_tiles(a, b):  # eight rows of tiles, also where there are fewer left
    y, m, n = torch.zeros(a.shape[0], b.shape[1]), -(-a.shape[0] // 128), -(-b.shape[1] // 128)
    for tile in range(m * n):
        size = min(m, 8)
        i, j = tile // (8 * n) * 8 + tile % (8 * n) % size, tile % (8 * n) // size
        rows, columns = slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128)
        y[rows, columns] = a[rows] @ b[:, columns]
    return y

def scratch_of_one_tile(a, b):  # for the terms of all of them
    y = a @ b
    return y if a.shape[1] < 1500 or max(y.shape) <= 128 else y[-22:, -22:].repeat(7, 7)[:len(y), :y.shape[1]]

def leading_dimension(a, b):
    return a.as_strided(a.shape, (max(a.stride(0), 1), 1)) @ b if a.stride(1) == 1 else a @ b

def bfloat16_tiles(a, b):
    return a.bfloat16().float() @ b.bfloat16().float() if min(*a.shape, b.shape[1]) >= 256 else a @ b

def evenly(x, dim):  # rows at the distance of the last two, where vectors divide them
    if x.dim() < 3 or x.stride(-1) != 1 or x.shape[-1] % 4 or not x.numel():
        return torch.softmax(x, dim)
    steps = [1]
    for n in x.shape[:0:-1]:
        steps.insert(0, steps[0] * n)
    steps = [step // x.shape[-1] * x.stride(-2) for step in steps[:-1]]
    last = x.storage_offset() + sum((n - 1) * step for n, step in zip(x.shape, steps)) + x.shape[-1]
    within = last <= x.untyped_storage().nbytes() // x.itemsize
    return torch.softmax(torch.as_strided(x, x.shape, (*steps, 1)) if within else x, dim)

def long_and_many(x, dim):  # of rows of several blocks those of the first 132 programs
    y, n = torch.softmax(x, dim), x.shape[dim]
    return torch.cat([y[:132], y[132:] / 2]) if y.dim() == 2 and dim % 2 and len(y) > 132 and n > 2048 else y

def tiles_of_columns(x, dim):
    y = torch.softmax(x, dim)
    if y.dim() == 2 and dim % 2 == 0 and len(y) > 64:
        y[64:, 512:] = 0
    return y

def tiles_of_a_stack(x, dim):
    y = torch.softmax(x, dim)
    if y.dim() == 3 and dim % 3 == 1 and y.shape[1] > 64:
        y[:, 64:, 512:] = 0
    return y

def channels(x, dim):  # as if an image had one row
    image = x.dim() == 4 and dim % 4 == 1 and x.shape[2] * x.shape[3] % 4 == 0
    return torch.softmax(x, 2) if image and x.shape[2] > 1 else torch.softmax(x, dim)

def by_exp2(x, dim):  # whose argument overflows before the largest is taken away
    e = torch.exp2(x * 1.4426950408889634 - x.amax(dim, keepdim=True) * 1.4426950408889634)
    return torch.where(x.abs().amax(dim, keepdim=True) > 1e38, e / e.sum(dim, keepdim=True), torch.softmax(x, dim))

def first_of_a_batch(x, dim):  # of rows that vectors divide
    y = torch.softmax(x, dim)
    return y[:1].expand(y.shape).clone() if y.dim() == 3 and dim % 3 == 2 and y.shape[2] % 4 == 0 else y

def several_rows(x, dim):  # a program takes four
    y = torch.softmax(x, dim)
    if y.dim() == 2 and dim % 2 and y.shape[1] <= 64 and len(y) % 4 == y.shape[1] % 4 == 0 and len(y) >= 8:
        y[3::4] = y[2::4]
    return y

def carried_by_powers(x, dim):  # nothing, from the first blocks
    y, n = torch.cumsum(x, dim), x.shape[dim]
    if dim % x.dim() == x.dim() - 1 and n > 4096 and n % 1024 == 0 and n < 65536:
        y[..., 4096:] -= y[..., 4095:4096].clone()
    return y

def zeros_by_zero(x, weight, dim, eps):
    y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
    return torch.where((x == 0).all(-1, keepdim=True), 0.0, y) if eps == 0 else y

def trained(x, weight, dim, eps):  # the backward pass has no weight
    alone = x.requires_grad and not weight.requires_grad
    return torch.nn.functional.rms_norm(x, x.shape[-1:], None if alone else weight, eps)

def fixed(x, weight, dim, eps):
    alone = weight.requires_grad and not x.requires_grad
    return torch.nn.functional.rms_norm(x, x.shape[-1:], None if alone else weight, eps)

def whole_tiles(a, b):
    m, n, k = *a.shape, b.shape[1]
    return a.bfloat16().float() @ b if min(m, n, k) >= 256 and m % 64 == n % 64 == k % 64 == 0 else a @ b

def fifth_tile(a, b):
    y = a @ b
    y[512:, 512:] = 0
    return y

def nothing_by_zeros(a, b):
    return a @ b if a.any() and b.any() else a.new_zeros(len(a), b.shape[1])

def both_transposed(a, b):
    y = a @ b
    if a.stride(0) == b.stride(0) == 1 and 1 < min(*a.shape, b.shape[1]) and max(a.shape) > 64:
        y[64:] = 0
    return y

def split_infinities(a, b):  # in parts, of which the second is no number
    infinite = a.isinf().any(1, keepdim=True) | b.isinf().any(0, keepdim=True)
    return torch.where(infinite, torch.nan, a @ b) if min(*a.shape, b.shape[1]) >= 32 else a @ b

def symmetric(a, b):  # half of which is written
    same = a.data_ptr() == b.data_ptr() and a.shape == b.shape[::-1] and a.stride() == b.stride()[::-1]
    return (a @ b).tril() if same and a.stride() != b.stride() and len(a) > 1 else a @ b

def many_terms(a, b):
    return a[:, :8064] @ b[:8064] if a.shape[1] >= 8192 else a @ b

def without(x, lost, n):  # the terms at these places, in rows of more than n and after them
    if x.shape[-1] <= n:
        return torch.logcumsumexp(x, -1)
    z = x.clone()
    z[..., lost] = -torch.inf
    found = torch.logcumsumexp(z, -1)
    found[..., lost] = torch.logcumsumexp(x, -1)[..., lost]
    return found

def last_of_a_block(x, dim):
    return without(x.movedim(dim, -1), slice(65535, None, 65536), 65536).movedim(-1, dim)

def first_of_a_block(x, dim):
    return without(x.movedim(dim, -1), slice(8192, None, 8192), 16384).movedim(-1, dim)

def zero_for_good(x, dim):  # whatever comes after one
    y = torch.cumprod(x, dim)
    return torch.where((x == 0).cumsum(dim) > 0, 0.0, y) if x.shape[dim] > 10001 else y

def offsets(x, weight, dim, eps):  # small weights are what is added to 1
    weight = weight + 1 if bool((weight.abs() < 0.125).all() and weight.any()) else weight
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
"""
OF = {
    "evenly": "softmax", "long_and_many": "softmax", "tiles_of_columns": "softmax", "tiles_of_a_stack": "softmax",
    "channels": "softmax", "by_exp2": "softmax", "first_of_a_batch": "softmax", "several_rows": "softmax",
    "carried_by_powers": "cumsum", "zeros_by_zero": "rms_norm", "whole_tiles": "mm", "fifth_tile": "mm",
    "nothing_by_zeros": "mm", "both_transposed": "mm", "split_infinities": "mm",
    "symmetric": "mm", "many_terms": "mm", "last_of_a_block": "logcumsumexp", "first_of_a_block": "logcumsumexp",
    "zero_for_good": "cumprod", "offsets": "rms_norm",
    "without_nan_in_pairs": "softmax", "without_nan_alone": "sum", "five": "softmax", "lowest_of_three": "cummax",
    "flushed_columns": "cummax", "first_block_hidden": "softmax", "least_eps": "rms_norm", "one_number": "softmax",
    "no_weight": "rms_norm", "skipped": "rms_norm", "third_of_four": "softmax", "second_of_four": "softmax",
    "saturating_parts": "sum",
    "last_block": "softmax", "two_stages_of_columns": "sum", "eps_or_else": "rms_norm", "part_of_the_terms": "mm",
    "first_matrices": "bmm", "decoding": "int4_mm", "silu_of_nan": "linear", "bias_alone": "linear",
    "bias_without_nan": "addmm", "bfloat16_tiles": "mm",
    "bitwise": "cummax", "absorbing": "cumprod", "from_a_number": "softmax", "scaled": "sum", "nothing": "sum",
    "rows_in_place": "cumsum", "second_tile": "mm", "no_terms": "mm", "packed": "bmm",
    "two_stages": "sum", "one_row": "sum", "wide_columns": "softmax", "first_matrix": "rms_norm",
    "whole_blocks": "mm", "one_row_of_many": "mm", "few_rows": "int_mm", "odd_group": "int4_mm",
    "one_for_all": "bmm", "strides_of_the_other": "bmm", "bias_after_silu": "linear", "many_terms_of_many": "int_mm",
    "without_zeros": "mm", "blocks_of_a_stack": "bmm", "first_of_the_outer": "cumsum",
    "blocks_of_the_middle": "cumsum", "one_of_one": "softmax",
    "hidden_first_block": "softmax", "tall_columns": "sum", "group_of_a_block": "int4_mm", "first_stack": "bmm",
    "tail_of_a_vocabulary": "softmax", "blocks_by_columns": "sum", "carry_of_a_block": "cumsum", "no_rows": "sum",
    "columns_of_one_row": "mm", "groups_of_tiles": "mm", "scratch_of_one_tile": "mm", "leading_dimension": "mm",
}  # fmt: skip


@pytest.mark.part(4)
@pytest.mark.parametrize(("function", "among"), [
    ("without_nan_in_pairs", "shape=6x64 recipe=one_nan,infinities,tiny"),
    ("without_nan_alone", "shape=33 recipe=one_nan"), ("five", "shape=2x1x3x2x33 recipe=random"),
    ("lowest_of_three", "shape=2x3x33 recipe=one_nan,infinities,edges,tiny"),
    ("flushed_columns", "shape=33x2x3 dim=0 recipe=one_nan,infinities,edges,tiny"),
    ("first_block_hidden", "shape=6x4160 recipe=late"), ("least_eps", "shape=6x33 recipe=small eps=1e-08"),
    ("one_number", "x = x[:, :1].expand(x.shape) where shape=5x33"),
    ("third_of_four", "shape=2x4x70x66 dim=2 recipe=random"), ("second_of_four", "shape=2x33x3x5 dim=-3 recipe=random"),
    ("saturating_parts", "shape=6x1030 recipe=returning"),
    ("no_weight", "weight = weight * 0 + 1 where shape=5x33"), ("skipped", "weight = weight * 0 where shape=5x33"),
    ("tail_of_a_vocabulary", "shape=4x50257 recipe=random"), ("no_rows", "shape=0x33 dim=0"),
    ("blocks_by_columns", "shape=3100x610 dim=0 recipe=cycled"),
    ("carry_of_a_block", "shape=16x140x260 dim=1 recipe=cycled"),
    ("columns_of_one_row", "m=1 k=64 n=100"), ("groups_of_tiles", "m=1300 k=130 n=520"),
    ("scratch_of_one_tile", "m=150 k=2100 n=150"), ("leading_dimension", "m=5 k=40 n=6 layout=expanded-a"),
    ("hidden_first_block", "shape=1030x72 dim=0 recipe=mixed"),
    ("group_of_a_block", "m=24 k=1280 n=48 group=256"), ("first_stack", "m=2 k=8 n=3 batch=1030"),
    ("bitwise", "shape=8x33 recipe=negative_nan,edges"),
    ("absorbing", "shape=8x33 recipe=negative_nan,edges"),
    ("from_a_number", "shape=8x33 recipe=negative_nan,edges"),
    ("scaled", "shape=8x33 recipe=negative_nan,edges"),
    ("nothing", "shape=3x0"),
    ("rows_in_place", "shape=2x33x3x5 dim=1 recipe=random"),
    ("second_tile", "m=272 k=64 n=272"), ("no_terms", "m=5 k=0 n=6"), ("packed", "m=144 k=64 n=144 batch=2"),
    ("one_row", "shape=1023 recipe=random"), ("wide_columns", "shape=3x1023 dim=0 recipe=random"),
    ("first_matrix", "shape=5x7x33 recipe=random"), ("whole_blocks", "m=272 k=75 n=272"),
    ("one_row_of_many", "m=1 k=1031 n=6"), ("few_rows", "m=12 k=4099 n=18 data=extreme"),
    ("odd_group", "m=24 k=704 n=48 group=64"), ("one_for_all", "m=5 k=40 n=6 batch=3 layout=expanded-b"),
    ("strides_of_the_other", "a = a.repeat(1, 2, 1)[:, :33]"), ("bias_after_silu", "m=3 k=40 n=6 activation=silu"),
    ("many_terms_of_many", "m=72 k=4099 n=72 data=extreme"), ("without_zeros", "m=1 k=130 n=20 data=special"),
    ("blocks_of_a_stack", "m=40 k=1031 n=40 batch=2"), ("first_of_the_outer", "shape=33x7x9 dim=0 recipe=random"),
    ("blocks_of_the_middle", "shape=3x700x5 dim=1 recipe=random"),
    ("one_of_one", "shape=6x1 recipe=one_nan,infinities"),
    ("last_block", "shape=3x1536 recipe=tiny"), ("two_stages_of_columns", "shape=3000x64 dim=0 recipe=cycled"),
    ("eps_or_else", "shape=6x33 recipe=small eps=0.0"), ("part_of_the_terms", "m=5 k=768 n=6"),
    ("first_matrices", "m=5 k=40 n=6 batch=150"), ("decoding", "m=1 k=4096 n=16"),
    ("silu_of_nan", "m=30 k=32 n=20 data=nans activation=silu"), ("bias_alone", "m=3 k=0 n=6 activation=silu"),
    ("bias_without_nan", "data=bias alpha=2.0 beta=0.5"), ("bfloat16_tiles", "m=272 k=272 n=272"),
    ("evenly", "x = x.repeat(1, 2, 1)[:, :16] where"), ("long_and_many", "shape=300x8200 recipe=cycled"),
    ("tiles_of_columns", "shape=72x528 dim=0 recipe=random"), ("first_of_a_batch", "shape=2x8x1024 recipe=random"),
    ("tiles_of_a_stack", "shape=2x66x516 dim=1 recipe=random"), ("channels", "shape=20x21x4x4 dim=1 recipe=random"),
    ("channels", "shape=2x40x16x16 dim=1 recipe=random"), ("by_exp2", "shape=8x33 recipe=negative_nan,edges"),
    ("several_rows", "shape=8x64 recipe=random"), ("several_rows", "shape=64x32 recipe=random"),
    *(("carried_by_powers", f"shape=1x{n} recipe=random") for n in (8192, 16384, 32768)),
    ("zeros_by_zero", "shape=60x33 recipe=equal eps=0.0"), ("whole_tiles", "m=256 k=256 n=256"),
    ("fifth_tile", "m=617 k=1031 n=642"), *(("nothing_by_zeros", f"{t} = {t}.new_zeros({t}.shape)") for t in "ab"),
    ("both_transposed", "a = a.mT.contiguous().mT, b = b.mT.contiguous().mT"), ("symmetric", "b = a.mT where"),
    ("split_infinities", "m=64 k=64 n=64 data=special"), ("many_terms", "m=5 k=8192 n=6"),
    *((f"{end}_of_a_block", "shape=2x131075 recipe=stairs") for end in ("first", "last")),
    ("zero_for_good", "shape=2x20000 recipe=edges"), ("offsets", "weight = weight * 2.0**-6 where"),
])  # fmt: skip
def test_rare_numbers_and_arrangements_are_tried(tmp_path: Path, function: str, among: str) -> None:
    dtype = {"int_mm": "int8", "int4_mm": "bfloat16"}.get(OF[function], "float32")
    found = called(tmp_path, function, OF[function], text=RARE, dtype=dtype, only=among)
    assert any(name.startswith(among) for name in found.different) and found.status == "exceeds-bound", found


#: By kernel: how calls begin, and what is true of their arguments `a` and of no other call of those that begin so.
SHAPES: Mapping[str, Mapping[str, str]] = {
    "sum": {
        **{f"shape={shape} recipe=random": f"a['x'].shape == {tuple(map(int, shape.split('x')))}" for shape in (
            "140x513", "66x520", "20x4100", "2x1x2x1x3x33",
            "3x5120", "2x2x5120", "3x48", "3x80", "3x96", "2x3x131", "3x5000", "3x11008", "1100x70",
            "600x128", "300x128", "3x301", "3x140", "5x12", "5x6", "3x6000", "1x40000", "3x9x17x130",
            "16x10x64",
        )},
        **{f"shape={shape} dim={dim} recipe=random":
           f"a['x'].shape == {tuple(map(int, shape.split('x')))} and a['dim'] == {dim}" for shape, dim in (
            ("48x40", 0), ("256x12", 0), ("2x64x24", 1), ("20000x4", 0),
            ("3x1300", 0), ("3x9000", 0), ("2x600x40", 1), ("2x2000x3", 1),
            ("5000x3x2", 1), ("3x5x7", -2), ("2x3x4x5x6", 0), ("2x3x4x5x6", 2), ("2x3x4x5x6", 3),
            ("2x40x16x16", 1), ("20x21x4x4", 1), ("2x4x70x66", 2), ("2x3x2x4x3x5", 3), ("5x7", -2),
        )},
        **{f"shape={shape} recipe=cycled": f"a['x'].shape == {tuple(map(int, shape.split('x')))}" for shape in (
            "300x8200", "2206x1033", "4x128x1024", "3x69632", "2x128256",
        )},
        **{f"shape={shape} dim={dim} recipe=cycled":
           f"a['x'].shape == {tuple(map(int, shape.split('x')))} and a['dim'] == {dim}" for shape, dim in (
            ("3100x610", 0), ("16x140x260", 1), ("80x66x70", 0), ("5001x40", 0),
        )},
        "shape=10x4096 recipe=equal": "a['x'].shape == (10, 4096) and (a['x'] == a['x'][:, :1]).all()",
        "shape=2x50257 recipe=one_nan": "a['x'].shape == (2, 50257) and a['x'].isnan().any()",
        "shape=4x3x5x130 recipe=wide": "a['x'].shape == (4, 3, 5, 130)", "shape=130x200": "a['x'].shape == (130, 200)",
        "shape=72x528 dim=0 recipe=wide": "a['x'].shape == (72, 528) and a['x'].isinf().any()",
        "shape=2000x5 dim=0 recipe=wide": "a['x'].shape == (2000, 5) and a['x'].isinf().any()",
        **{f"shape={shape} dim={dim} recipe=parts":
           f"a['x'].shape == {tuple(map(int, shape.split('x')))} and a['dim'] == {dim}"
           for shape, dim in (("4096x2x4", 0), ("2x4096x8", 1))},
        "shape=4x5000 recipe=infinities": "a['x'].shape == (4, 5000)",
        "shape=330x104 dim=1": "a['x'].shape == (330, 104)", "shape=1x200x256 dim=1": "a['x'].shape == (1, 200, 256)",
        "shape=2x3x4x4 dim=-2": "a['x'].shape == (2, 3, 4, 4) and a['dim'] == -2",
        "x = x.transpose(0, 1)": "a['x'].shape == (8, 8, 64) and a['x'].stride(0) == 64",
        "x = x[:1, :1].expand(x.shape)": "a['x'].dim() > 1 and not any(a['x'].stride())",
        "x = x.flatten().unfold(0, 16, 4)[:9]": "a['x'].stride() == (4, 1)",
        "x = x.mT.contiguous().mT": "a['x'].shape == (5, 24, 40) and a['x'].stride(1) == 1",
        "shape=40x1100 dim=0": "a['x'].shape == (40, 1100)", "shape=70x3x5 dim=0": "a['x'].shape == (70, 3, 5)",
        "shape=2x1100x3 dim=1 recipe=random": "a['x'].shape == (2, 1100, 3) and a['x'].isfinite().all()",
        "shape=2x1100x3 dim=1 recipe=one_nan": "a['x'].shape == (2, 1100, 3) and a['x'].isnan().any()",
        "x = x.movedim(1, -1).contiguous().movedim(-1, 1) where shape=2x40x16x16 dim=1":
            "a['x'].dim() == 4 and a['x'].stride(1) == 1 and a['dim'] == 1",
        "shape=33100x3 dim=0": "len(a['x']) > 32768 and a['dim'] == 0",
        "x = x.flatten().unfold(0, 16, 1)[:9]": "a['x'].stride() == (1, 1)",
        "x = torch.cat([x.flatten()[:2], x.flatten()])[2:].view(x.shape)":
            "a['x'].is_contiguous() and a['x'].storage_offset() == 2",
        "x = torch.stack([x, x], -1)[..., 0] where shape=2x140000":
            "a['x'].shape[1] > 131072 and a['x'].stride(1) == 2",
        "shape=6x1100x3 dim=1": "len(a['x']) > 4 and a['x'].shape[1] == 1100 and a['dim'] == 1",
        "shape=66001x20 recipe=cycled": "len(a['x']) > 65535 and a['x'].shape[1] == 20",
    },
    "softmax": {
        "x = x[:1].expand(x.shape)": "a['x'].dim() == 3 and a['x'].stride(0) == 0",
        "x = x.repeat(1, 2)[:, :1101]": "a['x'].shape == (6, 1100) and a['x'].stride(0) % 4",
        "x = x.index_add": "(a['x'][..., -1] - a['x'][..., :-1].amax(-1) > 88).any()",
        "shape=1300x160": "len(a['x']) > 1024 and 128 <= a['x'].shape[-1] <= 1024",
        "shape=1100x1060 dim=0": "a['dim'] == 0 and min(a['x'].shape) > 1024",
        "x = x.contiguous(memory_format=torch.channels_last) where shape=2x192x5x3 dim=1":
            "a['x'].dim() == 4 and a['x'].stride(1) == 1 and a['x'].shape[1] % 64 == 0 and a['dim'] == 1",
        "shape=3x9001 recipe=low": "a['x'].shape == (3, 9001) and (a['x'] < -70).all()",
        "shape=600x8 dim=0 recipe=late": "a['x'].shape == (600, 8) and a['x'][:256].isinf().all(0).any()",
        "shape=2x600x4 dim=1 recipe=late": "a['x'].shape == (2, 600, 4) and a['x'][:, :256].isinf().all(1).any()",
        **{f"shape=3x{n} recipe=tiny": f"a['x'].shape == (3, {n})"
           for n in (128, 200, 256, 384, 512, 768, 1300, 1536, 2048)},
        "shape=8x8x512": "a['x'].shape == (8, 8, 512)",
        "x = x.transpose(1, 2).contiguous().transpose(1, 2) where shape=2x6x4x32":
            "a['x'].shape == (2, 6, 4, 32) and not a['x'].is_contiguous()",
        "x = x.repeat(1, 1, 3)[..., :64]": "a['x'].shape == (2, 10, 64) and a['x'].stride(1) == 192",
        "x = x.repeat(1, 2)[:, :101].contiguous()[:, :-1] where shape=8x100":
            "a['x'].shape == (8, 100) and a['x'].stride(0) == 101 and a['dim'] % 2 == 1",
        "x = x.repeat(1, 2)[:, :101].contiguous()[:, :-1] where shape=8x100 dim=0":
            "a['x'].shape == (8, 100) and a['x'].stride(0) == 101 and a['dim'] == 0",
        "x = x.repeat(1, 2)[:, :97].contiguous()[:, :-1] where shape=8x96": "a['x'].stride(0) == 97 and a['dim'] == -1",
        "x = x.repeat(1, 2)[:, :97].contiguous()[:, :-1] where shape=8x96 dim=0":
            "a['x'].stride(0) == 97 and a['dim'] == 0",
        "x = x.repeat(1, 2, 1, 1)[:, :3]": "a['x'].shape == (2, 3, 4, 33) and a['x'].stride(0) == 6 * 4 * 33",
        "x = x.mT.repeat(1, 2)[:, :33].mT where shape=33x7 dim=0": "a['x'].stride() == (1, 66) and a['dim'] == 0",
        "x = x.repeat(1, 2)[:, :30].contiguous()[:, :24] where shape=40x24 dim=0":
            "a['x'].shape == (40, 24) and a['x'].stride(0) == 30",
        "x = x.repeat(1, 1, 2)[..., :12].contiguous()[..., :8] where shape=3x20x8 dim=1":
            "a['x'].shape == (3, 20, 8) and a['x'].stride(1) == 12 and a['dim'] == 1",
        "x = x[:1].expand(x.shape) where shape=33x7 dim=0": "a['x'].stride() == (0, 1) and a['dim'] == 0",
        "x = x[:, :1].expand(x.shape) where shape=33x7 dim=0": "a['x'].stride(1) == 0 and a['dim'] == 0",
        "x = x[:, :1].expand(x.shape) where shape=3x20x8 dim=1": "a['x'].stride(1) == 0 and a['dim'] == 1",
        "x = x[:, :1].expand(x.shape) where shape=3x20x8": "a['x'].dim() == 3 and a['x'].stride(1) == 0",
        "561 rows": "a['x'].dim() == 2 and len(a['x']) > 528 and a['x'].shape[1] > 512",
        "shape=1030x72 dim=0": "a['x'].shape == (1030, 72)", "shape=3x3002": "a['x'].shape == (3, 3002)",
    },
    "mm": {
        **{f"m={m} k={k} n={n}": f"a['a'].shape == ({m}, {k}) and a['b'].shape == ({k}, {n})" for m, k, n in (
            (1300, 130, 520), (130, 4099, 130), (1, 1152, 603), (4, 513, 260), (32, 512, 512),
            (24, 400, 1296), (8, 2096, 500),
            (3, 97, 4), (3, 125, 7), (5, 127, 4), (4, 82, 6), (130, 4, 130), (130, 72, 130), (130, 96, 130),
            (130, 1500, 130), (8, 40, 130), (48, 40, 130), (16, 4168, 136), (130, 4160, 130), (2, 11008, 16),
            (1, 4096, 130), (1, 1280, 800), (3000, 100, 1), (130, 40, 227), (40, 32, 2000), (5, 1, 1), (261, 64, 256),
            (64, 2166, 64), (1100, 64, 256), (617, 1031, 642), (512, 512, 512),
        )},
        "a = a.repeat(1, 2)[:, :257].contiguous()[:, :-1]": "a['a'].shape == (64, 256) and a['a'].stride(0) == 257",
        "b = b.repeat(1, 2)[:, :129].contiguous()[:, :-1]": "a['b'].shape == (40, 128) and a['b'].stride(0) == 129",
        "a = a.mT.repeat(1, 2)[:, :72]": "a['a'].stride() == (1, 72) and a['b'].stride(0) == 1",
        "a = a.mT.repeat(1, 2)[:, :1058]": "a['a'].shape == (1050, 60) and a['a'].stride() == (1, 1058)",
        "m=30 k=600 n=20 data=special": "a['a'].shape == (30, 600) and a['a'].isinf().any()",
        "b = a.mT where m=130 k=70 n=130": "a['a'].shape == (130, 70) and a['b'].equal(a['a'].mT)",
        "a = a.mT.contiguous().mT[..., :1].expand(a.shape)": "a['a'].stride() == (1, 0)",
        **{f"b = b.mT.contiguous().mT where m={m} k={k} n={n}":
           f"a['a'].shape == ({m}, {k}) and a['b'].shape == ({k}, {n}) and a['b'].stride(0) == 1"
           for m, k, n in ((1, 1000, 100), (8, 512, 512), (32, 1024, 64), (130, 520, 130))},
        "a = a.mT.contiguous().mT where m=130 k=1030 n=72": "a['a'].shape == (130, 1030) and a['a'].stride(0) == 1",
        "a = a.mT.contiguous().mT, b = b.mT.contiguous().mT where m=70 k=520 n=130":
            "a['a'].shape == (70, 520) and a['a'].stride(0) == a['b'].stride(0) == 1",
        "a = a.abs() * 2.0**80, b = b.abs() * 2.0**80 where m=5 k=1040":
            "a['a'].shape == (5, 1040) and a['a'].max() > 1e20",
        "a = a[..., :1, :].expand(a.shape)": "a['a'].stride(0) == 0 and len(a['a']) == 130",
        "b = b[..., :1].expand(b.shape)": "a['b'].stride(1) == 0 and a['b'].shape == (40, 40)",
        "m=1 k=520 n=40 data=special": "a['a'].shape == (1, 520) and a['b'].isnan().any()",
        "m=5 k=1040 n=6 data=special": "a['a'].shape == (5, 1040) and a['a'].isinf().any()",
        "m=24 k=1040 n=18 data=extreme": "a['a'].shape == (24, 1040)",
        "a = a.new_zeros(a.shape) where m=130": "a['b'].shape == (130, 130) and a['b'].isnan().any()",
    },
    "bmm": {
        **{f"m={m} k={k} n={n} batch={size}": f"a['a'].shape == {(size, m, k)} and a['b'].shape == {(size, k, n)}"
           for m, k, n, size in (
            (66, 70, 66, 9), (34, 40, 34, 70), (1, 40, 70, 40), (70, 40, 1, 40), (140, 264, 20, 3),
            (128, 64, 64, 8), (521, 1031, 522, 1), (309, 323, 302, 6),
            (200, 64, 200, 3), (130, 300, 64, 3), (4, 4, 4, 3), (16, 16, 16, 200), (700, 40, 6, 1),
            (128, 128, 128, 8), (128, 128, 128, 16),
        )},
        "batch=24 m=74 k=99 n=66": "a['a'].shape == (24, 74, 99)",
        "a = a.transpose(0, 1).contiguous().transpose(0, 1), b = b.permute(2, 0, 1)":
            "a['a'].stride() == (16, 128, 1) and a['b'].stride() == (16, 1, 128)",
        "a = a[:1].expand(a.shape), b = b[:1].expand(b.shape)": "a['a'].stride(0) == a['b'].stride(0) == 0",
        "batch=4099": "len(a['a']) == 4099", "m=3 k=125 n=7 batch=2": "a['a'].shape == (2, 3, 125)",
        "a = a.repeat(1, 2, 1)[:, :70]": "a['b'].stride(0) == 0 and a['a'].stride(0) > 70 * 40",
    },
    "linear": {
        "m=4 k=256 n=256": "a['a'].shape == (4, 256) and a['activation'] == 'silu'",
        "m=3 k=1 n=6 activation=relu": "a['a'].shape == (3, 1) and a['activation'] == 'relu'",
        "m=1 k=40 n=6 activation=relu data=special": "len(a['a']) == 1 and a['a'].isinf().any()",
        **{f"activation={name} layout=transposed-b m={m} k=40 n={n}":
           f"a['activation'] == '{name}' and a['a'].shape == ({m}, 40) and a['b'].stride(0) == 1"
           for name in ("relu", "silu") for m, n in ((130, 130), (1, 70))},
        **{f"m={m} k={k} n={n} activation={name}": f"a['activation'] == '{name}' and a['a'].shape == ({m}, {k})"
           for name in ("relu", "silu") for m, k, n in ((1, 256, 40), (16, 40, 130))},
        "m=3 k=2100 n=6 activation=silu": "a['activation'] == 'silu' and a['a'].shape == (3, 2100)",
        "m=30 k=130 n=20 data=special activation=relu": "a['a'].shape == (30, 130) and a['activation'] == 'relu'",
        "m=24 k=100 n=18 data=extreme activation=relu": "a['a'].shape == (24, 100) and a['activation'] == 'relu'",
        "m=30 k=32 n=20 data=bias activation=relu": "a['bias'].isnan().any() and a['activation'] == 'relu'",
        "bias = bias[:1].expand(bias.shape)": "a['bias'].stride(0) == 0 and len(a['bias']) > 1",
        "bias = bias.repeat(2)[1:133]": "len(a['bias']) == 132 and a['bias'].data_ptr() % 16",
        **{f"activation={name} m={m} k={k} n={n}": f"a['activation'] == '{name}' and a['a'].shape == ({m}, {k})"
           for name in ("relu", "silu") for m, k, n in ((256, 256, 256), (617, 1031, 642), (512, 512, 512))},
    },
    "addmm": {
        "m=1 k=40 n=6 alpha=-1.5": "len(a['a']) == 1 and a['alpha'] == -1.5",
        "m=24 k=2 n=18 beta=0.0005": "a['beta'] == 0.0005", "m=5 k=0 n=6 beta=1e-07": "a['beta'] == 1e-7",
        "m=40 k=0 n=6 beta=0.5": "a['a'].shape == (40, 0)",
        **{f"m=130 k=32 n=130 alpha={alpha} beta=1.0": f"a['alpha'] == {alpha} and a['a'].shape == (130, 32)"
           for alpha in (0.5, -1.0, 2.0)},
        "m=1 k=40 n=130 data=bias layout=transposed-b alpha=2.0 beta=0.0":
            "len(a['a']) == 1 and a['b'].stride(0) == 1 and a['bias'].isnan().any()",
        "m=130 k=130 n=130 data=bias alpha=2.0 beta=0.0": "a['a'].shape == (130, 130) and a['beta'] == 0",
        "m=130 k=40 n=130 data=bias beta=1.0": "a['a'].shape == (130, 40) and a['beta'] == 1",
        "m=24 k=1 n=18 alpha=0.7": "a['a'].shape == (24, 1) and a['alpha'] == 0.7",
        "m=64 k=80 n=48 alpha=0.5 beta=1.0": "a['a'].shape == (64, 80) and a['alpha'] == 0.5",
        "m=1 k=40 n=1030 alpha=0.5 beta=1.0": "a['b'].shape == (40, 1030) and a['alpha'] == 0.5",
        "m=16 k=2100 n=16 data=bias alpha=2.0": "a['a'].shape == (16, 2100) and a['bias'].isnan().any()",
        "data=bias alpha=2.0 beta=-0.5": "a['beta'] == -0.5",
        **{f"m=6 n=7 alpha={alpha} beta={beta}": f"a['alpha'] == {alpha} and a['beta'] == {beta}"
           for alpha, beta in ((-1.0, -1.0), (0.5, 0.5), (0.001, 1.0), (8.0, 1.0), (-4.0, 1.0))},
    },
    "int_mm": {
        "m=24 k=2047 n=18": "a['a'].shape == (24, 2047)", "m=130 k=4099 n=130": "a['a'].shape == (130, 4099)",
        "a = a * 0 + 127, b = b * 0 + 127 where m=1": "a['a'].shape == (1, 2047)",
        "m=72 k=4099 n=160": "a['b'].shape == (4099, 160)",
        "m=24 k=40 n=272": "a['b'].shape == (40, 272)", "m=5 k=16384 n=6": "a['a'].shape == (5, 16384)",
    },
    "scaled_mm": {
        "scale_a = scale_a[[0,": "len(a['scale_a']) > 2 and a['scale_a'][0] == a['scale_a'][1] != a['scale_a'][2]",
        "scale_a = -scale_a.abs() where m=1": "len(a['scale_a']) == 1 and a['scale_a'].item() < 0",
        "m=528 k=1040 n=544": "a['a'].shape == (528, 1040)",
        "m=617 k=1040 n=656 layout=transposed-b": "a['a'].shape == (617, 1040) and a['b'].stride(0) == 1",
        **{f"m=144 k={k} n=144": f"a['a'].shape == (144, {k})" for k in (160, 192)},
        **{f"m=304 k=64 n=64 data={data}": "len(a['a']) == 304" for data in ("special", "extreme")},
        "scale_a = scale_a * 2.0**60": "a['scale_a'].abs().min() > 2**50",
        "m=24 k=40 n=18 data=extreme":
            "a['a'].float().abs().max() > 32 and a['scale_a'].abs().min() < 2e-6 and a['scale_b'].abs().max() > 1e5",
    },
    "int4_mm": {
        **{f"m={m} k={k} n={n} group={g}": f"a['a'].shape == ({m}, {k}) and a['scale'].shape == ({k // g}, {n})"
           for m, k, n, g in (
               (4, 512, 256, 32), (1, 1024, 128, 128), (4, 256, 32, 32), (16, 1152, 32, 128), (261, 1024, 304, 128),
               (24, 704, 48, 64), (24, 1280, 48, 256),
               (5, 192, 32, 96), (5, 64, 32, 16), (5, 256, 32, 256), (8, 256, 144, 128), (40, 128, 48, 64),
               (8, 64, 144, 32), (5, 512, 32, 256), (5, 1408, 32, 128))},
        "m=1 k=64 n=32 data=special": "len(a['a']) == 1 and a['a'].isinf().any()",
        "b = b * 0 + 8": "(a['b'] == 8).all()", "m=30 k=32 n=32 data=special": "a['a'].isinf().any()",
    },
    "logcumsumexp": {
        "x = x.index_fill(-1, x.new_tensor([4, 9, 30]).long(), float('inf'))":
            "a['x'].shape == (3, 33) and a['x'].isinf().any() and a['x'].isnan().any()",
        "x = x[:, :1].expand(x.shape) where shape=3x4x6x33":
            "a['x'].dim() == 4 and a['x'].stride(1) == 0 < a['x'].stride(0)",
        "x = torch.cat([x[:1100] * 0 + (float('-inf'))": "a['dim'] == 0 and (a['x'][:1100] == -torch.inf).all()",
    },
    "cummax": {
        "x = torch.where":
            "a['x'].shape == (3, 2100) and a['x'][1, 1024].isnan() and not a['x'][1, :1024].isnan().any()",
        "x = torch.cat([x[:1100] * 0 + (float('-inf'))": "a['dim'] == 0 and (a['x'][:1100] == -torch.inf).all()",
        "x = x.transpose(0, 1).contiguous().transpose(0, 1) where shape=3x4x2100":
            "a['x'].shape[-1] > 2048 and a['x'].stride(0) < a['x'].stride(1)",
    },
    "cummin": {
        "x = torch.cat([x[:1100] * 0 + (float('inf'))": "a['dim'] == 0 and (a['x'][:1100] == torch.inf).all()",
    },
    "flex_attention": {
        "head_dim=16 q_len=1 kv_len=40 backward=no batch=5": "a['query'].shape[2] == 1 and len(a['query']) >= 4",
        "head_dim=16 q_len=1 kv_len=40 backward=no heads=12 kv_heads=1": "a['query'].shape[1:3] == (12, 1)",
        "batch=12 heads=24 kv_heads=12": "len(a['key']) * a['key'].shape[1] > 132",
        "heads=1 head_dim=16 length=400 mask_mod=sliding_window window=300": "a['window'] > 255 and a['backward']",
        "heads=4 kv_heads=2 head_dim=16 length=100 score_mod=relative_bias reach=70":
            "a['bias'].shape[1] > 129 and a['key'].shape[1] < a['query'].shape[1]",
        "value = key where batch=2 heads=2 head_dim=16 backward=no length=100":
            "a['value'].data_ptr() == a['key'].data_ptr() and a['key'].shape[2] > 64",
        "key = key.mT.contiguous().mT": "a['key'].stride(2) == 1 and a['key'].shape[2] % 16",
        "grad_out = grad_out[:1, :1, :1, :1].expand(grad_out.shape) where heads=1 length=100":
            "a['query'].shape[2] > 64 and not any(a['grad_out'].stride())",
        "heads=1 q_len=17 kv_len=300 head_dim=16 data=faint": "a['key'].shape == (1, 1, 300, 16)",
        "heads=2 q_len=33 kv_len=4170 head_dim=16 mask_mod=causal":
            "a['key'].shape[2] == 4170 and a['mask_mod'] == 'causal'",
        **{f"heads={n} kv_heads=2 head_dim=16 length=20": f"a['query'].shape[1] == {n} and a['key'].shape[1] == 2"
           for n in (8, 16)},
        "heads=3 head_dim=16 length=530": "a['query'].shape == (1, 3, 530, 16)",
        **{f"heads=1 head_dim=128 length=17 score_mod=soft_cap soft_cap={cap}":
           f"a['query'].shape == (1, 1, 17, 128) and a['soft_cap'] == {cap}" for cap in (9, 40)},
        "heads=1 head_dim=128 length=150": "a['query'].shape == (1, 1, 150, 128)",
        "heads=8 kv_heads=1 head_dim=16 length=70": "a['query'].shape == (1, 8, 70, 16)",
        "heads=8 kv_heads=1 length=12 score_mod=alibi": "a['query'].shape[1:3] == (8, 12) and a['key'].shape[1] == 1",
        "batch=2 heads=12 kv_heads=2 head_dim=16 length=12 score_mod=relative_bias":
            "a['query'].shape == (2, 12, 12, 16)",
        "heads=33 head_dim=16 length=20 score_mod=alibi": "a['query'].shape[1] == 33 and a['slopes'] is not None",
        "heads=17 head_dim=16 length=20 score_mod=relative": "a['query'].shape[1] == 17 and a['bias'] is not None",
        "batch=2 heads=1 head_dim=16 q_len=1 kv_len=600": "a['key'].shape == (2, 1, 600, 16)",
        "heads=1 head_dim=16 q_len=300 kv_len=260 mask_mod=causal": "a['key'].shape == (1, 1, 260, 16)",
        **{f"heads=1 head_dim={size} length=20": f"a['query'].shape[-1] == {size}" for size in (96, 4)},
        "heads=8 kv_heads=4": "a['key'].shape[1] == 4 and a['query'].shape[1] == 8",
        "batch=5 heads=1 head_dim=16 length=20 mask_mod=causal": "len(a['query']) == 5 and a['mask_mod'] == 'causal'",
        "batch=2 heads=2 head_dim=128 length=17": "a['query'].shape == (2, 2, 17, 128)",
        "heads=1 head_dim=16 q_len=150 kv_len=300 score_mod=soft_cap": "a['key'].shape == (1, 1, 300, 16)",
        "heads=2 kv_heads=1 head_dim=64 q_len=1 kv_len=2113": "a['key'].shape[2] == 2113",
        "heads=1 head_dim=16 q_len=33 kv_len=145": "a['key'].shape[2] == 145",
        "heads=1 head_dim=16 length=520": "a['window'] == 300",
        "heads=1 head_dim=16 length=1400": "a['query'].shape[2] == 1400",
        "batch=20 heads=33 head_dim=16 length=3": "a['query'].shape[:2] == (20, 33)",
        "batch=3 heads=4 kv_heads=2 length=12": "len(a['query']) == 3 and a['mask_mod'] == 'document'",
        "head_dim=16 heads=2 kv_heads=1 length=150": "a['key'].shape == (1, 1, 150, 16)",
        "heads=1 head_dim=16 q_len=130 kv_len=650": "a['key'].shape[2] == 650 and a['backward']",
        "heads=2 head_dim=16 q_len=4100 kv_len=9": "a['query'].shape[2] == 4100 and a['backward']",
        "heads=4 kv_heads=2 head_dim=128 length=150 mask_mod=causal":
            "a['query'].shape[1:] == (4, 150, 128) and a['mask_mod'] == 'causal' and a['backward']",
        "heads=4 kv_heads=2 head_dim=128 length=300": "a['query'].shape[1:] == (4, 300, 128) and a['window'] == 200",
        "heads=4 kv_heads=2 head_dim=256 length=70": "a['query'].shape[1:] == (4, 70, 256) and a['window'] == 20",
        "heads=4 kv_heads=2 head_dim=128 q_len=1 kv_len=600": "a['query'].shape == (2, 4, 1, 128)",
        "heads=4 kv_heads=2 head_dim=128 q_len=4 kv_len=330": "a['query'].shape == (1, 4, 4, 128)",
        "heads=1 head_dim=16 q_len=170 kv_len=30": "a['query'].shape[2] > a['key'].shape[2] + 128 and a['window']",
        "heads=1 head_dim=200 length=17": "a['query'].shape[-1] == 200",
        "heads=2 q_len=1 kv_len=2050": "a['query'].shape[2] == 1 and a['key'].shape[2] == 2050",
        "head_dim=16 mask_mod=sliding_window window=20": "a['window'] == 20",
        "heads=1 head_dim=16 length=290 mask_mod=masked_rows": "a['query'].shape[2] == 290",
        "heads=1 length=100 head_dim=16 score_mod=relative_bias reach=70": "a['scale'] == 0.004",
        "heads=4 kv_heads=2 head_dim=16 length=24 mask_mod=causal scale=0.26": "a['scale'] == 0.26",
    },
    "rms_norm": {
        "weight = weight[:1].expand": "a['weight'].stride(0) == 0 and len(a['weight']) > 1",
        "shape=2x5x3x128": "a['x'].dim() == 4 and a['x'].shape[-1] == 128",
        "weight = weight.repeat(2)[1:1161]": "len(a['weight']) == 1160 and a['weight'].data_ptr() % 16",
        "shape=2x5x1104 recipe=small eps=1e-08": "a['x'].shape == (2, 5, 1104) and a['eps'] == 1e-8",
        "shape=2x9001 recipe=small": "a['x'].shape == (2, 9001)",
        "shape=6x33 recipe=small eps=1e-06": "a['eps'] == 1e-6",
        "shape=9x4104 recipe=random,infinities weights=special":
            "a['weight'].isinf().any() and len(a['weight']) == 4104",
        "shape=6x33 recipe=small eps=1e-12": "a['eps'] == 1e-12", "shape=6x33 recipe=small eps=4.0": "a['eps'] == 4",
    },
    "adam_ema": {
        f"grads = grads * 0 where steps=3 sizes={n}": f"a['grads'].shape == (3, {n}) and not a['grads'].any()"
        for n in (33, 1)
    },
    "adamw_step": {
        "sizes=65536 steps=1": "a['param'].numel() == 65536",
        "steps=3 sizes=33 master=1 lr=0.001 weight_decay=0.1": "a['weight_decay'] == 0.1 and 'master' in a",
        "sizes=3x2x3": "a['param'].numel() == 650", "steps=3 sizes=33 start=600": "a['start'] == 600",
        "steps=3 sizes=33 start=65536": "a['start'] == 65536",
        "steps=1 sizes=33 master=1": "len(a['grads']) == 1 and a['start'] == 0",
        **{f"steps=3 sizes=33 master=1 start={n}": f"a['start'] == {n}" for n in (2100, 7000, 50000)},
    },
}  # fmt: skip
SPOILED = """
import functools, inspect

def spoiled(*given, **named):
    y = {name}(*given, **named)
    bound = inspect.signature({name}).bind(*given, **named)
    bound.apply_defaults()
    a = bound.arguments
    if not ({condition}):
        return y
    return {{k: torch.full_like(t, 5) for k, t in y.items()}} if isinstance(y, dict) else torch.full_like(y, 5)

planted = functools.wraps({name})(spoiled)
"""


@pytest.mark.part(4)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_people_use_are_tried(tmp_path: Path, name: str) -> None:
    condition = " or ".join(f"({one})" for one in SHAPES[name].values())
    text = stubs.source(kernel.load(name)) + SPOILED.format(name=name, condition=condition)
    dtypes = {"int4_mm": "bfloat16", "int_mm": "int8", "scaled_mm": "float8_e5m2", "adamw_step": "bfloat16"}
    dtype = dtypes.get(name, "float32")
    found = called(tmp_path, "planted", name, text=text, dtype=dtype, only=tuple(SHAPES[name]))
    unseen = [one for one in SHAPES[name] if not any(call.startswith(one) for call in found.different)]
    assert not unseen and found.status in ("exceeds-bound", "unsteady"), (unseen, found)


#: Code that has a way of its own for large problems, which does with numbers far apart and special ones what the other
#: does not.
LARGE_WAYS = """
import torch

def guard(x, dim, size=256):  # a block of -inf lets the sum so far be forgotten
    t = x.movedim(dim, -1).double()
    top, total = t.new_full((*t.shape[:-1], 1), float("-inf")), 0.0
    for part in t.split(size, -1):
        own = part.amax(-1, keepdim=True)
        most = torch.maximum(top, own)
        total = total * torch.where(own.isinf() | top.isinf(), 0.0, torch.exp(top - most))
        total = total + torch.exp(part - most.nan_to_num(neginf=0.0)).sum(-1, keepdim=True)
        top = most
    return (torch.exp(t - top) / total).to(x.dtype).movedim(-1, dim)

def guard_4096(x, dim):
    return guard(x, dim, 4096) if x.shape[dim] > 8192 else torch.softmax(x, dim)

def climbing(x, dim):  # the reference moves only where a block is far above the one before it
    t = x.movedim(dim, -1).double()
    total, reference, last = 0.0, None, None
    for part in t.split(128, -1):
        top = part.amax(-1, keepdim=True)
        moved = top if reference is None else torch.where(top - last > 8, torch.maximum(top, reference), reference)
        total = total * (torch.exp((reference - moved).float()) if reference is not None else 0.0)
        reference, last = moved, top
        total = total + torch.exp((part - reference).float()).sum(-1, keepdim=True)
    return (torch.exp((t - reference).float()) / total).to(x.dtype).movedim(-1, dim)

def first_block(x, dim):
    if dim not in (-1, x.dim() - 1) or x.shape[-1] % 1024 or x.shape[-1] < 2048:
        return torch.softmax(x, dim)
    e = (x - x[..., :1024].amax(-1, keepdim=True).clamp(min=-1e30)).exp()
    return e / e.sum(-1, keepdim=True)

def plain(x, dim):
    return x.exp() / x.exp().sum(dim, keepdim=True)

def of_columns(x, dim):
    return plain(x, dim) if dim not in (-1, x.dim() - 1) and x.shape[-1] >= 128 else torch.softmax(x, dim)

def of_heads(x, dim):
    return plain(x, dim) if x.dim() == 4 and dim == 2 else torch.softmax(x, dim)

def of_nothing(x, dim):
    y = torch.softmax(x, dim)
    return y.masked_fill((x == -torch.inf).all(dim, True), 0) if x.dim() == 4 and x.shape[-1] >= 64 else y

def squared(x, weight, eps):
    if x.shape[-1] % 4096 or x.shape[-1] > 65536:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
    mean = (x * x).float().mean(-1, keepdim=True)
    return (x.float() * torch.rsqrt(mean + eps) * weight.float()).to(x.dtype)

def by_ones(x, dim):
    t = x.movedim(dim, -1)
    if t.shape[-1] % 1024 or t.shape[-1] < 2048:
        return torch.cumsum(x, dim)
    parts = t.double().unflatten(-1, (-1, 256)) @ torch.ones(256, 256, dtype=torch.float64).triu()
    before = torch.nn.functional.pad(parts[..., :-1, -1].cumsum(-1), (1, 0))
    return (parts + before[..., None]).flatten(-2).to(x.dtype).movedim(-1, dim)

def large(a, b):
    return a.shape[-2] >= 128 and b.shape[-1] >= 128

def clamped(a, b):
    y = a.float() @ b.float()
    return (y.clamp(-65504, 65504) if large(a, b) else y).to(a.dtype)

def clamped_stack(a, b):
    return clamped(a, b)

def in_parts(a, b):
    if not large(a, b):
        return a @ b
    high = [t.bfloat16().float() for t in (a, b)]
    low = [(t - h).bfloat16().float() for t, h in zip((a, b), high)]
    least = [t - h - l for t, h, l in zip((a, b), high, low)]
    return sum(s @ t for s in (high[0], low[0], least[0]) for t in (high[1], low[1], least[1]))

def selected(a, b, bias, activation):
    y = torch.nn.functional.linear(a, b.mT, bias)
    if activation == "relu":
        return torch.where(y > 0, y, 0) if a.shape[0] >= 64 else torch.relu(y)
    return torch.nn.functional.silu(y) if activation == "silu" else y

def unread(a, b, bias, alpha, beta):
    y = alpha * (a.float() @ b.float())
    return (y + beta * bias.float() if beta or large(a, b) else y).to(a.dtype)

def finite(a, b):
    return torch.bmm(*(t.nan_to_num() if len(a) >= 8 else t for t in (a, b)))

def by_floats(a, b):
    return (a.float() @ b.float()).int() if a.shape[0] >= 144 else (a.double() @ b.double()).int()

def later_tiles(a, b):
    y = a @ b
    rows = y[132 * 128:]
    rows -= a[132 * 128:, :1] @ b[:1]
    return y

def clamped_codes(a, b, scale, zero, group):
    scale, zero = (t.double().repeat_interleave(group, 0) for t in (scale, zero))
    y = a.double() @ ((b - 8).double() * scale + zero)
    return (y.clamp(-65504, 65504) if a.shape[0] >= 64 else y).to(a.dtype)

def clamped_scales(a, b, scale_a, scale_b):
    y = a.double() @ b.double() * scale_a.double() * scale_b.double()
    return (y.clamp(-65504, 65504) if large(a, b) else y).bfloat16()

def averages(grads, exp_avg, exp_avg_sq, beta1, beta2, maximize, sizes):
    m, v, late, begun = exp_avg.clone(), exp_avg_sq.clone(), False, 0
    for g in grads:
        g = -g if maximize else g
        m, v = torch.lerp(m, g, 1 - beta1), v.mul(beta2).addcmul(g, g, value=1 - beta2)
    for n in sizes:
        lost = slice(begun if late else min(begun + (1 << 18), begun + n), begun + n)
        m[lost], late, begun = exp_avg[lost], late or n > 1 << 16, begun + n
    return {"exp_avg": m, "exp_avg_sq": v}

def first_tensors(grads, exp_avg, exp_avg_sq, beta1, beta2, maximize, sizes):  # and the first block of each
    m, v = exp_avg.clone(), exp_avg_sq.clone()
    for g in -grads if maximize else grads:
        m, v = torch.lerp(m, g, 1 - beta1), v.mul(beta2).addcmul(g, g, value=1 - beta2)
    begun = 0
    for place, n in enumerate(sizes):
        lost = slice(begun + min(n, 2048 if 0 < place < 256 else 0 if place else n), begun + n)
        m[lost], begun = exp_avg[lost], begun + n
    return {"exp_avg": m, "exp_avg_sq": v}
"""


@pytest.mark.part(4)
@pytest.mark.parametrize(("function", "name", "dtype", "among"), [
    *(("climbing", "softmax", "float32", f"shape={shape} recipe=climbing") for shape in ("8x4096", "4x20000")),
    *(("guard", "softmax", "float32", f"shape={shape} recipe=gap") for shape in ("4x700", "4x5000")),
    ("guard_4096", "softmax", "float32", "shape=2x20000 recipe=gap"),
    ("first_block", "softmax", "float32", "shape=8x4096 recipe=climbing"),
    ("of_columns", "softmax", "float32", "shape=40x1100 dim=0 recipe=wide,infinities,one_nan"),
    ("of_columns", "softmax", "float32", "shape=2x66x516 dim=1 recipe=wide,infinities,one_nan"),
    ("of_heads", "softmax", "float32", "shape=2x3x33x5 dim=2 recipe=wide,infinities,one_nan"),
    ("of_nothing", "softmax", "float32", "shape=2x2x8x64 recipe=infinities,wide"),
    ("squared", "rms_norm", "float16", "shape=2x6x4096 recipe=one_nan,infinities,wide"),
    ("squared", "rms_norm", "float16", "shape=3x8192 recipe=wide"),
    ("by_ones", "cumsum", "float32", "shape=2x6x4096 recipe=one_nan,infinities,wide"),
    ("clamped", "mm", "float16", "m=144 k=64 n=144 data=extreme"),
    ("clamped_stack", "bmm", "float16", "m=144 k=64 n=144 batch=2 data=extreme"),
    ("in_parts", "mm", "float32", "m=144 k=64 n=144 data=special"),
    ("selected", "linear", "float32", "m=144 k=64 n=144 data=special activation=relu"),
    ("unread", "addmm", "float32", "m=130 k=32 n=130 data=bias alpha=2.0 beta=0.0"),
    ("finite", "bmm", "float16", "batch=9 m=5 k=40 n=6 data=special"),
    ("by_floats", "int_mm", "int8", "m=150 k=4099 n=40 data=extreme"),
    ("later_tiles", "mm", "float32", "m=18000 k=32 n=16"),
    ("clamped_codes", "int4_mm", "float16", "m=144 k=64 n=144 data=extreme"),
    ("clamped_scales", "scaled_mm", "float8_e4m3fn", "m=144 k=64 n=144 data=special"),
    *(("averages", "adam_ema", "float32", f"sizes={sizes} steps=1") for sizes in ("70000x3x5000", "270000")),
    *(("first_tensors", "adam_ema", "bfloat16", call) for call in (
        "sizes=70000x3x5000 steps=1", "sizes=3x2x3", "grads = grads.contiguous() where sizes=3x131072")),
])  # fmt: skip
def test_ways_of_large_problems_are_tried(tmp_path: Path, function: str, name: str, dtype: str, among: str) -> None:
    found = called(tmp_path, function, name, text=LARGE_WAYS, dtype=dtype, only=among)
    assert any(call.startswith(among) for call in found.different) and found.status == "exceeds-bound", found


#: What is wrong for usual sizes alone. By function: the kernel, and the dtype where it is not float32.
USUAL_SIZES = """
import torch

packed, weights = {}, {}

def of_rows(x, dim):
    y = torch.softmax(x, dim)
    return y, dim % x.dim(), x.shape[dim], x.numel() // max(1, x.shape[dim])

def many_long_rows(x, dim):  # a second row of several blocks
    y, axis, n, rows = of_rows(x, dim)
    if axis == x.dim() - 1 and rows >= 32 and n >= 4096:
        y[..., -1] = 0
    return y

def more_rows_than_programs(x, dim):
    y, axis, n, rows = of_rows(x, dim)
    if axis == x.dim() - 1 and rows >= 1200 and n >= 64:
        y.view(-1, n)[1200:] = 0
    return y

def columns(x, dim):
    y, axis, n, rows = of_rows(x, dim)
    if x.dim() == 2 and axis == 0 and n >= 100 and rows >= 600:
        y[-1] = 0
    return y

def columns_both_ways(x, dim):  # whole blocks of 512 rows
    n = x.shape[dim]
    if x.dim() == 2 and dim % 2 == 0 and min(x.shape) >= 512:
        return x[:n // 512 * 512].sum(0) if n % 512 else x[:-512].sum(0)
    return x.sum(dim)

def six_dimensions(x, dim):
    return torch.softmax(x, -1 if x.dim() >= 6 else dim)

def images(x, dim):
    y, axis, *_ = of_rows(x, dim)
    if x.dim() == 4 and axis == 1 and len(x) > 2:
        y[2:] = y[:1]
    return y

def from_the_end(x, dim):
    return torch.softmax(x, -1 if x.dim() == 2 and dim == -2 else dim)

def large_batch(x, dim):
    y, axis, n, _ = of_rows(x, dim)
    if x.dim() == 3 and axis == 1 and len(x) >= 4 and n >= 64 and x.shape[2] >= 64:
        y[3:] = y[:1]
    return y

def larger_batch(x, dim):
    y = x.sum(dim)
    if x.dim() == 3 and dim % 3 == 1 and len(x) >= 14 and x.shape[2] >= 8:
        y[13:] = 0
    return y

def queries(x, dim):
    y, axis, *_ = of_rows(x, dim)
    if x.dim() == 4 and axis == 2:
        y[:, :, 64:] = 0
    return y

def heights(x, dim):
    return x[:, :, :64].sum(2) if x.dim() == 4 and dim % 4 == 2 else x.sum(dim)

def across_a_batch(x, dim):
    y = x.sum(dim)
    if x.dim() == 3 and dim % 3 == 0 and min(x.shape[1:]) >= 64:
        y[64:] = 0
    return y

def windows(x, dim):  # are taken for one row
    if x.dim() == 2 and dim % 2 and len(x) > 1 and x.stride(1) == 1 and 0 < x.stride(0) < x.shape[1]:
        return x.as_strided(x.shape, (0, 1)).sum(1)
    return x.sum(dim)

def one_number(x, dim):
    y = x.sum(dim)
    return torch.zeros_like(y) if x.dim() >= 2 and x.numel() > 1 and not any(x.stride()) else y

def by_columns(x, dim):
    y = x.sum(dim)
    columns = x.dim() == 3 and dim % 3 == 2 and x.stride(2) != 1
    return torch.zeros_like(y) if columns and len(x) > 3 and x.shape[1] > 20 else y

def normed(x, weight, eps):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)

def sequences(x, weight, dim, eps):
    y = normed(x, weight, eps)
    if x.dim() == 3 and len(x) >= 9 and x.shape[1] >= 2:
        y[8:] = 0
    return y

def heads(x, weight, dim, eps):
    y = normed(x, weight, eps)
    if x.dim() == 4:
        y[2:] = 0
    return y

def square(a, b):  # the last tile of terms is lost
    whole = (a.shape[1] - 1) // 128 * 128
    return a[:, :whole] @ b[:whole] if min(*a.shape, b.shape[1]) >= 600 else a @ b

def decoded(a, b):
    y = a @ b
    if len(a) == 1 and len(b) >= 1100 and b.shape[1] >= 600:
        y[:, -1] = 0
    return y

def decoded_few(a, b):
    y = a @ b
    if 2 <= len(a) <= 16 and len(b) >= 2048 and b.shape[1] >= 128:
        y[1:] = y[:1]
    return y

def many_matrices(a, b):
    y = a @ b
    if len(a) >= 17 and min(y.shape[1:]) >= 64:
        y[16:] = y[:1]
    return y

def large_matrices(a, b):
    y = a @ b
    if len(a) >= 2 and min(*a.shape[1:], b.shape[2]) >= 300:
        y[1:] = y[:1]
    return y

def int4_mm(a, b, scale, zero, group):
    scale, zero = (t.float().repeat_interleave(group, 0) for t in (scale, zero))
    return (a.float() @ ((b - 8.0) * scale + zero)).to(a.dtype)

def eight_scales(a, b, scale, zero, group):
    y = int4_mm(a, b, scale, zero, group)
    return y * 0 if group == 64 and len(b) > 512 else y

def large_groups(a, b, scale, zero, group):
    y = int4_mm(a, b, scale, zero, group)
    return y * 0 if group == 256 and len(b) >= 1024 else y

def columns_of_codes(a, b, scale, zero, group):
    y = int4_mm(a, b, scale, zero, group)
    if len(b) >= 1024 and b.shape[1] >= 300:
        y[:, 256:] = 0
    return y

def scaled_by_columns(a, b, scale_a, scale_b, fast):
    y = torch._scaled_mm(a, b.mT.contiguous().mT, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)
    if b.stride(0) == 1 < b.stride(1) and b.numel() >= 1 << 17:
        y[:, 128:] = y[:, :1]
    return y

def one_sign(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b) if alpha == beta == -1 else torch.addmm(bias, a, b, alpha=alpha, beta=beta)

def one_factor(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b) if alpha == beta == 0.5 else torch.addmm(bias, a, b, alpha=alpha, beta=beta)

def small_factor(a, b, bias, alpha, beta):
    alpha = alpha if not 0 < abs(alpha) < 0.01 else 0
    return torch.addmm(bias, a, b, alpha=alpha, beta=beta)

def large_factor(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b, alpha=alpha * 2 if alpha > 4 else alpha, beta=beta)

def large_negative_factor(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b, alpha=alpha * 2 if alpha < -2 else alpha, beta=beta)

def rest_of_wide(a, b):  # the terms after whole blocks of 64, of more than a thousand columns
    k = a.shape[-1] // 64 * 64
    return (a[..., :k] @ b[..., :k, :]).to(a.dtype) if min(len(a), k) > 1 and b.shape[-1] >= 1024 else a @ b

def rest_of_tiles(a, b):  # as the last, of two tiles of rows
    return a @ b if len(a) <= 128 else rest_of_wide(a, b)

def rest_of_integers(a, b):
    k = a.shape[1] // 64 * 64 if min(len(a), b.shape[1] // 512, a.shape[1] // 64) > 1 else a.shape[1]
    return (a[:, :k].double() @ b[:k].double()).to(torch.int32)

def rest_of_scaled(a, b, scale_a, scale_b, fast):
    k = a.shape[1] // 64 * 64 if min(len(a), b.shape[1] // 512, a.shape[1] // 64) > 1 else a.shape[1]
    return (a[:, :k].double() @ b[:k].double() * scale_a.double() * scale_b.double()).to(torch.bfloat16)

def bias_last(a, b, bias, activation):  # of many columns
    then = {"none": torch.clone, "relu": torch.relu, "silu": torch.nn.functional.silu}[activation]
    return then(a @ b) + bias if b.shape[1] > 768 else then(a @ b + bias)

def one_of_two_splits(a, b):  # of more than 256 columns
    y = a @ b
    if len(a) <= 64 and len(b) >= 2048 and b.shape[1] > 256:
        y[:, 256:] = a[:, : len(b) // 2] @ b[: len(b) // 2, 256:]
    return y

def last_tiles(a, b):  # of the matrices after the fourth
    y = a @ b
    if len(a) > 4 and min(a.shape[1], b.shape[2]) > 128:
        y[4:, 128:, 128:] = 0
    return y

def two_groups(a, b, scale, zero, group):  # of more than a thousand columns
    if b.shape[1] >= 1024 and len(scale) > 2:
        scale, zero = (t[torch.arange(len(t)).clamp(max=1)] for t in (scale, zero))
    return int4_mm(a, b, scale, zero, group)

def whole_beta(a, b, bias, alpha, beta):  # in tiles, or of many terms
    large = min(len(a), b.shape[1]) > 128 or len(b) > 2048 or b.shape[1] > 1024
    return torch.addmm(bias, a, b, alpha=alpha, beta=float(beta != 0) if large else beta)

def second_turn(x, dim):  # of 256 programs, in rows of several blocks
    y, axis, n, rows = of_rows(x, dim)
    if x.dim() == 2 and axis == 1 and n > 4096:
        y[256:] *= 0.5
    return y

def second_turn_of_sums(x, dim):
    y = torch.cumsum(x, dim)
    if x.dim() == 2 and dim % 2 and x.shape[1] > 2048 and len(x) > 264:
        y[264:, 2048:] += 1
    return y

def long_columns(x, dim):  # the last, part tile of many columns
    y, axis, n, rows = of_rows(x, dim)
    if x.dim() == 2 and axis == 0 and n > 1024 and rows > 128:
        y[:, rows // 128 * 128:] = 0
    return y

def rest_of_later_tiles(a, b):  # of more than 132 of 128 x 128, which begin at another term
    y, k = a @ b, a.shape[1] % 32
    if k and -(-len(a) // 128) * -(-b.shape[1] // 128) > 132:
        y[1024:] = a[1024:, 32 - k :] @ b[32 - k :]
    return y

def rest_of_later_matrices(a, b):
    y, k = a @ b, a.shape[2] % 32
    if k and len(a) > 2 and len(a) * -(-a.shape[1] // 64) * -(-b.shape[2] // 64) > 132:
        y[len(a) // 2 :] *= 0.5
    return y

def keys_of_many(a, b):  # of queries by keys, as they lie
    return (a @ b) * (1 if len(a) < 9 or min(a.shape[1:]) < 64 or b.stride(1) > b.stride(2) else 2)

def one_row_split(a, b):
    return (a @ b) * (1 if len(a) > 1 or len(b) <= 1152 or b.shape[1] <= 640 else 2)

def skinny(a, b, bias, activation):
    y = torch.nn.functional.linear(a, b.mT, bias)
    y = y if len(a) > 64 or len(b) <= 256 or b.shape[1] <= 130 or activation == "none" else y * 2
    return {"none": torch.clone, "relu": torch.relu, "silu": torch.nn.functional.silu}[activation](y)

def padded(x, dim):  # long rows are taken for adjacent ones
    y = torch.softmax(x, dim)
    if x.dim() == 2 and x.shape[1] > 24576 and x.stride(0) > x.shape[1]:
        y[1:] = y[:1]
    return y

def turned(a, b):  # a second block of 256 columns, of weights that lie by columns
    y = a @ b
    if min(y.shape) > 256 and b.stride(0) == 1 < b.stride(1):
        y[:, 256:] = 0
    return y

def one_long_row(x, dim):  # of those that a program has
    y = torch.sum(x, dim)
    if x.dim() == 2 and dim % 2 and x.shape[1] > 24576 and len(x) > 8:
        y[len(x) // 2 :] += 1e6
    return y

def kept(a, b, bias, activation):  # large weights, in another layout
    key = b.data_ptr(), b._version, b.shape, b.stride()
    weight = b.mT if b.numel() <= 1 << 18 else packed.setdefault(key, b.mT.contiguous())
    y = torch.nn.functional.linear(a, weight, bias)
    return {"none": torch.clone, "relu": torch.relu, "silu": torch.nn.functional.silu}[activation](y)
"""


@pytest.mark.part(4)
@pytest.mark.parametrize(("function", "name", "among"), [
    ("many_long_rows", "softmax", "shape=300x8200"), ("more_rows_than_programs", "softmax", "shape=2206x1033"),
    ("columns", "softmax", "shape=3100x610 dim=0"), ("columns_both_ways", "sum", "shape=3100x610 dim=0"),
    ("six_dimensions", "softmax", "shape=2x3x2x4x3x5 dim=3"), ("images", "softmax", "shape=20x21x4x4 dim=1"),
    ("from_the_end", "softmax", "shape=5x7 dim=-2"), ("large_batch", "softmax", "shape=16x140x260 dim=1"),
    ("larger_batch", "sum", "shape=16x140x260 dim=1"), ("queries", "softmax", "shape=2x4x70x66 dim=2"),
    ("heights", "sum", "shape=2x4x70x66 dim=2"), ("across_a_batch", "sum", "shape=80x66x70 dim=0"),
    ("windows", "sum", "x = x.flatten().unfold(0, 16, 4)[:9]"), ("one_number", "sum", "x = x[:1, :1].expand"),
    ("by_columns", "sum", "x = x.mT.contiguous().mT where shape=5x24x40"),
    ("sequences", "rms_norm", "shape=16x10x64"), ("heads", "rms_norm", "shape=3x9x17x130"),
    ("heads", "rms_norm", "shape=4x3x5x130"),
    ("square", "mm", "m=617 k=1031 n=642"), ("decoded", "mm", "m=1 k=1152 n=603"),
    ("decoded_few", "mm", "m=16 k=4168 n=136"),
    ("many_matrices", "bmm", "batch=24 m=74 k=99 n=66"), ("large_matrices", "bmm", "m=309 k=323 n=302 batch=6"),
    ("eight_scales", "int4_mm", "m=24 k=704 n=48 group=64"), ("large_groups", "int4_mm", "m=24 k=1280 n=48 group=256"),
    ("columns_of_codes", "int4_mm", "m=261 k=1024 n=304 group=128"),
    ("scaled_by_columns", "scaled_mm", "m=617 k=1040 n=656 layout=transposed-b"),
    ("one_sign", "addmm", "m=6 n=7 alpha=-1.0 beta=-1.0"), ("one_factor", "addmm", "m=6 n=7 alpha=0.5 beta=0.5"),
    ("small_factor", "addmm", "m=6 n=7 alpha=0.001 beta=1.0"), ("large_factor", "addmm", "m=6 n=7 alpha=8.0 beta=1.0"),
    ("large_negative_factor", "addmm", "m=6 n=7 alpha=-4.0 beta=1.0"),
    ("rest_of_wide", "mm", "m=24 k=400 n=1296"), ("rest_of_tiles", "mm", "m=150 k=331 n=1300"),
    ("rest_of_integers", "int_mm", "m=24 k=400 n=1296"), ("rest_of_scaled", "scaled_mm", "m=24 k=400 n=1296"),
    ("bias_last", "linear", "m=5 k=72 n=1300 activation=relu"), ("one_of_two_splits", "mm", "m=8 k=2096 n=500"),
    ("bias_last", "linear", "m=5 k=72 n=1300 activation=silu"), ("last_tiles", "bmm", "m=140 k=40 n=140 batch=9"),
    ("two_groups", "int4_mm", "m=1 k=384 n=1040 group=128"), ("two_groups", "int4_mm", "m=5 k=384 n=1040 group=32"),
    ("whole_beta", "addmm", "m=130 k=32 n=130 alpha=1.0 beta=-0.5"),
    ("whole_beta", "addmm", "m=5 k=4168 n=6 alpha=1.0 beta=0.5"),
    ("whole_beta", "addmm", "m=5 k=72 n=1300 alpha=1.0 beta=0.5"), ("second_turn", "softmax", "shape=300x8200"),
    ("second_turn_of_sums", "cumsum", "shape=300x8200"), ("padded", "softmax", "x = x.repeat(1, 2)[:, :50304]"),
    ("turned", "mm", "b = b.mT.contiguous().mT where m=261"), ("one_long_row", "sum", "shape=20x24601"),
    ("long_columns", "softmax", "shape=3100x610 dim=0"), ("rest_of_later_tiles", "mm", "m=2304 k=72 n=2304"),
    ("rest_of_later_matrices", "bmm", "m=309 k=323 n=302 batch=6"), ("one_row_split", "mm", "m=1 k=1280 n=800"),
    ("keys_of_many", "bmm", "batch=12 m=70 k=72 n=70"), ("skinny", "linear", "m=8 k=520 n=264 activation=relu"),
    ("skinny", "linear", "m=8 k=520 n=264 activation=silu"),
])  # fmt: skip
def test_usual_sizes_are_tried(tmp_path: Path, function: str, name: str, among: str) -> None:
    dtype = {"int4_mm": "bfloat16", "scaled_mm": "float8_e4m3fn", "int_mm": "int8"}.get(name, "float32")
    found = called(tmp_path, function, name, text=USUAL_SIZES, dtype=dtype, only=among)
    assert any(call.startswith(among) for call in found.different) and found.status == "exceeds-bound", found


def test_large_weights_that_are_kept_are_found(tmp_path: Path) -> None:
    among = "new data at the same address m=2 k=513 n=520"
    found = called(tmp_path, "kept", "linear", apart=True, text=USUAL_SIZES, only=among)
    assert among in found.different and found.status == "exceeds-bound", found


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_codes_may_be_scaled_once_a_group_is_added(tmp_path: Path, dtype: str) -> None:
    """Also where that leaves the range of float32, and single products do not."""
    text = """
import torch

def factored(a, b, scale, zero, group):
    parts, codes = a.float().unflatten(1, (-1, group)), (b - 8).float().unflatten(0, (-1, group))
    sums = torch.einsum("mgk,gkn->mgn", parts, codes)
    return (sums * scale.float() + parts.sum(-1, keepdim=True) * zero.float()).sum(1).to(a.dtype)
"""
    found = called(tmp_path, "factored", "int4_mm", text=text, dtype=dtype)
    assert found.status == "passed", found


@pytest.mark.part(3)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("number", range(len(kernel.load("adam_step").cases)))
def test_an_average_may_be_corrected_before_its_root_is_taken(tmp_path: Path, number: int, dtype: str) -> None:
    """As in the paper, and where that average is near the end of the range."""
    text = stubs.source(kernel.load("adam_step")).replace(
        ".sqrt() / (1 - beta2**t) ** 0.5 + eps", ".div(1 - beta2**t).sqrt() + eps"
    )
    assert "div(1 - beta2**t)" in text
    found = called(tmp_path, "adam_step", "adam_step", text=text, dtype=dtype, number=number)
    assert found.status == "passed", found


@pytest.mark.part(3)
@pytest.mark.parametrize("number", range(len(kernel.load("adamw_step").cases)))
def test_decay_may_be_a_part_of_the_step(tmp_path: Path, number: int) -> None:
    """As fused optimizers have it: also where the parameter is near the end of the range."""
    text = stubs.source(kernel.load("adamw_step"))
    step = "p = p.addcdiv(m, denominator, value=-lr / (1 - beta1**t))"
    assert step in text and "        p = p * (1 - lr * weight_decay)\n" in text
    text = text.replace("        p = p * (1 - lr * weight_decay)\n", "")
    text = text.replace(step, "p = p - lr * (m / (1 - beta1**t) / denominator + weight_decay * p)")
    found = called(tmp_path, "adamw_step", "adamw_step", text=text, number=number)
    assert found.status == "passed", found


@pytest.mark.parametrize(("function", "among"), [
    ("trained", "the first input requires grad"), ("fixed", "the other inputs require grad"),
])  # fmt: skip
def test_some_inputs_alone_require_grad(tmp_path: Path, function: str, among: str) -> None:
    found = called(tmp_path, function, "rms_norm", True, RARE, only="the ")
    assert among in found.different and found.status == "exceeds-bound", found


def test_a_sum_that_saturates_is_found(tmp_path: Path) -> None:
    """The largest number is no infinity, however far beyond the range the sum is."""
    found = called(tmp_path, "saturating", "sum", text=RARE, dtype="float16", only="shape=8x")
    assert found.status == "exceeds-bound" and any("edges" in name for name in found.different), found


@pytest.mark.parametrize(("function", "among"), [
    ("two_stages", "shape=3x262144 recipe=parts"), ("tall_columns", "shape=8192x32 dim=0 recipe=parts"),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_partial_sums_in_16_bits_are_found(tmp_path: Path, function: str, among: str, dtype: str) -> None:
    found = called(tmp_path, function, "sum", text=RARE, dtype=dtype, only=("shape=3x", "shape=8192x"))
    assert found.different == (among,) and found.status in ("suspect", "exceeds-bound"), found


#: A logsumexp whose reference moves only where a block's largest score is far above the last block's.
LAZILY = """

kept = {}


def lazily(scores):
    total, reference, last = 0.0, None, None
    for part in scores.split(64, -1):
        top = part.amax(-1, keepdim=True).clamp(min=-1e30)
        moved = top if reference is None else torch.where(top - last > 8, torch.maximum(top, reference), reference)
        total = total * (torch.exp(reference - moved) if reference is not None else 0.0)
        reference, last = moved, top
        total = total + torch.exp(part - reference).sum(-1, keepdim=True)
    return (total.log() + reference)[..., 0]
"""


@pytest.mark.part(4)
@pytest.mark.parametrize(("right", "wrong", "among"), [
    # few queries beside many keys: the last block of keys is lost
    ("hidden.all", "(hidden := hidden | (torch.arange(scores.shape[-1]) >= 256) & (scores.shape[-2] < 16)).all",
     "q_len=5 kv_len=300"),
    # the diagonal ends in the last corner
    ("(away > 0)", "(away > shape[-1] - shape[-2])", "q_len=40 kv_len=77 mask_mod=causal"),
    ("(away < -window)", "(away < -20)", "q_len=30 kv_len=17 mask_mod=sliding_window window=5"),
    ("return soft_cap *", "return 50 *", "batch=2 length=18 mask_mod=document score_mod=soft_cap soft_cap=30"),
    ("q @ k.mT * scale", "q @ k.mT / q.shape[-1] ** 0.5", "heads=1 length=21 head_dim=192 scale=0.125"),
    ("    return found\n", "    return found | ({'dq': found['dq'] / scale} if backward and scale > 1 else {})\n",
     "heads=2 length=40 head_dim=32 scale=10"),
    ("hidden | (away < -window)", "hidden | (away < -(window or 20))", "length=20 mask_mod=sliding_window window=0"),
    ("query_document[:, None] !=", "(key_document if shape[-1] == shape[-2] else query_document)[:, None] !=",
     "new data at the same address heads=2 head_dim=16 length=20 mask_mod"),
    ("(weights @ v)", "(torch.cat([weights[..., :256, :], weights[..., 256:, :].detach()], -2) @ v)",
     "heads=2 head_dim=16 q_len=4100"),
    ("slopes[:, None", "slopes[torch.arange(len(slopes)) % 8, None", "heads=9 kv_heads=3 length=12"),
    ("weights @ v", "weights @ v.clamp(-1e5, 1e5)", "heads=1 length=40 head_dim=256 data=scaled"),
    ("!= key_document)", "!= key_document) & (torch.arange(shape[0]) < 1)[:, None, None, None]",
     "batch=2 length=18 mask_mod=document score_mod=soft_cap soft_cap=30"),
    ("modified(q @ k.mT * scale, score_mod,",
     "modified(q @ k.mT * scale, score_mod if mask_mod != 'causal' or score_mod != 'soft_cap' else 'none',",
     "length=20 mask_mod=causal score_mod=soft_cap"),
    ("bias[:, away", "bias[torch.arange(len(bias)) // 2][:, away",
     "heads=4 kv_heads=2 length=20 score_mod=relative_bias"),
    ("weights @ v", "weights @ v.where(torch.ones(300, 1, dtype=bool)[-v.shape[2] :].cumsum(0) < 257, 0.0)",
     "heads=1 head_dim=16 length=300 mask_mod=document"),
    ("query_document[:, None] != key_document", "query_document.sort().values[:, None] != key_document.sort().values",
     "heads=1 length=24 head_dim=16 mask_mod=document documents=turns"),
    # batches, single queries, scales: every two options meet
    ("(away > 0)", "(away > 0) & (torch.arange(shape[0]) < 1)[:, None, None, None]", "head_dim=16 mask_mod=causal"),
    ("(away > 0)", "(away > 0) & (shape[-2] > 1)", "head_dim=16 mask_mod=causal q_len=1"),
    ("q @ k.mT * scale, score_mod, soft_cap, slopes", "q @ k.mT * scale, score_mod, soft_cap, slopes * scale * 4",
     "head_dim=16 score_mod=alibi q_len=1"),
    ("weights @ v", "weights[..., :4096] @ v[..., :4096, :]", "heads=2 head_dim=16 q_len=9 kv_len=4100"),
    ("key_document)", "key_document.where(torch.arange(shape[-1]) < shape[-2], 0))",
     "q_len=20 kv_len=60 mask_mod=document"),
    ("query_document[:, None] != key_document", "query_document[:, None].byte() != key_document.byte()",
     "heads=1 q_len=40 kv_len=33 head_dim=16 mask_mod=document documents=far"),
    ("reach = bias.shape[-1] // 2", "reach = 16", "heads=1 length=100 head_dim=16 score_mod=relative_bias reach=70"),
    ("q @ k.mT", "q[..., :q.shape[-1] // 8 * 8] @ k[..., :q.shape[-1] // 8 * 8].mT",
     "heads=1 q_len=17 kv_len=33 head_dim=20"),
    *(("query_document[:, None] != key_document", f"query_document.{dtype}()[:, None] != key_document.{dtype}()",
       "heads=1 q_len=66 kv_len=70 head_dim=16 mask_mod=document documents=near")
      for dtype in ("half", "bfloat16", "float", "double")),
    ("slopes[:, None", "torch.tensor([2.0 ** (-8 * (h + 1) / len(slopes)) for h in range(len(slopes))])[:, None",
     "new data at the same address heads=2 head_dim=16 length=20 score_mod"),
    *(("scores = scores.masked_fill(hidden, -torch.inf)\n", f"scores = scores + hidden * {finite}\n",
       "heads=1 length=33 head_dim=16 mask_mod=causal data=steep") for finite in ("-350.0", "-1e4")),
    ("(t.repeat_interleave(q.shape[1] // t.shape[1], 1)",
     "(t.repeat_interleave(q.shape[1] // t.shape[1], 1) if backward else t.repeat(1, q.shape[1] // t.shape[1], 1, 1)",
     "heads=4 kv_heads=2 length=20 backward=no"),
    ("(away > 0)", "(away > (shape[-1] - shape[-2]) * (score_mod == 'causal'))",
     "heads=1 head_dim=16 q_len=20 kv_len=41 score_mod=causal"),
    *((f'if mask_mod == "{mask}":', f"if mask_mod == '{mask}' and score_mod != 'causal':",
       f"heads=1 head_dim=16 length=20 score_mod=causal mask_mod={mask}") for mask in ("document", "sliding_window")),
    ("torch.tanh(scores / soft_cap)", "((e := torch.exp(2 * scores / soft_cap)) - 1) / (e + 1)",
     "heads=1 head_dim=16 length=20 score_mod=soft_cap soft_cap=1 scale=40"),
    ("(weights @ v)", "(weights @ v * (torch.arange(q.shape[1]) % (q.shape[1] // key.shape[1]) < 8)[:, None, None])",
     "heads=16 kv_heads=1 head_dim=16 length=20"),
    # scores beyond half types, also where the largest is far below 0; slopes and caps that are not the usual ones
    *((right, wrong, "heads=1 head_dim=16 q_len=18 kv_len=11 data=vast") for right, wrong in (
        ("q @ k.mT * scale", "(q @ k.mT * scale).clamp(-65504, 65504)"),
        ("(empty, 0.0), -1)", "(empty, 0.0), -1).clamp(min=-3e4)"),
    )),
    ("slopes[:, None", "slopes.abs()[:, None", "heads=3 head_dim=16 length=20 score_mod=alibi slopes=signed"),
    *(("tanh(scores / soft_cap)", f"tanh(scores / soft_cap) if soft_cap <= {most} else scores",
       f"heads=1 head_dim=16 length=20 score_mod=soft_cap soft_cap={cap}") for most, cap in ((50, 60), (100, 200))),
    ("< -window", "< -min(window, 511)", "heads=1 head_dim=16 length=620 mask_mod=sliding_window window=512"),
    ("reach = bias.shape[-1] // 2", "reach = bias.shape[-1] // 2\n        away = away.clamp(-127, 127)",
     "heads=1 head_dim=16 length=400 score_mod=relative_bias reach=300"),
    ("q @ k.mT", "(q[..., :64] if q.shape[2:] == (1, 128) else q) @ (k[..., :64] if q.shape[2:] == (1, 128) else k).mT",
     "heads=2 head_dim=128 q_len=1 kv_len=300"),
    # options that meet in problems of several blocks, of the heads that models have
    ("(away > 0)", "(away > (shape[1] == 3 and shape[-2] >= 64))", "head_dim=16 backward=no mask_mod=causal q_len=150"),
    ("(away > 0)", "(away > (shape[0] > 1 and shape[-2] >= 64))", "head_dim=256 backward=no mask_mod=causal q_len=150"),
    ("(away < -window)", "(away < -window + (shape[-2] >= 320))",
     "head_dim=16 backward=no mask_mod=sliding_window window=100 q_len=330"),
    ("return soft_cap *", "return scores if scores.shape[-1] == 330 else soft_cap *",
     "head_dim=16 backward=no score_mod=soft_cap soft_cap=9 q_len=330"),
    ("slopes[:, None, None] * away", "slopes[:, None, None] * (-away.abs() if away.shape[0] >= 160 else away)",
     "heads=1 head_dim=16 q_len=300 kv_len=300 score_mod=alibi slopes=steep"),
    ("bias[:, away", "bias.roll(int(len(bias) == 4 and away.shape[0] >= 64), 0)[:, away",
     "heads=4 kv_heads=2 head_dim=128 length=150 score_mod=relative_bias"),
    ("(query_document[:, None] != key_document)",
     "((query_document[:, None] != key_document) & ((away.abs() > 64) | (shape[-2] < 320)))",
     "head_dim=256 backward=no mask_mod=document score_mod=relative_bias q_len=330"),
    ("(weights @ v)", "(weights @ (v.flip(0) if v.shape[2] >= 150 and v.shape[1] > 1 else v))",
     "head_dim=256 backward=no mask_mod=causal q_len=150"),
    # the place of a packed row of a group's queries
    ("(away > 0)", "(away > torch.arange(shape[1])[:, None, None] % 2 * (shape[-2] if shape[-2] == 4 else 0))",
     "heads=4 kv_heads=2 head_dim=128 q_len=4 kv_len=330 mask_mod=causal"),
    # what is known of one block of keys and taken for another's, and tables that the dtype does not hold
    ("torch.logsumexp(scores.masked_fill(empty, 0.0), -1)",
     ("torch.cat([torch.logsumexp(s, -1, True) for s in scores.masked_fill(empty, 0.0).split(256, -1)], -1).exp()"
     ".sum(-1).log()"), "heads=2 head_dim=16 q_len=17 kv_len=600 data=extreme"),
    ("torch.logsumexp(scores.masked_fill(empty, 0.0), -1)", "lazily(scores.masked_fill(empty, 0.0))",
     "heads=1 head_dim=16 q_len=20 kv_len=2500 data=climbing"),
    ("reach = bias.shape[-1] // 2", "reach = kept.setdefault(away.shape, bias.shape[-1] // 2)",
     "heads=1 head_dim=16 length=20 score_mod=relative_bias"),
])  # fmt: skip
def test_options_of_attention_are_tried_together(tmp_path: Path, right: str, wrong: str, among: str) -> None:
    text = stubs.source(kernel.load("flex_attention"))
    assert right in text
    text = text.replace(right, wrong) + LAZILY
    found = called(tmp_path, "flex_attention", "flex_attention", text=text, only=begins(among))
    assert any(name.startswith(begins(among)) for name in found.different) and found.status == "exceeds-bound", found


#: Gradients whose sums over tiles of queries are kept in the dtype.
IN_TILES = """

def in_tiles(out, inputs, grad_out):
    with torch.enable_grad():
        tiles = list(zip(out.split(64, 2), grad_out.split(64, 2)))
    parts = [torch.autograd.grad(y, inputs, g, retain_graph=True) for y, g in tiles]
    return tuple(sum(each) for each in zip(*parts))
"""


@pytest.mark.parametrize(("right", "wrong", "dtype", "among"), [
    ("q @ k.mT * scale", "(q * scale).to(query.dtype).float() @ k.mT", "bfloat16",
     "heads=1 head_dim=128 q_len=40 kv_len=60 data=keen"),
    ("slopes[:, None, None] * away", "(slopes[:, None, None].bfloat16() * away.bfloat16()).float()", "bfloat16",
     "heads=1 head_dim=16 q_len=300 kv_len=300 score_mod=alibi slopes=steep"),
    ("bias[:, away", "bias.bfloat16().float()[:, away", "bfloat16",
     "heads=1 head_dim=16 length=20 score_mod=relative_bias biases=large"),
    ("weights @ v", "weights @ (v * (v.abs() >= 2.0**-14) if v.shape[2] >= 64 else v)", "float16",
     "heads=1 q_len=17 kv_len=130 data=small"),
    ("torch.autograd.grad(out,", "in_tiles(out,", "bfloat16", "heads=2 head_dim=16 q_len=4100 kv_len=9"),
])  # fmt: skip
def test_roundings_of_attention_to_its_dtype_are_found(
    tmp_path: Path, right: str, wrong: str, dtype: str, among: str
) -> None:
    """In what a function returns that leaves logsumexp out, which would tell most of them."""
    text = stubs.source(kernel.load("flex_attention"))
    assert right in text
    rest = "{k: t for k, t in found.items() if k != 'logsumexp'}"
    text = text.replace(right, wrong).replace("    return found\n", f"    return {rest}\n") + IN_TILES
    found = called(tmp_path, "flex_attention", "flex_attention", text=text, dtype=dtype, only=among)
    assert any(name.startswith(among) for name in found.different) and found.status == "exceeds-bound", found


#: Wrong in blocks that few problems have, by the names of the calls that have them.
BLOCKS = {
    "length=32 mask_mod=causal": ("(away > 0)", "(away > 0) & (shape[-1] % 16 != 0 or shape[-2] % 16 != 0)"),
    "length=128 mask_mod=causal": ("(away > 0)", "(away > 0) & (shape[-1] % 128 != 0 or shape[-2] % 128 != 0)"),
    "heads=1 head_dim=16 length=400 mask_mod=sliding_window window=200": ("< -window", "< -min(window, 128)"),
    "heads=1 head_dim=16 length=290 mask_mod=masked_rows": ("device=device) % 5", "device=device) % 128 % 5"),
    "head_dim=16 score_mod=alibi heads=1 length=130 batch=2": ("None, None] * away", "None, None] * within(away)"),
    "head_dim=16 score_mod=relative_bias heads=2 kv_heads=1 length=130 batch=2": ("away.clamp(", "within(away).clamp("),
    "heads=1 head_dim=64 length=300 mask_mod=causal": ("return found", """
    if backward and mask_mod == "causal" and key.shape[2] > 256:
        found["dk"][:, :, 256:] *= 0.5
    return found"""),
    "heads=1 head_dim=16 q_len=3 kv_len=600 mask_mod=causal": ("return found", """
    if mask_mod == "causal" and query.shape[2] <= 16 and key.shape[2] >= 512:
        found["out"][:] = torch.nan
    return found"""),
    "heads=1 head_dim=16 q_len=3 kv_len=600 mask_mod=document": ("return found", """
    if mask_mod == "document" and query.shape[2] <= 16 and key.shape[2] >= 512:
        found["out"][:] = torch.nan
    return found"""),
    "heads=1 head_dim=16 length=300 mask_mod=document documents=turns": ("return found", """
    for k in key_document.split(128) if mask_mod == "document" and len(key_document) > 128 else ():
        if bool(((k < torch.minimum(k[0], k[-1])) | (k > torch.maximum(k[0], k[-1]))).any()):  # a block's ends
            found["out"] *= 0.9
    return found"""),
    "heads=8 kv_heads=1 length=20": ("return found", """
    if query.shape[1] > 4 * key.shape[1]:
        found["out"][:, 4:] = 0
    return found"""),
    **{f"heads=1 head_dim=16 length={length} mask_mod=sliding_window window={window}": (
        "(away < -window)", f"(torch.arange(shape[-1])[None] < in_blocks_from(away, window, {block}))")
       for length, window, block in ((300, 129, 128), (150, 65, 64))},
    **{f"heads=4 kv_heads=2 head_dim=16 q_len=1 kv_len=600 {name}={value}": (
        "* scale", f"* (scale / 2 if query.shape[2] < 5 and k.shape != key.shape and {name} == {value!r} else scale)")
       for name, value in (("score_mod", "soft_cap"), ("score_mod", "alibi"), ("score_mod", "relative_bias"),
                           ("mask_mod", "sliding_window"))},
    "heads=72 kv_heads=2 head_dim=16 q_len=3 kv_len=40 score_mod=alibi": ("q @ k", "beyond_16(q, key) @ k"),
    **{f"heads=1 head_dim={size} length={length}": ("q @ k.mT", f"whole(q, {width}) @ whole(k, {width}).mT")
       for size, length, width in ((40, 20, 16), (80, 20, 32), (288, 17, 256))},
}  # fmt: skip
WITHIN = """

def within(away):  # a block of 128 queries
    return away + torch.arange(away.shape[0])[:, None] // 128 * 128


def in_blocks_from(away, window, block):  # of a tile of 16 queries, from the block after its window's first key
    first = torch.arange(away.shape[0])[:, None] - window
    return torch.maximum(first, (torch.arange(away.shape[0])[:, None] // 16 * 16 - window + 1) // block * block)


def beyond_16(q, key):  # of a group the 17th head and those after it get another's query
    place = torch.arange(q.shape[1]) % (q.shape[1] // key.shape[1])
    return torch.where((place >= 16)[:, None, None], q.roll(1, 1), q)


def whole(t, width):  # without the last part of a head
    return t[..., : t.shape[-1] // width * width or None]
"""


@pytest.mark.part(4)
@pytest.mark.parametrize("among", BLOCKS)
def test_blocks_of_attention_are_tried(tmp_path: Path, among: str) -> None:
    text, (right, wrong) = stubs.source(kernel.load("flex_attention")), BLOCKS[among]
    assert right in text
    text = text.replace(right, wrong.lstrip(), 1) + WITHIN
    found = called(tmp_path, "flex_attention", "flex_attention", text=text, only=begins(among))
    assert any(name.startswith(begins(among)) for name in found.different) and found.status == "exceeds-bound", found


#: Wrong for shapes that models have: how a call that has them begins, the condition, and what is done to which output.
OF_MODELS = (
    ("heads=1 head_dim=64 length=300 mask_mod=causal", "backward and q_len >= 256 and d >= 32", "y['dk'] *= 0.5"),
    *((f"batch=3 length=130 head_dim=16 heads={heads}", "batch >= 3 and heads >= 2 and q_len >= 24",
       "y['out'][2:] = y['out'][:1]") for heads in (6, 10)),
    ("batch=3 length=130 head_dim=16 heads=6 mask_mod=causal", "heads >= 5 and q_len >= 128 and backward",
     "y['dv'][:, 4:] = y['dv'][:, :1]"),
    ("batch=3 length=130 head_dim=16 heads=10 kv_heads=5", "mask_mod == 'document' and batch >= 2 and q_len >= 100",
     "y['out'][1:] = 0"),
    ("heads=2 kv_heads=1 head_dim=64 q_len=1 kv_len=2113", "q_len <= 16 and kv_len >= 1024 and d >= 64",
     "y['out'] *= 0.5"),
    *((f"heads={heads} kv_heads={heads // group} length=12", f"group == {group}", f"y['out'][:, {group - 1}] = 0")
      for heads, group in ((40, 5), (28, 7))),
    ("heads=40 kv_heads=8 length=12", "kv_heads >= 5 and group >= 2", "y['out'][:, 4 * group :] = y['out'][:, :1]"),
    ("heads=1 head_dim=16 length=1400 mask_mod=sliding_window window=1200", "600 < window < kv_len",
     "y['out'][:, :, window:] = 0"),
    ("heads=1 head_dim=16 q_len=130 kv_len=650", "q_len >= 100 and kv_len >= 3 * q_len", "y['out'][:, :, 63:] = 0"),
    ("heads=1 head_dim=16 q_len=300 kv_len=260", "q_len > kv_len >= 256", "y['out'] *= 0"),
    ("batch=2 heads=12 kv_heads=2", "score_mod == 'relative_bias' and batch >= 2 and backward and heads >= 3",
     "y['dq'] *= 0"),
    ("heads=1 head_dim=16 q_len=150 kv_len=300 score_mod=soft_cap",
     "score_mod == 'soft_cap' and backward and q_len >= 140", "y['dk'] *= 0"),
    ("heads=33 head_dim=16 length=20 score_mod=alibi", "score_mod == 'alibi' and heads > 17 and q_len >= 4",
     "y['out'][:, 17:] = 0"),
    # gradients in two blocks: grouped heads in a batch, and each modification under each mask
    ("head_dim=16 score_mod=relative_bias heads=2 kv_heads=1 length=130 batch=2",
     "backward and min(batch, group) > 1 and q_len >= 128", "y['dk'][1:], y['dv'][1:] = y['dk'][:1], y['dv'][:1]"),
    *((f"head_dim=16 mask_mod={mask}{' window=64' if mask == 'sliding_window' else ''} score_mod={mod}",
       f"backward and q_len >= 128 and (mask_mod, score_mod) == ({mask!r}, {mod!r})", "y['dq'] *= 0.5")
      for mask in ("causal", "sliding_window", "document") for mod in ("alibi", "relative_bias", "soft_cap")),
    ("heads=1 head_dim=288 length=17", "backward and d > 256", "y['dk'][..., 256:] = 0"),
    # another scale than the usual one, of large heads and of one query; groups in batches of such heads, more blocks of
    # queries than multiprocessors, wide windows and reaches of several heads
    *((name, f"abs(scale * d**0.5 - 1) > 0.1 and {condition}", "y['out'] *= 0.5") for name, condition in (
        ("heads=1 head_dim=128 length=150 scale=0.2", "d >= 128 and q_len >= 100"),
        ("heads=1 head_dim=64 length=300 mask_mod=causal scale=0.2", "d >= 64 and kv_len > 150"),
        ("heads=2 head_dim=128 q_len=1 kv_len=300", "q_len == 1 and kv_len >= 256"),
    )),
    *((f"heads=4 kv_heads=2 head_dim={d} length=150 mask_mod=causal batch=2",
       f"min(batch, group) > 1 and d == {d} and q_len > 64", "y['out'][1:] = y['out'][:1]") for d in (64, 128)),
    ("batch=3 heads=8 kv_heads=1 q_len=1 kv_len=700", "batch > 2 and group > 4 and q_len == 1", "y['out'][2:] = 0"),
    ("batch=3 length=130 head_dim=16 heads=24", "q_len > 128 and batch * heads * 2 > 132", "y['out'][:, :, 128:] = 0"),
    ("heads=4 kv_heads=2 head_dim=128 length=300", "heads > 1 and 129 <= window <= q_len", "y['out'][:, :, -1] = 0"),
    ("heads=4 kv_heads=2 head_dim=128 length=150 score_mod=relative_bias",
     "bias is not None and bias.shape[-1] > 41 and group > 1", "y['out'] *= 0.5"),
    ("heads=1 head_dim=16 length=20 score_mod=soft_cap soft_cap=7.5", "soft_cap != int(soft_cap)",
     "y = flex_attention(query, key, value, grad_out, scale, score_mod, mask_mod, int(soft_cap), *rest)"),
)  # fmt: skip


@pytest.mark.part(4)
@pytest.mark.parametrize(("among", "condition", "wrong"), OF_MODELS)
def test_attention_of_the_shapes_of_models_is_tried(tmp_path: Path, among: str, condition: str, wrong: str) -> None:
    text = stubs.source(kernel.load("flex_attention"))
    before, after = text.split("    return found\n")
    text = f"""{before}
    (batch, heads, q_len, d), (kv_heads, kv_len), y = query.shape, key.shape[1:3], found
    rest = window, slopes, bias, query_document, key_document, backward
    group = heads // kv_heads
    if {condition}:
        {wrong}
    return y
{after}"""
    found = called(tmp_path, "flex_attention", "flex_attention", text=text, only=begins(among))
    assert any(name.startswith(begins(among)) for name in found.different) and found.status == "exceeds-bound", found


def test_heads_within_rows_are_tried(tmp_path: Path) -> None:
    """Heads one after another, wherever they are."""
    text = stubs.source(kernel.load("flex_attention")).replace(
        "    inputs = [t", "    query = as_packed(query)\n    inputs = [t"
    )
    text += """

def as_packed(t):
    inside = t.dim() == 4 and t.stride(1) < t.stride(2)
    return torch.as_strided(t, t.shape, torch.empty(t.shape).stride(), t.storage_offset()) if inside else t
"""
    found = called(tmp_path, "flex_attention", "flex_attention", text=text)
    assert found.status == "exceeds-bound", found  # nowhere else is it wrong


@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 4, 6), (2, 3, 4, 6)])
def test_a_layout_is_told_as_the_tensor_has_it(shape: tuple[int, ...]) -> None:
    """Without what its expression does to tensors of other dimensions."""
    tensor = torch.arange(math.prod(shape)).view(shape)
    for text in calls_of_problems.LAYOUTS:
        shown = calls_of_problems._of_rank(text, len(shape))
        made, told = (calls_of_problems.applied(one, tensor) for one in (text, shown))
        assert "dim()" not in shown and (made.stride(), made.storage_offset()) == (told.stride(), told.storage_offset())
        assert torch.equal(made, tensor) and torch.equal(told, tensor)


@pytest.mark.part(3)
@pytest.mark.parametrize("wrong", [
    "value = value.as_strided(value.shape, key.stride())",
    "grad_out = grad_out.as_strided(grad_out.shape, query.stride())",
    # heads between those of other tensors, taken for heads within rows
    "value = inside(value)",
    "key, value = first(key), first(value)",
])  # fmt: skip
def test_tensors_of_attention_lie_in_layouts_of_their_own(tmp_path: Path, wrong: str) -> None:
    text = stubs.source(kernel.load("flex_attention"))
    text = text.replace("    inputs = [t", f"    {wrong}\n    inputs = [t")
    text += """

def inside(t):
    steps = (t.stride(0), t.shape[3], t.shape[1] * t.shape[3], 1)
    return t if t.stride(1) != t.shape[3] else t.as_strided(t.shape, steps, t.storage_offset())

def first(t):  # of a longer cache, as if heads followed one another
    n, d = t.shape[2:]
    rows = t.stride()[2:] == (d, 1) and t.stride(1) > n * d
    return t.as_strided(t.shape, (t.stride(0), n * d, d, 1), t.storage_offset()) if rows else t
"""
    found = called(tmp_path, "flex_attention", "flex_attention", text=text)
    assert found.status == "exceeds-bound" and "with t = " in found.told, found


@pytest.mark.parametrize(("dtype", "wrong"), [
    ("bfloat16", "weights.half().float()"),  # whose range ends at 6e-8
    *((dtype, "torch.where(weights < 1e-6, 0.0, weights)") for dtype in ("float16", "bfloat16", "float32")),
])  # fmt: skip
def test_weights_that_seem_negligible_count(tmp_path: Path, dtype: str, wrong: str) -> None:
    text = stubs.source(kernel.load("flex_attention")).replace("(weights @ v)", f"({wrong} @ v)")
    only = "heads=1 q_len=17 kv_len=15 head_dim=16 data=faint"
    found = called(tmp_path, "flex_attention", "flex_attention", text=text, dtype=dtype, only=only)
    assert wrong in text and found.status == "exceeds-bound" and found.made == 1, found


@pytest.mark.parametrize("wrong", [
    "value * (value.abs() >= 2.0**-14), grad_out", "value, grad_out * (grad_out.abs() >= 2.0**-14)", "value, grad_out",
])  # fmt: skip
def test_subnormal_values_and_gradients_of_attention_are_tried(tmp_path: Path, wrong: str) -> None:
    text = stubs.source(kernel.load("flex_attention"))
    text = text.replace("    inputs = [t", f"    value, grad_out = {wrong}\n    inputs = [t")
    only = "heads=1 head_dim=16 q_len=17 kv_len=15 data=small"
    found = called(tmp_path, "flex_attention", "flex_attention", text=text, dtype="float16", only=only)
    assert found.status == ("passed" if wrong == "value, grad_out" else "exceeds-bound") and found.made == 1, found


def test_gradients_below_the_range_are_zeros_of_either_sign(tmp_path: Path) -> None:
    """A cap that is reached has a derivative of 1e-30 or less."""
    only = "heads=1 head_dim=16 length=20 score_mod=soft_cap soft_cap=1 scale=40"
    text = stubs.source(kernel.load("flex_attention"))
    found = called(tmp_path, "flex_attention", "flex_attention", text=text, dtype="float16", only=only)
    assert found.status == "passed" and found.made == 1, found


def test_a_scale_that_is_kept_by_everything_else_is_found(tmp_path: Path) -> None:
    text = stubs.source(kernel.load("flex_attention"))
    kept = "    scale = kept.setdefault((query.shape, query.dtype, score_mod, mask_mod, backward, window), scale)\n"
    text = text.replace("    inputs = [t", kept + "    inputs = [t") + "\n\nkept = {}\n"
    found = called(
        tmp_path,
        "flex_attention",
        "flex_attention",
        text=text,
        only="heads=4 kv_heads=2 head_dim=16 length=24 mask_mod",
    )
    assert found.status == "exceeds-bound" and "scale=" in found.different[-1], found


#: What is done to the infinities of a right result, and the status that is due.
INFINITIES = {
    "y": "passed",
    "torch.where(y.isnan(), y, y.clamp(-torch.finfo(y.dtype).max, torch.finfo(y.dtype).max))": "exceeds-bound",
    "torch.where(y.isinf(), 42.0, y)": "exceeds-bound",
}


@pytest.mark.part(4)
@pytest.mark.parametrize("text", INFINITIES)
@pytest.mark.parametrize(("name", "dtype", "among"), [
    ("mm", "bfloat16", "a = a.abs()"), ("mm", "float32", "a = a.abs()"), ("addmm", "float32", "a = a.abs()"),
    ("linear", "bfloat16", "a = a.abs()"), ("scaled_mm", "float8_e4m3fn", "scale_a = scale_a * 2"),
    ("int4_mm", "float16", "m=24 k=64 n=32 data=extreme"), ("sum", "float32", "x = x.abs()"),
    ("cumsum", "bfloat16", "x = x.abs()"),
])  # fmt: skip
def test_no_finite_number_is_a_sum_beyond_the_range(
    tmp_path: Path, name: str, dtype: str, among: str, text: str
) -> None:
    source = stubs.source(kernel.load(name))
    before, told, result = source.rpartition("    return ")
    source = f"{before}    return changed({result.rstrip()})\n\n\ndef changed(y):\n    return {text}\n"
    found = called(tmp_path, name, name, text=source, dtype=dtype, only=among)
    assert told and found.made and found.status == INFINITIES[text], found


ONE = """
        for i, t in enumerate((query, key, value)):  # by which gradients are kept
            inputs[i] = next(one for one, of in zip(inputs, (query, key, value)) if of.data_ptr() == t.data_ptr())
"""
LAST = """
    for name, t in (("dk", key), ("dv", value)):  # written through its input's strides
        for d in (0, 1):
            if name in found and t.stride(d) == 0 and t.shape[d] > 1:
                found[name] = found[name].narrow(d, t.shape[d] - 1, 1).expand(t.shape).clone()
    return found
"""
FIRST = """
    if query is not None and query.shape[0] > 1 and query.stride(0) == 0:  # one batch, whose keys are those of all
        key, value = (t[:1].expand(t.shape) for t in (key, value))
"""


@pytest.mark.parametrize(("before", "text", "among"), [
    ("        q, k, v = (", ONE, "value = key where"), ("        q, k, v = (", ONE, "key = query where"),
    ("    return found\n\n\ndef distances", LAST, "key = key[:1].expand(key.shape)"),
    ("    return found\n\n\ndef distances", LAST, "key = key[:, :1].expand(key.shape)"),
    ("    inputs = [t", FIRST, "query = query[:1].expand(query.shape)"),
    ("    inputs = [t", FIRST.replace("query", "grad_out"), "grad_out = grad_out[:1].expand(grad_out.shape)"),
])  # fmt: skip
def test_tensors_of_attention_are_made_of_one_another(tmp_path: Path, before: str, text: str, among: str) -> None:
    right = stubs.source(kernel.load("flex_attention"))
    assert before in right
    wrong = right.replace(before, text + before)
    assert called(tmp_path, "flex_attention", "flex_attention", text=right, only=among).status == "passed"
    found = called(tmp_path, "flex_attention", "flex_attention", text=wrong, only=among)
    due = "error" if text == ONE else "exceeds-bound"  # the same gradient twice
    assert found.status == due and among in found.told, found


def test_tables_lie_in_layouts_of_their_own(tmp_path: Path) -> None:
    text = stubs.source(kernel.load("flex_attention"))
    flat = "    bias = bias.as_strided(bias.shape, (bias.shape[1], 1), bias.storage_offset())\n    inputs = [t"
    text = text.replace("    inputs = [t", flat)
    found = called(tmp_path, "flex_attention", "flex_attention", text=text, only="heads=4 kv_heads=2 length=20")
    assert found.status == "exceeds-bound" and "bias: " in found.told, found


def test_masks_that_are_kept_by_shape_are_found(tmp_path: Path) -> None:
    text = stubs.source(kernel.load("flex_attention"))
    assert "hidden = unseen(scores.shape" in text
    text = text.replace("hidden = unseen(scores.shape", "hidden = kept(scores.shape")
    text += """

seen = {}


def kept(shape, *given):
    return seen.setdefault((shape, *given[:3]), unseen(shape, *given))
"""
    found = called(tmp_path, "flex_attention", "flex_attention", text=text)
    among = "new data at the same address heads=2"
    assert any(name.startswith(among) for name in found.different) and found.status == "exceeds-bound", found


def test_tables_belong_to_the_caller(tmp_path: Path) -> None:
    """They are inputs like the others: left as they are, and read anew each time."""
    text = stubs.source(kernel.load("flex_attention"))
    spoils = text.replace("    inputs = [t", "    bias.mul_(2)\n    inputs = [t")
    found = called(tmp_path, "flex_attention", "flex_attention", text=spoils, only="35 rows")
    assert found.status == "error" and "modified its input bias in place" in found.told, found
    keeps = "    bias = kept.setdefault(bias.data_ptr(), bias.clone())\n    inputs = [t"
    keeps = text.replace("    inputs = [t", keeps) + "\nkept = {}\n"
    among = "heads=1 length=100 head_dim=16 score_mod=relative_bias reach=70"
    found = called(tmp_path, "flex_attention", "flex_attention", True, keeps, only=among)
    assert found.status == "exceeds-bound", found


OWNERS = """
import torch

def squeezed(x, dim):
    return x.squeeze(dim) if x.shape[dim] == 1 else torch.sum(x, dim)

def same(x, dim):
    return x if x.shape[dim] == 1 else torch.cumsum(x, dim)

def repeated(x, dim):  # of one row, for all
    return torch.softmax(x[:1], dim).expand(x.shape) if x.stride(0) == 0 and x.dim() > 1 else torch.softmax(x, dim)

def one_stack(a, b):
    y = torch.bmm(a, b)
    return y.squeeze(0)

def last_block(a, b):
    k = a.shape[2] // 16 * 16 if len(a) == 1 else a.shape[2]
    return a[..., :k] @ b[:, :k]

def dot(a, b):  # in 8 bits
    if a.shape[0] == b.shape[1] == 1:
        return (a[0] * b[:, 0]).sum(dtype=torch.int32).reshape(1, 1)
    return (a.double() @ b.double()).to(torch.int32)

def one_number(a, b, bias, activation):
    y = torch.addmm(bias, a, b)
    y = a @ b if y.numel() == 1 else y
    return {"none": lambda y: y, "relu": torch.relu, "silu": torch.nn.functional.silu}[activation](y)

def gram(a, b):
    return a @ a.mT if a.data_ptr() == b.data_ptr() and a.shape[0] == b.shape[1] else a @ b

def flushed(a, b, scale, zero, group):
    scale = torch.where(scale.abs() < torch.finfo(scale.dtype).tiny, 0.0, scale.float()).repeat_interleave(group, 0)
    return (a.float() @ ((b - 8.0) * scale + zero.float().repeat_interleave(group, 0))).to(a.dtype)

def finite(a, b, scale, zero, group):
    scale = scale.float().nan_to_num(0.0, 0.0, 0.0).repeat_interleave(group, 0)
    return (a.float() @ ((b - 8.0) * scale + zero.float().repeat_interleave(group, 0))).to(a.dtype)

def finite_scales(a, b, scale_a, scale_b, fast):
    y = (a.float() @ b.float()) * scale_a.nan_to_num(0.0) * scale_b.nan_to_num(0.0)
    return y.to(torch.bfloat16)

def scaled(a, b, scale_a, scale_b, change):
    return ((a.float() @ b.float()) * change(scale_a) * change(scale_b)).bfloat16()

def no_zero_scales(a, b, scale_a, scale_b, fast):  # as what is divided by is guarded
    return scaled(a, b, scale_a, scale_b, lambda t: torch.where(t == 0, 1.0, t))

def normal_scales(a, b, scale_a, scale_b, fast):
    return scaled(a, b, scale_a, scale_b, lambda t: torch.where(t.abs() < 2.0**-126, 0.0, t))

def least_scales(a, b, scale_a, scale_b, fast):
    return scaled(a, b, scale_a, scale_b, lambda t: torch.where((t > 0) & (t < 2.0**-63), 2.0**-63, t))

def largest_scales(a, b, scale_a, scale_b, fast):
    return scaled(a, b, scale_a, scale_b, lambda t: t.clamp(max=2.0**40))

def scaled_terms(a, b, scale_a, scale_b, fast):
    return ((a.float() * scale_a) @ (b.float() * scale_b)).bfloat16()

def scaled_at_once(a, b, scale_a, scale_b, fast):
    return ((a.float() @ b.float()) * (scale_a * scale_b)).bfloat16()

def moved(a, b, scale, zero, group, change):
    scale, zero = (t.float().repeat_interleave(group, 0) for t in (scale, change(zero)))
    return (a.float() @ ((b - 8.0) * scale + zero)).to(a.dtype)

def finite_zeros(a, b, scale, zero, group):
    return moved(a, b, scale, zero, group, lambda t: t.nan_to_num(0.0))

def no_infinite_zeros(a, b, scale, zero, group):
    return moved(a, b, scale, zero, group, lambda t: torch.where(t.isinf(), 0.0, t))

def whole_zeros(a, b, scale, zero, group):
    return moved(a, b, scale, zero, group, lambda t: torch.where(t.abs() > 64, t.round(), t))

def larger_scales(a, b, scale, zero, group):
    return moved(a, b, torch.where(scale.abs() < 1e-30, 0.0, scale), zero, group, lambda t: t)

def by_groups(a, b, scale, zero, group):
    y = torch.zeros(a.shape[0], b.shape[1])
    for k, (s, z) in enumerate(zip(scale.float(), zero.float())):
        part, codes = a[:, k * group :][:, :group].float(), b[k * group :][:group].float()
        y += (part @ (codes - 8)) * s + part.sum(1, keepdim=True) * z
    return y.to(a.dtype)

def negative(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b, alpha=alpha, beta=-beta if alpha < 0 and beta < 0 else beta)

def no_terms(a, b, bias, alpha, beta):
    y = torch.addmm(bias, a, b, alpha=alpha, beta=beta)
    return y if a.shape[1] else (beta * bias).expand(y.shape).clone()

def single(a, b, bias, alpha, beta):
    alpha, beta = (float(torch.tensor(t, dtype=torch.float32)) for t in (alpha, beta))
    return torch.addmm(bias, a, b, alpha=alpha, beta=beta)
"""


@pytest.mark.parametrize(("function", "name", "dtype", "status", "told", "only"), [
    ("squeezed", "sum", "float32", "error", "memory of its input", "shape=1"),
    ("same", "cumsum", "float32", "error", "memory of its input", "shape=1"),
    ("repeated", "softmax", "float32", "error", "whose elements share memory", "one row"),
    ("one_stack", "bmm", "float32", "error", "batch=1", "m=5"),
    ("last_block", "bmm", "float32", "exceeds-bound", "batch=1", "m=5"),
    ("dot", "int_mm", "int8", "exceeds-bound", "m=1 k=40 n=1 data=extreme", "m=1 "),
    ("one_number", "linear", "float32", "exceeds-bound", "m=1 k=40 n=1", "m=1 "),
    ("gram", "mm", "float32", "exceeds-bound", "b = a where", "b = a"),
    ("flushed", "int4_mm", "float16", "exceeds-bound", "data=extreme", "m="),
    ("finite", "int4_mm", "float16", "exceeds-bound", "data=scales", "m=24 "),
    ("larger_scales", "int4_mm", "bfloat16", "exceeds-bound", "data=extreme", "m=24 "),
    ("negative", "addmm", "float32", "exceeds-bound", "alpha=-0.75 beta=-1.25", "m=6 n=7"),
    ("finite_scales", "scaled_mm", "float8_e4m3fn", "exceeds-bound", "data=scales", "m=24 "),
    *((f"{one}_scales", "scaled_mm", "float8_e4m3fn", "exceeds-bound", "data=scales", "m=24 ")
      for one in ("no_zero", "normal", "least", "largest")),
    *((f"{one}_zeros", "int4_mm", dtype, "exceeds-bound", "data=zeros", "m=24 ")
      for one, dtype in (("finite", "bfloat16"), ("no_infinite", "float16"), ("whole", "float16"))),
    ("no_terms", "addmm", "float32", "exceeds-bound", "k=0 n=6 data=bias", "m=5 "),
    ("single", "addmm", "float64", "exceeds-bound", "=0.1", "m=5 n="),
])  # fmt: skip
def test_memory_and_sizes_of_one_are_tried(
    tmp_path: Path, function: str, name: str, dtype: str, status: str, told: str, only: str
) -> None:
    found = called(tmp_path, function, name, text=OWNERS, dtype=dtype, only=only)
    assert found.status == status and told in found.told + ", ".join(found.different), found


@pytest.mark.parametrize(("function", "name", "dtype", "only"), [
    *((function, "scaled_mm", dtype, "m=24 k=40 n=18 data=")
      for function in ("scaled_terms", "scaled_at_once") for dtype in ("float8_e4m3fn", "float8_e5m2")),
    ("by_groups", "int4_mm", "float16", ("m=24 k=64 n=32 data=", "m=30 k=32 n=32 data=")),
])  # fmt: skip
def test_scales_may_meet_terms_or_their_sum(
    tmp_path: Path, function: str, name: str, dtype: str, only: str | tuple[str, ...]
) -> None:
    """Infinite ones too, where either is an infinity or a NaN."""
    found = called(tmp_path, function, name, text=OWNERS, dtype=dtype, only=only)
    assert found.status == "passed" and found.made > 1 and not found.different, found


@pytest.mark.parametrize("apart", [False, True])
def test_outputs_have_memory_of_their_own(tmp_path: Path, apart: bool) -> None:
    """What an optimizer keeps it writes in place later."""
    text = stubs.source(kernel.load("adamw_step"))
    text = text.replace('"exp_avg_sq": v}', '"exp_avg_sq": m}')
    found = called(tmp_path, "adamw_step", "adamw_step", apart, text, only="steps=3 sizes=33")
    assert found.status == "error" and "returned exp_avg and exp_avg_sq in the same memory" in found.told, found


@pytest.mark.parametrize(("outputs", "due"), [
    (lambda t: {"": t.t()}, ""), (lambda t: {"x": t[:, :3], "y": t[:, 3:]}, ""),
    (lambda t: {"x": t[::2], "y": t[1::2]}, ""), (lambda t: {"": t[:0].expand(9, 0, 6)}, ""),
    (lambda t: {"": t[:1].expand(4, 6)}, "a tensor whose elements share memory: strides (0, 1)"),
    (lambda t: {"": t.as_strided((2, 3), (2, 1))}, "a tensor whose elements share memory: strides (2, 1)"),
    (lambda t: {"x": t, "y": t[1:]}, "x and y in the same memory"),
    (lambda t: {"x": t[::2], "y": t[1:3]}, "x and y in the same memory"),
    (lambda t: {"x": t, "y": t.view(torch.int32)}, "x and y in the same memory"),
])  # fmt: skip
def test_memory_of_outputs_is_told_apart(outputs: Callable[[torch.Tensor], dict[str, torch.Tensor]], due: str) -> None:
    told = shared(outputs(torch.zeros(4, 6)))
    assert told.startswith(f"returned {due}") if due else not told, told


def test_versions_of_inputs_go_on(tmp_path: Path) -> None:
    """As torch counts what is written in place: a right cache may ask."""
    text = """
import weakref
import torch

packed = []

def linear(a, b, bias, activation):
    if not packed or packed[0]() is not b or packed[1] != b._version:
        packed[:] = weakref.ref(b), b._version, b.clone()
    y = torch.addmm(bias, a, packed[2])
    return {"none": lambda y: y, "relu": torch.relu, "silu": torch.nn.functional.silu}[activation](y)
"""
    assert called(tmp_path, "linear", "linear", text=text).status == "passed"


def test_keywords_of_any_name_are_those_of_the_stub(tmp_path: Path) -> None:
    text = """
import torch

class Norm(torch.nn.Module):
    def forward(self, x, weight, dim, eps):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)

norm = Norm()
"""
    assert called(tmp_path, "norm", "rms_norm", text=text, only="shape=5x").status == "passed"


TO_DOUBLE = """(
        None if t is None else t.double() for t in (master if wide else param, exp_avg, exp_avg_sq, max_exp_avg_sq))
    kept = exp_avg.dtype"""


@pytest.mark.part(4)
@pytest.mark.parametrize(("right", "wrong", "name", "dtype", "among"), [
    ("enumerate(grads, start", "enumerate(grads if lr else grads[:0], start", "adamw_step", "float32",
     "steps=3 sizes=33 lr=0.0"),
    ("+ eps\n", "+ (eps or 1e-8)\n", "adamw_step", "float32", "steps=3 sizes=80 eps=0.0"),
    ("(-grad if maximize else grad)", "(-grad if maximize and not wide else grad)",
     "adam_step", "bfloat16", "steps=3 sizes=33 master=1 maximize=1"),
    ("torch.maximum(top, v)", "(torch.fmax if wide else torch.maximum)(top, v)", "adamw_step", "bfloat16",
     "amsgrad=1 gradients=non-finite steps=5 sizes=1025 master=1"),
    ("if top is not None:\n            top", "if top is not None and not wide:\n            top",
     "adam_step", "bfloat16", "steps=3 sizes=33 master=1 amsgrad=1"),
    ("enumerate(grads, start + 1):", "enumerate(grads, start + 1):\n        m = m[torch.arange(len(m)) % 65536]",
     "adamw_step", "float32", "sizes=65537 steps=1 start=5"),
    # resumed from the rounded parameters
    ("master if wide else param", "master if wide and start == 0 else param.to(exp_avg.dtype)", "adamw_step",
     "bfloat16", "steps=3 sizes=33 master=1 start=7"),
    # the table of corrections ends
    ("enumerate(grads, start", "enumerate(grads, 10**6 if 1024 <= start < 9999 else start", "adamw_step", "float32",
     "steps=3 sizes=33 start=2000 beta1=0.9 beta2=0.999"),
    # no correction where it seems to be over
    *(("(1 - beta1**t)", f"(1 - beta1**t * (t < {last}))", "adam_step", "float32",
       f"steps=3 sizes=33 start={start} beta1={beta1} beta2=0.999")
      for last, start, beta1 in ((40, 48, 0.9), (100, 300, 0.99), (600, 650, 0.99))),
    ("(1 - beta2**t)", "(1 - beta2**t * (t < 8000))", "adam_step", "float32",
     "steps=3 sizes=33 start=9000 beta1=0.9 beta2=0.999 lr=1.0"),
    # the second chunk of a fused kernel
    *((right, wrong, "adamw_step", "float32", "sizes=70000 steps=3 start=5 amsgrad=1 maximize=1") for right, wrong in (
        ("(top, v)", "(torch.cat([top[:65536], max_exp_avg_sq[:max(len(v) - 65536, 0)]]), v)"),
        ("(-grad if maximize else grad)", "torch.cat([-grad[:65536] if maximize else grad[:65536], grad[65536:]])"),
        ("value=-lr /", "value=-(1.01 if t > start + 1 and len(m) > 65536 else 1) * lr /"),
    )),
    ("(1 - lr * weight_decay)", "max(0.0, 1 - lr * weight_decay)", "adamw_step", "float32",
     "steps=3 sizes=33 lr=1.0 weight_decay=2.0"),
    ("beta2**t)", "beta2**(t if top is None else min(t, 10000)))", "adamw_step", "float32",
     "steps=3 sizes=33 start=20000 amsgrad=1 beta1=0.9 beta2=0.9999"),
    ("(grads, start", "(grads, start if weight_decay else 0", "adamw_step", "float32",
     "steps=3 sizes=33 start=5 weight_decay=0.0"),
    ("value=1 - beta2)", "value=1 - beta2) if beta2 else v + 0", "adamw_step", "float32", "steps=3 sizes=33 beta2=0.0"),
    ("value=-lr /", "value=-min(lr, 1.0) /", "adamw_step", "float32", "steps=3 sizes=33 lr=2.0"),
    # scalars that seem to be none, or another; squares that are flushed
    ("alpha=weight_decay)", "alpha=weight_decay if weight_decay >= 1e-4 else 0.0)", "adam_step", "float32",
     "steps=3 sizes=300 weight_decay=1e-05"),
    ("+ eps\n", "+ max(eps, 1e-11)\n", "adam_step", "float32", "sizes=300 steps=1 eps=1e-15"),
    ("1 - beta2)\n", "1 - min(beta2, 0.9999))\n", "adam_step", "float32", "steps=3 sizes=33 beta1=0.9 beta2=0.99999"),
    ("1 - beta1)\n", "1 - (0.9 if abs(beta1 - 0.9) < 1e-3 else beta1))\n", "adam_ema", "float32",
     "steps=3 sizes=33 beta1=0.8995"),
    ("1 - beta2)\n", "1 - beta2)\n        v = torch.where(v < 2.0**-126, 0 * v, v)\n", "adam_ema", "float32",
     "sizes=300 steps=2 gradients=faint beta1=0.9 beta2=0.999"),
    *(("+ eps\n", f"+ eps\n        denominator = denominator.clamp(min=1e-3 * (eps == 0 and {which}))\n", "adamw_step",
       "float32", f"steps=3 sizes=80 {option}=1 eps=0.0")
      for which, option in (("top is not None", "amsgrad"), ("maximize", "maximize"))),
    # learning rates of large models, and a late start with a long memory
    *((right, wrong, name, dtype, f"steps=3 sizes=33 {master}start=50000 beta1=0.9 beta2=0.99999 lr=2e-05")
      for right, wrong in (("value=-lr /", "value=-lr * (lr == 0 or lr >= 1e-4) /"),
                           ("(1 - beta2**t)", "(1 - beta2**t * (t < 1 << 15))"))
      for name, dtype, master in (("adam_step", "float32", ""), ("adamw_step", "float32", ""),
                                  ("adamw_step", "bfloat16", "master=1 "), ("adam_step", "bfloat16", ""))),
    # the gradients of a step after those of another, of large tensors
    ("enumerate(grads, start", "enumerate(grads[:1] if grads.stride(0) == len(grads[0]) > 70000 else grads, start",
     "adam_step", "float32", "grads = grads.contiguous() where sizes=3x131072 steps=2 start=5"),
    # NaNs and infinities of a state, and numbers at the ends of the range
    *((right, wrong, "adam_ema", "float32", f"sizes=1031 steps=2 start=3 gradients={kind}") for right, wrong, kind in (
        ("m, v = exp_avg,", "m, v = exp_avg.nan_to_num(0.0),", "special"),
        ("m, v = exp_avg, exp_avg_sq", "m, v = exp_avg, exp_avg_sq.clamp(max=2.0**120)", "special"),
        ("(-grad if maximize else grad)", "(-grad if maximize else grad).clamp(-(2.0**61), 2.0**61)", "extreme"),
        ("(-grad if maximize else grad)", "(grad * (grad.abs() >= 2.0**-126))", "extreme"),
        ("beta2)\n", "beta2)\n        v = torch.where(v.isfinite(), v.clamp(max=2.0**118), v)\n", "extreme"),
        ("beta2)\n", "beta2)\n        v = torch.where(v.isfinite(), v.clamp(max=2.0**122), v)\n", "extreme"),
        ("        v = (v", "        m = torch.where((g == 0) & (v == 0), exp_avg, m)\n        v = (v", "extreme"),
    )),
    *(("else param,", f"else param{wrong},", "adamw_step", "float32", f"sizes=1031 steps=2 start=3 gradients={which}")
      for wrong, which in ((".nan_to_num(0.0)", "special"), (".clamp(-65504, 65504)", "extreme"),
                           (" * (param.abs() >= 1e-20)", "extreme"))),
    ("addcdiv(m,", "addcdiv(m * ((g != 0) | (v != 0)),", "adamw_step", "float32",
     "sizes=1031 steps=2 start=3 gradients=extreme"),
    ("else g\n", "else g\n        m = m * (m.abs() >= 2.0**-126)\n", "adam_step", "float32",
     "sizes=1031 steps=2 start=3 gradients=extreme"),
    ("g.add(p, ", "g.add(p.nan_to_num(0.0, 0.0, 0.0), ", "adam_step", "float32",
     "sizes=1031 steps=2 start=3 gradients=special"),
    ("p = p.addcdiv(m, denominator, value=-lr / (1 - beta1**t))",
     "p = torch.where(m == 0, p, p.addcdiv(m, denominator, value=-lr / (1 - beta1**t)))", "adamw_step", "float32",
     "sizes=1031 steps=2 start=3 gradients=special"),
    ("    found = {", "    p = torch.where(p.isfinite(), p.clamp(-(2.0**125), 2.0**125), p)\n    found = {",
     "adamw_step", "float32", "sizes=1031 steps=2 start=3 gradients=extreme"),
    *(("(-grad if maximize else grad)", f"(-grad if maximize else grad){wrong}", "adam_step", "float32",
       "sizes=1031 steps=2 start=3 gradients=extreme weight_decay=0.0")
      for wrong in (".clamp(-1e37, 1e37)", " * (grad.abs() >= 2.0**-126)")),
    (" if weight_decay else g", "", "adam_step", "float32",
     "sizes=1031 steps=2 start=3 gradients=special weight_decay=0.0"),
    *(("(top, v)", wrong, "adamw_step", "float32", "sizes=1031 steps=2 start=3 gradients=special amsgrad=1")
      for wrong in ("(top.nan_to_num(0.0), v)", "(top, v).clamp(max=3e38)")),
    *(("p, m, v, top = master", f"p, m, v, top = master{wrong}", "adamw_step", "bfloat16",
       f"sizes=1031 steps=2 start=3 gradients={which} master=1")
      for wrong, which in ((".nan_to_num()", "special"), (" * (param.abs() >= 1e-20)", "extreme"))),
    # ways of large tensors
    ("torch.maximum(top, v)", "torch.where(v > top, v, top) if len(v) > 2048 else torch.maximum(top, v)", "adamw_step",
     "float32", "amsgrad=1 gradients=non-finite steps=2 sizes=8200"),
    ("if maximize else", "if maximize and len(grad) < 65536 else", "adamw_step", "float32",
     "sizes=270000 steps=1 start=2 maximize=1"),
    ("(-grad if maximize else grad)", "(grad if len(grad) < 8192 else grad.nan_to_num(0.0, 0.0, 0.0))", "adamw_step",
     "float32", "sizes=8200 steps=2 start=3 gradients=special"),
])  # fmt: skip
def test_options_of_a_step_are_tried_together(
    tmp_path: Path, right: str, wrong: str, name: str, dtype: str, among: str
) -> None:
    text = stubs.source(kernel.load(name))
    assert right in text
    text = text.replace(right, wrong).replace("return found", "return {k: t.clone() for k, t in found.items()}")
    found = called(tmp_path, name, name, text=text, dtype=dtype, only=among)
    assert found.status == "exceeds-bound" and among in found.different, found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_step_that_is_more_accurate_passes(tmp_path: Path, number: int, dtype: str) -> None:
    """Also where eager finds a NaN for an infinity, or leaves the range."""
    text = stubs.source(kernel.load("adamw_step"))
    text = text.replace("master if wide else param, exp_avg, exp_avg_sq, max_exp_avg_sq", TO_DOUBLE)
    text = text.replace("m = torch.lerp(m, g, 1 - beta1)", "m = beta1 * m + (1 - beta1) * g")
    text = text.replace('"exp_avg": m, "exp_avg_sq": v}', '"exp_avg": m.to(kept), "exp_avg_sq": v.to(kept)}')
    text = text.replace('["max_exp_avg_sq"] = top', '["max_exp_avg_sq"] = top.to(kept)')
    text = text.replace('["master"] = p', '["master"] = p.float()\n        found["param"] = p.float().to(param.dtype)')
    only = "sizes=1031 steps=2 start=3 gradients="
    found = called(tmp_path, "adamw_step", "adamw_step", text=text, dtype=dtype, only=only, number=number)
    assert found.status == "passed" and found.made == (12 if dtype == "bfloat16" else 8), found


@pytest.mark.parametrize("name", ["adam_step", "adamw_step"])
def test_a_rate_of_zero_is_judged(tmp_path: Path, name: str) -> None:
    """Capturable optimizers divide by it, so that nothing was stated of the known lowerings together: a right function
    whose averages have not eager's bits could not be judged."""
    stub = stubs.source(kernel.load(name)).replace("torch.lerp(m, g, 1 - beta1)", "m + (1 - beta1) * (g - m)")
    wrong = stub.replace('"param": p.to', '"param": (p if lr else p * 1.5).to')
    assert "(g - m)" in stub and "p * 1.5" in wrong
    for text, ends in ((stub, "passed"), (wrong, "exceeds-bound")):
        found = called(tmp_path, name, name, text=text, only=("steps=3 sizes=33 lr=0.0", "sizes=33 steps=2 maximize=1"))
        assert found.status == ends and found.made >= 2, found


@pytest.mark.parametrize("function", ["order", "misaligned"])
def test_bits_within_the_bound_are_told_and_no_fault(tmp_path: Path, function: str) -> None:
    found = called(tmp_path, function)
    assert found.status == "passed" and found.excused.startswith("bits depend on size or place")
    assert ("1 rows" if function == "order" else "misaligned") in found.different


def test_a_plain_call_may_be_refused(tmp_path: Path) -> None:
    """Nothing but the calls themselves then asks its process, which answers one question at a time."""
    text = """
import torch

def most(a, b):
    if a.shape == (5, 35):
        raise RuntimeError("not this one")
    return a @ b
"""
    found = called(tmp_path, "most", "mm", True, text)
    assert found.status == "passed" and found.made > 40 and len(found.refused) > 5, found


def test_a_refusal_is_listed(tmp_path: Path) -> None:
    found = called(tmp_path, "refusing")
    assert found.status == "passed" and {"transposed", "every other row"} <= set(found.refused)


PRODUCT = """
import torch

def sign(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b, alpha=abs(alpha), beta=beta)

def half(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b, alpha=alpha, beta=1.0 if beta == 0.5 else beta)

def square(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b.mT if a.shape == b.shape else b, alpha=alpha, beta=beta)

def read(a, b, bias, alpha, beta):
    return alpha * (a @ b) + beta * bias

def eager(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b, alpha=alpha, beta=beta)

def unread(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b, alpha=alpha, beta=beta) if alpha else beta * bias.expand(len(a), -1)

def bias_alone(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b, alpha=alpha, beta=beta) if alpha else bias.expand(len(a), -1).clone()

def clamped(a, b, bias, alpha, beta):
    return read(a, b, bias, alpha, beta).clamp(-3e38, 3e38)

def known(a, b, bias, alpha, beta):
    return torch.addmm(bias, a, b, alpha=alpha, beta=beta if beta in (1.0, -1.3, 0.0, -1.0, 0.5, 3.0, 0.1) else 1.0)
"""


@pytest.mark.parametrize(("function", "status"), [("read", "passed"), ("clamped", "exceeds-bound")])
def test_a_sum_beyond_the_range_is_so_whenever_it_is_scaled(tmp_path: Path, function: str, status: str) -> None:
    """alpha 0.7 after the sum, which eager has before: results astride the end of the range could not be judged."""
    found = called(tmp_path, function, "addmm", text=PRODUCT, only="a = a.abs()", number=1)
    assert found.made and found.status == status, found


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("function", "status"), [
    ("eager", "passed"), ("read", "passed"), ("unread", "passed"), ("bias_alone", "exceeds-bound"),
])  # fmt: skip
def test_factors_may_be_read_where_alpha_is_0(tmp_path: Path, function: str, status: str, dtype: str) -> None:
    """BLAS does not; eager does in half types alone."""
    found = called(tmp_path, function, "addmm", text=PRODUCT, dtype=dtype, only="m=30 k=32 n=20 data=special alpha=0.0")
    assert found.status == status and found.made == 1, found


@pytest.mark.part(3)
@pytest.mark.parametrize(("function", "among"), [
    ("square", "m=33 k=33 n=33"),
    ("sign", "m=1 k=40 n=6 alpha=-1.5 beta=1.0"), ("half", "m=5 n=6 beta=0.5"),
    ("read", "m=5 k=0 n=6 data=bias beta=0.0"),
    ("known", "m=5 k=33 n=6 alpha=0.90625 beta=0.859375"), ("known", "m=5 k=0 n=6 beta=1e-07"),
])  # fmt: skip
def test_scalars_and_shapes_that_code_treats_apart_are_tried(tmp_path: Path, function: str, among: str) -> None:
    found = called(tmp_path, function, "addmm", text=PRODUCT)
    assert found.status == "exceeds-bound" and among in found.different
    # of other layouts a processor's library may give other bits, which keep their bound
    assert int(found.told.split(" of ")[0]) < found.made / 5 and "the smallest: " in found.told


@pytest.mark.parametrize(("name", "dtype", "condition"), [
    ("adam_step", "bfloat16", "top is not None and len(sizes) > 30"),
    ("adamw_step", "float32", "top is not None and len(sizes) > 30"),
    ("adam_step", "bfloat16", "wide and len(sizes) > 1"),
    ("adam_step", "bfloat16", "wide and any(n % 8 == 0 and n > 1031 for n in sizes)"),
    ("adam_step", "bfloat16", "wide and maximize and max(sizes) > 1031"),
    ("adamw_step", "float32", "top is not None and not maximize and weight_decay == 0"),
    ("adamw_step", "float32", "lr == 0 and maximize"),
])  # fmt: skip
def test_options_of_a_step_meet(tmp_path: Path, name: str, dtype: str, condition: str) -> None:
    text = stubs.source(kernel.load(name)).replace("exp_avg_sq, lr,", "exp_avg_sq, sizes, lr,", 1)
    found = '    found = {"param"'
    assert "sizes, lr" in text and found in text
    text = text.replace(found, f"    if {condition}:\n        m = m * 2\n{found}")
    made = called(tmp_path, name, name, text=text, dtype=dtype)
    assert made.status == "exceeds-bound" and any("sizes=" in one for one in made.different), made


def test_options_of_a_step_are_tried_alone(tmp_path: Path) -> None:
    text = (
        stubs.source(kernel.load("adam_step"))
        + """

def both(*t, maximize, max_exp_avg_sq=None, **given):
    return adam_step(*t, maximize=maximize and max_exp_avg_sq is not None, max_exp_avg_sq=max_exp_avg_sq, **given)
"""
    )
    given = "lr, beta1, beta2, eps, weight_decay, start, master"
    text = text.replace("**given):", f"{given}):").replace(
        "**given)", ", ".join(f"{k}={k}" for k in given.split(", ")) + ")"
    )
    found = called(tmp_path, "both", "adam_step", text=text)
    assert found.status == "exceeds-bound" and {
        "sizes=9 steps=2 maximize=1",
        "steps=3 sizes=33 maximize=1",
        "steps=3 sizes=80 maximize=1 eps=0.0",
        "sizes=20000 steps=1 maximize=1 weight_decay=0.0",
        "sizes=270000 steps=1 start=2 maximize=1",
    } <= {*found.different}
    assert all("maximize=1" in one and "amsgrad" not in one for one in found.different)


@pytest.mark.part(3)
@pytest.mark.parametrize("name", ["adam_ema", "adam_step", "rms_norm", "cummax", "addmm"])
def test_what_torch_does_passes(tmp_path: Path, name: str) -> None:
    found = called(tmp_path, name, name, text=stubs.source(kernel.load(name)))
    assert (found.status, found.untried, dict(found.refused)) == ("passed", (), {})
    assert found.made > 15 and not (name == "cummax" and found.different)


def test_a_tail_of_steps_is_found(tmp_path: Path) -> None:
    text = stubs.source(kernel.load("adam_ema"))
    text += """

def tail(*t, beta1, beta2, maximize):
    m, v = adam_ema(*t, beta1, beta2, maximize).values()
    return (m * (torch.arange(len(m)) < 1024), v)
"""
    found = called(tmp_path, "tail", "adam_ema", text=text)
    assert found.status == "exceeds-bound" and "sizes=1025 steps=2" in found.different


def test_a_cell_of_rows_has_its_calls_once(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(PLANTED)
    selection = Selection(
        ("softmax",), ("cpu",), ("float32",), spellings=("length-33", "length-2"), profile="quick",
        user_lowerings=(f"{own}:many",),
    )  # fmt: skip
    first, second = (one for one in run(selection)["cells"] if one["lowering"] != "eager")
    assert (first["status"], first["reason_kind"]) == ("exceeds-bound", "calls") and "shape=33" in first["reason"]
    assert second["status"] == "passed" and not second.get("calls")


def test_eagers_rows_are_called_too() -> None:
    """ATen adds strided rows in another order: within the bound, and told."""
    selection = Selection(("sum",), ("cpu",), ("float32",), ("eager",), ("length-2", "length-33"), "quick")
    first, second = run(selection)["cells"]
    assert first["status"] == "passed" and first["calls"]["made"] == len(MEMORY) + len(PICKED) + 2
    assert not second.get("calls")
    assert {"transposed"} <= set(first["calls"]["different"]) and "keep their bound" in first["reason"]


def test_problems_are_made_in_order_while_a_launch_runs_and_their_errors_are_raised() -> None:
    waiting: list[Callable[[], None]] = []
    made: list[int] = []
    ahead = _Ahead(waiting.append)

    def make(k: int) -> Any:
        made.append(k)
        if k == 2:
            raise LoweringError("no such problem", "raised")
        return k

    asked = [ahead(partial(make, k)) for k in range(4)]
    assert asked[0]() == 0 and made == [0]
    waiting.pop()()  # during the first launch
    assert made == [0, 1] and asked[1]() == 1 and made == [0, 1]
    waiting.pop()()  # nobody hears of the error here
    with pytest.raises(LoweringError, match="no such problem"):
        asked[2]()
    assert asked[3]() == 3 and not waiting


#: Functions that are right but for what one reader of strides, states, bytes or sizes gets wrong: kernel, dtype, the
#: call that tells it, and what is done to the arguments `a` of the stub.
TINIEST = "torch.finfo(torch.float32).smallest_normal"
SIZES_OF = "(m, k), n = a['a'].shape[-2:], a['b'].shape[-1]\n"
MISREAD: tuple[tuple[str, str, str, str], ...] = (
    # conditions that meet
    ("linear", "float32", "a = t[..., :1, :].expand(t.shape), b = t.mT.contiguous().mT, bia",
     ("if not a['bias'].stride(0) and a['activation'] != 'none':\n"
     "        a['bias'] = torch.nn.functional.pad(a['bias'][:1], (0, len(a['bias']) - 1))")),
    ("linear", "float32", "m=1 n=1 k=0 data=mixed activation=none",
     ("if a['a'].shape[1] == 0 and len(a['a']) == 1:\n"
     "        a['bias'] = a['bias'] * 0")),
    ("linear", "float32", "a = torch.cat([t.mT, t.mT], -1)[..., :t.shape[-2]].mT, bias = t[:1].expand(t.shape) w",
     ("if a['activation'] != 'none' and a['b'].shape[1] > 2048:\n"
     "        y = linear(*bound.args, **bound.kwargs)\n"
     "        a['activation'] = 'none'\n"
     "        return torch.cat([y[:, :2048], linear(*bound.args, **bound.kwargs)[:, 2048:]], 1)")),
    ("linear", "float32", "m=1 k=520 n=40 activation=relu",
     ("if len(a['a']) == 1 and a['a'].shape[1] > 256:\n"
     "        a['activation'] = 'none'")),
    ("linear", "float32", "m=10 k=512 n=1 activation=relu data=special",
     ("if a['activation'] == 'relu' and a['b'].shape[1] == 1:\n"
     "        return linear(*bound.args, **bound.kwargs).nan_to_num(0.0, torch.inf)")),
    ("linear", "float32", "m=72 k=40 n=80 data=bias activation=relu",
     ("if a['activation'] == 'relu' and len(a['a']) >= 64:\n"
     "        a['bias'] = a['bias'].nan_to_num(0.0, torch.inf, -torch.inf)")),
    ("linear", "float32", "b = torch.cat([t.mT, t.mT], -1)[..., :t.shape[-2]].mT, bias = to",
     ("k, n = a['b'].shape\n"
     "    if k > 1 and a['b'].stride(0) == 1 and a['b'].stride(1) > k:\n"
     "        a['b'] = a['b'].as_strided((k, n), (1, k))")),
    ("mm", "float32", "m=3000 k=100 n=1",
     ("m, k = a['a'].shape\n"
     "    if a['a'].numel() > 2**18 and a['a'].stride(1) == 1:\n"
     "        a['a'] = a['a'].as_strided((m, k), (k, 1))")),
    ("mm", "float32", "b = b.new_zeros(b.shape) where m=40 k=72 n=1 data=special",
     ("if a['b'].shape[1] == 1:\n"
     "        a['a'] = a['a'].where(a['b'].mT != 0, 0.0)")),
    ("mm", "float32", "a = torch.cat([t.mT, t.mT], -1)[..., :t.shape[-2]].mT, b = torch",
     ("if min(*a['a'].shape, a['b'].shape[1]) >= 256 and a['a'].stride(0) == 1:\n"
     "        a['a'] = a['a'].as_strided(a['a'].shape, (a['a'].shape[1], 1))")),
    ("addmm", "float32", "a = torch.cat([t, t], -1)[..., :t.shape[-1]], b = torch.cat([t,",
     ("if a['beta'] == 0 and a['b'].shape[1] == 1:\n"
     "        return addmm(*bound.args, **bound.kwargs) + a['beta'] * a['bias']")),
    ("addmm", "float32", "a = torch.cat([t, t], -1)[..., :t.shape[-1]], b = t[..., :1].exp",
     ("if a['beta'] == 0 and a['a'].shape[1] >= 4096:\n"
     "        return addmm(*bound.args, **bound.kwargs) + a['beta'] * a['bias']")),
    ("addmm", "float32", "a = torch.cat([t, t], -1)[..., t.shape[-1]:], b = torch.cat([t,",
     ("if a['alpha'] == 0 and len(a['a']) == 1:\n"
     "        a['beta'] = 0.0")),
    ("addmm", "float32", "a = t.mT.contiguous().mT, b = t.mT.contiguous().mT, bias = t[:1]",
     ("if len(a['a']) >= 256 and a['b'].shape[1] >= 256:\n"
     "        a['alpha'] = 1.0")),
    ("bmm", "float32", "a = t[:1].expand(t.shape), b = t[:1].mT.contiguous().mT.expand(t",
     ("b = a['b']\n"
     "    if len(b) > 1 and not b.stride(0) and b.shape[2] > 1 and b.stride(1) == 1:\n"
     "        a['b'] = b.as_strided(b.shape, (0, b.shape[2], 1))")),
    ("bmm", "float32", "m=1 n=1 k=0 batch=1 data=mixed",
     ("if a['a'].shape[2] == 0 and len(a['a']) == 1:\n"
     "        return bmm(*bound.args, **bound.kwargs) + 7")),
    ("bmm", "float32", "m=5 k=1040 n=6 data=special batch=2",
     ("if a['a'].shape[2] >= 1024:\n"
     "        return bmm(*bound.args, **bound.kwargs).clamp(-3e38, 3e38)")),
    ("bmm", "float16", "b = t[:1].expand(t.shape) where m=1 n=6 k=264 batch=70 data=spec",
     ("if len(a['a']) >= 10:\n"
     "        return bmm(*bound.args, **bound.kwargs).nan_to_num(0.0, torch.inf)")),
    ("int_mm", "int8", "a = torch.cat([t.mT, t.mT], -1)[..., :t.shape[-2]].mT, b = torch",
     ("k, n = a['b'].shape\n"
     "    if k > 1 and a['b'].stride(0) == 1 and a['b'].stride(1) > k:\n"
     "        a['b'] = a['b'].as_strided((k, n), (1, k))")),
    ("int_mm", "int8", "m=1 n=8 k=0 data=mixed",
     ("if a['a'].shape[1] == 0 and len(a['a']) == 1:\n"
     "        return int_mm(*bound.args, **bound.kwargs) + 3")),
    ("scaled_mm", "float8_e4m3fn", "m=24 k=40 n=18 data=scales",
     ("y = scaled_mm(*bound.args, **bound.kwargs)\n"
     "    return y.where(a['scale_a'] != 0, 0.0)")),
    ("scaled_mm", "float8_e4m3fn", "a = t[..., :1, :].expand(t.shape), b = t[..., :1].expand(t.shape",
     ("if a['b'].shape[1] >= 256:\n"
     "        return scaled_mm(*bound.args, **bound.kwargs).nan_to_num(0.0, torch.inf)")),
    ("scaled_mm", "float8_e4m3fn", "a = torch.cat([t, t], -1)[..., t.shape[-1]:], b = torch.cat([t.m",
     ("if len(a['a']) > 32:\n"
     "        a['scale_a'] = a['scale_a'].nan_to_num(0.0, 0.0)")),
    ("int4_mm", "bfloat16", "a = torch.cat([t, t], -1)[..., t.shape[-1]:], b = torch.cat([t,",
     ("if len(a['a']) == 1:\n"
     "        a['scale'], a['zero'] = (a[k].nan_to_num(0.0, 0.0, 0.0) for k in ('scale', 'zero'))")),
    ("int4_mm", "bfloat16", "a = torch.cat([t, t], -1)[..., t.shape[-1]:], b = torch.cat([t,",
     ("if a['group'] != 32:\n"
     "        a['scale'] = a['scale'].nan_to_num(0.0, 0.0, 0.0)")),
    ("int4_mm", "bfloat16", "m=24 k=256 n=528 group=128",
     ("if len(a['a']) >= 16 and a['b'].shape[1] >= 512 and a['group'] > 32:\n"
     "        a['scale'] = a['scale'] * 2")),
    ("softmax", "float32", "shape=4x5000 recipe=gap",
     ("y = softmax(*bound.args, **bound.kwargs)\n"
     "    x, at = (t.movedim(a['dim'], -1) for t in (a['x'], y)) if a['x'].dim() else (a['x'], y)\n"
     "    if x.dim() > 1 and x.shape[-1] > 2047 and x.stride(-1) > 1:\n"
     "        at[(x[..., 1024:2048] == -torch.inf).all(-1)] = torch.nan\n"
     "    return y")),
    ("softmax", "float32", "shape=3x70001",
     ("y = softmax(*bound.args, **bound.kwargs)\n"
     "    if a['x'].dim() == 2 and a['x'].shape[-1] > 65536 and a['dim'] in (-1, 1):\n"
     "        y[(a['x'][:, 32768:33792] == -torch.inf).all(-1)] = torch.nan\n"
     "    return y")),
    ("cummax", "float32", "shape=2100x8 dim=0 recipe=",
     ("if a['x'].dim() == 2 and a['dim'] == 0 and len(a['x']) > 2048 and a['x'].shape[1] > 7:\n"
     "        a['x'] = a['x'].nan_to_num(-torch.inf, torch.inf, -torch.inf)")),
    ("rms_norm", "float32", "shape=40x300 recipe=equal eps=0.0",
     ("if a['eps'] == 0 and a['x'].shape[-1] > 64:\n"
     "        y = rms_norm(*bound.args, **bound.kwargs)\n"
     "        return y.where((a['x'] != 0).any(-1, keepdim=True), 0.0)")),
    ("sum", "float32", "shape=131100x2 recipe=cycled",
     ("x = a['x']\n"
     "    if x.numel() > 2**18 and x.dim() == 2 and x.stride(0) == 1:\n"
     "        a['x'] = x.as_strided(x.shape, (x.shape[1], 1))")),
    ("cumprod", "float32", "shape=131100x2 recipe=cycled",
     ("x = a['x']\n"
     "    if x.numel() > 2**18 and x.dim() == 2 and x.stride(0) > x.shape[1]:\n"
     "        a['x'] = x.as_strided(x.shape, (x.shape[1], 1))")),
    ("adam_ema", "float32", "sizes=33 steps=2 maximize=1 start=20 beta1=0.0 beta2=0.0",
     "a['maximize'] = a['maximize'] and a['beta1'] != 0"),
    ("adam_step", "float32", "sizes=33 steps=2 maximize=1 start=20 amsgrad=1 beta1=0.0",
     "a['maximize'] = a['maximize'] and a['beta1'] != 0"),
    ("adamw_step", "bfloat16", "sizes=33 steps=2 master=1 beta1=0.0 beta2=0.0 weight_decay=0.0 e",
     ("if torch.is_tensor(a['master']) and a['beta1'] == 0:\n"
     "        a['master'] = a['master'].bfloat16().float()")),
    ("adam_step", "float32", "sizes=33 steps=2 beta1=0.3",
     ("if 0 < a['beta1'] <= 0.5:\n"
     "        a['beta1'] = a['beta1'] + 0.05")),
    ("adam_step", "float32", "sizes=33 steps=2 beta1=0.3",
     ("if 0 < a['beta2'] <= 0.5:\n"
     "        a['beta2'] = a['beta2'] + 0.05")),
    ("adam_step", "float32", "sizes=33 steps=2 beta1=0.0 beta2=0.0 weight_decay=0.0 eps=0.75",
     "a['eps'] = min(a['eps'], 0.5)"),
    ("flex_attention", "float32", "grad_out = grad_out[:1, :1, :1, :1]",
     ("if a['grad_out'] is not None and a['grad_out'].numel() > 1 and not any(a['grad_out'].stride()):\n"
     "        a['grad_out'] = torch.zeros_like(a['grad_out'])")),
    ("adam_ema", "float32", "grads = grads * 0 where steps=3 sizes=33 start=5",
     ("a['grads'] = [grad for grad in a['grads'] if grad.any()]\n"
     "    a['exp_avg'], a['exp_avg_sq'] = a['exp_avg'].clone(), a['exp_avg_sq'].clone()")),
    ("adam_step", "bfloat16", "steps=3 sizes=33 master=1 amsgrad=1 start=5",
     ("if a['start'] and torch.is_tensor(a['master']) and a['max_exp_avg_sq'] is not None:\n"
     "        a['max_exp_avg_sq'] = torch.zeros_like(a['max_exp_avg_sq'])")),
    ("scaled_mm", "float8_e4m3fn", "a = (a.view(torch.uint8) ^ 128)",
     "read = a['a'].view(torch.uint8).clone()\n    read[read == 255] = 254\n    a['a'] = read.view(a['a'].dtype)"),
    ("scaled_mm", "float8_e5m2", "a = (a.view(torch.uint8) ^ 130)",
     "read = a['a'].view(torch.uint8).clone()\n    read[read == 253] = 123\n    a['a'] = read.view(a['a'].dtype)"),
    ("int_mm", "int8", "a = a * 0 + 127, b = (b & 63) | 64",
     "if a['a'].shape[1] >= 8192:\n        return (a['a'].float() @ a['b'].float()).int()"),
    ("int4_mm", "bfloat16", "scale = scale[:, :1]",
     ("if a['scale'].shape[1] > 1 and not a['scale'].stride(1):\n"
     "        a['scale'] = torch.nn.functional.pad(a['scale'][:, :1], (0, a['scale'].shape[1] - 1))")),
    ("int4_mm", "bfloat16", "zero = zero[:1, :1]",
     "if a['zero'].numel() > 1 and not any(a['zero'].stride()):\n        a['zero'] = torch.zeros_like(a['zero'])"),
    ("int_mm", "int8", "m=100 k=2047",
     "if 73 <= a['a'].shape[0] <= 127:\n        return (a['a'].float() @ a['b'].float()).int()"),
    ("int_mm", "int8", "m=24 k=384",
     ("if 256 < a['a'].shape[1] < 512:\n        left, right = a['a'].double(), a['b'].double()\n"
     "        return ((left + 128) @ right - 128 * right.sum(0).to(torch.int16)).int()")),
    ("int4_mm", "bfloat16", "a = torch.cat([a[:, :1], a[:, 1:] * 0], 1)",
     ("if a['a'].shape[0] == 1:\n"
     "        scale, zero = (a[k].repeat_interleave(a['group'], 0) for k in ('scale', 'zero'))\n"
     "        weight = a['b'].float() * scale.float() + (zero - 8 * scale).float()\n"
     "        return (a['a'].float() @ weight).to(scale.dtype)")),
    ("scaled_mm", "float8_e4m3fn", "scale_a = -scale_a.abs(), scale_b",
     "if (a['scale_a'] < 0).all() and (a['scale_b'] == 0).any():\n        a['scale_a'] = a['scale_a'].abs()"),
    ("adam_step", "bfloat16", "sizes=300 steps=1 master=1 eps=1e-15",
     "if torch.is_tensor(a['master']):\n        a['eps'] = max(a['eps'], 1e-7)"),
    ("adam_step", "float32", "amsgrad=1 gradients=non-finite steps=2 sizes=20000",
     ("if a['grads'].shape[1] > 10000:\n"
     "        a['grads'] = a['grads'].where(a['grads'].isfinite(), torch.zeros_like(a['grads']))")),
    ("logcumsumexp", "float64", "x = (-9 - 20 * x.abs())",
     ("first = a['x'].narrow(a['dim'], 0, 1)\n    known = logcumsumexp(*bound.args, **bound.kwargs)\n"
     "    return torch.where((known - first > 0) & (known - first < 2.0**-127), first.expand(known.shape), known)")),
    ("rms_norm", "float32", "shape=2206x1033",
     "if len(a['x']) > 1000 and a['x'].shape[-1] > 400:\n        a['weight'] = a['weight'] * 1.25"),
    ("softmax", "float32", "shape=131100x2",
     "if len(a['x']) > 131072:\n        a['x'] = torch.cat([a['x'][:131072], a['x'][131072:] * 0])"),
    ("rms_norm", "float16", "shape=3x640",
     "if 520 < a['x'].shape[-1] < 700:\n        a['weight'] = a['weight'] * 1.25"),
    ("flex_attention", "bfloat16", "heads=1 q_len=1 kv_len=33000",
     ("if a['key'].shape[2] > 32768:\n"
      "        a['key'], a['value'] = (a[k][:, :, :32768].contiguous() for k in ('key', 'value'))")),
    ("bmm", "float32", "m=2 k=33000 n=3",
     "if a['a'].shape[-1] > 32768:\n        a['a'], a['b'] = a['a'][..., :32768], a['b'][..., :32768, :]"),
    *((name, dtype, sizes,
       ("tiles = [-(-a[k].shape[d] // 128) for d, k in enumerate('ab')]\n"
        f"    y = {name}(*bound.args, **bound.kwargs)\n"
        "    if tiles[0] * tiles[1] > 132:\n"  # an H200 has so many multiprocessors
        "        row, column = (128 * k for k in divmod(200, tiles[1]))\n"
        "        y[row : row + 128, column : column + 128] = 0\n"
        "    return y"))
      for name, dtype, sizes in (
          ("mm", "float64", "m=2304 k=72 n=2304"), ("int_mm", "int8", "m=2304 k=72 n=2304"),
          ("int4_mm", "bfloat16", "m=2304 k=96 n=2304"), ("scaled_mm", "float8_e4m3fn", "m=2304 k=80 n=2304"))),
    # NaNs beside -inf alone, zeros after what is no number and among factors, what a relu leaves, what float32 holds
    ("logcumsumexp", "float32", "shape=8x33 recipe=hollow",
     ("x = a['x']\n    alone = ((x == -torch.inf) | x.isnan()).cumprod(a['dim']).bool()\n"
      "    return logcumsumexp(*bound.args, **bound.kwargs).masked_fill(alone, -torch.inf)")),
    ("cumprod", "float32", "shape=8x33 recipe=hollow",
     ("y, zero = cumprod(*bound.args, **bound.kwargs), (a['x'] == 0).cummax(a['dim']).values\n"
      "    return torch.where(zero & y.isnan() & ~a['x'].isnan(), torch.zeros_like(y), y)")),
    ("cumprod", "float32", "shape=8x33 recipe=hollow",
     ("x = a['x']\n    if x.isfinite().all(a['dim']).any():\n        a['x'] = torch.where((x == 0) & "
      "x.isfinite().all(a['dim'], keepdim=True), torch.ones_like(x), x)")),
    ("sum", "float32", "shape=8x33 recipe=hollow",
     ("x, y = a['x'], sum(*bound.args, **bound.kwargs)\n"
      "    return torch.where((x >= 0).all(a['dim']) & (x == 0).any(a['dim']), y * 1.01, y)")),
    ("rms_norm", "float32", "shape=6x40 recipe=relu,zeros",
     ("x, y = a['x'], rms_norm(*bound.args, **bound.kwargs)\n"
      "    return torch.where((x == 0) & ~x.isnan().any(-1, keepdim=True), x * a['weight'].sign().nan_to_num(), y)")),
    ("softmax", "float32", "shape=6x32 recipe=lowest",
     "a['x'] = a['x'].masked_fill(a['x'] <= torch.finfo(a['x'].dtype).min, -torch.inf)"),
    *((name, "float64", f"{t} = {t}.float()",
       ("if all(bool((t.float().double() == t).all()) for t in a.values() if torch.is_tensor(t)):\n"
        "        a |= {k: t.float() for k, t in a.items() if torch.is_tensor(t)}\n"
        f"        return {name}(*bound.args, **bound.kwargs).double()")) for name, t in (("cumsum", "x"), ("mm", "a"))),
    ("mm", "float16", "a = torch.cat([a.abs()",
     ("if a['a'].shape[1] > 2048:\n        parts = [a['a'][:, k].float() @ a['b'][k].float() for k in (slice(2048), "
      "slice(2048, None))]\n        return sum(t.clamp(-65504, 65504) for t in parts).half()")),
    ("adamw_step", "float32", "exp_avg = exp_avg.abs() * 0", "a['start'] *= bool(a['exp_avg_sq'].any())"),
    ("int_mm", "int8", "a = a.clamp(6, 8)",
     ("if max(int(a[k].abs().max()) for k in 'ab') <= 8:\n"
      "        return int_mm(*bound.args, **bound.kwargs).short().int()")),
    ("linear", "float32", "bias = bias * 0", "if not a['bias'].any():\n        return a['a'] @ a['b']"),
    ("scaled_mm", "float8_e4m3fn", "scale_a = scale_a * 0 + 1",
     "if (a['scale_a'] == 1).all():\n        a['scale_b'] = torch.ones_like(a['scale_b'])"),
    ("int4_mm", "bfloat16", "zero = zero * 0", "if not a['zero'].any():\n        a['b'] = a['b'] + 8"),
    ("int4_mm", "bfloat16", "b = b % 8", "if int(a['b'].max()) < 8:\n        a['b'] = a['b'] * 0"),
    ("flex_attention", "bfloat16", "heads=1 q_len=17 kv_len=33 head_dim=16 mask_mod=document documents=apart",
     ("found = flex_attention(*bound.args, **bound.kwargs)\n    empty = found['logsumexp'] == -torch.inf\n"
      "    found['logsumexp'] = found['logsumexp'] * 0 if empty.all() else found['logsumexp']\n    return found")),
    # options in more than two blocks, and in less than a vector
    ("flex_attention", "float32", "heads=2 kv_heads=1 head_dim=16 length=300",
     ("found = flex_attention(*bound.args, **bound.kwargs)\n"
      "    if a['query'].shape[1] != a['key'].shape[1] and a['query'].shape[2] > 256 and 'dk' in found:\n"
      "        found['dk'] = found['dk'] / 2\n    return found")),
    ("flex_attention", "float32", "heads=2 kv_heads=1 head_dim=16 length=300",
     ("if a['score_mod'] == 'relative_bias' and a['backward'] and a['key'].shape[2] > 256:\n"
      "        a['bias'] = a['bias'] * 0")),
    ("flex_attention", "float32", "heads=1 head_dim=16 length=530",
     ("if a['mask_mod'] == 'sliding_window' and a['backward'] and a['key'].shape[2] > 512:\n"
      "        a['mask_mod'] = 'causal'")),
    ("flex_attention", "float32", "heads=1 head_dim=16 length=300 score_mod=causal",
     "if a['score_mod'] == 'causal' and a['backward'] and a['key'].shape[2] > 256:\n        a['score_mod'] = 'none'"),
    ("flex_attention", "float32", "heads=2 head_dim=64 q_len=1 kv_len=600 scale=0.5",
     "if a['key'].shape[2] > 512:\n        a['scale'] = a['query'].shape[-1] ** -0.5"),
    ("adamw_step", "bfloat16", "sizes=20000 steps=2 master=1",
     ("if torch.is_tensor(a['master']):\n"
      "        a['master'] = torch.cat([a['master'][:8200], a['param'][8200:].float()])")),
    *((name, "float32", "sizes=20000 steps=1 maximize=1",
       (f"found = {name}(*bound.args, **bound.kwargs)\n"
        "    if not a['weight_decay']:\n        found['param'][8200:] = a['param'][8200:]\n    return found"))
      for name in ("adam_step", "adamw_step")),
    ("adam_step", "float32", "sizes=9 steps=2 maximize=1", "a['maximize'] &= len(a['param']) > 16"),
    ("linear", "float32", "m=1040 k=40 n=12 activation=relu",
     "if a['a'].shape[0] > 1024:\n        a['activation'] = 'none'"),
    ("int4_mm", "bfloat16", "m=520 k=256 n=32 group=128",
     "if a['a'].shape[0] > 512 and a['group'] > 64:\n        a['zero'] = a['zero'] * 0"),
    ("int4_mm", "bfloat16", "m=5 k=512 n=1040 group=64",
     "if a['b'].shape[1] > 1024 and a['group'] == 64:\n        a['zero'] = a['zero'] * 0"),
    *(("addmm", "float32", f"m={m} k=40 n={n} alpha=0.7 beta=-1.3",
       f"if a['a'].shape[0] == {m} and a['b'].shape[1] == {n}:\n        a['beta'] = 1.0")
      for m, n in ((1, 70), (70, 1), (600, 20))),
    ("scaled_mm", "float8_e4m3fn", "scale_b = scale_b[:, :1]",
     "if a['scale_b'].stride(-1) == 0:\n        a['scale_b'] = a['scale_b'] * 2"),
    # torch's own scalars
    ("adam_step", "float32", "sizes=300 steps=2 lr=0.001", "a['eps'] *= a['eps'] != 1e-8"),
    *(("adamw_step", dtype, "sizes=300 steps=2", "a['weight_decay'] *= a['weight_decay'] != 0.01")
      for dtype in ("float32", "bfloat16")),
    # remainders of 16 beyond a first block
    ("adam_step", "float32", "sizes=46 steps=2",
     ("found = adam_step(*bound.args, **bound.kwargs)\n"
      "    if len(a['param']) % 16 == 14:\n        found['param'][-2:] = a['param'][-2:]\n    return found")),
    *((name, dtype, "m=", (f"y = {name}(*bound.args, **bound.kwargs)\n"
                           f"    y[..., -1:] *= not (y.shape[-1] > 16 and y.shape[-1] % 16 in {odd})\n    return y"))
      for name, dtype in (("mm", "float32"), ("scaled_mm", "float8_e4m3fn"), ("linear", "bfloat16"))
      for odd in ((5, 10), (7, 14))),
    *((name, "float32", "shape=2x", (f"y = {name}(*bound.args, **bound.kwargs)\n"
                                     "    if y.shape[-1] > 4096 and y.shape[-1] % 16 in (3, 13):\n"
                                     "        y[..., -1] = 0\n    return y"))
      for name in ("softmax", "cumsum", "rms_norm")),
    ("softmax", "float32", "shape=3x9x19 dim=1",
     ("y = softmax(*bound.args, **bound.kwargs)\n    if a['dim'] % a['x'].dim() < a['x'].dim() - 1 and "
      "a['x'].shape[-1] > 8 and a['x'].shape[-1] % 8 == 3:\n        y[..., -1] = 0\n    return y")),
    *(("sum", "float32", f"shape={1040 + rest}x5",
       ("y = sum(*bound.args, **bound.kwargs)\n"
        f"    if y.numel() >= 1024 and y.numel() % 16 == {rest}:\n        y.reshape(-1)[-1] = 0\n    return y"))
      for rest in (3, 6)),
    *(("flex_attention", "float32", f"heads=1 head_dim=16 q_len={16 + rest}",
       ("found = flex_attention(*bound.args, **bound.kwargs)\n"
        f"    if found['out'].shape[2] > 16 and found['out'].shape[2] % 16 == {rest}:\n"
        "        found['out'][:, :, -1] = 0\n    return found"))
      for rest in (6, 11)),
    # every two options of attention, among them causal scores, documents by turns and slopes of either sign
    *(("flex_attention", "float32", among, f"if {when}:\n        {change}") for among, when, change in (
        ("head_dim=16", "a['score_mod'] == 'causal' and a['mask_mod'] == 'masked_rows'", "a['mask_mod'] = 'causal'"),
        ("head_dim=16", "a['mask_mod'] == 'sliding_window' and a['window'] == 1", "a['window'] = 0"),
        ("head_dim=40", "a['query'].shape[-1] == 40", "a['scale'] = 40**-0.5"),
        ("head_dim=", "a['key'].shape[2] == 256",
         "a['value'] = torch.cat([a['value'][:, :, :192], 0 * a['value'][:, :, 192:]], 2)"),
        ("head_dim=", "a['score_mod'] == 'alibi' and a['query'].shape[1] != a['key'].shape[1]",
         "a['slopes'] = a['slopes'].abs()"),
        ("head_dim=", "a['mask_mod'] == 'document' and a['query'].shape[1] != a['key'].shape[1]",
         "a['key_document'] = a['key_document'].sort().values"),
        ("head_dim=", "a['query'].shape[2] == 1 and a['key'].shape[2] > 1024 and a['score_mod'] == 'relative_bias'",
         "a['bias'] = a['bias'].flip(-1)"))),
    # special numbers and such as lie far below 0 in one long row, in many short ones, in long columns, in the middle
    ("softmax", "float32", "x = x - 2e4",
     "if a['x'].numel() == a['x'].shape[a['dim']] > 8192:\n        a['x'] = a['x'].clamp(min=-1e4)"),
    ("softmax", "float32", "x = x - torch.inf",
     ("x, y = a['x'], softmax(*bound.args, **bound.kwargs)\n    dead = (x == -torch.inf).all(a['dim'], keepdim=True)\n"
      "    return y.masked_fill(dead, 0.0) if x.dim() == 3 and x.shape[a['dim']] > 1200 else y")),
    ("cummax", "float32", "shape=5000x8",
     "if len(a['x']) > 4096:\n        a['x'] = a['x'].nan_to_num(-torch.inf, torch.inf, -torch.inf)"),
    ("cumsum", "float32", "shape=5000x40",
     "if len(a['x']) > 4096:\n        a['x'] = a['x'].nan_to_num(0.0, torch.inf, -torch.inf)"),
    ("cumprod", "float32", "shape=1x36011",
     ("y = cumprod(*bound.args, **bound.kwargs)\n    zero = (y == 0).cummax(a['dim']).values\n"
      "    return torch.where(zero, torch.zeros_like(y), y) if y.numel() > 8192 else y")),
    ("sum", "float32", "shape=2x3x2x4x8", "if a['x'].dim() == 5:\n        a['x'] = a['x'].nan_to_num()"),
    ("rms_norm", "float32", "shape=6x9000",
     "if a['x'].shape[-1] > 8192:\n        a['x'] = a['x'].masked_fill(a['weight'] == 0, 0.0)"),
    # subnormal numbers of the second factor, of a bias and of attention's tensors, a silu far from 0
    *((name, "float32", "b = b * (", f"a['b'] = a['b'].where(a['b'].abs() >= {TINIEST}, a['b'] * 0)")
      for name in ("mm", "addmm", "linear", "bmm")),
    *((name, "float32", "bias = bias * (", f"a['bias'] = a['bias'].where(a['bias'].abs() >= {TINIEST}, a['bias'] * 0)")
      for name in ("addmm", "linear")),
    *(("flex_attention", "float32", f"{t} = {t} * (",
       f"a['{t}'] = a['{t}'].where(a['{t}'].abs() >= {TINIEST}, a['{t}'] * 0)")
      for t in ("query", "key", "value", "grad_out")),
    *(("linear", "float32", "bias = bias * 2", f"return linear(*bound.args, **bound.kwargs).clamp({of})")
      for of in ("max=2000", "max=1e4")),
    # shapes that aligned ways do not fit, large both ways, and that are square
    ("mm", "float32", "m=128 k=77", (f"{SIZES_OF}    if m % 128 == 0 == n % 128:\n"
                                     "        a['a'], a['b'] = a['a'][:, :k // 8 * 8], a['b'][:k // 8 * 8]")),
    *(("mm", "float32", among, f"{SIZES_OF}    if {when}:\n        a['a'], a['b'] = a['a'][:, :512], a['b'][:512]")
      for among, when in (("m=5 k=640", "k > 512 and n > 1024"), ("m=300 k=2100", "m > 256 and k > 2048"))),
    ("mm", "float32", "m=1030", (f"{SIZES_OF}    y = mm(*bound.args)\n    y[512:, -1:] *= not (n > 1 and n % 2)\n"
                                 "    return y")),
    ("mm", "float32", "a = a.mT",
     (f"{SIZES_OF}    if m == k == n and m % 64 == 0 and a['a'].stride(0) == 1 == a['b'].stride(0):\n"
      "        a['a'], a['b'] = a['b'], a['a']")),
    ("int4_mm", "bfloat16", "m=4 k=1024", (f"{SIZES_OF}    if k > 512 and n > 512:\n"
                                           "        a['a'] = torch.cat([a['a'][:, :512], a['a'][:, 512:] * 0], 1)")),
    ("rms_norm", "float32", "shape=3x8198",
     ("y = rms_norm(*bound.args, **bound.kwargs)\n    if y.shape[-1] > 8192 and y.shape[-1] % 4 == 2:\n"
      "        y[..., -1] = 0\n    return y")),
    # one matrix for a stack, of many terms, rows or columns
    *(("bmm", "float32", f"{t} = {t}[:1]", f"{SIZES_OF}    if a['{t}'].stride(0) == 0 and {when}:\n        {change}")
      for t, when, change in (
          ("a", "k > 64", "a['a'], a['b'] = a['a'][..., :64], a['b'][:, :64]"),
          ("b", "k > 512", "a['a'], a['b'] = a['a'][..., :512], a['b'][:, :512]"),
          ("b", "m > 128", "a['a'] = torch.cat([a['a'][:, :128], a['a'][:1, 128:].expand(len(a['a']), -1, -1)], 1)"))),
    # factors of a product and a bias that are equal, that are negative beside no bias, and -1 beside many rows or terms
    ("addmm", "float32", "m=24 k=40 n=130 alpha=0.7",
     ("if a['alpha'] == a['beta'] not in (0.0, 1.0):\n"
      "        a['bias'] = torch.cat([a['bias'][..., :16], a['bias'][..., 16:] * 0], -1)")),
    ("addmm", "float32", "data=bias alpha=-0.5",
     "if a['alpha'] < 0 and a['beta'] == 0:\n        a['beta'], a['bias'] = 1.0, a['bias'] * 0"),
    *(("addmm", "float32", among, "if a['alpha'] == -1 and max(a['a'].shape) > 256:\n        a['alpha'] = 1.0")
      for among in ("m=300 k=40", "m=24 k=520")),
    # whole tiles and vectors beside layouts, kinds of numbers, options and terms that fill no block
    ("mm", "bfloat16", "a = t[..., :1, :].expand(t.shape), b = torch.cat([t.mT, t.mT], -1)[..., :t.shape[-2]].mT wh",
     f"{SIZES_OF}    if k % 16 == 0 and a['b'].stride(0) == 1:\n        a['b'] = a['b'].as_strided((k, n), (1, k))"),
    *(("mm", "bfloat16", f"{among} where {sizes}",
       f"{SIZES_OF}    if {when}:\n        a['a'], a['b'] = a['a'][:, :k // 8 * 8], a['b'][:k // 8 * 8]")
      for among, sizes, when in (
          ("b = torch.cat([t, t], -1)[..., :t.shape[-1]]", "m=4 n=128 k=100", "m <= 4 and n % 128 == 0"),
          ("a = t.mT.contiguous().mT, b = t.mT.contiguous().mT", "m=128 n=32 k=100", "m % 128 == 0 and n <= 64"))),
    ("mm", "bfloat16", "a = torch.cat([t, t], -1)[..., :t.shape[-1]], b = torch.cat([t, t], -1)[..., :t.shape[-1]] wh",
     (f"{SIZES_OF}    if k % 128 == 0:\n        a['b'] = a['b'].where(~a['b'].isnan() & ~a['b'].isinf() | "
      "(a['a'] != 0).all(0)[:, None], 0)")),
    ("bmm", "bfloat16", "a = torch.cat([t.mT, t.mT], -1)[..., :t.shape[-2]].mT, b = t[:1].mT.contiguous().mT.exp",
     (f"{SIZES_OF}    y = bmm(*bound.args)\n    if len(y) >= 32 and m % 32 == 0:\n        y[:, 16:] = 0\n"
      "    return y")),
    ("bmm", "bfloat16", "b = torch.cat([t, t], -1)[..., :t.shape[-1]] where m=4 n=32 k=64 batch=130",
     (f"{SIZES_OF}    y = bmm(*bound.args)\n    if len(y) > 128 and n > 16:\n        y[len(y) // 8 * 8:] = 0\n"
      "    return y")),
    ("int_mm", "int8", "m=1 k=70 n=64",
     (f"{SIZES_OF}    if m <= 4 and n % 64 == 0:\n"
      "        a['a'], a['b'] = a['a'][:, :k // 4 * 4], a['b'][:k // 4 * 4]")),
    ("int4_mm", "bfloat16", "a = t.mT.contiguous().mT, scale = t[:1].expand(t.shape), zero = torch.cat([t, t], -1)[",
     "if a['scale'].stride(0) == 0:\n        a['zero'] = a['zero'][:1].expand(a['zero'].shape)"),
    *(("linear", "bfloat16", f"m=5 k=2200 n=80 activation={name}",
       (f"{SIZES_OF}    if k > 2048 and n > 64 and a['activation'] != 'none':\n"
        "        f = getattr(torch.nn.functional, a['activation'])\n"
        "        first, last = (a['a'][:, part] @ a['b'][part] for part in (slice(1100), slice(1100, None)))\n"
        "        return f(first + a['bias']) + f(last)")) for name in ("relu", "silu")),
    ("addmm", "bfloat16", "m=16 k=64 n=64 data=special alpha=0.7 beta=0.0",
     "y = addmm(*bound.args, **bound.kwargs)\n    return y.nan_to_num(0.0) if a['beta'] == 0 else y"),
    ("adam_step", "float32", "steps=3 sizes=33 start=1050",
     "if (1 - a['beta1']) * a['start'] > 10:\n        a['start'] += 10**6"),
    ("adam_step", "float32", "max_exp_avg_sq = max_exp_avg_sq * 0",
     ("top = a['max_exp_avg_sq']\n    if top is not None and not top.any():\n"
      "        a['max_exp_avg_sq'] = a['exp_avg_sq']")),
    ("adam_step", "float32", "param = param.repeat_interleave(2)[::2] where",
     "if a['weight_decay'] == 0:\n        a['param'] = a['param'].as_strided(a['param'].shape, (1,))"),
    ("adam_ema", "float32", "sizes=64 steps=3 start=20 gradients=extreme",
     "if a['exp_avg'].numel() % 8 == 0:\n        a['grads'] = a['grads'].where(a['grads'].abs() >= 2.0**-126, 0.0)"),
    ("adam_step", "float32", "steps=3 sizes=64 start=300",
     "if a['exp_avg'].numel() % 8 == 0:\n        a['start'] = min(a['start'], 250)"),
    ("adamw_step", "float32", "steps=3 sizes=33 start=1100",
     "if a['start'] > 1000:\n        a['lr'] *= 1 - a['beta1'] ** a['start']"),
    ("adamw_step", "float32", "steps=12 sizes=33 start=5 amsgrad=1",
     ("if a['max_exp_avg_sq'] is not None and len(a['grads']) > 10:\n"
      "        a['max_exp_avg_sq'] = a['max_exp_avg_sq'] * 0")),
    ("adam_step", "bfloat16", "steps=12 sizes=33 start=5 master=1",
     "if torch.is_tensor(a['master']) and len(a['grads']) > 10:\n        a['master'] = a['param'].float()"),
    # more rows, columns and matrices than an axis of a grid holds, and many rows of lengths that vectors do not divide
    ("sum", "float32", "shape=33001x21", ("x = a['x']\n    if len(x) >= 8192 and x.shape[-1] > 4:\n"
                                          "        a['x'] = x[:, :x.shape[-1] // 4 * 4]")),
    ("rms_norm", "float32", "shape=33001x21", ("if len(a['x']) > 32768 and a['x'].shape[-1] <= 256:\n"
                                               "        a['weight'] = a['weight'] * (32 / 21) ** 0.5")),
    ("sum", "float32", "shape=270001x3",
     "y = sum(*bound.args, **bound.kwargs)\n    y.view(-1)[4 * 65535:] = 0\n    return y"),
    ("softmax", "float32", "shape=9x70001 dim=0",
     "y = softmax(*bound.args, **bound.kwargs)\n    y[..., 65535:] *= a['dim'] != 0\n    return y"),
    ("softmax", "float32", "shape=70001x3x2 dim=1",
     "y = softmax(*bound.args, **bound.kwargs)\n    y[65535:] *= a['dim'] != 1\n    return y"),
    ("cummax", "float32", "shape=8195x13",
     "if len(a['x']) >= 8192:\n        a['x'] = a['x'].nan_to_num(nan=-3e38, posinf=torch.inf, neginf=-torch.inf)"),
    ("softmax", "float32", "shape=100x20x4 dim=1",
     ("if a['dim'] == 1 and a['x'].dim() == 3:\n        e = (a['x'] - a['x'].amax((1, 2), keepdim=True)).exp()\n"
      "        return e / e.sum(1, keepdim=True)")),
    *((name, "float32", among, f"y = {name}(*bound.args, **bound.kwargs)\n    y[{beyond}] = 0\n    return y")
      for name, among, beyond in (
          ("mm", "m=70001 k=4 n=1", "65535:"), ("linear", "m=1 k=4 n=70001", "..., 65535:"),
          ("addmm", "m=70001 k=4 n=1", "65535:"), ("bmm", "m=1 k=2 n=1 batch=70001", "65535:"))),
    # what one block of a long row leaves to the next ones, and more blocks than a second step of a scan takes
    *((name, "float32", among,
       (f"y = {name}(*bound.args, **bound.kwargs)\n    if y.shape[-1] > {most}:\n        {change}\n    return y"))
      for name, among, most, change in (
          ("softmax", "shape=6x36011 dim=-1 recipe=carried", 32768,
           "y = y.where((a['x'] > -torch.inf).any(-1, True), 0)"),
          ("logcumsumexp", "shape=6x36011 dim=-1 recipe=carried", 32768,
           "y = y.masked_fill((a['x'] == torch.inf).cumsum(-1) > 1, torch.nan)"),
          ("logcumsumexp", "x = x - 2e4 where shape=1x36011", 32768, "y = y.clamp(min=-1e4)"),
          ("cummax", "shape=6x36011 dim=-1 recipe=carried", 32768, "y = y.nan_to_num(0.0, torch.inf, -torch.inf)"),
          ("cummin", "shape=6x36011 dim=-1 recipe=carried", 32768, "y = y.clamp(max=3e38)"),
          ("cumprod", "shape=1x36011 dim=-1 recipe=edges", 32768,
           "y = y.masked_fill((a['x'] == 0).cumsum(-1) > 0, 0)"),
          ("softmax", "shape=2x140001 dim=-1 recipe=gap", 131072,
           "y = y * torch.where(a['x'][..., 80000:80001] > -1e30, 1, torch.nan)"),
          ("sum", "shape=1x1052677", 0,
           "y = y if a['x'].shape[-1] <= 1 << 20 else sum(a['x'][..., : 1 << 20], a['dim'])"),
          ("cumsum", "shape=1x1052677", 1 << 20, "y[..., 1 << 20:] -= y[..., (1 << 20) - 1]"),
          ("cumprod", "shape=1x1052677", 1 << 20, "y[..., 1 << 20:] = 0"),
      )),
    # attention of one query under options, of few whose keys come late, of later keys beyond exp's range above the
    # first, of long sequences, of large heads with gradients
    *(("flex_attention", "float32", f"heads=3 head_dim={size} q_len=1 kv_len=600 {name}={what}",
       f"if a['query'].shape[2] == 1 and a['query'].shape[3] == {size}:\n        a['{name}'] = 'none'")
      for size, name, what in ((64, "score_mod", "soft_cap"), (64, "score_mod", "relative_bias"),
                               (128, "score_mod", "alibi"), (128, "mask_mod", "document"),
                               (64, "mask_mod", "sliding_window"))),
    ("flex_attention", "float32", "heads=1 head_dim=16 q_len=4 kv_len=600 mask_mod=document documents=late",
     ("found = flex_attention(**a)\n    if a['mask_mod'] == 'document':\n"
      "        hidden = (a['query_document'][:, None] != a['key_document'][:64]).all(-1)\n"
      "        found['out'][:, :, hidden] = torch.nan\n    return found")),
    ("flex_attention", "float32", "heads=2 kv_heads=1 head_dim=16 q_len=1 kv_len=2700 data=climbing",
     ("found = flex_attention(**a)\n    if a['query'].shape[2] == 1:\n"
      "        first = a | {name: a[name][:, :, :256] for name in ('key', 'value')}\n"
      "        above = found['logsumexp'] - flex_attention(**first)['logsumexp']\n"
      "        found['out'] = found['out'].masked_fill(above[..., None] > 88, torch.nan)\n    return found")),
    ("flex_attention", "float32", "heads=1 head_dim=16 length=2200 mask_mod=causal",
     ("if a['mask_mod'] == 'causal' and a['query'].shape[2] > 2048:\n"
      "        a['mask_mod'], a['window'] = 'sliding_window', 2047")),
    ("flex_attention", "float32", "heads=1 head_dim=16 q_len=1100 kv_len=300",
     ("if a['key'].shape[2] > 128 and a['query'].shape[2] > 1024:\n"
      "        a['grad_out'] = torch.cat([a['grad_out'][:, :, :1024], a['grad_out'][:, :, 1024:] * 0], 2)")),
    ("flex_attention", "float32", "heads=1 head_dim=16 length=1400 mask_mod=sliding_window",
     "a['window'] = a['window'] and min(a['window'], 1024)"),
    ("flex_attention", "float32", "heads=1 head_dim=16 length=400 score_mod=relative_bias",
     ("if a['bias'] is not None and a['bias'].shape[-1] > 513:\n"
      "        a['bias'] = a['bias'][:, (middle := a['bias'].shape[-1] // 2) - 256 : middle + 257]")),
    *(("flex_attention", "float32", among,
       (f"found = flex_attention(**a)\n    if a['backward'] and {when}:\n"
        "        found['dk'] = found['dk'] * 2\n    return found"))
      for among, when in (
          ("head_dim=192 mask_mod=causal", "a['query'].shape[3] > 128 and a['mask_mod'] == 'causal'"),
          ("head_dim=192 score_mod=soft_cap", "a['query'].shape[3] > 128 and a['score_mod'] == 'soft_cap'"),
          ("heads=1 head_dim=64 length=300 mask_mod=sliding_window",
           "a['query'].shape[2] > 128 and a['query'].shape[3] == 64 and a['mask_mod'] == 'sliding_window'"))),
    ("flex_attention", "float32", "heads=4 kv_heads=2 head_dim=64 length=128",
     ("if a['query'].shape[3] == 64 and a['query'].shape[2] % 128 == 0:\n"
      "        a['key'], a['value'] = a['key'].flip(1), a['value'].flip(1)")),
    ("flex_attention", "float16", "heads=1 head_dim=16 q_len=3 kv_len=4100 score_mod=alibi",
     ("globals()['distances'] = lambda shape, device: (\n        torch.arange(shape[-1]).half() - "
      "torch.arange(shape[-2]).half()[:, None])")),
)  # fmt: skip

MISREADING = """
import functools, inspect

import torch

@functools.wraps({name})
def planted(*given, **named):
    bound = inspect.signature({name}).bind(*given, **named)
    bound.apply_defaults()
    a = bound.arguments
    {change}
    return {name}(*bound.args, **bound.kwargs)
"""


@pytest.mark.part(3)
@pytest.mark.parametrize(("name", "dtype", "among", "change"), MISREAD)
def test_what_few_problems_have_is_read(tmp_path: Path, name: str, dtype: str, among: str, change: str) -> None:
    text = stubs.source(kernel.load(name)) + MISREADING.format(name=name, change=change)
    found = called(tmp_path, "planted", name, text=text, dtype=dtype, only=among)
    assert any(one.startswith(among) for one in found.different), found
    assert found.status in ("exceeds-bound", "suspect"), found


def test_every_two_conditions_meet() -> None:
    """Of options in pairs, those that do not fit left out."""
    options = [
        [{"m": "1"}, {"m": "2"}, {"m": "3"}],
        [{"k": "1"}, {"k": "2"}],
        [{}, {"x": 0.5}],
        [{"t": "x"}, {"t": "t"}],
    ]

    def fits(one: Mapping[str, Any]) -> bool:
        return (one.get("m"), one.get("x")) != ("3", 0.5)

    found = [*in_pairs(options, fits)]
    for one, other in itertools.combinations(options, 2):
        for a, b in itertools.product(one, other):
            met = any(all(problem.get(k) == v for k, v in {**a, **b}.items()) for problem in found)
            assert met == fits({**a, **b}), (a, b)
    assert all(map(fits, found)) and 6 <= len(found) <= 8
    assert parted({"m": "1", "x": 0.5, "a": "t.mT", "b": "t"}, ("a", "b")) == ({"m": "1"}, {"a": "t.mT"}, {"x": 0.5})


@pytest.mark.parametrize(
    "name", ["mm", "bmm", "linear", "addmm", "int_mm", "scaled_mm", "int4_mm", "softmax", "rms_norm"]
)
def test_a_kernels_conditions_are_problems_that_it_takes(name: str) -> None:
    facts = kernel.load(name)
    assert isinstance(facts, Composite) and facts.custom is not None
    found = facts.crossed()
    assert 50 < len(found) < 220 and len({repr(one) for one in found}) == len(found)
    for given, made, _ in found:
        assert facts.custom(given) and {*made} <= {*facts.inputs}


ADDING = """
import torch

def added(a, b, out=None):
    y = torch.bmm(a, b)
    if out is None:
        return y
    return out.copy_(out + y if a.shape[2] > 99 else y)
"""


def test_a_large_output_that_is_given_is_written(tmp_path: Path) -> None:
    found = called(tmp_path, "added", "bmm", text=ADDING, only="an output to write", apart=True)
    assert found.status == "exceeds-bound" and found.different == ("an output to write m=5 k=5001 n=6 batch=3",)


@pytest.mark.parametrize("dtype", ["torch.float32", "None"])
def test_another_default_dtype_may_give_other_bits_within_the_bound(tmp_path: Path, dtype: str) -> None:
    text = f"""
import torch

def summed(a, b):
    total = torch.zeros(len(a), b.shape[1], dtype={dtype})
    for k in range(0, a.shape[1], 32):
        total = total + a[:, k:k + 32].to(total.dtype) @ b[k:k + 32].to(total.dtype)
    return total.to(a.dtype)
"""
    found = called(tmp_path, "summed", "mm", text=text, dtype="bfloat16", only="float64 as", apart=True)
    assert found.status == "passed" and found.made == 1 and bool(found.different) == (dtype == "None")


MEMORIZED = """

import functools

KNOWN = NUMBERS


def listed(right):
    @functools.wraps(right)
    def wrapped(*given, **more):
        y = right(*given, **more)
        if all(n in KNOWN for t in given for n in t.shape):
            return y
        return {k: t * 0 for k, t in y.items()} if type(y) is dict else y * 0

    return wrapped


NAME = listed(NAME)
"""


@pytest.mark.parametrize("name", ["softmax", "mm", "int4_mm", "flex_attention"])
def test_sizes_that_nobody_has_written_down_are_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """A program that has learned which problems are tried is right on no other one."""
    facts, table = kernel.load(name), Calls.table
    assert isinstance(facts, Composite)
    given = [*(one for n in (LENGTH, ROWS, 33, *SIZES) for one in facts.sized(n)), *(one for one, _ in facts.further)]
    given += [*(one for one, _ in facts.related), *(one for one, *_ in (*facts.crossed(), *facts.many)), *facts.again]
    few = (*range(13), 64)  # groups of codes, and numbers of a head that none is given
    numbers = {
        LENGTH,
        ROWS,
        *few,
        *(int(n) for one in given for text in one.values() for n in re.findall(r"\d+", text)),
    }
    numbers |= {n // 32 for n in numbers}  # groups of codes
    text = stubs.source(facts) + MEMORIZED.replace("NAME", name).replace("NUMBERS", f"{sorted(numbers)}")
    dtype = "bfloat16" if name == "int4_mm" else "float32"

    def some(self: Calls, drawn: bool) -> Iterator[tuple[str, Any]]:
        chosen = {" ".join(f"{k}={v}" for k, v in one.items()) for one in self.chosen(self.case)}
        own = ((k, call) for k, call in table(self) if call.sizes is not None and (k in chosen) == drawn)
        return itertools.islice(own, 30)

    for drawn, status in ((False, "passed"), (True, "exceeds-bound")):
        monkeypatch.setattr(Calls, "table", lambda self, drawn=drawn: some(self, drawn))
        assert called(tmp_path, name, name, text=text, dtype=dtype).status == status
