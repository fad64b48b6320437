"""The memory of a slot keeps its limit, serves requests in order, and times out."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from airflow_provider_coordination.spark.slot_memory import SlotMemory
from tests.support.waiting import PATIENCE_SECONDS

SHORT = 0.05


@pytest.fixture
def memory() -> SlotMemory:
    return SlotMemory(100)


def waiting(pool: ThreadPoolExecutor, memory: SlotMemory, size: int) -> Future[bool]:
    """Let a thread ask for memory, and return once it waits for it."""
    before = len(memory._waiting)
    asked = pool.submit(memory.hold, size)
    while len(memory._waiting) == before and not asked.done():
        time.sleep(0.001)
    return asked


def test_available_memory_is_held_at_once(memory: SlotMemory) -> None:
    assert memory.hold(60) and memory.hold_now(40)
    assert not memory.hold_now(1)
    assert memory.largest == 100


def test_first_request_is_served_before_a_smaller_one(memory: SlotMemory) -> None:
    memory.hold(100)
    with ThreadPoolExecutor(2) as pool:
        large = waiting(pool, memory, 80)
        small = waiting(pool, memory, 10)
        assert not memory.hold_now(1)
        memory.let_go(50)
        assert not small.done()
        memory.let_go(30)
        assert large.result(PATIENCE_SECONDS)
        memory.let_go(20)
        assert small.result(PATIENCE_SECONDS)


def test_expired_request_leaves_and_the_next_is_served(memory: SlotMemory) -> None:
    memory.hold(50)
    with ThreadPoolExecutor(2) as pool:
        impatient = pool.submit(memory.hold, 80, SHORT)
        while memory.hold_now(0):
            time.sleep(0.001)
        small = waiting(pool, memory, 10)
        assert not impatient.result(PATIENCE_SECONDS)
        assert small.result(PATIENCE_SECONDS)


def test_oversized_request_gets_all_memory_alone(memory: SlotMemory) -> None:
    memory.hold(1)
    assert not memory.hold(101, SHORT)
    memory.let_go(1)
    assert memory.hold(101)
    assert not memory.hold_now(1)


def test_memory_in_use_counts_against_requests(memory: SlotMemory) -> None:
    memory.let_go(0, for_those=150)
    assert not memory.hold_now(1)
    memory.let_go(60)
    assert memory.hold_now(10)
    assert memory.largest == 150


def test_threads_never_hold_more_than_the_limit(memory: SlotMemory) -> None:
    held, most, lock = 0, 0, threading.Lock()

    def work(size: int) -> None:
        nonlocal held, most
        for _ in range(50):
            assert memory.hold(size, 60)
            with lock:
                held += size
                most = max(most, held)
            time.sleep(0.0001)
            with lock:
                held -= size
            memory.let_go(size)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(work, [5, 15, 25, 45] * 5))
    assert 45 < most <= memory.largest <= 100
    assert memory.hold_now(100), "a thread did not release its bytes"
