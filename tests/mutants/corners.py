"""Kernels that are wrong only in a corner of their inputs: predicates on elements, in float64.

A mutant is caught by a domain that holds an element where its predicate is true.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from verify import draws
from verify.domains import CHUNK, domain_of
from verify.formats import Format
from verify.kernel import load

Values = dict[str, torch.Tensor]


def exact(kernel: str, values: Values) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the sum of its absolute terms, in float64."""
    if kernel in ("add", "sub"):
        term = values["alpha"] * values["b"] * (1 if kernel == "add" else -1)
    elif kernel == "addcmul":
        term = values["value"] * values["b"] * values["c"]
    elif kernel == "addcdiv":
        term = values["value"] * values["b"] / values["c"]
    elif kernel == "lerp":
        term = values["w"] * (values["b"] - values["a"])
    else:
        result = (
            values["a"] / values["b"]
            if kernel == "div"
            else torch.pow(values["x"], values["y"])
            if kernel == "pow"
            else getattr(torch, kernel)(values["x"])
        )
        return result, result.abs()
    return values["a"] + term, values["a"].abs() + term.abs()


def elements(kernel: str, fmt: Format, case: dict[str, float]) -> Values:
    """The default domain's first chunk as float64 values, scalars too."""
    domain = domain_of(load(kernel), fmt, case, "default")
    columns = domain.bits(0, min(domain.size, CHUNK), "cpu")
    values = {name: draws.to_reals(fmt, bits) for name, bits in zip(domain.names, columns, strict=True)}
    return values | {name: torch.full_like(next(iter(values.values())), scalar) for name, scalar in case.items()}


def subnormal(fmt: Format, t: torch.Tensor) -> torch.Tensor:
    return (t.abs() < float(fmt.smallest_normal)) & (t != 0)


def last_binades(fmt: Format, t: torch.Tensor, count: int) -> torch.Tensor:
    return (t.abs() >= 2.0 ** (fmt.emax + 1 - count)) & (t.abs() <= float(fmt.max_finite))


def overflow(fmt: Format, t: torch.Tensor) -> torch.Tensor:
    return (t.abs() > float(fmt.max_finite)) & (t.abs() < 2.0 ** (fmt.emax + 2))


def tie(fmt: Format, t: torch.Tensor) -> torch.Tensor:
    lost = 52 - fmt.mantissa_bits
    midpoint = (t.contiguous().view(torch.int64) & ((1 << lost) - 1)) == 1 << (lost - 1)
    return midpoint & (t.abs() >= float(fmt.smallest_normal)) & (t.abs() <= float(fmt.max_finite))


def ordinary(t: torch.Tensor) -> torch.Tensor:
    """Neither special nor simple: finite, and with more than four significant bits."""
    return t.isfinite() & ((t.contiguous().view(torch.int64) & ((1 << 48) - 1)) != 0)


def below_power_of_two(fmt: Format, x: torch.Tensor) -> torch.Tensor:
    """The value just below a power of two."""
    lost = 52 - fmt.mantissa_bits
    mask = (1 << 52) - 1
    return ((x.contiguous().view(torch.int64) & mask) == mask >> lost << lost) & x.isfinite()


def negative_zero(x: torch.Tensor) -> torch.Tensor:
    return (x == 0) & x.signbit()


Mutant = Callable[[Format, Values, torch.Tensor, torch.Tensor], torch.Tensor]
SUMS = ("add", "sub", "addcmul", "addcdiv", "lerp")


def beside(fmt: Format, x: torch.Tensor, point: float, bits: int = 4) -> torch.Tensor:
    """Within 2^bits units of roundoff of `point`, and not equal to it."""
    return ((x - point).abs() < 2.0 ** (bits - fmt.precision)) & (x != point)


def large_odd_power(v: Values, t: torch.Tensor) -> torch.Tensor:
    odd = (v["y"] % 2).abs() == 1
    return (v["x"] < 0) & odd & (v["y"].abs() > 40) & t.isfinite() & (t != 0)


#: wrong(format, values, exact result t, sum of absolute terms s)
ANY: dict[str, Mutant] = {
    "subnormal result": lambda f, v, t, s: subnormal(f, t),
    "result in the last binade": lambda f, v, t, s: last_binades(f, t, 1),
    "result just beyond overflow": lambda f, v, t, s: overflow(f, t),
}
OF_SUMS: dict[str, Mutant] = {
    "ties": lambda f, v, t, s: tie(f, t),
    "cancellation of p - 3 bits": lambda f, v, t, s: (t.abs() < s * 2.0 ** (3 - f.precision)) & (t != 0),
    "cancellation of p/2 bits": lambda f, v, t, s: (t.abs() < s * 2.0 ** -(f.precision // 2)) & (t != 0),
}
OF_ADD: dict[str, Mutant] = {
    "negative zero": lambda f, v, t, s: negative_zero(v["b"]) & ordinary(v["a"]),
    "opposite operands": lambda f, v, t, s: (v["a"] == -v["b"]) & (v["a"] != 0),
}
OF_ADDCMUL: dict[str, Mutant] = {
    "negative zero": lambda f, v, t, s: negative_zero(v["c"]) & ordinary(v["a"]) & ordinary(v["b"]),
    "below a power of two": lambda f, v, t, s: below_power_of_two(f, v["b"]) & ordinary(v["a"]) & ordinary(v["c"]),
}
OF_DIV: dict[str, Mutant] = {
    "negative zero": lambda f, v, t, s: negative_zero(v["a"]) & ordinary(v["b"]),
    "below a power of two": lambda f, v, t, s: below_power_of_two(f, v["b"]) & ordinary(v["a"]),
}
OF_LERP: dict[str, Mutant] = {
    "w beside 1/2": lambda f, v, t, s: beside(f, v["w"], 0.5),
    "w beside 1": lambda f, v, t, s: beside(f, v["w"], 1.0),
    "w = 1/2": lambda f, v, t, s: (v["w"] == 0.5) & ordinary(v["a"]) & ordinary(v["b"]),
    "w beyond 1": lambda f, v, t, s: (v["w"] > 1) & t.isfinite() & ordinary(v["a"]),
    "a beside b": lambda f, v, t, s: beside(f, v["a"] / v["b"], 1.0, 3),
}
OF_POW: dict[str, Mutant] = {
    "result in the last two binades": lambda f, v, t, s: last_binades(f, t, 2),
    "base beside 1, result far from it": lambda f, v, t, s: beside(f, v["x"], 1.0, 6) & t.isfinite() & (t > 4),
    "negative base to a large odd power": lambda f, v, t, s: large_odd_power(v, t),
    "ties": lambda f, v, t, s: tie(f, t) & (v["y"] != 1),
}
MUTANTS: list[tuple[str, dict[str, float], dict[str, Mutant]]] = [
    ("add", {"alpha": 1.0}, ANY | OF_SUMS | OF_ADD),
    ("add", {"alpha": 0.3}, ANY | OF_SUMS),
    ("sub", {"alpha": 1.0}, ANY | OF_SUMS),
    ("addcmul", {"value": 1.0}, ANY | OF_SUMS | OF_ADDCMUL),
    ("addcmul", {"value": 0.3}, ANY | OF_SUMS),
    ("addcdiv", {"value": 1.0}, ANY | OF_SUMS),
    ("addcdiv", {"value": 0.3}, ANY | OF_SUMS),
    ("lerp", {}, ANY | OF_SUMS | OF_LERP),
    ("lerp", {"w": 0.9}, OF_SUMS),
    ("div", {}, ANY | OF_DIV),
    ("pow", {}, ANY | OF_POW),
    *(("pow", {"y": y}, ANY) for y in (3.7, -2.0, 17.0)),
    *(("pow", {"x": x}, ANY) for x in (2.0, 0.9)),
]
UNARY_MUTANTS: dict[str, dict[str, Mutant]] = {
    "exp": ANY | {"result beside 1": lambda f, v, t, s: beside(f, t, 1.0)},
    "log": {
        "x beside 1": lambda f, v, t, s: beside(f, v["x"], 1.0),
        "subnormal x": lambda f, v, t, s: subnormal(f, v["x"]) & (v["x"] > 0),
    },
    "tanh": {"result beside 1": lambda f, v, t, s: beside(f, t, 1.0), "tiny x": lambda f, v, t, s: subnormal(f, t)},
    "sigmoid": {
        "subnormal result": lambda f, v, t, s: subnormal(f, t),
        "exp(-x) overflows": lambda f, v, t, s: (v["x"] < -0.6931472 * (f.emax + 1)) & (t > 0),
    },
    "sqrt": {"exact root": lambda f, v, t, s: (t * t == v["x"]) & ordinary(v["x"])},
    "rsqrt": {"exact result": lambda f, v, t, s: t * t * v["x"] == 1},
    "reciprocal": ANY | {"negative zero": lambda f, v, t, s: negative_zero(v["x"])},
}
