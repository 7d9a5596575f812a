"""The truth of matrix products: the oracle on whole matrices in float64 balls, on rows in double-double, on single
elements in integers.

Special values are decided by the terms alone: where an infinity or a NaN is among them, float64's own sum of terms that
keep their signs and classes and cannot overflow is of the right class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from verify.facts.truth import TINY, ZERO, Truth
from verify.families.composite import Problem
from verify.families.products import Products
from verify.families.products_data import Shape, decoded, unordered, unread
from verify.inputs.draws import spread
from verify.numbers.ball import GROW
from verify.numbers.decide import Enclosure
from verify.numbers.fixed import Fixed, FixedMatrices, places_for
from verify.numbers.matmul import DDMatrices, RowBalls
from verify.oracles import products as oracle
from verify.oracles.products import Factors

Tensor = torch.Tensor
#: Binary places beyond those of the products, where a function is to be evaluated; the most.
PLACES, MOST_PLACES = 96, 6144
#: Relative width of the widest truth that is given.
NARROW = Fraction(1, 1 << 64)
#: Elements of the rows that double-double takes at once.
STEP = 1 << 18
TINY_SCALE = 2.0**-1000
#: Terms that an explanation lists.
LISTED = 6


def factors(n: Any, x: Problem, change: Any = None) -> Factors:
    """The tensors of a `decoded` problem as values of `n`, each changed first; float16 holds those of 8 bits."""

    def value(name: str) -> Any:
        name, t = _widened((name, x.tensors[name]))
        return n.input(t if change is None else change(name, t))

    scales = tuple(value(name) for name in ("scale_a", "scale_b") if name in x.tensors)
    bias = value("bias") if "bias" in x.tensors else None
    return Factors(value("a"), value("b"), scales, bias, x.scalars.get("alpha", 1.0), x.scalars.get("beta", 1.0))


def _widened(pair: tuple[str, Tensor]) -> tuple[str, Tensor]:
    """8-bit formats as float16, which holds them exactly: torch has few operations on them."""
    name, t = pair
    return name, t.to(torch.float16) if t.element_size() == 1 else t


class Truths:
    """`verify.families.composite.Source` of one product."""

    def __init__(self, facts: Products, problem: Problem, device: Any, bounds: Mapping[str, float]) -> None:
        self._unordered = unordered(problem)
        problem = decoded(problem)
        self.facts, self.problem, self.bounds = facts, problem, bounds
        self.device = device
        self.shape: Shape = problem.extra["shape"]
        self.activation = self.shape.activation
        self.whole = facts.exact
        # weights in codes may nearly cancel, of which the scale tells nothing
        self.sums = 0 if facts.exact or facts.coded else self.shape.k + 1
        self._whole: tuple[Enclosure, Tensor] | None = None
        self._fixed: dict[Any, Any] = {}
        self._special = self._nonfinite()
        self._finite = {name: torch.where(t.isfinite(), t, torch.zeros_like(t)) if t.is_floating_point() else t
                        for name, t in map(_widened, problem.tensors.items())}  # fmt: skip

    def _nonfinite(self) -> Tensor | None:
        """NaN and infinite results of special terms, 0 elsewhere, (batch, m, n) as the output; None where all inputs
        are finite."""
        given = self.problem.tensors
        if all(bool(t.to(torch.float64).isfinite().all()) for t in given.values()):
            return None

        def small(t: Tensor) -> Tensor:
            t = t.to(torch.float64)
            return torch.where(t.isfinite(), t.sign(), t)

        found = small(given["a"]) @ small(given["b"])
        alpha, beta = (self.problem.scalars.get(name, 1.0) for name in ("alpha", "beta"))
        found = found * alpha if alpha else torch.zeros_like(found)
        if "bias" in given and beta:
            found = found + small(given["bias"]) * beta
        if "scale_a" in given:
            both = small(given["scale_a"]) * small(given["scale_b"])
            found = torch.where(both.isnan(), math.nan, found * torch.where(both.isinf(), 1.0, both))
        if (unknown := unread(self.problem)) is not None:  # of which nothing is stated
            found = torch.where(unknown, math.nan, found)
        if self._unordered is not None:
            found = torch.where(self._unordered, math.inf, found)
        return torch.where(found.isfinite(), 0.0, found)

    def infinite(self, output: str) -> Tensor | None:
        """See `verify.families.composite.Source` and `products.unordered`."""
        return self._unordered

    # Balls

    def enclose(
        self, output: str, index: Tensor | None = None, double: bool = False, scaled: bool = True
    ) -> tuple[Enclosure, Tensor | None]:
        """See `verify.families.composite.Source`."""
        if double:
            assert index is not None
            return self._doubled(index, scaled)
        if self._whole is None:
            n = RowBalls(self.device, self.bounds, points=True)
            x = factors(n, self.problem, lambda name, t: self._finite[name])
            value = oracle.ACTIVATIONS[self.activation](n, oracle.product(n, x))
            rad = torch.where(value.radius == 0, 0.0, value.radius * GROW + value.mid.abs() * 2.0**-52)
            size = oracle.magnitude(n, x)
            lower = (size.mid * (1 - 2.0**-40) - size.radius).clamp(min=TINY_SCALE)
            self._whole = self._finished(value.mid, rad, None, None), lower.reshape(1, -1)
        found, scale = self._whole
        if index is None:
            return found, scale
        index = index.to(scale.device)
        return found.take((slice(None), index)), scale[:, index]

    def _finished(self, mid: Tensor, rad: Tensor, tail: Tensor | None, index: Tensor | None) -> Enclosure:
        """With relu, special values, and zeros of either sign."""
        mid, rad = mid.reshape(1, -1), rad.reshape(1, -1)
        tail = None if tail is None else tail.reshape(1, -1)
        if self.activation == "relu":
            below = mid + (0.0 if tail is None else tail) + rad * GROW <= 0
            mid, rad = torch.where(below, 0.0, mid), torch.where(below, 0.0, rad)
            tail = None if tail is None else torch.where(below, 0.0, tail)
            rad = torch.where((mid - rad < 0) & ~below, torch.nan, rad)  # across 0: multiprecision decides
        if self._special is not None:
            special = self._special.reshape(1, -1) if index is None else self._special.reshape(1, -1)[:, index]
            special = special.to(mid.device)
            hit = special != 0
            special = torch.where(special == -torch.inf, 0.0, special) if self.activation != "none" else special
            mid, rad = torch.where(hit, special, mid), torch.where(hit, 0.0, rad)
            tail = None if tail is None else torch.where(hit, 0.0, tail)
        either = (mid == 0) & (rad == 0) & (True if tail is None else tail == 0)
        return Enclosure(mid, rad, tail, either=either)

    def _doubled(self, index: Tensor, scaled: bool) -> tuple[Enclosure, Tensor | None]:
        """Whole rows, since a product of matrices is quicker than its elements one by one."""
        width = self.shape.n
        rows, back = (index // width).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        parts = [torch.zeros(index.shape, dtype=torch.float64, device=index.device) for _ in range(3)]
        scale = torch.ones_like(parts[0])
        for change, some, places in self._parts(rows):
            n = DDMatrices(self.device, self.bounds)
            x = factors(n, self.problem, change)
            value = oracle.ACTIVATIONS[self.activation](n, oracle.product(n, x))
            size = oracle.magnitude(n, x) if scaled else None
            place = torch.full((len(rows),), -1, device=index.device)
            place[some] = places
            here = (place[back] >= 0).nonzero()[:, 0]
            spot = place[back[here]], index[here] % width
            found = (value.mid, torch.as_tensor(value.radius), value.tail)
            for whole, part in zip(parts, found, strict=True):
                part = torch.as_tensor(part, dtype=torch.float64).expand_as(value.mid)
                whole[here] = part.reshape(-1, width)[spot]
            if size is None:
                continue
            lower = (size.mid * (1 - 2.0**-40)).expand_as(value.mid).reshape(-1, width)
            scale[here] = lower[spot].clamp(min=TINY_SCALE)
        mid, rad, tail = parts
        return self._finished(mid, rad, tail, index), scale[None] if scaled else None

    def _parts(self, rows: Tensor) -> Iterator[tuple[Any, Tensor, Tensor]]:
        """Rows in parts of some size: how a part's tensors are picked, which of the rows it has, and where they are in
        it. Matrices of a stack come together, with all of their rows, where a fourth of these is wanted."""
        m, most = self.shape.m, max(self.shape.n, self.shape.k, 1)
        batches = (rows // m).unique()  # type: ignore[no-untyped-call]
        if self.shape.batch and 4 * len(rows) >= m * len(batches):
            for few in torch.split(batches, max(1, STEP // (m * most))):
                some = torch.isin(rows // m, few).nonzero()[:, 0]
                places = torch.searchsorted(few, rows[some] // m) * m + rows[some] % m
                yield self._picked(few, slice(None), slice(None)), some, places
            return
        for batch in batches.tolist():
            mine = (rows // m == batch).nonzero()[:, 0]
            for some in torch.split(mine, max(1, STEP // most)):
                yield (
                    self._picked(batch, rows[some] % m, slice(None)),
                    some,
                    torch.arange(len(some), device=rows.device),
                )

    def _picked(self, batch: Any, rows: Any, columns: Any) -> Any:
        """The tensors of these rows and columns alone, of a matrix of a stack or of several."""

        def change(name: str, t: Tensor) -> Tensor:
            t = self._finite[name]
            if name in ("a", "b") and self.shape.batch:
                t = t[batch]
            if name in ("a", "scale_a"):
                return t[..., rows, :]
            return t[..., columns] if t.dim() == 1 or name in ("b", "scale_b") else t[rows][..., columns]

        return change

    def drawn(self, count: int) -> Tensor:
        """See `verify.families.composite.Source`."""
        rows, width = max(self.shape.batch, 1) * self.shape.m, self.shape.n
        some = torch.tensor(spread(rows, max(1, count // max(width, 1))), device=self.device)
        return (some[:, None] * width + torch.arange(width, device=self.device)).reshape(-1)

    # Multiprecision

    def exact(self, output: str, index: int) -> Iterator[Truth]:
        """See `verify.families.composite.Source`."""
        if self._special is not None:
            special = float(self._special.reshape(-1)[index])
            if special == -np.inf and self.activation != "none":
                yield Truth("either-zero")
                return
            if special != 0:
                yield Truth("nan" if np.isnan(special) else "+inf" if special > 0 else "-inf")
                return
        value = self._element(index, oracle.product)
        if self.activation == "silu":
            if value.truth(0, 0).hi <= -4096:  # |y| exp(y) < 2^-5000, which no format holds
                yield Truth.real(Fraction(-1, 1 << 5000), -TINY)
                return
            places = PLACES
            while places <= MOST_PLACES:
                n = FixedMatrices(places + 2 * value.n.places)
                same = Fixed(n, value.mid << (n.places - value.n.places))
                truth = oracle.silu(n, same).truth(0, 0)
                if truth.hi - truth.lo <= abs(truth.lo) * NARROW:  # small results have few places of their own
                    yield truth
                places *= 2
            return
        truth = value.truth(0, 0)
        yield Truth("either-zero") if self.activation == "relu" and truth.kind == "real" and truth.hi <= ZERO else truth

    def scale(self, output: str, index: int) -> Truth | None:
        """See `verify.families.composite.Source`."""
        truth = self._element(index, oracle.magnitude).truth(0, 0)
        return truth if truth.kind == "real" else Truth.real(Fraction(TINY_SCALE), Fraction(TINY_SCALE))

    def _element(self, index: int, function: Any) -> Fixed:
        """An element before its activation, or its magnitude, exactly."""
        key = (index, function)
        if key not in self._fixed:
            if len(self._fixed) > 4096:
                self._fixed.clear()
            batch, rest = divmod(index, self.shape.m * self.shape.n)
            row, column = divmod(rest, self.shape.n)
            pick = self._picked(batch, slice(row, row + 1), slice(column, column + 1))
            given = [pick(name, t).cpu().double().numpy() for name, t in self.problem.tensors.items()]
            scalars = [np.array([float(v)]) for v in self.problem.scalars.values()]
            n = _Host(sum(places_for(t.reshape(1, -1)) for t in (*given, *scalars)))
            self._fixed[key] = function(n, factors(n, self.problem, pick))
        found: Fixed = self._fixed[key]
        return found

    def explain(self, output: str, index: int) -> list[tuple[str, str]]:
        """The largest terms of an element, and what is made of them."""
        batch, rest = divmod(index, self.shape.m * self.shape.n)
        row, column = divmod(rest, self.shape.n)
        pick = self._picked(batch, row, column)
        a, b = (pick(name, self.problem.tensors[name]).cpu().double() for name in ("a", "b"))
        where = f"row {row}, column {column}" + (f" of matrix {batch}" if self.shape.batch else "")
        lines = [("element", f"{where}: {len(a)} products")]
        for j in torch.argsort((a * b).abs(), descending=True, stable=True)[:LISTED].tolist():
            lines.append((f"k = {j}", f"{float(a[j]).hex()} * {float(b[j]).hex()} = {float(a[j] * b[j])!r}"))
        if len(a) > LISTED:
            lines.append(("...", f"{len(a) - LISTED} more products"))
        for name, t in self.problem.tensors.items():
            if name not in ("a", "b"):
                lines.append((name, repr(float(pick(name, t).reshape(-1)[0]))))
        return [*lines, *((name, repr(value)) for name, value in self.problem.scalars.items())]


class _Host(FixedMatrices):
    """Of tensors."""

    def input(self, values: Any) -> Fixed:
        wide = values.cpu().double().numpy()
        return super().input(wide.reshape(1, -1) if wide.ndim < 2 else wide)
