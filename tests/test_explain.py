"""One element taken apart: its facts against hand-computed ones, its code path, and bad input."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from verify import cli
from verify.explain import COPIES, explain
from verify.formats import FORMATS
from verify.kernel import NothingToCompare, UsageError, load
from verify.numbers.ieee import IeeeSystem
from verify.numbers.trace import trace
from verify.oracle import formula

F32 = FORMATS["float32"]


def told(kernel: str, *inputs: str, **options: Any) -> dict[str, Any]:
    return explain(kernel, list(inputs), **{"lowerings": ("eager",), **options})


def entry(found: dict[str, Any], lowering: str = "eager") -> dict[str, Any]:
    return next(one for one in found["lowerings"] if one["lowering"] == lowering)


def test_a_sum_is_exact_and_correctly_rounded() -> None:
    found = told("add", "1", "0x1p-24", scalars={"alpha": 1.0})
    assert found["inputs"] == {"a": "0x1p+0", "b": "0x1p-24"}
    assert Fraction(found["exact"]) == pytest.approx(1 + Fraction(1, 2**24), abs=1e-19)
    assert found["rounded"] == "0x1p+0"  # a tie, to even
    assert found["special"] == ""
    one = entry(found)
    assert (one["output"], one["ulp"], one["int_ulp"], one["error_class"]) == ("0x1p+0", 0.5, 0, "correct")
    assert "rounded_scalars" not in found
    json.dumps(found, allow_nan=False)


def test_twenty_digits_and_their_rounding() -> None:
    found = told("exp", "1", dtype="float64")
    assert found["exact"] == "2.7182818284590452354"
    assert found["rounded"] == "0x1.5bf0a8b145769p+1"
    assert told("exp", "0x1p-20")["exact"] == "1.0000009536747711537"
    assert told("exp", "200")["exact"] == "7.2259737681257492582e+86"
    assert told("exp", "200")["rounded"] == "inf"


def test_a_cancellation_still_has_twenty_digits() -> None:
    # log(1 + 2^-23) = 2^-23 - 2^-47 + 2^-70/3 - ...
    expected = Fraction(1, 2**23) - Fraction(1, 2**47) + Fraction(1, 3 * 2**69) - Fraction(1, 2**94)
    given = Fraction(told("log", "0x1.000002p+0")["exact"])
    assert abs(given - expected) < expected * Fraction(1, 10**19)


@pytest.mark.parametrize(
    ("kernel", "inputs", "exact", "rounded", "source"),
    [
        ("pow", ["inf", "0"], "1.0", "0x1p+0", "F.10.4.5"),
        ("pow", ["nan", "1"], "nan", "nan", ""),
        ("exp", ["-inf"], "+0", "0x0p+0", "F.10"),
        ("log", ["-1"], "nan", "nan", "F.10"),
        ("lerp", ["inf", "1", "0.5"], "nan", "nan", "IEEE 754-2019"),
        ("reciprocal", ["-0"], "-inf", "-inf", "IEEE 754"),
    ],
)
def test_a_special_value_names_its_source(
    kernel: str, inputs: list[str], exact: str, rounded: str, source: str
) -> None:
    found = told(kernel, *inputs)
    assert (found["exact"], found["rounded"]) == (exact, rounded)
    assert source in found["special"]
    assert found["special"]


def test_a_result_beyond_every_format_says_so() -> None:
    assert told("pow", "1e38", "1e38")["exact"] == "2^20000 or larger in magnitude"
    assert told("pow", "1e38", "-1e38")["exact"] == "2^-20000 or smaller in magnitude, not zero"


def test_a_python_scalar_has_two_truths() -> None:
    found = told("pow", "0x1.8p+0", scalars={"y": 3.7})
    rounded = found["rounded_scalars"]
    assert rounded["scalars"]["y"] == F32.to_float(F32.round_float(3.7))
    for number, text in ((3.7, found["exact"]), (rounded["scalars"]["y"], rounded["exact"])):
        assert float(text) == pytest.approx(1.5**number, rel=1e-14)
    assert found["exact"] != rounded["exact"]
    one = entry(found)
    assert one["ulp"] != one["ulp_rounded_scalars"]
    exact = abs(Fraction(float.fromhex(one["output"])) - Fraction(rounded["exact"])) * 2**21  # ulp in [4, 8)
    assert one["ulp_rounded_scalars"] == pytest.approx(float(exact), rel=1e-9)


def test_the_first_case_with_as_many_tensors_gives_the_scalars() -> None:
    assert told("lerp", "1", "2", "0.5")["scalars"] == {}
    assert told("lerp", "1", "2")["scalars"] == {"w": 0.9}
    assert told("lerp", "1", "2", scalars={"w": 0.25})["scalars"] == {"w": 0.25}


def test_an_element_takes_the_vector_loop_and_its_tail_another() -> None:
    """CPU eager pow rounds a Python exponent to float32 in vectors only (bounds of kernels/pow.py)."""
    inputs = ("0x1.fffffep+20",)
    found = told("pow", *inputs, scalars={"y": 3.7}, spellings=("out-of-place", "tail"))
    outputs = {one["spelling"]: one for one in found["lowerings"]}
    if len(outputs) == 1:
        pytest.skip("this CPU's vector loop rounds as its scalar loop does")
    body, tail = outputs["out-of-place"], outputs["tail"]
    assert body["ulp_rounded_scalars"] < 1 < body["ulp"]
    assert tail["ulp"] <= 0.501


def test_copies_that_differ_are_told_apart(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def f(x):\n    y = 1 / x\n    y[-8:] = y[-8:] * 2\n    return y\n\n"
        "def ok(x):\n    return 1 / x\n\ndef shape(x):\n    return x[:1]\n"
    )
    found = told("reciprocal", "4", lowerings=(f"{mine}:f", "eager"))
    rows = [one for one in found["lowerings"] if one["lowering"] == "mine.py:f"]
    assert [(one["output"], one["error_class"]) for one in rows] == [("0x1p-2", "correct"), ("0x1p-1", "worse")]
    assert [f"({n} of {COPIES} copies)" in one["spelling"] for n, one in zip((56, 8), rows, strict=True)] == [True] * 2
    assert entry(found)["spelling"] == "every spelling"
    assert entry(told("reciprocal", "4", lowerings=(f"{mine}:ok",)), "mine.py:ok")["output"] == "0x1p-2"
    with pytest.raises(UsageError, match="returned shape"):
        told("reciprocal", "4", lowerings=(f"{mine}:shape",))


def test_a_lowering_that_does_not_run_has_a_reason() -> None:
    one = entry(told("exp", "1", lowerings=("triton",)), "triton")
    if torch.cuda.is_available():
        pytest.skip("needs a machine where triton does not run on the first backend")
    assert "GPUs only" in one["reason"]
    assert one["output"] == ""
    assert one["ulp"] is None


def test_formulas_step_by_step_and_who_follows_them() -> None:
    found = told("lerp", "1.5", "0.1", "0.9")
    formulas = {one["text"]: one for one in found["formulas"]}
    assert set(formulas) <= {one.text for one in load("lerp").oracle.formulas}
    plain = formulas["a + w*(b-a)"]
    a, b, w = (torch.tensor(x) for x in (1.5, 0.1, 0.9))
    steps = [(b - a), w * (b - a), a + w * (b - a)]
    assert [float.fromhex(step["value"]) for step in plain["steps"]] == [float(t) for t in steps]
    assert plain["steps"][0]["expression"] == "b - a"
    assert plain["steps"][1]["expression"] == f"w * {plain['steps'][0]['value']}"
    assert float.fromhex(plain["output"]) == float(steps[-1])
    for one in found["formulas"]:
        assert (one["output"] == entry(found)["output"]) == (one["matches"] == ["eager"])
    assert any(one["matches"] for one in found["formulas"])


def test_a_trace_gives_the_bits_of_the_formula_and_skips_the_side_not_taken() -> None:
    @formula("-|x| < 0: sqrt(|x|) - 1; else: x / 3 * max(x, 1)")
    def model(n: Any, x: Any, y: Any) -> Any:
        return n.where(-abs(x) < y, n.sqrt(abs(x)) - 1, n.max(x, 1) * (x / 3))

    half = FORMATS["float16"]
    n = IeeeSystem(F32, half)
    tensors = {"x": torch.tensor([-3.0], dtype=torch.float16), "y": torch.tensor([0.0], dtype=torch.float16)}
    output, steps = trace(n, model, tensors, {})
    root = F32.round(Fraction(math.isqrt(3 * 10**40), 10**20))
    assert [step.expression for step in steps] == [
        "sqrt(|x|)",
        f"{F32.hex(root)} - 1",
        f"float16({steps[1].value})",
    ]
    assert output == steps[-1].value == half.hex(half.round(F32.fraction(root) - 1))
    _, others = trace(n, model, {**tensors, "y": torch.tensor([-4.0], dtype=torch.float16)}, {})
    assert [step.expression.split("(")[0] for step in others][:1] != ["sqrt"]


BAD = [
    ("explain lerp --input=1,2,zz", "--input w: 'zz' is no number; expected a hex float"),
    ("explain lerp --input=1,2,0x1.0000001p+0", "is no float32 value; the nearest is 0x1p+0"),
    ("explain lerp --input=1,2,1e400", "rounds to infinity in float32, whose largest number is 0x1.fffffep+127"),
    ("explain lerp --input=1,2,0x1p+128", "rounds to infinity in float32"),
    ("kernel flex_attention --scalar scale=2", "flex_attention takes no --scalar"),
    ("explain lerp --input=1,2,1/0", "'1/0' is no number"),
    ("explain lerp --input=1,2,1e999999999", "exponent far outside float32"),
    ("explain lerp --input=1,2,#1ffffffff", "wider than the 32 bits"),
    ("explain lerp --input=1", "--input has 1 values; lerp takes 3 (a, b, w) or 2 (a, b)"),
    ("explain lerp --input=1,2,3,4", "--input has 4 values"),
    ("explain lerp --input=1,2,3 --scalar w=0.5", "--input has 3 values; lerp takes 2 (a, b)"),
    ("explain lerp --input=1,2 --scalar v=0.5", "scalars v of lerp; expected one of these sets"),
    ("explain lerp --input=1,2,3 --lowering eagr", "unknown lowering 'eagr'; did you mean eager"),
    ("explain lerp --input=1,2,3 --spelling inplace", "unknown spelling 'inplace'; did you mean in-place"),
    ("explain lerp --input=1,2,3 --backend cudda", "unknown backend 'cudda'; did you mean cuda"),
    ("explain lerp --input=1,2,3 --lowering none.py:f", "none.py does not exist"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_bad_input_is_one_line_and_exit_2(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("verify: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_backend_that_is_not_present_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without CUDA")
    with pytest.raises(NothingToCompare, match="backend cuda is not present"):
        told("exp", "1", backend="cuda")
    assert cli.main(["explain", "exp", "--input=1", "--backend", "cuda"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_an_element_fits_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "lerp", "--input=0x1.8p+0,0.1,0.9", "--lowering", "eager"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 40
    for fact in ("w=0x1.ccccccp-1", "0.24000003471970554614", "0x1.eb8524p-3", "every spelling", "correct"):
        assert fact in shown
