"""Graphs as Triton kernels, for the judge on a GPU: `compiled` and `mapped` as in `verify.judge.fused.cpp`.

Of a sweep a first kernel adds up the elements that are plain and lists the others, which a second one judges in full.
Two things need another look at a few tiles: which elements are open, and the largest errors, which lie in the pieces of
the largest maxima.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from verify.facts.formats import FORMATS, Format
from verify.judge.chunk import differing
from verify.judge.fused.cpp import Element, Likely, Predict, fields_of, plain_fields_of
from verify.judge.reduce import COUNTED, LEADERS, METRICS, SLOTS, InRegion, Reduced
from verify.judge.regions import REGIONS
from verify.native import Unsupported, cache, compiling
from verify.numbers.decide import BINS
from verify.numbers.graph import BITS, Graph, Node, name_of, trace

Tensor = torch.Tensor
LANES = 64 if torch.version.hip else 32
BLOCK = LANES  # elements of a tile, one a lane: for more there are too few registers
WARPS = 1  # so that lanes agree without a barrier
TILES = 512  # that a program takes at most; the fields of its counts have room for more
PROGRAMS = 2048  # of fewer elements a program takes fewer tiles
SWEPT = 1 << 20  # elements, of fewer of which all are judged in full: one kernel less is compiled
AGAIN = (1 << 22) // BLOCK  # tiles that are looked at again at a time: each element takes two hundred bytes there
#: What is told of each of their elements, in the kernels' order.
FIELDS = dict.fromkeys(("region", "open"), torch.int32) | dict.fromkeys(("upper", "scaled", "share"), torch.float64)
SPARE = 4  # a part of the elements that is listed at most; of more all are judged in full
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "iadd": "+", "isub": "-", "imul": "*", "iand": "&"}
_INFIX |= {"ior": "|", "ixor": "^", "and": "&", "or": "|", "xor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_INFIX |= {"ilt": "<", "ile": "<=", "ieq": "==", "ine": "!=", "shl": "<<", "shr": ">>"}
_CALLS = {
    "max": "t.maximum", "min": "t.minimum", "atleast": "t.atleast", "atmost": "t.atmost", "neg": "t.negative",
    "abs": "t.absolute", "sqrt": "tl.sqrt", "floor": "tl.floor", "ceil": "tl.ceil", "trunc": "libdevice.trunc",
    "rint": "libdevice.nearbyint", "copysign": "t.copysign", "bits": "t.pattern", "frombits": "t.number",
    "select": "tl.where", "recip": "t.reciprocal",
}  # fmt: skip
_LANGUAGE = {"exp", "log", "exp2", "log2", "sin", "cos", "erf"}  # functions of triton.language itself
#: What the first kernel hands to the reduction, and the second stores.
_FIELDS = (
    "region", "cls", "open", "measured", "error", "negative", "upper", "scaled", "share", "steps", "unjudged",
    "different", "closer", "farther", "exponent",
)  # fmt: skip
_AGAIN = ("region", "open", "upper", "scaled", "share")


def expression(node: Node, args: Sequence[str], every: int = 0, held: bool = False) -> str:
    """The Triton of one operation on the names of its arguments. every, held: see `_load`."""
    op = node.op
    if op == "const":
        if node.kind == "m":
            return f"tl.full((BLOCK,), {int(node.attr)}, tl.int1)"
        value = f"tl.full((BLOCK,), {node.attr}, tl.int64)"  # as all values: the interpreter compares no scalars
        return value if node.kind == "i" else f"t.number({value})"
    if op == "parameter":
        return f"tl.load(parameters + {node.attr} + lane * 0)"
    if op in ("input", "raw"):
        return _load(node, every, held)
    if op in _INFIX:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    if op in _CALLS:
        return f"{_CALLS[op]}({', '.join(args)})"
    if op in ("round", "word", "unword", "fma"):
        return f"t.{op}_{node.attr}({', '.join(args)})"
    if op == "lib":
        return f"{'tl' if node.attr in _LANGUAGE else 'libdevice'}.{node.attr}({', '.join(args)})"
    simple = {
        "not": "~{0}", "inot": "~{0}", "ineg": "-{0}", "count": "{0}.to(tl.int64)", "value": "{0}.to(tl.float64)",
        "toint": "{0}.to(tl.int64)", "iabs": "tl.where({0} < 0, -{0}, {0})",
    }  # fmt: skip
    if op in simple:
        return simple[op].format(*args)
    if op == "wrap":
        return f"{args[0]} & 255" if node.attr < 0 else f"({args[0]} << {64 - node.attr}) >> {64 - node.attr}"
    raise Unsupported(f"the operation {op} in Triton")


def _load(node: Node, every: int, held: bool) -> str:
    """An input's element; of the first `every` inputs its pattern is a part of the element's index, as in an exhaustive
    `verify.inputs.domains.Domain`, and none is read. held: it has been read before, as held<k>."""
    which, dtype = node.attr
    if which < every:
        width = 8 * dtype.itemsize
        signed = f"((start + at) << {64 - width * (every - which)}) >> {64 - width}"
        return signed if node.op == "raw" else f"t.unword_{name_of(dtype)}({signed})"
    loaded = f"held{which}" if held else f"tl.load(in{which} + at, mask=inside, other=0)"
    if node.op == "raw":
        return f"{loaded}.to(tl.int{8 * dtype.itemsize}, bitcast=True).to(tl.int64)"
    if dtype in BITS:
        return f"{loaded}.to(tl.int64)"
    if dtype == torch.bfloat16:
        return f"t.unword_bfloat16({loaded}.to(tl.int64))"
    return f"{loaded}.to(tl.float32).to(tl.float64)" if dtype != torch.float64 else loaded


def body(graph: Graph, places: Sequence[int], indent: str = "    ", every: int = 0) -> str:
    """One line for each operation that the places need; the value at place k is v<k>."""
    return _lines(graph, graph.reached(places), indent, every)


def _lines(graph: Graph, places: Sequence[int], indent: str, every: int, held: bool = False) -> str:
    """One line for each of the operations, which follow their arguments. every, held: see `_load`."""
    lines = []
    for p in places:
        node, single = graph.nodes[p], graph.single(p)
        if single is not None:
            code = f"t.single_{single.op}({', '.join(f'v{a}' for a in single.args)})"
        elif node.op == "round" and node.attr == "float16" and graph.narrow(node.args[0]):
            code = f"t.narrow_float16(v{node.args[0]})"
        else:
            code = expression(node, [f"v{a}" for a in node.args], every, held)
        lines.append(f"{indent}v{p} = {code}")
    return "\n".join(lines)


#: One compilation for every size: what divides the sizes gains nothing here.
_JIT = '@triton.jit(do_not_specialize=["start", "shift", "n", "each", "room"])'
_HEAD = '''"""Generated by verify.judge.fused.triton."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

import verify.judge.fused.tiles as t

'''


def _module(source: str) -> ModuleType:
    """The source as a module; Triton reads a function's text from its file."""
    name = f"fused_{hashlib.sha256(source.encode()).hexdigest()[:24]}"
    if name in sys.modules:
        return sys.modules[name]
    path = cache() / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    partial.write_text(source)
    partial.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as problem:
        del sys.modules[name]
        raise Unsupported(f"no Triton: {problem}") from problem
    return module


_launched: set[Any] = set()


def _launch(kernel: Any, programs: int, *arguments: Any) -> None:
    """Launch a generated kernel; the first launch of one compiles it."""
    with nullcontext() if kernel in _launched else compiling():
        kernel[(programs,)](*arguments, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False)
    _launched.add(kernel)


def _column(t: Tensor) -> Tensor:
    """As kernels take it: bfloat16 by its patterns, which not every target and not the interpreter converts."""
    flat = t.reshape(-1).contiguous()
    return flat.view(torch.int16) if t.dtype == torch.bfloat16 else flat


# ---------------------------------------------------------------- functions of tensors


def mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A pure function of tensors shaped (n,), of which it gives one or a tuple, compiled for the arguments' dtypes when
    it is called. For `verify.numbers.admit.library`. The call raises Unsupported."""

    def call(*tensors: Tensor) -> Any:
        module, kinds, single = _mapped(function, tuple(t.dtype for t in tensors))
        flat = [_column(t) for t in tensors]
        n = flat[0].numel()
        found = [torch.empty(n, dtype=kind, device=flat[0].device) for kind in kinds]
        _launch(module.run, -(-n // BLOCK), *flat, *found, n)
        shaped = tuple(t.reshape(tensors[0].shape) for t in found)
        return shaped[0] if single else shaped

    return call


@functools.cache
def _mapped(
    function: Callable[..., Any], dtypes: tuple[torch.dtype, ...]
) -> tuple[ModuleType, tuple[torch.dtype, ...], bool]:
    kinds: list[torch.dtype] = []
    single = False

    def names(*tensors: Tensor) -> dict[str, Any]:
        nonlocal single
        result = function(*tensors)
        single = isinstance(result, torch.Tensor)
        results = (result,) if single else tuple(result)
        kinds[:] = [t.dtype for t in results]
        return {str(k): t for k, t in enumerate(results)}

    graph = trace(names, dtypes)
    places = list(graph.outputs.values())
    stores = "\n".join(f"    tl.store(out{k} + at, v{place}, mask=inside)" for k, place in enumerate(places))
    names_ = [f"in{k}" for k in range(len(dtypes))] + [f"out{k}" for k in range(len(places))]
    source = f"""{_HEAD}
{_JIT}
def run({", ".join(names_)}, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
{body(graph, places)}
{stores}
"""
    return _module(source), tuple(kinds), single


# ---------------------------------------------------------------- the judge


@dataclass(frozen=True)
class Judge:
    """A compiled judge of one case; `module` holds its kernels. every: of how many inputs the patterns come in order,
    so that the pass over all elements does not read them. scaled: whether there is a scale of the kernel's own."""

    dtypes: tuple[torch.dtype, ...]
    fmt: Format
    eager: bool
    parameters: int
    count: int
    module: ModuleType
    every: int = 0

    def __call__(
        self,
        inputs: tuple[Tensor, ...],
        y: Tensor,
        eager: Tensor | None = None,
        parameters: tuple[float, ...] = (),
        threads: int | None = None,
        start: int = 0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Reduced:
        """As `verify.judge.fused.cpp.Judge`, on the tensors' device. meanwhile: is called once it has work."""
        columns = [*inputs, y] + ([eager] if eager is not None else [])
        if (eager is not None) != self.eager or len(parameters) != self.parameters:
            raise ValueError(f"compiled for eager={self.eager} and {self.parameters} parameters")
        for c, dtype in zip(columns, self.dtypes, strict=True):
            if c.dtype != dtype or c.numel() != y.numel() or c.device != y.device:
                raise ValueError(f"{c.dtype} of {c.numel()} on {c.device}; expected {dtype} of {y.numel()}")
        columns = [_column(c) for c in columns]
        given = torch.tensor([*parameters, 0.0], dtype=torch.float64, device=y.device)
        tables, leaders, index = _Tables.empty(y.device), _Leaders({}), None
        pieces = _Pieces.of(y.numel(), start if self.every else 0)
        ordered: list[Any] = [*([start, pieces.shift] if self.every else []), *columns[self.every :]]
        n = y.numel()
        begun = self._begun(ordered, given, n, pieces, tables) if hasattr(self.module, "plain") and n >= SWEPT else None
        compared = self._compared(ordered, n, pieces, y.device)
        meanwhile()
        if begun is not None:
            tables, leaders, index = self._plain(*begun, ordered, given, n, pieces, tables)
        if index is None or len(index):
            some = columns if index is None else [c[index] for c in columns]
            more, open_ = self._full(some, given, tables, index)
            leaders = leaders.with_(more)
        else:
            open_ = index
        regions, binades = tables.read(leaders)
        return Reduced(regions, binades, compared.read(), open_.to(torch.int64).cpu())  # places in a domain are added

    def _begun(
        self, columns: list[Any], given: Tensor, n: int, pieces: _Pieces, tables: _Tables
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Begins to add the plain elements: the largest values of pieces, how many other elements there are, and their
        index in no order."""
        device = given.device
        tops = pieces.tops(device)
        count = torch.zeros(1, dtype=torch.int32, device=device)
        left = torch.empty(n // SPARE, dtype=torch.int32, device=device)
        _launch(
            self.module.plain, pieces.count, *columns, given, n, pieces.each, left, count, len(left), tables.counts,
            tables.steps, tops, tables.binades,
        )  # fmt: skip
        return tops, count, left

    def _plain(
        self, tops: Tensor, count: Tensor, left: Tensor, columns: list[Any], given: Tensor, n: int, pieces: _Pieces,
        tables: _Tables,
    ) -> tuple[_Tables, _Leaders, Tensor | None]:  # fmt: skip
        """What `_begun` has added, its leaders, and the index of the other elements in order. None, and nothing added,
        where these are too many."""
        if (found := int(count)) > len(left):
            return _Tables.empty(given.device), _Leaders({}), None
        listed = _tiles(_chosen(tops.view(torch.float64).flatten(1)), pieces.each)
        _, leaders = self._again(self.module.again_plain, columns, given, n, listed, pieces.shift)
        return tables, leaders, left[:found].sort().values

    def _full(
        self, columns: list[Any], given: Tensor, tables: _Tables, index: Tensor | None
    ) -> tuple[_Leaders, Tensor]:  # fmt: skip
        """Adds all elements of the columns; their leaders, and which are open. index: places of these in the chunk."""
        n, device = columns[-1].numel(), given.device
        pieces = _Pieces.of(n)
        tops, each = pieces.tops(device), pieces.each
        left = torch.zeros((pieces.count, each), dtype=torch.int32, device=device)
        _launch(
            self.module.run, pieces.count * each, *columns, given, n, each, tables.counts, tables.steps, tops, left,
            tables.binades,
        )  # fmt: skip
        chosen = _chosen(tops.view(torch.float64).flatten(1)) | (left > 0)
        open_, leaders = self._again(self.module.again, columns, given, n, _tiles(chosen, each))
        return (leaders, open_) if index is None else (leaders.at(index), index[open_])

    def _again(
        self, kernel: Any, columns: list[Any], given: Tensor, n: int, listed: Tensor, shift: int = 0
    ) -> tuple[Tensor, _Leaders]:  # fmt: skip
        """The open elements and the leaders of the tiles listed, of some of them at a time."""
        device, places, leaders = given.device, [], _Leaders({})
        for some in torch.split(listed, AGAIN):
            fields = {name: torch.zeros((len(some), BLOCK), dtype=t, device=device) for name, t in FIELDS.items()}
            if len(some):
                _launch(kernel, len(some), *columns, given, n, some, *fields.values())
            index = some[:, None] * BLOCK + torch.arange(BLOCK, device=device) - shift
            places.append(index[fields["open"] > 0])
            leaders = leaders.with_(_Leaders.of(index, fields))
        return torch.cat(places), leaders

    def _compared(self, columns: list[Any], n: int, pieces: _Pieces, device: torch.device) -> _Compared:
        """Begins to compare the elements with what each formula predicts, beside what is launched next."""
        from verify.judge.fused import tiles as shared

        wrong = torch.zeros((shared.COPIES, self.count), dtype=torch.int64, device=device)
        first = torch.full_like(wrong, shared.LAST.value)
        if not self.count:
            return _Compared(wrong, first, None)
        beside, module = _beside(device), getattr(torch, device.type)
        if beside is not None:
            beside.wait_stream(module.current_stream(device))
            for t in (wrong, first):
                t.record_stream(beside)  # which may write after an exception has dropped them
        with nullcontext() if beside is None else module.stream(beside):
            _launch(self.module.compare, pieces.count, *columns, n, pieces.each, wrong, first)
        return _Compared(wrong, first, beside)


@functools.cache
def _beside(device: torch.device) -> Any:
    """A stream for kernels that nothing waits for yet, so that a GPU has work while the host reads results; None where
    the device has no streams."""
    module = getattr(torch, device.type)
    return module.Stream(device) if device.type != "cpu" and hasattr(module, "Stream") else None


@dataclass(frozen=True)
class _Compared:
    """How many elements each formula mispredicts, and the first of them, by copy and formula: a stream adds to them."""

    wrong: Tensor
    first: Tensor
    stream: Any

    def read(self) -> tuple[tuple[int, int], ...]:
        if not self.wrong.shape[1]:
            return ()
        if self.stream is not None:
            getattr(torch, self.wrong.device.type).current_stream(self.wrong.device).wait_stream(self.stream)
        told = self.wrong.sum(0).tolist(), self.first.amin(0).tolist()
        return tuple((w, f if w else -1) for w, f in zip(*told, strict=True))


@dataclass(frozen=True)
class _Pieces:
    """How elements are divided into pieces, one a program: `each` tiles of a piece (a power of two), and the number of
    pieces. shift: the elements that the first piece lacks, so that in an exhaustive domain each begins at a multiple of
    its length, and inputs other than the last are one number for all of it."""

    each: int
    count: int
    shift: int

    @classmethod
    def of(cls, n: int, start: int = 0) -> _Pieces:
        each = min(1 << max(n // (BLOCK * PROGRAMS), 4).bit_length() - 1, TILES)
        shift = start % (BLOCK * each)
        return cls(each, max(1, -(-(n + shift) // (BLOCK * each))), shift)

    def tops(self, device: torch.device) -> Tensor:
        """Room for the largest values of each piece by region and metric, as patterns of doubles."""
        return torch.zeros((self.count, len(REGIONS), len(METRICS)), dtype=torch.int64, device=device)


def _chosen(tops: Tensor) -> Tensor:
    """Which pieces may hold one of the LEADERS largest values of a region, (pieces, 1). tops: (pieces, regions times
    METRICS), the largest values of each piece."""
    rows = tops.t().contiguous()  # along rows sums are many times as fast
    return _largest(rows).any(0)[:, None]


def _largest(rows: Tensor) -> Tensor:
    """Which are the LEADERS largest positive numbers of a row, of equal ones the first."""
    k = min(LEADERS, rows.shape[1])
    least = rows.topk(k, dim=1).values[:, -1:]
    found = (rows > least) & (rows > 0)
    row, place = ((rows == least) & (least > 0)).nonzero().unbind(1)  # in order, where a running sum takes longer
    rank = torch.arange(len(row), device=rows.device) - torch.searchsorted(row, row)
    first = rank < (k - found.sum(1))[row]
    found[row[first], place[first]] = True
    return found


def _tiles(chosen: Tensor, each: int) -> Tensor:
    """The numbers of tiles, from which of a piece are chosen: (pieces, each) or (pieces, 1)."""
    return chosen.expand(-1, each).flatten().nonzero()[:, 0]


@dataclass(frozen=True)
class _Tables:
    """What programs add up, in copies (see `tiles`)."""

    counts: Tensor
    steps: Tensor
    binades: Tensor

    @classmethod
    def empty(cls, device: torch.device) -> _Tables:
        from verify.judge.fused import tiles as shared

        copies, regions = shared.COPIES, len(REGIONS)
        shapes = (copies, regions, len(COUNTED) + len(BINS)), (copies, regions), (copies, SLOTS, 5)
        return cls(*(torch.zeros(shape, dtype=torch.int64, device=device) for shape in shapes))

    def read(
        self, leaders: _Leaders
    ) -> tuple[tuple[InRegion, ...], tuple[tuple[int, int, int, int, int, int], ...]]:  # fmt: skip
        """The regions and binades that they hold, in one transfer."""
        top = self.binades[..., 2:3].amax(0)
        rows = torch.cat([self.binades[..., :2].sum(0), top, self.binades[..., 3:].sum(0)], 1)
        told = torch.cat([self.counts.sum(0).flatten(), self.steps.amax(0), rows.flatten()]).tolist()
        measured, width = COUNTED.index("measured"), len(COUNTED)
        each, count = width + len(BINS), len(REGIONS)
        steps, binades = told[each * count : (each + 1) * count], told[(each + 1) * count :]
        regions = []
        for r in range(count):
            row = told[each * r : each * (r + 1)]
            regions.append(
                InRegion(
                    counts=tuple(row[:width]),
                    histogram=tuple(row[measured] - beyond for beyond in row[width:]),
                    steps=steps[r],
                    leaders=tuple(leaders.found.get((r, m), ()) for m in range(len(METRICS))),
                )
            )
        found = ((e - 1023, *binades[5 * e : 5 * e + 5]) for e in range(SLOTS) if binades[5 * e])
        return tuple(regions), tuple(found)


@dataclass(frozen=True)
class _Leaders:
    """The LEADERS largest values with their places, by region and metric."""

    found: dict[tuple[int, int], tuple[tuple[float, int], ...]]

    @classmethod
    def of(cls, index: Tensor, fields: dict[str, Tensor]) -> _Leaders:
        """From the tiles that were looked at again: index and fields are (tiles, block), the tiles in order."""
        found: dict[tuple[int, int], tuple[tuple[float, int], ...]] = {}
        if not len(index):
            return cls(found)
        region = torch.where(fields["open"] == 0, fields["region"], -1).flatten()
        mine = region == torch.arange(len(REGIONS), device=index.device)[:, None]
        values = torch.stack([fields[name].flatten() for name in ("upper", "scaled", "share")])
        rows = torch.where(mine[:, None], values, 0.0).flatten(0, 1)  # regions times metrics
        which, spots = _largest(rows).nonzero().unbind(1)
        some = torch.stack([which.double(), rows[which, spots], index.flatten()[spots].double()]).tolist()
        for row, value, place in zip(*some, strict=True):
            key = divmod(int(row), len(METRICS))
            found[key] = (*found.get(key, ()), (value, int(place)))
        return cls({key: tuple(sorted(one, key=lambda k: (-k[0], k[1]))) for key, one in found.items()})

    def at(self, index: Tensor) -> _Leaders:
        """With the places that `index` has at theirs."""
        places = sorted({k for some in self.found.values() for _, k in some})
        moved = dict(
            zip(places, index[torch.tensor(places, dtype=torch.int64, device=index.device)].tolist(), strict=True)
        )
        return _Leaders({key: tuple((v, moved[k]) for v, k in some) for key, some in self.found.items()})

    def with_(self, other: _Leaders) -> _Leaders:
        keys = self.found.keys() | other.found.keys()
        both = {key: (*self.found.get(key, ()), *other.found.get(key, ())) for key in keys}
        return _Leaders(
            {key: tuple(sorted(some, key=lambda one: (-one[0], one[1]))[:LEADERS]) for key, some in both.items()}
        )


def compiled(
    element: Element,
    inputs: tuple[torch.dtype, ...],
    eager: bool,
    parameters: int = 0,
    formulas: Predict | None = None,
    plain: Likely | None = None,
    every: bool = False,
) -> Judge:
    """As `verify.judge.fused.cpp.compiled`, for tensors on a GPU. Kernels are compiled when they are first called.

    every: the elements are consecutive ones of an exhaustive domain, `start` being the index of the first.
    """
    if importlib.util.find_spec("triton") is None:
        raise Unsupported("triton is not installed")
    fmt = FORMATS[name_of(inputs[0])]
    if fmt.bits > 32:
        raise Unsupported(f"outputs of {fmt.name}: no wider tensor format encloses them")
    dtypes = (*inputs, inputs[0], *([inputs[0]] if eager else []))
    k = len(inputs)
    whole = _Columns(dtypes, 0)
    ordered = _Columns(dtypes, k * every)
    source = _HEAD + _full_source(trace(fields_of(element, k, eager), dtypes, parameters=parameters), whole)
    if plain is not None and fmt.bits * k <= 48:  # whose tiles hold consecutive patterns, where it is swept
        source += _plain_source(trace(plain_fields_of(plain, k, eager), dtypes, parameters=parameters), ordered)
    count = 0
    if formulas is not None:

        def wrong(*tensors: Tensor) -> dict[str, Tensor]:
            return {f"{f}": differing(p, tensors[k]) for f, p in enumerate(formulas(tensors[:k]))}

        compared = trace(wrong, dtypes)
        count = len(compared.outputs)
        source += _compare_source(compared, ordered) if count else ""
    return Judge(dtypes, fmt, eager, parameters, count, _module(source), k * every)


@dataclass(frozen=True)
class _Columns:
    """What a kernel reads: columns of these dtypes, of which the first `every` are inputs in the order of patterns."""

    dtypes: tuple[torch.dtype, ...]
    every: int

    @property
    def names(self) -> str:
        start = ["start: tl.int64", "shift"] if self.every else []
        return ", ".join((*start, *(f"in{c}" for c in range(self.every, len(self.dtypes)))))

    def at(self, indent: str = "    ") -> str:
        """Lines that tell a tile's elements, and which of them lie inside the chunk."""
        if self.every:
            return f"{indent}at = tile * BLOCK + lane - shift\n{indent}inside = (at >= 0) & (at < n)"
        return f"{indent}at = tile * BLOCK + lane\n{indent}inside = at < n"

    def body(self, graph: Graph, places: Sequence[int], indent: str = "    ") -> str:
        return body(graph, places, indent, self.every)

    def divided(self, graph: Graph, usual: Sequence[int], others: Sequence[int] = ()) -> tuple[str, str, str]:
        """The operations of a program that goes through a piece: before its loop those of the usual places that are the
        same for all of the piece, in the loop the rest of them, and where needed what the other places take besides.
        What the loop reads is read while the tile before is judged."""
        fixed: set[int] = set()
        for p, node in enumerate(graph.nodes):
            given = node.op in ("input", "raw")
            if node.attr[0] < self.every - 1 if given else all(a in fixed for a in node.args):
                fixed.add(p)
        first = graph.reached(usual)
        begun, each = [p for p in first if p in fixed], [p for p in first if p not in fixed]
        more = sorted(set(graph.reached(others)) - set(first))
        read = sorted({graph.nodes[p].attr[0] for p in (*each, *more) if graph.nodes[p].op in ("input", "raw")})
        columns = [c for c in read if c >= self.every]
        before = [f"    next{c} = tl.load(in{c} + at, mask=inside, other=0)" for c in columns]
        turn = [f"        held{c} = next{c}" for c in columns]
        turn += ["        later = at + BLOCK"] if columns else []
        turn += [f"        next{c} = tl.load(in{c} + later, mask=(later >= 0) & (later < n), other=0)" for c in columns]
        begun_lines, each_lines, more_lines = (
            _lines(graph, some, " " * indent, self.every, held=True)
            for some, indent in ((begun, 4), (each, 8), (more, 12))
        )
        return "\n".join([*before, begun_lines]), "\n".join([*turn, each_lines]), more_lines


def _full_source(graph: Graph, columns: _Columns) -> str:
    """Kernels that judge tiles of elements: `run` adds them up, `again` stores what is asked of each."""
    outputs, few = ([graph.outputs[name] for name in names] for names in (_FIELDS, _AGAIN))
    stores = "\n".join(f"    tl.store({name}_ptr + store, {_each(graph, graph.outputs[name])})" for name in _AGAIN)
    given = ", ".join(_each(graph, place) for place in outputs)
    return f"""
{_JIT}
def run(
    {columns.names}, parameters, n, each, counts_ptr, steps_ptr, tops_ptr, left_ptr, binades_ptr, BLOCK: tl.constexpr,
):
    tile = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
{columns.at()}
{columns.body(graph, outputs)}
    t.add_tile(
        tile, tile // each, inside, {given},
        counts_ptr, steps_ptr, tops_ptr, left_ptr, binades_ptr,
    )


{_again_head("again", columns)}
{columns.body(graph, few)}
{stores}
"""


def _again_head(name: str, columns: _Columns) -> str:
    return f"""{_JIT}
def {name}(
    {columns.names}, parameters, n, listed, region_ptr, open_ptr, upper_ptr, scaled_ptr, share_ptr, BLOCK: tl.constexpr,
):
    tile = tl.load(listed + tl.program_id(0)).to(tl.int64)
    lane = tl.arange(0, BLOCK)
{columns.at()}
    store = tl.program_id(0).to(tl.int64) * BLOCK + lane"""


def _plain_source(graph: Graph, columns: _Columns) -> str:
    """The same of plain elements: `plain` takes many tiles, adds up what is plain and lists the others."""
    names = ("open", "nan", "operand", "small", "overflow", "faithful", "error", "negative", "upper", "scaled")
    value = {name: f"v{place}" for name, place in graph.outputs.items()}
    scaled = graph.outputs["scaled"] != graph.outputs["upper"]
    region = f"t.region_of({value['nan']}, {value['operand']}, {value['small']}, {value['overflow']})"
    stores = "\n".join(
        f"    tl.store({name}_ptr + store, tl.where(inside, {value[name]}, 0))"
        for name in ("open", "upper", "scaled", "share")
    )
    gathered = "counted, total, signed, top, upper, scaled"
    more = f"scaled = tl.where(here & ({value['scaled']} > scaled), {value['scaled']}, scaled)" if scaled else ""
    usual = {name: value[f"usual_{name}"] for name in ("holds", "faithful", "error", "upper", "scaled")}
    more_usual = f"scaled = tl.where({usual['scaled']} > scaled, {usual['scaled']}, scaled)" if scaled else ""
    needed = [graph.outputs[name] for name in (*(f"usual_{name}" for name in usual), "negative", "exponent")]
    begun, each, others = columns.divided(graph, needed, [graph.outputs[name] for name in names])
    return f"""

{_JIT}
def plain(
    {columns.names}, parameters, n, each, left_ptr, count_ptr, room, counts_ptr, steps_ptr, tops_ptr, binades_ptr,
    BLOCK: tl.constexpr,
):
    piece = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    nothing, none = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.float64)
    key = tl.full((), -1, tl.int32)
    {gathered} = nothing, nothing, nothing, nothing, none, none
    tile = piece * each
{columns.at()}
{begun}
    for tile in range(piece * each, (piece + 1) * each):
{columns.at(" " * 8)}
{each}
        alike = inside & {usual["holds"]} & (({value["exponent"]} + t.IN_NORMAL * t.EXPONENTS).to(tl.int32) == key)
        if tl.min(alike.to(tl.int32), 0) > 0:
            q = t.small_quanta({usual["error"]})
            counted += 1 + tl.where({usual["faithful"]}, 1 << 10, 0) + tl.where({usual["error"]} > 0.5, 1 << 20, 0)
            total += q
            signed += tl.where({value["negative"]}, -q, q)
            top = tl.where(q > top, q, top)
            upper = tl.where({usual["upper"]} > upper, {usual["upper"]}, upper)
            {more_usual}
        else:
{others}
            left = inside & {value["open"]}
            some = tl.sum(left.to(tl.int32), 0)
            if some > 0:
                place = tl.atomic_add(count_ptr, some) + tl.cumsum(left.to(tl.int32), 0) - 1
                tl.store(left_ptr + place, at, mask=left & (place < room))
            region = {region}
            code = (region * t.EXPONENTS + tl.where(region == t.IN_NORMAL, {value["exponent"]}, 0)).to(tl.int32)
            code = tl.where(code % t.EXPONENTS == t.EXPONENTS - 1, region * t.EXPONENTS, code)
            rest = inside & ~{value["open"]}
            k = tl.max(tl.where(rest, code, -1), 0)
            while k >= 0:
                if k != key:
                    t.flush(
                        piece % t.TABLES, piece, key, {gathered}, tl.load(parameters), tl.load(parameters + 1),
                        tl.load(parameters + 2), counts_ptr, steps_ptr, tops_ptr, binades_ptr, {scaled},
                    )
                    key = k
                    {gathered} = nothing, nothing, nothing, nothing, none, none
                here = rest & (code == k)
                q = tl.where(here, t.small_quanta({value["error"]}), 0)
                counted += tl.where(here, 1, 0) + tl.where(here & {value["faithful"]}, 1 << 10, 0)
                counted += tl.where(here & ({value["error"]} > 0.5), 1 << 20, 0)
                total += q
                signed += tl.where({value["negative"]}, -q, q)
                top = tl.where(q > top, q, top)
                upper = tl.where(here & ({value["upper"]} > upper), {value["upper"]}, upper)
                {more}
                rest = rest & (code != k)
                k = tl.max(tl.where(rest, code, -1), 0)
    t.flush(
        piece % t.TABLES, piece, key, {gathered}, tl.load(parameters), tl.load(parameters + 1),
        tl.load(parameters + 2), counts_ptr, steps_ptr, tops_ptr, binades_ptr, {scaled},
    )


{_again_head("again_plain", columns)}
{columns.body(graph, [graph.outputs[name] for name in (*names, "share")])}
{stores}
    tl.store(region_ptr + store, {region})
"""


def _compare_source(graph: Graph, columns: _Columns) -> str:
    """A kernel that counts how often each formula mispredicts."""
    before, repeated, _ = columns.divided(graph, list(graph.outputs.values()))
    wrongs = [f"v{place}" for place in graph.outputs.values()]
    begun = "\n".join(f"    count{f}, first{f} = lane * 0, lane * 0 + t.LAST" for f in range(len(wrongs)))
    counted = "\n".join(
        f"        count{f} += (inside & {v}).to(tl.int32)\n"
        f"        first{f} = tl.where(inside & {v} & (at < first{f}), at, first{f})"
        for f, v in enumerate(wrongs)
    )
    adds = "\n".join(
        f"    t.add_mismatch(piece % t.TABLES, count{f}, first{f}, {f}, {len(wrongs)}, wrong_ptr, first_ptr)"
        for f in range(len(wrongs))
    )
    return f"""

{_JIT}
def compare({columns.names}, n, each, wrong_ptr, first_ptr, BLOCK: tl.constexpr):
    piece = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
{begun}
    tile = piece * each
{columns.at()}
{before}
    for tile in range(piece * each, (piece + 1) * each):
{columns.at(" " * 8)}
{repeated}
{counted}
{adds}
"""


def _each(graph: Graph, place: int) -> str:
    """The value of every element of a tile: what is the same for all is spread, and what lies outside is zero."""
    kind = graph.nodes[place].kind
    zero = {"d": "t.word(0)", "i": "0", "m": "0"}[kind]
    if kind == "m":
        return f"inside & v{place}"
    return f"tl.where(inside, v{place}, {zero})"
