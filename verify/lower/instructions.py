"""Inductor's question which vector instructions C++ may use, asked once and for all kinds at the same time.

Inductor compiles programs for each kind, up to ten in all, and loads each in a process of its own: anew in every
process that compiles C++, and one after another (torch/_inductor/cpu_vec_isa.py, VecISA.check_build). In torch 2.11
each process that loads one imports torch.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from verify import native

#: In place of VecISA._avx_py_load, where that imports torch: its libraries alone.
LOADED = """
import ctypes
for name in ("libc10.so", "libtorch_cpu.so"):
    ctypes.CDLL({folder!r} + "/" + name, ctypes.RTLD_GLOBAL)
ctypes.CDLL("__lib_path__")
"""


@functools.cache
def keep() -> None:
    """Have Inductor's answers kept, those that say yes, for all processes."""
    about: Any = importlib.import_module("torch._inductor.cpu_vec_isa")
    kind: Any = getattr(about, "VecISA", None)
    if hasattr(kind, "check_build"):  # else a torch that has another way
        asked = _Asked(about, kind)
        kind.check_build = lambda isa, code: asked(isa, code)


class _Asked:
    """VecISA.check_build, given torch's."""

    def __init__(self, about: Any, kind: Any) -> None:
        import torch

        self.about, self.kind, self.check = about, kind, kind.check_build
        self.version = f"{torch.__version__} {torch.__file__}"
        self.usual = str(getattr(kind, "_avx_py_load", ""))
        self.alone, self.begun = threading.Lock(), False
        self.slow = sys.platform == "linux" and self.usual.lstrip().startswith("import torch")
        if self.slow:
            kind._avx_py_load = LOADED.format(folder=str(Path(torch.__file__).parent / "lib"))

    def __call__(self, isa: Any, code: str) -> bool:
        if not self.begun:
            self.begun = True
            self._ask_together()
        return self._asked(isa, code)

    def _ask_together(self) -> None:
        """The longest program, which all kinds have."""
        code = getattr(self.kind, "_avx_code", None)
        here: list[str] = getattr(self.about, "x86_isa_checker", list)()
        kinds = [isa for isa in getattr(self.about, "supported_vec_isa_list", ()) if {*str(isa).split()} <= {*here}]
        if code is not None and kinds:
            with ThreadPoolExecutor(len(kinds)) as threads:
                list(threads.map(lambda isa: self._asked(isa, code), kinds))

    def _asked(self, isa: Any, code: str) -> bool:
        question = f"{self.version} {isa} {isa.build_arch_flags()}\n{code}"
        return native.confirmed(question, lambda: self._found(isa, code))

    def _found(self, isa: Any, code: str) -> bool:
        if self.check(isa, code):
            return True
        if not self.slow:
            return False
        with self.alone:  # in torch's own way
            quick, self.kind._avx_py_load = self.kind._avx_py_load, self.usual
            try:
                return bool(self.check(isa, code))
            finally:
                self.kind._avx_py_load = quick
