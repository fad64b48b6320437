"""Drivers that share thousands of partitions of one source, without Spark: balance, renewals, and the store's load.

Each driver is a process with the coordinator, the balancer and the renewal thread of a job, on a real store. Its rounds
take `ROUND_SECONDS`. In each round it checkpoints the partitions that had records, hands over the leases that others
requested, and rebalances. First all drivers but one hold everything, then the last one joins, then all of them work,
then one is killed.

- *balanced after*: the seconds from the start of the last driver until all hold the same number, plus or minus one
- *late*: renewals that came later than a twelfth of the ownership timeout after they were due
- *oldest*: the largest fraction of its ownership timeout that a lease had used at its renewal, 0.33 at least
- *held again after*: the seconds from the kill of a driver until the others hold its partitions
- *requests*: SQL statements, or requests to DynamoDB, of all drivers a second while all of them work
- *processor*: processor seconds a second of the busiest driver, during the same time

At the end, the leases of the drivers are compared with the store: every partition is held once.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import sqlalchemy as sa

from airflow_provider_coordination.coordination.balancer import Balancer
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.held_leases import LeaseRenewer
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.spark.application import GC_THRESHOLDS
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from airflow_provider_coordination.stores.sql import SqlStore
from benchmarks.acquire_scale import SERVERS, Server

SOURCE = "stream"
ROUND_SECONDS = 10.0
REPORT_SECONDS = 0.5
BUSY_ONE_IN = 2
"""One partition in this number has records in a round."""
PROGRESS = {"kind": "kinesis", "checkpoint": "49590338271490256608559692538361571095921575989136588898", "landed": []}


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param drivers: the number of drivers.
    :param partitions: the number of partitions.
    :param seconds: how long all drivers work once they are balanced.
    :param timeout: the ownership timeout in seconds.
    """

    drivers: int = 8
    partitions: int = 8000
    seconds: float = 120.0
    timeout: float = 60.0


QUICK = Size(drivers=4, partitions=200, seconds=10.0, timeout=15.0)


class Driver:
    """A driver in its own process. It reports its leases through a pipe.

    :param server: the server of the store.
    :param table: the store's table.
    :param name: the driver's name.
    :param size: how much is measured.
    :param pipe: the pipe for reports.
    """

    def __init__(self, server: Server, table: str, name: str, size: Size, pipe: Connection) -> None:
        self._requests = 0
        self._size, self._pipe = size, pipe
        self._store = server.open(table)
        self._count_requests(self._store)
        self._coordinator = SourceCoordinator(
            self._store, SOURCE, name, ownership_timeout=timedelta(seconds=size.timeout)
        )
        self._coordinator.initialize()
        self._balancer = Balancer(self._coordinator, expected_workers=size.drivers - 1)
        self._renewals: Counter[bool] = Counter()
        self._oldest = 0.0
        self._ages: dict[str, tuple[Any, float]] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        """Run rounds until the pipe says to end, and report twice a second."""
        threading.Thread(target=self._report, daemon=True).start()
        with LeaseRenewer(self._coordinator.leases, self._balancer):
            while not self._stopped.is_set():
                began = time.monotonic()
                self._balancer.rebalance()
                self._balancer.hand_over(self._balancer.leaving)
                busy = [key for key in self._coordinator.leases.held if hash((key, began)) % BUSY_ONE_IN == 0]
                self._coordinator.leases.checkpoint_each(dict.fromkeys(busy, PROGRESS))
                self._stopped.wait(max(0.0, ROUND_SECONDS * self._size.timeout / 60 - (time.monotonic() - began)))
        self._pipe.send({"final": sorted(self._coordinator.leases.held)})

    def _report(self) -> None:
        while not self._pipe.poll(REPORT_SECONDS):
            self._count_renewals()
            self._pipe.send(
                {
                    "held": len(self._coordinator.leases.held),
                    "renewals": sum(self._renewals.values()),
                    "late": self._renewals[True],
                    "oldest": self._oldest,
                    "requests": self._requests,
                    "processor": time.process_time(),
                    "at": time.monotonic(),
                }
            )
        self._stopped.set()

    def _count_renewals(self) -> None:
        """Count the leases that were renewed since the last call, and record their age at the renewal."""
        now, timeout = self._coordinator.clock.now(), self._size.timeout
        held = self._coordinator.leases.held
        for key, partition in held.items():
            assert partition.ownership_timeout is not None
            age = timeout - (partition.ownership_timeout - now).total_seconds()
            end, oldest = self._ages.get(key, (partition.ownership_timeout, age))
            if end != partition.ownership_timeout:
                self._renewals[oldest > timeout * (1 / 3 + 1 / 12)] += 1
                self._oldest = max(self._oldest, oldest / timeout)
                oldest = age
            self._ages[key] = (partition.ownership_timeout, max(age, oldest))
        for key in self._ages.keys() - held.keys():
            del self._ages[key]

    def _count_requests(self, store: CoordinationStore) -> None:
        def count(*_: object, **__: object) -> None:
            self._requests += 1

        if isinstance(store, SqlStore):
            sa.event.listen(store._database.engine, "before_cursor_execute", count)
        elif isinstance(store, DynamoDbStore):
            store.client.meta.events.register("before-send.dynamodb", count)


@dataclass
class Running:
    """A running driver: its process and its pipe."""

    process: multiprocessing.Process
    pipe: Connection

    def last(self) -> dict[str, Any]:
        """Return the latest report; wait for the first one."""
        report: dict[str, Any] = self.pipe.recv()
        while self.pipe.poll():
            report = self.pipe.recv()
        return report


def start(server: Server, table: str, name: str, size: Size) -> Running:
    """Start a driver."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=lambda: Driver(server, table, name, size, theirs).run(), daemon=True)
    process.start()
    return Running(process, ours)  # type: ignore[arg-type]


def until_held(drivers: Sequence[Running], partitions: int, spread: int | None) -> float:
    """Return the seconds until the drivers hold all partitions.

    :param spread: the largest difference between the numbers that two drivers hold; None for any difference.
    """
    began = time.monotonic()
    while True:
        held = [driver.last()["held"] for driver in drivers]
        if sum(held) == partitions and (spread is None or max(held) - min(held) <= spread):
            return time.monotonic() - began
        if time.monotonic() - began > 1800:
            raise TimeoutError(f"the drivers hold {held} of {partitions} partitions after half an hour")


def measure(server: Server, size: Size) -> dict[str, Any]:
    """Return the measurements of one run."""
    table = f"shared_{time.time_ns()}"
    store = server.open(table)
    owner = SourceCoordinator(store, SOURCE, "setup")
    owner.initialize()
    owner.create_partitions({f"shardId-{n:012}": PROGRESS for n in range(size.partitions)})
    drivers = [start(server, table, f"driver-{n}", size) for n in range(size.drivers - 1)]
    figures: dict[str, Any] = {"acquired after": until_held(drivers, size.partitions, None)}
    drivers.append(start(server, table, f"driver-{size.drivers - 1}", size))
    figures["balanced after"] = until_held(drivers, size.partitions, 1)
    joined = [driver.last() for driver in drivers]
    time.sleep(size.seconds)
    steady = [driver.last() for driver in drivers]
    pairs = list(zip(joined, steady, strict=True))
    passed = [after["at"] - before["at"] for before, after in pairs]
    figures |= {
        "renewals": sum(after["renewals"] for after in steady),
        "late while sharing": sum(before["late"] for before in joined),
        "late": sum(after["late"] - before["late"] for before, after in pairs),
        "oldest": max(after["oldest"] for after in steady),
        "requests": sum((a["requests"] - b["requests"]) / t for (b, a), t in zip(pairs, passed, strict=True)),
        "processor": max((a["processor"] - b["processor"]) / t for (b, a), t in zip(pairs, passed, strict=True)),
        "spread": max(s["held"] for s in steady) - min(s["held"] for s in steady),
    }
    killed = drivers.pop()
    assert killed.process.pid is not None
    os.kill(killed.process.pid, signal.SIGKILL)
    figures["held again after"] = until_held(drivers, size.partitions, None)
    figures["held twice"] = held_twice(drivers, owner, size)
    store.close()
    return {name: round(value, 3) for name, value in figures.items()}


def held_twice(drivers: Sequence[Running], owner: SourceCoordinator, size: Size) -> int:
    """End the drivers; return the number of partitions that are not held exactly once, or not leased in the store."""
    for driver in drivers:
        driver.pipe.send("end")
    holders: Counter[str] = Counter()
    for driver in drivers:
        report = driver.pipe.recv()
        while "final" not in report:
            report = driver.pipe.recv()
        holders.update(report["final"])
        driver.process.join()
    stored = {partition.partition_key for partition in owner.view.partitions(PartitionStatus.ASSIGNED)}
    return sum(count > 1 or key not in stored for key, count in holders.items()) + size.partitions - len(holders)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few drivers and partitions")
    parser.add_argument("--store", choices=sorted(SERVERS), default="postgresql")
    parser.add_argument("--partitions", type=int, help="the number of partitions")
    parser.add_argument("--seconds", type=float, help="how long all drivers work")
    options = parser.parse_args(arguments)
    gc.set_threshold(*GC_THRESHOLDS)
    logging.disable(logging.WARNING)
    size = QUICK if options.quick else Size()
    size = Size(
        drivers=size.drivers,
        partitions=options.partitions or size.partitions,
        seconds=options.seconds or size.seconds,
        timeout=size.timeout,
    )
    with SERVERS[options.store]() as server:
        figures = measure(server, size)
    for name, value in figures.items():
        print(f"{name}: {value:g}")
    print(json.dumps({"store": options.store, "drivers": size.drivers, "partitions": size.partitions, **figures}))


if __name__ == "__main__":
    main()
