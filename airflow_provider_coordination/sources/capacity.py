"""What a source gives to those who read it, and how long: what a plan of an ingestion reckons with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What a source gives. None is unknown, or without a limit.

    :param partitions: how many partitions take data at present.
    :param retention: how long it keeps its data.
    :param read_bytes_per_second: what a partition gives to a reader at most.
    :param is_shared: whether all readers of a partition share that.
    :param written_bytes_per_second: what a partition takes at most.
    :param reads_per_second: how often a job asks a partition at most; 0 if it is sent its data.
    """

    partitions: int | None = None
    retention: timedelta | None = None
    read_bytes_per_second: float | None = None
    is_shared: bool = False
    written_bytes_per_second: float | None = None
    reads_per_second: float | None = None
