"""Numbers that a user's elementwise lowering is called with beside those of the domain: such as code treats apart."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from verify.facts.kernel import Scalars
from verify.inputs.draws import spread
from verify.lower.lowering import Target
from verify.walk.arrangements import LANES

Tensor = torch.Tensor
#: Numbers that people write, and code treats apart, the most usual first: of several inputs every combination.
ROUND = (
    0, 1, 2, 3, 0.5, 10, 4, 1.5, 5, 0.25, 7, 100, 0.1, 6, 8, 9, math.pi, 1000, 1 / 3, math.e, 2.5, 0.75, 255, 256, 17,
    12, 16, 32, 64, 0.01, 127, 1024,
)  # fmt: skip
#: Of one input: also small multiples of what is round, and what lies beside powers of two.
ROUNDER = (
    *range(513), *(k / 8 for k in range(128)), *(k / 10 for k in range(128)), *(k * math.pi / 4 for k in range(1, 65)),
    *(k * math.log(2) / 2 for k in range(1, 65)), *(2**k + d for k in range(9, 25) for d in (-1, 0, 1)),
    *(2.0**-k for k in range(1, 25)), *(10.0**k for k in range(-9, 10)), *(k / 3 for k in range(1, 30)),
)  # fmt: skip
PAIRS = 1 << 12  # combinations of them at most
#: With the largest and the smallest number of the dtype: every combination of them meets every Python scalar.
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0)
#: That a Python scalar may be too, beside those of the cases: integers, and numbers.
SCALARS = (
    5, 0, 1, -1, 2, -2, 3, -3, 4, 8, 2**20,
    0.0, -0.0, -1.0, 2.0, 0.5, 1.0, -2.0, 3.0, -3.0, 4.0, -4.0, 8.0, -3.5, 0.25, 1.5, 1 / 3, 100.0, -0.001, 2.0**20,
    2.0**-30, 0.75, 0.1, 10.0, -1e35, 1e-35, 6, -6.0, 2.5, -1.5, 1e-39, 3 * 2**33 + 1, -(2**40), 2.0**-130, 2.0**127,
    7, 9, 11, 12, 13, 15, 64.0, 1000.0, 123456789, 2147483649.0, 16.0, math.e, 1.75, 20.0, 27,
    2 / 3, 3.5,
    1e-5, -3e-5, 2.0**-20,
    1 + 2.0**-20, 2 + 2.0**-19, 0.001, 0.00100001, -0.0012, 1e-4, 1 + 2.0**-7, 1 + 2.0**-9,  # near to others
    True, 2**60 + 2**10,
)  # fmt: skip
#: Of float64 also these.
SCALARS_64 = (1e200, -1e-60, 0.1 + 1e-9, 1 + 1e-10, 2 + 1e-9, 0.5 + 2.0**-34, -1e300)
WIDEST = 12  # binades of magnitudes of further ones, which are drawn
#: That all of an input may hold, and one without dimensions.
EVERYWHERE = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -2.0, 6.0, math.inf, math.nan)
ALONE = 24  # elements that a function of one input gets one by one, without dimensions
RANGED = 4112  # elements of an input whose numbers all lie in one range, see `_ranges`
#: Of what u and v give, uniform in [0, 1), in a dtype of those limits.
RANGES: Mapping[str, Callable[[Tensor, Tensor, torch.finfo], Tensor]] = {
    "integers": lambda u, v, info: (65 * u).floor(),
    "integers of both signs": lambda u, v, info: _sign(v) * (200 * u).floor(),
    "zeros and ones": lambda u, v, info: (u < 0.5).double(),
    "zeros and -inf": lambda u, v, info: torch.where(u < 0.5, 0.0, -math.inf),
    "numbers and infinities": lambda u, v, info: torch.where(
        u < 0.01, _sign(v) * math.inf, _sign(v) * _between(0.125, 8.0, u)
    ),
    "numbers from 1 to 2": lambda u, v, info: 1 + u,
    "numbers up to 0": lambda u, v, info: torch.where(u < 0.1, 0.0, -_between(0.125, 8.0, v)),
    "numbers near the largest": lambda u, v, info: _sign(v) * _between(info.max * 2.0**-20, info.max, u),
    "numbers near the smallest": lambda u, v, info: _sign(v) * _between(info.tiny * info.eps, info.tiny * 2.0**20, u),
    "subnormal numbers": lambda u, v, info: _sign(v) * _between(info.tiny * info.eps, info.tiny * (1 - info.eps), u),
    "moderate numbers": lambda u, v, info: _sign(v) * _between(0.125, 8.0, u),
    "negative numbers": lambda u, v, info: -_between(0.125, 8.0, u),
    "large numbers": lambda u, v, info: _sign(v) * _between(1.0, info.max, u),
    "numbers below 0.3": lambda u, v, info: _sign(v) * torch.where(u < 0.5, 0.5 * u, _between(info.tiny, 0.25, u)),
    "numbers from 0 to 1": lambda u, v, info: torch.where(v < 0.5, u, _between(info.tiny, 1.0, u)),
    "numbers from 0 to a half": lambda u, v, info: 0.49 * u,
    "powers of two": lambda u, v, info: (16 * u - 8).floor().exp2(),
    "numbers of a narrower dtype": lambda u, v, info: (_sign(v) * _between(2.0**-12, 2.0**12, u)).to(
        torch.float32 if info.bits == 64 else torch.bfloat16
    ),
}
MIXED = 8  # calls of several inputs with a range for each, drawn from the seed


def in_words(value: float) -> str:
    """A Python scalar in the name of a call."""
    if isinstance(value, bool):
        return repr(value)
    return f"int({value})" if isinstance(value, int) else repr(value).removesuffix(".0")


def _sign(v: Tensor) -> Tensor:
    return torch.where(v < 0.5, -1.0, 1.0)


def _between(least: float, most: float, u: Tensor) -> Tensor:
    """From one to the other, as many in each binade."""
    return (math.log2(least) + u * (math.log2(most) - math.log2(least))).exp2()


def everywhere(target: Target, inputs: Sequence[Tensor]) -> Iterator[tuple[str, tuple[list[Tensor], list[Tensor]]]]:
    """Calls in which an input holds one number alone, or has no dimensions, by name: the inputs with all elements, and
    as they are given."""
    for place, name in enumerate(target.kernel.tensors(target.scalars)):
        for value in EVERYWHERE:
            same = [torch.full_like(t, value) if k == place else t for k, t in enumerate(inputs)]
            yield f"{value:g} everywhere as {name}", (same, same)
            if len(inputs) > 1:
                yield (
                    f"{value:g} as {name} of 0 dimensions",
                    (same, [*same[:place], same[place][0], *same[place + 1 :]]),
                )
    # a tensor of one number, of which code may make a Python number
    for place in spread(len(inputs[0]), ALONE) if len(inputs) == 1 else ():
        (t,) = inputs
        yield f"element {place} of 0 dimensions", ([t[place : place + 1]], [t[place]])


def ranged(target: Target, inputs: Sequence[Tensor], seed: int) -> Iterator[tuple[str, list[Tensor]]]:
    """Calls in which all of an input, or of each, lies in one range, by name; or all inputs are equal or opposite. Code
    that looks at the whole of a tensor takes other paths there, with faults that show nowhere else."""
    names, draw = target.kernel.tensors(target.scalars), random.Random(seed)

    def of(kind: str) -> Tensor:
        generator = torch.Generator().manual_seed(draw.getrandbits(63))
        u, v = torch.rand(2, RANGED, dtype=torch.float64, generator=generator)
        return RANGES[kind](u, v, torch.finfo(inputs[0].dtype)).to(inputs[0])

    usual = [torch.cat([t, of("moderate numbers")]) for t in inputs]
    usual = [t[len(t) % LANES :][-2 * RANGED :] for t in usual]  # whole vectors, which may be told apart
    for kind in RANGES:
        for place, name in enumerate(names):
            each = (of(kind).repeat(2)[: len(t)] if k == place else t for k, t in enumerate(usual))
            yield f"{kind} as {name}", list(each)
        if len(names) > 1:
            yield f"{kind} as all inputs", [of(kind) for _ in names]
    if len(names) > 1:
        for k in range(MIXED):
            yield f"ranges {k + 1}", [of(draw.choice([*RANGES])) for _ in names]
        equal = inputs[0][~inputs[0].isnan()]  # a NaN is not equal to itself
        yield "equal inputs", [equal] * len(names)
        yield "opposite inputs", [-equal if k % 2 else equal for k in range(len(names))]


def ranging(scalars: Scalars, seed: int) -> list[Scalars]:
    """For each scalar some that nobody has written down: whole numbers of each binade to 2^12, of either sign, as
    either kind of Python number; and others of three digits, of each binade from 2^-12 on."""
    draw, found = random.Random(f"{seed} {sorted(scalars)}"), list[Scalars]()
    for name in scalars:
        for exponent, sign in itertools.product(range(WIDEST), (1, -1)):
            found.append({name: sign * draw.choice((int, float))(draw.randrange(2**exponent, 2 ** (exponent + 1)))})
        for exponent in range(-WIDEST, WIDEST):
            found.append({name: draw.choice((1, -1)) * float(f"{2.0 ** (exponent + draw.random()):.3g}")})
    return found


def drawn_scalars(scalars: Scalars, seed: int) -> Scalars:
    """Others in place of all of them, which nobody has written down: between a half of each and all, of six bits, so
    that every format has them and no bound has to allow for their rounding."""
    draw = random.Random(seed)
    split = {name: math.frexp(value * draw.uniform(0.5, 0.98)) for name, value in scalars.items()}
    return {name: math.ldexp(round(m * 64) / 64, e) for name, (m, e) in split.items()}


def round_numbers(like: Tensor, arity: int) -> tuple[Tensor, ...]:
    """Numbers of either sign, or combinations of the first ones, see `_combined`."""
    numbers = ROUNDER if arity == 1 else ROUND[: math.floor(PAIRS ** (1 / arity) + 1e-9) // 2]
    most = torch.finfo(like.dtype).max
    return _combined([sign * x for x in numbers for sign in (1.0, -1.0) if x <= most], like, arity)


def special_numbers(like: Tensor, arity: int) -> tuple[Tensor, ...]:
    """All combinations, see `_combined`."""
    info = torch.finfo(like.dtype)
    return _combined([*SPECIAL, info.max, -info.smallest_normal * info.eps], like, arity)


def _combined(numbers: Sequence[float], like: Tensor, arity: int) -> tuple[Tensor, ...]:
    """Tensors of shape (n,), one an input, of the dtype and on the device of another."""
    each = torch.tensor(numbers, dtype=torch.float64).to(like.dtype).to(like.device)
    return tuple(t.reshape(-1) for t in torch.meshgrid(*[each] * arity, indexing="ij"))
