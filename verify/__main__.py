"""The command `verify`, also as `python -m verify`. Where a package that it needs is missing, one line says what to
install."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from importlib.machinery import PathFinder
from typing import NoReturn

from verify.processes import start

#: The packages that the commands need, torch and triton apart: `dependencies` of pyproject.toml.
NEEDED = ("hypothesis", "ml_dtypes", "mpmath", "numpy", "pydantic", "pytest", "pytest-xdist", "rich", "typer")
#: What is installed to fit the machine and its driver: the extra `torch`.
MACHINE = ("torch", "triton")
#: Modules that another package than that of their name brings.
MODULES = {"pydantic_core": "pydantic", "xdist": "pytest-xdist"}


def process() -> NoReturn:
    """`main` as a process of its own. It ends once all that was registered for its end is done: to put torch's modules
    away, which the system does by itself, would take half a second or more."""
    ended: list[int] = []
    atexit.register(_leave, ended)  # the first to be registered is called last
    ended.append(main())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one, while it ends
    raise SystemExit(ended[0])


def _leave(ended: list[int]) -> None:
    """End this process with the exit code, if there is one."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # then Python ends as it usually does, and tells
        for code in ended:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def main() -> int:
    """Run the command line of the process and return the exit code."""
    usual, sys.unraisablehook = sys.unraisablehook, start.raised_again
    try:
        from verify.cli import commands

        return commands.main()
    except ModuleNotFoundError as error:
        line = missing(error)
        if line is None:
            from verify.cli.output import blame

            return blame(error)
        print(f"verify: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while it imports, or once more while the first one is dealt with
        print("verify: interrupted", file=sys.stderr)
        return 130
    finally:
        sys.unraisablehook = usual


def missing(error: ModuleNotFoundError) -> str | None:
    """What to install, where the module that was not found is one that the commands need: it and all others of them."""
    module = (error.name or "").partition(".")[0]
    name = MODULES.get(module, module)
    if name in MACHINE:
        return f"{name} is not installed, and it must fit this machine: python3 -m pip install {name}"
    if name not in NEEDED:
        return None
    lacking = [one for one in NEEDED if one == name or PathFinder.find_spec(_module(one)) is None]
    told = f"{lacking[0]} is" if len(lacking) == 1 else f"{', '.join(lacking[:-1])} and {lacking[-1]} are"
    return f"{told} not installed: python3 -m pip install {' '.join(lacking)}"


def _module(name: str) -> str:
    """What is imported of a package."""
    return {package: module for module, package in MODULES.items()}.get(name, name)


if __name__ == "__main__":
    process()
