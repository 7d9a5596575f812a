"""What a function does, as far as its code tells, in a form that two processes can compare. No torch here."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any

#: What `repr` tells whole.
PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, Fraction, Decimal, Enum, PurePath,
    re.Pattern,
)  # fmt: skip
OF_TORCH = ("torch.dtype", "torch.device", "torch.layout", "torch.memory_format")
MUTABLE = (list, dict, set, deque)
#: Packages of which every process has the same, as of Python's own library, but for what is replaced in them.
SAME = {"torch", "functorch", "torchgen", "triton", "numpy", "mpmath", "sympy", "verify"}
LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
MOST = 1 << 18  # values that are told
LARGEST = 1 << 28  # bytes of a tensor that are
#: Members of a class that say nothing of what it does, or the same in other members.
ASIDE = {"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__firstlineno__"}


def digest(fn: Callable[..., Any], file: str) -> str:
    """16 hex digits of a function of a file: its code, defaults and closure, and of what it reads and calls plain
    values, containers, tensors, arrays, code, classes and objects. What was replaced since the file was imported
    changes them, such as a constant by `monkeypatch`, or the function by what `torch.compile` makes of it. Of what is
    too much to be told, two processes never have the same."""
    try:
        told = repr(_Told(Path(file).resolve().parent).of(fn))
    except (_TooMuch, RecursionError):
        told = f"process {os.getpid()}"
    return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:16]


class _TooMuch(Exception):
    pass


class _Told:
    """Values told so that equal ones of two processes are. `seen`: those that were, by identity, and held: else another
    one might have that after them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[Any, tuple[int, Any]] = {}
        self.left = MOST

    def of(self, value: Any, names: frozenset[str] = frozenset()) -> Any:
        """names: those that the code has which reads the value, perhaps its members'."""
        self.left -= 1
        if self.left < 0:
            raise _TooMuch
        kind = type(value)
        named = f"{kind.__module__}.{kind.__qualname__}" if not self.own(kind) else kind.__qualname__
        if isinstance(value, PLAIN) or named in OF_TORCH or named.startswith("numpy.dtype"):
            return kind.__name__, repr(value)
        if isinstance(value, (tuple, frozenset)):  # equal ones may be one object in one process, and two in another
            return named, self.contained(value)
        if any(value is one for one in (sys.modules, sys.path, sys.argv)):  # each process has its own
            return named
        key = (id(value), names) if isinstance(value, types.ModuleType) else id(value)
        if key in self.seen:
            return self.seen[key][0]
        self.seen[key] = len(self.seen), value
        if isinstance(value, ContextVar):
            return named, self.of(value.get(None))
        if isinstance(value, MUTABLE):
            return named, self.contained(value), self.inside(value)
        if isinstance(value, types.ModuleType):
            file = getattr(value, "__file__", None)
            if file is not None and Path(file).resolve().parent == self.folder:
                # the function's own has another name in a process of its own
                return [Path(file).name, self.members(vars(value), names)]
            return [value.__name__, self.members({k: one for k, one in vars(value).items() if k in names}, names)]
        if isinstance(value, functools.partial):
            return [self.of(one) for one in (value.func, value.args, value.keywords)]
        if isinstance(value, types.MethodType):
            return [self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, type):
            if not self.own(value):
                return f"{value.__module__}.{value.__qualname__}"
            bases = [self.of(base) for base in value.__bases__]
            return bases, self.members({k: one for k, one in vars(value).items() if k not in ASIDE})
        return [named, *self.inner(value), _bits(value), self.inside(value), *self.builtin(value)]

    def contained(self, value: Iterable[Any]) -> Any:
        if isinstance(value, dict):
            items = list(dict.items(value))
            if all(isinstance(k, PLAIN) for k, _ in items):  # which may come from a set, in an order of the process's
                items.sort(key=lambda item: repr(item[0]))
            return [(self.of(k), self.of(one)) for k, one in items]
        told = [self.of(one) for one in value]
        return sorted(told, key=repr) if isinstance(value, (set, frozenset)) else told

    def inside(self, value: Any) -> Any:
        """What an object holds: one of a class of the folder all, others what they are made to hold."""
        kind = type(value)
        there = getattr(value, "__dict__", {})
        slots = [name for one in kind.__mro__ for name in _slots(one)]
        told: Any = []
        if self.own(kind):
            told = self.of(kind)
        elif {"_parameters", "_buffers", "_modules"} <= there.keys():  # a torch.nn.Module
            kept = ("_parameters", "_buffers", "_modules")
            there = {name: one for name, one in there.items() if name in kept or isinstance(one, PLAIN)}
        elif not isinstance(value, types.SimpleNamespace) and not is_dataclass(value):
            return []
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        return told, self.members({**there, **held})

    def function(self, value: types.FunctionType) -> Any:
        parts = [*self.inner(value), self.of(value.__defaults__), self.of(value.__kwdefaults__)]
        for cell in value.__closure__ or ():
            try:
                parts.append(self.of(cell.cell_contents))
            except ValueError:  # it is empty
                parts.append("")
        code, there = value.__code__, value.__globals__
        if not self.near(code.co_filename, there.get("__name__")):  # its own is that of what it wraps
            return [code.co_filename, code.co_name, *parts]
        names = frozenset(_names(code))
        read = [
            (name, self.of(there[name], names))
            for name in sorted(names)
            if name in there and not _submodule(there, name)
        ]
        tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        read += [(name, self.of(getattr(tensor, name))) for name in sorted(names) if hasattr(tensor, name)]
        return [self.code(code), parts, read, self.members({**vars(value), "__wrapped__": None})]

    def code(self, code: types.CodeType) -> Any:
        constants = [self.code(one) if isinstance(one, types.CodeType) else self.of(one) for one in code.co_consts]
        return code.co_code, code.co_names, code.co_varnames, code.co_flags, constants

    def inner(self, value: Any) -> list[Any]:
        """The function in what a decorator made of it, in a property, or in a Triton kernel."""
        names = "__wrapped__", "__func__", "fn", "func", "fget", "fset"
        found = (getattr(value, name, None) for name in names)
        return [self.of(one) for one in found if isinstance(one, types.FunctionType) or hasattr(one, "fn")]

    def builtin(self, value: Any) -> list[Any]:
        """Of a function that is not Python's, such as torch.exp, its name and whose it is."""
        name, owner = (getattr(value, one, None) for one in ("__name__", "__self__"))
        if not isinstance(name, str):
            return []
        return [name, None if isinstance(owner, types.ModuleType) else self.of(owner)]

    def members(self, there: Mapping[str, Any], names: frozenset[str] = frozenset()) -> list[Any]:
        told = sorted((name, one) for name, one in there.items() if _tells(name, one))
        return [(name, self.of(one, names)) for name, one in told]

    def near(self, file: str | None, name: str | None) -> bool:
        """Whether what a module of that name and file says is told."""
        return file is not None and _near(self.folder, file, name or "")

    def own(self, kind: type) -> bool:
        """Whether a class is one of such a module."""
        return self.near(getattr(sys.modules.get(kind.__module__), "__file__", None), kind.__module__)


@functools.lru_cache(4096)
def _near(folder: Path, file: str, name: str) -> bool:
    path = Path(file).resolve()
    if path.parent == folder:
        return True
    installed = {"site-packages", "dist-packages"} & {*path.parts}
    library = file.startswith("<frozen") or (path.is_relative_to(LIBRARY) and not installed)
    return not library and name.partition(".")[0] not in SAME


def _submodule(there: Mapping[str, Any], name: str) -> bool:
    """Whether a name of a package's `__init__` is its submodule, which is there once anybody has imported it."""
    value, package = there[name], there.get("__package__")
    return isinstance(value, types.ModuleType) and value.__name__ == f"{package}.{name}"


def _tells(name: str, value: Any) -> bool:
    """Whether a member says what its owner does: none that Python gives each, but methods such as __call__."""
    return not name.startswith("__") or isinstance(value, types.FunctionType)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _bits(value: Any) -> Any:
    """Of a tensor or an array its dtype, shape and bytes."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        kind = str(value.dtype), tuple(value.shape), value.device.type
        if value.device.type == "meta":
            return kind
        if value.layout != torch.strided or value.nbytes > LARGEST:
            raise _TooMuch
        from verify.workers.launch import octets

        return (*kind, hashlib.sha256(octets(value.detach().cpu().resolve_conj()).numpy().tobytes()).hexdigest())
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        if value.dtype.hasobject or value.nbytes > LARGEST:
            raise _TooMuch
        return str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()
    return None


def _names(code: types.CodeType) -> set[str]:
    """Names that the code may read, also in functions within it, or has as text, as for `globals()["NAME"]`."""
    found = {*code.co_names}
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            found |= _names(one)
        elif isinstance(one, str):
            found.add(one)
    return found
