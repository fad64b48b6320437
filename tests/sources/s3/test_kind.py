"""What a user writes of objects is converted and checked, and each error names the field as the user wrote it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.s3.kind import S3Objects

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/events"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_objects_survive_json() -> None:
    objects = S3Objects(
        paths=("s3://bucket/in/", "/data/in"),
        format="csv",
        format_options={"delimiter": ";"},
        include=("*.csv",),
        start_time=NOON,
        wait_for="_SUCCESS",
        aws=AwsSettings(region="eu-west-1", access_key_id="a", secret_access_key="b"),
    )
    assert S3Objects.from_mapping(json.loads(json.dumps(objects.to_mapping()))) == objects
    assert "secret_access_key" not in repr(objects) and "aws" not in objects.template_fields


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"paths": []}, "'paths' must not be empty; got []"),
        ({"paths": [1]}, "'paths' must be text; got 1"),
        ({"paths": None}, "'paths' is missing"),
        ({"paths": ["s3://bucket/a", "s3://bucket/a"]}, "'paths' must name each value once"),
        (
            {"paths": ["in/folder"]},
            "'paths' must be a URI such as s3://bucket/prefix, or an absolute path; got 'in/folder'",
        ),
        ({"paths": ["s3://b!/x"]}, "'paths' must name a bucket, such as s3://bucket/prefix; got 's3://b!/x'"),
        ({"paths": ["s3:///x"]}, "'paths' must name a bucket"),
        ({"paths": ["s3://bucket/in/*.json"]}, "'paths' must not contain a glob; give the folder before it"),
        ({"paths": ["/in/{a,b}/"]}, "'paths' must not contain a glob"),
        ({"include": ["[a"]}, "'include' is wrong: glob '[a' has a '[' without its ']'"),
        ({"exclude": [""]}, "'exclude' is wrong: an empty glob matches nothing; remove it"),
        ({"exclude_suffixes": [""]}, "'exclude_suffixes' must not contain an empty text"),
        ({"hidden": "perhaps"}, "'hidden' must be true or false; got 'perhaps'"),
        (
            {"start_time": "noon"},
            "'start_time' must be an instant with a time zone, such as 2026-",
        ),
        ({"end_time": "2026-01-01"}, "'end_time' must have a time zone"),
        ({"end_time": datetime(2026, 1, 1)}, "'end_time' must have a time zone"),
        (
            {"start_time": "2026-01-02T00:00Z", "end_time": "2026-01-01T00:00Z"},
            "'start_time' must be before 'end_time', 2026-01-01T00:00:00+00:00; got '2026-01-02T00:00:00+00:00'",
        ),
        ({"start_time": NOON, "end_time": NOON}, "'start_time' must be before 'end_time'"),
        ({"queue": "events"}, "'queue' must be the URL of a queue, such as https://sqs."),
        ({"queue": f"{QUEUE}.fifo"}, "'queue' must be a standard queue: S3 does not announce objects in a FIFO queue"),
        ({"queue": QUEUE, "paths": ["s3://bucket/", "/data"]}, "'queue' must be left out: '/data' is not in S3"),
        ({"queue": QUEUE, "interval": 60}, "'interval' must be left out with 'queue', since it is about scans"),
        ({"queue": QUEUE, "count": 1}, "'count' must be left out with 'queue'"),
        ({"queue": QUEUE, "range": 60}, "'range' must be left out with 'queue'"),
        ({"queue": QUEUE, "delete_on_success": True}, "'delete_on_success' needs 'reconcile' with 'queue'"),
        ({"queue": QUEUE, "forget_after": "P2D"}, "'forget_after' needs 'reconcile' with 'queue'"),
        ({"queue": QUEUE, "acknowledge": "read"}, "'acknowledge' must be one of recorded, delivered; got 'read'"),
        ({"acknowledge": "delivered"}, "'acknowledge' needs 'queue', the URL of the queue that announces objects"),
        ({"reconcile": "P1D"}, "'reconcile' needs 'queue'"),
        ({"range": 0.0}, "'range' must be positive and at most P36500D; got PT0S"),
        ({"range": float("nan")}, "'range' must be an ISO 8601 duration such as PT1H, or a number of seconds; got nan"),
        (
            {"range": "an hour"},
            "'range' must be an ISO 8601 duration such as PT1H",
        ),
        ({"range": 60, "end_time": NOON}, "'range' must not be given together with 'start_time' or 'end_time'"),
        ({"interval": -1}, "'interval' must be positive and at most P365D; got -PT1S"),
        ({"forget_after": 3600.0}, "'forget_after' must be from P1D to P36500D; got PT1H"),
        ({"forget_after": "P2D", "end_time": NOON}, "'forget_after' must not be given together with 'start_time'"),
        ({"forget_after": "P2D", "paths": ["/data/in"]}, "'forget_after' must be left out: '/data/in' is not in S3"),
        ({"count": 0}, "'count' must be at least 1; got 0"),
        ({"count": "twice"}, "'count' must be a whole number; got 'twice'"),
        ({"count": True}, "'count' must be a whole number; got True"),
        ({"folder_depth": 0}, "'folder_depth' must be at least 1; got 0"),
        ({"max_objects": 0}, "'max_objects' must be at least 1; got 0"),
        ({"max_objects": "many"}, "'max_objects' must be a whole number; got 'many'"),
        ({"max_bytes": 0}, "'max_bytes' must be at least 1; got 0"),
        ({"wait_for": "a/b"}, "'wait_for' must be the name of an object, without its folder; got 'a/b'"),
        ({"wait_delay": 0}, "'wait_delay' must be positive; got PT0S"),
        ({"wait_retries": -1}, "'wait_retries' must be from 0 to 1000; got -1"),
        ({"format": "xml"}, "'format' must be one of avro, csv, json, orc, parquet, text; got 'xml'"),
        ({"format_options": {"delimeter": ";"}}, "'format_options': unknown field 'delimeter'; the known fields are"),
        ({"format_options": {"compression": "rar"}}, "'format_options.compression' must be one of auto, none, bzip2"),
    ],
)
def test_invalid_value_is_named_as_written(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        S3Objects(**{"paths": ["s3://bucket/in/"], **wrong}).check()
    assert f"S3Objects: field {said}" in str(raised.value)


def test_unknown_value_leaves_the_others_checked() -> None:
    objects = S3Objects(paths="{{ params.path }}", count=0)
    with pytest.raises(ConfigurationError, match="S3Objects: field 'count' must be at least 1; got 0"):
        objects.check(lambda value: "{{" not in str(value))


@pytest.mark.parametrize("path", ["s3://bucket", "s3a://my.bucket-1/in", "/data/in", "file:///data", "hdfs://h:8020/x"])
def test_paths_of_s3_and_other_filesystems_are_accepted(path: str) -> None:
    S3Objects(paths=(path,)).check()


@pytest.mark.parametrize("minute", [60, 60.0, "60", "PT1M", timedelta(minutes=1)])
def test_duration_may_be_seconds_or_iso_text(minute: Any) -> None:
    assert S3Objects(paths="/data", range=minute).resolved().range == timedelta(minutes=1)
