"""What the worker processes of `test_jobs` do, with nothing to import that takes time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verify.jobs.pool import Spent


def doubling(die: tuple[int, ...] = (), seconds: float = 0.0) -> Callable[[int], Any]:
    def do(number: int) -> Any:
        time.sleep(seconds)
        if number in die:
            os.kill(os.getpid(), signal.SIGSEGV)
        if number == 7:
            raise ValueError("seven")
        if number == 8:
            raise Spent((8, os.getpid()))
        return 2 * number, os.getpid()

    return do


def nothing() -> Any:
    os._exit(5)


def locking() -> Callable[[int], int]:
    import multiprocessing

    held = []

    def do(number: int) -> int:
        held.append(multiprocessing.RLock())
        return number

    return do


def signing() -> Callable[[int], int]:
    """Leaves a file, NUMBERED_SIGN, that tells that it has begun."""

    def do(number: int) -> int:
        Path(os.environ["NUMBERED_SIGN"]).touch()
        return number

    return do


def sleeping() -> Callable[[int], int]:
    def do(number: int) -> int:
        time.sleep(1)
        return number

    return do


def telling() -> Callable[[int], float]:
    """Tells when it was begun."""
    return lambda number: time.monotonic()


def answering() -> Callable[[Any], Any]:
    def answer(question: Any) -> Any:
        if question == 7:
            os.kill(os.getpid(), signal.SIGSEGV)
        if question == 60:
            time.sleep(60)
        return 2 * int(question)

    return answer
