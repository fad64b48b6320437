"""How often the data of a source is read: once, or again after an interval."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import Described, Limits

Interval = Annotated[timedelta | None, Limits(above=timedelta(0))]
Count = Annotated[int | None, Limits(minimum=1)]


class Reread(Described):
    """A source that may be read again.

    :param interval: how long after its delivery a partition is read again; None for never.
    :param count: how often it is read in total; None for no limit. Only with `interval`.
    """

    interval: Interval
    count: Count

    @property
    def reread_seconds(self) -> float | None:
        """How many seconds after its delivery a partition is read again; None for never."""
        return None if self.interval is None else self.interval.total_seconds()

    @property
    def reads_left(self) -> int | None:
        """How often each partition is read after the first time; None for no limit."""
        return None if self.count is None else self.count - 1

    def check_together(self) -> None:
        """See `Described.check_together`."""
        if self.count is not None and self.count > 1 and self.interval is None:
            raise self.invalid("count", "needs 'interval', the time until the next read")


def check_rereading(what: str, interval_seconds: float | None, count: int | None) -> None:
    """Check how often something is read.

    :param what: the owner of the settings, for the error.
    :param interval_seconds: how long after its delivery it is read again; None for never.
    :param count: how often it is read in total; None for no limit.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if interval_seconds is not None and interval_seconds <= 0:
        raise ConfigurationError(f"{what}: field 'interval' must be positive; got {interval_seconds!r} seconds")
    if count is not None and count < 1:
        raise ConfigurationError(f"{what}: field 'count' must be at least 1; got {count!r}")
    if count is not None and count > 1 and interval_seconds is None:
        raise ConfigurationError(f"{what}: field 'count' needs 'interval', the time until the next read; got {count!r}")
