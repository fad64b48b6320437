"""What a stream consists of: its shards, as ListShards tells them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.errors import (
    StreamNotFoundError,
    StreamNotReadyError,
    kinesis_errors,
)

STATUS_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Shard:
    """One shard of a stream.

    :param shard_id: its name, unique in the stream.
    :param parent_shard_ids: the shards it came from: none, one (split), or two (merge).
    :param starting_hash_key: the first hash key it takes, a decimal number.
    :param ending_hash_key: the last one.
    :param starting_sequence_number: where it begins, a decimal number.
    :param ending_sequence_number: where it ends; None as long as it is open.
    """

    shard_id: str
    parent_shard_ids: tuple[str, ...]
    starting_hash_key: str
    ending_hash_key: str
    starting_sequence_number: str
    ending_sequence_number: str | None

    @property
    def is_open(self) -> bool:
        """Whether records can still arrive."""
        return self.ending_sequence_number is None

    @classmethod
    def from_api(cls, shard: Mapping[str, Any]) -> Shard:
        """Return the shard that an entry of ListShards describes."""
        parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
        return cls(
            shard_id=shard["ShardId"],
            parent_shard_ids=tuple(parent for parent in parents if parent),
            starting_hash_key=shard["HashKeyRange"]["StartingHashKey"],
            ending_hash_key=shard["HashKeyRange"]["EndingHashKey"],
            starting_sequence_number=shard["SequenceNumberRange"]["StartingSequenceNumber"],
            ending_sequence_number=shard["SequenceNumberRange"].get("EndingSequenceNumber"),
        )


@dataclass(frozen=True)
class StreamDescription:
    """A stream that can be read.

    :param name: its name.
    :param creation_epoch: when it was created, in whole seconds since 1970; tells it from another stream
        of the same name before or after it.
    :param open_shards: how many shards take records.
    :param retention_hours: how long it keeps them.
    """

    name: str
    creation_epoch: int
    open_shards: int
    retention_hours: int


def describe_stream(
    client: KinesisClient,
    name: str,
    *,
    ready_within_seconds: float = 60.0,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> StreamDescription:
    """Return what a stream is, waiting for one that is just being created.

    :param client: as `kinesis_client` returns it.
    :param name: the stream's name.
    :param ready_within_seconds: how long to wait at most until it can be read.
    :param clock: measures the wait.
    :param sleep: waits that many seconds.
    :raises StreamNotFoundError: if there is no such stream, or it is being deleted.
    :raises StreamNotReadyError: if it is still being created after that time.
    """
    clock = clock or SystemClock()
    give_up_at = clock.monotonic() + ready_within_seconds
    while True:
        with kinesis_errors(client, name):
            summary = client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
        status = summary["StreamStatus"]
        if status in ("ACTIVE", "UPDATING"):
            return StreamDescription(
                name=name,
                creation_epoch=int(summary["StreamCreationTimestamp"].timestamp()),
                open_shards=summary["OpenShardCount"],
                retention_hours=summary["RetentionPeriodHours"],
            )
        if status == "DELETING":
            raise StreamNotFoundError(f"stream '{name}' is being deleted: name another one, or create it anew")
        if clock.monotonic() >= give_up_at:
            raise StreamNotReadyError(
                f"stream '{name}' is {status} after {ready_within_seconds:g} s; try again when it is ACTIVE"
            )
        sleep(STATUS_POLL_SECONDS)


def list_shards(client: KinesisClient, name: str, *, shard_filter: Mapping[str, Any] | None = None) -> list[Shard]:
    """Return the shards of a stream, page after page to the end of the list.

    :param client: as `kinesis_client` returns it.
    :param name: the stream's name.
    :param shard_filter: a ShardFilter as in the Kinesis API; by default every shard that is still listed,
        closed ones included.
    :raises StreamNotFoundError: if there is no such stream.
    """
    request: dict[str, Any] = {"StreamName": name}
    if shard_filter:
        request["ShardFilter"] = dict(shard_filter)
    shards: list[Shard] = []
    while True:
        with kinesis_errors(client, name):
            page = client.list_shards(**request)
        shards.extend(map(Shard.from_api, page["Shards"]))
        if not page.get("NextToken"):
            return shards
        # The token stands for the name and the filter: the API refuses them together.
        request = {"NextToken": page["NextToken"]}
