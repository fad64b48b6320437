"""When a job ends: because of the results of its rounds, or because it is requested to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.spark.job_settings import RoundSettings

STOPPED = "it was stopped"
"""Why a job ended that was stopped from outside."""
POLL_SECONDS = 1.0
"""How often a pausing job checks whether it is needed for another reason than a stop."""
SUSPENSION_POLL_SECONDS = 5.0
"""How often a pausing job checks whether its source is suspended."""


def suspension_reason(suspension: Suspension) -> str:
    """Return the reason why a job of a suspended source ends."""
    return f"the source is {suspension}"


@dataclass(frozen=True)
class StopConditions:
    """The conditions that end a job; the first one that holds ends it.

    :param rounds: whether to stop once everything that arrived before the start is delivered (ignored with `stop_at` or
        bounds), how long after the start, and after how many consecutive rounds without a record.
    :param stop_at: stop once everything that arrived before this instant (aware) is delivered; nothing later is read.
    :param is_bounded: whether every partition comes to an end; the job then works until no partition is left for it.
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
        """Return why the job should end now; None if it should continue.

        :param started_at: when the job started.
        :param running_seconds: how long it has been running.
        :param idle_rounds: the number of consecutive rounds without a record.
        :param acquired: whether the last round acquired a partition, or created one by finishing its parent.
        :param read_until: for each partition at work, up to when everything that arrived is delivered; None if unknown.
        :param at_stop: the number of these that have delivered everything that arrived before `stop_at`.
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


class EndRequests:
    """The requests to end a job: it is stopped from outside, or its source is suspended.

    :param stop: set from outside to end the job after the present step.
    :param view: the view of the source.
    """

    def __init__(self, stop: threading.Event, view: SourceView) -> None:
        self._stop = stop
        self._view = view
        self._final = ""

    def suspension_reason(self) -> str:
        """Return why the job ends if its source is suspended, as of some seconds ago; empty if it is not suspended.

        :raises StoreUnavailableError: if the store is unavailable.
        """
        suspension = self._view.suspension()
        return "" if suspension is None else suspension_reason(suspension)

    @property
    def reason(self) -> str:
        """Why the job should start nothing more, without a request to the store; empty if it may continue."""
        if self._final:
            return self._final
        if self._stop.is_set():
            return STOPPED
        suspension = self._view.suspensions.known
        return "" if suspension is None else suspension_reason(suspension)

    @property
    def is_final(self) -> bool:
        """Whether the job began to end, whatever is requested now."""
        return bool(self._final)

    def end(self, reason: str) -> None:
        """Note that the job begins to end for a reason."""
        self._final = reason

    def pause(self, duration: timedelta, *, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait; return early if the job should end.

        :param is_over: returns, without a request to the store, whether to return early for another reason.
        """
        left = duration.total_seconds()
        waited = 0.0
        while left > 0 and not self._stop.wait(step := min(left, POLL_SECONDS)):
            if is_over():
                return
            left -= step
            waited += step
            if left > 0 and waited >= SUSPENSION_POLL_SECONDS:
                waited = 0.0
                with suppress(StoreUnavailableError):  # the next round handles the outage
                    self._view.suspensions.get()
                if self.reason:
                    return
