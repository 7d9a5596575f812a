"""Pages (`verify.reports.blocks`) on a terminal: tables that fit the width, every number whole.

Colour only on a terminal and without NO_COLOR (rich's rules). Control characters, terminal escapes
and rich's own markup in names come out as text.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from verify.reports.blocks import Column, Line, Page, Row, Table
from verify.reports.looks import LOOKS
from verify.reports.text import printable

#: The least width of a foldable column, if its text is that long, and the most that a long word can demand.
FOLD_WIDTH = 14
KEY_WIDTH = 22
WORD_WIDTH = 24
GAP = 2  # one column of padding, one of rich's separator


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with code 1, which says that a bound failed


#: By the tone of a status, or the kind of a line.
_STYLES = {
    "good": "green",
    "deviates": "yellow",
    "open": "bold magenta",
    "bad": "bold red",
    "dim": "",
    "command": "dim",
}


def print_page(page: Page, file: TextIO, width: int | None = None) -> None:
    """Render `page` to `file`, in `width` columns or as many as the terminal has (80 without one)."""
    console = _Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    console.print(Text(printable(page.title), style="bold"))
    for block in page.blocks:
        if isinstance(block, Line):
            _print_line(console, block)
        else:
            for part in split(block, console.width):
                _print_table(console, part)


def split(table: Table, width: int) -> list[Table]:
    """Tables of at most `width` columns, each beginning with the key column.

    A part leaves out rows that are empty in it ('-' or nothing in every column), but the first none that all leave out.
    """
    groups: list[list[int]] = []
    for index, column in enumerate(table.columns[1:], 1):
        if column.joined and sum(GAP + minimum(table, i) for i in (0, *groups[-1], index)) < width:
            groups[-1].append(index)
        else:
            groups.append([index])
    parts: list[list[int]] = []
    room = 0
    for group in groups:
        need = sum(GAP + minimum(table, index) for index in group)
        if not parts or need > room:
            parts.append([])
            room = width - 1 - minimum(table, 0)
        parts[-1] += group
        room -= need
    if len(parts) < 2:
        return [table]
    bare = {id(row) for row in table.rows if not _tells(row, range(1, len(row.cells)))}
    return [_select(table, [0, *part], () if k else bare) for k, part in enumerate(parts)]


def _tells(row: Row, columns: Iterable[int]) -> bool:
    return any(row.cells[index] not in ("", "-") for index in columns)


def minimum(table: Table, index: int) -> int:
    """The fewest characters a column can have without breaking a number, and a word only if it is long."""
    widest = _natural(table, index)
    if not table.columns[index].fold:
        return widest
    word = max(len(word) for text in _strings(table, index) for word in text.split() or [""])
    return min(widest, max(KEY_WIDTH if index == 0 else FOLD_WIDTH, min(word, WORD_WIDTH)))


def _natural(table: Table, index: int) -> int:
    return max(map(len, _strings(table, index)))


def _strings(table: Table, index: int) -> list[str]:
    return [printable(text) for text in (table.columns[index].title, *(row.cells[index] for row in table.rows))]


def _select(table: Table, columns: list[int], bare: Container[int]) -> Table:
    """bare: rows, by `id`, that are kept though they are empty."""
    kept: list[Row] = []
    for row in table.rows:
        if row.heading and kept and kept[-1].heading:
            kept.pop()  # its rows said nothing
        if row.heading or _tells(row, columns[1:]) or id(row) in bare:
            kept.append(Row(tuple(row.cells[i] for i in columns), row.heading))
    if kept and kept[-1].heading:
        kept.pop()
    return Table(tuple(table.columns[i] for i in columns), tuple(kept))


def _print_table(console: Console, table: Table) -> None:
    if not table.rows:
        return
    widths = _widths(table, console.width)
    rich_table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, GAP - 1, 0, 0), header_style="bold")
    for column, width in zip(table.columns, widths, strict=True):
        rich_table.add_column(
            Text(printable(column.title)),
            justify="right" if column.right else "left",
            width=width,
            no_wrap=not column.fold,
            overflow="fold",
        )
    for row in table.rows:
        rich_table.add_row(*_texts(row, table.columns))
    total = sum(widths) + GAP * len(widths) - 1
    if total > console.width:  # narrower than one number: let the terminal wrap rather than cut
        console = _Console(file=console.file, width=total, highlight=False, markup=False, emoji=False)
    console.print(rich_table)


def _widths(table: Table, width: int) -> list[int]:
    """Every column at its minimum, then the foldable ones widened from the left while there is room."""
    widths = [minimum(table, index) for index in range(len(table.columns))]
    room = width - sum(widths) - GAP * len(widths) + 1
    for index in range(len(widths)):
        more = min(_natural(table, index) - widths[index], max(room, 0))
        widths[index] += more
        room -= more
    return widths


def _texts(row: Row, columns: Sequence[Column]) -> list[Text]:
    texts = [Text(printable(text)) for text in row.cells]
    if row.heading:
        texts[0].stylize("bold")
    for text, column in zip(texts, columns, strict=True):
        if column.title == "status" and text.plain in LOOKS:
            text.stylize(_STYLES[LOOKS[text.plain].tone])
    return texts


def _print_line(console: Console, line: Line) -> None:
    text = Text(printable(line.text), style=_STYLES.get(line.kind, ""))
    if line.kind == "command":
        console.print(text, soft_wrap=True)  # one line however long, to be copied whole
        return
    label = Text(printable(line.label) + " " if line.label else "", style="bold")
    console.print(Text.assemble(label, text, overflow="fold"))
