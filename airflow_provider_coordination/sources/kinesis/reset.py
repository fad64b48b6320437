"""Resets of shards and streams: what a target means for a shard, and the checks against the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError
from airflow_provider_coordination.coordination.partition import Partition, new_partition
from airflow_provider_coordination.sources.kinesis.leases import Leases, ShardLease, ancestors
from airflow_provider_coordination.sources.kinesis.positions import Position, parse_position
from airflow_provider_coordination.sources.kinesis.progress import (
    ShardProgress,
    parse_partition_key,
    partition_key,
)
from airflow_provider_coordination.sources.kinesis.shards import MIN_RETENTION, Shard, describe_stream, list_shards
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.sources.landed import ProgressFormatError
from airflow_provider_coordination.sources.reset_targets import (
    ResetAction,
    ResetPlan,
    ResetStep,
    Target,
    checked_instant,
    invalid_position,
)


def position_of(target: Target) -> Position:
    """Return a target as a position of a shard.

    :raises ConfigurationError: if it is not a position.
    """
    if target.position is None:
        return Position(timestamp=target.instant)
    try:
        position = parse_position(target.position)
    except ValueError:
        raise invalid_position(target.position, "a sequence number in decimal digits") from None
    if position.timestamp is None:
        return position
    return Position(timestamp=checked_instant(position.timestamp, target.name, target.requested_at))


def restarted(partition: Partition, target: Target, *, epoch: int = 0) -> Mapping[str, Any]:
    """Return the progress of a shard that starts again at a target, in a new epoch."""
    position = position_of(target)
    until = delivered_until(position, target)
    progress = _progress_of(partition).restarted(
        str(position),
        epoch=max(epoch, target.epoch),
        delivered_until=until,
        owed_since=target.requested_at if until is None else None,
    )
    return progress.to_mapping()


def check_progress(partition: Partition, values: Mapping[str, Any]) -> None:
    """Check that a progress belongs to the shard of a partition.

    :raises ProgressError: if it does not.
    """
    progress = ShardProgress.from_mapping(values)
    try:
        shard = parse_partition_key(partition.partition_key)
    except ValueError:
        return  # the key does not name a shard, so there is nothing to compare
    if (progress.stream, progress.shard_id) != (shard.stream, shard.shard_id):
        raise ProgressError(
            f"partition {partition.partition_key!r}: the given progress belongs to shard {progress.shard_id!r} of "
            f"stream {progress.stream!r}; give a progress of this shard"
        )


def checked_with_service(partitions: Sequence[Partition], target: Target, service: StreamService) -> Target:
    """Check a target against the stream, and return it by the service's clock.

    :raises ConfigurationError: if it is a sequence number that is not in the shard.
    """
    keys = [parse_partition_key(partition.partition_key) for partition in partitions]
    if (number := position_of(target).sequence_number) is not None:
        for key in keys:
            # A shard that the stream no longer has is reported when it is read.
            for shard in list_shards(service.client, service.address(key.stream)):
                if shard.shard_id == key.shard_id and not shard.may_have(number):
                    raise ConfigurationError(
                        f"sequence number {target.name!r} is not in shard {key.shard_id!r} of stream {key.stream!r}, "
                        f"whose numbers begin at {shard.numbers}; give one in this range"
                    )
    if target.is_latest:
        for stream in sorted({key.stream for key in keys}):
            target = _not_ahead_of(target, describe_stream(service.client, service.address(stream)).described_at)
    return target


def plan_stream(name: str, partitions: Sequence[Partition], target: Target, service: StreamService) -> ResetPlan:
    """Plan to read a whole stream again, parents before children; see `plan_stream_reset`.

    :raises ProgressError: if a stored progress cannot be read.
    :raises ConfigurationError: if the stream does not exist.
    :raises SourceError: if it cannot be listed.
    """
    kinesis, address = service.client, service.address(name)
    stream, listed = describe_stream(kinesis, address), list_shards(kinesis, address)
    target = _not_ahead_of(target, stream.described_at)
    warnings = []
    if target.instant is not None and target.requested_at - target.instant >= stream.retention:
        warnings.append(
            f"stream {name!r} keeps records for {stream.retention_hours} hours: records as old as {target.name} are "
            "gone, so it is read from its earliest record on"
        )
        target = replace(target, instant=None)
    keys = {parse_partition_key(partition.partition_key): partition for partition in partitions}
    leases = {
        key.shard_id: ShardLease(key, partition, _progress_of(partition))
        for key, partition in keys.items()
        if key.creation_epoch == stream.creation_epoch
    }
    own = {shard_id: lease.partition for shard_id, lease in leases.items()}
    left = {
        partition.partition_key: "its stream was deleted and created again"
        for key, partition in keys.items()
        if key.creation_epoch != stream.creation_epoch
    }
    plan = plan_stream_reset(leases, listed, since=target.instant, unfinished_only=target.is_latest)
    known = [lease.progress for lease in leases.values() if lease.progress is not None]
    if not all(progress.is_followed for progress in known):  # then children are not created when their parents end
        plan = replace(plan, begin=tuple(own), create=(), remove=(), left={})

    def progress(partition: Partition) -> Mapping[str, Any]:
        return restarted(partition, target, epoch=plan.epoch)

    def step(action: ResetAction, partition: Partition) -> ResetStep:
        return ResetStep(action=action, partition=partition, progress=progress, group=name)

    family = partitions[0].source_identifier
    start, end = next(((each.start, each.end) for each in known), (None, None))
    created = [
        new_partition(
            family, partition_key(name, stream.creation_epoch, shard.shard_id), target.requested_at
        ).with_progress(ShardProgress.first(name, shard, kind=stream.kind, start=start, end=end).to_mapping())
        for shard in plan.create
    ]
    steps = [step(ResetAction.RESET, own[shard_id]) for shard_id in plan.begin]
    steps += [step(ResetAction.CREATE, partition) for partition in created]
    steps += [step(ResetAction.REMOVE, own[shard_id]) for shard_id in plan.remove]
    left |= {own[shard_id].partition_key: why for shard_id, why in plan.left.items()}
    return ResetPlan(target=target, steps=tuple(steps), left=left, warnings=tuple(warnings))


def _not_ahead_of(target: Target, instant: datetime | None) -> Target:
    """Return a target that is not ahead of the service's clock; otherwise records that arrive until then are skipped.

    :param instant: the present instant (aware) by that clock; None if unknown.
    """
    if not target.is_latest or instant is None or target.instant is None or target.instant <= instant:
        return target
    return replace(target, instant=instant)


def delivered_until(position: Position, target: Target) -> datetime | None:
    """Return the instant before which no record is needed, if no later record can be gone yet; it reveals losses."""
    since = position.timestamp
    return since if since is not None and target.requested_at - since < MIN_RETENTION else None


def _progress_of(partition: Partition) -> ShardProgress:
    try:
        return ShardProgress.from_mapping(partition.progress)
    except ProgressFormatError as error:
        raise ProgressError(
            f"partition {partition.partition_key!r}: its shard cannot be read from its stored progress; "
            f"give the progress to start from: {error}"
        ) from None


@dataclass(frozen=True, kw_only=True)
class StreamReset:
    """What happens to the shards of a stream that is reset.

    :param epoch: greater than the epoch of every lease of the stream.
    :param begin: the shards with a lease that are read again first; ancestors first.
    :param create: the shards to read first whose leases were cleaned up.
    :param remove: the shards whose leases are removed until their parents are finished; ancestors first, so that a
        shard sync in between does not create any of them.
    :param left: the shards that stay as they are, and the reasons.
    """

    epoch: int
    begin: tuple[str, ...] = ()
    create: tuple[Shard, ...] = ()
    remove: tuple[str, ...] = ()
    left: Mapping[str, str]


def plan_stream_reset(
    leases: Leases,
    listed: Sequence[Shard],
    *,
    since: datetime | None = None,
    unfinished_only: bool = False,
) -> StreamReset:
    """Decide what happens to each shard of a stream.

    :param leases: the shards that have a partition.
    :param listed: what ListShards returned, every shard still listed.
    :param since: the instant (aware) from which on the stream is read; None for its earliest record.
    :param unfinished_only: keep finished shards as they are: the stream is read from now on, so they are not needed.
    """
    shards = {shard.shard_id: shard for shard in listed}
    parents = _parents(leases, shards)
    left = _left(leases, shards, parents, since=since, unfinished_only=unfinished_only)
    wanted = [name for name in leases if name not in left]
    passed = ancestors(left, parents)
    cleaned_up = [
        name
        for name in ancestors(leases, parents)
        if name in shards and name not in leases and name not in passed and not unfinished_only
    ]
    begun = {*wanted, *cleaned_up}
    first = {name for name in begun if not begun & ancestors([name], parents)}
    order = sorted(begun, key=lambda name: (int(shards[name].starting_sequence_number) if name in shards else 0, name))
    return StreamReset(
        epoch=1 + max((lease.progress.epoch for lease in leases.values() if lease.progress), default=0),
        begin=tuple(name for name in order if name in first and name in leases),
        create=tuple(shards[name] for name in order if name in first and name not in leases),
        remove=tuple(name for name in order if name not in first and name in leases),
        left=left,
    )


def _left(
    leases: Leases,
    shards: Mapping[str, Shard],
    parents: Mapping[str, set[str]],
    *,
    since: datetime | None,
    unfinished_only: bool,
) -> dict[str, str]:
    left = {}
    for name, lease in leases.items():
        until = lease.progress.delivered_until if lease.progress is not None else None
        if name not in shards:
            left[name] = (
                "finished, and the stream no longer has the shard"
                if lease.is_finished
                else "the stream no longer has the shard: its unread records are gone"
            )
        elif lease.is_finished and unfinished_only:
            left[name] = "finished: it receives no more records"
        elif lease.is_finished and since is not None and until is not None and until < since:
            left[name] = "finished: all of it arrived before that instant"
    for name in ancestors([name for name in left if leases[name].is_finished], parents):
        if name in leases and leases[name].is_finished and name not in left:
            left[name] = "finished, and so is a shard that came from it, before that instant"
    return left


def _parents(leases: Leases, shards: Mapping[str, Shard]) -> dict[str, set[str]]:
    parents: dict[str, set[str]] = {name: set(shard.parent_shard_ids) for name, shard in shards.items()}
    for name, lease in leases.items():
        parents.setdefault(name, set()).update(lease.progress.parent_shard_ids if lease.progress else ())
    return parents
