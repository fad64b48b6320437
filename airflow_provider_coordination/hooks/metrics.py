"""Metrics through Airflow's own stats: StatsD, DogStatsD or OpenTelemetry, as Airflow is configured.

Airflow adds its prefix to each name, so `coordination.partitions_created` arrives as
`airflow.coordination.partitions_created`. If no metrics are configured, nothing is sent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from airflow.sdk.observability.stats import Stats

log = logging.getLogger(__name__)

NOT_IN_A_TAG = re.compile(r"[^a-zA-Z0-9_.-]")


class AirflowMetrics:
    """Reports metrics to Airflow's stats; an implementation of `Metrics`.

    Characters in a tag's value that are special in StatsD's formats become `_`; Airflow would drop the whole metric.
    """

    def __init__(self) -> None:
        self._has_failed = False

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        """Add to a counter."""
        try:
            Stats.incr(str(name), count=by, tags=_sendable(tags))
        except Exception as error:
            self._log_once(error)

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Set a gauge."""
        try:
            Stats.gauge(str(name), value, tags=_sendable(tags))
        except Exception as error:
            self._log_once(error)

    def _log_once(self, error: Exception) -> None:
        """Log the first failure only: the work continues, and a backend that cannot be set up fails at every call."""
        if not self._has_failed:
            self._has_failed = True
            log.warning("Airflow's stats failed; this task reports no metrics: %s: %s", type(error).__name__, error)


def _sendable(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: NOT_IN_A_TAG.sub("_", value) for name, value in tags.items()}
