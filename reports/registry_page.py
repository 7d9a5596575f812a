"""What `verify list` and `verify show` print of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from verify.facts.kernel import DTYPES, Composite
from verify.reports.blocks import Column, Line, Page, Row, Table
from verify.reports.text import scalars_text

if TYPE_CHECKING:
    from verify.facts.kernel import Kernel


def list_page(kernels: Sequence[Kernel | Composite], lowerings: dict[str, Sequence[str]]) -> Page:
    """`verify list`: the registry. `lowerings` by kernel name. What all kernels share is said once."""
    dtypes = [name for name in DTYPES if all(name in kernel.dtypes for kernel in kernels)]
    common = [name for name in next(iter(lowerings.values()), ()) if all(name in each for each in lowerings.values())]
    columns = (Column("kernel"), Column("computes", fold=True), Column("further dtypes and lowerings", fold=True))
    rows = []
    for kernel in kernels:
        further = [name for name in (*kernel.dtypes, *lowerings[kernel.name]) if name not in (*dtypes, *common)]
        rows.append(Row((kernel.name, kernel.summary, " ".join(further))))
    blocks = (
        Table(columns, tuple(rows)),
        Line(" ".join(dtypes), label="dtypes of all:"),
        Line(" ".join(common), label="lowerings of all:"),
        Line("verify show NAME", label="more:"),
    )
    return Page(f"{len(rows)} kernels", blocks)


def bounds_page(kernel: Kernel) -> Page:
    """`verify show NAME --bounds`: every bound with its source."""
    return Page(f"{kernel.name}: {len(kernel.bounds)} bounds, of which the first that fits a cell is its own",
                tuple(_bounds(kernel)))  # fmt: skip


def show_page(kernel: Kernel | Composite, lowerings: Sequence[str], own: Sequence[tuple[str, str]]) -> Page:
    """`verify show NAME`: inputs, cases, spellings, formulas, specials and properties of one kernel.

    own: what concerns a user's own lowering, as (label, text).
    """
    if isinstance(kernel, Composite):
        return _composite_page(kernel, lowerings, own)
    oracle = kernel.oracle
    cases = [scalars_text(case) or "all tensors" for case in kernel.cases]
    blocks: list[Table | Line] = [
        Line(" ".join(oracle.doc.split()), label="oracle:"),
        Line(", ".join(kernel.inputs), label="inputs:"),
        Line("; ".join(cases), label="cases:"),
        Line(" ".join(kernel.dtypes), label="dtypes:"),
        Line(", ".join(kernel.spellings), label="spellings:"),
        Line(", ".join(lowerings), label="lowerings:"),
        *(Line(note, label="note:") for note in kernel.notes),
    ]
    blocks += [Line(f.text, label="formula:") for f in oracle.formulas]
    if oracle.arithmetic:
        blocks.append(Line("infinities, NaNs and zero signs by IEEE 754-2019, 6.1 to 6.3", label="specials:"))
    sources = list(dict.fromkeys(row.source for row in oracle.rows))
    if sources:
        blocks.append(Line(f"{len(oracle.rows)} rows, from {'; '.join(sources)}", label="specials:"))
    for law in kernel.properties:
        promised = "" if law.lowerings == ("*",) else f" (promised by {', '.join(law.lowerings)})"
        blocks.append(Line(law.name + promised, label="property:"))
    told = f"{len(kernel.bounds)}, by lowering, dtype, backend and case; verify show {kernel.name} --bounds lists them"
    blocks += [Line(told, label="bounds:"), *_own(kernel.name, own)]
    return Page(f"{kernel.name}: {kernel.summary}", tuple(blocks))


def _own(name: str, own: Sequence[tuple[str, str]]) -> list[Line]:
    """A lowering of the user's own, and the commands for it."""
    return [
        Line("FILE.py:FUNCTION", label="a lowering of your own:"),
        *(Line(text, label=label) for label, text in own),
        Line(f"verify show {name} --stub > mine.py", kind="command"),
        Line(f"verify kernel {name} --lowering mine.py:{name}", kind="command"),
    ]


def _composite_page(kernel: Composite, lowerings: Sequence[str], own: Sequence[tuple[str, str]]) -> Page:
    cases = [scalars_text(case) for case in kernel.cases if case]
    blocks: list[Table | Line] = [
        Line(", ".join(kernel.inputs), label="inputs:"),
        Line(", ".join(name for name in kernel.outputs if name) or "one", label="outputs:"),
        *([Line("; ".join(cases), label="cases:")] if cases else []),
        Line(" ".join(kernel.dtypes), label="dtypes:"),
        Line("; ".join(kernel.spellings), label="settings:"),
        Line(", ".join(lowerings), label="lowerings:"),
        *(Line(text, label=f"--set {name}=:") for name, text in kernel.parameters.items()),
        Line("|y - t| / B, B a proven bound of each element for the lowering's algorithm", label="bound:"),
        *(Line(note, label="note:") for note in kernel.notes),
        *_own(kernel.name, own),
    ]
    return Page(f"{kernel.name}: {kernel.summary}", tuple(blocks))


_BOUNDS = (
    Column("#", right=True),
    Column("bound", right=True),
    Column("metric"),
    Column("dtypes", fold=True),
    Column("lowering", fold=True),
    Column("backend"),
    Column("spelling", fold=True),
    Column("cases", fold=True),
    Column("scalars"),
    Column("source", right=True),
)


def _bounds(kernel: Kernel) -> list[Table | Line]:
    """The bounds, where each first appears in the order in which they are tried.

    Those that differ only in cases or dtypes share a row. Sources are long and recur, so they follow as numbered notes.
    """
    sources = list(dict.fromkeys(bound.source for bound in kernel.bounds))
    cases: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for bound in kernel.bounds:
        what = (f"{bound.value:.6g}", bound.metric, bound.lowering, bound.backend, bound.spelling, bound.truth)
        key = ((*what, f"[{sources.index(bound.source) + 1}]"), bound.dtypes)
        cases.setdefault(key, []).extend(
            scalars_text(case) or "all tensors" for case in kernel.cases if bound.applies(case)
        )
    dtypes: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (facts, covered), applying in cases.items():
        which = "*" if len(set(applying)) == len(kernel.cases) else ", ".join(applying)
        dtypes.setdefault((facts, which), []).extend(covered)
    rows = []
    for number, ((facts, which), names) in enumerate(dtypes.items(), 1):
        value, metric, lowering, backend, spelling, truth, source = facts
        named = "*" if set(names) >= set(kernel.dtypes) else " ".join(names)
        rows.append(Row((str(number), value, metric, named, lowering, backend, spelling, which, truth, source)))
    return [Table(_BOUNDS, tuple(rows)), *(Line(text, label=f"[{n}]") for n, text in enumerate(sources, 1))]
