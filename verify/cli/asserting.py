"""Judge a function of your own from Python, as `verify kernel NAME --lowering FILE.py:FUNCTION` does."""

from __future__ import annotations

import functools
import io
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from verify import backends
from verify.cli.options import ensure_amount
from verify.facts.kernel import PROFILES, BackendAbsent, Composite, UsageError, is_file, load, suggest
from verify.processes import standby
from verify.reports.figures import code_of
from verify.reports.run_page import kernel_page
from verify.reports.schema import Cell, Report
from verify.reports.terminal import print_page
from verify.walk.plan import Selection
from verify.walk.run import run
from verify.workers import TIMEOUT, Own, process
from verify.workers.process import behaviour_of


class Inaccurate(AssertionError):
    """A cell of the function failed: the message is the page that `verify kernel` prints. cells: the report's."""

    def __init__(self, message: str, cells: list[Cell]) -> None:
        super().__init__(message)
        self.cells = cells


@torch.inference_mode(False)
def check(
    fn: Callable[..., Any], kernel: str, *, dtype: torch.dtype | str | None = None, device: str | None = None,
    profile: str = "quick", scalars: Mapping[str, float] | None = None, setting: Mapping[str, str] | None = None,
    algorithm: str = "", seed: int = 0, timeout: float = TIMEOUT, memory: float | None = None,
) -> list[Cell]:  # fmt: skip
    """The report's cells of `fn` as a lowering of `kernel`, beside eager's.

    fn       called as docs/own-lowering.md says. A function that a file defines at its top level, outside any package,
             runs in a process of its own, which imports the file; any other in this one, unprotected, and its cells'
             flags say so ("process"), and so does one that is, or calls or reads, something else here than there
    dtype    torch.float32 or 'float32'; None: all of the kernel's
    device   torch's name of it; None: the first that is present
    The others are the options of `verify kernel`.

    Raises Inaccurate where a cell of `fn` fails or the truth is in doubt, NothingToCompare where the device is absent
    or no case fits, UsageError for unknown names and options that the command would refuse, KeyboardInterrupt where it
    is interrupted.
    """
    if not callable(fn):
        raise UsageError(f"fn={fn!r}; expected a function; of FILE.py:FUNCTION, import the function")
    if process.serving:
        raise UsageError(
            "a function is checked by the file that is imported to judge it: put that check into a test, or below "
            "if __name__ == '__main__'"
        )
    if (default := torch.get_default_device()).type != "cpu":
        raise UsageError(f"torch's default device is {default}; expected cpu, as inside `with torch.device('cpu')`")
    _ensure_valid(kernel, profile, scalars, setting, algorithm, seed, timeout, memory)
    text, function = _named(fn)
    name = _backend(device)
    if function is None:
        standby.prepare()
        # the process that the run will take, too, as long as this lives
        own = Own(text, isinstance(load(kernel), Composite), timeout=timeout, memory=memory)
        path = text.rpartition(":")[0]
        if own.behaviour(backends.load(name).device) not in (None, behaviour_of(fn, path)):
            text, function = Path(path).name + text.removeprefix(path), fn
    selection = Selection(
        (kernel,), (name,), () if dtype is None else (str(dtype).removeprefix("torch."),), profile=profile,
        user_lowerings=(text,) if function is None else (), functions={} if function is None else {text: function},
        scalars=None if scalars is None else {key: float(value) for key, value in scalars.items()},
        setting=setting, algorithm=algorithm, seed=seed, timeout=timeout, memory=memory,
    )  # fmt: skip
    command = shlex.join(["verify", "kernel", kernel, "--lowering", text]) if function is None else ""
    report = Report.model_validate({**run(selection), "command": command})
    if report.interrupted:  # what is complete says nothing of the rest
        raise KeyboardInterrupt
    doubtful = any(cell.status == "oracle-violation" for cell in report.cells)
    if doubtful or any(code_of(cell) for cell in report.cells if is_file(cell.lowering)):
        page = io.StringIO()
        print_page(kernel_page(report, kernel), page)
        raise Inaccurate(page.getvalue(), report.cells)
    return report.cells


def assert_accurate(fn: Callable[..., Any], kernel: str, **options: Any) -> None:
    """`check` as an assertion: of a test of pytest, which is skipped where the device is absent, without a traceback.

    Raises AssertionError, and BackendAbsent where no test of pytest runs."""
    __tracebackhide__ = True
    testing = "PYTEST_CURRENT_TEST" in os.environ
    failure = ""
    try:
        check(fn, kernel, **options)
    except Inaccurate as error:
        failure = str(error)
    except BackendAbsent as why:
        if not testing:
            raise
        pytest.skip(str(why))
    except UsageError as error:  # raised here, without what lies between
        raise type(error)(str(error)) from None
    if failure:  # outside, or pytest would print what was raised before, too
        raise _failed()(failure, pytrace=False) if testing else AssertionError(failure)


@functools.cache
def _failed() -> Any:
    """An AssertionError of which pytest prints no traceback."""
    return type("Failed", (pytest.fail.Exception, AssertionError), {})


def _named(fn: Callable[..., Any]) -> tuple[str, Callable[..., Any] | None]:
    """FILE.py:FUNCTION, and None where a process of its own can import that, else the function and a name for it."""
    name = getattr(fn, "__qualname__", type(fn).__name__)
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    path = getattr(module, "__file__", None) or ""
    # what runs as __main__ would run again there, and a package's relative imports would fail
    alone = module is not None and module.__name__ != "__main__" and not module.__package__
    if alone and path.endswith(".py") and getattr(module, name, None) is fn:
        return f"{path}:{name}", None
    return f"{Path(path).stem or 'python'}.py:{name}", fn


def _ensure_valid(
    kernel: object, profile: object, scalars: object, setting: object, algorithm: object, seed: object, timeout: object,
    memory: object,
) -> None:  # fmt: skip
    """Raise UsageError for what the command line would not take, or could not be given."""

    def number(value: object) -> bool:
        return isinstance(value, float) or (type(value) is int and abs(value) <= sys.float_info.max)

    if not isinstance(kernel, str):
        raise UsageError(f"kernel={kernel!r}; expected a name of `verify list`")
    if profile not in PROFILES:
        raise UsageError(suggest("profile", str(profile), PROFILES))

    def named(given: object, fits: Callable[[object], bool]) -> bool:
        if not isinstance(given, Mapping):
            return given is None
        return all(isinstance(name, str) and fits(value) for name, value in given.items())

    if not named(scalars, number):
        raise UsageError(f"scalars={scalars!r}; expected numbers by name, such as {{'value': 0.3}}")
    if not named(setting, lambda value: isinstance(value, str)):
        raise UsageError(f"setting={setting!r}; expected texts by name, such as {{'dim': '0'}}")
    if type(seed) is not int:
        raise UsageError(f"seed={seed!r}; expected a whole number")
    if not isinstance(algorithm, str):
        raise UsageError(f"algorithm={algorithm!r}; expected a text, as of --algorithm")
    for name, amount in (("timeout", timeout), ("memory", memory)):
        if not (amount is None and name == "memory"):
            ensure_amount(name, f"{name}={amount!r}", amount)


def _backend(device: str | None) -> str:
    """The name of the backend of a device. Where several serve it, the one present on this machine."""
    try:
        asked = None if device is None else torch.device(device)
    except (RuntimeError, TypeError):
        raise UsageError(f"device {device!r} is none that torch knows; expected one such as 'cuda' or 'cpu'") from None
    every = list(map(backends.load, backends.names()))
    known = [one for one in every if asked is None or asked.type == one.device]
    if not known:  # of no machine, so that a test must not be skipped
        devices = ", ".join(dict.fromkeys(one.device for one in every))
        raise UsageError(f"device {device!r} has no backend; expected one of {devices}")
    present = [one for one in known if one.unavailable() is None]
    if asked is not None and asked.index is not None and present and asked.index != (current := _current(asked.type)):
        told = f"lowerings run on the current one, {asked.type}:{current}"
        raise UsageError(f"device {device!r}: {told}; leave the index out, or let the process see that device alone")
    return (present or known)[0].name


def _current(kind: str) -> int:
    """The index of torch's current device of that kind, which is not opened for that."""
    module = torch.get_device_module(kind)
    if not getattr(module, "is_initialized", lambda: True)():
        return 0
    index = getattr(module, "current_device", lambda: 0)()
    return index if isinstance(index, int) else 0
