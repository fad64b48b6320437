"""What sources cost while nothing arrives: the triggerer's load and memory, its requests, and the time until it wakes.

200 sources, each a stream of one shard with a supervisor that is idle, wait in one process as in a triggerer, with the
real triggers and requests to a Kinesis server. The store is a SQLite database, PostgreSQL or a DynamoDB engine.

- *share of a core*: the processor time of the process while it waits. *memory*: its resident memory, Airflow included.
- *requests an hour*: of a source to its store, and on DynamoDB what 200 sources cost a month on demand (us-east-1:
  0.125 and 0.625 dollars for a million units of reading and writing).
- *reads a minute*: of each shard, which allows 300.
- *woken after*: from a record's arrival to the event that starts the supervisor's task.

Usage: python -m benchmarks.quiet [--quick] [--sources N] [--stores sqlite,postgresql,dynamodb]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow.triggers.base import TriggerEvent

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.hooks.supervision import SourceProbe
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant, DetailedState, Health, Idleness
from airflow_provider_coordination.triggers import polling
from airflow_provider_coordination.triggers.supervisor import SupervisorTrigger
from benchmarks.metered_dynamodb import Meter, Tally
from benchmarks.trigger_load import postgresql
from demo.local_kinesis import REGION
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.kinesis_server.process import KinesisServerProcess

CONN_ID = "quiet"
STORES = ("sqlite", "postgresql", "dynamodb")
PERIOD_SECONDS = 30
SETTLED_SECONDS = 2 * PERIOD_SECONDS
READ_DOLLARS, WRITE_DOLLARS = 0.125e-6, 0.625e-6
HOURS_A_MONTH = 730


@dataclass(frozen=True, kw_only=True)
class Load:
    """What waiting costs.

    :param core_share: the processor time of the process, as a share of one core.
    :param memory_mb: its resident memory, in MB.
    :param store_calls_an_hour: calls to the store for a source.
    :param dollars_a_month: what all sources cost on DynamoDB; None for another store.
    :param reads_a_minute: reads of each shard.
    :param woken_after: the median and the longest time until a source with a record wakes, in seconds.
    """

    core_share: float
    memory_mb: int
    store_calls_an_hour: float
    dollars_a_month: float | None
    reads_a_minute: float
    woken_after: tuple[float, float]


class MeteredStore:
    """Opens the triggerer's store, and counts the calls to it.

    :param settings: of the store.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.meter: Meter | None = None

    def open(self, settings: StoreSettings) -> CoordinationStore:
        """Return the opened store."""
        store: Any = open_store(settings)
        inner = store
        while not isinstance(inner, DynamoDbStore) and hasattr(inner, "inner"):
            inner = inner.inner
        if isinstance(inner, DynamoDbStore):
            self.meter = Meter(inner.client, lambda: None)
        for name in ("get", "get_many", "query", "browse", "transact", "delete", "count_by_status"):
            setattr(store, name, self._counted(getattr(store, name)))
        opened: CoordinationStore = store
        return opened

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            return call(*arguments, **named)

        return counted


def source_name(number: int) -> str:
    """Return the name of a source and its stream."""
    return f"quiet-{number:03d}"


def make_idle(store: CoordinationStore, number: int) -> Claimant:
    """Make a source whose shard is read, and which is idle; return who supervises it."""
    source = source_name(number)
    coordinator = SourceCoordinator(store, source, "benchmark")
    coordinator.initialize()
    kept = SupervisionStore(coordinator.view)
    spec = {
        "version": 1,
        "source": source,
        "reads": {"kinesis": {"streams": source}},
        "writes": [{"parquet": {"path": f"/data/lake/{source}"}}],
        "supervise": {"start_delay": 0, "idle_after": "PT10M", "period": PERIOD_SECONDS},
    }
    kept.submit(spec)
    probe = SourceProbe(coordinator)
    probe.follow(IngestionSpec.read(spec))
    probe.discover_partitions()
    now = datetime.now(UTC)
    claimant = Claimant(owner=f"supervisor of {source}", dag_id=f"supervise_{source}", run_at=now)
    stored = kept.acquire(claimant)
    idle = Idleness(since=now, spec_version=1, open_partitions=1, confirmed_at=now)
    health = Health(state=DetailedState.IDLE, has_succeeded=True)
    kept.save(stored, replace(stored.supervision, started_at=now, open_partitions=1, idle=idle, health=health))
    return claimant


def memory_mb() -> int:
    """Return the resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


async def wait_and_wake(
    claimants: Sequence[Claimant], kinesis: KinesisServerProcess, metered: MeteredStore, seconds: float, woken: int
) -> Load:
    """Let the triggers wait, then wake some sources; return the load."""
    running: list[asyncio.Future[TriggerEvent]] = []
    for number, claimant in enumerate(claimants):
        trigger = SupervisorTrigger(
            claimant=claimant.to_mapping(), source=source_name(number), coordination_conn_id=CONN_ID
        )
        running.append(asyncio.ensure_future(anext(trigger.run())))
        await asyncio.sleep(0)
    await asyncio.sleep(SETTLED_SECONDS)
    reads = await asyncio.to_thread(kinesis.control, "calls")
    calls, cpu, began, cost = metered.calls, time.process_time(), time.perf_counter(), Tally()
    with ExitStack() as stack:
        if metered.meter is not None:
            cost = stack.enter_context(metered.meter.counting())
        await asyncio.sleep(seconds)
    lasted = time.perf_counter() - began
    core_share = (time.process_time() - cpu) / lasted
    hours = lasted / 3600
    calls_an_hour = (metered.calls - calls) / len(claimants) / hours
    read = (await asyncio.to_thread(kinesis.control, "calls"))["GetRecords"] - reads["GetRecords"]
    done = [task.result() for task in running if task.done()]
    assert not done, f"{len(done)} sources woke without a record, such as {done[0].payload}"
    memory = memory_mb()
    delays = await asyncio.gather(*(_woken_after(running[n], kinesis, n, woken) for n in range(woken)))
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    dollars = (cost.read_units * READ_DOLLARS + cost.write_units * WRITE_DOLLARS) / hours * HOURS_A_MONTH
    return Load(
        core_share=round(core_share, 3),
        memory_mb=memory,
        store_calls_an_hour=round(calls_an_hour),
        dollars_a_month=None if metered.meter is None else round(dollars, 2),
        reads_a_minute=round(read / len(claimants) / hours / 60, 1),
        woken_after=(round(statistics.median(delays), 1), round(max(delays), 1)),
    )


async def _woken_after(
    task: asyncio.Future[TriggerEvent], kinesis: KinesisServerProcess, number: int, woken: int
) -> float:
    await asyncio.sleep(PERIOD_SECONDS * number / woken)
    client = kinesis.client()
    put = lambda: client.put_record(StreamName=source_name(number), Data=b"{}", PartitionKey="k")  # noqa: E731
    await asyncio.to_thread(put)
    began = time.perf_counter()
    event = await task
    assert event.payload["status"] == "turn", event.payload
    return time.perf_counter() - began


def measure(store_of: Mapping[str, str], sources: int, seconds: float, woken: int) -> Load:
    """Return the load of idle sources.

    :param store_of: the extra fields of the connection to their store.
    """
    metered = MeteredStore()
    with KinesisServerProcess() as kinesis:
        client = kinesis.client()
        for number in range(sources):
            client.create_stream(StreamName=source_name(number), ShardCount=1)
        aws = {"region_name": REGION, "endpoint_url": kinesis.endpoint_url}
        connections = {
            f"AIRFLOW_CONN_{CONN_ID.upper()}": {"conn_type": "coordination", "extra": store_of},
            "AIRFLOW_CONN_AWS_DEFAULT": {"conn_type": "aws", "login": "test", "password": "test", "extra": aws},
        }
        defined = {name: json.dumps(connection) for name, connection in connections.items()}
        defined |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        with patch.dict(os.environ, defined), patch.object(polling, "open_store", metered.open):
            from airflow_provider_coordination.hooks.coordination import CoordinationHook

            store = open_store(CoordinationHook(CONN_ID).settings.store)
            claimants = [make_idle(store, number) for number in range(sources)]
            store.close()
            return asyncio.run(wait_and_wake(claimants, kinesis, metered, seconds, woken))


def measure_all(stores: Sequence[str], sources: int, seconds: float, woken: int) -> dict[str, Load]:
    """Return the load by store."""
    measured: dict[str, Load] = {}
    for name in stores:
        with ExitStack() as stack:
            if name == "sqlite":
                store = {"url": f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/quiet.db"}
            elif name == "dynamodb":
                server = stack.enter_context(DynamoDbServer())
                store = {"store": "dynamodb", "table": "coordination", "region": REGION}
                store["endpoint_url"] = server.endpoint_url
            elif (url := stack.enter_context(postgresql())) is not None:
                store = {"url": url}
            else:
                continue
            measured[name] = measure(store, sources, seconds, woken)
            print(f"{name}: {asdict(measured[name])}", flush=True)
    return measured


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 sources for a minute, with SQLite")
    parser.add_argument("--sources", type=int, help="the number of sources; default 200, 20 with --quick")
    parser.add_argument("--stores", help="which of sqlite, postgresql, dynamodb; default all, sqlite with --quick")
    options = parser.parse_args(arguments)
    sources = options.sources or (20 if options.quick else 200)
    stores = options.stores.split(",") if options.stores else STORES[:1] if options.quick else STORES
    logging.disable(logging.WARNING)
    measured = measure_all(stores, sources, 60 if options.quick else 300, min(sources, 5 if options.quick else 20))
    print("\n| store | share of a core | memory, MB | calls a source and hour | dollars a month | woken after, s |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, load in measured.items():
        dollars = "-" if load.dollars_a_month is None else f"{load.dollars_a_month:.2f}"
        woken = f"{load.woken_after[0]} (at most {load.woken_after[1]})"
        print(
            f"| {name} | {load.core_share:.1%} | {load.memory_mb} | {load.store_calls_an_hour:.0f} "
            f"| {dollars} | {woken} |"
        )
    print(json.dumps({"sources": sources, **{name: asdict(load) for name, load in measured.items()}}))


if __name__ == "__main__":
    main()
