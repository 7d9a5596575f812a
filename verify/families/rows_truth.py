"""The truth of row kernels: an oracle over the rows of one tensor, in balls and in multiprecision. The oracle defines
the function; this module handles rows and dimensions, and how each is evaluated. Inputs beside the
rows hold one element for each place in a row.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from verify.facts.formats import FORMATS
from verify.facts.oracle import OracleError
from verify.facts.truth import TINY, Truth
from verify.families.composite import Problem
from verify.families.rows import Rows
from verify.families.rows_recipes import PRODUCTS, SQUARES, SUMS
from verify.inputs.draws import spread
from verify.judge.ledger import holds
from verify.numbers.arrays import BallArrays, BallDDArrays, ExactRow, MpArrays
from verify.numbers.decide import Enclosure, enclosure
from verify.numbers.mp import EXACT, MpValue

Tensor = torch.Tensor
START, CAP = 96, 12288  # bits, as in `verify.numbers.mp.enclosures`
#: Elements of the rows that double-double takes at once, and in all of rows that have less than one open element in
#: SPARSE; what is beyond goes to multiprecision.
STEP, MOST_DOUBLE, SPARSE = 1 << 17, 1 << 19, 64
#: Elements of the rows that float64 takes at once.
STEP_FLOAT64 = 1 << 20
#: Rows kept as integers, with what multiprecision has computed of them.
KEPT = 64
#: Terms that an explanation lists.
LISTED = 6
_POINTS = {"nan": torch.nan, "+inf": torch.inf, "-inf": -torch.inf, "+0": 0.0, "-0": -0.0}


def rows_of(x: Tensor, dim: int) -> Tensor:
    """The slices of x along `dim` as the rows of a matrix, in C order; empty rows too."""
    moved = x.movedim(dim, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


def squares_overflow(rows: Tensor) -> Tensor:
    """Of rows (r, n), as (r, 1): whether the sum of squares overflows in float32 (float64 of float64) in every order,
    each addition and each square down by a unit roundoff."""
    fmt = FORMATS["float64" if rows.dtype == torch.float64 else "float32"]
    finite = rows.to(torch.float64).where(rows.isfinite(), 0.0)
    least = (finite * finite).sum(-1, keepdim=True) * (1 - float(fmt.unit_roundoff)) ** (rows.shape[-1] + 1)
    return least > float(fmt.max_finite) * (1 + float(fmt.unit_roundoff))


class Slices:
    """The `Source` of a row kernel: its oracle along dimension `dim` of the problem's first tensor."""

    def __init__(self, facts: Rows, problem: Problem, device: Any, bounds: Mapping[str, float]) -> None:
        x, *others = problem.tensors.values()
        self.names = tuple(problem.tensors)
        self.facts, self.oracle = facts, facts.oracle
        self.dim = problem.parameters["dim"] % x.dim()
        self.moved = x.movedim(self.dim, -1)
        self.rows = rows_of(x, self.dim)
        self.others = [t[None] for t in others]
        self.scalars = dict(problem.scalars)
        self.after = math.prod(x.shape[self.dim + 1 :])
        self.reduces, self.sums = facts.reduces, self.moved.shape[-1] * (facts.kind == SUMS)
        self.ball, self.double = BallArrays(device, bounds), BallDDArrays(device, bounds)
        self._whole: tuple[Enclosure, Tensor | None] | None = None
        self._left: tuple[Tensor, Tensor] | None = None
        self._last: tuple[tuple[list[int], bool], tuple[Enclosure, Tensor | None]] | None = None
        self._exact: OrderedDict[int, ExactRow] = OrderedDict()
        self._exact_others: list[ExactRow] = []

    # Places

    def _flat(self, t: Tensor) -> Tensor:
        """Values by row and position as (1, n) in C order of the output."""
        if self.reduces:
            return t.reshape(1, -1)
        return t.reshape(self.moved.shape).movedim(-1, self.dim).reshape(1, -1)

    def _places(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Row and position of elements of the output."""
        if self.reduces:
            return index, torch.zeros_like(index)
        # C order of the output: what stands before the dimension, the position along it, what stands after it.
        n, after = self.rows.shape[1], self.after
        return index // (after * n) * after + index % after, index // after % n

    def _place(self, index: int) -> tuple[int, int]:
        row, position = self._places(torch.tensor([index], device=self.rows.device))
        return int(row), int(position)

    # Balls

    def enclose(
        self, output: str, index: Tensor | None = None, double: bool = False, scaled: bool = True
    ) -> tuple[Enclosure, Tensor | None]:
        """See `verify.families.composite.Source`."""
        if double:
            assert index is not None
            return self._doubled(index, scaled)
        if self._whole is None:
            step = max(1, STEP_FLOAT64 // max(self.rows.shape[1], 1))
            parts = [self._evaluated(self.ball, part) for part in torch.split(self.rows, step)]
            mid, rad = (torch.cat([getattr(e, name) for e, _ in parts]) for name in ("mid", "radius"))
            kept = Enclosure(self._flat(mid), self._flat(rad), None, all(e.sure for e, _ in parts))
            sizes = [scale for _, scale in parts if scale is not None]
            self._whole = kept, self._flat(torch.cat(sizes)) if sizes else None
        found, scale = self._whole
        if index is None:
            return found, scale
        return found.take((slice(None), index)), None if scale is None else scale[:, index]

    def left(self, output: str) -> tuple[Tensor, Tensor] | None:
        """Where a prefix before an element's own leaves the range of the format in which sums and products are kept:
        that of the tensor, or float32 for half types; sums below it are exact. Of whole rows: where a sum of squares
        does, and None of others."""
        if self.facts.kind == SQUARES:
            if self._left is None:
                over = self._flat(squares_overflow(self.rows).expand(self.rows.shape))[0]
                self._left = torch.zeros_like(over), over
            return self._left
        if not self.facts.prefixes:
            return None
        if self._left is None:
            wide = FORMATS["float64" if self.rows.dtype == torch.float64 else "float32"]
            found, _ = self.enclose("")
            n = self.rows.shape[1]
            size = found.mid[0][self._by_row()].reshape(-1, n).abs()
            special = ~self.rows.to(torch.float64).isfinite()
            beyond = (size > float(wide.max_finite)) & ~special
            below = (size < float(wide.smallest_normal)) & (size > 0) & (self.facts.kind == PRODUCTS)
            parts = []
            for mask in (below, beyond):
                before = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1) if n else mask
                seen = before.to(torch.int32).cumsum(1) > 0
                parts.append(self._flat(seen)[0])
            self._left = parts[0], parts[1]
        return self._left

    def drawn(self, count: int) -> Tensor:
        """See `verify.families.composite.Source`."""
        rows, n = self.rows.shape
        some = torch.tensor(spread(rows, max(1, count // max(n, 1))), device=self.rows.device)
        return some if self.reduces else self._by_row().reshape(rows, n)[some].reshape(-1)

    def where(self, text: str) -> Tensor:
        """Of which elements of the output, in C order, a predicate of the ledger holds; n.anywhere asks a whole row.
        Raises UsageError for what is none."""
        named = dict(zip(self.names, (self.rows, *self.others), strict=True))
        found = holds(text, self.ball, named, self.scalars)
        return self._flat(found[:, :1] if self.reduces else found)[0]

    def _by_row(self) -> Tensor:
        """The number of each element of the output, by row and position."""
        numbers = torch.arange(self.rows.numel(), device=self.rows.device).reshape(self._shape())
        return numbers.movedim(self.dim, -1).reshape(-1)

    def _shape(self) -> tuple[int, ...]:
        shape = list(self.moved.shape[:-1])
        shape.insert(self.dim, self.moved.shape[-1])
        return tuple(shape)

    def _doubled(self, index: Tensor, scaled: bool) -> tuple[Enclosure, Tensor | None]:
        rows, positions = self._places(index)
        wanted, back = rows.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        n = max(self.rows.shape[1], 1)
        mid, tail = (torch.zeros(index.shape, dtype=torch.float64, device=index.device) for _ in range(2))
        rad = torch.full_like(mid, torch.nan)
        scale = torch.ones_like(mid) if scaled and self.oracle.scale is not None else None
        sure = True
        # Multiprecision is faster for a few elements of long rows.
        many = back.bincount(minlength=len(wanted)) * SPARSE >= n
        taken = torch.cat([many.nonzero()[:, 0], (~many).nonzero()[: MOST_DOUBLE // n, 0]])
        for chosen in torch.split(taken, max(1, STEP // n)):
            if not len(chosen):
                continue
            asked = wanted[chosen].tolist(), scaled
            if self._last is None or self._last[0] != asked:  # of the last lowering, whose open rows were the same
                self._last = asked, self._evaluated(self.double, self.rows[wanted[chosen]], scaled)
            found, sizes = self._last[1]
            sure = sure and found.sure
            place = torch.full((len(wanted),), -1, device=index.device).index_put(
                (chosen,), torch.arange(len(chosen), device=index.device)
            )
            here = (place[back] >= 0).nonzero()[:, 0]
            at = place[back[here]], positions[here]
            assert found.tail is not None
            mid[here], rad[here], tail[here] = found.mid[at], found.radius[at], found.tail[at]
            if scale is not None and sizes is not None:
                scale[here] = sizes[at]
        return Enclosure(mid[None], rad[None], tail[None], sure), None if scale is None else scale[None]

    def _evaluated(self, n: Any, rows: Tensor, scaled: bool = True) -> tuple[Enclosure, Tensor | None]:
        """Enclosure and scale, where that is asked for, by row and position."""
        x = [n.input(rows), *(n.input(t) for t in self.others)]
        ball = self.oracle.function(n, *x, **self._constants(n))
        like = ball.mid
        found = enclosure(ball, like)
        mid, rad, tail = found.mid, found.radius, found.tail
        rad = torch.where(torch.isnan(mid), torch.nan, rad)
        special = torch.zeros_like(mid, dtype=torch.bool)
        for row in self.oracle.rows:
            hit = row.when(n, *x, **self.scalars).expand_as(mid) & ~special
            special = special | hit
            if row.gives == "either-zero":  # both signs are right: multiprecision judges
                mid, rad = torch.where(hit, 0.0, mid), torch.where(hit, torch.nan, rad)
            else:
                mid, rad = torch.where(hit, _POINTS[str(row.gives)], mid), torch.where(hit, 0.0, rad)
            tail = None if tail is None else torch.where(hit, 0.0, tail)
        # a product beyond float64 is no infinity, and beyond other formats whatever it is
        if self.facts.kind == PRODUCTS and rows.dtype != torch.float64:
            mid = torch.where(mid.isinf() & ~special, torch.copysign(torch.full_like(mid, 2.0**1000), mid), mid)
        scale = None
        if scaled and self.oracle.scale is not None:
            size = self.oracle.scale(n, *x, **self._constants(n))
            lower = size.mid - torch.as_tensor(size.radius, dtype=torch.float64, device=size.mid.device)
            lower = torch.where(torch.isfinite(lower), lower * (1 - 2.0**-50), 1.0)
            scale = lower.clamp(min=2.0**-1000).expand_as(mid)
        return Enclosure(mid, rad, tail, found.sure), scale

    def _constants(self, n: Any) -> dict[str, Any]:
        return {name: n.const(value) for name, value in self.scalars.items()}

    # Multiprecision

    def _inputs(self, row: int) -> list[ExactRow]:
        """The row's own terms, and the other inputs."""
        if not self._exact_others:
            self._exact_others = [ExactRow(t) for t in self.others]
        return [self._row(row), *self._exact_others]

    def _row(self, row: int) -> ExactRow:
        found = self._exact.pop(row, None) or ExactRow(self.rows[row])
        self._exact[row] = found
        if len(self._exact) > max(2, min(KEPT, (1 << 20) // max(len(found), 1))):
            self._exact.popitem(last=False)
        return found

    def exact(self, output: str, index: int) -> Iterator[Truth]:
        """See `verify.families.composite.Source`."""
        row, position = self._place(index)
        x = self._inputs(row)
        n = MpArrays(START, position)
        for special in self.oracle.rows:
            hit = special.when(n, *x, **self.scalars)
            if bool(hit[0]):
                yield Truth(special.gives)  # type: ignore[arg-type]
                return
        precision = START
        while precision <= CAP:
            truth = self._value(x, position, precision).truth()
            if truth.kind == "nan":
                raise OracleError(f"{self.oracle.name} gives a NaN at {index}; give these inputs a special row")
            yield truth
            if truth.exact:
                return
            precision *= 2

    def _value(self, x: list[ExactRow], position: int, precision: int) -> MpValue:
        n = MpArrays(precision, position)
        (value,) = self.oracle.function(n, *x, **self._constants(n))
        return value  # type: ignore[no-any-return]

    def scale(self, output: str, index: int) -> Truth | None:
        """See `verify.families.composite.Source`."""
        if self.oracle.scale is None:
            return None
        row, position = self._place(index)
        n = MpArrays(START, position)
        try:
            values = self.oracle.scale(n, *self._inputs(row), **self._constants(n))
        except (ValueError, ArithmeticError):  # a row that special values decide
            return None
        value: MpValue = values[0]
        if value.kind == EXACT and not value.exact:
            return Truth.real(TINY, TINY)
        return value.truth() if value.kind in (EXACT, "interval") else None

    def explain(self, output: str, index: int) -> list[tuple[str, str]]:
        """The element's terms: how many, the largest ones, and what is made of them."""
        row, position = self._place(index)
        stop = position + 1 if self.facts.prefixes else self.rows.shape[1]
        x = self.rows[row, :stop]
        at = "" if self.reduces else f", position {position}"
        lines = [("row", f"{row} of {self.rows.shape[0]}{at}: {stop} terms")]
        values = x.to(torch.float64).cpu()
        size = torch.nan_to_num(self.facts.listed(values), nan=torch.inf)
        for k in torch.argsort(size, descending=True, stable=True)[:LISTED].tolist():
            value = float(values[k])
            lines.append((f"x[{k}]", f"{value.hex()} = {value!r}"))
        if stop > LISTED:
            lines.append(("...", f"{stop - LISTED} more terms"))
        if self.facts.details is not None and bool(torch.isfinite(values).all()):
            lines += self.facts.details(self._row(row), position, stop)
        return lines
