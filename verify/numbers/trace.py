"""The number system `ieee` on one element, remembering every operation: a formula step by step.

`verify.numbers.ieee` alone computes the result of an operation; this module only puts it into words.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from verify.facts.formats import Format
from verify.facts.oracle import Formula
from verify.numbers.functions import offer
from verify.numbers.ieee import IeeeSystem, Predicate, Rounded
from verify.numbers.operators import Arithmetic, Binary, Comparing, Predicates

Tensor = torch.Tensor
_SIGNS = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/"}


@dataclass(frozen=True)
class Step:
    """One operation, inputs by name and intermediate values in hex, and the hex of its result."""

    expression: str
    value: str


@dataclass(frozen=True, eq=False)
class Traced(Arithmetic, Comparing):
    """A value of `ieee` with one element, the text that stands for it, and what it was computed from.

    `named`: an input, or one with its sign changed; others appear as hex.
    """

    value: Rounded
    text: str
    parents: tuple[Traced, ...] = ()
    step: Step | None = None
    named: bool = False

    def _operate(self, op: Binary, left: Operand, right: Operand) -> Traced:
        return _step(f"{{}} {_SIGNS[op]} {{}}", op(_bare(left), _bare(right)), left, right)

    def _compare(self, op: Binary, other: Operand) -> Tensor:
        return op(self.value, _bare(other))  # type: ignore[no-any-return]

    def __neg__(self) -> Traced:
        return self._exactly(-self.value, "-{}")

    def __abs__(self) -> Traced:
        return self._exactly(abs(self.value), "|{}|")

    def _exactly(self, value: Rounded, text: str) -> Traced:
        """A change of sign, which does not count as a step."""
        return Traced(value, text.format(self.text) if self.named else hex_of(value), (self,), named=self.named)

    def steps(self) -> Iterator[Step]:
        """The operations that this value needed, each after its operands."""
        pending, seen = [(self, False)], set[int]()
        while pending:
            value, visited = pending.pop()
            if visited:
                if value.step is not None:
                    yield value.step
            elif id(value) not in seen:
                seen.add(id(value))
                pending.append((value, True))
                pending += [(parent, False) for parent in reversed(value.parents)]


Operand = Traced | float


@dataclass(frozen=True)
class TraceSystem(Predicates):
    """`ieee`, for formulas: the same operations on `Traced` values."""

    ieee: IeeeSystem

    @property
    def compute(self) -> Format:
        return self.ieee.compute

    @property
    def storage(self) -> Format:
        return self.ieee.storage

    def at(self, compute: Format) -> TraceSystem:
        return TraceSystem(self.ieee.at(compute))

    def scalar(self, value: float, fmt: Format | None = None) -> Traced:
        rounded = self.ieee.scalar(value, fmt)
        return Traced(rounded, hex_of(rounded))

    def const(self, value: float | Fraction | str) -> Traced:
        rounded = self.ieee.const(value)
        return Traced(rounded, hex_of(rounded))

    def value(self, x: Operand) -> Traced:
        if not isinstance(x, Traced):
            return self.scalar(x)
        return self._converted(x, self.ieee.value(x.value), self.compute)

    def cast(self, x: Operand, fmt: Format) -> Traced:
        if not isinstance(x, Traced):
            return self.scalar(x, fmt)
        return self._converted(x, self.ieee.cast(x.value, fmt), fmt)

    def fma(self, a: Operand, b: Operand, c: Operand) -> Traced:
        return _step("fma({}, {}, {})", self.ieee.fma(_bare(a), _bare(b), _bare(c)), a, b, c)

    def sqrt(self, a: Operand) -> Traced:
        return _step("sqrt({})", self.ieee.sqrt(_bare(a)), a)

    def __getattr__(self, name: str) -> Callable[..., Traced]:
        return offer(name, lambda entry, a: _step(f"{name}({{}})", self.ieee.apply(entry, _bare(a)), a))

    def recip(self, a: Operand) -> Traced:
        return _step("1 / {}", self.ieee.recip(_bare(a)), a)

    def where(self, predicate: Predicate, a: Operand, b: Operand) -> Operand:
        """The chosen value; the steps to the other are not listed."""
        return self.value(a if bool(predicate) else b)

    def max(self, a: Operand, b: Operand) -> Traced:
        return _step("max({}, {})", self.ieee.max(_bare(a), _bare(b)), a, b)

    def min(self, a: Operand, b: Operand) -> Traced:
        return _step("min({}, {})", self.ieee.min(_bare(a), _bare(b)), a, b)

    def _asked(self, a: Operand) -> Tensor:
        return self.ieee.value(_bare(a)).tensor

    def result(self, value: Operand) -> Traced:
        """The value rounded to storage, where that changes it."""
        last = self.value(value)
        return self._converted(last, self.ieee.cast(last.value, self.storage), self.storage)

    def _converted(self, x: Traced, value: Rounded, fmt: Format) -> Traced:
        if torch.equal(value.tensor, x.value.tensor) or bool(value.tensor.isnan()):
            return Traced(value, x.text, x.parents, x.step, x.named)
        return _step(f"{fmt.name}({{}})", value, x)


def trace(
    n: IeeeSystem, formula: Formula, tensors: Mapping[str, Tensor], scalars: Mapping[str, float]
) -> tuple[str, tuple[Step, ...]]:
    """The formula on tensors of one element, of the storage dtype: the hex of its result, and its steps."""
    inputs: dict[str, Any] = {name: Traced(n.input(t.reshape(1)), name, named=True) for name, t in tensors.items()}
    system = TraceSystem(n)
    result = system.result(formula.evaluate(system, **inputs, **scalars))
    return hex_of(result.value, n.storage), tuple(result.steps())


def hex_of(value: Rounded, fmt: Format | None = None) -> str:
    """The one element of `value` as a hex float of its compute format, or of `fmt`."""
    fmt, number = fmt or value.n.compute, float(value.tensor)
    if number != number:
        return "nan"
    if number in (float("inf"), float("-inf")):
        return fmt.hex(fmt.inf_bits | (fmt.sign_bit if number < 0 else 0))
    return fmt.hex(fmt.round_float(number))


def _bare(x: Operand) -> Rounded | float:
    return x.value if isinstance(x, Traced) else x


def _step(text: str, value: Rounded, *operands: Operand) -> Traced:
    expression = text.format(*(_text(x, value.n) for x in operands))
    result = hex_of(value)
    return Traced(value, result, tuple(x for x in operands if isinstance(x, Traced)), Step(expression, result))


def _text(x: Operand, n: IeeeSystem) -> str:
    """A Python number in short where that is exact, else as the compute format holds it."""
    if isinstance(x, Traced):
        return x.text
    return f"{x:g}" if float(f"{x:g}") == x else hex_of(n.scalar(x))
