"""What `verify audit` and `verify replay` print of code for a GPU that is not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verify.reports.blocks import Column, Line, Page, Row, Table


def audit_page(
    rows: Sequence[Any], told: Mapping[tuple[str, str, str], Sequence[str]], changed: Sequence[str] | None = None,
    renewed: Sequence[str] = (),
) -> Page:  # fmt: skip
    """`verify audit`: the rows of `verify.walk.audit.audit`, their differences in words, by `differences` there, and
    changes since the accepted census; None: there is none. renewed: what is another one beside equal instructions."""
    kinds = ("fma", "mad", "mul", "add", "div", "approx", "cvt", "matrix", "ftz")
    blocks: list[Table | Line] = []
    absent: dict[str, dict[str, dict[str, None]]] = {}
    targets = {row.asked.target for row in rows}
    for key in dict.fromkeys((row.asked.kernel, row.asked.lowering, row.asked.dtype) for row in rows):
        mine = [row for row in rows if (row.asked.kernel, row.asked.lowering, row.asked.dtype) == key]
        for row in mine:
            if row.census is None:
                absent.setdefault(row.reason, {}).setdefault(" ".join(key), {})[row.asked.target] = None
        counted = [(row.asked, row.census, row.census.kinds()) for row in mine if row.census]
        shown = [kind for kind in kinds if any(found[kind] for _, _, found in counted)]
        columns = (Column("target"), Column("fp fusion"), *(Column(kind, right=True) for kind in shown))
        smaller: dict[str, dict[str, None]] = {}
        for row in mine:
            if row.blocks:
                smaller.setdefault(row.blocks, {})[row.asked.target] = None
        if counted:
            blocks.append(Line("", label=" ".join(key)))
            table = [
                Row((asked.target, "on" if asked.fusion else "off", *(str(found[kind]) for kind in shown)))
                for asked, _, found in counted
            ]
            blocks.append(Table(columns, tuple(table)))
        named: dict[str, dict[str, None]] = {}
        for asked, census, _ in counted:
            text = ", ".join(f"{count} {name}" for name, count in census.listed())
            named.setdefault(text, {})[asked.target] = None
        blocks += [Line(text, label=f"{', '.join(on)}:") for text, on in named.items() if text]
        blocks += [
            Line(f"compiled in blocks of {size}, smaller than those that run: fewer of the same instructions",
                 label=f"{', '.join(on)}:")
            for size, on in smaller.items()
        ]  # fmt: skip
        blocks += [Line(sentence) for sentence in told.get(key, ())]
    for why, which in absent.items():
        some = [f"{name} for {', '.join(on)}" if set(on) != targets else name for name, on in which.items()]
        blocks.append(Line(f"{why}: {'; '.join(some)}", label="not compiled:"))
    blocks += [Line(text, label="changed:", kind="bad") for text in changed or ()]
    blocks += [Line(text, label="another one than accepted:") for text in renewed]
    if changed is not None and not changed:
        blocks.append(Line("every instruction is as accepted", kind="good"))
    return Page("audit: floating-point instructions of the compiled code; nothing was executed", tuple(blocks))


def replay_page(found: Sequence[Any]) -> Page:
    """`verify replay`: the launches of `verify.virtual.replay.replay`."""
    ran = [one for one in found if not one.reason]
    columns = (
        Column("launch", fold=True), Column("kernel"), Column("target"), Column("triton"), Column("bits"),
    )  # fmt: skip
    rows = [Row((one.label, one.name, one.target, one.triton, "differ" if one.differing else "equal")) for one in ran]
    blocks: list[Table | Line] = [Table(columns, tuple(rows))] if rows else []
    blocks += [Line(one.told, label=f"differs: {one.label}", kind="bad") for one in ran if one.differing]
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.reason:
            reasons.setdefault(one.reason, []).append(one.label)
    blocks += [Line(f"{why}: {'; '.join(on)}", label="not replayed:") for why, on in reasons.items()]
    models = dict.fromkeys(text for one in ran for text in one.modelled)
    blocks += [Line(", ".join(models), label="modelled:")] if models else []
    equal = sum(not one.differing for one in ran)
    text = f"{equal} of {len(ran)} {'launch' if len(ran) == 1 else 'launches'} gave the bits that were kept"
    blocks.append(Line(text, kind="good" if ran and equal == len(ran) else "bad"))
    return Page("replay: kept launches executed on the CPU", tuple(blocks))
