"""The virtual H200 beside the real one: recorded digests of Triton lowerings, where inputs are still the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed")


from verify.backends import load
from verify.backends.cuda import toolkit_libdevice
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.inputs import domains
from verify.inputs.domains import CHUNK
from verify.judge.chunk import digests
from verify.judge.status import exit_code
from verify.judge.tally import root
from verify.lower.lowering import Target
from verify.lower.lowerings import lowerings
from verify.reports import store
from verify.walk.instance import problem_digest
from verify.walk.plan import Selection
from verify.walk.run import run

pytestmark = pytest.mark.part(2)

if why := load("virtual-cuda").unavailable():
    pytest.skip(why, allow_module_level=True)

RECORDED = Path(__file__).parent.parent / "reports" / "recorded"


#: Of which torch 2.13's Inductor makes other code than 2.11's, which was recorded: fma(b, alpha, a) where that had
#: a + alpha*b; fma(w, b-a, a); libdevice.mul_rn before an fma; pow by the toolkit's libdevice, and by 1/x; and 1/x
#: rounded correctly.
OTHER_CODE = {
    ("reciprocal", "inductor-strict"),
    ("add", "inductor-strict", ("alpha", 0.3)), ("addcmul", "inductor", ("value", 0.3)), ("lerp", "inductor-strict"),
    ("lerp", "inductor", ("w", 0.9)), ("lerp", "inductor-strict", ("w", 0.9)), ("lerp", "inductor-strict", ("w", 0.4)),
    ("pow", "inductor-strict"), ("pow", "inductor-strict", ("y", 3.7)), ("pow", "inductor-strict", ("y", -2.0)),
}  # fmt: skip


def key(cell: dict[str, Any]) -> tuple[Any, ...]:
    names = ("kernel", "lowering", "spelling", "dtype", "output")
    return *(cell.get(name, "") for name in names), *sorted(cell["scalars"].items())


def recorded(name: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The cells of the H200 whose domain is small enough to be repeated here."""
    if not (RECORDED / name).is_file():
        pytest.skip(f"{name} is not installed")
    report = store.read(RECORDED / name)
    names = ("triton", "inductor")
    cells = [cell.model_dump() for cell in report.cells if cell.lowering.startswith(names) and cell.digest]
    found = {key(cell): cell for cell in cells if cell["domain"]["size"] <= 1 << 17}
    if not found:
        pytest.skip("the record holds no domain of 2^17 inputs or less")
    return found


def compared(record: str, monkeypatch: pytest.MonkeyPatch, **selection: Any) -> list[tuple[Any, ...]]:
    """Cells run on the inputs of the record; their digests must be equal."""
    known = recorded(record)
    sizes = {cell["domain"]["size"] for cell in known.values() if cell["domain"]["kind"] == "strata"}
    monkeypatch.setattr(domains, "SIZES", {**domains.SIZES, "quick": max(sizes).bit_length() - 1})
    monkeypatch.setattr(domains, "SIZES_FLOAT64", {**domains.SIZES_FLOAT64, "quick": min(sizes).bit_length() - 1})
    report = run(Selection(backends=("virtual-cuda",), profile="quick", **selection))
    same = []
    for cell in report["cells"]:
        before = known.get(key(cell))
        if cell["status"] == "not-run" or before is None or before["domain"]["size"] != cell["domain"]["size"]:
            continue
        if (cell["kernel"], cell["lowering"], *sorted(cell["scalars"].items())) in OTHER_CODE:
            continue
        assert exit_code(cell["status"], user=False, allowed=False) == 0, cell["reason"]
        # all 2^16 inputs are the same however a domain is named
        if cell["domain"]["kind"] == "exhaustive" or before["domain"]["digest"] == cell["domain"]["digest"]:
            assert cell["digest"] == before["digest"], key(cell)
            same.append(key(cell))
    return same


@pytest.mark.parametrize(
    ("kernel", "spelling", "count", "of_toolkit"),
    [("exp", "out-of-place", 9, 2), ("softmax", "length-33", 1, 0), ("cumsum", "rows", 1, 0)],
)
def test_the_virtual_h200_gives_the_recorded_bits(
    kernel: str, spelling: str, count: int, of_toolkit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """exp's lowerings hang on ex2, with contraction and flushing permitted and not; rows on shuffles, shared memory and
    barriers."""
    count += of_toolkit * (toolkit_libdevice() is not None)
    given: dict[str, Any] = {"kernels": (kernel,), "spellings": (spelling,), "dtypes": ("float32",)}
    assert len(compared("h200-quick.json", monkeypatch, **given)) >= count


@pytest.mark.exhaustive
def test_it_gives_them_for_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = tuple(sorted({name for name, *_ in recorded("h200-quick.json")}))
    assert len(compared("h200-quick.json", monkeypatch, kernels=kernels, dtypes=("float32",))) >= 71


@pytest.mark.exhaustive
def test_it_gives_them_in_every_dtype_and_case(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = tuple(sorted({name for name, *_ in recorded("quick/h200.json.xz")}))
    assert len(compared("quick/h200.json.xz", monkeypatch, kernels=kernels)) >= 170


@pytest.mark.parametrize(("dtype", "lowering"), [
    ("bfloat16", "triton"), ("float32", "triton-tf32"),
    pytest.param("float16", "triton", marks=pytest.mark.exhaustive),
    pytest.param("float32", "triton", marks=pytest.mark.exhaustive),
])  # fmt: skip
@pytest.mark.parametrize("setting", ["competing", pytest.param("soft-cap window", marks=pytest.mark.exhaustive)])
def test_attention_has_the_bits_of_the_h200(setting: str, dtype: str, lowering: str) -> None:
    """mma.sync, wgmma and all around them."""
    facts, backend = kernel.load("flex_attention"), load("virtual-cuda")
    problem = facts.problem(dtype, next(one for one in facts.settings if one.name == setting), {}, 0)
    target = Target(facts, {}, setting, dtype, backend)
    one = next(one for one in lowerings(facts) if one.name == lowering)
    with backend.launching():
        outputs = one.build(target)(problem)
    for name, y in outputs.items():
        cell = recorded("h200-others.json.xz")["flex_attention", lowering, setting, dtype, name]
        assert cell["domain"]["digest"] == problem_digest(problem)
        assert root(digests(0, (), y.reshape(-1), FORMATS[str(y.dtype)[6:]], CHUNK).digests) == cell["digest"], name
    assert len(outputs) == 5


def test_ieee_arithmetic_obeys_its_formula_on_every_input() -> None:
    """`ieee` predicts every bit of the quick domain, subnormals and NaNs included."""
    selection = Selection(("add", "addcmul", "reciprocal", "div", "sqrt"), backends=("virtual-cuda",),
                          dtypes=("float32",), lowerings=("triton",), profile="quick")  # fmt: skip
    ran = [cell for cell in run(selection)["cells"] if cell["status"] != "not-run"]
    assert len(ran) >= 8
    for cell in ran:
        assert cell["formula"]["survivors"], cell["kernel"]


@pytest.mark.exhaustive
def test_ieee_arithmetic_obeys_its_formula_on_many_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "SIZES", {**domains.SIZES, "quick": 24})
    test_ieee_arithmetic_obeys_its_formula_on_every_input()
