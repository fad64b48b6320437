"""Tables that are restored to an earlier version: by `RESTORE` of Delta, or a rollback of Iceberg."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.support.sinks import DeltaUnderTest, SinkTarget, catalog_in

REPORTS = ("is a RESTORE of an earlier one", "was rolled back")
"""What the log says of a table that was taken back."""


def version_of(target: SinkTarget) -> int:
    """Return the current version of a table."""
    if isinstance(target.kind, DeltaUnderTest):
        return int(DeltaTable(target.folder).version())
    snapshot = _iceberg_table(target).current_snapshot()
    assert snapshot is not None
    return int(snapshot.snapshot_id)


def restore(target: SinkTarget, version: int) -> None:
    """Take a table back to an earlier version, if it is not at that one."""
    if version_of(target) == version:
        return
    if isinstance(target.kind, DeltaUnderTest):
        DeltaTable(target.folder).restore(version)
    else:
        _iceberg_table(target).manage_snapshots().rollback_to_snapshot(version).commit()


def _iceberg_table(target: SinkTarget) -> Any:
    return load_catalog("default", **catalog_in(target.folder)).load_table("lake.clicks")


@contextmanager
def reports_of(target: SinkTarget) -> Iterator[list[dict[str, list[int]]]]:
    """Yield what readers see at each report of a table that was taken back."""
    seen: list[dict[str, list[int]]] = []

    class ReportHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if any(report in record.getMessage() for report in REPORTS):
                seen.append(target.visible)

    logger, handler = logging.getLogger("airflow_provider_coordination.spark.sinks"), ReportHandler()
    logger.addHandler(handler)
    try:
        yield seen
    finally:
        logger.removeHandler(handler)
