"""How an elementwise lowering is called beside the walk's launch: what is made of an input of SIZE elements.

The same expression of the output is what is expected, so that a call that fails is shown in a few lines of torch.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from verify.facts.kernel import Scalars

Tensor = torch.Tensor
SIZE = 1280  # elements of the sample
LANES = 16  # of a vector
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


def broadcasts(arity: int) -> Iterator[tuple[str, Arranged]]:
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


def viewed(arity: int) -> Iterator[tuple[str, Arranged]]:
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
    first, *others = (f"{first_of(math.prod(one))}.view({one})" for one in shapes)
    return f"{BROADCAST} {shown}", Arranged(first, tuple(others), how="pairs")


def first_of(n: int) -> str:
    """The first n elements of t, over and over, as an expression."""
    return f"t[:{n}]" if n <= SIZE else f"t.repeat({-(-n // SIZE)})[:{n}]"


def drawn_arrangements(arity: int, seed: int) -> Iterator[tuple[str, Arranged]]:
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


def applied(text: str, t: Tensor) -> Tensor:
    """What an expression makes of t."""
    return applied_to(text, "t", {"t": t})


def applied_to(text: str, name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    """An expression of the tables of calls, of tensors by name and of the one of that name as t."""
    t = tensors[name]
    bytes_ = t.view(torch.uint8) if t.element_size() == 1 else t  # torch moves no floats of 8 bits
    found: Tensor = eval(text, {"torch": torch}, {**tensors, "t": bytes_})
    return found.view(t.dtype)


def for_scalars(given: Scalars, arity: int, place: int) -> tuple[Arranged, ...]:
    """The calls of BESIDE and LAID for scalars, of which the place among the others decides whose turn it is."""
    if not given:
        return ()
    every = BESIDE[arity]
    if {*given.values()} <= {*SIMPLE}:
        return (*every, *LAID, *(LAID_OF_SEVERAL if arity > 1 else ()))
    apart = all(abs(value) <= ROUNDEST and value * 4 % 1 == 0 for value in given.values())
    return every if apart else (every[place % len(every)],)
