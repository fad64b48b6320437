"""Queries to stores: identical ones run once, and a store that hangs or is unavailable blocks no other one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.ui import store_queries
from airflow_provider_coordination.ui.store_queries import QueryScheduler, Stores
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def queries(connect: Any, store_url: str) -> Iterator[QueryScheduler]:
    for name in ("a", "b"):
        connect(name, "coordination", extra={"url": store_url, "table": name})
    made = QueryScheduler(Stores())
    yield made
    made.close()


class CountedQuery:
    """A query that counts its runs, and returns when it may."""

    def __init__(self, lasts: float = 0.0) -> None:
        self.asked = 0
        self.lasts = lasts
        self.may_end = threading.Event()

    def __call__(self) -> int:
        self.asked += 1
        self.may_end.wait(PATIENCE_SECONDS)
        time.sleep(self.lasts)
        return self.asked


def test_identical_queries_at_once_run_once(queries: QueryScheduler) -> None:
    question = CountedQuery()

    async def all_of_them() -> list[int]:
        tabs = [asyncio.create_task(queries.read("a", "rows", question)) for _ in range(50)]
        await asyncio.sleep(0)
        question.may_end.set()
        return await asyncio.gather(*tabs)

    assert set(asyncio.run(all_of_them())) == {1}


def test_query_from_another_event_loop_shares_the_result(
    queries: QueryScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_queries, "FRESH_SECONDS", 60.0)
    question = CountedQuery()
    question.may_end.set()
    with ThreadPoolExecutor(8) as loops:
        found = list(loops.map(lambda _: asyncio.run(queries.read("a", "rows", question)), range(8)))
    assert set(found) == {1}


def test_cancelled_request_leaves_the_result_to_others(queries: QueryScheduler) -> None:
    question = CountedQuery()

    async def two_of_them() -> int:
        first = asyncio.create_task(queries.read("a", "rows", question))
        second = asyncio.create_task(queries.read("a", "rows", question))
        while not question.asked:
            assert not first.done(), first.result()
            await asyncio.sleep(0.001)
        first.cancel()
        await asyncio.sleep(0)
        question.may_end.set()
        return await second

    assert asyncio.run(two_of_them()) == 1


def test_action_invalidates_queries_of_its_connection(queries: QueryScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_queries, "FRESH_SECONDS", 60.0)
    question, lasting, other = CountedQuery(), CountedQuery(), CountedQuery()
    for each in (question, lasting, other):
        each.may_end.set()

    async def one_after_the_other() -> list[int]:
        for _ in range(2):
            found = [
                await queries.read("a", "rows", question),
                await queries.read("a", "names", lasting, survives_actions=True),
                await queries.read("b", "rows", other),
            ]
            await queries.run_action("a", lambda: None)
        return found

    assert asyncio.run(one_after_the_other()) == [2, 1, 1]


def test_slow_query_runs_less_often(queries: QueryScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_queries, "FRESH_SECONDS", 0.0)
    slow, quick = CountedQuery(lasts=0.1), CountedQuery()
    for each in (slow, quick):
        each.may_end.set()

    async def three_times() -> None:
        for _ in range(3):
            await queries.read("a", "slow", slow, cooldown=1000)
            await queries.read("a", "quick", quick, cooldown=0)
            await asyncio.sleep(0.01)

    asyncio.run(three_times())
    assert (slow.asked, quick.asked) == (1, 3)


def test_query_among_many_similar_ones_runs_less_often(
    queries: QueryScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_queries, "FRESH_SECONDS", 0.001)
    card, alone = CountedQuery(), CountedQuery()
    for each in (card, alone):
        each.may_end.set()

    async def three_times() -> None:
        for _ in range(3):
            await queries.read("a", "card", card, cooldown=0, similar=10_000_000)
            await queries.read("a", "alone", alone, cooldown=0)
            await asyncio.sleep(0.01)

    asyncio.run(three_times())
    assert (card.asked, alone.asked) == (1, 3)
    asyncio.run(queries.read("a", "card", card, cooldown=0))
    assert card.asked == 2, "who asks for one alone gets it fresh"


def test_hanging_connection_blocks_no_other_one(queries: QueryScheduler) -> None:
    hanging, quick = CountedQuery(), CountedQuery()
    quick.may_end.set()

    async def beside() -> int:
        stuck = [asyncio.create_task(queries.read("a", number, hanging)) for number in range(20)]
        while hanging.asked < store_queries.THREADS:
            await asyncio.sleep(0.001)
        found = await queries.read("b", "rows", quick)
        hanging.may_end.set()
        await asyncio.gather(*stuck)
        return found

    assert asyncio.run(beside()) == 1


def test_request_times_out(queries: QueryScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_queries, "RESPONSE_SECONDS", 0.05)
    question = CountedQuery()

    async def impatient() -> int:
        with pytest.raises(StoreUnavailableError, match=r"no response within 0\.05 s"):
            await queries.read("a", "rows", question)
        question.may_end.set()
        while True:  # the answer is there for who asks later
            await asyncio.sleep(0.01)
            try:
                return await queries.read("a", "rows", question)
            except StoreUnavailableError:
                continue

    assert asyncio.run(impatient()) == 1


def test_unavailable_store_is_not_queried_again_for_seconds(store_url: str) -> None:
    stores, asked = Stores(), []

    def away(store: Any) -> None:
        asked.append(store)
        raise StoreUnavailableError("gone")

    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            stores.query(StoreSettings.from_url(store_url), away)
    assert len(asked) == 1
    assert stores.query(StoreSettings.from_url(store_url, "other"), lambda store: store.kind) == "sqlite"
    stores.close()


def test_undefined_connection_starts_no_threads(queries: QueryScheduler) -> None:
    async def undefined() -> None:
        for number in range(5):
            with pytest.raises(Exception, match="is not defined"):
                await queries.read(f"nope{number}", "rows", lambda: 1)

    before = threading.active_count()
    asyncio.run(undefined())
    assert threading.active_count() <= before + store_queries.THREADS
