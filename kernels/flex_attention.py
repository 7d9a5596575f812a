"""flex_attention, forward and backward: settings, their parameters, and where the rest is.

`Shape` is a setting as a value. Problems and truth are in `_flex`, bounds in `_flex_algorithms`, what runs in
`_flex_lowerings`; none of them, nor torch, is imported until something runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

from verify.facts.kernel import (
    LARGE,
    SUBNORMAL,
    Composite,
    Setting,
    UsageError,
    drawn_size,
    in_pairs,
    lazily,
    suggest,
    whole_number,
)
from verify.oracles.flex_attention import MASK_MODS, SCORE_MODS, SOFT_CAP, SPECIAL, WINDOW

#: Reach of the relative bias, in keys either way.
REACH = 16
DOCUMENTS = {
    "runs": "runs of queries and of keys, in their order",
    "late": "the same, of which the queries have those of the last keys",
    "turns": "three documents, each of every third query and key",
    "near": "runs whose numbers are neighbours from 2^8, 2^11, 2^24 and 2^53, which half types, float32 and float64 "
    "do not tell apart",
    "apart": "no query's document is a key's",
    "far": "runs whose numbers are negative or differ by multiples of 2^8 or 2^32",
}
SLOPES = {
    "falling": "positive ones, smaller with each head, as alibi's paper has them",
    "signed": "every other one negative, the first too",
    "steep": "1/2, and half as much with each head, which makes far keys lower by more than exp's range",
}
BIASES = {"usual": "of variance 1", "large": "10 times as large, as trained ones are"}
HALVES_AND_SINGLE = ("float16", "bfloat16", "float32")
RECIPES = {
    "normal": "queries and keys of variance 1; in every other head of keys nothing cancels, as in the next three",
    "uniform": "queries and keys at right angles, so that all scores are 0",
    "competing": "scores near +40 and -40 whose keys differ by about 1",
    "extreme": "scores near +105 and -105, beyond the range of exp in float32",
    "alone": "one key near 52 whose score is every query's logsumexp, and others near 0",
    "scaled": "as normal; values are large and gradients small, by 2^17 and 2^30, or by 2^8 in float16",
    "faint": "one key near 40, others lower by 12 to 36 and by 6 for each 64 keys, with values larger by as much, up "
    "to the dtype's range",
    "steep": "scores from -2^14 to 2^14, larger with each key, which a mask of less than 2^15 does not hide",
    "climbing": "scores that rise by 2.5 for each 64 keys, evenly, and for every other query fall as much",
    "keen": "queries and keys of variance 9, without a common part, so that what scores lose does not cancel",
    "vast": "scores from 2^16 to 2^17, larger with each key, which no half type holds, and from -2^16 to -2^17",
    "small": "as normal; values and gradients are about 2^-15, subnormal in float16",
    "exact": "queries and keys at right angles, whole numbers: nothing is rounded where the count is a power of two",
}
#: The error of exp on the host, in units of u = 2^-24, and its source.
EXP_UNITS, EXP_SOURCE = 40.0, "ATen, exp_u20"
#: Elements of a tensor, and scores, beyond which a setting is refused before it fills the memory.
MOST_ELEMENTS, MOST_SCORES = 1 << 28, 1 << 33


@dataclass(frozen=True)
class Shape:
    """A setting: sizes, score modification, mask, data, and whether gradients are taken."""

    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    q_len: int = 100
    kv_len: int = 100
    head_dim: int = 64
    score_mod: str = "none"
    mask_mod: str = "none"
    data: str = "normal"
    backward: bool = True
    scale: float = 0.0  # where none is given 1 / sqrt(head_dim) as the double that flex_attention takes by default
    soft_cap: float = SOFT_CAP
    window: int = WINDOW
    reach: int = REACH
    documents: str = "runs"
    slopes: str = "falling"
    biases: str = "usual"
    #: A user's score_mod over a number system, where `score_mod` is FILE.py:FUNCTION.
    function: Callable[..., Any] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Shape:
        """The validated shape of a setting's parameters. Raises UsageError."""
        shape = cls(**parameters)
        for name in ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "reach"):
            if (size := getattr(shape, name)) < 1:
                raise UsageError(f"{name}={size}: expected at least 1; flex_attention of nothing is not defined")
        if shape.heads % shape.kv_heads:
            raise UsageError(
                f"heads={shape.heads} is not a multiple of kv_heads={shape.kv_heads}: "
                "each head of keys serves the same number of query heads"
            )
        elements = max(math.prod(shape.of_queries), math.prod(shape.of_keys))
        scores = shape.batch * shape.heads * shape.q_len * shape.kv_len
        if elements > MOST_ELEMENTS or scores > MOST_SCORES:
            most = f"{MOST_ELEMENTS:,} and {MOST_SCORES:,}"
            raise UsageError(f"{elements:,} elements in a tensor and {scores:,} scores; expected at most {most}")
        named = {
            "mask_mod": MASK_MODS, "data": RECIPES, "documents": DOCUMENTS, "slopes": SLOPES, "biases": BIASES,
        }  # fmt: skip
        for what, known in ((what, tuple(names)) for what, names in named.items()):
            if getattr(shape, what) not in known:
                raise UsageError(suggest(what, getattr(shape, what), known))
        if shape.score_mod in SCORE_MODS:
            return shape
        if ":" not in shape.score_mod:
            raise UsageError(f"{suggest('score_mod', shape.score_mod, tuple(SCORE_MODS))}, or FILE.py:FUNCTION")
        from verify.kernels._flex_user import load

        return replace(shape, function=load(shape.score_mod))

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", self.scale or self.usual_scale)

    @property
    def usual_scale(self) -> float:
        return 1.0 / math.sqrt(max(1, self.head_dim))

    @property
    def group(self) -> int:
        """Query heads that share a head of keys and values."""
        return self.heads // self.kv_heads

    @property
    def of_queries(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.q_len, self.head_dim

    @property
    def of_keys(self) -> tuple[int, int, int, int]:
        return self.batch, self.kv_heads, self.kv_len, self.head_dim

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of each output that the setting has."""
        forward: dict[str, tuple[int, ...]] = {"out": self.of_queries, "logsumexp": self.of_queries[:3]}
        return forward | ({"dq": self.of_queries, "dk": self.of_keys, "dv": self.of_keys} if self.backward else {})


def custom(given: Mapping[str, str]) -> Setting:
    """A setting from --set NAME=VALUE texts; defaults are those of `Shape`. Raises UsageError."""
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name == "length":
            values |= dict.fromkeys(("q_len", "kv_len"), whole_number(name, text))
        elif name == "backward":
            if text not in ("yes", "no"):
                raise UsageError(f"backward={text}: expected yes or no")
            values[name] = text == "yes"
        elif name in ("score_mod", "mask_mod", "data", "documents", "slopes", "biases"):
            values[name] = text
        elif name in ("scale", "soft_cap"):
            values[name] = _positive(name, text)
        else:
            values[name] = whole_number(name, text)
    if "heads" in values:
        values.setdefault("kv_heads", values["heads"])
    return _setting(" ".join(f"{name}={text}" for name, text in given.items()), Shape.of(values))


def _positive(name: str, text: str) -> float:
    """A whole number stays one, as people write caps."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 2.0**-20 <= found <= 2.0**10:
        raise UsageError(f"{name}={text}: expected a number from 2^-20 to 2^10")
    return int(found) if name == "soft_cap" and found.is_integer() else found


def parameters(shape: Shape) -> dict[str, Any]:
    """The shape as a setting's parameters."""
    usual = {
        "scale": shape.usual_scale, "soft_cap": SOFT_CAP, "window": WINDOW, "reach": REACH, "documents": "runs",
        "slopes": "falling", "biases": "usual",
    }  # fmt: skip
    found = {f.name: getattr(shape, f.name) for f in fields(shape) if f.name != "function"}
    return {name: value for name, value in found.items() if usual.get(name) != value}


#: What a modification or a mask reads besides the scores.
READS = {"alibi": ("slopes",), "relative_bias": ("bias",), "document": ("query_document", "key_document")}


def asks(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """A modification, a mask, what they read, and numbers other than the usual ones; see `Composite.asks`."""
    found: list[str] = []
    for name in ("score_mod", "mask_mod"):
        if (mod := parameters[name]) != "none":
            found += [name, *READS.get(mod, ())]
    return (*found, *(name for name in ("scale", "soft_cap", "window") if name in parameters))


def setting(name: str, quick: bool = False, **values: Any) -> Setting:
    return _setting(name, Shape(**values), quick)


def _setting(name: str, shape: Shape, quick: bool = False) -> Setting:
    return Setting(name, parameters(shape), HALVES_AND_SINGLE, quick, work=math.prod(shape.of_queries) * shape.kv_len)


SETTINGS = (
    # Lengths are not multiples of a block, of 16 keys at least. From 128 queries on, flex_attention's main kernel runs
    # rather than the one for decoding; cuBLAS takes tf32 only where rows are a multiple of 4 keys long.
    setting("competing", quick=True, q_len=130, kv_len=76, data="competing", mask_mod="causal"),
    setting("soft-cap window", quick=True, heads=4, kv_heads=2, q_len=131, kv_len=131, data="competing",
            score_mod="soft_cap", mask_mod="sliding_window"),
    # Keys without a common part and few numbers to a sum: a rounding of dS to tf32 shows in float32.
    setting("plain 16", quick=True, head_dim=16, q_len=130, kv_len=67),
    # Any other bit is a fault.
    setting("exact", quick=True, q_len=128, kv_len=64, data="exact"),
    setting("exact, shared keys", heads=4, kv_heads=2, q_len=130, kv_len=128, data="exact"),
    setting("plain", q_len=100, kv_len=67),
    setting("causal score_mod", quick=True, q_len=129, kv_len=129, score_mod="causal", data="extreme"),
    setting("alibi documents", batch=2, heads=3, kv_heads=1, q_len=90, kv_len=90, score_mod="alibi",
            mask_mod="document"),
    setting("relative bias 128", head_dim=128, q_len=65, kv_len=97, score_mod="relative_bias", data="competing"),
    setting("masked rows", q_len=83, kv_len=83, mask_mod="masked_rows"),
    setting("extreme 72", head_dim=72, q_len=50, kv_len=65, data="extreme"),  # 128 terms of a score resolve nothing
    setting("uniform", q_len=40, kv_len=40, data="uniform", mask_mod="causal"),
    # one product of matrices in an output, whose formula can be told
    setting("one key", q_len=130, kv_len=80, data="alone", backward=False),
    setting("uniform 64", q_len=130, kv_len=64, data="uniform"),
    setting("long", heads=2, q_len=1031, kv_len=1031, data="competing", mask_mod="causal", backward=False),
)  # fmt: skip


#: In the order of `_flex_lowerings`, which imports torch.
LOWERINGS = (
    "eager",
    "compiled",
    "eager-tf32",
    "compiled-tf32",
    "sdpa-math",
    "sdpa-math-tf32",
    "sdpa-flash",
    "sdpa-efficient",
    "sdpa-cudnn",
    "triton",
    "triton-tf32",
    "triton-interpreter",
)

#: Plain attention, from which a user's own lowering starts.
STUB = '''\
def flex_attention(
    query, key, value, grad_out, scale, score_mod, mask_mod, soft_cap, window, slopes, bias, query_document,
    key_document, backward,
):
    inputs = [t.detach().requires_grad_(backward) for t in (query, key, value)]
    with torch.enable_grad():
        q, k, v = (t.float() for t in inputs)
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        scores = modified(q @ k.mT * scale, score_mod, soft_cap, slopes, bias)
        hidden = unseen(scores.shape, score_mod, mask_mod, window, query_document, key_document, query.device)
        scores = scores.masked_fill(hidden, -torch.inf)
        empty = hidden.all(-1, keepdim=True)  # a query that sees no key: out 0, logsumexp -inf
        logsumexp = torch.logsumexp(scores.masked_fill(empty, 0.0), -1)
        weights = torch.exp(scores - logsumexp[..., None]).masked_fill(hidden, 0.0)
        out = (weights @ v).to(query.dtype)
    found = {"out": out.detach(), "logsumexp": logsumexp.detach().masked_fill(empty[..., 0], -torch.inf)}
    if backward:
        found |= zip(("dq", "dk", "dv"), torch.autograd.grad(out, inputs, grad_out))
    return found


def distances(shape, device):
    """key - query, of shape (queries, keys)."""
    return torch.arange(shape[-1], device=device) - torch.arange(shape[-2], device=device)[:, None]


def modified(scores, score_mod, soft_cap, slopes, bias):
    """score_mod of scores (batch, heads, queries, keys)."""
    away = distances(scores.shape, scores.device)
    if score_mod == "soft_cap":
        return soft_cap * torch.tanh(scores / soft_cap)
    if score_mod == "alibi":
        return scores + slopes[:, None, None] * away
    if score_mod == "relative_bias":
        reach = bias.shape[-1] // 2
        return scores + bias[:, away.clamp(-reach, reach) + reach]
    if score_mod not in ("none", "causal"):
        raise NotImplementedError(f"score_mod {score_mod}")
    return scores


def unseen(shape, score_mod, mask_mod, window, query_document, key_document, device):
    """True where a query does not see a key."""
    away = distances(shape, device)
    hidden = torch.zeros(shape, dtype=torch.bool, device=device)
    if "causal" in (score_mod, mask_mod) or mask_mod in ("sliding_window", "masked_rows"):
        hidden = hidden | (away > 0)
    if mask_mod == "sliding_window":
        hidden = hidden | (away < -window)
    if mask_mod == "document":
        hidden = hidden | (query_document[:, None] != key_document)
    if mask_mod == "masked_rows":
        hidden = hidden | (torch.arange(shape[-2], device=device) % 5 == 2)[:, None]
    return hidden
'''

#: Options by what they have to do with each other, as little as code may take apart.
OPTIONS: tuple[tuple[Mapping[str, str], ...], ...] = (
    ({}, {"mask_mod": "causal"}, {"mask_mod": "sliding_window", "window": "5"},
     {"mask_mod": "sliding_window", "window": "1"}, {"mask_mod": "sliding_window", "window": "18"},
     {"mask_mod": "document"}, {"mask_mod": "document", "documents": "turns"}, {"mask_mod": "masked_rows"}),
    ({}, {"score_mod": "alibi"}, {"score_mod": "alibi", "slopes": "signed"}, {"score_mod": "relative_bias"},
     {"score_mod": "soft_cap", "soft_cap": "9"}, {"score_mod": "causal"}),
    ({"q_len": "20", "kv_len": "20"}, {"q_len": "1", "kv_len": "40"}, {"q_len": "40", "kv_len": "33"},
     {"q_len": "9", "kv_len": "150"}, {"q_len": "64", "kv_len": "64"}),
    ({"heads": "2"}, {"heads": "4", "kv_heads": "2"}, {"heads": "3", "kv_heads": "1"}),
    ({"head_dim": "16"}, {"head_dim": "40"}, {"head_dim": "64"}),
    ({}, {"batch": "2"}),
    ({}, {"scale": "0.4"}),
    ({}, {"backward": "no"}),
)  # fmt: skip


#: The same for problems of several blocks, whole ones and others, of the heads that models have, a few of them with
#: gradients.
LARGE_OPTIONS: tuple[tuple[Mapping[str, str], ...], ...] = (
    ({"backward": "no"}, {"backward": "yes"}),
    ({}, {"mask_mod": "causal"}, {"mask_mod": "sliding_window", "window": "100"}, {"mask_mod": "document"},
     {"mask_mod": "document", "documents": "turns"}, {"mask_mod": "masked_rows"}),
    ({}, {"score_mod": "alibi", "slopes": "steep"}, {"score_mod": "alibi", "slopes": "signed"},
     {"score_mod": "relative_bias"}, {"score_mod": "soft_cap", "soft_cap": "9", "backward": "no"},
     {"score_mod": "causal"}),
    ({"q_len": "150", "kv_len": "150"}, {"q_len": "330", "kv_len": "330", "backward": "no"},
     {"q_len": "256", "kv_len": "256"}, {"q_len": "1", "kv_len": "600"}, {"q_len": "4", "kv_len": "330"},
     {"q_len": "1", "kv_len": "2048"}),
    ({"heads": "2"}, {"heads": "4", "kv_heads": "2"}, {"heads": "3", "kv_heads": "1"}, {"heads": "2", "batch": "2"}),
    ({"head_dim": "16"}, {"head_dim": "128"}, {"head_dim": "40"}, {"head_dim": "64"}, {"head_dim": "192"},
     {"head_dim": "256"}),
    ({}, {"scale": "0.4"}),
)  # fmt: skip


#: The same for gradients in two blocks of queries and of keys.
BACKWARD_OPTIONS: tuple[tuple[Mapping[str, str], ...], ...] = (
    ({}, {"mask_mod": "causal"}, {"mask_mod": "sliding_window", "window": "20"}, {"mask_mod": "document"},
     {"mask_mod": "masked_rows"}),
    ({}, {"score_mod": "alibi", "slopes": "signed"}, {"score_mod": "relative_bias"},
     {"score_mod": "soft_cap", "data": "competing"}, {"score_mod": "causal"}),
    ({"heads": "2", "kv_heads": "1"}, {"heads": "1"}),
    ({"length": "150"}, {"length": "128"}, {"length": "130", "batch": "2"}),
    ({"head_dim": "16"}, {"head_dim": "64"}, {"head_dim": "128"}, {"head_dim": "192"}),
)  # fmt: skip


def _in_pairs(options: Sequence[Sequence[Mapping[str, str]]]) -> Iterator[Mapping[str, str]]:
    return ({"head_dim": "16"} | one for one in in_pairs(options))


#: What no setting has and code takes apart: few queries with many keys, lengths that differ under a mask, several
#: batches under one, more keys or queries than two blocks in gradients, other scales, caps and windows, many and long
#: heads.
OTHERS: tuple[Mapping[str, str], ...] = (
    {"q_len": "5", "kv_len": "300"},
    {"q_len": "1", "kv_len": "600", "heads": "4", "kv_heads": "1"},
    {"q_len": "17", "kv_len": "600", "heads": "1", "head_dim": "16", "data": "competing"},
    {"q_len": "40", "kv_len": "77", "mask_mod": "causal"},
    {"q_len": "30", "kv_len": "17", "mask_mod": "sliding_window", "window": "5"},
    {"q_len": "18", "kv_len": "70", "mask_mod": "sliding_window", "score_mod": "relative_bias"},
    {"length": "30", "mask_mod": "sliding_window", "window": "7", "score_mod": "soft_cap", "soft_cap": "7",
     "data": "competing"},
    {"length": "30", "mask_mod": "sliding_window", "window": "3", "score_mod": "soft_cap", "soft_cap": "9",
     "data": "competing"},
    {"length": "30", "mask_mod": "causal"},
    {"length": "20", "mask_mod": "sliding_window", "window": "0"},
    {"heads": "1", "head_dim": "16", "q_len": "3", "kv_len": "4100", "score_mod": "alibi"},
    {"heads": "2", "head_dim": "16", "q_len": "4100", "kv_len": "9"},
    {"batch": "3", "heads": "4", "kv_heads": "2", "length": "12", "mask_mod": "document"},
    {"heads": "4", "kv_heads": "2", "head_dim": "16", "length": "24", "mask_mod": "causal", "scale": "0.26"},
    {"heads": "4", "kv_heads": "2", "head_dim": "16", "length": "24", "mask_mod": "causal", "scale": "0.2"},
    {"batch": "2", "length": "18", "mask_mod": "document", "score_mod": "soft_cap", "soft_cap": "30"},
    {"heads": "9", "kv_heads": "3", "length": "12", "mask_mod": "causal", "score_mod": "alibi"},
    {"heads": "1", "length": "21", "head_dim": "192", "scale": "0.125"},
    *({"heads": "2", "length": "40", "head_dim": "32", "scale": scale} for scale in ("1", "10")),
    {"heads": "1", "length": "40", "head_dim": "256", "data": "scaled"},
    {"length": "20", "score_mod": "soft_cap", "soft_cap": "9", "data": "competing"},
    {"length": "20", "mask_mod": "causal", "score_mod": "soft_cap", "soft_cap": "9", "data": "competing"},
    {"heads": "4", "kv_heads": "2", "length": "20", "score_mod": "relative_bias"},
    {"heads": "3", "q_len": "20", "kv_len": "70", "score_mod": "relative_bias", "reach": "9"},
    {"heads": "1", "length": "100", "head_dim": "16", "score_mod": "relative_bias", "reach": "70", "scale": "0.004"},
    {"q_len": "20", "kv_len": "60", "mask_mod": "document"},
    {"heads": "1", "length": "24", "head_dim": "16", "mask_mod": "document", "documents": "turns"},
    {"heads": "1", "q_len": "40", "kv_len": "33", "head_dim": "16", "mask_mod": "document", "documents": "far"},
    {"heads": "1", "q_len": "66", "kv_len": "70", "head_dim": "16", "mask_mod": "document", "documents": "near"},
    {"heads": "1", "q_len": "17", "kv_len": "33", "head_dim": "16", "mask_mod": "document", "documents": "apart"},
    {"heads": "1", "length": "33", "head_dim": "16", "mask_mod": "causal", "data": "steep", "backward": "no"},
    {"heads": "1", "q_len": "17", "kv_len": "15", "head_dim": "16", "data": "faint"},
    *({"heads": "1", "q_len": "17", "kv_len": "33", "head_dim": size} for size in ("20", "33", "100")),
    {"heads": "2", "head_dim": "16", "q_len": "9", "kv_len": "4100"},
    *_in_pairs(OPTIONS),
    *_in_pairs(LARGE_OPTIONS),
    *_in_pairs(BACKWARD_OPTIONS),
    # whole blocks under a mask, more than two of them, and parts of the keys that are hidden from all queries
    *({"length": length, "mask_mod": "causal"} for length in ("32", "128")),
    {"heads": "1", "head_dim": "64", "length": "300", "mask_mod": "causal", "scale": "0.2"},
    *(
        {"heads": "1", "head_dim": "16", "q_len": "3", "kv_len": "600", "mask_mod": name}
        for name in ("causal", "document")
    ),
    {"heads": "1", "head_dim": "16", "length": "300", "mask_mod": "document", "documents": "turns"},
    {"heads": "1", "head_dim": "16", "length": "400", "mask_mod": "sliding_window", "window": "200"},
    {"heads": "1", "head_dim": "16", "length": "290", "mask_mod": "masked_rows", "backward": "no"},
    {"heads": "8", "kv_heads": "1", "length": "20"},
    {"heads": "8", "kv_heads": "1", "length": "12", "score_mod": "alibi"},
    {"batch": "2", "heads": "12", "kv_heads": "2", "head_dim": "16", "length": "12", "score_mod": "relative_bias"},
    # several blocks with large heads, in batches, in groups, of few queries; many heads; more queries than keys
    {"heads": "1", "head_dim": "128", "length": "150", "scale": "0.2"},
    {"heads": "8", "kv_heads": "1", "head_dim": "16", "length": "70"},
    *({"heads": heads, "head_dim": "16", "length": "20", "score_mod": name, "mask_mod": "sliding_window", "window": "9"}
      for heads, name in (("33", "alibi"), ("17", "relative_bias"))),
    {"batch": "2", "heads": "1", "head_dim": "16", "q_len": "1", "kv_len": "600"},
    {"heads": "1", "head_dim": "16", "q_len": "300", "kv_len": "260", "mask_mod": "causal"},
    # groups of several heads, more than two heads of many keys, caps of large heads and others than the usual one
    *({"heads": heads, "kv_heads": "2", "head_dim": "16", "length": "20"} for heads in ("8", "16")),
    {"heads": "3", "head_dim": "16", "length": "530", "mask_mod": "causal", "backward": "no"},
    *({"heads": "1", "head_dim": "128", "length": "17", "score_mod": "soft_cap", "soft_cap": cap,
       "data": "competing", "backward": "no"}
      for cap in ("9", "40")),
    # heads of 96 numbers and of few, groups of several heads of keys, batches of more than three and of large heads,
    # gradients under a cap in several blocks, one query of many keys with a usual head, parts of blocks of keys,
    # windows wider than blocks, and than a thousand keys
    *({"heads": "1", "head_dim": size, "length": "20"} for size in ("96", "4")),
    {"heads": "8", "kv_heads": "4", "head_dim": "16", "length": "20"},
    {"batch": "5", "heads": "1", "head_dim": "16", "length": "20", "mask_mod": "causal"},
    {"batch": "2", "heads": "2", "head_dim": "128", "length": "17"},
    {"heads": "1", "head_dim": "16", "q_len": "150", "kv_len": "300", "score_mod": "soft_cap", "data": "competing"},
    {"heads": "2", "kv_heads": "1", "head_dim": "64", "q_len": "1", "kv_len": "2113", "backward": "no"},
    {"heads": "1", "head_dim": "16", "q_len": "33", "kv_len": "145"},
    {"heads": "1", "head_dim": "16", "length": "520", "mask_mod": "sliding_window", "window": "300", "backward": "no"},
    {"heads": "1", "head_dim": "16", "length": "1400", "mask_mod": "sliding_window", "window": "1200",
     "backward": "no"},
    # hundreds of heads in a batch, groups of heads with several blocks, gradients of some blocks of queries and many
    # of keys, more queries than keys and a window, a large head of an odd size
    {"batch": "20", "heads": "33", "head_dim": "16", "length": "3"},
    {"heads": "1", "head_dim": "16", "q_len": "130", "kv_len": "650"},
    {"heads": "1", "head_dim": "16", "q_len": "170", "kv_len": "30", "mask_mod": "sliding_window", "window": "20"},
    {"heads": "1", "head_dim": "200", "length": "17"},
    # causal scores where lengths differ and beside a mask, a cap far below the scores, more than eight heads a group
    {"heads": "1", "head_dim": "16", "q_len": "20", "kv_len": "41", "score_mod": "causal"},
    *({"heads": "1", "head_dim": "16", "length": "20", "score_mod": "causal", "mask_mod": mask, "window": "5"}
      for mask in ("document", "sliding_window")),
    {"heads": "1", "head_dim": "16", "length": "20", "score_mod": "soft_cap", "soft_cap": "1", "scale": "40"},
    {"heads": "16", "kv_heads": "1", "head_dim": "16", "length": "20"},
    # scores and values at the ends of the range, slopes that rise, caps above the usual one
    {"heads": "1", "head_dim": "16", "q_len": "18", "kv_len": "11", "data": "vast", "backward": "no"},
    {"heads": "1", "head_dim": "16", "q_len": "17", "kv_len": "15", "data": "small"},
    {"heads": "3", "head_dim": "16", "length": "20", "score_mod": "alibi", "slopes": "signed"},
    *({"heads": "1", "head_dim": "16", "length": "20", "score_mod": "soft_cap", "soft_cap": cap, "data": "competing",
       "backward": "no"}
      for cap in ("60", "200")),
    # wider windows and reaches, one query of a usual head
    {"heads": "1", "head_dim": "16", "length": "620", "mask_mod": "sliding_window", "window": "512", "backward": "no"},
    {"heads": "1", "head_dim": "16", "length": "400", "score_mod": "relative_bias", "reach": "300", "backward": "no"},
    {"heads": "2", "head_dim": "128", "q_len": "1", "kv_len": "300", "backward": "no", "scale": "0.2"},
    # whole blocks of keys are hidden before the first that is seen
    {"heads": "1", "head_dim": "16", "length": "300", "mask_mod": "document", "backward": "no"},
    {"heads": "1", "head_dim": "16", "length": "300", "mask_mod": "sliding_window", "window": "20", "backward": "no"},
    *({"heads": "4", "kv_heads": "2", "length": "20", "backward": "no", **one} for one in (
        {}, {"mask_mod": "document", "score_mod": "alibi"},
        {"mask_mod": "sliding_window", "window": "5", "score_mod": "soft_cap", "soft_cap": "9", "data": "competing"},
    )),
    # grouped heads as models have them, in prefill, with a window, a cap or a bias, with one query and with a few
    *({"heads": "4", "kv_heads": "2", **one} for one in (
        {"head_dim": "128", "length": "150", "score_mod": "relative_bias", "reach": "40", "backward": "no"},
        {"head_dim": "128", "length": "150", "mask_mod": "causal", "batch": "2"},
        {"head_dim": "64", "length": "150", "mask_mod": "causal", "batch": "2", "backward": "no"},
        {"head_dim": "128", "length": "300", "mask_mod": "sliding_window", "window": "200", "backward": "no"},
        {"head_dim": "256", "length": "70", "mask_mod": "sliding_window", "window": "20", "score_mod": "soft_cap",
         "soft_cap": "9", "backward": "no", "batch": "2"},
        {"head_dim": "128", "q_len": "1", "kv_len": "600", "batch": "2", "backward": "no"},
        {"head_dim": "128", "q_len": "4", "kv_len": "330", "mask_mod": "causal", "backward": "no"},
    )),
    # what is known of one block of keys and taken for another's: largest scores that grow slowly, and parts that are
    # joined; roundings that cancel elsewhere; tables that half types do not hold, or of another reach
    {"heads": "1", "head_dim": "16", "q_len": "20", "kv_len": "2500", "data": "climbing", "backward": "no"},
    *({"heads": "2", "head_dim": "16", "q_len": queries, "kv_len": keys, "data": "extreme", "backward": "no"}
      for queries, keys in (("17", "600"), ("1", "1031"))),
    {"heads": "1", "head_dim": "128", "q_len": "40", "kv_len": "60", "data": "keen", "backward": "no"},
    *({"heads": "1", "head_dim": "16", "q_len": queries, "kv_len": keys, "score_mod": "alibi", "slopes": "steep",
       "backward": "no"}
      for queries, keys in (("3", "1100"), ("300", "300"))),
    *({"heads": "1", "head_dim": "16", "length": "20", "score_mod": "relative_bias", **one}
      for one in ({"reach": "19"}, {"biases": "large"}, {})),
    {"heads": "1", "q_len": "17", "kv_len": "130", "data": "small"},
    {"heads": "2", "head_dim": "16", "q_len": "17", "kv_len": "600", "score_mod": "soft_cap", "data": "competing",
     "backward": "no"},
    # the oldest key of a window that ends beside a block, decoding in groups under a cap or with slopes, large groups
    # and many heads, heads that are no whole number of 32 or 16, or more than 256
    {"heads": "1", "head_dim": "16", "length": "300", "mask_mod": "sliding_window", "window": "129", "backward": "no"},
    {"heads": "1", "head_dim": "16", "length": "150", "mask_mod": "sliding_window", "window": "65", "backward": "no"},
    *({"heads": "4", "kv_heads": "2", "head_dim": "16", "q_len": "1", "kv_len": "600", **one, "backward": "no"}
      for one in ({"score_mod": "soft_cap", "soft_cap": "9", "data": "competing"}, {"score_mod": "alibi"},
                  {"score_mod": "relative_bias"}, {"mask_mod": "sliding_window", "window": "100"})),
    {"heads": "72", "kv_heads": "2", "head_dim": "16", "q_len": "3", "kv_len": "40", "score_mod": "alibi"},
    *({"heads": "1", "head_dim": size, "length": "20"} for size in ("40", "80")),
    {"heads": "1", "head_dim": "288", "length": "17"},
    {"heads": "1", "head_dim": "16", "length": "20", "score_mod": "soft_cap", "soft_cap": "7.5", "data": "competing"},
    # options in more than two blocks: groups with a bias, a window and causal scores in gradients, scales of one's own
    {"heads": "2", "kv_heads": "1", "head_dim": "16", "length": "300", "score_mod": "relative_bias", "scale": "0.3"},
    {"heads": "1", "head_dim": "16", "length": "530", "mask_mod": "sliding_window", "window": "100"},
    {"heads": "1", "head_dim": "16", "length": "300", "score_mod": "causal", "scale": "0.4"},
    *({"heads": "2", "head_dim": "64", "q_len": queries, "kv_len": "600", "scale": scale, "backward": "no"}
      for queries, scale in (("1", "0.5"), ("20", "0.06"))),
    # any rest of blocks of 16 queries and of 16 keys, heads that models have
    *({"heads": "1", "head_dim": "16", "q_len": f"{16 + rest}", "kv_len": f"{32 + 5 * rest % 16 + 16 * (rest % 2)}"}
      for rest in range(16)),
    *({"heads": "1", "head_dim": size, "length": "20"} for size in ("48", "112", "160", "576")),
    # the end of a window beside the edge of a block of 256 keys, documents in more than 32 blocks of 32 and in batches,
    # negative slopes in gradients of many keys, one query of groups in a batch
    {"heads": "1", "head_dim": "16", "length": "600", "mask_mod": "sliding_window", "window": "257", "backward": "no"},
    {"heads": "1", "head_dim": "16", "q_len": "20", "kv_len": "1200", "mask_mod": "document", "backward": "no"},
    {"batch": "2", "heads": "1", "head_dim": "16", "length": "300", "mask_mod": "document"},
    {"heads": "1", "head_dim": "16", "q_len": "20", "kv_len": "300", "score_mod": "alibi", "slopes": "signed"},
    {"batch": "2", "heads": "4", "kv_heads": "2", "head_dim": "16", "q_len": "1", "kv_len": "40", "score_mod": "alibi"},
    # one query of usual heads with options, or few whose keys come late, or later ones outweigh the first beyond exp's
    # range; groups in whole blocks, and a window wider than one; more than 2,048 queries, and gradients of more than
    # eight blocks of them
    *({"heads": "3", "head_dim": size, "q_len": "1", "kv_len": "600", **one, "backward": "no"}
      for size in ("64", "128")
      for one in ({"score_mod": "alibi", "mask_mod": "document", "documents": "late"}, {"score_mod": "relative_bias"},
                  {"score_mod": "soft_cap", "soft_cap": "9", "data": "competing"}, {"mask_mod": "document"},
                  {"mask_mod": "sliding_window", "window": "0"})),
    *({"heads": "1", "head_dim": "16", "q_len": queries, "kv_len": "600", "mask_mod": "document", "documents": "late",
       "backward": "no"}
      for queries in ("4", "20")),
    {"heads": "2", "kv_heads": "1", "head_dim": "16", "q_len": "1", "kv_len": "2700", "data": "climbing",
     "backward": "no"},
    {"heads": "4", "kv_heads": "2", "head_dim": "64", "length": "128"},
    {"heads": "1", "head_dim": "64", "length": "300", "mask_mod": "sliding_window", "window": "150"},
    {"heads": "1", "head_dim": "16", "length": "2200", "mask_mod": "causal", "backward": "no"},
    {"heads": "1", "head_dim": "16", "q_len": "1100", "kv_len": "300"},
    # one query in larger batches, of more heads of keys and larger groups, and some of a group with many keys
    *({"head_dim": "16", "q_len": "1", "kv_len": "40", "backward": "no", **one}
      for one in ({"batch": "5"}, {"heads": "8", "kv_heads": "4"}, {"heads": "12", "kv_heads": "1"})),
    {"heads": "8", "kv_heads": "1", "head_dim": "16", "q_len": "4", "kv_len": "300", "backward": "no"},
    # groups and slopes in larger batches, and many tiles of few keys, which are more than a GPU has multiprocessors
    *({"batch": "5", "head_dim": "16", "length": "12", **one}
      for one in ({"heads": "4", "kv_heads": "2"}, {"heads": "2", "score_mod": "alibi"})),
    {"batch": "12", "heads": "24", "kv_heads": "12", "head_dim": "16", "length": "10", "mask_mod": "causal"},
    # heads of more than 256 numbers, or fewer than 16, with blocks of keys, and many heads of 128
    *({"heads": "1", "head_dim": size, "q_len": "17", "kv_len": "70"} for size in ("320", "8")),
    {"heads": "1", "head_dim": "64", "q_len": "70", "kv_len": "600", "backward": "no"},
    {"heads": "8", "head_dim": "128", "q_len": "9", "kv_len": "20"},
    # documents, windows and reaches of many keys, in gradients, groups and usual heads; more queries than keys
    {"heads": "1", "head_dim": "16", "length": "530", "mask_mod": "document", "backward": "no"},
    {"heads": "1", "head_dim": "16", "length": "400", "mask_mod": "sliding_window", "window": "300"},
    {"heads": "2", "kv_heads": "1", "head_dim": "64", "length": "400", "mask_mod": "sliding_window", "window": "300",
     "backward": "no"},
    {"heads": "4", "kv_heads": "2", "head_dim": "16", "length": "100", "score_mod": "relative_bias", "reach": "70"},
    {"heads": "1", "head_dim": "16", "length": "200", "score_mod": "relative_bias", "reach": "140"},
    {"heads": "4", "kv_heads": "2", "head_dim": "16", "q_len": "140", "kv_len": "60"},
    # gradients of more than a thousand queries and keys
    {"heads": "1", "head_dim": "16", "length": "1030", "mask_mod": "causal"},
)  # fmt: skip

DRAWN = 1 << 15  # scores of a drawn problem, at most


def _drawn(draw: Random) -> Mapping[str, str]:
    """`Composite.drawn`."""
    while True:
        queries, keys = drawn_size(draw, 500), drawn_size(draw, 2000)
        batch, group, heads = draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2, 3, 4, 8)), draw.choice((1, 1, 2, 3))
        if batch * group * heads * queries * keys <= DRAWN:
            break
    found = {"batch": f"{batch}", "heads": f"{group * heads}", "kv_heads": f"{heads}"}
    found |= {"q_len": f"{queries}", "kv_len": f"{keys if draw.randrange(3) else queries}"}
    found |= {"head_dim": f"{draw.choice((16, 32, 64, 80, 96, 128, 192, 256, drawn_size(draw, 300)))}"}
    mask, modified = draw.choice(tuple(MASK_MODS)), draw.choice(tuple(SCORE_MODS))
    found |= {"mask_mod": mask, "score_mod": modified, "backward": draw.choice(("yes", "no"))}
    if mask == "sliding_window":
        found["window"] = f"{drawn_size(draw, keys)}"
    if mask == "document":
        found["documents"] = draw.choice(tuple(DOCUMENTS))
    match modified:
        case "soft_cap":
            found |= {"soft_cap": draw.choice(("5", "9", "12.5", "30", "50")), "data": "competing"}
        case "alibi":
            found["slopes"] = draw.choice(tuple(SLOPES))
        case "relative_bias":
            found |= {"reach": f"{drawn_size(draw, 300)}", "biases": draw.choice(tuple(BIASES))}
    found |= {"data": draw.choice(("normal", "competing", "uniform"))} if modified != "soft_cap" else {}
    found |= {"scale": f"{draw.uniform(0.02, 1.0):.3g}"} if not draw.randrange(3) else {}
    return found


KERNEL = Composite(
    name="flex_attention",
    summary="softmax attention with score_mod and mask_mod: output, logsumexp, gradients of query, key and value",
    inputs=("query", "key", "value", "grad_out"),
    outputs=("out", "logsumexp", "dq", "dk", "dv"),
    defined=lambda setting: tuple(Shape.of(setting.parameters).outputs),
    settings=SETTINGS,
    parameters={
        "batch": "size of the batch",
        "heads": "heads of queries; of keys too unless kv_heads is given",
        "kv_heads": "heads of keys and values, a divisor of heads",
        "q_len": "queries",
        "kv_len": "keys and values",
        "length": "q_len and kv_len at once",
        "head_dim": "numbers in a query, key or value",
        "score_mod": f"{', '.join(SCORE_MODS)}, or FILE.py:FUNCTION of (n, score, batch, head, query, key)",
        "mask_mod": ", ".join(MASK_MODS),
        "data": "; ".join(f"{name}: {what}" for name, what in RECIPES.items()),
        "backward": "yes or no: whether gradients are taken",
        "scale": "of the scores; 1 / sqrt(head_dim) unless given",
        "soft_cap": f"cap of score_mod soft_cap, {SOFT_CAP} unless given",
        "reach": f"keys either way of which the bias of score_mod relative_bias differs, {REACH} unless given",
        "slopes": f"of score_mod alibi; {'; '.join(f'{name}: {what}' for name, what in SLOPES.items())}",
        "biases": f"of score_mod relative_bias; {'; '.join(f'{name}: {what}' for name, what in BIASES.items())}",
        "documents": f"of mask_mod document; {'; '.join(f'{name}: {what}' for name, what in DOCUMENTS.items())}",
        "window": f"keys that mask_mod sliding_window shows beside the query's own place, {WINDOW} unless given",
    },
    custom=custom,
    sized=lambda n: tuple(
        {"heads": "1", "head_dim": "16"} | one
        for one in ({"length": f"{n}"}, {"q_len": f"{n}", "kv_len": "5"}, {"batch": f"{n}", "length": "5"})
        if n <= 260
    ),
    further=(
        ({"batch": "3", "heads": "3", "length": "16", "head_dim": "16"}, {}),
        ({"heads": "4", "kv_heads": "1", "length": "33", "head_dim": "32"}, {}),
        *((one, {}) for one in OTHERS),
    ),
    drawn=_drawn,
    again=(
        {"heads": "1", "head_dim": "16", "length": "33"},
        *(
            {"heads": "2", "head_dim": "16", "length": "20", **one}
            for one in ({"mask_mod": "document"}, {"score_mod": "relative_bias"}, {"score_mod": "alibi"})
        ),
    ),
    related=(
        *(
            ({"batch": "2", "heads": "2", "length": "24", "head_dim": "16"}, one)
            for one in (
                {"value": "key"},
                {"key": "query"},
                {"key": "query", "value": "query"},
                *(
                    {name: f"{name}[{some}].expand({name}.shape)" for name in ("key", "value")}
                    for some in (":1", ":, :1")
                ),
                *({name: f"{name}[:1].expand({name}.shape)"} for name in ("query", "grad_out")),
                {"grad_out": "grad_out[:1, :1, :1, :1].expand(grad_out.shape)"},  # as of a sum of all
            )
        ),
        # the same in several blocks, and for one query; a cache that is longer, keys by columns, sequences first, and
        # values that no vector of four numbers begins with
        *(
            ({"batch": "2", "heads": "2", "head_dim": "16", "backward": "no"} | of, one)
            for of, one in (
                ({"length": "100"}, {"value": "key"}),
                ({"q_len": "1", "kv_len": "40"}, {"value": "key"}),
                ({"q_len": "1", "kv_len": "40"}, {"key": "key[:1].expand(key.shape)"}),
                ({"q_len": "9", "kv_len": "150"}, {"key": "key[:, :1].expand(key.shape)"}),
                (
                    {"length": "20"},
                    {"key": "key.transpose(1, 2).repeat(1, 2, 1, 1)[:, :key.shape[2]].transpose(1, 2)"},
                ),
                ({"length": "21"}, {"key": "key.mT.contiguous().mT"}),
                ({"length": "20"}, {"value": "value.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)"}),
                (
                    {"length": "20"},
                    {"value": "torch.cat([value.flatten()[:2], value.flatten()])[2:].view(value.shape)"},
                ),
            )
        ),
        (
            {"heads": "1", "length": "100", "head_dim": "16"},
            {"grad_out": "grad_out[:1, :1, :1, :1].expand(grad_out.shape)"},
        ),
        # subnormal numbers of each, beside what makes ordinary ones of them
        *(
            ({"heads": "2", "length": "24", "head_dim": "16"}, {one: SUBNORMAL.format(one), other: LARGE.format(other)})
            for pair in (("query", "key"), ("value", "grad_out"))
            for one, other in (pair, pair[::-1])
        ),
        # tiles of keys that are far below the first, of which values make a part of every sum
        ({"heads": "1", "q_len": "17", "kv_len": "300", "head_dim": "16", "data": "faint", "backward": "no"}, {}),
        # one query in a batch of large groups, and the keys of some whole parts and a rest
        (
            {
                "batch": "3",
                "heads": "8",
                "kv_heads": "1",
                "q_len": "1",
                "kv_len": "700",
                "head_dim": "128",
                "backward": "no",
            },
            {},
        ),
        ({"heads": "2", "q_len": "1", "kv_len": "2050", "head_dim": "16", "backward": "no"}, {}),
        # some queries under a causal mask, and the keys of a long cache
        ({"heads": "2", "q_len": "33", "kv_len": "4170", "head_dim": "16", "mask_mod": "causal", "backward": "no"}, {}),
        # batches of many heads in several blocks, as in training; groups of five and seven heads, as models have them
        *(
            ({"batch": "3", "length": "130", "head_dim": "16"} | one, {})
            for one in (
                {"heads": "6", "mask_mod": "causal"},
                {"heads": "10", "kv_heads": "5", "mask_mod": "document", "backward": "no"},
                # more blocks of queries than a GPU has multiprocessors
                {"heads": "24", "kv_heads": "8", "mask_mod": "causal", "backward": "no"},
            )
        ),
        *(
            ({"heads": heads, "kv_heads": keys, "length": "12", "head_dim": "16", "mask_mod": "causal"}, {})
            for heads, keys in (("28", "4"), ("40", "8"))
        ),
        # a longer one for one query
        ({"heads": "1", "q_len": "1", "kv_len": "33000", "head_dim": "16", "backward": "no"}, {}),
    ),
    batched=lambda rows, length: {"batch": str(rows), "heads": "1", "length": str(length), "head_dim": "16"},
    lowerings=LOWERINGS,
    problem=lazily("verify.kernels._flex", "problem"),
    truth=lazily("verify.kernels._flex", "AttentionTruth"),
    limit=lazily("verify.kernels._flex_algorithms", "limit"),
    searched=lazily("verify.kernels._flex_formulas", "searched"),
    strata=lazily("verify.kernels._flex", "strata"),
    implementations="verify.kernels._flex_lowerings",
    dtypes=HALVES_AND_SINGLE,
    held="float32 scores, softmax and sums in any order, weights rounded to the dtype before or after they are "
    f"normalized; exp within {EXP_UNITS:g} u on the CPU ({EXP_SOURCE}), on a GPU exp2 "
    "within what NVIDIA documents of ex2.approx",
    keywords={
        "scale": "of the scores, 1 / sqrt(head_dim) in the recorded settings",
        "soft_cap": f"score_mod soft_cap: cap tanh(score / cap), cap = {SOFT_CAP} in the recorded settings",
        "window": f"mask_mod sliding_window: 0 <= query - key <= window, {WINDOW} in the recorded settings",
        "slopes": "score_mod alibi: float32, slopes[head] (key - query) is added",
        "bias": "score_mod relative_bias: float32, bias[head, reach + clamp(key - query, -reach, reach)] is added",
        "query_document, key_document": "mask_mod document: int64 numbers, equal where the query sees the key",
    },
    asks=asks,
    spared=("grad_out",),
    stub=STUB,
    notes=(
        "scores are scale q k^T with the scale 1/sqrt(head_dim) as a double; logsumexp is float32 whatever the dtype",
        "inputs are finite: no document says what attention makes of an infinity or a NaN",
        *(f"{where}: {output} = {gives} ({source})" for where, output, gives, source in SPECIAL),
    ),
)
