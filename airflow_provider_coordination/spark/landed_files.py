"""The landed files of the partitions at work: kept while their batches may be delivered again, then deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

import pyarrow as pa

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.landed_identity import (
    batch_landed_in,
    file_name,
    identity_of,
    partition_folder,
    token_of,
    under_token,
)
from airflow_provider_coordination.spark.parquet_files import read_end, schema_of
from airflow_provider_coordination.spark.sinks import Sink
from airflow_provider_coordination.spark.storage import (
    calls_at_once,
    copy_file,
    delete_file,
    delete_files,
    file_size,
    files_below,
    files_in_folders,
    folders_in,
    join,
    publish,
    remove_if_empty,
)

log = logging.getLogger(__name__)


class LandedFiles:
    """The landed files that one job works with.

    When a partition is taken over, the files of previous owners are moved to names with the present fencing token. A
    previous owner that is still alive no longer finds its names. Files are deleted by name, each name is used once, and
    folders are never deleted with their content. So a job that was paused for long deletes nothing that other jobs have
    landed since.

    :param root: the landing root.
    :param coordinator: the source's coordinator.
    :param access: the credentials for the root.
    """

    def __init__(self, root: str, coordinator: SourceCoordinator, access: Access = DEFAULT_ACCESS) -> None:
        self._root = root
        self._access = access
        self._coordinator = coordinator
        self._files: dict[str, dict[str, str]] = {}  # by partition: the present location of each recorded file
        self._tokens: dict[str, int] = {}  # by partition: the token of the lease under which it was taken over
        self._unneeded: list[str] = []
        self._ended: dict[str, int] = {}  # by folder: the token of the lease under which its partition ended

    def take_over(self, landed: Mapping[str, Collection[LandedBatch]]) -> dict[str, int | Exception]:
        """Move the files of partitions to names of the present leases, and delete files that no batch records.

        :param landed: the batches that previous owners recorded, by partition; the partitions are leased to this job.
        :returns: by partition, the number of deleted files, or the error: `PartitionNotOwnedError` if the store or the
            files show that the lease is lost; `OSError` if the landing root, or the folder where a batch was landed, is
            unavailable.
        """
        folders = {self.folder(key): key for key in landed}
        existing = {folders[folder]: files for folder, files in files_in_folders(self._root, folders, self._access)}

        def take_over(key: str) -> list[str]:
            files = existing[key]
            if isinstance(files, Exception):
                raise files
            return self._take_over(key, landed[key], files)

        results: dict[str, int | Exception] = {}
        stray: list[str] = []
        taken = side_by_side(landed, take_over, calls_at_once(self._root, self._access))
        for key, result in taken:
            results[key] = result if isinstance(result, Exception) else len(result)
            stray += () if isinstance(result, Exception) else result
        with _left_for_later():
            delete_files(stray, self._access)
        return results

    def _take_over(self, key: str, landed: Collection[LandedBatch], existing: list[str]) -> list[str]:
        """Move the files of a partition to names of the present lease; return the files that no batch records.

        :param existing: the files in the partition's folder.
        """
        token = self._coordinator.leases.fencing_token(key)
        recorded = {batch.file: batch for batch in landed if batch.file}
        others = {file.rpartition("/")[0] for file in recorded} - {join(self._root, self.folder(key))}
        existing = [*existing, *(uri for folder in sorted(others) for uri in files_below(folder, self._access))]
        locations = {file: self._move_to_lease(batch, existing, token) for file, batch in recorded.items()}
        kept = set(map(identity_of, recorded))
        self._files[key], self._tokens[key] = locations, token
        return [
            uri
            for uri in existing
            if (found := token_of(uri)) is not None and found < token and identity_of(uri) not in kept
        ]

    def _move_to_lease(self, batch: LandedBatch, existing: Collection[str], token: int) -> str:
        """Move a batch's file from a previous owner's name for it to its name under a lease; return that name."""
        location = under_token(batch.file, token)
        copies = [uri for uri in existing if identity_of(uri) == identity_of(batch.file)]
        newest = max((token_of(uri) or 0 for uri in copies), default=0)
        if newest > token:
            raise PartitionNotOwnedError(f"landed file {batch.file} is used under a later lease, with token {newest}")
        if len(copies) > 1:  # a move is a copy and a delete here, and an owner died between the two
            copies.sort(key=lambda uri: (file_size(uri, self._access) == batch.file_bytes, token_of(uri)), reverse=True)
        if copies and token_of(copies[0]) != token:
            publish(copies[0], location, access=self._access)
        for uri in copies[1:]:
            if token_of(uri) != token:
                delete_file(uri, self._access)
        return location

    def add(self, key: str, file: str) -> None:
        """Note that a batch was recorded with a file that this job landed."""
        self._files.setdefault(key, {})[file] = file

    def location(self, key: str, batch: LandedBatch) -> str:
        """Return the location of a recorded batch's file now, or before it was published."""
        return self._files.get(key, {}).get(batch.file, batch.file)

    def keep(self, key: str, landed: Collection[LandedBatch]) -> None:
        """Keep the files of these batches; let `clear` delete the partition's other files, which the checkpoint passed.

        Files are not deleted earlier, because their batches may have to be delivered again.

        :param landed: the batches that the partition's progress still has.
        """
        needed = {batch.file for batch in landed}
        locations = self._files.get(key, {})
        self._unneeded += [location for file, location in locations.items() if file not in needed]
        self._files[key] = {file: location for file, location in locations.items() if file in needed}

    def forget(self, key: str) -> None:
        """Leave the files of a partition to its next owner."""
        self._files.pop(key, None)
        self._tokens.pop(key, None)

    def delete(self, key: str) -> None:
        """Let `clear` delete the landed files of a completed partition, except those of a later lease."""
        token = self._tokens.get(key)
        self.keep(key, ())
        self.forget(key)
        if token is not None:
            self._ended[self.folder(key)] = token

    def clear(self) -> None:
        """Delete the files that are no longer needed, of all partitions at once.

        The next job sweeps files that cannot be deleted now.
        """
        unneeded, self._unneeded = self._unneeded, []
        finished, self._ended = self._ended, {}
        for folder, files in files_in_folders(self._root, finished, self._access):
            with _left_for_later():
                if isinstance(files, Exception):
                    raise files
                unneeded += [uri for uri in files if (token := token_of(uri)) is not None and token <= finished[folder]]
        with _left_for_later():
            delete_files(dict.fromkeys(unneeded), self._access)
        for folder in finished:
            remove_if_empty(join(self._root, folder), self._access)

    def sweep_finished(self) -> None:
        """Delete the landed files of partitions that were completed outside jobs, for example by an acknowledgment."""
        source, _, _ = self.folder("").rpartition("/")
        try:
            folders = {join(source, name) for name in folders_in(join(self._root, source), self._access)}
            for partition, folder in self._finished(folders):
                # Listed before the status is read, so that these files are older than the end of the partition.
                files = files_below(join(self._root, folder), self._access)
                stored = self._coordinator.view.get(partition.partition_key)  # not a listing, which may be stale
                if stored is not None and stored.status is PartitionStatus.COMPLETED:
                    delete_files(files, self._access)
                    remove_if_empty(join(self._root, folder), self._access)
        except (StoreUnavailableError, OSError) as error:
            log.warning(
                "landed files of completed partitions could not be deleted; the next job deletes them: %s", error
            )

    def _finished(self, folders: Collection[str]) -> Iterator[tuple[Partition, str]]:
        """Yield the partitions that a listing shows as completed and that have one of these folders."""
        if not folders:
            return
        unfinished = {
            self.folder(partition.partition_key) for partition in self._coordinator.view.partitions(*UNFINISHED)
        }
        left = set(folders) - unfinished
        for partition in self._coordinator.view.partitions(PartitionStatus.COMPLETED) if left else ():
            if (folder := self.folder(partition.partition_key)) in left:
                yield partition, folder

    def folder(self, key: str) -> str:
        """Return the folder of a partition's files, below any root."""
        return partition_folder(self._coordinator.view.source_identifier, key)


def ensure_landed(attempt: Attempt, sinks: Iterable[Sink], access: Access = DEFAULT_ACCESS) -> None:
    """Make sure that a batch's landed file exists and is complete; see `landed_content`."""

    def read_size(uri: str) -> tuple[bytes, int]:
        size = file_size(uri, access)
        if size is None:
            raise FileNotFoundError(uri)
        return b"", size

    landed_content(attempt, sinks, read_size)


def landed_schema(attempt: Attempt, sinks: Iterable[Sink], access: Access = DEFAULT_ACCESS) -> pa.Schema:
    """Return the schema of a batch's landed file, which must exist and be complete; see `landed_content`.

    :raises pa.ArrowInvalid: if the file is damaged.
    """
    end = landed_content(attempt, sinks, partial(read_end, access=access))
    return schema_of(attempt.file, access, end=end)


def landed_content(attempt: Attempt, sinks: Iterable[Sink], read: Callable[[str], tuple[bytes, int]]) -> bytes:
    """Read a batch's landed file; restore it from a sink if it is missing or incomplete.

    :param sinks: the sinks that may have taken the file unchanged.
    :param read: returns the wanted part of a file, and the file's size in bytes; raises `FileNotFoundError`.
    :raises DeliveryError: if the file is gone or damaged, and no sink can restore it.
    """
    batch, size = attempt.batch, None
    with suppress(FileNotFoundError):
        content, size = read(attempt.file)
        if size == batch.file_bytes:
            return content
    if any(sink.restore_landed_file(attempt) for sink in sinks):
        return read(attempt.file)[0]
    if size is None:
        raise DeliveryError(f"landed file {attempt.file} is gone: restore it, or reset its partition")
    raise DeliveryError(
        f"landed file {attempt.file} has {size} bytes instead of the {batch.file_bytes} that were landed: restore it, "
        "or reset its partition"
    )


def check_all_of_it(attempt: Attempt) -> None:
    """Check that all records of a landed file are to be delivered.

    :raises DeliveryError: if the file was landed by a job that leaves records out.
    """
    if attempt.batch.bounds is not None:
        raise DeliveryError(
            f"batch {attempt.batch_id}: it was landed by a job that leaves records out by their field "
            f"{attempt.batch.bounds.column!r}, but this job publishes landed files unchanged: give the job a 'schema' "
            "or a 'transform' until the batch is delivered"
        )


@contextmanager
def _left_for_later() -> Iterator[None]:
    """Tolerate files that cannot be deleted now: they are not needed, and the next job sweeps them."""
    try:
        yield
    except OSError as error:
        log.warning("landed files could not be deleted; the next job deletes them: %s", error)


def landed_error(attempt: Attempt, error: Exception) -> DeliveryError:
    """Return why the landed file of a batch cannot be delivered."""
    if isinstance(error, DeliveryError):
        return error
    return DeliveryError(f"landed file {attempt.file} cannot be read: {error}; restore it, or reset its partition")


def restore_landed(attempt: Attempt, published: str, access: Access) -> bool:
    """Restore the landed file of a batch from the file that it was published as; return whether that is possible.

    :param published: the file that holds the batch alone.
    """
    batch = attempt.batch
    if file_size(published, access) != batch.file_bytes or batch_landed_in(published, access) != batch.batch_id:
        return False
    copy = join(attempt.file.rpartition("/")[0], file_name("published", attempt.fencing_token))
    copy_file(published, copy, access)
    publish(copy, attempt.file, size=batch.file_bytes, access=access)
    return True
