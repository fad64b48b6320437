"""Settings are checked before a scan, and each error names the field, the value and the remedy."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.s3.format_settings import FormatSettings
from airflow_provider_coordination.sources.s3.settings import ProcessingCondition, S3Settings

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_settings_survive_json() -> None:
    settings = S3Settings(
        paths=("s3://bucket/in/", "/data/in"),
        format=FormatSettings(name="csv", delimiter=";"),
        include=("*.csv",),
        start_time=NOON,
        condition=ProcessingCondition(object_name="_SUCCESS"),
        aws=AwsSettings(region="eu-west-1", access_key_id="a", secret_access_key="b"),
    )
    assert S3Settings.from_mapping(json.loads(json.dumps(settings.to_mapping()))) == settings
    assert "secret_access_key" not in repr(settings)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"paths": []}, "'paths' must name at least one path; got "),
        ({"paths": ["s3://bucket/a", "s3://bucket/a"]}, "'paths' must name each path once"),
        (
            {"paths": ["in/folder"]},
            "'paths' must be a URI such as s3://bucket/prefix, or an absolute path; got 'in/folder'",
        ),
        ({"paths": ["s3://b!/x"]}, "'paths' must name a bucket, such as s3://bucket/prefix; got 's3://b!/x'"),
        ({"paths": ["s3:///x"]}, "'paths' must name a bucket"),
        ({"paths": ["s3://bucket/in/*.json"]}, "'paths' must not contain a glob; give the folder before it"),
        ({"paths": ["/in/{a,b}/"]}, "the glob as 'include', such as '*.json'; got '/in/{a,b}/'"),
        ({"include": ["[a"]}, "'include': glob '[a' has a '[' without its ']'"),
        ({"exclude": [""]}, "'exclude': an empty glob matches nothing; remove it"),
        ({"exclude_suffixes": [""]}, "'exclude_suffixes' must not contain an empty text"),
        ({"start_time": "noon"}, "'start_time' must be an instant such as 2026-01-31T00:00:00.000000Z"),
        (
            {"start_time": "2026-01-02T00:00:00.000000Z", "end_time": "2026-01-01T00:00:00.000000Z"},
            "'start_time' must be before end_time, 2026-01-01T00:00:00+00:00; got '2026-01-02T00:00:00+00:00'",
        ),
        (
            {"start_time": "2026-01-01T00:00:00.000000Z", "end_time": "2026-01-01T00:00:00.000000Z"},
            "'start_time' must be before end_time",
        ),
        ({"range_seconds": 0.0}, "'range_seconds' must be positive, and at most a hundred years; got 0.0"),
        ({"range_seconds": float("nan")}, "'range_seconds' must be positive"),
        (
            {"range_seconds": 60, "end_time": "2026-01-01T00:00:00.000000Z"},
            "'range_seconds' must not be given together with start_time or end_time",
        ),
        ({"interval_seconds": -1}, "'interval_seconds' must be positive, and at most a year; got -1.0"),
        (
            {"forget_after_seconds": 3600.0},
            "'forget_after_seconds' must be at least a day, and at most a hundred years",
        ),
        (
            {"forget_after_seconds": 1e6, "end_time": "2026-01-01T00:00:00.000000Z"},
            "'forget_after_seconds' must not be given together with start_time or end_time",
        ),
        (
            {"forget_after_seconds": 1e6, "paths": ["/data/in"]},
            "'forget_after_seconds' must be left out: '/data/in' is not in S3",
        ),
        ({"count": 0}, "'count' must be at least 1, which scans once"),
        ({"folder_depth": 0}, "'folder_depth' must be at least 1; got 0"),
        ({"max_objects": 0}, "'max_objects' must be at least 1; got 0"),
        ({"max_bytes": 0}, "'max_bytes' must be at least 1; got 0"),
        ({"condition": {"object_name": "a/b"}}, "'condition.object_name' must be the name of an object, without its"),
        ({"condition": {"object_name": "a", "retry_seconds": 0}}, "'condition.retry_seconds' must be positive"),
        ({"condition": {"object_name": "a", "max_retries": -1}}, "'condition.max_retries' must be from 0 to 1000"),
        ({"format": {"name": "avro"}}, "'format.name' must be one of"),
        ({"bucket": "b"}, "unknown field 'bucket'; the known fields are paths,"),
        ({"max_objects": "many"}, "'max_objects' must be a whole number; got 'many'"),
    ],
)
def test_invalid_settings_are_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        S3Settings.from_mapping({"paths": ["s3://bucket/in/"], **wrong})
    assert said in str(raised.value)


def test_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'end_time' must have a time zone"):
        S3Settings(paths=("/data",), end_time=datetime(2026, 1, 1)).check()


@pytest.mark.parametrize("path", ["s3://bucket", "s3a://my.bucket-1/in", "/data/in", "file:///data", "hdfs://h:8020/x"])
def test_paths_of_s3_and_other_filesystems_are_accepted(path: str) -> None:
    S3Settings(paths=(path,)).check()


def test_range_is_a_duration() -> None:
    assert S3Settings(paths=("/data",), range_seconds=60.0).range == timedelta(minutes=1)
