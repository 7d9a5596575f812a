"""The backend `virtual-mps`: Metal source on the host, contracted and not; Apple's functions within their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from verify import backends
from verify.backends import virtual_mps
from verify.kernels.metal import elementwise
from verify.virtual import metal
from verify.virtual.compile import Unsupported
from verify.walk.plan import Selection
from verify.walk.run import run

pytestmark = pytest.mark.skipif(metal.clang() is None, reason="no clang++, which virtual-mps needs")
DEVICES = ("virtual-mps", "virtual-mps-low", "virtual-mps-high")
BOTH = ("virtual-mps", "virtual-mps-contracted")


def cells(kernel: str, *lowerings: str, devices: tuple[str, ...] = DEVICES) -> dict[tuple[str, str], dict[str, Any]]:
    report = run(Selection((kernel,), backends=devices, profile="quick", dtypes=("float32",), lowerings=lowerings))
    return {(c["backend"], c["lowering"]): c for c in report["cells"] if c["scalars"] in ({}, {"value": 1.0})}


def values(text: str, x: torch.Tensor, mode: metal.Mode, math: str = "fast") -> torch.Tensor:
    """Of a Metal expression in x."""
    constants = {"DIVIDEND": 5.0, "DIVISOR": 0.7265625}
    operation = elementwise.Operation(f"inline float operation(float x) {{ return {text}; }}\n", constants=constants)
    source = metal.approximate_divisions(elementwise.source(operation, 1, "float32", math))
    out = torch.empty_like(x)
    metal.Library(source, (str(metal.clang()),), mode).elementwise(out, x)
    return out


def test_contraction_is_of_the_device_where_the_source_leaves_it_open() -> None:
    """Safe math has the pragma contract(off) in its text: the same on both; the sum of fast math is fused or not."""
    found = cells("addcmul", "metal", "metal-fast", devices=BOTH)
    formulas = {key: cell["formula"]["identified"] for key, cell in found.items()}
    assert formulas["virtual-mps", "metal"] == formulas["virtual-mps-contracted", "metal"] == "fma(b, c, a)"
    assert formulas["virtual-mps", "metal-fast"] == "a + b*c"
    assert formulas["virtual-mps-contracted", "metal-fast"] == "fma(b, c, a)"


def test_functions_of_apple_are_modelled_and_named() -> None:
    found = cells("exp", "metal", "metal-fast")
    errors = {name: found[name, "metal-fast"]["regions"]["normal"]["error"]["max_ulp"] for name in DEVICES}
    assert errors["virtual-mps"] <= 0.5 + 2**-28
    assert all(170 < errors[f"virtual-mps-{end}"] <= 181 for end in ("low", "high"))
    assert set(DEVICES) < set(virtual_mps.DEVICES) == {f"{one}{end}" for one in BOTH for end in ("", "-low", "-high")}
    for name in DEVICES:
        assert found[name, "metal-fast"]["predicted"] == {"fast::exp": virtual_mps.DEVICES[name].how}
        assert found[name, "metal"]["predicted"] == {}
        assert found[name, "metal"]["digest"] == found["virtual-mps", "metal"]["digest"]


@pytest.mark.parametrize(
    ("text", "exact", "ulps"),
    [
        ("fast::exp(x)", np.exp, lambda x, t: 3 + np.floor(np.abs(2 * x))),
        (
            "fast::log(x)",
            np.log,
            lambda x, t: np.where((x < 0.5) | (x > 2), 3, 2.0**-21 / np.spacing(t.astype(np.float32))),
        ),
        ("1.0f / x", np.reciprocal, lambda x, t: np.ones_like(x)),
        ("DIVIDEND / x", lambda x: 5 / x, lambda x, t: np.full_like(x, 2.5)),
        ("x / DIVISOR", lambda x: x / 0.7265625, lambda x, t: np.full_like(x, 2.5)),
    ],
    ids=["exp", "log", "reciprocal", "dividend", "divisor"],
)
def test_ends_of_documented_errors(text: str, exact: Any, ulps: Any) -> None:
    """MSL table 8.2. Both ends lie within, and use, what is documented; the nearest lies between them."""
    x = torch.cat([torch.linspace(0.01, 4, 20_001), torch.linspace(4, 80, 20_001)])
    wide = x.double().numpy()
    t = exact(wide)
    unit = np.spacing(np.abs(t).astype(np.float32)).astype(np.float64)
    low, near, high = ((values(text, x, metal.Mode(end=end)).double().numpy() - t) / unit for end in (-1, 0, 1))
    allowed = np.abs(ulps(wide, np.abs(t)))
    assert np.abs(near).max() <= 0.5001
    assert bool((low >= -allowed * 1.0001).all() and (high <= allowed * 1.0001).all())
    assert bool(((low <= 0) & (high >= 0)).all())
    assert float(np.median(-low / allowed)) > 0.5


def test_zeros_and_infinities_have_no_ends() -> None:
    x = torch.tensor([0.0, -torch.inf, torch.inf, torch.nan])
    for text in ("fast::exp(x)", "fast::log(x)", "1.0f / x", "DIVIDEND / x"):
        low, near, high = (values(text, x, metal.Mode(end=end)) for end in (-1, 0, 1))
        special = ~near.isfinite() | (near == 0)
        assert torch.equal(low[special].nan_to_num(7), high[special].nan_to_num(7))


@pytest.mark.parametrize(
    "text", ["(x + 1.0f) / x", "x * x / x", "x / x / x", "x / 3.5f", "x / (x + x)", "1.0f - x / x"]
)
def test_a_division_amid_others_under_fast_math_is_refused(text: str) -> None:
    with pytest.raises(Unsupported, match="a division under fast math"):
        values(text, torch.ones(4), metal.Mode())


def test_safe_math_divides_as_it_is_written() -> None:
    assert values("(x + 1.0f) / x", torch.ones(4), metal.Mode(), "safe").tolist() == [2.0] * 4


@pytest.mark.exhaustive  # half a minute
def test_quotients_and_logarithms_lie_between_the_ends() -> None:
    """Contraction changes nothing, and the ends are within the bounds that kernels/ states."""
    for name, limit in (("div", 2.5), ("log", 2.0**26)):
        found = cells(name, "metal", "metal-fast", devices=(*DEVICES, BOTH[1]))
        models = {"fast::divide" if name == "div" else "fast::log"}
        for device in DEVICES:
            assert set(found[device, "metal-fast"]["predicted"]) == models and not found[device, "metal"]["predicted"]
            assert {found[device, one]["status"] for one in ("metal", "metal-fast")} == {"passed"}
            assert found[device, "metal-fast"]["bound"]["value"] == limit
        for one in ("metal", "metal-fast"):
            assert found[BOTH[0], one]["digest"] == found[BOTH[1], one]["digest"]
        ends = {found[device, "metal-fast"]["digest"] for device in DEVICES}
        assert len(ends) == 3


def test_what_is_not_metal_is_not_run() -> None:
    found = cells("exp", devices=DEVICES[:1])
    assert "Metal kernels" in found["virtual-mps", "eager"]["reason"]
    assert "Metal kernels" in found["virtual-mps", "triton"]["reason"]
    report = run(
        Selection(("exp",), backends=DEVICES[:1], profile="quick", lowerings=("metal",), dtypes=("float64", "float16"))
    )
    assert {c["dtype"]: c["status"] for c in report["cells"]} == {"float64": "not-run", "float16": "passed"}


def test_without_clang_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metal, "clang", lambda: None)
    device = backends.load("virtual-mps")
    assert device.unavailable() == "it needs clang++, which contracts within a statement as Metal does"
    assert device.metal_compiler() == device.unavailable()
