"""How fresh the data of a sink is: how old records are when they become visible there, as distributions that add up."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

FRESHNESS_WINDOW = timedelta(minutes=15)
"""How far back freshness is measured."""
SMALLEST_SECONDS = 0.1
STEPS_PER_DOUBLING = 4
"""The end of a bucket is 1.19 times the end of the previous one."""
MAX_BUCKET = 120
"""Ends after three years, longer than any source keeps a record."""
SLICE_SECONDS = 60.0


def bucket_end(bucket: int) -> float:
    """Return the largest age in a bucket, in seconds."""
    return SMALLEST_SECONDS * math.exp2(bucket / STEPS_PER_DOUBLING)


def _bucket_of(seconds: float) -> int:
    if seconds <= SMALLEST_SECONDS:
        return 0
    return min(MAX_BUCKET, math.ceil(round(STEPS_PER_DOUBLING * math.log2(seconds / SMALLEST_SECONDS), 9)))


@dataclass(frozen=True)
class Ages:
    """The ages of records when they became visible.

    :param counts: the number of records in each bucket; buckets without records are left out.
    """

    counts: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def between(cls, youngest: float, oldest: float, records: int) -> Ages:
        """Return the ages of the records of a batch, spread evenly.

        :param youngest: the age of its last record in seconds; below 0, which differing clocks cause, it counts as 0.
        :param oldest: the age of its first record in seconds, which counts as at least the youngest.
        :param records: the number of records.
        """
        youngest = max(0.0, youngest)
        oldest = max(youngest, oldest)
        first, last = _bucket_of(youngest), _bucket_of(oldest)
        counts: dict[int, int] = {}
        before = 0
        for bucket in range(first, last):
            until = round(records * (bucket_end(bucket) - youngest) / (oldest - youngest))
            counts[bucket] = until - before
            before = until
        counts[last] = records - before
        return cls({bucket: count for bucket, count in counts.items() if count > 0})

    def __add__(self, other: Ages) -> Ages:
        """Return the ages of both."""
        return Ages.sum([self, other])

    @classmethod
    def sum(cls, every: Iterable[Ages]) -> Ages:
        """Return the ages of all."""
        total: Counter[int] = Counter()
        for each in every:
            total.update(each.counts)
        return cls(dict(sorted(total.items())))

    def quantile(self, share: float) -> float | None:
        """Return the age in seconds that this share of the records did not exceed; None without records.

        It is the end of a bucket, so it is at most a fifth too large.

        :param share: above 0, up to 1.
        """
        rank = math.ceil(share * sum(self.counts.values()))
        passed = 0
        for bucket, count in sorted(self.counts.items()):
            passed += count
            if passed >= rank:
                return round(bucket_end(bucket), 2)
        return None

    def to_list(self) -> list[int]:
        """Return it as a JSON list: each bucket, followed by its count."""
        return [number for pair in sorted(self.counts.items()) for number in pair]

    @classmethod
    def from_list(cls, stored: object) -> Ages:
        """Return it from a JSON list; without ages if that is unreadable."""
        numbers = stored if isinstance(stored, list) else []
        if not all(type(number) is int for number in numbers):
            return cls()
        pairs = zip(numbers[::2], numbers[1::2], strict=False)
        return cls({bucket: count for bucket, count in pairs if 0 <= bucket <= MAX_BUCKET and count > 0})


class RecentAges:
    """The ages of the records that became visible within `FRESHNESS_WINDOW`. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._slices: deque[tuple[int, Ages]] = deque(maxlen=int(FRESHNESS_WINDOW.total_seconds() / SLICE_SECONDS))

    def add(self, now: float, ages: Ages) -> None:
        """Add ages of records that became visible now.

        :param now: not before an earlier call's.
        """
        number = int(now // SLICE_SECONDS)
        if self._slices and self._slices[-1][0] == number:
            self._slices[-1] = (number, self._slices[-1][1] + ages)
        else:
            self._slices.append((number, ages))

    def ages(self, now: float) -> Ages:
        """Return the ages within the window before now, to the minute."""
        assert self._slices.maxlen is not None
        oldest = int(now // SLICE_SECONDS) - self._slices.maxlen
        return Ages.sum(ages for number, ages in self._slices if number > oldest)
