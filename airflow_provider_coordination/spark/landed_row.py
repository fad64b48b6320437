"""A manifest row: what an executor reports of one partition, and the landed batch that the driver records of it."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.sources.landed import LandedBatch


@dataclass(frozen=True)
class Failure:
    """What sort of error a partition failed by.

    :param error_class: the class of the error, by its name.
    :param is_of_source: whether the source did not answer, refused, or is gone.
    """

    error_class: str = "PartitionFailed"
    is_of_source: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return that of an error."""
        return cls(type(error).__name__, isinstance(error, SourceError))


def not_written(root: str, error: OSError) -> str:
    """Return why this host cannot write what it read, and what to do if its disk is full.

    :param root: where landed files go.
    """
    remedy = "; make room there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"landing in {root} failed on {socket.gethostname()}: {error}{remedy}"


@dataclass(frozen=True, kw_only=True)
class LandedRow:
    """What was read of a partition, or why not; a kind of source adds what it needs.

    :param batch_id: see `LandedBatch`.
    :param start: the position before the batch.
    :param end: the position at its end; the same where nothing was read.
    :param file: the landed file; empty if there was no record.
    :param file_bytes: its size.
    :param records: how many records are in it.
    :param bytes: how many bytes of user data.
    :param is_last: whether everything is read.
    :param read_until: everything that arrived before this instant (aware) is read; None if unknown.
    :param last_arrival: when the last record in the file arrived (aware); None where the source does not say.
    :param seconds: how long it was read.
    :param error: why the partition could not be read; none of the batch's fields holds then.
    :param passing: whether trying again may help.
    :param failure: what sort of error it is.
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
    passing: bool = False
    failure: Failure = Failure()

    @property
    def is_batch(self) -> bool:
        """Whether there is anything to record: records, positions passed, or the end of the partition."""
        return self.error is None and (self.end != self.start or self.is_last)

    def batch(self, fencing_token: int) -> LandedBatch:
        """Return the landed batch to record.

        :param fencing_token: of the lease under which it is recorded.
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
