"""The origin of a row: from the batch in its column `_batch_id` to its partition, its job, and what each sink has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from airflow_provider_coordination.audit.report import AuditFinding, shown
from airflow_provider_coordination.audit.source_audit import contents_of
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.workers import TaskTry, task_of
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.kinds import known_kind, landed_progress
from airflow_provider_coordination.spark.ledger import LedgerEntry, entry_of
from airflow_provider_coordination.spark.sink_settings import SinkSettings


@dataclass(frozen=True, kw_only=True)
class SinkTrace:
    """What a sink has of a batch.

    :param sink: the name of the sink.
    :param location: its location.
    :param state: `delivered`, `missing`, or what is wrong with it.
    :param rows: the number of its rows at delivery; None if that is not known.
    """

    sink: str
    location: str
    state: str
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class BatchTrace:
    """Where the rows of a batch come from.

    :param batch: the batch, as the first sink that has it, or the store, records it.
    :param sinks: what each sink has.
    :param is_pending: whether the store still waits for a sink.
    """

    batch: LedgerEntry
    sinks: list[SinkTrace] = field(default_factory=list)
    is_pending: bool = False

    @property
    def task(self) -> TaskTry | None:
        """The task try of the job that delivered it; None if no Airflow task started the job."""
        return task_of(self.batch.origin.owner)


DELIVERED, MISSING = "delivered", "missing"


def trace_batch(
    view: SourceView, sinks: Iterable[SinkSettings], batch_id: str, position: str | None = None
) -> BatchTrace:
    """Return where the rows of a batch come from.

    :param view: the source, initialized.
    :param sinks: the sinks that it is delivered to.
    :param batch_id: the value of the column `_batch_id`.
    :param position: the position of a record, which must be in the batch; None for any record.
    :raises ConfigurationError: if neither a sink nor the store knows the batch, or the position is not in it.
    :raises StoreUnavailableError: if the store is unavailable.
    """
    pending = _pending(view, batch_id)
    found: LedgerEntry | None = None
    traces = []
    for settings in sinks:
        contents = contents_of(view, settings, reads_rows=False)
        if isinstance(contents, AuditFinding):
            traces.append(SinkTrace(sink=settings.name, location=settings.location, state=contents.reason))
            continue
        entry = next((each for each in contents.entries if each.batch_id == batch_id), None)
        fault = contents.faults.get(batch_id)
        state = MISSING if entry is None else DELIVERED if fault is None else fault.text
        rows = None if entry is None else entry.rows
        traces.append(SinkTrace(sink=settings.name, location=contents.location, state=state, rows=rows))
        found = found or entry
    batch = found or pending
    if batch is None:
        raise ConfigurationError(
            f"batch {batch_id!r} of source {view.source!r}: neither a sink that is given nor the store knows it; give "
            "the value of the column '_batch_id' of a row, and the sink that has the row. A record that has expired, "
            "as of a table without its older commits, cannot be found"
        )
    if position is not None:
        _check_position(view, batch, position)
    return BatchTrace(batch=batch, sinks=traces, is_pending=pending is not None)


def _pending(view: SourceView, batch_id: str) -> LedgerEntry | None:
    """Return a batch that is recorded in the store, and not in every sink yet; None if there is none."""
    for partition in view.partitions():
        try:
            progress = None if partition.unreadable_progress is not None else landed_progress(partition.progress)
        except SourceError:
            continue
        batch = None if progress is None else progress.batch(batch_id)
        if batch is not None:
            described = {
                "source": view.source_identifier,
                "partition_key": partition.partition_key,
                "owner": partition.owner or "",
                "fencing_token": batch.fencing_token,
                "batch": write_settings(batch),
            }
            return entry_of(described)
    return None


def _check_position(view: SourceView, batch: LedgerEntry, position: str) -> None:
    """Check that a position is in a batch.

    :raises ConfigurationError: if it is not.
    """
    partition = next((each for each in view.partitions() if each.partition_key == batch.partition_key), None)
    kind = None if partition is None else known_kind(partition)
    if kind is None:
        return
    is_late, is_early = kind.is_before(batch.end, position), kind.is_before(position, batch.start)
    if is_late or is_early or position == batch.start:
        raise ConfigurationError(
            f"position {position!r} is not in batch {batch.batch_id!r}: it has the records after "
            f"{shown(batch.start)} up to {shown(batch.end)}; give the position and the '_batch_id' of the same row"
        )
