"""Positions by hand: partitions of a source are read anew from where a person says, whoever works on them.

What is begun is fenced twice. Each write grows the partition's version, so the owner's next write is refused; and a
shard's progress enters a new epoch, which its batches are named after, so that a batch that was begun before can
neither be counted nor be taken for one that is read afterwards. What waits for its acknowledgment is cancelled. Druid
kills the tasks that read, and what others publish at that moment may still undo the reset; here it cannot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentSetNotFoundError,
    ConfigurationError,
    CoordinationError,
    PartitionNotFoundError,
    PartitionStatusError,
    PartitionUpdateError,
    ProgressError,
    SourceError,
)
from airflow_provider_coordination.coordination.partition import Partition, format_instant, new_partition
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.sources.batches import SourceBatches
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.keys import ShardKey, parse_partition_key, partition_key
from airflow_provider_coordination.sources.kinesis.positions import (
    LATEST,
    TRIM_HORIZON,
    Position,
    parse_position,
)
from airflow_provider_coordination.sources.kinesis.progress import ProgressFormatError, ShardProgress
from airflow_provider_coordination.sources.kinesis.resetting import plan_stream_reset
from airflow_provider_coordination.sources.kinesis.shard_leases import ShardLease
from airflow_provider_coordination.sources.kinesis.shards import Shard, describe_stream, list_shards
from airflow_provider_coordination.sources.progress import PartitionFormatError, PartitionProgress, items_of

log = logging.getLogger(__name__)

EARLIEST = "earliest"
"""Everything that a partition still holds; for a shard `TRIM_HORIZON`."""
LEAST_RETENTION = timedelta(hours=24)
"""No stream of Kinesis keeps records for less."""

REFUSALS = (PartitionNotFoundError, PartitionStatusError, PartitionUpdateError, ProgressError)
"""What concerns one partition alone."""

Clients = Callable[[], KinesisClient]
"""Returns a client of Kinesis, made when it is first needed."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where partitions are to be read from.

    :param name: as a person says it.
    :param position: as a shard's progress stores it.
    :param asked_at: when it was asked for (aware); makes the epoch of what is reset.
    :param is_latest: whether nothing that is there already is wanted.
    """

    name: str
    position: Position
    asked_at: datetime
    is_latest: bool = False

    @property
    def epoch(self) -> int:
        """The least epoch of what is reset: no lease that was cleaned up since had one that is greater."""
        return int(self.asked_at.timestamp())

    def not_ahead_of(self, instant: datetime | None) -> Target:
        """Return it as the service's clock sees it: a clock that is ahead of that would skip what arrives meanwhile.

        :param instant: the present one (aware) by that clock; None if unknown.
        """
        since = self.position.timestamp
        if not self.is_latest or instant is None or since is None or since <= instant:
            return self
        return replace(self, position=Position(timestamp=instant))

    @property
    def delivered_until(self) -> datetime | None:
        """Until when nothing is wanted, if no record from then on can be gone: so that a loss is noticed."""
        since = self.position.timestamp
        return since if since is not None and self.asked_at - since < LEAST_RETENTION else None


def target_of(to: datetime | str, now: datetime) -> Target:
    """Return where partitions are to be read from.

    :param to: `"earliest"`, `"latest"`, an instant (aware, or its ISO 8601 text), or a sequence number in decimal
        digits, after which reading goes on; positions as a progress stores them are understood, too.
    :param now: the present instant (aware): what `"latest"` is stored as.
    :raises ConfigurationError: if it is something else, or an instant before 1970 or in the future.
    """
    text = to.isoformat() if isinstance(to, datetime) else str(to).strip()
    if text.lower() in (EARLIEST, TRIM_HORIZON.lower()):
        return Target(name=EARLIEST, position=Position(), asked_at=now)
    if text.upper() == LATEST:
        return Target(name="latest", position=Position(timestamp=now.astimezone(UTC)), asked_at=now, is_latest=True)
    try:
        position = parse_position(text)
    except ValueError:
        position = Position(timestamp=_instant(text))
    if (instant := position.timestamp) is not None:
        _check_instant(instant, text, now)
        position = replace(position, timestamp=instant.astimezone(UTC))
    return Target(name=text, position=position, asked_at=now)


def _as_it_is(partition: Partition) -> Mapping[str, Any]:
    return partition.progress


class ResetAction(StrEnum):
    """What is done to a partition."""

    RESET = "reset"
    """It is read anew."""
    CREATE = "created"
    """Its lease was cleaned up; it is leased again, to be read anew."""
    REMOVE = "removed"
    """It comes back when what it came from is finished: shards, or a partition from which an item was split off."""


@dataclass(frozen=True, kw_only=True)
class ResetStep:
    """What becomes of one partition.

    :param action: what is done.
    :param partition: as it was seen; as it is to be created.
    :param progress: what it starts from; makes it of the partition as it stands then.
    """

    action: ResetAction
    partition: Partition
    progress: Callable[[Partition], Mapping[str, Any]] = _as_it_is


@dataclass(frozen=True, kw_only=True)
class ResetPlan:
    """What becomes of the partitions that a person names.

    :param target: where they are read from.
    :param steps: in the order in which they are done.
    :param left: the keys of partitions that stay as they are, and why.
    :param warnings: what the person should know.
    """

    target: Target
    steps: tuple[ResetStep, ...]
    left: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def of(self, action: ResetAction) -> list[Partition]:
        """Return the partitions to which this is done."""
        return [step.partition for step in self.steps if step.action is action]


class Resets:
    """Sets the positions of one source's partitions.

    :param sets: the acknowledgment sets of the source; those of dropped batches are cancelled.
    :param by: the person, or the task; logged and kept in the history. None if unknown.
    :param reason: why; logged and kept in the history.
    """

    def __init__(self, sets: AcknowledgmentSets, *, by: str | None = None, reason: str = "") -> None:
        self._sets = sets
        self._coordinator = sets.coordinator
        self._administration = Administration(
            sets.coordinator.store,
            sets.coordinator.source_identifier,
            sets.coordinator.clock,
            by=by,
            reason=reason,
        )
        self._by = by
        self._reason = reason
        self._batches = SourceBatches()

    # Planning

    def of_partitions(
        self, partitions: Sequence[Partition], target: Target, client: Clients | None = None
    ) -> ResetPlan:
        """Plan to reset just these partitions; the shards that came from them stay as they are.

        An item that was split off a partition that is reset as well is removed: it is read there again.

        :param partitions: as they were seen.
        :param client: returns a client, to compare a sequence number with the shard's own, and the clock with the
            service's; None for no comparison.
        :raises ConfigurationError: if a sequence number is given for several shards, or is none of the shard's.
        :raises ProgressError: if one of them has no such position, or its stored progress does not tell what it is.
        """
        if target.position.sequence_number is not None:
            if len(partitions) > 1:
                raise ConfigurationError(
                    f"a sequence number belongs to one shard; got {target.name!r} for {len(partitions)} partitions: "
                    "name one, or give an instant, 'earliest' or 'latest'"
                )
            if client is not None and partitions and (shard := shard_of(partitions[0])) is not None:
                _check_sequence_number(target, shard, list_shards(client(), shard.stream))
        if target.is_latest and client is not None:
            for stream in sorted({shard.stream for p in partitions if (shard := shard_of(p)) is not None}):
                target = target.not_ahead_of(describe_stream(client(), stream).described_at)

        def progress(partition: Partition) -> Mapping[str, Any]:
            return restarted(partition, target)

        begun = {partition.partition_key: progress(partition) for partition in partitions}
        split = {p.partition_key for p in partitions if _split_of(p) in begun}
        steps = [
            ResetStep(action=ResetAction.RESET, partition=p, progress=progress)
            for p in partitions
            if p.partition_key not in split
        ]
        steps += [ResetStep(action=ResetAction.REMOVE, partition=p) for p in partitions if p.partition_key in split]
        return ResetPlan(target=target, steps=tuple(steps), left={})

    def of_stream(self, stream_name: str, target: Target, client: Clients) -> ResetPlan:
        """Plan to read a whole stream anew, parents before children; see `plan_stream_reset`.

        :param client: returns a client of the stream.
        :raises ConfigurationError: if the source has no partition of the stream, there is no such stream, or a sequence
            number is given.
        :raises ProgressError: if a stored progress does not tell what it is.
        :raises SourceError: if the stream cannot be listed.
        """
        every = [(p, key) for p in self._all_partitions() if (key := shard_of(p)) is not None]
        own = {key: p for p, key in every if key.stream == stream_name}
        if not own:
            known = sorted({key.stream for _, key in every})
            raise ConfigurationError(
                f"source {self._coordinator.source!r} has no partition of stream {stream_name!r}; "
                + (f"it has some of {', '.join(map(repr, known))}" if known else "it has no shard at all")
            )
        return self._of_stream(stream_name, own, target, client)

    def of_source(self, target: Target, client: Clients) -> ResetPlan:
        """Plan to read everything anew: stream by stream, and partitions of other kinds each by itself.

        :raises ConfigurationError: as `of_stream`, and if the source has no partition.
        :raises ProgressError: as `of_stream`, and if a partition that is no shard is to be read from elsewhere than
            the beginning.
        """
        streams: dict[str, dict[ShardKey, Partition]] = {}
        others = []
        for partition in self._all_partitions():
            if (shard := shard_of(partition)) is None:
                others.append(partition)
            else:
                streams.setdefault(shard.stream, {})[shard] = partition
        if not streams and not others:
            raise ConfigurationError(f"source {self._coordinator.source!r} has no partitions; check the name")
        _refuse_sequence_number(target, "a source")
        plans = [self.of_partitions(others, target)] if others else []
        plans += [self._of_stream(name, own, target, client) for name, own in sorted(streams.items())]
        return ResetPlan(
            target=target,
            steps=tuple(step for plan in plans for step in plan.steps),
            left={key: why for plan in plans for key, why in plan.left.items()},
            warnings=tuple(warning for plan in plans for warning in plan.warnings),
        )

    def _of_stream(
        self, name: str, partitions: Mapping[ShardKey, Partition], target: Target, client: Clients
    ) -> ResetPlan:
        _refuse_sequence_number(target, f"stream {name!r}")
        kinesis = client()
        stream = describe_stream(kinesis, name)
        listed = list_shards(kinesis, name)
        target = target.not_ahead_of(stream.described_at)
        warnings = []
        since = target.position.timestamp
        retention = timedelta(hours=stream.retention_hours)
        if since is not None and target.asked_at - since >= retention:
            warnings.append(
                f"stream {name!r} keeps records for {stream.retention_hours} hours: nothing as old as {target.name} is "
                "left, and it is read from its earliest record on"
            )
            target = replace(target, position=Position())
        leases = {
            key.shard_id: ShardLease(key, p, _progress_of(p))
            for key, p in partitions.items()
            if key.creation_epoch == stream.creation_epoch
        }
        own = {shard_id: lease.partition for shard_id, lease in leases.items()}
        left = {
            p.partition_key: "its stream was deleted and created anew"
            for key, p in partitions.items()
            if key.creation_epoch != stream.creation_epoch
        }
        plan = plan_stream_reset(
            leases,
            listed,
            since=target.position.timestamp,
            unfinished_only=target.is_latest,
        )

        def progress(partition: Partition) -> Mapping[str, Any]:
            return restarted(partition, target, epoch=plan.epoch)

        steps = [ResetStep(action=ResetAction.RESET, partition=own[name], progress=progress) for name in plan.begin]
        for shard in plan.create:
            key = partition_key(name, stream.creation_epoch, shard.shard_id)
            new = new_partition(self._coordinator.source_identifier, key, target.asked_at)
            new = new.with_progress(ShardProgress.first(name, shard).to_mapping())
            steps.append(ResetStep(action=ResetAction.CREATE, partition=new, progress=progress))
        steps += [ResetStep(action=ResetAction.REMOVE, partition=own[name]) for name in plan.remove]
        left |= {own[name].partition_key: why for name, why in plan.left.items()}
        return ResetPlan(target=target, steps=tuple(steps), left=left, warnings=tuple(warnings))

    # Doing

    def carry_out(
        self, plan: ResetPlan, *, as_seen: bool = True, versions: Mapping[str, int] | None = None
    ) -> Iterator[tuple[ResetStep, Partition | CoordinationError]]:
        """Do what is planned, step by step; yield each partition as written, as it was before it was removed, or why
        nothing was done to it.

        Where a shard could not be reset, no shard of its stream is removed: they would not come back in the same epoch.

        :param as_seen: do it only to partitions whose owner and status are as they were seen; else as they are now.
        :param versions: the versions that the person saw, by partition key: what was written to since is left alone.
        """
        failed = set()
        for step in plan.steps:
            shard = shard_of(step.partition)
            stream = None if shard is None else shard.stream
            try:
                if step.action is ResetAction.REMOVE and stream in failed:
                    raise PartitionStatusError(
                        f"partition {step.partition.partition_key!r} stays: not all that it comes after could be "
                        "reset; reset the stream, or the source, again"
                    )
                version = None if versions is None else versions.get(step.partition.partition_key)
                yield step, self._do(step, as_seen=as_seen, version=version)
            except REFUSALS as error:
                failed.add(stream)
                yield step, error

    def _do(self, step: ResetStep, *, as_seen: bool, version: int | None) -> Partition:
        key = step.partition.partition_key
        seen = step.partition if as_seen else None
        if step.action is ResetAction.CREATE:
            partition = step.partition.with_progress(step.progress(step.partition))
            if not self._coordinator.store.create([partition]):
                raise PartitionUpdateError(f"partition {key!r} was created meanwhile; look at it again")
            log.info(
                "partition created by hand: source=%s partition=%s by=%s reason=%r",
                self._coordinator.source, key, self._by, self._reason,
            )  # fmt: skip
            return partition
        before = step.partition
        if step.action is ResetAction.REMOVE:
            # What somebody has removed meanwhile is removed.
            seen = seen or self._coordinator.store.get(before.source_identifier, key) or before
            written = before = self._administration.delete(key, seen=seen, version=version)
        else:

            def progress(partition: Partition) -> Mapping[str, Any]:
                nonlocal before
                before = partition
                return step.progress(partition)

            written = self._administration.reset(key, progress, seen=seen, version=version)
        self._cancel_sets(before)
        return written

    def _all_partitions(self) -> Iterator[Partition]:
        return all_partitions(self._coordinator.store, self._coordinator.source_identifier)

    def _cancel_sets(self, before: Partition) -> None:
        # Whatever becomes of such a set, it changes the partition no more; this ends the wait of others for it.
        if before.unreadable_progress is not None:
            return
        try:
            waiting = self._batches.pending(before.progress)
        except SourceError:
            return
        for set_id in waiting:
            self._coordinator.initialize()
            try:
                self._sets.cancel(set_id, "its partition was reset by hand", by=self._by)
            except AcknowledgmentSetNotFoundError:
                continue  # ended and purged
            except (ProgressError, PartitionUpdateError) as error:
                log.warning("acknowledgment set %s is left to expire: %s", set_id, error)


def restarted(partition: Partition, target: Target, *, epoch: int = 0) -> Mapping[str, Any]:
    """Return the progress with which a partition is read from a target on.

    For a shard, its identity in a new epoch, without landed batches and children; for items, these in a new epoch; for
    anything else, nothing.

    :param epoch: the least epoch.
    :raises ProgressError: if the stored progress does not tell, or the partition has no such position.
    """
    key = repr(partition.partition_key)
    if partition.unreadable_progress is not None:
        raise ProgressError(
            f"partition {key}: its stored progress is not a JSON object and does not tell where it began; "
            "give the progress to start from"
        )
    if shard_of(partition) is None:
        if target.position != Position():
            raise ProgressError(
                f"partition {key} is no shard and has no position {target.name!r}; reset it to {EARLIEST!r}, or give "
                "the progress to start from"
            )
        items = _items_of(partition)
        return {} if items is None else items.restarted(target.epoch).to_mapping()
    until = target.delivered_until
    progress = _progress_of(partition).restarted(
        str(target.position),
        epoch=max(epoch, target.epoch),
        delivered_until=until,
        owed_since=target.asked_at if until is None else None,
    )
    return progress.to_mapping()


def check_progress(partition: Partition, progress: Mapping[str, Any]) -> None:
    """Check that a partition can start from this progress.

    :raises ProgressError: if it is a shard's partition and this is not the progress of that shard, or one of items and
        this is not a progress of such.
    """
    shard = shard_of(partition)
    key = repr(partition.partition_key)
    if shard is None:
        if "kind" in partition.progress:
            _check_items(key, partition.progress["kind"], progress)
        return
    try:
        given = ShardProgress.from_mapping(progress)
    except ProgressFormatError as error:
        raise ProgressError(f"partition {key}: the given progress is not that of a shard: {error.__cause__}") from None
    if (given.stream, given.shard_id) != (shard.stream, shard.shard_id):
        raise ProgressError(
            f"partition {key}: the given progress is that of shard {given.shard_id!r} of stream {given.stream!r}; "
            "give this one's own"
        )


def shard_of(partition: Partition) -> ShardKey | None:
    """Return the shard that a partition is for; None for a partition of another kind."""
    if "kind" in partition.progress:
        return None
    try:
        shard = parse_partition_key(partition.partition_key)
    except ValueError:
        return None
    # Keys of other sources may have colons and numbers too.
    is_shard = shard.shard_id.startswith("shardId-") or partition.progress.get("shard_id") == shard.shard_id
    return shard if is_shard else None


def _progress_of(partition: Partition) -> ShardProgress:
    try:
        return ShardProgress.from_mapping(partition.progress)
    except ProgressFormatError as error:
        raise ProgressError(
            f"partition {partition.partition_key!r}: its stored progress does not tell which shard it is; "
            f"give the progress to start from: {error}"
        ) from None


def _items_of(partition: Partition) -> PartitionProgress | None:
    """Return the progress of a partition of items; None for one of another kind."""
    try:
        return items_of(partition)
    except PartitionFormatError as error:
        raise ProgressError(
            f"partition {partition.partition_key!r}: its stored progress does not tell what its items are; "
            f"give the progress to start from: {error}"
        ) from None


def _split_of(partition: Partition) -> str | None:
    items = _items_of(partition)
    return None if items is None else items.split_of


def _check_items(key: str, kind: Any, progress: Mapping[str, Any]) -> None:
    try:
        given = PartitionProgress.from_mapping(progress)
    except PartitionFormatError as error:
        raise ProgressError(
            f"partition {key}: the given progress is not that of a partition of items: {error.__cause__}"
        ) from None
    if given.kind != kind:
        raise ProgressError(
            f"partition {key} is of kind {kind!r}, and the given progress of {given.kind!r}; give this one's own"
        )


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ConfigurationError(
            f"position {text!r} is neither 'earliest', 'latest', an instant with a time zone such as "
            "'2026-01-01T00:00:00Z', nor a sequence number in decimal digits"
        )
    return instant  # in its own zone: UTC does not have the last hours of the year 9999 of every zone


def _check_instant(instant: datetime, text: str, now: datetime) -> None:
    if instant < datetime(1970, 1, 1, tzinfo=UTC):
        raise ConfigurationError(f"position {text!r} lies before 1970; give 'earliest' for all that there is")
    if instant > now:
        raise ConfigurationError(
            f"position {text!r} lies in the future, it is {format_instant(now)}; give 'latest' to read what comes"
        )


def _refuse_sequence_number(target: Target, what: str) -> None:
    if target.position.sequence_number is not None:
        raise ConfigurationError(
            f"a sequence number belongs to one shard, not to {what}; got {target.name!r}: name the shard, or give an "
            "instant, 'earliest' or 'latest'"
        )


def _check_sequence_number(target: Target, shard: ShardKey, listed: Iterable[Shard]) -> None:
    found = next((each for each in listed if each.shard_id == shard.shard_id), None)
    if found is None:
        return  # what the stream no longer has is told where it is read
    number, first, last = (
        int(text or 0)
        for text in (target.position.sequence_number, found.starting_sequence_number, found.ending_sequence_number)
    )
    if number < first or (last and number > last):
        raise ConfigurationError(
            f"sequence number {target.name!r} is none of shard {shard.shard_id!r} of stream {shard.stream!r}, whose "
            f"numbers begin at {first}" + (f" and end at {last}" if last else "") + "; give one of its own"
        )
