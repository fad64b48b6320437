"""The observation of the ingestion from outside: the partitions in the store, and the files of the dataset."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow.parquet as pq

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.stores import StoreSettings, open_store

PROGRESS_SECONDS = 5.0


class Observation:
    """Observes a source that jobs work on.

    :param store_url: the URL of the SQL store.
    :param source: the name of the source.
    :param files: returns the files of the dataset.
    """

    def __init__(self, store_url: str, source: str, files: Callable[[], Sequence[Path]]) -> None:
        self.view = SourceView(open_store(StoreSettings.from_url(store_url)), source)
        self.view.initialize()
        self._files = files
        self._rows: dict[Path, int] = {}

    def partitions(self) -> list[Partition]:
        """Return every partition once, in shard order; one whose status changes during the call may be missing."""
        found = {partition.partition_key: partition for partition in self.view.partitions()}
        return [found[key] for key in sorted(found)]

    def leases(self) -> dict[str, list[Partition]]:
        """Return the leased partitions of each owner."""
        owners: dict[str, list[Partition]] = {}
        for partition in self.view.partitions(PartitionStatus.ASSIGNED):
            owners.setdefault(str(partition.owner), []).append(partition)
        return owners

    def delivering(self) -> list[str]:
        """Return the owners that hold leases and have delivered data of them."""
        return [owner for owner, held in self.leases().items() if any(map(_has_delivered, held))]

    def delivered(self) -> int:
        """Return the number of events in the dataset."""
        files = self._files()
        self._rows |= {file: pq.read_metadata(file).num_rows for file in files if file not in self._rows}
        return sum(self._rows[file] for file in files)

    def line(self, rows: str = "delivered") -> str:
        """Return the rows of the dataset and the status of the partitions as one line.

        :param rows: what the rows are.
        """
        counts: dict[str, int] = {}
        for partition in self.partitions():
            counts[partition.status] = counts.get(partition.status, 0) + 1
        shown = " ".join(f"{status} {count}" for status, count in sorted(counts.items())) or "none yet"
        leases = " ".join(f"{worker_name(owner)}={len(held)}" for owner, held in sorted(self.leases().items()))
        return f"{rows} {self.delivered():>7,}   partitions: {shown}{f'   leases: {leases}' if leases else ''}"


class ProgressLines:
    """Prints the progress every few seconds while the `with` block runs, on a separate thread.

    :param line: returns the line to print.
    :param say: prints a line.
    """

    def __init__(self, line: Callable[[], str], say: Callable[[str], None]) -> None:
        self._line = line
        self._say = say
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(PROGRESS_SECONDS):
            try:
                self._say(self._line())
            except Exception as error:  # a failed observation must not end the demo
                self._say(f"(no progress to show: {error})")


def worker_name(owner: str) -> str:
    """Return the short name of a job: its task number and its try, such as `job-0/try-1`."""
    *_, task_number, try_number, _ = owner.split(":")
    return f"job-{task_number}/try-{try_number}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 batch` and `2 batches`."""
    plural = f"{noun}es" if noun.endswith(("ch", "ss")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def shard_of(partition: Partition) -> str:
    """Return the shard of a partition."""
    return progress_of(partition).shard_id


def progress_of(partition: Partition) -> ShardProgress:
    """Return the progress of a partition."""
    return ShardProgress.from_mapping(partition.progress)


def _has_delivered(partition: Partition) -> bool:
    return progress_of(partition).checkpoint != TRIM_HORIZON
