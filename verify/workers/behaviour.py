"""What a function does, as far as its code tells, in a form that two processes can compare. No torch here."""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
SEVERAL = (tuple, list, set, frozenset)
MOST = 64  # members of a container that are looked at; one of more, or with others than plain ones, may be a cache
LARGEST = 1 << 20  # bytes of a tensor that are looked at


def digest(fn: Callable[..., Any], file: str) -> str:
    """16 hex digits of a function of a file: its code, defaults and closure, and of what it reads and calls in the
    file's folder code, plain values, classes, objects and tensors. What was replaced since the file was imported
    changes them, such as a constant by `monkeypatch`, or the function by what `torch.compile` makes of it."""
    told = _Told(Path(file).resolve().parent).of(fn)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


class _Told:
    """Values told so that equal ones of two processes are. `seen`: those that were, by identity."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[int, int] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, PLAIN):
            return repr(value)
        if id(value) in self.seen:
            return self.seen[id(value)]
        if isinstance(value, (*SEVERAL, dict)):
            return _contained(value) or type(value).__name__
        self.seen[id(value)] = len(self.seen)
        if isinstance(value, types.ModuleType):
            near = self.near(getattr(value, "__file__", None))
            return [value.__name__, self.members(vars(value)) if near else None]
        if isinstance(value, functools.partial):
            return [self.of(one) for one in (value.func, value.args, value.keywords)]
        if isinstance(value, types.MethodType):
            return [self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if self.own(value if isinstance(value, type) else type(value)):
            inside = [self.of(base) for base in value.__bases__] if isinstance(value, type) else self.of(type(value))
            return [inside, self.members(getattr(value, "__dict__", {}))]
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        return [kind, *self.inner(value), _bits(value), *([value.__qualname__] if isinstance(value, type) else [])]

    def function(self, value: types.FunctionType) -> Any:
        parts = [*self.inner(value), self.of(value.__defaults__), self.of(value.__kwdefaults__)]
        for cell in value.__closure__ or ():
            try:
                parts.append(self.of(cell.cell_contents))
            except ValueError:  # it is empty
                parts.append("")
        code, there = value.__code__, value.__globals__
        if not self.near(code.co_filename):
            return [code.co_filename, code.co_name, *parts]
        return [_code(code), parts, [(name, self.of(there[name])) for name in _names(code, there)]]

    def inner(self, value: Any) -> list[Any]:
        """The function in what a decorator made of it, or in a Triton kernel."""
        found = (getattr(value, name, None) for name in ("__wrapped__", "fn"))
        return [self.of(one) for one in found if isinstance(one, types.FunctionType)]

    def members(self, there: Mapping[str, Any]) -> list[Any]:
        return [(name, self.of(one)) for name, one in sorted(there.items()) if not name.startswith("__")]

    def near(self, file: str | None) -> bool:
        """Whether a file lies in the folder."""
        return file is not None and Path(file).resolve().parent == self.folder

    def own(self, kind: type) -> bool:
        """Whether a class is one of a file of the folder."""
        return self.near(getattr(sys.modules.get(kind.__module__), "__file__", None))


def _bits(value: Any) -> Any:
    """Of a tensor that is not large its dtype, shape and bytes."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    kind = str(value.dtype), tuple(value.shape), value.device.type
    if value.layout != torch.strided or value.nbytes > LARGEST or value.device.type == "meta":
        return kind
    flat = value.detach().cpu().contiguous().reshape(-1)
    return (*kind, hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest())


def _contained(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return repr(value)
    members = [*value.items()] if isinstance(value, Mapping) else [*value] if isinstance(value, SEVERAL) else None
    told = None if members is None or len(members) > MOST else [_contained(one) for one in members]
    if told is None or None in told:
        return None
    return type(value).__name__, sorted(told, key=repr) if isinstance(value, (set, frozenset)) else told


def _names(code: types.CodeType, there: Mapping[str, Any]) -> list[str]:
    """Names of the module that the code may read, also in functions within it."""
    found = {name for name in code.co_names if name in there}
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            found |= set(_names(one, there))
    return sorted(found)


def _code(code: types.CodeType) -> Any:
    constants = [_code(one) if isinstance(one, types.CodeType) else _contained([one]) for one in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_flags, constants
