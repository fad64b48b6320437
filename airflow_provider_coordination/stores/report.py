"""What a store says of itself to whoever checks an installation."""

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
    """How a store answered.

    :param name: which store, without a password.
    :param round_trip: the shortest time that a question took.
    :param server_time: the server's clock (aware), when it answered; None if it did not say.
    :param here: the time here in that moment.
    :param imprecision: how much more or less than `server_time` the server's clock may have shown.
    :param schema: the version of the schema that it has; 0 if there is no table yet.
    :param newest_schema: the version that this package makes.
    """

    name: str
    round_trip: timedelta
    server_time: datetime | None
    here: datetime
    imprecision: timedelta = timedelta()
    schema: int
    newest_schema: int

    @property
    def clock_difference(self) -> timedelta | None:
        """By how much the server's clock is ahead of the one here, at least; negative if it is behind."""
        if self.server_time is None:
            return None
        difference = self.server_time - self.here
        least = max(abs(difference) - self.imprecision, timedelta())
        return least if difference > timedelta() else -least


@runtime_checkable
class Reporting(Protocol):
    """A store that says how it stands."""

    def report(self, now: Callable[[], datetime]) -> StoreReport:
        """Ask the store; create and change nothing.

        :param now: the clock here.
        :raises ConfigurationError: if only a person can put right what is wrong.
        :raises StoreUnavailableError: if it does not answer.
        """

    def permissions(self) -> tuple[AwsSettings, Sequence[Permission]] | None:
        """Return the permissions of AWS that it needs, and with which settings; None if it is not in AWS."""


def timed(ask: Callable[[], T], now: Callable[[], datetime]) -> tuple[T, datetime, timedelta]:
    """Ask a few times; return the quickest answer, the time here in the middle of it, and how long it took."""
    ask()  # the first one connects
    tries = []
    for _ in range(ROUND_TRIPS):
        before = now()
        answer = ask()
        tries.append((now() - before, before, answer))
    took, before, answer = min(tries, key=lambda each: each[0])
    return answer, before + took / 2, took
