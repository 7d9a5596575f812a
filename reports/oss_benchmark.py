"""Reports as records of the PyTorch OSS benchmark database, version 3, to be shown beside its other dashboards.

The format: https://github.com/pytorch/pytorch/wiki/PyTorch-OSS-benchmark-infra, section "Benchmark results format", and
the table that it fills, pytorch/test-infra, clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql. Commit, workflow, job
and time of a record are added by the action that uploads the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from verify import __version__
from verify.reports import store
from verify.reports.baseline import cell_name, covers
from verify.reports.figures import headline, measured, real
from verify.reports.schema import Cell, Report
from verify.reports.text import printable, scalars_text

#: The table's numbers are Float32; a larger value is recorded as this, with a note.
LARGEST = float.fromhex("0x1.fffffep+127")


class Measured(NamedTuple):
    """What a record needs of a cell. values: metric name, value, target (the bound) or None."""

    kernel: str
    lowering: str
    backend: str
    dtype: str
    facts: dict[str, str]
    values: tuple[tuple[str, float, float | None], ...]


def records(paths: Sequence[str | Path], only: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """One record for each metric of each cell that has an error: the maximum on which the bound is set, with the bound
    as target; the maximum in ULP; the real-valued error of region `normal`; the share of misrounded results. only:
    patterns of cells' names, as the gate has them; all without one. Raises UsageError."""

    def chosen(cell: Cell) -> Measured | None:
        name = cell_name(cell) if only else ""
        return take(cell) if not only or any(covers(pattern, name) for pattern in only) else None

    for path in paths:
        head, cells = store.scan(path, chosen)
        for cell in cells:
            if cell is not None:
                yield from _records(cell, head)


def lines(paths: Sequence[str | Path], only: Sequence[str] = ()) -> Iterator[str]:
    """The records as one JSON list, a record a line."""
    start = "[\n"
    for record in records(paths, only):
        yield start + json.dumps(record, allow_nan=False)
        start = ",\n"
    yield "\n]\n" if start != "[\n" else "[]\n"


def take(cell: Cell) -> Measured | None:
    """None where nothing was measured."""
    if cell.error is None or not cell.inputs:
        return None
    value, metric = measured(cell)
    values = [(f"max_{metric}", value, cell.bound.value if cell.bound else None)]
    if metric != "ulp":
        values.append(("max_ulp", cell.error.max_ulp, None))
    if "normal" in cell.regions:
        most, unit = real(*headline(cell))
        values.append((f"normal_max_{unit}", most, None))
    values.append(("misrounded_share", cell.error.misrounded / cell.inputs, None))
    formula = cell.formula.identified or " or ".join(cell.formula.survivors) if cell.formula else ""
    facts = {
        "spelling": cell.spelling,
        "scalars": scalars_text(cell.scalars),
        "output": cell.output,
        "status": cell.status,
        "ledger": " ".join(cell.ledger),
        "formula": formula,
        "domain": f"{cell.domain.kind} of {cell.domain.size}, seed {cell.domain.seed}",
        "inputs_digest": cell.domain.digest,
        "digest": cell.digest,
    }
    told = {name: printable(text) for name, text in facts.items() if text}
    return Measured(cell.kernel, cell.lowering, cell.backend, cell.dtype, told, tuple(values))


def _records(cell: Measured, head: Report) -> Iterator[dict[str, Any]]:
    fingerprint = head.environment.get(cell.backend)
    fingerprint = fingerprint if isinstance(fingerprint, dict) else {}
    for name, value, target in cell.values:
        metric: dict[str, Any] = {"name": name, "benchmark_values": [min(value, LARGEST)]}
        if target is not None:
            metric["target_value"] = min(target, LARGEST)
        if value > LARGEST:
            metric["extra_info"] = {"value": repr(value)}
        yield {
            "benchmark": {
                "name": "ulproof",
                "mode": "inference",
                "dtype": printable(cell.dtype),
                "extra_info": {"version": __version__, "profile": printable(head.profile), "seed": str(head.seed)},
            },
            "model": {
                "name": printable(cell.kernel),
                "type": "micro-benchmark",
                "backend": printable(cell.lowering),
                "origins": ["ulproof"],
                "extra_info": cell.facts,
            },
            "metric": metric,
            "runners": [_runner(cell.backend, fingerprint)],
            "dependencies": _dependencies(fingerprint),
        }


def _runner(backend: str, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """The machine; what the table has no field for goes into extra_info, whose values are strings."""
    chip = str(fingerprint.get("chip") or "")
    known = {"cpu_info": chip} if backend == "cpu" else {"gpu_info": chip, "gpu_count": 1}
    left = {name: value for name, value in fingerprint.items() if name not in ("chip", "torch", "triton")}
    extra = {name: value if isinstance(value, str) else json.dumps(value) for name, value in left.items()}
    return {"name": f"{backend} {chip}".strip(), **known, "extra_info": extra}


def _dependencies(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    repositories = {"torch": ("pytorch", "pytorch/pytorch"), "triton": ("triton", "triton-lang/triton")}
    return {
        name: {"repo": repo, "version": str(fingerprint[key])}
        for key, (name, repo) in repositories.items()
        if fingerprint.get(key)
    }
