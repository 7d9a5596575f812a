"""How a process of this project starts, before it imports torch."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: glibc's mallopt(3).
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
#: For `gc.set_threshold`: all objects are searched for garbage once in 700,000 new ones, not in 70,000.
SELDOM = (700, 10, 100)
#: glibc's tunables(7), read before a process begins: no thread keeps freed chunks for itself. What it keeps, malloc
#: hands out again without filling it, since CACHED also to those who ask for aligned memory, as torch does.
UNCACHED, CACHED = "glibc.malloc.tcache_count=0", (2, 41)
TUNABLES, KEPT = "GLIBC_TUNABLES", "_ULPROOF_GLIBC_TUNABLES"


def filling() -> dict[str, str]:
    """Variables for a process that launches, in which `verify.backends.cpu.poisoned` is then to fill all memory.
    `settle` gives it this process's own back."""
    if glibc() < CACHED:
        return {}
    own = os.environ.get(TUNABLES, "")
    return {TUNABLES: ":".join(filter(None, (own, UNCACHED))), KEPT: own}


def glibc() -> tuple[int, ...]:
    """The version of the C library, () of another one."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        name, version = str(os.confstr("CS_GNU_LIBC_VERSION")).split()
        return tuple(map(int, version.split("."))) if name == "glibc" else ()
    return ()


def settle() -> None:
    """What a process of this project sets before it imports torch.

    Threads wait without spinning: beside another program, torch's or the judge's own, that takes a second for each
    millisecond. Freed memory stays with the process, which otherwise asks for the pages of every chunk anew. Triton
    keeps compiled code in its own folder: where none is set, Inductor sets another once it has compiled for a GPU, and
    a later run does not find what Triton compiled after that. Garbage is looked for less often: with what Inductor
    creates and keeps a search of all takes 0.15 s, which was a twentieth to an eighth of the time of what compiles.
    """
    gc.set_threshold(*SELDOM)
    if (own := os.environ.pop(KEPT, None)) is not None:
        os.environ[TUNABLES] = own
        if not own:
            del os.environ[TUNABLES]
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    home = os.environ.get("TRITON_HOME") or Path("~").expanduser()
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path(home, ".triton", "cache")))
    with contextlib.suppress(AttributeError, OSError, TypeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the most that glibc would choose itself
        mallopt(M_TRIM_THRESHOLD, 256 << 20)


def raised_again(unraisable: Any) -> None:
    """Python's `sys.unraisablehook`, but for an interrupt that arrives where no exception can be raised, such as the
    callback by which importing a module frees its lock: the main thread gets it once more."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    again = threading.Timer(0.01, _interrupt)
    again.daemon = True
    again.start()


def _interrupt() -> None:
    main = threading.main_thread().ident
    if main is not None and sys.unraisablehook is raised_again:  # else the process is about to end
        signal.pthread_kill(main, signal.SIGINT)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """For the first import of torch. Nothing of what is imported inside is garbage: looking for some takes a sixth of
    the time, and each later search would go through it again. An interrupt waits for its end, since torch and numpy
    catch it now and then and leave modules that are half there."""
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        with uninterrupted():
            yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def uninterrupted(*numbers: int) -> Iterator[None]:
    """Deal with SIGINT, or with these signals, afterwards, where they can be asked to wait: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    wait = lambda number, frame: received.append(number)  # noqa: E731
    usual = {number: signal.signal(number, wait) for number in numbers or (signal.SIGINT,)}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    for number in dict.fromkeys(received):
        signal.raise_signal(number)
