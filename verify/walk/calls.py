"""Other calls of an elementwise lowering, which must give the bits that the walk's launch gave: an element's result
depends on nothing but the element.

`CALLS` is the table of them. Its expressions arrange an input of SIZE elements; the same expression of the output is
what is expected, so that a call that fails is shown in a few lines of torch. A user's own is also called with numbers
and Python scalars that code treats apart; what that gives is judged by a truth of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
import textwrap
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
import torch

from verify import backends
from verify.facts.formats import FORMATS, Format
from verify.facts.kernel import Scalars, told_apart
from verify.inputs.domains import CHUNK
from verify.inputs.draws import spread
from verify.judge.cell import conclude, standing
from verify.judge.chunk import differing, patterns
from verify.judge.element import decide
from verify.judge.status import STATUSES
from verify.lower.lowering import Lowering, NotLowered, Target
from verify.lower.user import importing
from verify.walk.cases import Pointwise, Terms, terms
from verify.workers.launch import UNDERWAY, Begun, LoweringError, bits, launch_steady, octets

Tensor = torch.Tensor
S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U", covariant=True)
SIZE = 1280  # elements of the sample
LANES = 16  # of a vector
#: Of the threads and processes that make the calls of a lowering, in which all are made, or some are not: each shape
#: may be compiled anew. Other work on the machine does not decide which are made, but for LONGEST, by the clock.
SECONDS, LONGEST = 20.0, 100.0
#: torch's threads in their judgement: of small tensors more would wait for one another, where a core has other work.
JUDGING = 1
LONG = 1 << 17  # elements of a plain call that the sample's own size does not stand for
OFTEN = 20  # calls after which a lowering is warm
#: Sizes of a user's own at which code begins to take other paths, and such with any remainder of vectors; the walk's
#: portions are all powers of two.
LARGE = (
    1002, 1005, 1006, 1012, 4097, *range(65536, 65536 + LANES), 70004, 100003, (1 << 17) - 1, (1 << 17) + 6,
    (1 << 18) + 2, (1 << 18) + 6, 300010, (3 << 17) + 14,
    (1 << 20) - 1, (1 << 20) + 1,
)  # fmt: skip
BROADCAST = "broadcast:"  # of a user's own, every way
#: In which shapes: small ones; those of equal sizes, which code that goes by sizes takes for one another; wide ones, of
#: more than a block of a row. PAIRED: of two inputs alone.
PAIRED = ((5, 3, 37), (2, 3, 2, 4, 8), (4, 4, 4, 4), (2, 2, 3, 4103))
SHAPES = ((16, 64), (8, 4, 32), (4, 2, 8, 16), (3, 0), (16, 16), (8, 8, 8), (3, 16403), (2, 3, 4103), *PAIRED)
#: Of a whole input and of others, where one size occurs twice, along which of these dimensions the others lie.
ALONG = (((2, 5, 3, 5), (5,)), ((2, 5, 5), (2, 1, 5)), ((2, 3, 5, 5), (5, 5)))
WIDE = 1 << 12
NUMBER = "t[5].clone()"
VIEWED = "views:"  # of a user's own of several inputs
#: What code takes for dense, or for another layout, by shape: with gaps between rows, transposed, misaligned, every
#: other column or row, of equal sizes, channels last.
VIEWS = (
    ((12, 8), "t[:96].view(12, 8)"), ((12, 8), "t[:192].view(12, 16)[:, :8]"), ((12, 8), "t[:96].view(8, 12).t()"),
    ((12, 8), "t[1:97].view(12, 8)"), ((12, 8), "t[4:100].view(12, 8)"), ((12, 8), "t[:192].view(12, 8, 2)[..., 0]"),
    ((12, 8), "t[:192].view(24, 8)[::2]"), ((8, 8), "t[:64].view(8, 8).t()"), ((48,), "t[:96][::2]"),
    ((3, 4, 4, 4), "t[:192].view(3, 4, 4, 4).contiguous(memory_format=torch.channels_last)"),
    ((3, 4, 4, 4), "t[:192].view(3, 4, 4, 4).transpose(1, 2)"),
)  # fmt: skip
DRAWN, ARRANGEMENT = 40, "arrangement"  # of a user's own, how many are drawn, and their name
#: Sizes of the dimensions of one that is drawn, of ROOM elements at most.
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 1000, 1025)
ROOM = 1 << 16
LISTED = 8  # calls that a remark names
SHOWN = 3  # calls of which it is tried to show one by lines of torch
#: Elements of the walk among which special numbers are looked for, and of how many of each combination they are taken.
EARLY, EACH = 1 << 16, 4
FIRST = 40  # elements of the sample of which none is special
#: A kind of numbers of which calls are made that have no others; with fewer than FEW there is none.
ORDINARY, FEW = "normal numbers", 32
MODERATE = 16.0  # in magnitude, and one over it
#: Of a lowering in a process of its own, see `verify.workers.Launch.manner`.
MANNERS = (
    "guard", "outputs", "thread", "late", "changed", "kept", "stream", "zeros", "threads", "default", "default_64",
    "grad", "no_grad", "grad_first", "grad_others", "grad_computed", "grad_parameter", "inference", "inside", "out",
)  # fmt: skip
#: In which calls are made that have no other.
USUAL = "changed"
AGAIN = "new data at the same address"
AFTER = "after other numbers in the same tensors"
#: The call of which it is told at the end whether more was written.
LATER = "what is written later"
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
AT_ONCE = 1 << 15  # elements that tensors judge at once
ALIGNED = 64  # elements, of which vectors and lines of a cache have whole parts
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
NEUTRAL = (0.0, 1.0)  # with which nothing is left to compute, unless special numbers are among the others


@dataclass(frozen=True)
class Arranged:
    """`first` arranges the first input, `others` those after it, the last of them all that remain, as expressions of t:
    contiguous, one-dimensional, SIZE elements. Without `others` it arranges all; with them it is for kernels of two
    tensors or more. `how`: what else is other than in the plain call, one of MANNERS; 'same': all are made of the first
    input, in its memory; 'pairs': other elements meet than in the plain call."""

    first: str
    others: tuple[str, ...] = ()
    how: str = ""

    def of(self, place: int) -> str:
        """The expression for an input."""
        each = (self.first, *self.others)
        return each[min(place, len(self.others))]

    def __str__(self) -> str:
        return ", ".join((self.first, *self.others))


#: By name. A call of several inputs pairs the elements that the plain call paired.
CALLS: Mapping[str, Arranged] = {
    # first: what is written elsewhere in other calls may end the process before it is seen
    "guards around 1 output": Arranged("t[:1].clone()", how="outputs"),
    "guards around 1025 outputs": Arranged("t[:1025].clone()", how="outputs"),
    "guards around 65537 outputs": Arranged("t.repeat(52)[:65537]", how="outputs"),
    **{f"{n} elements": Arranged(f"t[:{n}].clone()") for n in (0, 1, 2, 3, 31, 33, 1023, 1025, SIZE)},
    AGAIN: Arranged(f"t[:{SIZE}].flip(0)", how="again"),
    "other neighbours": Arranged(f"t[torch.arange({SIZE}, device=t.device) // 2 * 2]"),
    "0 dimensions": Arranged("t[3].clone()"),
    "2 dimensions": Arranged("t[:35].view(5, 7).clone()"),
    "3 dimensions": Arranged("t[:1001].view(7, 11, 13).clone()"),
    "4 dimensions": Arranged("t[:210].view(2, 3, 5, 7).clone()"),
    "5 dimensions": Arranged("t[:210].view(2, 1, 3, 5, 7).clone()"),
    "7 dimensions": Arranged("t[:1260].view(2, 1, 3, 5, 7, 2, 3).movedim(0, 4)"),
    "transposed": Arranged("t[:1056].view(32, 33).t()"),
    "permuted": Arranged("t[:1001].view(7, 11, 13).permute(2, 0, 1)"),
    "every other": Arranged("t[:1024:2]"),
    "sliced": Arranged("t[3:1000:7]"),
    "sliced matrix": Arranged("t[:1056].view(32, 33)[1:, 3:20]"),
    "misaligned": Arranged("t[1:1024]"),
    "expanded": Arranged("t[:33].view(33, 1).expand(33, 31)"),
    "expanded rows": Arranged("t[:33].expand(31, 33)"),
    "expanded from one": Arranged("t[5].expand(100)"),
    "channels last": Arranged("t[:480].view(2, 3, 8, 10).contiguous(memory_format=torch.channels_last)"),
    "the first transposed": Arranged("t[:1056].view(33, 32).t()", ("t[:1056].view(33, 32).t().contiguous()",)),
    "the others transposed": Arranged("t[:1056].view(33, 32).t().contiguous()", ("t[:1056].view(33, 32).t()",)),
    "the first broadcast": Arranged("t[:33].view(33, 1)", ("t[:33].view(33, 1).expand(33, 31).contiguous()",)),
    "the others broadcast": Arranged("t[:33].view(33, 1).expand(33, 31).contiguous()", ("t[:33].view(33, 1)",)),
    "the first of 0 dimensions": Arranged("t[5].clone()", ("t[5].expand(100).contiguous()",)),
    "the others of 0 dimensions": Arranged("t[5].expand(100).contiguous()", ("t[5].clone()",)),
    "the others of fewer dimensions": Arranged("t[:33].expand(31, 33).contiguous()", ("t[:33].clone()",)),
    "each broadcast": Arranged("t[:33].view(33, 1)", ("t[:31].view(1, 31)",), how="pairs"),
    "the middle broadcast": Arranged("t[:210].view(5, 6, 7)", ("t[:35].view(5, 1, 7)",), how="pairs"),
    "one tensor as all inputs": Arranged("t[:1023]", ("t[:1023]",), how="same"),
    "overlapping inputs": Arranged("t[:1000]", ("t[1:1001]",), how="same"),
    "one tensor as the first two inputs": Arranged("t[:1000]", ("t[:1000]", "t[3:1003]"), how="same"),
    "other memory around it": Arranged("t[:1023].clone()", how="guard"),
    "another thread": Arranged("t[:1025].clone()", how="thread"),
    LATER: Arranged("t[:1023].clone()", how="late"),
    "a result that is kept": Arranged("t[:1023].clone()", how="kept"),
    "a long result that is kept": Arranged("t.repeat(52)[:65537]", how="kept"),
    "a stream of the caller's": Arranged("t.repeat(1024)", how="stream"),
    "memory of zeros": Arranged("t[:1023].clone()", how="zeros"),
    "another number of threads": Arranged("t.repeat(32)[:40001]", how="threads"),
    "another default dtype": Arranged("t[:1023].clone()", how="default"),
    "float64 as the default dtype": Arranged("t[:1023].clone()", how="default_64"),
    "inputs that require grad": Arranged("t[:1023].clone()", how="grad"),
    "inputs that require grad, without grad": Arranged("t[:1023].clone()", how="no_grad"),
    "inference mode": Arranged("t[:1023].clone()", how="inference"),
    "an output to write": Arranged("t[:1023].clone()", how="out"),
    "once more": Arranged(f"t[:{SIZE}].clone()"),
}


#: Of a user's own too.
OWN: Mapping[str, Arranged] = {
    "0 elements in 3 dimensions": Arranged("t[:0].view(3, 0, 2)"),
    "the middle sliced": Arranged("t[:1001].view(7, 11, 13)[:, 2:9]"),
    "the middle expanded": Arranged("t[:91].view(7, 1, 13).expand(7, 11, 13)"),
    "one column": Arranged("t[:1001].view(143, 7)[:, 2:3]"),
    "windows": Arranged("t[:100].unfold(0, 8, 3)"),
    "one number in two dimensions": Arranged("t[5].expand(10, 11)"),  # as the gradient of a sum
    "vectors of different strides": Arranged("t[:600:2]", ("t[:900:3]", "t[:1200:4]"), how="pairs"),
    "matrices of different strides": Arranged(
        "t[:1056].view(33, 32).t()", ("t[:1056].view(32, 33)", "t.view(32, 40)[:, 7:]"), how="pairs"
    ),
    "the first of one element": Arranged("t[5:6].clone()", ("t[:100].clone()",), how="pairs"),
    "the others of one element": Arranged("t[:100].clone()", ("t[5:6].clone()",), how="pairs"),
    "the last of fewer dimensions": Arranged(
        "t[:1023].view(31, 33)", ("t[:1023].view(31, 33)", "t[:33].clone()"), how="pairs"
    ),
    "one tensor and its transpose": Arranged("t[:1024].view(32, 32)", ("t[:1024].view(32, 32).t()",), how="same"),
    "the second transposed": Arranged(
        "t[:1056].view(33, 32)", ("t[:1056].view(32, 33).t()", "t[:1056].view(33, 32)"), how="pairs"
    ),
    "the last transposed": Arranged(
        "t[:1056].view(33, 32)", ("t[:1056].view(33, 32)", "t[:1056].view(32, 33).t()"), how="pairs"
    ),
    "channels last in 5 dimensions": Arranged(
        "t[:960].view(2, 3, 4, 5, 8).contiguous(memory_format=torch.channels_last_3d)"
    ),
    "a large matrix transposed": Arranged("t.repeat(14)[:16770].view(129, 130).t()"),
    "a larger matrix transposed": Arranged("t.repeat(105)[:133385].view(515, 259).t()"),
    "a part of a larger matrix": Arranged("t.repeat(413)[:527364].view(1028, 513)[1:, 2:]"),
    "a larger image, channels last": Arranged(
        "t.repeat(104)[:133120].view(2, 4, 128, 130).contiguous(memory_format=torch.channels_last)"
    ),
    "a larger matrix and one row": Arranged(
        "t.repeat(104)[:132483].view(1027, 129)", ("t[:129].clone()",), how="pairs"
    ),
    "a larger matrix and one column": Arranged(
        "t.repeat(104)[:132483].view(1027, 129)", ("t[:1027].view(1027, 1)",), how="pairs"
    ),
    # along sizes that vectors divide
    "a matrix and one wide row": Arranged("t.repeat(13)[:16384].view(128, 128)", ("t[:128].clone()",), how="pairs"),
    "one wide row and a matrix": Arranged("t[:128].clone()", ("t.repeat(13)[:16384].view(128, 128)",), how="pairs"),
    "a matrix and one wide column": Arranged(
        "t.repeat(13)[:16384].view(128, 128)", ("t[:128].view(128, 1)",), how="pairs"
    ),
    "one row and one column": Arranged("t[:64].view(1, 64)", ("t[:128].view(128, 1)",), how="pairs"),
    "one number and many": Arranged("t[5].clone()", ("t.repeat(8)[:9000]",), how="pairs"),
    "many numbers and one": Arranged("t.repeat(8)[:9000]", ("t[5].clone()",), how="pairs"),
    "the first misaligned": Arranged("t[1:1025]", ("t[:1024]",), how="pairs"),
    "the second misaligned": Arranged("t[:1024]", ("t[1:1025]", "t[:1024]"), how="pairs"),
    "the last misaligned": Arranged("t[:1024]", ("t[:1024]", "t[1:1025]"), how="pairs"),
    "the first of large matrices transposed": Arranged(
        "t.repeat(13)[:16512].view(129, 128).t()", ("t.repeat(13)[:16512].view(128, 129)",), how="pairs"
    ),
    "the others of large matrices transposed": Arranged(
        "t.repeat(13)[:16512].view(128, 129)", ("t.repeat(13)[:16512].view(129, 128).t()",), how="pairs"
    ),
    "half of a matrix": Arranged("t.repeat(7)[:8192].view(64, 128)[:, :64]"),
    "the other half of a matrix": Arranged("t.repeat(7)[:8192].view(64, 128)[:, 64:]"),
    "a part of a matrix between": Arranged("t.repeat(7)[:8192].view(64, 128)[:, 1:65]"),
    "a batch of matrices transposed": Arranged("t.repeat(4)[:4752].view(4, 33, 36).transpose(1, 2)"),
    "heads beside rows": Arranged("t[:1024].view(2, 8, 4, 16).transpose(1, 2)"),
    "a row expanded to a large matrix": Arranged("t[:256].expand(128, 256)"),
    "a column expanded to a large matrix": Arranged("t[:128].view(128, 1).expand(128, 256)"),
    "a large batch": Arranged("t.repeat(14)[:16896].view(2, 4, 2112)"),
    "large images": Arranged("t.repeat(10)[:11264].view(2, 2, 32, 88)"),
    "a part of a matrix transposed": Arranged("t[:256].view(8, 32)[:, :16].t()"),
    "half of a wide matrix": Arranged("t.repeat(128)[:163840].view(40, 4096)[:, :2052]"),
    "a matrix of whole tiles transposed": Arranged("t.repeat(410)[:524288].view(2048, 256).t()"),
    "images of many channels, channels last": Arranged(
        "t[:768].view(2, 16, 4, 6).contiguous(memory_format=torch.channels_last)"
    ),
    "images whose channels are last": Arranged("t[:384].view(2, 8, 4, 6).permute(0, 2, 3, 1)"),
    "a part of images, channels last": Arranged(
        "t.repeat(3)[:3072].view(2, 16, 8, 12).contiguous(memory_format=torch.channels_last)[:, :, :, :10]"
    ),
    "half of the channels": Arranged("t[:256].view(2, 8, 4, 4)[:, :4]"),
    "a part of a batch": Arranged("t.repeat(2)[:2560].view(4, 10, 64)[:, 2:5, :32]"),
    "every other column": Arranged("t.repeat(2)[:2048].view(16, 128)[:, 1::2]"),
    "heads of 64 numbers beside rows": Arranged("t.repeat(2)[:2560].view(2, 4, 5, 64).transpose(1, 2)"),
    "misaligned by two": Arranged("t[2:1026]"),
    "one permutation": Arranged("t[:120].view(4, 5, 6).permute(2, 0, 1)"),
    "another permutation of that shape": Arranged("t[:120].view(5, 6, 4).permute(1, 2, 0)"),
    "a long batch of matrices transposed": Arranged("t.repeat(19)[:24000].view(2000, 3, 4).transpose(1, 2)"),
    "a row expanded to a wide matrix": Arranged("t.repeat(4)[:4096].expand(8, 4096)"),
    "a part of five dimensions": Arranged("t[:480].view(2, 4, 3, 4, 5).transpose(1, 4)[..., :2]"),
    "misaligned by four": Arranged("t[4:1028]"),
    "misaligned by eight": Arranged("t[8:108]"),
    "misaligned by twelve": Arranged("t[12:116]"),
    "one of several rows of a batch": Arranged("t[:420].view(7, 5, 12)[:, 1:2]"),
    "dimensions in reverse": Arranged("t[:105].view(3, 5, 7).permute(2, 1, 0)"),
    "the others of 0 dimensions, one of many": Arranged("t[5].expand(100).contiguous()", ("t[5]",)),
    "the first of 0 dimensions, one of many": Arranged("t[5]", ("t[5].expand(100).contiguous()",)),
    # with outputs to write, and inputs that require grad, of more than a block
    "many outputs to write": Arranged("t.repeat(55)[:70001]", how="out"),
    "more outputs to write": Arranged("t.repeat(235)[:300001]", how="out"),
    "outputs to write of a large matrix transposed": Arranged("t.repeat(14)[:16770].view(129, 130).t()", how="out"),
    "outputs to write of more dimensions": Arranged("t[:31]", ("t[:31].expand(5, 31).contiguous()",), how="out"),
    "outputs to write of one column": Arranged(
        "t[:33].view(33, 1)", ("t[:33].view(33, 1).expand(33, 31).contiguous()",), how="out"
    ),
    "outputs to write, the others broadcast": Arranged(
        "t[:33].view(33, 1).expand(33, 31).contiguous()", ("t[:33].view(33, 1)",), how="out"
    ),
    "many numbers that require grad": Arranged("t.repeat(55)[:70001]", how="grad"),
    "a large matrix transposed that requires grad": Arranged("t.repeat(14)[:16770].view(129, 130).t()", how="grad"),
    "many numbers without grad": Arranged("t.repeat(55)[:70001]", how="no_grad"),
    "many numbers in inference mode": Arranged("t.repeat(55)[:70001]", how="inference"),
    "three large slices": Arranged("t.repeat(141)[:180000].view(3, 300, 200)"),
    "one row and a large matrix": Arranged(
        "t[:300].view(1, 300)", ("t.repeat(71)[:90000].view(300, 300)",), how="pairs"
    ),
    "one number and a large matrix": Arranged("t[5].clone()", ("t.repeat(71)[:90000].view(300, 300)",), how="pairs"),
    "new data in the middle": Arranged("t.repeat(40)[:50021]", how="inside"),  # of a size that no other call has
    "a matrix transposed that requires grad": Arranged("t[:1056].view(32, 33).t()", how="grad"),
    "a matrix transposed that was computed": Arranged("t[:1056].view(32, 33).t()", how="grad_computed"),
    "images as parameters": Arranged(
        "t[:480].view(2, 3, 8, 10).contiguous(memory_format=torch.channels_last)", how="grad_parameter"
    ),
    "others broadcast that require grad": Arranged(
        "t[:33].view(33, 1).expand(33, 31).contiguous()", ("t[:33].view(33, 1)",), how="grad"
    ),
    "a batch and a row that require grad": Arranged(
        "t[:6].expand(4, 5, 6).contiguous()", ("t[:6].clone()",), how="grad"
    ),
    "a wide matrix and one row": Arranged("t.repeat(26)[:32768].view(8, 4096)", ("t.repeat(4)[:4096]",), how="pairs"),
    "rows of 36 numbers and one": Arranged("t[:288].view(8, 36)", ("t[:36]",), how="pairs"),
    "rows of 36 numbers and one column": Arranged("t[:288].view(8, 36)", ("t[:8].view(8, 1)",), how="pairs"),
    "a vector and one number of two dimensions": Arranged("t[:100]", ("t[:1].view(1, 1)",), how="pairs"),
    "a vector and a row": Arranged("t[:16]", ("t[:16].view(1, 16)",), how="pairs"),
    "70000 rows and one": Arranged("t.repeat(438)[:560000].view(70000, 8)", ("t[:8]",), how="pairs"),
    "one column and one wide row": Arranged("t[:64].view(64, 1)", ("t.repeat(2)[:2048]",), how="pairs"),
    "the last one column": Arranged(
        "t.repeat(103)[:131072].view(64, 2048)",
        ("t.repeat(103)[:131072].view(64, 2048)", "t[:64].view(64, 1)"),
        how="pairs",
    ),
    "heads and one matrix": Arranged(
        "t.repeat(2)[:2560].view(2, 5, 4, 64).transpose(1, 2)", ("t[:320].view(1, 1, 5, 64)",), how="pairs"
    ),
    "a batch transposed and one row": Arranged("t[:120].view(4, 5, 6).transpose(0, 1)", ("t[:6]",), how="pairs"),
    "a batch and a matrix expanded along it": Arranged(
        "t[:192].view(4, 6, 8)", ("t[:48].view(1, 6, 8).expand(4, 6, 8)",), how="pairs"
    ),
    "rows of a sequence": Arranged("t.repeat(13)[:16384].view(2, 128, 64)"),
    "odd rows of a sequence": Arranged("t[:910].view(2, 65, 7)"),
    "square images": Arranged("t.repeat(13)[:16384].view(2, 8, 32, 32)"),
    "square images, channels last": Arranged("t[:1024].view(2, 8, 8, 8).contiguous(memory_format=torch.channels_last)"),
    "100 rows of 36 numbers": Arranged("t.repeat(3)[:3600].view(100, 36)"),
    "12 rows of 102 numbers": Arranged("t[:1224].view(12, 102)"),
    "1000 elements": Arranged("t[:1000].clone()"),
    "224 elements": Arranged("t[:224].clone()"),
    "square matrices and their transposes": Arranged(
        "t[:512].view(2, 16, 16)", ("t[:512].view(2, 16, 16).mT",), how="pairs"
    ),
    "parts of one matrix": Arranged("t[:960].view(5, 192)[:, :64]", ("t[:960].view(5, 192)[:, 128:]",), how="same"),
    "overlapping inputs, the last first": Arranged("t[1:1001]", ("t[:1000]",), how="same"),
    "a matrix and a part of another": Arranged("t[:128].view(8, 16)", ("t[:256].view(8, 32)[:, :16]",), how="pairs"),
    "a batch and a part of another": Arranged(
        "t[:240].view(5, 6, 8)", ("t[:640].view(5, 8, 16)[:, :6, :8]",), how="pairs"
    ),
    "the first of images channels last": Arranged(
        "t[:256].view(2, 8, 4, 4).contiguous(memory_format=torch.channels_last)",
        ("t[:256].view(2, 8, 4, 4)",),
        how="pairs",
    ),
    "all but the last of images channels last": Arranged(
        "t[:256].view(2, 8, 4, 4).contiguous(memory_format=torch.channels_last)",
        (
            "t[:256].view(2, 8, 4, 4).contiguous(memory_format=torch.channels_last)",
            "t[:256].view(2, 8, 4, 4)",
        ),
        how="pairs",
    ),
    "images, channels last, and a number for each channel": Arranged(
        "t[:256].view(2, 8, 4, 4).contiguous(memory_format=torch.channels_last)",
        ("t[:16].view(2, 8, 1, 1)",),
        how="pairs",
    ),
    "the first input requires grad": Arranged("t[:1023].clone()", ("t[:1023].clone()",), how="grad_first"),
    "the other inputs require grad": Arranged("t[:1023].clone()", ("t[:1023].clone()",), how="grad_others"),
    "heads beside many rows": Arranged("t.repeat(53)[:67072].view(2, 262, 8, 16).transpose(1, 2)"),
    "a batch beside many rows": Arranged("t.repeat(17)[:20960].view(262, 5, 16).transpose(0, 1)"),
    "a part of a larger matrix transposed": Arranged("t.repeat(210)[:268800].view(525, 512)[:, :262].t()"),
    "every other column of a larger matrix": Arranged("t.repeat(13)[:16384].view(64, 256)[:, 1::2]"),
    "many numbers, misaligned": Arranged("t.repeat(55)[1:70001]"),
    "the first of many numbers misaligned": Arranged("t.repeat(7)[1:8195]", ("t.repeat(7)[:8194]",), how="pairs"),
    "the second of many numbers misaligned": Arranged(
        "t.repeat(7)[:8194]", ("t.repeat(7)[1:8195]", "t.repeat(7)[:8194]"), how="pairs"
    ),
    "matrices and a large one": Arranged(
        "t.repeat(14)[:17292].view(2, 131, 66)", ("t.repeat(7)[:8646].view(131, 66)",), how="pairs"
    ),
    "5003 rows and one column": Arranged(
        "t.repeat(8)[:10006].view(5003, 2)", ("t.repeat(4)[:5003].view(5003, 1)",), how="pairs"
    ),
    "one long column and one long row": Arranged("t[:131].view(131, 1)", ("t[:132].view(1, 132)",), how="pairs"),
    "rows of 41 numbers and one column": Arranged("t[:123].view(3, 41)", ("t[:3].view(3, 1)",), how="pairs"),
    "the first of images of many channels channels last": Arranged(
        "t.repeat(8)[:9520].view(2, 68, 7, 10).contiguous(memory_format=torch.channels_last)",
        ("t.repeat(8)[:9520].view(2, 68, 7, 10)",),
        how="pairs",
    ),
    "scores and a mask of their keys": Arranged(
        "t.repeat(5)[:6240].view(2, 3, 4, 260)", ("t[:520].view(2, 1, 1, 260)",), how="pairs"
    ),
    "images and a number for each channel": Arranged(
        "t.repeat(11)[:13266].view(1, 3, 66, 67)", ("t[7:10].view(3, 1, 1)",), how="pairs"
    ),
    # parts of tensors as models cut them
    "a sequence but for its first": Arranged("t[:576].view(4, 9, 16)[:, 1:]"),
    "a sequence but for its last": Arranged("t[:576].view(4, 9, 16)[:, :-1]"),
    "a sequence and what comes before": Arranged(
        "t[:576].view(4, 9, 16)[:, 1:]", ("t[:576].view(4, 9, 16)[:, :-1]",), how="pairs"
    ),
    "images but for their edges": Arranged("t[:384].view(2, 3, 8, 8)[:, :, 1:-1, 1:-1]"),
    "a third of each row": Arranged("t.repeat(4)[:4224].view(2, 11, 192)[..., :64]"),
    "heads of one of three in each row": Arranged("t.repeat(4)[:4224].view(2, 11, 3, 4, 16)[:, :, 1].transpose(1, 2)"),
    "one column of a wide matrix": Arranged("t.repeat(10)[:12800].view(50, 256)[:, 0]"),
    "one of three numbers": Arranged("t[:300].view(100, 3)[:, 0]"),
    "the first number of each row of a batch": Arranged("t.repeat(2)[:1792].view(2, 7, 128)[:, :, 0]"),
    "real parts of a batch": Arranged("t[:384].view(4, 6, 8, 2)[..., 0]"),
    "three channels of images, channels last": Arranged(
        "t[:400].view(2, 8, 5, 5).contiguous(memory_format=torch.channels_last)[:, :3]"
    ),
    "five dimensions, the first two transposed": Arranged("t[:720].view(2, 3, 4, 5, 6).transpose(0, 1)"),
    "a matrix of a tile and a part transposed": Arranged("t.repeat(10)[:12800].view(128, 100).t()"),
    "the others of volumes, channels last": Arranged(
        "t[:720].view(2, 3, 4, 5, 6)", ("t[:720].view(2, 4, 5, 6, 3).permute(0, 4, 1, 2, 3)",), how="pairs"
    ),
    "the last of images channels last": Arranged(
        "t[:256].view(2, 8, 4, 4)",
        ("t[:256].view(2, 8, 4, 4)", "t[:256].view(2, 8, 4, 4).contiguous(memory_format=torch.channels_last)"),
        how="pairs",
    ),
    "images, channels last, and a number for every channel": Arranged(
        "t[:384].view(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)",
        ("t[:3].view(1, 3, 1, 1)",),
        how="pairs",
    ),
    "heads beside rows and a number for each": Arranged(
        "t[:1024].view(2, 8, 4, 16).transpose(1, 2)", ("t[:64].view(2, 4, 8, 1)",), how="pairs"
    ),
    "square matrices, the last transposed": Arranged(
        "t[:256].view(16, 16)", ("t[:256].view(16, 16)", "t[:256].view(16, 16).t()"), how="pairs"
    ),
    "square matrices, the second transposed": Arranged(
        "t[:256].view(16, 16)", ("t[:256].view(16, 16).t()", "t[:256].view(16, 16)"), how="pairs"
    ),
    "11 misaligned elements": Arranged("t[1:12]"),
    "one number each": Arranged("t[:1].clone()", ("t[5:6].view(1, 1)",), how="pairs"),
    "one number each, the first of more dimensions": Arranged(
        "t[:1].view(1, 1)", ("t[5:6].clone()", "t[5].clone()"), how="pairs"
    ),
    "images of 1100 channels and a number for each": Arranged(
        "t.repeat(16)[:19800].view(2, 1100, 3, 3)", ("t[:1100].view(1100, 1, 1)",), how="pairs"
    ),
    # wider than a block of a row, and more rows than a grid has blocks
    "half of each wide row of a batch": Arranged("t.repeat(26)[:32912].view(2, 2, 8228)[..., :4114]"),
    "the other half of each wide row of a batch": Arranged("t.repeat(26)[:32912].view(2, 2, 8228)[..., 4114:]"),
    "a part of a wide matrix": Arranged("t.repeat(39)[:49350].view(3, 16450)[:, 2:16405]"),
    "heads of 128 numbers beside rows": Arranged("t.repeat(4)[:5120].view(2, 5, 4, 128).transpose(1, 2)"),
    "heads of 264 numbers beside rows": Arranged("t.repeat(9)[:10560].view(2, 5, 4, 264).transpose(1, 2)"),
    "images of 1100 channels, channels last": Arranged(
        "t.repeat(16)[:19800].view(2, 1100, 3, 3).contiguous(memory_format=torch.channels_last)"
    ),
    "a part of 70000 rows": Arranged("t.repeat(219)[:280000].view(70000, 4)[:, :3]"),
    "70000 matrices transposed": Arranged("t.repeat(329)[:420000].view(70000, 2, 3).transpose(1, 2)"),
    # larger, in shapes of models
    "many numbers": Arranged("t.repeat(235)[:300001]"),
    # launches that are under way have other memory: one of these has that of an earlier one
    **{f"many numbers and {k} others": Arranged(f"t.repeat(235)[:300001].roll({k})") for k in range(1, 6)},
    "large images, channels last": Arranged(
        "t.repeat(320).view(4, 64, 40, 40).contiguous(memory_format=torch.channels_last)"
    ),
    "long sequences": Arranged("t.repeat(54)[:68112].view(2, 516, 66)"),
    "a larger matrix and one wide row": Arranged("t.repeat(61)[:78000].view(260, 300)", ("t[:300]",), how="pairs"),
    "a wide matrix and one column": Arranged(
        "t.repeat(61)[:78000].view(260, 300)", ("t[:260].view(260, 1)",), how="pairs"
    ),
    "long sequences and one row": Arranged("t.repeat(61)[:78000].view(3, 130, 200)", ("t[:200]",), how="pairs"),
    "large images and a number for each channel": Arranged(
        "t.repeat(71)[:89760].view(5, 16, 33, 34)", ("t[:16].view(16, 1, 1)",), how="pairs"
    ),
    "the first of larger matrices transposed": Arranged(
        "t.repeat(104)[:131841].view(513, 257).t()", ("t.repeat(104)[:131841].view(257, 513)",), how="pairs"
    ),
    "the others of larger matrices transposed": Arranged(
        "t.repeat(104)[:131841].view(257, 513)", ("t.repeat(104)[:131841].view(513, 257).t()",), how="pairs"
    ),
    "a batch of matrices, the others transposed": Arranged(
        "t.repeat(7)[:8448].view(8, 32, 33)", ("t.repeat(7)[:8448].view(8, 33, 32).mT",), how="pairs"
    ),
    "a long sequence but for its first": Arranged("t.repeat(103)[:131328].view(4, 513, 64)[:, 1:]"),
    "larger images but for their edges": Arranged("t.repeat(41)[:52272].view(4, 3, 66, 66)[:, :, 1:-1, 1:-1]"),
    "five large dimensions permuted": Arranged("t.repeat(54).view(4, 6, 8, 9, 40).movedim(1, 3)"),
    "a matrix expanded to a large batch": Arranged("t.repeat(13)[:16384].view(1, 128, 128).expand(8, 128, 128)"),
    "every other row of a large matrix": Arranged("t.repeat(205)[:262144].view(1024, 256)[::2]"),
    "a large batch and one row each": Arranged(
        "t.repeat(103)[:131072].view(8, 256, 64)", ("t[:512].view(8, 1, 64)",), how="pairs"
    ),
    "a large batch and one column each": Arranged(
        "t.repeat(103)[:131072].view(8, 256, 64)", ("t.repeat(2)[:2048].view(8, 256, 1)",), how="pairs"
    ),
    "a large batch and one matrix": Arranged(
        "t.repeat(103)[:131072].view(8, 256, 64)", ("t.repeat(13)[:16384].view(256, 64)",), how="pairs"
    ),
    "one column and one row of a large matrix": Arranged(
        "t[:512].view(512, 1)", ("t[128:640].view(1, 512)",), how="pairs"
    ),
    "a large matrix, one row and one column": Arranged(
        "t.repeat(71)[:90000].view(300, 300)", ("t[:300]", "t[:300].view(300, 1)"), how="pairs"
    ),
    "the first of large images channels last": Arranged(
        "t.repeat(103)[:131072].view(2, 64, 32, 32).contiguous(memory_format=torch.channels_last)",
        ("t.repeat(103)[:131072].view(2, 64, 32, 32)",),
        how="pairs",
    ),
    "the last of many numbers one": Arranged(
        "t.repeat(55)[:70001]", ("t.repeat(55)[:70001]", "t[5].clone()"), how="pairs"
    ),
    "65537 rows": Arranged("t.repeat(103)[:131074].view(65537, 2)"),
    "65537 columns": Arranged("t.repeat(103)[:131074].view(2, 65537)"),
}


#: With each other Python scalar also these, by the number of tensors: many numbers, misaligned ones, matrices within
#: three dimensions, one input without dimensions, and broadcast ones; with those that are no multiple of a quarter up
#: to ROUNDEST, for which code seldom has ways of its own, one by turns.
ROUNDEST = 8
MANY = Arranged("t.repeat(-(-30003 // len(t)))[:30003]")  # torch divides more among threads, by places
GRID = Arranged("t.repeat(-(-98304 // len(t)))[:98304]")  # as many as two threads or three divide into whole vectors
BESIDE: Mapping[int, tuple[Arranged, ...]] = {
    1: (
        MANY, Arranged("t[1:1028]"), Arranged("t[:1008].view(7, 12, 12).mT"), Arranged("t[5].clone()"),
        Arranged("t[:1020].view(34, 30).t()"),
    ),
    2: (
        MANY, Arranged("t[1:1028]"), Arranged("t[:1008].view(7, 12, 12)", ("t[:1008].view(7, 12, 12).mT",)),
        Arranged("t[:100]", ("t[5].clone()",)),
        Arranged("t[:32]", ("t[:1024].view(32, 32)",)),
        Arranged("t[:512].view(2, 8, 4, 8)", ("t[:8].view(8, 1, 1)",)),
        Arranged("t[:1024].view(32, 32).t()", ("t[:32].view(32, 1)",)),
        Arranged("t[:24].view(2, 3, 4)", ("t[:4]",)),
    ),
    3: (
        MANY, Arranged("t[1:1028]", ("t[:1027]",)),
        Arranged("t[:1008].view(7, 12, 12)", ("t[:1008].view(7, 12, 12)", "t[:1008].view(7, 12, 12).mT")),
        Arranged("t[:100]", ("t[5].clone()", "t[:100]")),
        Arranged("t[:100]", ("t[:100]", "t[5].clone()")),
        Arranged("t[:32]", ("t[:1024].view(32, 32)",)),
        Arranged("t[:1024].view(32, 32)", ("t[:1024].view(32, 32).t()", "t[:32].view(32, 1)")),
        Arranged("t[:512].view(2, 8, 4, 8)", ("t[:8].view(8, 1, 1)", "t[:512].view(2, 8, 4, 8)")),
    ),
}  # fmt: skip


#: ... and with those of SIMPLE these, with an output to write and inputs that require grad too.
SIMPLE = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, -3.0, 4.0)
LAID = (
    GRID, Arranged("t[:1028:2]"), Arranged("t[:33].view(33, 1).expand(33, 31)"),
    Arranged("t[:480].view(2, 3, 8, 10).contiguous(memory_format=torch.channels_last)"),
    Arranged("t[:1023].clone()", how="out"), Arranged("t[:1023].clone()", how="grad"),
)  # fmt: skip
LAID_OF_SEVERAL = (
    Arranged("t[:32].view(32, 1)", ("t[:1024].view(32, 32)",)),
    Arranged("t[:32].view(1, 32)", ("t[:1024].view(32, 32)",)),
    Arranged("t[5].clone()", ("t[:100]",)), Arranged("t[-1000:]", how="same"),
)  # fmt: skip


#: ... and with those for which code may have no product: a matrix whose last elements fill no block.
MATRIX, FACTORS = Arranged("t[:1054].view(34, 31)"), (0.0, 1.0, -1.0, 2.0)


#: Of a lowering that is compiled for each shape: the elements of the walk's launch, all of them, in that shape.
WHOLE: Mapping[str, Arranged] = {
    "other places and neighbours": Arranged("t[torch.arange(len(t), device=t.device) * 787 % len(t)]"),
}


#: Of a registered lowering whose calls differ within the bound.
DEPENDS = "bits depend on how it is called, and keep their bound: see its calls"


@dataclass(frozen=True)
class Called:
    """What the calls of a lowering gave.

    made, refused    how many gave a result, and those that the lowering refused, with its exception
    different        those whose bits are others
    bits             digests of what those of an elementwise function gave
    errors           of those with problems of their own that pass, the largest error, see `error_of`
    untried          those that were not made, for want of time or of a process that answers
    status, kind     what they give the cell, with the kind of its reason, and `told`, a line for people
    excused          why different bits are no fault
    script           lines of Python that show the smallest call of other bits
    later            in words, the call of which `settled` asks whether more was written; '' where none was made
    """

    made: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    different: tuple[str, ...] = ()
    bits: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    untried: tuple[str, ...] = ()
    status: str = "passed"
    kind: str = "calls"
    told: str = ""
    excused: str = ""
    script: str = ""
    later: str = ""

    def settled(self, lowering: Callable[..., Any]) -> Called:
        """With what became of the output of the call `later`. To be asked once all else is done, since a process waits
        for what is written late only as long as nothing else has taken."""
        if self.later and self.status != "error":
            try:
                lowering.settle()  # type: ignore[attr-defined]
            except LoweringError as error:
                told = f"called with {self.later}: {error}"
                return replace(self, status="error", kind=error.kind, told=told, script="", later="")
        return replace(self, later="")

    def counted(self, lowering: Callable[..., Any]) -> Called:
        """Unjudged where most of a user's own calls were not made, and compiling them is not what took the time."""
        made, left = self.made + len(self.refused), len(self.untried)
        if self.status != "passed" or left <= made or getattr(lowering, "compiles", lambda: True)():
            return self
        told = (
            f"{left} of {made + left} other calls were not made, since those before took {SECONDS:g} s of a processor"
            f" or {LONGEST:g} s by the clock: {listed(self.untried)}"
        )
        return replace(self, status="unjudged", told=told)

    @property
    def remark(self) -> str:
        """For people: what is wrong, else what is not as in the plain call."""
        parts = {"refused": self.refused, "not made": self.untried}
        rest = [f"calls {what}: {listed(names)}" for what, names in parts.items() if names]
        if self.refused:
            rest[0] += f" ({textwrap.shorten(next(iter(self.refused.values())), 120)})"
        return self.told or "; ".join(filter(None, (self.excused, *rest)))

    def record(self) -> dict[str, Any]:
        lists = {
            "different": list(self.different),
            "bits": dict(self.bits),
            "errors": dict(self.errors),
            "untried": list(self.untried),
            "refused": dict(self.refused),
        }
        status = "" if self.status == "passed" else self.status
        return {"made": self.made, "status": status, **lists, "note": self.excused, "script": self.script.splitlines()}


def listed(names: Collection[str]) -> str:
    """The first names of calls, and how many there are of those that are drawn."""
    named = [name for name in names if not name.startswith(ARRANGEMENT)]
    drawn, more = len(names) - len(named), len(named) - LISTED
    told = [f"{more} more"] * (more > 0) + [f"{drawn} of {DRAWN} drawn {ARRANGEMENT}s"] * (drawn > 0)
    return ", ".join((*named[:LISTED], *told))


@dataclass(frozen=True)
class Sample:
    """Elements of the walk's first launch, and the bits that it gave. Tensors of shape (SIZE,). kinds: by name samples
    of other sizes, whose elements are all of one kind."""

    inputs: tuple[Tensor, ...]
    expected: Tensor
    kinds: Mapping[str, Sample] = field(default_factory=dict)

    def to(self, device: str) -> Sample:
        """The same on another device."""
        kinds = {name: one.to(device) for name, one in self.kinds.items()}
        return Sample(tuple(t.to(device) for t in self.inputs), self.expected.to(device), kinds)

    @classmethod
    def of(cls, inputs: Sequence[Tensor], y: Tensor, kinds: bool = False) -> Sample:
        """kinds: with those of ordinary numbers, since code that looks at all of a tensor, or of a block, takes other
        paths where there is nothing else."""
        index = torch.tensor(spread(len(y), SIZE), dtype=torch.int64, device=y.device)
        index = index[torch.arange(SIZE, device=y.device) * 787 % len(index)]  # mixed, or the first were one stratum's
        odd = _odd(inputs)[: SIZE // 2]
        index = torch.cat([odd, index[: SIZE - len(odd)]])
        telling = _telling(y[index])
        telling[: len(odd)] = False
        # first what tells, so that calls of one element are not of a zero; then of three elements two
        count = telling.cumsum(0)
        rank = torch.where(telling, count, FIRST + 2 * (torch.arange(1, SIZE + 1, device=y.device) - count))
        index = index[torch.argsort(rank, stable=True)]
        apart = {name: where.nonzero()[:ROOM, 0] for name, where in _kinds(inputs, y)} if kinds else {}
        apart = {name: _mixed(places, inputs, y) for name, places in apart.items() if len(places) >= FEW}
        held = {name: cls(tuple(t[places] for t in inputs), y[places]) for name, places in apart.items()}
        return cls(tuple(t[index] for t in inputs), y[index], held)


def _mixed(places: Tensor, inputs: Sequence[Tensor], y: Tensor) -> Tensor:
    """In another order, since in a domain's own an input may be one number for hundreds of elements; first those of
    moderate inputs whose result is none of these: in whatever pairs they meet, each of them tells."""
    step = next(prime for prime in (787, 797) if len(places) % prime)
    mixed = places[torch.arange(len(places), device=places.device) * step % len(places)]
    mute = torch.zeros_like(mixed, dtype=torch.bool)
    for t in inputs:
        size = t[mixed].abs()
        mute |= (size > MODERATE) | (size < 1 / MODERATE) | (y[mixed] == t[mixed])
    found: Tensor = mixed[torch.argsort(mute.to(torch.uint8), stable=True)]
    return found


def _telling(y: Tensor) -> Tensor:
    """Which results show an error: normal numbers, but for those that many inputs have, such as 1 of a sigmoid."""
    _, which, counts = torch.unique(bits(y), return_inverse=True, return_counts=True)
    found: Tensor = y.isfinite() & (y.abs() >= torch.finfo(y.dtype).smallest_normal) & (counts[which] <= EACH)
    return found


def _odd(inputs: Sequence[Tensor]) -> Tensor:
    """Places of elements with infinities, NaNs or zeros, a few of each combination, among those that come first; one of
    each before others, of one input before those of several."""
    kind = torch.zeros(min(len(inputs[0]), EARLY), dtype=torch.int64, device=inputs[0].device)
    several = torch.zeros_like(kind)
    for whole in inputs:
        t = whole[: len(kind)]
        special = torch.where(t.isinf(), 1, torch.where(t.isnan(), 2, torch.where(t == 0, 3, 0)))
        kind = kind * 8 + special * 2 + (torch.signbit(t) & (special > 0) & ~t.isnan())
        several += special > 0
    ordered, places = torch.sort(kind, stable=True)
    _, counts = torch.unique_consecutive(ordered, return_counts=True)
    within = torch.arange(len(kind), device=kind.device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    found = (ordered > 0) & (within < EACH)
    order = within * (len(inputs) + 1) + several[places]
    return places[found][torch.argsort(order[found], stable=True)]


def _kinds(inputs: Sequence[Tensor], y: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Kinds of elements by name, and which are of them."""
    least = torch.finfo(y.dtype).smallest_normal
    every = torch.ones_like(y, dtype=torch.bool)
    finite, normal, positive, negative = y.isfinite(), every, every, every
    for t in inputs:
        finite = finite & t.isfinite()
        normal = normal & (t.abs() >= least)
        positive, negative = positive & (t > 0), negative & (t < 0)
    yield "finite numbers", finite
    for most in (math.inf, 2.0**12, 2.0**6, 2.0**3):
        within = finite & normal
        for t in inputs if math.isfinite(most) else ():
            within = within & (t.abs() <= most) & (t.abs() >= 1 / most)
        told = f" within 2^{math.frexp(most)[1] - 1}" if math.isfinite(most) else ""
        yield f"{ORDINARY}{told}", within
        yield f"positive {ORDINARY}{told}", within & positive
        yield f"negative {ORDINARY}{told}", within & negative


@dataclass(frozen=True)
class Underway(Generic[U]):
    """A call that has begun: what ends it and gives its result, and what lets it end for nobody."""

    end: Callable[[], U | None]
    drop: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class _One:
    """A call that gave other bits: flat inputs and output, what this should be, and the first place; y is None where
    it broke the contract in the way that `broken` says. note: what is added to it."""

    given: tuple[Tensor, ...]
    y: Tensor | None
    expected: Tensor
    place: int = 0
    broken: str = ""
    note: str = ""

    @property
    def digest(self) -> str:
        return "" if self.y is None else hashlib.sha256(octets(self.y).cpu().numpy().tobytes()).hexdigest()[:8]

    def told(self, fmt: Format) -> str:
        if self.y is None:
            return self.broken + self.note
        *given, got, due = (
            fmt.hex(patterns(t[self.place :][:1], fmt)[0]) for t in (*self.given, self.y, self.expected)
        )
        return f"{', '.join(given)} -> {got}, plain {due}{self.note}"


def call_all(
    case: Pointwise, target: Target, lowering: Lowering, call: Callable[..., Any], reference: Lowering | None,
    sample: Sample, *, mine: bool = True, scalars: bool = True,
) -> Called:  # fmt: skip
    """Make every call of the table with the lowering, built as `call`, whose results are to be those of the sample.

    reference: the registered lowering; a dependence that it shares is reported, and is no fault within the bound. mine:
    the lowering is a user's own; a dependence of registered ones within the bound is only reported. scalars: it is
    to take other Python scalars than the case's.
    """
    if getattr(call, "isolated", False):  # its process has inputs of its own; of few elements the host knows sooner
        case, sample = case.there("cpu"), sample.to("cpu")
    table = dict(WHOLE if lowering.each_shape else _suited(sample, call, target, mine))
    usual = set(table)  # rather shown than those that are drawn
    samples = {f"{name} alone": one for name, one in sample.kinds.items()}
    if mine and not lowering.each_shape:
        table |= dict(_drawn(len(sample.inputs), case.inputs.seed)) | dict.fromkeys(samples, Arranged("t.clone()"))
        alike = _alike_cases(target)
        neutral = bool(alike) and {*alike[0].values()} == {1.0}  # with which code takes a path of its own
        if len(sample.inputs) > 1 and dict(target.scalars) not in alike[1 + neutral :]:
            table |= {**dict(_broadcast(len(sample.inputs))), **dict(_viewed(len(sample.inputs)))}
    begin: dict[str, Callable[[], Underway[_One | _Doubted] | None]]
    of = {name: samples.get(name, sample) for name in table}
    paired = {name: (one, of[name]) for name, one in table.items() if one.how in ("same", "pairs")}
    plain = _Plain(call, paired, target, lowering.name)
    begin = {
        name: partial(_calling, call, one, of[name], target, lowering.name, partial(plain.of, name))
        for name, one in table.items()
    }
    if mine:
        begin |= _judged_calls(case, target, lowering, call, reference, sample, scalars)
    found, wrong = tried(begin, lambda name: f"{name}, {table[name]}" if name in table else name, call, _sifted)
    if not wrong or found.told:
        return found
    found = replace(found, bits={name: one.digest for name, one in wrong.items() if one.y is not None})
    judged = [f"called with {name}: {wrong.pop(name).broken}" for name in [*wrong] if name not in table]
    more = [f"and {len(judged) - SHOWN} more calls that are judged"] if len(judged) > SHOWN else []
    beyond = "; ".join((*judged[:SHOWN], *more))
    if not wrong:
        return replace(found, status="exceeds-bound", told=beyond)
    samples[""] = sample
    if mine and not beyond and reference and _alike(reference, target, samples, table, wrong):
        told = f"bits depend on the call, and are those of {reference.name} in each: {listed(wrong)}"
        return replace(found, excused=told)
    given = [one for one in wrong.values() if one.y is not None]
    kept, exceeds = _within(case, target, lowering, given, mine) if given else (True, False)
    within = kept and len(given) == len(wrong)
    known = reference
    if beyond:
        reference = None  # nothing is excused beside it
    if within and not mine:
        return replace(found, excused=DEPENDS)
    if within and reference is not None and _depends(reference, target, sample, {k: table[k] for k in wrong}):
        told = f"bits depend on the call, as those of {reference.name} do, and keep their bound: {listed(wrong)}"
        return replace(found, excused=told)
    order = sorted(wrong, key=lambda key: (key not in usual, len(wrong[key].expected)))
    if mine and exceeds:  # an example is no call in which the bound is kept, nor one with the known lowering's own bits
        for key in order:
            place = _first_beyond(case, target, lowering, wrong[key])
            if place is not None and not (known and _alike(known, target, samples, table, {key: wrong[key]})):
                wrong[key] = replace(wrong[key], place=place)
                order = [key, *(other for other in order if other != key)]
                break
    name = order[0]
    what = "give other bits than the plain call" if given else "fail"
    what += ", beyond the bound" if exceeds else ", within the bound" if given and kept else ""
    told = (
        f"{len(wrong)} of {found.made} calls {what}; "
        f"the smallest: {name}, {table[name]}: {wrong[name].told(FORMATS[target.dtype])}"
    )
    told = "; ".join(filter(None, (told, beyond)))
    first = order[:SHOWN] if mine else []
    first += [AGAIN] if mine and AGAIN in table else []  # which shows what is kept of other numbers
    scripts = (
        _script(call, table[k], samples.get(k, sample), wrong.get(k, wrong[name]), target, lowering) for k in first
    )
    script = next(filter(None, scripts), "")
    status = "exceeds-bound" if exceeds or beyond else "unsteady"
    return replace(found, status=status, told=told, script=script)


def tried(
    calls: Mapping[str, Callable[[], Underway[S] | S | None]], told: Callable[[str], str], lowering: Callable[..., Any],
    sift: Callable[[dict[str, S]], dict[str, T]],
) -> tuple[Called, dict[str, T]]:  # fmt: skip
    """Make the calls, as long as there is time: what that gave, and the results of those that are wrong. told: a call
    in words; lowering: what is called, as built; sift: which of the results that calls gave are wrong. As many as
    UNDERWAY are under way at a time, and end in their order. A broken contract ends them, with status 'error'."""
    with backends.sharing(backends.threads(), JUDGING):
        return _tried(calls, told, lowering, sift)


def _tried(
    calls: Mapping[str, Callable[[], Underway[S] | S | None]], told: Callable[[str], str], lowering: Callable[..., Any],
    sift: Callable[[dict[str, S]], dict[str, T]],
) -> tuple[Called, dict[str, T]]:  # fmt: skip
    found, given, refused = Called(), dict[str, S](), dict[str, str]()
    elsewhere = getattr(lowering, "spent", lambda: 0.0)

    def spent() -> float:
        return time.thread_time() + elsewhere()  # torch's other threads wait more than they work

    began, before, names = time.monotonic(), spent(), list(calls)
    made = 0

    def ended(place: int, one: Underway[S]) -> None:
        """Take the result of a call."""
        nonlocal found, made
        name = names[place]
        try:
            result = one.end()
        except (LoweringError, NotLowered) as error:
            if isinstance(error, LoweringError) and error.kind != "raised":
                text = f"called with {told(name)}: {error}"
                found = replace(found, status="error", kind=error.kind, told=text, untried=tuple(names[place:]))
            else:
                refused[name] = str(error)
            return
        made += 1
        if result is not None:
            given[name] = result

    underway = deque[tuple[int, Underway[S]]]()
    try:
        for place, name in enumerate(names):
            if spent() - before > SECONDS or time.monotonic() - began > LONGEST:
                found = replace(found, untried=tuple(names[place:]))
                break
            ahead = UNDERWAY - 1
            try:
                one = calls[name]()
            except (LoweringError, NotLowered) as error:
                one, ahead = Underway(partial(_raise, error)), 0  # nothing begins after what may end them all
            underway.append((place, one if isinstance(one, Underway) else Underway(partial(_given_back, one))))
            while len(underway) > ahead and found.status == "passed":
                ended(*underway.popleft())
            if found.status != "passed":
                break
        while underway and found.status == "passed":
            ended(*underway.popleft())
    finally:
        for _, left in underway:
            left.drop()
    wrong = sift(given)
    later = told(LATER) if LATER in calls and hasattr(lowering, "settle") else ""
    found = replace(found, made=made, refused=refused, different=tuple(wrong), later=later)
    return found.settled(lowering) if wrong else found, wrong  # to find the cause may take another process


def _raise(error: BaseException) -> NoReturn:
    raise error


def _given_back(result: S | None) -> S | None:
    return result


def possible(how: str, call: Callable[..., Any], target: Target) -> bool:
    """Whether a call can be made in that manner: in a process of its own, on a device that has streams."""
    module = getattr(torch, torch.device(target.backend.device).type, None)  # not every device has one
    streams = hasattr(module, "_sleep")
    return how not in MANNERS or (hasattr(call, "manner") and (how != "stream" or streams))


def edges(call: Callable[..., Any]) -> list[int]:
    """Sizes beside the edges of the blocks of a user's Triton kernels, as far as the launches told them."""
    return sorted({n for block in getattr(call, "launched_blocks", ()) for n in (block - 1, block, block + 1)})


def _suited(
    sample: Sample, call: Callable[..., Any], target: Target, mine: bool = False
) -> Iterator[tuple[str, Arranged]]:
    for name, one in {**CALLS, **(OWN if mine else {})}.items():
        if (len(sample.inputs) > 1 or not one.others) and possible(one.how, call, target):
            yield name, one
    for n in sorted({*edges(call), *(LARGE if mine else ())}):
        if f"{n} elements" not in CALLS:
            # the first elements, which tell, come last: beyond the edge
            yield f"{n} elements", Arranged(f"{_first(n)}.flip(0)")


def _broadcast(arity: int) -> Iterator[tuple[str, Arranged]]:
    """Every way in which two inputs are broadcast in two to four dimensions, or one of them in five; some of several in
    two, those beside a whole one in three, and in four those that are broadcast alike, as along wide dimensions and of
    several along equal ones. Along sizes that vectors divide, odd ones and equal ones, all or some, and to no element.
    Dimensions of size 1 that come first are there, or are left out, by turns where there are many."""
    for shape in SHAPES if arity == 2 else (shape for shape in SHAPES if shape not in PAIRED):
        having = list(itertools.product((True, False), repeat=len(shape)))
        wide, square = max(shape) > WIDE, len({*shape}) == 1 and len(shape) > 2
        for place, inputs in enumerate(itertools.product(having, repeat=arity)):
            wanting = [one for one in inputs if not all(one)]
            if not wanting or not all(map(any, zip(*inputs, strict=True))):
                continue
            if len(wanting) > (1 if len(shape) > 4 else arity - (arity > 2 and len(shape) > 2)):
                continue
            if (wide or (arity > 2 and (square or len(shape) > 3))) and len({*wanting}) > 1:
                continue
            whole = [tuple(n if has else 1 for n, has in zip(shape, one, strict=True)) for one in inputs]
            short = [one[next((k for k, n in enumerate(one) if n != 1), len(one)) :] for one in whole]
            both = not wide and (len({*wanting}) == 1 or (arity == 2 and len(shape) < 4))
            turn = short if wide or place % 2 else whole  # of wide ones as people write them
            for each in (whole, short) if both else (turn,):
                yield _shaped(each)
    for one, other in ALONG:
        yield _shaped([one, *[other] * (arity - 1)])
        yield _shaped([other, *[one] * (arity - 1)])


def _viewed(arity: int) -> Iterator[tuple[str, Arranged]]:
    """Each view of VIEWS in place of each input, beside whole ones; and beside each input that is broadcast along some
    of its dimensions, dense, with gaps or from an odd offset: of two inputs in either order, of three in two of the
    orders by turns, in all of them beside one number, and where both others are that view."""
    orders = list(itertools.permutations(range(arity), 2))
    turns = itertools.cycle(orders)
    for shape, view in VIEWS:
        whole = f"t[:{math.prod(shape)}].view({shape})"
        for place in range(arity):
            yield _named([view if k == place else whole for k in range(arity)])
        for other in _partners(shape):
            for place, beside in orders if other == NUMBER else itertools.islice(turns, 2):
                yield _named([view if k == place else other if k == beside else whole for k in range(arity)])
            for beside in () if arity < 3 else range(arity) if other == NUMBER else [next(turns)[0]]:
                yield _named([other if k == beside else view for k in range(arity)])
        next(turns)  # or each view would have the same places


def _partners(shape: tuple[int, ...]) -> Iterator[str]:
    """What is broadcast to a shape: along one dimension, or the last two, as expressions; and one number."""
    axes = [(n, *(1 for _ in shape[k + 1 :])) for k, n in enumerate(shape)] if len(shape) > 1 else []
    for one in (*axes, *([shape[-2:], (1, 1, *shape[-2:])] if len(shape) > 2 else [])):
        n = math.prod(one)
        yield f"t[:{n}].view({one})"
        yield f"t[:{3 * n}].view({n}, 3)[:, 0].view({one})"
        yield f"t[9:{9 + n}].view({one})"
    yield from (NUMBER, "t[3]")


def _named(views: Sequence[str]) -> tuple[str, Arranged]:
    first, *others = views
    return f"{VIEWED} {', '.join(views)}", Arranged(first, tuple(others), how="pairs")


def _shaped(shapes: Sequence[tuple[int, ...]]) -> tuple[str, Arranged]:
    """Inputs of these shapes, which are broadcast."""
    shown = " with ".join("x".join(map(str, one)) or "one number" for one in shapes)
    first, *others = (f"{_first(math.prod(one))}.view({one})" for one in shapes)
    return f"{BROADCAST} {shown}", Arranged(first, tuple(others), how="pairs")


def _first(n: int) -> str:
    """The first n elements of t, over and over, as an expression."""
    return f"t[:{n}]" if n <= SIZE else f"t.repeat({-(-n // SIZE)})[:{n}]"


def _drawn(arity: int, seed: int) -> Iterator[tuple[str, Arranged]]:
    """Arrangements of which nobody has thought: shapes of up to twelve dimensions, and for each input its strides, with
    gaps, permuted, repeated and overlapping, dimensions that it is broadcast along or lacks, and its offset."""
    draw = random.Random(f"{arity} {seed}")
    for k in range(DRAWN):
        left, rank = draw.choice((64, SIZE, ROOM, ROOM)), draw.choice((1, 2, 2, 2, 3, 3, 4, 5, 6, 8, 9, 12))
        shape: list[int] = []
        for axis in range(rank):
            most = min(left, 3 * left ** (1 / (rank - axis)))
            shape.append(1 if draw.random() < 0.1 else draw.choice([n for n in SIZES if n <= most]))
            left //= shape[-1]
        draw.shuffle(shape)
        first, *others = (_view(draw, shape, alone=arity == 1) for _ in range(arity))
        how = "" if not others else draw.choice(("pairs", "pairs", "same"))
        yield f"{ARRANGEMENT} {k + 1}", Arranged(first, tuple(others), how)


def _view(draw: random.Random, shape: Sequence[int], *, alone: bool) -> str:
    """A view of t that is broadcast to the shape, as an expression. alone: it is the only input; of several, one may be
    as in the plain call."""
    sizes, plain = list(shape), not alone and draw.random() < 0.4
    if not (alone or plain):
        sizes = [1 if draw.random() < 0.2 else n for n in shape]
        sizes = sizes[draw.choice((0, 0, 0, 0, 1, 2)) % len(sizes) :]
    order = list(range(len(sizes)))[::-1]
    if not plain and draw.random() < 0.5:
        draw.shuffle(order)
    strides, dense = [0] * len(sizes), plain or draw.random() < 0.4
    extent = 1 if dense else draw.choice((1, 1, 2, 3))
    for axis in order:
        odd = 1.0 if dense else draw.random()
        strides[axis] = 0 if odd < 0.1 else 1 if odd < 0.15 else extent
        if sizes[axis] > 1:
            extent = max(extent, strides[axis] * sizes[axis] + (0 if dense else draw.choice((0, 0, 1, 5))))
    offset = 0 if plain else draw.choice((0, 0, 1, 3, 64, 257))
    last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    base = "t" if last < SIZE else f"t.repeat({last // SIZE + 1})"
    return f"{base}.as_strided({tuple(sizes)}, {tuple(strides)}, {offset})"


def _arranged(text: str, t: Tensor) -> Tensor:
    arranged: Tensor = eval(text, {"torch": torch, "t": t})  # an expression of the table above
    return arranged


def _given(arranged: Arranged, sample: Sample) -> list[Tensor]:
    inputs = [sample.inputs[0]] * len(sample.inputs) if arranged.how == "same" else sample.inputs
    return [_arranged(arranged.of(k), t) for k, t in enumerate(inputs)]


class _Plain:
    """What a lowering gives in the plain call for the inputs of calls, by name, whose elements do not meet as in the
    walk's launch: of as many as have ROOM elements in one launch, each at a multiple of `aligned`."""

    def __init__(
        self, call: Callable[..., Any], calls: Mapping[str, tuple[Arranged, Sample]], target: Target, name: str,
        aligned: int = ALIGNED,
    ) -> None:  # fmt: skip
        self.call, self.target, self.name, self.aligned = call, target, name, aligned
        self.waiting, self.found = dict(calls), dict[str, Tensor]()

    def of(self, name: str) -> Tensor:
        """The flat output for one of them, to be asked once."""
        if name not in self.found:
            self._launch(name)
        return self.found.pop(name)

    def _launch(self, first: str) -> None:
        """Of that one, and of those that follow, unless they are refused together."""
        some, count = dict[str, list[Tensor]](), 0
        for name in itertools.dropwhile(first.__ne__, self.waiting):
            flat = _flat(_given(*self.waiting[name]))
            count += len(flat[0])
            if some and count > ROOM:
                break
            some[name] = flat
        try:
            self.found |= self._outputs(some)
        except (LoweringError, NotLowered):
            if len(some) == 1:
                raise
            some = {first: some[first]}
            self.found |= self._outputs(some)
        finally:
            for name in some:
                del self.waiting[name]

    def _outputs(self, some: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        """By name, of flat inputs."""
        sizes = {name: len(flat[0]) for name, flat in some.items()}
        room = [size + -size % self.aligned for size in sizes.values()]
        pad, each = torch.nn.functional.pad, zip(some.values(), room, strict=True)
        padded = ([pad(t, (0, n - len(t))) for t in flat] for flat, n in each)
        given = [torch.cat(parts) for parts in zip(*padded, strict=True)]
        y = launch_steady(self.call, given, self.target.backend, self.name, repeats=1).output.clone()  # its own memory
        return {name: part[: sizes[name]] for name, part in zip(some, torch.split(y, room), strict=True)}


def _flat(given: Sequence[Tensor]) -> list[Tensor]:
    """Inputs of the broadcast shape, one-dimensional."""
    shape = np.broadcast_shapes(*(t.shape for t in given))
    return [t.expand(shape).reshape(-1) for t in given]


def _called(
    call: Callable[..., Any], arranged: Arranged, sample: Sample, target: Target, name: str, usual: str = USUAL
) -> _One | None:  # fmt: skip
    """Make the call; None where it gives the bits that it should. usual: the manner of one that has none."""
    plain = _Plain(call, {"": (arranged, sample)}, target, name, aligned=1)  # as scripts have it
    return _calling(call, arranged, sample, target, name, lambda: plain.of(""), usual).end()


def _calling(
    call: Callable[..., Any], arranged: Arranged, sample: Sample, target: Target, name: str,
    plain: Callable[[], Tensor], usual: str = USUAL,
) -> Underway[_One]:  # fmt: skip
    """The call, under way; its result as of `_called`. plain: the flat output of the plain call, where that is none of
    the walk's."""
    given = _given(arranged, sample)
    shape, flat = np.broadcast_shapes(*(t.shape for t in given)), tuple(_flat(given))
    if arranged.how in ("same", "pairs"):
        due = plain()
    else:
        due = _arranged(arranged.first, sample.expected).expand(shape).reshape(-1)

    def begun(how: str) -> Begun:
        with getattr(call, "manner", nullcontext)(how):
            return Begun(call, given, target.backend, name)

    def ended(launch: Begun, how: str) -> _One | None:
        try:
            y = launch.result()[""].reshape(-1)
        except LoweringError as error:
            if error.kind != "contract" or (arranged.how in MANNERS and not arranged.others):
                raise
            return _One(flat, None, due, broken=str(error))  # of broadcast inputs it may be the shape
        if how == "outputs":  # where what is compiled may run as it is written
            return None
        different = differing(y, due)
        return _One(flat, y, due, int(different.to(torch.uint8).argmax())) if bool(different.any()) else None

    def end() -> _One | None:
        found = ended(first, how)
        if found is None or arranged.how in MANNERS or not (usual and hasattr(call, "manner")):
            return found
        return ended(begun(""), "") or replace(found, note=f" {AFTER}")

    how = arranged.how if arranged.how in MANNERS else usual
    first = begun(how)
    return Underway(end, first.drop)


def _judged_calls(
    case: Pointwise, target: Target, lowering: Lowering, call: Callable[..., Any], reference: Lowering | None,
    sample: Sample, free: bool,
) -> dict[str, Callable[[], Underway[_One | _Doubted] | None]]:  # fmt: skip
    """Calls that are judged by a truth of their own: with round numbers, and, in the first case of its kind, with other
    Python scalars, usual ones and drawn ones (`free`: it is to take them), as far as its signature has them."""
    facts, scalars = target.kernel, dict(target.scalars)
    arity = len(sample.inputs)
    numbers = _round_numbers(sample.expected, arity)
    found: dict[str, Callable[[], Underway[_One | _Doubted] | None]]
    judged = partial(_judging, case, target, lowering, call, reference)
    found = {"round numbers": partial(judged, numbers)}
    for place, name in enumerate(target.kernel.tensors(scalars)):  # code looks for what is the same everywhere
        same = [torch.full_like(t, 0.7) if k == place else t for k, t in enumerate(sample.inputs)]
        found[f"one number as {name}"] = partial(judged, same)
    # in a first case of these scalars, and in one more, since a factor of 1 does not show
    alike = _alike_cases(target)[:2]
    if scalars not in alike:
        return found
    special = _special_numbers(sample.expected, arity)
    drawn = [torch.cat(both) for both in zip(sample.inputs, special, strict=True)]
    found |= {name: partial(judged, *given) for name, given in _everywhere(target, drawn)}
    found |= {name: partial(judged, given) for name, given in _ranged(target, drawn, case.inputs.seed)}
    if not free or scalars != alike[0]:
        return found
    ordinary = sample.kinds.get(ORDINARY)
    ordinary = ordinary if ordinary and len(ordinary.expected) >= SIZE else None
    listed = (*SCALARS, *(SCALARS_64 if target.dtype == "float64" else ()))
    usual: list[Scalars] = [{name: value} for name in scalars for value in (*listed, *facts.apart.get(name, ()))]
    usual += [one for one in facts.cases if one.keys() == scalars.keys()]
    usual += _ranging(scalars, case.inputs.seed)
    for place, given in enumerate((*usual, drawn_scalars(scalars, case.inputs.seed))):
        other = {**scalars, **given}
        if not any(spelling.applies(other) for spelling in facts.spellings.values()):
            continue
        on = replace(target, scalars=other)
        on = replace(on, spelling=on.default_spelling)
        apart = Pointwise(facts, other, target.dtype, target.backend, case.inputs).there(case.device)
        label = " ".join(f"{name}={_shown(value)}" for name, value in given.items())
        judged_too = facts.cases[: facts.quick_cases or None]  # of the others none is in a quick run
        if told_apart(other) not in map(told_apart, judged_too) or any(
            isinstance(value, int) for value in given.values()
        ):
            found[label] = partial(_fitting, apart, on, lowering, None, reference, drawn)
        for one in (*_beside(given, arity, place), *[MATRIX] * bool(set(given.values()) & {*FACTORS})):
            of = drawn[:1] * arity if one.how == "same" else ordinary.inputs if ordinary else drawn
            passed = [_arranged(one.of(k), t) for k, t in enumerate(of)]
            period = len(of[0]) if one in (MANY, GRID) else 0
            if period:
                passed = [_ended(t) for t in passed]
            shape = np.broadcast_shapes(*(t.shape for t in passed))
            every = [t.expand(shape).reshape(-1) for t in passed]
            name = f"{label}, {one}{f', {one.how}' if one.how else ''}"
            found[name] = partial(_fitting, apart, on, lowering, None, reference, every, passed, period, one.how)
        if ordinary and set(given.values()) & {*NEUTRAL}:
            some = [t[:SIZE] for t in ordinary.inputs]
            found[f"{label}, {ORDINARY} alone"] = partial(_fitting, apart, on, lowering, None, reference, some)
    return found


def _beside(given: Scalars, arity: int, place: int) -> tuple[Arranged, ...]:
    """The calls of BESIDE and LAID for scalars, of which the place among the others decides whose turn it is."""
    if not given:
        return ()
    every = BESIDE[arity]
    if {*given.values()} <= {*SIMPLE}:
        return (*every, *LAID, *(LAID_OF_SEVERAL if arity > 1 else ()))
    apart = all(abs(value) <= ROUNDEST and value * 4 % 1 == 0 for value in given.values())
    return every if apart else (every[place % len(every)],)


def _ended(t: Tensor) -> Tensor:
    """With moderate numbers of its own at the end, where vectors have a rest: many functions of others overflow."""
    some = t[(t.abs() >= 0.25) & (t.abs() <= 4.0)][:ALIGNED]
    return torch.cat([t[: len(t) - len(some)], some])


def _alike_cases(target: Target) -> list[Scalars]:
    """The kernel's cases that have the scalars of the target's."""
    return [one for one in target.kernel.cases if one.keys() == target.scalars.keys()]


def _shown(value: float) -> str:
    """A Python scalar in the name of a call."""
    if isinstance(value, bool):
        return repr(value)
    return f"int({value})" if isinstance(value, int) else repr(value).removesuffix(".0")


def _sign(v: Tensor) -> Tensor:
    return torch.where(v < 0.5, -1.0, 1.0)


def _between(least: float, most: float, u: Tensor) -> Tensor:
    """From one to the other, as many in each binade."""
    return (math.log2(least) + u * (math.log2(most) - math.log2(least))).exp2()


def _everywhere(target: Target, inputs: Sequence[Tensor]) -> Iterator[tuple[str, tuple[list[Tensor], list[Tensor]]]]:
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


def _ranged(target: Target, inputs: Sequence[Tensor], seed: int) -> Iterator[tuple[str, list[Tensor]]]:
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


def _ranging(scalars: Scalars, seed: int) -> list[Scalars]:
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


def _fitting(*given: Any) -> Underway[_One | _Doubted] | None:
    """`_judging`, where the signature fits."""
    try:
        begun = _judging(*given)
    except NotLowered:
        return None

    def end() -> _One | _Doubted | None:
        try:
            return begun.end() if begun else None
        except NotLowered:
            return None

    return Underway(end, begun.drop) if begun else None


def _round_numbers(like: Tensor, arity: int) -> tuple[Tensor, ...]:
    """Numbers of either sign, or combinations of the first ones, see `_combined`."""
    numbers = ROUNDER if arity == 1 else ROUND[: math.floor(PAIRS ** (1 / arity) + 1e-9) // 2]
    most = torch.finfo(like.dtype).max
    return _combined([sign * x for x in numbers for sign in (1.0, -1.0) if x <= most], like, arity)


def _special_numbers(like: Tensor, arity: int) -> tuple[Tensor, ...]:
    """All combinations, see `_combined`."""
    info = torch.finfo(like.dtype)
    return _combined([*SPECIAL, info.max, -info.smallest_normal * info.eps], like, arity)


def _combined(numbers: Sequence[float], like: Tensor, arity: int) -> tuple[Tensor, ...]:
    """Tensors of shape (n,), one an input, of the dtype and on the device of another."""
    each = torch.tensor(numbers, dtype=torch.float64).to(like.dtype).to(like.device)
    return tuple(t.reshape(-1) for t in torch.meshgrid(*[each] * arity, indexing="ij"))


def _judging(
    case: Pointwise, target: Target, lowering: Lowering, call: Callable[..., Any] | None, reference: Lowering | None,
    given: Sequence[Tensor], passed: Sequence[Tensor] | None = None, period: int = 0, how: str = "",
) -> Underway[_One | _Doubted] | None:  # fmt: skip
    """A call, under way, whose elements are to keep their bound, or to have eager's bits; its result is what may be
    wrong with it. call: as built; None: to be built. passed: what is passed for the inputs `given`, which it is
    broadcast to. period: after how many elements the inputs repeat themselves, but for the last ALIGNED; those that
    have the same bits again are not judged again. how: the manner, if it is one of MANNERS."""
    eager = case.on(given).eager(0, reference, target) if reference else None
    if reference and eager is None and call is None:
        return None  # eager refuses the scalars, as it does on a GPU what 16 bits do not hold
    call = call or lowering.build(target)
    with getattr(call, "manner", nullcontext)(how if how in MANNERS else ""):
        launch = Begun(call, passed or given, target.backend, lowering.name)

    def end() -> _One | _Doubted | None:
        try:
            y = launch.result()[""].reshape(-1)
        except LoweringError as error:
            if error.kind != "contract" or passed is None:
                raise
            return _One(tuple(given), None, given[0], broken=str(error))
        one = given
        if eager is not None:
            at = differing(y, eager[""].reshape(-1))
            if reference and passed is not None and bool(at.any()):  # eager may take another path for these, too
                own = launch_steady(reference.build(target), passed, target.backend, reference.name, repeats=1)
                at &= differing(y, own.output.reshape(-1))
            if period:
                place = torch.arange(len(y), device=y.device)
                again = ~differing(y, y[place % period])
                again[:period], again[-ALIGNED:] = False, False
                at &= ~again
            one, y = [t[at] for t in given], y[at]
        return _Doubted(case, target, lowering, tuple(one), y) if len(y) else None

    return Underway(end, launch.drop)


@dataclass(frozen=True)
class _Doubted:
    """Elements of a call of which it is not yet known whether they keep their bound: inputs and outputs (n,)."""

    case: Pointwise
    target: Target
    lowering: Lowering
    given: tuple[Tensor, ...]
    y: Tensor

    def left(self) -> Iterator[_Doubted]:
        """The elements of which tensors do not tell it at once, in parts that stay in the processor's cache."""
        for *given, y in zip(*(torch.split(t, AT_ONCE) for t in (*self.given, self.y)), strict=True):
            stated, found = terms(self.case.on(given), self.target, self.lowering, 0, "", y, user=True)
            if stated is not None and bool((doubted := _doubted(found.values(), y)).any()):
                yield replace(self, given=tuple(t[doubted] for t in given), y=y[doubted])

    def wrong(self) -> _One | None:
        """What is wrong with them."""
        if not (parts := [*self.left()]):
            return None
        one, judged = _together(parts), []
        on = self.case.on(one.given)
        stated, found = terms(on, self.target, self.lowering, 0, "", one.y, user=True)
        assert stated is not None
        for term in found.values():
            index = term.elements.picked(one.y)
            tally = term.judge.rest(term.elements, index, one.y, None, on.formulas(0, "", one.y), settled=False)
            judged.append((STATUSES.index(standing(tally)), term, tally))
        status, term, tally = max(judged, key=lambda one: one[0])  # by the kinder truth of the scalars
        if STATUSES[status] != "exceeds-bound":
            return None
        records = term.reader.regions(tally, stated)
        concluded = conclude(records)
        worst = next(r["worst"] for r in records.values() if r["status"] == "exceeds-bound")
        told = "".join(f", such as {', '.join(one['inputs'])} -> {one['output']}" for one in worst[:1])
        return _One(one.given, None, one.y, broken=concluded["reason"] + told)


def _together(some: Sequence[_Doubted]) -> _Doubted:
    """The elements of calls with the same scalars."""
    inputs = zip(*(one.given for one in some), strict=True)
    return replace(some[0], given=tuple(map(torch.cat, inputs)), y=torch.cat([one.y for one in some]))


def _sifted(given: dict[str, _One | _Doubted]) -> dict[str, _One]:
    """Those that are wrong. What is doubted of calls with the same scalars is judged together, which takes hardly
    longer than of one of them, and apart where something is wrong."""
    alike: dict[str, list[_Doubted]] = {}
    for one in given.values():
        if isinstance(one, _Doubted):
            alike.setdefault(repr(one.target.scalars), []).append(one)
    right = {id(one) for some in alike.values() if len(some) > 1 and not _together(some).wrong() for one in some}
    found = {k: one.wrong() if isinstance(one, _Doubted) else one for k, one in given.items() if id(one) not in right}
    return {k: one for k, one in found.items() if one is not None}


def _within(
    case: Pointwise, target: Target, lowering: Lowering, wrong: Sequence[_One], mine: bool
) -> tuple[bool, bool]:  # fmt: skip
    """Whether the elements that differ in calls are what they may be, and whether some are not, of as many as a chunk:
    a user's own as in the plain call, a registered lowering's also as in a layout of its own, which another path
    serves."""
    given, parts = [], []
    for one in wrong:
        assert one.y is not None
        at = bits(one.y).ne(bits(one.expected)).nonzero()[:, 0]
        given.append([t[at] for t in one.given])
        parts.append(one.y[at])
    on, y = [torch.cat(of)[:CHUNK] for of in zip(*given, strict=True)], torch.cat(parts)
    spellings = target.kernel.spellings.items()
    layouts = () if mine else (name for name, s in spellings if s.layout and s.applies(target.scalars))
    targets = (replace(target, spelling=name) for name in (target.spelling, *layouts))
    kept = any(_keeps(case.on(on), one, lowering, y[:CHUNK], mine) for one in targets)
    return kept and len(y) <= CHUNK, not kept


def _first_beyond(case: Pointwise, target: Target, lowering: Lowering, one: _One) -> int | None:
    """The first place of a call of a user's own at which it is not what it may be; None where there is none."""
    if one.y is None or not _within(case, target, lowering, [one], True)[1]:
        return None
    at = bits(one.y).ne(bits(one.expected)).nonzero()[:CHUNK, 0]
    _, on = terms(case.on([t[at] for t in one.given]), target, lowering, 0, "", one.y[at], user=True)
    return int(at[_doubted(on.values(), one.y[at]).to(torch.uint8).argmax()])


def _keeps(case: Pointwise, target: Target, lowering: Lowering, y: Tensor, mine: bool) -> bool:
    """Each of the elements by one truth of the scalars, which tensors tell at once of nearly all, or all by one."""
    stated, on = terms(case, target, lowering, 0, "", y, user=mine)
    if stated is None:
        return False
    if not bool(_doubted(on.values(), y).any()):
        return True
    each = (term.reader.regions(term.judge.tally(term.elements, y), stated) for term in on.values())
    return any(conclude(records)["status"] in ("passed", "deviates") for records in each)


def _doubted(on: Iterable[Terms], y: Tensor) -> Tensor:
    """Which elements tensors do not tell at once to keep the bound, by whichever truth of the scalars."""
    doubted = torch.ones_like(y, dtype=torch.bool)
    for term in on:
        facts = term.elements.facts(None, y, double=term.judge.fmt.bits == 64, zeroed=True)
        judged = decide(y, facts, term.judge.fmt, term.judge.limits)
        doubted &= judged.fails | judged.open
    return doubted


def _alike(
    reference: Lowering, target: Target, samples: Mapping[str, Sample], table: Mapping[str, Arranged],
    wrong: Mapping[str, _One],
) -> bool:  # fmt: skip
    """Whether the reference gives the same bits for the inputs of every one of these calls, as they lie there, and in
    the plain call beside it, where that is none of the walk's."""
    if reference.reason(target) or any(one.y is None for one in wrong.values()):
        return False
    call = reference.build(target)

    def gives(y: Tensor, due: Tensor | None) -> bool:
        return due is not None and not bool(differing(y.reshape(-1), due).any())

    of = {name: (table[name], samples.get(name, samples[""])) for name in wrong}
    plain = _Plain(call, of, target, reference.name)
    return all(
        gives(launch_steady(call, _given(*of[name]), target.backend, reference.name, repeats=1).output, one.y)
        and (table[name].how not in ("same", "pairs") or gives(plain.of(name), one.expected))
        for name, one in wrong.items()
    )


def _depends(reference: Lowering, target: Target, sample: Sample, wrong: Mapping[str, Arranged]) -> bool:
    """Whether the bits of the reference depend on the call: on one of those that are wrong, or on another."""
    if reference.reason(target):
        return False
    call = reference.build(target)
    whole = launch_steady(call, [t.repeat(LONG // SIZE) for t in sample.inputs], target.backend, reference.name)
    own = Sample(sample.inputs, whole.output[:SIZE])
    calls = (*wrong.values(), *(one for _, one in _suited(own, call, target)))
    return any(_called(call, one, own, target, reference.name) for one in calls if one.how not in MANNERS)


# A script that shows it.


def _script(call: Any, arranged: Arranged, sample: Sample, one: _One, target: Target, lowering: Lowering) -> str:
    """At most ten lines of torch that show, in a process of their own, that a call has other bits, with data as simple
    as still shows it: some elements over and over. '' where none does."""
    # no line of torch says what lies in other memory, some need more lines than there are, and no element no number
    if arranged.how in ("guard", "stream", "zeros", "threads", "default", "grad_parameter") or not len(one.expected):
        return ""
    if backends.virtual(target.backend):  # nor are launches on a device that is not there
        return ""
    if not importing(lowering.text, ""):
        return ""
    for often, period, size in ((1, 1, SIZE), (1, 7, SIZE), (1, 1, LONG), (OFTEN, 1, SIZE), (OFTEN, 7, SIZE)):
        both = zip(one.given, sample.inputs, strict=True)
        chosen = [torch.cat([t[one.place :][:1], others[: period - 1]]) for t, others in both]
        data = [t.repeat(-(-size // period))[:size] for t in chosen]
        getattr(call, "restart", lambda: None)()
        try:
            plain = launch_steady(call, data, target.backend, lowering.name, repeats=1).output
            for _ in range(often):
                if _called(call, arranged, Sample(tuple(data), plain), target, lowering.name, usual=""):
                    return _written(arranged, data, period, often, target, lowering)
        except (LoweringError, NotLowered):
            continue
    return ""


def _written(
    arranged: Arranged, data: Sequence[Tensor], period: int, often: int, target: Target, lowering: Lowering
) -> str:  # fmt: skip
    fmt, names = FORMATS[target.dtype], target.kernel.tensors(target.scalars)
    function = lowering.name.rpartition(":")[2]
    device = "" if target.backend.device == "cpu" else f", device={target.backend.device!r}"
    same, joined = arranged.how == "same", arranged.how in ("same", "pairs")
    lines = [importing(lowering.text, "concurrent.futures, torch")]
    for name, t in zip(names, data[:1] if same else data, strict=not same):
        values = ", ".join(f'"{fmt.hex(p)}"' for p in patterns(t[:period], fmt))
        made = f"torch.tensor([float.fromhex(x) for x in ({values},)], dtype=torch.{target.dtype}{device})"
        lines.append(f"{name} = {made}.repeat({-(-len(t) // period)})[:{len(t)}]")
    given = {name: re.sub(r"(?<![.])\bt\b", names[0] if same else name, arranged.of(k)) for k, name in enumerate(names)}
    first = next(iter(given))
    each = {how: {*given} for how in ("grad", "no_grad", "grad_computed")}
    wanting = {**each, "grad_first": {first}, "grad_others": {*given} - {first}}.get(arranged.how, set())
    made = "{}.requires_grad_()" if arranged.how != "grad_computed" else "torch.ops.aten.alias({}.requires_grad_())"
    given = {name: made.format(text) if name in wanting else text for name, text in given.items()}
    plain = {name: f"both[{k}].flatten().clone()" for k, name in enumerate(names)} if joined else {n: n for n in names}
    listed, alone = (
        f"{function}({', '.join(one.get(name) or repr(target.scalars[name]) for name in target.kernel.inputs)})"
        for one in (given, plain)
    )
    if joined:
        lines.append(f"both = torch.broadcast_tensors({', '.join(given.values())})")
    lines.append(f"plain = {alone}.view(both[0].shape)" if joined else f"t = {alone}; plain = {arranged.first}")
    called = listed
    if arranged.how == "again":
        lines.append(f"for t in ({', '.join(names)},): t.copy_({arranged.first})")
        called = alone
    if arranged.how == "inside":
        lines += [f"{', '.join(names)}, = ({', '.join(given.values())},); {alone}; n = len({first}) // 2"]
        lines += [f"for t in ({', '.join(names)}, plain): t[n - 2:n + 3] = t[n - 2:n + 3].flip(0)"]
        called = alone
    if arranged.how == "out":
        called = f"{called.removesuffix(')')}, out=torch.empty_like(plain))"
    if arranged.how == "thread":
        called = f"concurrent.futures.ThreadPoolExecutor().submit(lambda: {called}).result()"
    mode = {"no_grad": "no_grad", "inference": "inference_mode"}.get(arranged.how)
    mode = "enable_grad" if arranged.how.startswith("grad") else mode
    called = f"y = {called}{'.detach()' if mode else ''}"
    called = called if often == 1 else f"for _ in range({often}): {called}"
    called = f"with torch.{mode}():\n    {called}" if mode else called
    integers, some = str(bits(data[0]).dtype), "[n - 2:n + 3]" if arranged.how == "inside" else ""
    shown = f"t.where(t == t, 7).contiguous().view({integers}).flatten(){some}"
    lines += [called, f"print('this call, the plain one:', *({shown} for t in (y, plain.expand(y.shape))))"]
    text = "\n".join(lines)
    return text if arranged.how == "thread" else text.replace("concurrent.futures, ", "", 1)
