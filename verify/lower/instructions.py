"""Inductor's questions which vector instructions C++ may use, asked once and all at the same time.

Inductor compiles programs for each kind, up to ten in all, and loads each in a process of its own: anew in every
process that compiles C++, and one after another (torch/_inductor/cpu_vec_isa.py, VecISA.check_build). In torch 2.11
each process that loads one imports torch.
"""

from __future__ import annotations

import functools
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from verify import native

#: In place of VecISA._avx_py_load, where that imports torch: its libraries alone, if they suffice. Those built for CUDA
#: do not, for programs that are linked with all of them.
LOADED = """
import ctypes
try:
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL({folder!r} + "/" + name, ctypes.RTLD_GLOBAL)
    ctypes.CDLL("__lib_path__")
except OSError:
    exec({usual!r})
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
        self.begun = False
        usual = str(getattr(kind, "_avx_py_load", ""))
        if sys.platform == "linux" and usual.lstrip().startswith("import torch"):
            kind._avx_py_load = LOADED.format(folder=str(Path(torch.__file__).parent / "lib"), usual=usual)

    def __call__(self, isa: Any, code: str) -> bool:
        if not self.begun:
            self.begun = True
            self._ask_together()
        return self._asked(isa, code)

    def _ask_together(self) -> None:
        """Of all kinds that the processor has, the programs by which Inductor finds out what each has."""
        here: list[str] = getattr(self.about, "x86_isa_checker", list)()
        kinds = [isa for isa in getattr(self.about, "supported_vec_isa_list", ()) if {*str(isa).split()} <= {*here}]
        named = [(isa, getattr(isa, name)) for isa in kinds for name in dir(isa) if name.endswith("_code")]
        questions = [(isa, code) for isa, code in named if isinstance(code, str)]
        if questions:
            with ThreadPoolExecutor(len(questions)) as threads:
                list(threads.map(lambda one: self._asked(*one), questions))

    def _asked(self, isa: Any, code: str) -> bool:
        question = f"{self.version} {isa} {isa.build_arch_flags()}\n{code}"
        return native.confirmed(question, lambda: bool(self.check(isa, code)))
