"""Measured batch invariance (measured/invariance-*.json, `verify kernel NAME --invariance`), shown beside the cells of
the same kernel, lowering, dtype, device and torch."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verify.reports.blocks import Column, Line, Page, Row, Table, heading

MEASURED = Path(__file__).resolve().parent / "measured"
#: The facts of a fingerprint that must be equal; of torch the release.
DEVICE = ("backend", "chip", "capability", "torch")


def told(kernel: str, lowering: str, dtype: str, fingerprint: object) -> str:
    """Whether a row has the same bits in every batch as alone, at all lengths measured; '' where it was not
    measured."""
    rows = _known().get((kernel, lowering, dtype, _device(fingerprint)), ())
    if not rows:
        return ""
    sizes, lengths = sum(one["sizes"] for one in rows), ", ".join(str(one["length"]) for one in rows)
    wrong = [one for one in rows if one["differing"]]
    also = [text for text, name in (("place", "place"), ("other rows", "contents")) if any(one[name] for one in rows)]
    if not (wrong or also):
        return f"yes: {sizes} sizes, length {lengths}"
    parts = [f"no: {sum(len(one['differing']) for one in wrong)} of {sizes} sizes"]
    if wrong:
        first = min(wrong, key=lambda one: (one["differing"][0], one["length"]))
        most = max(one["steps"] for one in wrong)
        parts.append(f"from {first['differing'][0]} on, row {first['row']}, {most} steps, length {lengths}")
    return "; ".join([", ".join(parts), *also])


@functools.cache
def _known() -> Mapping[tuple[Any, ...], list[Mapping[str, Any]]]:
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for path in sorted(MEASURED.glob("invariance-*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for one in document["rows"]:
            if not one["reason"]:
                device = _device(document["environment"].get(one["backend"]))
                found.setdefault((one["kernel"], one["lowering"], one["dtype"], device), []).append(one)
    return found


def _device(fingerprint: object) -> tuple[str, ...]:
    if not isinstance(fingerprint, Mapping):
        return ()
    return tuple(str(fingerprint.get(name)).partition("+")[0] for name in DEVICE)


def invariance_page(found: Sequence[Mapping[str, Any]]) -> Page:
    """`verify kernel NAME --invariance`: the rows of `verify.walk.invariance.walk`."""
    columns = (
        Column("lowering"), Column("dtype"), Column("length", right=True), Column("invariant"),
        Column("sizes that differ", right=True), Column("from size", right=True), Column("row", right=True),
        Column("steps", right=True), Column("place"), Column("other rows"),
    )  # fmt: skip
    rows: list[Row] = []
    notes: list[Line] = []
    for kernel, backend in dict.fromkeys((one["kernel"], one["backend"]) for one in found):
        rows.append(heading(f"{kernel} on {backend}", columns))
        for one in found:
            if (one["kernel"], one["backend"]) != (kernel, backend):
                continue
            name = one["lowering"], one["dtype"], str(one["length"])
            if one["reason"]:
                notes.append(Line(f"{kernel} {' '.join(name)}: {one['reason']}", label="not run:"))
                continue
            differing = one["differing"]
            where = (str(differing[0]), str(one["row"]), str(one["steps"])) if differing else ("-",) * 3
            told = ("other bits" if one["place"] else "same", "other bits" if one["contents"] else "same")
            answer = "yes" if one["invariant"] else "no"
            rows.append(Row((*name, answer, f"{len(differing)} of {one['sizes']}", *where, *told)))
    return Page("batch invariance: bits of a row beside those that it has alone", (Table(columns, tuple(rows)), *notes))
