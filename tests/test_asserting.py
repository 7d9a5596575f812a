"""`verify.check` and `assert_accurate`, and the examples of docs/own-lowering.md, which are run as they stand."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import verify
from verify.cli import asserting
from verify.facts.kernel import NothingToCompare, UsageError, is_file
from verify.inputs import domains
from verify.walk.run import run
from verify.workers import Own
from verify.workers.behaviour import digest
from verify.workers.process import behaviour_of

pytestmark = pytest.mark.part(3)

EXAMPLES = {
    name: (kernel, text)
    for name, kernel, text in re.findall(
        r"```python\n# (\w+\.py): (\w+)\n(.*?)```",
        (Path(__file__).parents[1] / "docs" / "own-lowering.md").read_text(), re.DOTALL,
    )
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(domains.SIZES, "quick", 11)


def function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, file: str = "own.py") -> Any:
    """A function of a file that is imported as a test would import it."""
    path = tmp_path / file
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return getattr(module, name)


def own(cells: list[Any]) -> list[Any]:
    return [cell for cell in cells if is_file(cell.lowering)]


def test_a_function_of_a_file_goes_to_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f = function(tmp_path, monkeypatch, "import torch\n\ndef f(x):\n    return 1 / x\n", "f")
    cells = verify.check(f, "reciprocal", dtype=torch.float32)
    assert {cell.status for cell in cells} == {"passed"} and {cell.dtype for cell in cells} == {"float32"}
    assert own(cells)[0].lowering == "own.py:f" and "process" not in own(cells)[0].flags
    crash = function(tmp_path, monkeypatch, "import os\n\ndef g(x):\n    os._exit(7)\n", "g", "crash.py")
    with pytest.raises(verify.Inaccurate, match="exit code 7"):
        verify.check(crash, "reciprocal", dtype="float32")


def test_any_other_is_judged_here_and_the_result_says_so() -> None:
    cells = own(verify.check(lambda x: 1 / x, "reciprocal", dtype=torch.float32))
    assert cells and all(cell.status == "passed" and cell.flags["process"] == "the caller's" for cell in cells)
    assert cells[0].calls is not None and cells[0].calls.made > 20
    with pytest.raises(verify.Inaccurate, match="exceeds-bound: reciprocal") as raised:
        verify.check(lambda x: (1 / x.bfloat16()).float(), "reciprocal", dtype=torch.float32)
    assert raised.value.cells and str(raised.value).startswith("reciprocal: errors against the real number")


def test_a_composite_kernel_too() -> None:
    def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.softmax(x, dim)

    assert own(verify.check(softmax, "softmax", dtype="float32", setting={"shape": "4x8"}))


@pytest.mark.parametrize("kernel", ["reciprocal", "softmax"])
def test_a_function_without_a_truth_value_is_one(kernel: str) -> None:
    """As a compiled module has none, and an empty Sequential is false."""

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, dim: int = 0) -> torch.Tensor:
            return torch.softmax(x, dim) if kernel == "softmax" else torch.reciprocal(x)

        def __len__(self) -> int:
            raise TypeError("does not support len()")

    setting = {"shape": "4x8"} if kernel == "softmax" else None
    cells = own(verify.check(Module(), kernel, dtype="float32", setting=setting))
    assert cells and {cell.status for cell in cells} == {"passed"}
    with pytest.raises(verify.Inaccurate, match=r"container\.py:Sequential: 0 of"):
        verify.check(torch.nn.Sequential(), kernel, dtype="float32", setting=setting)


OWN = """
import pytest
import torch
from verify import assert_accurate

def good(x):
    return torch.sqrt(x)

def bad(x):
    return torch.sqrt(x) * 1.001

def test_good():
    assert_accurate(good, "sqrt", dtype="float16")

def test_bad():
    assert_accurate(bad, "sqrt", dtype="float16")

def test_absent():
    assert_accurate(good, "sqrt", dtype="float16", device="mps")

def test_expected():
    with pytest.raises(AssertionError, match="errors against the real number"):
        assert_accurate(bad, "sqrt", dtype="float16")
"""


def test_the_assertion_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(OWN)
    # Without its summary, where pytest repeats whole messages if the environment has CI.
    options = ["-q", "-rN", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    assert "1 failed, 2 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("sqrt: errors against the real number") == 1 and "Traceback" not in done.stdout
    told = " ".join(done.stdout.split())
    assert f"--lowering {tmp_path}/test_own.py:bad" in told and "--json FILE" in told


def test_the_assertion_outside_of_pytest() -> None:
    """pytest's own exceptions are none that `except Exception` meets."""
    code = """
import torch, verify
from verify.facts.kernel import BackendAbsent
bad = lambda x: torch.sqrt(x) * 1.001
for fn, device, expected in ((bad, "cpu", AssertionError), (torch.sqrt, "mps", BackendAbsent)):
    try:
        verify.assert_accurate(fn, "sqrt", dtype="float16", device=device)
    except Exception as error:
        print(type(error) is expected, "exceeds-bound" in str(error))
"""
    given = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=given, cwd=Path(__file__).parents[1])
    assert done.stdout.split() == ["True", "True", "True", "False"], done.stdout + done.stderr


def test_a_file_that_checks_its_own_function_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process that imported it started another one, without an end."""
    text = "import torch, verify\ndef f(x):\n    return torch.sqrt(x)\n"
    text += "if start:\n    verify.assert_accurate(f, 'sqrt', dtype='float16', device='cpu')\n"
    f = function(tmp_path, monkeypatch, text.replace("start", "__name__ != 'own'"), "f")
    with pytest.raises(UsageError, match="a function is checked by the file that is imported"):
        verify.check(f, "sqrt", dtype="float16", device="cpu")


def test_modes_of_the_caller_that_change_no_function_change_nothing() -> None:
    with torch.inference_mode():
        cells = own(verify.check(lambda x: torch.sqrt(x), "sqrt", dtype="float16", device="cpu"))
        assert torch.is_inference_mode_enabled()
    assert {cell.status for cell in cells} == {"passed"}
    with torch.device("meta"), pytest.raises(UsageError, match="torch's default device is meta; expected cpu"):
        verify.check(torch.sqrt, "sqrt", dtype="float16", device="cpu")


def test_wrapped_functions_are_called_by_position() -> None:
    """What takes no names may have the signature of what does."""

    def sqrt(x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(x)

    @functools.wraps(sqrt)
    def wrapped(*inputs: torch.Tensor) -> torch.Tensor:
        return sqrt(*inputs)

    for one in (wrapped, functools.singledispatch(sqrt)):
        assert {cell.status for cell in own(verify.check(one, "sqrt", dtype="float16", device="cpu"))} == {"passed"}


def test_a_function_that_no_command_can_import_is_shown_without_commands() -> None:
    with pytest.raises(verify.Inaccurate) as caught:
        verify.check(lambda x: torch.sqrt(x) * 1.001, "sqrt", dtype="float16")
    assert "exceeds-bound" in str(caught.value)
    assert "verify explain" not in str(caught.value) and "--json" not in str(caught.value)


def test_an_absent_device_and_a_case_that_does_not_fit() -> None:
    with pytest.raises(NothingToCompare, match="mps"):
        verify.check(torch.sqrt, "sqrt", device="mps")


@pytest.mark.parametrize("fn", [None, "mine.py:f"])
def test_what_is_no_function_is_refused(fn: Any) -> None:
    with pytest.raises(UsageError, match=rf"^fn={fn!r}; expected a function; of FILE.py:FUNCTION, import the function"):
        verify.check(fn, "sqrt", dtype="float16", device="cpu")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kernel": ["sqrt"]}, "kernel=['sqrt']; expected a name of `verify list`"),
        ({"profile": "qick"}, "unknown profile 'qick'; did you mean quick"),
        ({"seed": "3"}, "seed='3'; expected a whole number"),
        ({"seed": True}, "seed=True; expected a whole number"),
        ({"algorithm": 5}, "algorithm=5; expected a text"),
        ({"device": ["cpu"]}, "device ['cpu'] is none that torch knows"),
        ({"scalars": {1: 2.0}}, "scalars={1: 2.0}; expected numbers by name"),
        ({"setting": {1: "2"}}, "setting={1: '2'}; expected texts by name"),
        ({"scalars": {"exponent": "2"}}, "scalars={'exponent': '2'}; expected numbers by name"),
        ({"setting": {"dim": 0}}, "setting={'dim': 0}; expected texts by name"),
        ({"scalars": {"exponent": True}}, "scalars={'exponent': True}; expected numbers by name"),
        ({"scalars": {"exponent": 10**400}}, "scalars={'exponent': 1000"),
        ({"timeout": -1}, "timeout=-1; expected a number above 0"),
        ({"timeout": 1e20}, "timeout=1e+20; expected a number above 0, 1,000,000 at most"),
        ({"memory": 1e10}, "memory=10000000000.0; expected a number above 0, 1,000,000,000 at most"),
        ({"memory": float("nan")}, "memory=nan; expected a number above 0"),
        ({"device": "meta"}, "device 'meta' has no backend; expected one of cpu, cuda"),
        ({"device": "cpu:1"}, "device 'cpu:1': lowerings run on the current one, cpu:0"),
    ],
)
def test_an_option_that_the_command_would_refuse_is_refused(options: dict[str, Any], told: str) -> None:
    """The test is not skipped, and the mistake is not this project's."""
    with pytest.raises(UsageError, match=f"^{re.escape(told)}"):
        verify.check(torch.sqrt, **{"kernel": "sqrt", "dtype": "float16", "device": "cpu", **options})


def test_a_truth_in_doubt_beside_a_function_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubted(selection: Any) -> Any:
        report = run(selection)
        (eager,) = [cell for cell in report["cells"] if cell["lowering"] == "eager"]
        eager |= {"status": "oracle-violation", "reason": "outside its enclosure", "reason_kind": "oracle"}
        return report

    options: dict[str, Any] = {"dtype": "float16", "device": "cpu"}
    assert verify.check(lambda x: torch.sqrt(x), "sqrt", **options)
    monkeypatch.setattr(asserting, "run", doubted)
    with pytest.raises(verify.Inaccurate, match="oracle-violation"):
        verify.check(lambda x: torch.sqrt(x), "sqrt", **options)


NEEDS: dict[str, Callable[[], bool]] = {
    "kernel.py": torch.cuda.is_available,
    "extension.py": lambda: bool(shutil.which("c++") and importlib.util.find_spec("ninja")),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kernel, text = EXAMPLES[name]
    if not NEEDS.get(name, lambda: True)():
        pytest.skip(f"{name} needs {'a GPU' if name == 'kernel.py' else 'a C++ compiler and ninja'}")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    device = torch.accelerator.current_accelerator() if name == "kernel.py" else None
    path = tmp_path / name
    path.write_text(text)
    f = function(tmp_path, monkeypatch, text, kernel, name)
    cells = own(verify.check(f, kernel, dtype="float32", device=None if device is None else device.type))
    assert cells and cells[0].status == "passed" and "process" not in cells[0].flags


def test_what_docs_trust_says_names_tests_that_exist() -> None:
    root = Path(__file__).parents[1]
    named = re.findall(r"`(tests/\w+\.py)(?:::(\w+))?`", (root / "docs" / "trust.md").read_text())
    assert len(named) > 10
    for file, test in named:
        assert f"def {test}" in (root / file).read_text(), (file, test)


FAST = """
import functools, torch, helping

APPROX = False
SCALE = torch.ones(())

class Config:
    factor = 1.0

CONFIG = Config()

def f(x):
    y = inner(x.bfloat16()).to(x.dtype) if APPROX else inner(x)
    return y * SCALE.to(x.dtype) * CONFIG.factor

def inner(x):
    return helping.exp(x)

def decorated(f):
    return functools.wraps(f)(lambda x: f(x))

@decorated
def within(x):
    return f(x)
"""


@pytest.fixture(name="fast")
def _fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    function(tmp_path, monkeypatch, "import torch\n\ndef exp(x):\n    return torch.exp(x)\n", "exp", "helping.py")
    function(tmp_path, monkeypatch, FAST, "f", "fast.py")
    return sys.modules["fast"]


OPTIONS: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}


@pytest.mark.parametrize("name", ["f", "within"])
def test_what_is_as_in_the_file_has_a_process_of_its_own(fast: Any, name: str) -> None:
    assert "process" not in own(verify.check(getattr(fast, name), "exp", **OPTIONS))[0].flags


@pytest.mark.parametrize(("name", "where", "what"), [
    ("f", "", "APPROX"), ("f", "", "inner"), ("f", "", "SCALE"), ("f", "CONFIG", "factor"), ("f", "Config", "factor"),
    ("f", "helping", "exp"), ("within", "", "APPROX"), ("f", "", "itself"), ("f", "", "compiled"),
])  # fmt: skip
def test_what_is_replaced_after_the_import_is_what_is_judged(
    fast: Any, monkeypatch: pytest.MonkeyPatch, name: str, where: str, what: str
) -> None:
    f = getattr(fast, name)

    @functools.wraps(f)
    def lossy(x: torch.Tensor) -> torch.Tensor:
        return f(x.bfloat16()).to(x.dtype)

    values = {
        "APPROX": True, "SCALE": torch.tensor(1.001), "factor": 1.001, "itself": lossy,
        "inner": lambda x: torch.exp(x) * 1.001, "exp": lambda x: torch.exp(x) * 1.001,
        "compiled": torch.compile(f, backend=lambda graph, _: lambda *given: [given[0] + 1]),
    }  # fmt: skip
    place = getattr(fast, where) if where else fast
    monkeypatch.setattr(place, name if what in ("itself", "compiled") else what, values[what])
    with pytest.raises(verify.Inaccurate) as raised:
        verify.check(getattr(fast, name), "exp", **OPTIONS)
    told = [cell.flags.get("process") for cell in own(raised.value.cells) if cell.error]
    assert set(told) <= {"the caller's"}


HOLDING = """
import collections, contextvars, dataclasses, enum, functools, logging, re, sys, threading, types
import numpy as np, pydantic, rich, torch, package, installed
from package.inner import factor
from installed import other

class Slotted:
    __slots__ = ("factor",)

class Called:
    def __call__(self):
        return 1.0

@dataclasses.dataclass
class Options:
    factor: float = 1.0

class Checked(pydantic.BaseModel):
    factor: float = 1.0

class Way(enum.Enum):
    EXACT = 1.0
    LOSSY = 1.01

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(()), requires_grad=False)

    def forward(self):
        return self.factor

def one():
    return 1.0

SPACE = types.SimpleNamespace(factor=1.0)
MODULE = Scale()
TABLE = {"factor": torch.ones(())}
SLOTTED = Slotted()
SLOTTED.factor = 1.0
CALLED = Called()
OPTIONS = Options()
CHECKED = Checked()
WAY = Way.EXACT
ARRAY = np.ones(1)
TURNS = collections.deque([1.0])
WAYS = {"plain": one}
LONG = [1.0] * 100
LARGE = torch.ones(1 << 18)
MIXED = [1.0, None, one]
GLOBAL = 1.0
VARIABLE = contextvars.ContextVar("VARIABLE", default=1.0)
EXP = torch.exp
WITHIN = torch.float64
LOCK, LOG, PATTERN = threading.Lock(), logging.getLogger("own"), re.compile("x")

@functools.lru_cache
def kept(n):
    return 1.0 if PATTERN.match("x") else 0.0

def f(x):
    with LOCK:
        LOG.debug("called by %s", "__main__" in sys.modules and rich.get_console)
    factors = [
        SPACE.factor, MODULE(), TABLE["factor"], SLOTTED.factor, CALLED(), OPTIONS.factor, WAY.value, ARRAY[0],
        TURNS[0], WAYS["plain"](), LONG[0], LARGE[0], MIXED[0], f.factor, globals()["GLOBAL"], package.FACTOR,
        factor(), kept(1), other(), installed.THERE.factor, VARIABLE.get(), CHECKED.factor,
    ]
    y = EXP(x.to(WITHIN)).abs()
    for one in factors:
        y = y * float(one)
    return y.to(x.dtype)

f.factor = 1.0
"""

INSTALLED = """
FACTOR = 1.0

class There:
    factor = 1.0

THERE = There()

def other():
    return FACTOR
"""

REPLACED: dict[str, Callable[[Any], Any]] = {
    "SPACE": lambda own: setattr(own.SPACE, "factor", 1.01),
    "MODULE": lambda own: own.MODULE.factor.fill_(1.01),
    "TABLE": lambda own: own.TABLE["factor"].fill_(1.01),
    "SLOTTED": lambda own: setattr(own.SLOTTED, "factor", 1.01),
    "CALLED": lambda own: setattr(own.Called, "__call__", lambda self: 1.01),
    "OPTIONS": lambda own: setattr(own.OPTIONS, "factor", 1.01),
    "CHECKED": lambda own: setattr(own.CHECKED, "factor", 1.01),
    "WAY": lambda own: setattr(own, "WAY", own.Way.LOSSY),
    "ARRAY": lambda own: own.ARRAY.fill(1.01),
    "TURNS": lambda own: own.TURNS.appendleft(1.01),
    "WAYS": lambda own: own.WAYS.update(plain=lambda: 1.01),
    "LONG": lambda own: own.LONG.insert(0, 1.01),
    "LARGE": lambda own: own.LARGE.fill_(1.01),
    "MIXED": lambda own: own.MIXED.insert(0, 1.01),
    "attribute": lambda own: setattr(own.f, "factor", 1.01),
    "GLOBAL": lambda own: setattr(own, "GLOBAL", 1.01),
    "package": lambda own: setattr(own.package, "FACTOR", 1.01),
    "inner": lambda own: setattr(sys.modules["package.inner"], "INNER", 1.01),
    "installed": lambda own: setattr(own.installed, "FACTOR", 1.01),
    "class installed": lambda own: setattr(own.installed.There, "factor", 1.01),
    "VARIABLE": lambda own: own.VARIABLE.set(1.01),
    "EXP": lambda own: setattr(own, "EXP", torch.exp2),
    "WITHIN": lambda own: setattr(own, "WITHIN", torch.bfloat16),
    "too much": lambda own: setattr(own, "TURNS", [1.01] * (1 << 19)),
}


@pytest.fixture(name="holding")
def _holding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("FACTOR = 1.0\n")
    (tmp_path / "package" / "inner.py").write_text("INNER = 1.0\n\ndef factor():\n    return INNER\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    (tmp_path / "elsewhere" / "installed.py").write_text(INSTALLED)
    function(tmp_path, monkeypatch, HOLDING, "f", "holding.py")
    yield sys.modules["holding"]
    for name in ("package", "package.inner", "installed"):
        sys.modules.pop(name, None)


def elsewhere(path: str) -> str:
    """The digest in a process of its own, as `verify.workers` has it."""
    own = Own(f"{path}:f", composite=False, timeout=60.0, memory=None)
    try:
        return str(own.behaviour("cpu"))
    finally:
        own.worker("cpu").end()


def test_what_a_function_holds_is_told(holding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is kept in; and what differs from one process to the next, such as a lock's address, is not."""
    there, known = elsewhere(holding.__file__), set()
    assert behaviour_of(holding.f, holding.__file__) == there
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "abs", lambda x: x * 1.01)
        assert behaviour_of(holding.f, holding.__file__) != there
    for mode in (torch.no_grad(), torch.autocast("cpu")):
        with mode:
            assert behaviour_of(holding.f, holding.__file__) != there
    for name, replace in REPLACED.items():
        replace(holding)
        now = behaviour_of(holding.f, holding.__file__)
        assert now not in known | {there}, name
        known.add(now)
    with pytest.raises(verify.Inaccurate):
        verify.check(holding.f, "exp", **OPTIONS)


def test_a_scalar_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="alpha=inf as a scalar; expected a finite number"):
        verify.check(torch.add, "add", dtype=torch.float32, device="cpu", scalars={"alpha": float("inf")})


@pytest.mark.parametrize("exponent", [3, 3.0])
def test_a_scalar_may_be_an_integer(exponent: float) -> None:
    """As on the command line, the number; an int was an exception in pow's own facts."""
    cells = verify.check(lambda x, y: torch.pow(x, y), "pow", dtype="float16", device="cpu", scalars={"y": exponent})
    assert {cell.status for cell in cells} == {"passed"} and all(cell.scalars == {"y": 3.0} for cell in cells)


def test_what_is_interrupted_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever Ctrl-C meets it: as the function runs in this process, or while the one of its own is waited for."""

    def interrupting(x: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify.check(interrupting, "exp", **OPTIONS)
    f = function(tmp_path, monkeypatch, "import time\n\ndef f(x):\n    time.sleep(30)\n", "f")
    timer = threading.Timer(8.0, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        verify.assert_accurate(f, "exp", **OPTIONS)
    timer.cancel()


VARIABLE = """
import os, torch

FAST = os.environ.get("FAST")

def f(x):
    return x + 1 if FAST else torch.exp(x)
"""


def test_variables_are_those_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verify.check(function(tmp_path, monkeypatch, VARIABLE, "f"), "exp", **OPTIONS)
    monkeypatch.setenv("FAST", "1")
    with pytest.raises(verify.Inaccurate):
        verify.check(function(tmp_path, monkeypatch, VARIABLE, "f"), "exp", **OPTIONS)


READING = """
LIMIT = {"a": (1, frozenset({"x", "y"}))}

def f(x, n=2):
    return g(x) + LIMIT["a"][0] if x in {"p", "q"} else 0

def g(x):
    return x
"""


def test_behaviour_is_that_of_the_code() -> None:
    def made(text: str) -> Any:
        there: dict[str, Any] = {}
        exec(compile(text, "/nowhere/own.py", "exec", dont_inherit=True), there)
        return digest(there["f"], "/nowhere/own.py")

    same = made(READING)
    assert same == made(READING + "def h(x):\n    return 1\n") == made(READING + "CACHE = {}\n")
    for old, new in (("n=2", "n=3"), ("(1,", "(2,"), ('"y"', '"z"'), ("return x\n", "return -x\n"), ('"q"', '"r"')):
        assert old in READING and made(READING.replace(old, new)) != same, old
    code = f"""
from verify.workers.behaviour import digest
there = {{}}
exec(compile({READING!r}, "/nowhere/own.py", "exec"), there)
print(digest(there["f"], "/nowhere/own.py"))
"""
    for seed in ("1", "2"):  # of strings' hashes, which order sets
        asked = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert asked.stdout.split() == [same]
