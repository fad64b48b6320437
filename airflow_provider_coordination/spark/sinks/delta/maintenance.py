"""Maintenance of a Delta table: the library compacts, and says which files no version within the retention names."""

from __future__ import annotations

import logging
import math
from collections import Counter

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.maintenance import Maintained, Maintenance
from airflow_provider_coordination.spark.sinks.delta import log as table_log
from airflow_provider_coordination.spark.sinks.delta.log import TableLog
from airflow_provider_coordination.spark.staging import Staging
from airflow_provider_coordination.spark.storage import join, removed

log = logging.getLogger(__name__)

TRIES = 10
MAINTENANCE = "coordination.maintenance"
"""The key of the metadata of commits that maintenance makes."""


def maintain(of: TableLog, staging: Staging, access: Access, wanted: Maintenance) -> Maintained:
    """See `Maintains.maintain`."""
    compacted = _compacted(of, wanted) if wanted.compact else 0
    number, size = _removed(of, staging, access, wanted)
    return Maintained(files_compacted=compacted, files_removed=number, bytes_removed=size)


def _opened(of: TableLog) -> DeltaTable:
    table = of.open()
    if table is None:
        raise DeliveryError(f"table {of.uri} is gone")
    return table


def _compacted(of: TableLog, wanted: Maintenance) -> int:
    """Put small files together; return how many."""
    if wanted.is_dry_run:
        return _small(_opened(of), wanted.target_file_bytes)
    for number in range(TRIES):
        try:
            done = _opened(of).optimize.compact(
                target_size=wanted.target_file_bytes,
                commit_properties=CommitProperties(custom_metadata={MAINTENANCE: "compaction"}, max_commit_retries=0),
            )
            return int(done["numFilesRemoved"])
        except CommitFailedError as error:
            log.info("table %s: compaction, try %d: %s", of.uri, number + 1, error)
    raise DeliveryError(f"table {of.uri} was changed {TRIES} times while it was compacted; try again later")


def _small(table: DeltaTable, target_bytes: int) -> int:
    """Return how many files would be put together: those below the size of whose partition there are several."""
    actions = pa.table(table.get_add_actions())
    small: Counter[str] = Counter()
    for row in actions.select(
        ["size_bytes", *(["partition"] if "partition" in actions.column_names else [])]
    ).to_pylist():
        if row["size_bytes"] < target_bytes:
            small[str(row.get("partition"))] += 1
    return sum(number for number in small.values() if number > 1)


def _removed(of: TableLog, staging: Staging, access: Access, wanted: Maintenance) -> tuple[int, int]:
    """Remove the files that no version within the retention names; return how many, and their size."""
    hours = math.ceil(wanted.retention.total_seconds() / 3600)
    table = _opened(of)
    unnamed = set(table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True))
    unnamed -= staging.named("name")
    if unnamed and not wanted.is_dry_run:
        _commit_nothing(of)
        table = _opened(of)
        named = set(table.get_add_actions(flatten=True).column("path").to_pylist())
        unnamed -= named | staging.named("name")
    return removed((join(of.uri, name) for name in sorted(unnamed)), access, is_dry_run=wanted.is_dry_run)


def _commit_nothing(of: TableLog) -> None:
    """Make a commit without a file: who looked at the table before looks again before it commits."""
    properties = CommitProperties(custom_metadata={MAINTENANCE: "removal of files"}, max_commit_retries=0)
    for _ in range(TRIES):
        try:
            table_log.add(_opened(of), [], properties)
        except CommitFailedError:
            continue
        return
    raise DeliveryError(f"table {of.uri} was changed {TRIES} times while it was maintained; try again later")
