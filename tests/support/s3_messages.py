"""Messages about objects, as S3, SNS and EventBridge send them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

TIME = "2025-12-31T12:00:00.000Z"


def s3_message(
    key: str,
    *,
    bucket: str = "bucket",
    etag: str | None = "1",
    size: int | None = 10,
    sequencer: str | None = "0055",
    time: str = TIME,
    name: str = "ObjectCreated:Put",
) -> str:
    """A message of S3 about one object, whose ETag is as S3's own messages have it: without quotes."""
    described: dict[str, Any] = {"key": quote_plus(key, safe="/"), "size": size, "eTag": etag, "sequencer": sequencer}
    return json.dumps(
        {
            "Records": [
                {
                    "eventVersion": "2.1",
                    "eventSource": "aws:s3",
                    "eventTime": time,
                    "eventName": name,
                    "s3": {
                        "bucket": {"name": bucket},
                        "object": {field: value for field, value in described.items() if value is not None},
                    },
                }
            ]
        }
    )


def eventbridge_event(key: str, *, bucket: str = "bucket", etag: str = "1", size: int = 10, time: str = TIME) -> str:
    """An event of EventBridge about one object."""
    described = {"key": key, "size": size, "etag": etag, "sequencer": "0055"}
    detail = {"bucket": {"name": bucket}, "object": described}
    return json.dumps({"detail-type": "Object Created", "source": "aws.s3", "time": time, "detail": detail})


def sns_message(message: Any) -> str:
    """A message that SNS wraps, without raw delivery."""
    text = message if isinstance(message, str) else json.dumps(message)
    return json.dumps({"Type": "Notification", "MessageId": "1", "TopicArn": "arn", "Message": text, "Timestamp": TIME})


TEST_EVENT = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Time": TIME, "Bucket": "bucket"})
