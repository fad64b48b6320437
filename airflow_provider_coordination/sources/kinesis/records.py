"""The records of a shard as Arrow columns, and the two frequent calls of a reader at a fraction of their cost in boto3.

Polling a thousand shards takes thousands of calls a second, and most return nothing. botocore's work for each call
costs more than everything else. Here a call is only signed and sent, and its response decoded with msgspec. Endpoint,
credentials, connections, proxies, certificates and errors are those of a boto3 client. If msgspec is not installed, or
a response is not as expected, botocore parses the page, and `records_of` makes the same records of it.

A response may take no longer than its caller has time. A boto3 client waits as long as bytes arrive, and a server that
sends one byte a second would hold it for days.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, overload
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from botocore.httpsession import URLLib3Session

CHUNK_BYTES = 2**18
DecodePage = Callable[[bytes], Mapping[str, Any]]
"""Decodes a page's JSON into a response; raises `ValueError` for a body that is not a page."""


class ShardCalls:
    """A client of Kinesis or DynamoDB Streams that makes these two calls itself, without retries.

    It makes other calls through boto3. It may be shared by threads.

    :param client: of boto3.
    :param credentials: of the client's session; None if it has none.
    :param decode: decodes pages; None if botocore must.
    """

    def __init__(self, client: Any, credentials: Any, decode: DecodePage | None) -> None:
        from botocore.parsers import create_parser

        model = client.meta.service_model
        self._content_type = f"application/x-amz-json-{model.metadata['jsonVersion']}"
        self._target, self._service = model.metadata["targetPrefix"], model.signing_name
        self._event = f"before-send.{model.service_id.hyphenize()}"
        self._client = client
        self._credentials = credentials
        self._connections = _connections_like(client)
        self._parser = create_parser("json")
        self._url = client.meta.endpoint_url.rstrip("/") + "/"
        scheme, place, *_ = urlsplit(self._url)
        # As it is sent: without the scheme's default port.
        self._host = place.rpartition("@")[2].lower().removesuffix(":443" if scheme == "https" else ":80")
        self._agent = client.meta.config.user_agent or "airflow-provider-coordination"
        self._decode = decode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_shard_iterator(self, **request: Any) -> Mapping[str, Any]:
        """Return an iterator for a position of a shard, as the boto3 client does."""
        at = request.get("Timestamp")
        if at is not None:
            request["Timestamp"] = round(at.timestamp(), 3)
        return self._parsed("GetShardIterator", self._call("GetShardIterator", request))

    def get_records(self, *, within: float | None = None, **request: Any) -> Mapping[str, Any]:
        """Return one page of a shard's records, under `COLUMNS`.

        :param within: how many seconds the response may take; None for as long as bytes arrive.
        """
        response = self._call("GetRecords", request, within)
        if self._decode is not None and response["status_code"] == 200:
            try:
                fields = self._decode(response["body"])
            except ValueError:
                pass  # the parser below reports what is wrong with it
            else:
                return {**fields, "ResponseMetadata": {"HTTPHeaders": {"date": response["headers"].get("date")}}}
        return self._parsed("GetRecords", response)

    def _call(self, operation: str, request: Mapping[str, Any], within: float | None = None) -> dict[str, Any]:
        """Make a call; return its response in the form that botocore's parsers accept."""
        from botocore.awsrequest import AWSPreparedRequest, HeadersDict

        until = None if within is None else time.monotonic() + within
        body = json.dumps(request).encode()
        headers: Any = HeadersDict(self._headers(operation, body))
        prepared = AWSPreparedRequest("POST", self._url, headers, body, True)
        # As in botocore: an event handler may return a response in place of the service.
        handled = self._client.meta.events.emit(f"{self._event}.{operation}", request=prepared)
        response = next((given for _, given in handled if given is not None), None)
        if response is None:
            response = self._connections.send(prepared)
            content = _content(response, self._url, until)
        else:
            content = response.content
        return {"status_code": response.status_code, "headers": response.headers, "body": content}

    def _parsed(self, operation: str, response: dict[str, Any]) -> Mapping[str, Any]:
        """Parse a response as botocore does.

        :raises ClientError: if it is an error.
        """
        shape = self._client.meta.service_model.operation_model(operation).output_shape
        parsed: dict[str, Any] = self._parser.parse(response, shape)
        if response["status_code"] >= 300:
            raise self._client.exceptions.from_code(parsed.get("Error", {}).get("Code"))(parsed, operation)
        return parsed

    def _headers(self, operation: str, body: bytes) -> dict[str, str]:
        """Return the headers of a request, signed with AWS Signature Version 4, in a fifth of `SigV4Auth`'s time."""
        from botocore.exceptions import NoCredentialsError

        if self._credentials is None:
            raise NoCredentialsError
        frozen = self._credentials.get_frozen_credentials()
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = {"content-type": self._content_type, "host": self._host, "x-amz-date": now}
        if frozen.token:
            signed["x-amz-security-token"] = frozen.token
        signed["x-amz-target"] = f"{self._target}.{operation}"
        region, names = self._client.meta.region_name, ";".join(signed)
        scope = f"{now[:8]}/{region}/{self._service}/aws4_request"
        lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
        canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.new(
            _signing_key(frozen.secret_key, now[:8], region, self._service), text.encode(), hashlib.sha256
        ).hexdigest()
        credential = f"AWS4-HMAC-SHA256 Credential={frozen.access_key}/{scope}"
        return {
            **{name: value for name, value in signed.items() if name != "host"},
            "authorization": f"{credential}, SignedHeaders={names}, Signature={signature}",
            "content-length": str(len(body)),
            "user-agent": self._agent,
        }


def _connections_like(client: Any) -> URLLib3Session:
    """Return connections with the limits, proxies, certificates and options that the connections of a client have."""
    from botocore.httpsession import URLLib3Session
    from botocore.session import get_session
    from botocore.utils import get_environ_proxies

    config, variable = client.meta.config, get_session().get_config_variable
    keep_alive = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] if variable("tcp_keepalive") else []
    options: dict[str, Any] = {  # their stubs have other types
        "verify": variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE", True),
        "proxies": get_environ_proxies(client.meta.endpoint_url),
        "timeout": (config.connect_timeout, config.read_timeout),
        "max_pool_connections": config.max_pool_connections,
        "socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *keep_alive],
    }
    return URLLib3Session(**options)


@lru_cache(maxsize=16)
def _signing_key(secret_key: str, date: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _content(response: Any, url: str, until: float | None) -> bytes:
    """Return a response's body.

    :param until: when it must be complete, a time of the monotonic clock.
    :raises HTTPClientError: if it is not complete by then, or the connection breaks.
    """
    from botocore.exceptions import ReadTimeoutError, ResponseStreamingError
    from urllib3.exceptions import HTTPError

    if not hasattr(response.raw, "read1"):  # of an older urllib3
        content: bytes = response.content
        return content
    pieces = []
    try:
        while piece := response.raw.read1(CHUNK_BYTES):
            pieces.append(piece)
            if until is not None and time.monotonic() > until:
                response.raw.close()
                raise ReadTimeoutError(endpoint_url=url, error="the response was not complete in time")
    except HTTPError as error:
        raise ResponseStreamingError(error=error) from error
    response.raw.release_conn()
    return b"".join(pieces)


COLUMNS = "FastRecords"
"""The field of a response with the records of its page."""


def page_decoder() -> DecodePage | None:
    """Return a function that decodes the pages of Kinesis, or None if msgspec is not installed."""
    try:
        import msgspec
    except ImportError:
        return None

    record = msgspec.defstruct(
        "Record",
        [("SequenceNumber", str), ("ApproximateArrivalTimestamp", float), ("Data", bytes), ("PartitionKey", str)],
        gc=False,
    )
    page_of = msgspec.defstruct(
        "Page",
        [
            ("Records", list.__class_getitem__(record)),
            ("NextShardIterator", str | None, None),
            ("MillisBehindLatest", int | None, None),
            ("ChildShards", list[dict[str, Any]] | None, None),
        ],
        gc=False,
    )
    decoder: Any = msgspec.json.Decoder(page_of)

    def decode(body: bytes) -> dict[str, Any]:
        page = decoder.decode(body)
        return {
            COLUMNS: _listed(page.Records),
            "NextShardIterator": page.NextShardIterator,
            "MillisBehindLatest": page.MillisBehindLatest,
            "ChildShards": page.ChildShards,
        }

    return decode


def _listed(records: Sequence[Any]) -> KinesisRecords:
    return KinesisRecords.from_lists(
        sequence_numbers=[record.SequenceNumber for record in records],
        partition_keys=[record.PartitionKey for record in records],
        arrivals=[round(record.ApproximateArrivalTimestamp * 1_000_000) for record in records],
        data=[record.Data for record in records],
    )


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class KinesisRecord(NamedTuple):
    """A record as it is in the shard, possibly an aggregate.

    `sequence_number` is a decimal number, unique in the shard and growing;
    `approximate_arrival_timestamp` is aware, in UTC.
    """

    sequence_number: str
    partition_key: str
    approximate_arrival_timestamp: datetime
    data: bytes


class KinesisRecords(Sequence[KinesisRecord]):
    """Records in order, as Arrow columns: a page holds up to 10,000, and most are never accessed one by one.

    :param sequence_numbers: of each record, `string`.
    :param partition_keys: of each record, `string`.
    :param arrivals: the arrival time of each, in microseconds since 1970 in UTC, `int64`.
    :param data: of each record, `binary`.
    """

    __slots__ = ("arrivals", "data", "partition_keys", "sequence_numbers")

    def __init__(
        self, sequence_numbers: pa.Array, partition_keys: pa.Array, arrivals: pa.Array, data: pa.Array
    ) -> None:
        self.sequence_numbers = sequence_numbers
        self.partition_keys = partition_keys
        self.arrivals = arrivals
        self.data = data

    @classmethod
    def of(cls, records: Iterable[KinesisRecord]) -> KinesisRecords:
        """Return records as columns; `KinesisRecords` are returned unchanged."""
        if isinstance(records, cls):
            return records
        columns = [list(column) for column in zip(*records, strict=True)] or [[], [], [], []]
        return cls.from_lists(columns[0], columns[1], list(map(microseconds, columns[2])), columns[3])

    @classmethod
    def from_lists(
        cls, sequence_numbers: list[str], partition_keys: list[str], arrivals: list[int], data: list[bytes]
    ) -> KinesisRecords:
        """Return records from lists of column values."""
        return cls(
            pa.array(sequence_numbers, pa.string()),
            pa.array(partition_keys, pa.string()),
            pa.array(arrivals, pa.int64()),
            pa.array(data, pa.binary()),
        )

    @property
    def last(self) -> KinesisRecord:
        """The last record."""
        return self[len(self) - 1]

    @property
    def size(self) -> int:
        """The size in bytes as Kinesis counts it: data and partition keys."""
        lengths = (pc.sum(pc.binary_length(column)).as_py() for column in (self.data, self.partition_keys))
        return sum(length or 0 for length in lengths)

    def first_since(self, since_1970_us: int) -> int:
        """Return the index of the first record that arrived at an instant or later; the length if none did."""
        index: int = pc.index(pc.greater_equal(self.arrivals, since_1970_us), True).as_py()
        return len(self) if index < 0 else index

    def first_outside(self, start_us: int, end_us: int) -> int:
        """Return the index of the first record that arrived before a start, or at an end or later; else the length.

        :param start_us: in microseconds since 1970.
        :param end_us: in microseconds since 1970.
        """
        outside = pc.or_(pc.less(self.arrivals, start_us), pc.greater_equal(self.arrivals, end_us))
        index: int = pc.index(outside, True).as_py()
        return len(self) if index < 0 else index

    def first_out_of_order(self) -> int | None:
        """Return the index of the first record whose sequence number is not greater than the previous one, or None."""
        before, after = self.sequence_numbers[:-1], self.sequence_numbers[1:]
        shorter, longer = pc.binary_length(before), pc.binary_length(after)
        grows = pc.or_(pc.less(shorter, longer), pc.and_(pc.equal(shorter, longer), pc.less(before, after)))
        index: int = pc.index(grows, False).as_py()
        return None if index < 0 else index + 1

    def __len__(self) -> int:
        return len(self.sequence_numbers)

    @overload
    def __getitem__(self, index: int) -> KinesisRecord: ...

    @overload
    def __getitem__(self, index: slice) -> KinesisRecords: ...

    def __getitem__(self, index: int | slice) -> KinesisRecord | KinesisRecords:
        if isinstance(index, slice):
            return KinesisRecords(
                self.sequence_numbers[index], self.partition_keys[index], self.arrivals[index], self.data[index]
            )
        return KinesisRecord(
            self.sequence_numbers[index].as_py(),
            self.partition_keys[index].as_py(),
            instant(self.arrivals[index].as_py()),
            self.data[index].as_py(),
        )

    def __iter__(self) -> Iterator[KinesisRecord]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"KinesisRecords({list(self)!r})"


def records_of(entries: Iterable[Mapping[str, Any]]) -> KinesisRecords:
    """Return the records of a response as boto3 parses it."""
    entries = list(entries)
    return KinesisRecords.from_lists(
        sequence_numbers=[entry["SequenceNumber"] for entry in entries],
        partition_keys=[entry["PartitionKey"] for entry in entries],
        arrivals=[microseconds(entry["ApproximateArrivalTimestamp"]) for entry in entries],
        data=[entry["Data"] for entry in entries],
    )


def microseconds(moment: datetime) -> int:
    """Return microseconds since 1970 of an instant (aware)."""
    return (moment - EPOCH) // MICROSECOND


def instant(since_1970_us: int) -> datetime:
    """Return the instant (aware, UTC) of a number of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=since_1970_us)
