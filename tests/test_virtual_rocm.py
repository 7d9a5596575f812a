"""The backend `virtual-rocm`: it runs where it is named, says what is predicted and modelled, and refuses the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("llvmlite", reason="llvmlite is not installed: the extra 'virtual'")
pytest.importorskip("triton", reason="triton is not installed")

from verify import backends
from verify.backends import virtual_rocm
from verify.facts.kernel import UsageError, load
from verify.lower.lowering import NotLowered, Target
from verify.lower.user import user_lowering
from verify.walk.plan import Selection, backends_of
from verify.walk.run import run

DEVICES = ("virtual-rocm", "virtual-rocm-low", "virtual-rocm-high")


def cells(
    kernel: str, *, devices: tuple[str, ...] = DEVICES[:1], **selection: Any
) -> dict[tuple[str, str], dict[str, Any]]:
    report = run(Selection((kernel,), backends=devices, profile="quick", dtypes=("float32",), **selection))
    return {(c["backend"], c["lowering"]): c for c in report["cells"]}


def test_virtual_devices_run_only_where_they_are_named() -> None:
    assert set(DEVICES) <= set(backends.virtual_names())
    assert not {name for name in backends.names() if name.startswith("virtual")}
    assert not [one for one in backends_of(Selection(("exp",)))[0] if backends.virtual(one)]
    assert [one.name for one in backends_of(Selection(("exp",), backends=DEVICES))[0]] == list(DEVICES)
    with pytest.raises(UsageError, match="virtual-rocm"):
        backends.load("virtual-rocn")


def test_each_virtual_device_defines_the_interface() -> None:
    kinds = (backends.Virtual, backends.Backend)
    members = {m for kind in kinds for m in (*dir(kind), *kind.__annotations__) if m[0] != "_"}
    for name in backends.virtual_names():
        device = backends.load(name)
        assert [m for m in members if not hasattr(device, m)] == [], name
        assert device.name == name
        assert isinstance(device.triton_options("no such variant"), str)


def test_cells_say_what_is_predicted_and_what_was_modelled() -> None:
    """And the fused lowering has the defect, on all three models; the unfused one does not."""
    found = cells("exp", devices=DEVICES, lowerings=("triton-libdevice*", "triton"))
    for name in DEVICES:
        fused, unfused, own = (found[name, key] for key in ("triton-libdevice", "triton-libdevice-nofuse", "triton"))
        assert fused["predicted"] == unfused["predicted"] == {"v_exp_f32": virtual_rocm.DEVICES[name].how}
        assert own["predicted"] == {}
        assert 40 < fused["regions"]["normal"]["error"]["max_ulp"] < 50
        assert unfused["regions"]["normal"]["error"]["max_ulp"] < 2.1
    errors = [found[name, "triton-libdevice-nofuse"]["error"]["max_ulp"] for name in DEVICES]
    assert errors[0] < min(errors[1:])  # correctly rounded is the best of the three


def test_what_is_not_triton_s_is_not_run() -> None:
    found = cells("exp")
    told = {name: cell["reason"] for (_, name), cell in found.items() if cell["status"] == "not-run"}
    assert "executes Triton kernels" in told["eager"] and "executes Triton kernels" in told["inductor"]
    assert {"metal", "triton-interpreter", "triton-libdevice-toolkit"} <= told.keys()


def test_an_instruction_without_a_model_is_named() -> None:
    report = run(Selection(("sin",), backends=DEVICES[:1], profile="quick", dtypes=("float64",), lowerings=("triton",)))
    assert [(c["status"], c["reason"]) for c in report["cells"]] == [("not-run", "no model of v_trig_preop_f64")]


def mine(path: Path, text: str, backend: str = "virtual-rocm") -> Any:
    """A function of a user's file as the walk calls it."""
    path.write_text(text)
    target = Target(load("exp"), {}, "out-of-place", "float32", backends.load(backend))
    return user_lowering(f"{path}:exp").build(target)


@pytest.mark.parametrize("backend", ["virtual-rocm", "virtual-cuda"])
def test_a_lowering_that_computes_with_torch_is_not_run(tmp_path: Path, backend: str) -> None:
    """Its arithmetic would be this machine's."""
    call = mine(tmp_path / "mine.py", "import torch\n\ndef exp(x):\n    return torch.exp(x)\n", backend)
    with pytest.raises(NotLowered, match=r"computes with torch\.exp, which a virtual device has no code of"):
        call(torch.ones(3))
    text = "import torch\nfrom concurrent.futures import ThreadPoolExecutor\n\npool = ThreadPoolExecutor(1)\n\n"
    text += "def exp(x):\n    return pool.submit(torch.exp, x).result()\n"
    with pytest.raises(NotLowered, match="launches no kernel"):
        mine(tmp_path / "elsewhere.py", text, backend)(torch.ones(3))


def test_a_user_s_triton_kernel_is_executed(tmp_path: Path) -> None:
    text = (
        "import torch, triton, triton.language as tl\n\n"
        "@triton.jit\ndef kernel(x, o, n, B: tl.constexpr):\n"
        "    i = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    tl.store(o + i, 1.0 / tl.load(x + i, i < n), i < n)\n\n"
        "def exp(x):\n    o = torch.empty_like(x)\n"
        "    kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), B=256)\n    return o\n"
    )
    x = torch.linspace(-3, 5, 1000)
    assert torch.equal(mine(tmp_path / "mine.py", text)(x), 1 / x)
    assert backends.load("virtual-rocm").modelled() == {"v_rcp_f32": "correctly rounded"}  # type: ignore[attr-defined]


def test_inference_mode_is_no_computing(tmp_path: Path) -> None:
    """In it torch leaves to others what is made of several operators, such as a broadcast."""
    text = (
        "import torch, triton, triton.language as tl\n\n"
        "@triton.jit\ndef kernel(x, o, n, B: tl.constexpr):\n"
        "    i = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    tl.store(o + i, tl.load(x + i, i < n) + 1.0, i < n)\n\n"
        "def exp(x):\n    x, = torch.broadcast_tensors(x)\n    o = torch.empty_like(x)\n"
        "    kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), B=256)\n    return o\n"
    )
    with torch.inference_mode():
        x = torch.linspace(-3, 5, 1000)
        assert torch.equal(mine(tmp_path / "mine.py", text)(x), x + 1)
        computing = text.replace("x, = torch.broadcast_tensors(x)", "x = torch.nn.functional.softplus(x)")
        with pytest.raises(NotLowered, match=r"computes with torch\.softplus"):
            mine(tmp_path / "computing.py", computing)(x)


def test_the_adam_step() -> None:
    report = run(
        Selection(
            ("adam_step",), backends=("virtual-rocm",), profile="quick", dtypes=("float32",), lowerings=("triton*",)
        )
    )
    ran = [c for c in report["cells"] if c["status"] != "not-run"]
    assert ran and {c["status"] for c in ran} == {"passed"}, [(c["lowering"], c["status"], c["reason"]) for c in ran]
