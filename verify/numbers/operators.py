"""The operators of the values of a number system, and its predicates: what is the same in several of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Self

import torch

from verify.numbers import Undecidable

Binary = Callable[[Any, Any], Any]


class Arithmetic:
    """+ - * / on either side of another operand, by `_operate(operator, left, right)`."""

    __slots__ = ()

    def _operate(self, op: Binary, left: Any, right: Any) -> Self:
        raise NotImplementedError

    def __add__(self, other: Any) -> Self:
        return self._operate(operator.add, self, other)

    def __radd__(self, other: Any) -> Self:
        return self._operate(operator.add, other, self)

    def __sub__(self, other: Any) -> Self:
        return self._operate(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Self:
        return self._operate(operator.sub, other, self)

    def __mul__(self, other: Any) -> Self:
        return self._operate(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Self:
        return self._operate(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Self:
        return self._operate(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._operate(operator.truediv, other, self)


class Comparing:
    """< <= > >= == != by `_compare(operator, other)`."""

    __slots__ = ()

    def _compare(self, op: Binary, other: Any) -> Any:
        raise NotImplementedError

    def __lt__(self, other: Any) -> Any:
        return self._compare(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._compare(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(operator.ge, other)

    def __eq__(self, other: object) -> Any:
        return self._compare(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compare(operator.ne, other)

    __hash__ = None  # type: ignore[assignment]


class Enclosing:
    """+ - * / by `add`, `mul` and `div` of the system `n`, in which terms and factors may change places."""

    __slots__ = ()
    n: Any

    def __neg__(self) -> Self:
        raise NotImplementedError

    def __add__(self, other: Any) -> Self:
        return self.n.add(self, self.n.const(other))  # type: ignore[no-any-return]

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self.n.add(self, -self.n.const(other))  # type: ignore[no-any-return]

    def __rsub__(self, other: Any) -> Self:
        return self.n.add(self.n.const(other), -self)  # type: ignore[no-any-return]

    def __mul__(self, other: Any) -> Self:
        return self.n.mul(self, self.n.const(other))  # type: ignore[no-any-return]

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self.n.div(self, self.n.const(other))  # type: ignore[no-any-return]

    def __rtruediv__(self, other: Any) -> Self:
        return self.n.div(self.n.const(other), self)  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        raise Undecidable("an oracle used an enclosure as a truth value; use n.where")


class Predicates:
    """What a system asks of exact inputs, given as a float64 tensor by `_asked`."""

    def _asked(self, a: Any) -> torch.Tensor:
        raise NotImplementedError

    def is_nan(self, a: Any) -> torch.Tensor:
        return self._asked(a).isnan()

    def is_inf(self, a: Any) -> torch.Tensor:
        return self._asked(a).isinf()

    def is_zero(self, a: Any) -> torch.Tensor:
        return self._asked(a) == 0

    def signbit(self, a: Any) -> torch.Tensor:
        return self._asked(a).signbit()

    def is_integer(self, a: Any) -> torch.Tensor:
        x = self._asked(a)
        return (x == x.floor()) & x.isfinite()

    def is_odd(self, a: Any) -> torch.Tensor:
        half = self._asked(a) * 0.5
        return self.is_integer(a) & (half != half.floor())
