"""How often the data of a source is read: once, or again after an interval."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

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
