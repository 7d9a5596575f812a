"""One element taken apart: its facts against hand-computed ones, its code path, and bad input."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from verify.backends import cpu
from verify.cli import commands
from verify.facts.formats import FORMATS
from verify.facts.kernel import NothingToCompare, UsageError, load
from verify.facts.oracle import formula
from verify.inputs.domains import Domain, domain_of
from verify.judge.cell import conclude
from verify.lower.lowering import Target
from verify.lower.lowerings import lowerings
from verify.numbers.ieee import IeeeSystem
from verify.numbers.trace import trace
from verify.walk.cases import terms
from verify.walk.explain import COPIES, explain, judgement
from verify.walk.pointwise import Pointwise

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


# What the judge says of the element.


def mine(tmp_path: Path, body: str, kernel: str, *inputs: str, **options: Any) -> dict[str, Any]:
    """What is told of a user's function of this body, and of eager."""
    path = tmp_path / "mine.py"
    path.write_text(
        f"import torch\n\ndef f({', '.join(load(kernel).tensors(options.get('scalars', {})))}):\n    {body}\n"
    )
    return entry(told(kernel, *inputs, lowerings=(f"{path}:f", "eager"), **options), "mine.py:f")


def test_an_element_says_its_region_and_what_it_may_be() -> None:
    one = entry(told("lerp", "1.5", "0.1", "0.9"))
    assert (one["region"], one["may_be"], one["status"]) == ("normal", "within 10 scaled_ulp", "passed")
    assert 0 < one["share"] < 0.01
    assert (one["why"], one["ledger"]) == ("", {})
    below = entry(told("addcmul", "1e-30", "1e-30", "1e-12"))
    assert below["region"] == "intermediate"
    assert below["may_be"].endswith(" + 1 smallest subnormals, since an intermediate underflows")
    special = entry(told("exp", "nan"))
    assert (special["region"], special["may_be"], special["share"]) == ("special", "NaN", None)
    zero = entry(told("add", "1", "-1"))
    assert (zero["region"], zero["may_be"]) == ("exact-zero", "within 0.5 ulp, a zero being +0")
    assert entry(told("exp", "-0x1.9p+6"))["region"] == "subnormal-result"
    assert entry(told("reciprocal", "0x1p-149"))["region"] == "subnormal-operand"
    assert entry(told("exp", "89"))["region"] == "overflow"


def test_a_share_is_the_distance_over_what_the_element_may_be(tmp_path: Path) -> None:
    """3 ULP of 1 are 0.3 of 10 ULP of the scale |a| + |w (b - a)| = 1."""
    body = "return torch.full_like(a, 1 + 3 * 2.0**-23)"
    one = mine(tmp_path, body, "lerp", "1", "2", "0")
    assert one["ulp"] == 3.0
    assert one["share"] == pytest.approx(one["scaled_ulp"] / 10, rel=2.0**-20)  # the bound is 10 / (1 - 10 u)


def test_what_fails_says_why(tmp_path: Path) -> None:
    one = mine(tmp_path, "return 1.001 * (a + w * (b - a))", "lerp", "1.5", "0.1", "0.9")
    assert one["status"] == "exceeds-bound"
    assert one["share"] > 1
    assert "exceeds 10" in one["why"]
    nan = mine(tmp_path, "return a + float('nan')", "lerp", "1.5", "0.1", "0.9")
    assert (nan["status"], nan["why"]) == (
        "exceeds-bound",
        "1 element NaN where a number is due, or a number where NaN is",
    )


@pytest.mark.parametrize(
    ("x", "y"), [("0x1p-64", "-2"), ("0x1p-70", "-2"), ("0x1p-100", "-2"), ("-0x1.8p-1", "-0x1p+44")]
)
def test_underflow_makes_no_number_of_an_overflow(x: str, y: str) -> None:
    """x^-y may be the reciprocal of an x^y that underflows, and is infinite all the same."""
    facts = load("pow")
    target, eager = Target(facts, {}, "out-of-place", "float32", cpu), lowerings(facts)[0]
    domain = Domain("list", F32, ("x", "y"), patterns=((F32.parse(x), F32.parse(y)),))
    case = Pointwise(facts, {}, "float32", cpu, domain)
    for value, status in ((7.0, "exceeds-bound"), (0.0, "exceeds-bound"), (math.inf, "passed")):
        output = torch.tensor([value])
        stated, on = terms(case, target, eager, 0, "", output)
        tally = on["exact"].judge.tally(on["exact"].elements, output)
        assert conclude(on["exact"].reader.regions(tally, stated))["status"] == status
        assert judgement(case, target, eager, "", output, 0)["status"] == status


FAR = ("1e38", "-3e38", "0.9")  # b - a overflows, the result does not


def test_an_intermediate_that_overflows_admits_formulas_of_the_reference_alone(tmp_path: Path) -> None:
    plain = mine(tmp_path, "return a + w * (b - a)", "lerp", *FAR)
    assert (plain["region"], plain["status"]) == ("intermediate", "passed")
    assert "the bits of a + w*(b-a)" in plain["why"]
    assert "or, since an intermediate overflows, the bits of a + w*(b-a)" in plain["may_be"]
    other = mine(tmp_path, "return a + w * (b - a) / 3", "lerp", *FAR[:2], "1.5")
    assert other["status"] == "passed"  # the same infinity
    wrong = mine(tmp_path, "return torch.zeros_like(a)", "lerp", *FAR)
    assert wrong["status"] == "exceeds-bound"


def test_a_ledger_entry_accounts_for_eager_and_for_the_same_bits_of_a_user(tmp_path: Path) -> None:
    eager = entry(told("lerp", *FAR))
    assert eager["status"] == "deviates"
    assert list(eager["ledger"]) == ["lerp-two-sided"]
    assert "two-sided" in eager["ledger"]["lerp-two-sided"]
    same = mine(tmp_path, "return torch.lerp(a, b, w)", "lerp", *FAR)
    assert (same["status"], list(same["ledger"])) == ("deviates", ["lerp-two-sided"])
    # what another formula of the entry gives is not what eager gives
    other = mine(tmp_path, "return torch.full_like(a, -float('nan'))", "lerp", *FAR)
    assert (other["status"], other["ledger"]) == ("exceeds-bound", {})


def test_scalars_that_the_dtype_represents_have_one_truth() -> None:
    """A bound that names the rounded scalars is a bound there too."""
    kernel, scalars, spelling = load("pow"), {"y": 7.0}, "y as tensor"
    eager = lowerings(kernel)[0]
    target = Target(kernel, scalars, spelling, "float32", cpu)
    case = Pointwise(kernel, scalars, "float32", cpu, Domain("list", F32, ("x",), patterns=((F32.parse("1.5"),),)))
    y = torch.tensor([1.5**7 * 1.001])
    stated, on = terms(case, target, eager, 0, "", y)
    assert stated is not None
    assert stated.truth == "rounded"
    assert list(on) == ["exact"]
    assert judgement(case, target, eager, "", y, 0)["status"] == "exceeds-bound"


@pytest.mark.parametrize("kernel", ["lerp", "addcmul", "pow", "sigmoid"])
def test_an_element_is_judged_as_in_a_run(kernel: str) -> None:
    """Region, status, class and ledger of single elements, some of them spoiled, through tensors and through this."""
    facts = load(kernel)
    eager, scalars, seen = lowerings(facts)[0], facts.cases[0], set()
    target = Target(facts, scalars, "out-of-place", "float32", cpu)
    domain = domain_of(facts, F32, scalars, "quick")
    picked = torch.arange(0, domain.size, domain.size // 24)
    case = Pointwise(facts, scalars, "float32", cpu, domain).on([t[picked] for t in domain.chunk(0, "cpu")])
    y = eager.build(target)(*case.given(0))
    y = torch.where(picked // (domain.size // 24) % 3 == 1, y * 1.25, y)
    for k in range(len(y)):
        alone = case.on([t[[k]] for t in case.given(0)])
        stated, on = terms(alone, target, eager, 0, "", y[[k]])
        tally = on["exact"].judge.tally(on["exact"].elements, y[[k]], None, alone.formulas(0, "", y[[k]]))
        ((region, record),) = on["exact"].reader.regions(tally, stated).items()
        one = judgement(case, target, eager, "", y, k)
        assert (one["region"], one["status"]) == (region, record["status"]), (k, one)
        assert conclude({region: record})["ledger"] == list(one["ledger"])
        assert record["error"][one["error_class"]] == 1
        seen.add(one["status"])
    assert {"passed", "exceeds-bound"} <= seen


BAD = [
    ("explain lerp --input=1,2,zz", "--input w: 'zz' is not a number; expected a hex float"),
    ("explain lerp --input=1,2,0x1.0000001p+0", "is not a float32 value; the nearest is 0x1p+0"),
    ("explain lerp --input=1,2,1e400", "rounds to infinity in float32, whose largest number is 0x1.fffffep+127"),
    ("explain lerp --input=1,2,0x1p+128", "rounds to infinity in float32"),
    ("kernel flex_attention --scalar scale=2", "flex_attention takes no --scalar"),
    ("explain lerp --input=1,2,1/0", "'1/0' is not a number"),
    ("explain lerp --input=1,2,1e999999999", "exponent far outside float32"),
    ("explain lerp --input=1,2,#1ffffffff", "wider than the 32 bits"),
    ("explain lerp --input=1,2,#3f80", "'#3f80' has 4 digits, where patterns of float32 have 8"),
    ("explain lerp --input=1", "--input has 1 value; lerp takes 3 (a, b, w) or 2 (a, b)"),
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
    assert commands.main(line.split()) == 2
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
    assert commands.main(["explain", "exp", "--input=1", "--backend", "cuda"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_an_element_fits_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["explain", "lerp", "--input=0x1.8p+0,0.1,0.9", "--lowering", "eager"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 40
    for fact in ("w=0x1.ccccccp-1", "0.24000003471970554614", "0x1.eb8524p-3", "every spelling", "correct"):
        assert fact in shown
