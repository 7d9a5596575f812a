"""Kernels in Metal's language run on the host: their own text, compiled as C++ against a stand-in of Metal's library.

What is checked is the source's arithmetic, operation by operation as written, contracted or not: neither Apple's
compiler nor Apple's functions, which are models within their documented errors (`metal_shim/metal_stdlib`).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify.native import cache, written_at_once
from verify.virtual.compile import Unsupported

if TYPE_CHECKING:
    import torch

SHIM = Path(__file__).parent / "metal_shim"
#: Of clang alone, -ffp-contract=on contracts within a statement, as Metal does; g++ takes it as off.
CLANG = ("clang++", *(f"clang++-{version}" for version in range(23, 13, -1)))
OPTIONS = (
    "-std=c++17",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-attributes",
    "-Wno-unknown-pragmas",
    "-shared",
    "-fPIC",
)
#: Functions of the shim that are models.
MODELLED = re.compile(r"\bfast::(?:exp|log|reciprocal|divide)\b")


@functools.cache
def clang() -> str | None:
    """A clang++, if there is one."""
    return next((path for name in CLANG if (path := shutil.which(name))), None)


@dataclass(frozen=True)
class Mode:
    """How source is compiled, besides what it says itself.

    contract  whether products are fused into sums within a statement, where the source's pragma leaves it open
    end       of the documented errors: -1 the least result, 0 the nearest, 1 the greatest
    flush     subnormal operands and results are taken as zero, as MSL 8.1 permits
    """

    contract: bool = False
    end: int = 0
    flush: bool = False


class Library:
    """What `torch.mps.compile_shader` returns: an attribute for each kernel of the source.

    compiler: a C++ compiler and further options. host: of a tensor, the one with its elements. launched: called at each
    launch with the models in the source. Raises SyntaxError as torch does.
    """

    def __init__(
        self, source: str, compiler: Sequence[str], mode: Mode = Mode(), *, host: Callable[[Any], Any] = lambda t: t,
        launched: Callable[[set[str]], None] = lambda models: None,
    ) -> None:  # fmt: skip
        assert source.isascii(), "torch hands the source to Metal as ASCII"
        self._mode, self._host, self._launched = mode, host, launched
        self._models = set(MODELLED.findall(source))
        self._library = ctypes.CDLL(str(_compiled(source, tuple(compiler), mode)))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """The kernel's launch as torch binds it: tensors by address, integers as int64, as many threads as the first
        tensor has elements unless told."""
        import torch

        function = getattr(self._library, f"launch_{name}")

        def launch(*args: torch.Tensor | int, threads: int | None = None) -> None:
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            assert all(self._host(t).is_contiguous() for t in tensors)
            given: list[Any] = []
            for a in args:
                if isinstance(a, torch.Tensor):
                    given.append(ctypes.c_void_p(self._host(a).data_ptr()))
                else:
                    assert isinstance(a, int)
                    given.append(ctypes.byref(ctypes.c_int64(a)))
            torch.set_flush_denormal(self._mode.flush)
            try:
                function(*given, ctypes.c_uint64(tensors[0].numel() if threads is None else threads))
            finally:
                torch.set_flush_denormal(False)
            self._launched(self._models)

        return launch


def approximate_divisions(source: str) -> str:
    """Source under fast math with the shim's functions for reciprocals (within 1 ULP) and quotients (2.5, MSL table
    8.2). Raises Unsupported for a division amid other operations, which fast math may rearrange."""
    if "math_mode(fast)" not in source:
        return source
    replaced = re.sub(r"\b1\.0f / (\w+)\b", r"fast::reciprocal(\1)", source)
    replaced = re.sub(r"\breturn (\w+) / (\w+);", r"return fast::divide(\1, \2);", replaced)
    if re.search(r"[^/*]/[^/*]", replaced):
        raise Unsupported("a division under fast math amid other operations, which it may rearrange")
    return replaced


def _driver(source: str) -> str:
    """For each kernel a function that runs its threads one after the other."""
    drivers = []
    for name, parameters in re.findall(r"kernel void (\w+)\((.*?)\) \{", source, re.DOTALL):
        *given, thread = (p.strip() for p in parameters.split(","))
        assert "thread_position_in_grid" in thread
        names = ", ".join(p.split()[-1].lstrip("*&") for p in given)
        drivers.append(
            f'extern "C" void launch_{name}({", ".join(given)}, std::uint64_t threads) {{\n'
            f"    for (std::uint64_t i = 0; i < threads; ++i) {name}({names}, metal::uint(i));\n}}\n"
        )
    assert drivers, "no kernel in the source"
    return "\n".join(drivers)


@functools.cache
def version(compiler: str) -> str:
    """A compiler's own description of its version."""
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout


@functools.cache
def _compiled(source: str, compiler: tuple[str, ...], mode: Mode) -> Path:
    text = f"{source}\n{_driver(source)}"
    if "#include <metal_stdlib>" not in text:  # the Metal compiler includes nothing implicitly either
        text = f"#include <metal_stdlib>\nusing namespace metal;\n{text}"
    contract = mode.contract and "fp contract(off)" not in source
    options = [
        *OPTIONS,
        *compiler[1:],
        f"-ffp-contract={'on' if contract else 'off'}",
        f"-DEND={mode.end}",
        f"-I{SHIM}",
    ]
    if contract and platform.machine() == "x86_64":
        options.append("-mfma")  # without the processor's fma nothing is contracted
    parts = [text, (SHIM / "metal_stdlib").read_text(), version(compiler[0]), *options]
    path = cache() / "metal" / f"{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:24]}.so"
    if not path.exists():
        with written_at_once(path) as partial:
            command = [compiler[0], *options, "-o", str(partial), "-x", "c++", "-"]
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            if done.returncode:  # as torch does
                raise SyntaxError(done.stderr)
    return path
