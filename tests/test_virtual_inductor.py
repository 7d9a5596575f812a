"""Inductor's code for a GPU that is not here, executed: operands in their places, other computation refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from verify.backends import load
from verify.virtual import inductor, ptx
from verify.virtual.compile import Unsupported

if why := load("virtual-cuda").unavailable():
    pytest.skip(why, allow_module_level=True)

OPTIONS = {"compile_threads": 1}


def run(function: Callable[..., Any], *tensors: torch.Tensor) -> Any:
    backend: Any = load("virtual-cuda")
    with backend.launching():
        return backend.inductor(function, OPTIONS)(*tensors)


def numbers(count: int = 1000, shape: tuple[int, ...] = ()) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(shape or count, generator=draw) for _ in range(3)]


def test_operands_and_strides_are_in_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, _ = numbers(shape=(24, 40))
    given = a, b.T.contiguous().T
    assert torch.equal(run(lambda x, y: x - y, *given), a - b)

    def swapped(one: Any, model: Any) -> None:
        x, y, *rest = one.arguments
        exchanged = type(x)(x.name, x.kind, y.value), type(y)(y.name, y.kind, x.value)
        ptx.execute(
            type(one)(one.name, one.target, one.grid, (*exchanged, *rest), one.metadata, one.files), one.code, model
        )

    monkeypatch.setattr(ptx, "launch", swapped)
    assert not torch.equal(run(lambda x, y: x - y, *given), a - b)


def test_an_in_place_function_leaves_its_result() -> None:
    a, b, _ = numbers()
    assert torch.equal(run(lambda x, y: x.clone().add_(y), a, b), a + b)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, y, z: (x.reshape(16, 64) @ y.reshape(64, 16)).exp(), "the lowering computes with torch.mm"),
        (lambda x, y, z: x.reshape(10, 100) @ y.reshape(100, 10), "Inductor asks the GPU itself"),
        (lambda x, y, z: x.view(-1), "Inductor generates no Triton kernel"),
    ],
    ids=["mm", "padded mm", "view"],
)
def test_what_is_no_triton_kernel_is_refused(function: Callable[..., Any], told: str) -> None:
    with pytest.raises(Unsupported, match=told):
        run(function, *numbers(1024 if told.endswith("mm") else 1000))


def test_kernels_of_rows_say_that_they_are_not_executed() -> None:
    assert "elementwise kernels alone" in str(load("virtual-cuda").inductor_unavailable())
    assert load("virtual-rocm").inductor(lambda x: x, {})  # type: ignore[attr-defined]
    assert isinstance(load("virtual-rocm").inductor(lambda x: x, {}), str)  # type: ignore[attr-defined]


def test_the_toolkit_s_libdevice_is_taken_where_torch_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def noted(*_: Any) -> Any:
        from triton import knobs

        seen.append(knobs.nvidia.libdevice_path)
        raise Unsupported("noted")

    monkeypatch.setattr(inductor, "_module", noted)
    for options in (OPTIONS, {**OPTIONS, "emulate_precision_casts": True}):
        with pytest.raises(Unsupported, match="noted"):
            inductor.compiled(torch.exp, options, "sm_90", "toolkit.bc")(torch.ones(3))
    assert seen[1] == "toolkit.bc" != seen[0]
