"""Which formula the bits of a product obey: candidates are made from parts, and looked for where they mismatch least.

A candidate is a unit, how k is cut and the pieces are added (`verify.numbers.units.Plan`), how float32 operands are
rounded first, and what follows the sum. From the plain chain of each unit the search changes one part at a time, on a
few rows and columns whose sums nearly cancel, so that every rounding shows, and goes on from whatever explains more of
them; it ends where all of them are explained, or nothing explains more. What it found is evaluated on all outputs, and
looked for again among those that it does not explain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import torch

from verify.composite import Problem
from verify.families.products import COLUMNS, ROWS, Shape, decoded
from verify.families.products_limits import architecture
from verify.families.products_truth import factors
from verify.formats import FORMATS
from verify.judge.chunk import differing
from verify.numbers.ieee import IeeeSystem, Rounded, round_to
from verify.numbers.units import SPLITS, Plan, Split, Unit, scalar, units
from verify.oracles.products import Factors

Tensor = torch.Tensor
#: Terms below which all formulas are alike.
FEWEST = 8
#: Terms of a block of Triton's kernels, of which the products of parts begin anew.
TILE = 64
#: Rows and columns of the sample.
SAMPLE = 12
#: Units from which the search starts.
STARTS = 2
#: Samples, each of what the one before did not tell.
ROUNDS = 3
#: Products up to which the host evaluates candidates.
HOST = 1 << 22
#: Products beyond which a candidate is not evaluated on all outputs.
MOST = 1 << 28
#: Lengths of pieces, and numbers of them.
EVERY, PANELS, PARTS = (
    (128, 32, 64, 256, 512, 1024),
    (384, 512, 256, 192, 320, 768, 1024),
    (2, 4, 8, 16, 3, 5, 6, 32, 64),
)


@dataclass(frozen=True)
class Candidate:
    """plan of the sums; operands: '' or the format that factors are rounded to; epilogue: what follows, see `_finish`;
    narrow: alpha and beta rounded to the dtype; weights: formats to which those of codes are rounded in turn."""

    plan: Plan
    operands: str = ""
    epilogue: str = "after"
    narrow: bool = False
    weights: tuple[str, ...] = ()

    def text(self, shape: Shape, simple: bool) -> str:
        told = f"operands rounded to {self.operands}, " if self.operands else ""
        told += f"weights rounded to {', then '.join(self.weights)}, " if self.weights else ""
        told += str(self.plan)
        if not simple:
            told += f"; {EPILOGUES[self.epilogue]}" + (", scalars in the dtype" if self.narrow else "")
        return told

    def __call__(self, problem: Problem, x: Factors, result: str) -> Tensor:
        """Outputs of some rows and columns, in the result's dtype."""
        storage, wide = FORMATS[result], FORMATS["float64" if problem.dtype == "float64" else "float32"]
        a, b = x.a, x.b
        if self.operands:
            fmt = FORMATS[self.operands] if self.operands in FORMATS else replace(FORMATS["float32"], precision=11)
            a, b = round_to(a, fmt), round_to(b, fmt)
        b = reduce(lambda t, name: round_to(t, FORMATS[name]), self.weights, b)
        n = IeeeSystem(wide, storage)
        if x.bias is not None and x.beta and self.epilogue in ("first", "onto"):
            found = self._within(n, replace(x, a=a, b=b))
        else:
            found = _finish(n, Rounded(self.plan.product(a, b), n), x, self)
        found = found if problem.extra["shape"].activation == "none" else n.max(found, 0.0)
        return (
            round_to(found.tensor, storage)
            .to(torch.float32 if storage.bits < 64 else torch.float64)
            .to(getattr(torch, result))
        )

    def _within(self, n: IeeeSystem, x: Factors) -> Rounded:
        """With the bias before the sum ends."""
        assert x.bias is not None
        if self.epilogue == "first":
            return Rounded(self.plan.product(x.a, x.b, x.bias), n)
        first, *others = (Rounded(part, n) * _scalar(n, x.alpha, self) for part in self.plan.sums(x.a, x.b))
        total = n.fma(Rounded(x.bias, n), _scalar(n, x.beta, self), first)
        for part in others:
            total = total + part
        return total


def _scalar(n: IeeeSystem, value: float, one: Candidate) -> Rounded:
    return n.cast(n.scalar(value), n.storage) if one.narrow else n.scalar(value)


#: What follows the sum, in words.
EPILOGUES = {
    "after": "what follows rounded operation by operation",
    "onto": "fma(beta, bias, alpha piece) of the first piece, alpha times the others added in turn",
    "in turn": "scaled by row, then by column",
    "fma": "fma(alpha, sum, beta bias)",
    "first": "the sum begins with the bias",
    "stored": "the sum rounded to the dtype, then what follows",
    "by log 2": "scaled, divided by log(2), then times log(2)",
    "in base 2": "scaled, times 1.44269504, then times log(2)",
}
#: log(2), and the log2(e) of PyTorch's templates.
LOG2, RCP_LOG2 = math.log(2), 1.44269504


def _finish(n: IeeeSystem, y: Rounded, x: Factors, one: Candidate) -> Rounded:
    if one.epilogue == "stored":
        y = n.cast(y, n.storage)
    if x.scales:
        rows, columns = (Rounded(t, n) for t in x.scales)
        y = y * rows * columns if one.epilogue == "in turn" else y * (rows * columns)
    alpha, beta = _scalar(n, x.alpha, one), _scalar(n, x.beta, one)
    if one.epilogue in ("by log 2", "in base 2"):
        y = y * alpha
        return (y / n.scalar(LOG2) if one.epilogue == "by log 2" else y * n.scalar(RCP_LOG2)) * n.scalar(LOG2)
    if x.bias is None or x.beta == 0.0:
        return y if x.alpha == 1.0 else y * alpha
    bias = Rounded(x.bias, n)
    if one.epilogue == "fma":
        return n.fma(y, alpha, bias * beta)
    if one.epilogue == "onto":
        return n.fma(bias, beta, y * alpha)
    return y * alpha + bias * beta


def searched(problem: Problem, backend: Any, result: str, y: Tensor) -> dict[str, Callable[[], Tensor]]:
    """The formulas worth evaluating on all outputs y, most of the sample explained first; none of an activation that
    is no arithmetic, of special data and of nothing."""
    shape: Shape = problem.extra["shape"]
    if shape.activation == "silu" or shape.data != "mixed" or shape.k < FEWEST or y.dtype != getattr(torch, result):
        return {}
    if max(shape.batch, 1) * shape.m * shape.k * shape.n > MOST:
        return {}
    problem = decoded(problem)
    # small products are quicker on the host, whose chains are compiled
    home, count = y.device, max(shape.batch, 1) * shape.m * shape.k * shape.n
    if count <= HOST:
        problem, y = problem.to("cpu"), y.cpu()
    first = problem if not shape.batch else replace(problem, tensors={k: t[0] for k, t in problem.tensors.items()})
    x, due = factors(_Plain(), first), y[0] if shape.batch else y
    simple = not (x.scales or x.bias is not None or problem.scalars)
    found: dict[str, Callable[[], Tensor]] = {}
    telling: tuple[list[int], list[int]] = ([], [])
    for _ in range(ROUNDS):
        rows, columns = _sample(shape, *telling)
        some = _on_host(_some(x, rows, columns))
        chosen, told = _search(first, backend, some, result, due[rows][:, columns].contiguous().cpu())
        for one in chosen:
            whole = one(problem, factors(_Plain(), problem), result)
            found[one.text(shape, simple)] = partial(whole.to, home)
            wrong = differing(whole.reshape(-1), y.reshape(-1)).nonzero()[:SAMPLE, 0] % (shape.m * shape.n)
            if one is chosen[0]:
                telling = (wrong // shape.n).tolist(), (wrong % shape.n).tolist()
        if not told or not telling[0]:
            break
    return found


def _on_host(x: Factors) -> Factors:
    return replace(x, a=x.a.cpu(), b=x.b.cpu(), scales=tuple(t.cpu() for t in x.scales),
                   bias=None if x.bias is None else x.bias.cpu())  # fmt: skip


def _some(x: Factors, rows: list[int], columns: list[int]) -> Factors:
    """The factors of some outputs."""
    return replace(
        x, a=x.a[rows], b=x.b[:, columns],
        scales=(x.scales[0][rows], x.scales[1][:, columns]) if x.scales else (),
        bias=None if x.bias is None else x.bias[..., columns],
    )  # fmt: skip


def _search(problem: Problem, backend: Any, x: Factors, result: str, due: Tensor) -> tuple[list[Candidate], bool]:
    """The candidates that explain all outputs `due` of some rows and columns, and that they do; else the one that
    explains the most."""
    k = problem.extra["shape"].k
    scores: dict[tuple[Any, ...], tuple[int, Candidate]] = {}

    def mismatches(one: Candidate) -> int:
        key = _key(one, k)
        if key not in scores:
            scores[key] = int(differing(one(problem, x, result).reshape(-1), due.reshape(-1)).sum()), one
        return scores[key][0]

    starts = [
        Candidate(Plan(unit, every=TILE if isinstance(unit, Split) else 0), operands, weights=weights)
        for unit, operands in _units(problem.dtype, architecture(backend))
        for weights in (_weights(unit, problem.dtype) if problem.extra["shape"].group else ((),))
    ]
    for best in sorted(starts, key=mismatches)[:STARTS]:
        while mismatches(best):
            found = best
            for one in _changed(best, problem):
                if mismatches(one) < mismatches(found):
                    found = one
                if not mismatches(found):
                    break
            if found is best:
                break
            best = found
        if not mismatches(best):
            break
    chosen = sorted(scores.values(), key=lambda pair: pair[0])
    return [one for count, one in chosen if not count] or [chosen[0][1]], not chosen[0][0]


class _Plain:
    """Tensors as float64."""

    def input(self, t: Tensor) -> Tensor:
        return t.to(torch.float64)


def _sample(shape: Shape, rows: Sequence[int] = (), columns: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """Rows and columns: those given, those that nearly cancel, and others."""
    found = []
    for count, kinds, wanted, given in ((shape.m, ROWS, "opposed", rows), (shape.n, COLUMNS, "paired", columns)):
        telling = [k for k in range(count) if kinds[k % len(kinds)] == wanted][: SAMPLE * 3 // 4]
        found.append(list(dict.fromkeys([*given, *telling, *range(count)]))[:SAMPLE])
    return found[0], found[1]


def _units(dtype: str, architecture: str) -> Iterator[tuple[Unit | Split, str]]:
    """The units that may multiply numbers of the dtype, and what these are rounded to first."""
    wide = "float64" if dtype == "float64" else "float32"
    yield scalar(wide), ""
    known = [u for u in units() if u.rule != "chain" and (u.result != "float16" or dtype != "float32")]
    for one in known:
        if one.architecture == (architecture or "amx") or (not architecture and one.architecture == "avx512_bf16"):
            if one.operands == dtype:
                yield one, ""
            elif dtype == "float32" and one.operands in ("tf32", "bfloat16") and one.result == "float32":
                yield one, "" if one.operands == "tf32" else "bfloat16"
                if one.operands == "tf32":
                    yield one, "tf32"
                for name, (fmt, parts, _) in SPLITS.items():
                    if architecture and parts > 1 and fmt.name == one.operands:
                        yield Split(name, one), ""
    if dtype == "float32" and not architecture:
        yield scalar(wide), "bfloat16"
        yield scalar(wide), "tf32"


def _weights(unit: Unit | Split, dtype: str) -> Iterator[tuple[str, ...]]:
    """How weights become operands of the unit: of a matrix unit in the dtype, else in float32 or as they are stored."""
    yield from (("float32", dtype), (dtype,))
    if unit.operands == "float32":
        yield ("float32",)


def _changed(one: Candidate, problem: Problem) -> Iterator[Candidate]:
    """Candidates that differ in one part."""
    plan = Plan(one.plan.unit)
    for other in _plans(plan, problem):
        yield replace(one, plan=other)
    if one.plan != plan:
        yield replace(one, plan=replace(one.plan, tree=not one.plan.tree))
    if len(problem.tensors) > 2 or problem.scalars:
        for epilogue in _epilogues(problem, len(one.plan.pieces(problem.extra["shape"].k))):
            yield replace(one, epilogue=epilogue)
            if any(abs(v) != 1 and v for name, v in problem.scalars.items() if name in ("alpha", "beta")):
                yield replace(one, epilogue=epilogue, narrow=True)


def _epilogues(problem: Problem, pieces: int) -> Iterator[str]:
    """Those that differ."""
    given = problem.scalars.get("alpha", 1.0), problem.scalars.get("beta", 1.0)
    bias, scaled = "bias" in problem.tensors and given[1] != 0, given != (1.0, 1.0)
    yield from (name for name, there in {
        "onto": bias and (pieces > 1 or scaled), "first": bias and not scaled, "fma": bias and scaled,
        "in turn": "scale_a" in problem.tensors,
        "by log 2": problem.extra.get("logarithm"), "in base 2": problem.extra.get("logarithm"),
        "stored": bias and problem.dtype in ("float16", "bfloat16"),
    }.items() if there)  # fmt: skip


def _plans(plan: Plan, problem: Problem) -> Iterator[Plan]:
    yield from (replace(plan, panel=length) for length in PANELS)
    yield from (replace(plan, every=length) for length in EVERY)
    # float16 and bfloat16 sums of split products may be added in the dtype
    for adding in ("", problem.dtype) if problem.dtype in ("float16", "bfloat16") else ("",):
        for parts in PARTS:
            yield replace(plan, parts=parts, adding=adding)
            yield replace(plan, parts=parts, grain=TILE, adding=adding)
            yield replace(plan, parts=parts, dealt=True, adding=adding)
            if parts > 2:
                yield replace(plan, parts=parts, dealt=True, tree=True, adding=adding)


def _key(one: Candidate, k: int) -> tuple[Any, ...]:
    """What tells candidates apart at this length."""
    pieces = tuple(tuple(p.tolist()) for p in one.plan.pieces(k))
    how = (one.plan.tree, one.plan.adding) if len(pieces) > 1 else ()
    return one.plan.unit, pieces, how, one.operands, one.epilogue, one.narrow, one.weights
