"""The file by which two machines name the elements on which their outputs differ: chunks of outputs, bit for bit.

An .npz of numpy without pickles: `header`, JSON as bytes, says which cells and chunks of 2^20 outputs the arrays
`chunk0`, `chunk1`... hold, as unsigned patterns. Outputs are computed again by `verify.walk.recompute`; nothing is
computed here.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from verify.facts.formats import FORMATS
from verify.facts.kernel import NothingToCompare, UsageError
from verify.reports import store
from verify.reports.compare import CHUNK, Aligned, Comparison, Facts, differing_chunks, place_json, refusal
from verify.reports.schema import AnySequence, Record

if TYPE_CHECKING:
    import numpy as np

    Patterns = np.ndarray[Any, np.dtype[Any]]

SCHEMA = 1
#: The most differing chunks of a cell, and bytes of outputs in all.
CHUNKS_TAKEN = 4
BYTES_TAKEN = 256 << 20
#: Limits of what is read: the header, and what numpy may put before the elements of an array.
_HEADER_BYTES = 64 << 20
_ARRAY_HEADER = 4096


def _format(value: str) -> str:
    if value not in FORMATS:
        raise ValueError(f"format {value!r}; expected one of {', '.join(FORMATS)}")
    return value


class Entry(Record):
    """One array: chunk `chunk` of a cell's outputs in `format`; `digest` is the report's for that chunk."""

    kernel: str
    lowering: str
    spelling: str
    backend: str
    dtype: str
    scalars: dict[str, float]
    output: str
    format: Annotated[str, AfterValidator(_format)]
    chunk: Annotated[int, Field(ge=0)]
    elements: Annotated[int, Field(gt=0, le=CHUNK)]
    digest: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class Header(Record):
    """`device` is what the writer calls its machine."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    what: Literal["ulproof exchange"] = "ulproof exchange"
    device: str
    entries: Annotated[list[Entry], AnySequence]


@dataclass(frozen=True)
class Wanted:
    """Chunks of this machine's cell (column `own` of `row`) that differ from another column's."""

    row: Aligned
    own: int
    chunks: tuple[int, ...]

    @property
    def cell(self) -> Facts:
        cell = self.row.cells[self.own]
        assert cell is not None
        return cell


@dataclass(frozen=True)
class Element:
    """One element on which two outputs differ: inputs and outputs as hex floats, errors and classes of both.

    closer: 'own', 'other' or 'tied'.
    """

    index: int
    inputs: tuple[str, ...]
    own: str
    other: str
    exact: str
    ulps: tuple[float | None, float | None]
    classes: tuple[str, str]
    closer: str


@dataclass(frozen=True)
class Finding:
    """A chunk compared element by element: `differing` of `elements` do, `first` are the first of them.

    truth: 'exact', or 'rounded' where exact values and errors are those of the scalars rounded to the dtype.
    """

    row: Aligned
    own: int
    other: int
    chunk: int
    elements: int
    differing: int
    truth: str
    first: tuple[Element, ...]
    command: str


@dataclass(frozen=True)
class Exchanged:
    """What was written to a file or found from one: chunks and cells, and how many cells each reason left out."""

    chunks: int
    cells: int
    findings: tuple[Finding, ...]
    left_out: tuple[tuple[str, int], ...]


def wanted(found: Comparison) -> list[Wanted]:
    """The differing chunks of the first report's cells, at most CHUNKS_TAKEN of each.

    Raises NothingToCompare where no bits differ.
    """
    mine = [index for index, column in enumerate(found.columns) if column.source == 0]
    theirs = [index for index, column in enumerate(found.columns) if column.source != 0]
    chosen = []
    for row in found.rows:
        for own in mine:
            cell = row.cells[own]
            if cell is None or not cell.ran:
                continue
            numbers: dict[int, None] = {}
            for index in theirs:
                other = row.cells[index]
                if other is not None and other.ran and not refusal(cell, other):
                    numbers |= dict.fromkeys(differing_chunks(cell, other))
            if numbers:
                chosen.append(Wanted(row, own, tuple(sorted(numbers)[:CHUNKS_TAKEN])))
    if not chosen:
        raise NothingToCompare(
            f"nothing to exchange: no chunk of {found.sources[0].file!r}, this machine's report, is known to differ "
            "(reports trimmed by docs/record.py name no chunks of larger domains)"
        )
    return chosen


def write(path: str | Path, device: str, entries: Sequence[tuple[Entry, Patterns]]) -> int:
    """Write the file; returns its size in bytes. Raises UsageError."""
    import numpy as np

    header = Header(device=device, entries=[entry for entry, _ in entries])
    arrays: dict[str, Any] = {f"chunk{number}": patterns for number, (_, patterns) in enumerate(entries)}
    told = np.frombuffer(header.model_dump_json(by_alias=True).encode(), dtype=np.uint8)
    data = io.BytesIO()
    np.savez_compressed(data, header=told, **arrays)
    store.write_bytes([data.getvalue()], path)
    return len(data.getvalue())


def read(path: str | Path) -> tuple[Header, Callable[[int], Patterns]]:
    """The header of a file, and the array of an entry by its number. Raises UsageError for any other file."""
    header = _read(path)
    try:
        found = Header.model_validate_json(header.tobytes())
    except ValidationError as error:
        version = _version(header.tobytes())
        if isinstance(version, int) and version > SCHEMA:
            raise UsageError(
                f"{str(path)!r} is an exchange file of schema {version}; this version reads {SCHEMA}; upgrade ulproof"
            ) from None
        first = error.errors(include_url=False)[0]
        where = store.json_path(first["loc"])
        raise UsageError(
            f"{str(path)!r} is not an exchange file of `verify compare`: {where}: {first['msg']}"
        ) from None

    def outputs(number: int) -> Patterns:
        entry = found.entries[number]
        return _read(path, f"chunk{number}", f"<u{FORMATS[entry.format].bits // 8}", entry.elements)

    return found, outputs


def _read(path: str | Path, name: str = "header", dtype: str = "|u1", elements: int | None = None) -> Patterns:
    """One array; its type and length are checked before memory is allocated for it."""
    import numpy as np

    limit = (_HEADER_BYTES if elements is None else elements * np.dtype(dtype).itemsize) + _ARRAY_HEADER
    try:
        with zipfile.ZipFile(path) as archive:
            member = archive.getinfo(f"{name}.npy")
            if member.file_size > limit:
                raise ValueError(f"{name} has {member.file_size} bytes; expected {limit} at most")
            data = io.BytesIO(archive.read(member))
        np.lib.format.read_magic(data)
        shape, _, found = np.lib.format.read_array_header_1_0(data)
        rest = data.read()
        if found.str != dtype or len(shape) != 1 or (elements not in (None, *shape)):
            raise ValueError(f"{name} is {found.str} {shape}; expected {dtype} ({elements},)")
        return np.frombuffer(rest, dtype=found, count=shape[0])
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"cannot read the exchange file {str(path)!r}: {why}") from None


def _version(header: bytes) -> object:
    try:
        told = json.loads(header)
    except (ValueError, RecursionError):
        return None
    return told.get("schema") if isinstance(told, dict) else None


def as_json(told: Exchanged) -> dict[str, Any]:
    """What was written or found, as plain data; columns are by number."""
    return {
        "chunks": told.chunks,
        "cells": told.cells,
        "left_out": dict(told.left_out),
        "findings": [
            {
                **place_json(one.row.place),
                "own": one.own,
                "other": one.other,
                "chunk": one.chunk,
                "elements": one.elements,
                "differing": one.differing,
                "truth": one.truth,
                "first": [asdict(element) for element in one.first],
                "command": one.command,
            }
            for one in told.findings
        ],
    }
