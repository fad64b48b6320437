"""How long the unread records of a source take to be read, by what its slots carry. Pure functions.

The lag says how old the first unread record is, and not how many follow. Two points of the lag show both sides: the
jobs read as much of the source's time as passed, less what the lag grew, and the bytes that they delivered were its
records. So a second of lag is a number of bytes, and a slot carries a number of bytes a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from airflow_provider_coordination.supervisor.observation import LagPoint

STALLED = 0.25
"""Jobs that read less of the source's time than this fraction of the time that passes are taken for stalled."""


@dataclass(frozen=True, kw_only=True)
class ReadingPace:
    """What the jobs of a source carried over some time.

    :param bytes_of_second: the bytes of the records that arrived within a second.
    :param slot_bytes_per_second: the bytes that a slot carried per second.
    :param slots: the number of slots at the end.
    """

    bytes_of_second: float
    slot_bytes_per_second: float
    slots: int

    @classmethod
    def of(cls, points: Sequence[LagPoint]) -> ReadingPace | None:
        """Return the pace from the first to the last point.

        None if it is unknown: a job does not report its slots, or the points have the lag of other partitions. It is
        unknown too if the jobs are stalled: while a sink is unavailable, further jobs deliver no more.

        :param points: the points, the oldest first.
        """
        known = [
            (point, point.average_ms, point.slots)
            for point in points
            if point.average_ms is not None and point.slots and point.count == points[-1].count
        ]
        if len(known) < 2 or known[-1][0] is not points[-1]:
            return None
        (first, lag_before, _), (last, lag_after, slots) = known[0], known[-1]
        seconds = (last.at - first.at).total_seconds()
        read_seconds = seconds - (lag_after - lag_before) / 1000
        carried = last.counted.processed_bytes - first.counted.processed_bytes
        if carried <= 0 or read_seconds < STALLED * seconds:
            return None
        mean_slots = sum(each for _, _, each in known) / len(known)
        return cls(
            bytes_of_second=carried / read_seconds,
            slot_bytes_per_second=carried / seconds / mean_slots,
            slots=slots,
        )

    def reading_time(self, lag: timedelta, slots: int | None) -> timedelta:
        """Return how long the unread records of a lag take to be read, without those that arrive during that time.

        :param slots: the number of slots that read them; None for the present number.
        """
        return lag * (self.bytes_of_second / (self.slot_bytes_per_second * (slots or self.slots)))

    def __str__(self) -> str:
        """Return what a slot carries, as a part of a sentence."""
        return f"{self.slot_bytes_per_second / 1e6:.3g} MB/s a slot"
