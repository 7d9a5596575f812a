"""Cells of a report computed again on this machine, chunk by chunk, and compared element by element.

The other machine's outputs come from a file of `verify.reports.exchange`. A chunk is used only where its digest is
the report's; everything else is left out, with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from verify import backends
from verify.facts.formats import Format
from verify.facts.kernel import NothingToCompare, UsageError, is_file
from verify.inputs.domains import CHUNK, LONG_CHUNK
from verify.judge.chunk import differing, digests, patterns
from verify.judge.exact import Exact, Key, finite
from verify.judge.tally import root
from verify.lower.lowering import NotLowered
from verify.numbers.ulp import Verdict
from verify.reports import exchange
from verify.reports.compare import Aligned, Comparison, Facts, Source, refusal
from verify.reports.exchange import Element, Entry, Exchanged, Finding, Wanted
from verify.reports.replays import replay_place
from verify.reports.text import scalars_key, scalars_of
from verify.walk.cases import Case, format_of
from verify.walk.explain import digits, truth_of
from verify.walk.plan import Job, Selection, jobs_of
from verify.walk.pointwise import Pointwise
from verify.walk.walk import case_of
from verify.workers.launch import bits, launch_steady

Tensor = torch.Tensor
Progress = Callable[[int, int, str], None]

#: Differing elements of each chunk that are spelled out.
SHOWN = 4


class _LeftOut(Exception):
    """Why a cell or a chunk is not used."""


@dataclass(frozen=True)
class Again:
    """A cell that this machine computes again.

    outputs  the outputs of a chunk by its number, 1-D; raises LoweringError, NotLowered
    exact    judges single elements against `truth`; `key` is what it knows an element by, from the element's index
    pointwise  whether the keys are the patterns of the element's inputs, or only its place
    """

    fmt: Format
    outputs: Callable[[int], Tensor]
    exact: Exact
    truth: str
    key: Callable[[int], Key]
    pointwise: bool


def write(found: Comparison, path: str | Path, progress: Progress | None = None) -> Exchanged:
    """Compute the differing chunks of the first report's cells again, and write them to `path`.

    What matters most comes first, until exchange.BYTES_TAKEN. Raises NothingToCompare, writing nothing, where no bits
    differ or this machine reproduces no chunk of its report; UsageError where `path` cannot be written.
    """
    chosen = exchange.wanted(found)
    entries: list[tuple[Entry, Any]] = []
    left_out: Counter[str] = Counter()
    cells = size = 0
    for done, one in enumerate(chosen):
        if progress:
            progress(done, len(chosen), f"next: {one.row.place.kernel}")
        if size >= exchange.BYTES_TAKEN:
            left_out[
                f"beyond {exchange.BYTES_TAKEN >> 20} MiB of outputs; select cells with --only and --lowering"
            ] += 1
            continue
        try:
            again = again_of(one.cell, found.sources[0])
            taken = [(entry, y) for number in one.chunks for entry, y in [_entry(one, again, number)]]
        except (_LeftOut, NotLowered, UsageError) as why:
            left_out[str(why)] += 1
            continue
        entries += ((entry, _unsigned(y, again.fmt)) for entry, y in taken)
        size += sum(y.nbytes for _, y in taken)
        cells += 1
    if not entries:
        raise NothingToCompare(f"nothing to exchange: {_reasons(left_out)}")
    exchange.write(path, found.columns[0].label, entries)
    return Exchanged(len(entries), cells, (), tuple(left_out.items()))


def resolve(found: Comparison, path: str | Path, progress: Progress | None = None) -> Exchanged:
    """Compare the outputs in `path`, from another machine, with this machine's, whose report is the first.

    Raises UsageError for anything but an exchange file, NothingToCompare where no chunk of it can be used.
    """
    header, outputs = exchange.read(path)
    findings: list[Finding] = []
    left_out: Counter[str] = Counter()
    last: tuple[tuple[Aligned, int], Again] | None = None
    for number, entry in enumerate(header.entries):
        if progress:
            progress(number, len(header.entries), f"next: {entry.kernel}")
        theirs = outputs(number)
        try:
            one, other = sought(found, entry)
            if last is None or last[0] != (one.row, one.own):
                last = ((one.row, one.own), again_of(one.cell, found.sources[0]))
            findings.append(_finding(one, other, last[1], entry, theirs))
        except (_LeftOut, NotLowered, UsageError) as why:
            left_out[str(why)] += 1
    if not findings:
        raise NothingToCompare(f"nothing of {str(path)!r} can be compared: {_reasons(left_out) or 'it is empty'}")
    cells = {(finding.row.place, finding.own) for finding in findings}
    return Exchanged(len(findings), len(cells), tuple(findings), tuple(left_out.items()))


def sought(found: Comparison, entry: Entry) -> tuple[Wanted, int]:
    """This machine's cell that an entry is to be compared with, and the column of the other machine's report.

    The entry's digest must be that of a report given here. Raises _LeftOut.
    """
    mine = [index for index, column in enumerate(found.columns) if column.source == 0]
    for row, other in _matches(found, entry):
        cell = row.cells[other]
        assert cell is not None
        for own in mine:
            facts = row.cells[own]
            if facts is not None and facts.ran:
                if reason := refusal(facts, cell):
                    raise _LeftOut(reason)
                return Wanted(row, own, (entry.chunk,)), other
        raise _LeftOut("the first report, this machine's, does not have the cell")
    raise _LeftOut(
        "no report given but the first has these outputs: the file was made from another one, or options leave it out"
    )


def _matches(found: Comparison, entry: Entry) -> Iterator[tuple[Aligned, int]]:
    """Rows and columns, of reports but the first, that have the entry's cell with its digest."""
    scalars = scalars_key(entry.scalars)
    key = (entry.kernel, entry.lowering, entry.spelling, entry.dtype, scalars, entry.output)
    for row in found.rows:
        if row.place[:6] != key:
            continue
        for index, (column, cell) in enumerate(zip(found.columns, row.cells, strict=True)):
            theirs = column.source != 0 and cell is not None and cell.place.backend == entry.backend
            if theirs and cell is not None and holds(cell, entry.chunk, entry.digest):
                yield row, index


def holds(cell: Facts, chunk: int, digest: str) -> bool:
    """Whether the report has `digest` for a chunk; for a domain of one chunk, the root of all digests decides."""
    if cell.chunks:
        return chunk < len(cell.chunks) and cell.chunks[chunk] == digest
    return chunk == 0 and root(((0, int(digest, 16)),)) == cell.digest


# One cell


def again_of(cell: Facts, source: Source) -> Again:
    """Make a cell of the report `source` ready to be computed again. Raises _LeftOut, NotLowered and UsageError."""
    place = cell.place
    backend = backends.load(place.backend)
    if (why := backend.unavailable()) is not None:
        raise _LeftOut(f"backend {place.backend} is not present: {why}")
    own = is_file(place.lowering)
    selection = Selection(
        kernels=(place.kernel,),
        backends=(place.backend,),
        dtypes=(place.dtype,),
        lowerings=() if own else (place.lowering,),
        spellings=(place.spelling,),
        profile=source.profile,
        user_lowerings=(place.lowering,) if own else (),
        scalars=scalars_of(place.scalars) or None,
        seed=cell.inputs.seed,
    )
    wanted = (place.lowering, place.spelling, place.scalars)
    jobs = (
        job
        for job in jobs_of(selection, backend)
        if (job.lowering.name, job.target.spelling, scalars_key(job.target.scalars)) == wanted
    )
    job = next(jobs, None)
    if job is None:
        raise _LeftOut("this version of the suite does not have the cell")
    if job.reason is not None:
        raise _LeftOut(job.reason)
    case = case_of(job, selection, [])
    return _elementwise(job, case, cell) if isinstance(case, Pointwise) else _composite(job, case, cell)


def _elementwise(job: Job, case: Pointwise, cell: Facts) -> Again:
    if case.inputs.size != cell.inputs.size:
        raise _LeftOut(f"this version's domain has {case.inputs.size} elements, the report's {cell.inputs.size}")
    if case.inputs.size > 1 << 32:
        raise _LeftOut(f"its chunks of {LONG_CHUNK} elements are too long to be computed again")
    call = job.lowering.build(job.target)
    truth = cell.truth if cell.truth in case.exact else "exact"

    def outputs(number: int) -> Tensor:
        given = case.given(number)
        return launch_steady(call, given, case.backend, job.lowering.name, repeats=1).output.reshape(-1)

    return Again(case.fmt, outputs, case.exact[truth], truth, case.inputs.replay, pointwise=True)


def _composite(job: Job, case: Case, cell: Facts) -> Again:
    call, name = job.lowering.build(job.target), cell.place.output
    launches = launch_steady(call, case.given(0), case.backend, job.lowering.name, repeats=1, names=case.outputs)
    if name not in launches.results[0]:
        raise _LeftOut(f"the lowering gives no {name or 'output'} here")
    y = launches.results[0][name]
    exact, flat = case.sources(0, name, y)["exact"].exact, y.contiguous().reshape(-1)
    return Again(
        format_of(y),
        lambda number: flat[number * CHUNK : (number + 1) * CHUNK],
        exact,
        "exact",
        lambda index: (index,),
        pointwise=False,
    )


def _chunk(one: Wanted, again: Again, number: int) -> tuple[Tensor, str]:
    """A chunk's outputs and digest. Raises _LeftOut where the digest is not the report's."""
    y = again.outputs(number)
    if not y.numel():
        raise _LeftOut("the outputs have fewer chunks than the report says")
    ((_, value),) = digests(number, (), y, again.fmt, CHUNK).digests
    digest = f"{value:016x}"
    if not holds(one.cell, number, digest):
        raise _LeftOut(
            "stale: this machine no longer gives the bits of its report, the first given "
            "(another machine, version, capability or source; or the lowering is not deterministic)"
        )
    return y, digest


def _entry(one: Wanted, again: Again, number: int) -> tuple[Entry, Tensor]:
    y, digest = _chunk(one, again, number)
    place = one.cell.place
    named: dict[str, Any] = {name: getattr(place, name) for name in ("kernel", "lowering", "spelling", "backend")}
    entry = Entry(
        **named,
        dtype=place.dtype,
        scalars=scalars_of(place.scalars),
        output=place.output,
        format=again.fmt.name,
        chunk=number,
        elements=y.numel(),
        digest=digest,
    )
    return entry, y


def _unsigned(y: Tensor, fmt: Format) -> Any:
    return bits(y.cpu()).numpy().view(f"<u{fmt.bits // 8}")


# Two outputs of one chunk


def _finding(one: Wanted, other: int, again: Again, entry: Entry, theirs: Any) -> Finding:
    """The elements on which this machine's chunk and the other's differ. Raises _LeftOut."""
    fmt, number = again.fmt, entry.chunk
    y, _ = _chunk(one, again, number)
    y = y.cpu()
    if (entry.format, entry.elements) != (fmt.name, y.numel()):
        raise _LeftOut(f"{entry.elements} outputs in {entry.format}; this machine gives {y.numel()} in {fmt.name}")
    words = torch.from_numpy(theirs.view(f"<i{fmt.bits // 8}").copy())
    z = words.view(y.dtype)
    ((_, value),) = digests(number, (), z, fmt, CHUNK).digests
    if f"{value:016x}" != entry.digest:
        raise _LeftOut("the file is damaged: outputs do not have the digest that it gives them")
    unequal = differing(y, z).nonzero()[:, 0]
    first = unequal[:SHOWN].tolist()
    pairs = zip(first, patterns(y[first], fmt), patterns(z[first], fmt), strict=True)
    elements = tuple(_element(again, number * CHUNK + index, a, b) for index, a, b in pairs)
    place = one.cell.place
    command = ""
    if elements:
        where = (place.dtype, place.backend, place.lowering, place.spelling)
        spot = (place.output, elements[0].index, one.cell.inputs.seed)
        command = replay_place(place.kernel, where, scalars_of(place.scalars), elements[0].inputs, spot)
    return Finding(one.row, one.own, other, number, y.numel(), len(unequal), again.truth, elements, command)


def _element(again: Again, index: int, own: int, other: int) -> Element:
    key, fmt = again.key(index), again.fmt
    a, b = (again.exact.verdict(key, y)[1] for y in (own, other))
    judged = again.exact.against(key, own, other)
    return Element(
        index,
        tuple(map(fmt.hex, key)) if again.pointwise else (),
        fmt.hex(own),
        fmt.hex(other),
        digits(truth_of(again.exact, key)),
        (_ulp(a), _ulp(b)),
        (a.cls if a else "undecided", b.cls if b else "undecided"),
        {"closer": "own", "farther": "other"}.get(judged or "tied", "tied"),
    )


def _ulp(verdict: Verdict | None) -> float | None:
    return None if verdict is None or verdict.high is None else finite(verdict.high)


def _reasons(left_out: Counter[str]) -> str:
    return "; ".join(f"{count} times {reason}" for reason, count in left_out.items())
