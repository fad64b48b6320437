"""Read access to the acknowledgment sets of one source: pending sets, ended sets, and the next expiry."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.acknowledgment import FAMILY, AcknowledgmentSet, set_of_item
from airflow_provider_coordination.coordination.errors import AcknowledgmentSetNotFoundError, ProgressError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import all_partitions

log = logging.getLogger(__name__)

RETENTION = timedelta(days=1)
"""How long ended sets are kept, so that a late release is distinguished from a release of an unknown set."""


class AcknowledgmentView:
    """Reads the acknowledgment sets of one source. Safe to use from several threads.

    :param view: the view of the source.
    """

    def __init__(self, view: SourceView) -> None:
        self.source_identifier = view.family(FAMILY)
        self._source = view.source
        self._store = view.store
        self._logged_unreadable: set[str] = set()

    def get(self, set_id: str) -> AcknowledgmentSet:
        """Return a set as it is stored now.

        :raises AcknowledgmentSetNotFoundError: if the source has no such set, or no longer has it.
        """
        item = self._store.get(self.source_identifier, set_id)
        if item is None:
            raise AcknowledgmentSetNotFoundError(
                f"source {self._source!r} has no acknowledgment set {set_id!r}; give the id of one of its sets. "
                f"Ended sets are kept for {RETENTION.total_seconds() / 3600:g} hours"
            )
        return set_of_item(item)

    def pending(self, *, run: str | None = None) -> Iterator[AcknowledgmentSet]:
        """Yield the pending sets, the earliest expiry first; unreadable ones are logged and skipped.

        :param run: only those of this Airflow run.
        """
        return (s for s in self._read(PartitionStatus.UNASSIGNED) if run is None or s.run == run)

    def ended_since(self, instant: datetime, *, run: str | None = None) -> Iterator[AcknowledgmentSet]:
        """Yield the sets that ended at an instant (aware) or later, in the order of their end.

        :param run: only those of this Airflow run.
        """
        return (s for s in self._read(PartitionStatus.COMPLETED, since=instant) if run is None or s.run == run)

    def next_expiry(self) -> datetime | None:
        """Return when the next pending set expires; None if no set is pending. Unreadable sets never expire."""
        first = self._store.query(self.source_identifier, PartitionStatus.UNASSIGNED, limit=1)
        if not first:
            return None
        try:
            return set_of_item(first[0]).expires_at
        except ProgressError:
            return next((s.expires_at for s in self.pending()), None)

    def _read(self, status: PartitionStatus, since: datetime | None = None) -> Iterator[AcknowledgmentSet]:
        for item in all_partitions(self._store, self.source_identifier, status, since=since):
            try:
                yield set_of_item(item)
            except ProgressError as error:
                if item.partition_key not in self._logged_unreadable:  # triggers read the sets every few seconds
                    self._logged_unreadable.add(item.partition_key)
                    log.error("%s", error)
