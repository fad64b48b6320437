"""Jobs over one source, one of which fails at a numbered call, without Spark and on a manual clock.

A `Case` says which versions of a DAG deliver, and what happens to the first job at which call. `live` lets it happen:
the victim works until it is struck; others take its partitions over and settle everything; a frozen victim goes on;
the rest of the fleet settles what is left. Then everything that was sent has to be there once and in order, what was
acknowledged has to be as it was, and every partition has to have a state that has a cause.
"""

from __future__ import annotations

import contextvars
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow.parquet as pq

from airflow_provider_coordination.audit.source_audit import audit_source
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    CoordinationError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.intervals import IntervalLedger
from airflow_provider_coordination.coordination.jobs import JobRecord, Jobs
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.dynamodb_streams.client import StreamsClient
from airflow_provider_coordination.sources.items import (
    Item,
    ItemReader,
    PartitionProgress,
    ReadPage,
    SourceUnavailableError,
)
from airflow_provider_coordination.sources.kinds import ReadsSettings, SourceBatches, landed_progress
from airflow_provider_coordination.sources.kinesis.client import KinesisUnavailableError
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.kinesis.shards import describe_stream
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.spark import item_reading
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import Delivery
from airflow_provider_coordination.spark.dynamodb_streams.reading import ChangeFormat
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.item_landing import land_partition
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.kinesis import reading as shard_reading
from airflow_provider_coordination.spark.kinesis.landing import land_shard
from airflow_provider_coordination.spark.kinesis.reading import ShardReading
from airflow_provider_coordination.spark.kinesis.shard_format import KINESIS, ShardFormat
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.layout import ITEM_RECORDS, RecordLayout
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER, MAIN
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.counted_tables import counted_sinks
from tests.support.dag_versions import BAD, CHECK, ArrowTransformation, Case, Dag, number_of, text_of
from tests.support.dynamodb_streams import DynamoDbStreams, InProcessDynamoDb, client_of, strings
from tests.support.fleet import Crash
from tests.support.freezing import (
    HOUR_SECONDS,
    SUCCESSOR,
    VICTIM,
    Calls,
    CountedClient,
    CountedStore,
    Strike,
    acting,
    counted_files,
)
from tests.support.history import ManualEvent
from tests.support.items import FakeItem, FakeSource, named
from tests.support.job_settings import ingest
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.side_by_side import one_after_the_other
from tests.support.sinks import ParquetUnderTest, SinkUnderTest
from tests.support.waiting import PATIENCE_SECONDS

LEASE, MARGIN = timedelta(seconds=300), timedelta(seconds=5)
ACKNOWLEDGMENT = timedelta(seconds=600)
STREAM = "clicks"
KIND = "memory"
MAX_ROUNDS = 200
MAY_END_A_JOB = ("store.initialize", "source.describe", "source.list")
"""What a job cannot begin without: where that fails, so does its task, which is tried again."""
COLLIDING_KEYS = ("öèýš", "öžèê")
"""Keys without an ASCII letter, of which 32 bits of a digest are the same."""

T = TypeVar("T")


def acting_as(worker: str, act: Callable[[], T]) -> T:
    """Let the calls of something count as a worker's."""

    def act_so() -> T:
        acting.set(worker)
        return act()

    return contextvars.copy_context().run(act_so)


class StruckSource(ABC):
    """A source and its jobs; see the module.

    :param case: what happens.
    :param folder: an empty folder.
    :param calls: the victim's.
    :param gives_up: how others come by the victim's partitions: they are given up, or its lease runs out.
    :param places: the kind of the sinks; Parquet by default.
    """

    source = STREAM

    def __init__(
        self, case: Case, folder: Path, calls: Calls, *, gives_up: bool, places: SinkUnderTest | None = None
    ) -> None:
        self.case, self.folder, self.calls, self.gives_up = case, folder, calls, gives_up
        self.places = places or ParquetUnderTest()
        self.clock = VirtualClock()
        calls.jump = self.clock.jump
        self.store = InMemoryStore()
        self.sent: list[str] = []
        self.visible: list[str] = []
        self.rejected: set[str] = set()
        self.trouble: list[str] = []
        self.started = 0
        self._seen: set[str] = set()
        self.look = self.coordinator("look", self.store)
        self.sets = AcknowledgmentSets(self.look, SourceBatches())
        self.jobs = Jobs(self.look.view)
        self.record: JobRecord | None = None
        """What the victim keeps of itself in the store, and reports in."""

    # What kinds of sources do in their own ways

    @abstractmethod
    def steps(self) -> Sequence[Callable[[], None]]:
        """Return what happens beside the victim, before each of its rounds."""
        ...

    @abstractmethod
    def reading(self, coordinator: SourceCoordinator, *, counts: bool) -> dict[str, Any]: ...

    @abstractmethod
    def settings(self) -> dict[str, Any]: ...

    @property
    @abstractmethod
    def layout(self) -> RecordLayout: ...

    # Jobs

    def coordinator(self, owner: str, store: Any) -> SourceCoordinator:
        coordinator = SourceCoordinator(
            store, self.source, owner, clock=self.clock, ownership_timeout=LEASE, safety_margin=MARGIN
        )
        coordinator.initialize()
        return coordinator

    def job(
        self,
        dag: Dag,
        *,
        owner: str = "",
        counts: bool = False,
        observer: Callable[[str], None] = lambda phase: None,
        **more: Any,
    ) -> IngestionJob:
        self.started += 1
        owner = owner or f"worker-{self.started}"
        coordinator = self.coordinator(owner, CountedStore(self.store, self.calls) if counts else self.store)
        settings = ingest(
            **{
                "source": self.source,
                "owner": owner,
                "output": str(self.folder / MAIN),
                "expires_at": self.clock.now() + timedelta(days=365),
                "store": StoreSettings(kind="in_memory"),
                "idle_duration": 1.0,
                "round_duration": 2.0,
                "by": dag.downstream or "job",
                "timeout": ACKNOWLEDGMENT.total_seconds(),
                "ownership_timeout": LEASE,
                "safety_margin": MARGIN,
                **self.settings(),
                **more,
            }
        )
        return IngestionJob(
            settings,
            coordinator,
            self.delivery(dag),
            stop=ManualEvent(self.clock),
            clock=self.clock,
            bounds=dag.bounds,
            observer=observer,
            **self.reading(coordinator, counts=counts),
        )

    def kind(self, name: str) -> SinkUnderTest:
        """Return the kind of a sink."""
        return ParquetUnderTest() if name == DEAD_LETTER else self.places

    def delivery(self, dag: Dag) -> Delivery:
        settings = [self.kind(name).settings(self.folder / name) for name in dag.all_sinks]
        sinks = make_sinks(replace(each, name=name) for each, name in zip(settings, dag.all_sinks, strict=True))
        if dag.sinks == (MAIN,) and not dag.transforms and not dag.schema and sinks[0].accepts_landed_files:
            return sinks[0].landed_delivery(keep=bool(dag.downstream))
        return TransformedDelivery(
            ArrowTransformation(dag, self.layout),
            sinks,
            source=self.source,
            bad_records=BadRecords(),
            keeps_rejected=True,
            is_final=not dag.downstream,
            clock=self.clock,
        )

    def round(self, job: IngestionJob) -> None:
        try:
            self.renew(job)
            job.round()
        except StoreUnavailableError as error:
            job._wait_for_store(error)

    def renew(self, job: IngestionJob) -> None:
        for renewable in job.renewables:
            renewable.renew_due()
        if self.record is not None and acting.get() == VICTIM:
            with suppress(CoordinationError):  # the thread that keeps a record alive tries again
                self.record.renew_due()

    def check(self) -> None:
        """Others say what they think of the batches that every sink has taken."""
        for waiting in list(self.sets.view.pending()):
            if not waiting.references.get(CHECK) or any(waiting.references[sink] for sink in waiting.sinks):
                continue
            positive = not self.case.rejects or waiting.batch_id in self.rejected
            self.rejected.add(waiting.batch_id)
            reason = None if positive else "no"
            with suppress(AcknowledgmentError):  # the one that goes on may have said so in this moment
                self.sets.acknowledge(waiting.set_id, positive=positive, handle=CHECK, reason=reason)

    # The story

    def victim(self) -> None:
        """What the victim does, on a thread of its own; in its last round it is asked to end with something landed."""
        steps = list(self.steps())

        def ending(phase: str) -> None:
            if phase == "recorded" and not steps:
                job._stop.set()

        job = acting_as(VICTIM, lambda: self.job(self.case.first, owner="a", counts=True, observer=ending))
        self.record = JobRecord(self.coordinator("a", CountedStore(self.store, self.calls)), report=job.report)
        self.record.begin()
        self.record.note_reading()
        if not self.gives_up:  # otherwise it believes in its leases until it asks
            self.calls.renew = lambda: self.renew(job)
        while steps:
            steps.pop(0)()
            acting_as(VICTIM, lambda: self.round(job))
            if CHECK in self.case.first.downstream:
                self.check()
        with suppress(StoreUnavailableError):
            acting_as(VICTIM, job.finish)
        acting_as(VICTIM, job.give_back)
        with suppress(StoreUnavailableError):
            acting_as(VICTIM, partial(self.record.end, {"exit_code": 0}))

    def live(self) -> None:
        """Let everything happen, and check what came of it.

        :raises AssertionError: if anything is lost, there twice, out of order or changed, or stuck.
        """
        with self._in_process():
            victim = self._begin(self.victim)
            self._wait(victim, self.calls)
            if self.calls.strike is Strike.CLOCK_BACK:  # what was written before is due in an hour
                self.clock.advance(HOUR_SECONDS)
            if self.gives_up:
                self.look.give_up_owner("a")
            else:
                self.clock.advance((LEASE + 3 * MARGIN).total_seconds())
            ended = self.jobs.end("a", {"exit_code": None})
            acknowledged = self._follow(victim)
            if victim.is_alive():
                self._thaw(victim, self.calls)
                self.look.give_up_owner("a")
                self.settle()
            after = self.batches()
        assert not self.trouble, self.trouble
        changed = [place for place, rows in acknowledged.items() if after.get(place) != rows]
        assert not changed, f"acknowledged, and changed since: {changed}"
        self._check_everything()
        if (job := self.jobs.get("a")) is not None:
            assert job.outcome == {"exit_code": None if ended else 0}, "an outcome was overwritten"

    def _follow(self, victim: threading.Thread) -> dict[str, Any]:
        """Let others settle everything, during which the victim may go on; return the batches that were acknowledged
        before the last of them went on."""
        if self.calls.others is None:
            self.settle()
            return self.batches()
        successor = self._begin(lambda: acting_as(SUCCESSOR, lambda: self.settle(counts=True)))
        self._wait(successor, self.calls.others)
        acknowledged = self.acknowledged_batches()
        if victim.is_alive():
            self._thaw(victim, self.calls)
        acknowledged = self.acknowledged_batches() | acknowledged
        if successor.is_alive():
            self._thaw(successor, self.calls.others)
        self.settle()
        return acknowledged

    def _begin(self, act: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._noting_trouble, args=(act,), daemon=True)
        thread.start()
        return thread

    def _wait(self, thread: threading.Thread, calls: Calls) -> None:
        """Wait until a worker is frozen, or has come to its end."""
        while thread.is_alive() and not (calls.reached.wait(0.001) and calls.strike is Strike.FREEZE):
            continue

    def _thaw(self, thread: threading.Thread, calls: Calls) -> None:
        calls.thawed.set()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), f"the {calls.worker} never came to an end"

    def _noting_trouble(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Crash:
            return
        except BaseException as error:
            if self.calls.struck.startswith(MAY_END_A_JOB) and self.calls.strike is not Strike.FREEZE:
                return
            self.trouble.append(f"a round ended: {error!r}")

    def settle(self, *, counts: bool = False) -> None:
        """Let a new job work until everything that was sent is delivered."""
        job = self.job(self.case.then, counts=counts)
        if not self._make_rounds(job, MAX_ROUNDS):
            states = [
                f"{p.partition_key} {p.status} {p.owner} {p.last_error} {p.progress}"
                for p in self.look.view.partitions()
            ]
            raise AssertionError(f"the fleet never came to rest: {states}")

    def _make_rounds(self, job: IngestionJob, rounds: int) -> bool:
        """Let a job work until everything that was sent is delivered; return whether that is so after some rounds."""
        for _ in range(rounds):
            self.round(job)
            if CHECK in self.case.then.downstream:
                self.check()
            if self.is_settled():
                job.give_back()
                return True
            self.clock.advance(5)
        return False

    def work_together(self, *dags: Dag) -> None:
        """Let jobs of several versions of a DAG work side by side, a round each, until everything is delivered."""
        with self._in_process():
            jobs = [self.job(dag) for dag in dags]
            steps = list(self.steps())
            for _ in range(MAX_ROUNDS):
                for step in steps[:1]:
                    step()
                steps = steps[1:]
                for job in jobs:
                    self.round(job)
                self.check()
                self.clock.advance(5)
                if not steps and self.is_settled():
                    return
            raise AssertionError("the fleet never came to rest")

    def is_settled(self) -> bool:
        done = all(self._is_done(partition) for partition in self.look.view.partitions())
        return done and set(self.rows(MAIN)) | set(self.rows(DEAD_LETTER)) >= set(self.sent)

    def _is_done(self, partition: Partition) -> bool:
        progress = landed_progress(partition.progress)
        assert progress is not None
        return not progress.landed and (not progress.is_ended or partition.status is PartitionStatus.COMPLETED)

    @contextmanager
    def _in_process(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(
                counted_files(self.calls, object_store=self.case.object_store, published=self._published)
            )
            stack.enter_context(counted_sinks(self.calls))
            stack.enter_context(one_after_the_other(lands_first=self.case.lands_first))
            yield

    # What there is to see

    def _published(self, path: str) -> None:
        file = Path(path)
        if file.parent == self.folder / MAIN and file.name not in self._seen:
            self._seen.add(file.name)
            self.visible += [text_of(data) for data in pq.read_table(file)["data"].to_pylist()]

    def batches(self) -> dict[tuple[str, str], Any]:
        """Return what is visible of each batch in each sink, as far as it says what became of a record.

        When a record turned out to be bad differs by nature.
        """
        return {
            (sink, batch_id): sorted((text_of(row["data"]), row.get("made_by") or "") for row in rows)
            for sink in (MAIN, "copy", DEAD_LETTER)
            for batch_id, rows in self.kind(sink).batches(self.folder / sink).items()
        }

    def acknowledged_batches(self) -> dict[tuple[str, str], Any]:
        """Return what is visible of each batch that no partition has to deliver any more."""
        progresses = [landed_progress(partition.progress) for partition in self.look.view.partitions()]
        owed = {batch.batch_id for progress in progresses if progress for batch in progress.landed}
        return {place: rows for place, rows in self.batches().items() if place[1] not in owed}

    def rows(self, sink: str) -> Counter[str]:
        batches = self.kind(sink).batches(self.folder / sink)
        return Counter(text_of(row["data"]) for rows in batches.values() for row in rows)

    def _check_everything(self) -> None:
        bad = {event for event in self.sent if event.startswith(BAD.decode())}
        main, dead = self.rows(MAIN), self.rows(DEAD_LETTER)
        if self.case.first.schema != self.case.then.schema:  # what was a dead letter is delivered again as it is; what
            dead -= main  # is in a file with others stays there, and is one as well
        taken = main + dead
        assert taken == Counter(self.sent), f"lost {Counter(self.sent) - taken}, doubled {taken - Counter(self.sent)}"
        late = [dag.rejects or 0 for dag in (self.case.first, self.case.then)]
        assert {event for event in dead if event not in bad} <= {e for e in self.sent if number_of(e) < max(late)}
        assert not {event for event in main if number_of(event) < min(late)}, "late, and delivered"
        assert set(self.rows("copy").values()) <= {1}, "doubled in a copy"
        first, then = self.case.first, self.case.then
        if first.sinks == then.sinks == (MAIN, "copy") and first.copies and then.copies:
            assert set(self.rows("copy")) == {e for e in self.sent if e not in bad and not number_of(e) % 2}
        self._check_order()
        main_sink = replace(self.places.settings(self.folder / MAIN), name=MAIN)
        audited = audit_source(self.look.view, [main_sink], reads_rows=True)
        assert not audited.findings, [str(finding) for finding in audited.findings]
        if self.settings().get("completes"):
            assert self._counted() == len(self.sent), "an interval counts what was not delivered, or counts it twice"
        for partition in self.look.view.partitions():
            assert not partition.is_parked and bool(partition.attempts) <= bool(partition.last_error), partition
            assert self._is_done(partition), partition

    def _counted(self) -> int:
        """Return how many records the complete intervals count."""
        folded = IntervalLedger(self.look.view).fold()
        assert folded is not None
        return sum(each.records for each in (*folded[1].open, *folded[1].late))

    def _check_order(self) -> None:
        last: dict[str, int] = {}
        for event in self.visible:
            key = event.removeprefix(BAD.decode()).rpartition("/")[0]
            if not event.startswith(BAD.decode()):
                assert number_of(event) > last.get(key, -1), f"out of order: {event} in {self.visible}"
                last[key] = number_of(event)


class StruckShards(StruckSource):
    """A stream of two shards, one of which is split on the way."""

    format: ShardFormat = KINESIS

    def __init__(self, *details: Any, **more: Any) -> None:
        super().__init__(*details, **more)
        self.client = self.connect()
        self._send(6)
        self._sync(self.client, self.look).run([STREAM], forced=True)

    def connect(self) -> Any:
        """Create the stream; return a client."""
        client = InProcessClient(Engine(self.clock))
        client.create_stream(StreamName=STREAM, ShardCount=2)
        return client

    def steps(self) -> Sequence[Callable[[], None]]:
        return [lambda: None, lambda: self._send(3), self._split, lambda: self._send(3), lambda: self._send(3)]

    def _send(self, count: int) -> None:
        for _ in range(count):
            number = len(self.sent)
            key = f"k{number % 4}"
            event = f"{'bad' if number == 1 else ''}{key}/{number}"
            self.clock.advance(0.001)
            self.put(key, event)
            self.sent.append(event)

    def put(self, key: str, event: str) -> None:
        self.client.put_record(StreamName=STREAM, Data=event.encode(), PartitionKey=key)

    def _split(self) -> None:
        shard = self.client.list_shards(StreamName=STREAM)["Shards"][0]
        self.client.split_shard(StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(2**126))

    def _sync(self, client: Any, coordinator: SourceCoordinator) -> ShardSync:
        return ShardSync(client, coordinator, initial_position="TRIM_HORIZON", sleep=self.clock.sleep)

    def settings(self) -> dict[str, Any]:
        return {"streams": (STREAM,), "completes": timedelta(hours=1)}

    @property
    def layout(self) -> RecordLayout:
        return self.format.layout

    def reading(self, coordinator: SourceCoordinator, *, counts: bool) -> dict[str, Any]:
        client = self._client(counts=counts)
        sync = self._sync(client, coordinator)
        streams = Streams(
            (STREAM,),
            lambda stream: describe_stream(client, stream, clock=self.clock, sleep=self.clock.sleep),
            sync=lambda: sync.run((STREAM,), forced=False),
            clock=self.clock,
        )
        return {"reading": partial(ShardReading, None, KinesisStreams(streams=(STREAM,)), streams, format=self.format)}

    def _client(self, *, counts: bool) -> Any:
        return self.counted(self.client) if counts else self.client

    def counted(self, client: Any) -> Any:
        """Return a client whose calls count."""
        return CountedClient(client, self.calls, lambda: KinesisUnavailableError("connection reset"))

    @contextmanager
    def _in_process(self) -> Iterator[None]:
        def land(spark: object, plans: Sequence[Any], options: Any, *_: object) -> list[Any]:
            client = self._client(counts=acting.get() != "")
            return [land_shard(client, options, plan, clock=self.clock, sleep=self.clock.sleep) for plan in plans]

        with super()._in_process(), patch.object(shard_reading, "land", land):
            yield


class StruckChanges(StruckShards):
    """The stream of a table, of which one shard ends and has two children on the way."""

    format = ChangeFormat()

    def connect(self) -> Any:
        self.service = DynamoDbStreams(self.clock)
        self.service.create_table(STREAM, shards=2)
        return client_of(self.service)

    def put(self, key: str, event: str) -> None:
        self.service.put(STREAM, strings(id=key, event=event))

    def _split(self) -> None:
        stream = self.service.stream_of(STREAM)
        self.service.end(stream, next(iter(stream.shards.values())), split=True)

    def counted(self, client: Any) -> Any:
        """Return a client each of whose calls to the service counts."""
        error = partial(KinesisUnavailableError, "connection reset")
        streams, tables = (
            CountedClient(InProcessDynamoDb(self.service, name), self.calls, error)
            for name in ("dynamodbstreams", "dynamodb")
        )
        return StreamsClient(streams, tables, sleep=self.clock.sleep)


class StruckItems(StruckSource):
    """Partitions of items whose keys have no ASCII letter."""

    source = "objects"

    def __init__(self, *details: Any, **more: Any) -> None:
        super().__init__(*details, **more)
        self.items = FakeSource()
        for key in COLLIDING_KEYS:
            self._create(key)

    def steps(self) -> Sequence[Callable[[], None]]:
        return [lambda: None, lambda: self._create("later"), lambda: None, lambda: None, lambda: None]

    def _create(self, key: str) -> None:
        names, number = [f"{key}.{n}" for n in range(2)], len(self.sent)
        for name in names:
            pages = [[f"{'bad' if (number := number + 1) == 2 else ''}{key}/{number}"] for _ in range(2)]
            self.items.items[name] = FakeItem(pages, positions=True)
            self.sent += [event for page in pages for event in page]
        self.look.create_partitions({key: PartitionProgress(kind=KIND, items=named(*names)).to_mapping()})

    def settings(self) -> dict[str, Any]:
        # A batch for each item: several are landed one after the other, and a partition lives for some rounds.
        return {"reads": ReadsSettings(kind=KIND), "max_batch_bytes": 60}

    @property
    def layout(self) -> RecordLayout:
        return ITEM_RECORDS

    def reading(self, coordinator: SourceCoordinator, *, counts: bool) -> dict[str, Any]:
        reader = _CountedReader(self.items, self.calls) if counts else self.items
        return {"reading": partial(ItemReading, None, KIND, reader)}

    @contextmanager
    def _in_process(self) -> Iterator[None]:
        def land(spark: object, plans: Sequence[Any], reader: Any, options: Any, *_: object) -> list[Any]:
            # Each page becomes a row group: files are begun, and written, while the source is read.
            return [land_partition(reader, options, plan, row_group_bytes=1, clock=self.clock) for plan in plans]

        with super()._in_process(), patch.object(item_reading, "land_items", land):
            yield


class _CountedReader(ItemReader):
    """A reader that counts every page."""

    def __init__(self, items: FakeSource, calls: Calls) -> None:
        self._items, self._calls = items, calls

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        for page in self._items.read(item, position):
            self._calls.make("source.read", lambda: None, lambda: SourceUnavailableError("connection reset"))
            yield page

    def origin(self, item: Item) -> str:
        return self._items.origin(item)


STRUCK: Mapping[str, type[StruckSource]] = {"shards": StruckShards, "items": StruckItems, "changes": StruckChanges}


def live(
    case: Case,
    folder: Path,
    point: int | None,
    *,
    strike: Strike = Strike.FREEZE,
    gives_up: bool = False,
    successor: int | None = None,
    places: SinkUnderTest | None = None,
) -> Calls:
    """Let a case happen with the victim struck at a point; return its calls.

    :param places: the kind of the sinks; Parquet by default.
    :param successor: the call at which the next owner is frozen while the victim goes on; None for none.
    :raises AssertionError: naming the call, if anything is wrong afterwards.
    """
    others = None if successor is None else Calls(successor, worker=SUCCESSOR)
    calls = Calls(point, strike, others=others)
    life = STRUCK[case.source](case, folder, calls, gives_up=gives_up, places=places)
    try:
        life.live()
    except AssertionError as error:
        how = "given up" if gives_up else "expired"
        kind = "" if places is None else f" into {type(places).__name__}"
        next_owner = "" if others is None else f", the next owner frozen at call {successor} ({others.struck})"
        where = f"{case}{kind}, {strike} at call {point} ({calls.struck}), lease {how}{next_owner}"
        raise AssertionError(f"{where}: {error}") from error
    return calls
