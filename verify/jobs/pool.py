"""Processes of this machine that do numbered jobs.

What a job is, its caller knows: a worker calls `make()` once and what that gives with each number. A worker that dies
takes the job in its hands with it, and nothing else. No torch here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from verify.processes import standby, start

HELD = 2  # jobs that a process holds, at most: it begins the next one while this one puts the last one down


@dataclass(frozen=True)
class Ended:
    """A job that has ended: its value or the exception that it raised, or how the process died that did it, and which
    of the processes it was, counted from 0."""

    number: int
    value: Any = None
    died: str = ""
    seconds: float = 0.0
    process: int = 0


class Spent(Exception):
    """Raised by a job whose process can do no other, such as one that lost its device; `value` is the job's."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value


def ended(
    make: Callable[[], Callable[[int], Any]], groups: Sequence[Sequence[int]], places: Sequence[Mapping[str, str]],
    wanted: Callable[[int], bool] = lambda number: True, forking: bool = False,
    here: Callable[[int], Any] | None = None,
) -> Generator[Ended]:  # fmt: skip
    """Every job of the groups, in the order in which they end.

    make     picklable
    groups   jobs that share what they need, and so a process; the first is begun first. The last ones are divided
             where others have nothing left to do
    places   the variables of each process's environment, beside those of this one
    wanted   whether a job is still to be done, asked when it is due
    forking  whether jobs start processes by `verify.processes.standby`
    here     does a job in this process, which is then one of those that do them: it has imported what they still have
             to, and answers none while it does its own

    Processes hold HELD jobs each, of one group unless this one does jobs too, but of the last ones no more than their
    part, which are for who is free first.

    To be closed (`contextlib.closing`): that kills the processes. Raises RuntimeError where a process ends before it
    has begun a job, and what interrupts `here`.
    """
    waiting = deque(deque(group) for group in groups)
    given = pickle.dumps(make), forking
    workers = [_Worker(k, given, place) for k, place in enumerate(places[: sum(map(len, groups))])]
    mine = None if here is None else _Here(len(workers), here)
    everyone: list[Hands] = [*workers, *([] if mine is None else [mine])]

    def give(states: Container[str]) -> None:
        for worker in workers:
            if worker.state in states and len(worker.later) < HELD - 1:
                left = sum(map(len, waiting)) + sum(len(one.own) for one in everyone)
                worker.begin(waiting, everyone, wanted, min(HELD, left // len(everyone)), across=mine is not None)

    try:
        while waiting or any(one.number is not None or one.own for one in everyone):
            give(("ready",))
            sources: dict[Any, _Worker] = {source: w for w in workers for source in w.sources}
            ready = wait(list(sources), None if mine is None else 0)
            if mine is not None and not ready:
                mine.begin(waiting, everyone, wanted)
                give(("starting", "ready"))  # one that starts finds them when it is ready
                mine.work()
                if (one := mine.finish(mine.value)) is not None:
                    yield one
                if one is not None or not workers:
                    continue
                ready = wait(list(sources))
            for worker in {id(w): w for w in (sources[source] for source in ready)}.values():
                alive = worker.process.poll() is None  # asked first: it may send and die
                yield from worker.told()
                if not alive:
                    if (one := worker.fallen()) is not None:
                        yield one
                    if waiting or worker.own:
                        worker.start()
                    else:
                        workers.remove(worker)
                        everyone.remove(worker)
    finally:
        for worker in workers:
            worker.process.kill(group=True)
        # One that has opened a GPU takes a second to end, for which nobody waits.
        threading.Thread(target=_put_away, args=(workers,), daemon=True).start()


@dataclass
class Hands:
    """What a process has to do: the rest of the group that it is in, the job in its hands, and those after that where
    it holds several. which: of the processes, counted from 0."""

    which: int
    own: deque[int] = field(default_factory=deque, init=False)
    took: list[float] = field(default_factory=list, init=False)  # seconds of the group's jobs so far
    number: int | None = field(default=None, init=False)
    later: deque[int] = field(default_factory=deque, init=False)
    since: float = field(default=0.0, init=False)

    def send(self, number: int) -> None:
        """Let the process do a job."""
        raise NotImplementedError

    def begin(
        self, waiting: deque[deque[int]], others: Sequence[Hands], wanted: Callable[[int], bool], count: int = 1,
        across: bool = False,
    ) -> None:  # fmt: skip
        """The next job of its group, of the next group, or of one that another is in, until it holds `count`. across:
        whether it may hold jobs of several groups."""
        while self.number is None or len(self.later) < count - 1:
            if not self.own and (self.number is None or across):
                self.own, self.took = waiting.popleft() if waiting else _part(others), []
            if not self.own:
                return
            if not wanted(number := self.own.popleft()):
                continue
            if self.number is None:
                self.number, self.since = number, time.monotonic()
            else:
                self.later.append(number)
            self.send(number)

    def finish(self, value: Any) -> Ended | None:
        """The job in its hands, which gave `value`."""
        if self.number is None:
            return None
        number, self.number = self.number, self.later.popleft() if self.later else None
        now = time.monotonic()
        self.took.append(now - self.since)
        self.since = now
        return Ended(number, value, seconds=self.took[-1], process=self.which)


@dataclass
class _Here(Hands):
    """This process."""

    do: Callable[[int], Any]
    value: Any = field(default=None, init=False)

    def send(self, number: int) -> None:
        """Nothing: `work` does it, once the others have theirs."""

    def work(self) -> None:
        """Do the job in its hands, if there is one."""
        if self.number is None:
            return
        try:
            self.value = self.do(self.number)
        except Exception as error:
            self.value = error


@dataclass
class _Worker(Hands):
    """A process of this machine."""

    given: tuple[bytes, bool]
    place: Mapping[str, str]
    state: str = field(default="", init=False)  # "starting", "ready" or "leaving"

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.process = standby.Process("verify.jobs.pool:serve")
        self.pipe, self.state = self.process.connection, "starting"
        self.pipe.send((sys.path, dict(self.place), *self.given))

    @property
    def sources(self) -> list[Any]:
        """What is ready where it has sent something or has ended."""
        sentinel = self.process.sentinel
        return [self.pipe] if sentinel is None else [self.pipe, sentinel]

    def send(self, number: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died, which `fallen` tells
            self.pipe.send(number)

    def told(self) -> Iterator[Ended]:
        """What it has sent: that it is ready, or what became of its job."""
        with contextlib.suppress(EOFError, OSError):
            while self.pipe.poll():
                before, (self.state, value) = self.state, self.pipe.recv()
                if before == "starting":
                    self.since = time.monotonic()
                elif (one := self.finish(value)) is not None:
                    yield one
                if self.state == "leaving":
                    self.put_back()

    def put_back(self) -> None:
        """The jobs in its hands, which it has not begun."""
        self.own.extendleft(reversed([*([] if self.number is None else [self.number]), *self.later]))
        self.number = None
        self.later.clear()

    def fallen(self) -> Ended | None:
        """The job that it died of, if it was in one."""
        code = self.process.wait() or 0
        number, self.number = self.number, None
        self.put_back()
        self.process.end()
        told = f"was killed by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"
        if self.state == "starting":
            raise RuntimeError(f"a worker process {told} before it did anything")
        return None if number is None else Ended(number, died=f"the process that ran it {told}", process=self.which)

    def end(self) -> None:
        """With the compilers that it has started."""
        self.process.end(group=True)


def _put_away(workers: Iterable[_Worker]) -> None:
    for worker in workers:
        worker.end()


def _part(others: Sequence[Hands]) -> deque[int]:
    """Half of the jobs that wait in a process, where what they share took less than they will."""
    found: deque[int] = deque()
    for other in sorted(others, key=lambda w: -len(w.own)):
        first, later = other.took[:1], other.took[1:]
        if len(other.own) > 1 and later and sum(later) / len(later) * len(other.own) > first[0]:
            for _ in range(len(other.own) // 2):
                found.appendleft(other.own.pop())
            break
    return found


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# In the worker.


def serve(channel: int) -> None:
    """Do jobs until there are no more. `make` is unpickled after the environment is set: that may import torch."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    pipe = Connection(channel)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended
        path, place, make, forking = pipe.recv()
        sys.path[:] = path
        os.environ.update(place)
        start.settle()
        if forking:
            standby.divide(channel)
        standby.end_with_parent(_end)  # a thread, with which nothing is to be forked
        with start.importing():
            do = pickle.loads(make)()
        pipe.send(("ready", None))
        while True:
            pipe.send(found := attempt(do, pipe.recv()))
            if found[0] == "leaving":
                os._exit(0)  # what it has lost may not be there to be put away


def attempt(do: Callable[[int], Any], number: int) -> tuple[str, Any]:
    """What a job gives or raises, after "ready", or "leaving" where the process can do no other."""
    try:
        return "ready", do(number)
    except Spent as spent:
        return "leaving", spent.value
    except (Exception, KeyboardInterrupt) as error:
        return "ready", _told(error)


def _told(error: BaseException) -> BaseException:
    """The exception as another process can raise it, with its traceback as a note."""
    note = "".join(traceback.format_exception(error))
    try:
        error = pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"in a worker process:\n{note}")
    return error


def _end() -> None:
    """End this process and the compilers that it has started."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
