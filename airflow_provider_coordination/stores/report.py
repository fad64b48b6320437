"""The report of a store for a check of the installation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar, runtime_checkable

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.permissions import Permission

ROUND_TRIPS = 5

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class StoreReport:
    """The result of a check of a store.

    :param name: the name of the store, without a password.
    :param round_trip: the duration of the fastest request.
    :param server_time: the server's clock (aware) at its response; None if it has none.
    :param local_time: the local time at that moment.
    :param imprecision: how much the server's clock may have differed from `server_time`.
    :param schema: the version of the store's schema; 0 if there is no table yet.
    :param newest_schema: the newest version that this package knows.
    """

    name: str
    round_trip: timedelta
    server_time: datetime | None
    local_time: datetime
    imprecision: timedelta = timedelta()
    schema: int
    newest_schema: int

    @property
    def clock_difference(self) -> timedelta | None:
        """The minimum difference of the server's clock to the local one; negative if the server's clock is behind."""
        if self.server_time is None:
            return None
        difference = self.server_time - self.local_time
        minimum = max(abs(difference) - self.imprecision, timedelta())
        return minimum if difference > timedelta() else -minimum


@runtime_checkable
class ReportingStore(Protocol):
    """A store that can report its status."""

    def report(self, now: Callable[[], datetime]) -> StoreReport:
        """Return the report of the store; create and change nothing.

        :param now: returns the local time.
        :raises ConfigurationError: if only a user can fix the problem.
        :raises StoreUnavailableError: if it is unavailable.
        """

    def permissions(self) -> tuple[AwsSettings, Sequence[Permission]] | None:
        """Return the AWS settings and permissions that it needs; None if it is not in AWS."""


def measure_quickest(request: Callable[[], T], now: Callable[[], datetime]) -> tuple[T, datetime, timedelta]:
    """Make a request a few times; return the fastest response, the local time in its middle, and its duration."""
    request()  # the first one connects
    tries = []
    for _ in range(ROUND_TRIPS):
        before = now()
        response = request()
        tries.append((now() - before, before, response))
    took, before, response = min(tries, key=lambda each: each[0])
    return response, before + took / 2, took
