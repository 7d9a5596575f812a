"""What a long command shows while it runs, on standard error: a bar on a terminal, else a line now and then.

How long the rest takes is estimated from what jobs of their kind took. No torch here.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

#: Called with (jobs done, jobs in all, what is next or was last): first, when a job has ended, and with '' at the end.
#: Fourth, where that is known: the job that has ended, as `Done`.
Progress = Callable[..., None]
#: The kinds of a job, the closest first, to find others like it; empty for a job that takes no time.
Kinds = tuple[str, ...]
#: ... and a rough estimate of its seconds.
Awaited = tuple[Kinds, float]

DELAY = 1.0  # seconds before a terminal shows the bar
DAY = 86400
ANEW = 0.5  # seconds between two texts beside the bar
LEAST = 1e-3  # seconds that a job is estimated at
EVERY = 10.0  # seconds between lines, and before the first, where there is no terminal


class Done(NamedTuple):
    """A job that has ended: its number, seconds and inputs, the process that did it, what it was, and how many
    processes there are (0: not known)."""

    number: int
    seconds: float
    inputs: int
    process: int = 0
    label: str = ""
    processes: int = 0


class TimeLeft:
    """Seconds left of a list of jobs, several running at a time, from the times of finished ones.

    A job is expected to take so many times its estimate as finished jobs of its closest kind took of theirs, or all
    where no such job has finished: the longest are begun first. Jobs are expected to run one in each process or, where
    their number is not known, as many at a time as until now.
    """

    def __init__(self, jobs: Sequence[Awaited], began: float) -> None:
        self._left = {number: one for number, one in enumerate(jobs) if one[0]}
        self._taken: dict[str, tuple[float, float]] = {}  # by kind: what was estimated, and what it took
        self._began = self._since = began
        self._processes = 0

    def ends(self, number: int, seconds: float, now: float, processes: int = 0) -> None:
        """Record that a job has ended and took `seconds`."""
        kinds, estimate = self._left.pop(number, ((), LEAST))
        for kind in (*kinds, ""):
            before, total = self._taken.get(kind, (0.0, 0.0))
            self._taken[kind] = (before + max(estimate, LEAST), total + seconds)
        self._since, self._processes = now, processes

    def seconds(self, now: float) -> float | None:
        """None where nothing is known yet."""
        if "" not in self._taken:
            return None
        together = self._processes or max(self._taken[""][1] / max(self._since - self._began, 1e-9), 1.0)
        each = [*map(self._expected, self._left.values()), 0.0]
        return max(sum(each) / together, max(each), now - self._since) - (now - self._since)

    def _expected(self, one: Awaited) -> float:
        kinds, estimate = one
        before, total = self._taken[next((kind for kind in kinds if kind in self._taken), "")]
        return max(estimate, LEAST) * total / before


def spoken(seconds: float) -> str:
    """A duration in two units at most: '35 s', '4 min 10 s', '1 h 05 min', '3 d 4 h', '2.8 years'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 2 * DAY:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // DAY} d {whole % DAY // 3600} h" if whole < 730 * DAY else f"{whole / DAY / 365:.1f} years"


@contextlib.contextmanager
def shown(plan: Callable[[], Sequence[Awaited]] | None = None) -> Iterator[Progress]:
    """A callback that shows a command's progress on standard error. plan: gives what is known of all its jobs, in
    order; called once the command has run for DELAY. None: the time left is not shown."""
    began = time.monotonic()
    ends: list[tuple[int, float, float, int]] = []
    known: list[TimeLeft] = []
    inputs = 0
    each: dict[int, tuple[int, str]] = {}  # inputs of each process, and its last job

    def note(ended: Done | None) -> None:
        nonlocal inputs
        if ended is not None:
            ends.append((ended.number, ended.seconds, time.monotonic(), ended.processes))
            inputs += ended.inputs
            each[ended.process] = each.get(ended.process, (0, ""))[0] + ended.inputs, ended.label

    def left() -> str:
        now = time.monotonic()
        if plan is None or now - began < DELAY:
            return ""
        if not known:
            known.append(TimeLeft(plan(), began))
        for one in ends:
            known[0].ends(*one)
        ends.clear()
        seconds = known[0].seconds(now)
        rate = f"{inputs / (now - began):.2g} inputs a second" if inputs else ""
        return "; ".join(filter(None, (rate, "" if seconds is None else f"about {spoken(seconds)} left")))

    def processes() -> str:
        """A line for each of several processes."""
        seconds = max(time.monotonic() - began, 1e-9)
        told = [
            f"process {k}: {n / seconds:.2g} inputs a second; last: {last}" for k, (n, last) in sorted(each.items())
        ]
        return "".join(f"\n{line}" for line in told) if len(told) > 1 else ""

    with _bar(left, processes) if sys.stderr.isatty() else _lines(left) as show:

        def progress(done: int, total: int, label: str, ended: Done | None = None) -> None:
            note(ended)
            show(done, total, label)

        yield progress


@contextlib.contextmanager
def _lines(left: Callable[[], str]) -> Iterator[Callable[[int, int, str], None]]:
    """A line every EVERY seconds. left: asked for it, since it goes through all jobs that are left."""
    last = time.monotonic()

    def show(done: int, total: int, label: str) -> None:
        nonlocal last
        now = time.monotonic()
        if label and now - last >= EVERY:
            last = now
            share = f"{done} of {total} jobs are done ({done / total:.0%})"
            print(f"verify: {'; '.join(filter(None, (share, left(), label)))}", file=sys.stderr, flush=True)

    yield show


@contextlib.contextmanager
def _bar(left: Callable[[], str], processes: Callable[[], str]) -> Iterator[Callable[[int, int, str], None]]:
    """A bar once DELAY has passed, and below it what each process does; anew twice a second at most."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    )
    task = bar.add_task("starting", total=None, left="")
    timer = threading.Timer(DELAY, bar.start)
    timer.start()
    last = 0.0

    def show(done: int, total: int, label: str) -> None:
        nonlocal last
        bar.update(task, completed=done, total=total)
        if not label or time.monotonic() - last >= ANEW:
            bar.update(task, left=left(), description=label + processes())
            last = time.monotonic()

    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
