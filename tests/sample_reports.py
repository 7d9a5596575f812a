"""Small reports as plain dicts, the way `verify.walk.run.run` returns them, for tests of what reads them.

`cell` and `report` are of schema 1, `cell_of` and `report_of` of schema 2.
"""

from __future__ import annotations

from typing import Any

from verify.judge.status import worst

COUNTS = {
    "correct": 900,
    "faithful": 90,
    "worse": 6,
    "flushed": 1,
    "nan_mismatch": 1,
    "inf_mismatch": 1,
    "zero_sign": 1,
    "undecided": 0,
}


def error(**changes: Any) -> dict[str, Any]:
    counts = {name: changes.pop(name, value) for name, value in COUNTS.items()}
    return {
        "max_ulp": 1.015625,
        "max_scaled_ulp": 0.7712,
        "max_int_ulp": 1,
        "mean_ulp": 0.251,
        "bias_ulp": -0.0,
        **counts,
        "misrounded": sum(counts.values()) - counts["correct"],
        "range": 3,
        "histogram": {"<=1024": 1000, "<=0.5": 900, "<=1": 990, "<=2": 996},
        **changes,
    }


def cell(**changes: Any) -> dict[str, Any]:
    return {
        "kernel": "addcmul",
        "lowering": "inductor",
        "spelling": "out-of-place",
        "backend": "cpu",
        "dtype": "float32",
        "scalars": {"value": 0.3},
        "domain": {"kind": "strata", "size": 1000, "seed": 0, "digest": "00ff"},
        "status": "passed",
        "inputs": 1000,
        "error": error(),
        "worst": [
            {
                "index": 17,
                "inputs": ["-0x1.8p+0", "0x1.000002p+0", "nan:0x7fc00001"],
                "output": "0x1.8p+1",
                "exact": "2.9999998211860657",
                "ulp": 1.015625,
                "error_class": "worse",
            }
        ],
        "against_eager": {"different": 60, "closer": 41, "farther": 12, "tied": 7},
        "formula": {"identified": "fma(value, rn(b*c), a)", "mismatches": {"a + rn(value*rn(b*c))": 812}},
        "bound": {"value": 1.5, "metric": "scaled_ulp", "source": "Higham 2002, lemma 3.1"},
        "trust": [{"library": "exp", "bound_ulp": 4.0, "admitted_on": 65536}],
        "digest": "ab12",
        "timing": {"kernel_s": 0.125, "check_s": 1.5, "mp_elements": 4},
        **changes,
    }


def not_run(**changes: Any) -> dict[str, Any]:
    bare = {key: cell()[key] for key in ("kernel", "lowering", "spelling", "backend", "dtype", "scalars", "domain")}
    return {**bare, "status": "not-run", "reason": "torch finds no CUDA device", **changes}


def report(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "environment": {"torch": "2.13.0", "cpu": {"flags": ["avx2"], "cores": 2}},
        "profile": "quick",
        "seed": 0,
        "command": "verify run",
        "cells": list(cells),
        **changes,
    }


# Schema 2


def counts_of(inputs: int, **counts: int) -> dict[str, int]:
    """Classes of `inputs` elements: those given, the rest correct."""
    return {"correct": inputs - sum(counts.values()), **counts}


def region(inputs: int = 100, **changes: Any) -> dict[str, Any]:
    """One region, passed unless told. max_ulp, max_scaled_ulp... and the classes are its error's."""
    names = ("max_ulp", "max_scaled_ulp", "max_share", "max_int_ulp", "mean_ulp", "bias_ulp")
    maxima = {name: changes.pop(name) for name in names if name in changes}
    counts = {name: changes.pop(name) for name in COUNTS if name in changes}
    classes = counts_of(inputs, **counts)
    given = {
        "inputs": inputs,
        "error": {
            "max_ulp": 0.75,
            "max_scaled_ulp": 0.5,
            "max_share": 0.5,
            "max_int_ulp": 1,
            "mean_ulp": 0.25,
            "bias_ulp": 0.0,
            **maxima,
            **classes,
            "misrounded": inputs - classes["correct"],
        },
        "bound": {"value": 1.5, "metric": "ulp", "source": "Higham 2002, lemma 3.1"},
        "status": "passed",
        **changes,
    }
    if given["status"] != "passed":
        given.setdefault("reason", {"kind": "bound", "text": f"ulp {given['error']['max_ulp']:g} exceeds 1.5"})
    return given


def worst_at(index: int, **changes: Any) -> dict[str, Any]:
    return {"index": index, "inputs": [f"0x1.{index:x}p+0"], "output": "0x1p+1", "exact": "1.5", "ulp": 2.0, **changes}


def deviating(entry: str, text: str = "flushes", kind: str = "flush", **changes: Any) -> dict[str, Any]:
    """A region that a ledger entry covers."""
    return region(status="deviates", reason={"kind": kind, "text": text, "ledger": [entry]}, **changes)


def whole(regions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The record of all elements, which is what the regions add up to."""
    errors = [one["error"] for one in regions.values()]
    total = {name: sum(error.get(name, 0) for error in errors) for name in (*COUNTS, "misrounded")}
    maxima = {name: max(error[name] for error in errors) for name in ("max_ulp", "max_int_ulp", "mean_ulp")}
    optional = {
        name: max((error[name] for error in errors if error[name] is not None), default=None)
        for name in ("max_scaled_ulp", "max_share")
    }
    beyond = regions.get("intermediate", {}).get("inputs", 0)
    return {"bias_ulp": 0.0, "range": beyond, **maxima, **optional, **total}


def cell_of(regions: dict[str, dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A cell of schema 2 whose record of all elements is what its regions add up to."""
    inputs = sum(one["inputs"] for one in regions.values())
    status = worst(one["status"] for one in regions.values())
    telling = next(one for one in regions.values() if one["status"] == status)
    ledger = [name for one in regions.values() for name in one.get("reason", {}).get("ledger", ())]
    head = regions.get("normal") or next(iter(regions.values()))
    return {
        **cell(),
        "domain": {"kind": "strata", "size": inputs, "seed": 0, "digest": "00ff"},
        "status": status,
        "reason": telling.get("reason", {}).get("text", ""),
        "reason_kind": telling.get("reason", {}).get("kind", ""),
        "ledger": list(dict.fromkeys(ledger)),
        "inputs": inputs,
        "regions": regions,
        "error": whole(regions),
        "bound": head["bound"],
        "worst": head.get("worst", []),
        **changes,
    }  # fmt: skip


def report_of(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A report of schema 2."""
    return report(*cells, **{"schema": 2, **changes})
