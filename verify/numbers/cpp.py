"""Graphs as C++ for the host: emitted, compiled once for each source, compiler and processor, and called.

`mapped` compiles any pure function of tensors, in which form library functions are admitted; `on_host` is for those of
this project's own arithmetic, whose operations cost less than torch takes to call them one by one.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import platform
import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from verify import native
from verify.facts import formats
from verify.facts.formats import Format
from verify.native import Unsupported
from verify.numbers.graph import BITS, LIBRARY, Graph, Node, name_of, trace

Tensor = torch.Tensor
F = TypeVar("F", bound=Callable[..., Any])
#: A compiled graph: of tensors of one shape and the values of parameters.
Run = Callable[[Sequence[Tensor], Sequence[float]], tuple[Tensor, ...]]
HERE = Path(__file__).parent
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "iadd": "+", "isub": "-", "imul": "*", "iand": "&"}
_BINARY |= {"ior": "|", "ixor": "^", "and": "&", "or": "|", "xor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_BINARY |= {"ilt": "<", "ile": "<=", "ieq": "==", "ine": "!="}
_CALLS = {
    "max": "maximum", "min": "minimum", "atleast": "atleast", "atmost": "atmost", "neg": "negative", "abs": "absolute",
    "sqrt": "root", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "copysign": "copysign",
    "bits": "bits", "frombits": "frombits", "shl": "shl", "shr": "shr", "value": "value", "toint": "toint",
    "select": "select", "recip": "reciprocal",
}  # fmt: skip
_UNARY = {"ineg": "-", "inot": "~", "not": "~", "count": "-"}
_STORED = {torch.float64: "double", torch.float32: "float", torch.float16: "int16_t", torch.bfloat16: "int16_t"}
_STORED |= {dtype: f"{'u' if dtype == torch.uint8 else ''}int{bits}_t" for dtype, bits in BITS.items()}
_STORED |= {torch.bool: "uint8_t"}
#: Functions of lanes.h that are used instead of the C library's.
OWN = {"exp": "exponential"}
#: Functions of glibc's vector library that are used instead of the scalar ones, where there is AVX-512. expm1 and log1p
#: are not: they have been seen to err by more than half of what their entries allows them.
VECTOR = ("log", "pow", "tanh")


# ---------------------------------------------------------------- emission


def expression(node: Node, args: Sequence[str]) -> str:
    """The C++ of one operation on the names of its arguments."""
    if node.op == "const":
        return constant(node)
    if node.op in ("input", "raw"):
        return _load(node)
    if node.op == "parameter":
        return f"all(parameters[{node.attr}])"
    if node.op in _BINARY:
        return f"{args[0]} {_BINARY[node.op]} {args[1]}"
    if node.op in _UNARY:
        return f"{_UNARY[node.op]}{args[0]}"
    if node.op in _CALLS:
        return f"{_CALLS[node.op]}({', '.join(args)})"
    if node.op == "iabs":
        return f"select({args[0]} < 0, -{args[0]}, {args[0]})"
    if node.op == "lib":
        return f"lib_{node.attr}({', '.join(args)})"
    if node.op in ("round", "word", "unword", "fma"):
        return f"{node.op}_{node.attr}({', '.join(args)})"
    if node.op == "wrap":
        return f"{args[0]} & 255" if node.attr < 0 else f"wrap<{node.attr}>({args[0]})"
    raise Unsupported(f"the operation {node.op} in C++")


def constant(node: Node) -> str:
    if node.kind == "m":
        return f"all(int64_t{{{-int(node.attr)}}})"
    if node.kind == "i":
        return f"all(int64_t({node.attr}LL))" if node.attr != -(1 << 63) else "all(INT64_MIN)"
    value = struct.unpack("<d", struct.pack("<q", node.attr))[0]
    if value != value or value in (float("inf"), float("-inf")):
        return f"word({node.attr}LL)" if node.attr != -(1 << 63) else "word(INT64_MIN)"
    return f"all({value.hex()})"


def _load(node: Node) -> str:
    which, dtype = node.attr
    stored = _STORED[dtype]
    if node.op == "raw":
        return f"load<I>(static_cast<const int{8 * dtype.itemsize}_t*>(in[{which}]) + i)"
    kind = "D" if dtype in (torch.float64, torch.float32) else "I"
    loaded = f"load<{kind}>(static_cast<const {stored}*>(in[{which}]) + i)"
    return f"unword_{name_of(dtype)}({loaded})" if dtype in (torch.float16, torch.bfloat16) else loaded


KINDS = {"d": "D", "i": "I", "m": "I"}


def body(graph: Graph, places: Sequence[int]) -> tuple[list[str], dict[int, str]]:
    """One line for each operation that the places need, of those that are the same for all elements and, by place, of
    the others; the value at place k is v<k>."""
    before: list[str] = []
    each: dict[int, str] = {}
    divisors: set[int] = set()
    for p in graph.reached(places):
        node = graph.nodes[p]
        names = [f"v{a}" for a in node.args]
        code = expression(node, names)
        if node.op == "div" and graph.invariant(node.args[1]) and not graph.invariant(p):
            if node.args[1] not in divisors:
                before.append(f"const Divisor d{node.args[1]}({names[1]});")
                divisors.add(node.args[1])
            code = f"d{node.args[1]}.divide({names[0]})"
        line = f"const {KINDS[node.kind]} v{p} = {code};"
        if graph.invariant(p):
            before.append(line)
        else:
            each[p] = line
    return before, each


def library_source(names: Sequence[str]) -> str:
    """Definitions of library functions by name, as they are used: `lib_exp` and so on."""
    lines = []
    for name in names:
        given, passed = ("D a, D b", "a, b") if LIBRARY[name] == 2 else ("D a", "a")
        call = OWN.get(name) or f"each<std::{name}>"
        if name in VECTOR and _has_vectors():
            call = _vector(name)
            lines.append(f'extern "C" D {call}({given});')
        lines.append(f"inline D lib_{name}({given}) {{ return {call}({passed}); }}")
    return "\n".join(lines)


def _vector(name: str) -> str:
    """The name of a function of eight doubles in the x86-64 vector function ABI."""
    return f"_ZGVeN8{'v' * LIBRARY[name]}_{name}"


@functools.cache
def _has_vectors() -> bool:
    """Whether the C library has functions of eight doubles, for a processor that has vectors of them."""
    declared = " ".join(f'extern "C" void {_vector(name)}();' for name in VECTOR)
    source = f"""#include "lanes.h"
#ifndef __AVX512F__
#error narrower vectors
#endif
{declared}
extern "C" void (*const all_of_them[])() = {{{", ".join(map(_vector, VECTOR))}}};
"""
    try:
        build(source)
    except Unsupported:
        return False
    return True


# ---------------------------------------------------------------- compilation


def build(source: str, optimise: str = "-O2", extra: Sequence[str] = ()) -> ctypes.CDLL:
    """The shared library of a source that includes lanes.h. Raises Unsupported."""
    return native.build(source, optimise, extra, HERE / "lanes.h")


def libraries_in(graph: Graph, places: Sequence[int]) -> list[str]:
    return sorted({graph.nodes[p].attr for p in graph.reached(places) if graph.nodes[p].op == "lib"})


# ---------------------------------------------------------------- functions of tensors


def mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A pure function of host tensors of one shape, of which it gives one or a tuple, compiled for the arguments'
    dtypes when it is called. For `verify.numbers.admit.library`. The call raises Unsupported."""

    def call(*tensors: Tensor) -> Any:
        run, single = _mapped(function, tuple(t.dtype for t in tensors))
        found = run(tensors)
        return found[0] if single else found

    return call


@functools.cache
def _mapped(
    function: Callable[..., Any], dtypes: tuple[torch.dtype, ...]
) -> tuple[Callable[[Sequence[Tensor]], tuple[Tensor, ...]], bool]:
    graph, single = _traced(function, dtypes)
    run = columns(graph, list(graph.kinds.values()))
    return lambda tensors: run(tensors, ()), single


def _traced(function: Callable[..., Any], dtypes: Sequence[torch.dtype], parameters: int = 0) -> tuple[Graph, bool]:
    """The graph of a function that gives a tensor or a tuple of them, and whether it is one."""
    single = False

    def names(result: Any) -> dict[str, Any]:
        nonlocal single
        single = isinstance(result, torch.Tensor)
        return {str(k): t for k, t in enumerate((result,) if single else result)}

    return trace(lambda *tensors: names(function(*tensors)), dtypes, parameters), single


def on_host(function: F) -> F:
    """A pure element function of tensors that broadcast, of numbers, and of facts by keyword, which gives a tensor or a
    tuple of them: compiled for tensors on the host, with the same bits. Until that is done it is the function itself.

    A number, or a tensor of no dimension, may be another one in each call; None stands for an argument that is not
    there. Facts are compiled in; one that is no number, name or format stands for its class. Without a compiler, on
    other devices and while something traces it, it is the function itself, and so is one that takes a square root or
    calls a library, of which there are several.
    """

    @functools.wraps(function)
    def call(*given: Any, **facts: Any) -> Any:
        inputs = [t for t in given if isinstance(t, Tensor) and t.dim()]
        if (
            torch.compiler.is_compiling()
            or not inputs
            or not all(type(t) is Tensor and t.is_cpu for t in given if isinstance(t, Tensor))
        ):
            return function(*given, **facts)
        kinds = tuple(None if t is None else t.dtype if isinstance(t, Tensor) and t.dim() else float for t in given)
        told = tuple((k, type(v), v if isinstance(v, NAMED) else None) for k, v in facts.items())
        key = function, kinds, told
        if key not in _HOSTED:
            _HOSTED[key] = _hosted(function, kinds, facts)
        made = _HOSTED[key]
        if isinstance(made, Future) and made.done():
            made = _HOSTED[key] = made.result()
        if made is None or isinstance(made, Future):
            return function(*given, **facts)
        run, single = made
        if any(t.shape != inputs[0].shape for t in inputs):
            inputs = torch.broadcast_tensors(*inputs)  # type: ignore[no-untyped-call]
        numbers = [float(t) for t, kind in zip(given, kinds, strict=True) if kind is float]
        found = run(inputs, numbers)
        return found[0] if single else found

    return cast(F, call)


#: Facts that are compiled in as they are.
NAMED = (bool, int, float, str, Format)
Hosted = tuple[Run, bool] | None  # what was compiled, None where it could not be
_HOSTED: dict[Any, Hosted | Future[Hosted]] = {}


def settled() -> None:
    """Wait for what is being compiled."""
    for key, made in _HOSTED.items():
        if isinstance(made, Future):
            _HOSTED[key] = made.result()


def _hosted(function: Callable[..., Any], kinds: Sequence[Any], facts: Mapping[str, Any]) -> Hosted | Future[Hosted]:
    """The function with arguments of these kinds: tensors of a dtype, numbers, or none. What was made of one of this
    folder is kept, so that the next process need not trace it."""
    dtypes = [kind for kind in kinds if isinstance(kind, torch.dtype)]

    def laid(*tensors: Tensor) -> Any:
        inputs, numbers = iter(tensors[: len(dtypes)]), iter(tensors[len(dtypes) :])
        given = (None if kind is None else next(numbers) if kind is float else next(inputs) for kind in kinds)
        return function(*given, **facts)

    told = {name: repr(v) if isinstance(v, NAMED) else type(v).__qualname__ for name, v in facts.items()}
    mine = Path(function.__code__.co_filename).parent == HERE
    try:
        path = native.kept(f"{function.__module__} {function.__qualname__} {[*map(str, kinds)]} {told} {_digest()}")
        with suppress(OSError, ValueError, KeyError):
            if mine:
                return _loaded(json.loads(path.read_text()), path.parent, len(dtypes))
        graph, single = _traced(laid, dtypes, sum(kind is float for kind in kinds))
    except (Unsupported, OSError):
        return None
    return native.later(lambda: _made(graph, len(dtypes), single, path if mine else None))


def _loaded(about: Mapping[str, Any], folder: Path, count: int) -> Hosted:
    """What was kept of a function of so many tensors. Raises OSError, KeyError."""
    if not about["library"]:
        return None
    library = ctypes.CDLL(str(folder / about["library"]))
    return _caller(library, count, [getattr(torch, name) for name in about["outputs"]]), about["single"]


def _made(graph: Graph, count: int, single: bool, path: Path | None) -> Hosted:
    """What is compiled of a graph, None where tensors are to serve. path: where what `_loaded` takes is to be kept."""
    reached = {graph.nodes[p].op for p in graph.reached(list(graph.outputs.values()))}
    about: dict[str, Any] = {"library": ""}
    folder = Path()
    try:
        if reached.isdisjoint({"lib", "sqrt"}):  # MKL's square root, which torch has, does not round correctly
            library = Path(build(_columns_source(graph, list(graph.kinds.values())))._name)
            outputs = [str(kind).removeprefix("torch.") for kind in graph.kinds.values()]
            about, folder = {"library": library.name, "outputs": outputs, "single": single}, library.parent
        if path is not None:
            with native.written_at_once(path) as partial:
                partial.write_text(json.dumps(about))
        return _loaded(about, folder, count)
    except (Unsupported, OSError):
        return None


@functools.cache
def _digest() -> str:
    """Of all that decides what is made of a function of this folder."""
    found = hashlib.sha256(f"{torch.__version__} {platform.machine()}".encode())
    folders = [HERE, Path(native.__file__).parent, Path(formats.__file__).parent]
    for path in sorted(path for folder in folders for path in folder.glob("*.*") if path.suffix in (".py", ".h")):
        found.update(path.read_bytes())
    return found.hexdigest()


def columns(graph: Graph, kinds: Sequence[torch.dtype]) -> Run:
    """The graph's outputs as tensors of these dtypes, from host tensors of one shape and the values of parameters."""
    return _caller(build(_columns_source(graph, kinds)), len(graph.inputs), kinds)


def _columns_source(graph: Graph, kinds: Sequence[torch.dtype]) -> str:
    places = list(graph.outputs.values())
    stores = [_store(k, place, kind) for k, (place, kind) in enumerate(zip(places, kinds, strict=True))]
    before, each = body(graph, places)
    lines = "\n    ".join([*each.values(), *stores])
    taken = [
        f"std::memcpy(from[{k}], static_cast<const {_STORED[dtype]}*>(given[{k}]) + at, {dtype.itemsize} * (n - at));"
        for k, dtype in enumerate(graph.inputs)
    ]
    put = [
        f"std::memcpy(static_cast<{_STORED[kind]}*>(found[{k}]) + at, to[{k}], {kind.itemsize} * (n - at));"
        for k, kind in enumerate(kinds)
    ]
    return f"""#include "lanes.h"
{library_source(libraries_in(graph, places))}
extern "C" void run(const void* const* given, const double* parameters, void* const* found, int64_t n) {{
  const Environment environment;
  alignas(64) char from[{len(taken)}][8 * LANES] = {{}}, to[{len(put)}][8 * LANES];  // of fewer elements than LANES
  const void* last_in[{len(taken)}];
  void* last_out[{len(put)}];
  for (int k = 0; k < {len(taken)}; ++k) last_in[k] = from[k];
  for (int k = 0; k < {len(put)}; ++k) last_out[k] = to[k];
  {" ".join(before)}
  for (int64_t at = 0; at < n; at += LANES) {{
    const bool whole = at + LANES <= n;
    const void* const* in = whole ? given : last_in;
    void* const* out = whole ? found : last_out;
    const int64_t i = whole ? at : 0;
    if (!whole) {{ {" ".join(taken)} }}
    {lines}
    if (!whole) {{ {" ".join(put)} }}
  }}
}}
"""


def _caller(library: ctypes.CDLL, count: int, kinds: Sequence[torch.dtype]) -> Run:
    library.run.restype = None
    inputs, outputs = ctypes.c_void_p * count, ctypes.c_void_p * len(kinds)

    def run(tensors: Sequence[Tensor], parameters: Sequence[float]) -> tuple[Tensor, ...]:
        tensors = [t.contiguous() for t in tensors]
        made = tuple(torch.empty(tensors[0].shape, dtype=kind, device="cpu") for kind in kinds)
        values = (ctypes.c_double * len(parameters))(*parameters) if parameters else None
        library.run(
            inputs(*[t.data_ptr() for t in tensors]), values, outputs(*[t.data_ptr() for t in made]),
            ctypes.c_int64(tensors[0].numel()),
        )  # fmt: skip
        return made

    return run


def _store(k: int, place: int, kind: torch.dtype) -> str:
    if kind == torch.bool:
        return f"store(static_cast<uint8_t*>(out[{k}]) + i, v{place} & 1);"
    if kind in (torch.float16, torch.bfloat16):
        return f"store(static_cast<int16_t*>(out[{k}]) + i, word_{name_of(kind)}(v{place}));"
    return f"store(static_cast<{_STORED[kind]}*>(out[{k}]) + i, v{place});"


def pointers(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
