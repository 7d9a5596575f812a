"""Add the worst inputs of reports to the corpus: `python tests/corpus/collect.py REPORT.json...`.

One file a kernel: dtype and Python scalars to rows of hex floats, one for each tensor in the kernel's order. Inputs
that were once the worst of some lowering on some device are judged again for every lowering on every backend
(tests/test_registry.py), whatever the domains have become since.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from verify.facts.kernel import elementwise_names
from verify.reports import store
from verify.reports.text import scalars_text

FOLDER = Path(__file__).resolve().parent
Row = tuple[str, ...]


def key(dtype: str, scalars: Mapping[str, float]) -> str:
    return f"{dtype} {scalars_text(scalars)}".strip()


def rows(kernel: str) -> dict[str, list[Row]]:
    """The corpus of a kernel; empty where none of its inputs is kept."""
    path = FOLDER / f"{kernel}.json"
    if not path.exists():
        return {}
    return {name: [tuple(row) for row in found] for name, found in json.loads(path.read_text()).items()}


def worst(path: Path) -> Iterator[tuple[str, str, Row]]:
    """Kernel, key and inputs of each worst element of the report's elementwise cells."""
    known = elementwise_names()
    for cell in store.read(path).cells:
        if cell.kernel in known:
            for element in cell.worst:
                yield cell.kernel, key(cell.dtype, cell.scalars), tuple(element.inputs)


def main(paths: list[str]) -> None:
    corpus = {name: rows(name) for name in elementwise_names()}
    for path in paths:
        for kernel, name, row in worst(Path(path)):
            corpus[kernel].setdefault(name, []).append(row)
    for kernel, found in corpus.items():
        ordered = {name: sorted(set(found[name])) for name in sorted(found)}
        if ordered:
            (FOLDER / f"{kernel}.json").write_text(_text(ordered))


def _text(found: Mapping[str, list[Row]]) -> str:
    """One line a row, so that diffs name the inputs that came."""
    parts = (f"{json.dumps(name)}: [\n{_lines(found[name])}\n ]" for name in found)
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _lines(found: list[Row]) -> str:
    return ",\n".join(f"  {json.dumps(row)}" for row in found)


if __name__ == "__main__":
    main(sys.argv[1:])
