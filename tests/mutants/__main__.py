"""The kill table of all planted faults: `python tests/mutants --out FILE [--tenth COMMIT] [--kernel NAME] [--jobs N]`.

Prints a table, writes every verdict to FILE, one a line, and ends with exit code 1 where a fault survives the default
profile, fewer than 95% die under quick, or a correct variant does not pass.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

import torch  # noqa: E402

from mutants import whole  # noqa: E402
from verify import backends  # noqa: E402

#: Of faults that quick's cells can show, the share that it must kill.
QUICK = 0.95
#: Items of a kernel and dtype that a process judges at once, with one truth.
TOGETHER = 40


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the file; verdicts of other kernels in it are kept")
    parser.add_argument("--tenth", metavar="COMMIT", help="one item in ten, chosen by this text")
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help="this kernel alone")
    parser.add_argument("--jobs", type=int, default=backends.cores(), metavar="N", help="processes of one thread")
    options = parser.parse_args(arguments)
    items = whole.chosen(options.tenth, options.kernel)
    began = time.monotonic()
    records = json.loads(options.out.read_text())["verdicts"] if options.kernel and options.out.exists() else []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, spawn, torch.set_num_threads, (1,)) as pool:
        parts = [pool.submit(whole.judged, options.tenth, options.kernel, some) for some in parted(items)]
        for part in as_completed(parts):
            labels, found = part.result()
            records = [r for r in records if (r["kernel"], r["name"], r["dtype"]) not in labels] + found
            write(options.out, records)  # a long run that is ended keeps what it has
    print(table(records))
    print(f"{len(records)} verdicts, {time.monotonic() - began:.0f} s")
    return 0 if sound(records) else 1


def parted(items: Sequence[whole.Planted]) -> list[list[int]]:
    """Places of items that are judged together: what is wrong first, which takes little, as most of it dies under
    quick."""
    places = sorted(range(len(items)), key=lambda k: (not items[k].wrong, items[k].kernel, items[k].dtype))
    found = []
    for _, group in itertools.groupby(places, lambda k: (items[k].wrong, items[k].kernel, items[k].dtype)):
        some = list(group)
        found += [some[k : k + TOGETHER] for k in range(0, len(some), TOGETHER)]
    return found


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
