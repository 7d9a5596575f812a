"""`verify audit`: what compilers make of lowerings on GPUs that need not be here, instruction by instruction.

Each Triton lowering, and each function of a user's that launches Triton kernels, is called once on small host tensors
for each target, with contraction permitted and not. Its launches are caught with their code (`verify.virtual.compile`)
and counted (`verify.virtual.census`). All in worker processes: a compilation that takes too long ends its process.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from verify import backends
from verify.backends import cuda
from verify.facts import kernel
from verify.facts.kernel import Composite, NothingToCompare, UsageError, fits, is_file, suggest
from verify.jobs import pool
from verify.lower.lowering import Lowering, NotLowered, Target, by_name, describe
from verify.lower.lowerings import lowerings
from verify.lower.pytorch import default_flags, strict_options
from verify.lower.user import user_composite, user_lowering
from verify.reports.text import count_text
from verify.virtual import census, inductor
from verify.virtual.census import Census
from verify.virtual.compile import BACKENDS, TARGETS, Launch, Unsupported, described, known
from verify.walk.progress import Progress

SCHEMA = 1
#: Lowerings that Inductor generates, with their options; audited only where they are named.
INDUCTOR: Mapping[str, Callable[[Target], Mapping[str, Any]]] = {
    "inductor": default_flags,
    "inductor-strict": strict_options,
}
#: Seconds that a compilation may take: one matrix product for gfx1100 took minutes.
LIMIT = 30.0
#: Elements of the inputs: whole blocks, so that the code is that of large tensors.
SIZE = 4096


@dataclass(frozen=True)
class Asked:
    """One lowering for one target. fusion: whether contraction is permitted where the lowering would permit it or
    not; a lowering that forbids it (`own`) has both as well."""

    kernel: str
    lowering: str
    dtype: str
    target: str
    fusion: bool
    own: bool = False

    @property
    def label(self) -> str:
        return f"{self.kernel} {self.lowering} {self.dtype} {self.target} fusion {'on' if self.fusion else 'off'}"


@dataclass(frozen=True)
class Audited:
    """What was found: a census, or why there is none. cubins: whose SASS is not yet in it. blocks: those compiled,
    where they are smaller than those that run."""

    asked: Asked
    census: Census | None
    reason: str = ""
    cubins: tuple[Path, ...] = ()
    blocks: str = ""

    def record(self) -> dict[str, Any]:
        told = asdict(self.asked) | {"reason": self.reason} | ({"blocks": self.blocks} if self.blocks else {})
        return told | (self.census.record() if self.census else {})


class _Elsewhere:
    """A backend whose GPU is only described: its Triton options, with contraction as asked, on host tensors."""

    def __init__(self, target: str, fusion: bool) -> None:
        self._like = backends.load(BACKENDS[TARGETS[target][0]])
        self.fusion, self.device, self.check_device = fusion, "cpu", "cpu"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._like, name)

    def triton_options(self, variant: str) -> Mapping[str, Any] | str:
        given = self._like.triton_options(variant)
        return given if isinstance(given, str) else {**given, "enable_fp_fusion": self.fusion}


def asked(
    names: Sequence[str], targets: Sequence[str], dtypes: Sequence[str], chosen: Sequence[str], own: Sequence[str]
) -> list[Asked]:  # fmt: skip
    """Everything to audit. chosen: names or shell patterns of lowerings; own: the user's FILE.py:FUNCTION.

    Raises UsageError for unknown names, NothingToCompare where a kernel has no Triton lowering.
    """
    each = []
    for name in names:
        facts = kernel.load(name)
        there = [one.name for one in lowerings(facts) if one.name.startswith("triton") or one.name in INDUCTOR]
        for pattern in chosen:
            if not fnmatch.filter(there, pattern):
                raise UsageError(suggest(f"Triton lowering of {name}", pattern, there))
        wanted = [] if own else [one for one in there if one not in INDUCTOR]
        wanted = [one for one in there if fits(one, chosen)] if chosen else wanted
        for lowering, mine in [*((one, True) for one in own), *((one, False) for one in wanted)]:
            for dtype in dtypes or ["float32"] * ("float32" in facts.dtypes) or facts.dtypes[:1]:
                each += [
                    Asked(name, lowering, dtype, known(target), fusion, mine)
                    for target in targets
                    for fusion in (True, False)
                ]
    if not each:
        raise NothingToCompare(f"no Triton lowering to audit: {', '.join(names)}")
    return each


def audit(
    each: Sequence[Asked], workers: int, progress: Progress | None = None, limit: float = LIMIT
) -> list[Audited]:  # fmt: skip
    """Compile and count all, in the order given. limit: seconds that a compilation may take."""
    found: dict[int, Audited] = {}
    groups: dict[tuple[str, str], list[int]] = {}
    for number, one in enumerate(each):
        groups.setdefault((one.kernel, one.target), []).append(number)
    places: list[dict[str, str]] = [{} for _ in range(max(min(workers, len(groups)), 1))]
    make = functools.partial(_worker, list(each), limit)
    with contextlib.closing(pool.ended(make, list(groups.values()), places)) as stream:
        for ended in stream:
            if isinstance(ended.value, BaseException):
                raise ended.value
            died = ended.died.replace("the process that ran it ", "")
            stopped = f"a compilation was stopped after {limit:g} s" if "SIGALRM" in died else f"its process {died}"
            found[ended.number] = ended.value or Audited(each[ended.number], None, stopped)
            if progress:
                progress(len(found), len(each), f"last: {each[ended.number].label}")
    rows = disassembled([found[number] for number in range(len(each))], workers)
    return [one for one in rows if one.census or not one.asked.lowering.endswith("-interpreter")]


def _worker(each: Sequence[Asked], limit: float) -> Callable[[int], Audited]:
    torch.set_num_threads(1)
    return lambda number: _compiled(each[number], limit)


def disassembled(rows: Sequence[Audited], workers: int = 1) -> list[Audited]:
    """The rows with their SASS, of each target in one process."""
    paths: dict[str, dict[Path, None]] = {}
    for row in rows:
        if row.cubins:
            paths.setdefault(row.asked.target, {}).update(dict.fromkeys(row.cubins))
    with ThreadPoolExecutor(workers) as threads:
        counts = list(threads.map(census.disassembled, paths, map(list, paths.values())))
    known = {path: one for some, each in zip(paths.values(), counts, strict=True)
             for path, one in zip(some, each, strict=True)}  # fmt: skip

    def whole(row: Audited) -> Audited:
        if row.census is None or not row.cubins:
            return row
        sass = sum((known[path] for path in row.cubins), Counter[str]())
        return replace(row, census=replace(row.census, sass=sass), cubins=())

    return [whole(row) for row in rows]


def _compiled(one: Asked, limit: float) -> Audited:
    facts = kernel.load(one.kernel)
    backend: Any = _Elsewhere(one.target, one.fusion)
    scalars = facts.cases[0] if facts.cases else {}
    known = {lowering.name: lowering for lowering in lowerings(facts)}
    if isinstance(facts, Composite):
        spelling, setting = facts.settings[0].name, facts.settings[0]
        lowering = user_composite(one.lowering) if one.own else known[one.lowering]
        given: list[Any] = [facts.problem(one.dtype, setting, dict(scalars), 0)]
    else:
        spelling = next(name for name, call in facts.spellings.items() if call.applies(scalars))
        lowering = user_lowering(one.lowering) if one.own else known[one.lowering]
        given = [torch.ones(SIZE, dtype=getattr(torch, one.dtype)) for _ in facts.tensors(scalars)]
    target = Target(facts, scalars, spelling, one.dtype, backend)
    generated = one.lowering in INDUCTOR and not one.own
    if reason := backend.dtype_unavailable(one.dtype) or (None if generated else lowering.reason(target)):
        return Audited(one, None, reason)
    if generated:
        return _counted(one, functools.partial(_generated, one, target, given, limit))
    family = facts.implementations if isinstance(facts, Composite) else facts.name
    which = (family, one.lowering, one.dtype, one.target)
    whole = lowering.flags(target).get("blocks", "")
    for small in (2, 1):
        sized = replace(target, small=small)
        blocks = lowering.flags(sized).get("blocks", whole)
        if blocks == whole or (small == 2 and which in _SHAPED):
            continue
        found = _counted(one, functools.partial(_launched, one, lowering, sized, given, limit))
        if found.census and (small == 1 or not found.census.shaped):
            return replace(found, blocks=blocks)
        if found.census:
            _SHAPED.add(which)
    return _counted(one, functools.partial(_launched, one, lowering, target, given, limit))


#: Where smaller blocks take other instructions, as this process has seen: of a family, which multiplies alike, the
#: lowering, dtype and target.
_SHAPED: set[tuple[str, str, str, str]] = set()


def _counted(one: Asked, launched: Callable[[], Sequence[Launch]]) -> Audited:
    """The census of what is launched, or why there is none."""
    try:
        launches = launched()
    except (NotLowered, Unsupported) as why:
        return Audited(one, None, str(why))
    except (NothingToCompare, UsageError):
        raise
    except Exception as error:  # of a compiler, a kernel or a user's function
        return Audited(one, None, describe(error))
    if not launches:
        return Audited(one, None, "it launches no Triton kernel")
    return Audited(one, census.count(launches), cubins=tuple(census.cubins(launches)))


def _launched(one: Asked, lowering: Lowering, target: Target, given: Sequence[Any], limit: float) -> list[Launch]:
    """The launches of one call. What it raises after a launch is ignored, because the results do not exist."""
    launches: list[Launch] = []
    with _fusion(one.fusion), described(one.target, launches.append, limit):
        try:
            lowering.build(target)(*given)
        except (NotLowered, Unsupported, NothingToCompare, UsageError):
            raise
        except Exception:
            if not launches:
                raise
    return launches


def _generated(one: Asked, target: Target, given: Sequence[Any], limit: float) -> list[Launch]:
    if not isinstance(given[0], torch.Tensor):
        raise Unsupported("Inductor's code is audited for elementwise kernels only")
    if not one.fusion:
        raise Unsupported("Inductor says itself whether contraction is permitted: compare inductor-strict")
    shapes = [(tuple(t.shape), t.dtype) for t in given]
    options, libdevice = INDUCTOR[one.lowering](target), cuda.toolkit_libdevice()
    return inductor.launches(by_name(target), shapes, options, one.target, libdevice, limit)


@contextlib.contextmanager
def _fusion(on: bool) -> Iterator[None]:
    """Triton's default for kernels that are launched without the option."""
    from triton import knobs

    with knobs.language.scope():
        knobs.language.default_fp_fusion = on
        yield


def differences(rows: Sequence[Audited]) -> dict[tuple[str, str, str], list[str]]:
    """By kernel, lowering and dtype: what differs between targets (contraction permitted), and what permitting it
    changes on each, in words."""
    groups: dict[tuple[str, str, str], list[Audited]] = {}
    for row in rows:
        groups.setdefault((row.asked.kernel, row.asked.lowering, row.asked.dtype), []).append(row)
    told = {}
    for key, group in groups.items():
        fused = {row.asked.target: row.census for row in group if row.census and row.asked.fusion}
        plain = {row.asked.target: row.census for row in group if row.census and not row.asked.fusion}
        both = [census.contraction(one, plain[target]) for target, one in fused.items() if target in plain]
        told[key] = [*census.differences(list(fused.values())), *filter(None, both)]
    return told


Key = tuple[str, str, str, str, bool]


def _key(record: Mapping[str, Any]) -> Key:
    return record["kernel"], record["lowering"], record["dtype"], record["target"], record["fusion"]


def accepted(text: str) -> dict[Key, Mapping[str, Any]]:
    """The rows of a census that `verify audit --json` wrote. Raises UsageError for anything else."""
    try:
        document = json.loads(text)
        if document.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {document.get('schema')}; expected {SCHEMA}")
        for number, row in enumerate(document["rows"]):
            if wrong := _wrong(row):
                raise ValueError(f"{wrong!r} of row {number} is {row.get(wrong, 'missing')!r}")
        return {_key(row): row for row in document["rows"]}
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"the baseline is not a census of `verify audit --json`: {error}") from None


def _wrong(row: Mapping[str, Any]) -> str:
    """The first key of a row whose value is none that it can have; ''."""
    texts = ["kernel", "lowering", "dtype", "target", "reason", *([] if row.get("reason") else ["version"])]
    counts = [] if row.get("reason") else ["assembly", "sass", "modes"]
    wrong = [name for name in texts if not isinstance(row.get(name), str)]
    wrong += [name for name in ("fusion",) if not isinstance(row.get(name), bool)]
    for names, kind in ((counts, int), (["libraries"], str)):
        for name in names:
            found = row.get(name, {} if name == "libraries" else None)
            if not (isinstance(found, dict) and all(isinstance(one, kind) for one in found.values())):
                wrong.append(name)
    return next(iter(wrong), "")


def changed(rows: Sequence[Audited], before: Mapping[Key, Mapping[str, Any]]) -> list[str]:
    """What differs from the accepted census, one line a row: instructions that became more or fewer, with the versions
    of Triton; rows not compiled then or now; rows never accepted."""
    told = []
    for row in rows:
        now, then = row.record(), before.get(_key(row.record()))
        if then is None:
            told.append(f"{row.asked.label}: not in the baseline")
        elif bool(row.reason) != bool(then["reason"]):  # the words are for people
            told.append(f"{row.asked.label}: {row.reason or 'compiled'}; accepted: {then['reason'] or 'compiled'}")
        elif row.census and (differing := _differing(now, then)):
            versions = f"triton {then['version']}, now {now['version']}"
            told.append(f"{row.asked.label}: {', '.join(differing)} ({versions})")
    return told


def vanished(
    rows: Sequence[Audited], before: Mapping[Key, Mapping[str, Any]], names: Sequence[str], targets: Sequence[str],
    dtypes: Sequence[str], chosen: Sequence[str], own: Sequence[str],
) -> list[str]:  # fmt: skip
    """The accepted rows that no row is for, of what was asked, one line each. names, targets: those that were named,
    empty for all; the others as in `asked`."""
    usual = {row.asked.dtype for row in rows}

    def wanted(name: str, lowering: str, dtype: str, target: str) -> bool:
        if chosen or own:
            meant = lowering in own or bool(chosen) and fits(lowering, chosen)
        else:
            meant = lowering not in INDUCTOR and not is_file(lowering)
        of_dtype = dtype in (dtypes or usual)
        return meant and of_dtype and (not names or name in names) and (not targets or target in targets)

    there = {_key(row.record()) for row in rows}
    return [
        f"{Asked(*key).label}: accepted, and not there any more"
        for key in before
        if key not in there and wanted(*key[:4])
    ]


def renewed(rows: Sequence[Audited], before: Mapping[Key, Mapping[str, Any]]) -> list[str]:
    """What else was recorded and is another one now, where the instructions are those that were accepted: compilers,
    libraries of functions by their digests, sizes of blocks; with how many rows there are of each."""
    found = Counter[str]()
    for row in rows:
        now, then = row.record(), before.get(_key(row.record()))
        if then is None or not row.census or then["reason"]:
            continue
        if now["version"] != then["version"]:
            found[f"triton {then['version']} is {now['version']}"] += 1
        libraries = then.get("libraries", {})
        for name in sorted({*now["libraries"], *libraries}):
            if (one := libraries.get(name, "none")) != (other := now["libraries"].get(name, "none")):
                found[f"{name} {one} is {other}"] += 1
        if now.get("blocks", "") != then.get("blocks", ""):
            found[f"blocks of {then.get('blocks') or 'all'} are of {now.get('blocks') or 'all'}"] += 1
    return [f"{text} ({count_text(count, 'row')})" for text, count in found.items()]


def _differing(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    return [
        f"{then[level].get(name, 0)} {name} are {now[level].get(name, 0)}"
        for level in ("assembly", "sass", "modes")
        for name in sorted({*now[level], *then[level]})
        if now[level].get(name, 0) != then[level].get(name, 0)
    ]
