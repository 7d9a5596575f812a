"""A lowering of your own: what `verify show` says of it, and the file to start from, for every kernel there is."""

from __future__ import annotations

import ast
import functools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from verify import backends
from verify.cli.commands import main
from verify.facts.kernel import Composite, Kernel, load, names
from verify.lower import stubs
from verify.lower.lowering import Breach, NotLowered, Target, Unsuited
from verify.lower.lowerings import lowerings
from verify.lower.user import user_composite
from verify.reports import store
from verify.walk.plan import Selection
from verify.walk.run import run
from verify.workers.launch import LoweringError

pytestmark = pytest.mark.part(3)

#: The dtype of the trials: a small one, which nearly every kernel has.
DTYPE = "bfloat16"


def parameters(name: str) -> list[str]:
    """Those of the stub's function, in order."""
    [function] = [
        node
        for node in ast.parse(stubs.source(load(name))).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return [argument.arg for argument in function.args.args]


@pytest.mark.part(6)
@pytest.mark.parametrize("name", names())
def test_a_stub_passes_as_it_is(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every element of the first setting or of all quick cases. Where eager itself deviates, so does its copy."""
    passes(name, DTYPE, "cpu", tmp_path, capsys)


@pytest.mark.part(20)
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in names() for d in load(n).dtypes if d != DTYPE])
def test_a_stub_passes_in_every_dtype(
    name: str, dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In float16 attention's once had zeros of the wrong sign, of gradients far below what its sums may err by."""
    passes(name, dtype, "cpu", tmp_path, capsys)


@pytest.mark.gpu
@pytest.mark.parametrize("name", names())
def test_a_stub_passes_as_it_is_on_a_gpu(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In another dtype: torch's own kernels there do not have the bits of the host's."""
    backend = next(b for b in map(backends.load, backends.names()) if b.name != "cpu" and not b.unavailable())
    passes(name, "float16", backend.name, tmp_path, capsys)


@pytest.mark.parametrize("dtype", load("sqrt").dtypes)
def test_the_stub_of_sqrt_passes_where_torchs_errs(
    dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By up to 0.75 ULP, on a processor of AMD."""
    passes("sqrt", dtype, "cpu", tmp_path, capsys)


@pytest.mark.parametrize(("name", "dtype"), [("add", "float64"), ("sub", "float32")])
def test_torchs_own_passes_where_its_bits_depend_on_the_call(
    name: str, dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """alpha * b, rounded or not, by broadcast operands, also where some of them require grad."""
    (tmp_path / "mine.py").write_text(
        f"import torch\n\ndef {name}(a, b, alpha):\n    return torch.{name}(a, b, alpha=alpha)\n"
    )
    judged(name, dtype, "cpu", tmp_path, capsys)


@pytest.mark.part(3)
@pytest.mark.parametrize("name", ["add", "sub"])
def test_a_stub_has_the_same_bits_where_a_product_overflows(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch's own in float32, with an fma in vectors and none beside them, is infinite in one call alone."""
    passes(name, "bfloat16", "cpu", tmp_path, capsys, profile="default")


def passes(
    name: str, dtype: str, backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], profile: str = "quick"
) -> None:
    assert main(["show", name, "--stub"]) == 0
    (tmp_path / "mine.py").write_text(capsys.readouterr().out)
    judged(name, dtype, backend, tmp_path, capsys, profile)


def judged(
    name: str, dtype: str, backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], profile: str = "quick"
) -> None:
    kernel, out = load(name), tmp_path / "r.json"
    dtype = dtype if dtype in kernel.dtypes else kernel.dtypes[0]
    command = ["kernel", name, "--lowering", f"{tmp_path}/mine.py:{name}", "--profile", profile, "--backend", backend]
    if isinstance(kernel, Composite):
        command += ["--spelling", next(one.name for one in kernel.settings if one.quick and dtype in one.dtypes)]
    code, told = main([*command, "--dtype", dtype, "--json", str(out)]), capsys.readouterr()
    assert out.exists(), told.out + told.err
    cells = store.read(out).cells
    mine = [(c.output, str(c.scalars), c.status) for c in cells if c.lowering == f"mine.py:{name}"]  # in every layout
    eager = {(c.output, str(c.scalars), c.status) for c in cells if c.lowering == "eager"}
    allowed = {(*one, "unjudged") for *one, status in eager if status == "allowed"}  # no bound tells anything there
    assert mine and {status for *_, status in mine} <= {"passed", "deviates", "unjudged"}, told.out + told.err
    assert {one for one in mine if one[-1] != "passed"} <= eager | allowed, told.out + told.err
    assert code == 0, told.out + told.err  # what nothing resolves there, or eager's bits do not, is allowed


def test_a_powers_stub_passes_at_exponents_that_torch_treats_apart(tmp_path: Path) -> None:
    """1/sqrt(x), 1/(x * x) and x * x * x are farther off than the vendor's pow may be."""
    (tmp_path / "mine.py").write_text(stubs.source(load("pow")))
    command = ["kernel", "pow", "--lowering", f"{tmp_path}/mine.py:pow", "--profile", "quick", "--backend", "cpu"]
    out = tmp_path / "r.json"
    for y in ("-0.5", "-2.0", "3.0"):
        assert main([*command, "--dtype", "float32", "--scalar", f"y={y}", "--json", str(out)]) == 0
        mine = [cell for cell in store.read(out).cells if cell.lowering == "mine.py:pow"]
        assert mine and {cell.status for cell in mine} <= {"passed", "deviates"}, mine
        assert max(cell.judged.max_ulp for cell in mine) > 1  # or the trial could not fail


@pytest.mark.parametrize("right", [True, False])
def test_a_powers_stub_passes_in_16_bits(tmp_path: Path, right: bool) -> None:
    """The scalars 0.5 and -0.5 are roots in float32, and powers in 16 bits."""
    text, end = stubs.source(load("pow")), " if dtype.itemsize > 2 or torch.is_tensor(y) else torch.full_like(x, y)"
    assert end in text
    (tmp_path / "mine.py").write_text(text if right else text.replace(end, ""))
    command = ["kernel", "pow", "--lowering", f"{tmp_path}/mine.py:pow", "--profile", "quick", "--backend", "cpu"]
    command += ["--dtype", "float16", "--spelling", "out-of-place", "--scalar", "y=0.5"]
    assert main(command) == (0 if right else 1)


def test_a_stub_that_is_wrong_fails(tmp_path: Path) -> None:
    """The trial above can fail."""
    text = stubs.source(load("exp")).replace("torch.exp(x)", "(torch.exp(x) * 1.01)")
    assert "1.01" in text
    (tmp_path / "mine.py").write_text(text)
    command = ["kernel", "exp", "--lowering", f"{tmp_path}/mine.py:exp", "--profile", "quick", "--backend", "cpu"]
    assert main([*command, "--dtype", DTYPE]) == 1


@pytest.mark.parametrize("name", names())
def test_show_tells_how_a_lowering_of_your_own_is_called(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name]) == 0
    told = "".join(capsys.readouterr().out.split())
    kernel = load(name)
    for label, text in stubs.terms(kernel):
        assert "".join((label + text).split()) in told
    own = " ".join(label + text for label, text in stubs.terms(kernel))
    assert all(parameter in own for parameter in parameters(name))
    assert "held to" in own and "returns:" in own
    # what a user may round otherwise than the bound's figure says
    assert ("scalars:" in own) == (isinstance(load(name), Kernel) and any(load(name).cases))


@pytest.mark.parametrize("name", [name for name in names() if isinstance(load(name), Composite)])
def test_what_is_offered_by_keyword_is_given(name: str, tmp_path: Path) -> None:
    """A function with a parameter for everything that `verify show` offers is called with all of it."""
    kernel: Any = load(name)
    scalars = next(iter(kernel.cases))
    offered = [*kernel.settings[0].parameters, *scalars]
    offered += [word for names_ in kernel.keywords for word in names_.split(", ")]
    keywords = ", ".join(f"{word}=None" for word in dict.fromkeys(offered))
    (tmp_path / "mine.py").write_text(
        f"def mine({', '.join(kernel.inputs)}, {keywords}):\n"
        "    raise RuntimeError(repr(sorted(k for k, v in locals().items() if v is None)))\n"
    )
    lowering = user_composite(f"{tmp_path}/mine.py:mine")
    missing = []
    for setting in kernel.settings:
        if setting.quick:
            problem = kernel.problem(setting.dtypes[0], setting, scalars, 0)
            target = Target(kernel, scalars, setting.name, setting.dtypes[0], backends.load("cpu"))
            with pytest.raises(RuntimeError) as caught:
                lowering.build(target)(problem)  # type: ignore[arg-type]
            missing.append(set(ast.literal_eval(str(caught.value))))
    assert set.intersection(*missing) == set(), "offered, and given in no setting"


COMPOSITES = [kernel for kernel in map(load, names()) if isinstance(kernel, Composite)]


@pytest.mark.parametrize("kernel", COMPOSITES, ids=lambda kernel: kernel.name)
def test_a_function_is_not_run_where_a_setting_asks_for_more(kernel: Composite) -> None:
    """What it has no parameter for it cannot know of: of each such name one function is without it alone, and as many
    take all."""
    scalars, called = next(iter(kernel.cases)), []

    def all_of(*tensors: Any, **keywords: Any) -> Any:
        called.append(keywords)
        return ()

    for setting in kernel.settings:
        if not setting.quick:
            continue
        dtype = setting.dtypes[0]
        problem = kernel.problem(dtype, setting, scalars, 0)
        target = Target(kernel, scalars, setting.name, dtype, backends.load("cpu"))
        others = [name for name in problem.tensors if name not in kernel.inputs]
        unusual = [name for name, value in scalars.items() if kernel.defaults.get(name) != value]
        asked = [*kernel.asks(setting.parameters), *others, *unusual]
        user_composite("mine.py:f", function=all_of).build(target)(problem)
        assert set(asked) <= set(called.pop()), "the stub offers it"
        for name in asked:
            rest = ", ".join(dict.fromkeys(other for other in asked if other != name))
            scope: dict[str, Any] = {}
            exec(f"def f({', '.join(('*tensors', *filter(None, [rest])))}): return ()", scope)
            call = user_composite("mine.py:f", function=scope["f"]).build(target)
            with pytest.raises(NotLowered, match=f"has no parameter for {name}(=|$)"):
                call(problem)
            if name in scalars:  # which the user may name
                user_composite("mine.py:f", function=scope["f"], fixed=scalars).build(target)(problem)


@pytest.mark.parametrize(("signature", "inputs"), [
    ("query, key, value, grad_out", 4), ("a, b, c, d, scale", 4), ("query, key, value", 3), ("*tensors", 4),
    ("query, key, value, scale", 3), ("q, k, v, scale=None, d=None", 3), ("q, k, v, *, scale", 3), ("q, k, /, v", 3),
    ("q, k", None), ("q, k, scale, v", None),
])  # fmt: skip
def test_what_is_offered_by_name_takes_the_place_of_no_input(signature: str, inputs: int | None) -> None:
    """Without grad_out its tensor took the place of `scale`."""
    kernel: Any = load("flex_attention")
    setting = next(one for one in kernel.settings if one.name == "plain 16")
    problem = kernel.problem("float32", setting, {}, 0)
    scope: dict[str, Any] = {}
    exec(f"def f({signature}): given.append(locals())", scope | {"given": (given := [])}, scope)
    target = Target(kernel, {}, setting.name, "float32", backends.load("cpu"))
    if inputs is None:
        with pytest.raises(Unsuited, match="called by position with the inputs of flex_attention: query, key, value"):
            user_composite("mine.py:f", function=scope["f"]).build(target)
        return
    call = user_composite("mine.py:f", function=scope["f"]).build(target)
    with suppress(LoweringError, Breach):  # it returns nothing
        call(problem)
    tensors = [t for value in given[0].values() for t in (value if isinstance(value, tuple) else (value,))]
    assert sum(torch.is_tensor(t) for t in tensors) == inputs
    assert given[0].get("scale", 0.25) == 0.25


def test_inputs_may_have_the_names_of_other_things() -> None:
    """`m` and `n` are the sizes of a product, too; and a builtin has no names."""
    kernel: Any = load("mm")
    problem = kernel.problem("float32", kernel.settings[0], {}, 0)
    target = Target(kernel, {}, kernel.settings[0].name, "float32", backends.load("cpu"))
    for function in (lambda m, n: m @ n, lambda m, n, k: m[:, :k] @ n, lambda *m, n: m[0] @ m[1][:, :n], torch.mm):
        outputs: Any = user_composite("mine.py:f", function=function).build(target)(problem)
        assert torch.equal(outputs[""], problem.tensors["a"] @ problem.tensors["b"])


def test_a_module_is_called_as_its_forward_says() -> None:
    """Softmax(dim=-1) has no parameter for `dim`, and is right along the last one."""
    kernel: Any = load("softmax")
    for module in (torch.nn.Softmax(dim=-1), torch.compile(torch.nn.Softmax(dim=-1))):
        build = user_composite("mine.py:f", function=module).build
        for setting in kernel.settings[:2]:
            problem = kernel.problem("float32", setting, {}, 0)
            call = build(Target(kernel, {}, setting.name, "float32", backends.load("cpu")))
            if setting.parameters["dim"] == 0:
                with pytest.raises(NotLowered, match="has no parameter for dim=0"):
                    call(problem)
            elif isinstance(module, torch.nn.Softmax):
                outputs: Any = call(problem)
                due = problem.tensors["x"].softmax(-1)
                torch.testing.assert_close(outputs[""], due, rtol=0, atol=0, equal_nan=True)


def test_a_right_function_with_fewer_options_passes_where_it_has_them(tmp_path: Path) -> None:
    """One of attention without masks, modifications and gradients; a wrong one is told."""
    text = "import torch\ndef f(q, k, v):\n    q, k, v = q.float(), k.float(), v.float()\n"
    text += "    return (torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v).to(torch.float32)\n"
    found = {}
    for name, body in (("right", text), ("wrong", text.replace("0.5", "0.51"))):
        (tmp_path / f"{name}.py").write_text(body)
        selection = Selection(("flex_attention",), ("cpu",), ("float32",), profile="quick",
                              user_lowerings=(f"{tmp_path}/{name}.py:f",))  # fmt: skip
        mine = [cell for cell in run(selection)["cells"] if cell["lowering"] == f"{name}.py:f"]
        found[name] = {(cell["spelling"], cell["output"]): cell["status"] for cell in mine}
    assert {key for key, status in found["right"].items() if status == "passed"} == {
        ("plain 16", "out"), ("exact", "out"),
    }  # fmt: skip
    assert set(found["right"].values()) == {"passed", "not-run"}
    assert found["wrong"]["plain 16", "out"] == "exceeds-bound"


def test_a_call_is_written_as_it_is_made() -> None:
    assert stubs.expression(lambda torch, x, *, d: torch.f(x, x.shape[1:], d).values, "x", d="d") == (
        "torch.f(x, x.shape[1:], d).values"
    )
    assert stubs.expression(lambda torch, x: torch.a.b(x[0], k=x), "x") == "torch.a.b(x[0], k=x)"


def test_bounds_that_are_told_are_those_of_a_users_file() -> None:
    for kernel in map(load, names()):
        if isinstance(kernel, Kernel):
            told = " ".join(text for label, text in stubs.terms(kernel) if label.startswith("held to"))
            for dtype in kernel.dtypes:
                bound = kernel.bound(
                    lowering="own.py:f", backend="cpu", spelling=next(iter(kernel.spellings)), dtype=dtype,
                    scalars=kernel.cases[0],
                )  # fmt: skip
                assert bound is not None and f"{bound.value:.6g} {bound.metric}" in told


@pytest.mark.parametrize(("text", "told"), [
    ("def f(x, axis): return x.softmax(axis)",
     "takes (x, axis), but is called by position with the inputs of softmax: x; by name it may have dim"),
    ("def f(x, dim): return x.softmax(dim), 3", "returned 2 values; expected 1 at most, a tensor"),
    ("def f(x, dim): return (x.softmax(dim),)", "returned a tuple of one value; expected a tensor"),
    ("async def f(x, dim): return x.softmax(dim)", "is async and returns a coroutine"),
])  # fmt: skip
def test_a_function_that_cannot_be_what_is_asked_for_is_told_in_words(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(text)
    command = ["kernel", "softmax", "--lowering", f"{tmp_path}/mine.py:f", "--profile", "quick", "--backend", "cpu"]
    assert main([*command, "--dtype", "float32", "--spelling", "length-33"]) != 0
    shown = capsys.readouterr()
    assert told in " ".join((shown.out + shown.err).split()) and "Traceback" not in shown.err


@pytest.mark.parametrize(("name", "function"), [
    ("mm", lambda a, b, out: torch.mm(a, b, out=out)), ("sum", lambda x, dim, *, out: torch.sum(x, dim, out=out)),
    ("softmax", lambda x, dim, out: [out.copy_(x.softmax(dim)), None][1]),
    ("linear", lambda a, b, bias, out, activation: out.copy_(torch.nn.functional.linear(a, b.mT, bias))),
])  # fmt: skip
def test_what_writes_its_output_is_given_one(name: str, function: Any) -> None:
    kernel: Any = load(name)
    setting = kernel.settings[0]
    problem = kernel.problem("float32", setting, {}, 0)
    target = Target(kernel, {}, setting.name, "float32", backends.load("cpu"))
    given: list[Any] = []

    @functools.wraps(function)
    def kept(*tensors: Any, **keywords: Any) -> Any:
        given.append(keywords["out"])
        return function(*tensors, **keywords)

    (found,) = user_composite("mine.py:f", function=kept).build(target)(problem).values()  # type: ignore[attr-defined]
    (due,) = lowerings(kernel)[0].build(target)(problem).values()  # type: ignore[attr-defined]
    assert found is given[0] and torch.equal(found.nan_to_num(7), due.nan_to_num(7))
    other = functools.wraps(function)(lambda *tensors, out, **keywords: torch.ones_like(out))
    wrong: Any = user_composite("mine.py:f", function=other).build(target)
    with pytest.raises(Breach, match="returned other numbers than it left in `out`"):
        wrong(problem)


def test_a_layout_that_is_refused_is_not_run(tmp_path: Path) -> None:
    """Of a composite kernel's settings, too; what is raised in the plain layout is an error."""
    (tmp_path / "mine.py").write_text("""
def dense(a, b):
    if not a.is_contiguous():
        raise ValueError("dense tensors only")
    return a @ b

def none(a, b):
    raise ValueError("none at all")
""")
    given = Selection(("mm",), ("cpu",), ("float32",), spellings=("64x80x48", "strided"),
                      user_lowerings=(f"{tmp_path}/mine.py:dense", f"{tmp_path}/mine.py:none"))  # fmt: skip
    told = {(cell["lowering"], cell["spelling"]): cell for cell in run(given)["cells"]}
    assert told["mine.py:dense", "64x80x48"]["status"] == "passed"
    assert told["mine.py:dense", "strided"]["status"] == "not-run"
    assert "it refuses this layout" in told["mine.py:dense", "strided"]["reason"]
    assert told["mine.py:none", "64x80x48"]["status"] == "error"
