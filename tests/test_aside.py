"""Processes that answer questions while the one that asks goes on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from numbered import answering
from verify.jobs import aside
from verify.jobs.aside import HELD, Aside


@pytest.fixture
def two() -> Any:
    found = Aside(answering, 2)
    yield found
    found.end()


def test_questions_are_answered_by_number(two: Aside) -> None:
    numbers = {two.ask(k): k for k in range(8, 28)}
    assert {number: two.answer(number) for number in reversed(numbers)} == {n: 2 * k for n, k in numbers.items()}


def test_what_raises_is_no_answer(two: Aside) -> None:
    wrong, right = two.ask("odd"), two.ask(4)
    assert (two.answer(right), two.answer(wrong)) == (8, None)


def test_a_process_that_dies_leaves_its_questions_unanswered(two: Aside) -> None:
    """Those of the other are answered, and so are later ones."""
    numbers = [two.ask(k) for k in (7, 1, 2, 3)]
    found = [two.answer(number) for number in numbers]
    assert found[0] is None and found[1::2] == [2, 6] and two.answer(two.ask(5)) == 10
    assert two.free(8)


def test_nobody_answers_where_all_have_died(two: Aside) -> None:
    assert [two.answer(number) for number in [two.ask(7), two.ask(7), two.ask(1)]] == [None] * 3
    assert not two.free(8) and two.answer(two.ask(1)) is None


def test_one_that_hangs_is_given_up(two: Aside, monkeypatch: pytest.MonkeyPatch) -> None:
    assert two.answer(two.ask(1)) == 2
    monkeypatch.setattr(aside, "LONGEST", 0.3)
    began = time.monotonic()
    assert two.answer(two.ask(60)) is None and time.monotonic() - began < 20


def test_no_more_are_held_than_are_soon_answered(two: Aside) -> None:
    for _ in range(2 * HELD):
        assert two.free(8)
        two.ask(60)
    assert not two.free(8)


def test_what_would_not_be_taken_at_once_waits_for_one_that_is_idle(two: Aside) -> None:
    large = 1 << 20
    assert not two.free(large)  # they start
    while not all(hand.ready for hand in two._hands):
        assert two.answer(two.ask(1)) == 2
    two.ask(60)
    assert two.free(large)
    two.ask(60)
    assert not two.free(large) and two.free(8)


def test_who_asks_does_not_wait_for_one_that_is_busy(two: Aside) -> None:
    """Questions of more than a socket holds."""
    began = time.monotonic()
    for _ in range(2 * HELD):
        two.ask(60)
        two.ask(b"0" * (1 << 22))
    assert time.monotonic() - began < 30
    two.end()
    assert time.monotonic() - began < 50


def test_the_processes_end(two: Aside) -> None:
    processes = [hand.process for hand in two._hands]
    two.ask(60)
    two.end()
    assert all(process.poll() is not None for process in processes)
