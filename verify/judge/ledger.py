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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from verify.facts.kernel import UsageError, facts_of, fits, is_file, means, names
from verify.judge.regions import REGIONS
from verify.judge.status import ALLOWABLE, FAILURES

STATUSES = ("not-run", "deviates")
METRICS = ("ulp", "scaled_ulp", "int_ulp", "share")
Entry = TypeVar("Entry", bound="Cells")


#: The pattern of an entry that is for every lowering, and so for a user's own.
ANY = "*"


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
        return self.names(lowering, kernel, dtype, spelling, output) and self._older(_installed)

    def names(self, lowering: str, kernel: str, dtype: str, spelling: str | None, output: str) -> bool:
        """Whether the cell matches, under whichever versions."""
        return (
            means(self.lowering, lowering)
            and fits(kernel, self.kernel)
            and fits(dtype, self.dtype)
            and (spelling is None or fits(spelling, self.spelling))
            and fits(output, self.output)
        )

    def on(self, facts: Mapping[str, Any]) -> bool:
        """Whether it is for the device and the versions of a fingerprint. What this does not name may be any."""
        there = facts.get("capability")
        return (not isinstance(there, str) or fnmatch.fnmatchcase(there, self.capability)) and self._older(
            lambda package: _version(str(facts.get(package) or ""))
        )

    def _older(self, version: Callable[[str], tuple[int, ...]]) -> bool:
        limits = (("triton", self.triton_before), ("torch", self.torch_before))
        return all(not before or version(name) < _version(before) for name, before in limits)


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
    drawn     whether a run may not need it, since it depends on the numbers that the seed draws
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
    drawn: bool = False

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
        if not all(isinstance(most, int | float) for most in self.at_most.values()):
            raise ValueError(f"{name}: at_most {dict(self.at_most)}; expected a number for each metric")
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
    none where it has no file. Raises UsageError for a file that is malformed, as everything here does."""
    return tuple(_on_device(backend, capability, _entries(backend, "deviation", Deviation)))


@lru_cache
def allowances(backend: str, capability: str = "") -> tuple[Allowance, ...]:
    """All allowances for the backend `backend`, as `deviations`."""
    return tuple(_on_device(backend, capability, _entries(backend, "allowance", Allowance)))


@lru_cache
def _all(backend: str) -> tuple[Deviation | Allowance, ...]:
    return (*_entries(backend, "deviation", Deviation), *_entries(backend, "allowance", Allowance))


def on_device(backend: str, kind: type[Entry], facts: Mapping[str, Any]) -> list[Entry]:
    """The entries of that kind for the backend `backend` that are for the device of a report's fingerprint."""
    return [one for one in _all(backend) if isinstance(one, kind) and one.on(facts)]


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
    """Withdraw a cell's allowance where its cap is reached; whether it is. used: cells counted so far, by allowance:
    registered ones, since a user's has it of one of these."""
    name = cell.get("allowance", "")
    if not name or is_file(cell.get("lowering", "")):
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
            if entry.status != "deviates" or entry.drawn or not meant <= ran:
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


def _path(backend: str) -> Path:
    package = importlib.import_module("verify.kernels")
    return Path(package.__path__[0]) / "ledger" / f"{facts_of(backend)}.toml"


def _file(backend: str) -> dict[str, Any]:
    path = _path(backend)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if unknown := found.keys() - {"deviation", "allowance"}:
            raise ValueError(f"unknown table {', '.join(sorted(unknown))}; expected [[deviation]] and [[allowance]]")
        return found
    except ValueError as error:  # of TOML and UTF-8, too
        raise _malformed(backend, error) from None


def _malformed(backend: str, why: object) -> UsageError:
    return UsageError(f"kernels/ledger/{_path(backend).name} is malformed: {why}")


def _on_device(backend: str, capability: str, entries: Any) -> Any:
    return (e for e in entries if e.capability == "*" or _has(backend, capability, e.capability))


def _has(backend: str, capability: str, pattern: str) -> bool:
    if not capability:  # asked where something runs; who reads a report has no torch
        capability = importlib.import_module("verify.backends").load(backend).capability()
    return fnmatch.fnmatchcase(capability, pattern)


#: What a field of an entry is in the file, by its annotation.
_HELD: Mapping[str, tuple[type, str]] = {
    "str": (str, "a text"), "int": (int, "a whole number"), "bool": (bool, "true or false"),
    "tuple[str, ...]": (list, "an array of texts"), "Mapping[str, float]": (dict, "a table of numbers"),
}  # fmt: skip


def _entries(backend: str, name: str, kind: type[Any]) -> Iterator[Any]:
    """The file's entries of a kind, their lists as tuples."""
    held = {one.name: _HELD[str(one.type)] for one in fields(kind)}
    try:
        for entry in _file(backend).get(name, []):
            label = f"{name} {entry.get('id', '?')}"
            for key, value in entry.items():
                if key not in held:
                    raise ValueError(f"{label}: unknown key {key!r}; expected some of {', '.join(held)}")
                expected, words = held[key]
                texts = not isinstance(value, list) or all(isinstance(one, str) for one in value)
                if not (isinstance(value, expected) and texts):
                    raise ValueError(f"{label}: {key} is {value!r}; expected {words}")
            yield kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()})
    except (AttributeError, TypeError, ValueError) as error:
        raise _malformed(backend, error) from None


@lru_cache
def _installed(package: str) -> tuple[int, ...]:
    from importlib import metadata

    return _version(metadata.version(package))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
