"""When a shard may be read again: the rate of its reads, what it may return in a second, and waits after errors.

A shard allows five reads and 2 MiB a second, for all pollers together. A reader keeps to its own rate of reads, which
leaves the others to other pollers. One page may hold up to 10 MiB; it uses up the budget of the next five seconds.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_coordination.coordination.clock import Clock, SystemClock

READS_PER_SECOND = 4.0
"""How often a shard is read by default. Kinesis allows five reads a second, for all pollers together. Four leave a
margin, since calls may arrive closer together than they were sent."""
MAX_READS_PER_SECOND = 5.0
MIN_READS_PER_SECOND = 0.1
"""A job waits for the next read of a shard, so that its rounds take at least as long."""
CAUGHT_UP_INTERVALS = 2
"""A shard that is caught up is read half as often: most of these reads return nothing, and other pollers need them."""
MAX_RECORDS_PER_READ = 10_000
"""The maximum number of records that Kinesis returns for one read."""
READ_BYTES_PER_SECOND = 2 * 1024 * 1024
OWN_READS_FADE_SECONDS = 5.0
"""For this time, pages that a previous owner of the shard or the last round read may still count against the limit."""
LONGEST_PAUSE_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.25

RecentReads = tuple[tuple[float, int], ...]
"""The recent reads of a shard: for each, until when it counts, in seconds of some clock, and its size in bytes.

The one of size 0 counts until the next read is due.
"""


def shifted(recent_reads: RecentReads, seconds: float) -> RecentReads:
    """Shift reads from one clock to another by this many seconds; reads that no longer count after 0 are left out."""
    return tuple((until + seconds, size) for until, size in recent_reads if until + seconds > 0)


@dataclass(frozen=True, kw_only=True)
class RetryBudget:
    """How long to retry, and with which clock.

    :param until: the time of the monotonic clock at which retries end; None to end when `attempts` are used up.
    :param attempts: how often a call with a temporary error is made, including the first time.
    :param clock: measures the time.
    :param sleep: waits that many seconds.
    :param jitter: returns a number from 0 to 1, to spread workers that wait for the same resource.
    """

    until: float | None = None
    attempts: int = 10
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def pause(self, failures: int, *, longest: float = LONGEST_PAUSE_SECONDS) -> bool:
        """Wait after the nth failure in a row; return whether time was left. Waits grow, and half of each is random.

        :param failures: the number of failures in a row.
        :param longest: the longest wait, in seconds.
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


class Pace:
    """Keeps the reads of one shard within a rate, and within what Kinesis allows; for one reader.

    :param retry: provides the clock.
    :param reads_per_second: how often the shard may be read; half as often while it is caught up.
    :param bytes_per_second: how much may be read.
    :param recent_reads: the reads of an earlier reader of the shard, relative to now.
    """

    def __init__(
        self,
        retry: RetryBudget,
        reads_per_second: float = READS_PER_SECOND,
        bytes_per_second: int = READ_BYTES_PER_SECOND,
        recent_reads: RecentReads = (),
    ) -> None:
        self._clock = retry.clock
        self._sleep = retry.sleep
        self._interval_seconds = 1 / reads_per_second
        self._bytes_per_second = bytes_per_second
        self._since = self._clock.monotonic()
        earlier = shifted(recent_reads, self._since)
        self._due_at = max((until for until, size in earlier if not size), default=self._since)
        self._recent_reads = deque(read for read in earlier if read[1])

    def wait(self) -> None:
        """Wait until the next read is due."""
        due_in = self.due_in()
        if due_in > 0:
            self._sleep(due_in)
        self._due_at = self._clock.monotonic() + self._interval_seconds

    def due_in(self) -> float:
        """Return in how many seconds the next read is due; 0 or less is now."""
        now = self._clock.monotonic()
        due = self._due_at
        left = sum(size for until, size in self._recent_reads if until > now)
        for until, size in sorted(self._recent_reads):
            if left < self._bytes_per_second:
                break
            if until > now:
                left -= size
                due = max(due, until)
        return due - now

    @property
    def recent_reads(self) -> RecentReads:
        """The recent reads, for the next reader of the shard."""
        return (*self._recent_reads, (self._due_at, 0))

    def took(self, size: int, *, is_caught_up: bool = False) -> None:
        """Record the size of the last read. It counts for a second, or longer if it exceeds the budget of a second.

        :param is_caught_up: whether the read returned the newest record, or found none.
        """
        now = self._clock.monotonic()
        if is_caught_up:
            self._due_at += (CAUGHT_UP_INTERVALS - 1) * self._interval_seconds
        while self._recent_reads and self._recent_reads[0][0] <= now:
            self._recent_reads.popleft()
        if size:
            seconds = max(1.0, size / self._bytes_per_second)
            self._recent_reads.append((now + seconds, size))

    @property
    def accounts_for_everything(self) -> bool:
        """Whether earlier reads can no longer cause throttling, so that only other readers can."""
        return self._clock.monotonic() - self._since >= OWN_READS_FADE_SECONDS
