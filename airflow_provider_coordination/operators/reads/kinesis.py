"""Kinesis streams as a source of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.template_values import (
    bool_value,
    instant_value,
    names_value,
    seconds_value,
)
from airflow_provider_coordination.settings import NOTHING, text_value, write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.bounds import Bounds
from airflow_provider_coordination.sources.kinesis.bounds_values import bounds_value
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import KIND
from airflow_provider_coordination.sources.kinesis.settings import DEFAULT_SYNC_INTERVAL, KinesisSettings
from airflow_provider_coordination.sources.reads import Connected, ConnectionResolver

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Supplier
    from airflow_provider_coordination.sources.kinesis.sync_summary import ShardSyncSummary


@dataclass
class KinesisStreams:
    """Kinesis streams, for the `reads` of operators. Partitions are shards; `KinesisShardSyncOperator` creates them.

    :param streams: the name of the stream, or a list of names. Partitions of a stream that is no longer named are put
        aside until it is named again. (templated)
    :param source: the source's name if the operator sets none; by default the name of the stream. Several streams need
        a name. (templated)
    :param initial_position: where reading starts in a stream that is new to the source: `"TRIM_HORIZON"`, `"LATEST"`,
        or an instant, as an aware datetime or its ISO 8601 text. (templated)
    :param stop_at: deliver exactly what arrived before this instant, then stop: an aware datetime, its ISO 8601 text,
        or `"start"` for the instant when the task begins. None continues reading. (templated)
    :param bounds: read only this part of the streams, under leases of its own, then end: `{"start": …, "end": …}`.
        Either both are instants: the end is exclusive, and the start may be `"TRIM_HORIZON"`. Or both map shards of the
        only stream to sequence numbers, both inclusive. None sets no bounds. (templated)
    :param on_data_loss: what to do if a shard or stream is gone before it was read: `"fail"` parks its partition,
        `"reset"` records the gap and continues after it. (templated)
    :param filter_by_hash_range: drop user records of an aggregate that belong to another shard. (templated)
    :param consumer_name: read by enhanced fan-out, as the consumer of this name; it is registered if missing. None
        polls. (templated)
    :param shard_sync_interval: how often a job syncs the shards itself; timedelta or seconds; 0 leaves that to
        `KinesisShardSyncOperator`. (templated)
    :param repartition_transition_duration: how long after the end of a shard its children are first read; timedelta or
        seconds. (templated)
    :param aws_conn_id: the AWS connection; None for the AWS default credential chain. (templated)
    :param region_name: the AWS region; overrides the region of the connections. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "streams",
        "source",
        "initial_position",
        "stop_at",
        "bounds",
        "on_data_loss",
        "filter_by_hash_range",
        "consumer_name",
        "shard_sync_interval",
        "repartition_transition_duration",
        "aws_conn_id",
        "region_name",
    )
    is_endless: ClassVar[bool] = True

    streams: str | Sequence[str]
    _: KW_ONLY
    source: str | None = None
    initial_position: str | datetime = TRIM_HORIZON
    stop_at: datetime | str | None = None
    bounds: Mapping[str, Any] | Bounds | None = None
    on_data_loss: str = "fail"
    filter_by_hash_range: bool | str = True
    consumer_name: str | None = None
    shard_sync_interval: timedelta | float | str = DEFAULT_SYNC_INTERVAL
    repartition_transition_duration: timedelta | float | str = timedelta(0)
    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None

    @property
    def kind(self) -> str:
        """See `Reads.kind`."""
        return KIND

    @property
    def parts(self) -> tuple[str, ...]:
        """See `Parted.parts`: the streams."""
        if text := text_value(self.streams) if isinstance(self.streams, str) else None:
            return (text,)
        return names_value("streams", self.streams, instead="the name of a stream")

    @property
    def reads_from(self) -> Mapping[str, Any]:
        """See `Located.reads_from`."""
        region = text_value(self.region_name)
        return {"streams": sorted(self.parts), **({} if region is None else {"region": region})}

    @property
    def default_source(self) -> str:
        """See `Reads.default_source`: a bounded part of a stream is a source of its own."""
        if name := text_value(self.source):
            return name
        if len(self.parts) > 1:
            raise ConfigurationError(
                f"KinesisStreams: field 'source' is missing: the streams {', '.join(map(repr, self.parts))} need a "
                "common source name; give 'source'"
            )
        bounds = bounds_value(self.bounds)
        return self.parts[0] if bounds is None else f"{self.parts[0]}@{bounds.name}"

    @property
    def position(self) -> str:
        """Where reading starts in a stream that is new to the source, in the form that shard sync expects.

        :raises ConfigurationError: if it is neither `TRIM_HORIZON`, `LATEST` nor an instant with a time zone.
        """
        text = text_value(self.initial_position)
        bounds = bounds_value(self.bounds)
        if bounds is not None:
            if text is not None and text.upper() != TRIM_HORIZON:
                raise ConfigurationError(
                    f"KinesisStreams: field 'initial_position' is {text!r}, but field 'bounds' also sets where "
                    "reading starts; remove one of them"
                )
            return TRIM_HORIZON if bounds.start is None else at_timestamp(bounds.start)
        if text is None or text.upper() == TRIM_HORIZON:
            return TRIM_HORIZON
        if text.upper() == LATEST:
            return LATEST
        try:
            value = self.initial_position
            instant = None if text == "start" else instant_value("initial_position", value, now=datetime.now(UTC))
        except ConfigurationError:
            instant = None
        if instant is None:
            raise ConfigurationError(
                f"KinesisStreams: field 'initial_position' must be {TRIM_HORIZON!r}, {LATEST!r} or an instant with a "
                f"time zone, such as '2026-01-01T00:00:00Z'; got {text!r}"
            )
        return at_timestamp(instant)

    def within(self, start: datetime, end: datetime) -> KinesisStreams:
        """See `Bounded.within`."""
        own = (("stop_at", NOTHING), ("bounds", NOTHING), ("initial_position", (*NOTHING, TRIM_HORIZON)))
        for name, nothing in own:
            if (given := getattr(self, name)) not in nothing:
                raise ConfigurationError(
                    f"KinesisStreams: field {name!r} is {str(given)!r}, but field 'interval' already bounds what is "
                    "read; remove one of them"
                )
        return replace(self, bounds=Bounds(start=start, end=end))

    def beside(
        self, other: SourceCoordinator, coordinator: SourceCoordinator, start: datetime, end: datetime
    ) -> KinesisStreams | None:
        """See `Deduplicated.beside`: what arrived after the other source began is left out."""
        from airflow_provider_coordination.sources.kinesis.sync import began_at

        began = began_at(other, self.parts)
        return None if began <= start else self.within(start, min(began, end))

    def check(self) -> None:
        """Check every value that can be checked without a connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        _ = self.position, self._settings_without_aws()

    def settings(self, connections: ConnectionResolver) -> KinesisSettings:
        """Return the checked settings, with the AWS connection resolved.

        :param connections: resolves the AWS connection.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        aws = connections.aws(text_value(self.aws_conn_id), text_value(self.region_name), KIND)
        return replace(self._settings_without_aws(), aws=aws)

    def _settings_without_aws(self) -> KinesisSettings:
        """Return the checked settings, without the AWS settings."""
        interval = seconds_value("shard_sync_interval", self.shard_sync_interval)
        transition = seconds_value("repartition_transition_duration", self.repartition_transition_duration)
        bounds = bounds_value(self.bounds)
        settings = KinesisSettings(
            streams=self.parts,
            stop_at=instant_value("stop_at", self.stop_at, now=datetime.now(UTC)),
            bounds=bounds,
            on_data_loss=text_value(self.on_data_loss) or "fail",
            filter_by_hash_range=bool_value("filter_by_hash_range", self.filter_by_hash_range),
            consumer_name=text_value(self.consumer_name),
            shard_sync_interval=_sync_interval(interval, is_bounded=bounds is not None),
            repartition_transition_duration=timedelta(seconds=transition or 0.0),
        )
        settings.check()
        return settings

    def connect(self, connections: ConnectionResolver) -> Connected:
        """See `Reads.connect`."""
        settings = self.settings(connections)

        def supplier(coordinator: SourceCoordinator) -> Supplier:
            raise ConfigurationError(
                f"KinesisStreams: KinesisShardSyncOperator creates the partitions of source {coordinator.source!r}; "
                "use it instead of CreatePartitionsOperator"
            )

        return Connected(reads=ReadsSettings(kind=KIND, settings=write_settings(settings)), supplier=supplier)

    def sync(self, coordinator: SourceCoordinator, connections: ConnectionResolver) -> ShardSyncSummary:
        """See `Synced.sync`: sync the shards; return what was found and done."""
        from airflow_provider_coordination.sources.kinesis.client import kinesis_client
        from airflow_provider_coordination.sources.kinesis.sync import ShardSync

        settings = self.settings(connections)
        sync = ShardSync(
            kinesis_client(settings.aws),
            coordinator,
            initial_position=self.position,
            on_data_loss=settings.on_data_loss,
            bounds=settings.bounds,
        )
        summary = sync.run(self.parts, forced=True)
        assert summary is not None  # only a sync that is not forced may leave the work to another worker
        return summary

    def create_operator(self, **arguments: Any) -> BaseOperator:
        """See `Created.create_operator`: the operator that syncs shards."""
        from airflow_provider_coordination.operators.kinesis import KinesisShardSyncOperator

        return KinesisShardSyncOperator(task_id="sync_shards", reads=self, **arguments)


def _sync_interval(seconds: float | None, *, is_bounded: bool) -> timedelta | None:
    """Return how often a job syncs shards; None within bounds, where the shards are known from the start."""
    if is_bounded or seconds == 0:
        return None
    return DEFAULT_SYNC_INTERVAL if seconds is None else timedelta(seconds=seconds)
