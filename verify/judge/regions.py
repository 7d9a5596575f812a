"""The regions that partition the elements of a cell, found from inputs and truth alone, never from the output.

The first that fits is taken. Regions bin; what fails is decided by predicates on every element
(`verify.judge.element`).
"""

from __future__ import annotations

#: What each means, as docs/definitions.md says it, in the order in which they are tried.
MEANING = {
    "special": "an operand is NaN or infinite, or a row of the table of special values decides the truth",
    "exact-zero": "the truth is exactly zero otherwise",
    "subnormal-operand": "an operand is subnormal",
    "subnormal-result": "RN(t) is subnormal, or zero while t is not",
    "overflow": "RN(t) is infinite or the largest finite number",
    "intermediate": "a named intermediate of the reference spelling leaves the normal range",
    "normal": "everything else",
}
REGIONS = tuple(MEANING)
