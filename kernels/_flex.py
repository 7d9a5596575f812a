"""flex_attention's problems, and their truth in balls and in multiprecision.

The real function is in `verify.oracles.flex_attention`, the settings are in `verify.kernels.flex_attention`, the bounds
of the algorithms in `_flex_algorithms`, what runs in `_flex_lowerings`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch

from verify.facts.formats import FORMATS
from verify.facts.truth import Truth
from verify.families.composite import Problem, encoded
from verify.inputs import draws
from verify.kernels.flex_attention import Shape
from verify.numbers.ball import GROW, Ball
from verify.numbers.decide import Enclosure
from verify.numbers.fixed import Fixed, FixedMatrices, Inexact, RationalMatrices, places_for
from verify.numbers.matmul import DDMatrices, RowBall, RowBalls, unstacked
from verify.oracles import flex_attention as oracle

Tensor = torch.Tensor
Array: TypeAlias = Any  # of numpy

#: Scores that the truth keeps at a time: on the host a quarter of a GiB of all that is made of them; on an accelerator,
#: two tensors of them take 1 GiB (a quarter of that many where there are gradients, which take eight).
HOST_SCORES, DEVICE_SCORES = 1 << 19, 1 << 26
#: Scores of one double-double pass, which keeps some fifty tensors of them.
DOUBLE_SCORES = 1 << 20
#: Scores of a head whose double-double values are kept.
KEPT_SCORES = 1 << 16
#: Rows of queries whose multiprecision values are kept.
KEPT_ROWS = 256
#: Binary places of the first multiprecision evaluation, and the last.
PLACES, MOST_PLACES = 128, 4096
#: Below every format's numbers: of weights whose exponent has more binary places than these not even the sign is known.
NOTHING = Fraction(1, 1 << 2000)
#: Score modifications whose derivative is 1.
LINEAR = ("none", "causal", "alibi", "relative_bias")
#: The size of scores, of either sign, in the recipes of data.
SCORES = {"normal": 0.0, "scaled": 0.0, "small": 0.0, "uniform": 0.0, "competing": 40.0, "extreme": 105.0}
#: Scores up to which exact rationals are tried where all scores of a row are equal.
RATIONAL_SCORES = 1 << 17


# Problems


def problem(dtype: str, setting: Any, scalars: Mapping[str, float], seed: int) -> Problem:
    """Tensors query (B, H, L, D), key, value (B, H_kv, S, D) and grad_out (B, H, L, D), finite, on the host."""
    shape = Shape.of(setting.parameters)
    tensors = _Recipe(dtype, shape, seed).tensors()
    tables = buffers(shape, seed)
    given = {"scale": shape.scale, **tables}
    extra: dict[str, Any] = {"shape": shape, "buffers": tables, "limits": {}, "keywords": given}
    return Problem(tensors, dict(setting.parameters), dict(scalars), dtype, extra)


def buffers(shape: Shape, seed: int) -> dict[str, Any]:
    """What score_mod and mask_mod read: cap and window, and tables of float32 numbers and of int64 document numbers, on
    the host."""
    single = FORMATS["float32"]
    heads = torch.arange(1, shape.heads + 1, dtype=torch.float64)
    # those that its paper has; with another seed others
    steps = heads if shape.slopes == "steep" else 8.0 * heads / shape.heads
    reals = draws.exp2(-steps - (seed % 7) / 4)
    slopes = draws.encode(single, torch.where((heads % 2 == 1) & (shape.slopes == "signed"), -reals, reals))
    size = 10.0 if shape.biases == "large" else 1.0
    noise = draws.beginning(draws.normal, single, shape.heads * (2 * shape.reach + 1), seed, "bias")
    bias = encoded(size * noise, fmt=single)
    return {
        "soft_cap": shape.soft_cap,
        "window": shape.window,
        "slopes": draws.to_tensor(single, slopes),
        "bias": draws.to_tensor(single, bias).reshape(shape.heads, -1),
        # with another seed other documents, of queries and of keys
        "query_document": _documents(shape, shape.q_len, seed % 7, 0),
        "key_document": _documents(shape, shape.kv_len, seed % 7, seed % 7, keys=True),
    }


#: Numbers of documents that are one where only their low bits are looked at.
FAR = (0, 2**8, 2**32, -1, 2**16, -(2**32), 2**31 - 1)


#: Numbers that some formats do not tell apart, each from the next.
NEAR = tuple(2**bits + more for bits in (8, 11, 24, 53) for more in (0, 1))


def _documents(shape: Shape, count: int, step: int, start: int, keys: bool = False) -> Tensor:
    """int64 (count,): the number of each query's or key's document, see DOCUMENTS."""
    before = 0 if keys or shape.documents != "late" else max(0, shape.kv_len - count)
    runs = [math.isqrt((1 + step) * i + start) for i in range(before, before + count)]
    if shape.documents == "apart":
        return torch.tensor(runs) * 2 + keys
    if shape.documents == "turns":
        return torch.arange(start, start + count) % 3
    named = {"far": FAR, "near": NEAR}.get(shape.documents)
    return torch.tensor(runs if named is None else [named[run % len(named)] for run in runs])


def widened(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with floating-point numbers as doubles."""
    return {k: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t for k, t in tables.items()}


def on(device: Any, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables on a device, and the numbers beside them."""
    return {name: t.to(device) if isinstance(t, Tensor) else t for name, t in tables.items()}


@dataclass(frozen=True)
class _Recipe:
    """How the numbers are drawn; `data` of the setting names one of the recipes."""

    dtype: str
    shape: Shape
    seed: int

    def tensors(self) -> dict[str, Tensor]:
        query, key = getattr(self, f"_{self.shape.data}")()
        rest = {"value": self._noise("value"), "grad_out": self._noise("grad_out")}
        reals = {"query": query, "key": key} | (self._exact_rest() if self.shape.data == "exact" else rest)
        if self.shape.data in SCORES:
            odd = self._of_odd_heads(SCORES[self.shape.data])
            reals = {name: torch.where(self._odd(name), odd[name], real) for name, real in reals.items()}
        if self.shape.data in ("uniform", "exact"):  # queries in the first half of the numbers, keys in the second
            half = torch.arange(self.shape.head_dim) < self.shape.head_dim // 2
            reals["query"], reals["key"] = (torch.where(at, reals[name], 0.0) for name, at in
                                            (("query", half), ("key", ~half)))  # fmt: skip
        fmt = FORMATS[self.dtype]
        if self.shape.data == "scaled":
            most = fmt.emax // 2 + 1
            reals["value"] = reals["value"] * 2.0 ** min(17, most)
            reals["grad_out"] = reals["grad_out"] * 2.0 ** -min(30, most)
        if self.shape.data == "small":
            reals |= {name: reals[name] * 2.0**-15 for name in ("value", "grad_out")}
        if self.shape.data == "faint":
            reals["value"] = reals["value"] * self._gaps().exp().clamp(max=2.0 ** (fmt.emax - 3))[:, None]
        return {name: draws.to_tensor(fmt, encoded(real, fmt=fmt)).contiguous() for name, real in reals.items()}

    def strata(self, output: str) -> tuple[tuple[str, ...], Tensor]:
        """`Composite.strata`: heads by recipe, and those in whose sums nothing cancels."""
        odd = self._odd("key" if output in ("dk", "dv") else "query").long()
        odd = odd if self.shape.data in SCORES else odd * 0
        of = odd[..., 0] if output == "logsumexp" else odd
        return (self.shape.data, f"{self.shape.data} of one sign"), of.expand(self.shape.outputs[output])

    def _odd(self, name: str) -> Tensor:
        """Every other head of keys and the queries that it serves, counted through the batch."""
        shape = self.shape
        heads = torch.arange(shape.batch * shape.kv_heads).reshape(shape.batch, shape.kv_heads) % 2 == 1
        if name in ("query", "grad_out"):
            heads = heads.repeat_interleave(shape.group, 1)
        return heads[:, :, None, None]

    def _of_odd_heads(self, score: float) -> dict[str, Tensor]:
        """Numbers whose sums cancel in no output: queries and grad_out positive, keys and values of one sign for each
        key, the scores of the two signs apart by about 1. Scores of +-`score` come from an eighth of the numbers, in
        which alone keys have a common part."""
        shape = self.shape
        d, keys = shape.head_dim, torch.arange(shape.batch * shape.kv_heads * shape.kv_len, dtype=torch.int64)
        signs = 1.0 - 2.0 * (self._draw("signs", keys).word() >> 31).to(torch.float64)
        signs = signs.reshape(shape.batch, shape.kv_heads, shape.kv_len, 1)
        query, grad_out = self._noise("query").abs(), self._noise("grad_out").abs()
        small = 1.0 / (2.0 * 0.64 * d * shape.scale)  # the sum of products of two is 0.64 d
        key, value = signs * self._noise("key").abs() * small, signs * self._noise("value").abs()
        if score:
            few = max(1, d // 8)
            first = torch.arange(d) < few
            size = math.sqrt(score / (few * shape.scale))
            side = (1.0 - 2.0 * (torch.arange(shape.q_len) % 2).to(torch.float64))[:, None]
            query, key = torch.where(first, side * size, query), torch.where(first, size, key)
        return {"query": query, "key": key, "value": value, "grad_out": grad_out}

    def _exact(self) -> tuple[Tensor, Tensor]:
        return self._whole("query", 1), self._whole("key", 1)

    def _whole(self, name: str, most: int) -> Tensor:
        """Whole numbers from -most to most."""
        size = self.shape.of_queries if name in ("query", "grad_out") else self.shape.of_keys
        draw = self._draw(name, torch.arange(math.prod(size), dtype=torch.int64))
        found: Tensor = draw.integer(-most, most).to(torch.float64).reshape(size)
        return found

    def _exact_rest(self) -> dict[str, Tensor]:
        """Values c + w and c - w in turn, whose mean c is a whole number; every eighth number of grad_out is not 0."""
        values, shape = self._whole("value", 2), self.shape
        paired = values[..., 0::2, :]
        common = values[..., :1, :]
        signs = torch.where(torch.arange(shape.kv_len) % 2 == 0, 1.0, -1.0)[:, None]
        spread = paired.repeat_interleave(2, -2)[..., : shape.kv_len, :]
        eighth = torch.arange(shape.head_dim) % 8 == 0
        turned = (torch.arange(shape.head_dim)[None, :] // 8 + torch.arange(shape.q_len)[:, None]) % 2 == 0
        return {"value": common + signs * spread, "grad_out": self._whole("grad_out", 1) * (eighth & turned)}

    def _normal(self) -> tuple[Tensor, Tensor]:
        return self._noise("query"), self._noise("key")

    _uniform = _scaled = _small = _normal

    def _alone(self) -> tuple[Tensor, Tensor]:
        """Queries along the first key, at a score near 52 that no other key comes near (what is done to it in base 2
        shows from 44 to 64, not from 32 to 44); numbers of 7 binades."""
        queries, keys = self._along(52.0)
        queries[..., 1::2, :] *= -1.0  # all on its side
        size = draws.exp2(-(torch.arange(self.shape.head_dim) % 7).to(torch.float64))
        size = size / float(size.square().mean()) ** 0.5
        return queries * size, torch.where(torch.arange(self.shape.kv_len)[:, None] == 0, keys * size,
                                           self._noise("key") / 8)  # fmt: skip

    def _competing(self) -> tuple[Tensor, Tensor]:
        """Scores near +40 and -40, whose keys differ by about 1: rounding them to a half type shows."""
        return self._along(SCORES["competing"])

    def _extreme(self) -> tuple[Tensor, Tensor]:
        """Scores near +105 and -105, beyond the range of exp in float32."""
        return self._along(SCORES["extreme"])

    def _faint(self) -> tuple[Tensor, Tensor]:
        """Queries along the first key, at a score near 40, and the others' scores lower by `_gaps`."""
        score = 40.0
        queries, keys = self._along(score)
        queries[..., 1::2, :] *= -1.0  # all on its side
        return queries, keys * (1.0 - self._gaps()[:, None] / score)

    def _gaps(self) -> Tensor:
        """How far each key's score is from the largest: 0, then from 12 to 36 in turn, and 6 more for each 64 keys, so
        that whole tiles are far below. Values that are as much larger give weights from 6e-6 to 2e-16, and less, a part
        in every sum."""
        place = torch.arange(self.shape.kv_len)
        return torch.where(place == 0, 0, 12 + 4 * (place % 7) + 6 * (place // 64)).to(torch.float64)

    def _steep(self) -> tuple[Tensor, Tensor]:
        """Scores from -2^14 to 2^14, larger with each key."""
        queries, keys = self._along(2.0**14)
        queries[..., 1::2, :] *= -1.0  # all on its side
        place = torch.arange(self.shape.kv_len, dtype=torch.float64) * 2 / max(1, self.shape.kv_len - 1) - 1
        return queries, keys * place[:, None]

    def _climbing(self) -> tuple[Tensor, Tensor]:
        """Scores that rise by 2.5 for each 64 keys, or fall as much for every other query."""
        top = max(1.0, 2.5 * self.shape.kv_len / 64)
        queries, keys = self._along(top)
        return queries, keys * (torch.arange(self.shape.kv_len, dtype=torch.float64)[:, None] * (2.5 / 64 / top))

    def _keen(self) -> tuple[Tensor, Tensor]:
        return 3.0 * self._noise("query"), 3.0 * self._noise("key")

    def _vast(self) -> tuple[Tensor, Tensor]:
        """Scores from 2^16 to 2^17, larger with each key, or from -2^16 to -2^17 for every other query."""
        queries, keys = self._along(2.0**17)
        place = torch.arange(self.shape.kv_len, dtype=torch.float64) / max(1, self.shape.kv_len - 1)
        return queries, keys * (0.5 + 0.5 * place[:, None])

    def _along(self, score: float) -> tuple[Tensor, Tensor]:
        """Queries and keys along one direction of signs in each key head, every other query against it."""
        shape = self.shape
        size = math.sqrt(score / (shape.head_dim * shape.scale))
        unit = torch.arange(shape.batch * shape.kv_heads * shape.head_dim, dtype=torch.int64)
        signs = 1.0 - 2.0 * (self._draw("direction", unit).word() >> 31).to(torch.float64)
        direction = signs.reshape(shape.batch, shape.kv_heads, 1, shape.head_dim) * size
        side = (1.0 - 2.0 * (torch.arange(shape.q_len) % 2).to(torch.float64)).reshape(1, 1, -1, 1)
        spread = 0.5 / (size * math.sqrt(shape.head_dim) * shape.scale)  # of a score, from each of the two
        queries = direction.repeat_interleave(shape.group, 1) + self._noise("query") * spread
        return queries * side, direction + self._noise("key") * spread

    def _noise(self, name: str) -> Tensor:
        size = self.shape.of_queries if name in ("query", "grad_out") else self.shape.of_keys
        fmt, count = FORMATS[self.dtype], math.prod(size)
        found: Tensor = draws.beginning(draws.normal, fmt, count, self.seed, self._stratum(name)).reshape(size)
        return found

    def _draw(self, name: str, index: Tensor) -> draws.Draw:
        return draws.Draw(FORMATS[self.dtype], index, self.seed, self._stratum(name))

    def _stratum(self, name: str) -> str:
        return f"flex_attention {self.shape.data} {name}"


def strata(problem: Problem, output: str) -> tuple[tuple[str, ...], Tensor]:
    """`Composite.strata`."""
    return _Recipe(problem.dtype, problem.extra["shape"], 0).strata(output)


def unmasked(shape: Shape, tables: Mapping[str, Any], device: Any) -> Tensor | None:
    """The keys that each query sees, (1 or B, 1 or H, L, S) booleans, or None for all."""

    def axis(size: int, *view: int) -> Tensor:
        return torch.arange(size, device=device).view(*view)

    place = oracle.Place(
        axis(shape.batch, -1, 1, 1, 1),
        axis(shape.heads, 1, -1, 1, 1),
        axis(shape.q_len, -1, 1),
        axis(shape.kv_len, 1, -1),
    )
    return oracle.visible(shape.score_mod, shape.mask_mod, place, on(device, tables))


# Truth


@dataclass(frozen=True)
class _Enclosed:
    """An output in balls, flattened: midpoint and radius, a lower and an upper bound of the scale, and where rows of
    `out` see no key."""

    mid: Tensor
    rad: Tensor
    scale: Tensor
    largest: Tensor
    nothing: Tensor | None = None


@dataclass
class AttentionTruth:
    """`verify.families.composite.Source` of one problem. What one call computed is kept for the others."""

    problem: Problem
    device: Any
    bounds: Mapping[str, float]
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)
    _rows: list[Any] = field(default_factory=list, repr=False)

    @cached_property
    def shape(self) -> Shape:
        shape: Shape = self.problem.extra["shape"]
        return shape

    @cached_property
    def score_mod(self) -> Callable[..., Any]:
        return score_mod(self.shape)

    # Balls

    def enclose(
        self, output: str, index: Tensor | None = None, double: bool = False, scaled: bool = True
    ) -> tuple[Enclosure, Tensor | None]:
        """See `Source.enclose`. float64 in one pass over all outputs; double-double on the rows of `index`."""
        if not double:
            found = self._balls[output]
            parts = (found.mid, found.rad, found.scale)
            mid, rad, scale = parts if index is None else (t[index.to(t.device)] for t in parts)
            zero = found.nothing
            if zero is None:
                zero = self._zero(output, index, mid, rad)
            elif index is not None:
                zero = zero[index.to(zero.device)]
            if zero is None:
                return Enclosure(mid[None], rad[None]), scale[None]
            mid, rad = (torch.where(zero, 0.0, t) for t in (mid, rad))
            return Enclosure(mid[None], rad[None], either=zero[None]), scale[None]
        everything = torch.arange(math.prod(self.shape.outputs[output])) if index is None else index
        return self._double(output, everything.cpu())

    def _zero(self, output: str, index: Tensor | None, mid: Tensor, rad: Tensor) -> Tensor | None:
        """Which elements of a gradient are exactly 0, of those whose enclosures leave it open (one that does not,
        multiprecision may contradict); None where there are none."""
        vague = (mid.abs() <= rad) & (rad > 0)
        if output not in ("dq", "dk", "dv") or not bool(vague.any()):
            return None
        zeros = torch.from_numpy(self._zeros(output))
        return vague & (zeros if index is None else zeros[index.cpu()]).to(mid.device)

    @cached_property
    @torch.inference_mode()
    def _balls(self) -> dict[str, _Enclosed]:
        shape, n = self.shape, RowBalls(self.device, self.bounds)
        host = torch.device(self.device).type == "cpu"
        most = HOST_SCORES if host else DEVICE_SCORES // 4 if shape.backward else DEVICE_SCORES
        heads = max(1, most // max(1, shape.q_len * shape.kv_len))  # the time of a small block is that of its calls
        step = shape.q_len if heads > 1 else max(1, most // max(1, shape.kv_len))
        pairs = [(b, h) for b in range(shape.batch) for h in range(shape.heads)]
        rows: dict[str, list[tuple[Tensor, ...]]] = {}
        hidden: dict[str, list[Tensor | None]] = {}
        shared: dict[str, dict[tuple[int, int], tuple[RowBall, RowBall]]] = {}
        for first in range(0, len(pairs), heads):
            some = pairs[first : first + heads]
            for start in range(0, shape.q_len, step):
                queries = torch.arange(start, min(start + step, shape.q_len), device=self.device)
                head = self._head(n, some, queries)
                for name, output in oracle.attention(n, head).outputs.items():
                    value, scale = output.value(), output.scale()
                    if oracle.OUTPUTS[name] != "key":
                        rows.setdefault(name, []).append(_parts(value, scale))
                        hidden.setdefault(name, []).append(_hidden(head.empty, value))
                        continue
                    sums = shared.setdefault(name, {})
                    for k, (b, h) in enumerate(some):
                        g, part = h // shape.group, (value.at(k), scale.at(k))
                        sums[b, g] = (sums[b, g][0] + part[0], sums[b, g][1] + part[1]) if (b, g) in sums else part
        rows |= {name: [_parts(*pair) for pair in sums.values()] for name, sums in shared.items()}
        return {name: _enclosed(name, parts, hidden.get(name, [])) for name, parts in rows.items()}

    def _head(self, n: Any, pairs: Sequence[tuple[int, int]], queries: Tensor) -> oracle.Head:
        """Rows `queries` of several heads (batch, head), as values of the ball system `n` shaped (pairs, rows, ...)."""
        shape, tensors = self.shape, self._moved
        b, h = torch.tensor(pairs, device=self.device).unbind(1)
        g = h // shape.group
        place = oracle.Place(
            b[:, None, None],
            h[:, None, None],
            queries[:, None],
            torch.arange(shape.kv_len, device=self.device)[None, :],
        )
        mask = oracle.visible(shape.score_mod, shape.mask_mod, place, self._tables)
        empty = None
        if mask is not None:
            seen = mask.any(-1, keepdim=True)
            empty = None if bool(seen.all()) else ~seen

        def of_queries(name: str) -> Any:
            found = tensors[name][b, h]
            return n.input(found if len(queries) == shape.q_len else found[:, queries])

        return oracle.Head(
            query=of_queries("query"),
            key=n.input(tensors["key"][b, g]),
            value=n.input(tensors["value"][b, g]),
            grad_out=of_queries("grad_out") if shape.backward else None,
            scale=shape.scale,
            score_mod=self.score_mod,
            place=place,
            buffers=self._tables,
            mask=mask,
            empty=empty,
        )

    @cached_property
    def _moved(self) -> dict[str, Tensor]:
        return {name: t.to(self.device) for name, t in self.problem.tensors.items()}

    @cached_property
    def _tables(self) -> dict[str, Any]:
        return on(self.device, self.problem.extra["buffers"])

    def _double(self, output: str, index: Tensor) -> tuple[Enclosure, Tensor | None]:
        """The elements `index` in double-double: whole rows of queries, or all rows that share keys."""
        shape, n = self.shape, DDMatrices(self.device)
        size = shape.outputs[output]
        width = size[-1] if output != "logsumexp" else 1
        b, h, row = np.unravel_index((index // width).numpy(), size[:3])
        column = torch.from_numpy((index % width).numpy())
        parts = [torch.zeros(len(index), dtype=torch.float64) for _ in range(4)]
        for at in {(int(x), int(y)) for x, y in zip(b, h, strict=True)}:
            mine = torch.from_numpy((b == at[0]) & (h == at[1]))
            wanted, where = torch.unique(torch.from_numpy(row)[mine], return_inverse=True)
            value, scale = self._double_rows(n, output, *at, wanted)
            pick = where.to(self.device), column[mine].to(self.device)
            if oracle.OUTPUTS[output] == "key":
                pick = wanted.to(self.device)[pick[0]], pick[1]
            lower = scale.mid.abs() - scale.radius
            for part, t in zip(parts, (value.mid, value.tail, value.radius, lower), strict=True):
                part[mine] = torch.as_tensor(t).expand_as(value.mid)[pick].cpu()
        mid, tail, rad, least = parts
        if (zero := self._zero(output, index, mid + tail, rad)) is not None:
            mid, tail, rad = (torch.where(zero, 0.0, t) for t in (mid, tail, rad))
        mid, tail, rad, least = (part.to(self.device) for part in (mid, tail, rad, least))
        empty = self._nothing(output, index).to(self.device)
        none = (mid == 0) & (rad == 0)
        either = none & (output != "logsumexp")
        if output == "logsumexp":  # the sign of log(1) is multiprecision's
            rad = torch.where(none, TINY_SCALE, rad)
        if output in ("out", "logsumexp"):
            mid = torch.where(empty, 0.0 if output == "out" else -torch.inf, mid)
            tail, rad = torch.where(empty, 0.0, tail), torch.where(empty, 0.0, rad)
        rad = rad * GROW + (mid + tail).abs() * 2.0**-100 * (rad > 0).to(torch.float64)
        return Enclosure(mid[None], rad[None], tail[None], either=either[None]), least.clamp(min=TINY_SCALE)[None]

    def _double_rows(self, n: DDMatrices, output: str, b: int, h: int, wanted: Tensor) -> tuple[Ball, Ball]:
        """Value and scale of the rows `wanted` of queries of a head, or of all keys of a head."""
        shape, everything = self.shape, torch.arange(self.shape.q_len, device=self.device)
        if oracle.OUTPUTS[output] == "key":
            heads, rows = list(range(h * shape.group, (h + 1) * shape.group)), everything
        else:
            heads, rows = [h], wanted.to(self.device)
        step = max(1, DOUBLE_SCORES // max(1, shape.kv_len))
        if shape.q_len * shape.kv_len <= KEPT_SCORES:  # a whole head, kept for the other outputs
            for head in heads:
                if ("double", b, head) not in self._kept:
                    found = oracle.attention(n, self._head(n, [(b, head)], everything))
                    self._kept["double", b, head] = found.outputs
            outputs = [self._kept["double", b, head][output] for head in heads]
        else:
            blocks = [rows[start : start + step] for start in range(0, len(rows), step)]
            pairs = [(head, block) for head in heads for block in blocks]
            outputs = [oracle.attention(n, self._head(n, [(b, i)], block)).outputs[output] for i, block in pairs]
            everything = rows
        values = [(unstacked(one.value()), unstacked(one.scale())) for one in outputs]
        if oracle.OUTPUTS[output] == "key":
            total = values[0]
            for value in values[1:]:
                total = total[0] + value[0], total[1] + value[1]
            return total
        kept = torch.isin(everything, rows)

        def joined(balls: list[Ball]) -> Ball:
            def all_of(pick: Callable[[Ball], Any]) -> Tensor:
                parts = [torch.as_tensor(pick(x), dtype=torch.float64, device=x.mid.device) for x in balls]
                return torch.cat([part.expand_as(x.mid) for part, x in zip(parts, balls, strict=True)])[kept]

            return Ball(n, all_of(lambda x: x.mid), all_of(lambda x: x.radius), tail=all_of(lambda x: x.tail))

        return joined([value for value, _ in values]), joined([scale for _, scale in values])

    def _nothing(self, output: str, index: Tensor) -> Tensor:
        """Whether the element's row of queries sees no key."""
        if oracle.OUTPUTS[output] == "key" or (mask := self._visible) is None:
            return torch.zeros(len(index), dtype=torch.bool)
        size = self.shape.outputs[output]
        seen = mask.any(-1).expand(size[:3]).reshape(-1)
        return ~seen[index // (size[-1] if output != "logsumexp" else 1)]

    @cached_property
    def _visible(self) -> Tensor | None:
        return unmasked(self.shape, self.problem.extra["buffers"], "cpu")

    # Multiprecision

    def exact(self, output: str, index: int) -> Iterator[Truth]:
        """See `Source.exact`: special rows, exact rationals where all weights are equal, else fixed point."""
        b, h, row, column = self._position(output, index)
        special = self._special(output, index, b, h, row)
        if special is not None:
            yield special
            return
        if output in ("dq", "dk", "dv") and self._zeros(output)[index]:
            yield Truth("either-zero")
            return
        rational = self._rational(output, b, h, row, column)
        if rational is not None:
            yield rational
            return
        places, truth = self._places, None
        while places <= MOST_PLACES:
            with contextlib.suppress(Inexact, ZeroDivisionError):
                truth = self._fixed(output, b, h, row, places).truth(self._inside(output, row), column)
                yield truth
            places *= 2
        if truth is not None and truth.kind == "real" and -NOTHING < truth.lo <= 0 <= truth.hi < NOTHING:
            yield Truth("either-zero")

    def scale(self, output: str, index: int) -> Truth | None:
        """The scale from the balls, since only its binade matters: below the normal range there is one."""
        found = self._balls[output]
        low, high = (float(t[index]) for t in (found.scale, found.largest))
        if math.frexp(low)[1] != math.frexp(high)[1]:  # beside a power of two, which double-double may tell
            _, least = self._double(output, torch.tensor([index]))
            low = low if least is None else min(max(low, float(least[0, 0])), high)
        known = low > TINY_SCALE or high <= float(FORMATS[self.problem.dtype].smallest_normal)
        return Truth.real(Fraction(low), Fraction(high)) if known else None

    def explain(self, output: str, index: int) -> list[tuple[str, str]]:
        """The terms of one element, largest weights first, then its sums."""
        b, h, row, column = self._position(output, index)
        what = oracle.OUTPUTS[output]
        lines = [(f"{what} {row}", f"batch {b}, {'key ' if what == 'key' else ''}head {h}, column {column}")]
        for condition, name, gives, source in oracle.SPECIAL:
            if name == output and self._special(output, index, b, h, row) is not None:
                return [*lines, (condition, f"{gives} ({source})")]
        if what == "key":
            return lines + self._explain_key(output, b, h, row, column)
        head = self._fixed_head(FixedMatrices(self._places), b, h, [row])
        n = head.query.n
        scores, modified = (_reals(x)[0] for x in oracle.scored(n, head))
        found = oracle.attention(n, head)
        weights = _reals(found.weights())[0]
        hidden = np.broadcast_to(False if head.mask is None else ~head.mask, (1, len(weights)))[0]
        terms = weights
        if output == "out":
            terms = weights * _reals(head.value)[:, column]
        elif output == "dq" and found.change is not None:
            terms = _reals(found.change())[0] * _reals(head.key)[:, column] * self.shape.scale
        order = np.argsort(-abs(np.where(hidden, 0.0, terms)), kind="stable")
        order = order[~hidden[order]]
        for j in order[:MOST_TERMS]:
            text = f"score {scores[j]:.9g}"
            if modified[j] != scores[j]:
                text += f", modified {modified[j]:.9g}"
            text += f", weight {weights[j]:.9g}"
            lines.append((f"key {j}", text if output == "logsumexp" else f"{text}, term {terms[j]:.9g}"))
        if len(order) > MOST_TERMS:
            left = order[MOST_TERMS:]
            of = "weights" if output == "logsumexp" else "terms"
            lines.append(("further keys", f"{len(left)}, whose {of} sum to {math.fsum(terms[left]):.9g}"))
        lines.append(("hidden keys", str(int(hidden.sum()))))
        lines.append(("logsumexp", f"{_reals(found.outputs['logsumexp'].value())[0, 0]:.17g}"))
        return lines

    def _explain_key(self, output: str, b: int, h: int, key: int, column: int) -> list[tuple[str, str]]:
        """The terms of a gradient of keys or values: one for each query of each head that sees the key."""
        n, terms = FixedMatrices(self._places), []
        for i in range(h * self.shape.group, (h + 1) * self.shape.group):
            rows = self._rows_that_see(b, i, key)
            if not rows:
                continue
            head = self._fixed_head(n, b, i, rows)
            found = oracle.attention(n, head)
            weights = _reals(found.weights())[:, key]
            if output == "dv":
                parts = weights * _reals(head.grad_out)[:, column]
            else:
                assert found.change is not None  # a gradient is asked for
                parts = _reals(found.change())[:, key] * _reals(head.query)[:, column] * self.shape.scale
            terms += [(i, row, weights[k], parts[k]) for k, row in enumerate(rows)]
        terms.sort(key=lambda term: -abs(term[3]))
        lines = [
            (f"head {i}, query {row}", f"weight {weight:.9g}, term {part:.9g}")
            for i, row, weight, part in terms[:MOST_TERMS]
        ]
        if len(terms) > MOST_TERMS:
            rest = math.fsum(term[3] for term in terms[MOST_TERMS:])
            lines.append(("further queries", f"{len(terms) - MOST_TERMS}, whose terms sum to {rest:.9g}"))
        return lines

    def _position(self, output: str, index: int) -> tuple[int, int, int, int]:
        """(batch, head, row, column); the head of keys for gradients of keys and values."""
        size = self.shape.outputs[output]
        place = [int(i) for i in np.unravel_index(index, size)]
        return (place[0], place[1], place[2], place[3] if len(size) == 4 else 0)

    def _inside(self, output: str, row: int) -> int:
        return row if oracle.OUTPUTS[output] == "key" else 0

    def _special(self, output: str, index: int, b: int, h: int, row: int) -> Truth | None:
        if oracle.OUTPUTS[output] == "query":
            if not bool(self._nothing(output, torch.tensor([index]))[0]):
                return None
            return Truth("-inf" if output == "logsumexp" else "either-zero")
        heads = range(h * self.shape.group, (h + 1) * self.shape.group)
        return None if any(self._rows_that_see(b, head, row) for head in heads) else Truth("either-zero")

    def _rows_that_see(self, b: int, h: int, key: int) -> list[int]:
        if self._visible is None:
            return list(range(self.shape.q_len))
        mask = self._visible.expand(self.shape.batch, self.shape.heads, self.shape.q_len, self.shape.kv_len)
        return [int(i) for i in mask[b, h, :, key].nonzero().reshape(-1)]

    @cached_property
    def _host(self) -> dict[str, np.ndarray]:
        return {name: t.detach().cpu().to(torch.float64).numpy() for name, t in self.problem.tensors.items()}

    @cached_property
    def _host_tables(self) -> dict[str, Any]:
        tables = widened(self.problem.extra["buffers"])
        return {name: t.numpy() if isinstance(t, Tensor) else t for name, t in tables.items()}

    @cached_property
    def _places(self) -> int:
        """Places that hold scores and the products of a score with a table's entry exactly."""
        host, tables = self._host, [t for t in self._host_tables.values() if getattr(t, "dtype", None) == np.float64]
        scale = places_for(np.array([self.shape.scale]))
        scores = places_for(host["query"]) + places_for(host["key"]) + scale
        return max(PLACES, scores, places_for(host["value"], host["grad_out"], *tables))

    def _fixed(self, output: str, b: int, h: int, row: int, places: int) -> Fixed:
        """An output's row of queries, or all keys of a head."""
        whole = oracle.OUTPUTS[output] == "key"
        key = (places, b, h, None if whole else row)
        if key not in self._kept:
            if not whole:  # the integers of a long row take megabytes
                self._rows.append(key)
                if len(self._rows) > KEPT_ROWS:
                    del self._kept[self._rows.pop(0)]
            n = FixedMatrices(places)
            heads = range(h * self.shape.group, (h + 1) * self.shape.group) if whole else [h]
            rows = list(range(self.shape.q_len)) if whole else [row]
            self._kept[key] = [oracle.attention(n, self._fixed_head(n, b, i, rows)).outputs for i in heads], {}
        parts, values = self._kept[key]
        if output not in values:
            first, *others = (part[output].value() for part in parts)
            values[output] = sum(others, first)
        found: Fixed = values[output]
        return found

    def _fixed_head(self, n: Any, b: int, h: int, rows: list[int], keys: Array | None = None) -> oracle.Head:
        """Rows of one head as values of a multiprecision system; keys: those that are looked at, None for all."""
        shape, host, g = self.shape, self._host, h // self.shape.group
        queries = np.array(rows, dtype=np.int64)
        columns = np.arange(shape.kv_len) if keys is None else keys
        place = oracle.Place(np.array([[b]]), np.array([[h]]), queries[:, None], columns[None, :])
        mask = oracle.visible(shape.score_mod, shape.mask_mod, place, self._host_tables)
        seen = None if mask is None else mask.any(-1, keepdims=True)
        return oracle.Head(
            query=n.input(host["query"][b, h][queries]),
            key=self._keys_or_values(n, "key", b, g, keys),
            value=self._keys_or_values(n, "value", b, g, keys),
            grad_out=n.input(host["grad_out"][b, h][queries]) if shape.backward else None,
            scale=shape.scale,
            score_mod=self.score_mod,
            place=place,
            buffers=self._host_tables,
            mask=mask,
            empty=None if seen is None or seen.all() else ~seen,
        )

    def _keys_or_values(self, n: Any, name: str, b: int, g: int, keys: Array | None) -> Any:
        """A head's keys or values in `n`, those of `keys`; of all the integers are made once for each precision."""
        if keys is not None:
            return n.input(self._host[name][b, g][keys])
        key = ("input", n.places, name, b, g)
        if key not in self._kept:
            self._kept[key] = n.input(self._host[name][b, g])
        kept: Fixed = self._kept[key]
        return Fixed(n, kept.mid, kept.rad)

    def _zeros(self, output: str) -> Array:
        """Which elements of a gradient are exactly 0, as no interval of a sum ever shows.

        sum_j P_j (dP_j - sum P dP) k_j is the covariance of dP and k under P: it is 0 where either is the same for all
        visible keys, for k only where the derivative of score_mod is too. A row's share of dk is 0 where its dP is the
        same for all, or its query is 0, and of dv where its dO is.
        """
        key = ("zeros", output)
        if key in self._kept:
            found: Array = self._kept[key]
            return found
        shape, host = self.shape, self._host
        zero = np.ones(shape.outputs[output], dtype=bool)
        for b in range(shape.batch):
            for h in range(shape.heads):
                g = h // shape.group
                for row in range(shape.q_len):
                    keys = self._keys_seen(b, h, row)
                    flat = output != "dv" and len(keys) > 0 and self._equal_passed(b, h, row, keys)
                    if output == "dq":
                        seen = host["key"][b, g][keys]
                        same = shape.score_mod in LINEAR and (seen == seen[:1]).all(0)
                        zero[b, h, row] = flat | same
                    elif not flat:
                        factor = host["query" if output == "dk" else "grad_out"][b, h, row]
                        zero[b, g][keys] &= factor == 0
        self._kept[key] = zero.reshape(-1)
        return self._zeros(output)

    def _equal_passed(self, b: int, h: int, row: int, keys: Array) -> bool:
        """Whether dP = dO v^T of a row is the same for all `keys`, exactly."""
        key = ("passed", b, h, row)
        if key not in self._kept:
            grad, values = self._host["grad_out"][b, h][[row]], self._host["value"][b, h // self.shape.group][keys]
            rough = values @ grad[0]
            same = bool(np.ptp(rough) <= 1e-9 * (abs(values) @ abs(grad[0])).max(initial=1.0))
            if same:
                n = FixedMatrices(places_for(grad) + places_for(values))
                exact = n.matmul(n.input(grad), n.input(values.T.copy())).mid[0]
                same = bool((exact == exact[0]).all())
            self._kept[key] = same
        found: bool = self._kept[key]
        return found

    def _keys_seen(self, b: int, h: int, row: int) -> Array:
        if self._visible is None:
            return np.arange(self.shape.kv_len)
        mask = self._visible.expand(self.shape.batch, self.shape.heads, self.shape.q_len, self.shape.kv_len)
        return mask[b, h, row].nonzero().reshape(-1).numpy()

    def _rational(self, output: str, b: int, h: int, row: int, column: int) -> Truth | None:
        """The element as a rational where every row that it depends on has equal scores; None elsewhere.

        Such elements can be ties, representable or zero, which no interval ever decides.
        """
        group = self.shape.group
        query = oracle.OUTPUTS[output] == "query"
        heads = [h] if query else list(range(h * group, (h + 1) * group))
        rows = {i: [row] if query else self._rows_that_see(b, i, row) for i in heads}
        rows = {i: some for i, some in rows.items() if some}
        if sum(map(len, rows.values())) * self.shape.kv_len > RATIONAL_SCORES:
            return None
        if not all(self._equal_scores(b, i, some) for i, some in rows.items()):
            return None
        n = RationalMatrices()
        total = n.const(0)
        for i, some in rows.items():
            key = ("rational", b, i, tuple(some))
            if key not in self._kept:
                keys = self._keys_seen(b, i, row) if query else np.arange(self.shape.kv_len)
                self._kept[key] = oracle.attention(n, self._fixed_head(n, b, i, some, keys)).outputs
            total = total + self._kept[key][output].value()
        return total.truth(self._inside(output, row), column)

    def _equal_scores(self, b: int, h: int, rows: list[int]) -> bool:
        key = ("equal", b, h)
        if key not in self._kept:
            self._kept[key] = {}
        known: dict[int, bool] = self._kept[key]
        for row in rows:
            if row not in known:
                head = self._fixed_head(FixedMatrices(self._places), b, h, [row])
                modified = oracle.scored(head.query.n, head)[1].mid[0]
                seen = modified if head.mask is None else modified[np.broadcast_to(head.mask, (1, len(modified)))[0]]
                known[row] = len(seen) > 0 and bool((seen == seen[0]).all())
            if not known[row]:
                return False
        return True


#: The most terms that an explanation lists.
MOST_TERMS = 8
#: A scale is positive: this bound replaces one that may be 0.
TINY_SCALE = 2.0**-1000


def score_mod(shape: Shape) -> Callable[..., Any]:
    """The setting's score modification over a number system: a named one, or a user's own function."""
    return shape.function or oracle.SCORE_MODS[shape.score_mod]


def _parts(value: RowBall, scale: RowBall) -> tuple[Tensor, ...]:
    """A block of an output, flattened: midpoints and radii of its values and of their scales."""
    return tuple(t.reshape(-1) for t in (value.mid, value.radius, scale.mid, scale.radius))


def _hidden(empty: Tensor | None, value: RowBall) -> Tensor | None:
    """Elements in rows that see nothing, flattened."""
    return None if empty is None else empty.expand_as(value.mid).reshape(-1)


def _enclosed(name: str, blocks: list[tuple[Tensor, ...]], hidden: list[Tensor | None]) -> _Enclosed:
    """An output; rows that see nothing by the special rows, see `verify.oracles.flex_attention.SPECIAL`."""
    mid, rad, scale, spread = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    rad = rad * GROW + mid.abs() * 2.0**-52
    size, spread = scale.abs(), spread * GROW
    lower, upper = size * (1 - 2.0**-40) - spread, size * (1 + 2.0**-40) + spread
    empty = None
    if name in ("out", "logsumexp") and any(part is not None for part in hidden):
        sized = zip(hidden, blocks, strict=True)
        empty = torch.cat([torch.zeros_like(b[0], dtype=torch.bool) if part is None else part for part, b in sized])
        mid = torch.where(empty, 0.0 if name == "out" else -torch.inf, mid)
        rad = torch.where(empty, 0.0, rad)
    return _Enclosed(mid, rad, lower.clamp(min=TINY_SCALE), upper, empty if name == "out" else None)


def _reals(a: Fixed) -> Array:
    """Midpoints as float64."""
    return np.vectorize(lambda x: float(Fraction(int(x), 1 << a.n.places)), otypes=[float])(a.mid)
