"""Scores, weights and gradients of softmax attention over a number system of matrices, for one head.

Each is written once: balls on tensors and multiprecision evaluate the same lines. Which keys a query may see are
predicates on integer indices; what is done to a score is a real function, differentiated by dual numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

#: Arrays of integers or numbers, in torch on tensors and in numpy in multiprecision.
Array: TypeAlias = Any
#: score_mod(n, score, batch, head, query, key, buffers) -> modified score; indices are integer arrays.
ScoreMod: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Place:
    """Where a block of scores stands: integer arrays that broadcast against it."""

    batch: Array
    head: Array
    query: Array
    key: Array

    @property
    def indices(self) -> tuple[Array, Array, Array, Array]:
        return self.batch, self.head, self.query, self.key


# Score modifications. Buffers hold numbers of the lowering's own tables, exactly.


def unchanged(n: Any, score: Any, b: Array, h: Array, q: Array, kv: Array, buffers: Mapping[str, Array]) -> Any:
    return score


def alibi(n: Any, score: Any, b: Array, h: Array, q: Array, kv: Array, buffers: Mapping[str, Array]) -> Any:
    """A slope of the head times the distance (Press, Smith, Lewis, ICLR 2022, section 3)."""
    return score + n.input(buffers["slopes"][h]) * n.index(kv - q)


def relative_bias(n: Any, score: Any, b: Array, h: Array, q: Array, kv: Array, buffers: Mapping[str, Array]) -> Any:
    """The head's entry for the distance, clipped to the table (Raffel et al., JMLR 21, 2020, section 2.1)."""
    table = buffers["bias"]
    reach = table.shape[-1] // 2
    return score + n.input(table[h, (kv - q).clip(-reach, reach) + reach])


def soft_cap(n: Any, score: Any, b: Array, h: Array, q: Array, kv: Array, buffers: Mapping[str, Array]) -> Any:
    """cap tanh(score / cap) (Gemma Team, arXiv 2408.00118, section 2)."""
    return n.tanh(score / buffers["soft_cap"]) * buffers["soft_cap"]


#: The usual cap. Not a power of two, so that the division and the multiplication round.
SOFT_CAP = 50
#: Keys that a sliding window shows beside the query's own position.
WINDOW = 20

SCORE_MODS: Mapping[str, ScoreMod] = {
    "none": unchanged,
    "causal": unchanged,  # as a score_mod it gives -inf, which is a mask: see `visible`
    "alibi": alibi,
    "relative_bias": relative_bias,
    "soft_cap": soft_cap,
}

# Masks: True where the query sees the key.


def causal(b: Array, h: Array, q: Array, kv: Array, buffers: Mapping[str, Array]) -> Array:
    return kv <= q


def sliding_window(b: Array, h: Array, q: Array, kv: Array, buffers: Mapping[str, Array]) -> Array:
    return (kv <= q) & (q - kv <= buffers["window"])


def document(b: Array, h: Array, q: Array, kv: Array, buffers: Mapping[str, Array]) -> Array:
    """Tokens of one document see one another."""
    return buffers["query_document"][q] == buffers["key_document"][kv]


def masked_rows(b: Array, h: Array, q: Array, kv: Array, buffers: Mapping[str, Array]) -> Array:
    """Causal, and every fifth query from the third on sees nothing."""
    return (kv <= q) & (q % 5 != 2)


MASK_MODS: Mapping[str, Callable[..., Array] | None] = {
    "none": None,
    "causal": causal,
    "sliding_window": sliding_window,
    "document": document,
    "masked_rows": masked_rows,
}


def visible(score_mod: str, mask_mod: str, place: Place, buffers: Mapping[str, Array]) -> Array | None:
    """Which scores take part: booleans that broadcast against them, None for all."""
    found = None if (mask := MASK_MODS[mask_mod]) is None else mask(*place.indices, buffers)
    if score_mod == "causal":
        seen = causal(*place.indices, buffers)
        found = seen if found is None else found & seen
    return found


# Attention


@dataclass(frozen=True)
class Head:
    """A block of query rows of one head, or of a stack of heads, against all their keys: values of a number system.

    query (m, d), key (n, d), value (n, e), grad_out (m, e) or None, each with one more axis before these in a stack;
    `scale` is the exact double. `mask` (m, n) and `empty` (m, 1: rows that see nothing) are booleans, None for
    everything and nothing.
    """

    query: Any
    key: Any
    value: Any
    grad_out: Any
    scale: float
    score_mod: ScoreMod
    place: Place
    buffers: Mapping[str, Array]
    mask: Array | None = None
    empty: Array | None = None


def scored(n: Any, head: Head) -> tuple[Any, Any]:
    """Scores before and after their modification."""
    scores = n.matmul(head.query, n.transpose(head.key)) * head.scale
    return scores, head.score_mod(n, scores, *head.place.indices, head.buffers)


@dataclass(frozen=True)
class Output:
    """An output of a block, and the sum of the magnitudes of its terms; each is computed when called."""

    value: Callable[[], Any]
    scale: Callable[[], Any]


@dataclass(frozen=True)
class Attention:
    """The outputs of a block, and what their terms are made of: the weights P and dS (None without gradients)."""

    outputs: Mapping[str, Output]
    weights: Callable[[], Any]
    change: Callable[[], Any] | None = None


def attention(n: Any, head: Head) -> Attention:
    """out, logsumexp, dq, dk and dv of a block; dk and dv are its share of a sum over the rows and heads of a key.

    out = softmax(f(scale q k^T)) v, logsumexp = log sum exp f(...), and the gradients of sum(grad_out * out):
    dv = P^T dO, dS = P (dP - rowsum(P dP)) f'(S) with dP = dO v^T, dq = scale dS k, dk = scale dS^T q (Dao et al.,
    NeurIPS 2022, appendix B.2, where rowsum(P dP) is also rowsum(dO O)). Rows that see nothing get 0; special rows say
    what they are.
    """

    @cache
    def modified() -> tuple[Any, Any]:
        return scored(n, head)

    @cache
    def exponentials() -> tuple[Any, Any, Any]:
        """The shift of each row, exp(f - shift), and its sum."""
        top = n.shift(modified()[1], head.mask)
        # Hidden scores may be anything, so that 0 stands for them until their weight is set to 0.
        below = n.masked(head.mask, modified()[1] - top)
        if head.grad_out is None:  # the scores have served, and are large
            modified.cache_clear()
        terms = n.masked(head.mask, n.exp(below))
        total = n.sum(terms)
        return top, terms, total if head.empty is None else n.where(head.empty, 1, total)

    @cache
    def product() -> tuple[Any, Callable[[], Any]]:
        return n.matmul_sizes(exponentials()[1], head.value)  # type: ignore[no-any-return]

    @cache
    def log_total() -> Any:
        return n.log(exponentials()[2])

    @cache
    def weights() -> Any:
        return exponentials()[1] / exponentials()[2]

    @cache
    def passed() -> Any:
        return n.matmul(head.grad_out, n.transpose(head.value))

    @cache
    def mean() -> Any:
        return n.sum(weights() * passed())

    @cache
    def slope() -> Any:
        return derivative(n, head.score_mod, modified()[0], head.place, head.buffers)

    @cache
    def change() -> Any:
        return _times(weights() * (passed() - mean()), slope())

    @cache
    def size_of_change() -> Any:
        steep = slope() if isinstance(slope(), int) else abs(slope())
        return _times(weights() * (abs(passed()) + abs(mean())), steep)

    @cache
    def values_gradient() -> tuple[Any, Callable[[], Any]]:
        return n.matmul_sizes(n.transpose(weights()), head.grad_out)  # type: ignore[no-any-return]

    found = {
        "out": Output(lambda: product()[0] / exponentials()[2], lambda: product()[1]() / exponentials()[2]),
        "logsumexp": Output(lambda: log_total() + exponentials()[0], lambda: abs(log_total()) + abs(exponentials()[0])),
    }
    if head.grad_out is None:
        return Attention(found, weights)
    found |= {
        "dq": Output(
            lambda: n.matmul(change(), head.key) * head.scale,
            lambda: n.matmul(size_of_change(), abs(head.key)) * head.scale,
        ),
        "dk": Output(
            lambda: n.matmul(n.transpose(change()), head.query) * head.scale,
            lambda: n.matmul(n.transpose(size_of_change()), abs(head.query)) * head.scale,
        ),
        "dv": Output(lambda: values_gradient()[0], lambda: values_gradient()[1]()),
    }
    return Attention(found, weights, change)


# Dual numbers: a value and its derivative with respect to the score (Griewank & Walther, 2008, section 3.1).


@dataclass(frozen=True, eq=False)
class Dual:
    """value + slope e with e^2 = 0; a slope that is the int 0 or 1 stays one."""

    n: Any
    value: Any
    slope: Any = 0

    def _other(self, other: Any) -> Dual:
        return other if isinstance(other, Dual) else Dual(self.n, self.n.const(other))

    def __add__(self, other: Any) -> Dual:
        b = self._other(other)
        return Dual(self.n, self.value + b.value, _plus(self.slope, b.slope))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dual:
        return self + -self._other(other)

    def __rsub__(self, other: Any) -> Dual:
        return self._other(other) + -self

    def __neg__(self) -> Dual:
        return Dual(self.n, -self.value, _times(-1, self.slope))

    def __mul__(self, other: Any) -> Dual:
        b = self._other(other)
        return Dual(self.n, self.value * b.value, _plus(_times(self.value, b.slope), _times(self.slope, b.value)))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        b = self._other(other)
        value = self.value / b.value
        rest = _plus(self.slope, _times(-1, _times(value, b.slope)))
        return Dual(self.n, value, rest if isinstance(rest, int) and rest == 0 else rest / b.value)

    def __rtruediv__(self, other: Any) -> Dual:
        return self._other(other) / self


class DualSystem:
    """Dual numbers over a number system. An absolute value or a maximum of scores has no derivative everywhere."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def const(self, value: Any) -> Dual:
        return value if isinstance(value, Dual) else Dual(self.n, self.n.const(value))

    def input(self, values: Array) -> Dual:
        return Dual(self.n, self.n.input(values))

    def index(self, values: Array) -> Dual:
        return Dual(self.n, self.n.index(values))

    def exp(self, a: Dual) -> Dual:
        value = self.n.exp(a.value)
        return Dual(self.n, value, _times(value, a.slope))

    def log(self, a: Dual) -> Dual:
        return Dual(self.n, self.n.log(a.value), a.slope if _nothing(a.slope) else a.slope / a.value)

    def sqrt(self, a: Dual) -> Dual:
        value = self.n.sqrt(a.value)
        return Dual(self.n, value, a.slope if _nothing(a.slope) else a.slope / (value * 2))

    def tanh(self, a: Dual) -> Dual:
        value = self.n.tanh(a.value)
        return Dual(self.n, value, _times(1 - value * value, a.slope))

    def where(self, predicate: Array, a: Any, b: Any) -> Dual:
        x, y = self.const(a), self.const(b)
        same = isinstance(x.slope, int) and isinstance(y.slope, int) and x.slope == y.slope
        slope = x.slope if same else self.n.where(predicate, x.slope, y.slope)
        return Dual(self.n, self.n.where(predicate, x.value, y.value), slope)


def derivative(n: Any, score_mod: ScoreMod, scores: Any, place: Place, buffers: Mapping[str, Array]) -> Any:
    """d score_mod / d score; the int 1 or 0 where it is that everywhere."""
    return score_mod(DualSystem(n), Dual(n, scores, 1), *place.indices, buffers).slope


def _nothing(a: Any) -> bool:
    return isinstance(a, int) and a == 0


def _plus(a: Any, b: Any) -> Any:
    return b if _nothing(a) else a if _nothing(b) else a + b


def _times(a: Any, b: Any) -> Any:
    if _nothing(a) or _nothing(b):
        return 0
    if isinstance(a, int) and a == 1:
        return b
    return a if isinstance(b, int) and b == 1 else a * b
