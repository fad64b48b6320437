"""A custom endless source: a directory of log files that grow, rotate and appear.

Each file is a partition, identified by its inode, so that it continues after a rename. A position is the number of
bytes that were read. A file that is shorter than its position was truncated: its previous content is lost, and its
partition is parked. The module is shipped to Spark by `py_files`. If other processes settle sets or inspect the source,
their distribution registers `log_files = log_file_source:KIND` as an entry point of the group
`airflow_provider_coordination.sources`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.supplier import Page, Supplier
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.items import new_batch_id
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.landed import LandedProgress, LandedRow
from airflow_provider_coordination.sources.reads import Connected, Reads
from airflow_provider_coordination.sources.source_kind import SourceKind
from airflow_provider_coordination.spark.reading import KindPartitions

if TYPE_CHECKING:  # so that a DAG file imports no code that runs on Spark
    from airflow_provider_coordination.spark.job_spark import JobSpark
    from airflow_provider_coordination.spark.outcome import Summary
    from airflow_provider_coordination.spark.reading import PartitionsToRead
    from airflow_provider_coordination.spark.settings import IngestSettings

NAME = "log_files"


@dataclass(frozen=True, kw_only=True)
class LogProgress(LandedProgress):
    """The progress of a log file: the common fields, and the identity of the file."""

    kind: str = NAME
    checkpoint: str = "0"
    folder: str
    inode: int


class LogFiles(SourceKind):
    """Log files as a kind of source."""

    progress_class = LogProgress
    reading = "log_file_source:LogSource"


KIND = LogFiles(NAME)


@dataclass(kw_only=True)
class LogFolder(Reads):
    """A directory of log files, for the `reads` of operators.

    :param folder: the directory, which every worker can reach. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = ("folder",)
    is_endless: ClassVar[bool] = True
    kind: ClassVar[str] = NAME

    folder: str

    @property
    @override
    def default_source(self) -> str:
        return self.folder.strip("/")

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        return {"folder": self.folder}

    @override
    def connect(self, connections: ConnectionResolver) -> Connected:
        settings = ReadsSettings(kind=NAME, settings={"folder": self.folder}, implementation="log_file_source:KIND")
        return Connected(reads=settings, supplier=lambda coordinator: supplier(self.folder))


def supplier(folder: str) -> Supplier:
    """Return the supplier of new files."""

    def pages(state: Mapping[str, Any]) -> Iterator[Page]:
        inodes = sorted(path.stat().st_ino for path in Path(folder).iterdir() if path.is_file())
        yield Page({str(n): LogProgress(folder=folder, inode=n).to_mapping() for n in inodes})

    return pages


@dataclass(frozen=True, kw_only=True)
class LogPlan:
    """What to read of one file."""

    source_identifier: str
    partition_key: str
    fencing_token: int
    folder: str
    inode: int
    start: int


def land_file(root: str, max_bytes: int, plan: LogPlan) -> LandedRow:
    """Read whole lines of a file from its position on, and write them to one file."""
    import pyarrow as pa

    from airflow_provider_coordination.spark.item_file import with_origin
    from airflow_provider_coordination.spark.landed_identity import as_landed, landed_file
    from airflow_provider_coordination.spark.layout import BATCH_ID
    from airflow_provider_coordination.spark.parquet_files import write_table

    began = datetime.now(UTC)
    path = next((each for each in Path(plan.folder).iterdir() if each.stat().st_ino == plan.inode), None)
    if path is None or path.stat().st_size < plan.start:
        what = "is gone" if path is None else f"was truncated to {path.stat().st_size} bytes"
        return LandedRow.without_records(plan.partition_key, error=f"file {plan.inode} {what} at {plan.start}")
    with path.open("rb") as file:
        file.seek(plan.start)
        data = file.read(max_bytes)
    data = data[: data.rfind(b"\n") + 1]
    end = plan.start + len(data)
    batch = new_batch_id(NAME)
    caught_up = None if end < path.stat().st_size and data else began
    row = LandedRow.without_records(
        plan.partition_key, str(plan.start), batch_id=batch, end=str(end), read_until=caught_up
    )
    if not data:
        return row
    table = with_origin(pa.table({"data": pa.array(data.splitlines(), pa.binary())}), str(plan.inode), 0)
    uri = landed_file(root, plan.source_identifier, plan.partition_key, str(plan.start), plan.fencing_token)
    size = write_table(as_landed(table.append_column(BATCH_ID, pa.repeat(batch, table.num_rows)), batch), uri)
    return replace(row, file=uri, file_bytes=size, records=table.num_rows, bytes=len(data))


def _land_slot(root: str, max_bytes: int, plans: Sequence[LogPlan]) -> list[LandedRow]:
    return [land_file(root, max_bytes, plan) for plan in plans]


class LogReading:
    """How a job reads log files; a `Reading`."""

    at_stop: ClassVar[Sequence[str]] = ()
    expects_more = False

    def __init__(
        self,
        spark: JobSpark,
        settings: IngestSettings,
        coordinator: SourceCoordinator,
        partitions: PartitionsToRead,
        summary: Summary,
    ) -> None:
        self._spark = spark
        self._leases = coordinator.leases
        self._family = coordinator.view.source_identifier
        self._partitions = partitions
        self._files = KindPartitions(partitions, coordinator.leases, LogProgress)
        self._summary = summary
        self._root = settings.landing_path
        from airflow_provider_coordination.spark.shared_locations import SharedLocations

        self._locations = SharedLocations([settings.landing_path], settings.access)
        self._max_bytes = settings.rounds.max_batch_bytes

    def refresh_source(self) -> None:
        """See `Reading.refresh_source`: an earlier task finds new files."""

    def may_start(self, partition: Partition) -> bool:
        """See `Reading.may_start`."""
        return True

    def land(self, *, leave_slot: bool, max_seconds: float = math.inf) -> list[LandedRow]:
        """See `Reading.land`: a concurrent delivery may need one of several slots.

        `max_seconds` makes no difference: reading the `max_batch_bytes` of a file takes less than a second.
        """
        from airflow_provider_coordination.spark.slots import distribute, land_in_slots

        plans = [
            LogPlan(
                source_identifier=self._family,
                partition_key=key,
                fencing_token=fencing_token,
                folder=progress.folder,
                inode=progress.inode,
                start=int(progress.landed_position),
            )
            for key, progress, fencing_token in self._files.to_land()
        ]
        slots = self._spark.slots.of_round(len(plans), leave_slot=leave_slot)
        land = partial(_land_slot, self._root, self._max_bytes)
        return land_in_slots(self._spark.context, distribute(plans, slots), land, LandedRow, self._locations)

    def record(self, rows: Sequence[LandedRow]) -> Any:
        """See `Reading.record`."""
        from airflow_provider_coordination.spark.reading import RoundRead

        for row in rows:
            with self._partitions.recording(row.partition_key):
                self._record(row)
        return RoundRead(partitions=sum(row.records > 0 for row in rows), bytes=sum(row.bytes for row in rows))

    def _record(self, row: LandedRow) -> None:
        key = row.partition_key
        if row.error is not None:
            self._summary.data_loss[key] = row.error
            self._partitions.park(key, row.error, dict(self._leases.leased(key).progress), row.failure)
        elif not row.records:
            self._partitions.note_read(key, row.read_until)
        else:
            self._files.record(row, LogProgress.landing)

    def completed(self, partition: Partition) -> None:
        """See `Reading.completed`: a log file is never completed."""

    def end_round(self) -> None:
        """See `Reading.end_round`."""

    def last_known(self, key: str) -> None:
        """See `Reading.last_known`: the stored progress is complete."""


class LogSource:
    """The log files that a job reads; a `JobSource`."""

    default_leases = None
    stop_at = None
    is_bounded = False
    worker_imports = ()  # no module is worth importing before a task needs it

    def __init__(self, reads: ReadsSettings) -> None:
        self.name = f"log files in {reads.settings['folder']}"

    @property
    def layout(self) -> Any:
        """See `JobSource.layout`."""
        from airflow_provider_coordination.spark.layout import ITEM_RECORDS

        return ITEM_RECORDS

    def opened(self, coordinator: SourceCoordinator) -> Callable[[JobSpark], Any]:
        """See `JobSource.opened`."""
        return lambda spark: partial(LogReading, spark)
