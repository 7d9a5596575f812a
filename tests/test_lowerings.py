"""What is registered, when it exists, what it declares, and that each lowering computes the kernel."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from verify import backends
from verify.backends import cpu, cuda
from verify.cli.commands import main
from verify.facts import spellings
from verify.facts.kernel import Kernel, NothingToCompare, UsageError, elementwise_names, load, names
from verify.inputs import domains
from verify.judge import ledger
from verify.lower import instructions, pytorch, user
from verify.lower.layouts import LAYOUTS
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.lower.lowerings import lowering_names, lowerings
from verify.lower.pytorch import STRICT_OPTIONS
from verify.reports.baseline import same_version
from verify.walk.plan import Selection, jobs_of
from verify.walk.run import run
from verify.workers.launch import launch_steady


def named(kernel: Kernel, name: str) -> Lowering:
    return next(lowering for lowering in lowerings(kernel) if lowering.name == name)


def target(kernel: Kernel, dtype: str = "float32", spelling: str | None = None, **scalars: float) -> Target:
    case = scalars or dict(kernel.cases[0])
    default = next(name for name, s in kernel.spellings.items() if s.applies(case))
    return Target(kernel, case, spelling or default, dtype, backends.load("cpu"))


def draw(t: Target, size: int = 300) -> list[torch.Tensor]:
    """Values in (0.5, 1.5), where every kernel is well conditioned."""
    generator = torch.Generator().manual_seed(0)
    count = len(t.kernel.tensors(t.scalars))
    return [(torch.rand(size, generator=generator) + 0.5).to(getattr(torch, t.dtype)) for _ in range(count)]


def test_importing_needs_neither_torch_nor_triton() -> None:
    code = (
        "import sys, verify.backends\n"
        "from verify.facts.kernel import load; from verify.lower.lowerings import lowering_names\n"
        "assert 'triton-libdevice-noftz' in lowering_names(load('exp')); verify.backends.load('cuda')\n"
        "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_are_unique_and_eager_comes_first() -> None:
    for name in elementwise_names():
        listed = lowering_names(load(name))
        assert listed[:3] == ("eager", "inductor", "inductor-strict")
        assert len(set(listed)) == len(listed)
        assert {"triton", "triton-interpreter"} <= set(listed)
    assert "triton-libdevice-toolkit" in lowering_names(load("pow"))


@pytest.mark.parametrize("name", elementwise_names())
def test_every_case_has_a_triton_kernel(name: str) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    kernel = load(name)
    for scalars in kernel.cases:
        assert ("triton", target(kernel, **scalars).pattern) in importlib.import_module(kernel.triton).OPERATIONS


@pytest.mark.part(2)
@pytest.mark.parametrize("name", elementwise_names())
def test_every_lowering_computes_the_kernel(name: str) -> None:
    """Against float64 eager, at a tolerance that any rounding of float32 keeps and another function breaks."""
    kernel = load(name)
    for scalars in kernel.cases[:2]:
        t = target(kernel, **scalars)
        inputs = draw(t)
        exact = named(kernel, "eager").build(target(kernel, "float64", **scalars))(*(x.double() for x in inputs))
        for lowering in lowerings(kernel):
            if lowering.reason(t) is None:
                output = launch_steady(lowering.build(t), inputs, cpu, lowering.name, repeats=1).output
                torch.testing.assert_close(output.double(), exact, rtol=1e-5, atol=1e-6, msg=lowering.name)


def test_a_spelling_that_does_not_apply_is_a_reason() -> None:
    kernel = load("lerp")
    spelling = next((n for n, s in kernel.spellings.items() if not s.applies({})), None)
    if spelling is None:
        pytest.skip("every spelling of lerp applies to tensors")
    assert "does not exist" in str(named(kernel, "eager").reason(Target(kernel, {}, spelling, "float32", cpu)))


def test_hand_written_kernels_are_listed_once() -> None:
    kernel = load("exp")
    assert "one calling convention" in str(
        named(kernel, "triton-interpreter").reason(target(kernel, spelling="in-place"))
    )


def test_reasons_on_the_cpu() -> None:
    kernel = load("pow")
    t = target(kernel, **dict(kernel.cases[0]))
    assert "GPUs only" in str(named(kernel, "triton").reason(t))
    assert "no pow" in str(named(kernel, "triton-tlmath").reason(t))
    double = target(kernel, "float64", **dict(kernel.cases[0]))
    assert "libdevice" in str(named(kernel, "triton-interpreter").reason(double))


@pytest.mark.parametrize("name", names())
def test_what_the_ledger_says_cannot_run_does_not_exist(name: str) -> None:
    """Of row kernels and the like too."""
    facts = load(name)
    for one in lowerings(facts):
        for dtype in facts.dtypes:
            if isinstance(facts, Kernel):
                t = target(facts, dtype)
            else:
                t = Target(facts, facts.cases[0], facts.settings[0].name, dtype, backends.load("cpu"))
            if ledger.not_run("cpu", lowering=one.name, kernel=name, dtype=dtype):
                assert one.reason(t), (one.name, dtype)


def test_flushing_is_declared_where_it_happens() -> None:
    """On CUDA; the code itself is checked in test_triton."""
    exp = load("exp")
    case = {"scalars": {}, "spelling": "out-of-place", "backend": cuda}
    for name, dtype, flushes in (
        ("triton-libdevice", "float32", True),
        ("triton-libdevice", "bfloat16", True),
        ("triton-libdevice", "float16", False),
        ("triton-libdevice", "float64", False),
        ("triton-libdevice-noftz", "float32", False),
        ("triton-libdevice-nofuse", "float32", True),
        ("triton-tlmath", "float32", False),
        ("triton", "float32", False),
        ("inductor", "float32", True),
        ("inductor-strict", "float32", False),
        ("eager", "float32", False),
    ):
        assert named(exp, name).ftz(Target(exp, dtype=dtype, **case)) is flushes, (name, dtype)  # type: ignore[arg-type]
    assert not named(exp, "inductor").ftz(target(exp))
    add = load("add")
    assert not named(add, "inductor").ftz(Target(add, add.cases[0], "out-of-place", "float32", cuda))


# Inductor.


def test_strict_sets_every_numerics_option_that_this_torch_has() -> None:
    from torch._inductor import config

    kernel = load("exp")
    flags = named(kernel, "inductor-strict").flags(target(kernel))
    known = config.get_config_copy()
    assert {name for name in STRICT_OPTIONS if name in known} == set(flags) - {"compile_threads", "without_effect"}
    assert flags["eager_numerics.division_rounding"] is True
    assert flags["emulate_precision_casts"] is True
    unlisted = {name for name in known if name.startswith("eager_numerics.")} - set(STRICT_OPTIONS)
    assert not unlisted, "this torch has numerics options that STRICT_OPTIONS does not know"


def test_strict_options_reach_the_code() -> None:
    """emulate_precision_casts rounds the difference inside bfloat16 lerp; the plain lowering does not."""
    kernel = load("lerp")
    t = target(kernel, "bfloat16", w=0.9)
    inputs = [torch.randn(4000, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (0, 1)]
    plain, strict = (named(kernel, name).build(t)(*inputs) for name in ("inductor", "inductor-strict"))
    assert not torch.equal(plain, strict)


def test_what_inductor_says_of_its_own_is_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of lines in a run with cold caches on a GPU: tables of its autotuner, and warnings."""
    from torch._inductor import select_algorithm as algorithms

    def tells() -> tuple[int, str]:
        choice: Any = type("Choice", (), {"name": "mm", "description": ""})()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with quiet():
                algorithms._log_autotune_choices_stats("mm", {choice: 1.0})
                warnings.warn_explicit("not enabled", UserWarning, "compile_fx.py", 1, "torch._inductor.compile_fx", {})
                printing = algorithms.PRINT_AUTOTUNE
        return len(warned) + printing, capsys.readouterr().err

    monkeypatch.setattr(algorithms, "get_chromium_event_logger", Mock())
    quiet: Any = contextlib.nullcontext
    count, told = tells()
    assert count == 2 and "Autotune" in told
    quiet = pytorch._quiet
    assert tells() == (0, "") and algorithms.PRINT_AUTOTUNE


def test_inductor_does_not_pass_eager_off_as_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load("exp")
    t = target(kernel)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    assert "disabled by the environment variable TORCHDYNAMO_DISABLE" in str(named(kernel, "inductor").reason(t))
    with pytest.raises(NotLowered, match="this would measure eager"):
        named(kernel, "inductor").build(t)(*draw(t))


def test_an_aten_fallback_is_not_lowered() -> None:
    """Inductor has no loop for _foreach_lerp with tensor weights (torch 2.11 to 2.13)."""
    kernel = load("lerp")
    t = target(kernel, spelling="_foreach_")
    with pytest.raises(NotLowered, match="calls aten"):
        named(kernel, "inductor").build(t)(*draw(t))


def test_what_does_not_compile_is_not_lowered(caplog: pytest.LogCaptureFixture) -> None:
    """torch.sub takes a 0-dim tensor as alpha in eager code only (torch 2.13: a data-dependent branch)."""
    kernel = load("sub")
    t = target(kernel, spelling="alpha as tensor", alpha=0.3)
    with pytest.raises(NotLowered, match=r"^torch.compile fails: .*data-dependent") as caught:
        named(kernel, "inductor").build(t)(*draw(t))
    assert len(str(caught.value).splitlines()) == 1
    assert not caplog.records


def test_builds_do_not_share_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo compiles one code object 256 times at most, and a run has more cells; here the limit is 1."""
    from torch._dynamo import config

    monkeypatch.setattr(config, "accumulated_recompile_limit", 1)
    kernel = load("add")
    for alpha in (2.0, 3.0, 4.0):
        t = target(kernel, alpha=alpha)
        a, b = draw(t, 40)
        torch.testing.assert_close(named(kernel, "inductor").build(t)(a, b), a + alpha * b)


def test_sizes_do_not_hit_the_recompilation_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo gives up on a function after 8 recompilations, or raises under fullgraph; here the limit is 1."""
    from torch._dynamo import config

    monkeypatch.setattr(config, "recompile_limit", 1)
    kernel = load("add")
    t = target(kernel, alpha=2.0)
    run = named(kernel, "inductor").build(t)
    for size in (1, 2, 3):
        assert run(*draw(t, size)).shape == (size,)
        assert run(*draw(t, size)).shape == (size,)


def test_what_instructions_there_are_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And again where the answer was no, or is about other code."""
    from torch._inductor.cpu_vec_isa import VecISA, supported_vec_isa_list

    asked: list[str] = []

    def check(self: VecISA, code: str) -> bool:
        asked.append(f"{self} {code}")
        return "good" in code

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("torch._inductor.cpu_vec_isa.x86_isa_checker", list)
    one, other, *_ = map(str, supported_vec_isa_list)
    for process in range(2):
        monkeypatch.setattr(VecISA, "check_build", check)
        instructions.keep.__wrapped__()
        for isa in supported_vec_isa_list[:2]:
            assert isa.check_build("good") and isa.check_build("good") and not isa.check_build("bad"), process
    bad = [f"{one} bad", f"{other} bad"]
    assert asked == [f"{one} good", bad[0], f"{other} good", bad[1], *bad]


def test_all_that_is_asked_of_instructions_is_asked_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also what Inductor asks later, of a kind that it has found."""
    from torch._inductor.cpu_vec_isa import VecAVX512, VecISA, supported_vec_isa_list

    here = {"avx512", "avx512_vnni"}
    kinds = [isa for isa in supported_vec_isa_list if {*str(isa).split()} <= here]
    later = [isa for isa in kinds if isinstance(isa, VecAVX512)]
    together, asked = threading.Barrier(len(kinds) + len(later)), list[tuple[str, str]]()

    def check(self: VecISA, code: str) -> bool:
        asked.append((str(self), code))
        together.wait(timeout=60)
        return True

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("torch._inductor.cpu_vec_isa.x86_isa_checker", lambda: list(here))
    monkeypatch.setattr(VecISA, "check_build", check)
    monkeypatch.setattr(VecISA, "_avx_code", "first")
    monkeypatch.setattr(VecAVX512, "_avx512_bf16_code", "later")
    monkeypatch.setattr("torch._inductor.cpu_vec_isa.VecAVX512VNNI._avx512_vnni_code", 1, raising=False)
    instructions.keep.__wrapped__()
    assert all(isa.check_build("first") for isa in kinds) and all(isa.check_build("later") for isa in later)
    assert sorted(asked) == sorted([(str(i), "first") for i in kinds] + [(str(i), "later") for i in later])
    assert len(kinds) > 1 and later


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch's own way is taken")
@pytest.mark.parametrize("told", ["loads", "does not", "only beside torch"])
def test_what_imports_torch_to_tell_of_instructions_is_asked_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str
) -> None:
    """As torch 2.11 does, whose no is its own: its libraries for CUDA need more than themselves."""
    from torch._inductor.cpu_vec_isa import VecISA, supported_vec_isa_list

    usual = '\nimport torch\nprint("in its own way")\n'
    if told != "only beside torch":
        usual += 'from ctypes import cdll\ncdll.LoadLibrary("__lib_path__")\n'
    library = Path(torch.__file__).parent / "lib" / ("libtorch_cpu.so" if told == "loads" else "none.so")
    printed: list[str] = []

    def check(self: VecISA, code: str) -> bool:
        command = [sys.executable, "-c", VecISA._avx_py_load.replace("__lib_path__", str(library))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        printed.append(done.stdout.strip())
        return done.returncode == 0

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("torch._inductor.cpu_vec_isa.x86_isa_checker", list)
    monkeypatch.setattr(VecISA, "_avx_py_load", usual)
    monkeypatch.setattr(VecISA, "check_build", check)
    instructions.keep.__wrapped__()
    assert supported_vec_isa_list[0].check_build("code") == (told != "does not")
    assert printed == ["" if told == "loads" else "in its own way"]


@pytest.mark.parametrize("first", [0.2, 0.0])
def test_a_slow_function_is_not_called_for_every_few_elements(monkeypatch: pytest.MonkeyPatch, first: float) -> None:
    """Thousands of calls would be waited for; what the first one takes does not count, since it may compile."""
    left = [first, 0.0 if first else 0.2]

    def slow(a: torch.Tensor, b: torch.Tensor, alpha: float) -> torch.Tensor:
        time.sleep(left.pop(0) if left else 0.0)
        return a + alpha * b

    monkeypatch.setattr(user, "SLOW", 0.1)
    t = target(load("add"), spelling="tail")
    run, given = user.user_lowering("mine.py:slow", function=slow).build(t), draw(t)
    if first:
        assert torch.equal(run(*given), given[0] + given[1])
        return
    with pytest.raises(NotLowered, match="too long for a launch of calls of 7 elements: 2 took"):
        run(*given)


def test_libdevice_path_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = pytest.importorskip("triton.knobs", reason="triton is not installed")
    from verify.lower.pytorch import _libdevice_path_restored

    monkeypatch.delenv("TRITON_LIBDEVICE_PATH", raising=False)
    with _libdevice_path_restored():
        knobs.nvidia.libdevice_path = "/toolkit/libdevice.10.bc"
        os.environ["TRITON_LIBDEVICE_PATH"] = "/toolkit/libdevice.10.bc"
    assert knobs.nvidia.libdevice_path is None
    assert "TRITON_LIBDEVICE_PATH" not in os.environ


# Layouts.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1, 6, 7, 64, 300])
def test_a_layout_keeps_values_and_order(layout: str, size: int) -> None:
    seen: list[tuple[torch.Size, tuple[int, ...]]] = []

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.extend((t.shape, t.stride()) for t in (a, b))
        return a - b

    a, b = torch.arange(float(size)), torch.rand(size)
    output = LAYOUTS[layout].arrange(call)(a, b)
    assert torch.equal(output, a - b)
    if size == 300:
        expected: dict[str, Any] = {
            "strided": {((300,), (2,))},
            "transposed": {((64, 5), (5, 1)), ((64, 5), (1, 64))},
            "broadcast": {((300, 9), (9, 1)), ((300, 9), (1, 0))},
            "tail": {((7,), (1,)), ((6,), (1,))},
            "size-one": {((1,), (1,))},
        }
        assert {(tuple(shape), stride) for shape, stride in seen} == expected[layout]


def test_every_declared_layout_exists() -> None:
    for name in elementwise_names():
        for spelling in load(name).spellings.values():
            assert spelling.layout is None or spelling.layout in LAYOUTS


def test_a_layout_limits_the_domain() -> None:
    kernel = load("lerp")
    assert named(kernel, "eager").limit(target(kernel)) is None
    assert named(kernel, "eager").limit(target(kernel, spelling="tail")) == LAYOUTS["tail"].max_elements
    assert named(kernel, "triton-interpreter").limit(target(kernel)) == 1 << 22


# Backends and the ledger.


def test_backends_are_found_by_file_name() -> None:
    assert {"cpu", "cuda"} <= set(backends.names())
    for name in backends.names():
        assert backends.load(name).name == name
    with pytest.raises(UsageError, match=r"unknown backend 'cud'; did you mean cuda"):
        backends.load("cud")


def test_cpu_fingerprint_names_what_changes_bits() -> None:
    found = cpu.fingerprint()
    assert cpu.unavailable() is None
    assert found["capability"] == torch.backends.cpu.get_cpu_capability()
    assert same_version(found["torch"], torch.__version__)
    assert found["threads"] == torch.get_num_threads()
    assert found["flush_denormal"] is False
    assert all(found[key] for key in ("backend", "chip", "python", "os"))


def test_capability_follows_the_environment() -> None:
    code = "from verify.backends import cpu; print(cpu.fingerprint()['capability'])"
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("DEFAULT", "NO AVX")


def test_rocm_is_not_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "ROCm" in str(cuda.unavailable())


def test_cuda_says_why_it_is_absent() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert "CUDA" in str(cuda.unavailable())


def test_ledger_entries_still_fail() -> None:
    """An entry that no longer fails is to be removed."""
    pytest.importorskip("triton", reason="triton is not installed")
    kernel = load("reciprocal")
    t = target(kernel, "bfloat16")
    x = draw(t, 4000)
    wrong = named(kernel, "triton-interpreter").build(t)(*x) != (1 / x[0].double()).float().bfloat16()
    cell = {"lowering": "triton-interpreter", "spelling": "out-of-place"}
    refused = ledger.not_run("cpu", lowering="triton-interpreter", kernel="reciprocal", dtype="bfloat16")
    assert (refused is not None) == bool(wrong.any())

    kernel = load("addcmul")
    a, b = (torch.rand(4000, generator=torch.Generator().manual_seed(i)) + 0.5 for i in (0, 1))
    run = named(kernel, "triton-interpreter").build(target(kernel, value=1.0))
    wrong = run(-a * b, a, b) != (a.double() * b.double() - (a * b).double()).float()
    known = ledger.known("cpu", kernel="addcmul", dtype="float32", **cell)
    assert any("bound" in entry.kinds for entry in known) == bool(wrong.any())


def test_threads_keep_their_parts_of_a_sum_in_the_half_type() -> None:
    """Which an entry says of sums of 2^15 elements and more, and the bound does not."""
    x, threads = torch.zeros(1 << 16, dtype=torch.float16), torch.get_num_threads()
    x[0], x[1], x[1 << 15] = 12696.0, 4.5, 1534.0
    try:
        sums = []
        for count in (1, 2):
            torch.set_num_threads(count)
            sums.append(float(x.sum()))
        assert sums == [14232.0, 14240.0]
    finally:
        torch.set_num_threads(threads)
    assert ledger.known("cpu", lowering="eager", kernel="sum", dtype="float16", spelling="length-2^16-counted")
    assert not ledger.known("cpu", lowering="eager", kernel="sum", dtype="float32", spelling="length-2^16-counted")


def test_ledger_matches_cells() -> None:
    assert ledger.known("cpu", lowering="eager", kernel="exp", dtype="float32", spelling="out-of-place") == ()
    entry = ledger.not_run("cpu", lowering="triton-interpreter", kernel="tanh", dtype="float64")
    assert entry is not None
    assert entry.id == "interpreter-float64-libdevice"
    assert ledger.not_run("cpu", lowering="eager", kernel="tanh", dtype="float64") is None
    assert ledger.deviations("no-such-backend") == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"status": "passed"}, "status 'passed'; expected one of"),
        ({"source": ""}, "needs an id, a reason and a source"),
        ({"regions": ()}, r"regions \[\]; expected some of special, exact-zero"),
        ({"kinds": ("*",)}, r"kinds \['\*'\]; expected some of bound, nan"),
        ({"at_most": {"ulps": 1.0}}, "at_most of ulps; expected metrics of ulp"),
        ({"kinds": ("nan",), "at_most": {}}, "nan: kinds without an error need"),
        ({"at_most": {}}, "how far does it go"),
    ],
)
def test_a_ledger_entry_says_where_and_how_far(given: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {
        "lowering": "x", "kernel": ("*",), "dtype": ("*",), "id": "one", "reason": "so", "source": "here",
        "regions": ("normal",), "kinds": ("bound",), "at_most": {"ulp": 4.0},
    }  # fmt: skip
    ledger.Deviation(**whole)
    with pytest.raises(ValueError, match=message):
        ledger.Deviation(**whole | given)


def test_what_a_signature_does_not_admit_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(domains.SIZES, "quick", 10)
    own = tmp_path / "mine.py"
    own.write_text("import torch\n\n\ndef f(x, y: float):\n    return torch.pow(x, y)\n")
    chosen = Selection(("pow",), ("cpu",), ("float32",), spellings=("out-of-place",), user_lowerings=(f"{own}:f",))
    for scalars, status in (({}, ""), ({"y": 2.0}, "passed")):
        selection = replace(chosen, profile="quick", lowerings=("eager",), scalars=scalars)
        if not status:
            with pytest.raises(NothingToCompare, match=r"takes .* which does not fit x, y where x, y are tensors"):
                run(selection)
            continue
        found = run(selection)["cells"]
        assert [one["status"] for one in found] == [status, "passed"]


def test_no_scalars_select_tensor_by_tensor(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [*jobs_of(Selection(("pow",), scalars={}), backends.load("cpu"))]
    assert jobs and all(not job.target.scalars for job in jobs)
    with pytest.raises(UsageError, match="--scalar none: add has no case of tensors alone"):
        [*jobs_of(Selection(("add",), scalars={}), backends.load("cpu"))]
    assert main(["kernel", "add", "--scalar", "none", "--scalar", "alpha=1"]) == 2
    assert "expected NAME=VALUE" in capsys.readouterr().err


def test_an_operation_without_a_foreach_has_the_other_spellings() -> None:
    every, without = spellings.elementwise("exp"), spellings.elementwise("exp", foreach_too=False)
    assert set(every) - set(without) == {"_foreach_", "_foreach_ in-place"}
    assert [name for name in every if name in without] == list(without)
