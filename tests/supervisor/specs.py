"""Specs for tests."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

SPEC: Mapping[str, Any] = {
    "version": 1,
    "source": "clicks",
    "reads": {"kinesis": {"streams": "clicks", "aws_conn_id": None, "region_name": "eu-west-1"}},
    "writes": [{"parquet": {"path": "/data/lake/clicks"}}],
    "schema": "id STRING, at TIMESTAMP, amount DOUBLE",
    "transform": "my_project.transforms:clean",
    "bad_records": {"dead_letter_path": "/data/lake/_bad", "max_parse_exceptions": 100},
    "acknowledgments": {"by": "job", "timeout": "PT1H"},
    "leases": {"max_leases": 3},
    "rounds": {"round_duration": "PT5S"},
    "tuning": {
        "spark": {"conn_id": "spark_cluster", "conf": {"spark.ui.enabled": False}, "executor_memory": "2g"},
    },
    "supervise": {"task_count": 2, "task_duration": "PT2H", "period": 10},
    "context": {"description": "every click", "owner": "web"},
}
"""A spec with every section."""


def spec_with(path: str, value: Any) -> dict[str, Any]:
    """Return the spec with one value changed.

    :param path: its place, such as `supervise.task_count`.
    """
    changed = deepcopy(dict(SPEC))
    *above, name = path.split(".")
    place: Any = changed
    for each in above:
        place = place[int(each)] if isinstance(place, list) else place.setdefault(each, {})
    if isinstance(place, list):
        place[int(name)] = value
    else:
        place[name] = value
    return changed


def spec_without(path: str) -> dict[str, Any]:
    """Return the spec without one key."""
    changed = deepcopy(dict(SPEC))
    *above, name = path.split(".")
    place: Any = changed
    for each in above:
        place = place[int(each)] if isinstance(place, list) else place[each]
    del place[name]
    return changed
