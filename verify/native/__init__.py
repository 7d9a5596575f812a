"""C++ for the host, compiled once for each source, compiler and processor into the user's cache.

What cannot be compiled is `Unsupported`; tensors compute the same then. `host` has the functions of host.cpp. The time
that the checker's own code takes to compile, Triton too, is counted by `compiling`.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

HERE = Path(__file__).parent
# The <cmath> of C++17 takes longer to read than most of what is generated takes to compile.
FLAGS = ("-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-std=gnu++14", "-fPIC", "-w")


class Unsupported(Exception):
    """The function cannot be compiled: the reason. Tensors compute it."""


_spent = threading.local()


@contextmanager
def compiling() -> Iterator[None]:
    """What happens inside compiles the checker's own code."""
    began = time.perf_counter()
    try:
        yield
    finally:
        _spent.seconds = compiled_for() + time.perf_counter() - began


def compiled_for() -> float:
    """Seconds that this thread has spent in `compiling` so far."""
    return getattr(_spent, "seconds", 0.0)


@functools.cache
def _compiler() -> tuple[str, str]:
    """The compiler and what it says of its version. Raises Unsupported."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler or os.environ.get("VERIFY_NATIVE") == "0":
        raise Unsupported("no C++ compiler (g++ or clang++) found, or VERIFY_NATIVE=0")
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    except OSError as problem:
        raise Unsupported(f"{compiler}: {problem}") from problem
    return compiler, done.stdout


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(line for line in lines[:40] if line.startswith(("model name", "flags")))


def cache() -> Path:
    """The folder of what is compiled: in the user's cache or, where nothing can be written there, one among temporary
    files to which nobody else can write. Raises Unsupported."""
    own = getattr(os, "getuid", lambda: 0)()
    with suppress(OSError, RuntimeError):  # no home at all
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ulproof"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    with suppress(OSError):
        folder = Path(tempfile.gettempdir()) / f"ulproof-{own}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == own and not found.st_mode & 0o022:
            return folder
    raise Unsupported("neither the user's cache nor the folder of temporary files can be written to")


@contextmanager
def written_at_once(path: Path) -> Iterator[Path]:
    """A file to write that becomes `path` at the end, so that other processes see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def build(source: str, optimise: str = "-O2", extra: Sequence[str] = (), header: Path | None = None) -> ctypes.CDLL:
    """The shared library of a C++ source, which may include `header`. Raises Unsupported."""
    compiler, version = _compiler()
    flags = [optimise, *FLAGS, *extra]
    if platform.machine() == "x86_64" and "clang" not in compiler:
        flags.append("-mprefer-vector-width=512")
    parts = [source, header.read_text() if header else "", version, *flags, _processor()]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
    target = cache() / f"{key}.so"
    try:
        if not target.exists():
            include = [f"-I{header.parent}"] if header else []
            libraries = ["-lmvec"] if "_ZGV" in source else []
            with compiling(), _alone(target) as missing:
                if missing:
                    _compile([compiler, *flags, *include], source, target, [*libraries, "-lm"])
        return ctypes.CDLL(str(target))
    except OSError as problem:
        raise Unsupported(str(problem)) from problem


def _compile(command: Sequence[str], source: str, target: Path, libraries: Sequence[str]) -> None:
    with written_at_once(target) as partial:
        whole = [*command, "-shared", "-o", str(partial), "-x", "c++", "-", "-x", "none", *libraries]
        done = subprocess.run(whole, input=source, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unsupported(f"{command[0]} failed: {done.stderr.strip()[:400]}")


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """One process at a time; whether the file is still to be made."""
    lock = path.with_suffix(".lock")
    with lock.open("w") as file:
        with suppress(OSError):  # a file system without locks: it may be made twice
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, also by a death
        try:
            yield not path.exists()
        finally:
            lock.unlink(missing_ok=True)  # whoever waits for it finds the file


_tasks: SimpleQueue[Callable[[], Any]] = SimpleQueue()


def later(task: Callable[[], T]) -> Future[T]:
    """What `task` gives, by a thread that does one after another, while this one goes on."""
    found: Future[T] = Future()

    def do() -> None:
        try:
            found.set_result(task())
        except Exception as error:
            found.set_exception(error)

    _tasks.put(do)
    _thread()
    return found


@functools.cache
def _thread() -> threading.Thread:
    """That of `later`. At the exit what it does is waited for, what it would do next is left."""

    def work() -> None:
        while (task := _tasks.get()) is not leave:
            task()

    def leave() -> None:
        while not _tasks.empty():
            with suppress(Empty):
                _tasks.get_nowait()
        _tasks.put(leave)
        thread.join()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    atexit.register(leave)
    return thread


def confirmed(question: str, find: Callable[[], bool]) -> bool:
    """What `find` says, asked in one process at a time, until it has said yes to this question with this compiler and
    processor: that is kept."""
    try:
        parts = [question, *_compiler(), _processor()]
        path = cache() / f"{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:24]}.yes"
    except Unsupported:
        return find()
    if path.exists():
        return True
    with _alone(path) as missing:
        found = not missing or find()
        if found:
            path.touch()
    return found


def answered(question: str, find: Callable[[], Any]) -> Any:
    """What `find` gives, as JSON, asked once for this question with this processor."""
    try:
        path = kept(question)
    except Unsupported:
        return find()
    with suppress(OSError, ValueError):
        return json.loads(path.read_text())
    found = find()
    with suppress(OSError), written_at_once(path) as partial:  # no room: it is asked again
        partial.write_text(json.dumps(found))
    return found


def kept(question: str) -> Path:
    """Where what is found for this question, on this processor, may be kept. Raises Unsupported where nothing is to be
    compiled."""
    if os.environ.get("VERIFY_NATIVE") == "0":
        raise Unsupported("VERIFY_NATIVE=0")
    return cache() / f"{hashlib.sha256(f'{question} {_processor()}'.encode()).hexdigest()[:24]}.json"


@functools.cache
def pool(threads: int) -> ThreadPoolExecutor:
    """Threads that call such functions; ctypes leaves them the interpreter's lock."""
    return ThreadPoolExecutor(threads)


def divided(work: Callable[[int, int], T], n: int, threads: int, least: int = 1 << 17) -> list[T]:
    """What `work(first, end)` gives for so many parts of range(n), of `least` each; this thread does the first."""
    parts = max(1, min(threads, n // least))
    edges = [n * k // parts for k in range(parts + 1)]
    others = [pool(parts - 1).submit(work, *edges[k : k + 2]) for k in range(1, parts)]
    return [work(0, edges[1]), *(one.result() for one in others)]


_early: list[threading.Thread] = []


def begin() -> None:
    """Let a thread compile host.cpp, which nearly all that is judged needs, while this process imports torch."""
    if not _early:
        _early.append(threading.Thread(target=_early_host, daemon=True))
        _early[0].start()


def _early_host() -> None:
    with suppress(Exception):  # who needs it will meet that
        host()


@functools.cache
def host() -> ctypes.CDLL | None:
    """The functions of host.cpp; None where they cannot be compiled."""
    with compiling():
        for thread in _early:
            if thread is not threading.current_thread():
                thread.join()
    try:
        library = build((HERE / "host.cpp").read_text(), "-O3", ("-fopenmp-simd",))
    except Unsupported:
        return None
    library.digest.restype = ctypes.c_uint64
    for name in ("words", "chain32", "chain64", "apart32", "dots32", "pairs32", "in_order"):
        getattr(library, name).restype = None
    library.aligned.restype = ctypes.c_int32
    return library
