"""Processes for users' files and for jobs. Where the system allows it, one process imports torch and stands by, and the
others are forked from it in some milliseconds; elsewhere each imports torch itself.

What stands by has run nothing but imports: no device is open that a fork would break, and no thread runs but those of
numpy's library, which end before a fork. It knows nothing of a file. A forked process is its asker's child, not that of
the one it was forked from. No torch here.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, NoReturn

from verify.processes import start

ROOT = str(Path(__file__).resolve().parents[2])
IMPORTING = 120.0  # seconds in which torch must be imported
ADOPTION = 10.0  # seconds in which a forked process must have become its asker's child
BEAT = 0.5  # seconds between two looks at whether the parent lives
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")  # a process that has opened one cannot be forked and use it
#: Variables that torch and Inductor set in their own process while they run, and read only then: a process may stand by
#: for one that has other values, which those that are forked are given.
ON_USE = frozenset({
    "CUDA_MODULE_LOADING", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_PTXAS_PATH",
    "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
})  # fmt: skip
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37  # prctl(2)
#: What a process runs that stands by, and one that is not forked. torch imports its distributed tensors, which not
#: every build has, where it first meets a class with __torch_dispatch__.
STAND = """
import contextlib, importlib, os, sys
from verify.processes.start import importing, settle
settle()
from verify.processes import standby
with importing(), contextlib.suppress(ImportError):
    import verify.walk.run, verify.workers.process, torch.distributed.tensor
    from verify import backends
    with backends.unasked() if standby.present() else contextlib.nullcontext():
        for name in sys.argv[2:]:
            importlib.import_module(name)
if sys.argv[2:] and standby.opened():
    os.execv(sys.executable, sys.orig_argv[: -len(sys.argv[2:])])
if "torch._inductor.codegen.cpp" in sys.argv[2:]:
    standby.aside("verify.lower.pytorch:prepare", int(sys.argv[1]))
standby.stand(int(sys.argv[1]))
"""
ALONE = """
import sys
from verify.processes.start import importing, settle
settle()
with importing():
    import verify.workers.process
from verify.processes import standby
standby.called(sys.argv[1], [*map(int, sys.argv[2:])])
"""


class Process:
    """A process that calls `task`, "module:function", with the descriptors of its end of the channel and of files.

    It starts while this one goes on; what is sent meanwhile waits for it.
    """

    def __init__(self, task: str, files: Sequence[IO[bytes]] = ()) -> None:
        self.task = task
        mine, self._theirs = socket.socketpair()
        self.connection = Connection(mine.detach())
        self._given = [self._theirs.fileno(), *(file.fileno() for file in files)]
        self._told = _asked(task, self._given)
        self._asked = _standing
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._sentinel: int | None = None

    def start(self) -> subprocess.Popen[bytes] | Forked:
        """What runs, once that is known: a forked process, or another where none could be forked."""
        if self._process is None:
            told, self._told = self._told, None  # of which an interrupt leaves nothing to be asked again
            pid = None if told is None else _pid(told, self._asked)
            self._process = _alone(self.task, self._given) if pid is None else Forked(pid)
            self._theirs.close()
        return self._process

    @property
    def pid(self) -> int:
        return self.start().pid

    @property
    def sentinel(self) -> int | None:
        """A descriptor that is ready once the process has ended, of systems that have such ones."""
        if self._sentinel is None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._sentinel = os.pidfd_open(self.pid)
        return self._sentinel

    def poll(self) -> int | None:
        """Its exit code, or minus the number of the signal that ended it; None while it runs."""
        return self.start().poll()

    def wait(self, timeout: float | None = None) -> int | None:
        """As `poll`, once it has ended or the seconds are over."""
        if timeout is not None and self.sentinel is not None:
            wait([self.sentinel], timeout)
            return self.poll()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.start().wait(timeout)
        return None

    def kill(self, *, group: bool = False) -> None:
        """Have it end, whatever it does. group: with what it has started, where it leads a group of its own. One whose
        start was interrupted ends with its channel."""
        if self._process is None and self._told is None:
            return
        process = self.start()
        if group and process.poll() is None:
            with contextlib.suppress(AttributeError, OSError):  # it leads none yet, or not on this system
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()

    def end(self, *, group: bool = False) -> None:
        """`kill` it, and wait until it has ended: of several, each is to be killed first."""
        self.kill(group=group)
        if self._process is not None:
            self._process.wait()
        self._theirs.close()
        self.connection.close()
        if self._sentinel is not None:
            os.close(self._sentinel)
            self._sentinel = None


class Forked:
    """A child of this process that it has not started itself, as a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._waited(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int | None:
        """Raises subprocess.TimeoutExpired."""
        if timeout is None:
            return self._waited(0)
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _waited(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # another has asked what became of it
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class _Standing:
    """The process that stands by: a socket to it, and the variables that it was started with."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes] | Forked) -> None:
        self.control, self.process, self.variables = control, process, variables()

    @property
    def fits(self) -> bool:
        """Whether it runs, as one that is started now would."""
        return self.process.poll() is None and self.variables == variables()

    def end(self) -> None:
        self.control.close()
        self.process.kill()
        self.process.wait()


_standing: _Standing | None = None
_forks = sys.platform == "linux"  # cleared where it turns out that processes cannot be forked here
_starting: set[int] = set()  # descriptors that tell of processes which are not this one's children yet


def prepare(*modules: str) -> None:
    """Let a process import torch, and modules that most of those take which are forked from it, and stand by, if none
    does. Where the modules' import opens a device, it begins anew without them."""
    global _standing
    if not _forks or (_standing is not None and _standing.fits):
        return
    drop()
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(OSError):  # the first use will report it
        _standing = _Standing(mine, _started([STAND, str(theirs.fileno()), *modules], [theirs.fileno()]))
    theirs.close()


def drop() -> None:
    """End the process that stands by."""
    global _standing
    if _standing is not None:
        _standing.end()
    _standing = None


def _leave() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one, while it ends
    drop()


atexit.register(_leave)


def divide(channel: int) -> None:
    """Let a copy of this process stand by, which was itself forked or started just now and has run nothing but imports.
    channel: of this process alone."""
    global _standing
    if not _forks:
        return
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if pid := _fork():
        theirs.close()
        _standing = _Standing(mine, Forked(pid))
        return
    mine.close()
    os.close(channel)
    stand(theirs.detach())


def end_with_parent(end: Callable[[], Any]) -> None:
    """Call `end` once the parent of this process has ended, which nobody else tells it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(BEAT)
        end()

    threading.Thread(target=watch, daemon=True).start()


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


def shared() -> IO[bytes]:
    """A file without a name, in memory where the system has such a place."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.TemporaryFile(dir=place)


def variables() -> dict[str, str]:
    """The variables that what stands by has from its parent, but for those of ON_USE and the one that pytest keeps
    changing."""
    return {name: value for name, value in os.environ.items() if name not in ON_USE | {"PYTEST_CURRENT_TEST"}}


def _started(arguments: Sequence[str], descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))
    with without_interrupts():
        return subprocess.Popen(
            [sys.executable, "-c", *arguments], pass_fds=descriptors, stdin=subprocess.DEVNULL,
            stdout=2,  # a report may go to the parent's standard output
            env=os.environ | start.filling() | {"PYTHONPATH": path},
        )  # fmt: skip


def _alone(task: str, descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    return _started([ALONE, task, *map(str, descriptors)], descriptors)


def _asked(task: str, descriptors: Sequence[int]) -> int | None:
    """Ask for a forked process. Returns the descriptor that its number can be read from, None where none is forked."""
    prepare()
    if _standing is None:
        return None
    told, tell = os.pipe()
    later = {name: os.environ.get(name) for name in sorted(ON_USE)}
    message = json.dumps({"task": task, "parent": os.getpid(), "folder": _folder(), "later": later}).encode()
    try:
        _adopt(told, True)
        socket.send_fds(_standing.control, [message], [2, tell, *descriptors])
    except OSError:  # it has ended
        _adopt(told, False)
        os.close(told)
        return None
    finally:
        os.close(tell)
    return told


def _pid(told: int, asked: _Standing | None) -> int | None:
    """The number of the process that was asked for; None where there is none."""
    global _forks
    try:
        ready = wait([told], IMPORTING)
        number = os.read(told, 32) if ready else b""
    finally:
        _adopt(told, False)
        os.close(told)
    if not number and asked is _standing:  # else another one stands by since, for other variables
        _forks = False
        drop()
    return int(number) if number else None


def _adopt(told: int, begin: bool) -> None:
    """Be the one, while processes start, whose children those become whose parent ends: what stands by forks another
    that forks and ends, see prctl(2), PR_SET_CHILD_SUBREAPER."""
    prctl = ctypes.CDLL(None).prctl
    if begin and not _starting:
        given = ctypes.c_int()
        prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(given), 0, 0, 0)
        if given.value:  # for reasons of its own
            return
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if begin:
        _starting.add(told)
    elif told in _starting:
        _starting.remove(told)
        if not _starting:
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it is gone
        return ""


# In the process that stands by, and in those that are forked from it.


def stand(control: int) -> NoReturn:
    """Fork a process for each request, until the asker ends."""
    asked = socket.socket(fileno=control)
    while not opened():
        message, descriptors, _, _ = socket.recv_fds(asked, 1 << 16, 16)
        if not message:
            break
        between = _fork()
        if not between:
            if _fork():
                os._exit(0)
            asked.close()
            _forked(descriptors=descriptors, **json.loads(message))
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)
    os._exit(0)


def aside(task: str, control: int) -> None:
    """Call `task` in a process forked from this one, which nobody waits for and whose failure tells nothing. It ends
    with this one, and what it has started puts away what is half done."""
    if _fork():
        return
    os.close(control)
    os.setpgid(0, 0)
    end_with_parent(lambda: os.killpg(0, signal.SIGTERM))
    with contextlib.suppress(BaseException):
        called(task, [])
    os._exit(0)


def _fork() -> int:
    """Threads that are there, such as those of numpy's products, are not warned about: theirs end before a fork."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def called(task: str, descriptors: Sequence[int]) -> None:
    """Call "module:function"."""
    module, _, function = task.partition(":")
    getattr(importlib.import_module(module), function)(*descriptors)


def _forked(
    task: str, parent: int, folder: str, later: Mapping[str, str | None], descriptors: Sequence[int]
) -> NoReturn:
    """What a forked process does. It never returns to what the one did that stands by. later: the variables of ON_USE,
    None where there is none."""
    error, tell, *given = descriptors
    until = time.monotonic() + ADOPTION
    while os.getppid() != parent:
        if time.monotonic() > until:
            os._exit(1)
        time.sleep(0.0005)
    os.dup2(error, 1)  # a report may go to the parent's standard output
    os.dup2(error, 2)
    os.close(error)
    if folder:
        with contextlib.suppress(OSError):
            os.chdir(folder)
    for name, value in later.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    code = 1
    try:
        os.write(tell, str(os.getpid()).encode())
    except BrokenPipeError:  # an interrupt came first, and nobody waits for it
        os._exit(code)
    try:
        os.close(tell)
        called(task, given)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else code
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def present() -> bool:
    """Whether this machine has a device that could be opened."""
    return any(any(Path("/").glob(f"{place[1:]}*")) for place in DEVICES)


def opened() -> bool:
    """Whether this process has opened a device."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(descriptor.readlink()).startswith(DEVICES):
                return True
    return False
