"""The requests and capacity units of coordination on DynamoDB: ours, a model of Data Prepper's, and the minimum.

A partition is created, acquired, checkpointed once, and completed. This life runs on the tests' DynamoDB server, with
one worker and with eight that compete. Competing workers continue request by request, in an order that a seed
determines, so a run repeats exactly. Nothing is timed. The server's index is always current; on AWS
all coordinators get a few more refused writes.

- `ours` acquires up to a number of partitions at a time: 10, or 1 for an equal comparison. Once in five seconds, a
  worker checks whether the source is suspended, which Data Prepper does not support. It also checks for expired leases
  and closed partitions, which come before the others and which Data Prepper checks each time. These three checks are
  counted with `acquire`. Each request advances the clock by 2 ms. `1 in 5 s` acquires so rarely that it checks each
  time.
- `Data Prepper, lease-based` and `Data Prepper, enhanced` are the two coordinators in `data_prepper_model.py`, which
  can acquire only one at a time. The enhanced one makes fewer requests, so ours is compared with that one. All
  competing workers poll without a supplier. This saves the lease-based one a second pass and four requests on the
  global state for each miss; the enhanced one has no suppliers.
- `least` is the minimum cost of the same operations on this table and index, if no write is refused:

  - each operation is one request; acquiring n partitions queries the index once, for the queue that has some: 1/n
    requests
  - a write costs the table 1 write unit for each started KB of the item; items here are smaller
  - the index holds whole items: a new entry costs 1 write unit more; a change of status or priority costs 2, because
    the old entry is deleted and a new one put. So create costs 2. Acquire (status), checkpoint (the renewed lease is
    the priority) and complete (status) cost 3 each
  - a query of the index, always eventually consistent, costs 0.5 read units for each started 4 KB that it reads, and
    0.5 if it finds nothing

The additional cost of the history of leases is counted with one worker that works for half a second between requests:
the writes of a job, and of a process that ends after one partition, with and without the history. The deletion of the
history's pages, when they are a week old, is included.

Usage: python benchmarks/store_cost.py [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.history import FAMILY as HISTORY_FAMILY
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from airflow_provider_coordination.stores.dynamodb.items import new_item
from airflow_provider_coordination.stores.history_recording import RecordingStore
from benchmarks.data_prepper_model import EnhancedModel, LeaseBasedModel, ModelStore
from benchmarks.metered_dynamodb import LEAST_READ_UNITS, WRITES, Meter, Tally, Turnstile, item_bytes
from demo.local_kinesis import REGION
from tests.support.clock import ManualClock
from tests.support.dynamodb_server import DynamoDbServer

WORKERS = 8
AT_A_TIME = 10
SOURCE = "clickstream"
PARTITIONS = f"{SOURCE}|PARTITION"
REQUEST_SECONDS = 0.002
PHASES = ("create", "acquire", "checkpoint", "complete")
POLL = "empty poll"
PROGRESS = {"checkpoint": "49590338271490256608559692538361571095921575989136588898", "landed": []}

CHECKS = Tally(requests=3, read_units=2 * LEAST_READ_UNITS + 1.0)
"""The cost of a worker's checks once in five seconds: two queries without a result, of the queues that come before the
others, and a consistent read of the missing item that would mark the source as suspended."""

Bill = dict[str, Tally]


class Worker(Protocol):
    """A worker, ours or a modelled one."""

    meter: Meter

    def create(self, keys: Sequence[str]) -> None:
        """Create partitions."""

    def acquire(self) -> Sequence[str]:
        """Acquire partitions; return their keys, empty if there are none."""

    def checkpoint(self, key: str) -> None:
        """Save progress once."""

    def complete(self, key: str) -> None:
        """Finish a partition."""

    def poll_with_supplier(self) -> bool:
        """Poll for a partition if none is available, with a supplier that finds none.

        :returns: False if this worker has no suppliers.
        """


@dataclass
class Table:
    """A DynamoDB table for one measurement, and the clock of its workers."""

    server: DynamoDbServer
    clock: ManualClock = field(default_factory=ManualClock)
    name: str = field(default_factory=lambda: f"cost-{uuid.uuid4().hex[:12]}")

    def __post_init__(self) -> None:
        self.store(random.Random(0)).initialize()

    def store(self, randomness: random.Random) -> DynamoDbStore:
        """Return our store on this table."""
        aws = AwsSettings(
            region=REGION, endpoint_url=self.server.endpoint_url, access_key_id="test", secret_access_key="test"
        )
        return DynamoDbStore(aws, table=self.name, randomness=randomness)

    def items(self) -> Iterator[Mapping[str, Any]]:
        """Yield the items of the table."""
        pages = self.server.client().get_paginator("scan").paginate(TableName=self.name)
        return (item for page in pages for item in page["Items"])


class OurWorker:
    """A worker like our jobs: it acquires up to a number of partitions at a time, and may pause before that."""

    def __init__(
        self,
        table: Table,
        name: str,
        seed: int,
        before_request: Callable[[], None],
        at_a_time: int,
        pause: timedelta = timedelta(0),
    ) -> None:
        store = table.store(random.Random(f"{name} {seed}"))
        owner = f"{name}:clickstream:scheduled__2026-01-01:ingest:-1:1:0123abcd"
        self._coordinator = SourceCoordinator(store, SOURCE, owner, clock=table.clock)
        self._coordinator.initialize()
        self._clock = table.clock
        self._at_a_time = at_a_time
        self._pause = pause
        self.meter = Meter(store.client, before_request)

    def create(self, keys: Sequence[str]) -> None:
        """See `Worker.create`."""
        self._coordinator.create_partitions({key: {} for key in keys})

    def acquire(self) -> Sequence[str]:
        """See `Worker.acquire`."""
        self._clock.advance(self._pause.total_seconds())
        return [partition.partition_key for partition in self._coordinator.leases.acquire(self._at_a_time)]

    def checkpoint(self, key: str) -> None:
        """See `Worker.checkpoint`."""
        self._coordinator.leases.checkpoint(key, PROGRESS)

    def complete(self, key: str) -> None:
        """See `Worker.complete`."""
        self._coordinator.leases.complete(key)

    def poll_with_supplier(self) -> bool:
        """See `Worker.poll_with_supplier`."""
        assert self._coordinator.get_next_partition(lambda state: [Page({})]) is None
        return True


class ModelWorker:
    """A model of a Data Prepper node with one thread and one of the two coordinators."""

    def __init__(
        self,
        table: Table,
        name: str,
        seed: int,
        before_request: Callable[[], None],
        model: type[EnhancedModel] | type[LeaseBasedModel],
    ) -> None:
        client = table.server.client()
        self._coordinator = model(ModelStore(client, table.name, table.clock), SOURCE, name, table.clock)
        if isinstance(self._coordinator, LeaseBasedModel):
            self._coordinator.initialize()
        self.meter = Meter(client, before_request)

    def create(self, keys: Sequence[str]) -> None:
        """See `Worker.create`."""
        self._coordinator.create_partitions(keys)

    def acquire(self) -> Sequence[str]:
        """See `Worker.acquire`."""
        key = self._coordinator.get_next_partition()
        return [key] if key else []

    def checkpoint(self, key: str) -> None:
        """See `Worker.checkpoint`."""
        self._coordinator.save_progress(key, json.dumps(PROGRESS, separators=(",", ":")))

    def complete(self, key: str) -> None:
        """See `Worker.complete`."""
        self._coordinator.complete(key)

    def poll_with_supplier(self) -> bool:
        """See `Worker.poll_with_supplier`."""
        if isinstance(self._coordinator, EnhancedModel):
            return False
        assert self._coordinator.get_next_partition(list) is None
        return True


MakeWorker = Callable[[Table, str, int, Callable[[], None]], Worker]

WAYS: dict[str, MakeWorker] = {
    "Data Prepper, lease-based": partial(ModelWorker, model=LeaseBasedModel),
    "Data Prepper, enhanced": partial(ModelWorker, model=EnhancedModel),
    "ours, 1 in 5 s": partial(OurWorker, at_a_time=1, pause=timedelta(seconds=5)),
    "ours, 1 at a time": partial(OurWorker, at_a_time=1),
    f"ours, {AT_A_TIME} at a time": partial(OurWorker, at_a_time=AT_A_TIME),
}
LEASE_BASED, ENHANCED, SLOW, ONE, OURS = WAYS


def live(make: MakeWorker, table: Table, *, workers: int, partitions: int, seed: int) -> Bill:
    """Let workers take partitions through their lives until none is left; return what each phase cost all of them.

    :raises AssertionError: if a partition was not completed, or an item outgrew what `Meter` can count.
    """
    names = [f"node-{number}" for number in range(workers)]
    turnstile = Turnstile(set(names), seed)

    def before_request(name: str) -> None:
        turnstile.wait(name)
        table.clock.advance(REQUEST_SECONDS)

    competitors = {name: make(table, name, seed, partial(before_request, name)) for name in names}
    creator = make(table, "creator", seed, lambda: None)
    bill: Bill = defaultdict(Tally)
    with creator.meter.counting() as bill["create"]:
        creator.create(partition_keys(partitions))

    def work(name: str) -> Bill:
        try:
            return drain(competitors[name])
        finally:
            turnstile.leave(name)

    with ThreadPoolExecutor(workers) as pool:
        for bill_of_one in pool.map(work, names):
            for phase, tally in bill_of_one.items():
                bill[phase].add(tally)
    check(table, partitions)
    return bill


def drain(worker: Worker) -> Bill:
    """Process partitions until none is left."""
    bill: Bill = defaultdict(Tally)
    while True:
        with worker.meter.counting() as cost:
            keys = worker.acquire()
        bill["acquire" if keys else POLL].add(cost)
        if not keys:
            return bill
        for key in keys:
            with worker.meter.counting() as cost:
                worker.checkpoint(key)
            bill["checkpoint"].add(cost)
            with worker.meter.counting() as cost:
                worker.complete(key)
            bill["complete"].add(cost)


def partition_keys(count: int) -> list[str]:
    """Return keys like those of a bucket scan."""
    return [f"clickstream-landing|events/2026/01/01/part-{number:08d}.json.gz" for number in range(count)]


def check(table: Table, partitions: int) -> None:
    """Check that all partitions are completed, and that a refused write of any of them costs one unit."""
    items = [item for item in table.items() if item["sourceIdentifier"]["S"] == PARTITIONS]
    assert [item["sourcePartitionStatus"]["S"] for item in items] == ["COMPLETED"] * partitions
    assert max(map(item_bytes, items)) <= 1024 - item_bytes({"partitionOwner": {"S": "x" * 100}})


def least_life(at_a_time: int) -> Bill:
    """Return the minimum cost of each phase; see the module's docstring."""
    new = Partition(
        source_identifier=PARTITIONS,
        partition_key=partition_keys(1)[0],
        status=PartitionStatus.UNASSIGNED,
        priority=ManualClock().now(),
    )
    read = LEAST_READ_UNITS * max(1, math.ceil(at_a_time * item_bytes(new_item(new, None)) / 4096))
    return {
        "create": Tally(requests=1, write_units=2),
        "acquire": Tally(requests=1 + 1 / at_a_time, write_units=3, read_units=read / at_a_time),
        "checkpoint": Tally(requests=1, write_units=3),
        "complete": Tally(requests=1, write_units=3),
    }


def polls(server: DynamoDbServer) -> dict[str, dict[str, Tally]]:
    """Return the cost of a poll without a result, by the content of the queue and by worker."""
    costs: dict[str, dict[str, Tally]] = {}
    for name, make in WAYS.items():
        if name in (SLOW, ONE):
            continue  # the same as ten at a time
        for queue, statuses in QUEUES.items():
            table = Table(server)
            worker = make(table, "node-0", 0, lambda: None)
            fill(table, statuses)
            has_suppliers = worker.poll_with_supplier()  # the first poll creates the global state
            with worker.meter.counting() as plain:
                assert not worker.acquire()
            costs.setdefault(queue, {})[name] = plain
            if has_suppliers:
                with worker.meter.counting() as with_supplier:
                    worker.poll_with_supplier()
                costs.setdefault(f"{queue}{SUPPLIED}", {})[name] = with_supplier
    return costs


SUPPLIED = "; with a supplier"
QUEUES = {
    "all completed": [PartitionStatus.COMPLETED],
    "leased or not due": [PartitionStatus.COMPLETED, PartitionStatus.ASSIGNED, PartitionStatus.CLOSED],
}


def fill(table: Table, statuses: Sequence[PartitionStatus]) -> None:
    """Put partitions into a table, with these statuses in turn; none can be acquired now."""
    later = table.clock.now() + timedelta(minutes=5)
    table.store(random.Random(0)).create(
        [
            Partition(
                source_identifier=PARTITIONS,
                partition_key=key,
                status=status,
                priority=later,
                owner="another" if status is PartitionStatus.ASSIGNED else None,
                progress=PROGRESS,
                ownership_timeout=later if status is PartitionStatus.ASSIGNED else None,
                reopen_at=later if status is PartitionStatus.CLOSED else None,
            )
            for key, status in zip(partition_keys(60), itertools.cycle(statuses), strict=False)
        ]
    )


@dataclass
class Written:
    """The writes of a worker.

    :param writes: the number of requests.
    :param write_units: the write units, of table and index.
    """

    writes: int = 0
    write_units: float = 0.0


WORK_SECONDS = 0.5
KEPT = timedelta(days=7)
SAVES = (1, 3)
ONE_PARTITION = "a process for one partition"


def history_life(server: DynamoDbServer, *, partitions: int, at_a_time: int, saves: int, history: bool) -> Written:
    """Return the writes of a worker that creates and processes partitions.

    :param saves: how often the progress of each partition is saved.
    :param history: whether the history is kept.
    """
    table = Table(server)
    bare = table.store(random.Random(0))
    written = Written()

    def count(model: Any, **_: Any) -> None:
        written.writes += model.name in WRITES

    bare.client.meta.events.register("after-call.dynamodb", count)
    store = RecordingStore(bare, KEPT, clock=table.clock, randomness=random.Random(0)) if history else bare
    coordinator = SourceCoordinator(store, SOURCE, "node-0:dag:run:ingest:-1:1:0123abcd", clock=table.clock)
    coordinator.initialize()
    meter = Meter(bare.client, lambda: None)
    with meter.counting() as cost:
        coordinator.create_partitions({key: {} for key in partition_keys(partitions)})
        while acquired := [partition.partition_key for partition in coordinator.leases.acquire(at_a_time)]:
            for key in saves * acquired:
                table.clock.advance(WORK_SECONDS)
                coordinator.leases.checkpoint(key, PROGRESS)
            for key in acquired:
                table.clock.advance(WORK_SECONDS)
                coordinator.leases.complete(key)
        store.close()  # writes the rest of the history
        for page in list(all_partitions(bare, f"{SOURCE}|{HISTORY_FAMILY}")):
            bare.delete(page)
    check(table, partitions)
    written.write_units = cost.write_units
    return written


def measure_history(server: DynamoDbServer, *, partitions: int) -> dict[str, tuple[Written, Written]]:
    """Return the writes without a history and with it."""
    lives = {f"a job of {partitions} partitions, {saves} saves of each": (partitions, saves) for saves in SAVES}
    lives[ONE_PARTITION] = (1, 1)
    return {
        name: (
            history_life(server, partitions=number, at_a_time=AT_A_TIME, saves=saves, history=False),
            history_life(server, partitions=number, at_a_time=AT_A_TIME, saves=saves, history=True),
        )
        for name, (number, saves) in lives.items()
    }


def history_table(measured: Mapping[str, tuple[Written, Written]]) -> str:
    """Return the table of the history's cost in Markdown."""
    lines = [
        "| history | writes without | with | ratio | write units without | with | ratio |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, (off, on) in measured.items():
        lines.append(
            f"| {name} | {off.writes:,} | {on.writes:,} | {on.writes / off.writes:.3f} "
            f"| {off.write_units:,.0f} | {on.write_units:,.0f} | {on.write_units / off.write_units:.3f} |"
        )
    return "\n".join(lines)


def measure(server: DynamoDbServer, *, partitions: int, seeds: int) -> dict[tuple[str, int], list[Bill]]:
    """Return the cost of a partition's life in each way, alone and in competition, by run."""
    costs = {}
    for (name, make), workers in itertools.product(WAYS.items(), (1, WORKERS)):
        if name == SLOW and workers > 1:
            continue  # no worker competes with one that mostly waits
        bills = [
            live(make, Table(server), workers=workers, partitions=partitions, seed=seed)
            for seed in range(seeds if workers > 1 else 1)
        ]
        costs[name, workers] = [{phase: bill[phase].divided_by(partitions) for phase in PHASES} for bill in bills]
    return costs


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies."""
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    return whole


def mean(bills: Sequence[Bill]) -> Bill:
    """Return the mean cost of runs by phase."""
    return {phase: total(bill[phase] for bill in bills).divided_by(len(bills)) for phase in PHASES}


def worst_to(
    peer: str, costs: Mapping[tuple[str, int], list[Bill]], name: str, workers: int, phases: Sequence[str] = PHASES
) -> dict[str, float]:
    """Return our cost divided by a peer's cost: our worst run by the peer's mean."""
    theirs = total(mean(costs[peer, workers])[phase] for phase in phases)
    ours = [total(bill[phase] for phase in phases) for bill in costs[name, workers]]
    return {
        "requests": round(max(each.requests for each in ours) / theirs.requests, 3),
        "units": round(max(each.units for each in ours) / theirs.units, 3),
    }


def figures(
    costs: Mapping[tuple[str, int], list[Bill]], poll_costs: Mapping[str, Mapping[str, Tally]]
) -> dict[str, Any]:
    """Return the ratios that the aims refer to."""
    least = {OURS: total(least_life(AT_A_TIME).values()), ONE: total(least_life(1).values())}
    supplied = [cost for queue, cost in poll_costs.items() if SUPPLIED in queue]
    runs = list(itertools.product((ONE, OURS), (1, WORKERS)))

    def beside(peer: str) -> dict[str, Any]:
        return {
            _run(name, workers): worst_to(peer, costs, name, workers)
            | {"requests to acquire": worst_to(peer, costs, name, workers, ["acquire"])["requests"]}
            for name, workers in runs
        }

    return {
        "to_enhanced": beside(ENHANCED),
        "to_lease_based": beside(LEASE_BASED),
        "requests_per_partition": {
            _run(*run): round(total(mean(bills).values()).requests, 3) for run, bills in costs.items()
        },
        "capacity_to_least": {
            _run(name, workers): round(
                max(total(bill.values()).units for bill in costs[name, workers]) / least[name].units, 3
            )
            for name, workers in runs
        },
        "empty_poll_to_lease_based": round(
            max(cost[OURS].requests / cost[LEASE_BASED].requests for cost in supplied), 3
        ),
    }


def _run(name: str, workers: int) -> str:
    return f"{name}, {workers} workers" if workers > 1 else f"{name}, alone"


def tables(costs: Mapping[tuple[str, int], list[Bill]], poll_costs: Mapping[str, Mapping[str, Tally]]) -> str:
    """Return the tables in Markdown."""
    lives = {f"{name} | {workers}": mean(bills) for (name, workers), bills in sorted(costs.items(), key=_by_workers)}
    lives |= {f"least, {n} at a time | any": least_life(n) for n in (1, AT_A_TIME)}
    least = {n: total(least_life(n).values()).units for n in (1, AT_A_TIME)}
    enhanced = {str(workers): total(mean(costs[ENHANCED, workers]).values()) for workers in (1, WORKERS)}
    lines = [
        f"| requests per partition | workers | {' | '.join(PHASES)} | whole life | to enhanced | refused writes |",
        "|---|---" + "|--:" * (len(PHASES) + 3) + "|",
    ]
    for label, cost in lives.items():
        cells = [f"{cost[phase].requests:.2f}" for phase in PHASES]
        whole = total(cost.values())
        peer = enhanced.get(label.rpartition(" ")[2])
        to_enhanced = f"{whole.requests / peer.requests:.2f}" if peer else ""
        lines.append(f"| {label} | {' | '.join(cells)} | {whole.requests:.2f} | {to_enhanced} | {whole.refused:.2f} |")
    lines += [
        "",
        "| capacity units per partition | workers | written | read | both | to enhanced | to the least |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for label, cost in lives.items():
        whole = total(cost.values())
        peer = enhanced.get(label.rpartition(" ")[2])
        to_enhanced = f"{whole.units / peer.units:.2f}" if peer else ""
        to_least = whole.units / least[AT_A_TIME if f"{AT_A_TIME} at" in label else 1]
        lines.append(
            f"| {label} | {whole.write_units:.2f} | {whole.read_units:.2f} | {whole.units:.2f} | {to_enhanced} "
            f"| {to_least:.2f} |"
        )
    lines += ["", "| empty poll | of | requests | units written | units read |", "|---|---|--:|--:|--:|"]
    for queue, by_way in poll_costs.items():
        lines += [
            f"| {queue} | {'ours' if name == OURS else name} | {cost.requests} | {cost.write_units:g} "
            f"| {cost.read_units:g} |"
            for name, cost in by_way.items()
        ]
    return "\n".join(lines)


def _by_workers(cost: tuple[tuple[str, int], object]) -> int:
    ((_, workers), _) = cost
    return workers


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer partitions and orders")
    parser.add_argument("--partitions", type=int, help="the partitions of a run; default 400, 160 with --quick")
    parser.add_argument("--orders", type=int, help="the orders of competing workers; default 5, 2 with --quick")
    options = parser.parse_args(arguments)
    partitions = options.partitions or (160 if options.quick else 400)
    seeds = options.orders or (2 if options.quick else 5)
    with DynamoDbServer() as server:
        costs = measure(server, partitions=partitions, seeds=seeds)
        poll_costs = polls(server)
        history = measure_history(server, partitions=partitions)
    print(f"{partitions} partitions; {WORKERS} workers, means of {seeds} orders:\n")
    print(tables(costs, poll_costs))
    print()
    print(history_table(history))
    print()
    ratios = {
        name: {
            "writes": round(on.writes / off.writes, 3),
            "write_units": round(on.write_units / off.write_units, 3),
        }
        for name, (off, on) in history.items()
    }
    print(json.dumps(figures(costs, poll_costs) | {"with_history_to_without": ratios}))


if __name__ == "__main__":
    main()
