"""Small reports as plain dicts, the way `verify.run.run` returns them, for tests of what reads them."""

from __future__ import annotations

from typing import Any

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
