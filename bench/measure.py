"""Measure the project's speed and memory targets as far as this machine can, and write them to a JSON file.

    python bench/measure.py --out FILE.json [--only PATTERN]... [--scale S]

Nothing is judged here but numbers against targets, and a missed target is no error. Each item runs in a process of
its own with empty caches, so that neither memory nor compiled code carries over. Times are wall clock; `seconds` is
the best of the repetitions, whose times are all recorded. `docs/tables.py` puts the file into docs/results/.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib.util
import json
import lzma
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent

#: Where torch, Triton and this project keep compiled code.
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")

Values = dict[str, Any]


class NotMeasured(Exception):
    """The item cannot be measured, and why."""


@dataclass(frozen=True)
class Item:
    """One measurement.

    targets  upper limits by the name of what is measured: seconds, ratio, peak_mib, mp_share, share_of_kernel (of
             the kernel's own time), memory_share (of four times the kernel's inputs and outputs and 1 GiB),
             added_share (of the same run without)
    measure  (scale) -> the values measured. Called in a fresh process, whose peak memory is added. `runs_s` are the
             repetitions, of which the best becomes `seconds`; `finished` is when the first one ended. `processor_s`
             are user and system seconds of all its threads: on a busy machine they say more than wall clock
    backend  has to be present
    """

    name: str
    what: str
    targets: Mapping[str, float]
    measure: Callable[[float], Values]
    backend: str = "cpu"


# What is measured


def sweep(
    kernel: str, lowering: str, backend: str, dtype: str = "float32", repetitions: int = 3
) -> Callable[[float], Values]:
    """All 2^32 inputs or pairs through the exhaustive profile: classes, sums, maxima, digests. On the CPU beside the
    kernel alone, on the same inputs."""

    def measure(scale: float) -> Values:
        from verify.facts.kernel import load
        from verify.walk.plan import Selection
        from verify.walk.run import run

        selection = Selection(
            kernels=(kernel,),
            backends=(backend,),
            dtypes=(dtype,),
            lowerings=(lowering,),
            spellings=(next(iter(load(kernel).spellings)),),
            profile="exhaustive",
        )
        runs, walls, processor, cells, finished = [], [], [], [], 0.0
        for _ in range(repetitions):
            began, used = time.perf_counter(), time.process_time()
            # A GPU judges hundreds of chunks a launch and is quick enough to be measured whole.
            with thinned(scale) if backend == "cpu" else contextlib.nullcontext():
                cells = [cell for cell in run(selection)["cells"] if not cell["scalars"]]
            walls.append(time.perf_counter() - began)
            processor.append(time.process_time() - used)
            finished = finished or time.monotonic()
            timing = proved(cells)["timing"]
            runs.append(timing["kernel_s"] + timing["check_s"])
        [cell] = cells
        beside = alone(kernel, scale) if backend == "cpu" else {}
        return {
            "runs_s": runs,
            **beside,
            **({"ratio": sorted(runs)[len(runs) // 2] / beside["alone_s"]} if beside else {}),
            "wall_s": walls,
            "processor_s": processor,
            "finished": finished,
            "inputs": cell["inputs"],
            "mp_share": cell["timing"]["mp_elements"] / cell["inputs"],
            "max_ulp": cell["error"]["max_ulp"],
            "misrounded": cell["error"]["misrounded"],
            "digest": cell["digest"],
            **device_memory(backend),
        }

    return measure


def alone(kernel: str, scale: float) -> Values:
    """Seconds of the eager kernel on the chunks of a sweep, which are not judged."""
    import torch

    from verify.facts.formats import FORMATS
    from verify.inputs.domains import Domain

    seconds, function = 0.0, getattr(torch, kernel)
    domain = Domain("exhaustive", FORMATS["float32"], ("x",))
    for number in domain.chunks()[:: max(1, round(1 / scale))]:
        (x,) = domain.chunk(number, "cpu")
        began = time.perf_counter()
        function(x)
        seconds += time.perf_counter() - began
    return {"alone_s": seconds}


def multiprecision(kernel: str) -> Callable[[float], Values]:
    """The share of the default profile's elements that the enclosures leave to multiprecision."""

    def measure(scale: float) -> Values:
        from verify.walk.plan import Selection
        from verify.walk.run import run

        profile = "default" if scale == 1 else "quick"
        selection = Selection(
            kernels=(kernel,), backends=("cpu",), dtypes=("float32",), lowerings=("eager",), profile=profile
        )
        began = time.perf_counter()
        cells = [cell for cell in run(selection)["cells"] if cell["status"] != "not-run"]
        inputs = sum(cell["inputs"] for cell in cells)
        elements = sum(cell["timing"]["mp_elements"] for cell in cells)
        return {
            "runs_s": [time.perf_counter() - began],
            "profile": profile,
            "cells": len(cells),
            "inputs": inputs,
            "mp_elements": elements,
            "mp_share": elements / inputs,
        }

    return measure


def attention(backend: str) -> Callable[[float], Values]:
    """The check of attention at batch 2, heads 4, length 4,096, head 64, and its time over the kernel's own."""

    def measure(scale: float) -> Values:
        import flex

        return with_limit(flex.ball(backend, length=max(64, round(flex.LENGTH * scale))))

    return measure


def rows(scale: float) -> Values:
    """64 rows of the same attention in multiprecision."""
    import flex

    return flex.rows(count=max(1, round(64 * scale)), length=max(64, round(flex.LENGTH * scale)))


def adamw(scale: float) -> Values:
    """1,000 AdamW steps over 10^6 parameters in balls, 256 of them in multiprecision."""
    import adam

    return with_limit(adam.trajectory(round(1_000_000 * scale), max(1, round(1000 * scale))))


def composite(kernel: str, dtype: str, **given: object) -> Callable[[float], Values]:
    """The whole check of one setting: every lowering, its bound, formulas, and the sample in multiprecision."""

    def measure(scale: float) -> Values:
        from verify.facts.kernel import Composite, load
        from verify.walk.plan import Selection
        from verify.walk.run import run

        facts = load(kernel)
        assert isinstance(facts, Composite) and facts.custom
        texts = {name: str(max(1, round(v * scale)) if isinstance(v, int) else v) for name, v in given.items()}
        selection = Selection(
            kernels=(kernel,), backends=("cpu",), dtypes=(dtype,), lowerings=("eager",), setting=texts
        )
        began, used = time.perf_counter(), time.process_time()
        cells = run(selection)["cells"]
        seconds = time.perf_counter() - began
        for cell in cells:
            proved([cell])
        problem = facts.problem(dtype, facts.custom(texts), dict(facts.cases[0]), 0)
        elements = sum(cell["inputs"] for cell in cells)
        held = {t.data_ptr(): t.untyped_storage().nbytes() for t in problem.tensors.values()}
        return with_limit(
            {
                "runs_s": [seconds],
                "processor_s": [time.process_time() - used],
                "inputs": elements,
                "tensors_mib": (sum(held.values()) + elements * next(iter(problem.tensors.values())).itemsize) / 2**20,
            }
        )

    return measure


def with_limit(values: Values) -> Values:
    """With the peak memory that is allowed: four times the kernel's inputs and outputs, and 1 GiB."""
    return values | {"allowed_mib": 4 * values["tensors_mib"] + 1024}


def reading(*arguments: str, files: int, cells: int, repetitions: int = 3) -> Callable[[float], Values]:
    """A command over reports of `cells` cells, named a.json and, where every seventh output differs, b.json.

    They repeat the cells of the CPU's recorded report under further kernels' names.
    """

    def measure(scale: float) -> Values:
        for name, other in (("a", False), ("b", True))[:files]:
            multiplied(ROOT / "reports" / "recorded" / "cpu.json.xz", Path(f"{name}.json"), round(cells * scale), other)
        verify = [sys.executable, "-m", "verify"]
        if arguments[0] == "gate":
            timed([*verify, "accept", "a.json", "--baseline", "base"])
        runs = [timed([*verify, *arguments], accept=(0, 1))[0] for _ in range(repetitions)]
        return {"runs_s": runs, "command": shlex.join(["verify", *arguments]), "cells": round(cells * scale)}

    return measure


def multiplied(report: Path, out: Path, count: int, other: bool) -> None:
    """A report of `count` cells, a line each as `verify run` writes them. They are written one by one, since this
    process must stay smaller than what it measures."""
    document = json.loads(lzma.decompress(report.read_bytes()))
    cells = document.pop("cells")
    with out.open("w") as file:
        file.write(json.dumps(document)[:-1] + ', "cells":[\n')
        for k in range(count):
            cell = dict(cells[k % len(cells)])
            cell["kernel"] += f"_{k // len(cells)}"
            if other and k % 7 == 0:
                cell["digest"] = "0" * len(cell["digest"])
            file.write((",\n" if k else "") + json.dumps(cell, separators=(",", ":")))
        file.write("\n]}\n")


def light(*arguments: str, repetitions: int = 5) -> Callable[[float], Values]:
    """A command that answers without torch and Triton."""
    program = (
        "import sys; from verify.cli.commands import main; code = main(sys.argv[1:]); "
        "heavy = sorted({'torch', 'triton'} & sys.modules.keys()); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )

    def measure(scale: float) -> Values:
        timed([sys.executable, "-c", program, *arguments])
        runs = [timed([sys.executable, "-m", "verify", *arguments])[0] for _ in range(repetitions)]
        return {"runs_s": runs}

    return measure


def warm(
    *arguments: str, small: tuple[str, ...] = (), own: str = "", repetitions: int = 3
) -> Callable[[float], Values]:
    """A command whose compiled code is cached. `small` is added to it where the scale is below 1; own: the source of
    a file whose function f it is given as a lowering, until the line with its verdict (ends_s: until the end)."""

    def measure(scale: float) -> Values:
        command = [sys.executable, "-m", "verify", *arguments, *(small if scale < 1 else ())]
        if own:
            Path("own.py").write_text(f"{own}\n")
            command += ["--lowering", "own.py:f"]
        cold, code = timed(command, accept=(0, 1))
        found = {"cold_s": cold, "exit_code": code, "command": shlex.join(command[2:])}
        if not own:
            return {"runs_s": [timed(command, accept=(0, 1))[0] for _ in range(repetitions)], **found}
        verdicts, ends = zip(*(until(command, "own.py:f: ") for _ in range(repetitions)), strict=True)
        return {"runs_s": list(verdicts), "ends_s": list(ends), **found}

    return measure


def apart(scale: float) -> Values:
    """What a process of its own adds to `verify.check` of exp in float32: the calls that only such a process can make
    too. cold_s: in the first check of a Python process."""
    import torch

    from verify import check

    Path("own.py").write_text("import torch\n\n\ndef f(x):\n    return torch.exp(x)\n")
    sys.path.insert(0, "")
    mine = importlib.import_module("own").f

    def took(function: Callable[..., Any]) -> float:
        began = time.perf_counter()
        check(function, "exp", dtype="float32", device="cpu")
        return time.perf_counter() - began

    first = took(mine)
    here = [took(lambda x: torch.exp(x)) for _ in range(3)]
    there = [took(mine) for _ in range(5)][1:]
    return {"runs_s": [max(one - min(here), 0.0) for one in there], "cold_s": first, "check_s": min(here)}


def apart_in_run(scale: float) -> Values:
    """What processes of their own add to a run over exp, eager, Inductor and two functions of a file, default profile,
    as a share of the same run with the functions in its process. Caches are warm."""
    from verify.walk.plan import Selection
    from verify.walk.run import run

    functions = {"one": "torch.exp(x)", "other": "torch.exp(x.clone())"}
    Path("own.py").write_text(
        "import torch\n" + "".join(f"\n\ndef {name}(x):\n    return {text}\n" for name, text in functions.items())
    )
    sys.path.insert(0, "")
    module, texts = importlib.import_module("own"), tuple(f"own.py:{name}" for name in functions)
    dtypes = () if scale == 1 else ("float16",)
    chosen = Selection(("exp",), ("cpu",), dtypes, ("eager", "inductor"), user_lowerings=texts)
    # named so that they are no files to be imported
    held = {f"here.py:{name}": getattr(module, name) for name in functions}

    def took(selection: Selection) -> float:
        began = time.perf_counter()
        run(selection)
        return time.perf_counter() - began

    here = [took(replace(chosen, user_lowerings=(), functions=held)) for _ in range(3)][1:]
    there = [took(chosen) for _ in range(2)]
    return {"runs_s": there, "run_s": min(here), "added_share": max(min(there) / min(here) - 1, 0.0)}


def cold(*arguments: str, small: tuple[str, ...]) -> Callable[[float], Values]:
    """A command with empty caches. `small` is added to it where the scale is below 1."""

    def measure(scale: float) -> Values:
        command = [sys.executable, "-m", "verify", *arguments, *(small if scale < 1 else ())]
        return {"runs_s": [timed(command)[0]], "command": shlex.join(command[2:])}

    return measure


def suite(scale: float) -> Values:
    """The README's test command in a fresh clone: virtual environment, installation, wheel and tests."""
    if scale < 1:
        raise NotMeasured("the tests have no smaller size; measured at --scale 1 only")
    [command] = [line.strip() for line in (ROOT / "README.md").read_text().splitlines() if line.endswith("/tox")]
    cloned = subprocess.run(["git", "clone", "--quiet", ROOT, "clone"], capture_output=True, text=True, check=False)
    if cloned.returncode:
        raise NotMeasured(f"no clone of {ROOT}: {cloned.stderr.strip()}")
    outside = ("TOX_", "VIRTUAL_ENV", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    seconds, _ = timed(["bash", "-c", command], cwd=Path("clone"), env=environment)
    return {"runs_s": [seconds], "command": command}


_ATTENTION = "attention at batch 2, heads 4, length 4,096, head 64"
_OF_THE_REPORT = "all 2^32 float32 inputs"


def virtual(kernel: str, lowering: str, elements: int, device: str = "virtual-cuda") -> Callable[[float], Values]:
    """Seconds in which one core executes a Triton lowering's code for a virtual device, compiled and decoded before."""

    def measure(scale: float) -> Values:
        import torch

        from verify.backends import load as backend
        from verify.facts.kernel import elementwise
        from verify.lower.lowering import Target
        from verify.lower.lowerings import lowerings

        torch.set_num_threads(1)
        facts = elementwise(kernel)
        target = Target(facts, facts.cases[0], next(iter(facts.spellings)), "float32", backend(device))
        call = next(one for one in lowerings(facts) if one.name == lowering).build(target)
        given = [torch.rand(round(elements * scale) & -4096) + 0.5 for _ in facts.tensors(facts.cases[0])]
        call(*(t[:4096] for t in given))
        runs = []
        for _ in range(3):
            began = time.perf_counter()
            call(*given)
            runs.append(time.perf_counter() - began)
        return {"runs_s": runs, "elements_a_second": len(given[0]) / min(runs)}

    return measure


def units(architecture: str, operands: str) -> Callable[[float], Values]:
    """Seconds for a matrix product by an instruction of `verify.numbers.units`, on all cores."""

    def measure(scale: float) -> Values:
        import torch

        from verify.numbers.units import unit

        one, k = unit(architecture, operands), 1024
        m = max(16, round(256 * scale))
        torch.manual_seed(0)
        dtype = {"tf32": torch.float32}.get(operands) or getattr(torch, operands)
        a, b = torch.randn(m, k).to(dtype), torch.randn(k, m).to(dtype)
        one.matmul(a[:16], b[:, :16])
        runs = []
        for _ in range(5):
            began = time.perf_counter()
            one.matmul(a, b)
            runs.append(time.perf_counter() - began)
        return {"runs_s": runs, "products_a_second": m * k * m / min(runs)}

    return measure


ITEMS = (
    *(
        Item(
            f"units-{architecture}-{operands}",
            f"256 x 1,024 x 256 products by {architecture}'s unit of {operands}",
            {"seconds": 256 * 1024 * 256 / 3e7},
            units(architecture, operands),
        )
        for architecture, operands in (
            ("hopper", "float16"), ("hopper", "bfloat16"), ("hopper", "tf32"), ("hopper", "float8_e4m3fn"),
            ("amx", "bfloat16"), ("gfx90a", "float16"), ("gfx942", "float16"),
        )
    ),
    Item(
        "cpu-exp",
        f"exp, eager, {_OF_THE_REPORT}, over the kernel alone",
        {"ratio": 1.7, "peak_mib": 2048},
        sweep("exp", "eager", "cpu"),
    ),
    *(
        Item(
            f"cuda-{kernel}",
            f"{kernel}, eager, {_OF_THE_REPORT}",
            {"seconds": most},
            sweep(kernel, "eager", "cuda"),
            "cuda",
        )
        for kernel, most in (("exp", 0.04), ("reciprocal", 0.04), ("log", 0.04), ("sqrt", 0.1), ("rsqrt", 0.1))
    ),
    *(
        Item(
            f"cuda-{kernel}-pairs",
            f"{kernel}, eager, all 2^32 pairs of float16",
            {"seconds": 0.4},
            sweep(kernel, "eager", "cuda", "float16"),
            "cuda",
        )
        for kernel in ("pow", "div")
    ),
    *(
        Item(f"mp-{kernel}", f"{kernel}'s share in multiprecision", {"mp_share": 1e-6}, multiprecision(kernel))
        for kernel in ("exp", "log", "addcmul")
    ),
    # 5 and 1 million elements a second
    Item("virtual-addcmul", "addcmul's Triton kernel as PTX on one core, 2^22 elements", {"seconds": 0.84},
         virtual("addcmul", "triton", 1 << 22)),
    Item("virtual-pow", "pow of libdevice as PTX on one core, 2^20 elements", {"seconds": 1.05},
         virtual("pow", "triton-libdevice", 1 << 20)),
    # half of that
    Item("virtual-rocm-addcmul", "addcmul as gfx942's code on one core, 2^22 elements", {"seconds": 1.68},
         virtual("addcmul", "triton", 1 << 22, "virtual-rocm")),
    Item("virtual-rocm-pow", "ocml's pow as gfx942's code on one core, 2^20 elements", {"seconds": 2.1},
         virtual("pow", "triton-libdevice", 1 << 20, "virtual-rocm")),
    Item("audit", "verify audit of all Triton lowerings for nine GPUs in float32", {"seconds": 180},
         cold("audit", small=("pow", "--target", "sm_90"))),
    Item("list", "verify list", {"seconds": 0.3}, light("list")),
    Item("show", "verify show pow", {"seconds": 0.3}, light("show", "pow")),
    Item(
        "kernel-own",
        "verify kernel lerp --dtype float32 --lowering FILE:f, default profile, to its verdict",
        {"seconds": 10},
        warm("kernel", "lerp", "--dtype", "float32", "--backend", "cpu", own="def f(a, b, w): return a + w * (b - a)"),
    ),
    Item("own-process", "what a process of its own adds to check(f, 'exp', dtype='float32')", {"seconds": 0.5}, apart),
    Item(
        "own-process-run",
        "a run over exp, default profile, with two functions of a file, each in a process of its own",
        {"added_share": 0.05},
        apart_in_run,
    ),
    Item(
        "run-quick",
        "verify run --profile quick, caches warm",
        {"seconds": 240},
        warm(
            *("run", "--profile", "quick", "--backend", "cpu"), small=("--dtype", "float16", "--lowering", "eager"),
            repetitions=1,
        ),
    ),
    Item(
        "run-default",
        "verify run, caches warm",
        {"seconds": 1200},
        warm("run", "--backend", "cpu", small=("--dtype", "float16", "--lowering", "eager"), repetitions=1),
    ),
    Item("cpu-flex", f"the check of {_ATTENTION} in balls", {"seconds": 20, "memory_share": 1}, attention("cpu")),
    Item("mp-flex", f"64 rows of {_ATTENTION} in multiprecision", {"seconds": 30}, rows),
    Item(
        "cuda-flex",
        f"the check of {_ATTENTION} in balls, over the kernel's own time",
        {"share_of_kernel": 10},
        attention("cuda"),
        "cuda",
    ),
    Item(
        "adamw",
        "1,000 AdamW steps over 10^6 parameters in balls, 256 in multiprecision",
        {"seconds": 60, "memory_share": 1},
        adamw,
    ),
    *(
        Item(f"memory-{kernel}", f"{kernel} of {text}, eager, the whole check", {"memory_share": 1}, measure)
        for kernel, text, measure in (
            ("logcumsumexp", "2^20 float32", composite("logcumsumexp", "float32", shape=2**20)),
            ("sum", "2^20 float16", composite("sum", "float16", shape=2**20)),
            ("adam_step", "10 steps over 10^6 float32", composite("adam_step", "float32", steps=10, sizes=10**6)),
        )
    ),
    *(
        Item(
            arguments[0],
            f"verify {' '.join(arguments)}, {files} x {cells} cells",
            {"seconds": 10, "peak_mib": 1024},
            reading(*arguments, files=files, cells=cells),
        )
        for files, cells, arguments in (
            (1, 100_000, ("accept", "a.json", "--baseline", "base")),
            (1, 100_000, ("gate", "a.json", "--baseline", "base")),
            (2, 100_000, ("compare", "a.json", "b.json")),
            (1, 100_000, ("report", "a.json", "--html", "page.html")),
            (2, 50_000, ("history", ".")),
        )
    ),
    Item("tests", "the README's test command, installation included", {"seconds": 600}, suite),
)  # fmt: skip


# How


@contextlib.contextmanager
def thinned(scale: float) -> Iterator[None]:
    """Inside, elementwise cases have only every (1/scale)-th portion, and no sweep is done in ranges."""
    from verify.walk import plan
    from verify.walk.pointwise import Pointwise

    whole, step = Pointwise.portions, max(1, round(1 / scale))
    thin = mock.patch.object(Pointwise, "portions", lambda self: whole(self)[::step])
    with thin, mock.patch.object(plan, "_swept", return_value=None) if step > 1 else contextlib.nullcontext():
        yield


def proved(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The only cell, after refusing one that was not run or not decided: its time would mean nothing."""
    [cell] = cells
    if cell["status"] not in ("passed", "exceeds-bound"):
        raise NotMeasured(f"{cell['status']}: {cell['reason']}")
    if cell["error"]["undecided"]:
        raise NotMeasured(f"{cell['error']['undecided']} elements are undecided")
    return cell


def timed(
    command: list[str], accept: tuple[int, ...] = (0,), cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> tuple[float, int]:
    """Seconds and exit code of a command. Raises NotMeasured for a code that is not accepted."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    seconds = time.perf_counter() - began
    if done.returncode not in accept:
        tail = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise NotMeasured(f"{shlex.join(command)} exits with {done.returncode}: {' '.join(tail)}")
    return seconds, done.returncode


def until(command: list[str], text: str) -> tuple[float, float]:
    """Seconds until a command tells a line with the text, and until it ends. Raises NotMeasured where it tells none."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        told = next((time.perf_counter() - began for line in running.stdout if text in line), None)
        running.stdout.read()
    if told is None:
        raise NotMeasured(f"{shlex.join(command)} tells no line with {text!r}")
    return told, time.perf_counter() - began


def device_memory(backend: str) -> Values:
    """The most memory that torch has held on the GPU; nothing on the host."""
    import torch

    return {"device_peak_mib": torch.cuda.max_memory_allocated() / 2**20} if backend == "cuda" else {}


def fingerprints() -> Values:
    """Each backend's fingerprint, or why it is absent."""
    from verify import backends

    found: Values = {}
    for name in backends.names():
        backend = backends.load(name)
        reason = backend.unavailable()
        found[name] = {"absent": reason} if reason else backend.fingerprint()
    return found


def child(name: str, scale: float, result: Path) -> None:
    """Measure one item, or the fingerprints, in a process like the command's, and leave the values in `result`."""
    from verify.processes import start

    start.settle()
    try:
        values = fingerprints() if name == "fingerprints" else by_name(name).measure(scale)
    except NotMeasured as why:
        values = {"reason": str(why)}
    result.write_text(json.dumps(values))


def by_name(name: str) -> Item:
    return next(item for item in ITEMS if item.name == name)


def isolated(name: str, scale: float) -> Values:
    """`child` in a process with empty caches; its values, peak memory and time to the first result."""
    with tempfile.TemporaryDirectory(prefix="ulproof-bench-") as scratch:
        result = Path(scratch) / "result.json"
        environment = os.environ | {variable: str(Path(scratch) / variable.lower()) for variable in CACHES}
        # Under tox the installed wheel is measured; on a machine that has not installed it, the working tree.
        if importlib.util.find_spec("verify") is None:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, __file__, "--item", name, "--scale", repr(scale), "--result", str(result)]
        with (Path(scratch) / "stderr").open("w+") as log:
            began = time.monotonic()
            process = subprocess.Popen(command, cwd=scratch, env=environment, stdout=log, stderr=log)
            # The maximum is of the process or of one descendant. Linux hands it on through fork and exec: this
            # parent has to stay small, so it imports nothing of the project.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            tail = " | ".join(log.read().strip().splitlines()[-3:])
        if process.returncode or not result.exists():
            return {"reason": f"the process ended with {process.returncode}: {tail}", "broken": True}
        values: Values = json.loads(result.read_text())
    if "runs_s" in values:
        values["seconds"] = min(values["runs_s"])
        values["peak_mib"] = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    if "allowed_mib" in values:
        values["memory_share"] = values["peak_mib"] / values["allowed_mib"]
    if "finished" in values:
        values["start_s"] = values.pop("finished") - began
    return values


def entry(item: Item, values: Values, load: float) -> Values:
    """An item of the file: met, missed, or not measured and why."""
    base: Values = {"name": item.name, "what": item.what, "backend": item.backend, "targets": dict(item.targets)}
    if "reason" in values:
        return base | {"status": "error" if values.get("broken") else "not-measured", "reason": values["reason"]}
    met = all(values[name] <= limit for name, limit in item.targets.items())
    repetitions = len(values["runs_s"])
    return base | {"status": "met" if met else "missed", "repetitions": repetitions, "load": load, "measured": values}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="the JSON file to write")
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help=f"repeatable; of {', '.join(item.name for item in ITEMS)}"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size, to try the measurements out")
    parser.add_argument("--item", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not 0 < options.scale <= 1:
        parser.error(f"--scale {options.scale}; expected a share above 0 and at most 1")
    if options.item:
        child(options.item, options.scale, options.result)
        return 0
    if options.out is None:
        parser.error("--out FILE.json says where to write")
    chosen = [item for item in ITEMS if any(fnmatch.fnmatch(item.name, p) for p in options.only or ["*"])]
    if not chosen:
        parser.error(f"--only {' '.join(options.only)} matches none of {', '.join(item.name for item in ITEMS)}")
    environment = isolated("fingerprints", 1.0)
    if "broken" in environment:
        parser.error(environment["reason"])
    entries: list[Values] = []
    document: Values = {
        "schema": 1,
        "command": shlex.join(["python", "bench/measure.py", *sys.argv[1:]]),
        "environment": environment | {"cores": os.cpu_count()},
        "scale": options.scale,
        "items": entries,
    }
    for number, item in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {item.name}: {item.what}", file=sys.stderr, flush=True)
        load = os.getloadavg()[0]
        absent = environment.get(item.backend, {}).get("absent")
        entries.append(entry(item, {"reason": absent} if absent else isolated(item.name, options.scale), load))
        print(f"    {summary(entries[-1])}", file=sys.stderr, flush=True)
        write(document, options.out)
    return int(any(each["status"] == "error" for each in entries))


def summary(each: Values) -> str:
    if "measured" not in each:
        return f"{each['status']}: {each['reason']}"
    parts = (f"{name} {each['measured'][name]:.3g} of {limit:g}" for name, limit in each["targets"].items())
    return f"{each['status']}: {', '.join(parts)}"


def write(document: Values, path: Path) -> None:
    """After every item, so that an interrupted run keeps what it has."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
