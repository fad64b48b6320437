"""What the commits of a table record about their batches: enough to rebuild the source's state if the store is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError

CLOCKS_APART = timedelta(hours=1)
"""How far the clocks of a job and of another writer may differ."""


@dataclass(frozen=True, kw_only=True)
class DeliveredBatch:
    """A batch that a commit added; its fields have the names that commits use.

    :param batch: the batch's id.
    :param source: the identifier of its source.
    :param partition: its partition.
    :param owner: the owner that delivered it.
    :param start: the position before its first record.
    :param end: the position of its last record.
    :param ordinal: its number among the batches of its partition.
    :param fencing_token: the fencing token of the lease under which it was delivered.
    :param set: its acknowledgment set.
    :param folder: the folder of the partition, below any root.
    :param records: the number of its records.
    :param bytes: the number of bytes of user data.
    :param is_last: whether the partition has no record after it.
    :param read_until: see `LandedBatch.read_until`.
    :param landed_at: see `LandedBatch.landed_at`.
    :param bounds: the event-time bounds outside which its records are left out.
    :param progress: the part of the partition's progress that rebuilds it, see `LandedProgress.durable_fields`.
    """

    batch: str
    source: str
    partition: str
    owner: str
    start: str
    end: str
    ordinal: int
    fencing_token: int
    set: str
    folder: str
    records: int
    bytes: int = 0
    is_last: bool = False
    read_until: datetime | None = None
    landed_at: datetime | None = None
    bounds: EventTimeBounds | None = None
    progress: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit that added batches.

    :param at: when it was made (aware).
    :param batches: the batches that it added.
    """

    at: datetime
    batches: tuple[DeliveredBatch, ...]


@dataclass(frozen=True, kw_only=True)
class TableHistory:
    """The commits that a table still has.

    :param location: the table.
    :param commits: the commits that added batches, the earliest first.
    :param is_complete: whether no commit has expired.
    :param unknown: the batches of which only the ids are known.
    """

    location: str
    commits: tuple[Commit, ...]
    is_complete: bool
    unknown: tuple[str, ...] = ()


def may_be_older(attempt: Attempt, since: datetime | None) -> bool:
    """Return whether a batch may have been committed before the earliest commit that a table still has.

    :param since: the time of that commit; None if the table has all its commits.
    """
    landed_at = attempt.batch.landed_at
    return since is not None and (landed_at is None or landed_at <= since + CLOCKS_APART)


def unknown_batch(attempt: Attempt, table: str, since: datetime | None) -> DeliveryError:
    """Return the error for a batch of which nothing shows whether it is in a table."""
    until = "an unknown time" if since is None else f"{since:%Y-%m-%dT%H:%M:%SZ}"
    return DeliveryError(
        f"batch {attempt.batch_id}: {table} has commits since {until} and may have got the batch before; it is not "
        "delivered, since rows that were replaced or deleted would come back. Acknowledge the batch if the table has "
        "its data, or reset the partition to deliver it"
    )


def describe_batch(attempt: Attempt) -> dict[str, Any]:
    """Return what a commit records about a batch that it adds; a JSON object."""
    delivered = DeliveredBatch(
        batch=attempt.batch_id,
        source=attempt.source,
        partition=attempt.partition_key,
        owner=attempt.owner,
        start=attempt.batch.start,
        end=attempt.batch.end,
        ordinal=attempt.ordinal,
        fencing_token=attempt.fencing_token,
        set=attempt.set_id,
        folder=attempt.folder,
        records=attempt.batch.records,
        bytes=attempt.batch.bytes,
        is_last=attempt.batch.is_last,
        read_until=attempt.batch.read_until,
        landed_at=attempt.batch.landed_at,
        bounds=attempt.batch.bounds,
        progress=dict(attempt.progress),
    )
    optional = ("is_last", "read_until", "landed_at", "bounds", "progress")
    return {name: value for name, value in write_settings(delivered).items() if value or name not in optional}


def parse_batches(describe_batch: Sequence[Mapping[str, Any]], what: str) -> tuple[DeliveredBatch, ...]:
    """Return the batches that a commit added.

    :param described: what the commit records, see `describe_batch`.
    :param what: the commit, for error messages.
    :raises ConfigurationError: if it has another form: another version of this package wrote it.
    """
    return tuple(read_settings(DeliveredBatch, what, each) for each in describe_batch)
