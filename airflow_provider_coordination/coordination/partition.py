"""The partition: one unit of work, as an immutable value.

Every change makes a new value through one of the methods here, and reaches the store as a write that is conditional
on the version read. The four statuses and the meaning of `priority` follow Data Prepper's source coordination;
unlike there, a completed partition is ordered by when it was completed, and a given-up one by when it was given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


class PartitionStatus(StrEnum):
    """Where a partition stands."""

    UNASSIGNED = "UNASSIGNED"
    """Waiting for an owner."""
    ASSIGNED = "ASSIGNED"
    """Leased to an owner until `ownership_timeout`."""
    CLOSED = "CLOSED"
    """Put aside until `reopen_at`."""
    COMPLETED = "COMPLETED"
    """Finished: all its data is delivered."""


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One unit of work of a source.

    :param source_identifier: the item family it belongs to, `[prefix|]source|PARTITION`.
    :param partition_key: its name, unique in its source.
    :param status: where it stands.
    :param priority: its place in the queue of its status, oldest first: when it became available, when its lease ends,
        when it reopens, or when it was completed (aware, UTC).
    :param owner: who holds the lease; None unless ASSIGNED.
    :param ownership_timeout: when the lease ends (aware, UTC); None unless ASSIGNED.
    :param progress: its state, a JSON object, whose meaning belongs to the source.
    :param reopen_at: when a CLOSED partition may be acquired again (aware, UTC).
    :param closed_count: how often it was closed.
    :param version: grows by one with every write; 0 on creation. The version that an acquisition wrote is
        the owner's fencing token.
    """

    source_identifier: str
    partition_key: str
    status: PartitionStatus
    priority: datetime
    owner: str | None = None
    ownership_timeout: datetime | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    reopen_at: datetime | None = None
    closed_count: int = 0
    version: int = 0

    def acquired(self, owner: str, ownership_timeout: datetime) -> Partition:
        """Return it leased to `owner` until `ownership_timeout`."""
        return replace(
            self,
            status=PartitionStatus.ASSIGNED,
            owner=owner,
            ownership_timeout=ownership_timeout,
            priority=ownership_timeout,
            reopen_at=None,
        )

    def renewed(self, ownership_timeout: datetime) -> Partition:
        """Return it with its lease running until `ownership_timeout`, or longer where it already did."""
        end = max(ownership_timeout, self.ownership_timeout or ownership_timeout)
        return replace(self, ownership_timeout=end, priority=end)

    def with_progress(self, progress: Mapping[str, Any]) -> Partition:
        """Return it with this state."""
        return replace(self, progress=progress)

    def given_up(self, available_at: datetime) -> Partition:
        """Return it without an owner, queueing as of `available_at`."""
        return replace(self._disowned(PartitionStatus.UNASSIGNED), priority=available_at)

    def closed(self, reopen_at: datetime) -> Partition:
        """Return it put aside until `reopen_at`."""
        return replace(
            self._disowned(PartitionStatus.CLOSED),
            reopen_at=reopen_at,
            priority=reopen_at,
            closed_count=self.closed_count + 1,
        )

    def completed(self, at: datetime) -> Partition:
        """Return it finished at this instant."""
        return replace(self._disowned(PartitionStatus.COMPLETED), priority=at)

    def written(self) -> Partition:
        """Return it as the store holds it after this write: one version on."""
        return replace(self, version=self.version + 1)

    def _disowned(self, status: PartitionStatus) -> Partition:
        return replace(self, status=status, owner=None, ownership_timeout=None, reopen_at=None)


def format_instant(instant: datetime) -> str:
    """Return an instant as text of fixed width, so that the order of texts is the order of instants.

    :param instant: aware; converted to UTC.
    :raises ValueError: if it has no time zone.
    """
    if instant.tzinfo is None:
        raise ValueError(f"instant {instant!r} has no time zone; give an aware datetime")
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_instant(text: str) -> datetime:
    """Return the instant that `format_instant` wrote, aware and in UTC.

    :raises ValueError: if the text is not such an instant.
    """
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
