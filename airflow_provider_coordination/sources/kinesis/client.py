"""The client of Kinesis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from airflow_provider_coordination.aws import CONNECTIONS_PER_CLIENT, READ_TIMEOUT_SECONDS, AwsSettings, aws_client


class KinesisClient(Protocol):
    """The calls that this package makes; boto3's client implements them."""

    @property
    def meta(self) -> Any:
        """The client's region and endpoint."""
        ...

    def describe_stream_summary(self, **request: Any) -> Mapping[str, Any]:
        """Return the description and status of a stream."""
        ...

    def list_shards(self, **request: Any) -> Mapping[str, Any]:
        """Return one page of a stream's shards."""
        ...

    def get_shard_iterator(self, **request: Any) -> Mapping[str, Any]:
        """Return an iterator for a position of a shard."""
        ...

    def get_records(self, **request: Any) -> Mapping[str, Any]:
        """Return one page of a shard's records."""
        ...

    def describe_stream_consumer(self, **request: Any) -> Mapping[str, Any]:
        """Return the description and status of a registered consumer."""
        ...

    def register_stream_consumer(self, **request: Any) -> Mapping[str, Any]:
        """Register a consumer with a stream."""
        ...

    def subscribe_to_shard(self, **request: Any) -> Mapping[str, Any]:
        """Subscribe to a shard's records, for five minutes at most."""
        ...


def kinesis_client(
    settings: AwsSettings,
    connections: int = CONNECTIONS_PER_CLIENT,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
) -> KinesisClient:
    """Return a client of Kinesis; see `aws_client`.

    :param settings: the endpoint and the credentials.
    :param connections: how many open connections are kept at most.
    :param read_timeout_seconds: how long to wait for the next bytes of a response.
    :raises ConfigurationError: if no region is known, or the endpoint is not a URL.
    """
    client: KinesisClient = aws_client(
        settings, "kinesis", connections=connections, read_timeout_seconds=read_timeout_seconds
    )
    return client
