"""What a function does, as far as its code tells, in a form that two processes can compare. No torch here."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
SEVERAL = (tuple, list, set, frozenset)
MOST = 64  # members of a container that are looked at; one of more, or with others than plain ones, may be a cache


def digest(fn: Callable[..., Any]) -> str:
    """16 hex digits of a function's code, defaults and closure, of the plain values that it reads from its module, and
    of the functions of its folder that it calls. What was replaced since the file was imported changes them, such as a
    constant by `monkeypatch`, or the function by what `torch.compile` makes of it."""
    return hashlib.sha256(repr(_told(fn, {}, _folder(fn))).encode()).hexdigest()[:16]


def _folder(fn: Any) -> str:
    path = getattr(getattr(fn, "__code__", None), "co_filename", "")
    return str(Path(path).parent)


def _told(value: Any, seen: dict[int, int], folder: str) -> Any:
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, types.ModuleType):
        return value.__name__
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, (*SEVERAL, dict)):
        return _contained(value) or type(value).__name__
    seen[id(value)] = len(seen)
    if isinstance(value, functools.partial):
        return [_told(one, seen, folder) for one in (value.func, value.args, value.keywords)]
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    inner = [getattr(value, name, None) for name in ("__wrapped__", "fn")]  # of a decorator, of a Triton kernel
    parts = [_told(one, seen, folder) for one in inner if isinstance(one, types.FunctionType)]
    if not isinstance(value, types.FunctionType):
        return [kind, *parts]
    parts += [_told(one, seen, folder) for one in (value.__defaults__, value.__kwdefaults__)]
    for cell in value.__closure__ or ():
        try:
            parts.append(_told(cell.cell_contents, seen, folder))
        except ValueError:  # it is empty
            parts.append("")
    if _folder(value) != folder:
        return [kind, value.__code__.co_filename, value.__code__.co_name, *parts]
    read = [(name, _told(value.__globals__[name], seen, folder)) for name in _names(value.__code__, value.__globals__)]
    return [kind, _code(value.__code__), parts, read]


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
