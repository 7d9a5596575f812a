"""A pure per-element tensor function as a graph of scalar operations, from which C++ and Triton code are made.

`trace` runs the function on small tensors that record every aten operation. What a graph holds are numbers of three
kinds, whatever the tensors' dtypes: "d" (float64, which holds the values of float32, float16 and bfloat16 too), "i"
(int64, which holds narrower integers sign-extended) and "m" (a truth value). The graph computes what torch computes,
bit for bit, but for the payload and sign of NaNs. What it does not know it refuses with `Unsupported`.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from verify.facts.formats import FORMATS, Format
from verify.native import Unsupported
from verify.numbers.transforms import round_to, round_to_odd, two_sum

Tensor = torch.Tensor
SIZE = 11  # elements of the tensors that a trace runs on
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
BITS = {torch.int64: 64, torch.int32: 32, torch.int16: 16, torch.int8: 8, torch.uint8: 8}
#: Library functions: aten's name, and how many arguments they take. What computes them is for admission to judge.
LIBRARY = {
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "sin": 1, "cos": 1, "tan": 1,
    "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "erf": 1,
    "erfc": 1, "lgamma": 1, "pow": 2, "atan2": 2,
}  # fmt: skip


class Node(NamedTuple):
    """One operation: its name, the positions of its arguments in the graph, a constant fact about it, and its kind.

    const (attr: the bits of a float64, or an integer, or a truth value), input (attr: which, and its dtype), raw (its
    pattern, sign-extended), parameter (attr: which). Of doubles: add sub mul div neg abs sqrt floor ceil trunc rint
    copysign, max and min (NaNs propagate; of equal ones the second), atleast and atmost (of a number and a bound; NaNs
    stay), recip (of a power of two, or infinity), lib (attr: the function), round (to the format attr), fma (of float32
    values, rounded once to float32), lt le eq ne;
    bits, word (the pattern of a value of the format attr) and toint (truncated) are integers. Of integers: iadd isub
    imul iand ior ixor shl shr (arithmetic) ineg iabs inot ilt ile ieq ine, wrap (to attr bits, unsigned where
    negative); value (converted), frombits (its bits) and unword (its pattern in the format attr) are doubles. Of truth
    values: and or xor not, count (0 or 1). select.
    """

    op: str
    args: tuple[int, ...] = ()
    attr: Any = None
    kind: str = "d"


@dataclass(frozen=True)
class Power:
    """A value that is 2^k with low <= k <= high, or else `extra`: "inf", "zero", or nothing else ("")."""

    low: int
    high: int
    extra: str = ""


EXPONENT = 0x7FF0000000000000
#: Operations whose result may be a power of two.
_POWERS = ("const", "frombits", "max", "min", "mul", "recip")
_COMPARISONS = {"lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne}


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value


@dataclass
class Graph:
    """Nodes in an order in which each follows its arguments; no two are equal. outputs: positions by name; kinds: the
    dtypes of the tensors that they stand for."""

    inputs: tuple[torch.dtype, ...]
    nodes: list[Node] = field(default_factory=list)
    outputs: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, torch.dtype] = field(default_factory=dict)
    _known: dict[Node, int] = field(default_factory=dict)
    _narrow: set[int] = field(default_factory=set)  # their values are float32 values
    _powers: dict[int, Power] = field(default_factory=dict)
    _invariant: set[int] = field(default_factory=set)  # the same for all elements

    def add(self, op: str, *args: int, attr: Any = None, kind: str = "d") -> int:
        """The position of an operation, simplified where that changes no bit."""
        simple = self._simple(op, args, attr)
        if simple is not None:
            return simple
        node = Node(op, args, attr, kind)
        if node in self._known:
            return self._known[node]
        self.nodes.append(node)
        place = self._known[node] = len(self.nodes) - 1
        if self._is_narrow(node):
            self._narrow.add(place)
        if (power := self._power(node)) is not None:
            self._powers[place] = power
        if op in ("const", "parameter") or (args and all(a in self._invariant for a in args)):
            self._invariant.add(place)
        if op == "copysign":
            place = self._known[node] = self._rounding(place, args[1])
        return place

    def number(self, value: float) -> int:
        return self.add("const", attr=struct.unpack("<q", struct.pack("<d", value))[0])

    def integer(self, value: int) -> int:
        return self.add("const", attr=int(value), kind="i")

    def truth(self, value: bool) -> int:
        return self.add("const", attr=bool(value), kind="m")

    def select(self, which: int, a: int, b: int) -> int:
        return self.add("select", which, a, b, kind=self.nodes[a].kind)

    def not_(self, a: int) -> int:
        return self.add("not", a, kind="m")

    def both(self, a: int, b: int) -> int:
        return self.add("and", a, b, kind="m")

    def compare(self, op: str, a: int, b: int, kind: str) -> int:
        if op in ("gt", "ge"):
            op, a, b = {"gt": "lt", "ge": "le"}[op], b, a
        return self.add(op if kind == "d" else "i" + op, a, b, kind="m")

    def reached(self, outputs: Sequence[int]) -> list[int]:
        """Positions of what the outputs need, ascending."""
        seen, stack = set(outputs), list(outputs)
        while stack:
            for a in self.nodes[stack.pop()].args:
                if a not in seen:
                    seen.add(a)
                    stack.append(a)
        return sorted(seen)

    def invariant(self, place: int) -> bool:
        """Whether it is the same for all elements."""
        return place in self._invariant

    def narrow(self, place: int) -> bool:
        """Whether its values are float32's."""
        return place in self._narrow

    def single(self, place: int) -> Node | None:
        """The operation on float32 values of which this is the result, rounded to float32; None where it is none."""
        node = self.nodes[place]
        if node.op != "round" or node.attr != "float32":
            return None
        inner = self.nodes[node.args[0]]
        known = inner.op in ("add", "sub", "mul", "div", "sqrt") and all(a in self._narrow for a in inner.args)
        return inner if known else None

    def constant(self, place: int) -> Any:
        """The attr of a constant, else None."""
        node = self.nodes[place]
        return node.attr if node.op == "const" else None

    def _simple(self, op: str, args: tuple[int, ...], attr: Any) -> int | None:
        if op == "select":
            which, a, b = args
            known = self.constant(which)
            if a == b or known is not None:
                return a if a == b or known else b
            if self.nodes[which].op == "not":
                return self.select(self.nodes[which].args[0], b, a)
            if self.nodes[a].kind == "m":
                return self._select_truth(which, a, b)
        elif op in ("and", "or", "xor"):
            return self._logic(op, *args)
        elif op == "not":
            inner = self.nodes[args[0]]
            if inner.op == "not":
                return inner.args[0]
            if inner.op == "const":
                return self.truth(not inner.attr)
        elif op in ("bits", "frombits"):
            inner, other = self.nodes[args[0]], "frombits" if op == "bits" else "bits"
            if inner.op == other:
                return inner.args[0]
            if inner.op == "const":
                return self.add("const", attr=inner.attr, kind="i" if op == "bits" else "d")
        elif op == "round" and attr == "float32":
            if args[0] in self._narrow:
                return args[0]
            factors = self._multiplied(args[0])
            return None if factors is None else self.add("fma", *factors, attr=attr)
        elif op in ("add", "sub", "mul", "div"):
            return self._arithmetic(op, *args)
        elif op.removeprefix("i") in _COMPARISONS:
            x, y = (self.nodes[a] for a in args)
            if x.op == y.op == "const":
                values = (x.attr, y.attr) if op.startswith("i") else (_double(x.attr), _double(y.attr))
                return self.truth(_COMPARISONS[op.removeprefix("i")](*values))
        return None

    def _arithmetic(self, op: str, a: int, b: int) -> int | None:
        """Constants folded, and division by a power of two as a product, which has the same bits."""
        x, y = self._float(a), self._float(b)
        if x is not None and y is not None and op != "div":
            return self.number({"add": x + y, "sub": x - y, "mul": x * y}[op])
        if op == "div":
            inverse = self._inverse(b)
            return None if inverse is None else self.add("mul", a, inverse)
        if op == "mul":
            for value, other in ((x, b), (y, a)):
                if value == 1:
                    return other
                if value == 0 and math.copysign(1, value) > 0 and other in self._powers:
                    return None if self._powers[other].extra == "inf" else self.number(0.0)
        return None

    def _float(self, place: int) -> float | None:
        """The value of a finite constant."""
        node = self.nodes[place]
        if node.op != "const" or node.kind != "d":
            return None
        value = _double(node.attr)
        return value if math.isfinite(value) else None

    def _power(self, node: Node) -> Power | None:
        """What is known of a power of two."""
        if node.op not in _POWERS:
            return None
        known = [self._powers.get(a) for a in node.args]
        if node.op == "const" and node.kind == "d":
            mantissa, exponent = math.frexp(_double(node.attr))
            return Power(exponent - 1, exponent - 1) if mantissa == 0.5 and -1022 < exponent < 1022 else None
        if node.op == "frombits":
            inner = self.nodes[node.args[0]]
            if inner.op == "iand" and self.constant(inner.args[1]) == EXPONENT:
                return self._binade(self.nodes[inner.args[0]])
        if node.op in ("max", "min", "mul") and None not in known:
            a, b = known
            assert a is not None and b is not None
            extra = a.extra or b.extra
            if a.extra and b.extra and a.extra != b.extra:
                return None
            if node.op == "mul":
                found = Power(a.low + b.low, a.high + b.high, extra)
            else:
                found = Power(min(a.low, b.low), max(a.high, b.high), extra)
            return found if -1022 < found.low and found.high < 1022 else None
        if node.op == "recip" and known[0] is not None:
            return Power(-known[0].high, -known[0].low, "zero" if known[0].extra else "")
        return None

    def _binade(self, pattern: Node) -> Power | None:
        """2^floor(log2 v) of a v that is limited at both ends to positive numbers, infinity where v is a NaN."""
        if pattern.op != "bits":
            return None
        limits, inner = {}, self.nodes[pattern.args[0]]
        while inner.op in ("atleast", "atmost") and inner.op not in limits:
            limit = self._float(inner.args[1])
            if limit is None:
                return None
            limits[inner.op] = limit
            inner = self.nodes[inner.args[0]]
        low, high = limits.get("atleast", 0.0), limits.get("atmost", math.inf)
        if not 2.0**-1020 < low <= high < 2.0**1020:
            return None
        return Power(math.frexp(low)[1] - 1, math.frexp(high)[1] - 1, "inf")

    def _inverse(self, place: int) -> int | None:
        """1 / v of a power of two, of which an infinity gives zero and a zero infinity; None where v may be none.

        x / v and x * (1 / v) have the same bits then, NaNs and infinities included."""
        power, node = self._powers.get(place), self.nodes[place]
        if power is None:
            return None
        if node.op == "const":
            return self.number(1 / _double(node.attr))
        if node.op == "recip":
            return node.args[0]
        if node.op == "mul":
            a, b = (self._inverse(arg) for arg in node.args)
            return None if a is None or b is None else self.add("mul", a, b)
        return None if power.extra == "zero" else self.add("recip", place)

    def _select_truth(self, which: int, a: int, b: int) -> int | None:
        known_a, known_b = self.constant(a), self.constant(b)
        if known_a is not None:
            return self.add("or", which, b, kind="m") if known_a else self.both(self.not_(which), b)
        if known_b is not None:
            return self.add("or", self.not_(which), a, kind="m") if known_b else self.both(which, a)
        return None

    def _logic(self, op: str, a: int, b: int) -> int | None:
        for one, other in ((a, b), (b, a)):
            known = self.constant(one)
            if known is not None:
                if op == "xor":
                    return self.not_(other) if known else other
                return other if known == (op == "and") else self.truth(op == "or")
        if a == b:
            return self.truth(False) if op == "xor" else a
        return self.add(op, b, a, kind="m") if b < a else None

    def _is_narrow(self, node: Node) -> bool:
        """Whether the values are float32's."""
        if node.op == "input":
            return bool(node.attr[1] != torch.float64)
        if node.op == "const" and node.kind == "d":
            value = _double(node.attr)
            return bool(value != value or float(torch.tensor(value, dtype=torch.float32)) == value)
        if node.op in ("round", "unword", "fma"):
            return True
        if node.op in ("neg", "abs"):
            return node.args[0] in self._narrow
        if node.op in ("select", "copysign"):
            return all(a in self._narrow for a in node.args[node.op == "select" : 3 if node.op == "select" else 1])
        return False

    def _rounding(self, place: int, t: int) -> int:
        """One rounding for the operations by which `round_to` spells it."""
        for name in ("float32", "float16", "bfloat16"):
            if self._spells(place, t, FORMATS[name]):
                return self.add("round", t, attr=name)
        return place

    def _spells(self, place: int, t: int, fmt: Format) -> bool:
        found = t
        positions: list[int] = []
        for op, args, attr, kind in _spelling(fmt):
            node = Node(op, tuple(t if a < 0 else positions[a] for a in args), attr, kind)
            known = self._simple(op, node.args, attr) if op == "bits" else self._known.get(node)
            known = self._known.get(node) if known is None else known
            if known is None:
                return False
            found = known
            positions.append(found)
        return found == place

    def _multiplied(self, place: int) -> tuple[int, ...] | None:
        """The float32 values a, b and c of which this is a b + c, rounded to odd as `ieee.fma` spells it."""
        pattern, bound = _fma_spelling(), dict[int, int]()

        def same(theirs: int, mine: int) -> bool:
            node = pattern.nodes[theirs]
            if node.op == "input":
                return bound.setdefault(theirs, mine) == mine
            other = self.nodes[mine]
            if (node.op, node.attr, node.kind) != (other.op, other.attr, other.kind):
                return False
            return all(same(a, b) for a, b in zip(node.args, other.args, strict=True))

        if self.nodes[place].op != "frombits" or not same(pattern.outputs[""], place):
            return None
        found = tuple(bound[k] for k in range(3))
        return found if all(a in self._narrow for a in found) else None


@functools.cache
def _fma_spelling() -> Graph:
    def fma(a: Tensor, b: Tensor, c: Tensor) -> dict[str, Tensor]:
        return {"": round_to_odd(*two_sum(a * b, c))}

    return trace(fma, (torch.float64,) * 3)


_SPELLINGS: dict[str, list[tuple[str, tuple[int, ...], Any, str]]] = {}


def _spelling(fmt: Format) -> list[tuple[str, tuple[int, ...], Any, str]]:
    """The operations of `round_to`, in terms of one another; -1 is what is rounded."""
    if fmt.name not in _SPELLINGS:
        _SPELLINGS[fmt.name] = []  # while this trace looks
        # of a sum, since the pattern of an input is read and not computed
        graph = trace(lambda a, b: {"": round_to(a + b, fmt)}, (torch.float64,) * 2)
        order = [p for p in graph.reached([graph.outputs[""]]) if p > 2]  # the inputs and their sum come first
        index = {p: k for k, p in enumerate(order)}
        _SPELLINGS[fmt.name] = [
            (n.op, tuple(index.get(a, -1) for a in n.args), n.attr, n.kind) for n in (graph.nodes[p] for p in order)
        ]
    return _SPELLINGS[fmt.name]


def trace(function: Callable[..., dict[str, Tensor]], inputs: Sequence[torch.dtype], parameters: int = 0) -> Graph:
    """The graph of a pure function of tensors (n,) of these dtypes, and of 0-dim float64 ones beside them, which gives
    tensors by name. Raises Unsupported, naming what the graph does not know."""
    graph = Graph(tuple(inputs))
    with torch.no_grad():
        results = function(*_arguments(graph, parameters))
        graph.outputs = {name: _single(_lift(graph, t)) for name, t in results.items()}
        graph.kinds = {name: t.dtype for name, t in results.items()}
    return graph


def _arguments(graph: Graph, parameters: int) -> list[Traced]:
    found = []
    for k, dtype in enumerate(graph.inputs):
        if dtype not in FLOATS and dtype not in BITS:
            raise Unsupported(f"an input of {dtype}")
        place = graph.add("input", attr=(k, dtype), kind="d" if dtype in FLOATS else "i")
        found.append(Traced(torch.ones(SIZE).to(dtype), place, graph))
    for k in range(parameters):
        place = graph.add("parameter", attr=k)
        found.append(Traced(torch.ones((), dtype=torch.float64), place, graph))
    return found


# ---------------------------------------------------------------- recording

Places = int | list[int]  # of tensors shaped () or (n,) a position, of (k, n) k of them


class Traced(torch.Tensor):
    """A small tensor with the positions in a graph that stand for its elements."""

    held: Tensor
    places: Places
    graph: Graph
    shared: bool

    @staticmethod
    def __new__(cls, held: Tensor, places: Places, graph: Graph, shared: bool = False) -> Traced:
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)
        made.held, made.places, made.graph, made.shared = held, places, graph, shared
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(function, args, kwargs or {})


Rule = Callable[["Call"], Places]


class Operation(NamedTuple):
    """One of aten's operations. base: its name without the overload, and without the underscore of what is done in
    place (in_place); view: its results share memory with an argument."""

    base: str
    in_place: bool
    view: bool
    rule: Rule


@functools.cache
def _operation(function: Any) -> Operation:
    name = function.__name__
    base = name.partition(".")[0]
    if not base.endswith("__"):
        base = base.removesuffix("_")
    rule = _RULES.get(base)
    if rule is None:
        raise Unsupported(f"aten.{name} is not an operation that the fused engine knows")
    return Operation(base, name.startswith(base + "_"), base in _VIEWS, rule)


def _dispatch(function: Any, args: Any, kwargs: Any) -> Any:
    base, in_place, view, rule = _operation(function)
    traced: list[Traced] = []
    held_args = [_held(a, traced) for a in args]
    held_kwargs = {name: _held(value, traced) for name, value in kwargs.items()}
    graph = traced[0].graph
    target = args[0] if in_place else None
    if in_place:
        if not isinstance(target, Traced) or target.shared:
            raise Unsupported(f"aten.{function.__name__} on a tensor that others share")
        held_args[0] = target.held.clone()
    held = function(*held_args, **held_kwargs)
    try:
        places = rule(Call(graph, base, args, kwargs, held))
    except Unsupported as reason:
        raise Unsupported(f"aten.{function.__name__}: {reason}") from None
    if target is not None:
        if target.held.shape != held.shape:
            raise Unsupported(f"aten.{function.__name__} changes a shape")
        target.held, target.places = held, places
        return target
    if isinstance(held, (list, tuple)):
        assert isinstance(places, list)
        return [Traced(h, p, graph, shared=True) for h, p in zip(held, places, strict=True)]
    if view:
        for a in traced:
            a.shared = True
    return Traced(held, places, graph, view)


def _held(argument: Any, traced: list[Traced]) -> Any:
    """An argument of aten's, tensors or lists of them as the small tensors that they stand for. traced: takes them."""
    if isinstance(argument, Traced):
        traced.append(argument)
        return argument.held
    return [_held(a, traced) for a in argument] if isinstance(argument, (list, tuple)) else argument


class Call(NamedTuple):
    """One recorded call of aten, with what it gave on the small tensors. base: see `Operation`."""

    graph: Graph
    base: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    held: Any

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.held.dtype
        return dtype

    def places(self, k: int, dtype: torch.dtype | None = None) -> Places:
        """Argument k as numbers of a dtype (None: its own)."""
        value = self.args[k]
        if isinstance(value, torch.Tensor):
            found = _lift(self.graph, value)
            if dtype is None or value.dtype == dtype:
                return found
            return each(lambda p: convert(self.graph, p, value.dtype, dtype), found)
        if dtype is None:
            raise Unsupported(f"a {type(value).__name__} for argument {k}")
        return scalar(self.graph, value, dtype)


def each(make: Callable[..., int], *columns: Places) -> Places:
    """What `make` gives of the columns' positions, row by row; one position stands for those of all rows."""
    lists = [c for c in columns if isinstance(c, list)]
    if not lists:
        return make(*columns)
    rows = max(map(len, lists))
    wide = [c * rows if len(c) == 1 else c for c in ([c] if isinstance(c, int) else c for c in columns)]
    return [make(*row) for row in zip(*wide, strict=True)]


def _single(places: Places) -> int:
    if isinstance(places, int):
        return places
    if len(places) != 1:
        raise Unsupported(f"an output shaped ({len(places)}, n)")
    return places[0]


def _lift(graph: Graph, t: Tensor) -> Places:
    """Positions of a tensor; one that is not recorded is a constant, and all its elements are equal."""
    if isinstance(t, Traced):
        return t.places
    if t.numel() == 0 or t.dim() > 2 or (t.dim() == 2 and t.shape[1] not in (1, SIZE)):
        raise Unsupported(f"a constant tensor shaped {tuple(t.shape)}")
    if t.dim() == 2:
        return [_uniform(graph, row) for row in t]
    return _uniform(graph, t.reshape(-1))


def _uniform(graph: Graph, row: Tensor) -> int:
    if len(row) > 1:
        first = row[:1]
        same = (row == first) | ((row != row) & (first != first))
        if not bool(same.all()) or (row.dtype.is_floating_point and bool((row.signbit() != first.signbit()).any())):
            raise Unsupported("a constant tensor whose elements differ")
    value = row[0].item()
    if row.dtype == torch.bool:
        return graph.truth(bool(value))
    if row.dtype in BITS:
        return graph.integer(int(value))
    if row.dtype in FLOATS:
        return graph.number(float(value))
    raise Unsupported(f"a constant of {row.dtype}")


def scalar(graph: Graph, value: Any, dtype: torch.dtype) -> int:
    """A Python number in an operation of `dtype`; a half must hold it exactly, since torch may compute in float32."""
    if isinstance(value, torch.SymInt | torch.SymFloat) or not isinstance(value, bool | int | float):
        raise Unsupported(f"{type(value).__name__} as a scalar")
    if dtype == torch.bool:
        return graph.truth(bool(value))
    if dtype in BITS:
        if not isinstance(value, bool | int):
            raise Unsupported("a float as an integer")
        return graph.integer(int(value))
    exact = float(value)
    if dtype != torch.float64:
        near = float(torch.tensor(exact, dtype=dtype))
        if near != exact and exact == exact and dtype != torch.float32:
            raise Unsupported(f"the scalar {value} in {dtype}")
        exact = near
    return graph.number(exact)


def convert(graph: Graph, place: int, source: torch.dtype, target: torch.dtype) -> int:
    """A number of one dtype as one of another, as Tensor.to converts."""
    if source == target:
        return place
    if target == torch.bool:
        zero = graph.number(0.0) if source in FLOATS else graph.integer(0)
        return graph.compare("ne", place, zero, "d" if source in FLOATS else "i")
    if source == torch.bool:
        if target in BITS:
            return graph.add("count", place, kind="i")
        return graph.select(place, graph.number(1.0), graph.number(0.0))
    if source in BITS and target in BITS:
        return (
            wrapped(graph, place, target) if BITS[target] < BITS[source] or torch.uint8 in (source, target) else place
        )
    if source in BITS:
        if target != torch.float64 and BITS[source] > 8:
            raise Unsupported(f"{source} to {target}")
        return graph.add("value", place)
    if target in BITS:
        if target != torch.int64:
            raise Unsupported(f"{source} to {target}")
        return graph.add("toint", place, kind="i")
    return narrowed(graph, place, target) if FLOATS.index(target) > FLOATS.index(source) else place


def narrowed(graph: Graph, place: int, dtype: torch.dtype) -> int:
    """Rounded to a float dtype; to a half by way of float32, as torch does."""
    if dtype == torch.float64:
        return place
    place = graph.add("round", place, attr="float32")
    return place if dtype == torch.float32 else graph.add("round", place, attr=name_of(dtype))


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def wrapped(graph: Graph, place: int, dtype: torch.dtype) -> int:
    """An integer modulo 2^bits of its dtype, sign-extended."""
    bits = BITS[dtype]
    return place if bits == 64 else graph.add("wrap", place, attr=-8 if dtype == torch.uint8 else bits, kind="i")


# ---------------------------------------------------------------- rules: what aten's operations mean

_RULES: dict[str, Rule] = {}
#: Their results share memory with an argument.
_VIEWS = {"detach", "alias", "view", "expand", "unsqueeze", "squeeze", "select", "unbind", "_unsafe_view", "reshape"}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def keep(made: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, made))
        return made

    return keep


def operations() -> list[str]:
    """The names of aten's operations that a graph knows."""
    return sorted(_RULES)


def _operands(call: Call) -> tuple[Places, Places]:
    return call.places(0, call.dtype), call.places(1, call.dtype)


@rule("add", "sub", "mul", "div")
def _arithmetic(call: Call) -> Places:
    base = call.base
    if call.kwargs.get("alpha", 1) != 1 or len(call.args) > 2 or call.kwargs.keys() - {"alpha"}:
        raise Unsupported(f"arguments {call.args[2:]} {call.kwargs}")
    graph, dtype = call.graph, call.dtype
    a, b = _operands(call)
    if dtype == torch.bool and base == "mul":
        return each(graph.both, a, b)
    if dtype in BITS and base != "div":
        return each(lambda p, q: wrapped(graph, graph.add("i" + base, p, q, kind="i"), dtype), a, b)
    # a float32 result rounds the float64 one again, which is innocuous (Figueroa 1995)
    if dtype in (torch.float64, torch.float32):
        return each(lambda p, q: narrowed(graph, graph.add(base, p, q), dtype), a, b)
    raise Unsupported(f"on {dtype}")


@rule("reciprocal")
def _reciprocal(call: Call) -> Places:
    return _arithmetic(Call(call.graph, "div", (1.0, call.args[0]), {}, call.held))


@rule("rsub")
def _rsub(call: Call) -> Places:
    return _arithmetic(Call(call.graph, "sub", (call.args[1], call.args[0], *call.args[2:]), call.kwargs, call.held))


@rule("pow")
def _pow(call: Call) -> Places:
    if call.dtype != torch.float64:
        raise Unsupported(f"on {call.dtype}")
    if not all(isinstance(a, torch.Tensor) for a in call.args):
        raise Unsupported("a Python number: torch computes some powers by products")
    return each(lambda p, q: call.graph.add("lib", p, q, attr="pow"), *_operands(call))


def _library(call: Call) -> Places:
    name = call.base
    if call.dtype != torch.float64:
        raise Unsupported(f"on {call.dtype}")
    columns = [call.places(k, call.dtype) for k in range(LIBRARY[name])]
    return each(lambda *p: call.graph.add("lib", *p, attr=name), *columns)


_RULES.update(dict.fromkeys(set(LIBRARY) - {"pow"}, _library))


@rule("sqrt", "floor", "ceil", "trunc", "round")
def _unary(call: Call) -> Places:
    name = call.base
    if call.dtype not in FLOATS or len(call.args) > 1 or call.kwargs:
        raise Unsupported(f"on {call.dtype}, or with decimals")
    if name == "sqrt" and call.dtype not in (torch.float64, torch.float32):
        raise Unsupported(f"on {call.dtype}")
    op = "rint" if name == "round" else name
    make = call.graph.add
    return each(
        lambda p: narrowed(call.graph, make(op, p), call.dtype) if op == "sqrt" else make(op, p), call.places(0)
    )


@rule("neg", "abs")
def _sign(call: Call) -> Places:
    name, graph, dtype = call.base, call.graph, call.dtype
    if dtype in FLOATS:
        return each(lambda p: graph.add(name, p), call.places(0))
    return each(lambda p: wrapped(graph, graph.add("i" + name, p, kind="i"), dtype), call.places(0))


@rule("copysign")
def _copysign(call: Call) -> Places:
    if call.dtype not in FLOATS:
        raise Unsupported(f"on {call.dtype}")
    return each(lambda p, q: call.graph.add("copysign", p, q), *_operands(call))


@rule("maximum", "minimum", "fmax", "fmin")
def _extreme(call: Call) -> Places:
    name = call.base
    graph, (a, b) = call.graph, _operands(call)
    if name in ("maximum", "minimum") and call.dtype in FLOATS:
        return each(lambda p, q: graph.add(name[:3], p, q), a, b)
    if name in ("maximum", "minimum") and call.dtype in BITS:
        pick = "gt" if name == "maximum" else "lt"
        return each(lambda p, q: graph.select(graph.compare(pick, p, q, "i"), p, q), a, b)
    raise Unsupported(f"on {call.dtype}")


@rule("clamp", "clamp_min", "clamp_max")
def _clamp(call: Call) -> Places:
    base = call.base
    given = [*call.args[1:], None, None]
    if base == "clamp_max":
        given = [None, given[0]]
    low, high = call.kwargs.get("min", given[0]), call.kwargs.get("max", given[1])
    if any(isinstance(limit, torch.Tensor) for limit in (low, high)):
        raise Unsupported("tensors as limits")
    found, graph, dtype = call.places(0, call.dtype), call.graph, call.dtype
    for limit, op, pick in ((low, "atleast", "gt"), (high, "atmost", "lt")):
        if limit is None:
            continue
        bound = scalar(graph, limit, dtype)
        if dtype in FLOATS:
            found = each(lambda p, op=op, bound=bound: graph.add(op, p, bound), found)
        else:
            found = each(
                lambda p, pick=pick, bound=bound: graph.select(graph.compare(pick, bound, p, "i"), bound, p), found
            )
    return found


@rule("lt", "le", "gt", "ge", "eq", "ne")
def _comparison(call: Call) -> Places:
    op, graph = call.base, call.graph
    first, second = call.args[:2]
    dtype = torch.result_type(*(a.held if isinstance(a, Traced) else a for a in (first, second)))
    a, b = call.places(0, dtype), call.places(1, dtype)
    if dtype == torch.bool:
        return each(lambda p, q: _compared_truths(graph, op, p, q), a, b)
    return each(lambda p, q: graph.compare(op, p, q, "d" if dtype in FLOATS else "i"), a, b)


def _compared_truths(graph: Graph, op: str, a: int, b: int) -> int:
    if op == "ne":
        return graph.add("xor", a, b, kind="m")
    if op == "eq":
        return graph.not_(graph.add("xor", a, b, kind="m"))
    if op in ("lt", "le"):
        op, a, b = {"lt": "gt", "le": "ge"}[op], b, a
    if op == "gt":
        return graph.both(a, graph.not_(b))
    return graph.add("or", a, graph.not_(b), kind="m")


@rule("isnan", "isinf", "isfinite", "signbit")
def _predicate(call: Call) -> Places:
    name, graph = call.base, call.graph
    value = call.args[0]
    if value.dtype not in FLOATS:
        raise Unsupported(f"on {value.dtype}")

    def make(p: int) -> int:
        if name == "isnan":
            return graph.add("ne", p, p, kind="m")
        if name == "signbit":
            return graph.compare("lt", graph.add("bits", p, kind="i"), graph.integer(0), "i")
        infinity = graph.number(float("inf"))
        return graph.compare("eq" if name == "isinf" else "lt", graph.add("abs", p), infinity, "d")

    return each(make, call.places(0))


@rule(
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "__and__",
    "__or__",
    "__xor__",
)
def _bitwise(call: Call) -> Places:
    base = call.base.strip("_")
    op, graph = base.removeprefix("logical_").removeprefix("bitwise_"), call.graph
    dtype = torch.bool if base.startswith("logical") else call.dtype
    a, b = call.places(0, dtype), call.places(1, dtype)
    if dtype == torch.bool:
        return each(lambda p, q: graph.add(op, p, q, kind="m"), a, b)
    return each(lambda p, q: graph.add("i" + op, p, q, kind="i"), a, b)


@rule("logical_not", "bitwise_not")
def _not(call: Call) -> Places:
    graph = call.graph
    if call.dtype == torch.bool:
        return each(graph.not_, call.places(0, torch.bool))
    return each(lambda p: wrapped(graph, graph.add("inot", p, kind="i"), call.dtype), call.places(0))


@rule("__lshift__", "__rshift__", "bitwise_left_shift", "bitwise_right_shift")
def _shift(call: Call) -> Places:
    graph, dtype = call.graph, call.dtype
    count = call.args[1]
    if dtype not in BITS or (not isinstance(count, int) and BITS[dtype] != 64) or count_out_of_range(count, dtype):
        raise Unsupported(f"by {count} on {dtype}")
    op = "shl" if "l" in call.base.strip("_")[:1] or "left" in call.base else "shr"
    a, b = call.places(0, dtype), call.places(1, dtype)
    return each(lambda p, q: wrapped(graph, graph.add(op, p, q, kind="i"), dtype), a, b)


def count_out_of_range(count: Any, dtype: torch.dtype) -> bool:
    return isinstance(count, int) and not 0 <= count < BITS[dtype]


@rule("where")
def _where(call: Call) -> Places:
    graph = call.graph
    return each(graph.select, call.places(0, torch.bool), call.places(1, call.dtype), call.places(2, call.dtype))


@rule("masked_fill")
def _masked_fill(call: Call) -> Places:
    graph = call.graph
    return each(
        lambda p, m, v: graph.select(m, v, p), call.places(0), call.places(1, torch.bool), call.places(2, call.dtype)
    )


@rule("nan_to_num")
def _nan_to_num(call: Call) -> Places:
    if call.dtype != torch.float64:
        raise Unsupported(f"on {call.dtype}")
    graph, limit = call.graph, torch.finfo(torch.float64).max
    given = dict(zip(("nan", "posinf", "neginf"), [*call.args[1:], None, None, None], strict=False)) | call.kwargs
    nan, top, low = (
        graph.number(default if given[name] is None else float(given[name]))
        for name, default in (("nan", 0.0), ("posinf", limit), ("neginf", -limit))
    )

    def make(p: int) -> int:
        found = graph.select(graph.compare("eq", p, graph.number(float("-inf")), "d"), low, p)
        found = graph.select(graph.compare("eq", p, graph.number(float("inf")), "d"), top, found)
        return graph.select(graph.add("ne", p, p, kind="m"), nan, found)

    return each(make, call.places(0))


@rule("_to_copy")
def _to_copy(call: Call) -> Places:
    return call.places(0, call.dtype)


@rule("clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "contiguous")
def _same(call: Call) -> Places:
    return call.places(0)


@rule("expand", "unsqueeze", "squeeze", "_unsafe_view", "reshape")
def _shaped(call: Call) -> Places:
    found = call.places(0)
    if isinstance(found, list) and len(found) != 1:
        raise Unsupported(f"on a tensor shaped {tuple(call.args[0].shape)}")
    shape = call.held.shape
    if len(shape) > 2 or (len(shape) == 2 and shape[0] != 1) or (shape and shape[-1] not in (1, SIZE)):
        raise Unsupported(f"to shape {tuple(shape)}")
    return [_single(found)] if len(shape) == 2 else _single(found)


@rule("view")
def _view(call: Call) -> Places:
    given, target = call.args[0], call.args[1]
    if not isinstance(target, torch.dtype):
        return _shaped(call)
    graph, source = call.graph, given.dtype
    if source == target:
        return call.places(0)
    if torch.bool in (source, target) or source.itemsize != target.itemsize:
        raise Unsupported(f"of {source} as {target}")

    def make(p: int) -> int:
        if source in FLOATS and target in BITS:
            node = graph.nodes[p]
            if node.op == "input" and node.attr[1] == source:
                return graph.add("raw", attr=node.attr, kind="i")
            if source == torch.float64:
                return graph.add("bits", p, kind="i")
            return graph.add("word", p, attr=name_of(source), kind="i")
        if source in BITS and target in FLOATS:
            return graph.add("frombits", p) if target == torch.float64 else graph.add("unword", p, attr=name_of(target))
        raise Unsupported(f"of {source} as {target}")

    return each(make, call.places(0))


@rule("full_like", "zeros_like", "ones_like", "new_full", "new_zeros", "new_ones", "fill", "zero")
def _filled(call: Call) -> Places:
    base = call.base
    shape = call.held.shape
    if base == "fill":
        value: Any = call.args[1]
    elif "full" in base:
        value = call.args[2] if base == "new_full" else call.args[1]
    else:
        value = 1 if "ones" in base else 0
    made = scalar(call.graph, value, call.dtype)
    return made if len(shape) < 2 else [made] * shape[0]


@rule("stack")
def _stack(call: Call) -> Places:
    tensors, dim = call.args[0], (*call.args[1:], call.kwargs.get("dim", 0))[0]
    if dim != 0 or call.held.dim() != 2:
        raise Unsupported(f"along dimension {dim}")
    return [convert(call.graph, _single(_lift(call.graph, t)), t.dtype, call.dtype) for t in tensors]


@rule("unbind")
def _unbind(call: Call) -> Places:
    dim = (*call.args[1:], call.kwargs.get("dim", 0))[0]
    if dim != 0 or call.args[0].dim() != 2:
        raise Unsupported(f"along dimension {dim}")
    return call.places(0)


@rule("select")
def _select(call: Call) -> Places:
    if call.args[0].dim() != 2 or call.args[1] != 0:
        raise Unsupported("other than a row")
    found = call.places(0)
    assert isinstance(found, list)  # as it has two dimensions
    place: int = found[call.args[2]]
    return place
