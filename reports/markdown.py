"""Pages (`verify.reports.blocks`) as GitHub Markdown: for a step's summary, a comment, a file.

Names come out as plain text: no markup, no HTML, no link, no mention, no reference to an issue, no emoji.
Syntax: GitHub Flavored Markdown 0.29, sections 4.10 (tables), 6.1 (backslash escapes), 6.2 (entities).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from verify.reports.blocks import Column, Line, Page, Row, Table
from verify.reports.text import printable

#: What GitHub transforms after Markdown: mentions, references, emoji, addresses, hashes, TeX. It works on the rendered
#: text, so no escape of Markdown prevents it; it leaves <code> alone.
_LINKED = re.compile(r"[@#$]|:[\w+-]+:|www\.|//|\bGH-\d|\b(?!\d+\b)[0-9a-f]{7,40}\b", re.IGNORECASE)
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|~&!])")
#: What has a meaning at the beginning of a line: a list, a heading, a rule.
_FIRST = re.compile(r"^(\d*)([-+=.)])")


def lines(page: Page) -> Iterator[str]:
    """The lines of `page`, each with its end. Tables are whole, however wide: the browser scrolls."""
    yield f"{_bold(page.title)}\n\n"
    listed = False
    commands: list[str] = []
    for block in (*page.blocks, None):
        command = block.text if isinstance(block, Line) and block.kind == "command" else None
        if commands and (command is None or command.startswith("import ")):  # which a script of Python begins with
            yield from _commands(commands)
            commands = []
        if command is not None:
            commands.append(command)
        elif isinstance(block, Table):
            yield from ["\n"] if listed else []
            yield from _table(block)
            yield "\n"
            listed = False
        elif block is not None:
            yield _line(block)
            listed = True


def escape(text: str) -> str:
    """Markdown, within one line, that shows `text` and nothing else."""
    shown = printable(text)
    if _LINKED.search(shown):
        # Entities, since a code span cannot hold a backslash before a pipe in a table (section 4.10).
        return "<code>" + re.sub(r"[^\w .,]|_", lambda m: f"&#{ord(m[0])};", shown) + "</code>"
    return _MARKUP.sub(r"\\\1", shown)


def _table(table: Table) -> Iterator[str]:
    if table.rows:
        yield _row([escape(column.title) for column in table.columns])
        yield _row([_rule(column) for column in table.columns])
        yield from (_row(_cells(row)) for row in table.rows)


def _cells(row: Row) -> list[str]:
    cells = [escape(text) for text in row.cells]
    return [_bold(row.cells[0]), *cells[1:]] if row.heading else cells


def _rule(column: Column) -> str:
    return "--:" if column.right else ":--"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _line(line: Line) -> str:
    text = escape(line.text.strip(" "))
    return f"- {_bold(line.label)} {text}\n" if line.label.strip(" ") else "- " + _FIRST.sub(r"\1\\\2", text) + "\n"


def _bold(text: str) -> str:
    """`text` set off; emphasis must not begin or end with a space (section 6.4)."""
    bare = text.strip(" ")
    return f"**{escape(bare)}**" if bare else ""


def _commands(texts: Sequence[str]) -> Iterator[str]:
    """A fenced block in the list item before it; the fence is longer than any in the text (section 4.5)."""
    shown = "\n  ".join(map(printable, texts))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    language = "python" if texts[0].startswith("import ") else "sh"
    yield f"\n  {fence}{language}\n  {shown}\n  {fence}\n\n"
