"""A gate's outcome for continuous integration: GitHub's annotations and step summary, SARIF.

Statuses are decided in `verify.reports.gate`, Markdown is in `verify.reports.markdown`. JUnit XML comes from pytest,
through `verify.cli.plugin`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TextIO
from urllib.parse import quote

from verify import __version__
from verify.facts.kernel import UsageError, is_file
from verify.reports import markdown, store
from verify.reports.blocks import Page
from verify.reports.gate import ALWAYS_FAIL, Outcome, Verdict
from verify.reports.gate_page import verdict_line
from verify.reports.looks import PRECEDENCE, counted_text
from verify.reports.text import count_text, printable

#: GitHub shows the first 10 errors of a step, and a summary of at most 1 MiB (docs.github.com, "Workflow commands").
MOST_ANNOTATIONS = 10
MOST_SUMMARY = 1 << 20
#: Code scanning keeps the first 5,000 results of a run (docs.github.com, "SARIF results exceed one or more limits").
MOST_RESULTS = 5000

#: What each status means, for readers of a code scanning alert.
MEANINGS = {
    "oracle-violation": "a truth lies outside its enclosure: the run proves nothing",
    "error": "the lowering could not be run as it must be",
    "exceeds-bound": "an element is not what it may be: beyond the bound, of a wrong class, or undecided",
    "unsteady": "the result differs between launches, or with what must not matter",
    "suspect": "beyond the known algorithms or the probable bound, and not proved wrong",
    "unbounded": "no bound is stated, so that nothing is judged",
    "unjudged": "nothing is stated of too many elements, or no fault would be seen",
    "regressed": "in some region the error, or a count of bad or unjudged elements, is larger than accepted",
    "changed": "other bits, another formula, other figures or a worse status than accepted, with no larger error",
    "stale": "accepted in another environment or from another source; or not comparable: accept anew",
    "deviates": "what exceeds is covered by entries of the ledger or the device's budget",
    "not-run": "there is no result, or no accepted result for the same inputs to compare with",
    "improved": "the error is smaller than the accepted one",
}


# Step summary


def append_summary(page: Page) -> bool:
    """Append the page to the file that GITHUB_STEP_SUMMARY names; False where it names none.

    What is beyond GitHub's limit is left out, since a larger summary is dropped as a whole. Raises UsageError.
    """
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return False
    path = Path(name)
    try:
        room = MOST_SUMMARY - (path.stat().st_size if path.exists() else 0) - 200
        with path.open("a", encoding="utf-8", newline="\n") as file:
            for part in markdown.lines(page):
                room -= len(part.encode())
                if room < 0:
                    file.write("\n\nThe rest is left out: GitHub takes 1 MiB a step.\n")
                    break
                file.write(part)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write the step summary to {name!r}: {store.why(error)}") from None
    return True


# Annotations


@contextlib.contextmanager
def commands_stopped(stream: TextIO, always: bool = False) -> Iterator[None]:
    """A context in which GitHub's runner takes no line of `stream` as a command, whatever names it contains; does
    nothing elsewhere.

    The token cannot be guessed (docs.github.com, "Workflow commands", stopping and starting them).
    """
    if not always and os.environ.get("GITHUB_ACTIONS") != "true":
        yield
        return
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", file=stream, flush=True)
    try:
        yield
    finally:
        print(f"::{token}::", file=stream, flush=True)


def error_lines(outcome: Outcome) -> Iterator[str]:
    """One `::error` line for each failing cell, worst first; the last one counts those that GitHub would not show;
    where nothing was compared it says so. A `::notice` tells how many cells deviate, whether or not anything fails."""
    failed = outcome.failed
    shown = failed if len(failed) <= MOST_ANNOTATIONS else failed[: MOST_ANNOTATIONS - 1]
    for verdict in shown:
        title = printable(f"{verdict.status}: {verdict.cell}")
        yield _annotation(title, f"{printable(verdict.reason)}\n{printable(verdict.replay)}")
    if len(failed) > len(shown):
        counts = ", ".join(f"{number} {status}" for status, number in outcome.counts.items())
        yield _annotation(f"{count_text(len(failed) - len(shown), 'cell')} more", f"all cells: {counts}")
    if outcome.exit_code and not failed:
        yield _annotation("nothing was compared with a baseline", verdict_line(outcome))
    if outcome.deviating:
        told = "known deviations, covered by the ledger or the device's budget: the gate's page lists them"
        yield _annotation(counted_text("deviate", outcome.deviating), told, "notice")


def _annotation(title: str, message: str, command: str = "error") -> str:
    """A workflow command, escaped as the runner unescapes it (actions/toolkit, core/src/command.ts)."""
    data = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    value = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")
    return f"::{command} title={value}::{data}\n"


# SARIF


def sarif(outcome: Outcome) -> dict[str, Any]:
    """A SARIF 2.1.0 log: one rule a status, one result for each cell that did not simply pass, failing ones as errors,
    the others (`deviates` among them) as notes.

    A cell has no line of code: results point at the kernel's file, and name the cell as their logical location.
    """
    told = [v for v in outcome.verdicts if v.fails or v.status not in ("passed", "improved")]
    shown = told[:MOST_RESULTS]
    ids = [status for status in PRECEDENCE if any(verdict.status == status for verdict in shown)]
    driver = {
        "name": "ulproof",
        "version": __version__,
        "rules": [_rule(status, outcome.fail_on) for status in ids],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "verify-gate/"},
        "invocations": [{"executionSuccessful": True, "exitCode": outcome.exit_code}],
        "results": [_result(verdict, ids) for verdict in shown],
    }
    if len(told) > len(shown):
        run["properties"] = {"omitted": len(told) - len(shown)}
    return {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }


def _rule(status: str, fail_on: Iterable[str]) -> dict[str, Any]:
    fails = status in ALWAYS_FAIL or status in fail_on
    return {
        "id": status,
        "name": "".join(word.capitalize() for word in status.split("-")),
        "shortDescription": {"text": f"accuracy: {status}"},
        "fullDescription": {"text": MEANINGS[status]},
        "help": {"text": f"{MEANINGS[status]}. The message ends with a command that computes the cell again."},
        "defaultConfiguration": {"level": "error" if fails else "note"},
        "properties": {"tags": ["numerical-accuracy"]},
    }


def _result(verdict: Verdict, ids: Sequence[str]) -> dict[str, Any]:
    text = f"{verdict.cell} on {verdict.device}: {verdict.reason}. Replay: {verdict.replay}"
    place = hashlib.sha256(f"{verdict.device}\n{verdict.profile}\n{verdict.cell}".encode()).hexdigest()
    result: dict[str, Any] = {
        "ruleId": verdict.status,
        "ruleIndex": ids.index(verdict.status),
        "level": "error" if verdict.fails else "note",
        "message": {"text": printable(text)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(verdict), "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [{"fullyQualifiedName": printable(verdict.cell), "kind": "member"}],
            }
        ],
        # All cells of a kernel share a line: this, and not the line, tells alerts apart from run to run.
        "partialFingerprints": {"primaryLocationLineHash": f"{place[:16]}:1"},
        "properties": {
            "device": verdict.device,
            "profile": verdict.profile,
            "replay": printable(verdict.replay),
            "deviates": verdict.deviates,
            "predicted": verdict.predicted,
            "ledger": [printable(name) for name in verdict.ledger],
        },
    }
    if verdict.allowed or verdict.allowance:
        by = f"--allow {verdict.allowed}" if verdict.allowed else f"the ledger's allowance {verdict.allowance}"
        justification = printable(by)
        result["suppressions"] = [{"kind": "external", "justification": justification}]
    return result


def _uri(verdict: Verdict) -> str:
    """The relative path of the user's own file, of one elsewhere its name, else that of the kernel's."""
    if is_file(verdict.lowering):
        path = PurePosixPath(verdict.lowering.rpartition(":")[0])
        inside = not path.is_absolute() and ".." not in path.parts
        return quote(str(path) if inside else path.name, safe="/")
    return f"kernels/{quote(verdict.kernel, safe='')}.py"
