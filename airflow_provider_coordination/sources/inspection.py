"""What a partition's progress says for people, whatever the source: how far it is, and what is in the way.

A look reads single fields and no more, since hundreds of partitions are looked at for one page, and since a person has
to see a progress that nobody else can read: one that was written by hand, by another system, or by a newer version.
What cannot be understood is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, parse_instant
from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.sources.kinesis.positions import parse_position
from airflow_provider_coordination.sources.kinesis.progress import Gap
from airflow_provider_coordination.sources.progress import ItemPosition, PartitionFormatError

KINESIS = "kinesis"
"""The kind of a shard; other partitions say theirs in their progress."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What a partition's progress says at a glance.

    :param kind: the kind of source: `kinesis`, `s3`, …; None if it does not say.
    :param position: up to where everything is delivered, as the source writes it; None if that is the beginning, or
        unknown.
    :param lag: for how many seconds nothing has been delivered that arrived since; None if that is unknown, the source
        has no such thing, or everything is delivered.
    :param items_done: how many of its items are done; None if it has none.
    :param items: how many items it has; None if it has none.
    :param landed_batches: how many batches are written and not delivered.
    :param landed_records: how many records these hold.
    :param throughput: bytes of user data a second; None if unknown.
    :param is_readable: whether all this was understood.
    """

    kind: str | None = None
    position: str | None = None
    lag: float | None = None
    items_done: int | None = None
    items: int | None = None
    landed_batches: int = 0
    landed_records: int = 0
    throughput: float | None = None
    is_readable: bool = True


@dataclass(frozen=True, kw_only=True)
class LandedFacts:
    """A batch that is written and not delivered, as a partition's progress tells of it.

    :param batch_id: its name.
    :param start: the position before it.
    :param end: the position at its end.
    :param records: how many records it holds.
    :param file: where it is; empty if there was nothing to write.
    :param acknowledgment_set: what it waits for; None if its delivery has not begun.
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


def inspected(partition: Partition, now: datetime) -> Inspection:
    """Return what a partition's progress says at a glance.

    :param now: the present instant (aware).
    """
    if partition.unreadable_progress is not None:
        return Inspection(is_readable=False)
    progress = partition.progress
    if "shard_id" in progress:
        return _shard(partition, now)
    kind = progress.get("kind")
    return _items(progress, kind) if isinstance(kind, str) else Inspection(is_readable="kind" not in progress)


def landed_facts(partition: Partition) -> list[LandedFacts]:
    """Return the batches of a partition that are written and not delivered, in order."""
    return [
        LandedFacts(
            batch_id=_text(batch.get("batch_id")) or "",
            start=_text(batch.get("start")) or "",
            end=_text(batch.get("end")) or "",
            records=_whole(batch.get("records")) or 0,
            file=_text(batch.get("file")) or "",
            acknowledgment_set=_text(batch.get("acknowledgment_set")),
            state=_state_of(batch),
        )
        for batch in _objects(partition.progress, "landed")
    ]


def lost(partition: Partition) -> list[str]:
    """Return the ranges of a shard that were gone before they were read, each in a sentence."""
    return [_gap(gap) for gap in _objects(partition.progress, "gaps")]


def unreadable_items(partition: Partition) -> list[tuple[int | None, str]]:
    """Return the items of a partition that could not be read: the place of each, from 0, and why."""
    return [
        (_whole(failed.get("item")), _text(failed.get("reason")) or "")
        for failed in _objects(partition.progress, "failed")
    ]


def sets_waited_for(partition: Partition) -> list[str]:
    """Return the acknowledgment sets that a partition's batches wait for."""
    named = [batch.acknowledgment_set for batch in landed_facts(partition)]
    waiting = partition.progress.get("acknowledgment_set")  # of a partition that is one batch, as a whole
    return [set_id for set_id in (*named, waiting) if isinstance(set_id, str) and set_id]


def _shard(partition: Partition, now: datetime) -> Inspection:
    progress = partition.progress
    checkpoint = _text(progress.get("checkpoint"))
    landed = _objects(progress, "landed")
    is_done = partition.status is PartitionStatus.COMPLETED
    return Inspection(
        kind=KINESIS,
        position=checkpoint,
        lag=None if is_done else _lag(progress, checkpoint, now),
        landed_batches=len(landed),
        landed_records=sum(_whole(batch.get("records")) or 0 for batch in landed),
        throughput=None if is_done else _number(progress.get("throughput")),
        is_readable=checkpoint is not None and isinstance(progress.get("landed", []), list),
    )


def _lag(progress: Mapping[str, Any], checkpoint: str | None, now: datetime) -> float | None:
    since = _instant(progress.get("delivered_until")) or _instant(progress.get("owed_since"))
    if since is None and checkpoint is not None:
        with suppress(ValueError):
            since = parse_position(checkpoint).timestamp
    return None if since is None else max((now - since).total_seconds(), 0.0)


def _items(progress: Mapping[str, Any], kind: str) -> Inspection:
    items = progress.get("items")
    checkpoint = _text(progress.get("checkpoint"))
    landed = _objects(progress, "landed")
    done: int | None = None
    with suppress(PartitionFormatError):
        done = ItemPosition.parse(checkpoint or "").item
    return Inspection(
        kind=kind,
        position=checkpoint or None,
        items_done=done if isinstance(items, list) else None,
        items=len(items) if isinstance(items, list) else None,
        landed_batches=len(landed),
        landed_records=sum(_whole(batch.get("records")) or 0 for batch in landed),
        is_readable=isinstance(items, list) and done is not None,
    )


def _state_of(batch: Mapping[str, Any]) -> str:
    if batch.get("acknowledged") is True:
        return "acknowledged"
    if batch.get("acknowledgment_set"):
        return "waiting"
    return "rejected" if batch.get("redeliver") is True else "landed"


def _gap(gap: Mapping[str, Any]) -> str:
    try:
        return str(read_settings(Gap, "gap", gap))
    except (CoordinationError, ValueError):
        return _text(gap.get("reason")) or "a range that cannot be read"


def _objects(progress: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = progress.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _number(value: object) -> float | None:
    with suppress(OverflowError):
        number = float(value) if type(value) in (int, float) else None  # type: ignore[arg-type]
        return number if number is not None and math.isfinite(number) else None
    return None


def _instant(value: object) -> datetime | None:
    with suppress(ValueError):
        return parse_instant(value) if isinstance(value, str) else None
    return None
