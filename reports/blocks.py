"""What a page consists of: tables and lines. `verify.reports.terminal` and `verify.reports.markdown` render it.

Strings are raw: a renderer escapes what its medium would interpret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """`fold` columns hold text that may wrap; the others are never broken.

    A `joined` column stays with the one before it where a wide table is split.
    """

    title: str
    right: bool = False
    fold: bool = False
    joined: bool = False


@dataclass(frozen=True)
class Row:
    """One string a column. A `heading` fills only the first and introduces the rows below it."""

    cells: tuple[str, ...]
    heading: bool = False


@dataclass(frozen=True)
class Table:
    """The first column is the key: a renderer that must split a wide table repeats it."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Line:
    """A sentence; `label` sets off its beginning. `kind` is plain, command (to be copied whole) or a tone of
    `verify.reports.looks`."""

    text: str
    label: str = ""
    kind: str = "plain"


@dataclass(frozen=True)
class Page:
    title: str
    blocks: tuple[Table | Line, ...]


def heading(text: str, columns: Sequence[Column]) -> Row:
    return Row((text, *[""] * (len(columns) - 1)), heading=True)


class Legend:
    """Letters for formulas, which are long and recur in many rows."""

    def __init__(self) -> None:
        self.letters: dict[str, str] = {}

    def letter(self, formula: str) -> str:
        index = len(self.letters)
        name = chr(65 + index) if index < 26 else f"{chr(64 + index // 26)}{chr(65 + index % 26)}"
        return self.letters.setdefault(formula, name)

    def text(self, formulas: Sequence[str]) -> str:
        return "/".join(map(self.letter, formulas)) or "none"

    def lines(self) -> list[Line]:
        return [Line(formula, label=f"formula {letter}:") for formula, letter in self.letters.items()]
