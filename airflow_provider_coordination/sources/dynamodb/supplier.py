"""Dividing a table into the segments of a parallel scan."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.dynamodb.calls import DynamoDBCalls, table_identity
from airflow_provider_coordination.sources.dynamodb.settings import DynamoDBTable
from airflow_provider_coordination.sources.items import SourceUnavailableError
from airflow_provider_coordination.sources.progress import PartitionProgress

log = logging.getLogger(__name__)

KIND = "dynamodb"
SEGMENT_BYTES = 256 * 1024 * 1024
"""The approximate size of a segment if the supplier decides."""
MAX_DERIVED_SEGMENTS = 1024
PAGE_PARTITIONS = 500
READABLE = frozenset({"ACTIVE", "UPDATING"})


class SegmentSupplier:
    """Makes a partition of each segment of a table's scan; a `Supplier`.

    Another run changes nothing, even if the table has grown or `segments` has changed: a scan keeps its first number of
    segments, since only those together are the whole table. A table that was deleted and created again is another
    table.

    :param settings: of the source.
    :param view: of the source.
    """

    def __init__(self, settings: DynamoDBTable, view: SourceView) -> None:
        self._settings = settings
        self._view = view
        self._calls = DynamoDBCalls(settings.aws, f"table {settings.table!r}")

    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        """Yield the segments.

        :raises ConfigurationError: if the table does not exist, or access is denied.
        :raises SourceUnavailableError: if DynamoDB is unavailable, or the table is not ready yet.
        """
        table = self._calls("describe_table", TableName=self._settings.table)["Table"]
        if table.get("TableStatus", "ACTIVE") not in READABLE:
            raise SourceUnavailableError(
                f"DynamoDB table {self._settings.table!r} is {table['TableStatus']}; try again when it is ACTIVE"
            )
        table_id = table_identity(table)
        keys = [key["AttributeName"] for key in sorted(table["KeySchema"], key=lambda key: key["KeyType"])]
        total = self._total(table_id, table)
        size = int(table.get("TableSizeBytes", 0)) // total
        log.info("table %s: %d segments of about %d bytes", self._settings.table, total, size)
        for start in range(0, total, PAGE_PARTITIONS):
            yield Page(
                {
                    self._key(table_id, segment): self._progress(
                        {"segment": segment, "total": total, "keys": keys, "table_id": table_id, "size": size}
                    )
                    for segment in range(start, min(start + PAGE_PARTITIONS, total))
                }
            )

    def _total(self, table_id: str, table: Mapping[str, Any]) -> int:
        """Return the number of segments: of the existing partitions, from the settings, or by the table's size."""
        first = self._view.get(self._key(table_id, 0))
        if first is not None:
            return int(PartitionProgress.from_mapping(first.progress).items[0]["total"])
        if self._settings.segments is not None:
            return self._settings.segments
        wanted = -(-int(table.get("TableSizeBytes", 0)) // SEGMENT_BYTES)
        return min(max(wanted, 1), MAX_DERIVED_SEGMENTS)

    def _key(self, table_id: str, segment: int) -> str:
        return "/".join(filter(None, (self._settings.table, table_id, self._settings.scan, str(segment))))

    def _progress(self, item: dict[str, Any]) -> dict[str, Any]:
        return PartitionProgress(
            kind=KIND,
            items=(item,),
            reread_seconds=self._settings.reread_seconds,
            reads_left=self._settings.reads_left,
        ).to_mapping()
