"""Graphs of elements of which most is known beforehand: the same values by fewer operations, and a check.

What is assumed (a region, settled, correct or faithful) fixes truth values on the way to the outputs; where numbers are
limited, it may be assumed too that they lie within the limits. What follows is not computed but checked. Where all
checks hold, every value is that of the whole graph: in the order of the nodes, what is computed from values that are as
assumed is what the whole graph computes, and so is each check, up to the first one that fails.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from verify.judge.fused.graph import EXPONENT, Graph, Node

NEAR = 2.0**8  # limits between its inverse and this one are none of a format's range


class _Impossible(Exception):
    """What is assumed contradicts itself."""


def specialised(
    graph: Graph, truths: dict[str, bool], values: dict[str, set[int]], sizes: str
) -> tuple[Graph, int] | None:
    """The graph of elements of which some outputs are known, and the place of a truth value in it: whether they are.

    truths, values: what truth values and integers among the outputs are assumed to be; those outputs are left out.
    sizes: of the numbers that are limited, whether they lie "within" their limits, "above" or "below" them; "": any.
    None where the assumptions are impossible, or nothing is left to check.
    """
    names = [name for name in graph.outputs if name not in truths and (name not in values or len(values[name]) > 1)]
    try:
        assumptions = _Assumptions(graph)
        for name, truth in truths.items():
            assumptions.truth(graph.outputs[name], truth)
        for name, allowed in values.items():
            assumptions.integer(graph.outputs[name], allowed)
        assumptions.follow()
        rebuilt = _Rebuilt(graph, assumptions.known, {})
        for name, allowed in values.items():
            rebuilt.check_integer(rebuilt.places[graph.outputs[name]], allowed)
        made = rebuilt.graph
        made.outputs = {name: rebuilt.places[graph.outputs[name]] for name in names}
        made.outputs["holds"] = rebuilt.holds
        rebuilt = _sized(made, rebuilt.holds, sizes)
        made = rebuilt.graph
        made.outputs = {name: rebuilt.places[rebuilt.old.outputs[name]] for name in names}
    except _Impossible:
        return None
    return None if made.constant(rebuilt.holds) is not None else (made, rebuilt.holds)


def rising(graph: Graph, place: int) -> tuple[int, ...]:
    """Places of numbers of which this one is a function that falls nowhere, and that every element computes alike: of
    several elements it is largest at the largest of each. The place itself, where nothing simpler is known.

    Rounding is monotonic, and so are quotients by what is positive, which parameters are that divide.
    """
    node = graph.nodes[place]
    if graph.invariant(place):
        return ()
    if node.op in ("max", "atmost", "atleast", "value") or (node.op == "div" and graph.invariant(node.args[1])):
        return tuple(dict.fromkeys(leaf for a in node.args for leaf in rising(graph, a)))
    return (place,)


class _Assumptions:
    """Truth values of nodes that follow from those of later ones."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[int, bool] = {}
        self._new = False

    def truth(self, place: int, value: bool) -> None:
        constant = self.graph.constant(place)
        known = self.known.get(place) if constant is None else constant
        if known is not None:
            if known != value:
                raise _Impossible
            return
        self.known[place] = value
        self._new = True

    def integer(self, place: int, allowed: set[int]) -> None:
        """That a choice between constants gives one of those allowed."""
        node = self.graph.nodes[place]
        if node.op != "select":
            if node.op == "const" and node.attr not in allowed:
                raise _Impossible
            return
        which, a, b = node.args
        if not self._may_be(a, allowed):
            self.truth(which, False)
            self.integer(b, allowed)
        elif not self._may_be(b, allowed):
            self.truth(which, True)
            self.integer(a, allowed)

    def _may_be(self, place: int, allowed: set[int]) -> bool:
        """Whether a choice may give one of those allowed; anything but a constant may."""
        node = self.graph.nodes[place]
        if node.op == "select":
            return any(self._may_be(a, allowed) for a in node.args[1:])
        return node.op != "const" or node.attr in allowed

    def follow(self) -> None:
        self._new = True
        while self._new:
            self._new = False
            for place, value in list(self.known.items()):
                node = self.graph.nodes[place]
                if node.op == "not":
                    self.truth(node.args[0], not value)
                elif node.op in ("and", "or") and value == (node.op == "and"):
                    for a in node.args:
                        self.truth(a, value)
                elif node.op in ("and", "or"):
                    self._last(node.args, value)
                elif node.op == "xor":
                    for one, other in (node.args, node.args[::-1]):
                        if (known := self._known(one)) is not None:
                            self.truth(other, value != known)

    def _last(self, args: tuple[int, ...], value: bool) -> None:
        """One of the two decides; where the other does not, this one does."""
        for one, other in (args, args[::-1]):
            if self._known(one) == (not value):
                self.truth(other, value)

    def _known(self, place: int) -> bool | None:
        constant: bool | None = self.graph.constant(place)
        return self.known.get(place) if constant is None else constant


# ---------------------------------------------------------------- ranges


@dataclass(frozen=True)
class Range:
    """low <= v <= high and |v| >= away; v is no NaN."""

    low: float
    high: float
    away: float = 0.0


def _sized(graph: Graph, holds: int, sizes: str) -> _Rebuilt:
    assumptions = _Assumptions(graph)
    limits: dict[int, tuple[float, float]] = {}
    for place, (low, high) in _limits(graph, sizes).items():
        _through(graph, place, low, high, limits, assumptions)
    if sizes == "above":
        for place in graph.reached(list(graph.outputs.values())):
            node = graph.nodes[place]
            if node.op == "select" and _tells_size(graph, node.args[0], limits):
                assumptions.truth(node.args[0], True)
    assumptions.truth(holds, True)
    assumptions.follow()
    return _Rebuilt(graph, assumptions.known, limits)


def _limits(graph: Graph, sizes: str) -> dict[int, tuple[float, float]]:
    """For each number whose size is limited on the way to the outputs, the sizes that are assumed.

    They leave room at both ends, more of it for numbers that others are made of, so that one check serves both.
    """
    found: dict[int, tuple[float, float]] = {}
    for place in graph.reached(list(graph.outputs.values())):
        node = graph.nodes[place]
        limit = _value(graph, node.args[1]) if node.op in ("atleast", "atmost") else None
        if limit is None or limit == 0 or 1 / NEAR < abs(limit) < NEAR:
            continue
        root = _root(graph, node.args[0])
        if graph.invariant(root):
            continue
        low, high = found.get(root, (0.0, math.inf))
        found[root] = (max(low, limit), high) if abs(limit) < 1 else (low, min(high, abs(limit)))
    low = max((low for low, _ in found.values()), default=0.0)
    high = min((high for _, high in found.values()), default=math.inf)
    if not sizes or not low or math.isinf(high) or not low * 64 < high / 64:
        return {}
    before = {other for root in found for other in graph.reached([root]) if other != root}
    rooms = {root: 2.0 if root in before else 1.5 for root in found}
    if sizes == "above":
        return {root: (high * room, math.inf) for root, room in rooms.items()}
    if sizes == "below":
        return {root: (0.0, low / room) for root, room in rooms.items()}
    return {root: (low * room, high / room) for root, room in rooms.items()}


def _tells_size(graph: Graph, place: int, limits: dict[int, tuple[float, float]]) -> bool:
    """Whether it holds only where a limited number is of the size that is assumed."""
    node = graph.nodes[place]
    if node.op == "and":
        return any(_tells_size(graph, a, limits) for a in node.args)
    least = _value(graph, node.args[0]) if node.op == "le" else None
    return least is not None and 1 < least <= limits.get(_root(graph, node.args[1]), (0.0, 0.0))[0]


def _root(graph: Graph, place: int) -> int:
    """The number whose size this is, but for limits; of the larger of two, the first."""
    node = graph.nodes[place]
    if node.op in ("atleast", "atmost", "abs", "neg", "copysign", "max"):
        return _root(graph, node.args[0])
    return place


def _through(
    graph: Graph, place: int, low: float, high: float, limits: dict[int, tuple[float, float]], known: _Assumptions
) -> None:
    """Of a choice of which one side is a constant of another size, the other side has the limits."""
    node = graph.nodes[place]
    if node.op == "select":
        which, a, b = node.args
        for side, other, truth in ((a, b, False), (b, a, True)):
            value = _value(graph, side)
            if value is not None and not low <= abs(value) <= high:
                known.truth(which, truth)
                _through(graph, other, low, high, limits, known)
                return
    limits.setdefault(place, (low, high))


def _value(graph: Graph, place: int) -> float | None:
    node = graph.nodes[place]
    if node.op != "const" or node.kind != "d":
        return None
    value: float = struct.unpack("<d", struct.pack("<q", node.attr))[0]
    return value


class _Rebuilt:
    """A graph made anew of what is known. `holds` is the place of what must hold, `places` gives new places by old."""

    def __init__(self, old: Graph, known: dict[int, bool], limits: dict[int, tuple[float, float]]) -> None:
        self.old, self.graph = old, Graph(old.inputs)
        self.places: dict[int, int] = {}
        self.ranges: dict[int, Range] = {}
        self.holds = self.graph.truth(True)
        for place in old.reached(list(old.outputs.values())):
            node = old.nodes[place]
            new = self._simple(Node(node.op, tuple(self.places[a] for a in node.args), node.attr, node.kind))
            if place in known:
                self._check(new if known[place] else self.graph.not_(new))
                new = self.graph.truth(known[place])
            if place in limits:
                self._limit(new, *limits[place])
            self.places[place] = new

    def _check(self, truth: int) -> None:
        if self.graph.constant(truth) is False:
            raise _Impossible
        self.holds = self.graph.both(self.holds, truth)

    def check_integer(self, place: int, allowed: set[int]) -> None:
        """Check that it is one of those allowed."""
        found = self.graph.truth(False)
        for value in sorted(allowed):
            equal = self.graph.compare("eq", place, self.graph.integer(value), "i")
            found = self.graph.add("or", found, equal, kind="m")
        if not self._chooses(place, allowed):
            self._check(found)

    def _chooses(self, place: int, allowed: set[int]) -> bool:
        """Whether every constant that it may be is allowed, and it may be nothing else."""
        node = self.graph.nodes[place]
        if node.op == "select":
            return all(self._chooses(a, allowed) for a in node.args[1:])
        return node.op == "const" and node.attr in allowed

    def _limit(self, place: int, low: float, high: float) -> None:
        """Check that low <= |v| <= high, and keep it as known; of sums and differences of sizes, that v > 0 too."""
        node = self.graph.nodes[place]
        first = self.ranges.get(node.args[0]) if node.op in ("add", "sub") else None
        size = place if first is not None and first.low >= 0 else self._simple(Node("abs", (place,)))
        least, most = self._simple(Node("const", (), _bits(low))), self._simple(Node("const", (), _bits(high)))
        self._check(self._simple(Node("le", (least, size), kind="m")))
        self._check(self._simple(Node("le", (size, most), kind="m")))
        held = self.ranges.get(size, Range(low, high, low))
        self.ranges[size] = Range(max(held.low, low), min(held.high, high), max(held.away, low))
        if size != place:
            held = self.ranges.get(place, Range(-high, high))
            self.ranges[place] = Range(max(held.low, -high), min(held.high, high), max(held.away, low))

    def _simple(self, node: Node) -> int:
        """The place of an operation, simplified by what is known of its arguments."""
        place = self._known_to_be(node)
        if place is None:
            place = self.graph.add(node.op, *node.args, attr=node.attr, kind=node.kind)
        if place not in self.ranges and (found := self._range(place)) is not None:
            self.ranges[place] = found
        return place

    def _known_to_be(self, node: Node) -> int | None:
        known = [self.ranges.get(a) for a in node.args]
        a = known[0] if known else None
        b = known[1] if len(known) > 1 else None
        if node.op == "abs":
            inner = self.graph.nodes[node.args[0]]
            if inner.op in ("copysign", "neg"):
                return self._simple(Node("abs", inner.args[:1]))
            if a is not None and a.low >= 0 and a.away > 0:
                return node.args[0]
        elif node.op == "ne" and node.args[0] == node.args[1] and a is not None:
            return self.graph.truth(False)
        elif node.op in ("lt", "le", "eq", "ne") and a is not None and b is not None:
            return self._compared(node.op, node.args, a, b)
        elif (
            a is not None
            and b is not None
            and ((node.op in ("atleast", "max") and a.low > b.high) or (node.op == "atmost" and a.high < b.low))
        ):
            return node.args[0]
        elif (
            a is not None
            and b is not None
            and ((node.op == "atleast" and a.high <= b.low) or (node.op == "atmost" and a.low >= b.high))
        ):
            return node.args[1]
        elif node.op == "atmost" and b is not None:
            return self._clamped(*node.args)
        return None

    def _clamped(self, place: int, limit: int) -> int | None:
        """A number that is larger than its limits at both ends is the limit with its sign."""
        inner, high = self.graph.nodes[place], _value(self.graph, limit)
        if inner.op != "atleast" or high is None or _value(self.graph, inner.args[1]) != -high:
            return None
        known = self.ranges.get(inner.args[0])
        if known is None or known.away <= high:
            return None
        return self._simple(Node("copysign", (limit, inner.args[0])))

    def _compared(self, op: str, args: tuple[int, ...], a: Range, b: Range) -> int | None:
        if op in ("eq", "ne"):
            apart = a.high < b.low or b.high < a.low or (a.away > 0 and b.low == b.high == 0)
            apart = apart or (b.away > 0 and a.low == a.high == 0)
            return self.graph.truth(op == "ne") if apart else None
        if a.high < b.low:
            return self.graph.truth(True)
        if (b.high <= a.low) if op == "lt" else (b.high < a.low):
            return self.graph.truth(False)
        if op == "lt" and b.low == b.high == 0 and a.away > 0:
            inner = self.graph.nodes[args[0]]
            if inner.op == "copysign":  # the sign of a number that is not zero is that of another
                pattern = self.graph.add("bits", inner.args[1], kind="i")
                return self.graph.compare("lt", pattern, self.graph.integer(0), "i")
        return None

    def _range(self, place: int) -> Range | None:
        """What is known of a number. Rounding is monotonic, so that rounded ends hold rounded results."""
        node = self.graph.nodes[place]
        if node.kind != "d":
            return None
        value = _value(self.graph, place)
        if value is not None:
            return None if math.isnan(value) else Range(value, value, abs(value))
        if node.op == "sub" and (rounded := self._rounded(*node.args)) is not None:
            return rounded
        known = [self.ranges.get(a) for a in node.args]
        if not known or None in known[node.op == "select" :]:
            return None
        a, b = known[node.op == "select"], known[-1]
        assert a is not None and b is not None
        if node.op == "abs":
            return Range(a.away if a.low < 0 else max(a.low, a.away), max(a.high, -a.low), a.away)
        if node.op == "copysign":
            size = max(abs(a.low), abs(a.high))
            return Range(-size, size, a.away)
        if node.op == "select":
            return Range(min(a.low, b.low), max(a.high, b.high), min(a.away, b.away))
        if node.op in ("add", "sub", "mul"):
            return _finite(self._ends(node.op, a, b))
        return None

    def _rounded(self, total: int, magic: int) -> Range | None:
        """Of (v + m) - m, where v > 0 and m is 2^floor(log2 v) times 2^46 at most: it is v but for v / 16."""
        added, factors = self.graph.nodes[total], self.graph.nodes[magic]
        if added.op != "add" or added.args[1] != magic or factors.op != "mul":
            return None
        v, factor = self.ranges.get(added.args[0]), _value(self.graph, factors.args[1])
        binade = self.graph.nodes[factors.args[0]]
        pattern = self.graph.nodes[binade.args[0]] if binade.op == "frombits" else binade
        if pattern.op != "iand" or self.graph.constant(pattern.args[1]) != EXPONENT:
            return None
        if self.graph.nodes[pattern.args[0]] != Node("bits", (added.args[0],), kind="i"):
            return None
        if v is None or v.low <= 0 or factor is None or not 0 < factor <= 2.0**46:
            return None
        return Range(v.low * 0.9, v.high * 1.1, v.low * 0.9)

    @staticmethod
    def _ends(op: str, a: Range, b: Range) -> list[float]:
        if op == "add":
            return [a.low + b.low, a.high + b.high]
        if op == "sub":
            return [a.low - b.high, a.high - b.low]
        return [x * y for x in (a.low, a.high) for y in (b.low, b.high)]


def _bits(value: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def _finite(ends: list[float]) -> Range | None:
    """The range of results between these; None where one may be infinite, so that a NaN may follow."""
    if not all(map(math.isfinite, ends)):
        return None
    low, high = min(ends), max(ends)
    return Range(low, high, max(low, -high, 0.0))
