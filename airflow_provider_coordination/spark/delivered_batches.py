"""What the commits of a table say of the batches that they brought: enough to go on from the table alone, should the
store be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.event_time import EventTimeBounds
from airflow_provider_coordination.spark.delivery import Attempt


@dataclass(frozen=True, kw_only=True)
class DeliveredBatch:
    """A batch that a commit brought; its fields have the names under which commits say them.

    :param batch: its id.
    :param source: the identifier of its source.
    :param partition: its partition.
    :param owner: who delivered it.
    :param start: the position before its first record.
    :param end: that of its last one.
    :param ordinal: its number among the batches of its partition.
    :param fencing_token: of the lease under which it was delivered.
    :param set: its acknowledgment set.
    :param folder: the folder, below any root, of the partition.
    :param records: how many records it holds.
    :param bytes: how many bytes of user data.
    :param is_last: whether the partition has no record after it.
    :param read_until: see `LandedBatch.read_until`.
    :param bounds: which of its records are left out as late or early.
    :param progress: what makes the partition's progress anew, see `LandedProgress.lasting`.
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
    bounds: EventTimeBounds | None = None
    progress: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit that brought batches.

    :param at: when it was made (aware).
    :param batches: what it brought.
    """

    at: datetime
    batches: tuple[DeliveredBatch, ...]


@dataclass(frozen=True, kw_only=True)
class TableHistory:
    """The commits of a table, as far as it knows them.

    :param location: the table.
    :param commits: the earliest first; those that brought no batch are left out.
    :param is_whole: whether no commit has expired.
    :param unknown: the batches of which no more is known than their ids.
    """

    location: str
    commits: tuple[Commit, ...]
    is_whole: bool
    unknown: tuple[str, ...] = ()


@runtime_checkable
class KeepsHistory(Protocol):
    """A sink whose commits say which batches they brought, and how far the partitions were delivered with them."""

    def history(self) -> TableHistory:
        """Return what its commits say.

        :raises CoordinationError: if there is no such table, or it cannot be read.
        """
        ...


def described(attempt: Attempt) -> dict[str, Any]:
    """Return what a commit says of a batch that it brings; a JSON object."""
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
        bounds=attempt.batch.bounds,
        progress=dict(attempt.progress),
    )
    optional = ("is_last", "read_until", "bounds", "progress")
    return {name: value for name, value in write_settings(delivered).items() if value or name not in optional}


def read_described(described: Sequence[Mapping[str, Any]], what: str) -> tuple[DeliveredBatch, ...]:
    """Return the batches that a commit says it brought.

    :param what: the commit, for errors.
    :raises ConfigurationError: if it says something else: another version of this package wrote it.
    """
    return tuple(read_settings(DeliveredBatch, what, each) for each in described)
