"""The real trajectory of an optimizer: float64 for all elements, double-double for some, multiprecision for one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from mpmath.libmp import from_rational, to_str

from verify.facts.truth import Truth
from verify.families.composite import Problem
from verify.kernels._adam import PLACES, states, steps_of, switches
from verify.kernels._adam_numbers import HOST, Balls, BallsDD, Certified, Multiprecision, radius, underflow
from verify.numbers.decide import Enclosure
from verify.oracles._adam import State, corrections, signed

Tensor = torch.Tensor
#: Elements that go through all steps together, so that their state stays in a core's cache.
BLOCK = 1 << 14
#: Up to this many elements, double-double takes all at once: a step takes as long for one as for all.
WHOLE = 1 << 12
#: Of more elements, up to this many are cheaper in multiprecision than in double-double.
FEW = 32
#: Working precisions tried in turn; 1,000 steps lose about 12 bits. The first decides nearly all; what has come to rest
#: may still be 0.7^1000, or 2^-515, away from a number of the format.
PRECISIONS = (128, 1024, 4096)
#: Bits of the constants of one step, for float64 and double-double.
CONSTANT_BITS = 192
REMEMBERED = 4096
#: Steps up to which an average in the range of bfloat16 has at least half of its truth.
SURE = 64
#: What a square has left the range of float32 and bfloat16 from; numbers whose squares stay inside.
BEYOND, INSIDE = 2.0**128, 2.0**60
#: Covers the roundings of a step of sums of absolute terms.
LOWER = 1 - 2.0**-45


def constants(problem: Problem, n: Any) -> Iterator[SimpleNamespace]:
    """The values k of each step (see `verify.oracles._adam`) in the number system n."""
    s = {name: Fraction(value) for name, value in problem.scalars.items()}
    fixed = switches(problem)
    fixed.beta1, fixed.rest1 = n.const(s["beta1"]), n.const(1 - s["beta1"])
    fixed.beta2, fixed.rest2 = n.const(s["beta2"]), n.const(1 - s["beta2"])
    if "lr" not in s:
        for _ in steps_of(problem):
            yield fixed
        return
    fixed.eps, fixed.weight_decay = n.const(s["eps"]), n.const(s["weight_decay"])
    fixed.decay = n.const(1 - s["lr"] * s["weight_decay"])
    given, times = (s["lr"], s["beta1"], s["beta2"]), tuple(steps_of(problem))
    if isinstance(n, Multiprecision):
        pairs = (corrections(n, *given, t) for t in times)
    else:
        pairs = ((_carried(n, rate), _carried(n, inverse)) for rate, inverse in _corrections(*given, times))
    for rate, inverse in pairs:
        yield SimpleNamespace(**vars(fixed), rate=rate, inverse=inverse)


@lru_cache(16)
def _corrections(lr: Fraction, beta1: Fraction, beta2: Fraction, times: tuple[int, ...]) -> list[tuple[Truth, Truth]]:
    """Of each step (see `verify.oracles._adam`), to CONSTANT_BITS."""
    n = Multiprecision(CONSTANT_BITS)
    pairs = (corrections(n, lr, beta1, beta2, t) for t in times)
    return [(rate.truth(), inverse.truth()) for rate, inverse in pairs]


def _carried(n: Any, truth: Truth) -> Any:
    """A constant of multiprecision in another number system."""
    return n.between(truth.lo, truth.hi) if truth.kind == "real" and truth.lo != truth.hi else n.const(truth.lo)


class _Sums:
    """Sums of absolute terms of the parts of a state, by place, from below, where `Balls` follow the state."""

    def __init__(self, *state: Any) -> None:
        self.sums: list[Any] = [None if value is None else value.mid.abs() for value in state]

    def __getitem__(self, place: int) -> Tensor:
        found: Tensor = self.sums[place]
        return found * LOWER

    def after(self, k: SimpleNamespace, g: Tensor, state: State) -> _Sums:
        """Of the state after a step with the gradient g under L2 decay."""
        p, m, _, _ = self.sums
        _, _, v, x = state
        top = v if x is None else x
        size = g.abs() + abs(k.weight_decay.mid) * p
        m = (abs(k.beta1.mid) * m + abs(k.rest1.mid) * size) * LOWER
        over = (k.inverse.mid * (top.mid.abs() + radius(top))).sqrt() + k.eps.mid
        p = (p + k.rate.mid * m / over) * LOWER
        after = _Sums()
        after.sums = [p, m, v.mid - radius(v), None if x is None else x.mid - radius(x)]
        return after


class Trajectory:
    """The truth of every output of a problem, see `verify.families.composite.Source`.

    Outputs are exp_avg, exp_avg_sq, max_exp_avg_sq, param and master, the last two being one real number. Infinities
    and NaNs follow the documented recurrences in extended reals (IEEE 754-2019, 6.1 and 6.2).
    """

    def __init__(self, problem: Problem, device: Any, bounds: Mapping[str, float]) -> None:
        self.problem, self.device = problem, device
        self.step: Callable[[Any, Any, State, Any], State] = problem.extra["step"]
        self.root = bounds.get("sqrt", math.inf)
        self.tiny = underflow(problem.parameters["steps"], problem.scalars)
        self._constants: dict[int, tuple[Multiprecision, list[SimpleNamespace]]] = {}
        self._found: dict[tuple[int, int], tuple[Any, ...]] = {}

    # ------------------------------------------------------------ tensors

    def certified(self, part: slice) -> Iterator[tuple[SimpleNamespace, Tensor, State]]:
        """Constants, gradient (float64) and next state of each step, for some elements, in float64."""
        n = self._system
        state = self._start(n, part, positive=isinstance(n, Certified))
        for k, row in zip(self._steps, self.problem.tensors["grads"], strict=True):
            g = n.input(row[part])
            state = self.step(n, k, state, g)
            yield k, g.mid, state

    @cached_property
    def _system(self) -> Certified | Balls:
        if switches(self.problem).couples:
            return Balls(self.device, self.root)
        return Certified(self.device, self.root, self.tiny)

    @cached_property
    def _steps(self) -> list[SimpleNamespace]:
        return list(constants(self.problem, self._system))

    def _start(self, n: Any, part: Any, positive: bool = False) -> State:
        p, m, v, x = states(self.problem)
        more = {"positive": True} if positive else {}
        return (
            None if p is None else n.input(p[part]),
            n.input(m[part]),
            n.input(v[part], **more),
            None if x is None else n.input(x[part], **more),
        )

    @cached_property
    def ends(self) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        """Midpoint, radius and scale after the last step, by place in a state."""
        count = self.problem.tensors["exp_avg"].numel()
        block = BLOCK if torch.device(self.device) == HOST else count
        parts = [slice(start, min(start + block, count)) for start in range(0, count, block)]
        self._steps  # noqa: B018 (made once, before the threads)
        if len(parts) == 1:
            found = [self._end(parts[0])]
        else:
            with ThreadPoolExecutor(torch.get_num_threads()) as pool:
                found = list(pool.map(self._end, parts))
        return {
            place: tuple(torch.cat([one[place][column] for one in found]) for column in range(3))  # type: ignore[misc]
            for place in found[0]
        }

    def _end(self, part: slice) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        state: State = (None,) * 4
        sums: _Sums | None = None if isinstance(self._system, Certified) else _Sums(*self._start(self._system, part))
        for k, g, after in self.certified(part):
            state = after
            if sums is not None:
                sums = sums.after(k, g, after)
        certain = self._certain(part)
        ends = {}
        for place, value in enumerate(state):
            if value is not None:
                rad = torch.where(value.mid.isfinite(), radius(value), torch.where(certain, 0.0, torch.nan))
                scale = value.scale() if sums is None else sums[place]
                ends[place] = (value.mid, rad, scale.nan_to_num(nan=0.0, posinf=2.0**1000))
        return ends

    def left(self, output: str) -> tuple[Tensor, Tensor] | None:
        """Where a parameter is divided by the root of what is infinite, or leaves float32's range on the way, and where
        L2 decay brings it into the averages; None where nothing can."""
        of_parameter = PLACES[output] == 0
        if self._inside or not (of_parameter or switches(self.problem).couples):
            return None
        none, before, after = self._over
        return none, after if of_parameter else before

    @cached_property
    def _inside(self) -> bool:
        """Whether no square can leave the range."""
        p, m, v, x = states(self.problem)
        small, squares = (p, m, self.problem.tensors["grads"]), (v, x)
        sizes = ((small, INSIDE), (squares, INSIDE**2))
        return all(bool((t.abs() < most).all()) for some, most in sizes for t in some if t is not None)

    @cached_property
    def _over(self) -> tuple[Tensor, Tensor, Tensor]:
        """False everywhere, and where squares and averages of them have left the range before and after the last
        step."""
        n = self._system
        _, _, v, _ = self._start(n, slice(None))
        none = torch.zeros(v.mid.shape, dtype=torch.bool, device=self.device)
        last, over = none, none
        for k, _, (_, _, after, x) in self.certified(slice(None)):
            square, last = (after.mid - k.beta2.mid * v.mid) / k.rest2.mid, over
            for t in (square, after.mid, *(() if x is None else (x.mid,))):
                over = over | ~(t < BEYOND)
            v = after
        return none, last, over

    def infinite(self, output: str) -> Tensor:
        """Where no algorithm has a finite number: what an infinity meets is one or a NaN, and so is an average of
        squares far beyond the range after few steps, since squares do not cancel."""
        mid, _, _ = self.ends[PLACES[output]]
        found: Tensor = mid.isinf()
        if PLACES[output] in (2, 3) and self.problem.parameters["steps"] <= SURE:
            found = mid >= 16 * BEYOND
        return found

    def _certain(self, part: slice) -> Tensor:
        """Elements whose infinities and NaNs are those of the extended reals: nothing can have overflowed."""
        if not self.tiny:
            return torch.tensor(True, device=self.device)
        given = [t[part] for t in states(self.problem) if t is not None]
        finite = torch.stack([t.isfinite() for t in given]).all(0)
        for row in self.problem.tensors["grads"]:
            finite = finite & row[part].isfinite()
        return ~finite

    def enclose(
        self, output: str, index: Tensor | None = None, double: bool = False, scaled: bool = True
    ) -> tuple[Enclosure, Tensor | None]:
        """Enclosure and scale, see `verify.families.composite.Source`."""
        place = PLACES[output]
        mid, rad, scale = (t if index is None else t[index] for t in self.ends[place])
        if not double:
            return Enclosure(mid[None], rad[None], either=self._either(output, mid, rad)), scale[None]
        assert index is not None
        if self.problem.tensors["exp_avg"].numel() <= WHOLE:
            finer = tuple(t[index] for t in self.finer[place])
        elif len(index) <= FEW:
            return Enclosure(mid[None], torch.full_like(mid, torch.nan)[None], torch.zeros_like(mid)[None]), scale[None]
        else:
            finer = self._finer(index)[place]
        special = ~mid.isfinite() & (rad == 0)
        zero = torch.zeros_like(mid)
        mid, rad, tail = (torch.where(special, *one)[None] for one in zip((mid, zero, zero), finer, strict=True))
        return Enclosure(mid, rad, tail, either=self._either(output, mid[0], rad[0])), scale[None]

    def _forgets(self, output: str) -> bool:
        """Whether the zeros of an output may have either sign: nothing says whether what beta1 = 0 leaves of an average
        is 0 m or m - m."""
        return PLACES[output] == 1 and not self.problem.scalars["beta1"]

    def _either(self, output: str, mid: Tensor, rad: Tensor) -> Tensor | None:
        return ((mid == 0) & (rad == 0))[None] if self._forgets(output) else None

    @cached_property
    def finer(self) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        """Midpoint, radius and tail of all elements after the last step in double-double, by place in a state."""
        return self._finer(slice(None))

    def _finer(self, part: Any) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        n = BallsDD(self.device, {})
        state = self._start(n, part)
        for k, row in zip(constants(self.problem, n), self.problem.tensors["grads"], strict=True):
            state = self.step(n, k, state, n.input(row[part]))
        found = {}
        for place, ball in enumerate(state):
            if ball is not None:
                rest = (
                    torch.as_tensor(t, dtype=torch.float64, device=ball.mid.device) for t in (ball.radius, ball.tail)
                )
                found[place] = (ball.mid, *(t.expand_as(ball.mid) for t in rest))
        return found

    # ------------------------------------------------------------ single elements

    def _multiprecision(self, precision: int) -> tuple[Multiprecision, list[SimpleNamespace]]:
        if precision not in self._constants:
            n = Multiprecision(precision)
            self._constants[precision] = n, list(constants(self.problem, n))
        return self._constants[precision]

    def walk(self, index: int, precision: int) -> Iterator[tuple[Multiprecision, SimpleNamespace, State, Any, State]]:
        """System, constants, state, gradient and next state of each step of one element."""
        n, steps = self._multiprecision(precision)
        tensors = states(self.problem)
        state: State = tuple(None if t is None else n.const(float(t[index])) for t in tensors)  # type: ignore[assignment]
        for k, number in zip(steps, self.problem.tensors["grads"][:, index].tolist(), strict=True):
            g = n.const(number)
            after = self.step(n, k, state, g)
            yield n, k, state, g, after
            state = after

    def exact(self, output: str, index: int) -> Iterator[Truth]:
        """Truths of one element in multiprecision, each narrower than the one before."""
        for precision in PRECISIONS:
            key = index, precision
            if key not in self._found:
                if len(self._found) >= REMEMBERED:
                    self._found.clear()
                *_, last = self.walk(index, precision)
                self._found[key] = last[-1]
            found: Truth = self._found[key][PLACES[output]].truth()
            if found.kind in ("+0", "-0") and self._forgets(output):
                found = Truth("either-zero")
            yield found
            if found.exact:
                return

    def scale(self, output: str, index: int) -> Truth | None:
        """The sum of absolute terms: the same float64 lower bound as in `enclose`."""
        low = float(self.ends[PLACES[output]][2][index])
        return Truth.real(Fraction(low), Fraction(low)) if 0 < low < 2.0**1000 else None

    def explain(self, output: str, index: int) -> list[tuple[str, str]]:
        """The last step of one element: what it adds up, and from what."""
        *_, (n, k, before, g, after) = self.walk(index, PRECISIONS[0])
        p, m, v, x = before
        t = self.problem.parameters["start"] + self.problem.parameters["steps"]
        g = signed(k, g)
        if k.couples:
            g = g + k.weight_decay * p
        lines = [
            (f"g: gradient of step {t}", g),
            (f"exp_avg after step {t - 1}", m),
            ("beta1 exp_avg", k.beta1 * m),
            ("(1 - beta1) g", k.rest1 * g),
            ("exp_avg", after[1]),
            (f"exp_avg_sq after step {t - 1}", v),
            ("beta2 exp_avg_sq", k.beta2 * v),
            ("(1 - beta2) g^2", k.rest2 * (g * g)),
            ("exp_avg_sq", after[2]),
        ]
        if x is not None:
            lines += [("max_exp_avg_sq", after[3])]
        if p is not None:
            root = n.sqrt(k.inverse * (after[2] if x is None else after[3]))
            lines += [
                (f"lr / (1 - beta1^{t})", k.rate),
                (f"sqrt(v / (1 - beta2^{t}))", root),
                ("denominator, with eps", root + k.eps),
                (f"param after step {t - 1}", p),
                *([("(1 - lr weight_decay) param", k.decay * p)] if k.decays else []),
                ("update", after[0] - (k.decay * p if k.decays else p)),
                ("param", after[0]),
            ]
        return [(name, _digits(value)) for name, value in lines]


def _digits(value: Any) -> str:
    """A value of multiprecision to 20 digits, or its kind."""
    found: Truth = value.truth()
    if found.kind != "real":
        return found.kind
    centre = (found.lo + found.hi) / 2
    text: str = to_str(from_rational(centre.numerator, centre.denominator, 120, "n"), 20)
    return text
