"""Statuses of cells and regions, their precedence and their exit codes: the one table of them.

docs/definitions.md prints it. No torch here: reading a report must not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Worst first, with the exit code that each causes; what a baseline adds (`regressed`...) is the gate's business.
EXIT_CODES = {
    "oracle-violation": 4,
    "error": 1,  # 2 for a user's file
    "exceeds-bound": 1,
    "unsteady": 1,
    "suspect": 1,
    "unbounded": 1,
    "unjudged": 1,
    "deviates": 0,
    "not-run": 0,
    "passed": 0,
}
STATUSES = tuple(EXIT_CODES)

#: Statuses that a comparison with a baseline adds.
AGAINST_BASELINE = ("regressed", "changed", "stale", "improved")

#: Statuses that an allowance of the ledger lets a registered cell have: listed, with a cap and a reason.
ALLOWABLE = ("unsteady", "suspect", "unbounded", "unjudged")

#: Kinds of reason. The first group says what is wrong with an element, the second why a cell is not judged or not run.
FAILURES = ("bound", "nan", "infinity", "zero-sign", "flush", "undecided")
#: ... and what makes an element suspect: beyond what is known or likely, and within what is possible.
DOUBTS = (
    "order",  # beyond the known algorithms, within any order in the accumulator
    "probable",  # beyond the probable bound
)
KINDS = (*FAILURES, *DOUBTS)
REASONS = (
    "",
    *KINDS,
    "property",  # a law that the kernel states is broken
    "unsteady",  # launches differ
    "calls",  # other bits for another size, shape, stride, address, neighbour or thread
    "no-bound",
    "resolution",  # nothing smaller than the element itself would be seen
    "bias",  # on one side of what every known algorithm gives
    "contract",  # shape, dtype, device, inputs modified, output not written
    "raised",
    "ended",  # the lowering's process ended: a signal, an exit code
    "timeout",
    "mode",  # the lowering changed a global mode
    "oracle",
    "absent",  # the backend, dtype or library is not there
    "spelling",  # the lowering has one calling convention, listed under the default spelling
    "not-lowered",
    "inapplicable",
)


def worst(statuses: Iterable[str]) -> str:
    """The worst of `statuses`; 'passed' of none. Raises ValueError for an unknown one."""
    return STATUSES[min((STATUSES.index(s) for s in statuses), default=len(STATUSES) - 1)]


def exit_code(status: str, *, user: bool = False, allowed: bool = False) -> int:
    """The exit code that one cell causes. `user`: it is of a user's own file; `allowed`: an allowance lists it."""
    if status == "error" and user:
        return 2
    if allowed and status in ALLOWABLE:
        return 0
    return EXIT_CODES.get(status, 0)


def combined(codes: Iterable[int]) -> int:
    """The exit code of several: 4, then 2, then 1, then 3, then 0."""
    found = set(codes)
    return next((code for code in (4, 2, 1, 3) if code in found), 0)
