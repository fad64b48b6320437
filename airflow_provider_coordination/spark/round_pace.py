"""The pace of a job's rounds: how long each reads, so that its sinks are as fresh as the settings ask for.

A round delivers what the round before it landed, and lands at the same time. So a record waits for the landing that
reads it, at most one round, and then for the next round's delivery.

In a Spark application that jobs share, nobody may wait in a slot. A landing ends at the newest record, and the driver
waits for the rest of the round. A job that has more to read does not wait, but leaves its slots after a turn. Jobs that
are behind take turns (`shared_landings`), so their shares of the slots are as the lengths of their turns.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection, Mapping
from datetime import timedelta

from airflow_provider_coordination.spark.job_settings import RoundSettings

log = logging.getLogger(__name__)

RECENT_ROUNDS = 10
RESERVE = 1 / 3
"""The part of the time for a round that is kept for the landing's own work and for slower rounds."""
UNKNOWN_DELIVERY = 1 / 4
"""The part of the target that the first delivery is expected to take."""
TURN_SECONDS = 1.25
"""How long a landing reads in slots that other jobs wait for, if its job has the weight 1 and is little behind."""
FAR_BEHIND_SECONDS = 3600.0
"""A job that is so far behind, or further, has turns of twice that length."""
SHORTEST_SECONDS = 0.5
"""A round that is shorter mostly consists of requests to the store and of starting Spark's tasks."""


def paced_seconds(target: float, *, longest: float, shortest: float, delivering: float) -> float:
    """Return how long a round may be so that its records are still delivered in time.

    :param target: `RoundSettings.freshness`, in seconds.
    :param longest: `RoundSettings.round_duration`, in seconds.
    :param shortest: how short it can be, in seconds.
    :param delivering: how long its records take into the sinks once they are landed, in seconds.
    """
    return max(shortest, min(longest, (target - delivering) * (1 - RESERVE)))


class RoundPace:
    """The pace of one job. Without `RoundSettings.freshness`, rounds are as the other settings say.

    In a shared application, they take `round_duration` at most, and are no shorter while the job is caught up. Their
    landings are turns: as long as the job's weight and its lag are large.

    :param rounds: how the job makes its rounds.
    :param commit_interval: the shortest time between two commits that all sinks of the job bear.
    :param is_shared: whether the job shares its Spark application with others.
    """

    def __init__(self, rounds: RoundSettings, commit_interval: timedelta, *, is_shared: bool = False) -> None:
        self._is_shared = is_shared
        self._is_caught_up = False
        self._behind = math.inf
        self._weight = rounds.weight
        self._target = math.inf if rounds.freshness is None else rounds.freshness.total_seconds()
        self._longest = rounds.round_duration.total_seconds()
        self._idle = rounds.idle_duration
        self._commit_interval = commit_interval.total_seconds()
        self._deliveries: deque[float] = deque(maxlen=RECENT_ROUNDS)
        self._besides: deque[float] = deque(maxlen=RECENT_ROUNDS)
        self._landing = math.inf
        self.problem = ""
        """Why the sinks cannot be as fresh as the target, with the remedy; empty if they can, or there is no target."""

    def note(self, seconds: Mapping[str, float], *, is_caught_up: bool = False, behind: float = math.inf) -> None:
        """Note a round.

        :param seconds: the duration of its phases `acquire`, `land`, `record` and `deliver`; one that delivered nothing
            does not count for the length of rounds.
        :param is_caught_up: whether it read all partitions to the newest record.
        :param behind: the largest lag of a partition, in seconds; infinite if one is not known.
        """
        self._is_caught_up, self._behind = is_caught_up, behind
        if self._is_shared:
            self._landing = seconds["land"]
        if not seconds["deliver"]:
            return
        self._deliveries.append(seconds["deliver"])
        self._besides.append(seconds["acquire"] + seconds["record"])
        self._landing = seconds["land"]
        before, self.problem = self.problem, self._problem()
        if self.problem and not before:
            log.warning("freshness: %s", self.problem)
        elif before and not self.problem:
            log.info("freshness: the sinks can be as fresh as %g s again", self._target)

    def _problem(self) -> str:
        if self._shortest + self._delivering <= self._target:
            return ""
        return (
            f"the sinks cannot be as fresh as {self._target:g} s: a round takes at least {self._shortest:.1f} s, and "
            f"the delivery of its records {self._delivering:.1f} s; raise 'freshness', or make the commits faster"
        )

    @property
    def read_seconds(self) -> float:
        """How long a partition is read at most in the next round; infinite if only `round_duration` limits it."""
        if not self._is_shared:
            return self._round
        return min(self._longest, TURN_SECONDS * self._weight * (1 + min(1.0, self._behind / FAR_BEHIND_SECONDS)))

    @property
    def delay(self) -> timedelta:
        """How long a round that delivers waits before it lands.

        If the partitions are read to their end before the round is over, the landing starts later instead: it reads
        what arrived until then, in one commit.
        """
        is_early = self._is_caught_up if self._is_shared else self._target < math.inf
        return timedelta(seconds=max(0.0, self._round - self._landing) if is_early else 0.0)

    @property
    def idle_pause(self) -> timedelta:
        """How long the job waits after a round without a record."""
        if self._is_shared:
            return max(self.delay, min(self._idle, timedelta(seconds=self._round)))
        return self._idle if self._target == math.inf else min(self._idle, timedelta(seconds=self._round / 2))

    @property
    def _round(self) -> float:
        """How long a round may be, in seconds."""
        if self._target == math.inf:
            return self._longest if self._is_shared else math.inf
        delivering = self._delivering if self._deliveries else self._target * UNKNOWN_DELIVERY
        return paced_seconds(self._target, longest=self._longest, shortest=self._shortest, delivering=delivering)

    @property
    def _delivering(self) -> float:
        """How long records take into the sinks once they are landed."""
        return _usual_most(self._deliveries) + _usual_most(self._besides)

    @property
    def _shortest(self) -> float:
        """Shorter rounds make nothing fresher, since they wait for the delivery beside them, or for the next commit."""
        return max(SHORTEST_SECONDS, self._commit_interval, _usual_most(self._deliveries))


def _usual_most(seconds: Collection[float]) -> float:
    """Return the largest duration but for one exception, such as a first delivery, which takes many times as long."""
    return sorted(seconds)[-2:][0] if seconds else 0.0
