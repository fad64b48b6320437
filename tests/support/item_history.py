"""Simulates a source of items and its workers without Spark, on a manual clock; all else is real.

Workers take turns, a round each; they may die in the middle of one, and the store may lose an answer. What they
publish is kept by the partition that it was read for and that partition's epoch.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError, StoreUnavailableError
from airflow_provider_coordination.coordination.metrics import MetricTotals
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.items import Item, PartitionProgress, ReadPage, Wait
from airflow_provider_coordination.sources.kinds import ReadsSettings, SourceBatches
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import parse_target
from airflow_provider_coordination.spark import item_reading
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import LandedItems, land_partition
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.landed_identity import partition_folder
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
from airflow_provider_coordination.spark.slots import LandingOptions
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.unreliable_store import Fault, UnreliableStore
from tests.support.fleet import Crash, MortalStore, MortalWorker
from tests.support.history import ManualEvent, published
from tests.support.items import FakeSource, named
from tests.support.job_settings import ingest
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.side_by_side import one_after_the_other

SOURCE, KIND = "objects", "memory"
HANDLE = "check"
LEASE, MARGIN = timedelta(seconds=60), timedelta(seconds=5)
MAX_ROUNDS = 600


class SlowSource(FakeSource):
    """Items that take a second a page, may be delayed, and are recorded when they are delivered."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self.held_back: set[str] = set()
        self.delivered_items: list[str] = []

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        for page in super().read(item, position):
            self.clock.advance(1)
            yield page

    def waits_for(self, items: Sequence[Item]) -> Wait | None:
        waits = any(item["name"] in self.held_back for item in items)
        return Wait(reason="not yet", retry_after=timedelta(seconds=30), max_retries=3) if waits else None

    def delivered(self, items: Sequence[Item]) -> None:
        self.delivered_items += [item["name"] for item in items]


@dataclass
class Sink:
    """What became visible: of each partition that was created and each of its epochs, what was read for it."""

    batches: dict[str, list[str]] = field(default_factory=dict)
    read: dict[tuple[str, int], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


class PublishNoted(ParquetLandedDelivery):
    """Publishes landed files, and notes what became visible."""

    def __init__(self, history: ItemHistory, *, keep: bool) -> None:
        super().__init__(str(history.folder), keep=keep)
        self._history = history

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        super().commit(sink, attempts)
        for attempt in attempts:
            self._history.note(attempt.folder, attempt.batch, published(self._sink, attempt))


@dataclass(kw_only=True)
class Worker(MortalWorker):
    """One job that may lose responses of the store."""

    network: UnreliableStore


class ItemHistory:
    """A source and a fleet that reads it.

    :param folder: an empty folder for files.
    :param confirmed: whether others have to acknowledge each batch too.
    """

    def __init__(self, folder: Path, *, confirmed: bool = False, **settings: Any) -> None:
        self.folder, self.confirmed, self.settings = folder, confirmed, settings
        self.clock = VirtualClock()
        self.source = SlowSource(self.clock)
        self.store = InMemoryStore()
        self.sink = Sink()
        self.metrics = MetricTotals()
        self.workers: dict[str, Worker] = {}
        self.started = 0
        self.entered = 0
        self.abandoned: set[tuple[str, int]] = set()
        self.gone: set[str] = set()
        self.landed_in: dict[str, int] = {}
        """By batch: the epoch of the progress under which it was landed."""
        self.look = self.coordinator("look", self.store)
        self.sets = AcknowledgmentSets(self.look, SourceBatches())

    # The source

    def create(self, items: Mapping[str, Any], **changes: Any) -> str:
        """Create a partition of items, as a supplier does."""
        key = f"p{sum(1 for p in self.look.view.partitions())}"
        names = [f"{key}.{name}" for name in items]
        for name, held in zip(names, items.values(), strict=True):
            self.source.items[name] = held
        progress = PartitionProgress(kind=KIND, items=named(*names), **changes)
        self.look.create_partitions({key: progress.to_mapping()})
        return key

    def events_of(self, name: str) -> list[str]:
        return [event for page in self.source.items[name].pages for event in page]

    def heal(self) -> None:
        for item in self.source.items.values():
            item.error = None
        self.source.down = None
        self.source.held_back.clear()

    # The fleet

    def coordinator(self, owner: str, store: CoordinationStore) -> SourceCoordinator:
        coordinator = SourceCoordinator(
            store,
            SOURCE,
            owner,
            clock=self.clock,
            ownership_timeout=LEASE,
            safety_margin=MARGIN,
            metrics=self.metrics,
        )
        coordinator.initialize()
        return coordinator

    def start(self) -> Worker:
        self.started += 1
        name = f"worker-{self.started}"
        mortal = MortalStore(self.store)
        network = UnreliableStore(mortal)
        settings = ingest(
            **{
                "source": SOURCE,
                "owner": name,
                "reads": ReadsSettings(kind=KIND),
                "output": str(self.folder),
                "expires_at": self.clock.now() + timedelta(days=365),
                "store": StoreSettings(kind="in_memory"),
                "idle_duration": 1.0,
                "round_duration": 5.0,
                "max_batch_bytes": 100,
                "max_pending_batches": 2,
                "timeout": 300.0,
                "by": (HANDLE,) if self.confirmed else "job",
                "ownership_timeout": LEASE,
                "safety_margin": MARGIN,
                **self.settings,
            }
        )
        worker: Worker
        job = IngestionJob(
            settings,
            self.coordinator(name, network),
            PublishNoted(self, keep=self.confirmed),
            reading=partial(ItemReading, None, KIND, self.source),
            stop=ManualEvent(self.clock),
            observer=lambda phase: worker.passes(phase),
            clock=self.clock,
        )
        worker = self.workers[name] = Worker(name, job, mortal, network=network)
        return worker

    def round(self, worker: Worker, fault: Fault | None = None, after: int = 0) -> None:
        """Let a worker make a round; it is gone if it dies on the way.

        :param fault: happens to one of its writes.
        :param after: after this number of writes.
        """
        worker.network.fault = _after(worker.network, fault, after)
        with self.without_spark():
            try:
                for renewable in worker.job.renewables:
                    renewable.renew_due()
                worker.job.round()
            except Crash:
                self.lose(worker)
            except StoreUnavailableError as error:
                worker.job._wait_for_store(error)
            finally:
                worker.network.fault = None

    def finish(self, worker: Worker) -> None:
        """Let a worker deliver what its last round landed; it is gone if it dies on the way."""
        with self.without_spark():
            try:
                worker.job.finish()
            except Crash:
                self.lose(worker)

    def lose(self, worker: Worker) -> None:
        worker.store.dead = True
        self.workers.pop(worker.name, None)

    def stop(self, worker: Worker) -> None:
        with self.without_spark():
            worker.job.give_back()
        del self.workers[worker.name]

    def notice(self, worker: Worker) -> None:
        """Airflow has seen that a worker died."""
        self.look.give_up_owner(worker.name)

    def confirm(self, number: int, *, positive: bool) -> None:
        """Others acknowledge, or reject, one of the sets that wait for them; whoever owns the partition."""
        pending = [waiting for waiting in self.sets.view.pending() if waiting.references.get(HANDLE)]
        if pending:
            waiting = pending[number % len(pending)]
            self.sets.acknowledge(waiting.set_id, positive=positive, handle=HANDLE, reason=None if positive else "no")

    def reset(self, number: int) -> None:
        """A user resets a partition, and with it what was split off it."""
        roots = [key for key, progress in self.progresses.items() if progress.split_of is None]
        if not roots:
            return
        root = roots[number % len(roots)]
        family = [p for p in self.look.view.partitions() if root in (p.partition_key, self.root_of(p.partition_key))]
        for partition in family:
            progress = self.progresses[partition.partition_key]
            if partition.status is not PartitionStatus.COMPLETED:
                self.abandoned.add((root, progress.epoch))
        self.clock.advance(1)
        resets = Resets(self.sets)
        plan = resets.plan_partitions(family, parse_target("earliest", self.clock.now()))
        for _, result in resets.apply(plan, only_if_unchanged=False):
            if isinstance(result, CoordinationError):
                raise result

    @contextmanager
    def without_spark(self) -> Iterator[None]:
        def land(spark: object, plans: Sequence[ItemPlan], reader: Any, options: LandingOptions, *_: object) -> Any:
            until = self.clock.monotonic() + options.seconds
            # Each page becomes a row group, if reading may go on after it.
            rows = [
                land_partition(reader, options, plan, until=until, row_group_bytes=1, clock=self.clock)
                for plan in plans
            ]
            self.landed_in |= {row.batch_id: self.progresses[row.partition_key].epoch for row in rows if row.is_batch}
            return [read_settings(LandedItems, "row", json.loads(json.dumps(write_settings(row)))) for row in rows]

        self.entered += 1
        order = one_after_the_other(lands_first=self.entered % 2 == 0)
        with patch.object(item_reading, "land_items", land), order:
            yield

    def settle(self) -> None:
        """Heal what is wrong, acknowledge what waits, and let the fleet work until everything is finished."""
        self.heal()
        administration = Administration(self.store, self.look.view.source_identifier, self.clock)
        for _ in range(MAX_ROUNDS):
            if all(p.status is PartitionStatus.COMPLETED for p in self.look.view.partitions()):
                return
            if not self.workers:
                self.start()
            for worker in list(self.workers.values()):
                self.round(worker)
            while any(waiting.references.get(HANDLE) for waiting in self.sets.view.pending()):
                self.confirm(0, positive=True)
            for partition in self.look.view.partitions(PartitionStatus.CLOSED):
                if partition.is_parked:
                    with suppress(CoordinationError):
                        administration.reopen(partition.partition_key)
            self.clock.advance(40)
            self.check()
        left = [f"{p.partition_key} {p.status} {p.last_error} {p.progress}" for p in self.look.view.partitions()]
        raise AssertionError(f"the fleet never came to an end: {left}")

    # What there is to see

    @property
    def progresses(self) -> dict[str, PartitionProgress]:
        return {p.partition_key: PartitionProgress.from_mapping(p.progress) for p in self.look.view.partitions()}

    def partition(self, key: str) -> Partition:
        partition = self.look.view.get(key)
        assert partition is not None
        return partition

    def root_of(self, key: str) -> str:
        return self.progresses[key].split_of or key

    def note(self, folder: str, batch: LandedBatch, events: list[str]) -> None:
        """Note that a batch is visible."""
        if batch.batch_id in self.sink.batches:
            assert self.sink.batches[batch.batch_id] == events, "a batch never changes"
            return
        self.sink.batches[batch.batch_id] = events
        self.sink.read[self._root_in(folder), self.landed_in[batch.batch_id]].update(events)

    def _root_in(self, folder: str) -> str:
        """Return the partition that was created, of which a folder holds what is landed."""
        family = self.look.view.source_identifier
        [key] = [key for key in self.progresses if partition_folder(family, key) == folder]
        return self.root_of(key)

    def check(self) -> None:
        """Check what holds at any time."""
        for (root, epoch), events in self.sink.read.items():
            assert set(events.values()) <= {1}, f"{root} in epoch {epoch}: something is there twice: {events}"
        for partition in self.look.view.partitions(PartitionStatus.COMPLETED):
            progress = PartitionProgress.from_mapping(partition.progress)
            root = progress.split_of or partition.partition_key
            if (root, progress.epoch) not in self.abandoned:
                self._check_delivered(root, progress.epoch, progress.items_read, "COMPLETED")
        everything = {event for events in self.sink.read.values() for event in events}
        for name in self.source.delivered_items:
            assert name in self.gone or set(self.events_of(name)) <= everything, f"{name} may be deleted, undelivered"

    def check_all(self) -> None:
        """Check what holds once everything is finished."""
        self.check()
        for key, progress in self.progresses.items():
            if progress.split_of is None:
                last = progress.epoch
                for epoch in {last, *(epoch for root, epoch in self.sink.read if root == key)}:
                    if (key, epoch) not in self.abandoned:
                        self._check_delivered(key, epoch, progress.items, "finished")

    def _check_delivered(self, root: str, epoch: int, items: Sequence[Mapping[str, Any]], what: str) -> None:
        wanted = {event for item in items if item["name"] not in self.gone for event in self.events_of(item["name"])}
        missing = wanted - set(self.sink.read[root, epoch])
        assert not missing, f"{root} is {what} in epoch {epoch} without {sorted(missing)}"


def _after(network: UnreliableStore, fault: Fault | None, writes: int) -> Fault | None:
    """Return what lets a number of writes pass before a fault happens."""
    if fault is None or not writes:
        return fault
    return Fault(after=lambda: setattr(network, "fault", _after(network, fault, writes - 1)))
