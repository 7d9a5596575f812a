"""What a command prints and writes beside its report, and exit codes."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from verify.facts.kernel import Unfinished, UsageError
from verify.judge.status import combined
from verify.reports.blocks import Page
from verify.reports.text import printable

# Exit codes; where several apply: 4, 2, 1, 3.
FAILED = 1
USAGE = 2
NOTHING = 3
ORACLE_VIOLATION = 4
INTERRUPTED = 130  # 128 + SIGINT, as shells do
TERMINATED = 143  # 128 + SIGTERM
NO_READER = 141  # 128 + SIGPIPE: nobody read whether anything failed


def text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {getattr(error, 'strerror', '') or error}") from None


def ensure_writable(*files: str | None, reading: Iterable[str | Path] = ()) -> None:
    """Raise UsageError unless each file that is given can be written, and at most one is standard output; where two are
    the same, or one of those that are read: it would be replaced."""
    from verify.reports import store

    if files.count("-") > 1:
        raise UsageError("'-' is standard output: only one file can be written there")
    given = [file for file in files if file is not None]
    for file in given:
        store.ensure_writable(file)
    regular = [file for file in given if file != "-" and (not Path(file).exists() or Path(file).is_file())]
    places = [Path(file).resolve() for file in regular]
    for number, (file, place) in enumerate(zip(regular, places, strict=True)):
        if place in places[:number]:
            raise UsageError(f"two outputs are {file!r}, of which the last would replace the other; name two files")
        if place in (Path(one).resolve() for one in reading):
            raise UsageError(f"{file!r} is read, and the output would replace it; name another file")


def accepted_files(baseline: str | None) -> list[Path]:
    """The files of a folder of `verify accept`, or the one file that a baseline is."""
    if baseline is None:
        return []
    return [Path(baseline), *Path(baseline).glob("*/*.json"), *Path(baseline).glob("*/budget.toml")]


def json_lines(facts: dict[str, Any]) -> Iterator[str]:
    yield json.dumps(facts, indent=1, allow_nan=False) + "\n"


def tell(pages: Sequence[Page], document: Iterable[str], markdown_file: str | None, json_file: str | None) -> None:
    """Write the document and the pages, and print the pages: on standard error where a file is standard output."""
    from verify.reports import markdown, store

    if json_file is not None:
        store.write_text(document, json_file)
    if markdown_file is not None:
        store.write_text((line for page in pages for line in (*markdown.lines(page), "\n")), markdown_file)
    for page in pages:
        print_to(page, sys.stderr if "-" in (json_file, markdown_file) else sys.stdout)


def print_to(page: Page, file: TextIO) -> None:
    from verify.reports.terminal import print_page

    print_page(page, file)


def complain(problem: object, code: int) -> int:
    """One line on standard error, whatever the message holds; returns `code`."""

    print(f"verify: {printable(' '.join(str(problem).split()))}", file=sys.stderr)
    return code


def blame(error: Exception) -> int:
    """An exception that no user's mistake raises, with its traceback, on standard error. Returns the exit code."""
    traceback.print_exception(error)
    first = (str(error).splitlines() or [type(error).__name__])[0]
    told = f"{first}: a mistake of verify itself, not of what it judges; please report the lines above"
    return complain(told, ORACLE_VIOLATION)


def left_out(wrong: Iterable[Unfinished], code: int) -> int:
    """Name the unfinished files that a command on all kernels passed over. Returns the exit code."""
    for one in wrong:
        code = complain(one, combined([code, USAGE]) if code <= ORACLE_VIOLATION else code)
    return code
