"""What the gate says to people and to programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from verify.reports.blocks import Column, Line, Page, Row, Table
from verify.reports.gate import ALWAYS_FAIL, FAIL_ON, Outcome, Verdict
from verify.reports.looks import LOOKS, PREDICTED, counted_text
from verify.reports.text import count_text

#: How many groups of verdicts are spelled out on a page, and how many cells of one group are named.
SHOWN = 12
NAMED = 3


def gate_page(outcome: Outcome) -> Page:
    """Counts by device and status, the failing cells with reason and replay, then what passed with a remark."""
    failed = len(outcome.failed)
    deviating = f", {counted_text('deviate', outcome.deviating)}" if outcome.deviating else ""
    blocks: list[Table | Line] = [_counts(outcome)] if outcome.verdicts else []
    bad = groups(verdict for verdict in outcome.verdicts if verdict.fails)
    for verdicts in bad[:SHOWN]:
        blocks += told_of_groups(verdicts, "bad")
    if len(bad) > SHOWN:
        rest = sum(map(len, bad[SHOWN:]))
        blocks.append(Line(f"and {count_text(rest, 'cell')} more that fail; --json FILE lists all", kind="bad"))
    remarks = groups(v for v in outcome.verdicts if not v.fails and v.status != "passed")
    for verdicts in remarks[:SHOWN]:
        blocks += told_of_groups(verdicts, LOOKS[verdicts[0].status].tone)[:1]
    if len(remarks) > SHOWN:
        rest = sum(map(len, remarks[SHOWN:]))
        blocks.append(Line(f"and {count_text(rest, 'cell')} more that passed with a remark; --json FILE lists all"))
    blocks += [Line(notice, label="note:") for notice in outcome.notices]
    allowed = any(verdict.status in FAIL_ON for verdict in outcome.verdicts)
    passed = "plain" if outcome.predicted else "good"
    tone = "bad" if outcome.exit_code else "open" if allowed else "deviates" if outcome.deviating else passed
    blocks.append(Line(verdict_line(outcome), kind=tone))
    return Page(f"gate: {count_text(len(outcome.verdicts), 'cell')}, {failed} failing{deviating}", tuple(blocks))


def verdict_line(outcome: Outcome) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in outcome.counts.items()) or "no cells"
    word = {0: "passed", 3: "nothing was compared with a baseline"}.get(outcome.exit_code, "failed")
    told = outcome.deviating and outcome.deviating != outcome.counts.get("deviates")
    further = f" ({outcome.deviating} in all with known deviations)" if told else ""
    further += f"; {outcome.predicted} predicted, not measured" if outcome.predicted else ""
    return f"{word}: {counts}{further}; fails on {', '.join((*ALWAYS_FAIL, *outcome.fail_on))}"


def _counts(outcome: Outcome) -> Table:
    columns = [Column("device", fold=True), Column("profile"), *(Column(s, right=True) for s in outcome.counts)]
    found = Counter((v.device, v.profile, v.status) for v in outcome.verdicts)
    ordered = sorted(outcome.verdicts, key=lambda v: (v.device, v.profile))
    places = {(v.device, v.profile): f"{PREDICTED} {v.device}" if v.predicted else v.device for v in ordered}
    rows = (
        Row((label, place[1], *(str(found[(*place, s)]) for s in outcome.counts))) for place, label in places.items()
    )
    return Table(tuple(columns), tuple(rows))


def groups(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    """Verdicts with the same status, device and reason are listed once."""
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    for verdict in verdicts:
        key = (verdict.status, verdict.device, verdict.reason, verdict.allowed, verdict.allowance)
        groups.setdefault(key, []).append(verdict)
    return list(groups.values())


def told_of_groups(verdicts: Sequence[Verdict], kind: str) -> list[Table | Line]:
    first = verdicts[0]
    names = [verdict.cell for verdict in verdicts[:NAMED]]
    if len(verdicts) > NAMED:
        names.append(f"and {len(verdicts) - NAMED} more")
    count = "" if len(verdicts) == 1 else f", {count_text(len(verdicts), 'cell')}"
    allowed = f", allowed by {first.allowed!r}" if first.allowed else ""
    allowed += f", allowed by the ledger's {first.allowance}" if first.allowance else ""
    note = f" (the report: {first.note})" if first.note and first.fails and len(verdicts) == 1 else ""
    line = Line(f"{', '.join(names)}: {first.reason}{note}", label=f"{first.status}{count}{allowed}:", kind=kind)
    return [line, Line(first.replay, kind="command")]


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The verdicts for programs. Names and reasons are raw text."""
    names = (
        "status", "fails", "allowed", "allowance", "deviates", "ledger", "cell", "device", "profile", "reason", "note",
        "replay", "compared", "predicted",
    )  # fmt: skip
    return {
        "exit_code": outcome.exit_code,
        "counts": outcome.counts,
        "deviate": outcome.deviating,
        "predicted": outcome.predicted,
        "fail_on": [*ALWAYS_FAIL, *outcome.fail_on],
        "notices": list(outcome.notices),
        "verdicts": [{name: getattr(verdict, name) for name in names} for verdict in outcome.verdicts],
    }
