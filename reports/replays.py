"""The command that computes one element again, on a machine and with a setting such as it was computed on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from verify.facts import environment
from verify.facts.kernel import is_file

if TYPE_CHECKING:
    from verify.reports.schema import Cell, Report, Worst


def assignments(fingerprint: object) -> str:
    """What stands before a replay on the machine with this fingerprint, so that the same code runs. No other variables
    are taken from a report into a command."""
    found = fingerprint.get("variables") if isinstance(fingerprint, dict) else None
    if not isinstance(found, dict):
        return ""
    return "".join(f"{name}={shlex.quote(str(found[name]))} " for name in environment.EVERY if name in found)


@dataclass(frozen=True)
class Replays:
    """The commands that compute elements of a report's cells again. command: the one that made it."""

    environment: Mapping[str, Any]
    command: str = ""

    @classmethod
    def of(cls, report: Report) -> Replays:
        return cls(report.environment, report.command)

    @cached_property
    def _files(self) -> dict[str, str]:
        """A user's own lowerings as the command names them, with the folder, by the names that cells have."""
        words: list[str] = []
        with suppress(ValueError):  # whoever wrote the report wrote that, too
            words = shlex.split(self.command)
        return {word.rpartition("/")[2]: word for word in words if is_file(word)}

    def place(self, cell: Cell) -> tuple[str, str, str, str]:
        """As `replay_command` takes it."""
        return cell.dtype, cell.backend, self._files.get(cell.lowering, cell.lowering), cell.spelling

    def element(self, cell: Cell, worst: Worst) -> str:
        """Of one element, without what stands before it on another machine; '' where no command can import the
        function."""
        if "process" in cell.flags:
            return ""
        spot = (cell.output, worst.index, cell.domain.seed)
        return replay_place(cell.kernel, self.place(cell), cell.scalars, worst.inputs, spot)

    def __call__(self, cell: Cell, worst: Worst) -> str:
        """Of one element; '' as by `element`."""
        command = self.element(cell, worst)
        return command and assignments(self.environment.get(cell.backend)) + command


def replay_place(
    kernel: str,
    place: tuple[str, str, str, str],
    scalars: Mapping[str, float],
    inputs: Sequence[str],
    spot: tuple[str, int, int],
) -> str:
    """As `replay_command`; without inputs, of an element known by its `spot`: output, index and seed."""
    if inputs:
        return replay_command(kernel, place, scalars, inputs)
    words = replay_command(kernel, place, scalars, ()).split(" --input=")[0]
    output, index, seed = spot
    named = f" --output {shlex.quote(output)}" if output else ""
    return f"{words}{named} --index {index}{f' --seed {seed}' if seed else ''}"


def replay_command(
    kernel: str, place: tuple[str, str, str, str], scalars: Mapping[str, float], inputs: Sequence[str]
) -> str:
    """`verify explain` of one element. place: dtype, backend, lowering and spelling."""
    words = ["verify", "explain", kernel]
    for option, value in zip(("--dtype", "--backend", "--lowering", "--spelling"), place, strict=True):
        words += [option, value]
    for name, number in scalars.items():
        words += ["--scalar", f"{name}={number!r}"]
    # '=' since a first input may begin with a minus sign
    return shlex.join([*words, f"--input={','.join(inputs)}"])
