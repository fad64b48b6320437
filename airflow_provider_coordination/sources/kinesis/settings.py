"""What is read of Kinesis: what a DAG or a spec says, and what the shard sync and the jobs use."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits, ParsedBy, Texts
from airflow_provider_coordination.settings import NOTHING, FieldError, text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.kinesis.bounds import EARLIEST, Bounds, bounds_value
from airflow_provider_coordination.sources.kinesis.pacing import (
    MAX_READS_PER_SECOND,
    MAX_RECORDS_PER_READ,
    MIN_READS_PER_SECOND,
    READS_PER_SECOND,
)
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, at_timestamp, aware_instant
from airflow_provider_coordination.sources.kinesis.progress import ON_DATA_LOSS, SKIP_TO_LATEST
from airflow_provider_coordination.sources.kinesis.stream_names import (
    EXAMPLE_ARN,
    StreamSearch,
    check_streams,
    is_arn,
    region_of,
    stream_name,
    stream_of_consumer,
    with_found,
)
from airflow_provider_coordination.sources.reads import AwsReads

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Page
    from airflow_provider_coordination.sources.kinesis.client import KinesisClient
    from airflow_provider_coordination.sources.kinesis.shards import StreamDescription
    from airflow_provider_coordination.sources.kinesis.sync_state import ShardSyncSummary

NAME_PATTERN = r"[A-Za-z0-9_.*?\[\]!-]{1,128}"
PATTERN_WORDS = "a pattern of names such as 'clicks-*', of letters, digits, '_', '.', '-', '*', '?' and '[…]'"
CONSUMER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def streams_value(value: Any) -> list[str]:
    """Return the names and ARNs of streams, given as one text or a list.

    :raises FieldError: if one is neither, or two cannot be read by one source.
    """
    streams = [value] if isinstance(value, str) else list(value)
    texts = [str(stream) for stream in streams]
    if (problem := check_streams(texts)) is not None:
        raise FieldError("KinesisStreams", "streams", problem)
    return texts


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


@dataclass(kw_only=True)
class ShardReads(AwsReads):
    """What is read of streams whose partitions are shards.

    :param initial_position: where reading starts in a stream new to the source: `"TRIM_HORIZON"`, `"LATEST"`, or an
        instant, as an aware datetime or ISO 8601 text. (templated)
    :param stop_at: deliver what arrived before this instant, then stop: an aware datetime, ISO 8601 text, or `"start"`,
        when the task begins. It replaces `until_caught_up`. None continues reading. (templated)
    :param bounds: read only this part of the streams, then end: `{"start": …, "end": …}`, two instants, or sequence
        numbers by shard. It has its own leases. The end instant is exclusive, and the start may be `"TRIM_HORIZON"`.
        Sequence numbers are those of the only stream, both inclusive. None sets no bounds. (templated)
    :param on_data_loss: after a loss of unread data: `"fail"` parks its partition, `"earliest"` reads on behind the
        gap, `"latest"` from now on. (templated)
    :param reads_per_second: how often a job polls a shard at most, half as often while the shard is caught up. All
        pollers of a shard share its limits. (templated)
    :param records_per_read: how many records a poll returns at most. (templated)
    :param shard_sync_interval: how often a job syncs the shards itself; 0 leaves that to the task that syncs them.
        (templated)
    :param repartition_transition_duration: how long after the end of a shard its children are first read.
        (templated)
    """

    is_endless: ClassVar[bool] = True
    is_synced: ClassVar[bool] = True
    filter_by_hash_range: ClassVar[bool] = False

    initial_position: Annotated[str, ParsedBy(parse=position_text)] = TRIM_HORIZON
    stop_at: datetime | None = None
    bounds: Annotated[Bounds | None, ParsedBy(parse=bounds_value, written=Mapping[str, Any])] = None
    on_data_loss: Annotated[str, Limits(one_of=ON_DATA_LOSS)] = "fail"
    reads_per_second: Annotated[float, Limits(minimum=MIN_READS_PER_SECOND, maximum=MAX_READS_PER_SECOND)] = (
        READS_PER_SECOND
    )
    records_per_read: Annotated[int, Limits(minimum=1, maximum=MAX_RECORDS_PER_READ)] = MAX_RECORDS_PER_READ
    shard_sync_interval: Annotated[timedelta, Limits(minimum=timedelta(0))] = timedelta(minutes=1)
    repartition_transition_duration: Annotated[timedelta, Limits(minimum=timedelta(0))] = timedelta(0)

    @property
    @abstractmethod
    def addresses(self) -> Sequence[str]:
        """The names or ARNs of the streams, as given; rendered."""

    @abstractmethod
    def client(self) -> KinesisClient:
        """Return the client with which streams are described and shards are listed, once connections are resolved."""

    def history(self, coordinator: SourceCoordinator) -> Callable[[StreamDescription], Iterable[Page]] | None:
        """Return what returns the partitions that are read before the shards of a stream; None if there are none.

        :param coordinator: of the source.
        """
        return None

    @property
    @override
    def parts(self) -> Sequence[str]:
        """The names of the streams, as far as they are given."""
        return [stream_name(stream) for stream in self.addresses]

    @property
    @override
    def own_name(self) -> str:
        """The name of the only stream; a bounded part of a stream is a separate source."""
        if len(self.parts) != 1 or self.search:
            what = "the streams " + ", ".join(map(repr, self.parts)) if self.parts else "streams that are searched for"
            raise FieldError(
                type(self).__name__,
                "source",
                f"is missing: {what} need a common source name; give 'source'",
            )
        bounds = bounds_value(self.bounds)
        return self.parts[0] if bounds is None else f"{self.parts[0]}@{bounds.name}"

    @property
    def search(self) -> StreamSearch:
        """What the streams have in common that are searched for."""
        return StreamSearch()

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

    def _check_bounds(self) -> None:
        if self.bounds is None:
            return
        try:
            self.bounds.check(self.addresses)
        except FieldError as error:
            raise error.of(self.title) from None
        if self.on_data_loss == SKIP_TO_LATEST:
            raise self.invalid("on_data_loss", "must be 'fail' or 'earliest' with 'bounds', which end in the past")
        if self.initial_position != TRIM_HORIZON:
            raise self._conflict(
                "initial_position", self.initial_position, "field 'bounds' also sets where reading starts"
            )
        if self.stop_at is not None:
            raise self._conflict("stop_at", self.stop_at.isoformat(), "field 'bounds' also sets where reading ends")

    @override
    def within(self, start: datetime, end: datetime) -> Self:
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
    ) -> Self | None:
        """Return the interval without what arrived after the other source began; None if nothing is left."""
        from airflow_provider_coordination.sources.kinesis.sync_state import began_at

        began = began_at(other, self.parts)
        return None if began <= start else self.within(start, min(began, end))

    @override
    def sync(self, coordinator: SourceCoordinator, connections: ConnectionResolver) -> ShardSyncSummary:
        """Sync the shards; return what was found and done."""
        from airflow_provider_coordination.sources.kinesis.sync import ShardSync

        streams = self.resolved()
        streams.set_connections(connections)
        client = streams.client()
        found = streams.search.find(client) if streams.search else None
        sync = ShardSync(
            client,
            coordinator,
            initial_position=streams.start_position,
            on_data_loss=streams.on_data_loss,
            bounds=streams.bounds,
            history=streams.history(coordinator),
        )
        summary = sync.run(
            streams.addresses if found is None else with_found(streams.addresses, found.matching),
            forced=True,
            existing=None if found is None else found.existing,
        )
        assert summary is not None  # only a sync that is not forced may leave the work to another worker
        return summary


@dataclass
class KinesisStreams(ShardReads):
    """Kinesis streams, for the `reads` of operators. Partitions are shards; `ShardSyncOperator` creates them.

    :param streams: the name or ARN of the stream, or a list of **all** streams of the source. Partitions of a stream
        that is no longer named are put aside until it is named again. (templated)
    :param source: the source's name if the operator sets none; by default the name of the stream. Several streams need
        a name. (templated)
    :param name_pattern: also read the streams of the account and region whose names match this pattern, such as
        `"clicks-*"`. `*` is any text, `?` any character, `[…]` one of some. Each sync of a task searches again.
        (templated)
    :param tags: also read the streams of the account and region that have all these tags, by name. With
        `name_pattern`, those that match both. (templated)
    :param filter_by_hash_range: drop and count user records of an aggregate that belong to another shard. (templated)
    :param consumer_name: read by enhanced fan-out, as the consumer of this name, which is registered if missing, or of
        this ARN. None polls. (templated)
    """

    kind: ClassVar[str] = "kinesis"

    streams: Annotated[Texts, ParsedBy(parse=streams_value)] = ()
    _: KW_ONLY
    name_pattern: Annotated[str | None, Limits(pattern=NAME_PATTERN, words=PATTERN_WORDS)] = None
    tags: Mapping[str, str] | None = None
    filter_by_hash_range: bool = True  # type: ignore[misc]  # of the other kinds, no stream has hash keys
    consumer_name: str | None = None

    @property
    @override
    def addresses(self) -> Sequence[str]:
        return self.listed("streams")

    @override
    def client(self) -> KinesisClient:
        from airflow_provider_coordination.sources.kinesis.client import kinesis_client

        return kinesis_client(self.aws)

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        region = text_value(self.region_name)
        search = {"name_pattern": text_value(self.name_pattern), "tags": dict(self.tags or {}) or None}
        known = {**search, "region": region}
        return {"streams": sorted(self.parts), **{name: value for name, value in known.items() if value is not None}}

    @property
    @override
    def search(self) -> StreamSearch:
        """What the streams have in common that are searched for."""
        return StreamSearch(text_value(self.name_pattern), self.tags or {})

    @override
    def check_together(self) -> None:
        if not self.streams and not self.search:
            raise FieldError(type(self).__name__, "streams", "is missing; name a stream, or give name_pattern or tags")
        if (arn_region := region_of(self.streams)) is not None and self.region_name not in (None, arn_region):
            raise self._conflict("region_name", self.region_name, f"field 'streams' has an ARN of region {arn_region}")
        self._check_consumer()
        if self.bounds is not None and self.search:
            field = "name_pattern" if self.name_pattern is not None else "tags"
            raise self._conflict(field, str(self.search), "a part of streams can be read only if 'streams' names them")
        self._check_bounds()

    def _check_consumer(self) -> None:
        if self.consumer_name is None:
            return
        if not is_arn(self.consumer_name):
            if not CONSUMER_NAME.fullmatch(self.consumer_name):
                raise self.invalid("consumer_name", "must be 1 to 128 letters, digits, '_', '.' and '-', or an ARN")
            return
        stream = stream_of_consumer(self.consumer_name)
        if stream is None:
            raise self.invalid("consumer_name", f"must be a name, or an ARN like {EXAMPLE_ARN}/consumer/web:1700000000")
        name = stream_name(stream)
        if self.search or list(self.parts) != [name] or (is_arn(self.streams[0]) and self.streams[0] != stream):
            raise self.invalid("consumer_name", f"must be of the only stream; name {name!r} alone in 'streams'")

    @override
    def set_connections(self, connections: ConnectionResolver) -> None:
        region = text_value(self.region_name) or region_of(self.streams)
        self.aws = connections.aws(self.aws_conn_id, region, self.kind)
