"""The watermark of a source: everything that arrived before this instant is delivered, in all partitions.

Instants are times of arrival by the clock of the source's service, never by the clock of a job. A partition that is not
COMPLETED holds the watermark, whatever its status: nobody may pass what it has not delivered. So does a shard that was
read to its end while its children have no partition yet, and what no scan has looked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet, AcknowledgmentView
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus, format_instant
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.texts import first_of
from airflow_provider_coordination.sources.items import REPAIR
from airflow_provider_coordination.sources.kinds import known_kind, landed_facts
from airflow_provider_coordination.sources.source_kind import Hold, SourceKind

NO_SETS: Mapping[str, AcknowledgmentSet] = {}
HOLDS_LISTED = 5
LOSSES_LISTED = 20
SINKS_NAMED = 3
MAX_REASON_CHARACTERS = 200
NEVER, ALWAYS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """The watermark of a source.

    :param until: everything that arrived before this instant (aware) is delivered to all sinks; None if there is no
        such instant yet, or `is_finished`.
    :param is_finished: whether every partition is COMPLETED, and no other follows: everything is delivered.
    :param held_by: what holds it: the parts that are delivered least far, at most `HOLDS_LISTED`.
    :param sinks: the watermark of each sink that is ahead of the others; None as for `until`.
    """

    until: datetime | None = None
    is_finished: bool = False
    held_by: Sequence[Hold] = ()
    sinks: Mapping[str, datetime | None] = field(default_factory=dict)

    def has_reached(self, instant: datetime) -> bool:
        """Return whether everything that arrived before an instant (aware) is delivered to all sinks."""
        return self.is_finished or (self.until is not None and self.until >= instant)

    def parked_before(self, instant: datetime) -> Hold | None:
        """Return a parked partition that has not delivered up to an instant (aware); None if there is none."""
        behind = (hold for hold in self.held_by if hold.until is None or hold.until < instant)
        return next((hold for hold in behind if hold.is_parked), None)

    def __str__(self) -> str:
        """Return it as text, with what holds it."""
        if self.is_finished:
            return "everything is delivered"
        until = "unknown" if self.until is None else format_instant(self.until)
        held = f", held by {self.held_by[0].name}: {self.held_by[0].reason}" if self.held_by else ""
        return f"{until}{held}"


def watermark_of(view: SourceView) -> Watermark | None:
    """Return the watermark of a source; None if its records have no time of arrival.

    :param view: the source, initialized.
    """
    firsts = filter(None, map(view.first, PartitionStatus))
    kinds = {kind.name: kind for kind in filter(None, map(known_kind, firsts))}.values()
    statuses = {status for kind in kinds for status in kind.watermark_statuses}
    if not statuses:
        return None
    state = view.supplier_state()
    partitions = list(view.partitions_by_key(statuses))
    is_unfinished = any(partition.status in UNFINISHED for partition in partitions)
    sets = {waiting.set_id: waiting for waiting in AcknowledgmentView(view).pending()} if is_unfinished else NO_SETS
    return _watermark_of_kinds(kinds, partitions, state, sets)


def watermark_among(
    partitions: Sequence[Partition], state: Mapping[str, Any], sets: Mapping[str, AcknowledgmentSet] = NO_SETS
) -> Watermark | None:
    """Return the watermark of a source from what was read of it; None if its records have no time of arrival.

    A child that was created while the partitions were read may be missing. Then its parent holds the watermark.

    :param partitions: all partitions, as `SourceView.partitions_by_key` yields them.
    :param state: the state of the source's supplier, read before the partitions, so that what it found is among them.
    :param sets: the pending acknowledgment sets, by id; without them, no sink is ahead, and no reason names one.
    """
    kinds = {kind.name: kind for kind in filter(None, map(known_kind, partitions))}.values()
    return _watermark_of_kinds(kinds, partitions, state, sets)


def landed_until(view: SourceView) -> datetime | None:
    """Return the latest instant (aware) up to which a partition of a source is landed; None if nothing was read."""
    found = [
        until
        for partition in view.partitions_by_key()
        for until in (_delivered_until(partition), *(batch.read_until for batch in landed_facts(partition)))
        if until is not None and until != ALWAYS
    ]
    return max(found, default=None)


def lost_between(view: SourceView, start: datetime, end: datetime) -> list[str]:
    """Return the ranges that were lost and may hold records that arrived from a start until before an end (aware)."""
    found = []
    for partition in view.partitions_by_key():
        kind = known_kind(partition)
        for since, until, text in () if kind is None else kind.lost_ranges(partition.progress):
            if (since is None or since < end) and (until is None or until >= start):
                found.append(f"{partition.partition_key}: {text}")
    return found[:LOSSES_LISTED]


def _watermark_of_kinds(
    kinds: Collection[SourceKind],
    partitions: Sequence[Partition],
    state: Mapping[str, Any],
    sets: Mapping[str, AcknowledgmentSet],
) -> Watermark | None:
    kinds = [kind for kind in kinds if kind.watermark_statuses]
    if not kinds:
        return None
    unfinished = [partition for partition in partitions if partition.status in UNFINISHED]
    holds = [hold for kind in kinds for hold in kind.holds(partitions, state)]
    return _watermark(unfinished, holds, sets, max(kind.settles_after or timedelta(0) for kind in kinds))


def _watermark(
    partitions: Sequence[Partition],
    holds: Sequence[Hold],
    sets: Mapping[str, AcknowledgmentSet],
    settles_after: timedelta,
) -> Watermark:
    """Return the watermark of a source.

    :param partitions: those that are not COMPLETED.
    :param holds: what holds it beside them.
    :param sets: the pending acknowledgment sets, by id.
    :param settles_after: how long after their arrival records can be read.
    """
    held = [*holds, *(Hold(p.partition_key, _delivered_until(p), "") for p in partitions)]
    held = [hold for hold in held if hold.until != ALWAYS]
    if not held:
        return Watermark(is_finished=True)
    held.sort(key=lambda hold: (hold.until or NEVER, hold.name))
    by_key = {p.partition_key: p for p in partitions}
    until = _settled(held[0].until, settles_after)
    return Watermark(
        until=until,
        held_by=[_named(hold, by_key, sets, settles_after) for hold in held[:HOLDS_LISTED]],
        sinks={
            sink: at
            for sink, least in _least_by_sink(partitions, holds, sets).items()
            if (at := _settled(least, settles_after)) != until
        },
    )


def _settled(instant: datetime | None, settles_after: timedelta) -> datetime | None:
    return None if instant is None or instant == ALWAYS else instant - settles_after


def _delivered_until(partition: Partition) -> datetime | None:
    kind: SourceKind | None = known_kind(partition)
    return None if kind is None or not kind.watermark_statuses else kind.delivered_until(partition)


def _least_by_sink(
    partitions: Sequence[Partition], holds: Sequence[Hold], sets: Mapping[str, AcknowledgmentSet]
) -> dict[str, datetime | None]:
    """Return up to when each sink that pending sets name has everything; None if there is no such instant."""
    sinks = {sink for waiting in sets.values() for sink in waiting.sinks}
    others = [hold.until or NEVER for hold in holds]
    least: dict[str, datetime] = {sink: min(others, default=ALWAYS) for sink in sinks}
    for partition in partitions:
        delivered = _delivered_until(partition) or NEVER
        waiting = [(batch, sets.get(batch.acknowledgment_set or "")) for batch in landed_facts(partition)]
        for sink in sinks:
            until = delivered
            for batch, its_set in waiting:
                if not (batch.state == "acknowledged" or (its_set is not None and _has_taken(sink, its_set))):
                    break
                until = batch.read_until or until
            least[sink] = min(least[sink], until)
    return {sink: None if at == NEVER else at for sink, at in least.items()}


def _has_taken(sink: str, waiting: AcknowledgmentSet) -> bool:
    return sink in waiting.sinks and not waiting.references.get(sink)


def _named(
    hold: Hold, partitions: Mapping[str, Partition], sets: Mapping[str, AcknowledgmentSet], settles_after: timedelta
) -> Hold:
    """Return a hold with its reason, and the watermark that it allows."""
    partition = partitions.get(hold.name)
    reason = hold.reason if partition is None else _reason(partition, sets)
    is_parked = partition is not None and partition.is_parked
    return Hold(hold.name, _settled(hold.until, settles_after), reason[:MAX_REASON_CHARACTERS], is_parked)


def _reason(partition: Partition, sets: Mapping[str, AcknowledgmentSet]) -> str:
    """Return why a partition has delivered no further."""
    if partition.is_parked:
        return f"parked: {partition.last_error or 'by a user'}; reopen it once the cause is fixed"
    if partition.status is PartitionStatus.CLOSED:
        return f"closed until {format_instant(partition.priority)}: {partition.last_error or 'no error'}"
    if owing := _owing(partition, sets):
        return f"waits for {first_of(owing, SINKS_NAMED)}"
    if partition.progress.get("resumes") or REPAIR in partition.partition_key:
        return "a repair reads a range of it again"
    if partition.status is PartitionStatus.UNASSIGNED:
        return "no job reads it"
    return "is not read yet" if _delivered_until(partition) is None else "is being read"


def _owing(partition: Partition, sets: Mapping[str, AcknowledgmentSet]) -> list[str]:
    """Return who has not acknowledged the first batch of a partition."""
    first = next((batch for batch in landed_facts(partition) if batch.state != "acknowledged"), None)
    waiting = None if first is None or first.acknowledgment_set is None else sets.get(first.acknowledgment_set)
    return [] if waiting is None else sorted(handle for handle, owed in waiting.references.items() if owed)
