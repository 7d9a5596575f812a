"""The judge of elements in C++, for the host: made of graphs, see `verify.numbers.cpp`.

`compiled` makes the judge of a pure element function; what it finds equals `verify.judge.reduce.reduce`.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verify import native
from verify.facts.formats import FORMATS, Format
from verify.judge.chunk import differing
from verify.judge.element import Judged, Plain
from verify.judge.reduce import COUNTED, LEADERS, METRICS, SLOTS, InRegion, Reduced
from verify.judge.regions import REGIONS
from verify.native import Unsupported
from verify.numbers.cpp import KINDS, body, build, columns, libraries_in, library_source, pointers
from verify.numbers.cpp import mapped as mapped  # of this device, for admission
from verify.numbers.decide import BINS
from verify.numbers.graph import Graph, name_of, trace

Tensor = torch.Tensor
HERE = Path(__file__).parent

# ---------------------------------------------------------------- the judge

TILE, FORMULAS = 256, 64  # as in lanes.h
#: Fields of `Judged` and `Plain` that a tile holds; truth values take one bit.
_NUMBERS = ("error", "upper", "scaled", "share", "steps", "region", "cls")
_TRUTHS = ("open", "measured", "negative", "unjudged", "different", "closer", "farther")
_PLAIN = ("nan", "operand", "small", "overflow", "faithful")
_LEADER = np.dtype([("value", np.float64), ("index", np.int64)])
_REGION = np.dtype(
    [
        ("counts", np.int64, len(COUNTED)),
        ("histogram", np.int64, len(BINS)),
        ("steps", np.int64),
        ("held", np.int64, len(METRICS)),
        ("leaders", _LEADER, (len(METRICS), LEADERS)),
    ]
)
_FOUND = np.dtype(
    [
        ("regions", _REGION, len(REGIONS)),
        ("binades", np.int64, (SLOTS, 5)),
        ("formulas", np.int64, (FORMULAS, 2)),
        ("open", np.int64),
    ]
)


_ADDRESSES = {"judge", "formulas", "plain", "columns_at", "bytes", "parameters", "open", "found"}


class _Task(ctypes.Structure):
    """As in reduce.cpp."""

    _fields_ = tuple(
        (name, ctypes.c_void_p if name in _ADDRESSES else ctypes.c_int64)
        for name in (
            "judge", "plain", "formulas", "columns_at", "bytes", "columns", "mantissa", "bias", "parameters", "begin",
            "end", "count", "metrics", "open", "found",
        )
    )  # fmt: skip


Element = Callable[[tuple[Tensor, ...], Tensor, Tensor | None, tuple[Any, ...]], Judged]
Likely = Callable[[tuple[Tensor, ...], Tensor, Tensor | None, tuple[Any, ...]], Plain]
Predict = Callable[[tuple[Tensor, ...]], Sequence[Tensor]]


@dataclass(frozen=True)
class Judge:
    """A compiled judge of one case. `judge`, `plain` and `formulas` are the addresses of its functions, 0 where there
    is none; `metrics` has a bit for each of METRICS that is not known to be zero or another's. libraries: what the
    addresses lie in."""

    dtypes: tuple[torch.dtype, ...]
    fmt: Format
    eager: bool
    parameters: int
    count: int
    metrics: int
    alias: bool
    judge: int
    plain: int
    formulas: int
    libraries: tuple[ctypes.CDLL, ...]

    def __call__(
        self,
        inputs: tuple[Tensor, ...],
        y: Tensor,
        eager: Tensor | None = None,
        parameters: tuple[float, ...] = (),
        threads: int | None = None,
        start: int = 0,
    ) -> Reduced:
        """What `verify.judge.reduce.reduce` finds of a chunk, whose failing elements are open.

        Tensors on the host, of shape (n,) and the dtypes compiled for. threads: how many share the work (None: one a
        core), start: of the elements in their domain; the result depends on neither.
        """
        columns = [*inputs, y] + ([eager] if eager is not None else [])
        if (eager is not None) != self.eager or len(parameters) != self.parameters:
            raise ValueError(f"compiled for eager={self.eager} and {self.parameters} parameters")
        columns = [t.reshape(-1).contiguous() for t in columns]
        for t, dtype in zip(columns, self.dtypes, strict=True):
            if t.dtype != dtype or t.numel() != y.numel() or t.device.type != "cpu":
                raise ValueError(f"{t.dtype} of {t.numel()} on {t.device}; expected {dtype} of {y.numel()} on the host")
        n = y.numel()
        pieces = _pieces(n, threads)
        open_ = torch.empty(n, dtype=torch.int64)
        found = np.zeros(len(pieces), dtype=_FOUND)
        at = pointers(columns)
        widths = (ctypes.c_int64 * len(columns))(*(t.element_size() for t in columns))
        values = (ctypes.c_double * max(len(parameters), 1))(*parameters)
        tasks = [
            _Task(
                self.judge, self.plain, self.formulas, ctypes.addressof(at), ctypes.addressof(widths), len(columns),
                self.fmt.mantissa_bits, self.fmt.emax, ctypes.addressof(values), begin, end, self.count, self.metrics,
                open_.data_ptr() + 8 * begin, found.ctypes.data + k * _FOUND.itemsize,
            )
            for k, (begin, end) in enumerate(pieces)
        ]  # fmt: skip
        run = _reduction().run
        if len(tasks) > 1:
            list(native.pool(len(tasks)).map(lambda task: run(ctypes.byref(task)), tasks))
        else:
            run(ctypes.byref(tasks[0]))
        left = [open_[begin : begin + int(f["open"])] for (begin, _), f in zip(pieces, found, strict=True)]
        return self._reduced(found, torch.cat(left).sort().values)

    def _reduced(self, found: Any, open_: Tensor) -> Reduced:
        regions, binades = found["regions"], found["binades"]
        used = regions["counts"].any((0, 2)).tolist()
        measured = binades[:, :, 0].any(0).nonzero()[0]
        told = binades[:, measured]
        rows = np.concatenate([told[..., :2].sum(0), told[..., 2].max(0)[:, None], told[..., 3:].sum(0)], 1)
        formulas = found["formulas"][:, : self.count].tolist()
        return Reduced(
            regions=tuple(self._region(regions[:, k]) if used[k] else _EMPTY for k in range(len(REGIONS))),
            binades=tuple((e - 1023, *row) for e, row in zip(measured.tolist(), rows.tolist(), strict=True)),
            formulas=tuple(
                (sum(part[f][0] for part in formulas), next((part[f][1] for part in formulas if part[f][0]), -1))
                for f in range(self.count)
            ),
            open=open_,
        )

    def _region(self, parts: Any) -> InRegion:
        """One region of all ranges of elements, in their order."""
        return InRegion(
            counts=tuple(parts["counts"].sum(0).tolist()),
            histogram=tuple(parts["histogram"].sum(0).tolist()),
            steps=int(parts["steps"].max()),
            leaders=self._leaders(parts),
        )

    def _leaders(self, parts: Any) -> tuple[tuple[tuple[float, int], ...], ...]:
        made: list[tuple[tuple[float, int], ...]] = []
        for m, name in enumerate(METRICS):
            if self.alias and name == "scaled":
                made.append(made[METRICS.index("ulp")])
                continue
            held = [leader for part in parts for leader in part["leaders"][m, : part["held"][m]].tolist()]
            if len(parts) > 1:
                held.sort(key=lambda leader: (-leader[0], leader[1]))
            made.append(tuple(held[:LEADERS]))
        return tuple(made)


_EMPTY = InRegion((0,) * len(COUNTED), (0,) * len(BINS), 0, ((),) * len(METRICS))


def compiled(
    element: Element,
    inputs: tuple[torch.dtype, ...],
    eager: bool,
    parameters: int = 0,
    formulas: Predict | None = None,
    plain: Likely | None = None,
) -> Judge:
    """The judge of `element(inputs, y, eager, parameters)`, a pure function on tensors (n,), for inputs of these dtypes
    and outputs of the first one's. parameters: how many floats it is given when it is called. formulas(inputs) gives
    what each formula predicts. plain: a cheaper function that is tried first; `element` judges those of which it does
    not hold. Raises Unsupported where there is no compiler, or an operation that it does not know.
    """
    dtypes, k = _of_columns(inputs, eager), len(inputs)
    graph = trace(fields_of(element, k, eager), dtypes, parameters=parameters)
    first = None if plain is None else trace(plain_fields_of(plain, k, eager), dtypes, parameters=parameters)
    return _judge(graph, dtypes, k, parameters, formulas, first)


def settling(element: Element, inputs: tuple[torch.dtype, ...], parameters: int) -> tuple[Judge, Callable[..., Judged]]:
    """`compiled` with eager's outputs, elements that fail being settled as others are; and what judges each of them,
    `element(inputs, y, None, parameters)`, for the few of which more than sums is asked. Raises Unsupported."""
    names, dtypes = list(Judged.__dataclass_fields__), _of_columns(inputs, True)
    whole = trace(fields_of(element, len(inputs), True, failing=True), dtypes, parameters=parameters)
    summed = copy.copy(whole)
    summed.outputs = {name: whole.outputs[name] for name in (*_NUMBERS, *_TRUTHS) if name in whole.outputs}
    whole.outputs = {name: whole.outputs[name] for name in names}
    run = columns(whole, [whole.kinds[name] for name in names])

    def each(given: tuple[Tensor, ...], y: Tensor, values: tuple[float, ...]) -> Judged:
        return Judged(**dict(zip(names, run((*given, y, y), values), strict=True)))

    return _judge(summed, dtypes, len(inputs), parameters), each


def _of_columns(inputs: tuple[torch.dtype, ...], eager: bool) -> tuple[torch.dtype, ...]:
    """The dtypes of inputs, outputs and perhaps eager's outputs."""
    if (fmt := FORMATS[name_of(inputs[0])]).bits > 32:
        raise Unsupported(f"outputs of {fmt.name}: no wider tensor format encloses them")
    return (*inputs, inputs[0], *([inputs[0]] if eager else []))


def _judge(
    graph: Graph, dtypes: tuple[torch.dtype, ...], k: int, parameters: int, formulas: Predict | None = None,
    plain: Graph | None = None,
) -> Judge:  # fmt: skip
    """The judge that computes a graph's fields; dtypes: of k inputs, of outputs, perhaps of eager's."""
    alias = graph.outputs["scaled"] == graph.outputs["upper"]
    metrics = sum(
        1 << m
        for m, name in enumerate(("upper", "scaled", "share"))
        if graph.constant(graph.outputs[name]) is None and not (alias and name == "scaled")
    )

    def source(made: Graph) -> str:
        stored = (*_NUMBERS, *_TRUTHS, *_PLAIN)
        outputs = {k: v for k, v in made.outputs.items() if k in stored and not (alias and k == "scaled")}
        return tile_source(made, [(place, _tiled(made, name, place)) for name, place in outputs.items()])

    sources, count = {"judge": source(graph)}, 0
    if plain is not None:
        sources["plain"] = source(plain)
    if formulas is not None:

        def wrong(*tensors: Tensor) -> dict[str, Tensor]:
            return {f"{f}": differing(p, tensors[k]) for f, p in enumerate(formulas(tensors[:k]))}

        compared = trace(wrong, dtypes)
        count = len(compared.outputs)
        if count > FORMULAS:
            raise Unsupported(f"{count} formulas; at most {FORMULAS}")
        stores = [(place, f"out->mismatches[{f}][b] = byte(v{place});") for f, place in compared.outputs.items()]
        sources["formulas"] = tile_source(compared, stores)
    _reduction()
    libraries = tuple(native.pool(torch.get_num_threads()).map(build, sources.values()))
    addresses = dict(zip(sources, (_address(library, "tile") for library in libraries), strict=True))
    judge, first, third = (addresses.get(name, 0) for name in ("judge", "plain", "formulas"))
    fmt = FORMATS[name_of(dtypes[k])]
    return Judge(dtypes, fmt, len(dtypes) == k + 2, parameters, count, metrics, alias, judge, first, third, libraries)


def fields_of(element: Element, inputs: int, eager: bool, failing: bool = False) -> Callable[..., dict[str, Tensor]]:
    """The function that an engine compiles: from inputs, outputs, eager's outputs and parameters to fields by name.
    failing: to all that is judged, elements that fail being settled as others are."""

    def judged(*tensors: Tensor) -> dict[str, Tensor]:
        found = element(*_arguments(tensors, inputs, eager))
        fields = {name: getattr(found, name) for name in Judged.__dataclass_fields__}
        if not failing:
            fields = {name: t for name, t in fields.items() if name in _NUMBERS or name in _TRUTHS}
            fields["open"] = found.open | found.fails  # later stages judge in full what fails
            fields["exponent"] = _exponent(tensors[0])
        return fields

    return judged


def plain_fields_of(likely: Likely, inputs: int, eager: bool) -> Callable[..., dict[str, Tensor]]:
    """The same of plain elements; others are open. Of those of the normal range usual_holds and so on tell alike."""

    def judged(*tensors: Tensor) -> dict[str, Tensor]:
        found = likely(*_arguments(tensors, inputs, eager))
        fields = {name: getattr(found, name) for name in Plain.__dataclass_fields__ if name not in ("holds", "usual")}
        fields |= {f"usual_{name}": t for name, t in vars(found.usual).items()}
        return fields | {"open": ~found.holds, "exponent": _exponent(tensors[0])}

    return judged


def _exponent(t: Tensor) -> Tensor:
    """The biased exponent of a number as a double."""
    return (t.to(torch.float64).view(torch.int64) >> 52) & 0x7FF


def _arguments(tensors: Sequence[Tensor], inputs: int, eager: bool) -> Any:
    rest = tuple(tensors[inputs + 1 + eager :])
    return tuple(tensors[:inputs]), tensors[inputs], tensors[inputs + 1] if eager else None, rest


def tile_source(graph: Graph, stores: Sequence[tuple[int, str]]) -> str:
    """The source of a function that judges a tile (lanes.h: Judges), from what stores which place.

    It goes through the tile several times, with few operations each: a processor overlaps blocks of short chains.
    """
    places = [place for place, _ in stores]
    before, each = body(graph, places)
    order = _in_depth(graph, places)
    stages = _stages(graph, order)
    stage_of = {p: k for k, stage in enumerate(stages) for p in stage}
    kept = sorted({a for p in order for a in graph.nodes[p].args if a in stage_of and stage_of[a] < stage_of[p]})
    due: list[list[str]] = [[] for _ in stages]
    for place, code in stores:
        due[stage_of.get(place, len(stages) - 1)].append(code)
    loops = []
    for k, stage in enumerate(stages):
        lines, here = [], set(stage)
        needed = {a for p in stage for a in graph.nodes[p].args}
        needed |= {place for place, _ in stores if stage_of.get(place, len(stages) - 1) == k}
        for a in sorted(needed - here):
            if a in stage_of:
                lines.append(f"const {KINDS[graph.nodes[a].kind]} v{a} = load<{KINDS[graph.nodes[a].kind]}>(s{a} + t);")
            elif graph.nodes[a].op in ("input", "raw"):
                lines.append(each[a])
        lines += [each[p] for p in stage]
        lines += [f"store(s{p} + t, v{p});" for p in stage if p in kept] + due[k]
        loops.append("\n    ".join(lines))
    arrays = "".join(
        f"  alignas(64) {'double' if graph.nodes[p].kind == 'd' else 'int64_t'} s{p}[TILE];\n" for p in kept
    )
    first = "\n  ".join(before)
    loop = "  for (int64_t b = 0; b < blocks; ++b) {\n    const int64_t i = at + b * LANES, t = b * LANES;\n    "
    return f"""#include "lanes.h"
{library_source(libraries_in(graph, places))}
extern "C" void tile(const void* const* in, const double* parameters, int64_t at, int64_t blocks, Tile* out) {{
  {first}
{arrays}{"".join(f"{loop}{one}{chr(10)}  }}{chr(10)}" for one in loops)}}}
"""


STAGE = 48  # operations of a stage, or so


def _in_depth(graph: Graph, places: Sequence[int]) -> list[int]:
    """What the places need and elements do not share or read, each after its arguments and near them."""
    found: dict[int, None] = {}
    waiting = [(p, False) for p in reversed(places)]
    while waiting:
        p, ready = waiting.pop()
        if ready:
            found[p] = None
        elif p not in found and not graph.invariant(p) and graph.nodes[p].op not in ("input", "raw"):
            waiting += [(p, True), *((a, False) for a in reversed(graph.nodes[p].args))]
    return list(found)


def _stages(graph: Graph, order: Sequence[int]) -> list[list[int]]:
    """The operations in their order, divided where few values are carried on: after a library function, and else near
    the end of STAGE operations."""
    at, carried = {p: k for k, p in enumerate(order)}, [0] * len(order)  # carried: values that are needed after each
    last = {a: k for k, p in enumerate(order) for a in graph.nodes[p].args if a in at}
    for p, k in last.items():
        carried[at[p]] += 1
        carried[k] -= 1
    carried = list(itertools.accumulate(carried))
    stages, start = [], 0
    while len(order) - start > STAGE * 3 // 2:
        live = {k: carried[k] for k in range(start + 1, start + STAGE * 3 // 2)}
        called = [k for k in live if graph.nodes[order[k]].op == "lib"]
        near = called[:1] or [k for k in live if k >= start + STAGE // 2]
        cut = min(near, key=lambda k: (live[k], -k))
        stages.append(list(order[start : cut + 1]))
        start = cut + 1
    return [*stages, list(order[start:])]


def _tiled(graph: Graph, name: str, place: int) -> str:
    if name in _TRUTHS or name in _PLAIN:
        return "" if graph.constant(place) is False else f"out->{name}[b] = byte(v{place});"
    return f"store(out->{name} + t, v{place});"


def _pieces(n: int, threads: int | None) -> list[tuple[int, int]]:
    """Ranges of whole tiles, one for each thread; small ones are not worth a thread."""
    tiles = -(-n // TILE)
    count = max(1, min(threads or torch.get_num_threads(), tiles // 64))
    ends = [min(n, TILE * (tiles * (k + 1) // count)) for k in range(count)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


@functools.cache
def _reduction() -> ctypes.CDLL:
    library = build((HERE / "reduce.cpp").read_text(), "-O3")
    library.run.restype = None
    return library


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
