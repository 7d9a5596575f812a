"""The contract of a launch, broken in every way that a user's function can break it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from verify import backends
from verify.backends import cpu
from verify.facts.formats import FORMATS
from verify.facts.kernel import Kernel, UsageError, load
from verify.families.composite import Problem
from verify.inputs.domains import Domain
from verify.lower.lowering import NotLowered, Target
from verify.lower.user import examine, user_lowering
from verify.processes import start
from verify.walk.pointwise import Pointwise
from verify.workers import isolated
from verify.workers.launch import REPEATS, LoweringError, bits, launch_steady, repeats_of

SIZE = 1 << 16


@pytest.fixture
def kernel() -> Kernel:
    return load("lerp")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """A user's file with this body."""

    def make(body: str) -> Path:
        path = tmp_path / "mine.py"
        path.write_text("import torch\n" + body)
        return path

    return make


def inputs(dtype: torch.dtype = torch.float32, size: int = SIZE) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator).to(dtype) for _ in range(3)]


def target(kernel: Kernel, scalars: dict[str, float] | None = None) -> Target:
    return Target(kernel, scalars or {}, "out-of-place", "float32", backends.load("cpu"))


def check(path: Path, kernel: Kernel) -> torch.Tensor:
    lowering = user_lowering(f"{path}:lerp")
    return launch_steady(lowering.build(target(kernel)), inputs(), cpu, lowering.name).output


def test_a_good_function_returns_its_output_and_a_time(write: Callable[[str], Path], kernel: Kernel) -> None:
    path = write("def lerp(a, b, w):\n    return a + w * (b - a)\n")
    lowering = user_lowering(f"{path}:lerp")
    assert lowering.name == "mine.py:lerp"
    launched = launch_steady(lowering.build(target(kernel)), inputs(), cpu, lowering.name)
    a, b, w = inputs()
    assert torch.equal(launched.output, a + w * (b - a))
    assert 0 < launched.seconds < 60


def test_scalars_arrive_as_floats_in_their_place(write: Callable[[str], Path], kernel: Kernel) -> None:
    path = write("def lerp(a, b, w):\n    assert type(w) is float\n    return a + w * (b - a)\n")
    lowering = user_lowering(f"{path}:lerp")
    a, b, _ = inputs()
    output = launch_steady(lowering.build(target(kernel, {"w": 0.9})), [a, b], cpu, lowering.name).output
    assert torch.equal(output, a + 0.9 * (b - a))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", r"returned NoneType; expected a tensor"),
        ("return [a]", r"returned list; expected a tensor"),
        ("return a[:-1]", r"returned shape \(65535,\); expected \(65536,\)"),
        ("return a.sum()", r"returned shape \(\)"),
        ("return a.double()", r"returned dtype torch.float64; expected torch.float32"),
        ("return a.to('meta')", r"returned device meta; expected cpu"),
        ("return a.to_sparse()", r"returned layout torch.sparse_coo; expected torch.strided"),
        ("raise SystemExit(3)", r"raised SystemExit: 3"),
        ("return (a + b).as_subclass(type('T', (torch.Tensor,), {}))", r"returned T; expected a tensor"),
        ("a.resize_(3)\n    return b", r"modified its input 0 in place: the shape is \(3,\), was \(65536,\)"),
        ("return a.add_(1)", r"modified its input 0 in place: 65536 of 65536 elements differ, the first at index 0"),
        ("b[7] = 3\n    return a", r"modified its input 1 in place: 1 of 65536 elements differ, the first at index 7"),
        ("w.numpy()[9] += 1\n    return a", r"modified its input 2 in place: .* the first at index 9"),
        ("return {'': a, 'more': b}", r"returned outputs \['', 'more'\]; expected one"),
        ("return {}", r"returned outputs \[\]; expected one"),
        ("a.untyped_storage().resize_(0)\n    return b", r"resized the memory of its inputs"),
        (
            "out = torch.empty_like(a)\n    out[5:] = a[5:]\n    return out",
            r"not all written: .* 5 of .* first at index 0",
        ),
        ("return torch.empty(65536)", r"not all written"),
        (
            "if (a > 3).any():\n        raise ValueError('too large')\n    return a",
            r"ValueError: too large \(mine.py, line 4\)",
        ),
        ("return a @ b[:3]", r"raised RuntimeError: .* on torch.float32 inputs of shape \(65536,\), \(65536,\)"),
    ],
)
def test_a_broken_function_is_named_with_what_it_broke(
    write: Callable[[str], Path], kernel: Kernel, body: str, message: str
) -> None:
    path = write(f"def lerp(a, b, w):\n    {body}\n")
    with pytest.raises(LoweringError, match=rf"(?s)^lowering mine\.py:lerp .*{message}") as caught:
        check(path, kernel)
    assert len(str(caught.value).splitlines()) == 1


# One policy: how often, on what memory, and what is taken from several launches.


def every(period: int, last: int | None = None) -> Callable[[torch.Tensor], torch.Tensor]:
    """Twice its input, but one more in the last element on every `period`-th call up to call `last`."""
    calls = count(1)

    def call(a: torch.Tensor) -> torch.Tensor:
        number = next(calls)
        y = a * 2
        y[-1] += number % period == 0 and (last is None or number <= last)
        return y

    return call


def objection(call: Callable[..., Any], *tensors: torch.Tensor) -> str:
    """What two launches say against a call: that it is refused, or that it is not steady."""
    try:
        return launch_steady(call, tensors, cpu, "mine", repeats=2).told
    except LoweringError as error:
        return str(error)


def steady(call: Callable[..., Any], *tensors: torch.Tensor, repeats: int = REPEATS) -> list[int]:
    return list(launch_steady(call, tensors or [torch.ones(5)], cpu, "mine", repeats=repeats).which)


def test_how_often() -> None:
    assert [repeats_of(first=f, user=u) for f in (True, False) for u in (True, False)] == [8, 2, 2, 1]


@pytest.mark.parametrize("period", range(2, REPEATS + 1))
def test_one_call_in_so_many_is_seen_on_the_first_inputs(period: int) -> None:
    found = launch_steady(every(period), [torch.ones(5)], cpu, "mine")
    assert found.which == tuple(int(k % period == 0) for k in range(1, REPEATS + 1))
    assert (found.steady, found.distinct, found.repeats) == (False, 2, 8)
    assert [r[""].tolist()[-1] for r in found.results] == [2.0, 3.0]
    assert (
        found.told
        == "2 different results in 8 launches on the same inputs: 1 of 5 elements differ, the first at index 4"
    )


@pytest.mark.parametrize("period", [9, 10, 11])
def test_a_longer_period_is_seen_once_the_launches_of_later_chunks_add_up_to_it(period: int) -> None:
    call = every(period, last=period)
    repeats = [repeats_of(first=not k, user=True) for k in range(4)]
    found = [launch_steady(call, [torch.ones(5)], cpu, "mine", repeats=n) for n in repeats]
    assert [one.steady for one in found] == [True, *(k != (period - REPEATS - 1) // 2 for k in range(3))]


def test_the_state_of_a_lowering_goes_on_from_chunk_to_chunk() -> None:
    """Right on a cell's first inputs, and then wrong on every third call."""
    calls = count(1)

    def call(a: torch.Tensor) -> torch.Tensor:
        number = next(calls)
        return a * 2 + (number > REPEATS and number % 3 == 0)

    found = [launch_steady(call, [torch.ones(5)], cpu, "mine", repeats=n) for n in (8, 2, 2)]
    assert [one.repeats for one in found] == [8, 8, 8] and [one.steady for one in found] == [True, False, False]


def test_a_lowering_that_is_right_but_once() -> None:
    assert steady(every(1, last=1)) == [0, 1, 1, 1, 1, 1, 1, 1]
    assert steady(every(1, last=1), repeats=2) == [0, 1, 1, 1, 1, 1, 1, 1]


def test_two_launches_that_agree_are_enough_for_a_registered_lowering() -> None:
    assert steady(every(3), repeats=2) == [0, 0]
    assert steady(every(1), repeats=1) == [0]


def test_every_different_result_is_kept_by_value() -> None:
    """In one buffer that the lowering writes again and again."""
    buffer, values = torch.zeros(4), count(1)

    def reuses(a: torch.Tensor) -> torch.Tensor:
        return buffer.fill_(next(values))

    found = launch_steady(reuses, [torch.zeros(4)], cpu, "reuses")
    assert [r[""].tolist() for r in found.results] == [[float(k)] * 4 for k in range(1, 9)]
    assert steady(lambda a: torch.mul(a, 2, out=buffer[:4]), torch.ones(4)) == [0] * 8


def test_an_answer_that_is_kept_for_the_next_call_is_spoiled() -> None:
    """By pointer, as a benchmark's cheat does: the second launch would cost nothing."""
    kept: dict[int, torch.Tensor] = {}

    def call(a: torch.Tensor) -> torch.Tensor:
        if a.data_ptr() not in kept:
            kept[a.data_ptr()] = a * 2
        return kept[a.data_ptr()]

    assert len(set(steady(call))) > 1
    buffer = torch.ones(5) * 2  # what the first call would leave, and no later one writes
    assert len(set(steady(lambda a: buffer))) > 1


def test_an_unwritten_element_is_no_chance() -> None:
    """Of a lowering that is not deterministic elsewhere."""
    calls = count()

    def call(a: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(a)
        out[1:] = a[1:] + next(calls) % 3
        return out

    with pytest.raises(LoweringError, match="not all written"):
        steady(call, torch.ones(1 << 16))


def test_what_alternates_is_not_taken_for_unwritten_memory() -> None:
    for period in range(2, 6):
        assert len(set(steady(every(period), torch.ones(SIZE)))) == 2


def test_a_result_of_unwritten_scratch_memory_is_not_all_written() -> None:
    def call(a: torch.Tensor) -> torch.Tensor:
        scratch = torch.empty(SIZE, dtype=torch.uint8)
        return a + (scratch[100] == 0x7F)

    with pytest.raises(LoweringError, match="not all written") as caught:
        steady(call)
    assert caught.value.kind == "contract"


def test_another_dtype_on_the_second_launch() -> None:
    dtypes = iter([torch.float32, torch.float64])
    with pytest.raises(LoweringError, match=r"returned dtype torch\.float64; expected torch\.float32"):
        steady(lambda a: a.to(next(dtypes), copy=True))


def test_an_input_changed_by_the_last_launch_alone() -> None:
    calls = count(1)

    def call(a: torch.Tensor) -> torch.Tensor:
        y = a * 2
        a[3] += next(calls) == REPEATS
        return y

    with pytest.raises(
        LoweringError, match="modified its input 0 in place: 1 of 5 elements differ, the first at index 3"
    ):
        steady(call)


def test_a_nan_of_an_input_keeps_its_payload() -> None:
    def call(a: torch.Tensor) -> torch.Tensor:
        a.view(torch.int32)[0] += 1
        return a + 1

    with pytest.raises(LoweringError, match="modified its input 0"):
        steady(call, torch.tensor([torch.nan, 1.0]))


def test_strides_offsets_and_shared_memory_arrive_and_are_guarded() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    first, second, row = whole[:, :2], whole.t()[3:], torch.ones(1).expand(5)

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        for got, given in ((a, first), (b, second), (c, row)):
            assert (got.stride(), got.storage_offset(), got.shape) == (
                given.stride(),
                given.storage_offset(),
                given.shape,
            )
            assert torch.equal(got, given) and got.data_ptr() != given.data_ptr()
        assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        return torch.zeros(1)

    problem = Problem({"a": first, "b": second, "c": row}, {}, {}, "float32")
    named = lambda p: {"y": call(*p.tensors.values())}  # noqa: E731
    assert launch_steady(named, problem, cpu, "mine").steady

    def beside(p: Problem) -> dict[str, torch.Tensor]:
        p.tensors["a"].as_strided((1,), (1,), 2).add_(1)  # whole[0, 2], which neither input shows
        return {"y": torch.zeros(1)}

    with pytest.raises(LoweringError, match="wrote into memory beside its inputs"):
        launch_steady(beside, problem, cpu, "mine")


def problem(size: int = 8) -> Problem:
    return Problem({"x": torch.ones(size)}, {"dim": 0}, {}, "float32")


def test_a_problem_has_named_outputs() -> None:
    found = launch_steady(lambda p: {"y": p.tensors["x"] * 2, "z": p.tensors["x"].clone()}, problem(), cpu, "mine")
    assert {key: t.tolist()[0] for key, t in found.results[0].items()} == {"y": 2.0, "z": 1.0}
    calls = count(1)
    off = launch_steady(
        lambda p: {"y": p.tensors["x"].clone(), "z": p.tensors["x"] * (next(calls) % 3)}, problem(), cpu, "mine"
    )
    assert off.which == (0, 1, 2, 0, 1, 2, 0, 1) and off.difference.startswith("output z: 8 of 8 elements differ")


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda x, k: {}, r"returned outputs \[\]; expected y, z"),
        (lambda x, k: {"w": x}, r"returned outputs \['w'\]; expected y, z"),
        (
            lambda x, k: {"y": x + 1, "z": x + 1} if k < 3 else {"y": x + 1},
            r"returned outputs \['y'\]; expected y, z again",
        ),
        (
            lambda x, k: {"y": x + 1} if k < 3 else {"y": x + 1, "z": x + 1},
            r"returned outputs \['y', 'z'\]; expected y again",
        ),
        (lambda x, k: {"y": x[k % 3 :] + 1}, r"returned shape \(7,\) for y; expected \(8,\)"),
        (lambda x, k: {"y": x.double()}, r"returned dtype torch.float64 for y; expected torch.float32"),
        (lambda x, k: {"z": x.to("meta")}, r"returned device meta for z; expected cpu"),
        (lambda x, k: {"z": x.to(torch.complex128)}, r"returned dtype torch.complex128 for z; expected real"),
        (lambda x, k: {"z": 3.0}, r"returned float for z; expected a tensor"),
        (lambda x, k: 1 / 0, r"raised ZeroDivisionError: division by zero .* on x \(8,\)"),
        (lambda x, k: {"y": x.mul_(2)}, r"modified its input x in place: 8 of 8"),
    ],
)
def test_a_broken_composite_is_named_with_what_it_broke(outputs: Callable[..., Any], message: str) -> None:
    calls = count()
    with pytest.raises(LoweringError, match=message) as caught:
        launch_steady(
            lambda p: outputs(p.tensors["x"], next(calls)),
            problem(), cpu, "mine", names=("y", "z"), like={"y": torch.ones(8)},
        )  # fmt: skip
    assert caught.value.kind == ("raised" if "raised" in message else "contract")


def test_outputs_may_be_made_in_inference_mode() -> None:
    with torch.inference_mode():
        made = torch.ones(5)
    assert steady(lambda a: made * a) == [0] * 8


def test_memory_is_poisoned_for_the_outputs_size_too() -> None:
    asked: list[int] = []

    class Watched:
        device = check_device = "cpu"

        def synchronize(self) -> None: ...

        @contextmanager
        def poisoned(self, size: int, pattern: int) -> Iterator[None]:
            asked.append(size)
            yield

    launch_steady(lambda p: {"y": torch.zeros(100)}, problem(), Watched(), "mine", repeats=2)  # type: ignore[arg-type]
    assert asked == [32, 400]


#: Small chunks are freed, and as many of them taken again as malloc keeps for a thread, which leaves the others to its
#: bins.
FREED = """
import ctypes, random, torch
from verify.backends import cpu
from verify.workers.launch import POISON

libc, chance = cpu._libc(), random.Random(0)
held, seen = [], set()
for turn in range(1000):
    size = chance.randrange(88, 208, 8)
    freed = [libc.malloc(size) for _ in range(60)]
    for place in freed[::2]:
        ctypes.memset(place, chance.randrange(0x10, 0x50), size)
        libc.free(place)
    held += freed[1::2] + [libc.malloc(size) for _ in range(7)]
    with cpu.poisoned(4, POISON[turn % 2]):
        seen |= {t.view(torch.uint8)[0].item() for t in (torch.empty(4), torch.empty(16))}
print(seen == {*POISON[:2]})
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
@pytest.mark.parametrize("started", [False, True])
def test_small_memory_that_was_freed_is_poisoned_too(started: bool) -> None:
    """In a process of its own, where no other thread allocates. 1% of such tensors were not filled. started: as those
    processes that launch; in others glibc 2.41 fills few of them."""
    if not started and start.glibc() >= start.CACHED:
        pytest.skip("this glibc hands out what a thread keeps without filling it")
    given = os.environ | (start.filling() if started else {})
    done = subprocess.run([sys.executable, "-c", FREED], env=given, capture_output=True, text=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("size", [3, 100, 1000, SIZE, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_one_unwritten_element_is_seen(size: int, dtype: torch.dtype) -> None:
    def forgets(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(a)
        out[: size - 1] = a[: size - 1]
        return out

    assert f"1 of {size} elements differ, the first at index {size - 1}" in objection(forgets, *inputs(dtype, size))


@pytest.mark.parametrize("spoils", ["a.zero_()", "a.resize_(3)", "a.data = b"])
def test_the_next_lowering_gets_the_inputs_as_they_were(
    write: Callable[[str], Path], kernel: Kernel, spoils: str
) -> None:
    values = inputs()
    kept = [tensor.clone() for tensor in values]
    lowering = user_lowering(f"{write(f'def lerp(a, b, w):{chr(10)}    {spoils}{chr(10)}    return b + w')}:lerp")
    with pytest.raises(LoweringError, match="modified its input 0"):
        launch_steady(lowering.build(target(kernel)), values, cpu, lowering.name)
    assert all(torch.equal(a, b) for a, b in zip(values, kept, strict=True))


@pytest.mark.parametrize("call", [lambda a, b, w: a, lambda a, b, w: b[:], lambda a, b, w: w.view(-1)])
def test_an_output_has_memory_of_its_own(call: Any) -> None:
    """Whoever writes to the output would change the input."""
    with pytest.raises(LoweringError, match="mine returned memory of its input; expected memory of its own"):
        launch_steady(call, inputs(), cpu, "mine", repeats=1)


def test_each_element_of_an_output_has_memory_of_its_own() -> None:
    with pytest.raises(LoweringError, match="mine returned a tensor whose elements share memory"):
        launch_steady(lambda a, b, w: a.exp()[:1].expand(a.shape), inputs(), cpu, "mine", repeats=1)


OUT = """
import torch

def into(a, b, w, out):
    out.copy_(torch.lerp(a, b, w))

def returned(a, b, w, out):
    return torch.lerp(a, b, w, out=out)

def same(a, b, w, out):
    out.copy_(torch.lerp(a, b, w))
    return torch.lerp(a, b, w)

def rebound(a, b, w, out):
    out = torch.lerp(a, b, w)
    return out

def another(a, b, w, out):
    out.copy_(torch.lerp(a, b, w))
    return a + b
"""


@pytest.mark.parametrize(("function", "told"), [
    ("into", ""), ("returned", ""), ("same", ""), ("rebound", "in `out`"), ("another", "in `out`"),
])  # fmt: skip
@pytest.mark.parametrize("apart", [False, True])
def test_an_output_that_is_given_is_written(
    write: Callable[[str], Path], kernel: Kernel, function: str, told: str, apart: bool
) -> None:
    """What is returned beside it must be the same."""
    lowering = (isolated if apart else user_lowering)(f"{write(OUT)}:{function}")
    call = lowering.build(target(kernel))
    with pytest.raises(LoweringError, match=told) if told else nullcontext():
        launch_steady(call, inputs(), cpu, lowering.name)


def test_a_reused_buffer_is_compared_by_value() -> None:
    """The second launch overwrites the first one's output; the difference must still be seen."""
    buffer = torch.zeros(4)
    calls = count(1.0)

    def reuses(a: torch.Tensor) -> torch.Tensor:
        return buffer.fill_(next(calls))

    found = launch_steady(reuses, [torch.zeros(4)], cpu, "reuses", repeats=2)
    assert found.distinct == REPEATS
    assert "4 of 4 elements differ" in found.told


def test_nans_are_equal_whatever_their_payload() -> None:
    payloads = iter([0x7FC00000, 0x7FC00001])

    def nan(a: torch.Tensor) -> torch.Tensor:
        return torch.full_like(a, next(payloads), dtype=torch.int32).view(torch.float32)

    assert launch_steady(nan, [torch.zeros(4)], cpu, "nan", repeats=2).steady


def test_zeros_differ_by_sign() -> None:
    signs = iter([0.0, -0.0] * 8)
    assert "2 of 2" in objection(lambda a: torch.full_like(a, next(signs)), torch.ones(2))


def test_chance_is_told_with_its_launches() -> None:
    told = objection(torch.rand_like, torch.ones(SIZE))
    assert told.startswith("8 different results in 8 launches on the same inputs: ") and "elements differ" in told


def test_broadcast_shape_is_expected() -> None:
    a, b = torch.ones(3, 1), torch.ones(4)
    assert launch_steady(torch.add, [a, b], cpu, "add").output.shape == (3, 4)
    with pytest.raises(LoweringError, match=r"shape \(3, 1\); expected \(3, 4\)"):
        launch_steady(lambda a, b: a, [a, b], cpu, "first")


def test_what_does_not_exist_passes_through() -> None:
    def absent(a: torch.Tensor) -> torch.Tensor:
        raise NotLowered("calls aten")

    with pytest.raises(NotLowered):
        launch_steady(absent, [torch.ones(2)], cpu, "absent")


def test_bits_of_every_width() -> None:
    for dtype, width in ((torch.bfloat16, 2), (torch.float32, 4), (torch.float64, 8)):
        assert bits(torch.ones(3, dtype=dtype)).element_size() == width
    assert bits(torch.tensor([-0.0])).item() == -(2**31)


# The file itself.


def test_text_without_a_function() -> None:
    for text in ("mine.py", "mine.py:", "mine:lerp", ":lerp"):
        with pytest.raises(UsageError, match=r"expected FILE\.py:FUNCTION"):
            user_lowering(text)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.py does not exist"):
        user_lowering(f"{tmp_path}/absent.py:lerp")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def lerp(a, b:\n", r"does not import: mine\.py:2: "),
        (
            "import no_such_module\n",
            r"does not import: ModuleNotFoundError: No module named 'no_such_module' \(mine.py, line 2\)",
        ),
        ("\n1 / 0\n", r"does not import: ZeroDivisionError: division by zero \(mine.py, line 3\)"),
        ("raise SystemExit(3)\n", r"does not import: SystemExit: 3 \(mine.py, line 2\)"),
    ],
)
def test_file_that_does_not_import(write: Callable[[str], Path], body: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        user_lowering(f"{write(body)}:lerp")


def test_missing_function_suggests_near_names(write: Callable[[str], Path]) -> None:
    path = write("def lerp_fast(a, b, w): return a\nlerp2 = 3\n")
    with pytest.raises(UsageError, match=r"has no function 'lerp'; did you mean lerp_fast\? \(it has: lerp_fast\)"):
        user_lowering(f"{path}:lerp")
    with pytest.raises(UsageError, match=r"mine\.py:lerp2 is of type int; expected a function"):
        user_lowering(f"{path}:lerp2")
    with pytest.raises(UsageError, match=r"mine\.py:lerp is a class; expected a function"):
        user_lowering(f"{write('class lerp: pass')}:lerp")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def lerp(a, b:\n", r"mine\.py does not import: mine\.py:2: '\(' was never closed"),
        ("\nreturn 3\n", r"does not import: mine\.py:3: 'return' outside function"),
        ("x = '\0'\n", "does not import: .*null bytes"),
        ("x = " + "-" * 100_000 + "1\n", "does not import: "),
        ("# -*- coding: nonsense -*-\n", "does not import: "),
        ("def lerp_fast(a): return a\n", r"has no function 'lerp'; did you mean lerp_fast\? \(it has: lerp_fast\)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_known_without_running_it(tmp_path: Path, body: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n" * (not body.startswith("#")) + body)
    with pytest.raises(UsageError, match=message):
        examine(f"{path}:lerp")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "body",
    [
        "from os import *\n", "globals()['le' + 'rp'] = abs\n", "exec('le' 'rp = abs')\n", "import os.path as lerp\n",
        "def __getattr__(name): return abs\n", "lerp = abs\n", "for lerp in (abs,): pass\n", "x = '\\d'\nlerp = abs\n",
        "class lerp: pass\n", "(lerp := abs)\n", "import sys\nsys.modules[__name__] = abs\n",
        "try:\n def lerp(): 0\nfinally: 0\n", "def f():\n    global lerp\n    lerp = abs\nf()\n",
        "match abs:\n    case lerp: pass\n", "from os import sep as lerp\n",
    ],
)  # fmt: skip
def test_a_name_that_may_come_about_is_not_missed(tmp_path: Path, body: str) -> None:
    (tmp_path / "mine.py").write_text(body)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        examine(f"{tmp_path / 'mine.py'}:lerp")


def test_a_file_that_does_not_parse_is_told_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(x:\n    return x\n")
    code = "import sys; from verify.cli import commands; print(commands.main(sys.argv[1:]), 'torch' in sys.modules)"
    command = [sys.executable, "-c", code, "kernel", "exp", "--lowering", f"{tmp_path / 'mine.py'}:f"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"] and len(done.stderr.splitlines()) == 1 and "mine.py:1" in done.stderr


@pytest.mark.parametrize("signature", ["a, b", "a, b, w, x", "a, b, *, u", ""])
def test_wrong_arity(write: Callable[[str], Path], kernel: Kernel, signature: str) -> None:
    lowering = user_lowering(f"{write(f'def lerp({signature}): return a')}:lerp")
    with pytest.raises(UsageError, match=r"mine\.py:lerp takes \(.*\), but is called .* the inputs of lerp: a, b, w"):
        lowering.build(target(kernel))


def test_a_builtin_function_that_tells_no_signature(write: Callable[[str], Path]) -> None:
    exp = target(load("exp"))
    assert user_lowering(f"{write('from torch import exp')}:exp").build(exp)(torch.zeros(3)).tolist() == [1.0] * 3
    add = user_lowering(f"{write('from torch import add')}:add").build(target(load("add"), {"alpha": 0.3}))
    told = r"mine\.py:add has no signature .* refuses a, b, alpha by position .*: expected .* def f\(a, b, alpha\)"
    with pytest.raises(UsageError, match=told):
        add(torch.zeros(3), torch.zeros(3))


LERP = "return a + w * (b - a)"


@pytest.mark.parametrize("text", [
    f"def lerp(w, a, b): {LERP}", f"def lerp(a, b, *, w): {LERP}", f"def lerp(*, b, a, w): {LERP}",
    "def lerp(x, y, z): return x + z * (y - x)", "def lerp(x, y, /, z, eps=0): return x + z * (y - x)",
    f"def lerp(a, b, w, out=None): {LERP}",
    "def lerp(a, b, w, out): out.copy_(a + w * (b - a))",
    "def lerp(out, a, b, w): out.copy_(a + w * (b - a))",
    "def lerp(out, x, y, z): out.copy_(x + z * (y - x))",
    "def lerp(x, y, z, *, out): return out.copy_(x + z * (y - x))",
    f"def lerp(a: 'torch.Tensor', b: 'Tensor', w: 'float | object'): {LERP}",
])  # fmt: skip
def test_inputs_come_by_name_or_by_position(write: Callable[[str], Path], kernel: Kernel, text: str) -> None:
    a, b, w = inputs()
    assert torch.equal(check(write(text), kernel), a + w * (b - a))


def test_an_output_that_is_not_written_is_found(write: Callable[[str], Path], kernel: Kernel) -> None:
    with pytest.raises(LoweringError, match="not all written"):
        check(write("def lerp(a, b, w, out): out[1:] = (a + w * (b - a))[1:]"), kernel)


@pytest.mark.parametrize(("signature", "admitted"), [
    ("x, y", 3), ("x, y: float", 1), ("x: torch.Tensor, y: torch.Tensor", 1), ("x, *, y: 'Tensor'", 2),
])  # fmt: skip
def test_a_case_is_admitted_by_the_signature(
    write: Callable[[str], Path], signature: str, admitted: int
) -> None:  # fmt: skip
    """Never by whether a call raises: the function's own mistakes are its faults."""
    facts = load("pow")
    assert isinstance(facts, Kernel)
    lowering = user_lowering(f"{write(f'import torch{chr(10)}def f({signature}): return torch.pow(x, y)')}:f")
    taken = 0
    for scalars in ({}, {"y": 2.0}, {"x": 2.0}):
        spelling = next(name for name, one in facts.spellings.items() if one.applies(scalars))
        with suppress(NotLowered):
            lowering.build(Target(facts, scalars, spelling, "float32", cpu))
            taken += 1
    assert taken == admitted


def test_a_scalar_with_the_operations_default_may_be_left_out(write: Callable[[str], Path]) -> None:
    facts = load("add")
    lowering = user_lowering(f"{write('def f(a, b): return a + b')}:f")
    a, b, _ = inputs()
    assert torch.equal(lowering.build(Target(facts, {"alpha": 1.0}, "out-of-place", "float32", cpu))(a, b), a + b)
    with pytest.raises(NotLowered, match="a, b are tensors and alpha Python numbers"):
        lowering.build(Target(facts, {"alpha": 0.3}, "out-of-place", "float32", cpu))


def test_defaults_and_varargs_are_fine(write: Callable[[str], Path], kernel: Kernel) -> None:
    for signature in ("*inputs", "a, b, w, eps=1"):
        user_lowering(f"{write(f'def lerp({signature}): return a')}:lerp").build(target(kernel))


def test_an_edit_within_a_second_is_seen(
    write: Callable[[str], Path], kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes its cached bytecode for a file of the same size and second: so the old kernel would run."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    seen = []
    for result in ("a", "b"):
        path = write(f"def lerp(a, b, w): return {result}.clone()\n")
        os.utime(path, (1, 1))
        seen.append(check(path, kernel))
    assert torch.equal(seen[0], inputs()[0]) and torch.equal(seen[1], inputs()[1])


def test_a_file_imports_its_neighbours(write: Callable[[str], Path], kernel: Kernel) -> None:
    path = write("from helper_of_mine import double\ndef lerp(a, b, w): return double(a)\n")
    (path.parent / "helper_of_mine.py").write_text("def double(x): return 2 * x\n")
    assert torch.equal(check(path, kernel), 2 * inputs()[0])


def test_a_compiled_function_is_checked_too(write: Callable[[str], Path], kernel: Kernel) -> None:
    path = write("@torch.compile\ndef lerp(a, b, w):\n    return a + w * (b - a)\n")
    a, b, w = inputs()
    torch.testing.assert_close(check(path, kernel), a + w * (b - a))


class Ordered:
    """Numbers in order, which can be made again."""

    def __init__(self) -> None:
        self.made = 0

    def holds(self, tensors: Any) -> bool:
        return torch.equal(tensors[0], torch.arange(9.0))

    def made_again(self) -> list[torch.Tensor]:
        self.made += 1
        return [torch.arange(9.0)]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: x.add_(1).clone(), "modified its input 0 in place: 9 of 9 elements differ"),
        (lambda x: x.view(3, 3).t().reshape(9) * 0 + x.mul_(1).fill_(4), "modified its input 0 in place"),
        (lambda x: x[:], "returned memory of its input"),
        (lambda x: x.zero_() + {}, "raised TypeError"),
    ],
)
def test_inputs_that_can_be_made_again_are_no_copies(call: Callable[..., Any], told: str) -> None:
    given, origin = torch.arange(9.0), Ordered()
    seen: list[int] = []

    def good(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.data_ptr())
        return x + 1

    assert launch_steady(good, [given], cpu, "good", repeats=2, origin=origin).steady
    assert seen == [given.data_ptr()] * 2 and not origin.made
    with pytest.raises(LoweringError, match=told):
        launch_steady(call, [given], cpu, "spoils", repeats=1, origin=origin)
    assert origin.made


def test_what_a_lowering_spoiled_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next lowering of a sweep, and the judge, have the inputs as they were."""
    domain = Domain("exhaustive", FORMATS["float32"], ("x",))
    case = Pointwise(load("exp"), {}, "float32", backends.load("cpu"), domain)
    kept = case.given(3)[0].clone()
    with pytest.raises(LoweringError, match="modified its input 0"):
        launch_steady(torch.exp_, list(case.given(3)), cpu, "spoils", origin=case.origin(3))
    assert torch.equal(case.given(3)[0].view(torch.int32), kept.view(torch.int32))
