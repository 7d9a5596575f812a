"""Reading and writing report files: clear refusals, atomic replacement, canonical bytes; NAME.xz is compressed.

What a report contains is in `verify.reports.schema`, which is imported only when a function here
is called, so that the command line starts without pydantic.
"""

from __future__ import annotations

import contextlib
import gc
import json
import lzma
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from verify.facts.kernel import UsageError

if TYPE_CHECKING:
    from pydantic import ValidationError

    from verify.reports.schema import Cell, Report

T = TypeVar("T")

#: Files above this are refused unread: 100,000 cells without chunk digests take about 250 MB.
MAX_BYTES = 1 << 29
#: The suffix of compressed files.
COMPRESSED = ".xz"
#: What files begin with that are no JSON, though what they hold may be.
MAGIC = {
    b"\x1f\x8b": "compressed by gzip", b"\xfd7zXZ": "compressed by xz", b"PK": "an archive",
    b"\xef\xbb\xbf": "text with a byte order mark",
}  # fmt: skip
#: The exceptions that reading a file may raise.
BROKEN = (OSError, ValueError, EOFError, lzma.LZMAError)


def read(path: str | Path) -> Report:
    """The report in `path`, one of an earlier schema converted (`Report.converted_from`). Raises UsageError for a file
    that is missing, truncated, no JSON, no report of a schema version up to ours, or larger than MAX_BYTES."""
    path = Path(path)
    try:
        with _opened(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = b"" if size > MAX_BYTES else file.read(MAX_BYTES + 1)  # pipes say size 0
    except BROKEN as error:
        raise UsageError(f"cannot read the report {str(path)!r}: {why(error)}") from None
    if max(size, len(data)) > MAX_BYTES:
        raise UsageError(
            f"{str(path)!r} is larger than {MAX_BYTES >> 20} MiB; expected a report written by `verify run`"
        )
    return parse(data, str(path))


def scan(path: str | Path, take: Callable[[Cell], T]) -> tuple[Report, list[T]]:
    """The report in `path` without its cells, and what `take` makes of each of them.

    As `read`, in a fraction of the memory: a file with one line a cell, as `write` makes them, is read cell
    by cell. 100,000 cells as objects of the schema take 2 to 4 GB. Raises UsageError as `read` does.
    """
    return scan_under(path, lambda cell, head: take(cell))


def scan_under(path: str | Path, take: Callable[[Cell, Report], T]) -> tuple[Report, list[T]]:
    """As `scan`, where `take` asks for the report without its cells, too."""
    found = _scan_lines(Path(path), take)
    if found is not None:
        return found
    report = read(path)  # another layout, or a broken file: `parse` says where
    head = report.model_copy(update={"cells": []})
    return head, [take(cell, head) for cell in report.cells]


def _scan_lines(path: Path, take: Callable[[Cell, Report], T]) -> tuple[Report, list[T]] | None:
    """`scan` of a regular file that has the layout of `lines` and is valid; None for any other."""
    from verify.reports.schema import Cell, Report, lacks_regions, of_schema_1

    taken: list[T] = []
    keys = set()
    due = True  # whether a cell must follow
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        with _opened(path, "rb") as file, no_collection():
            read = _lines_within(file)
            head = next(read).rstrip()
            if not head.replace(b" ", b"").endswith(b'"cells":['):
                return None
            json.loads(head + b"]}", object_pairs_hook=_once)
            report = Report.model_validate_json(head + b"]}")
            while (line := next(read).rstrip()) != b"]}":
                if not due:
                    return None
                due = line.endswith(b",")
                cell = Cell.model_validate_json(line.removesuffix(b","))
                if report.converted_from == 1:
                    cell = of_schema_1(cell)
                elif lacks_regions(cell):
                    return None
                keys.add(cell.key)
                taken.append(take(cell, report))
            if (due and taken) or file.read(1) or len(keys) < len(taken):
                return None
    except BROKEN:  # pydantic's ValidationError is a ValueError
        return None
    return report, taken


def _lines_within(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, the last of them empty. Raises EOFError where they hold more than MAX_BYTES: of a compressed
    file its size does not tell."""
    left = MAX_BYTES
    while left >= 0:
        line = file.readline(left + 1)
        left -= len(line)
        if left >= 0:
            yield line
    raise EOFError


def parse(data: bytes | str, name: str) -> Report:
    """The report in `data`; `name` is what errors call it. Raises UsageError."""
    from pydantic import ValidationError

    from verify.reports.schema import Report

    try:
        with no_collection():
            found = Report.model_validate_json(data)
            json.loads(data, object_pairs_hook=_once)
            return found
    except ValidationError as error:
        raise UsageError(_explain(error, data, name)) from None
    except ValueError as error:
        raise UsageError(f"{name!r} is no report: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> None:
    """No JSON object names a thing twice: the last of two would hide the first. Raises ValueError."""
    if len({name for name, _ in pairs}) < len(pairs):
        [twice, *_] = [name for k, (name, _) in enumerate(pairs) if any(name == other for other, _ in pairs[:k])]
        raise ValueError(f"an object has {twice!r} twice; expected each name once")


def write(report: Report, path: str | Path) -> None:
    """Write `report` to `path` as `write_text` does."""
    write_text(lines(report), path)


def write_text(text: Iterable[str], path: str | Path) -> None:
    """Write so that `path` holds either its old content or all of the new one; '-' is standard output.

    Pipes and devices are written in place. Raises UsageError where that fails.
    """
    if str(path) == "-":
        sys.stdout.writelines(text)
        return
    write_bytes((part.encode() for part in text), path)


def write_bytes(data: Iterable[bytes], path: str | Path) -> None:
    """As `write_text`, but '-' is the name of a file like any other."""
    path = Path(path)
    try:
        with _replacement(path) as temporary:
            with _opened(temporary, "wb", compressed=path.suffix == COMPRESSED) as file:
                file.writelines(data)
            if temporary != path:
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write to {str(path)!r}: {why(error)}") from None


def ensure_writable(path: str | Path) -> None:
    """Raise UsageError unless `write` to `path` can succeed: call it before hours of computing."""
    if str(path) == "-":
        if getattr(sys.stdout, "name", "") == os.devnull:  # by `verify.cli.commands.main`, as by >&-
            raise UsageError("cannot write to '-': standard output is closed")
        return
    named, path = str(path), Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a directory; expected a file name")
        if not path.parent.exists():
            raise FileNotFoundError(f"there is no folder {str(path.parent)!r}")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError("the file is write-protected")
        if not _in_place(path):
            temporary = _temporary(path)
            temporary.open("x").close()
            temporary.unlink()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write to {named!r}: {why(error)}") from None


def lines(report: Report, *, short: bool = False) -> Iterator[str]:
    """The text of a report: the head on one line, then one line a cell, so that diffs name the cells that changed.

    Keys are in the schema's order, free ones sorted; floats have the shortest form that reads back exactly. short:
    without the fields of cells that have their default.
    """
    head = report.model_copy(update={"cells": []}).model_dump_json(by_alias=True)
    yield head.removesuffix("]}") + "\n"
    for index, cell in enumerate(report.cells):
        yield (",\n" if index else "") + cell.model_dump_json(by_alias=True, exclude_defaults=short)
    yield ("\n" if report.cells else "") + "]}\n"


def _opened(path: Path, mode: str, compressed: bool | None = None) -> IO[bytes]:
    """The file, through xz where its name says so."""
    if path.suffix == COMPRESSED if compressed is None else compressed:
        # of 66 MB a higher preset makes 4.1 MB instead of 5.3, in 13 s instead of 1 (an EPYC)
        return cast(IO[bytes], lzma.open(path, mode, preset=None if mode.startswith("r") else 1))
    return cast(IO[bytes], path.open(mode))


def _in_place(path: Path) -> bool:
    # Root must not replace /dev/stdout or /dev/null by a file.
    return path.exists() and not path.is_file()


def _temporary(path: Path) -> Path:
    # In the same folder: os.replace is atomic only within a file system. A link stays a link.
    target = path.resolve()
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


@contextlib.contextmanager
def _replacement(path: Path) -> Iterator[Path]:
    if _in_place(path):
        yield path
        return
    temporary = _temporary(path)
    try:
        yield temporary
        temporary.replace(path.resolve())
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """A context without garbage collection: it makes millions of objects, none of them garbage, take 2.6 times as
    long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _explain(error: ValidationError, data: bytes | str, name: str) -> str:
    """One line for the first problem, with its JSON path; the schema's version comes before everything."""
    from pydantic_core import from_json

    from verify.reports.schema import READ

    problems = error.errors(include_url=False, include_input=False, include_context=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        begin = data[:6] if isinstance(data, bytes) else b""
        if kind := next((kind for magic, kind in MAGIC.items() if begin.startswith(magic)), None):
            return f"{name!r} is {kind}; expected JSON, or JSON compressed by xz in a file that is named so (*.json.xz)"
        what = first["msg"].removeprefix("Invalid JSON: ")
        return f"{name!r} is not a complete JSON file: {what}; write it again with `verify run --json FILE`"
    raw: Any = from_json(data)
    version = raw.get("schema") if isinstance(raw, dict) else None
    known = " or ".join(map(str, READ))
    if isinstance(raw, dict) and "baseline" in raw:
        return f"{name!r} is what `verify accept` has written, a baseline; expected a report"
    if not isinstance(version, int) or isinstance(version, bool):
        return f'{name!r} is not a report: its "schema" is {version!r}; expected the number {known}'
    if version not in READ:
        newer = "; upgrade ulproof to read it" if version > max(READ) else ""
        return f"{name!r} is a report of schema {version}; this version reads schema {known}{newer}"
    what = first["msg"].removeprefix("Value error, ")
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
    return f"{name!r} is not a valid report: {json_path(first['loc'])}: {what}{more}"


def json_path(location: tuple[int | str, ...]) -> str:
    """('cells', 3, 'error', 'max_ulp') as '$.cells[3].error.max_ulp'."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
