"""DynamoDB Streams within a process: tables whose shards roll, split, end and are trimmed, on a manual clock.

It behaves as AWS documents: a shard ends and has one child, or two where a partition of the table splits; records are
kept for 24 hours, and a closed shard is listed as long; a stream that is disabled can be read for another day, and
enabling it makes another one. The limits are those of the service: 1,000 records and 1 MB a page, 100 shards a page,
15 minutes for an iterator. `tests/integration/test_dynamodb_streams.py` compares it with MiniStack where both can.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import cache
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import botocore.session
from botocore.errorfactory import ClientExceptionsFactory
from botocore.exceptions import ClientError, ParamValidationError
from botocore.validate import ParamValidator

from airflow_provider_coordination.sources.dynamodb_streams.client import StreamsClient
from tests.support.kinesis_server.clock import VirtualClock

RETENTION = timedelta(hours=24)
ITERATOR_LIFE = timedelta(minutes=15)
PAGE_BYTES = 2**20
PAGE_RECORDS = 1000
PAGE_SHARDS = 100
PAGE_STREAMS = 100
REGION, ACCOUNT = "eu-west-1", "123456789012"
TTL_IDENTITY = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}

Item = Mapping[str, Mapping[str, Any]]
Request = Mapping[str, Any]


@dataclass
class Change:
    """A record of a shard, and when it was written to the precision of the clock."""

    at: datetime
    record: dict[str, Any]

    @property
    def number(self) -> int:
        return int(self.record["dynamodb"]["SequenceNumber"])


@dataclass
class StreamShard:
    """A shard; `partition` is the part of the table's keys whose changes it has, as a prefix of their digest."""

    shard_id: str
    parent: str | None
    partition: str
    first: int
    begun_at: datetime
    last: int | None = None
    ended_at: datetime | None = None
    changes: list[Change] = field(default_factory=list)
    trimmed: int = 0
    """The number of the last record that is trimmed; 0 if none is."""


@dataclass
class TableStream:
    """A stream of a table."""

    arn: str
    table: str
    view: str
    created_at: datetime
    shards: dict[str, StreamShard] = field(default_factory=dict)
    disabled_at: datetime | None = None


class DynamoDbStreams:
    """One account of the service in one region.

    :param clock: its clock.
    """

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.streams: dict[str, TableStream] = {}
        self.tables: dict[str, dict[str, Any]] = {}
        self.items: dict[str, dict[str, Item]] = {}
        self.calls: Counter[str] = Counter()
        self.refusals: list[tuple[str, str]] = []
        """The operations that are refused next, and the codes."""
        self.empty_pages = 0
        """How many pages of a shard are empty before each page with records."""
        self.listing_delay_seconds = 0.0
        """How long after its beginning a shard is first listed."""
        self.page_items = 1000
        """How many items a page of a scan has at most."""
        self._number = 10**20

    # Tables

    def create_table(self, name: str, *, view: str | None = "NEW_AND_OLD_IMAGES", shards: int = 2) -> None:
        """Create a table whose key is `id`, with a stream of a view type.

        :param shards: how many shards its stream begins with; a power of two.
        """
        self.tables[name] = {"shards": shards, "stream": None, "created_at": self.clock.now()}
        self.items[name] = {}
        if view is not None:
            self.enable(name, view)

    def delete_table(self, name: str) -> None:
        self.disable(name)
        del self.tables[name], self.items[name]

    def enable(self, name: str, view: str = "NEW_AND_OLD_IMAGES") -> None:
        self.clock.advance(1)
        now = self.clock.now()
        label = now.replace(tzinfo=None).isoformat(timespec="milliseconds")
        arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}/stream/{label}"
        stream = self.streams[arn] = TableStream(arn, name, view, now)
        self.tables[name]["stream"] = arn
        bits = (self.tables[name]["shards"] - 1).bit_length()
        for part in range(self.tables[name]["shards"]):
            self._begin(stream, None, f"{part:0{bits}b}" if bits else "")

    def disable(self, name: str) -> None:
        stream = self.streams[self.tables[name]["stream"]]
        stream.disabled_at = self.clock.now()
        for shard in self._open(stream):
            self._end(shard)

    def stream_of(self, name: str) -> TableStream:
        return self.streams[self.tables[name]["stream"]]

    def put(self, name: str, item: Item) -> None:
        key = json.dumps(item["id"], sort_keys=True)
        old = self.items[name].get(key)
        self.items[name][key] = item
        self._emit(name, key, "INSERT" if old is None else "MODIFY", old, item)

    def remove(self, name: str, key: Mapping[str, Any], *, by_ttl: bool = False) -> None:
        text = json.dumps(key, sort_keys=True)
        self._emit(name, text, "REMOVE", self.items[name].pop(text), None, by_ttl=by_ttl)

    def _emit(
        self, name: str, key: str, operation: str, old: Item | None, new: Item | None, *, by_ttl: bool = False
    ) -> None:
        arn = self.tables[name]["stream"]
        if arn is None or self.streams[arn].disabled_at is not None:
            return
        stream = self.streams[arn]
        bits = f"{sha256(key.encode()).digest()[0]:08b}"
        shard = next(shard for shard in self._open(stream) if bits.startswith(shard.partition))
        images = {
            **({"NewImage": new} if new is not None and "NEW" in stream.view else {}),
            **({"OldImage": old} if old is not None and "OLD" in stream.view else {}),
        }
        now, number = self.clock.now(), self._next()
        record = {
            "eventID": str(number),
            "eventName": operation,
            "dynamodb": {
                "ApproximateCreationDateTime": now.replace(microsecond=0),
                "Keys": {"id": json.loads(key)},
                "SequenceNumber": str(number),
                "SizeBytes": len(json.dumps(images, default=str)) + len(key),
                "StreamViewType": stream.view,
                **images,
            },
            **({"userIdentity": TTL_IDENTITY} if by_ttl else {}),
        }
        shard.changes.append(Change(now, record))

    # Shards

    def roll(self, name: str, *, split: bool = False) -> None:
        """End each open shard, and begin its child, or two."""
        stream = self.stream_of(name)
        for shard in self._open(stream):
            self.end(stream, shard, split=split)

    def end(self, stream: TableStream, shard: StreamShard, *, split: bool = False) -> None:
        self._end(shard)
        for bit in ("0", "1") if split else ("",):
            self._begin(stream, shard.shard_id, shard.partition + bit)

    def _open(self, stream: TableStream) -> list[StreamShard]:
        return [shard for shard in stream.shards.values() if shard.last is None]

    def _begin(self, stream: TableStream, parent: str | None, partition: str) -> None:
        number = self._next()
        name = f"shardId-{number:020d}-{len(stream.shards):08x}"
        stream.shards[name] = StreamShard(name, parent, partition, number, self.clock.now())

    def _end(self, shard: StreamShard) -> None:
        shard.last, shard.ended_at = self._next(), self.clock.now()

    def _next(self) -> int:
        self._number += 7
        return self._number

    def _trim(self) -> None:
        kept_since = self.clock.now() - RETENTION
        for arn, stream in list(self.streams.items()):
            if stream.disabled_at is not None and stream.disabled_at < kept_since:
                del self.streams[arn]
                continue
            for shard in list(stream.shards.values()):
                while shard.changes and shard.changes[0].at < kept_since:
                    shard.trimmed = shard.changes.pop(0).number
                if shard.ended_at is not None and shard.ended_at < kept_since:
                    del stream.shards[shard.shard_id]

    # The API

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self.calls[operation] += 1
        self._trim()
        for number, (refused, code) in enumerate(self.refusals):
            if refused == operation:
                del self.refusals[number]
                raise ApiRefusedError(code, "refused by a test")
        answer: dict[str, Any] = getattr(self, f"_{operation}")(request)
        return answer

    def _describe_table(self, request: Request) -> dict[str, Any]:
        name = request["TableName"].rpartition("/")[2]
        if name not in self.tables:
            raise ApiRefusedError("ResourceNotFoundException", f"Requested resource not found: Table: {name} not found")
        sizes = [len(json.dumps(item, default=str)) for item in self.items[name].values()]
        table = {
            "TableName": name,
            "TableStatus": "ACTIVE",
            "CreationDateTime": self.tables[name]["created_at"],
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "ItemCount": len(sizes),
            "TableSizeBytes": sum(sizes),
            **self.tables[name].get("described", {}),
        }
        arn = self.tables[name]["stream"]
        return {"Table": {**table, **({} if arn is None else {"LatestStreamArn": arn})}}

    def _scan(self, request: Request) -> dict[str, Any]:
        """Return a page of a segment; an item belongs to a segment by the digest of its key."""
        name, total = request["TableName"].rpartition("/")[2], request.get("TotalSegments", 1)
        if name not in self.tables:
            raise ApiRefusedError("ResourceNotFoundException", f"Requested resource not found: Table: {name} not found")
        items = {
            key: item
            for key, item in sorted(self.items[name].items())
            if sha256(key.encode()).digest()[1] % total == request.get("Segment", 0)
        }
        start = request.get("ExclusiveStartKey")
        after = "" if start is None else json.dumps(start["id"], sort_keys=True)
        left = [key for key in items if key > after]
        page = left[: request.get("Limit", self.page_items)]
        more = {"LastEvaluatedKey": {"id": json.loads(page[-1])}} if len(left) > len(page) else {}
        return {"Items": [items[key] for key in page], "ScannedCount": len(page), **more}

    def _list_streams(self, request: Request) -> dict[str, Any]:
        table, limit = request["TableName"], request.get("Limit", PAGE_STREAMS)
        arns = sorted(arn for arn, each in self.streams.items() if each.table == table)
        left = [arn for arn in arns if arn > request.get("ExclusiveStartStreamArn", "")]
        more = {"LastEvaluatedStreamArn": left[limit - 1]} if len(left) > limit else {}
        return {"Streams": [{"StreamArn": arn, "TableName": table} for arn in left[:limit]], **more}

    def _describe_stream(self, request: Request) -> dict[str, Any]:
        stream, limit = self._stream(request["StreamArn"]), request.get("Limit", PAGE_SHARDS)
        listed_until = self.clock.now() - timedelta(seconds=self.listing_delay_seconds)
        shards = [shard for shard in stream.shards.values() if shard.begun_at <= listed_until]
        if (parent := request.get("ShardFilter", {}).get("ShardId")) is not None:
            shards = [shard for shard in shards if shard.parent == parent]
        left = [shard for shard in shards if shard.shard_id > request.get("ExclusiveStartShardId", "")]
        more = {"LastEvaluatedShardId": left[limit - 1].shard_id} if len(left) > limit else {}
        return {
            "StreamDescription": {
                "StreamArn": stream.arn,
                "TableName": stream.table,
                "StreamStatus": "ENABLED" if stream.disabled_at is None else "DISABLED",
                "StreamViewType": stream.view,
                "CreationRequestDateTime": stream.created_at,
                "Shards": [_described(shard) for shard in left[:limit]],
                **more,
            }
        }

    def _get_shard_iterator(self, request: Request) -> dict[str, Any]:
        arn, shard_id, kind = request["StreamArn"], request["ShardId"], request["ShardIteratorType"]
        shard = self._shard(arn, shard_id)
        after = shard.trimmed
        if kind == "LATEST":
            after = self._number
        elif "SequenceNumber" in request:
            number = int(request["SequenceNumber"])
            if number < shard.first or (shard.last is not None and number > shard.last):
                raise ApiRefusedError("ValidationException", "Invalid SequenceNumber")
            if number <= shard.trimmed:
                raise ApiRefusedError("TrimmedDataAccessException", "The sequence number is beyond the trim horizon")
            after = number - (kind == "AT_SEQUENCE_NUMBER")
        return {"ShardIterator": self._iterator(arn, shard_id, after)}

    def _iterator(self, arn: str, shard_id: str, after: int, empty: int = 0) -> str:
        return json.dumps([arn, shard_id, after, self.clock.now().isoformat(), empty])

    def _get_records(self, request: Request) -> dict[str, Any]:
        arn, shard_id, after, given_at, empty = json.loads(request["ShardIterator"])
        if self.clock.now() - datetime.fromisoformat(given_at) > ITERATOR_LIFE:
            raise ApiRefusedError("ExpiredIteratorException", "Iterator expired")
        shard = self._shard(arn, shard_id)
        if after < shard.trimmed:
            raise ApiRefusedError("TrimmedDataAccessException", "The records were trimmed")
        left = [change for change in shard.changes if change.number > after]
        if left and empty < self.empty_pages:
            return {"Records": [], "NextShardIterator": self._iterator(arn, shard_id, after, empty + 1)}
        page, size = [], 0
        for change in left[: min(request.get("Limit", PAGE_RECORDS), PAGE_RECORDS)]:
            size += change.record["dynamodb"]["SizeBytes"]
            if page and size > PAGE_BYTES:
                break
            page.append(change)
        after = page[-1].number if page else after
        is_done = shard.last is not None and len(page) == len(left)
        following = {} if is_done else {"NextShardIterator": self._iterator(arn, shard_id, after)}
        return {"Records": [change.record for change in page], **following}

    def _stream(self, arn: str) -> TableStream:
        if arn not in self.streams:
            raise ApiRefusedError("ResourceNotFoundException", f"Requested resource not found: Stream: {arn} not found")
        return self.streams[arn]

    def _shard(self, arn: str, shard_id: str) -> StreamShard:
        shards = self._stream(arn).shards
        if shard_id not in shards:
            raise ApiRefusedError("ResourceNotFoundException", "Requested resource not found: Shard does not exist")
        return shards[shard_id]


class ApiRefusedError(Exception):
    """A call is refused, with a code and a message."""


class InProcessDynamoDb:
    """A client as boto3 makes it; botocore's model of the API checks each request.

    :param service: the service.
    :param name: its name in boto3.
    """

    def __init__(self, service: DynamoDbStreams, name: str) -> None:
        self._service = service
        self._model = _model(name)
        self.exceptions = _exceptions(name)
        self.meta = SimpleNamespace(region_name=REGION, endpoint_url="http://in-process")

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        api_name = "".join(part.title() for part in operation.split("_"))
        errors = ParamValidator().validate(request, self._model.operation_model(api_name).input_shape)
        if errors.has_errors():
            raise ParamValidationError(report=errors.generate_report())
        date = format_datetime(self._service.clock.now(), usegmt=True)
        metadata: Any = {"HTTPStatusCode": 200, "HTTPHeaders": {"date": date}}
        try:
            return {**self._service.call(operation, request), "ResponseMetadata": metadata}
        except ApiRefusedError as refusal:
            code, message = refusal.args
            refused: Any = {
                "Error": {"Code": code, "Message": message},
                "ResponseMetadata": {**metadata, "HTTPStatusCode": 400},
            }
            kind: type[ClientError] = self.exceptions.from_code(code)
            raise kind(refused, api_name) from None

    def describe_table(self, **request: Any) -> dict[str, Any]:
        return self._call("describe_table", request)

    def scan(self, **request: Any) -> dict[str, Any]:
        return self._call("scan", request)

    def list_streams(self, **request: Any) -> dict[str, Any]:
        return self._call("list_streams", request)

    def describe_stream(self, **request: Any) -> dict[str, Any]:
        return self._call("describe_stream", request)

    def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        return self._call("get_shard_iterator", request)

    def get_records(self, **request: Any) -> dict[str, Any]:
        return self._call("get_records", request)


def client_of(service: DynamoDbStreams, view_type: str = "KEYS_ONLY") -> StreamsClient:
    """Return our client of a service."""
    streams, tables = InProcessDynamoDb(service, "dynamodbstreams"), InProcessDynamoDb(service, "dynamodb")
    return StreamsClient(streams, tables, view_type=view_type, sleep=service.clock.sleep)


def _described(shard: StreamShard) -> dict[str, Any]:
    numbers = {"StartingSequenceNumber": str(shard.first)}
    if shard.last is not None:
        numbers["EndingSequenceNumber"] = str(shard.last)
    parent = {} if shard.parent is None else {"ParentShardId": shard.parent}
    return {"ShardId": shard.shard_id, "SequenceNumberRange": numbers, **parent}


@cache
def _model(name: str) -> Any:
    return botocore.session.get_session().get_service_model(name)


@cache
def _exceptions(name: str) -> Any:
    return ClientExceptionsFactory().create_client_exceptions(_model(name))


def strings(**values: str) -> Item:
    """Return an item whose attributes are strings."""
    return {name: {"S": value} for name, value in values.items()}


def events_of(payloads: Sequence[str]) -> list[str]:
    """Return the attribute `event` of items as plain JSON."""
    return [json.loads(payload)["event"] for payload in payloads]
