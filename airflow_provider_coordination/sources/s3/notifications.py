"""Messages that announce objects of S3: those of S3 itself, through SNS raw or wrapped, and those of EventBridge.

Pure: a message's text becomes the objects that it announces. An object is named as a listing names it, so that a scan
and a queue claim it by the same name. S3's own messages have URL-encoded keys; those of EventBridge have plain ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.sources.s3.objects import ListedObject, object_uri

TEST_EVENT = "s3:TestEvent"
CREATED, CREATED_BY_EVENTBRIDGE = "ObjectCreated:", "Object Created"
SEQUENCER_DIGITS = 64
"""The length that sequencers are filled up to before they are compared; S3's have 16 or 18 digits."""


class UnreadableMessageError(SourceError):
    """A message announces no object of S3 in a known form. It stays in the queue."""


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """An object that a message announces.

    :param listed: the object, as a listing names it; its time is the time of the event.
    :param sequencer: orders the events of one key; empty if unknown.
    """

    listed: ListedObject
    sequencer: str = ""

    def is_before(self, other: Announcement) -> bool:
        """Return whether another event of the same key is newer, by the sequencer if both have one."""
        if self.sequencer and other.sequencer:
            return self._order < other._order
        return self.listed.modified < other.listed.modified

    @property
    def _order(self) -> str:
        return self.sequencer.lower().ljust(SEQUENCER_DIGITS, "0")  # as AWS compares those of different lengths


def announced(body: str) -> tuple[Announcement, ...]:
    """Return the objects that a message announces; none for a test event, or an event of another type.

    :param body: the message, as SQS returns it.
    :raises UnreadableMessageError: if it is no message of S3 or EventBridge about objects, or a field is wrong.
    """
    message = _json_object(body)
    if message.get("Type") == "Notification" and isinstance(message.get("Message"), str):  # wrapped by SNS
        message = _json_object(message["Message"])
    if message.get("Event") == TEST_EVENT:
        return ()
    if "Records" in message:
        records = message["Records"]
        if not isinstance(records, list):
            raise UnreadableMessageError("its 'Records' is not a list")
        return tuple(each for record in records for each in _of_record(record))
    if message.get("source") == "aws.s3" and "detail-type" in message:
        return _of_event(message)
    raise UnreadableMessageError(f"it is not an S3 event; its fields are {', '.join(map(repr, sorted(message)[:5]))}")


def _of_record(record: Any) -> tuple[Announcement, ...]:
    if not isinstance(record, Mapping) or not str(record.get("eventSource")).endswith(":s3"):
        raise UnreadableMessageError("one of its records is not an S3 event")
    if not _text(record, "eventName").removeprefix("s3:").startswith(CREATED):
        return ()
    bucket, described = _part(_part(record, "s3"), "bucket"), _part(_part(record, "s3"), "object")
    try:
        key = unquote_plus(_text(described, "key"), errors="strict")
    except UnicodeDecodeError:
        raise UnreadableMessageError("its field 'key' is not URL-encoded UTF-8") from None
    return (_announcement(_text(bucket, "name"), key, described, "eTag", _text(record, "eventTime")),)


def _of_event(event: Mapping[str, Any]) -> tuple[Announcement, ...]:
    if event["detail-type"] != CREATED_BY_EVENTBRIDGE:
        return ()
    detail = _part(event, "detail")
    bucket, described = _part(detail, "bucket"), _part(detail, "object")
    return (_announcement(_text(bucket, "name"), _text(described, "key"), described, "etag", _text(event, "time")),)


def _announcement(bucket: str, key: str, described: Mapping[str, Any], etag: str, time: str) -> Announcement:
    size = described.get("size")
    if type(size) is not int or size < 0:
        raise UnreadableMessageError(f"its field 'size' must be a number of bytes; got {size!r}")
    try:
        modified = datetime.fromisoformat(time)
    except ValueError:
        raise UnreadableMessageError(f"its time {time!r} is not an instant") from None
    if modified.tzinfo is None:
        raise UnreadableMessageError(f"its time {time!r} has no time zone")
    version = _text(described, etag).strip('"')
    sequencer = described.get("sequencer")
    return Announcement(
        listed=ListedObject(object_uri(bucket, key), size, f'"{version}"', modified),
        sequencer=sequencer if isinstance(sequencer, str) and len(sequencer) <= SEQUENCER_DIGITS else "",
    )


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableMessageError("it is not JSON") from None
    if not isinstance(value, Mapping):
        raise UnreadableMessageError("it is not a JSON object")
    return value


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    if not isinstance(part, Mapping):
        raise UnreadableMessageError(f"its field {name!r} must be a JSON object; got {type(part).__name__}")
    return part


def _text(whole: Mapping[str, Any], name: str) -> str:
    text = whole.get(name)
    if not isinstance(text, str) or not text:
        raise UnreadableMessageError(f"its field {name!r} must be text that is not empty; got {type(text).__name__}")
    return text
