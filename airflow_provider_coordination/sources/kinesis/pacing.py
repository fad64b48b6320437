"""Reading no more of a shard than Kinesis allows, and waiting between attempts where it refuses.

A shard gives five reads and 2 MiB a second, to all that poll it together. One page may hold up to 10 MiB; it uses up
the budget of the next five seconds.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_coordination.coordination.clock import Clock, SystemClock

READ_INTERVAL_SECONDS = 0.25
"""The least time between two reads of a shard. Kinesis allows five a second; four leave room for a network that lets
the calls arrive closer together than they were sent."""
READ_BYTES_PER_SECOND = 2 * 1024 * 1024
OWN_READS_FADE_SECONDS = 5.0
"""For this time a page that was read before, by a former owner of the shard or in the last round, may still count."""
LONGEST_PAUSE_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to go on trying, and with which clock.

    :param until: a reading of the monotonic clock at which trying ends; None is when `attempts` are used up.
    :param attempts: how often a call that fails in passing is made, the first time included.
    :param clock: measures.
    :param sleep: waits that many seconds.
    :param jitter: returns a number from 0 to 1, to spread those who wait for the same thing.
    """

    until: float | None = None
    attempts: int = 10
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def pause(self, failures: int, *, longest: float = LONGEST_PAUSE_SECONDS) -> bool:
        """Wait after the nth failure in a row, longer each time, and half of it random; return whether time was left.

        :param failures: how many there were.
        :param longest: how many seconds to wait at most.
        """
        whole = min(longest, FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10))
        seconds = whole * (1 + self.jitter()) / 2
        if self.is_over(after=seconds):
            return False
        self.sleep(seconds)
        return True

    def is_over(self, *, after: float = 0.0) -> bool:
        """Return whether the time is over once this many seconds have passed."""
        return self.until is not None and self.clock.monotonic() + after >= self.until


Taken = tuple[tuple[float, int], ...]
"""What was read of a shard: until when each part counts, by some clock in seconds, and its size in bytes."""


def moved(taken: Taken, seconds: float) -> Taken:
    """Return what counts longer than until 0 once this many seconds are added: from one clock to another."""
    return tuple((until + seconds, size) for until, size in taken if until + seconds > 0)


class Pace:
    """Keeps the reads of one shard within what Kinesis allows; for one reader.

    :param patience: its clock is used.
    :param interval_seconds: the least time between two reads.
    :param bytes_per_second: how much may be read.
    :param taken: what was read of the shard before, by another reader; counts from now on.
    """

    def __init__(
        self,
        patience: Patience,
        interval_seconds: float = READ_INTERVAL_SECONDS,
        bytes_per_second: int = READ_BYTES_PER_SECOND,
        taken: Taken = (),
    ) -> None:
        self._clock = patience.clock
        self._sleep = patience.sleep
        self._interval_seconds = interval_seconds
        self._bytes_per_second = bytes_per_second
        self._since = self._clock.monotonic()
        self._last: float | None = None
        self._taken = deque(moved(taken, self._since))

    def wait(self) -> None:
        """Wait until the next read is due."""
        due_in = self.due_in()
        if due_in > 0:
            self._sleep(due_in)
        self._last = self._clock.monotonic()

    def due_in(self) -> float:
        """Return in how many seconds the next read is due; 0 or less is now."""
        now = self._clock.monotonic()
        due = now if self._last is None else self._last + self._interval_seconds
        left = sum(size for until, size in self._taken if until > now)
        for until, size in sorted(self._taken):
            if left < self._bytes_per_second:
                break
            if until > now:
                left -= size
                due = max(due, until)
        return due - now

    @property
    def taken(self) -> Taken:
        """What was read, for who goes on in this reader's place."""
        return tuple(self._taken)

    def took(self, size: int) -> None:
        """Note what the last read gave: it counts for a second, and more than a second may give counts longer."""
        now = self._clock.monotonic()
        while self._taken and self._taken[0][0] <= now:
            self._taken.popleft()
        if size:
            seconds = max(1.0, size / self._bytes_per_second)
            self._taken.append((now + seconds, size))

    @property
    def accounts_for_everything(self) -> bool:
        """Whether what was read before can be no reason any more for a refusal, so that only others can be."""
        return self._clock.monotonic() - self._since >= OWN_READS_FADE_SECONDS
