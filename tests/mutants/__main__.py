"""The kill table of all planted faults: `python tests/mutants --out FILE [--tenth COMMIT] [--kernel NAME]`.

Prints a table, writes every verdict to FILE, one a line, and ends with exit code 1 where a fault survives the default
profile, fewer than 95% die under quick, or a correct variant does not pass.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

import torch  # noqa: E402

from mutants import whole  # noqa: E402

#: Of faults that quick's cells can show, the share that it must kill.
QUICK = 0.95


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the file; verdicts of other kernels in it are kept")
    parser.add_argument("--tenth", metavar="COMMIT", help="one item in ten, chosen by this text")
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help="this kernel alone")
    options = parser.parse_args(arguments)
    items = [
        one
        for one in (whole.everything() if options.tenth is None else whole.tenth(options.tenth))
        if not options.kernel or one.kernel in options.kernel
    ]
    began = time.monotonic()

    def told(verdict: whole.Verdict) -> None:
        if not verdict.holds:
            where = f" at length {verdict.length}" if verdict.length else ""
            print(f"{verdict.item.label}{where}: {verdict.cell['status']}: {verdict.cell['reason']}", file=sys.stderr)

    records = json.loads(options.out.read_text())["verdicts"] if options.kernel and options.out.exists() else []
    # what is wrong first: it takes little, as most of it dies under quick
    for right, name, dtype in sorted({(not one.wrong, one.kernel, one.dtype) for one in items}):
        some = [one for one in items if (not one.wrong, one.kernel, one.dtype) == (right, name, dtype)]
        records = [r for r in records if (not r["wrong"], r["kernel"], r["dtype"]) != (right, name, dtype)]
        records += [verdict.record() for verdict in whole.judge(some, told)]
        write(options.out, records)  # a long run that is ended keeps what it has
    print(table(records))
    print(f"{len(records)} verdicts, {time.monotonic() - began:.0f} s")
    return 0 if sound(records) else 1


def table(records: Sequence[dict[str, Any]]) -> str:
    """Faults (with their lengths) and correct variants of each kernel, as Markdown."""
    lines = [
        "| kernel | faults | killed under quick | under default | correct variants that pass |",
        "|---|---|---|---|---|",
    ]
    names = sorted({r["kernel"] for r in records})
    for name, some in [(n, [r for r in records if r["kernel"] == n]) for n in names] + [("all", list(records))]:
        faults, right = [r for r in some if r["wrong"]], [r for r in some if not r["wrong"]]
        killed = of(sum(r["holds"] for r in faults), len(faults))
        different = len({(r["kernel"], r["name"], r["dtype"]) for r in faults})
        held = sum(r["holds"] for r in right)
        lines.append(f"| `{name}` | {different} | {of(*under_quick(faults))} | {killed} | {held} of {len(right)} |")
    return "\n".join(lines)


def of(part: int, all_: int) -> str:
    return f"{part} of {all_} ({part / all_:.1%})" if all_ else ""


def under_quick(faults: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """How many die under quick, of those that could: of faults at a length, where quick has the length."""
    seen = [r for r in faults if not r["length"] or r["quick"]]
    return sum(r["holds"] and r["profile"] == "quick" for r in seen), len(seen)


def sound(records: Sequence[dict[str, Any]]) -> bool:
    part, all_ = under_quick([r for r in records if r["wrong"]])
    return all(r["holds"] for r in records) and part >= QUICK * all_


def write(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """Sorted, one verdict a line."""
    ordered = sorted(records, key=lambda r: (r["kernel"], not r["wrong"], r["name"], r["dtype"], r["length"]))
    facts = {"command": "tox -e mutants", "torch": torch.__version__}
    head = json.dumps(facts)[:-1] + ', "verdicts": [\n'
    path.write_text(head + ",\n".join(json.dumps(r) for r in ordered) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
