"""A job ends on its stop condition."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.stop_conditions import StopConditions

START = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE, AFTER = START - timedelta(seconds=1), START + timedelta(seconds=1)
AT_STOP = "everything that arrived before 2026-01-01T00:00:00Z is delivered"
CAUGHT_UP = "everything that was there at the start is delivered"


def reason(conditions: dict[str, Any], **seen: Any) -> str | None:
    stop_at = conditions.get("stop_at")
    rounds = {name: value for name, value in conditions.items() if name != "stop_at"}
    stop = StopConditions(RoundSettings(**{"until_caught_up": False, **rounds}), stop_at=stop_at)
    return stop.reason(
        started_at=START,
        **{"running_seconds": 5.0, "idle_rounds": 0, "acquired": False, "read_until": [AFTER], **seen},
    )


@pytest.mark.parametrize(
    ("conditions", "seen", "expected"),
    [
        ({}, {"idle_rounds": 1000, "running_seconds": 1e6}, None),
        ({"max_duration": timedelta(minutes=1)}, {"running_seconds": 59.9}, None),
        ({"max_duration": timedelta(minutes=1)}, {"running_seconds": 60.0}, "it ran for 60 s"),
        ({"max_idle_rounds": 3}, {"idle_rounds": 2}, None),
        ({"max_idle_rounds": 3}, {"idle_rounds": 3}, "3 rounds in a row had no record"),
        ({"until_caught_up": True}, {"read_until": [AFTER, START]}, CAUGHT_UP),
        ({"until_caught_up": True}, {"read_until": [AFTER, BEFORE]}, None),
        ({"until_caught_up": True}, {"read_until": [AFTER, None]}, None),
        ({"until_caught_up": True}, {"acquired": True}, None),
        ({"until_caught_up": True}, {"read_until": []}, "no partition is available"),
        ({"until_caught_up": True}, {"read_until": [], "acquired": True}, None),
        ({"stop_at": START, "until_caught_up": True}, {"read_until": [AFTER, AFTER], "at_stop": 1}, None),
        ({"stop_at": START}, {"read_until": [AFTER, None], "at_stop": 2}, AT_STOP),
        ({"stop_at": START}, {"read_until": [AFTER], "at_stop": 1, "acquired": True}, None),
        ({"stop_at": START}, {"read_until": []}, "no partition is available"),
    ],
)
def test_job_ends_on_a_stop_condition(conditions: dict[str, Any], seen: dict[str, Any], expected: str | None) -> None:
    assert reason(conditions, **seen) == expected
