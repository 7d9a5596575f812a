"""Known deviations of lowerings, and statuses that registered cells may have: one TOML file a backend in
`kernels/ledger/`, with reason and source.

A deviation says where it is (regions, kinds of failure), how far it goes (`at_most`) and, for kinds without an error
that is a number, which elements it means: by a predicate on the inputs or by a formula that gives the same bits. What
goes beyond fails like anything else.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from verify.facts.kernel import UsageError, facts_of, fits, means, names
from verify.judge.regions import REGIONS
from verify.judge.status import ALLOWABLE, FAILURES

STATUSES = ("not-run", "deviates")
METRICS = ("ulp", "scaled_ulp", "int_ulp", "share")


@dataclass(frozen=True)
class Cells:
    """The cells that an entry matches, by shell patterns. capability: the only device that it applies to."""

    lowering: str
    kernel: tuple[str, ...]
    dtype: tuple[str, ...]
    spelling: tuple[str, ...] = ("*",)
    output: tuple[str, ...] = ("*",)
    triton_before: str = ""
    torch_before: str = ""
    capability: str = "*"

    def suits(
        self, *, lowering: str, kernel: str, dtype: str, spelling: str | None = None, output: str = ""
    ) -> bool:  # fmt: skip
        """Whether the cell matches; with `spelling` None, in any of its spellings."""
        return (
            means(self.lowering, lowering)
            and fits(kernel, self.kernel)
            and fits(dtype, self.dtype)
            and (spelling is None or fits(spelling, self.spelling))
            and fits(output, self.output)
            and all(
                not before or _installed(name) < _version(before)
                for name, before in (("triton", self.triton_before), ("torch", self.torch_before))
            )
        )


@dataclass(frozen=True)
class Deviation(Cells):
    """One known deviation.

    regions   where it is; kinds: of failure, of `verify.judge.status.FAILURES`
    at_most   metric -> the largest value that it accounts for, of failures of kind 'bound'
    where     a predicate on the exact inputs, as an oracle's table of special values writes it: n.is_inf(x) & (x < 0)
    formula   texts of formulas: one of them reproduces the element's bits; * stands for any text
    overflow  only where a named intermediate overflows
    zero      only where the output is a zero
    infinite  only where it is an infinity
    """

    id: str = ""
    status: str = "deviates"
    reason: str = ""
    source: str = ""
    regions: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    at_most: Mapping[str, float] = field(default_factory=dict)
    where: str = ""
    formula: tuple[str, ...] = ()
    overflow: bool = False
    zero: bool = False
    infinite: bool = False

    def __post_init__(self) -> None:
        name = f"ledger entry {self.id or '?'}"
        if self.status not in STATUSES:
            raise ValueError(f"{name}: status {self.status!r}; expected one of {STATUSES}")
        if not (self.id and self.reason and self.source):
            raise ValueError(f"{name}: an entry needs an id, a reason and a source")
        if self.status == "not-run":
            return
        for what, given, known in (("regions", self.regions, REGIONS), ("kinds", self.kinds, FAILURES)):
            if not given or not set(given) <= set(known):
                raise ValueError(f"{name}: {what} {list(given)}; expected some of {', '.join(known)}")
        if not set(self.at_most) <= set(METRICS):
            raise ValueError(f"{name}: at_most of {', '.join(self.at_most)}; expected metrics of {', '.join(METRICS)}")
        if not (self.formula or self.where or self.overflow) and set(self.kinds) - {"bound"}:
            told = "kinds without an error need `where`, `formula` or `overflow`"
            raise ValueError(f"{name}: {', '.join(self.kinds)}: {told}")
        if "bound" in self.kinds and not (self.at_most or self.formula):
            raise ValueError(f"{name}: how far does it go? `at_most` or `formula` must say")


@dataclass(frozen=True)
class Allowance(Cells):
    """A status that the cells may have, with the most of them in one run (`cap`), and why."""

    id: str = ""
    status: str = ""
    cap: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if self.status not in ALLOWABLE or not (self.id and self.reason and self.cap > 0):
            raise ValueError(
                f"allowance {self.id or '?'}: expected an id, a reason, a cap and a status of {', '.join(ALLOWABLE)}"
            )


@lru_cache
def deviations(backend: str, capability: str = "") -> tuple[Deviation, ...]:
    """All deviations for the backend `backend` that a device of that capability (this machine's by default) may need;
    none where it has no file."""
    return tuple(_on_device(backend, capability, (_entry(Deviation, e) for e in _file(backend).get("deviation", []))))


@lru_cache
def allowances(backend: str, capability: str = "") -> tuple[Allowance, ...]:
    """All allowances for the backend `backend`, as `deviations`."""
    return tuple(_on_device(backend, capability, (_entry(Allowance, e) for e in _file(backend).get("allowance", []))))


@lru_cache
def entries(backend: str) -> tuple[Deviation | Allowance, ...]:
    """All of them for the backend `backend`, whatever device and whichever versions they are for."""
    kinds: tuple[tuple[str, type[Deviation | Allowance]], ...] = (("deviation", Deviation), ("allowance", Allowance))
    found = (_entry(kind, e) for name, kind in kinds for e in _file(backend).get(name, []))
    return tuple(replace(one, triton_before="", torch_before="") for one in found)


@lru_cache
def ids(backend: str) -> frozenset[str]:
    """Ids of all entries for the backend `backend`, whatever device needs them."""
    return frozenset(one.id for one in entries(backend))


def suited(backend: str, kind: type[Deviation | Allowance], **cell: str) -> frozenset[str]:
    """Ids of the entries of that kind for a cell, on whatever device and under whichever versions."""
    return frozenset(one.id for one in entries(backend) if isinstance(one, kind) and one.suits(**cell))


def known(backend: str, **cell: str) -> tuple[Deviation, ...]:
    """The deviations that a cell of this lowering, kernel, dtype, spelling (and output) may show, in order."""
    return tuple(d for d in deviations(backend) if d.status == "deviates" and d.suits(**cell))


def not_run(backend: str, *, lowering: str, kernel: str, dtype: str) -> Deviation | None:
    """The entry that says why the cell cannot run, or None."""
    found = (d for d in deviations(backend) if d.status == "not-run")
    return next((d for d in found if d.suits(lowering=lowering, kernel=kernel, dtype=dtype)), None)


def allowance(backend: str, status: str, capability: str = "", **cell: str) -> Allowance | None:
    """The allowance for a registered cell of that status, on a device as in `allowances`, or None."""
    return next(
        (a for a in allowances(backend, *filter(None, [capability])) if a.status == status and a.suits(**cell)), None
    )


def holds(text: str, n: Any, tensors: Mapping[str, Any], scalars: Mapping[str, float]) -> Any:
    """Where a predicate on the exact inputs holds, written as an oracle's table of special values writes it, for
    instance 'n.is_inf(x) & (abs(y) < 1)'; n, abs and the inputs are its only names.

    n: `verify.numbers.ball`, or of rows (r, n) `verify.numbers.arrays`, whose n.anywhere asks a whole row.

    Raises UsageError for what is none.
    """
    values: dict[str, Any] = {name: n.input(t) for name, t in tensors.items()}
    values |= {name: n.const(v) for name, v in scalars.items()}
    like = next(iter(tensors.values()))
    try:
        found = eval(compile(text, "<ledger>", "eval"), {"__builtins__": {"abs": abs}, "n": n, **values})
    except Exception as error:
        raise UsageError(f"predicate {text!r} on {', '.join(values)}: {type(error).__name__}: {error}") from error
    nowhere = (like != like) & False  # reading a report needs no torch
    return nowhere | found


def cap(cell: dict[str, Any], used: Counter[str], capability: str = "") -> bool:
    """Withdraw a cell's allowance where its cap is reached; whether it is. used: cells counted so far, by allowance."""
    name = cell.get("allowance", "")
    if not name:
        return False
    used[name] += 1
    known = allowances(cell["backend"], *filter(None, [capability]))
    most = next((entry.cap for entry in known if entry.id == name), 0)
    if used[name] > most:
        told = f"allowance {name} is for {most} cells, which come before this one"
        cell |= {"allowance": "", "reason": "; ".join(filter(None, (cell["reason"], told)))}
    return used[name] > most


def unneeded(cells: list[dict[str, Any]], capabilities: Mapping[str, str] | None = None) -> None:
    """In a report of all cells, an entry that none of its cells needs any more is an error of the last of them."""
    ran = {cell["kernel"] for cell in cells}
    for name in dict.fromkeys(cell["backend"] for cell in cells):
        for entry in deviations(name, *filter(None, [(capabilities or {}).get(name, "")])):
            meant = {k for k in names() if fits(k, entry.kernel)}
            if entry.status != "deviates" or not meant <= ran:
                continue
            covered = [
                cell
                for cell in cells
                if cell["backend"] == name
                and cell.get("error") is not None
                and entry.suits(**{name: cell[name] for name in ("lowering", "kernel", "dtype", "spelling")})
            ]
            if covered and not any(entry.id in cell["ledger"] for cell in covered):
                told = f"ledger entry {entry.id} no longer fails, remove it: {entry.reason}"
                place = next(k for k, cell in enumerate(cells) if cell is covered[-1])
                cells[place] = cells[place] | {"status": "error", "reason": told, "reason_kind": "contract"}


def _file(backend: str) -> dict[str, Any]:
    package = importlib.import_module("verify.kernels")
    path = Path(package.__path__[0]) / "ledger" / f"{facts_of(backend)}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _on_device(backend: str, capability: str, entries: Any) -> Any:
    return (e for e in entries if e.capability == "*" or _has(backend, capability, e.capability))


def _has(backend: str, capability: str, pattern: str) -> bool:
    if not capability:  # asked where something runs; who reads a report has no torch
        capability = importlib.import_module("verify.backends").load(backend).capability()
    return fnmatch.fnmatchcase(capability, pattern)


def _entry(kind: type[Any], entry: dict[str, Any]) -> Any:
    """An entry of the file, its lists as tuples."""
    return kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()})


@lru_cache
def _installed(package: str) -> tuple[int, ...]:
    from importlib import metadata

    return _version(metadata.version(package))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
