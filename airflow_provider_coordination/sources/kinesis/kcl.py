"""Importing leases of the Kinesis Client Library: the decision what each lease becomes. Pure decisions, no I/O.

The rule: no record is lost, and none is delivered twice without a notice. A lease that cannot be imported exactly is
refused, with the reason and the remedy; other shards do not depend on it.

- A checkpoint inside an aggregated record is imported as it is: the user records up to and including its sub-sequence
  number are processed.
- LATEST becomes the instant of the import. After a restart, the library would also skip what is in the stream by then,
  but here nothing is skipped that arrives later.
- A shard without a lease, but with a leased descendant, was finished and cleaned up. It becomes COMPLETED, as the
  library itself treats it.
- A shard that was not read yet and has an unfinished parent gets no partition now. It gets one when its parent is
  finished, as usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from airflow_provider_coordination.sources.kinesis.kcl_table import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    KclLease,
    LeaseTable,
    StreamLeases,
    UnreadableItem,
    shard_of,
)
from airflow_provider_coordination.sources.kinesis.leases import ancestors, listed_parents
from airflow_provider_coordination.sources.kinesis.positions import Position, at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, ShardRange
from airflow_provider_coordination.sources.kinesis.shards import Shard, StreamDescription

WRONG_STREAM = "check that the lease table belongs to this stream, and not to an earlier stream of the same name"


class ImportOutcome(StrEnum):
    """What a lease becomes."""

    PARTITION = "partition"
    """A partition that is read from the checkpoint on."""
    COMPLETED = "COMPLETED"
    """A finished partition."""
    LATER = "later"
    """Nothing now; it becomes a partition later, once its parents are finished or the shards are synced."""
    NOTHING = "nothing"
    """Nothing, and no data is missing."""
    REFUSED = "refused"
    """Nothing: it cannot be imported exactly."""
    LOST = "lost"
    """Nothing: the data that the application had not read is gone."""


@dataclass(frozen=True, kw_only=True)
class CheckpointRecord:
    """The record in the stream at a lease's checkpoint.

    :param user_records: the number of user records in the Kinesis record; None if the stream no longer has it.
    :param problem: why the record could not be determined; None if it could.
    """

    user_records: int | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """What one shard becomes.

    :param shard_id: the shard; the whole lease key if it does not name a shard.
    :param kcl_checkpoint: the checkpoint of the Kinesis Client Library, as the library writes it.
    :param outcome: what the shard becomes.
    :param progress: the progress of its partition. A refused shard is parked with it if the others are imported.
    :param note: a note for the user, such as why it is refused.
    :param remedy: what to do about a refusal.
    """

    shard_id: str
    kcl_checkpoint: str
    outcome: ImportOutcome
    progress: ShardProgress | None = None
    note: str = ""
    remedy: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether records would be lost or duplicated if the import continued without it."""
        return self.outcome in (ImportOutcome.REFUSED, ImportOutcome.LOST)

    @property
    def is_from_now_on(self) -> bool:
        """Whether its lease was at LATEST, so that it is read from the instant of the import on."""
        began = (
            self.progress.checkpoint if self.progress is not None and self.outcome is ImportOutcome.PARTITION else ""
        )
        return self.kcl_checkpoint == LATEST and began.startswith(AT_TIMESTAMP)


@dataclass(frozen=True, kw_only=True)
class ImportPlan:
    """What the leases of a stream become.

    :param stream: the stream.
    :param shards: one entry for each lease of the stream and each listed shard, in the order of their names.
    :param other_streams: the number of leases of other streams in the table.
    :param other_items: the number of items that are not leases, by kind.
    """

    stream: StreamDescription
    shards: tuple[ShardPlan, ...]
    other_streams: int = 0
    other_items: Mapping[str, int]

    @property
    def refused(self) -> tuple[ShardPlan, ...]:
        """The shards that cannot be imported exactly."""
        return tuple(shard for shard in self.shards if shard.is_refused)

    @property
    def from_now_on(self) -> tuple[ShardPlan, ...]:
        """The shards whose leases were at LATEST, so that they are read from the instant of the import on."""
        return tuple(shard for shard in self.shards if shard.is_from_now_on)


def checkpoints_to_look_up(
    table: LeaseTable, stream: StreamDescription, shards: Sequence[Shard], *, account: str | None = None
) -> dict[str, str]:
    """Return the checkpoints, by shard, whose record must be read from the stream.

    :param table: the lease table.
    :param stream: the stream as it is now.
    :param shards: what ListShards returned.
    :param account: as for `plan_import`.
    """
    listed = {shard.shard_id: shard for shard in shards}
    own = StreamLeases.of(table, stream, account)
    return {
        name: lease.checkpoint
        for name, lease in own.by_shard.items()
        if lease.is_at_sequence_number and name in listed and not _contradiction(lease, listed[name])
    }


def plan_import(
    table: LeaseTable,
    stream: StreamDescription,
    shards: Sequence[Shard],
    records: Mapping[str, CheckpointRecord],
    *,
    now: datetime,
    account: str | None = None,
    unread_from_trim_horizon: bool = False,
    unread_since: datetime | None = None,
) -> ImportPlan:
    """Decide what each lease becomes.

    :param table: the lease table.
    :param stream: the stream as it is now.
    :param shards: what ListShards returned, every shard still listed.
    :param records: the records in the stream at the checkpoints of `checkpoints_to_look_up`, by shard.
    :param now: the instant of the import (aware), where the shards of LATEST leases start.
    :param account: the account of the stream, if the table has leases of several accounts; None if it has one.
    :param unread_from_trim_horizon: read the shards of LATEST and AT_TIMESTAMP leases from their earliest record on.
    :param unread_since: the instant (aware) that the application was configured with, where the shards of AT_TIMESTAMP
        leases start.
    :raises ConfigurationError: if the table holds leases of streams of this name in several accounts.
    """
    own = StreamLeases.of(table, stream, account)
    planner = _Planner(
        stream, {s.shard_id: s for s in shards}, own, records, now, unread_from_trim_horizon, unread_since
    )
    plans = [planner.leased(lease) for lease in own.by_shard.values()]
    plans += [planner.unreadable(item) for item in own.unreadable]
    plans += [planner.doubtful(lease) for lease in own.doubtful]
    plans += [planner.of_earlier_stream(lease) for lease in own.earlier]
    plans += [planner.unleased(shard) for shard in shards if shard.shard_id not in own.leased]
    return ImportPlan(
        stream=stream,
        shards=tuple(sorted(plans, key=lambda plan: plan.shard_id)),
        other_streams=own.other_streams,
        other_items=table.other_items,
    )


@dataclass(frozen=True)
class _Planner:
    stream: StreamDescription
    listed: Mapping[str, Shard]
    own: StreamLeases
    records: Mapping[str, CheckpointRecord]
    now: datetime
    unread_from_trim_horizon: bool
    unread_since: datetime | None

    def leased(self, lease: KclLease) -> ShardPlan:
        """Return the plan for a shard that has a lease."""
        shard = self.listed.get(lease.shard_id)
        plan = self._gone(lease) if shard is None else self._present(lease, shard)
        if lease.pending_checkpoint and lease.checkpoint != SHARD_END:
            prepared = f"the prepared checkpoint {lease.pending_checkpoint} is ignored: it was never completed"
            return replace(plan, note="; ".join(filter(None, (plan.note, prepared))))
        return plan

    def unleased(self, shard: Shard) -> ShardPlan:
        """Return the plan for a listed shard that has no lease."""
        if shard.shard_id not in self._ancestors:
            return ShardPlan(
                shard_id=shard.shard_id,
                kcl_checkpoint="no lease",
                outcome=ImportOutcome.LATER,
                note="read from its earliest record on, when its parents are finished or the shards are synced",
            )
        return ShardPlan(
            shard_id=shard.shard_id,
            kcl_checkpoint="no lease",
            outcome=ImportOutcome.COMPLETED,
            progress=self._finished(shard, shard.parent_shard_ids, self._children(shard.shard_id, ())),
            note="finished and cleaned up: a shard that came from it has a lease",
        )

    def unreadable(self, item: UnreadableItem) -> ShardPlan:
        """Return the plan for a lease that cannot be parsed."""
        shard = self.listed.get(shard_of(item))
        return ShardPlan(
            shard_id=shard.shard_id if shard else item.lease_key,
            kcl_checkpoint="unreadable",
            outcome=ImportOutcome.REFUSED,
            progress=ShardProgress.first(self.stream.name, shard) if shard else None,
            note=f"its item is damaged: {item.problem}",
            remedy="restore it; without an item, the shard counts as unread",
        )

    def doubtful(self, lease: KclLease) -> ShardPlan:
        """Return the plan for a lease that may be outdated."""
        shard = None if lease.shard_id in self.own.by_shard else self.listed.get(lease.shard_id)
        plan = _refused_lease(
            lease,
            "it is a lease of a single-stream application, in the table of a multi-stream one: one of them is outdated",
            "delete the outdated leases",
        )
        return replace(plan, progress=ShardProgress.first(self.stream.name, shard) if shard else None)

    def of_earlier_stream(self, lease: KclLease) -> ShardPlan:
        """Return the plan for a lease of a deleted stream of the same name."""
        return _refused_lease(
            lease,
            "it belongs to an earlier stream of this name: the present one was created at "
            f"{self.stream.creation_epoch}",
            "delete the leases of the earlier stream, or import the others with --partial",
        )

    def _gone(self, lease: KclLease) -> ShardPlan:
        """Return the plan for a lease whose shard the stream no longer lists."""
        if lease.checkpoint != SHARD_END:
            return _plan(
                lease,
                ImportOutcome.LOST,
                note="the stream no longer has the shard: its unread records are gone",
                remedy="import the others with --partial",
            )
        if lease.hash_key_range is None:
            return _plan(lease, ImportOutcome.NOTHING, note="finished, and the stream no longer has the shard")
        shard = ShardRange(lease.shard_id, lease.parent_shard_ids, *map(str, lease.hash_key_range))
        children = self._children(lease.shard_id, lease.child_shard_ids)
        progress = ShardProgress.first(self.stream.name, shard, children=children, is_ended=True)
        return _plan(lease, ImportOutcome.COMPLETED, progress, note="the stream no longer has the shard")

    def _present(self, lease: KclLease, shard: Shard) -> ShardPlan:
        """Return the plan for a lease whose shard the stream lists."""
        parked = ShardProgress.first(self.stream.name, shard)
        contradiction = _contradiction(lease, shard)
        if contradiction:
            return _plan(lease, ImportOutcome.REFUSED, parked, note=contradiction, remedy=WRONG_STREAM)
        # If both name the parents, they are the same; the stream's listing keeps their order.
        parents = shard.parent_shard_ids or lease.parent_shard_ids
        if lease.checkpoint == SHARD_END:
            children = self._children(lease.shard_id, lease.child_shard_ids)
            return _plan(lease, ImportOutcome.COMPLETED, self._finished(shard, parents, children))
        first = replace(parked, parent_shard_ids=parents)
        if lease.is_at_sequence_number:
            return self._begun(lease, first)
        return self._unread(lease, first)

    def _begun(self, lease: KclLease, first: ShardProgress) -> ShardPlan:
        record = self.records[lease.shard_id]
        at_checkpoint = replace(first, checkpoint=lease.checkpoint)
        if record.problem:
            return _plan(
                lease, ImportOutcome.REFUSED, first,
                note=f"the record at its checkpoint cannot be determined: {record.problem}", remedy=_FINISH_THE_BATCH,
            )  # fmt: skip
        if record.user_records is None:
            note = "the stream no longer has the record at the checkpoint; later records may be missing too"
            return _plan(lease, ImportOutcome.PARTITION, at_checkpoint, note=note)
        if lease.sub_sequence_number < record.user_records - 1:
            inside = Position(lease.checkpoint, lease.sub_sequence_number)
            note = (
                f"inside an aggregated record: {lease.sub_sequence_number + 1} of its {record.user_records} user "
                "records are processed"
            )
            return _plan(lease, ImportOutcome.PARTITION, replace(first, checkpoint=str(inside)), note=note)
        return _plan(lease, ImportOutcome.PARTITION, at_checkpoint)

    def _unread(self, lease: KclLease, first: ShardProgress) -> ShardPlan:
        waits_for = [p for p in first.parent_shard_ids if p in self.listed and not self.own.is_finished(p)]
        if waits_for:
            return _plan(
                lease, ImportOutcome.LATER, note=f"gets its partition when {' and '.join(waits_for)} is finished"
            )
        if lease.checkpoint == TRIM_HORIZON:
            return _plan(lease, ImportOutcome.PARTITION, first)
        if self.unread_from_trim_horizon:
            note = f"read from its earliest record on, as requested, and not from {lease.checkpoint}"
            return _plan(lease, ImportOutcome.PARTITION, first, note=note)
        if lease.checkpoint == LATEST:
            note = "records that arrived earlier and are not checkpointed are not read"
            return _plan(lease, ImportOutcome.PARTITION, self._since(first, self.now), note=note)
        if self.unread_since is not None:
            note = "read from the given instant on; the lease does not store one"
            return _plan(lease, ImportOutcome.PARTITION, self._since(first, self.unread_since), note=note)
        return _plan(
            lease, ImportOutcome.REFUSED, first,
            note="nothing is checkpointed yet, and the lease does not store the instant from which it is read",
            remedy="give the instant that the application is configured with as --at-timestamp, or read the whole "
            "shard with --unread-from-trim-horizon",
        )  # fmt: skip

    def _since(self, first: ShardProgress, instant: datetime) -> ShardProgress:
        # If nothing since the instant can be gone yet, the instant shows a later loss.
        is_kept = self.now - instant < self.stream.retention
        return replace(first, checkpoint=at_timestamp(instant), delivered_until=instant if is_kept else None)

    def _finished(self, shard: Shard, parents: tuple[str, ...], children: tuple[ShardRange, ...]) -> ShardProgress:
        return replace(
            ShardProgress.first(self.stream.name, shard),
            parent_shard_ids=parents,
            checkpoint=shard.ending_sequence_number or TRIM_HORIZON,
            children=children,
            is_ended=True,
        )

    def _children(self, shard_id: str, named: Sequence[str]) -> tuple[ShardRange, ...]:
        """Return the children of a finished shard, as far as they are known."""
        names = {*named, *(s.shard_id for s in self.listed.values() if shard_id in s.parent_shard_ids)}
        return tuple(child for name in sorted(names) if (child := self._child(name, shard_id)))

    def _child(self, name: str, parent: str) -> ShardRange | None:
        shard, lease = self.listed.get(name), self.own.by_shard.get(name)
        if shard:
            return shard.range
        if lease and lease.hash_key_range:
            return ShardRange(name, lease.parent_shard_ids or (parent,), *map(str, lease.hash_key_range))
        return None

    @cached_property
    def _ancestors(self) -> set[str]:
        """The listed shards from which a leased one came."""
        return ancestors(self.own.leased, listed_parents(self.listed))


def _contradiction(lease: KclLease, shard: Shard) -> str | None:
    """Return how a lease and the shard of its name differ; None if they can be the same."""
    hash_keys = (int(shard.starting_hash_key), int(shard.ending_hash_key))
    if lease.hash_key_range not in (None, hash_keys):
        return f"the lease has the hash keys {_span(lease.hash_key_range)}, the stream {_span(hash_keys)}"
    parents = set(lease.parent_shard_ids)
    if parents and shard.parent_shard_ids and parents != set(shard.parent_shard_ids):
        return f"the lease has the parents {', '.join(sorted(parents))}, the stream {', '.join(shard.parent_shard_ids)}"
    if lease.checkpoint == SHARD_END and shard.is_open:
        return "the lease has ended, but the shard is open"
    if lease.is_at_sequence_number and int(lease.checkpoint) < int(shard.starting_sequence_number):
        return f"its checkpoint lies before the first sequence number of the shard, {shard.starting_sequence_number}"
    return None


def _span(hash_keys: tuple[int, int] | None) -> str:
    return "-".join(map(str, hash_keys or ()))


def _plan(
    lease: KclLease, outcome: ImportOutcome, progress: ShardProgress | None = None, *, note: str = "", remedy: str = ""
) -> ShardPlan:
    sub_sequence = f"/{lease.sub_sequence_number}" if lease.is_at_sequence_number and lease.sub_sequence_number else ""
    return ShardPlan(
        shard_id=lease.shard_id,
        kcl_checkpoint=lease.checkpoint + sub_sequence,
        outcome=outcome,
        progress=progress,
        note=note,
        remedy=remedy,
    )


def _refused_lease(lease: KclLease, note: str, remedy: str) -> ShardPlan:
    return replace(_plan(lease, ImportOutcome.REFUSED, note=note, remedy=remedy), shard_id=lease.lease_key)


_FINISH_THE_BATCH = (
    "start the application again, let it finish the batch and call checkpoint() without a record, stop it, and import "
    "again"
)
