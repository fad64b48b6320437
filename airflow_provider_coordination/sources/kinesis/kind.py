"""Kinesis as a kind of source: shards are partitions, streams are groups of partitions, and streams are endless."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.aws import AwsClients, AwsSettings, Permission, aws_client
from airflow_provider_coordination.coordination.acknowledgment import BatchLedger
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, ProgressError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.sources.kinesis import reset
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.leases import unfollowed
from airflow_provider_coordination.sources.kinesis.positions import (
    TRIM_HORIZON,
    at_timestamp,
    parse_position,
    position_order,
)
from airflow_provider_coordination.sources.kinesis.progress import KIND as NAME
from airflow_provider_coordination.sources.kinesis.progress import (
    SETTLING,
    Gap,
    ShardBatches,
    ShardKey,
    ShardProgress,
    parse_partition_key,
    sibling_key,
)
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.kinesis.shards import open_shards
from airflow_provider_coordination.sources.kinesis.stream_names import (
    StreamService,
    all_streams,
    region_of,
    split_consumer,
    stream_name,
)
from airflow_provider_coordination.sources.kinesis.sync_state import StreamState, SyncState
from airflow_provider_coordination.sources.landed import (
    START,
    LandedProgress,
    ProgressFormatError,
    instant_of,
    number_of,
    objects_in,
    text_of,
)
from airflow_provider_coordination.sources.peek import Peek
from airflow_provider_coordination.sources.questions import Question, aws_question
from airflow_provider_coordination.sources.reset_targets import ResetAction, ResetStep
from airflow_provider_coordination.sources.source_kind import (
    Access,
    Capacity,
    DatasetName,
    Finder,
    Hold,
    Inspection,
    RangeRepair,
    Settings,
    SourceKind,
    aws_host,
)

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Supplier
    from airflow_provider_coordination.sources.connections import ConnectionResolver
    from airflow_provider_coordination.sources.kinesis.service import Unread
    from airflow_provider_coordination.sources.reset_targets import Reread, ResetPlan, Target


class KinesisKind(SourceKind):
    """Streams of Kinesis."""

    progress_class = ShardProgress
    has_positions = True
    reads = "airflow_provider_coordination.sources.kinesis.settings:KinesisStreams"
    reading = "airflow_provider_coordination.spark.kinesis.reading:KinesisSource"
    questions: Sequence[Question] = (
        Question(option="stream", text="Name or ARN of the stream", field="streams"),
        aws_question(),
    )
    pages: str | None = "airflow_provider_coordination.ui.kinesis:PAGES"
    import_commands: str | None = "airflow_provider_coordination.cli.kinesis:register"

    @property
    @override
    def batches(self) -> BatchLedger:
        return ShardBatches()

    @override
    def rebuilt(
        self, partition_key: str, progress: ShardProgress, others: Mapping[str, LandedProgress]
    ) -> Mapping[str, LandedProgress]:
        """A shard whose child was read is finished; one of which a range was repaired goes on."""
        if progress.is_finished and progress.resumes is not None:
            return {partition_key: progress.resumed()}
        children = (
            other
            for key, other in others.items()
            if isinstance(other, ShardProgress) and sibling_key(key, progress.shard_id) == partition_key
        )
        if any(progress.shard_id in child.parent_shard_ids for child in children):
            return {partition_key: replace(progress, is_ended=True)}
        return {partition_key: progress}

    @override
    def supplier(self, described: Any, coordinator: SourceCoordinator, connections: ConnectionResolver) -> Supplier:
        raise ConfigurationError(
            f"KinesisStreams: ShardSyncOperator creates the partitions of source {coordinator.source!r}; use it "
            "instead of CreatePartitionsOperator"
        )

    @override
    def rebuilt_state(self, known: Mapping[str, ShardProgress], starts: Collection[str]) -> Mapping[str, Any]:
        """The earliest possible start of each stream; not needed for bounded reads."""
        if any(progress.start is not None or progress.end is not None for progress in known.values()):
            return {}
        instants = [at for start in starts if (at := parse_position(start).timestamp) is not None]
        began = at_timestamp(min(instants)) if instants else TRIM_HORIZON
        streams = sorted({parse_partition_key(key)[:2] for key in known})
        states = (StreamState(stream=name, creation_epoch=epoch, began=began) for name, epoch in streams)
        return SyncState(streams=tuple(states), named=tuple(sorted({name for name, _ in streams}))).to_mapping()

    @override
    def is_before(self, position: str, other: str) -> bool | None:
        try:
            one, two = (parse_position(text) for text in (position, other))
        except ValueError:
            return None
        if (one.timestamp is None) != (two.timestamp is None):
            return None  # only the source knows which records had arrived by an instant
        return position_order(position) < position_order(other)

    @override
    def is_initial(self, position: str) -> bool:
        try:
            parsed = parse_position(position)
        except ValueError:
            return False
        return parsed.sequence_number is None or parsed.is_before

    @override
    def inspect(self, partition: Partition, now: datetime) -> Inspection:
        glance = super().inspect(partition, now)
        if partition.status is PartitionStatus.COMPLETED:
            return glance
        throughput = number_of(partition.progress.get("throughput"))
        return replace(glance, lag=_lag(partition.progress, glance.position, now), throughput=throughput)

    settles_after = SETTLING
    watermark_statuses = tuple(PartitionStatus)

    @override
    def delivered_until(self, partition: Partition) -> datetime | None:
        """A shard of a stream that is no longer named is not read, and holds nothing."""
        mark = partition.progress.get("put_aside")
        if isinstance(mark, dict) and mark.get("version") == partition.version and mark.get("stream_gone") is False:
            return datetime.max.replace(tzinfo=UTC)
        return super().delivered_until(partition)

    @override
    def holds(self, partitions: Sequence[Partition], state: Mapping[str, Any]) -> Iterator[Hold]:
        """Streams that were never listed, and finished shards whose children have no partition."""
        known = SyncState.from_mapping(state)
        for name in known.named:
            latest = known.latest(name)
            if latest is None or latest.listed_at is None:
                yield Hold(f"stream {name}", None, "its shards were never listed; run a shard sync")
        for lease in unfollowed(partitions):
            until = None if lease.progress is None else lease.progress.delivered_until
            yield Hold(
                lease.partition.partition_key, until, "its children have no partition; a shard sync creates them"
            )

    @override
    def removed_until(self, partition_keys: Iterable[str], state: Mapping[str, Any]) -> Mapping[str, datetime]:
        """When their streams, or younger ones of that name, were last listed."""
        known, found = SyncState.from_mapping(state), {}
        for text in partition_keys:
            with suppress(ValueError):
                key = parse_partition_key(text)
                if (listed_at := known.listed_at(key.stream, since=key.creation_epoch)) is not None:
                    found[text] = listed_at
        return found

    loss_remedy = "Sync shards once with on_data_loss='earliest', reopen what stays parked, run a job with it"

    @override
    def lost(self, progress: Mapping[str, Any]) -> list[str]:
        return [_gap(gap) for gap in objects_in(progress, "gaps")]

    @override
    def lost_ranges(self, progress: Mapping[str, Any]) -> Iterator[tuple[datetime | None, datetime | None, str]]:
        for gap in objects_in(progress, "gaps"):
            yield instant_of(gap.get("since")), instant_of(gap.get("until")), _gap(gap)

    @override
    def open_loss(self, progress: Mapping[str, Any]) -> str | None:
        """The last gap, if nothing was landed after it."""
        gaps, landed = list(objects_in(progress, "gaps")), list(objects_in(progress, "landed"))
        position = landed[-1].get("end") if landed else progress.get("checkpoint")
        return _gap(gaps[-1]) if gaps and gaps[-1].get("after") == position else None

    @override
    def facts(self, progress: Mapping[str, Any]) -> Iterator[tuple[str, str | datetime | None]]:
        with suppress(ProgressFormatError):
            known = ShardProgress.from_mapping(progress)
            set_at = datetime.fromtimestamp(known.epoch, UTC)
            yield "epoch", f"{known.epoch} (reset at {set_at:%Y-%m-%dT%H:%M:%SZ})" if known.epoch else "0"
            yield "delivered_until", known.delivered_until
            if known.resumes is not None:
                yield "repaired up to", known.end
                yield "goes on after", known.resumes.position
            elif known.end is not None:
                yield "end", known.end

    @override
    def stream_of(self, partition_key: str) -> str | None:
        key = _key(partition_key)
        return None if key is None else key.stream

    @override
    def group_of(self, partition: Partition) -> str | None:
        return self.stream_of(partition.partition_key)

    @override
    def named_group(self, name: str) -> tuple[str, Settings]:
        """A stream may be named by its ARN, as in `KinesisStreams`."""
        region = region_of([name])
        return stream_name(name), {"streams": [name], "aws": {} if region is None else {"region": region}}

    @override
    def short_name(self, partition: Partition) -> str | None:
        key = _key(partition.partition_key)
        return None if key is None else key.shard_id

    @override
    def check_target(self, target: Target) -> None:
        reset.position_of(target)

    @override
    def restarted(self, partition: Partition, target: Target, *, epoch: int = 0) -> Mapping[str, Any]:
        """Its identity in a new epoch, without landed batches and children."""
        return reset.restarted(partition, target, epoch=epoch)

    @override
    def reread(self, partition: Partition, target: Target) -> Reread:
        """The span ends with what is delivered, and its size follows from the shard's throughput."""
        plain, progress = super().reread(partition, target), partition.progress
        if plain.until in (START, TRIM_HORIZON):
            return replace(plain, until=TRIM_HORIZON, span=timedelta(0), bytes=0)
        delivered, throughput = (instant_of(progress.get("delivered_until")), number_of(progress.get("throughput")))
        if target.instant is None or delivered is None:
            return plain
        span = max(timedelta(0), delivered - target.instant)
        size = None if throughput is None else int(throughput * span.total_seconds())
        return replace(plain, span=span, bytes=0 if not span else size)

    @override
    def check_progress(self, partition: Partition, progress: Mapping[str, Any]) -> None:
        super().check_progress(partition, progress)
        reset.check_progress(partition, progress)

    @override
    def plan_repair(self, partition: Partition, after: str | None, until: str, target: Target) -> RangeRepair:
        def progress(stored: Partition) -> Mapping[str, Any]:
            known = ShardProgress.from_mapping(stored.progress)
            created_at = datetime.fromtimestamp(parse_partition_key(stored.partition_key).creation_epoch, UTC)
            try:
                repairing = known.repairing(
                    after or known.start or TRIM_HORIZON, until, epoch=target.epoch, created_at=created_at
                )
            except ValueError as error:
                raise ProgressError(f"partition {stored.partition_key!r}: {error}") from None
            return repairing.to_mapping()

        planned = ShardProgress.from_mapping(progress(partition))
        assert planned.resumes is not None
        rest = "is finished again" if planned.resumes.is_ended else f"goes on after {planned.resumes.position}"
        step = ResetStep(action=ResetAction.RESET, partition=partition, progress=progress)
        return RangeRepair(step, f"reads the range again, and then {rest}")

    @override
    def service(self, settings: Settings, clients: AwsClients = aws_client) -> StreamService:
        aws = read_settings(AwsSettings, "AWS settings of Kinesis", settings.get("aws", {}))
        return StreamService(clients(aws, "kinesis"), tuple(settings.get("streams", ())))

    @override
    def sample(self, service: StreamService, settings: Settings) -> Sequence[bytes]:
        from airflow_provider_coordination.sources.kinesis.service import sample

        return sample(service.client, all_streams(service.client, settings))

    @override
    def peek(self, service: StreamService, settings: Settings, peek: Peek, finder: Finder) -> None:
        from airflow_provider_coordination.sources.kinesis.service import peek_streams

        peek_streams(service.client, all_streams(service.client, settings), peek)

    @override
    def plan_partitions(self, partitions: Sequence[Partition], target: Target, access: Access | None) -> ResetPlan:
        """The descendants of these shards stay as they are."""
        if access is not None and (target.is_latest or target.position is not None):
            target = reset.checked_with_service(partitions, target, access(self))
        return super().plan_partitions(partitions, target, access)

    @override
    def plan_group(
        self, group: str | None, partitions: Sequence[Partition], target: Target, access: Access
    ) -> ResetPlan:
        """A stream is read parents before children."""
        if group is None:
            return super().plan_group(group, partitions, target, access)
        return reset.plan_stream(group, partitions, target, access(self))

    @override
    def open_partitions(self, service: StreamService, settings: Settings) -> int:
        streams = all_streams(service.client, settings)
        return sum(open_shards(service.client, each) for each in streams)

    @override
    def unread_lag(self, service: StreamService, partition: Partition) -> timedelta | None:
        return self.unread(service, partition).lag

    @override
    def confirmed_progress(self, service: StreamService, partition: Partition) -> Mapping[str, Any] | None:
        return self.unread(service, partition).confirmed

    def unread(self, service: StreamService, partition: Partition) -> Unread:
        """Look for the first unread record of a shard."""
        from airflow_provider_coordination.sources.kinesis.service import unread

        return unread(service, partition)

    @override
    def check(self, settings: Settings) -> None:
        KinesisStreams.from_mapping(settings)

    @override
    def ends(self, settings: Settings) -> bool:
        return settings.get("bounds") is not None

    @override
    def capacity(self, settings: Settings, *, ask: bool) -> Capacity:
        from airflow_provider_coordination.sources.kinesis.service import capacity_of, extent_of

        limits = capacity_of(settings)
        if not ask:
            return limits
        client = self.service(settings).client
        partitions, retention = extent_of(client, all_streams(client, settings))
        given = objects_in(settings.get("bounds") or {}, "shards")
        return replace(limits, partitions=len(given) or partitions, retention=retention)

    @override
    def location(self, settings: Settings) -> dict[str, Any]:
        aws = settings.get("aws", {})
        endpoint = {name: aws[name] for name in ("region", "endpoint_url") if aws.get(name) is not None}
        # Without accounts: a stream stays the same however it is named, and the shard sync knows its account.
        names = sorted(map(stream_name, settings["streams"]))
        search = {name: settings[name] for name in ("name_pattern", "tags") if settings.get(name)}
        return {"streams": names, **search, **endpoint}

    @override
    def left(self, before: Settings, now: Settings) -> Sequence[str]:
        """Another region has other streams. Streams that are not named are put aside."""
        regions = [each.get("region") for each in (before, now)]
        return [f"region {regions[0]!r}"] if None not in regions and regions[0] != regions[1] else []

    @override
    def permissions(
        self, what: str, access: Callable[[str], AwsSettings]
    ) -> tuple[AwsSettings, Sequence[Permission]] | None:
        """`what` is a stream, optionally with `:` and a consumer of enhanced fan-out; each by its name or ARN."""
        from airflow_provider_coordination.sources.kinesis.service import permissions

        stream, consumer_name = split_consumer(what)
        settings = access(self.name)
        return settings, list(permissions(kinesis_client(settings), stream, consumer_name))

    @override
    def datasets(self, settings: Settings) -> Iterable[DatasetName]:
        host = aws_host(self.name, settings.get("aws", {}))
        names = map(stream_name, settings.get("streams", ()))
        return (DatasetName(f"kinesis://{host}", name) for name in names)


def _key(partition_key: str) -> ShardKey | None:
    try:
        return parse_partition_key(partition_key)
    except ValueError:
        return None


def _lag(progress: Mapping[str, Any], checkpoint: str | None, now: datetime) -> float | None:
    since = instant_of(progress.get("delivered_until")) or instant_of(progress.get("owed_since"))
    if since is None and checkpoint is not None:
        with suppress(ValueError):
            since = parse_position(checkpoint).timestamp
    return None if since is None else max((now - since).total_seconds(), 0.0)


def _gap(gap: Mapping[str, Any]) -> str:
    try:
        return str(read_settings(Gap, "gap", gap))
    except (CoordinationError, ValueError):
        return text_of(gap.get("reason")) or "a range that cannot be read"


KIND = KinesisKind(NAME)
