"""A lowering of your own: its call, what it may return, its bound, and a file to start from.

Stated here for `verify show`, from the kernel's facts; the call itself is in `verify.lower.user`. No torch is
imported.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from verify import backends
from verify.facts.kernel import Composite, Kernel

#: The name by which bounds and laws match any file of a user's own.
MINE = "mine.py:mine"


class _Written:
    """A value that records, as text, the expression that made it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> _Written:
        return _Written(f"{self}.{name}")

    def __getitem__(self, key: object) -> _Written:
        ends = (key.start, key.stop) if isinstance(key, slice) else (key,)
        return _Written(f"{self}[{':'.join('' if end is None else str(end) for end in ends)}]")

    def __call__(self, *positional: object, **named: object) -> _Written:
        given = [*map(str, positional), *(f"{name}={value}" for name, value in named.items())]
        return _Written(f"{self}({', '.join(given)})")

    def __str__(self) -> str:
        return self._text


def expression(call: Callable[..., Any], *names: str, **keywords: str) -> str:
    """What `call(torch, ...)` computes of inputs of these names, as it is written in Python."""
    given = {name: _Written(text) for name, text in keywords.items()}
    return str(call(_Written("torch"), *map(_Written, names), **given))


def source(kernel: Kernel | Composite) -> str:
    """The text of a Python file with a lowering that computes what torch does, and whose docstring states its
    bounds."""
    name = kernel.name
    told = "\n".join(f"{label} {text}" for label, text in terms(kernel))
    body = kernel.stub if isinstance(kernel, Composite) else _widened(kernel)
    imports = "import numpy\nimport torch\n" if "numpy." in body else "import torch\n"
    return (
        f'"""{name}: {kernel.summary}. A lowering of your own, which starts as what torch computes.\n\n'
        f'    verify kernel {name} --lowering mine.py:{name}\n\n{told}\n"""\n\n{imports}\n\n{body}'
    )


def _widened(kernel: Kernel) -> str:
    """torch's default spelling, or the kernel's own text, in float32 at least, rounded once: as the bounds of 16-bit
    types want it."""
    call = kernel.stub or expression(
        next(iter(kernel.spellings.values())).call, **{name: name for name in kernel.inputs}
    )
    always = [name for name in kernel.inputs if all(name not in case for case in kernel.cases)]
    tensors = _tensors(kernel)
    listed = tensors[0] if len(tensors) == 1 else ", ".join(tensors)
    dtype = f"{always[0]}.dtype" if always else f"next(t.dtype for t in ({listed}) if torch.is_tensor(t))"
    lines = [f"dtype = {dtype}", f"{listed} = widened({listed})", f"return {call}.to(dtype)"]
    if len(tensors) > 1:
        lines[1] = f"{listed} = map(widened, ({listed}))"
    body = "".join(f"    {line}\n" for line in lines)
    return f"def {kernel.name}({', '.join(kernel.inputs)}):\n{body}{WIDENED}"


WIDENED = """

def widened(x):
    \"\"\"float32 for 16-bit types, so that the result is rounded once; a Python scalar as it is.\"\"\"
    return x.float() if torch.is_tensor(x) and x.dtype.itemsize < 4 else x
"""


def _tensors(kernel: Kernel) -> list[str]:
    """Inputs that are tensors in some case."""
    return [name for name in kernel.inputs if any(name not in case for case in kernel.cases)]


def terms(kernel: Kernel | Composite) -> list[tuple[str, str]]:
    """How a lowering of the user's own is called, what it returns and what it is held to: (label, text)."""
    return [*(_of_rows(kernel) if isinstance(kernel, Composite) else _of_elements(kernel)), ("always:", ALWAYS)]


ALWAYS = (
    "inputs stay as they are; outputs have memory of their own; the bits are the same in every launch; no entry of the "
    "ledger excuses it, except where its bits are eager's (status deviates, or allowed) or no lowering of the kernel "
    "can be told right from wrong (allowed); subnormals may be flushed only where the backend does so by itself"
)


def _of_elements(kernel: Kernel) -> Iterator[tuple[str, str]]:
    scalars = list(dict.fromkeys(itertools.chain.from_iterable(kernel.cases)))
    tensors = _tensors(kernel)
    both = [name for name in tensors if name in scalars]
    told = f"{kernel.name}({', '.join(kernel.inputs)}), by name or by position; "
    told += f"{', '.join(tensors)}: contiguous tensors of one dtype and of one dimension, and of other shapes and "
    told += "strides, which it may refuse with an exception"
    if only := [name for name in scalars if name not in both]:
        told += f"; {', '.join(only)}: a Python float"
    if both:
        told += f"; {', '.join(both)}: in some cases a Python float"
    yield "called as:", told
    yield "returns:", "one tensor of their shape, dtype and device"
    yield from ((f"held to on {where}:", text) for where, text in _bounds(kernel).items())
    if scalars:
        yield "scalars:", "as they are, or rounded to the dtype: what keeps its bound against one of the two passes"
    laws = [law.name for law in kernel.properties if "*" in law.lowerings]
    if laws:
        yield "keeps:", "; ".join(laws)


def _bounds(kernel: Kernel) -> dict[str, str]:
    """The bounds of a user's own lowering, by backends that share them."""
    spelling = next(iter(kernel.spellings))
    found: dict[str, list[str]] = {}
    for backend in backends.names():
        parts = []
        for dtype in kernel.dtypes:
            by_bound: dict[str, list[str]] = {}
            for case in kernel.cases:
                bound = kernel.bound(lowering=MINE, backend=backend, spelling=spelling, dtype=dtype, scalars=case)
                text = "no bound" if bound is None else f"{bound.value:.6g} {bound.metric}"
                by_bound.setdefault(text, []).append(" ".join(f"{k}={v!r}" for k, v in case.items()) or "tensors")
            each = [text if len(by_bound) == 1 else f"{text} ({', '.join(of)})" for text, of in by_bound.items()]
            parts.append(f"{dtype} {', '.join(each)}")
        found.setdefault("; ".join(parts), []).append(backend)
    return {", ".join(names): text for text, names in found.items()}


def _of_rows(kernel: Composite) -> Iterator[tuple[str, str]]:
    scalars = list(dict.fromkeys(itertools.chain.from_iterable(kernel.cases)))
    own = ", ".join(kernel.settings[0].parameters)
    floats = f"; as Python floats {', '.join(scalars)}" if scalars else ""
    yield "called as:", f"{kernel.name}({', '.join(kernel.inputs)}), the tensors by position"
    yield "by keyword:", f"whatever of these it has a parameter for: the setting's {own}{floats}"
    yield from ((f"{name}=:", text) for name, text in kernel.keywords.items())
    asked = dict.fromkeys(name for setting in kernel.settings for name in kernel.asks(setting.parameters))
    if asked:
        yield "left out:", f"without a parameter for one of {', '.join(asked)} it is not run where that is asked for"
    if scalars:
        usual = " ".join(f"{k}={v!r}" for k, v in kernel.defaults.items())
        text = f"without a parameter for {' or '.join(scalars)} it is run with what --scalar NAME=VALUE names"
        yield "fixed:", text + (f", or with {usual}" if usual else "")
    if kernel.spared:
        yield "spared:", f"it may have no parameter for {', '.join(kernel.spared)}, and leave out what needs it"
    if named := [name for name in kernel.outputs if name]:
        text = f"a dict by output, or a tuple in the order {', '.join(named)}; what it leaves out is not run"
        yield "returns:", f"{text}; shapes and dtypes are eager's"
    else:
        yield "returns:", "one tensor of eager's shape and dtype"
    yield "held to:", kernel.held
