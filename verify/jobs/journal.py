"""The record of a run that has not ended: finished jobs, so that a run that is stopped in any way goes on.

A file of JSON lines: first what the run is, then a line a job, on the disk before the next one is
reported. Nothing in it is ever changed; an incomplete last line, of a run that was killed, is dropped. No torch here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verify.facts.kernel import UsageError

Cells = list[dict[str, Any]]
BEGIN = b'{"journal": '  # of every journal
SHOWN = 3  # of what makes a journal stale


class Journal:
    """An open journal, which no other run can open. known: what the jobs in it found, by number. finished: how many are
    in it. replaced: how many jobs an earlier run has left, where they are not gone on with."""

    def __init__(self, path: Path, file: int, head: Mapping[str, Any], resume: bool) -> None:
        self.path, self._file = path, file
        self.known: dict[int, Any] = {}
        self._head: Mapping[str, Any] | None = {"journal": 3, **head}
        self._begun = 0  # the head's checksum, with which those of all other lines begin
        with open(file, "rb", closefd=False) as stream:
            data = stream.read()
        if not (data.startswith(BEGIN) or BEGIN.startswith(data)):
            raise UsageError(f"{str(path)!r} is no journal, and a run would replace it; name another file by --journal")
        self.replaced = 0 if resume else max(0, data.count(b"\n") - 1)
        lines = data.splitlines(keepends=True) if resume else []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        for number, line in enumerate(lines):
            try:
                record = json.loads(line)
                crc = record.pop("crc")
                if crc != _crc(json.dumps(record), self._begun):
                    raise ValueError
                if number:
                    self.known[_job(record)] = record["part" if "part" in record else "cells"]
                else:
                    self._begun = crc
            except (ValueError, TypeError, KeyError):
                raise UsageError(
                    f"line {number + 1} of {str(path)!r} is no line of a journal, or is damaged; "
                    "run without --resume to begin anew"
                ) from None
            if not number and (told := differences(record, json.loads(json.dumps(self._head)))):
                raise UsageError(
                    f"{str(path)!r} is the journal of another run: {told}; run without --resume to begin anew"
                )
        self.finished = len(self.known)
        if lines:
            os.ftruncate(file, sum(map(len, lines)))
            self._head = None

    def add(self, number: int, label: str, found: Cells | Mapping[str, Any]) -> None:
        """Put down a finished job: its cells, or its part of a sweep. Raises UsageError where that fails; what was
        there stays.

        The first one of a run that begins anew takes the place of what an earlier run has left.
        """
        if self._head is not None:
            os.ftruncate(self._file, 0)
            self._begun = 0
            self._write(self._head)
            self._begun, self._head = _crc(json.dumps(self._head)), None
        self._write({"job": number, "label": label, "part" if isinstance(found, Mapping) else "cells": found})
        self.finished += 1

    def remove(self) -> None:
        """Where the report holds all that it does."""
        self.path.unlink(missing_ok=True)

    def _write(self, record: Mapping[str, Any]) -> None:
        end = os.lseek(self._file, 0, os.SEEK_END)
        text = json.dumps(record)
        data = memoryview(f'{text[:-1]}, "crc": {_crc(text, self._begun)}}}\n'.encode())
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, end)
            kept = "; the jobs that were done before are in it: go on with --resume" if self._head is None else ""
            raise UsageError(f"cannot write to the journal {str(self.path)!r}: {error.strerror}{kept}") from None


@contextlib.contextmanager
def opened(path: str | Path, head: Mapping[str, Any], *, resume: bool) -> Iterator[Journal]:
    """The journal of a run: begun anew, or gone on with where there is one.

    head: what the run is, JSON; another one is refused. Raises UsageError also where another run holds the file.
    """
    path = Path(path)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(f"cannot write to the journal {str(path)!r}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):  # which the end of the run would remove
            raise UsageError(f"the journal {str(path)!r} is no regular file; name one by --journal")
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the file is closed, also by a death
            if os.fstat(file).st_nlink:
                kept = Journal(path, file, head, resume)
                try:
                    yield kept
                finally:
                    if not os.fstat(file).st_size:
                        kept.remove()
                return
        raise UsageError(
            f"another run writes the journal {str(path)!r}: wait for it to end, or name another by --journal"
        )
    finally:
        os.close(file)


def _crc(text: str, begun: int = 0) -> int:
    return zlib.crc32(text.encode(), begun)


def _job(record: Mapping[str, Any]) -> int:
    """The number of the job of a line. Raises ValueError where that is no number, or where nothing is said of it."""
    number, found = record["job"], record["part" if "part" in record else "cells"]
    if not (isinstance(number, int) and number >= 0 and found):
        raise ValueError
    return number


def differences(old: Any, new: Any, path: str = "") -> str:
    """The first few places where two JSON values differ; '' where none does."""
    found = list(_differing(old, new, path))
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _differing(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differing(old.get(key), new.get(key), f"{path}: {key}" if path else key)
    elif old != new:
        yield f"{path} was {json.dumps(old)}, is {json.dumps(new)}"
