"""`verify replay`: kept launches executed on the CPU, their bits compared with what the GPU gave.

This checks a GPU's results without one, and the virtual GPU against real ones. `verify.virtual.keep` wrote the folder
where the kernels ran.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from verify.facts.kernel import UsageError
from verify.virtual.compile import GRID, SHARED, TARGETS, Argument, Fault, Launch, Unsupported
from verify.virtual.keep import CHUNK, digests


@dataclass(frozen=True)
class Replayed:
    """One launch. differing: of each tensor with other bits, the chunks of CHUNK elements that differ, of how many;
    reason: why it was not executed; modelled: how its approximate instructions were."""

    label: str
    name: str
    target: str
    triton: str
    differing: dict[str, tuple[list[int], int]]
    chunks: int = 0
    reason: str = ""
    modelled: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        return "; ".join(
            f"{name}: {len(bad)} of {of} chunks of {CHUNK} elements, the first from element {bad[0] * CHUNK}"
            for name, (bad, of) in self.differing.items()
        )

    def record(self) -> dict[str, Any]:
        return {
            "label": self.label, "name": self.name, "target": self.target, "triton": self.triton,
            "differing": {name: bad for name, (bad, _) in self.differing.items()}, "chunks": self.chunks,
            "reason": self.reason, "modelled": list(self.modelled),
        }  # fmt: skip


def replay(place: Path) -> Iterator[Replayed]:
    """Every launch of a folder of `--keep-code`, or of a tar archive of one. Raises UsageError for anything else."""
    if not place.is_file():
        yield from _replayed_of(place)
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(place) as archive:
                archive.extractall(folder, filter="data")
        except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
            raise UsageError(f"{place} is not an archive of kept launches: {str(error).partition(': -')[0]}") from None
        top = Path(folder)
        inside = [top, *(one for one in top.iterdir() if one.is_dir())]  # archived by its name, or as what it holds
        yield from _replayed_of(next((one for one in inside if (one / "launches").is_dir()), top), told=place)


def _replayed_of(place: Path, told: Path | None = None) -> Iterator[Replayed]:
    """told: what to name in place of the folder."""
    files = sorted((place / "launches").glob("*.json"))
    if not files:
        raise UsageError(f"{told or place} holds no kept launches; expected a folder written by --keep-code")
    for file in files:
        try:
            read = _read(place, json.loads(file.read_text()))
        except DAMAGED as error:
            raise UsageError(f"{file} is not a kept launch: {type(error).__name__}: {_line(error)}") from None
        yield read if isinstance(read, Replayed) else _replayed(file, *read)


#: Label, name, target and version of Triton.
About = tuple[str, str, str, str]
#: The errors of reading a launch from a damaged or edited folder.
DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, lzma.LZMAError)


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _read(place: Path, record: dict[str, Any]) -> Replayed | tuple[About, Launch, Any, dict[str, list[str]]]:
    """The record of a launch, the launch, its program and the digests of its outputs; or why it is not executed."""
    from verify.virtual import ptx

    about = record["label"], record["name"], record["target"], record["triton_version"]
    if not all(isinstance(text, str) for text in about):
        raise TypeError("label, name, target and triton_version are texts")
    if not record["after"]:
        return Replayed(*about, {}, reason="its memory was too large to be kept: run a smaller profile")
    if TARGETS.get(record["target"], ("",))[0] != "cuda":
        return Replayed(*about, {}, reason=f"code of {record['target']} is not executed; PTX is")
    one = launch_of(place, record)
    tensors = {argument["name"] for argument in record["arguments"] if "data" in argument}
    if tensors != record["after"].keys():
        expected = ", ".join(sorted(tensors)) or "no memory"
        raise ValueError(f"digests of {', '.join(record['after'])}; expected those of {expected}")
    try:
        program = ptx.program_of(one.code, int(one.metadata.shared))
    except Unsupported as why:
        return Replayed(*about, {}, reason=str(why))
    return about, one, program, {name: list(due) for name, due in record["after"].items()}


def _replayed(file: Path, about: About, one: Launch, program: Any, after: dict[str, list[str]]) -> Replayed:
    from verify.virtual import approx, ptx

    try:
        ptx.launch(one, approx.of_chip(one.target))
    except (Fault, Unsupported) as why:
        return Replayed(*about, {}, reason=str(why))
    differing, chunks = {}, 0
    for argument in one.arguments:
        if (due := after.get(argument.name)) is None:
            continue
        found = digests(argument.value)
        if len(found) != len(due):
            told = f"{len(due)} digests of {argument.name}; expected {len(found)}"
            raise UsageError(f"{file} is not a kept launch: {told}")
        bad = [k for k, (a, b) in enumerate(zip(found, due, strict=True)) if a != b]
        chunks += len(due)
        if bad:
            differing[argument.name] = (bad, len(due))
    if not chunks:
        return Replayed(*about, {}, reason="all that it was given is empty: there are no bits to compare")
    models = [f"{name} {approx.how(one.target, name)}" for name in program.approximate]
    models += [f"{name} {told}" for name, told in program.products.items()]
    return Replayed(*about, differing, chunks, modelled=tuple(models))


def launch_of(place: Path, record: dict[str, Any]) -> Launch:
    """The launch to be executed, with the memory that it began with, on the host."""
    import torch

    from verify.virtual.ptx import bits_of

    storages: dict[tuple[str, Any], Any] = {}
    arguments = []
    for given in record["arguments"]:
        if "data" not in given:
            with contextlib.suppress(Unsupported):  # that the launch's own execution tells of
                bits_of(given["kind"], given["value"])  # what is no number raises ValueError here
            arguments.append(Argument(given["name"], given["kind"], given["value"]))
            continue
        key = given["data"], given.get("storage")
        if key not in storages:
            data = bytearray(lzma.decompress((place / "data" / _plain(given["data"])).read_bytes()))
            whole = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
            storages[key] = whole.clone().untyped_storage()
        whole = torch.empty(0, dtype=getattr(torch, given["dtype"])).set_(storages[key])
        arguments.append(
            Argument(given["name"], given["kind"], whole.as_strided(given["shape"], given["stride"], given["offset"]))
        )
    warps, shared = (_whole(record, name) for name in ("num_warps", "shared"))
    if not 0 < warps <= 32 or warps & (warps - 1) or not 0 <= shared <= max(SHARED.values()):
        raise ValueError(f"num_warps={warps} and shared={shared}; no GPU launches such a block")
    metadata = SimpleNamespace(num_warps=warps, shared=shared, global_scratch_size=0)
    code = place / "code" / _plain(record["code"])
    x, y, z = map(int, record["grid"])
    if not all(0 < size <= most for size, most in zip((x, y, z), GRID, strict=True)):
        raise ValueError(f"a grid of {(x, y, z)}; expected at least one block in x, y and z, and at most {GRID}")
    return Launch(record["name"], record["target"], (x, y, z), tuple(arguments), metadata, {code.suffix[1:]: code})


def _whole(record: dict[str, Any], name: str) -> int:
    if not isinstance(value := record[name], int):
        raise ValueError(f"{name}={value!r}; expected a whole number")
    return value


def _plain(name: str) -> str:
    """A file's name that stays inside the folder. Raises ValueError for any other."""
    if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
        raise ValueError(f"the file name {name!r}")
    return name
