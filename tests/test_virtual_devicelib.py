"""libdevice and ocml on the CPU: their errors are those recorded over all arguments; what has no model is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite is not installed: the extra 'virtual'")
pytest.importorskip("triton", reason="triton is not installed")

import vendor_libraries
from devicelib import FUNCTIONS, arguments, ulps
from vendor_libraries import vectorised
from verify.virtual import instructions
from verify.virtual.compile import Unsupported
from verify.virtual.ir import F32, Compiled

ROOT = Path(__file__).parent.parent
RECORDED = json.loads((ROOT / "reports" / "measured" / "devicelib.json").read_text())

#: What Triton's wheel ties the recorded figures to, as other tests do.
PUBLISHED = {  # LLVM libc's GPU conformance table, on an RTX 4000 Ada and an RX 6950 XT: steps from the nearest result
    ("libdevice", "expf"): 2, ("libdevice", "logf"): 1, ("libdevice", "log1pf"): 1, ("libdevice", "expm1f"): 1,
    ("libdevice", "tanhf"): 2, ("libdevice", "log2f"): 1,
}  # fmt: skip


def error(library: str, name: str, x: np.ndarray[Any, Any]) -> Any:
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[library, name](x.astype(np.float64))
    return ulps(vendor_libraries.function(library, name, ftz=False)(x), exact), exact


@pytest.mark.parametrize("one", RECORDED["functions"], ids=lambda one: f"{one['library']}-{one['function']}")
def test_errors_are_the_recorded_ones(one: dict[str, Any]) -> None:
    """The worst argument over all gives the recorded error, and no other of a million a larger one."""
    library, name = one["library"], one["function"]
    assert one["arguments"] == 1 << 32
    worst = np.array([float.fromhex(one["at"])], np.float32)
    assert error(library, name, worst)[0][0] == one["max_ulp"]
    x = np.concatenate([*arguments(4099)])
    found, exact = error(library, name, x)
    normal = np.abs(exact) >= 2.0**-126
    assert one["max_ulp"] / 2 < found[normal].max() <= one["max_ulp"]
    if published := PUBLISHED.get((library, name)):
        assert one["max_ulp"] < published + 0.5


@pytest.mark.parametrize("one", RECORDED["models"], ids=lambda one: one["instruction"])
def test_models_are_correctly_rounded(one: dict[str, Any]) -> None:
    """Recorded over all arguments; tried here against multiprecision on some."""
    assert one["misrounded"] == []
    exact = {"v_exp_f32": lambda x: mpmath.power(2, x), "v_log_f32": lambda x: mpmath.log(x, 2)}[one["instruction"]]
    rng = np.random.default_rng(0)
    x = rng.uniform(-126, 127, 2000).astype(np.float32)
    x = np.abs(x) + np.float32(0.5) if one["instruction"] == "v_log_f32" else x
    y = vectorised(lambda v: instructions.APPROXIMATE[one["instruction"]](v, "nearest"), F32)(x)
    with mpmath.workprec(100):
        for a, b in zip(x.tolist(), y.tolist(), strict=True):
            below, above = (float(np.nextafter(np.float32(b), np.float32(s))) for s in (-np.inf, np.inf))
            t = exact(mpmath.mpf(a))
            assert abs(t - b) <= min(abs(t - below), abs(t - above)), a.hex()


def test_pow_of_two_libraries() -> None:
    """Ten million pairs give 7.6 ULP for libdevice, an old one in Triton 3.7.1, and 1.16 for ocml; fewer here."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.5, 2, 1 << 20).astype(np.float32)
    y = (rng.uniform(-125.5, 127.5, 1 << 20) / np.log2(x.astype(np.float64))).astype(np.float32)
    exact = np.power(x.astype(np.float64), y.astype(np.float64))
    inside = (exact > 2.0**-126) & (exact < 2.0**127)
    largest = [
        float(ulps(vendor_libraries.function(*which)(x, y), exact)[inside].max())
        for which in (("libdevice", "powf"), ("ocml", "pow_f32"))
    ]
    assert 3 < largest[0] < 9 and 1 < largest[1] < 1.2


def test_flushing_is_triton_s_flag() -> None:
    x = np.array([2.0**-140], np.float32)
    assert vendor_libraries.function("libdevice", "sqrtf", ftz=True)(x) == 0
    assert vendor_libraries.function("libdevice", "sqrtf", ftz=False)(x) == 2.0**-70


def test_shapes_and_sizes() -> None:
    exp = vendor_libraries.function("ocml", "exp_f32")
    assert exp(np.empty((0, 3), np.float32)).shape == (0, 3)
    assert exp(np.zeros((2, 3), np.float32)[:, ::2]).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match="zip"):
        exp(np.zeros(1), np.zeros(1))


@pytest.mark.parametrize(
    ("library", "name", "model", "told"),
    [
        ("ocml", "exq_f32", "nearest", "unknown function of ocml 'exq_f32'.*exp"),
        ("ocml", "sin_f64", "nearest", "no host model of llvm.amdgcn.trig.preop.f64"),
        ("libdevice", "sinf", "nearest", "inline assembly without a model: mad.lo.cc.u32"),
        ("libdevice", "expf", "down", "libdevice are modelled as correctly rounded, not 'down'"),
        ("libdevice", "ffs", "nearest", "only functions of one float type"),
    ],
)
def test_refusals(library: str, name: str, model: str, told: str) -> None:
    with pytest.raises(Unsupported, match=told):
        vendor_libraries.function(library, name, model)


def test_a_function_that_nothing_defines_is_named_rather_than_called() -> None:
    text = "declare float @nothing(float)\n"
    text += "define float @loop(float %x) {\n %y = call float @nothing(float %x)\n ret float %y\n}"
    with pytest.raises(ValueError, match="no host model of nothing"):
        Compiled(text, exported="loop")


def test_a_planted_error_in_a_model_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exponential whose power rounds down has another largest error."""
    x, before = np.concatenate([*arguments(4099)]), vendor_libraries.EXPANDED["exp"]
    largest = []
    for expanded in (before, lambda value, model: before(value, "down")):
        monkeypatch.setitem(vendor_libraries.EXPANDED, "exp", expanded)  # type: ignore[misc]
        vendor_libraries._function.cache_clear()
        found, exact = error("ocml", "exp_f32", x)
        largest.append(float(found[np.abs(exact) >= 2.0**-126].max()))
    vendor_libraries._function.cache_clear()
    assert largest[0] < 0.7 < 1 < largest[1]
