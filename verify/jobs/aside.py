"""Processes of this machine that answer questions while the one that asks goes on. No torch here."""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import wait
from queue import SimpleQueue
from threading import Thread
from typing import Any

from verify.processes import standby

HELD = 4  # questions that a process holds, at most
LARGEST = 1 << 19  # bytes of a question that one takes which holds others
LONGEST = 60.0  # seconds after which one that has not answered is given up


class Aside:
    """So many processes, each with what `make()`, which is picklable, gives there: a function of one question.

    To be ended. A process that dies leaves its questions unanswered.
    """

    def __init__(self, make: Callable[[], Callable[[Any], Any]], count: int) -> None:
        self._answers: dict[int, Any] = {}
        self._asked = 0
        self._hands = [_Hand(pickle.dumps(make)) for _ in range(count)]

    def free(self, size: int) -> bool:
        """Whether one more question, of about so many bytes, would be answered soon. A large one is for one of several
        processes: two cores, which share caches, take no less time for it than one."""
        self._receive(0.0)
        if size > LARGEST:
            return len(self._hands) > 1 and any(hand.ready and not hand.waiting for hand in self._hands)
        return any(len(hand.waiting) < HELD for hand in self._hands)

    def ask(self, question: Any) -> int:
        """The number of a question, for one of the processes that hold the fewest. It is pickled as it is."""
        self._asked += 1
        least = min(self._hands, key=lambda hand: (len(hand.waiting), not hand.ready), default=None)
        if least is not None:
            least.ask(self._asked, question)
        return self._asked

    def answer(self, number: int) -> Any:
        """What the function gave for the question of that number, once it is there; None where it raised something or
        its process has died."""
        while number not in self._answers and any(number in hand.waiting for hand in self._hands):
            self._receive(LONGEST)
        return self._answers.pop(number, None)

    def end(self) -> None:
        for hand in self._hands:
            hand.end()
        self._hands = []

    def _receive(self, seconds: float) -> None:
        """Take the answers that are there, or arrive within that time."""
        ready = wait([hand.process.connection for hand in self._hands], seconds)
        for hand in [*self._hands]:
            try:
                if hand.process.connection in ready:
                    self._answers |= hand.take()
                elif seconds and hand.waiting and not ready:
                    raise EOFError  # it hangs
            except (EOFError, OSError):
                hand.end()
                self._hands.remove(hand)


class _Hand:
    """A process, and the numbers of the questions that it has not answered. A thread sends them: who asks does not wait
    for one that is busy."""

    def __init__(self, make: bytes) -> None:
        self.process, self.waiting, self.ready = standby.Process("verify.jobs.pool:serve"), deque[int](), False
        self.process.connection.send((sys.path, {}, make, False))
        self._questions = SimpleQueue[Any]()
        self._sender = Thread(target=self._send, daemon=True)

    def ask(self, number: int, question: Any) -> None:
        self.process.start()
        self.waiting.append(number)
        self._questions.put((question,))
        if self._sender.ident is None:
            self._sender.start()

    def end(self) -> None:
        self.process.kill(group=True)  # with which the sender, too, ends
        self._questions.put(())
        if self._sender.ident is not None:
            self._sender.join()
        self.process.end(group=True)

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # it has died, which `take` tells
            for (question,) in iter(self._questions.get, ()):
                self.process.connection.send(question)

    def take(self) -> dict[int, Any]:
        """What it has sent: that it is ready, or an answer. Raises EOFError or OSError where it has died."""
        self.process.start()
        _, value = self.process.connection.recv()
        if not self.ready:
            self.ready = True
            return {}
        return {self.waiting.popleft(): None if isinstance(value, BaseException) else value}
