"""Time, injected, so that leases can be tested without waiting.

Two clocks are needed: the wall clock dates what is stored, and a monotonic clock tells an owner how long it may
still trust its lease, whatever happens to the wall clock.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """Return the present instant, in UTC and aware."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's clocks.

    The monotonic one goes on counting while the machine is suspended, where the system has such a clock:
    a laptop or a virtual machine that wakes up must not believe that its leases are still fresh.
    """

    def now(self) -> datetime:
        """Return the present instant of the wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since boot, suspended time included where the system can tell."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()
