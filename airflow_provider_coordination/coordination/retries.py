"""Decides what happens to a failed partition: retried at once, closed for a growing time, or parked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition
from airflow_provider_coordination.coordination.texts import storable


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often a failing partition is retried, and how long it waits in between.

    Failures are counted in a row; progress of the partition resets the count. With the defaults, a partition that keeps
    failing is parked after 27 attempts over three hours.

    :param max_attempts: the number of failures in a row after which the partition is closed for a time; it is closed
        again after every further `max_attempts` failures.
    :param first_delay: how long it stays closed the first time; the time doubles with each closing.
    :param max_delay: the longest time that it stays closed.
    :param max_closed_count: the number of closings in a row after which it is parked, so that only a user reopens it.
    :raises ConfigurationError: if a value is not valid.
    """

    max_attempts: int = 3
    first_delay: timedelta = timedelta(minutes=1)
    max_delay: timedelta = timedelta(hours=1)
    max_closed_count: int = 8

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ConfigurationError(f"retry policy: max_attempts must be at least 1; got {self.max_attempts!r}")
        if self.max_closed_count < 0:
            raise ConfigurationError(
                f"retry policy: max_closed_count must not be negative; got {self.max_closed_count!r}"
            )
        if not timedelta(0) < self.first_delay <= self.max_delay:
            raise ConfigurationError(
                "retry policy: first_delay must be positive and not above max_delay; got "
                f"{self.first_delay.total_seconds():g} s and {self.max_delay.total_seconds():g} s"
            )

    def delay_after(self, attempts: int) -> timedelta | None:
        """Return how long a partition waits after this number of failures in a row; zero for no wait, None forever.

        :param attempts: at least 1.
        """
        closings, more = divmod(attempts, self.max_attempts)
        if more:
            return timedelta(0)
        if closings > self.max_closed_count:
            return None
        return min(self.first_delay * (1 << min(closings - 1, 20)), self.max_delay)

    def failed(self, partition: Partition, error: str, now: datetime) -> Partition:
        """Return a partition with one more failure: available at once, closed for a time, or parked.

        :param error: the reason, which is stored with the partition.
        :param now: the present time (aware).
        """
        counted = partition.failed(storable(error))
        delay = self.delay_after(counted.attempts)
        if delay == timedelta(0):
            return counted.given_up(now)
        return counted.resting(PARKED_UNTIL if delay is None else now + delay)


def parked(partition: Partition, reason: str) -> Partition:
    """Return a partition that is parked until a user, or the code that parked it, reopens it.

    :param reason: the reason, which is stored as its last error.
    """
    return partition.failed(storable(reason)).resting(PARKED_UNTIL)


DEFAULT_RETRY_POLICY = RetryPolicy()
