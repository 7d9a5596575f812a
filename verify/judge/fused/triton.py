"""Graphs as Triton kernels, for the judge on a GPU: `compiled` and `mapped` as in `verify.judge.fused.cpp`.

One kernel judges tiles of elements and adds them up, plain ones by short ways. Two things need a second look at a few
tiles: the elements that are open, and the largest errors, which lie in the pieces of the largest maxima.
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

from verify.decide import BINS
from verify.formats import FORMATS, Format
from verify.judge.chunk import differing
from verify.judge.fused.cpp import PLAIN, Element, Predict, fields_of, plain_graphs
from verify.judge.fused.graph import BITS, Graph, Node, name_of, trace
from verify.judge.fused.plain import rising
from verify.judge.reduce import COUNTED, LEADERS, METRICS, NORMAL, SLOTS, InRegion, Reduced
from verify.judge.regions import REGIONS
from verify.native import Unsupported, cache, compiling

Tensor = torch.Tensor
BLOCK = 64 if torch.version.hip else 32  # elements of a tile, one a lane: for more there are too few registers
WARPS = 1  # so that lanes agree without a barrier
TILES = 256  # that a program takes at most; the fields of its counts have room for more
PROGRAMS = 2048  # of fewer elements a program takes fewer tiles
SWEPT = 1 << 20  # elements, with fewer of which the short ways are not compiled
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
#: Of several inputs one is the same in whole tiles, and may be subnormal.
_PLAIN = PLAIN | {"subnormal-operand": "within"}
#: What the first kernel hands to the reduction, and the second stores.
_FIELDS = (
    "region", "cls", "open", "measured", "error", "negative", "upper", "scaled", "share", "steps", "unjudged",
    "different", "closer", "farther", "exponent",
)  # fmt: skip
_AGAIN = ("region", "open", "upper", "scaled", "share")


def expression(node: Node, args: Sequence[str], every: int = 0) -> str:
    """The Triton of one operation on the names of its arguments. every: see `_load`."""
    op = node.op
    if op == "const":
        if node.kind == "m":
            return f"tl.full((BLOCK,), {int(node.attr)}, tl.int1)"
        value = f"tl.full((BLOCK,), {node.attr}, tl.int64)"  # as all values: the interpreter compares no scalars
        return value if node.kind == "i" else f"t.number({value})"
    if op == "parameter":
        return f"tl.load(parameters + {node.attr} + lane * 0)"
    if op in ("input", "raw"):
        return _load(node, every)
    if op in _INFIX:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    if op in _CALLS:
        return f"{_CALLS[op]}({', '.join(args)})"
    if op in ("round", "word", "unword"):
        return f"t.{op}_{node.attr}({args[0]})"
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


def _load(node: Node, every: int) -> str:
    """An input's element; of the first `every` inputs its pattern is a part of the element's index, as in an exhaustive
    `verify.domains.Domain`, and none is read."""
    which, dtype = node.attr
    if which < every:
        width = 8 * dtype.itemsize
        signed = f"((start + at) << {64 - width * (every - which)}) >> {64 - width}"
        return signed if node.op == "raw" else f"t.unword_{name_of(dtype)}({signed})"
    loaded = f"tl.load(in{which} + at, mask=inside, other=0)"
    if node.op == "raw":
        return f"{loaded}.to(tl.int{8 * dtype.itemsize}, bitcast=True).to(tl.int64)"
    if dtype in BITS:
        return f"{loaded}.to(tl.int64)"
    if dtype == torch.bfloat16:
        return f"t.unword_bfloat16({loaded}.to(tl.int64))"
    return f"{loaded}.to(tl.float32).to(tl.float64)" if dtype != torch.float64 else loaded


def body(graph: Graph, places: Sequence[int], indent: str = "    ", every: int = 0) -> str:
    """One line for each operation that the places need; the value at place k is v<k>."""
    return "\n".join(
        f"{indent}v{p} = {expression(graph.nodes[p], [f'v{a}' for a in graph.nodes[p].args], every)}"
        for p in graph.reached(places)
    )


#: One compilation for every size: what divides the sizes gains nothing here.
_JIT = '@triton.jit(do_not_specialize=["start", "n", "each"])'
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
    it is called. For `verify.admit.library`. The call raises Unsupported."""

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
    so that they are not read."""

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
    ) -> Reduced:
        """As `verify.judge.fused.cpp.Judge`, on the tensors' device."""
        from verify.judge.fused import tiles as shared

        columns = [*inputs, y] + ([eager] if eager is not None else [])
        if (eager is not None) != self.eager or len(parameters) != self.parameters:
            raise ValueError(f"compiled for eager={self.eager} and {self.parameters} parameters")
        for c, dtype in zip(columns, self.dtypes, strict=True):
            if c.dtype != dtype or c.numel() != y.numel() or c.device != y.device:
                raise ValueError(f"{c.dtype} of {c.numel()} on {c.device}; expected {dtype} of {y.numel()}")
        given_: list[Any] = [start] if self.every else []
        columns = [*given_, *(_column(c) for c in columns[self.every :])]
        n, device = y.numel(), y.device
        given = torch.tensor([*parameters, 0.0], dtype=torch.float64, device=device)
        each = min(max(n // (BLOCK * PROGRAMS), 4), TILES)
        pieces = max(1, -(-n // (BLOCK * each)))

        def table(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        regions, copies = len(REGIONS), shared.COPIES
        counts, steps = table(copies, regions, len(COUNTED) + len(BINS)), table(copies, regions)
        binades, tops = table(copies, SLOTS, 5), table(pieces, regions, len(METRICS))
        left = table(pieces, each, dtype=torch.int32)
        wrong = table(copies, max(self.count, 1))
        first = torch.full_like(wrong, shared.NONE)
        tables = (counts, steps, tops)
        if plain := getattr(self.module, "plain", None) if n >= SWEPT else None:
            left_over = table(pieces * each, dtype=torch.int8)
            _launch(plain, pieces, *columns, given, n, each, left_over, *tables, binades)
            hard = left_over.nonzero()[:, 0]
        else:
            hard = torch.arange(pieces * each, device=device)
        if len(hard):
            _launch(self.module.run, len(hard), *columns, given, n, each, hard, *tables, left, binades)
        if self.count:
            _launch(self.module.compare, pieces, *columns, n, each, wrong, first)
        listed = self._again(tops.view(torch.float64).flatten(1), left).nonzero()[:, 0]
        fields = {
            "region": table(len(listed), BLOCK),
            "open": table(len(listed), BLOCK),
            **{name: table(len(listed), BLOCK, dtype=torch.float64) for name in ("upper", "scaled", "share")},
        }
        if len(listed):
            _launch(self.module.again, len(listed), *columns, given, n, listed, *fields.values())
        index = listed[:, None] * BLOCK + torch.arange(BLOCK, device=device)
        told = wrong.sum(0).tolist(), first.amin(0).tolist()
        return Reduced(
            regions=self._regions(counts.sum(0).tolist(), steps.amax(0).tolist(), _leaders(index, fields)),
            binades=_binades(binades.cpu()),
            formulas=tuple((w, f if w else -1) for w, f in zip(*told, strict=True))[: self.count],
            open=index[fields["open"] > 0].cpu(),
        )

    @staticmethod
    def _again(tops: Tensor, left: Tensor) -> Tensor:
        """Which tiles hold an open element, or may hold one of the LEADERS largest values of a region. tops (pieces,
        regions times METRICS), left (pieces, tiles of a piece). Of the pieces with the largest maxima, of equal ones
        those of the lowest index, the first LEADERS."""
        k = min(LEADERS, len(tops))
        least = tops.topk(k, dim=0).values[-1:]
        above, equal = tops > least, tops == least
        room = k - above.sum(0, keepdim=True)
        counted = equal.t().contiguous().cumsum(1, dtype=torch.int32).t()  # along rows, many times as fast
        chosen = (above | (equal & (counted <= room))) & (tops > 0)
        return (chosen.any(1, keepdim=True) | (left > 0)).flatten()

    @staticmethod
    def _regions(
        counts: list[list[int]], steps: list[int], leaders: dict[tuple[int, int], Any]
    ) -> tuple[InRegion, ...]:
        measured, width = COUNTED.index("measured"), len(COUNTED)
        return tuple(
            InRegion(
                counts=tuple(row[:width]),
                histogram=tuple(row[measured] - beyond for beyond in row[width:]),
                steps=steps[r],
                leaders=tuple(leaders.get((r, m), ()) for m in range(len(METRICS))),
            )
            for r, row in enumerate(counts)
        )


def _binades(copies: Tensor) -> tuple[tuple[int, int, int, int, int, int], ...]:
    """The rows that hold something, of tables (COPIES, SLOTS, 5) on the host."""
    used = copies[:, :, 0].any(0).nonzero()[:, 0]
    some = copies[:, used]
    rows = torch.cat([some[..., :2].sum(0), some[..., 2:3].amax(0), some[..., 3:].sum(0)], 1)
    return tuple((e - 1023, *row) for e, row in zip(used.tolist(), rows.tolist(), strict=True))


def _leaders(index: Tensor, fields: dict[str, Tensor]) -> dict[tuple[int, int], tuple[tuple[float, int], ...]]:
    """The LEADERS largest values by region and metric, from the tiles that were looked at again: index and fields are
    (tiles, BLOCK), the tiles in order."""
    found: dict[tuple[int, int], tuple[tuple[float, int], ...]] = {}
    for m, name in enumerate(("upper", "scaled", "share")):
        value = fields[name]
        some = (value > 0) & (fields["open"] == 0)
        value, region, place = (t[some] for t in (value, fields["region"], index))
        for r in torch.unique(region).tolist():
            mine = torch.where(region == r, value, -1.0)
            least = mine.topk(min(LEADERS, len(mine))).values[-1]
            few = ((mine >= least) & (mine > 0)).nonzero()[:, 0]
            best = few[mine[few].sort(descending=True, stable=True).indices[:LEADERS]]
            found[r, m] = tuple(zip(value[best].tolist(), place[best].tolist(), strict=True))
    return found


def compiled(
    element: Element,
    inputs: tuple[torch.dtype, ...],
    eager: bool,
    parameters: int = 0,
    formulas: Predict | None = None,
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
    graph = trace(fields_of(element, k, eager), dtypes, parameters=parameters)
    wrongs: list[str] = []
    compared: Graph | None = None
    if formulas is not None:

        def wrong(*tensors: Tensor) -> dict[str, Tensor]:
            return {f"{f}": differing(p, tensors[k]) for f, p in enumerate(formulas(tensors[:k]))}

        compared = trace(wrong, dtypes)
        wrongs = [f"v{place}" for place in compared.outputs.values()]
    swept = every or fmt.bits * k <= 32  # whose tiles hold consecutive patterns, where it is swept
    source = _source(graph, compared, wrongs, dtypes, k, every, swept)
    return Judge(dtypes, fmt, eager, parameters, len(wrongs), _module(source), k * every)


def _source(
    graph: Graph, compared: Graph | None, wrongs: Sequence[str], dtypes: Sequence[torch.dtype], inputs: int,
    in_order: bool, swept: bool,
) -> str:  # fmt: skip
    """dtypes: of all columns, the inputs' first. in_order: the inputs' patterns are parts of an element's index."""
    every, fmt = inputs if in_order else 0, FORMATS[name_of(dtypes[0])]
    names = ", ".join((*["start"][:every], *(f"in{c}" for c in range(every, len(dtypes)))))
    outputs = [graph.outputs[name] for name in _FIELDS]
    few = [graph.outputs[name] for name in _AGAIN]
    stores = "\n".join(f"    tl.store({name}_ptr + store, {_each(graph, graph.outputs[name])})" for name in _AGAIN)
    given = ", ".join(_each(graph, graph.outputs[name]) for name in _FIELDS)
    plain = sorted(plain_graphs(graph, _PLAIN).items(), key=lambda found: found[0] != NORMAL) if swept else []
    short = [_Short(r, made, holds, every) for r, (made, holds) in plain]  # the most frequent first
    share, tops = _gathered(short)
    source = f"""{_HEAD}
@triton.jit
def run(
    {names}, parameters, n, each, listed, counts_ptr, steps_ptr, tops_ptr, left_ptr, binades_ptr, BLOCK: tl.constexpr,
):
    tile = tl.load(listed + tl.program_id(0))
    lane = tl.arange(0, BLOCK)
    at = tile * BLOCK + lane
    inside = at < n
{body(graph, outputs, every=every)}
    t.add_tile(
        tile, tile // each, inside, {given},
        counts_ptr, steps_ptr, tops_ptr, left_ptr, binades_ptr,
    )


{_JIT}
def again(
    {names}, parameters, n, listed, region_ptr, open_ptr, upper_ptr, scaled_ptr, share_ptr, BLOCK: tl.constexpr,
):
    tile = tl.load(listed + tl.program_id(0)).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    at = tile * BLOCK + lane
    inside = at < n
    store = tl.program_id(0).to(tl.int64) * BLOCK + lane
{body(graph, few, every=every)}
{stores}
"""
    if short:
        source += f"""

{_JIT}
def plain(
    {names}, parameters, n, each, hard_ptr, counts_ptr, steps_ptr, tops_ptr, binades_ptr, BLOCK: tl.constexpr,
):
    piece = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    least, infinity = {1 << fmt.mantissa_bits}, {fmt.inf_bits}
    nothing = tl.zeros((BLOCK,), tl.int64)
    none = t.number(nothing)
    key = tl.full((), -1, tl.int64)
    classes, beyond, total, signed, top_steps = nothing, nothing, nothing, nothing, nothing
    {", ".join(tops)} = {", ".join(["none"] * len(tops))}
    tile, last = piece * each, (piece + 1) * each
    while tile <= last:
        at = tile * BLOCK + lane
        inside = at < n
        whole = (tile < last) & ((tile + 1) * BLOCK <= n)
        settled = whole & False
        low, high, small = 0, 0, 0
        if key < 0:
{_sizes(dtypes, inputs, every)}
{"".join(one.source for one in short)}
        # a tile that does not go with those before it is tried by itself, and then left to the other kernel
        once_more = (settled == 0) & (key >= 0)
        if settled == 0:
            largest = {share}
            t.flush(
                piece % t.TABLES, piece, key, classes, beyond, total, signed, top_error, top_steps, top_upper,
                top_scaled, largest, counts_ptr, steps_ptr, tops_ptr, binades_ptr,
            )
            key = tl.full((), -1, tl.int64)
            classes, beyond, total, signed, top_steps = nothing, nothing, nothing, nothing, nothing
            {", ".join(tops)} = {", ".join(["none"] * len(tops))}
            if (once_more == 0) & (tile < last):
                tl.store(hard_ptr + tile, 1)
        tile += tl.where(once_more & (tile < last), 0, 1)
"""
    if compared is None or not wrongs:
        return source
    begun = "\n".join(f"    count{f}, first{f} = lane * 0, lane * 0 + t.NOWHERE" for f in range(len(wrongs)))
    counted = "\n".join(
        f"        count{f} += (inside & {v}).to(tl.int64)\n"
        f"        first{f} = tl.where(inside & {v} & (at < first{f}), at, first{f})"
        for f, v in enumerate(wrongs)
    )
    adds = "\n".join(
        f"    t.add_mismatch(piece % t.TABLES, count{f}, first{f}, {f}, {len(wrongs)}, wrong_ptr, first_ptr)"
        for f in range(len(wrongs))
    )
    return f"""{source}

{_JIT}
def compare({names}, n, each, wrong_ptr, first_ptr, BLOCK: tl.constexpr):
    piece = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK).to(tl.int64)
{begun}
    for tile in range(piece * each, (piece + 1) * each):
        at = tile * BLOCK + lane
        inside = at < n
{body(compared, list(compared.outputs.values()), " " * 8, every)}
{counted}
{adds}
"""


#: Of what plain elements give the largest values are kept.
_LARGEST = ("error", "steps", "upper", "scaled")


def _gathered(short: Sequence[_Short]) -> tuple[str, list[str]]:
    """The largest share of what was gathered, as an expression, and the names of the largest numbers. A share is a
    quotient, which costs more than all else; so it is taken of the largest numbers."""
    names, count = [f"top_{name}" for name in _LARGEST if name != "steps"], 0
    share = "none"
    for one in short:
        if one.graph.outputs:
            share = f"tl.where(key // {SLOTS} == {one.region}, {one.share}, {share})"
            count = max(count, len(one.further))
    return f"t.positive({share})", [*names, *(f"top_{k}" for k in range(count))]


#: What the sizes of a tile tell of its region, so that few short ways are tried; that they hold is checked there.
_MAY_BE = {
    "special": "((low >= infinity) | (high == 0))", "subnormal-operand": "(small != 0)",
    "subnormal-result": "(high <= least)", "overflow": "(low >= infinity - 1)", "intermediate": "(small == 0)",
    "normal": "((small == 0) & (low >= least) & (high < infinity))",
}  # fmt: skip


def _sizes(dtypes: Sequence[torch.dtype], inputs: int, every: int) -> str:
    """low and high: the smallest and largest output of a tile, as patterns without signs; small: whether an input is
    subnormal."""
    mask = (1 << 8 * dtypes[0].itemsize - 1) - 1
    patterns = [f"({_load(Node('raw', (), (c, dtypes[0]), 'i'), every)}) & {mask}" for c in range(inputs + 1)]
    small = "\n".join(
        f"            size = {one}\n            below = below | ((size > 0) & (size < least))" for one in patterns[:-1]
    )
    return f"""            below = inside & False
{small}
            size = ({patterns[-1]}).to(tl.int32)
            low, high, small = tl.min(size, 0), tl.max(size, 0), tl.max(below.to(tl.int32), 0)"""


class _Short:
    """The settling of tiles of one region whose elements are plain. leaves: the numbers of which the share is a
    function that falls nowhere."""

    def __init__(self, region: int, graph: Graph, holds: int, every: int) -> None:
        self.region, self.graph, self.holds, self.every = region, graph, holds, every
        self.leaves = rising(graph, graph.outputs["share"]) if graph.outputs else ()

    @property
    def further(self) -> list[int]:
        """The leaves whose largest values are not kept anyway."""
        kept = [self.graph.outputs[name] for name in _LARGEST]
        return [leaf for leaf in self.leaves if leaf not in kept]

    @property
    def share(self) -> str:
        """The largest share as an expression of the largest values."""
        names = {leaf: f"top_{k}" for k, leaf in enumerate(self.further)}
        names |= {self.graph.outputs[name]: f"top_{name}" for name in _LARGEST}

        def told(place: int) -> str:
            node = self.graph.nodes[place]
            if place in self.leaves:
                return names[place]
            return f"({expression(node, [told(a) for a in node.args])})"

        return told(self.graph.outputs["share"])

    @property
    def source(self) -> str:
        graph = self.graph
        further = [*self.further] if graph.outputs else []
        given = {field: f"v{place}" for field, place in graph.outputs.items() if field != "share"}
        places = [*(place for field, place in graph.outputs.items() if field != "share"), *further, self.holds]
        first = self.region * SLOTS
        fine, key, adds = f"v{self.holds}", f"tl.full((), {first}, tl.int64)", "classes += 1"
        if given:
            named = {name: given[name] for name in _LARGEST} | {f"{k}": f"v{leaf}" for k, leaf in enumerate(further)}
            largest = "\n                ".join(
                f"top_{name} = tl.where({value} > top_{name}, {value}, top_{name})" for name, value in named.items()
            )
            adds = f"""classes += (nothing + 1 << 16 * {given.get("cls", "nothing")}) + (1 << 32)
                beyond += ({given["error"]} > 0.5).to(tl.int64)
                q = t.quanta({given["error"]})
                total += q
                signed += tl.where({given["negative"]}, -q, q)
                {largest}"""
            fine += f" & ({given['error']} <= 1)"
        if self.region == NORMAL:
            key = f"tl.max({given['exponent']}, 0) + {first}"
            fine += f" & ({given['exponent']} + {first} == e) & (e > {first}) & (e < {first + SLOTS - 1})"
        may_be = _MAY_BE[REGIONS[self.region]]
        return f"""        if whole & (settled == 0) & (((key < 0) & {may_be}) | (key // {SLOTS} == {self.region})):
{body(graph, places, " " * 12, self.every)}
            e = key
            if key < 0:
                e = {key}
            settled = t.holds({fine})
            if settled:
                key = e
                {adds}
"""


def _each(graph: Graph, place: int) -> str:
    """The value of every element of a tile: what is the same for all is spread, and what lies outside is zero."""
    kind = graph.nodes[place].kind
    zero = {"d": "t.word(0)", "i": "0", "m": "0"}[kind]
    if kind == "m":
        return f"inside & v{place}"
    return f"tl.where(inside, v{place}, {zero})"
