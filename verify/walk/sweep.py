"""Findings of a sweep's ranges as JSON, which joins to the same bytes in any order and grouping.

A part has `start` and `stop`, elements of the domain, and either `cells`, the job's cells where the range ended in an
error, or `tallies` by truth of the scalars with what the cell needs beside them; `first` is of the range that begins
the domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from verify.facts.kernel import UsageError
from verify.judge.tally import Tally, restored, total

Part = Mapping[str, Any]


def joined(parts: Iterable[Part]) -> list[Part]:
    """The parts of one job, those joined that follow one another. Raises UsageError where two have an element."""
    runs: list[list[Part]] = []
    for part in sorted(parts, key=lambda one: (one["start"], one["stop"])):
        if runs and part["start"] < runs[-1][-1]["stop"]:
            told = f"{part['start']} to {min(part['stop'], runs[-1][-1]['stop']) - 1}"
            raise UsageError(f"elements {told} of a sweep are in two parts; name each report once")
        if runs and part["start"] == runs[-1][-1]["stop"]:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [_one(run) for run in runs]


def tallies_of(part: Part) -> dict[str, Tally]:
    """By truth of the scalars."""
    return {truth: restored(record) for truth, record in part["tallies"].items()}


def _one(run: list[Part]) -> Part:
    """Parts that follow one another, as one. As in a walk, the first error ends the cell."""
    ends = {"start": run[0]["start"], "stop": run[-1]["stop"]}
    failed = next((part for part in run if "cells" in part), None)
    if failed is not None or len(run) == 1:
        return {**(failed or run[0]), **ends}
    same = {name: run[0][name] for name in ("stated", "device")}
    if any(part[name] != same[name] for part in run for name in same):
        raise UsageError("parts of one sweep were judged by different bounds; run them again")
    launched = [part["launched"] for part in run]
    return {
        **ends,
        **same,
        "tallies": {truth: total(_restored(run, truth)).record() for truth in run[0]["tallies"]},
        "against_eager": all(part["against_eager"] for part in run),
        "launched": {
            "repeats": max(one["repeats"] for one in launched),
            "distinct": max(one["distinct"] for one in launched),
            "told": next((one["told"] for one in launched if one["told"]), ""),
        },
        "seconds": {name: sum(part["seconds"][name] for part in run) for name in run[0]["seconds"]},
        "first": run[0]["first"],
    }


def _restored(run: Iterable[Part], truth: str) -> Iterator[Tally]:
    return (restored(part["tallies"][truth]) for part in run)
