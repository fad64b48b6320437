"""A real S3 server's objects, announced by a real queue, are found and read as a scan would find and read them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.diagnosis import CheckStatus, permission_findings
from airflow_provider_coordination.sources.items import ItemGoneError, ItemUnreadableError
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.sources.queues import Queue
from airflow_provider_coordination.sources.s3.announcements import AnnouncedObjects
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.sources.s3.scan import S3Scan
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.clock import ManualClock
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.s3_messages import eventbridge_event, s3_message, sns_message
from tests.support.s3_server import S3Server
from tests.support.sqs_model import SqsModel

KEYS = ["in/a b/ü+%41 & <x>.json", "in/plain.json", "in/100%.json", "in/日本.json"]


class Source:
    """A bucket, its queue, and a worker that finds its objects."""

    def __init__(self, s3: S3Server, bucket: str, servers: DynamoDbServer, queue: str) -> None:
        self.bucket, self.s3 = bucket, s3.client()
        self.sqs, self.url = servers.sqs_client(), queue
        self.settings = S3Objects(paths=(f"s3://{bucket}/in/",), aws=s3.settings, queue=queue, format="text")
        self.worker = SourceCoordinator(InMemoryStore(), "objects", "a")
        self.worker.initialize()

    def put(self, key: str, body: bytes = b"one line\n") -> dict[str, Any]:
        """Put an object; return what its announcement says of it."""
        answer = self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)
        return {"bucket": self.bucket, "etag": answer["ETag"].strip('"'), "size": len(body)}

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def find(self) -> list[dict[str, Any]]:
        """Find what the queue announces; return the items."""
        supplier = AnnouncedObjects(self.settings, self.worker, open_queue=lambda _: Queue(self.url, self.sqs))
        return self._items(self.worker.supply(supplier))

    def scan(self) -> list[dict[str, Any]]:
        return self._items(self.worker.supply(S3Scan(replace(self.settings, queue=None), self.worker)))

    def _items(self, created: list[str] | None) -> list[dict[str, Any]]:
        found = [self.worker.view.get(key) for key in created or ()]
        return [item for partition in found if partition is not None for item in partition.progress["items"]]

    def read(self, item: dict[str, Any]) -> list[bytes]:
        reader = ObjectReader(self.settings)
        return [line for page in reader.read(item, "") for line in page.records["data"].to_pylist()]

    @property
    def left(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(map(int, answer.values()))


@pytest.fixture
def source(s3: S3Server, s3_bucket: str, dynamodb: DynamoDbServer, sqs_queue: str) -> Source:
    return Source(s3, s3_bucket, dynamodb, sqs_queue)


def test_announced_objects_are_what_a_scan_lists(source: Source) -> None:
    described = {key: source.put(key) for key in KEYS}
    wraps: list[Callable[[str], str]] = [str, sns_message]
    for key, fields in described.items():
        source.send(*(wrap(s3_message(key, **fields)) for wrap in wraps), eventbridge_event(key, **fields))
    items = source.find()
    assert sorted(item["uri"] for item in items) == sorted(f"s3://{source.bucket}/{key}" for key in KEYS)
    assert [source.read(item) for item in items] == [[b"one line"]] * len(KEYS)
    assert source.left == 0
    assert source.scan() == []


def test_objects_that_changed_before_reading_are_gone(source: Source) -> None:
    for key in ("in/deleted", "in/replaced"):
        source.send(s3_message(key, **source.put(key)))
    deleted, replaced = sorted(source.find(), key=lambda item: str(item["uri"]))
    source.s3.delete_object(Bucket=source.bucket, Key="in/deleted")
    source.put("in/replaced", b"another line\n")
    for item in (deleted, replaced):
        with pytest.raises(ItemGoneError):
            source.read(item)


@pytest.mark.parametrize("size", [3, 30])
def test_object_of_another_size_than_announced_is_unreadable(source: Source, size: int) -> None:
    source.send(s3_message("in/a", **source.put("in/a") | {"size": size}))
    [item] = source.find()
    with pytest.raises(ItemUnreadableError, match=rf"/in/a has 9 bytes, not {size} as it was announced"):
        source.read(item)


def test_delivered_objects_are_deleted_and_found_again_when_new(source: Source) -> None:
    source.settings = replace(source.settings, delete_on_success=True, reconcile=timedelta(days=1))
    source.send(s3_message("in/a", **source.put("in/a"), time="2040-01-01T00:00:00Z"))  # after the object's own time
    [item] = source.find()
    [partition] = source.worker.leases.acquire(1)
    source.worker.leases.complete(partition.partition_key, {**partition.progress, "is_ended": True})
    ObjectReader(source.settings).delivered([item])
    assert source.s3.list_objects_v2(Bucket=source.bucket).get("KeyCount") == 0
    source.send(s3_message("in/a", **source.put("in/a"), time="2040-01-02T00:00:00Z"))
    assert [each["uri"] for each in source.find()] == [item["uri"]]


def test_queue_of_kept_messages_is_empty_once_delivered(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.settings = replace(source.settings, acknowledge="delivered")
    for key in KEYS:
        source.send(s3_message(key, **source.put(key)))
    assert len(source.find()) == source.left == len(KEYS)
    for partition in source.worker.leases.acquire(10):
        source.worker.leases.complete(partition.partition_key, {**partition.progress, "is_ended": True})
    source.find()
    assert source.left == 0


def test_missing_queue_is_named(source: Source) -> None:
    source.url = f"{source.url}-gone"
    source.settings = replace(source.settings, queue=source.url)
    with pytest.raises(ConfigurationError, match=rf"queue {source.url}: cannot receive messages: .*check the URL"):
        source.find()


def test_doctor_proves_permissions_and_leaves_messages(source: Source, dynamodb: DynamoDbServer) -> None:
    source.send("a message")
    needed = get_kind("s3").permissions(source.url, lambda service: dynamodb.settings)
    assert needed is not None
    findings = [finding for finding in permission_findings(*needed) if finding.topic == "permission"]
    assert {finding.status for finding in findings} == {CheckStatus.OK}
    assert len(findings) == 4
    [message] = source.sqs.receive_message(
        QueueUrl=source.url, AttributeNames=["ApproximateReceiveCount"]
    )["Messages"]  # fmt: skip
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


# The model of the unit tests, held against the server


@pytest.fixture(params=["model", "server"])
def queue(request: pytest.FixtureRequest) -> tuple[Queue, Callable[[str], Any], Callable[[], None]]:
    """A queue, what sends to it, and what lets two seconds pass."""
    if request.param == "model":
        clock = ManualClock()
        model = SqsModel(clock, max_receipts=2)
        return Queue("https://sqs.us-east-1.amazonaws.com/1/a", model), model.send, lambda: clock.advance(2.1)
    servers, url = request.getfixturevalue("dynamodb"), request.getfixturevalue("sqs_queue")
    client = servers.sqs_client()
    dead = client.create_queue(QueueName=f"{url.rpartition('/')[2]}-dead")["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    return (
        Queue(url, client),
        lambda body: client.send_message(QueueUrl=url, MessageBody=body),
        lambda: time.sleep(2.1),
    )


def test_hidden_messages_return_with_another_handle(queue: Any) -> None:
    queue, send, pass_time = queue
    send("a")
    [first] = queue.receive(wait_seconds=0, hidden_seconds=2)
    assert queue.receive(wait_seconds=0, hidden_seconds=2) == []
    pass_time()
    [again] = queue.receive(wait_seconds=0, hidden_seconds=2)
    assert (again.id, again.body) == (first.id, "a")
    assert again.handle != first.handle
    queue.delete([first.handle])
    assert queue.hide([again.handle], 2) == []
    queue.delete([again.handle])
    pass_time()
    assert queue.receive(wait_seconds=0, hidden_seconds=2) == []


def test_messages_received_too_often_leave_the_queue(queue: Any) -> None:
    queue, send, pass_time = queue
    send("a")
    for _ in range(2):
        [_received] = queue.receive(wait_seconds=0, hidden_seconds=2)
        pass_time()
    assert queue.receive(wait_seconds=0, hidden_seconds=2) == []
    assert queue.waiting() == 0
