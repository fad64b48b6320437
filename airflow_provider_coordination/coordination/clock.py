"""The source of time, which is injected so that leases can be tested without waiting.

Two clocks are needed. The wall clock dates stored values. The monotonic clock shows an owner how long it may still
trust its lease, whatever happens to the wall clock.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """Return the current time (aware, UTC)."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; never decreases."""
        ...


class SystemClock:
    """The machine's clocks.

    The monotonic clock keeps counting while the machine is suspended, if the system has such a clock: a laptop or a
    virtual machine that resumes must not trust its old leases.
    """

    def now(self) -> datetime:
        """Return the current time of the wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the seconds since boot, including suspended time if the system counts it."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()
