"""What is read of Kinesis: what a DAG or a spec says, and what the shard sync and the jobs use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits, ParsedBy, Texts
from airflow_provider_coordination.settings import NOTHING, FieldError, text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.kinesis.bounds import EARLIEST, Bounds, bounds_value
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, at_timestamp, aware_instant
from airflow_provider_coordination.sources.kinesis.progress import ON_DATA_LOSS
from airflow_provider_coordination.sources.reads import AwsReads

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.sources.kinesis.sync_state import ShardSyncSummary

CONSUMER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def position_text(value: Any) -> str:
    """Return where reading starts in a new stream: `TRIM_HORIZON`, `LATEST` or an instant as ISO 8601 text.

    :raises FieldError: if a value is none of these, or before 1970.
    """
    if str(value).upper() in (TRIM_HORIZON, LATEST):
        return str(value).upper()
    instant = aware_instant(value)
    if instant is None:
        raise _wrong_position(
            f"must be {TRIM_HORIZON!r}, {LATEST!r} or an instant with a time zone, such as '2026-01-01T00:00:00Z'; "
            f"got {str(value)!r}"
        )
    if instant < EARLIEST:
        raise _wrong_position(f"is {str(value)!r}, which is before 1970; give {TRIM_HORIZON} for the earliest record")
    return instant.isoformat()


def _wrong_position(problem: str) -> FieldError:
    return FieldError("KinesisStreams", "initial_position", problem)


@dataclass
class KinesisStreams(AwsReads):
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
    :param shard_sync_interval: how often a job syncs the shards itself; 0 leaves that to
        `KinesisShardSyncOperator`. (templated)
    :param repartition_transition_duration: how long after the end of a shard its children are first read.
        (templated)
    """

    is_endless: ClassVar[bool] = True
    is_synced: ClassVar[bool] = True
    kind: ClassVar[str] = "kinesis"

    streams: Annotated[Texts, Limits(min_items=1, is_unique=True)]
    _: KW_ONLY
    initial_position: Annotated[str, ParsedBy(parse=position_text)] = TRIM_HORIZON
    stop_at: datetime | None = None
    bounds: Annotated[Bounds | None, ParsedBy(parse=bounds_value, written=Mapping[str, Any])] = None
    on_data_loss: Annotated[str, Limits(one_of=ON_DATA_LOSS)] = "fail"
    filter_by_hash_range: bool = True
    consumer_name: str | None = None
    shard_sync_interval: Annotated[timedelta, Limits(minimum=timedelta(0))] = timedelta(minutes=1)
    repartition_transition_duration: Annotated[timedelta, Limits(minimum=timedelta(0))] = timedelta(0)

    @property
    @override
    def parts(self) -> Sequence[str]:
        """The names of the streams."""
        return self.listed("streams")

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        region = text_value(self.region_name)
        return {"streams": sorted(self.parts), **({} if region is None else {"region": region})}

    @property
    @override
    def own_name(self) -> str:
        """The name of the only stream; a bounded part of a stream is a source of its own."""
        if len(self.parts) != 1:
            raise FieldError(
                type(self).__name__,
                "source",
                f"is missing: the streams {', '.join(map(repr, self.parts))} need a common source name; give 'source'",
            )
        bounds = bounds_value(self.bounds)
        return self.parts[0] if bounds is None else f"{self.parts[0]}@{bounds.name}"

    @property
    def syncs_every(self) -> timedelta | None:
        """How often a job syncs shards; None if it does not. Within bounds the shards are known from the start."""
        return (self.shard_sync_interval or None) if self.bounds is None else None

    @property
    def start_position(self) -> str:
        """Where reading starts in a stream that is new to the source, in the form that shard sync expects."""
        if self.bounds is not None:
            return TRIM_HORIZON if self.bounds.start is None else at_timestamp(self.bounds.start)
        if self.initial_position in (TRIM_HORIZON, LATEST):
            return self.initial_position
        return at_timestamp(datetime.fromisoformat(self.initial_position))

    @override
    def check_together(self) -> None:
        if self.consumer_name is not None and not CONSUMER_NAME.fullmatch(self.consumer_name):
            raise self.invalid("consumer_name", "must be 1 to 128 letters, digits, '_', '.' and '-'")
        if self.bounds is None:
            return
        self.bounds.check(self.streams)
        if self.initial_position != TRIM_HORIZON:
            raise self._conflict(
                "initial_position", self.initial_position, "field 'bounds' also sets where reading starts"
            )
        if self.stop_at is not None:
            raise self._conflict("stop_at", self.stop_at.isoformat(), "field 'bounds' also sets where reading ends")

    @override
    def within(self, start: datetime, end: datetime) -> KinesisStreams:
        own = (("stop_at", NOTHING), ("bounds", NOTHING), ("initial_position", (*NOTHING, TRIM_HORIZON)))
        for name, nothing in own:
            if (given := getattr(self, name)) not in nothing:
                raise self._conflict(name, given, "field 'interval' already bounds what is read")
        return replace(self, bounds=Bounds(start=start, end=end))

    def _conflict(self, field: str, value: object, reason: str) -> FieldError:
        return FieldError(type(self).__name__, field, f"is {str(value)!r}, but {reason}; remove one of them")

    @override
    def beside(
        self, other: SourceCoordinator, coordinator: SourceCoordinator, start: datetime, end: datetime
    ) -> KinesisStreams | None:
        """Return the interval without what arrived after the other source began; None if nothing is left."""
        from airflow_provider_coordination.sources.kinesis.sync_state import began_at

        began = began_at(other, self.parts)
        return None if began <= start else self.within(start, min(began, end))

    @override
    def sync(self, coordinator: SourceCoordinator, connections: ConnectionResolver) -> ShardSyncSummary:
        """Sync the shards; return what was found and done."""
        from airflow_provider_coordination.sources.kinesis.client import kinesis_client
        from airflow_provider_coordination.sources.kinesis.sync import ShardSync

        streams = self.resolved()
        streams.set_connections(connections)
        sync = ShardSync(
            kinesis_client(streams.aws),
            coordinator,
            initial_position=streams.start_position,
            on_data_loss=streams.on_data_loss,
            bounds=streams.bounds,
        )
        summary = sync.run(streams.parts, forced=True)
        assert summary is not None  # only a sync that is not forced may leave the work to another worker
        return summary
