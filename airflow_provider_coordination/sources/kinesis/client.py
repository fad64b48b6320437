"""The calls to Kinesis, and the client that makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from airflow_provider_coordination.aws import CONNECTIONS_PER_CLIENT, READ_TIMEOUT_SECONDS, AwsSettings, aws_client


class KinesisClient(Protocol):
    """The calls this package makes; the client of boto3 has them."""

    @property
    def meta(self) -> Any:
        """The client's region and endpoint."""
        ...

    def describe_stream_summary(self, **request: Any) -> Mapping[str, Any]:
        """Return what a stream is and in which state."""
        ...

    def list_shards(self, **request: Any) -> Mapping[str, Any]:
        """Return one page of a stream's shards."""
        ...

    def get_shard_iterator(self, **request: Any) -> Mapping[str, Any]:
        """Return where to begin reading."""
        ...

    def get_records(self, **request: Any) -> Mapping[str, Any]:
        """Return one page of a shard's records."""
        ...

    def describe_stream_consumer(self, **request: Any) -> Mapping[str, Any]:
        """Return what a registered consumer is and in which state."""
        ...

    def register_stream_consumer(self, **request: Any) -> Mapping[str, Any]:
        """Register a consumer with a stream."""
        ...

    def subscribe_to_shard(self, **request: Any) -> Mapping[str, Any]:
        """Let a shard's records be sent, for five minutes at most."""
        ...


def kinesis_client(
    settings: AwsSettings,
    connections: int = CONNECTIONS_PER_CLIENT,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
) -> KinesisClient:
    """Return a client of Kinesis; see `aws_client`.

    :param settings: where Kinesis is and who asks.
    :param connections: how many are kept at most for the next calls.
    :param read_timeout_seconds: how long the next bytes of an answer are waited for.
    :raises ConfigurationError: if no region is known, or the endpoint is no URL.
    """
    client: KinesisClient = aws_client(
        settings, "kinesis", connections=connections, read_timeout_seconds=read_timeout_seconds
    )
    return client
