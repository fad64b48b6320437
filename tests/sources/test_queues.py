"""A queue is reached in its own region, in batches of ten, and proves its permissions without receiving a message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from airflow_provider_coordination.aws import AwsSettings, Proof, prove
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.sources.queues import Queue, QueueAddress, check_queue_url, region_of
from tests.support.clock import ManualClock
from tests.support.sqs_model import SqsModel

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/events"


@pytest.mark.parametrize(
    ("url", "region"),
    [
        (URL, "eu-west-1"),
        ("https://sqs-fips.us-gov-west-1.amazonaws.com/1/a", "us-gov-west-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/1/a", "cn-north-1"),
        ("https://vpce-1a-2b.sqs.ap-southeast-2.vpce.amazonaws.com/1/a", "ap-southeast-2"),
        ("https://us-west-2.queue.amazonaws.com/1/a", "us-west-2"),
        ("http://localhost:4566/000000000000/events", None),
    ],
)
def test_region_is_read_from_the_url(url: str, region: str | None) -> None:
    assert check_queue_url(url) is None
    assert region_of(url) == region


@pytest.mark.parametrize(
    "url", ["", "events", "arn:aws:sqs:eu-west-1:1:events", "https://sqs.eu-west-1.amazonaws.com/"]
)
def test_other_texts_are_no_url_of_a_queue(url: str) -> None:
    assert str(check_queue_url(url)).startswith("must be the URL of a queue")


def test_connection_of_another_region_reaches_the_queue() -> None:
    asked: list[Any] = []

    def aws(*arguments: Any) -> AwsSettings:
        asked.append(arguments)
        return AwsSettings(region=arguments[1])

    QueueAddress(url=URL, aws_conn_id="lake", region_name="us-east-1").open(SimpleNamespace(aws=aws))  # type: ignore[arg-type]
    QueueAddress(url="http://localhost/1/a", aws_conn_id=None, region_name="us-east-1").settings(
        SimpleNamespace(aws=aws)
    )  # type: ignore[arg-type]
    assert asked == [("lake", "eu-west-1", "sqs"), (None, "us-east-1", "sqs")]


def test_messages_are_deleted_and_hidden_ten_at_a_time() -> None:
    clock = ManualClock()
    model = SqsModel(clock)
    queue = Queue(URL, model)
    model.send(*map(str, range(25)))
    messages = [each for _ in range(3) for each in queue.receive(wait_seconds=1, hidden_seconds=60)]
    handles = [message.handle for message in messages]
    assert len({message.id for message in messages}) == 25
    assert queue.hide(handles, 600) == []
    clock.advance(599)
    assert queue.waiting() == 0
    assert queue.delete(handles) == []
    assert not model.messages
    assert queue.hide(handles[:1], 60) == handles[:1]
    assert model.calls == ["receive"] * 3 + ["hide"] * 3 + ["describe"] + ["delete"] * 3 + ["hide"]


def test_failed_deletion_is_tried_again_unless_the_handle_is_wrong() -> None:
    failed = [{"Id": "0", "SenderFault": True}, {"Id": "2", "SenderFault": False}]
    client = SimpleNamespace(delete_message_batch=lambda **_: {"Failed": failed})
    assert Queue(URL, client).delete(["a", "b", "c"]) == ["c"]


class Account:
    """A client of SQS whose calls are refused or valid; it counts what was received."""

    def __init__(self, *denied: str, key: str | None = None) -> None:
        self._denied = denied
        self._key = key

    def get_queue_attributes(self, **_: Any) -> Any:
        self._answer("sqs:GetQueueAttributes")
        named = {"KmsMasterKeyId": self._key} if self._key else {}
        return {"Attributes": {"QueueArn": "arn:aws:sqs:eu-west-1:123456789012:events", **named}}

    def receive_message(self, **request: Any) -> None:
        assert request["MaxNumberOfMessages"] == 0
        self._answer("sqs:ReceiveMessage", "InvalidParameterValue")

    def delete_message(self, **_: Any) -> None:
        self._answer("sqs:DeleteMessage", "ReceiptHandleIsInvalid")

    def change_message_visibility(self, **_: Any) -> None:
        self._answer("sqs:ChangeMessageVisibility", "ReceiptHandleIsInvalid")

    def _answer(self, action: str, code: str | None = None) -> None:
        refused = "AccessDenied" if action in self._denied else code
        if refused is not None:
            raise ClientError({"Error": {"Code": refused, "Message": refused}}, action)


def test_permissions_are_proven_without_receiving_messages() -> None:
    def proofs(client: Account) -> dict[str, Proof]:
        needed = Queue(URL, client).permissions()
        return {each.action: prove(each.call)[0] if each.call else Proof.UNKNOWN for each in needed}

    actions = ["sqs:GetQueueAttributes", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"]
    assert proofs(Account()) == dict.fromkeys(actions, Proof.ALLOWED)
    assert proofs(Account(*actions)) == dict.fromkeys(actions, Proof.DENIED)
    assert proofs(Account(key="arn:aws:kms:eu-west-1:1:key/2"))["kms:Decrypt"] is Proof.UNKNOWN


def test_doctor_checks_a_queue_but_no_bucket() -> None:
    s3 = get_kind("s3")
    assert s3.permissions("s3://bucket/in/", lambda service: AwsSettings(region="us-east-1")) is None
    with pytest.raises(ConfigurationError, match=r"queue 'events' must be the URL of a queue"):
        s3.permissions("events", lambda service: AwsSettings(region="us-east-1"))
