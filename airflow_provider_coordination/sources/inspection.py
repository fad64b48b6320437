"""A partition's progress as users see it, for every kind of source: how far it is, and what blocks it.

One page shows hundreds of partitions, and users must also see a progress that no job can read. So these functions
read single fields only, and leave out what they cannot understand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinds import kind_of
from airflow_provider_coordination.sources.source_kind import Inspection, SourceKind
from airflow_provider_coordination.sources.stored_values import integer_of, objects_in, text_of


@dataclass(frozen=True, kw_only=True)
class LandedFacts:
    """A batch that is written and not delivered, as a partition's progress stores it.

    :param batch_id: its name.
    :param start: the position before its first record.
    :param end: the position of its last record.
    :param records: the number of records.
    :param file: the location of its file; empty if there was nothing to write.
    :param acknowledgment_set: the acknowledgment set that it waits for; None if its delivery has not started.
    :param state: `landed`, `waiting` for its acknowledgment, `acknowledged` and waiting for those before it, or
        `rejected` and to be delivered again.
    """

    batch_id: str
    start: str
    end: str
    records: int
    file: str
    acknowledgment_set: str | None
    state: str


def inspect_partition(partition: Partition, now: datetime) -> Inspection:
    """Return a summary of a partition's progress.

    :param now: the present instant (aware).
    """
    if partition.unreadable_progress is not None:
        return Inspection(is_readable=False)
    kind = known_kind(partition)
    if kind is not None:
        return kind.inspect(partition, now)
    stored = partition.progress.get("kind")
    return Inspection(kind=text_of(stored), is_readable="kind" not in partition.progress)


def known_kind(partition: Partition) -> SourceKind | None:
    """Return the kind of source of a partition; None if its progress names none, or one that is not registered."""
    try:
        return kind_of(partition.progress)
    except SourceError:
        return None


def landed_facts(partition: Partition) -> list[LandedFacts]:
    """Return the batches of a partition that are written and not delivered, in order."""
    return [
        LandedFacts(
            batch_id=text_of(batch.get("batch_id")) or "",
            start=text_of(batch.get("start")) or "",
            end=text_of(batch.get("end")) or "",
            records=integer_of(batch.get("records")) or 0,
            file=text_of(batch.get("file")) or "",
            acknowledgment_set=text_of(batch.get("acknowledgment_set")),
            state=_state_of(batch),
        )
        for batch in objects_in(partition.progress, "landed")
    ]


def lost(partition: Partition) -> list[str]:
    """Return the ranges of a partition that were lost before they were read, each as a sentence."""
    kind = known_kind(partition)
    return [] if kind is None else kind.lost(partition.progress)


def open_loss(partition: Partition) -> tuple[str, str] | None:
    """Return the lost range for which a partition is parked, and what to do; None if it is not parked for that."""
    kind = known_kind(partition) if partition.is_parked else None
    loss = None if kind is None else kind.open_loss(partition.progress)
    return None if kind is None or loss is None else (loss, kind.loss_remedy)


def unreadable_items(partition: Partition) -> list[tuple[int | None, str]]:
    """Return the items of a partition that could not be read: the index of each, from 0, and the reason."""
    kind = known_kind(partition)
    return [] if kind is None else kind.unreadable_items(partition.progress)


def facts(partition: Partition) -> Iterator[tuple[str, str | datetime | None]]:
    """Yield the facts that only partitions of this kind have: a label and its value."""
    kind = known_kind(partition)
    yield from () if kind is None else kind.facts(partition.progress)


def sets_waited_for(partition: Partition) -> list[str]:
    """Return the acknowledgment sets that a partition's batches wait for."""
    named = [batch.acknowledgment_set for batch in landed_facts(partition)]
    waiting = partition.progress.get("acknowledgment_set")  # of a partition that is one batch, as a whole
    return [set_id for set_id in (*named, waiting) if isinstance(set_id, str) and set_id]


def _state_of(batch: Mapping[str, Any]) -> str:
    if batch.get("acknowledged") is True:
        return "acknowledged"
    if batch.get("acknowledgment_set"):
        return "waiting"
    return "rejected" if batch.get("redeliver") is True else "landed"
