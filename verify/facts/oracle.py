"""What an oracle declares: the real function, its special values, its scale and named formulas.

Files in `oracles/` use only this module. Evaluation lives in `verify.numbers`.
"""

from __future__ import annotations

import ast
import importlib
import re
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

#: What a special row may give. `huge` and `tiny` are real numbers beyond every format here.
OUTCOMES = ("nan", "+inf", "-inf", "+0", "-0", "+huge", "-huge", "+tiny", "-tiny", "either-zero")
NEARER = 2.0**-990  #: of a `Saturation`


class OracleError(Exception):
    """The oracle is wrong, not the kernel: a NaN from mp, a class of inputs that nothing covers."""


@dataclass(frozen=True)
class Row:
    """A special value: where `when(n, **inputs)` holds, the result is `gives`.

    `when` may use predicates on the exact inputs only. `gives` is one of OUTCOMES or an exact
    rational. `source` cites the rule.
    """

    when: Callable[..., Any]
    gives: str | Fraction
    source: str

    def __post_init__(self) -> None:
        if isinstance(self.gives, str) and self.gives not in OUTCOMES:
            raise ValueError(f"special row gives {self.gives!r}; expected a Fraction or one of {OUTCOMES}")


@dataclass(frozen=True)
class Saturation:
    """Where `when(n, **inputs)` holds, the result is not `at` but within NEARER of it, on the side of 0. Double-double
    is told so, since it has no number nearer; multiprecision has, and needs no telling. `source` gives the reason."""

    when: Callable[..., Any]
    at: float
    source: str


@dataclass(frozen=True)
class Formula:
    """A named sequence of rounded operations, evaluated in `verify.numbers.ieee`.

    `scalars` names the parameters that must be Python scalars for the formula to apply
    (None: any). `applies(scalars)` narrows it further. Scalars reach `evaluate` as Python
    floats: arithmetic between them is the double arithmetic that a framework does on the host;
    meeting a tensor rounds them to the compute format. `admissible`: it is an association, a fused form or a wider
    accumulator of the reference spelling, so that where an intermediate of that overflows an implementation may have
    its bits. `wrong`: it is not the function at all, but what a known defect computes.
    """

    text: str
    evaluate: Callable[..., Any]
    scalars: frozenset[str] | None = None
    applies: Callable[[dict[str, float]], bool] = lambda scalars: True
    admissible: bool = False
    wrong: bool = False

    def suits(self, scalars: dict[str, float]) -> bool:
        return (self.scalars is None or self.scalars == frozenset(scalars)) and self.applies(scalars)


def formula(
    text: str,
    *,
    scalars: tuple[str, ...] | None = None,
    applies: Callable[[dict[str, float]], bool] = lambda scalars: True,
    admissible: bool = False,
    wrong: bool = False,
) -> Callable[[Callable[..., Any]], Formula]:
    """Name a function of (n, **inputs) as a formula; `text` is what reports print."""

    def wrap(evaluate: Callable[..., Any]) -> Formula:
        names = None if scalars is None else frozenset(scalars)
        return Formula(text, evaluate, names, applies, admissible, wrong)

    return wrap


def single(x: float) -> float:
    """The float32 nearest to a number of the host."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


_HOST = re.compile(r"\b(storage|single|double)\((1[-/])?(\w+)\)")


def expression(text: str) -> Callable[..., Any]:
    """What a text says, as a function of a number system and of how to look up what it names: + - * /, fma, sqrt and
    storage(.), which is rounding to the tensors' dtype. What it says twice is one value: errors of it are the same."""
    code = compile(ast.fix_missing_locations(_Once(text).tree), text, "eval")

    def evaluate(n: Any, look_up: Callable[[str], Any]) -> Any:
        known = {
            "n": n, "fma": n.fma, "sqrt": n.sqrt, "storage": lambda x: n.cast(x, n.storage), "double": n.scalar,
            "single": lambda x: n.scalar(single(x)),
        }  # fmt: skip
        named = {name: look_up(name) for name in code.co_names if name not in known and not name.startswith("_")}
        return eval(code, {"__builtins__": {}}, known | named)

    return evaluate


class _Once(ast.NodeTransformer):
    """An expression in which each part that is there more than once is computed where it is met first."""

    def __init__(self, text: str) -> None:
        tree = ast.parse(text, mode="eval")
        self.times = Counter(ast.dump(node) for node in ast.walk(tree) if isinstance(node, (ast.BinOp, ast.Call)))
        self.names: dict[str, str] = {}
        self.tree = self.visit(tree)

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, (ast.BinOp, ast.Call)):
            return self.generic_visit(node)
        key = ast.dump(node)
        if key in self.names:
            return ast.Name(self.names[key], ast.Load())
        if self.times[key] < 2:
            return self.generic_visit(node)
        self.names[key] = name = f"_{len(self.names)}"
        value: Any = self.generic_visit(node)
        return ast.NamedExpr(ast.Name(name, ast.Store()), value)


def written(text: str, *, when: Callable[..., Any] | None = None, **options: Any) -> Formula:
    """A formula whose text is its code, see `expression`. A scalar is rounded to the compute dtype first, but in
    storage(.), where it is rounded once, in double(.), arithmetic of the host, and in single(.), which is that rounded
    to float32. when: of a text 'condition: one; else: other' the predicate that the condition stands for. options: as
    of `formula`."""
    sides = [text] if when is None else text.partition(": ")[2].split("; else: ")
    runs = [expression(_HOST.sub(r"\1(\2host_\3)", side)) for side in sides]

    def evaluate(n: Any, **inputs: Any) -> Any:
        def look_up(name: str) -> Any:
            value = inputs.get(name.removeprefix("host_"))
            if value is None:
                known = ", ".join(("fma", "sqrt", "storage", "single", "double", *inputs))
                raise OracleError(f"formula {text!r} names {name}; expected one of {known}")
            return n.scalar(value) if name in inputs and isinstance(value, int | float) else value  # 1 / 0 too

        found = [run(n, look_up) for run in runs]
        return found[0] if when is None else n.where(when(n, **inputs), *found)

    return formula(text, **options)(evaluate)


@dataclass(frozen=True)
class Oracle:
    """A real function with everything needed to judge an implementation of it.

    function(n, **inputs)       the real number
    scale(n, **inputs)          what scaled_ulp is measured against (None: |function|)
    intermediates(n, **inputs)  values that a computation passes through; an element where one
                                leaves the normal range is counted as `range`
    underflow(n, **inputs)      A, where underflows of the intermediates move the result by at most A
                                times the smallest subnormal number of the dtype, in which some
                                lowerings keep them (None: by any amount)
    rows                        special values, first match wins
    saturations                 where it is all but a number that it never reaches
    arithmetic                  True: + - * / only, so that infinities, NaNs and the sign of an
                                exact zero follow IEEE 754-2019 6.1-6.3 on `function`
    formulas                    candidates for identification
    """

    function: Callable[..., Any]
    scale: Callable[..., Any] | None = None
    intermediates: Callable[..., tuple[Any, ...]] | None = None
    underflow: Callable[..., Any] | None = None
    rows: tuple[Row, ...] = ()
    saturations: tuple[Saturation, ...] = ()
    arithmetic: bool = False
    formulas: tuple[Formula, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def doc(self) -> str:
        return importlib.import_module(self.function.__module__).__doc__ or ""
