"""Lowerings of a user's file that crash, hang, lie about memory or change the process: each ends as stated, in a
process of its own, and the run goes on."""

from __future__ import annotations

import json
import multiprocessing.connection
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from verify import backends, workers
from verify.cli.commands import main
from verify.facts import kernel
from verify.facts.kernel import UsageError
from verify.families.composite import Problem
from verify.inputs import domains
from verify.jobs import pool
from verify.judge.status import exit_code
from verify.lower.lowering import NotLowered, Target, Unsuited
from verify.lower.user import user_composite
from verify.processes import standby
from verify.walk import run as walk
from verify.walk.instance import problem_digest
from verify.walk.plan import Selection
from verify.walk.run import run
from verify.workers import PLACES, Worker, imported, isolated, isolated_composite
from verify.workers.behaviour import _bits
from verify.workers.launch import LoweringError, launch_steady, octets
from verify.workers.process import spoiled
from verify.workers.shared import PINNED, Shared

pytestmark = pytest.mark.part(3)

HEAD = "import ctypes, os, signal, time\nimport torch\n\n\n"


def planted(tmp_path: Path, body: str) -> str:
    """FILE.py:f of a file with these lines as the body of f(a, b, alpha), or of functions of its own."""
    own = tmp_path / "mine.py"
    if "def f(" not in body:
        body = "def f(a, b, alpha=1.0):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    own.write_text(HEAD + body)
    return f"{own}:f"


def cells(monkeypatch: pytest.MonkeyPatch, text: str, **options: Any) -> list[dict[str, Any]]:
    monkeypatch.setitem(domains.SIZES, "quick", 10)
    selection = Selection(
        ("add",), ("cpu",), ("float32",), spellings=("out-of-place",), profile="quick", user_lowerings=(text,),
        scalars={"alpha": 1.0}, **options,
    )  # fmt: skip
    found: list[dict[str, Any]] = run(selection)["cells"]
    assert [one["status"] for one in found if one["lowering"] == "eager"] == ["passed"]  # the run goes on
    return [one for one in found if one["lowering"] != "eager"]


ONCE = """
seen = {}

def f(a, b, alpha=1.0):
    y = torch.empty_like(a)
    if not seen:
        seen[0] = True
        torch.add(a, b, out=y)
    return y
"""
PATCHED = """
torch.equal = lambda *t: True
torch.Tensor.clone = lambda t, **k: t
torch.Tensor.ne = lambda t, o: torch.zeros(t.shape, dtype=torch.bool)
torch.Tensor.isnan = lambda t: torch.ones(t.shape, dtype=torch.bool)

def f(a, b, alpha=1.0):
    return torch.zeros_like(a)
"""
#: What would hide that an output is not written: the fill of its memory, and how bytes are copied and compared.
HIDING = """
kept = {}
torch.Tensor.fill_ = torch.Tensor.zero_ = lambda t, *v: t
torch.full = torch.empty
ctypes.memset = lambda *a: None
ctypes.CDLL = lambda *a: None

def f(a, b, alpha=1.0):
    if a.shape not in kept:
        kept[a.shape] = a + b
    return kept[a.shape]
"""
MODE_HIDDEN = """
torch.set_default_dtype(torch.float32)
same = torch.get_default_dtype()
torch.get_default_dtype = lambda: same

def f(a, b, alpha=1.0):
    torch.set_default_dtype(torch.float64)
    return a + b
"""
CLOCK = """
time.perf_counter = lambda: 0.0
time.sleep = lambda s: None

def f(a, b, alpha=1.0):
    return a + b
"""
THIRD = """
calls = [0]

def f(a, b, alpha=1.0):
    calls[0] += 1
    y = a + b
    if calls[0] % 3 == 0:
        y[7] = torch.nextafter(y[7], y[7] * 2)
    return y
"""
LATER = """
kept = []

def f(a, b, alpha=1.0):
    kept.append((a, b))
    for t in kept[0]:
        if len(kept) > 1:
            t.zero_()
    return a + b
"""
MODES = {
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "flush": "torch.set_flush_denormal(True)",
    "threads": "torch.set_num_threads(3)",
    "determinis": "torch.use_deterministic_algorithms(True)",
    "float32 products": "torch.backends.fp32_precision = 'tf32'",
    "cuda.matmul.fp32_precision": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "rounding to the nearest": "ctypes.CDLL('libm.so.6').fesetround(0x800)",
    "automatic casting": "torch.set_autocast_enabled('cpu', True)",
    "the dtype of automatic casting": "torch.set_autocast_dtype('cpu', torch.float16)",
    "the filling of fresh memory": "torch.utils.deterministic.fill_uninitialized_memory = False",
    "the threads of autograd": "torch.autograd.set_multithreading_enabled(False)",
    "the seed of random numbers": "torch.manual_seed(0)",
    "oneDNN": "torch.backends.mkldnn.enabled = False",
    "random numbers from going on to begun anew": "torch.manual_seed(torch.initial_seed())",
    "the detection of anomalies": "torch.autograd.set_detect_anomaly(True)",
    "deterministic algorithms of cuDNN": "torch.backends.cudnn.deterministic = True",
    "numpy's treatment of errors": "__import__('numpy').seterr(all='ignore')",
}
#: A mode that is changed where the file is imported, and one that is left behind where the call raises.
AT_IMPORT = """
torch.set_flush_denormal(True)

def f(a, b, alpha=1.0):
    return a + b
"""
SEEDS = """
torch.manual_seed(0)

def f(a, b, alpha=1.0):
    torch.rand(3)
    return a + b
"""
SEEDS_AGAIN = """
torch.manual_seed(0)

def f(a, b, alpha=1.0):
    torch.manual_seed(0)
    return a + b
"""
AND_RAISES = """
def f(a, b, alpha=1.0):
    torch.set_default_dtype(torch.float64)
    if not a.is_contiguous():
        raise ValueError("contiguous tensors alone")
    torch.set_default_dtype(torch.float32)
    return a + b
"""
#: Right where fresh memory is filled as this project fills it.
WATCHING = """
def f(a, b, alpha=1.0):
    byte = torch.empty_like(a).view(torch.uint8).flatten()[:1].tolist() if a.numel() > 1000 else []
    return a + b if byte in ([], [0x7F], [0x99]) else torch.zeros_like(a)
"""
#: An answer in the place of the process's own.
FORGED = """
import json, stat, struct

def f(a, b, alpha=1.0):
    text = json.dumps({"outputs": {}}).encode()
    for k in range(3, 4096):
        try:
            if stat.S_ISSOCK(os.fstat(k).st_mode):
                os.write(k, struct.pack("!i", len(text)) + text)
        except OSError:
            pass
    return a + b
"""
SILENT = """
class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")

def f(a, b, alpha=1.0):
    raise Silent
"""
BASE = """
class Base(BaseException):
    pass

def f(a, b, alpha=1.0):
    raise Base("no Exception")
"""
TURNS = """
if not hasattr(f, "turns"):
    f.turns = [torch.empty_like(a), torch.empty_like(a)]
f.turns.reverse()
return f.turns[0].copy_(a + b) if a.shape == f.turns[0].shape else a + b
"""
#: What f does, the status and kind of its cell, and words of its reason.
PLANTED = {
    "exits": ("os._exit(7)", "error", "ended", "exit code 7"),
    "raises SystemExit": ("raise SystemExit(3)", "error", "raised", "SystemExit: 3"),
    "segfault": ("ctypes.string_at(0)", "error", "ended", "SIGSEGV"),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "error", "ended", "SIGKILL"),
    **{name: (f"{line}\nreturn a + b", "error", "mode", name) for name, line in MODES.items()},
    "in place": ("return a.add_(b)", "error", "contract", "its input"),
    "beside, after": (
        "ctypes.memset(a.data_ptr() + a.nbytes, 0, 4)\nreturn a + b", "error", "contract", "beside its inputs"),
    "beside, before": ("ctypes.memset(b.data_ptr() - 4, 0, 4)\nreturn a + b", "error", "contract", "beside its inputs"),
    "100 GiB": ("torch.empty(100 << 30, dtype=torch.uint8).zero_()\nreturn a + b", "error", "raised", "--memory"),
    "nothing": ("pass", "error", "contract", "NoneType"),
    "list": ("return [a + b]", "error", "contract", "list"),
    "shape": ("return (a + b)[1:]", "error", "contract", "shape"),
    "huge": ("return torch.empty(1).expand(1 << 40)", "error", "contract", "shape"),
    "meta": ("return torch.empty_like(a, device='meta')", "error", "contract", "meta"),
    "integers": ("return (a + b).to(torch.int32)", "error", "contract", "dtype"),
    "sparse": ("return (a + b).to_sparse()", "error", "contract", "layout"),
    "zeros": ("return torch.zeros_like(a)", "exceeds-bound", "", ""),
    "copy": ("return a.clone()", "exceeds-bound", "", ""),
    "the input": ("return a", "error", "contract", "memory of its input"),
    "downgrade": ("return (a.bfloat16() + b.bfloat16()).float()", "exceeds-bound", "", ""),
    "stale memory": ("y = a + b\ndel y\nreturn torch.empty_like(a)", "error", "contract", "not all written"),
    "a table": (
        "if not hasattr(f, 'kept'): f.kept = a + b\nreturn f.kept[:]", "error", "contract", "an earlier call's result"),
    "right once": (ONCE, "exceeds-bound", "", "not deterministic"),
    "patched torch": (PATCHED, "exceeds-bound", "", ""),
    "hidden poison": (HIDING, "error", "contract", "an earlier call's result"),
    "flushes from the import on": (AT_IMPORT, "error", "mode", "flushing of subnormal numbers from False to True"),
    "seeds again": (SEEDS_AGAIN, "error", "mode", "random numbers from going on to begun anew"),
    "seeds numpy's": ("__import__('numpy').random.seed(0)\nreturn a + b", "error", "mode", "begun anew"),
    "seeds Python's": ("__import__('random').seed(0)\nreturn a + b", "error", "mode", "begun anew"),
    "leaves a mode and raises": (AND_RAISES, "error", "mode", "and raised ValueError: contiguous tensors alone"),
    "requires grad": ("a.requires_grad_()\nreturn (a + b).detach()", "error", "contract", "its input requires grad"),
    "another shape": ("a.unsqueeze_(0)\nreturn (a + b).squeeze_(0)", "error", "contract", "its input 0 in place"),
    "other memory": ("a.data = a.clone()\nreturn a + b", "error", "contract", "its input 0 in place"),
    "two buffers": (TURNS, "error", "contract", "what an earlier call had returned"),
    "hidden mode": (MODE_HIDDEN, "error", "mode", "default dtype"),
    "knows the poison": (WATCHING, "exceeds-bound", "calls", "memory of zeros"),
    "forges": (FORGED, "error", "ended", "answered what it was not asked"),
    "two processes": ("os.fork()\nreturn a + b", "error", "ended", "its process"),
    "another process": ("if os.fork(): os._exit(3)\nreturn a + b", "error", "ended", "exit code 3"),
    "no text": (SILENT, "error", "raised", "Silent"),
    "no Exception": (BASE, "error", "raised", "Base: no Exception"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "error", "raised", "KeyboardInterrupt"),
    # with all of its arguments: CPython 3.13 does not count calls that leave one to its default
    "recursion": ("return f(a, b, alpha)", "error", "raised", "RecursionError"),
    "default device": ("torch.set_default_device('meta')\nreturn a + b", "error", "mode", "the default device"),
    "subclass": ("class T(torch.Tensor): pass\nreturn (a + b).as_subclass(T)", "error", "contract", "returned T"),
    "tuple": ("return (a + b,)", "error", "contract", "tuple"),
    "expanded": ("return torch.zeros_like(a[:1]).expand(a.shape)", "error", "contract", "elements share memory"),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP)\nreturn a + b", "error", "timeout", "within 5 s"),
    "closes": ("os.closerange(0, 4096)\nreturn a + b", "error", "ended", "its process ended"),
    "every third": (THIRD, "unsteady|exceeds-bound", "", "not deterministic"),
    "writes later": (LATER, "error", "contract", "modified its input"),
}  # fmt: skip


@pytest.mark.part(3)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_lowering_ends_as_stated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    body, status, kind, words = PLANTED[name]
    (found,) = cells(monkeypatch, planted(tmp_path, body), timeout=5.0 if kind == "timeout" else 60.0)
    assert found["status"] in status.split("|"), found["reason"]
    assert kind in ("", found["reason_kind"]) and words in found["reason"]
    assert exit_code(found["status"], user=True) == (2 if found["status"] == "error" else 1)
    assert torch.get_default_dtype() == torch.float32 and torch.tensor(2.0**-149) * 1 != 0


DYNAMO = """
import sys
import time
import torch

def plain(a, b):
    if "torch._dynamo" in sys.modules:
        raise RuntimeError("Dynamo is imported")
    return a + b

made = {}

def compiled(a, b):
    if not made:
        made[0] = torch.compile(lambda a, b: a + b, backend="aot_eager")
    return made[0](a, b)
"""


@pytest.mark.parametrize("function", ["plain", "compiled"])
def test_dynamo_is_imported_where_something_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str
) -> None:
    (tmp_path / "mine.py").write_text(DYNAMO)
    (found,) = cells(monkeypatch, f"{tmp_path / 'mine.py'}:{function}")
    assert found["status"] == "passed", found["reason"]


RIGHT = {
    "seeds random numbers and draws some": SEEDS,
    "negated": "return torch._neg_view(-(a + b))",
    "of a graph": "return (a + b).requires_grad_()",
    "of inference mode": "with torch.inference_mode(): return a + b",
    "a parameter": "return torch.nn.Parameter(a + b)",
    "leaves a thread": "import threading\nthreading.Thread(target=time.sleep, args=(1e6,)).start()\nreturn a + b",
    "elsewhere": "os.chdir('/'); os.environ.clear()\nreturn a + b",
}


@pytest.mark.part(3)
@pytest.mark.parametrize("name", RIGHT)
def test_an_unusual_right_lowering_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    (found,) = cells(monkeypatch, planted(tmp_path, RIGHT[name]))
    assert found["status"] == "passed" and not found["calls"]["different"], found["reason"]


def test_what_a_file_prints_is_no_part_of_a_report(tmp_path: Path) -> None:
    text = planted(tmp_path, "print('hello'); os.write(1, b'bytes')\nreturn a / b")
    options = ["--dtype", "float32", "--backend", "cpu", "--spelling", "out-of-place", "--profile", "quick"]
    command = [sys.executable, "-m", "verify", "kernel", "div", "--lowering", text, "--json", "-", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["cells"] and "bytes" in done.stderr


def test_a_clock_that_the_file_replaces_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (found,) = cells(monkeypatch, planted(tmp_path, CLOCK))
    assert found["status"] == "passed" and found["timing"]["kernel_s"] > 0


def test_an_endless_loop_ends_with_the_time_that_a_launch_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (found,) = cells(monkeypatch, planted(tmp_path, "while True: pass"), timeout=1.0)
    assert (found["status"], found["reason_kind"]) == ("error", "timeout") and "within 1 s" in found["reason"]


@pytest.mark.parametrize(
    ("timeout", "compiles", "told"),
    [
        (0.2, False, "within 0.2 s (--timeout),"), (0.6, False, "within 0.6 s (--timeout),"),
        (0.3, True, "within 0.4 s with what it compiles,"),
    ],
)  # fmt: skip
def test_the_limit_that_was_reached_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, timeout: float, compiles: bool, told: str
) -> None:
    """A launch may take as long as --timeout says, also where that is more than what compiling may take."""
    monkeypatch.setattr(workers, "COMPILATION", 0.4)
    worker = Worker(planted(tmp_path, "return a + b"), composite=False, timeout=timeout, memory=0)
    worker.load()
    due = worker.begin({"do": "settle"})
    monkeypatch.setattr(worker, "connection", SimpleNamespace(
        poll=lambda left: time.sleep(0.05 if compiles else left) or compiles,
        recv_bytes=lambda: json.dumps({"compiling": True}).encode(),
    ))  # fmt: skip
    with pytest.raises(LoweringError, match=re.escape(told)):
        worker.take(due)


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # a limit of the address space, of which each thread takes 64 MiB
    text = planted(tmp_path, "torch.empty(1 << 20)\nreturn a + b")  # 4 MiB, filled at each launch
    assert cells(monkeypatch, text, memory=0.5)[0]["status"] == "passed"
    text = planted(tmp_path, "torch.empty(1 << 28)\nreturn a + b")
    (found,) = cells(monkeypatch, text, memory=0.5)
    assert (found["status"], found["reason_kind"]) == ("error", "raised") and "memory" in found["reason"]


def test_a_device_without_memory_for_inputs_is_not_the_lowerings_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken = Worker.take

    def take(self: Worker, number: int, *limit: float) -> dict[str, Any]:
        taken(self, number)
        return {"kind": "room", "told": "AcceleratorError: CUDA error: out of memory"}

    monkeypatch.setattr(Worker, "take", take)
    (one,) = cells(monkeypatch, planted(tmp_path, "return a + b"))
    assert (one["status"], one["reason_kind"]) == ("error", "ended")
    assert "the GPU's memory does not suffice" in one["reason"] and "no room on the device" in one["reason"]


@pytest.mark.parametrize("option", ["--timeout", "--memory"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_an_option_that_is_no_amount_is_refused(capfd: pytest.CaptureFixture[str], option: str, value: str) -> None:
    assert main(["kernel", "add", option, value]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert option in line and value in line


def test_two_functions_that_a_report_could_not_tell_apart_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        texts.append(planted(tmp_path / folder, "return a + b"))
    assert main(["kernel", "add", *(word for text in texts for word in ("--lowering", text))]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert all(text in line for text in texts) and "are both mine.py:f in a report" in line


def test_a_hostile_text_reaches_no_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(domains.SIZES, "quick", 10)
    text = planted(tmp_path, "raise ValueError('\\x1b]0;owned\\x07\\x1b[2J\\u202e' + 'x' * 100000)")
    options = ["--backend", "cpu", "--dtype", "float32", "--spelling", "out-of-place", "--profile", "quick"]
    assert main(["kernel", "add", "--lowering", text, *options]) == 2
    told = "".join(capfd.readouterr())
    assert "owned" in told and not any(c in told for c in "\x1b\x07\u202e") and len(told) < 10_000


def target() -> Target:
    return Target(kernel.load("add"), {"alpha": 1.0}, "out-of-place", "float32", backends.load("cpu"))


def test_the_file_is_never_imported_here(tmp_path: Path) -> None:
    text = planted(tmp_path, "def f(a, b, alpha=1.0):\n    return a + b * 0 + os.getpid()")
    y = isolated(text).build(target())(torch.zeros(3), torch.zeros(3))
    assert bool((y != os.getpid()).all())


def test_a_function_has_one_process_for_all_kernels_and_dtypes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(domains.SIZES, "quick", 10)
    pids = tmp_path / "pids"
    text = planted(tmp_path, f"with open({str(pids)!r}, 'a') as f: f.write(f'{{os.getpid()}}\\n')\nreturn a + b")
    selection = Selection(("add", "sub"), ("cpu",), ("float32", "float16"), spellings=("out-of-place",),
                          profile="quick", scalars={"alpha": 1.0}, user_lowerings=(text,))  # fmt: skip
    cells = [cell for cell in run(selection)["cells"] if cell["lowering"] == "mine.py:f"]
    assert {(cell["kernel"], cell["dtype"], cell["status"]) for cell in cells} >= {
        ("add", "float32", "passed"), ("add", "float16", "passed"),
    }  # fmt: skip
    assert {cell["kernel"] for cell in cells} == {"add", "sub"}
    assert len(set(pids.read_text().split())) == 1


def test_kernels_that_a_function_does_not_fit_are_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of one kernel alone a mistake, of several it is for another."""
    monkeypatch.setitem(domains.SIZES, "quick", 10)
    text = planted(tmp_path, "def f(x):\n    return torch.exp(x)")
    selection = Selection(("add", "exp", "mm"), ("cpu",), ("float32", "float16"), profile="quick",
                          spellings=("out-of-place", "1x1x1"), user_lowerings=(text,))  # fmt: skip
    mine = [cell for cell in run(selection)["cells"] if cell["lowering"] == "mine.py:f"]
    found = {(cell["kernel"], cell["status"]) for cell in mine}
    assert found == {("add", "not-run"), ("exp", "passed"), ("mm", "not-run")}
    assert all("takes (x), but is called" in cell["reason"] for cell in mine if cell["kernel"] != "exp")
    for name, told in (("add", "the inputs of add: a, b, alpha"), ("mm", "the inputs of mm: a, b")):
        with pytest.raises(UsageError, match=told):
            run(replace(selection, kernels=(name,), spellings=()))


def test_a_problem_without_what_a_function_asks_for_is_refused_alone(tmp_path: Path) -> None:
    """A kernel's settings have different tensors: that is no mistake of the whole run."""
    text = planted(tmp_path, "def f(x, weight):\n    return x * weight\n\ndef g():\n    return 1")
    facts = kernel.load("softmax")
    assert isinstance(facts, kernel.Composite)
    given = facts.problem("float32", facts.settings[0], facts.cases[0], 0)
    on = Target(facts, facts.cases[0], facts.settings[0].name, "float32", backends.load("cpu"))
    with pytest.raises(NotLowered, match="weight"):
        user_composite(text).build(on)(given)
    with pytest.raises(Unsuited, match="the inputs of softmax: "):
        user_composite(text.replace(":f", ":g")).build(on)(given)


def test_what_is_one_tensor_is_one_object_in_the_process(tmp_path: Path) -> None:
    call = isolated(planted(tmp_path, "return torch.full_like(a, float(a is b))")).build(target())
    x = torch.ones(5)
    assert call(x, x).tolist() == [1.0] * 5 and call(x, x.clone()).tolist() == [0.0] * 5
    assert call(x[:4], x[1:]).tolist() == [0.0] * 4


def test_an_edited_file_has_another_process(tmp_path: Path) -> None:
    text = planted(tmp_path, "return a + b")
    first, one = isolated(text).build(target()), torch.ones(3)
    assert torch.equal(first(one, one), one + one)
    again = isolated(planted(tmp_path, "return a - b")).build(target())
    assert torch.equal(again(one, one), one - one) and torch.equal(first(one, one), one + one)


def test_a_function_may_import_from_its_folder_when_it_is_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "own_helper.py").write_text("import torch\n\ndef summed(a, b):\n    return a + b\n")
    body = "from own_helper import summed\nreturn summed(a, alpha * b)"
    assert [one["status"] for one in cells(monkeypatch, planted(tmp_path, body))] == ["passed"]


EDITED = "open(__file__, 'a').write('# another version')"


@pytest.mark.parametrize(
    ("body", "workers"),
    [(f"{EDITED}\nreturn a + b", 1), (f"{EDITED}\nos._exit(7)", 2), ("os.unlink(__file__)\nos._exit(7)", 1)],
)
def test_a_file_that_changes_while_it_is_judged_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, workers: int
) -> None:
    """The digest of the report's cells would be that of another file than the one that gave them."""
    monkeypatch.setitem(domains.SIZES, "quick", 10)
    selection = Selection(
        ("add",), ("cpu",), ("float32",), ("eager",), ("out-of-place",), "quick", (planted(tmp_path, body),)
    )
    told: list[Any] = []
    with pytest.raises(UsageError, match=r"^mine\.py, or what it imports, changed .*; run it again$"):
        run(selection, on_cell=told.append, workers=workers)
    assert not [one for one in told if one["lowering"] == "mine.py:f"]


def test_a_process_that_ended_is_not_started_again_with_another_file(tmp_path: Path) -> None:
    one = torch.ones(3)
    call = isolated(planted(tmp_path, "os._exit(7)")).build(target())
    (tmp_path / "main.cpp").touch()  # as an extension that the file builds: no part of the version, since it is new
    with pytest.raises(LoweringError, match="exit code 7"):
        call(one, one)
    (tmp_path / "mine.py").write_text("def f(a, b, alpha=1.0):\n    return a + b")
    with pytest.raises(UsageError, match=r"^mine\.py.* changed"):
        call(one, one)


def test_the_functions_of_a_file_are_looked_at_in_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taken: list[standby.Process] = []
    real = standby.Process

    def started(*given: Any) -> standby.Process:
        taken.append(real(*given))
        return taken[-1]

    monkeypatch.setattr(standby, "Process", started)
    text = planted(tmp_path, "return a + b")
    path = text.rpartition(":")[0]
    imported([text, f"{path}:f"])
    assert len(taken) == 1 and taken[0].poll() is not None
    with pytest.raises(UsageError, match="no function 'g'"):
        imported([text, f"{path}:g"])


def test_a_worker_that_ended_is_started_again(tmp_path: Path) -> None:
    call = isolated(planted(tmp_path, "if a[0] == 0: os._exit(7)\nreturn a + b")).build(target())
    zero, one = torch.zeros(3), torch.ones(3)
    with pytest.raises(LoweringError, match="exit code 7"):
        call(zero, one)
    assert torch.equal(call(one, one), one + one)


def test_two_launches_are_under_way_at_a_time(tmp_path: Path) -> None:
    """Whichever is asked for first: each has files of its own, and its own error."""
    call = isolated(planted(tmp_path, "assert a[0] != 0\nb[0] = 9 * b[0]\nreturn a + b")).build(target())
    ones, twos = [torch.ones(3), torch.ones(3)], [torch.full((5,), 2.0), torch.full((5,), 2.0)]
    for order in ((0, 1), (1, 0)):
        begun = [call.begin(*(t.clone() for t in given)) for given in (ones, twos)]
        found = {k: begun[k]().tolist() for k in order}
        assert found == {0: [10.0, 2.0, 2.0], 1: [20.0, 4.0, 4.0, 4.0, 4.0]}
        for one, left in zip(begun, (9.0, 18.0), strict=True):  # each in place
            assert one.changed[one.given[1].data_ptr()].view(torch.float32)[0] == left and one.given[1][0] == left / 9
    refused, right = call.begin(torch.zeros(3), torch.ones(3)), call.begin(*twos)
    with pytest.raises(LoweringError, match="AssertionError"):
        refused()
    assert right().tolist()[1:] == [4.0] * 4


def test_a_launch_that_is_dropped_leaves_nothing(tmp_path: Path) -> None:
    call = isolated(planted(tmp_path, "return a + b")).build(target())
    for n in range(2, 7):
        begun, dropped = (call.begin(torch.full((n,), x), torch.ones(n)) for x in (1.0, 2.0))
        assert begun().tolist() == [2.0] * n
        dropped.drop()
        dropped.drop()
    assert call(torch.ones(2), torch.ones(2)).tolist() == [2.0] * 2


def test_nobody_waits_for_a_slow_launch_that_is_dropped(tmp_path: Path) -> None:
    call = isolated(planted(tmp_path, "time.sleep(60 * float(a[0]))\nreturn a + b")).build(target())
    zero, one = torch.zeros(2), torch.ones(2)
    call(zero, one)
    slow = call.begin(one, one)
    began = time.monotonic()
    slow.drop()
    assert time.monotonic() - began < 10
    assert call(zero, one).tolist() == [1.0] * 2


def test_an_answer_that_was_not_waited_for_is_no_other_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After Ctrl-C in a notebook, where the process of a function lives on."""
    call = isolated(planted(tmp_path, "return a + b")).build(target())
    zero, one = torch.zeros(2), torch.ones(2)
    call(zero, one)
    polled = multiprocessing.connection.Connection.poll

    def interrupted(*given: Any) -> bool:
        monkeypatch.setattr(multiprocessing.connection.Connection, "poll", polled)
        raise KeyboardInterrupt

    monkeypatch.setattr(multiprocessing.connection.Connection, "poll", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(one, one)
    assert call(zero, one).tolist() == [1.0] * 2


def test_launches_that_did_not_begin_keep_no_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each interrupted before its message was sent, as often as there are places, and once more."""
    call = isolated(planted(tmp_path, "return a + b")).build(target())
    one, send = torch.ones(2), Worker._send
    call(one, one)

    def interrupted(self: Worker, message: dict[str, Any]) -> None:
        if message["do"] == "launch":
            raise KeyboardInterrupt
        send(self, message)

    for _ in range(PLACES + 1):
        with monkeypatch.context() as patch:
            patch.setattr(Worker, "_send", interrupted)
            with pytest.raises(KeyboardInterrupt):
                call(one, one)
    assert call(one, one).tolist() == [2.0] * 2


def test_a_launch_whose_process_an_earlier_one_ended_is_made_again(tmp_path: Path) -> None:
    """It is no fault of that launch's numbers."""
    text = planted(tmp_path, "if a[0] == 0: torch.set_default_dtype(torch.float64)\nreturn a + b * os.getpid()")
    call = isolated(text).build(target())
    one, zero = torch.ones(3), torch.zeros(3)
    before = call(zero + 1, one)
    changes, right = call.begin(zero, one), call.begin(one, one)
    with pytest.raises(LoweringError, match="default dtype"):
        changes()
    assert not torch.equal(right(), before) and right.seconds > 0


def test_a_mistake_of_the_checker_is_not_the_lowerings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Calls that raise are refusals; what fails on this side of the channel must not be taken for one."""
    call = isolated(planted(tmp_path, "return a + b")).build(target())
    monkeypatch.setattr(Worker, "take", lambda *given: {}["answer"])
    with pytest.raises(KeyError, match="answer"):
        launch_steady(call, [torch.zeros(3), torch.zeros(3)], backends.load("cpu"), "mine")


def test_an_exception_ends_the_worker_only_where_it_spoiled_the_device(tmp_path: Path) -> None:
    """A refusal must not cost a start; after an illegal access nothing more can be launched."""
    call = isolated(planted(tmp_path, "assert a[0] != 0\nreturn a * 0 + os.getpid()")).build(target())
    zero, one = torch.zeros(3), torch.ones(3)
    before = call(one, one)
    with pytest.raises(LoweringError, match="AssertionError"):
        call(zero, one)
    assert torch.equal(call(one, one), before)

    class Lost:
        def synchronize(self) -> None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    assert spoiled(Lost()) and not spoiled(backends.load("cpu"))  # type: ignore[arg-type]


def test_a_message_in_place_of_an_answer_ends_the_worker(tmp_path: Path) -> None:
    """The channel is among the process's open files: whatever is written there is no answer."""
    body = "for k in range(3, 20):\n    try: os.write(k, b'\\0\\0\\0\\2{]')\n    except OSError: pass\nreturn a + b"
    call = isolated(planted(tmp_path, body)).build(target())
    with pytest.raises(LoweringError) as raised:
        launch_steady(call, [torch.zeros(3), torch.zeros(3)], backends.load("cpu"), "mine")
    assert raised.value.kind in ("ended", "contract")


def test_a_file_that_does_not_import_is_told_before_processes_share_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def never(*given: Any) -> Any:
        raise AssertionError("processes were started")

    monkeypatch.setattr(pool, "ended", never)
    (tmp_path / "mine.py").write_text("import no_such_module\n\ndef f(x):\n    return x\n")
    assert main(["kernel", "exp", "--lowering", f"{tmp_path / 'mine.py'}:f", "--jobs", "2"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "no_such_module" in line and "mine.py, line 1" in line


@pytest.mark.parametrize("slow", [True, False])
def test_what_needs_no_process_is_done_while_one_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slow: bool
) -> None:
    done, real = [], walk._done

    def recorded(jobs: Any, plan: Any, number: int, *given: Any) -> Any:
        done.append(jobs[plan.tasks[number].job].lowering.name)
        return real(jobs, plan, number, *given)

    monkeypatch.setattr(walk, "_done", recorded)
    monkeypatch.setattr(walk, "NEARLY", 0.0 if slow else 60.0)
    monkeypatch.setitem(domains.SIZES, "quick", 10)
    standby.drop()
    text = planted(tmp_path, "return a + b")
    selection = Selection(("add",), ("cpu",), ("float32",), spellings=("out-of-place",), profile="quick",
                          scalars={"alpha": 1.0}, user_lowerings=(text,))  # fmt: skip
    assert [cell["lowering"] for cell in run(selection)["cells"]] == ["mine.py:f", "eager"]
    assert done == (["eager", "mine.py:f"] if slow else ["mine.py:f", "eager"])


def test_the_bytes_of_a_tensor_are_those_of_its_elements_whatever_its_strides() -> None:
    """As numpy makes them where there are none: its square root of nothing ended the process."""
    nothing = torch.zeros(4, dtype=torch.float16).as_strided((0,), (0,))
    assert octets(nothing).shape == (0,)
    assert octets(torch.tensor([1.0, 2.0])[1:].as_strided((1,), (0,))).tolist() == [0, 0, 0, 64]
    assert octets(torch.tensor(2.0)).tolist() == octets(torch.tensor([[-2.0]]).neg()).tolist() == [0, 0, 0, 64]
    rows = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)
    assert octets(rows.t()).tolist() == [1, 3, 2, 4] and octets(rows[:, :1].expand(2, 2)).tolist() == [1, 1, 3, 3]
    alone = torch.tensor([[2.0, 1.0]])[:, ::2]  # as `--set shape=1x1 --set layout=strided` has it
    assert alone.contiguous().stride() == (2, 2) and octets(alone).tolist() == [0, 0, 0, 64]
    one = Problem({"x": alone}, {}, {}, "float32", {})
    assert problem_digest(one) == problem_digest(replace(one, tensors={"x": alone.clone()}))
    assert _bits(alone) == _bits(alone.clone())


def test_memory_of_two_processes_grows_and_is_pinned_as_long_as_it_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU's driver holds for pinned and is mapped no more, it would copy to in the place of what is there."""
    pinned: dict[int, int] = {}
    told: list[int] = []

    def register(address: int, size: int, flags: int) -> int:
        told.append(size)
        pinned[address] = size
        return refused

    driver = SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=pinned.pop)
    refused = 0
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    with standby.shared() as file:
        one, other = Shared(file.fileno()), Shared(file.fileno())
        one.part(5, 3).fill_(7)
        assert other.part(4, 4).tolist() == [0, 7, 7, 7] and not told
        large = other.part(PINNED, 8)
        large.fill_(9)
        assert one.part(PINNED, 8).eq(9).all() and one.part(5, 3).eq(7).all()
        assert [*pinned.values()] == told == [PINNED + (1 << 20)] * 2
        assert other.holds(large.data_ptr()) and not one.holds(large.data_ptr())
        one.part(2 * PINNED, 8).fill_(4)
        assert len(pinned) == 2 and max(pinned.values()) == 2 * PINNED + (1 << 20)
        assert other.part(2 * PINNED, 8).eq(4).all() and large.eq(9).all()
        del one, other
        assert not pinned
        refused = 1
        last = Shared(file.fileno())
        assert last.part(2 * PINNED, 8).eq(4).all() and last.part(2 * PINNED, 8).eq(4).all() and len(told) == 5


@pytest.mark.parametrize("beside", [workers.BESIDE, 0])
def test_a_large_product_of_few_terms_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: int) -> None:
    """Also where it has many times the bytes of its inputs, and nothing but what is expected allows for them."""
    monkeypatch.setattr(workers, "BESIDE", beside)
    text = planted(tmp_path, "def f(a, b):\n    return (a.double() @ b.double()).to(torch.int32)")
    facts = kernel.load("int_mm")
    assert isinstance(facts, kernel.Composite) and facts.custom is not None
    setting = facts.custom({"m": "600", "k": "1", "n": "600"})
    given = facts.problem("int8", setting, {}, 0)
    due = given.tensors["a"].double() @ given.tensors["b"].double()  # as what holds integers is judged
    call = isolated_composite(text).build(Target(facts, {}, setting.name, "int8", backends.load("cpu")))
    launched = launch_steady(call, given, backends.load("cpu"), "mine", repeats=2, names=("",), like={"": due})
    assert launched.steady and torch.equal(launched.output, due)
