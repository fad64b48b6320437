"""A manifest row: what an executor reports about one partition, and the landed batch that the driver records."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.sources.landed import LandedBatch


@dataclass(frozen=True)
class Failure:
    """The kind of error by which a partition failed.

    :param error_class: the name of the error's class.
    :param is_of_source: whether the source was unavailable, refused access, or is gone.
    """

    error_class: str = "PartitionFailed"
    is_of_source: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure of an error."""
        return cls(type(error).__name__, isinstance(error, SourceError))


def not_written(root: str, error: OSError) -> str:
    """Return why this host cannot write landed files, and what to do if its disk is full.

    :param root: the folder for landed files.
    """
    remedy = "; free space there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"landing in {root} failed on {socket.gethostname()}: {error}{remedy}"


@dataclass(frozen=True, kw_only=True)
class LandedRow:
    """What was read of a partition, or why it could not be read; kinds of sources add fields.

    :param partition_key: the partition.
    :param batch_id: see `LandedBatch`.
    :param start: the position before the batch.
    :param end: the position at its end; equal to `start` if nothing was read.
    :param file: the landed file; empty if there was no record.
    :param file_bytes: the size of the file.
    :param records: the number of records in the file.
    :param bytes: the number of bytes of user data.
    :param is_last: whether the partition is read to its end.
    :param read_until: everything that arrived before this instant (aware) is read; None if unknown.
    :param last_arrival: when the last record in the file arrived (aware); None if the source does not report it.
    :param seconds: how long the partition was read.
    :param error: why the partition could not be read; the fields of the batch are then meaningless.
    :param is_temporary: whether a retry may help.
    :param failure: the kind of error.
    """

    partition_key: str
    batch_id: str = ""
    start: str = ""
    end: str = ""
    file: str = ""
    file_bytes: int = 0
    records: int = 0
    bytes: int = 0
    is_last: bool = False
    read_until: datetime | None = None
    last_arrival: datetime | None = None
    seconds: float = 0.0
    error: str | None = None
    is_temporary: bool = False
    failure: Failure = Failure()

    @property
    def is_batch(self) -> bool:
        """Whether there is anything to record: records, positions passed, or the end of the partition."""
        return self.error is None and (self.end != self.start or self.is_last)

    def batch(self, fencing_token: int) -> LandedBatch:
        """Return the landed batch to record.

        :param fencing_token: the fencing token of the lease under which it is recorded.
        """
        return LandedBatch(
            batch_id=self.batch_id,
            start=self.start,
            end=self.end,
            file=self.file,
            file_bytes=self.file_bytes,
            records=self.records,
            bytes=self.bytes,
            is_last=self.is_last,
            read_until=self.read_until,
            fencing_token=fencing_token,
            last_arrival=self.last_arrival,
        )
