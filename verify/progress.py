"""What a long command shows while it runs, on standard error: a bar on a terminal, else a line now and then.

How long the rest takes is estimated from what jobs of their kind took. No torch here.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

#: Called before each job with (jobs done, jobs in all, what comes next), and at the end with what is done and ''.
Progress = Callable[[int, int, str], None]
#: How one job may be likened to others, the closest kind first; empty for a job that takes no time.
Kinds = tuple[str, ...]

DELAY = 1.0  # seconds before a terminal shows the bar
EVERY = 10.0  # seconds between lines, and before the first, where there is no terminal


class TimeLeft:
    """Seconds left of a list of jobs, one after another, from the times of those that are done.

    A job is expected to take the mean of those done that are of its closest kind of which any is done, or else of all.
    """

    def __init__(self, jobs: Sequence[Kinds]) -> None:
        self._jobs = jobs
        self._taken: dict[str, tuple[int, float]] = {}
        self._done, self._since = 0, 0.0

    def begins(self, done: int, now: float) -> None:
        """Job number `done` begins at the time `now`, and all before it are complete. To be told of each job."""
        if done == self._done + 1:
            kinds = self._jobs[self._done] if self._done < len(self._jobs) else ()
            for kind in (*kinds, "") if kinds else ():
                count, total = self._taken.get(kind, (0, 0.0))
                self._taken[kind] = (count + 1, total + now - self._since)
        self._done, self._since = done, now

    def seconds(self, now: float) -> float | None:
        """None where nothing is known yet."""
        if "" not in self._taken:
            return None
        current, *rest = [self._expected(kinds) for kinds in self._jobs[self._done :]] or [0.0]
        return max(current - (now - self._since), 0.0) + sum(rest)

    def _expected(self, kinds: Kinds) -> float:
        known = next((kind for kind in kinds if kind in self._taken), "")
        count, total = self._taken[known]
        return total / count if kinds else 0.0


def spoken(seconds: float) -> str:
    """A duration in two units at most: '35 s', '4 min 10 s', '1 h 05 min'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@contextlib.contextmanager
def shown(plan: Callable[[], Sequence[Kinds]] | None = None) -> Iterator[Progress]:
    """A callback that shows on standard error how far a command is. plan: the kinds of all its jobs, in order, asked
    for once a command has run for DELAY; None: how long the rest takes is not told."""
    began: list[tuple[int, float]] = []
    known: list[TimeLeft] = []

    def left(done: int) -> str:
        now = time.monotonic()
        began.append((done, now))
        if plan is None or now - began[0][1] < DELAY:
            return ""
        if not known:
            known.append(TimeLeft(plan()))
        for number, moment in began:
            known[0].begins(number, moment)
        del began[1:]
        seconds = known[0].seconds(now)
        return "" if seconds is None else f"about {spoken(seconds)} left"

    with _bar(left) if sys.stderr.isatty() else _lines(left) as progress:
        yield progress


@contextlib.contextmanager
def _lines(left: Callable[[int], str]) -> Iterator[Progress]:
    """A line every EVERY seconds."""
    last = time.monotonic()

    def progress(done: int, total: int, label: str) -> None:
        nonlocal last
        told, now = left(done), time.monotonic()
        if label and now - last >= EVERY:
            last = now
            share = f"{done} of {total} jobs are done"
            print(f"verify: {'; '.join(filter(None, (share, told)))}; next: {label}", file=sys.stderr, flush=True)

    yield progress


@contextlib.contextmanager
def _bar(left: Callable[[int], str]) -> Iterator[Progress]:
    """A bar once DELAY has passed."""
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
    try:
        yield lambda done, total, label: bar.update(
            task, completed=done, total=total, description=label, left=left(done)
        )
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
