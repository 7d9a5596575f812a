"""Triton kernels compiled for described GPUs, and their launches caught."""

from __future__ import annotations

import hashlib
import importlib
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton", reason="triton is not installed")

from verify import native  # noqa: E402
from verify.backends import cuda, rocm  # noqa: E402
from verify.facts.kernel import UsageError  # noqa: E402
from verify.kernels.triton import elementwise  # noqa: E402
from verify.virtual import census, compile  # noqa: E402
from verify.virtual.compile import TARGETS, Launch, described  # noqa: E402


def launches(target: str, name: str, *tensors: torch.Tensor) -> list[Launch]:
    caught: list[Launch] = []
    operation = importlib.import_module(f"verify.kernels.triton.{name}").OPERATIONS["triton", "t" * len(tensors)]
    options: Any = (cuda if target.startswith("sm") else rocm).triton_options("own")
    with described(target, caught.append):
        elementwise.compiled(operation, None, options)(*tensors)
    return caught


def launched_anew(target: str, *fusion: bool) -> list[Launch]:
    """A kernel of which this process has compiled nothing yet, with and without contraction."""
    caught: list[Launch] = []
    x, loop = torch.rand(3000), elementwise.Device(elementwise.unary.fn)
    operation = importlib.import_module("verify.kernels.triton.exp").OPERATIONS["triton-libdevice", "t"]
    for permitted in fusion:
        with described(target, caught.append):
            loop[(1,)](x, x, 3000, OP=operation, SCALAR=None, COMPUTE=triton.language.float32, BLOCK=1024,
                       enable_fp_fusion=permitted)  # fmt: skip
    return caught


@pytest.mark.parametrize(("target", "instruction"), [("sm_80", "fma.rn.f32"), ("gfx942", "v_fmac_f32")])
def test_a_launch_is_caught_with_its_code_and_arguments(target: str, instruction: str) -> None:
    a, b, c = torch.rand(3, 3000)
    (one,) = launches(target, "addcmul", a, b, c)
    assert one.grid == (3, 1, 1) and one.threads == 4 * TARGETS[target][2]
    assert [x.kind for x in one.arguments] == ["*fp32"] * 4 + ["i32"] and one.arguments[4].value == 3000
    assert one.arguments[1].value.data_ptr() == b.data_ptr()
    assert instruction in one.code and not one.metadata.enable_fp_fusion


@pytest.mark.parametrize("target", ["sm_90", "sm_80", "gfx942"])
def test_what_contraction_does_not_concern_is_compiled_once(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The code and what is told of it are those of two compilations."""

    def both(name: str) -> list[Launch]:
        monkeypatch.setattr(native, "cache", lambda: tmp_path / name)
        compile._GIVEN.clear()
        return launched_anew(target, True, False)

    once = both("once")
    assert len(compile._GIVEN) == target.startswith("sm")
    monkeypatch.setattr(compile, "LATELY", 0)
    twice = both("twice")
    assert once[0].code != once[1].code
    for one, other in zip(once, twice, strict=True):
        assert one.code == other.code and one.metadata == other.metadata
        assert {name: path.read_bytes() for name, path in one.files.items() if name != "json"} == {
            name: path.read_bytes() for name, path in other.files.items() if name != "json"
        }


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_code_of_an_installation_that_is_gone_is_counted(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Compiled code outlives the environment that compiled it: the paths in its metadata lead nowhere then."""
    monkeypatch.setattr(native, "cache", lambda: tmp_path)
    (first,) = launched_anew(target, True)
    for kept in (tmp_path / "triton").glob("*/*.json"):
        kept.write_text(re.sub(r"[^\"]*\.bc", "/gone/library.bc", kept.read_text()))
    (again,) = launched_anew(target, True)
    assert all(path == "/gone/library.bc" for _, path in again.metadata.extern_libs)
    told = census.count([again])
    assert told.libraries and told == census.count([first])
    for name, path in first.metadata.extern_libs:
        assert told.libraries[name] == hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def test_the_driver_is_the_one_before_afterwards_and_code_is_each_target_s_own() -> None:
    from triton.runtime import driver

    before = driver._active
    a, b, c = torch.rand(3, 100)
    texts = {target: launches(target, "addcmul", a, b, c)[0].code for target in ("sm_90", "gfx942", "sm_90")}
    assert driver._active is before
    assert ".target sm_90" in texts["sm_90"] and "gfx942" in texts["gfx942"]


def test_an_unknown_target_is_refused_with_near_names() -> None:
    with pytest.raises(UsageError, match="unknown target 'sm_91'; did you mean sm_90"):
        launches("sm_91", "exp", torch.ones(4))


def test_a_compilation_over_its_limit_ends_its_process() -> None:
    text = """
        import time
        import torch
        from verify.kernels.triton import elementwise, exp
        from verify.virtual.compile import described
        with described("sm_90", print, limit=50.0):
            elementwise.compiled(exp.exp, None, {})(torch.ones(16))
            print("launched", flush=True)
        elementwise.unary.compile = lambda *a, **k: time.sleep(9)
        with described("sm_90", print, limit=2.0):
            elementwise.compiled(exp.exp_tlmath, None, {})(torch.ones(16))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGALRM, done.stderr
    assert "launched" in done.stdout


def test_code_that_others_compiled_for_a_gpu_of_that_name_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Triton keeps it in the process by the device's name, and its files are in another cache."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options: Any = {**rocm.triton_options("own"), "waves_per_eu": 3}  # as no other test has them  # type: ignore[dict-item]
    other = SimpleNamespace(
        get_current_device=lambda: "gfx942",
        get_current_stream=lambda device: 0,
        get_current_target=lambda: GPUTarget("hip", "gfx942", 64),
    )
    with monkeypatch.context() as patch:
        patch.setattr(driver, "_active", other, raising=False)
        run = JITFunction.run
        patch.setattr(
            JITFunction, "run", lambda self, *a, grid, warmup, **k: run(self, *a, grid=grid, warmup=True, **k)
        )
        operation = importlib.import_module("verify.kernels.triton.addcmul").OPERATIONS["triton", "ttt"]
        elementwise.compiled(operation, None, options)(*torch.rand(3, 3000))
    caught: list[Launch] = []
    with described("gfx942", caught.append):
        elementwise.compiled(operation, None, options)(*torch.rand(3, 3000))
    assert "v_fmac_f32" in caught[0].code
