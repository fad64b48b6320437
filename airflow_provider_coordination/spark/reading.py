"""The seam between a job's rounds and the kind of source that it reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.spark.work import Work


@dataclass(frozen=True, kw_only=True)
class RoundRead:
    """What one round read, for the log and the metrics.

    :param bytes: payload bytes of what was landed.
    :param behind_ms: how far each partition is behind its source, in milliseconds; None where nobody says.
    :param filtered: records that were left out because they belong to another partition.
    :param throttled: reads that the source refused because there were too many.
    """

    bytes: int = 0
    behind_ms: Mapping[str, int | None] = field(default_factory=dict)
    filtered: int = 0
    throttled: int = 0


class Reading(Protocol):
    """What a job's rounds leave to the kind of source: which partitions may be read, and landing them."""

    @property
    def at_stop(self) -> Collection[str]:
        """The partitions of which everything up to the job's `stop_at` is landed."""
        ...

    @property
    def expects_more(self) -> bool:
        """Whether there will soon be something to acquire, though nothing is there now."""
        ...

    def look_after(self) -> None:
        """Look after the source, before leases are acquired; forget what is not at work any more."""
        ...

    def may_begin(self, partition: Partition) -> bool:
        """Tell whether a partition that was acquired can be worked on; otherwise it has been given back.

        :raises SourceError: if it cannot, and that is an error.
        """
        ...

    def land(self) -> Sequence[Any]:
        """Read what may be read of the partitions at work, and land it; return a row for each."""
        ...

    def record(self, rows: Sequence[Any]) -> RoundRead:
        """Record what was landed, or give back what could not be read."""
        ...

    def end_round(self) -> None:
        """Do what has to wait until everything that is landed is delivered."""
        ...

    def finish(self) -> None:
        """Write down what is known of the partitions at work, before they are given back."""
        ...


MakeReading = Callable[[Work], Reading]
