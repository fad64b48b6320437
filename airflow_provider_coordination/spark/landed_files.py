"""The landed files of the partitions at work: kept while a batch may be delivered again, and removed afterwards."""

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
from airflow_provider_coordination.spark.landed_identity import identity_of, partition_folder, token_of, under_token
from airflow_provider_coordination.spark.sinks import Sink, TakesLanded
from airflow_provider_coordination.spark.storage import (
    calls_at_once,
    delete_file,
    delete_files,
    file_size,
    files_below,
    files_in_folders,
    folders_in,
    join,
    publish,
    read_end,
    remove_if_empty,
    schema_of,
)

log = logging.getLogger(__name__)


class LandedFiles:
    """What one job knows of landed files.

    A file that a former owner landed is moved to a name with the present fencing token when the partition is taken
    over: the former owner, if it lives, finds its names gone. Files are deleted by name, each name is used once, and
    a folder never goes with what it holds: so a job that was stopped for long deletes nothing that others landed since.

    :param root: the landing root.
    :param coordinator: of the source.
    :param access: how the root is reached.
    """

    def __init__(self, root: str, coordinator: SourceCoordinator, access: Access = DEFAULT_ACCESS) -> None:
        self._root = root
        self._access = access
        self._coordinator = coordinator
        self._files: dict[str, dict[str, str]] = {}  # of each partition: where each recorded file is now
        self._tokens: dict[str, int] = {}  # of each partition: that of the lease under which it was taken over
        self._unneeded: list[str] = []
        self._ended: dict[str, int] = {}  # by folder, the token of the lease under which its partition ended

    def take_over(self, landed: Mapping[str, Collection[LandedBatch]]) -> dict[str, int | Exception]:
        """Bring the files of partitions under the present leases, and delete those that nobody recorded.

        :param landed: by partition, leased to this job, what former owners recorded.
        :returns: by partition how many files were deleted, or what went wrong: `PartitionNotOwnedError` if the lease is
            lost, as the store or the files say; `OSError` if the landing root, or where a batch was landed, cannot be
            reached.
        """
        folders = {self.folder(key): key for key in landed}
        there = {folders[folder]: found for folder, found in files_in_folders(self._root, folders, self._access)}

        def take_over(key: str) -> list[str]:
            found = there[key]
            if isinstance(found, Exception):
                raise found
            return self._take_over(key, landed[key], found)

        results: dict[str, int | Exception] = {}
        stray: list[str] = []
        taken = side_by_side(landed, take_over, calls_at_once(self._root, self._access))
        for key, result in taken:
            results[key] = result if isinstance(result, Exception) else len(result)
            stray += () if isinstance(result, Exception) else result
        with _left_for_later():
            delete_files(stray, self._access)
        return results

    def _take_over(self, key: str, landed: Collection[LandedBatch], there: list[str]) -> list[str]:
        """Bring the files of a partition under the present lease; return those that nobody recorded.

        :param there: the files in its folder.
        """
        token = self._coordinator.leases.fencing_token(key)
        recorded = {batch.file: batch for batch in landed if batch.file}
        others = {file.rpartition("/")[0] for file in recorded} - {join(self._root, self.folder(key))}
        there = [*there, *(uri for folder in sorted(others) for uri in files_below(folder, self._access))]
        places = {file: self._bring(batch, there, token) for file, batch in recorded.items()}
        kept = set(map(identity_of, recorded))
        self._files[key], self._tokens[key] = places, token
        return [
            uri
            for uri in there
            if (found := token_of(uri)) is not None and found < token and identity_of(uri) not in kept
        ]

    def _bring(self, batch: LandedBatch, there: Collection[str], token: int) -> str:
        """Move a batch's file to its name under a lease, wherever former owners left it; return that name."""
        place = under_token(batch.file, token)
        copies = [uri for uri in there if identity_of(uri) == identity_of(batch.file)]
        newest = max((token_of(uri) or 0 for uri in copies), default=0)
        if newest > token:
            raise PartitionNotOwnedError(f"landed file {batch.file} is used under a later lease, of token {newest}")
        if len(copies) > 1:  # where a move is a copy and a delete, and somebody died between them
            copies.sort(key=lambda uri: (file_size(uri, self._access) == batch.file_bytes, token_of(uri)), reverse=True)
        if copies and token_of(copies[0]) != token:
            publish(copies[0], place, access=self._access)
        for uri in copies[1:]:
            if token_of(uri) != token:
                delete_file(uri, self._access)
        return place

    def add(self, key: str, file: str) -> None:
        """Note that a batch was recorded with this file, which this job landed."""
        self._files.setdefault(key, {})[file] = file

    def place(self, key: str, batch: LandedBatch) -> str:
        """Return where the file of a recorded batch is, or was before it was published."""
        return self._files.get(key, {}).get(batch.file, batch.file)

    def keep(self, key: str, landed: Collection[LandedBatch]) -> None:
        """Let `clear` delete the files of a partition that the checkpoint is past, whoever acknowledged them; not
        before: until then a batch may have to be delivered again.

        :param landed: what its progress still names.
        """
        named = {batch.file for batch in landed}
        places = self._files.get(key, {})
        self._unneeded += [place for file, place in places.items() if file not in named]
        self._files[key] = {file: place for file, place in places.items() if file in named}

    def forget(self, key: str) -> None:
        """Leave the files of a partition to its next owner."""
        self._files.pop(key, None)
        self._tokens.pop(key, None)

    def delete(self, key: str) -> None:
        """Let `clear` delete what is landed of a partition that is finished, as far as it is not of a later lease."""
        token = self._tokens.get(key)
        self.keep(key, ())
        self.forget(key)
        if token is not None:
            self._ended[self.folder(key)] = token

    def clear(self) -> None:
        """Delete what is not needed any more, of all partitions at once; what cannot be deleted now, the next job
        sweeps."""
        unneeded, self._unneeded = self._unneeded, []
        finished, self._ended = self._ended, {}
        for folder, found in files_in_folders(self._root, finished, self._access):
            with _left_for_later():
                if isinstance(found, Exception):
                    raise found
                unneeded += [uri for uri in found if (token := token_of(uri)) is not None and token <= finished[folder]]
        with _left_for_later():
            delete_files(dict.fromkeys(unneeded), self._access)
        for folder in finished:
            remove_if_empty(join(self._root, folder), self._access)

    def sweep_finished(self) -> None:
        """Delete what is landed of partitions that somebody else finished, who has nothing to do with files."""
        source, _, _ = self.folder("").rpartition("/")
        try:
            folders = {join(source, name) for name in folders_in(join(self._root, source), self._access)}
            for partition, folder in self._finished(folders):
                # Listed before the store is asked: so these are older than the end that the store knows of.
                there = files_below(join(self._root, folder), self._access)
                stored = self._coordinator.view.get(partition.partition_key)  # not a listing, which may be behind
                if stored is not None and stored.status is PartitionStatus.COMPLETED:
                    delete_files(there, self._access)
                    remove_if_empty(join(self._root, folder), self._access)
        except (StoreUnavailableError, OSError) as error:
            log.warning("landed files of finished partitions are left for the next job: %s", error)

    def _finished(self, folders: Collection[str]) -> Iterator[tuple[Partition, str]]:
        """Yield the partitions that a listing has as finished and that have one of these folders."""
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
    """Make sure that a batch's landed file is there, whole; see `landed_content`."""

    def look(uri: str) -> tuple[bytes, int]:
        size = file_size(uri, access)
        if size is None:
            raise FileNotFoundError(uri)
        return b"", size

    landed_content(attempt, sinks, look)


def landed_schema(attempt: Attempt, sinks: Iterable[Sink], access: Access = DEFAULT_ACCESS) -> pa.Schema:
    """Return the schema of a batch's landed file, which is there, whole; see `landed_content`.

    :raises pa.ArrowInvalid: if it is damaged.
    """
    end = landed_content(attempt, sinks, partial(read_end, access=access))
    return schema_of(attempt.file, access, end=end)


def landed_content(attempt: Attempt, sinks: Iterable[Sink], read: Callable[[str], tuple[bytes, int]]) -> bytes:
    """Read a batch's landed file, of which this makes sure that it is there, whole.

    :param sinks: those that may have taken it as it was.
    :param read: returns what is wanted of a file, and the file's size in bytes; raises `FileNotFoundError`.
    :raises DeliveryError: if it is gone or damaged, and no sink can bring it back.
    """
    batch, size = attempt.batch, None
    with suppress(FileNotFoundError):
        content, size = read(attempt.file)
        if size == batch.file_bytes:
            return content
    if any(sink.restore_landed(attempt) for sink in sinks if isinstance(sink, TakesLanded)):
        return read(attempt.file)[0]
    if size is None:
        raise DeliveryError(f"landed file {attempt.file} is gone: restore it, or reset its partition")
    raise DeliveryError(
        f"landed file {attempt.file} has {size} bytes, and {batch.file_bytes} were landed: restore it, or reset its "
        "partition"
    )


def check_all_of_it(attempt: Attempt) -> None:
    """Check that all records of a landed file are to be delivered.

    :raises DeliveryError: if it was landed by a job that leaves some out.
    """
    if attempt.batch.bounds is not None:
        raise DeliveryError(
            f"batch {attempt.batch_id}: it was landed by a job that leaves records out by their field "
            f"{attempt.batch.bounds.column!r}, and this one publishes all of it as it was landed: give the job a "
            "'schema' or a 'transform' until the batch is delivered"
        )


@contextmanager
def _left_for_later() -> Iterator[None]:
    """Let files that cannot be deleted now end nothing: they are of no use, and the next job sweeps them."""
    try:
        yield
    except OSError as error:
        log.warning("landed files are left for the next job to delete: %s", error)
