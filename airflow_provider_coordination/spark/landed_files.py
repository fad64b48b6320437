"""The landed files of the partitions at work: kept while a batch may be delivered again, and removed afterwards."""

from __future__ import annotations

import logging
from collections.abc import Collection

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.delivery import sweep
from airflow_provider_coordination.spark.landing import partition_folder
from airflow_provider_coordination.spark.storage import delete_file, delete_folder, folders_in, join

log = logging.getLogger(__name__)


class LandedFiles:
    """What one job knows of landed files.

    :param root: the landing root.
    :param coordinator: of the source.
    """

    def __init__(self, root: str, coordinator: SourceCoordinator) -> None:
        self._root = root
        self._coordinator = coordinator
        self._files: dict[str, set[str]] = {}

    def take_over(self, key: str, landed: Collection[LandedBatch]) -> int:
        """Delete what former owners of a partition landed and never recorded; return how many files that were.

        :param key: the partition; leased to this job.
        :param landed: what they recorded.
        :raises OSError: if the landing root cannot be read.
        """
        keep = {batch.file for batch in landed}
        token = self._coordinator.fencing_token(key)
        swept = sweep(self._root, self.folder(key), keep=keep, fencing_token=token)
        self._files[key] = keep - {""}
        return swept

    def add(self, key: str, file: str) -> None:
        """Note that a batch was recorded with this file."""
        self._files.setdefault(key, set()).add(file)

    def keep(self, key: str, landed: Collection[LandedBatch]) -> None:
        """Delete the files of a partition that the checkpoint is past, whoever acknowledged them; not before: until
        then a batch may have to be delivered again.

        :param landed: what its progress still names.
        """
        named = {batch.file for batch in landed}
        for file in self._files.get(key, set()) - named:
            delete_file(file)
        self._files[key] = named - {""}

    def forget(self, key: str) -> None:
        """Leave the files of a partition to its next owner."""
        self._files.pop(key, None)

    def delete(self, key: str) -> None:
        """Delete what is landed of a partition that is finished."""
        self.forget(key)
        delete_folder(join(self._root, self.folder(key)))

    def sweep_finished(self) -> None:
        """Delete what is landed of partitions that somebody else finished, who has nothing to do with files."""

        def folder_of(partition: Partition) -> str:
            return self.folder(partition.partition_key)

        source, _, _ = self.folder("").rpartition("/")
        try:
            there = {join(source, name) for name in folders_in(join(self._root, source))}
            left = there - set(map(folder_of, self._coordinator.partitions(*UNFINISHED))) if there else there
            for partition in self._coordinator.partitions(PartitionStatus.COMPLETED) if left else ():
                if folder_of(partition) in left:
                    stored = self._coordinator.get(partition.partition_key)  # not a listing, which may be behind
                    if stored is not None and stored.status is PartitionStatus.COMPLETED:
                        delete_folder(join(self._root, folder_of(partition)))
        except (StoreUnavailableError, OSError) as error:
            log.warning("landed files of finished partitions are left for the next job: %s", error)

    def folder(self, key: str) -> str:
        """Return the folder of a partition's files, below any root."""
        return partition_folder(self._coordinator.source_identifier, key)
