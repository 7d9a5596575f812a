"""The contract of a launch, broken in every way that a user's function can break it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from verify import backends
from verify.backends import cpu
from verify.kernel import Kernel, UsageError, load
from verify.launch import LoweringError, bits, launch, launch_checked
from verify.lowerings import NotLowered, Target, user_lowering

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
    return launch_checked(lowering.build(target(kernel)), inputs(), cpu, lowering.name).output


def test_a_good_function_returns_its_output_and_a_time(write: Callable[[str], Path], kernel: Kernel) -> None:
    path = write("def lerp(a, b, w):\n    return a + w * (b - a)\n")
    lowering = user_lowering(f"{path}:lerp")
    assert lowering.name == "mine.py:lerp"
    launched = launch_checked(lowering.build(target(kernel)), inputs(), cpu, lowering.name)
    a, b, w = inputs()
    assert torch.equal(launched.output, a + w * (b - a))
    assert 0 < launched.seconds < 60


def test_scalars_arrive_as_floats_in_their_place(write: Callable[[str], Path], kernel: Kernel) -> None:
    path = write("def lerp(a, b, w):\n    assert type(w) is float\n    return a + w * (b - a)\n")
    lowering = user_lowering(f"{path}:lerp")
    a, b, _ = inputs()
    output = launch_checked(lowering.build(target(kernel, {"w": 0.9})), [a, b], cpu, lowering.name).output
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
        ("return torch.rand_like(a)", r"non-deterministic output: run twice .* elements differ"),
        (
            "out = torch.empty_like(a)\n    out[5:] = a[5:]\n    return out",
            r"uninitialised .* 5 of .* first at index 0",
        ),
        ("return torch.empty(65536)", r"uninitialised"),
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


@pytest.mark.parametrize("size", [3, 100, 1000, SIZE, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_one_unwritten_element_is_seen(size: int, dtype: torch.dtype) -> None:
    def forgets(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(a)
        out[: size - 1] = a[: size - 1]
        return out

    with pytest.raises(LoweringError, match=f"1 of {size} elements differ, the first at index {size - 1}"):
        launch_checked(forgets, inputs(dtype, size), cpu, "forgets")


@pytest.mark.parametrize("spoils", ["a.zero_()", "a.resize_(3)", "a.data = b"])
def test_the_next_lowering_gets_the_inputs_as_they_were(
    write: Callable[[str], Path], kernel: Kernel, spoils: str
) -> None:
    values = inputs()
    kept = [tensor.clone() for tensor in values]
    lowering = user_lowering(f"{write(f'def lerp(a, b, w):{chr(10)}    {spoils}{chr(10)}    return b + w')}:lerp")
    with pytest.raises(LoweringError, match="modified its input 0"):
        launch_checked(lowering.build(target(kernel)), values, cpu, lowering.name)
    assert all(torch.equal(a, b) for a, b in zip(values, kept, strict=True))


def test_a_view_of_an_input_is_an_output() -> None:
    values = inputs()
    assert launch_checked(lambda a, b, w: a, values, cpu, "first").output.data_ptr() != 0
    assert torch.equal(launch(lambda a, b, w: b, values, cpu, "second").output, values[1])


def test_a_reused_buffer_is_compared_by_value() -> None:
    """The second launch overwrites the first one's output; the difference must still be seen."""
    buffer = torch.zeros(4)
    calls = iter([1.0, 2.0])

    def reuses(a: torch.Tensor) -> torch.Tensor:
        return buffer.fill_(next(calls))

    with pytest.raises(LoweringError, match="4 of 4 elements differ"):
        launch_checked(reuses, [torch.zeros(4)], cpu, "reuses")


def test_nans_are_equal_whatever_their_payload() -> None:
    payloads = iter([0x7FC00000, 0x7FC00001])

    def nan(a: torch.Tensor) -> torch.Tensor:
        return torch.full_like(a, next(payloads), dtype=torch.int32).view(torch.float32)

    launch_checked(nan, [torch.zeros(4)], cpu, "nan")


def test_zeros_differ_by_sign() -> None:
    signs = iter([0.0, -0.0])
    with pytest.raises(LoweringError, match="2 of 2"):
        launch_checked(lambda a: torch.full_like(a, next(signs)), [torch.ones(2)], cpu, "zeros")


def test_broadcast_shape_is_expected() -> None:
    a, b = torch.ones(3, 1), torch.ones(4)
    assert launch(torch.add, [a, b], cpu, "add").output.shape == (3, 4)
    with pytest.raises(LoweringError, match=r"shape \(3, 1\); expected \(3, 4\)"):
        launch(lambda a, b: a, [a, b], cpu, "first")


def test_what_does_not_exist_passes_through() -> None:
    def absent(a: torch.Tensor) -> torch.Tensor:
        raise NotLowered("calls aten")

    with pytest.raises(NotLowered):
        launch(absent, [torch.ones(2)], cpu, "absent")


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
        ("def lerp(a, b:\n", r"does not import: line 2: "),
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
    with pytest.raises(UsageError, match=r"has no function 'lerp2'"):
        user_lowering(f"{path}:lerp2")


@pytest.mark.parametrize("signature", ["a, b", "a, b, w, x", "a, b, *, w", ""])
def test_wrong_arity(write: Callable[[str], Path], kernel: Kernel, signature: str) -> None:
    lowering = user_lowering(f"{write(f'def lerp({signature}): return a')}:lerp")
    with pytest.raises(UsageError, match=r"mine\.py:lerp takes \(.*\), but is called .* 3 inputs of lerp: a, b, w"):
        lowering.build(target(kernel))


def test_defaults_and_varargs_are_fine(write: Callable[[str], Path], kernel: Kernel) -> None:
    for signature in ("*inputs", "a, b, w, eps=1"):
        user_lowering(f"{write(f'def lerp({signature}): return a')}:lerp").build(target(kernel))


def test_a_file_imports_its_neighbours(write: Callable[[str], Path], kernel: Kernel) -> None:
    path = write("from helper_of_mine import double\ndef lerp(a, b, w): return double(a)\n")
    (path.parent / "helper_of_mine.py").write_text("def double(x): return 2 * x\n")
    assert torch.equal(check(path, kernel), 2 * inputs()[0])


def test_a_compiled_function_is_checked_too(write: Callable[[str], Path], kernel: Kernel) -> None:
    path = write("@torch.compile\ndef lerp(a, b, w):\n    return a + w * (b - a)\n")
    a, b, w = inputs()
    torch.testing.assert_close(check(path, kernel), a + w * (b - a))
