"""The formula that a product's bits obey: candidates are built from parts, and searched from those that mismatch least.

A candidate is a unit, how k is cut and the pieces are added (`verify.numbers.units.Plan`), how float32 operands are
rounded first, and what follows the sum. From the plain chain of each unit the search changes one part at a time, on a
few rows and columns whose sums nearly cancel, so that every rounding shows, and goes on from whatever explains more of
them; it ends where all of them are explained, or nothing explains more. What it found is evaluated on all outputs (of a
large product on hashed rows and columns), and looked for again among those that it does not explain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import torch

from verify.facts.formats import FORMATS
from verify.families.composite import Part, Problem
from verify.families.products_data import COLUMNS, ROWS, Shape, decoded, stored_weights
from verify.families.products_limits import architecture
from verify.families.products_truth import factors
from verify.inputs.draws import spread
from verify.judge.chunk import differing
from verify.numbers.ieee import IeeeSystem, Rounded
from verify.numbers.transforms import round_to
from verify.numbers.units import SPLITS, Plan, Split, Unit, scalar, units
from verify.oracles.products import Factors

Tensor = torch.Tensor
#: Terms below which all formulas are alike.
FEWEST = 8
#: Terms of a block of Triton's kernels, at which the products of parts start again.
TILE = 64
#: Rows and columns of the sample.
SAMPLE = 12
#: Samples, each taken from what the one before left unexplained.
ROUNDS = 3
#: The most products for which the host evaluates candidates.
HOST = 1 << 22
#: The most products that a candidate is evaluated on; where all outputs would be more, some rows and columns are taken.
MOST = 1 << 28
#: Lengths of pieces, and numbers of them.
EVERY, PANELS, PARTS = (
    (128, 32, 64, 256, 512, 1024),
    (384, 512, 256, 192, 320, 768, 1024),
    (2, 4, 8, 16, 3, 5, 6, 32, 64),
)
#: Most pieces of k that GPU libraries make, bytes of the loads that make one up, and tiles that one begins with.
MOST_PIECES, LOAD, TILES = 132, 16, (16, 32, 64, 128)
#: Lanes of vector products, and terms that each is dealt at once.
POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: Threads of a warp, numbers that one loads at once, threads of a block of cuBLAS's dot products: looked for first.
WARP, AT_ONCE, DOT = 32, 4, 128


@dataclass(frozen=True)
class _Given(Factors):
    """from_zero: of codes the weights by that of code 0 rounded to float32, else not rounded; None of others."""

    from_zero: Tensor | None = None


@dataclass(frozen=True)
class Candidate:
    """plan of the sums; operands: '' or the format that factors are rounded to; epilogue: what follows, see `_finish`;
    narrow: alpha and beta rounded to the dtype; weights: formats that weights of codes are rounded to, in turn;
    from_zero: whether they are computed from that of code 0, which is rounded first."""

    plan: Plan
    operands: str = ""
    epilogue: str = "after"
    narrow: bool = False
    weights: tuple[str, ...] = ()
    from_zero: bool = False

    def text(self, shape: Shape, simple: bool) -> str:
        told = f"operands rounded to {self.operands}, " if self.operands else ""
        told += f"weights rounded to {', then '.join(self.weights)}" if self.weights else ""
        told += " from that of code 0, " if self.from_zero else ", " if self.weights else ""
        told += str(_plainest(self.plan, shape.k))
        if not simple:
            told += f"; {EPILOGUES[self.epilogue]}" + (", scalars in the dtype" if self.narrow else "")
        return told

    def __call__(self, problem: Problem, x: _Given, result: str, kept: dict[Any, Any] | None = None) -> Tensor:
        """Outputs of some rows and columns, in the result's dtype; kept: sums of pieces, for candidates that add them
        otherwise."""
        storage, wide = FORMATS[result], FORMATS["float64" if problem.dtype == "float64" else "float32"]
        n = IeeeSystem(wide, storage)
        within = x.bias is not None and x.beta and self.epilogue in ("first", "onto")
        found = self._within(n, x) if within else _finish(n, Rounded(self._product(x, kept), n), x, self)
        found = found if problem.extra["shape"].activation == "none" else n.max(found, 0.0)
        return (
            round_to(found.tensor, storage)
            .to(torch.float32 if storage.bits < 64 else torch.float64)
            .to(getattr(torch, result))
        )

    def _factors(self, x: _Given) -> tuple[Tensor, Tensor]:
        a, b = x.a, x.b
        if self.from_zero:
            assert x.from_zero is not None
            b = x.from_zero
        if self.operands:
            fmt = FORMATS[self.operands] if self.operands in FORMATS else replace(FORMATS["float32"], precision=11)
            a, b = round_to(a, fmt), round_to(b, fmt)
        return a, reduce(lambda t, name: round_to(t, FORMATS[name]), self.weights, b)

    def _product(self, x: _Given, kept: dict[Any, Any] | None) -> Tensor:
        if kept is None:
            return self.plan.product(*self._factors(x))
        key = _pieces_key(self, x.a.shape[-1])
        if key not in kept:
            kept[key] = self.plan.sums(*self._factors(x))
        return self.plan.added(kept[key])

    def _within(self, n: IeeeSystem, x: _Given) -> Rounded:
        """With the bias added before the sum ends."""
        assert x.bias is not None
        a, b = self._factors(x)
        if self.epilogue == "first":
            return Rounded(self.plan.product(a, b, x.bias), n)
        first, *others = (Rounded(part, n) * _scalar(n, x.alpha, self) for part in self.plan.sums(a, b))
        total = n.fma(Rounded(x.bias, n), _scalar(n, x.beta, self), first)
        for part in others:
            total = (n.cast(total, n.storage) if self.plan.in_place else total) + part
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


def searched(problem: Problem, backend: Any, result: str, y: Tensor) -> dict[str, Callable[[], Tensor | Part]]:
    """Results of the formulas worth evaluating for outputs y, or a part of them, those that explain most of the sample
    first. None for an activation that is not arithmetic, for special data, or for an empty product."""
    shape: Shape = problem.extra["shape"]
    if shape.activation == "silu" or shape.data != "mixed" or shape.k < FEWEST or y.dtype != getattr(torch, result):
        return {}
    # small products are faster on the host, whose chains are compiled
    home, count = y.device, max(shape.batch, 1) * shape.m * shape.k * shape.n
    if count <= HOST:
        problem, y = problem.to("cpu"), y.cpu()
    first = problem if not shape.batch else replace(problem, tensors={k: t[0] for k, t in problem.tensors.items()})
    x, due = _given(first), y[0] if shape.batch else y
    simple = not (x.scales or x.bias is not None or problem.scalars)
    tried = _tried(shape)
    found: dict[str, Callable[[], Tensor | Part]] = {}
    telling: tuple[list[int], list[int]] = ([], [])
    ended = False
    for _ in range(ROUNDS):
        rows, columns = _sample(shape, *telling)
        some = _on_host(_some(x, rows, columns))
        chosen, told = _search(first, backend, some, result, due[rows][:, columns].contiguous().cpu())
        for one in chosen:
            text, given = one.text(shape, simple), y.reshape(-1)
            if tried is None:
                values = one(problem, _given(problem), result)
                found[text] = partial(values.to, home)
                wrong = differing(values.reshape(-1), given).nonzero()[:SAMPLE, 0] % (shape.m * shape.n)
            else:
                places = (torch.tensor(tried[0])[:, None] * shape.n + torch.tensor(tried[1])).reshape(-1).to(home)
                values = one(first, _some(x, *tried), result).reshape(-1)
                text += f"; tried on {len(tried[0])} rows and {len(tried[1])} columns"
                found[text] = partial(Part, places, values)
                wrong = places[differing(values, given[places]).nonzero()[:SAMPLE, 0]]
            if one is chosen[0]:
                rows, columns = (wrong // shape.n).tolist(), (wrong % shape.n).tolist()
                telling, ended = ([*rows, *telling[0]], [*columns, *telling[1]]), not rows
        if not told or ended:
            break
    return found


def _tried(shape: Shape) -> tuple[list[int], list[int]] | None:
    """Rows and columns (of the first matrix of a stack) of as many products as are evaluated; None: all."""
    if max(shape.batch, 1) * shape.m * shape.k * shape.n <= MOST:
        return None
    outputs = max(1, MOST // shape.k)
    rows = min(shape.m, max(math.isqrt(outputs), outputs // shape.n))
    return spread(shape.m, rows), spread(shape.n, outputs // rows)


def _given(problem: Problem) -> _Given:
    """The factors; weights in place of codes."""
    x, from_zero = factors(_Plain(), decoded(problem)), None
    if "zero" in problem.tensors:
        codes, scale, zero = stored_weights(problem)
        from_zero = codes * scale + round_to(zero - scale * 8, FORMATS["float32"])
    return _Given(**vars(x), from_zero=from_zero)


def _on_host(x: _Given) -> _Given:
    return replace(x, a=x.a.cpu(), b=x.b.cpu(), scales=tuple(t.cpu() for t in x.scales),
                   bias=None if x.bias is None else x.bias.cpu(),
                   from_zero=None if x.from_zero is None else x.from_zero.cpu())  # fmt: skip


def _some(x: _Given, rows: list[int], columns: list[int]) -> _Given:
    """The factors of some outputs."""
    return replace(
        x, a=x.a[rows], b=x.b[:, columns],
        scales=(x.scales[0][rows], x.scales[1][:, columns]) if x.scales else (),
        bias=None if x.bias is None else x.bias[..., columns],
        from_zero=None if x.from_zero is None else x.from_zero[:, columns],
    )  # fmt: skip


def _search(problem: Problem, backend: Any, x: _Given, result: str, due: Tensor) -> tuple[list[Candidate], bool]:
    """The candidates that explain all outputs `due` of some rows and columns, and that they do; else the one that
    explains the most."""
    k = problem.extra["shape"].k
    scores: dict[tuple[Any, ...], tuple[int, Candidate]] = {}
    kept: dict[Any, Any] = {}

    def mismatches(one: Candidate) -> int:
        key = _key(one, k)
        if key not in scores:
            scores[key] = int(differing(one(problem, x, result, kept).reshape(-1), due.reshape(-1)).sum()), one
        return scores[key][0]

    coded = bool(problem.extra["shape"].group)
    starts = [
        Candidate(Plan(unit, every=TILE if isinstance(unit, Split) else 0), operands, **how)
        for unit, operands in _units(problem.dtype, architecture(backend), coded)
        for how in (_weights(unit, problem.dtype) if coded else ({},))
        if x.from_zero is not None or not how.get("from_zero")
    ]
    for best in sorted(starts, key=mismatches):
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
        size = SAMPLE if min(shape.m, shape.n) >= SAMPLE else SAMPLE**2 // min(shape.m, shape.n)
        telling = [k for k in range(count) if kinds[k % len(kinds)] == wanted][: size * 3 // 4]
        found.append(list(dict.fromkeys([*given, *telling, *range(count)]))[:size])
    return found[0], found[1]


def _units(dtype: str, architecture: str, coded: bool) -> Iterator[tuple[Unit | Split, str]]:
    """The units that may multiply numbers of the dtype, or weights of codes, and what these are rounded to first."""
    wide = "float64" if dtype == "float64" else "float32"
    yield scalar(wide), ""
    if not architecture and (dtype == "float32" or coded):  # float32 holds products of halves, float64 none of doubles
        yield scalar(wide, fused=False), ""
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


def _weights(unit: Unit | Split, dtype: str) -> Iterator[dict[str, Any]]:
    """How weights become operands of the unit: of a matrix unit in the dtype, else in float32 or as they are stored."""
    yield from ({"weights": formats} for formats in (("float32", dtype), (dtype,)))
    if unit.operands == "float32":
        yield from ({"weights": ("float32",), "from_zero": own} for own in (False, True))


def _changed(one: Candidate, problem: Problem) -> Iterator[Candidate]:
    """Candidates that differ in one part."""
    unit, k = one.plan.unit, problem.extra["shape"].k
    for other in _plans(Plan(unit), problem):
        yield replace(one, plan=other)
    if one.plan != Plan(unit):
        for how in _orders(len(one.plan.pieces(k))):
            yield replace(one, plan=replace(one.plan, **how))
    if unit.terms > 1:
        for tile in TILES:
            yield replace(one, plan=replace(one.plan, tile=tile))
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
    shape: Shape = problem.extra["shape"]
    k = shape.k
    yield from (replace(plan, panel=length) for length in PANELS)
    yield from (replace(plan, every=length) for length in EVERY)
    # sums of pieces may be stored in float16 and bfloat16, or added in them; lengths are whole loads of 16 bytes
    ways: list[dict[str, Any]] = [
        {}, {"adding": problem.dtype}, {"stored": problem.dtype}, {"adding": problem.dtype, "stored": "float32"}
    ]  # fmt: skip
    grain = LOAD // problem.tensors["a"].element_size()
    for how in ways if problem.dtype in ("float16", "bfloat16") else ways[:1]:
        for parts in PARTS:
            yield replace(plan, parts=parts, **how)
            yield replace(plan, parts=parts, grain=TILE, **how)
            yield replace(plan, parts=parts, dealt=True, **how)
            if parts > 2:
                yield replace(plan, parts=parts, dealt=True, tree="neighbours", **how)
        for cut in (replace(plan, parts=n, grain=grain, **how) for n in range(2, min(MOST_PIECES, k) + 1)):
            if not isinstance(plan.unit, Split):
                yield cut
                if any(length % plan.unit.terms for length in cut.lengths(k)[-2:]):
                    yield from (replace(cut, tile=tile) for tile in TILES)
    # weights of codes: a block of warps, each adding one block of terms after another to its sum
    if shape.group and isinstance(plan.unit, Unit) and plan.unit.terms > 1:
        for parts in (8, 2, 4, 16):
            for grain in (128, 32, 64, 256):
                yield Plan(replace(plan, every=plan.unit.terms), parts=parts, grain=grain, dealt=True)
    # a decomposition of k whose stack is summed by halves
    for parts in (n for n in POWERS if 2 < n <= TILE and k % n == 0):
        yield from (replace(plan, parts=parts, **how) for how in _orders(parts))
    if isinstance(plan.unit, Unit) and plan.unit.terms == 1 and min(shape.m, shape.n) <= FEWEST:
        for parts in sorted((n for n in POWERS if 1 < n < k), key=lambda n: n != WARP):
            yield replace(plan, parts=parts, grain=1, tree="halves")
            for n in sorted((n for n in POWERS if n < k), key=lambda n: n != AT_ONCE):
                yield replace(plan, parts=parts, grain=n, dealt=True, tree="halves")
        yield Plan(replace(plan, parts=DOT, grain=1, dealt=True, tree="halves"), every=DOT)


def _orders(pieces: int) -> Iterator[dict[str, Any]]:
    """How sums of so many pieces may be added."""
    if pieces < 3:
        return
    yield {"tree": ""}
    yield {"tree": "neighbours"}
    for apart in (n for n in POWERS if n < pieces):
        yield from ({"tree": "halves", "apart": apart, "near": n} for n in POWERS if apart * n < pieces)


def _plainest(plan: Plan, k: int) -> Plan:
    """The same one in fewer words, of as many parts as there are."""
    lengths = plan.lengths(k)
    plan = replace(plan, tree="", apart=1, near=1) if len(lengths) < 3 else plan
    fewer = replace(plan, parts=len(lengths)) if plan.parts > len(lengths) and not plan.dealt else plan
    return fewer if fewer.lengths(k) == lengths else plan


def _pieces_key(one: Candidate, k: int) -> tuple[Any, ...]:
    """What tells the sums of pieces apart at this length."""
    plan, lengths = one.plan, tuple(one.plan.lengths(k))
    dealt = plan.dealt and max(lengths) > plan.grain and plan.parts > 1
    pieces = lengths, (plan.grain or plan.terms) if dealt else 0
    # where the first tile is not whole blocks
    begun = [n % plan.tile for n in (lengths[0], lengths[-1])] if plan.tile and plan.terms > 1 else []
    told = tuple(begun) if any(n % plan.terms for n in begun) else ()
    return plan.unit, pieces, told, one.operands, one.weights, one.from_zero


def _key(one: Candidate, k: int) -> tuple[Any, ...]:
    """What tells candidates apart at this length."""
    plan, (unit, pieces, *others) = one.plan, _pieces_key(one, k)
    how = (plan.tree, plan.apart, plan.near) if len(pieces[0]) > 2 else ()
    return (
        unit,
        pieces,
        *others,
        how,
        (plan.adding, plan.stored) if len(pieces[0]) > 1 else (),
        one.epilogue,
        one.narrow,
    )
