"""The JSON Schema of the manual is generated from the classes that read specs, and agrees with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_schema import json_schema
from tests.supervisor.specs import SPEC, spec_with, spec_without

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "spec.schema.json"


def test_published_schema_matches_the_classes() -> None:
    """If it is not: `airflow-coordination spec schema > docs/spec.schema.json`."""
    assert json.loads(PUBLISHED.read_text()) == json_schema()


def test_schema_is_valid() -> None:
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("values", [SPEC, IngestionSpec.read(SPEC).to_mapping(), IngestionSpec.read(SPEC).effective()])
def test_spec_fits_the_schema(values: Any) -> None:
    Draft202012Validator(json_schema()).validate(values)


@pytest.mark.parametrize(
    "values",
    [
        spec_with("task_count", 2),
        spec_with("supervise.taskCount", 2),
        spec_with("supervise.task_count", "2"),
        spec_with("supervise.task_count", 0),
        spec_with("supervise.auto_scale", {"task_count_min": 1, "task_count_max": 2, "lag_aggregate": "most"}),
        spec_with("supervise.auto_scale", {"task_count_min": 1, "task_count_max": 2, "trigger_scale_in_fraction": 2}),
        spec_with("leases.balance_by", "size"),
        spec_with("tuning.spark.deploy_mode", "cloud"),
        spec_with("tuning.spark.executor_memory", "2"),
        spec_with("supervise.task_duration", "1h"),
        spec_with("supervise.task_duration", "P1M"),
        spec_with("supervise.auto_scale", {"task_count_min": 1}),
        spec_with("reads", {"kafka": {}}),
        spec_with("reads", {"kinesis": {"streams": "a"}, "s3": {"paths": "s3://bucket"}}),
        spec_with("reads.kinesis.source", "clicks"),
        spec_with("reads.kinesis.filter_by_hash_range", "true"),
        spec_with("writes", []),
        spec_with("rounds.until_caught_up", True),
        spec_with("tuning.spark.executor_memory", 2),
        spec_with("version", 2),
        spec_without("version"),
        spec_without("reads"),
        spec_with(
            "supervise",
            {
                "event_time": "at",
                "late_message_rejection_period": "PT1H",
                "late_message_rejection_start": "2026-01-01T00:00:00Z",
            },
        ),
    ],
    ids=range(23),
)
def test_refused_spec_does_not_fit_the_schema(values: Any) -> None:
    assert not Draft202012Validator(json_schema()).is_valid(values)
    with pytest.raises(ConfigurationError):
        IngestionSpec.read(values)
