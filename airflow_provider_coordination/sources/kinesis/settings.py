"""The settings of a job that reads Kinesis streams."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.bounds import Bounds
from airflow_provider_coordination.sources.kinesis.progress import ON_DATA_LOSS

DEFAULT_SYNC_INTERVAL = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class KinesisSettings:
    """Streams of Kinesis.

    :param streams: their names.
    :param aws: how to reach them.
    :param stop_at: deliver no record that arrived at this instant (aware) or later; stop when every shard is there.
    :param bounds: the part that is read, after which its partitions are COMPLETED; None for no bounds.
    :param on_data_loss: `"fail"` parks a shard whose data is gone before it was read, `"reset"` continues after the gap
        and records it.
    :param filter_by_hash_range: drop user records of an aggregate whose hash key does not belong to its shard: after a
        resharding, producers may put them into both children.
    :param consumer_name: read by enhanced fan-out, as this registered consumer; None polls.
    :param shard_sync_interval: how often a job syncs the streams' shards; None if jobs do not sync them.
    :param repartition_transition_duration: how long after the end of a shard its children are first read.
    """

    streams: tuple[str, ...]
    aws: AwsSettings = field(default_factory=AwsSettings)
    stop_at: datetime | None = None
    bounds: Bounds | None = None
    on_data_loss: str = "fail"
    filter_by_hash_range: bool = True
    consumer_name: str | None = None
    shard_sync_interval: timedelta | None = DEFAULT_SYNC_INTERVAL
    repartition_transition_duration: timedelta = timedelta(0)

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not self.streams or not all(self.streams) or len(set(self.streams)) < len(self.streams):
            raise ConfigurationError(
                f"KinesisStreams: field 'streams' must name at least one stream, and each once; got "
                f"{list(self.streams)!r}"
            )
        if self.on_data_loss not in ON_DATA_LOSS:
            raise ConfigurationError(
                f"KinesisStreams: field 'on_data_loss' must be {' or '.join(map(repr, ON_DATA_LOSS))}; got "
                f"{self.on_data_loss!r}"
            )
        if self.stop_at is not None and self.stop_at.tzinfo is None:
            raise ConfigurationError(
                f"KinesisStreams: field 'stop_at' must have a time zone; got {self.stop_at.isoformat()!r}"
            )
        if self.bounds is not None:
            self.bounds.check(self.streams)
            if self.stop_at is not None:
                raise ConfigurationError(
                    f"KinesisStreams: field 'stop_at' is {self.stop_at.isoformat()!r}, but field 'bounds' also sets "
                    "where reading ends; remove one of the two"
                )
        if self.consumer_name is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", self.consumer_name):
            raise ConfigurationError(
                f"KinesisStreams: field 'consumer_name' must be 1 to 128 letters, digits, '_', '.' and '-'; got "
                f"{self.consumer_name!r}"
            )
        if self.shard_sync_interval is not None and self.shard_sync_interval <= timedelta(0):
            raise ConfigurationError(
                "KinesisStreams: field 'shard_sync_interval' must be positive, or 0 if jobs do not sync shards; got "
                f"{self.shard_sync_interval.total_seconds():g} seconds"
            )
        if self.repartition_transition_duration < timedelta(0):
            raise ConfigurationError(
                "KinesisStreams: field 'repartition_transition_duration' must not be negative; got "
                f"{self.repartition_transition_duration.total_seconds():g} seconds"
            )
