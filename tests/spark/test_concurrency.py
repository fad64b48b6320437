"""Concurrent calls keep their limit and order, and each raises its own error."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import pytest

from airflow_provider_coordination.spark.concurrency import each_at_once, side_by_side
from tests.support.waiting import PATIENCE_SECONDS

who: ContextVar[str] = ContextVar("who", default="")


def inverse(number: int) -> float:
    return 1 / number


@pytest.mark.parametrize("at_once", [1, 3, 50])
def test_results_are_ordered_with_their_errors(at_once: int) -> None:
    results = list(side_by_side([1, 0, 2, 0, 4], inverse, at_once))
    assert [number for number, _ in results] == [1, 0, 2, 0, 4]
    assert [each if isinstance(each, float) else type(each) for _, each in results] == [
        1.0, ZeroDivisionError, 0.5, ZeroDivisionError, 0.25,
    ]  # fmt: skip


def test_maximum_number_of_calls_run_at_once() -> None:
    together = threading.Barrier(3)
    assert [result for _, result in side_by_side(range(6), lambda _: together.wait(PATIENCE_SECONDS) >= 0, 3)] == [
        True
    ] * 6


def test_waiting_results_never_exceed_allowed_calls() -> None:
    begun: list[int] = []
    results = side_by_side(range(10), begun.append, 2)
    next(results)
    assert len(begun) <= 3
    results.close()


def test_call_has_the_context_of_its_caller() -> None:
    who.set("me")
    assert [result for _, result in side_by_side(range(4), lambda _: who.get(), 2)] == ["me"] * 4


def test_first_error_is_raised_after_all_calls_end() -> None:
    done: list[int] = []

    def act(number: int) -> None:
        if number == 1:
            raise ValueError("one")
        done.append(number)

    with pytest.raises(ValueError, match="one"):
        each_at_once(range(8), act, 4)
    assert sorted(done) == [0, 2, 3, 4, 5, 6, 7]
