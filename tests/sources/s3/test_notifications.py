"""Messages of S3, of SNS and of EventBridge announce objects by the names that a listing gives them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_coordination.sources.s3.notifications import UnreadableMessageError, announced
from airflow_provider_coordination.sources.s3.objects import ListedObject
from tests.support.s3_messages import eventbridge_event, s3_message, sns_message

# The examples of AWS's documentation of S3's event messages, with an object of the same content.
DOCUMENTED: dict[str, Any] = {
    "Records": [
        {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-west-2",
            "eventTime": "1970-01-01T00:00:00.000Z",
            "eventName": "ObjectCreated:Put",
            "userIdentity": {"principalId": "AIDAJDPLRKLG7UEXAMPLE"},
            "requestParameters": {"sourceIPAddress": "172.16.0.1"},
            "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8/IgAtTv8xRjskZQpcI"},
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": "testConfigRule",
                "bucket": {
                    "name": "amzn-s3-demo-bucket",
                    "ownerIdentity": {"principalId": "A3NL1KOZZKExample"},
                    "arn": "arn:aws:s3:::amzn-s3-demo-bucket",
                },
                "object": {
                    "key": "HappyFace.jpg",
                    "size": 1024,
                    "eTag": "d41d8cd98f00b204e9800998ecf8427e",
                    "versionId": "096fKKXTRTtl3on89fVO.nfljtsv6qko",
                    "sequencer": "0055AED6DCD90281E5",
                },
            },
        }
    ]
}
DOCUMENTED_TEST = {
    "Service": "Amazon S3",
    "Event": "s3:TestEvent",
    "Time": "2014-10-13T15:57:02.089Z",
    "Bucket": "amzn-s3-demo-bucket",
    "RequestId": "5582815E1AEA5ADF",
    "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR+YstdA6Knx4Ip8EXAMPLE",
}
DOCUMENTED_EVENT = {
    "version": "0",
    "id": "17793124-05d4-b198-2fde-7ededc63b103",
    "detail-type": "Object Created",
    "source": "aws.s3",
    "account": "111122223333",
    "time": "2021-11-12T00:00:00Z",
    "region": "ca-central-1",
    "resources": ["arn:aws:s3:::amzn-s3-demo-bucket1"],
    "detail": {
        "version": "0",
        "bucket": {"name": "amzn-s3-demo-bucket1"},
        "object": {
            "key": "example-key",
            "size": 5,
            "etag": "b1946ac92492d2347c6235b4d2611184",
            "version-id": "IYV3p45BT0ac8hjHg1houSdS1a.Mro8e",
            "sequencer": "617f08299329d189",
        },
        "request-id": "N4N7GDK58NMKJ12R",
        "requester": "123456789012",
        "source-ip-address": "1.2.3.4",
        "reason": "PutObject",
    },
}
HAPPY_FACE = ListedObject(
    "s3://amzn-s3-demo-bucket/HappyFace.jpg",
    1024,
    '"d41d8cd98f00b204e9800998ecf8427e"',
    datetime(1970, 1, 1, tzinfo=UTC),
)
EXAMPLE = ListedObject(
    "s3://amzn-s3-demo-bucket1/example-key", 5, '"b1946ac92492d2347c6235b4d2611184"', datetime(2021, 11, 12, tzinfo=UTC)
)


def found(body: str) -> list[ListedObject]:
    return [each.listed for each in announced(body)]


@pytest.mark.parametrize(
    ("message", "objects"),
    [
        (DOCUMENTED, [HAPPY_FACE]),
        (DOCUMENTED_EVENT, [EXAMPLE]),
        ({"Records": DOCUMENTED["Records"] * 2}, [HAPPY_FACE, HAPPY_FACE]),
        (DOCUMENTED_TEST, []),
        ({"Records": []}, []),
        ({"Records": [{**DOCUMENTED["Records"][0], "eventName": "s3:ObjectCreated:Copy"}]}, [HAPPY_FACE]),
        ({"Records": [{**DOCUMENTED["Records"][0], "eventSource": "minio:s3"}]}, [HAPPY_FACE]),
        ({"Records": [{**DOCUMENTED["Records"][0], "eventName": "ObjectRemoved:Delete"}]}, []),
        ({"Records": [{**DOCUMENTED["Records"][0], "eventName": "LifecycleTransition"}]}, []),
        ({**DOCUMENTED_EVENT, "detail-type": "Object Deleted"}, []),
    ],
)
@pytest.mark.parametrize("wrap", [json.dumps, sns_message], ids=["plain", "sns"])
def test_documented_messages_announce_their_objects(message: Any, objects: list[ListedObject], wrap: Any) -> None:
    assert found(wrap(message)) == objects


@pytest.mark.parametrize("key", ["a b+c%41&ü/日本 .json", "in/plain", "in/%", "in/+", "in/\N{GRINNING FACE}", "a\nb"])
def test_keys_arrive_as_the_listing_has_them(key: str) -> None:
    for body in (s3_message(key), eventbridge_event(key)):
        assert [each.uri for each in found(body)] == [f"s3://bucket/{key}"]


@pytest.mark.parametrize(
    ("first", "second"),
    [("0055AED6DCD90281E5", "0055AED6DCD90281E6"), ("617F08299329D1", "617f08299329d189"), ("00A", "00B0")],
)
def test_sequencers_of_any_length_order_events(first: str, second: str) -> None:
    [older], [newer] = (announced(s3_message("a", sequencer=each)) for each in (first, second))
    assert older.is_before(newer)
    assert not newer.is_before(older)
    [unknown] = announced(s3_message("a", sequencer=None))
    assert not unknown.is_before(newer)


BROKEN = [
    ("no JSON", "it is not JSON"),
    ("[" * 100_000, "it is not JSON"),
    ("[]", "it is not a JSON object"),
    ('{"order": 7}', "it is not an S3 event; its fields are 'order'"),
    ('{"Type": "Notification", "Message": "hello"}', "it is not JSON"),
    ('{"Records": 7}', "its 'Records' is not a list"),
    ('{"Records": [{"eventSource": "aws:kinesis"}]}', "one of its records is not an S3 event"),
    (s3_message("a", size=None), "its field 'size' must be a number of bytes; got None"),
    (s3_message("a", size=-1), "its field 'size' must be a number of bytes; got -1"),
    (s3_message("a", etag=None), "its field 'eTag' must be text that is not empty; got NoneType"),
    (s3_message("a", time="yesterday"), "its time 'yesterday' is not an instant"),
    (s3_message("a", time="2026-01-01T00:00:00"), "its time '2026-01-01T00:00:00' has no time zone"),
    (s3_message("a").replace('"key": "a"', '"key": "%ff"'), "its field 'key' is not URL-encoded UTF-8"),
    (s3_message("a").replace('"bucket": {"name": "bucket"}', '"bucket": "b"'), "its field 'bucket' must be a JSON"),
    (eventbridge_event("a").replace('"detail": {', '"other": {'), "its field 'detail' must be a JSON object; got None"),
]


@pytest.mark.parametrize(("body", "reason"), BROKEN, ids=[reason for _, reason in BROKEN])
def test_unreadable_message_says_why(body: str, reason: str) -> None:
    with pytest.raises(UnreadableMessageError) as raised:
        announced(body)
    assert str(raised.value).startswith(reason)
