"""Airflow's own stats as the place where counts go: StatsD, DogStatsD or OpenTelemetry, whichever Airflow is set to.

Airflow puts its prefix in front of each name, so `coordination.partitions_created` arrives as
`airflow.coordination.partitions_created`. Where no metrics are set up, nothing is sent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from airflow.sdk.observability.stats import Stats

log = logging.getLogger(__name__)

NOT_IN_A_TAG = re.compile(r"[^a-zA-Z0-9_.-]")


class AirflowMetrics:
    """Counts by Airflow's stats; an implementation of `Metrics`.

    Characters of a tag's value that StatsD's formats give a meaning to become `_`: Airflow would drop the whole metric.
    """

    def __init__(self) -> None:
        self._has_failed = False

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        """Count that something happened so many times."""
        try:
            Stats.incr(str(name), count=by, tags=_sendable(tags))
        except Exception as error:
            self._say_once(error)

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Note how much of something there is now."""
        try:
            Stats.gauge(str(name), value, tags=_sendable(tags))
        except Exception as error:
            self._say_once(error)

    def _say_once(self, error: Exception) -> None:
        """Whatever is wrong with the stats, the work goes on; a backend that cannot be set up fails at every call."""
        if not self._has_failed:
            self._has_failed = True
            log.warning("Airflow's stats failed, this task counts nothing: %s: %s", type(error).__name__, error)


def _sendable(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: NOT_IN_A_TAG.sub("_", value) for name, value in tags.items()}
