"""Triggers and their watchers in an event loop with short intervals, and a store that records when it is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from airflow.triggers.base import BaseTrigger

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.stores.kinds import sql
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.triggers.polling import CLOSING
from airflow_provider_coordination.triggers.watchers import PollPace, Watchers, install_watchers
from tests.coordination.unreliable_store import UnreliableStore
from tests.support import waiting

T = TypeVar("T")

QUICK = PollPace(
    poll=0.03, min_pause=0.01, max_retry_pause=0.1, reread_interval=60, retry_interval=0.02, gone_after=0.05
)
LONGEST_SECONDS = waiting.PATIENCE_SECONDS


def in_loop(work: Callable[[Watchers], Awaitable[T]], *, pace: PollPace = QUICK, clock: Clock | None = None) -> T:
    """Do work in an event loop whose watchers are in a hurry."""

    async def run() -> T:
        watchers = Watchers(pace, clock)
        install_watchers(watchers)
        async with asyncio.timeout(LONGEST_SECONDS):
            return await work(watchers)

    return asyncio.run(run())


def first_payload(
    trigger: BaseTrigger,
    *,
    pace: PollPace = QUICK,
    clock: Clock | None = None,
    while_waiting: Callable[[], Any] | None = None,
) -> Any:
    """Return the payload of a trigger's first event.

    :param while_waiting: called once it waits.
    """

    async def run(watchers: Watchers) -> Any:
        fired = asyncio.create_task(payload_of(trigger))
        if while_waiting is not None:
            await until(lambda: bool(watchers.sources))
            await pause(watchers)
            assert not fired.done()
            await asyncio.to_thread(while_waiting)
        return await fired

    return in_loop(run, pace=pace, clock=clock)


async def payload_of(trigger: BaseTrigger) -> Any:
    """Return the payload of a trigger's first event, as the triggerer gets it, and let the trigger clean up."""
    events = trigger.run()
    try:
        return (await anext(events)).payload  # type: ignore[call-overload]
    finally:
        await trigger.cleanup()


async def pause(watchers: Watchers, looks: int = 4) -> None:
    """Let some looks pass."""
    await asyncio.sleep(looks * watchers.pace.poll)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(LONGEST_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


class WatchedStore(UnreliableStore):
    """A remote store in memory that records whether it was closed."""

    def __init__(self) -> None:
        super().__init__(InMemoryStore())
        self.closed = False
        self.opened = 0

    def close(self) -> None:
        self.closed = True

    def wait_until_closed(self) -> bool:
        return waiting.until(lambda: self.closed)


@contextmanager
def watched_store() -> Iterator[WatchedStore]:
    """Let every connection lead to one store in memory; return once no watcher uses it, or a source."""
    store = WatchedStore()

    def opened(settings: object, *, retry_deadline_seconds: float) -> WatchedStore:
        store.opened += 1
        return store

    with patch.object(sql.KIND, "open", opened):
        try:
            yield store
        finally:
            for thread in threading.enumerate():
                if thread.name == CLOSING:
                    thread.join(LONGEST_SECONDS)
