"""DynamoDB Streams in the form of Kinesis: the calls with which shards are described, listed and read.

Shard sync, reading and landing know one API: the API of Kinesis. `StreamsClient` has its four calls, and differs where
DynamoDB Streams does:

- A table is named. Its stream is found again for each description, and named by its ARN from then on.
- A listing always has all shards. Those of an instant are derived from their lineage.
- There is no position at an instant. Reading starts at the earliest record, and the reader leaves out earlier ones.
- A trimmed position is refused. Reading then starts at the earliest record, as in Kinesis, and the reader reports it.
- A response does not say how far it is behind, nor which children a shard has. An iterator of this client also holds
  stream, shard and the number of empty pages before, so that the last page can list the children.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NamedTuple

from airflow_provider_coordination.aws import AwsClients, AwsSettings, aws_client, aws_session, response_time
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.dynamodb_streams import MAX_RECORDS_PER_READ, VIEWS
from airflow_provider_coordination.sources.dynamodb_streams.changes import ChangeRecords, change_decoder
from airflow_provider_coordination.sources.kinesis.client import KinesisUnavailableError, StreamNotFoundError
from airflow_provider_coordination.sources.kinesis.progress import LINEAGE_KIND
from airflow_provider_coordination.sources.kinesis.reader import CONNECTIONS, SILENCE_SECONDS
from airflow_provider_coordination.sources.kinesis.records import COLUMNS, ShardCalls
from airflow_provider_coordination.sources.kinesis.stream_names import stream_name, within_quota

RETENTION_HOURS = 24
EMPTY_PAGES = 5
"""After this many empty pages in a row, everything was read: a page may be empty although records follow."""
STATUSES = {"ENABLING": "CREATING", "ENABLED": "ACTIVE", "DISABLING": "ACTIVE", "DISABLED": "ACTIVE"}
"""The statuses of streams, as Kinesis names them. A disabled stream can be read for another day."""
READ_CODES = {
    "LimitExceededException": "ProvisionedThroughputExceededException",
    "ThrottlingException": "ProvisionedThroughputExceededException",
    "TrimmedDataAccessException": "ExpiredIteratorException",
}
"""The codes of refused reads, as Kinesis names them."""
LIST_CODES = {"ThrottlingException": "LimitExceededException"}
FIRST_NUMBER = "0"
"""The first sequence number of a shard that has none yet."""


class StreamOffError(StreamNotFoundError):
    """The table has no stream."""


class _Iterator(NamedTuple):
    """An iterator of this client.

    :param empty_pages: the number of empty pages in a row before it.
    :param shard_id: the shard.
    :param stream_arn: the stream.
    :param iterator: the iterator of DynamoDB Streams.
    """

    empty_pages: int
    shard_id: str
    stream_arn: str
    iterator: str

    def __str__(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> _Iterator:
        empty, shard_id, stream_arn, iterator = text.split(" ", 3)
        return cls(int(empty), shard_id, stream_arn, iterator)


class StreamsClient:
    """A client with the calls of Kinesis that shards need. Threads may share it.

    :param streams: the boto3 client `dynamodbstreams`.
    :param tables: the boto3 client `dynamodb`; None if it only reads shards, and describes none.
    :param view_type: a stream must hold at least what this view type has.
    :param sleep: waits that many seconds while the quota of a listing is exceeded.
    """

    def __init__(
        self,
        streams: Any,
        tables: Any = None,
        *,
        view_type: str = "KEYS_ONLY",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._streams = streams
        self._tables = tables
        self._view_type = view_type
        self._sleep = sleep
        self.meta = streams.meta

    # Streams

    def describe_stream_summary(self, **named: str) -> Mapping[str, Any]:
        """Describe the present stream of a table, or the stream of an ARN.

        :param named: `StreamName`, the name of a table, or `StreamARN`, the ARN of a table or a stream.
        :raises StreamOffError: if the table has no stream.
        :raises ConfigurationError: if its records do not hold what is needed.
        """
        [given] = named.values()
        table = stream_name(given)
        arn = given if _is_stream(given) else self._stream_of(given, table)
        try:
            response = self._streams.describe_stream(StreamArn=arn, Limit=1)
        except self._streams.exceptions.ResourceNotFoundException:
            if _is_stream(given):
                raise
            raise StreamOffError(off(table)) from None
        described = response["StreamDescription"]
        self._check_view(table, described["StreamViewType"])
        ended = described["StreamStatus"] in ("DISABLING", "DISABLED")
        return {
            "StreamDescriptionSummary": {
                "StreamStatus": STATUSES[described["StreamStatus"]],
                "StreamCreationTimestamp": created_at(arn),
                "RetentionPeriodHours": RETENTION_HOURS,
                "StreamARN": arn,
                "Address": arn,
                "Kind": LINEAGE_KIND,
                "Ended": off(table) if ended else None,
                "EarlierStreams": {} if _is_stream(given) else self._earlier(table, arn),
            },
            "ResponseMetadata": response.get("ResponseMetadata", {}),
        }

    def _stream_of(self, given: str, table: str) -> str:
        """Return the ARN of a table's present stream, or of its last one, which can be read for a day.

        A table that was restored has no stream, although an earlier table of its name may have had one.
        """
        try:
            present: str | None = self._tables.describe_table(TableName=given)["Table"].get("LatestStreamArn")
            missing: StreamNotFoundError = StreamOffError(off(table))
        except self._tables.exceptions.ResourceNotFoundException:
            present, where = None, self._tables.meta
            missing = StreamNotFoundError(
                f"table {table!r} does not exist in region {where.region_name} at {where.endpoint_url}: check its "
                "name, the region, the account of the credentials and endpoint_url, or create it; give the ARN of "
                "a table of another account"
            )
        if present is None and (left := self._all_streams(table)):
            present = max(left, key=created_at)
        if present is None:
            raise missing
        return present

    def _arn(self, request: Mapping[str, Any]) -> str:
        """Return the ARN of the stream that a request names by its ARN, or by the name or ARN of its table."""
        given: str = request.get("StreamARN") or request["StreamName"]
        return given if _is_stream(given) else self._stream_of(given, stream_name(given))

    def _all_streams(self, table: str) -> list[str]:
        """Return the ARNs of all streams of a table that can be read; those of a deleted table too."""
        request: dict[str, Any] = {"TableName": table}
        arns: list[str] = []
        while True:
            page = self._listing(partial(self._streams.list_streams, **request), table)
            arns += [stream["StreamArn"] for stream in page["Streams"]]
            if not page.get("LastEvaluatedStreamArn"):
                return arns
            request["ExclusiveStartStreamArn"] = page["LastEvaluatedStreamArn"]

    def _earlier(self, table: str, present: str) -> dict[int, str]:
        arns = (arn for arn in self._all_streams(table) if arn != present)
        return {int(created_at(arn).timestamp()): arn for arn in arns}

    def _check_view(self, table: str, view_type: str) -> None:
        if missing := VIEWS[self._view_type] - VIEWS[view_type]:
            raise ConfigurationError(
                f"stream of table {table!r}: it has view type {view_type}, without {' and '.join(sorted(missing))} "
                f"images, and field 'view_type' needs {self._view_type}; a view type cannot be changed, so disable the "
                f"stream, then run: {turn_on(table, self._view_type)}"
            )

    # Shards

    def list_shards(self, **request: Any) -> Mapping[str, Any]:
        """Return all shards of a stream at once, or those that a filter for an instant selects.

        :param request: the stream, and `ShardFilter` as in Kinesis.
        """
        arn = self._arn(request)
        pages = list(self._pages(arn))
        shards = {shard["ShardId"]: _shard(shard) for page in pages for shard in page["StreamDescription"]["Shards"]}
        wanted = (request.get("ShardFilter") or {}).get("Type", "")
        chosen = LEAVES[wanted](list(shards.values())) if wanted in LEAVES else list(shards.values())
        return {"Shards": chosen, "ResponseMetadata": pages[0].get("ResponseMetadata", {})}

    def _pages(self, arn: str, **request: Any) -> Iterator[Mapping[str, Any]]:
        while True:
            call = partial(self._streams.describe_stream, StreamArn=arn, **request)
            page = self._listing(call, stream_name(arn))
            yield page
            last = page["StreamDescription"].get("LastEvaluatedShardId")
            if not last:
                return
            request["ExclusiveStartShardId"] = last

    def _listing(self, call: Callable[[], Mapping[str, Any]], table: str) -> Mapping[str, Any]:
        def named() -> Mapping[str, Any]:
            with _kinesis_codes(LIST_CODES):
                return call()

        return within_quota(named, self, table, self._sleep)

    # Records

    def get_shard_iterator(self, **request: Any) -> Mapping[str, Any]:
        """Return an iterator for a position of a shard.

        :param request: as in Kinesis.
        """
        arn, shard_id, kind = self._arn(request), request["ShardId"], request["ShardIteratorType"]
        number = request.get("StartingSequenceNumber")
        where = {"ShardIteratorType": "TRIM_HORIZON"}
        if kind == "LATEST" or number is not None:
            where = {"ShardIteratorType": kind, **({} if number is None else {"SequenceNumber": number})}
        with _kinesis_codes(READ_CODES):
            try:
                response = self._streams.get_shard_iterator(StreamArn=arn, ShardId=shard_id, **where)
            except self._streams.exceptions.TrimmedDataAccessException:
                response = self._streams.get_shard_iterator(
                    StreamArn=arn, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
                )
        return {"ShardIterator": str(_Iterator(0, shard_id, arn, response["ShardIterator"]))}

    def get_records(self, **request: Any) -> Mapping[str, Any]:
        """Return one page of a shard's records, and with the last one its children.

        :param request: as in Kinesis.
        """
        at = _Iterator.parse(request["ShardIterator"])
        limit = min(request.get("Limit", MAX_RECORDS_PER_READ), MAX_RECORDS_PER_READ)
        with _kinesis_codes(READ_CODES):
            response = self._streams.get_records(ShardIterator=at.iterator, Limit=limit)
        records, following = _changes(response, at.shard_id), response.get("NextShardIterator")
        empty_pages = 0 if records else at.empty_pages + 1
        return {
            COLUMNS: records,
            "NextShardIterator": following and str(at._replace(empty_pages=empty_pages, iterator=following)),
            "MillisBehindLatest": _behind(records, response, empty_pages),
            "ChildShards": None if following else self._children(at.stream_arn, at.shard_id),
            "ResponseMetadata": response.get("ResponseMetadata", {}),
        }

    def _children(self, arn: str, shard_id: str) -> list[dict[str, Any]]:
        # A service that does not know the filter returns all shards.
        pages = self._pages(arn, ShardFilter={"Type": "CHILD_SHARDS", "ShardId": shard_id})
        shards = (shard for page in pages for shard in page["StreamDescription"]["Shards"])
        return [
            {"ShardId": shard["ShardId"], "ParentShards": [shard_id]}
            for shard in shards
            if shard.get("ParentShardId") == shard_id
        ]


def streams_client(
    aws: AwsSettings, table_aws: AwsSettings, view_type: str = "KEYS_ONLY", clients: AwsClients = aws_client
) -> StreamsClient:
    """Return a client with which streams are described and shards listed.

    :param aws: how to reach DynamoDB Streams.
    :param table_aws: how to reach DynamoDB.
    :param view_type: see `StreamsClient`.
    :param clients: makes clients from settings.
    :raises ConfigurationError: if no region is known, or the endpoint is not a URL.
    """
    return StreamsClient(clients(aws, "dynamodbstreams"), clients(table_aws, "dynamodb"), view_type=view_type)


@cache
def shared_reading_client(aws: AwsSettings) -> StreamsClient:
    """Return the client of this process for reading shards. It makes each call once: the reader repeats calls itself.

    :param aws: the endpoint and the credentials.
    """
    session = aws_session(aws)
    client = aws_client(
        replace(aws, max_attempts=1),
        "dynamodbstreams",
        connections=CONNECTIONS,
        read_timeout_seconds=SILENCE_SECONDS,
        session=session,
    )
    return StreamsClient(ShardCalls(client, session.get_credentials(), change_decoder()))


def _changes(response: Mapping[str, Any], shard_id: str) -> ChangeRecords:
    if COLUMNS in response:
        records: ChangeRecords = response[COLUMNS]
        return records
    try:
        return ChangeRecords.of_response(response["Records"])
    except KeyError as error:
        raise KinesisUnavailableError(
            f"shard '{shard_id}': no valid response: it has no {error}; check endpoint_url"
        ) from None


def created_at(stream_arn: str) -> datetime:
    """Return when a stream was created (aware), to the millisecond: its label says it.

    :raises ConfigurationError: if the label is no instant.
    """
    label = stream_arn.rpartition("/")[2]
    try:
        return datetime.fromisoformat(label).replace(tzinfo=UTC)
    except ValueError:
        raise ConfigurationError(
            f"stream {stream_arn!r}: its label must be an instant, such as 2026-01-01T00:00:00.000; check the ARN"
        ) from None


def turn_on(table: str, view_type: str = "NEW_AND_OLD_IMAGES") -> str:
    """Return the command that turns on the stream of a table."""
    return (
        f"aws dynamodb update-table --table-name {table} --stream-specification "
        f"StreamEnabled=true,StreamViewType={view_type}"
    )


def off(table: str) -> str:
    """Return a sentence about a table whose stream is off."""
    return f"table {table!r} has no stream, or its stream is disabled; turn it on: {turn_on(table)}"


def _is_stream(given: str) -> bool:
    return "/stream/" in given


def _shard(shard: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {"StartingSequenceNumber": FIRST_NUMBER, **shard["SequenceNumberRange"]}
    return {**shard, "SequenceNumberRange": numbers}


def _open_or_last(shards: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the shards that receive records now: those that are open, or have no listed child yet."""
    parents = {shard.get("ParentShardId") for shard in shards}
    return [
        shard
        for shard in shards
        if "EndingSequenceNumber" not in shard["SequenceNumberRange"] or shard["ShardId"] not in parents
    ]


def _oldest(shards: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the shards without a listed parent."""
    names = {shard["ShardId"] for shard in shards}
    return [shard for shard in shards if shard.get("ParentShardId") not in names]


LEAVES: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], list[Mapping[str, Any]]]] = {
    "AT_LATEST": _open_or_last,
    "AT_TRIM_HORIZON": _oldest,
    "AT_TIMESTAMP": _oldest,  # a shard does not say when it began
    "FROM_TRIM_HORIZON": _oldest,
}
"""What selects the shards of an instant, by the type of the filter."""


def _behind(records: ChangeRecords, response: Mapping[str, Any], empty_pages: int) -> int | None:
    """Return the age of the last record in milliseconds, at least 1: more records may follow.

    :param empty_pages: the number of empty pages in a row; enough of them are 0, fewer are None.
    """
    if not records:
        return 0 if empty_pages >= EMPTY_PAGES else None
    now = response_time(response) or datetime.now(UTC)
    return max(1, round((now - records.last.approximate_arrival_timestamp).total_seconds() * 1000))


@contextmanager
def _kinesis_codes(codes: Mapping[str, str]) -> Iterator[None]:
    """Raise the errors of the enclosed calls with the codes of Kinesis."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        if (code := codes.get(str(details.get("Code")))) is None:
            raise
        response: Any = {**error.response, "Error": {**details, "Code": code}}
        raise ClientError(response, error.operation_name) from error
