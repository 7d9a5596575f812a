"""Processes for users' files, some of them started ahead: each imports torch while the parent does, or draws a domain.

They are spawned, never forked, and know nothing of a file until they are taken. No torch here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

ROOT = str(Path(__file__).resolve().parents[1])
#: What a process runs.
SERVE = """
import sys
from verify.start import importing
with importing():
    from verify.workers.process import main
main(*map(int, sys.argv[1:]))
"""


class Process:
    """A process that serves `verify.workers`, its channel, and the files of inputs and outputs that both have."""

    def __init__(self) -> None:
        self.place = _place()
        self.files = [_shared(), _shared()]
        mine, theirs = socket.socketpair()
        descriptors = [theirs.fileno(), *(file.fileno() for file in self.files)]
        command = [sys.executable, "-c", SERVE, *map(str, descriptors)]
        path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))
        with without_interrupts():
            self.process = subprocess.Popen(
                command, pass_fds=descriptors, stdin=subprocess.DEVNULL, stdout=2,  # a report may go to the other
                env=os.environ | {"PYTHONPATH": path},
            )  # fmt: skip
        theirs.close()
        self.connection = Connection(mine.detach())

    @property
    def fits(self) -> bool:
        """Whether it runs, as one that is started now would."""
        return self.process.poll() is None and self.place == _place()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()
        for file in self.files:
            file.close()


_ready: list[Process] = []
_wanted = 0  # still to be started ahead


def prepare(count: int) -> None:
    """Let `count` processes start before they are needed: the first one now, each of the others by `go_on`, so that no
    more than one waits."""
    global _wanted
    _wanted = max(_wanted, count - len(_ready))
    if not _ready:
        go_on()


def go_on() -> None:
    """Start the next one, where one is wanted: the one before it is at work."""
    global _wanted
    if _wanted > 0:
        _wanted -= 1
        with contextlib.suppress(OSError):  # its first use will report it
            _ready.append(Process())


def take() -> Process:
    """A separate process, which the caller must end."""
    while _ready:
        one = _ready.pop()
        if one.fits:
            return one
        one.end()
    return Process()


def drop() -> None:
    """End those that nobody has taken, and start no more ahead."""
    global _wanted
    _wanted = 0
    while _ready:
        _ready.pop().end()


atexit.register(drop)


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """What is started inside leaves Ctrl-C to its parent, which ends it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _place() -> tuple[str, dict[str, str]]:
    """What a process has from its parent: the folder and the variables, but for the one that pytest keeps changing."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    try:
        return str(Path.cwd()), variables
    except OSError:  # it is gone
        return "", variables


def _shared() -> IO[bytes]:
    """A file without a name, in memory where the system has such a place."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.TemporaryFile(dir=place)
