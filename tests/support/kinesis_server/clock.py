"""The two clocks of the server: one that a test advances, and the machine's."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from airflow_provider_coordination.coordination.clock import Clock, SystemClock


class ServerClock(Clock, Protocol):
    """A clock on which one can also wait."""

    def sleep(self, seconds: float) -> None:
        """Return when that many seconds have passed."""
        ...


class VirtualClock:
    """A clock that stands still; waiting on it moves it. May be shared by threads.

    :param start: where it begins (aware).
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._now = start
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock to another time, as an administrator does, or a time server."""
        with self._lock:
            self._now += timedelta(seconds=seconds)

    def sleep(self, seconds: float) -> None:
        """Let the time pass that somebody waits for."""
        self.advance(max(0.0, seconds))


class RealClock(SystemClock):
    """The machine's clock."""

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


def milliseconds(instant: datetime) -> int:
    """Return whole milliseconds since 1970, the precision of Kinesis."""
    return (instant - _EPOCH) // _MILLISECOND


def instant(since_1970_ms: int) -> datetime:
    """Return the instant this number of milliseconds after 1970 (aware, UTC)."""
    return _EPOCH + since_1970_ms * _MILLISECOND


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
