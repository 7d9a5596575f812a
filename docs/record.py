"""Make the small report that is committed out of full ones: what the tables of docs/results/ and a baseline need.

    python docs/record.py REPORT.json... --out reports/recorded/NAME.json [--keep plain|composites]
        [--kernel NAME,...] [--without NAME,...]

--keep: elementwise kernels in their plain spelling alone, or the other kernels, of a report that has both. --kernel,
--without: these kernels alone, or none of these. Several reports of the same environment, profile and seed are joined.
Left out, and counted under `recorded` in the environment: cells not run, spellings that gave a lowering's bits again,
and of the others the statistics by binade, the chunks' digests and all but the worst element; of each region also the
histogram, the resolution, and the source of its bound where it is the cell's. What a library was trusted for stands
once for each backend.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verify.facts.kernel import UsageError, elementwise, elementwise_names
from verify.reports import store
from verify.reports.schema import Cell, Error, Region, Report
from verify.walk.merge import merged


def trimmed(report: Report) -> Report:
    """The report without what the module's docstring lists; figures that stay are unchanged."""
    first: dict[tuple[Any, ...], Cell] = {}
    kept: list[Cell] = []
    not_run: Counter[str] = Counter()
    repeated = 0
    trust: dict[str, dict[str, Any]] = {}
    for cell in report.cells:
        if cell.error is None and cell.status == "not-run":
            not_run[f"{cell.backend} {cell.lowering}: {cell.reason}"] += 1
            continue
        default = first.setdefault((*cell.key[:2], *cell.key[3:]), cell)
        if default is not cell and _repeats(cell, default):
            repeated += 1
            continue
        for entry in cell.trust:
            trust.setdefault(cell.backend, {})[entry.library] = entry.model_dump(exclude={"library"})
        kept.append(_small(cell))
    left_out = {"not run": dict(not_run), "other spellings with the same bits": repeated}
    environment: dict[str, Any] = {**report.environment, "recorded": {"left out": left_out, "trust": trust}}
    return report.model_copy(update={"environment": environment, "cells": kept})


def kept(report: Report, what: str) -> Report:
    """The cells that --keep names."""
    names = set(elementwise_names())
    plain = {name: next(iter(elementwise(name).spellings)) for name in names}
    cells = [c for c in report.cells if (c.kernel in names) == (what == "plain")]
    cells = [c for c in cells if plain.get(c.kernel, c.spelling) == c.spelling]
    return report.model_copy(update={"cells": cells})


def _repeats(cell: Cell, default: Cell) -> bool:
    """Equal bits for equal inputs, judged the same."""
    same = (cell.digest, cell.domain.digest, cell.status) == (default.digest, default.domain.digest, default.status)
    return same and bool(cell.digest) and cell.bound == default.bound


def _small(cell: Cell) -> Cell:
    update: dict[str, Any] = {"trust": [], "chunks": [], "worst": cell.worst[:1]}
    for name in ("error", "error_rounded_scalar"):
        error: Error | None = getattr(cell, name)
        if error is not None:
            update[name] = error.model_copy(update={"binades": []})
    update["regions"] = {name: _small_region(one, cell) for name, one in cell.regions.items()}
    return cell.model_copy(update=update)


def _small_region(region: Region, cell: Cell) -> Region:
    error = region.error.model_copy(update={"binades": [], "histogram": {}})
    bound = region.bound
    if bound is not None and cell.bound is not None and bound.source == cell.bound.source:
        bound = bound.model_copy(update={"source": ""})
    small = {"error": error, "worst": region.worst[:1], "bound": bound, "resolution": None}
    return region.model_copy(update=small)


def of_kernels(report: Report, names: Iterable[str], without: bool) -> Report:
    """The cells of these kernels, or of all others."""
    chosen = {*names}
    cells = [c for c in report.cells if (c.kernel in chosen) != without]
    return report.model_copy(update={"cells": cells})


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--keep", choices=("plain", "composites"))
    parser.add_argument("--kernel", type=lambda names: names.split(","))
    parser.add_argument("--without", type=lambda names: names.split(","), default=())
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        whole = merged([store.read(path) for path in options.report])
        whole = kept(whole, options.keep) if options.keep else whole
        whole = of_kernels(whole, options.kernel, False) if options.kernel else whole
        text = "".join(store.lines(trimmed(of_kernels(whole, options.without, True)), short=True))
        report = store.parse(text, str(options.out))
        store.write_text([text], options.out)
    except UsageError as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    size = options.out.stat().st_size
    print(f"{options.out}: {len(report.cells)} cells, {size / 1e6:.2f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
