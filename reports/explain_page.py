"""What `verify explain` prints of one element."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from verify.facts.kernel import facts_of
from verify.reports.blocks import Column, Line, Page, Row, Table
from verify.reports.looks import PREDICTED
from verify.reports.text import scalars_text, upward


def explain_place_page(told: dict[str, Any]) -> Page:
    """`verify explain` of a composite kernel: the dict of `verify.walk.explain.explain_place`."""
    blocks: list[Table | Line] = [
        Line(f"{told['place']} {scalars_text(told['scalars'])}".strip(), label="element:"),
        *(Line(value, label=f"{name}:") for name, value in told["terms"]),
        *_value(told),
    ]
    if told["scale"]:
        blocks.append(Line(told["scale"], label="scale:"))
    names = ("lowering", "output", "ulp", "scaled", "share", "class")
    columns = tuple(Column(name, fold=name == "lowering", right=name in ("ulp", "scaled", "share")) for name in names)
    rows: list[Row] = []
    ran = [entry for entry in told["lowerings"] if not entry["reason"]]
    for entry in ran:
        shown = ("-" if entry[key] is None else upward(entry[key]) for key in ("ulp", "scaled_ulp", "share"))
        rows.append(Row((entry["lowering"], entry["output"], *shown, entry["error_class"].replace("_", "-"))))
    blocks.append(Table(columns, tuple(rows)))
    blocks += _verdicts(ran)
    for item in sorted(told["formulas"], key=lambda item: not item["matches"]):
        same = f"  ({', '.join(item['matches'])})" if item["matches"] else ""
        blocks.append(Line(f"{item['text']} = {item['output']}{same}", label="formula:"))
    return _ended(told, blocks)


def explain_page(told: dict[str, Any]) -> Page:
    """`verify explain`: the dict of `verify.walk.explain.explain`, one element in detail."""
    inputs = " ".join(f"{name}={value}" for name, value in told["inputs"].items())
    blocks: list[Table | Line] = [Line(f"{inputs} {scalars_text(told['scalars'])}".strip(), label="inputs:")]
    blocks += _value(told)
    rounded = told.get("rounded_scalars")
    if rounded:
        blocks += _value(rounded, f", {scalars_text(rounded['scalars'])} in {told['dtype']}")
    if told.get("special"):
        blocks.append(Line(told["special"], label="special value:"))
    columns = [
        Column("lowering", fold=True),
        Column("output"),
        Column("int_ulp", right=True),
        Column("class"),
        Column("spelling", fold=True),
    ]
    ran = [entry for entry in told["lowerings"] if not entry["reason"]]
    scaled = any(entry["scaled_ulp"] is not None for entry in ran)
    metrics = {"ulp": "ulp"} | ({"scaled_ulp": "scaled_ulp"} if scaled else {})
    if rounded:
        metrics |= {f"{name}_rounded_scalars": f"{name} rounded" for name in tuple(metrics)}
    columns[2:2] = [Column(title, right=True, joined=title not in metrics) for title in metrics.values()]
    rows = []
    for entry in ran:
        errors = [entry[name] for name in metrics]
        steps = "-" if entry.get("int_ulp") is None else str(entry["int_ulp"])
        shown = ("-" if ulp is None else upward(ulp) for ulp in errors)
        kind = entry["error_class"].replace("_", "-")
        rows.append(Row((entry["lowering"], entry["output"], *shown, steps, kind, entry["spelling"])))
    blocks.append(Table(tuple(columns), tuple(rows)))
    blocks += _verdicts(ran)
    everywhere = {entry["lowering"] for entry in ran}
    # those that some lowering follows come first
    for item in sorted(told["formulas"], key=lambda item: not item["matches"]):
        names = "all" if len(everywhere) > 1 and set(item["matches"]) == everywhere else ", ".join(item["matches"])
        same = f"  ({names})" if names else ""
        blocks.append(Line(f"{item['text']} = {item['output']}{same}", label="formula:"))
        steps = "; ".join(f"{step['expression']} = {step['value']}" for step in item["steps"])
        if steps:
            blocks.append(Line(steps, label="    "))
    return _ended(told, blocks)


def _ended(told: Mapping[str, Any], blocks: list[Table | Line]) -> Page:
    reasons: dict[str, list[str]] = {}
    for entry in told["lowerings"]:
        if entry["reason"]:
            reasons.setdefault(entry["reason"], []).append(entry["lowering"])
    blocks += [Line(reason, label=f"not run: {', '.join(dict.fromkeys(group))}:") for reason, group in reasons.items()]
    predicted = "" if facts_of(told["backend"]) == told["backend"] else f" {PREDICTED} predicted, not measured"
    return Page(f"{told['kernel']} {told['dtype']} on {told['backend']}{predicted}", tuple(blocks))


def _verdicts(entries: Sequence[Mapping[str, Any]]) -> list[Table | Line]:
    """The judge's verdict on an element: its region, what it may be, and what fails or accounts for it."""
    found = [Line(", ".join(dict.fromkeys(entry["region"] for entry in entries)), label="region:")] if entries else []
    often = Counter(entry["lowering"] for entry in entries)
    names = [
        entry["lowering"] + (f" ({entry['spelling']})" if often[entry["lowering"]] > 1 else "") for entry in entries
    ]
    bounds: dict[str, list[str]] = {}
    verdicts: dict[tuple[str, str], list[str]] = {}
    for name, entry in zip(names, entries, strict=True):
        share = "" if entry["share"] is None else f"; {upward(100 * entry['share'], 3)}% of it"
        bounds.setdefault(entry["may_be"], []).append(f"{name}{share}")
        told = "; ".join(filter(None, (entry["why"], *entry["ledger"].values())))
        if told:
            verdicts.setdefault((entry["status"], told), []).append(name)
    found += [Line(f"{may_be} ({', '.join(group)})", label="may be:") for may_be, group in bounds.items()]
    found += [Line(told, label=f"{status}, {', '.join(group)}:") for (status, told), group in verdicts.items()]
    return [*found]


def _value(told: dict[str, Any], note: str = "") -> list[Table | Line]:
    return [Line(told["exact"], label=f"exact{note}:"), Line(told["rounded"], label=f"correctly rounded{note}:")]
