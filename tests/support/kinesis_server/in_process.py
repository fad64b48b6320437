"""A client as boto3 makes it, that calls the engine without a network."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from email.utils import format_datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

from botocore.errorfactory import ClientExceptionsFactory
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EventStreamError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.utils import parse_to_aware_datetime

from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.consumers import NoEvent, Subscription
from tests.support.kinesis_server.engine import Answer, Engine
from tests.support.kinesis_server.errors import ApiError, ConnectionCutError
from tests.support.kinesis_server.model import complaints, kinesis_model

ENDPOINT_URL = "http://in-process"
RETRIED = frozenset(
    {
        "InternalFailure",
        "InternalFailureException",
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "ServiceUnavailable",
        "ThrottlingException",
    }
)
LONGEST_BACKOFF_SECONDS = 20.0


class InProcessClient:
    """The Kinesis client of boto3, as far as the package and its tests use it.

    Parameters are checked by botocore's own model of the API. Waiting, for a slow answer, between attempts or for
    an event of a subscription, moves a `VirtualClock` and waits on any other.

    :param engine: the service.
    :param max_attempts: how often a throttled or failed call is made, the first time included; boto3 would make
        as many as its `Config` says.
    """

    def __init__(self, engine: Engine, *, max_attempts: int = 1) -> None:
        self.engine = engine
        self.meta = SimpleNamespace(region_name=engine.region, endpoint_url=ENDPOINT_URL, service_model=kinesis_model())
        self.exceptions = _exceptions()
        self._max_attempts = max_attempts

    def create_stream(self, **request: Any) -> dict[str, Any]:
        return self._call("CreateStream", request)

    def delete_stream(self, **request: Any) -> dict[str, Any]:
        return self._call("DeleteStream", request)

    def list_streams(self, **request: Any) -> dict[str, Any]:
        return self._call("ListStreams", request)

    def add_tags_to_stream(self, **request: Any) -> dict[str, Any]:
        return self._call("AddTagsToStream", request)

    def remove_tags_from_stream(self, **request: Any) -> dict[str, Any]:
        return self._call("RemoveTagsFromStream", request)

    def list_tags_for_stream(self, **request: Any) -> dict[str, Any]:
        return self._call("ListTagsForStream", request)

    def put_resource_policy(self, **request: Any) -> dict[str, Any]:
        return self._call("PutResourcePolicy", request)

    def get_resource_policy(self, **request: Any) -> dict[str, Any]:
        return self._call("GetResourcePolicy", request)

    def delete_resource_policy(self, **request: Any) -> dict[str, Any]:
        return self._call("DeleteResourcePolicy", request)

    def describe_stream(self, **request: Any) -> dict[str, Any]:
        return self._call("DescribeStream", request)

    def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        return self._call("DescribeStreamSummary", request)

    def increase_stream_retention_period(self, **request: Any) -> dict[str, Any]:
        return self._call("IncreaseStreamRetentionPeriod", request)

    def decrease_stream_retention_period(self, **request: Any) -> dict[str, Any]:
        return self._call("DecreaseStreamRetentionPeriod", request)

    def split_shard(self, **request: Any) -> dict[str, Any]:
        return self._call("SplitShard", request)

    def merge_shards(self, **request: Any) -> dict[str, Any]:
        return self._call("MergeShards", request)

    def update_shard_count(self, **request: Any) -> dict[str, Any]:
        return self._call("UpdateShardCount", request)

    def list_shards(self, **request: Any) -> dict[str, Any]:
        return self._call("ListShards", request)

    def put_record(self, **request: Any) -> dict[str, Any]:
        return self._call("PutRecord", request)

    def put_records(self, **request: Any) -> dict[str, Any]:
        return self._call("PutRecords", request)

    def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        return self._call("GetShardIterator", request)

    def get_records(self, **request: Any) -> dict[str, Any]:
        return self._call("GetRecords", request)

    def register_stream_consumer(self, **request: Any) -> dict[str, Any]:
        return self._call("RegisterStreamConsumer", request)

    def describe_stream_consumer(self, **request: Any) -> dict[str, Any]:
        return self._call("DescribeStreamConsumer", request)

    def deregister_stream_consumer(self, **request: Any) -> dict[str, Any]:
        return self._call("DeregisterStreamConsumer", request)

    def list_stream_consumers(self, **request: Any) -> dict[str, Any]:
        return self._call("ListStreamConsumers", request)

    def subscribe_to_shard(self, **request: Any) -> dict[str, Any]:
        return self._call("SubscribeToShard", request)

    def close(self) -> None:
        """Let nothing go, as there is nothing."""

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        _require_valid(operation, request)
        request = _with_aware_times(request)
        for attempt in range(1, self._max_attempts + 1):
            try:
                return self._attempt(operation, request, attempt)
            except ClientError as error:
                if attempt == self._max_attempts or error.response["Error"]["Code"] not in RETRIED:
                    raise
            except (ConnectionClosedError, ReadTimeoutError):
                if attempt == self._max_attempts:
                    raise
            self.engine.clock.sleep(min(2.0 ** (attempt - 1), LONGEST_BACKOFF_SECONDS))
        raise AssertionError(f"max_attempts is {self._max_attempts}; it must be at least 1")

    def _attempt(self, operation: str, request: dict[str, Any], attempt: int) -> dict[str, Any]:
        try:
            answer = self.engine.call(operation, request)
        except ApiError as error:
            raise self._client_error(operation, error, attempt) from None
        except ConnectionCutError:
            raise ConnectionClosedError(endpoint_url=ENDPOINT_URL) from None
        if answer.slow_seconds:
            self.engine.clock.sleep(answer.slow_seconds)
        if answer.lost:
            _end(answer)
            raise ReadTimeoutError(endpoint_url=ENDPOINT_URL)
        body = {**answer.body, "ResponseMetadata": self._metadata(200, attempt)}
        if answer.subscription is not None:
            body["EventStream"] = InProcessEvents(self.engine, answer.subscription)
        return body

    def _metadata(self, status: int, attempt: int) -> dict[str, Any]:
        # The header is put together when it is looked at: most calls are only for their bodies.
        return {
            "RequestId": "00000000-0000-0000-0000-000000000000",
            "HTTPStatusCode": status,
            "HTTPHeaders": _Headers(self.engine.clock.now()),
            "RetryAttempts": attempt - 1,
        }

    def _client_error(self, operation: str, error: ApiError, attempt: int) -> ClientError:
        response = {
            "Error": {"Code": error.code, "Message": error.message},
            "ResponseMetadata": self._metadata(error.status, attempt),
        }
        kind: type[ClientError] = self.exceptions.from_code(error.code)
        return kind(response, operation)  # type: ignore[arg-type]


class InProcessEvents:
    """The event stream of a subscription."""

    def __init__(self, engine: Engine, subscription: Subscription) -> None:
        self._engine = engine
        self._subscription = subscription

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                event = self._subscription.next_event()
            except ApiError as error:
                raise event_stream_error(error) from None
            if event is NoEvent.MORE:
                return
            if isinstance(event, NoEvent):
                self._wait()
            else:
                yield event

    def close(self) -> None:
        self._subscription.end()

    def _wait(self) -> None:
        if isinstance(self._engine.clock, VirtualClock):
            self._engine.clock.sleep(self._engine.behaviour.heartbeat_seconds)
            return
        with self._engine.changed:
            self._engine.changed.wait(0.05)


def event_stream_error(error: ApiError) -> EventStreamError:
    """Return what boto3 raises where an exception comes as an event."""
    return EventStreamError({"Error": {"Code": error.code, "Message": error.message}}, "SubscribeToShard")


@cache
def _exceptions() -> Any:
    return ClientExceptionsFactory().create_client_exceptions(kinesis_model())


def _require_valid(operation: str, request: dict[str, Any]) -> None:
    wrong = complaints(operation, request)
    if wrong:
        raise ParamValidationError(report=wrong)


def _with_aware_times(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request whose times are instants, whatever boto3 takes for one."""
    if "Timestamp" in request or "StreamCreationTimestamp" in request:
        times = ("Timestamp", "StreamCreationTimestamp")
        request = {key: _aware(value) if key in times else value for key, value in request.items()}
    for nested in ("ShardFilter", "StartingPosition"):
        if "Timestamp" in request.get(nested, {}):
            inner = request[nested]
            request = {**request, nested: {**inner, "Timestamp": _aware(inner["Timestamp"])}}
    return request


def _aware(value: Any) -> datetime:
    return parse_to_aware_datetime(value)


def _end(answer: Answer) -> None:
    if answer.subscription is not None:
        answer.subscription.end()


class _Headers(dict[str, str]):
    """The headers of an answer; of them, `date` is made when it is looked at."""

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._now = now

    def __missing__(self, name: str) -> str:
        if name != "date":
            raise KeyError(name)
        return format_datetime(self._now, usegmt=True)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default
