"""Batch invariance as it was measured (measured/invariance-*.json, `verify kernel NAME --invariance`), told beside the
cells of the same kernel, lowering, dtype, device and torch."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).resolve().parent / "measured"
#: What of a fingerprint must be the same; of torch the release.
DEVICE = ("backend", "chip", "capability", "torch")


def told(kernel: str, lowering: str, dtype: str, fingerprint: object) -> str:
    """Whether a row has the bits of the row alone in every batch, of all lengths measured; '' where it was not."""
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
