"""Objects that a queue announces are each in one partition, and their messages are deleted only after that."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, PartitionStatus
from airflow_provider_coordination.sources.items import SourceUnavailableError
from airflow_provider_coordination.sources.kept_messages import FAMILY
from airflow_provider_coordination.sources.queues import Queue
from airflow_provider_coordination.sources.s3 import announcements
from airflow_provider_coordination.sources.s3.announcements import AnnouncedObjects
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.stepped_store import CALLS, ProcessKilled
from tests.sources.s3.scans import PATH, Bucket, Scans, flat, found, names_in
from tests.support.depth import at_depth
from tests.support.s3_messages import TEST_EVENT, eventbridge_event, s3_message, sns_message
from tests.support.seed import seeded
from tests.support.sqs_model import SqsModel

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/objects"


class Announced(Scans):
    """A source of a bucket whose queue announces objects; a scan lists the bucket."""

    def __init__(
        self, bucket: Bucket | None = None, *, chosen: random.Random | None = None, max_receipts: int | None = None,
        store: Any = None, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(bucket or Bucket(), store, **settings)
        self.settings = replace(self.settings, queue=URL)
        self.sqs = SqsModel(self.clock, chosen, max_receipts)
        self.listed = 0

    def send(self, *names: str, **fields: Any) -> None:
        self.sqs.send(*(s3_message(f"in/{name}", **fields) for name in names))

    def supplier(self, worker: SourceCoordinator) -> AnnouncedObjects:
        return AnnouncedObjects(
            self.settings, worker, open_queue=lambda address: Queue(address.url, self.sqs), list_path=self._list
        )

    def _list(self, path: str) -> Bucket:
        self.listed += 1
        return self.bucket

    def run(self, worker: SourceCoordinator | None = None) -> list[list[str]]:
        coordinator = worker or self.worker()
        created = coordinator.supply(self.supplier(coordinator))
        assert created is not None
        return sorted(sorted(names_in(coordinator.view.get(key))) for key in created)

    def scan(self) -> list[list[str]]:
        """Scan the bucket with the same source and no queue, as a nightly task does."""
        queue, self.settings = self.settings, S3Objects(paths=(PATH,))
        try:
            return super().run()
        finally:
            self.settings = queue

    def deliver(self, *names: str) -> None:
        """Complete the partitions of these objects; without names, all of them."""
        worker = self.worker("job")
        for partition in worker.leases.acquire(1000):
            if not names or set(names) & set(names_in(partition)):
                worker.leases.complete(partition.partition_key, {**partition.progress, "is_ended": True})
        worker.leases.give_up_all()

    @property
    def kept(self) -> int:
        view = self.worker().view
        return len(view.store.query(view.family(FAMILY), PartitionStatus.UNASSIGNED))


def test_announced_objects_are_recorded_then_their_messages_deleted() -> None:
    source = Announced()
    source.send("a", "b c+ü")
    source.sqs.send(eventbridge_event("in/d"), sns_message(s3_message("in/e")), TEST_EVENT)
    recorded: list[int] = []
    source.sqs.before = lambda call: recorded.append(len(source.partitions())) if call == "delete" else None
    assert source.run() == [["a", "b c+ü", "d", "e"]]
    assert recorded == [1]
    assert not source.sqs.messages
    [partition] = source.partitions()
    assert partition.progress["items"][0] == found("a").to_item()
    assert source.listed == 0


def test_duplicates_and_replaced_versions_are_recorded_once() -> None:
    source = Announced()
    source.send("a", "a", "b")
    source.send("c", etag="2", sequencer="0056")
    source.send("c", etag="1", sequencer="0055")
    assert source.run() == [["a", "b", "c"]]
    [items] = [partition.progress["items"] for partition in source.partitions()]
    assert [item["version"] for item in items if item["uri"].endswith("c")] == ['"2"']
    source.send("a", "c", etag="2")
    assert source.run() == [["a"]]  # the same content of `c` is known


def test_scan_and_queue_read_each_object_once() -> None:
    source = Announced(Bucket("a", "b"))
    source.send("a")
    assert source.run() == [["a"]]
    assert source.scan() == [["b"]]
    source.send("b", "c")
    assert source.run() == [["c"]]
    source.bucket.put(found("c"))
    assert source.scan() == []


def test_reconciling_scan_finds_what_the_queue_lost() -> None:
    source = Announced(Bucket("a", "lost"))
    source.settings = replace(source.settings, reconcile=timedelta(days=1))
    source.send("a")
    assert source.run() == [["a"], ["lost"]]
    source.bucket.put(found("lost later"))
    assert source.run() == []
    source.clock.advance(86400)
    assert source.run() == [["lost later"]]


def test_messages_of_other_sources_are_reported_and_left(caplog: pytest.LogCaptureFixture) -> None:
    source = Announced(max_receipts=2)
    source.send("a")
    source.sqs.send('{"order": 7}', s3_message("out/b"), s3_message("in/c", bucket="another"))
    assert source.run() == [["a"]]
    assert [message.receipts for message in source.sqs.messages.values()] == [1, 1, 1]
    assert "1 messages stay in the queue" in caplog.text and "it is not an S3 event" in caplog.text
    assert "2 messages stay in the queue" in caplog.text and "outside of 'paths'" in caplog.text
    for _ in range(2):
        source.clock.advance(301)
        assert source.run() == []
    assert (len(source.sqs.messages), len(source.sqs.dead)) == (0, 3)


def test_objects_that_are_not_selected_leave_the_queue() -> None:
    source = Announced(include=("*.json",))
    source.send("a.json", "b.csv", "_hidden/c.json", "folder/")
    source.sqs.send(s3_message("in/d.json", name="ObjectRemoved:Delete"))
    assert source.run() == [["a.json"]]
    assert not source.sqs.messages


def test_several_buckets_share_a_queue() -> None:
    source = Announced()
    source.settings = replace(source.settings, paths=(PATH, "s3://other/"))
    source.sqs.send(s3_message("in/a"), s3_message("deep/b", bucket="other"))
    source.run()
    items = [item["uri"] for partition in source.partitions() for item in partition.progress["items"]]
    assert sorted(items) == ["s3://bucket/in/a", "s3://other/deep/b"]


def test_objects_share_a_partition_only_with_their_folder() -> None:
    source = Announced(folder_depth=1)
    source.send("x/a", "y/b", "x/c")
    assert source.run() == [["x/a", "x/c"], ["y/b"]]


def test_forgotten_objects_are_not_found_again() -> None:
    source = Announced(Bucket("a"), forget_after=timedelta(days=1))
    source.settings = replace(source.settings, reconcile=timedelta(hours=1))
    source.send("a")
    assert source.run() == [["a"]]
    source.clock.advance(3 * 86400)
    source.run()
    assert source.worker().claims.partition_of(found("a").name) is None
    source.send("a")
    assert source.run() == []
    assert not source.sqs.messages


def test_deletion_leaves_no_partition_that_blocks_its_messages() -> None:
    source = Announced(delete_on_success=True, wait_for=None)
    source.settings = replace(source.settings, reconcile=timedelta(days=1), aws=source.settings.aws)
    source.send("a")
    source.run()
    source.deliver()
    worker = source.worker()
    worker.claims.release([found("a").name])  # as an interrupted deletion leaves it
    source.send("a")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("airflow_provider_coordination.sources.s3.scan.delete_delivered", lambda items, client: None)
        assert source.run() == [["a"]]


def test_run_ends_while_messages_keep_coming() -> None:
    source = Announced()

    def another(call: str) -> None:
        source.clock.advance(10)
        source.send(f"{len(source.sqs.calls):04}")

    source.sqs.before = another
    source.send("a")
    packs = source.run()
    assert 50 < len(flat(packs)) < 100


def test_calls_are_few_for_many_objects() -> None:
    source = Announced()
    source.send(*(f"{n:05}" for n in range(3000)))
    assert len(flat(source.run())) == 3000
    assert len(source.sqs.calls) <= 3 * 250
    assert source.listed == 0


# Errors


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("AWS.SimpleQueueService.NonExistentQueue", "check the URL in 'queue', its account, and its region"),
        ("QueueDoesNotExist", "check the URL in 'queue', its account, and its region"),
        ("AccessDeniedException", "the policy of the queue allow sqs:ReceiveMessage on it"),
        ("KMS.AccessDeniedException", "allow kms:Decrypt on the key of the queue"),
        ("KmsDisabled", "check that the key is enabled"),
        ("InvalidSecurity", "begin with https://"),
    ],
)
def test_refused_queue_is_named_with_the_remedy(code: str, remedy: str) -> None:
    source = Announced()
    source.sqs.refused = code
    with pytest.raises(ConfigurationError) as raised:
        source.run()
    assert str(raised.value).startswith(f"queue {URL}: cannot receive messages: ")
    assert remedy in str(raised.value)


@pytest.mark.parametrize("code", ["RequestThrottled", "KmsThrottled", "InternalError", "OverLimit"])
def test_unavailable_queue_is_a_temporary_error(code: str) -> None:
    source = Announced()
    source.sqs.refused = code
    with pytest.raises(SourceUnavailableError, match=f"queue {URL}: cannot receive messages"):
        source.run()


# Messages that are kept until their objects are delivered


def kept_source(**settings: Any) -> Announced:
    source = Announced(max_objects=1, **settings)
    source.settings = replace(source.settings, acknowledge="delivered")
    return source


def test_kept_messages_are_deleted_once_delivered() -> None:
    source = kept_source()
    source.send("a", "b")
    source.sqs.send(TEST_EVENT)
    assert source.run() == [["a"], ["b"]]
    assert (len(source.sqs.messages), len(source.sqs.visible), source.kept) == (2, 0, 2)
    source.deliver("a")
    source.run()
    assert [message.id for message in source.sqs.messages.values()] == ["m2"]
    source.deliver()
    source.run()
    assert (len(source.sqs.messages), source.kept) == (0, 0)


def test_kept_messages_stay_hidden_and_are_received_once() -> None:
    source = kept_source()
    source.send(*"abcdefghijkl")
    source.run()
    for _ in range(46):  # of a quarter of an hour
        source.clock.advance(900)
        source.run()
    assert [message.receipts for message in source.sqs.messages.values()] == [1] * 12
    assert source.sqs.calls.count("hide") <= 2 * 24


def test_message_hidden_for_twelve_hours_is_received_again() -> None:
    source = kept_source()
    source.send("a")
    source.run()
    for _ in range(60):
        source.clock.advance(900)
        source.run()
    [message] = source.sqs.messages.values()
    assert message.receipts == 2
    source.deliver()
    source.run()
    assert not source.sqs.messages


def test_message_received_again_only_renews_its_receipt() -> None:
    source = kept_source()
    source.send("a")
    source.run()
    source.clock.advance(2 * 3600)  # nobody looked
    assert source.run() == []
    assert source.kept == 1
    source.deliver()
    source.run()
    assert (len(source.sqs.messages), source.kept) == (0, 0)


def test_duplicate_of_a_delivered_object_is_deleted() -> None:
    source = kept_source()
    source.send("a")
    source.run()
    source.deliver()
    source.send("a")
    source.run()
    assert (len(source.sqs.messages), source.kept) == (0, 0)


@pytest.mark.parametrize("fate", ["parked", "removed", "unreadable"])
def test_message_of_undeliverable_object_goes_to_the_dead(fate: str, caplog: pytest.LogCaptureFixture) -> None:
    source = kept_source(max_receipts=2)
    source.send("a")
    source.run()
    worker = source.worker("job")
    [partition] = worker.leases.acquire(1)
    if fate == "parked":
        worker.store.transact(update=[partition.closed(PARKED_UNTIL)])
    elif fate == "removed":
        worker.leases.give_up_all()
        worker.store.delete(worker.view.get(partition.partition_key))  # type: ignore[arg-type]
    else:
        failed = {**partition.progress, "is_ended": True, "failed": [{"item": 0, "reason": "damaged", "within": ""}]}
        worker.leases.complete(partition.partition_key, failed)
    for _ in range(3):
        source.run()
        source.clock.advance(2 * 3600)
    source.run()
    assert (len(source.sqs.messages), len(source.sqs.dead), source.kept) == (0, 1, 0)
    assert "1 messages are let go" in caplog.text


def test_object_that_was_set_aside_is_deleted_once_delivered() -> None:
    source = kept_source()
    source.send("a")
    source.run()
    worker = source.worker("job")
    [partition] = worker.leases.acquire(1)
    failed = {**partition.progress, "is_ended": True, "failed": [{"item": 0, "reason": "damaged", "within": ""}]}
    worker.create_partitions({f"{partition.partition_key}#0.ab": partition.progress})
    worker.leases.complete(partition.partition_key, failed)
    source.run()
    assert len(source.sqs.messages) == 1
    source.deliver()
    source.run()
    assert not source.sqs.messages


# Whoever is killed, loses or doubles nothing


class Steps:
    """Counts the calls of a run to its store and its queue, and does something at one of them."""

    def __init__(self, store: Any, at: int | None, strike: Callable[[], object], *, is_after: bool) -> None:
        self.made: list[str] = []
        self._store = store
        self._at = at
        self._strike = strike
        self._is_after = is_after

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name not in CALLS:
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            self.before(name)
            answer = attribute(*arguments, **named)
            self.after(name)
            return answer

        return call

    def before(self, name: str) -> None:
        self.made.append(name)
        if not self._is_after:
            self._strike_once()

    def after(self, name: str) -> None:
        if self._is_after:
            self._strike_once()

    def _strike_once(self) -> None:
        if len(self.made) - 1 == self._at:
            self._at = None
            self._strike()


def killed(source: Announced) -> None:
    raise ProcessKilled


def unanswered(source: Announced) -> None:
    raise StoreUnavailableError("connection reset")


def overtaken(source: Announced) -> None:
    """The run stands still, its lease and the messages pass to another worker, and then it goes on."""
    source.clock.advance(3700)
    source.run(source.worker("other"))


def live(
    at: int | None, strike: Callable[[Announced], object], acknowledge: str, *, is_after: bool = False
) -> list[str]:
    """Announce objects with duplicates, in any order; strike one run, go on with others; return the struck calls."""
    chosen = seeded(at, acknowledge)
    store = InMemoryStore()
    store.transaction_items = 6
    source = Announced(chosen=chosen, store=store, max_objects=2)
    source.settings = replace(source.settings, acknowledge=acknowledge)
    names = [f"{n:02}" for n in range(14)]
    for name in names + chosen.sample(names, 5):
        source.send(name)
    if acknowledge == "delivered":  # so that the struck run deletes and hides as well
        source.run()
        source.deliver("00", "01", "02")
        source.clock.advance(2000)
        source.send(*names[:4], "14", "15")
        names += ["14", "15"]
    steps = Steps(store, at, lambda: strike(source), is_after=is_after)
    source.sqs.before, source.sqs.after = steps.before, steps.after
    with suppress(ProcessKilled, StoreUnavailableError):
        worker = source.worker("struck", steps)
        worker.supply(source.supplier(worker))  # nothing, if another worker has the lease
    source.sqs.before = source.sqs.after = lambda call: None
    for _ in range(4):
        source.clock.advance(3700)
        source.run()
    objects = Counter(name for partition in source.partitions() for name in names_in(partition))
    assert objects == Counter(names), f"at {at}: {objects}"
    if acknowledge == "delivered":
        assert source.sqs.messages, f"at {at}: a message is gone before its object is delivered"
        source.deliver()
        for _ in range(3):
            source.clock.advance(3700)
            source.run()
    assert not source.sqs.messages, f"at {at}: {source.sqs.messages}"
    assert not source.kept
    return steps.made


@pytest.mark.deep
@pytest.mark.parametrize("acknowledge", ["recorded", "delivered"])
@pytest.mark.parametrize("strike", [killed, unanswered, overtaken], ids=["killed", "unanswered", "overtaken"])
def test_struck_run_loses_and_doubles_nothing(
    acknowledge: str, strike: Callable[[Announced], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "GATHERED_OBJECTS", 8)
    monkeypatch.setattr(announcements, "RECEIVERS", 1)
    made = live(None, strike, acknowledge)
    wanted = {"receive", "delete", "transact", *({"hide"} if acknowledge == "delivered" else ())}
    assert wanted <= set(made)
    points = range(len(made))
    for at in seeded(strike.__name__).sample(points, at_depth(short=min(12, len(points)), deep=len(points))):
        for is_after in (False, True):
            live(at, strike, acknowledge, is_after=is_after)
