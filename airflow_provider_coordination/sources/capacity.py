"""How much can be read from a source and how long it keeps data: the input for planning an ingestion."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The limits of a source. None means unknown, or no limit.

    :param partitions: the number of partitions that receive data at present.
    :param retention: how long it keeps its data.
    :param read_bytes_per_second: the maximum rate at which a partition can be read.
    :param is_shared: whether all readers of a partition share that limit.
    :param written_bytes_per_second: the maximum rate at which a partition can be written.
    :param reads_per_second: the maximum number of requests that a job sends to a partition; 0 if data is pushed to it.
    """

    partitions: int | None = None
    retention: timedelta | None = None
    read_bytes_per_second: float | None = None
    is_shared: bool = False
    written_bytes_per_second: float | None = None
    reads_per_second: float | None = None
