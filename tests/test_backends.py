"""Backends without their hardware, up to the launch: what they refuse, report and offer, and whole runs on stand-ins.

The Metal kernels' text and arithmetic are in `test_metal`, the Triton kernels' code for AMD GPUs in `test_triton`.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import verify.cli.commands
from metal_device import DEVICE, Device, Library, OnDevice, needs_compiler
from verify import backends, kernels
from verify.backends import cpu, cuda, mps, rocm, subnormals
from verify.cli.commands import main
from verify.facts.kernel import DTYPES, Composite, Kernel, facts_of, load, names
from verify.judge import ledger
from verify.lower.lowering import NotLowered, Target
from verify.lower.lowerings import lowerings
from verify.lower.pytorch import EAGER, STRICT_OPTIONS
from verify.reports.baseline import same_version
from verify.walk.plan import Selection
from verify.walk.run import run
from verify.workers.launch import LoweringError, launch_steady

pytestmark = pytest.mark.part(2)

ALL = tuple(map(backends.load, backends.names()))
ROCM_VARIANTS = ("own", "default", "nofuse")


def triton() -> Any:
    return pytest.importorskip("triton", reason="triton is not installed")


def cells(**selection: Any) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The cells of a quick run by kernel, lowering and dtype."""
    report = run(Selection(profile="quick", **selection))
    return {(c["kernel"], c["lowering"], c["dtype"]): c for c in report["cells"]}


# Every backend.


def test_each_backend_defines_the_interface() -> None:
    assert [backend.name for backend in ALL] == backends.names()
    imitations = [backends.load(name) for name in backends.virtual_names()]
    assert {facts_of(one.name) for one in imitations} <= set(backends.names())
    for backend in (*ALL, *imitations):
        protocol = backends.Virtual if backends.virtual(backend) else backends.Backend
        members = [m for m in dir(protocol) if not m.startswith("_")] + list(backends.Backend.__annotations__)
        assert [m for m in members if not hasattr(backend, m)] == [], backend.name
        assert backend.dtype_unavailable("float32") is None
        assert isinstance(backend.triton_options("no such variant"), str)


def test_options_without_effect_are_named_in_the_report() -> None:
    """Those that the installed torch has, of every list; eager numerics that one backend alone reads, too."""
    strict = next(lowering for lowering in lowerings(load("exp")) if lowering.name == "inductor-strict")
    for backend in ALL:
        assert set(backend.inert_options) <= set(STRICT_OPTIONS), backend.name
        flags = strict.flags(Target(load("exp"), {}, "out-of-place", "float32", backend))
        assert flags["without_effect"] == [name for name in flags if name in backend.inert_options]
        assert "emulate_precision_casts" not in flags["without_effect"]
    assert "eager_numerics.disable_ftz" in rocm.inert_options
    assert "eager_numerics.disable_ftz" not in cuda.inert_options


def generated(function: Any, device: str, options: dict[str, Any], dtype: torch.dtype) -> str:
    """The code that Inductor generates for `function` of two tensors on `device`, which need not exist."""
    from torch._inductor import config
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode() as mode, config.patch(options):
        inputs = [torch.empty(4096, device=device, dtype=dtype) for _ in range(2)]
        module = make_fx(function, decomposition_table=select_decomp_table())(*inputs)
        with V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
            graph = GraphLowering(module, example_inputs=inputs)
            with V.set_graph_handler(graph):
                graph.run(*inputs)
                return str(graph.codegen()[0].value)


@pytest.mark.parametrize("backend", [cpu, mps], ids=lambda backend: backend.name)
def test_options_said_to_have_no_effect_change_no_code(backend: Any) -> None:
    """And the others do: emulate_precision_casts rounds the difference inside lerp to bfloat16."""

    def lerp(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.reciprocal(torch.lerp(a, b, 0.9).exp()),)

    from torch._inductor import config

    known = config.get_config_copy()
    inert = {name: STRICT_OPTIONS[name] for name in backend.inert_options if name in known}
    other = {name: not value for name, value in inert.items() if isinstance(value, bool)}
    code = [generated(lerp, backend.device, options, torch.bfloat16) for options in ({}, inert, other)]
    assert code[0] == code[1] == code[2]
    if backend is cpu:
        assert generated(lerp, backend.device, {"emulate_precision_casts": True}, torch.bfloat16) != code[0]


@pytest.mark.parametrize("flush", [False, True])
def test_subnormals_are_measured(flush: bool) -> None:
    if not torch.set_flush_denormal(flush):
        pytest.skip("this processor cannot flush subnormals")
    try:
        found = subnormals("cpu", ("float32", "float64"))
    finally:
        torch.set_flush_denormal(False)
    assert set(found.values()) == {"flushed" if flush else "kept"}


def test_an_operator_that_torch_lacks_is_not_run() -> None:
    """As MPS raises it for operations that it has no kernel for."""
    add = load("add")
    target = Target(add, add.cases[0], "out-of-place", "float32", cpu)
    assert isinstance(add, Kernel)

    def missing(torch: Any, **inputs: Any) -> Any:
        raise NotImplementedError("The operator 'aten::add' is not currently implemented for the MPS device")

    object.__setattr__(target, "kernel", SimpleNamespace(
        inputs=add.inputs, tensors=add.tensors,
        spellings={"out-of-place": SimpleNamespace(call=missing, layout=None, applies=lambda scalars: True)},
    ))  # fmt: skip
    with pytest.raises(NotLowered, match=r"no such operator for this device: .*aten::add"):
        launch_steady(EAGER.build(target), [torch.ones(3), torch.ones(3)], cpu, "eager")


# Where outputs are judged.


@pytest.fixture
def elsewhere() -> Iterator[Any]:
    """A backend on a device of its own whose outputs are judged on the host."""
    with Device():
        yield SimpleNamespace(
            name="elsewhere", device=DEVICE, check_device="cpu", synchronize=lambda: None,
            poisoned=lambda size, pattern: contextlib.nullcontext(),
        )  # fmt: skip


def test_inputs_go_to_the_device_and_outputs_come_back(elsewhere: Any) -> None:
    seen: list[type] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        seen.append(type(x))
        return x + x

    x = torch.rand(9)
    for repeats in (1, 2):
        launched = launch_steady(double, [x], elsewhere, "double", repeats=repeats)
        assert type(launched.output) is torch.Tensor
        assert launched.output.device == x.device
        assert torch.equal(launched.output, 2 * x)
    assert set(seen) == {OnDevice}


def test_a_lowering_is_held_to_its_contract_on_the_device(elsewhere: Any) -> None:
    x = torch.rand(9)
    with pytest.raises(LoweringError, match="modified its input 0 in place"):
        launch_steady(lambda x: x.mul_(2), [x], elsewhere, "spoils")
    with pytest.raises(LoweringError, match=r"returned device cpu; expected meta"):
        launch_steady(lambda x: x.cpu(), [x], elsewhere, "leaves")
    with pytest.raises(LoweringError, match=r"float64"):
        launch_steady(lambda x: x.double().float(), [x], elsewhere, "widens")


# The CPU: its capability.


#: Prints the device's folder name, and the bits of eager addcmul and rsqrt and of compiled exp.
UNDER_A_CAPABILITY = """
import json, torch
from verify.backends import cpu
from verify.facts.kernel import load
from verify.workers.launch import bits, launch_steady
from verify.lower.lowering import Target
from verify.lower.pytorch import INDUCTOR
from verify.reports.baseline import device_of

x = torch.linspace(0.1, 2, 4096)
exp = INDUCTOR.build(Target(load("exp"), {}, "out-of-place", "float32", cpu))
outputs = [torch.addcmul(x, x, x), launch_steady(exp, [x], cpu, "inductor", repeats=1).output, x.half().rsqrt()]
print(json.dumps([device_of(cpu.fingerprint(), "cpu").slug, *(bits(y).tolist() for y in outputs)]))
"""


@pytest.mark.exhaustive  # half a minute
def test_capability_names_the_cpu_device() -> None:
    """Two capabilities of one machine are two devices, with bits of their own.

    They share torch's cache of compiled code, and must not take each other's.
    """
    found = []
    for capability in ("avx2", "default"):
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
        command = [sys.executable, "-c", UNDER_A_CAPABILITY]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    (avx2, *vectors), (default, *scalars) = found
    if not avx2.endswith("avx2"):
        pytest.skip("this processor has no AVX2")
    assert default == avx2.removesuffix("avx2") + "default"
    for what, one, other in zip(("an FMA", "SLEEF's exp", "one rounding"), vectors, scalars, strict=True):
        assert one != other, what


def test_a_ledger_entry_may_be_limited_to_a_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {
        "id": "one", "lowering": "*", "kernel": ["rsqrt"], "dtype": ["*"], "capability": "AVX*", "reason": "so",
        "source": "here", "regions": ["normal"], "kinds": ["bound"], "at_most": {"ulp": 4.0},
    }  # fmt: skip
    cell = {"lowering": "eager", "kernel": "rsqrt", "dtype": "float16", "spelling": "out-of-place"}
    monkeypatch.setattr(ledger, "_file", lambda backend: {"deviation": [entry]})
    for capability, known in (("DEFAULT", 0), ("AVX2", 1), ("AVX512", 1)):
        ledger.deviations.cache_clear()
        monkeypatch.setattr(cpu, "capability", lambda capability=capability: capability)
        assert len(ledger.known("cpu", **cell)) == known
    ledger.deviations.cache_clear()


# ROCm.


@pytest.fixture
def amd_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch as its ROCm build answers on an MI300X; kernels run on the host, Triton's under the interpreter."""
    monkeypatch.setattr(torch.version, "hip", "7.0.51831")
    monkeypatch.setattr(torch.version, "rocm", "7.0.0", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "AMD Instinct MI300X")
    properties = SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-", warp_size=64)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: properties)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for name in ("device", "check_device"):
        monkeypatch.setattr(rocm, name, "cpu")


def test_cuda_and_rocm_refuse_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for hip, version, why in (
        ("7.0", None, (None, "this torch is built for ROCm, not CUDA")),
        (None, "13.0", (f"torch {torch.__version__} is built for CUDA 13.0, not for ROCm", None)),
        (None, None, ("is built for the CPU alone, not for ROCm", "is built without CUDA")),
    ):
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(torch.version, "cuda", version)
        for backend, expected in zip((rocm, cuda), why, strict=True):
            reason = backend.unavailable()
            assert (reason is None) == (expected is None), (hip, version, backend.name, reason)
            assert expected is None or expected in str(reason)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "finds no AMD GPU" in str(rocm.unavailable())


def test_the_driver_of_nvidia_is_what_the_kernel_has_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "nvidia-smi"
    told.write_text("#!/bin/sh\necho 535.86.10\n")
    told.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cuda, "DRIVER", tmp_path / "version")
    assert cuda.driver() == "535.86.10"  # as where the system shows no modules
    (tmp_path / "version").write_text("580.159.04\n")
    assert cuda.driver() == "580.159.04"
    told.unlink()
    (tmp_path / "version").unlink()
    assert cuda.driver() is None


def test_rocm_fingerprint(amd_gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rocm.installed_ocml.cache_clear()
    library = tmp_path / rocm.OCML
    library.parent.mkdir(parents=True)
    library.write_bytes(b"BC")
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))
    monkeypatch.setattr(rocm, "DRIVER", tmp_path / "version")
    found = rocm.fingerprint()
    assert found["driver"] is None
    (tmp_path / "version").write_text("6.12.12\n")
    assert rocm.fingerprint()["driver"] == "6.12.12"
    rocm.installed_ocml.cache_clear()
    assert (found["chip"], found["capability"]) == ("AMD Instinct MI300X", "gfx942:sramecc+:xnack-")
    assert (found["wave_size"], found["hip"], found["rocm"]) == (64, "7.0.51831", "7.0.0")
    assert found["denormals"] == dict.fromkeys(DTYPES, "kept")
    assert (found["rocm_ocml"], found["rocm_ocml_digest"]) == (str(library), "768921a22b8e190c")
    assert same_version(found["torch"], torch.__version__)
    json.dumps(found, allow_nan=False)
    if found["triton"]:
        assert len(found["triton_ocml"]) == 16 and found["triton_ocml"] != found["rocm_ocml_digest"]


def test_hip_takes_our_options() -> None:
    triton()
    from triton.backends.amd.compiler import HIPOptions

    known = set(HIPOptions.__dataclass_fields__)
    for variant in ROCM_VARIANTS:
        options = rocm.triton_options(variant)
        assert not isinstance(options, str)
        assert set(options) <= known
        made = HIPOptions(arch="gfx942", **options)
        assert made.enable_fp_fusion is (variant == "default")
        assert made.allow_flush_denorm is False
    assert not any(isinstance(cuda.triton_options(variant), str) for variant in ROCM_VARIANTS)
    assert "keeps subnormals" in str(rocm.triton_options("noftz"))
    # The reason given for the toolkit's library: whatever ocml.bc is named, the bundled one is linked.
    assert "bundled" in str(rocm.triton_options("toolkit"))
    linked = dict(HIPOptions(arch="gfx942", extern_libs={"ocml": "/opt/rocm/ocml.bc"}).extern_libs)
    assert linked["ocml"] == str(rocm._bundled_ocml())


def test_ocml_has_every_library_function_that_our_kernels_call() -> None:
    triton()
    from triton.language.extra.hip import libdevice

    used = {
        node.attr
        for path in Path(kernels.__path__[0], "triton").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "libdevice"
    }
    assert used >= {"exp", "log", "pow", "tanh"}
    assert [name for name in sorted(used) if not hasattr(libdevice, name)] == []


def other_arch(name: str) -> Any:
    """The second one shows of one kernel what it shows of all."""
    return pytest.param(name, "gfx90a", marks=() if name == "softmax" else pytest.mark.exhaustive)


COMPOSITES = [name for name in names() if isinstance(load(name), Composite)]


@pytest.mark.parametrize(("name", "arch"), [*((n, "gfx942") for n in COMPOSITES), *map(other_arch, COMPOSITES)])
def test_composite_triton_kernels_compile_for_amd(name: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launched up to the launch: every kernel is compiled, and keeps subnormals."""
    triton()
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    present = SimpleNamespace(
        get_current_device=lambda: arch,  # kernels are kept by device
        get_current_stream=lambda device: 0,
        get_current_target=lambda: GPUTarget("hip", arch, 64),
    )
    monkeypatch.setattr(driver, "_active", present, raising=False)
    compiled: list[Any] = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled.append(run(self, *args, grid=grid, warmup=True, **kwargs))
        return compiled[-1]

    monkeypatch.setattr(JITFunction, "run", compile_only)
    facts = load(name)
    assert isinstance(facts, Composite)
    lowering = next((one for one in lowerings(facts) if one.name == "triton"), None)
    if lowering is None:
        pytest.skip(f"{name} has no Triton kernel")
    dtype = "float32" if "float32" in facts.dtypes else facts.dtypes[0]
    setting = next(one for one in facts.settings if one.quick and dtype in one.dtypes)
    target = Target(facts, dict(facts.cases[0]), setting.name, dtype, rocm)  # type: ignore[arg-type]
    if (why := lowering.reason(target)) and dtype != "float32":
        pytest.skip(why)
    assert why is None
    lowering.build(target)(facts.problem(dtype, setting, dict(facts.cases[0]), 0))
    assert compiled
    for kernel in compiled:
        assert kernel.metadata.target.arch == arch
        assert ".amdhsa_float_denorm_mode_32 3" in kernel.asm["amdgcn"]


def test_run_on_rocm(amd_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    triton()
    from verify.kernels.triton import elementwise

    launched: list[dict[str, Any]] = []

    def interpreted(operation: Any, scalar: float | None, options: dict[str, Any]) -> Any:
        launched.append(options)
        return elementwise.interpreted(operation, scalar)

    monkeypatch.setattr(elementwise, "compiled", interpreted)
    found = cells(
        kernels=("reciprocal", "exp"), backends=("rocm",), dtypes=("float32",), lowerings=("eager", "triton*")
    )
    one = found["reciprocal", "triton", "float32"]
    assert (one["status"], one["backend"], one["error"]["max_ulp"] <= 0.5) == ("passed", "rocm", True)
    assert one["flags"] == {"enable_fp_fusion": False, "allow_flush_denorm": False}
    assert one["ftz"] is False
    assert found["reciprocal", "eager", "float32"]["status"] == "passed"
    assert one["flags"] in launched
    for lowering, reason in (("triton-libdevice-noftz", "keeps subnormals"), ("triton-libdevice-toolkit", "bundled")):
        cell = found["exp", lowering, "float32"]
        assert cell["status"] == "not-run" and reason in cell["reason"]
    assert "runs on the CPU" in found["exp", "triton-interpreter", "float32"]["reason"]


# Apple GPUs.


@pytest.fixture
def apple_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The backend `mps` finds a stand-in (`metal_device`), on macOS 15.5."""
    needs_compiler()
    for name, value in (
        ("is_built", True), ("is_available", True), ("get_name", "Apple stand-in"), ("get_core_count", 8),
        ("is_macos_or_newer", True),
    ):  # fmt: skip
        monkeypatch.setattr(torch.backends.mps, name, lambda *args, value=value: value)
    monkeypatch.setattr(torch.mps, "compile_shader", Library)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: None)
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.5", ("", "", ""), "arm64"))
    monkeypatch.setattr(mps, "device", DEVICE)
    with Device():
        yield


def test_mps_says_why_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    for built, available, why in (
        (False, False, "built without MPS"),
        (True, False, "no Metal device"),
        (True, True, None),
    ):
        monkeypatch.setattr(torch.backends.mps, "is_built", lambda built=built: built)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda here=available: here)
        reason = mps.unavailable()
        assert (reason is None) if why is None else (why in str(reason))


@pytest.mark.parametrize("name", ["rocm", "mps"])
def test_a_run_without_the_hardware_exits_3_and_says_why(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if backends.load(name).unavailable() is None:
        pytest.skip(f"this machine has {name}")
    for command in (["run"], ["kernel", "exp"], ["explain", "exp", "--input", "1"]):
        out = tmp_path / f"{command[0]}.json"
        assert main([*command, "--backend", name, *(["--out", str(out)] if command == ["run"] else [])]) == 3
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"verify: backend {name} is not present: torch {torch.__version__} is built")
        assert len(captured.err.splitlines()) == 1
        assert not out.exists()


def test_inductor_generates_metal_code() -> None:
    """With one kernel counted, which tells compiled code from a fallback to eager."""
    from torch._inductor import metrics

    assert mps.inductor_unavailable() is None
    before = metrics.generated_kernel_count
    code = generated(lambda a, b: (torch.lerp(a, b, 0.9),), mps.device, {}, torch.float32)
    assert metrics.generated_kernel_count == before + 1
    assert "kernel void generated_kernel" in code


@pytest.mark.usefixtures("apple_gpu")
def test_mps_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_MPS_FAST_MATH", "1")
    monkeypatch.delenv("PYTORCH_ENABLE_MPS_FALLBACK", raising=False)
    found = mps.fingerprint()
    assert (found["chip"], found["capability"], found["macos"]) == ("Apple stand-in", "8 GPU cores", "15.5")
    assert found["metal"] == "3.2"
    assert found["denormals"] == dict.fromkeys(("float16", "bfloat16", "float32"), "kept")
    assert found["rounding"] == "to nearest, ties to even"
    assert found["variables"] == {"PYTORCH_MPS_FAST_MATH": "1"}
    json.dumps(found, allow_nan=False)


@pytest.mark.usefixtures("apple_gpu")
def test_rounding_toward_zero_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    add = torch.Tensor.__add__

    def toward_zero(a: torch.Tensor, b: Any) -> torch.Tensor:
        total = add(a, b)
        return torch.where(total > 1, torch.nextafter(total, torch.zeros_like(total)), total) if b == 1 else total

    monkeypatch.setattr(torch.Tensor, "__add__", toward_zero)
    assert mps._rounding() == "toward zero"


@pytest.mark.usefixtures("apple_gpu")
def test_run_on_mps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole of `verify run` on the kernels of kernels/metal and one without: report, table and exit code."""
    chosen = ["addcmul", "exp", "sigmoid"]
    monkeypatch.setattr(verify.cli.commands, "names", lambda: chosen)
    out = tmp_path / "mps.json"
    options = ["--dtype", "float32", "--dtype", "float64", "--profile", "quick"]
    assert main(["run", "--backend", "mps", *options, "--out", str(out)]) == 0
    assert "mps" in capsys.readouterr().out
    report = json.loads(out.read_text())
    assert report["environment"]["mps"]["chip"] == "Apple stand-in"
    ran = {(c["kernel"], c["lowering"]) for c in report["cells"] if c["status"] == "passed"}
    own = {(name, lowering) for name in chosen if name != "sigmoid" for lowering in ("metal", "metal-fast")}
    assert ran == {(name, "eager") for name in chosen} | own
    for cell in report["cells"]:
        if cell["dtype"] == "float64":
            assert cell["status"] == "not-run"
            assert cell["lowering"].startswith("triton") or cell["reason"] == "Metal has no float64 (MSL 2.1)"
        elif cell["status"] == "passed":
            assert cell["ftz"] is True, "MSL 8.1 lets a device flush"
            assert cell["error"]["undecided"] == 0
            asked = {"addcmul": [], "exp": ["exp", "expm1"], "sigmoid": ["exp", "expm1"]}[cell["kernel"]]
            assert [x["library"] for x in cell["trust"]] == [f"torch.{name} float64, eager on cpu" for name in asked]
        if cell["lowering"].startswith("triton"):
            assert cell["status"] == "not-run"
    (exp,) = (c for c in report["cells"] if (c["kernel"], c["lowering"], c["dtype"]) == ("exp", "metal", "float32"))
    assert exp["flags"] == {"math_mode": "safe"}
    assert 0.5 < exp["regions"]["normal"]["error"]["max_ulp"] < 0.6
    assert 0.6 < exp["error"]["max_ulp"] <= exp["bound"]["value"] < 0.8  # subnormal results are rounded twice


@pytest.mark.usefixtures("apple_gpu")
def test_lerp_on_mps_is_excused_for_its_formula_alone() -> None:
    found = cells(kernels=("lerp",), backends=("mps",), dtypes=("float32",), lowerings=("metal*",), scalars={"w": 0.9})
    assert len(found) == 2
    for cell in found.values():
        assert (cell["status"], cell["error"]["undecided"]) == ("deviates", 0), cell["reason"]
        assert cell["ledger"] == ["lerp-two-sided"]


@pytest.mark.usefixtures("apple_gpu")
def test_a_device_that_flushes_passes_as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.mps, "compile_shader", lambda source: Library(source, flush=True))
    found = cells(
        kernels=("addcmul", "exp", "reciprocal"), backends=("mps",), dtypes=("float32",), lowerings=("metal",)
    )
    assert {cell["status"] for cell in found.values()} == {"passed"}
    assert all(cell["error"]["flushed"] > 0 for cell in found.values())


@pytest.mark.part(2)
@pytest.mark.usefixtures("apple_gpu")
@pytest.mark.parametrize(
    ("kernel", "wrong", "right"),
    [
        ("lerp", "near ? a : b", "near ? b : a"),
        ("lerp", "near ? w : w - 1.0f", "w"),
        ("addcmul", "fma(b, c, a)", "fma(b, a, c)"),
        ("exp", "two.y + fma(", "fma("),
        ("exp", "0.16666667f", "0.16666f"),
        ("reciprocal", "1.0f / x", "1.0000001f / x"),
    ],
)
def test_planted_errors_in_metal_source_are_caught(
    kernel: str, wrong: str, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt: list[bool] = []

    def spoiled(source: str) -> Library:
        spoilt.append(wrong in source)
        return Library(source.replace(wrong, right))

    monkeypatch.setattr(torch.mps, "compile_shader", spoiled)
    selection = {"kernels": (kernel,), "backends": ("mps",), "dtypes": ("float32",), "lowerings": ("metal",)}
    first = run(Selection(profile="quick", **selection))["cells"][0]  # type: ignore[arg-type]
    assert any(spoilt)
    assert first["status"] == "exceeds-bound", first["error"]
    assert "exceeds" in first["reason"]


@pytest.mark.usefixtures("apple_gpu")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logcumsumexp_in_metal_keeps_its_proven_bound(dtype: str) -> None:
    """The scan lowering of the composite kernel, on a whole problem; `limit` is the bound that a report would use."""
    facts = load("logcumsumexp")
    assert isinstance(facts, Composite)
    by_name = {one.name: one for one in lowerings(facts)}
    assert {"metal", "metal-fast"} <= set(by_name)
    setting = next(one for one in facts.settings if one.quick and one.name.startswith("length"))
    target = Target(facts, {}, setting.name, dtype, mps)  # type: ignore[arg-type]
    assert by_name["metal"].reason(target) is None
    problem = facts.problem(dtype, setting, {}, 0)
    y = launch_steady(by_name["metal"].build(target), problem, mps, "metal", repeats=1).output
    limit = facts.limit(problem, target, by_name["metal"], "")
    exact = torch.logcumsumexp(problem.tensors["x"].double(), problem.parameters["dim"])
    inside = exact.isfinite() & limit.bound.isfinite()
    assert inside.any()
    share = (y.double() - exact).abs()[inside] / limit.bound[inside]
    assert 0.1 < float(share.max()) <= 1
    assert torch.equal(y.isnan(), exact.isnan())


@pytest.mark.usefixtures("apple_gpu")
def test_explain_on_mps(tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    command = ["explain", "exp", "--input", "0x1p-3", "--backend", "mps", "--lowering", "metal*", "--json", str(out)]
    assert main(command) == 0
    told = json.loads(out.read_text())
    assert told["backend"] == "mps"
    assert "metal" in out.read_text()


# Ledgers.


def test_ledgers_name_what_exists() -> None:
    for backend in backends.names():
        for entry in ledger.deviations(backend):
            for name in entry.kernel:
                assert name == "*" or name in names(), (backend, name)
            if "*" not in entry.kernel:
                listed = {lowering.name for name in entry.kernel for lowering in lowerings(load(name))}
                assert any(
                    entry.suits(lowering=one, kernel=name, dtype=dtype)
                    for one in listed for name in entry.kernel for dtype in DTYPES
                ) or entry.triton_before or entry.torch_before  # fmt: skip


# Virtual devices: what is predicted is never taken for a measurement.


def test_predicted_cells_are_marked_and_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    if why := backends.load("virtual-cuda").unavailable():
        pytest.skip(why)
    options = ["--backend", "cpu", "--backend", "virtual-cuda", "--dtype", "float32", "--profile", "quick"]
    assert main(["kernel", "reciprocal", "--lowering", "eager", "--lowering", "triton", *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "virtual-cuda float32 (predicted)" in text or "virtual-cuda (predicted) float32" in text
    assert "triton \N{ALMOST EQUAL TO} passed 0.5 ulp" in text and "eager passed 0.5 ulp" in text
    assert "1 of 1 cell passed" in text and "predicted, not measured: 1 of 1 cell passed" in text
    assert "eager, virtual-cuda, float32: a virtual device executes Triton kernels" in text


def test_virtual_backends_run_only_when_they_are_named() -> None:
    assert not [name for name in backends.names() if name.startswith("virtual")]
    report = run(Selection(kernels=("add",), dtypes=("float32",), lowerings=("eager",), profile="quick"))
    assert {cell["backend"] for cell in report["cells"]} <= set(backends.names())
