"""When a job ends. Pure decisions over what the rounds saw."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.spark.job_settings import RoundSettings

STOPPED = "it was told to stop"
"""Why a job ended that was stopped from outside."""


def because_of(suspension: Suspension) -> str:
    """Return why a job ends whose source is suspended."""
    return f"the source is {suspension}"


@dataclass(frozen=True)
class StopConditions:
    """What ends a job; the first that holds does.

    :param rounds: says whether to stop once everything that arrived before the start is delivered, which is of no
        meaning with `stop_at` or bounds, how long after the start, and after how many rounds in a row without a record.
    :param stop_at: everything that arrived before this instant (aware) is delivered, and nothing else is.
    :param is_bounded: every partition comes to an end, and the job works until none is left to it.
    """

    rounds: RoundSettings
    stop_at: datetime | None = None
    is_bounded: bool = False

    def reason(
        self,
        *,
        started_at: datetime,
        running_seconds: float,
        idle_rounds: int,
        acquired: bool,
        read_until: Collection[datetime | None],
        at_stop: int = 0,
    ) -> str | None:
        """Return why the job should end now, or None.

        :param started_at: when it started.
        :param running_seconds: how long it runs.
        :param idle_rounds: how many rounds in a row gave no record.
        :param acquired: whether the last round acquired a partition, or created one by finishing its parent.
        :param read_until: for each partition at work, up to when everything that arrived is delivered; None if unknown.
        :param at_stop: how many of these have delivered everything that arrived before `stop_at`.
        """
        rounds = self.rounds
        if rounds.max_duration is not None and running_seconds >= rounds.max_duration.total_seconds():
            return f"it ran for {running_seconds:.0f} s"
        if rounds.max_idle_rounds is not None and idle_rounds >= rounds.max_idle_rounds:
            return f"{idle_rounds} rounds in a row had no record"
        if acquired:
            return None
        if (rounds.until_caught_up or self.stop_at or self.is_bounded) and not read_until:
            return "no partition is available"
        if self.is_bounded:
            return None
        if self.stop_at is not None:
            stop = f"{self.stop_at:%Y-%m-%dT%H:%M:%SZ}"
            return f"everything that arrived before {stop} is delivered" if at_stop >= len(read_until) else None
        if rounds.until_caught_up and all(until and until >= started_at for until in read_until):
            return "everything that was there at the start is delivered"
        return None
