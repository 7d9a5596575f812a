"""How a status is shown and counted, for terminal, Markdown and page alike.

The statuses, their order and exit codes are in `verify.judge.status`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from verify.judge.status import AGAINST_BASELINE, EXIT_CODES, STATUSES


@dataclass(frozen=True)
class Look:
    """tone: good (green), deviates (never green), open (not proved either way), bad or dim; `counted` as one of
    COUNTED. The glyph stands before the word, so that nothing depends on colour alone."""

    tone: str
    counted: str
    glyph: str = ""

    def text(self, status: str) -> str:
        return f"{self.glyph} {status}" if self.glyph else status


_BAD, _OPEN = Look("bad", "failed", "✕"), "◇"
LOOKS: Mapping[str, Look] = {
    "oracle-violation": _BAD,
    "error": _BAD,
    "exceeds-bound": _BAD,
    "unsteady": _BAD,
    "suspect": Look("open", "suspect", _OPEN),
    "unbounded": Look("open", "unbounded", _OPEN),
    "unjudged": Look("open", "unjudged", _OPEN),
    "deviates": Look("deviates", "deviate", "≠"),
    "not-run": Look("dim", "not run"),
    "passed": Look("good", "passed"),
    "regressed": _BAD,
    "changed": _BAD,
    "stale": Look("open", "stale", _OPEN),
    "improved": Look("good", "passed"),
}
if LOOKS.keys() != {*STATUSES, *AGAINST_BASELINE}:
    raise AssertionError("a status without a look")

#: Statuses that end a run with another exit code than 0, unless something allows them.
WRONG = tuple(status for status in STATUSES if EXIT_CODES[status])
#: Of several statuses of a cell the first is shown: what is wrong by itself, what is against a baseline, the rest.
PRECEDENCE = (
    *WRONG, *AGAINST_BASELINE[:3], *(s for s in STATUSES if s not in (*WRONG, "passed")), "improved", "passed",
)  # fmt: skip

#: In the order in which they are printed. `allowed` is what an allowance of the ledger lets stand, whatever its status:
#: from `failed` to `unjudged` each cell fails its run.
COUNTED = ("passed", "deviate", "allowed", "failed", "suspect", "unbounded", "unjudged", "not run")

#: Before the status of a cell that was predicted on a virtual device, not measured; never in green.
PREDICTED = "≈"


def tally(names: Iterable[str]) -> dict[str, int]:
    """How many there are of each of COUNTED."""
    return dict.fromkeys(COUNTED, 0) | Counter(names)


def tally_text(counts: Mapping[str, int]) -> str:
    """'3 of 6 cells passed, 2 deviate, 1 suspect, 4 not run': zeros are left out but of what passed."""
    ran = sum(counts.values()) - counts["not run"]
    passed = f"{counts['passed']} of {ran} {'cell' if ran == 1 else 'cells'} passed"
    return ", ".join([passed, *(counted_text(name, counts[name]) for name in COUNTED[1:] if counts[name])])


def counted_text(name: str, count: int) -> str:
    return f"{count} deviates" if (name, count) == ("deviate", 1) else f"{count} {name}"


def severity(status: str) -> int:
    """0 where there is nothing to report, larger the worse; what deviates is reported, and is the least of it."""
    return 0 if status in ("not-run", "passed") else len(STATUSES) - STATUSES.index(status)


def tone(counts: Mapping[str, int]) -> str:
    """Of a summary: bad where anything failed, good only where all that ran passed, and something did."""
    if counts["failed"]:
        return "bad"
    if any(counts[name] for name in ("allowed", "suspect", "unbounded", "unjudged")):
        return "open"
    if counts["deviate"]:
        return "deviates"
    return "good" if counts["passed"] else "bad"
