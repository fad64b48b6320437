"""A wrong spec is one error that names the field, the value and the remedy, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import TYPE_NAMES
from airflow_provider_coordination.supervisor.druid.fields import FIELDS
from airflow_provider_coordination.supervisor.druid.rows import DruidField
from airflow_provider_coordination.supervisor.spec import MAX_BYTES, IngestionSpec
from tests.supervisor.specs import SPEC, spec_with, spec_without


def error_of(values: Any) -> str:
    with pytest.raises(ConfigurationError) as raised:
        IngestionSpec.read(values)
    return str(raised.value)


# What a new user writes first


def test_misplaced_key_names_the_right_section() -> None:
    assert error_of(spec_with("task_count", 4)) == "spec: unknown field 'task_count'; write 'supervise.task_count'"


@pytest.mark.parametrize(
    ("path", "value", "remedy"),
    [
        (
            "supervise.task_duration",
            "1h",
            f"must be {TYPE_NAMES['duration']}, or a number of seconds; got '1h': write PT1H",
        ),
        ("supervise.task_duration", "90 minutes", "got '90 minutes': write PT90M"),
        ("supervise.task_duration", "60000ms", "got '60000ms': write 60, in seconds"),
        ("supervise.task_duration", "P1M", "years and months vary in length; write days, such as P30D"),
        (
            "supervise.task_duration",
            3_600_000,
            "must be positive and at most P30D; give seconds, not milliseconds; got P41DT16H",
        ),
        (
            "supervise.period",
            30_000,
            "'supervise.period' must be at least PT1S and at most PT1H; give seconds",
        ),
        ("tuning.spark.executor_memory", 2, "'tuning.spark.executor_memory' must be text; got 2: write it in quotes"),
        ("tuning.spark.executor_memory", "2", "must be a size with its unit, such as '2g'; got '2'"),
        (
            "supervise.auto_scale",
            {"task_count_min": 1, "task_count_max": 2, "scale_out_threshold": 6_000_000},
            "'supervise.auto_scale.scale_out_threshold' must be at least PT0S and at most P31D; give seconds",
        ),
    ],
)
def test_wrong_unit_names_the_right_one(path: str, value: Any, remedy: str) -> None:
    assert remedy in error_of(spec_with(path, value))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "reads",
            {"kafka": {"topics": "clicks"}},
            "field 'reads': kind 'kafka' is unknown; the known kinds are 'dynamodb', ",
        ),
        ("writes", [{"kafka": {"path": "/x"}}], "field 'writes': kind 'kafka' is unknown; the known kinds are '"),
        ("schema", "id TEXT", "field 'schema': column 'id': 'TEXT' is not a Spark type"),
    ],
)
def test_unknown_type_names_the_known_ones(path: str, value: Any, said: str) -> None:
    assert said in error_of(spec_with(path, value))


def test_late_period_and_late_start_exclude_each_other() -> None:
    late = {
        "event_time": "at",
        "late_message_rejection_period": "PT1H",
        "late_message_rejection_start": "2026-01-01T00:00:00Z",
    }
    assert error_of(spec_with("supervise", late)) == (
        "spec: field 'supervise.late_message_rejection_start' excludes 'late_message_rejection_period': "
        "remove one of them; got '2026-01-01T00:00:00+00:00'"
    )


def test_zero_jobs_are_refused_in_favor_of_suspension() -> None:
    assert error_of(spec_with("supervise.task_count", 0)) == (
        "spec: field 'supervise.task_count' must be from 1 to 1000, as each job is a Spark application; "
        "to run no jobs, suspend the supervisor; got 0"
    )


def test_implausible_job_count_is_refused() -> None:
    assert error_of(spec_with("supervise.task_count", 100_000)) == (
        "spec: field 'supervise.task_count' must be from 1 to 1000, as each job is a Spark application; "
        "to run no jobs, suspend the supervisor; got 100000"
    )
    scaling = {"task_count_min": 1, "task_count_max": 1001}
    assert "'supervise.auto_scale.task_count_max' must be from 1 to 1000" in error_of(
        spec_with("supervise.auto_scale", scaling)
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id STRING", "must name a column of 'schema'; got 'at'; columns are 'id'"),
        ("at DOUBLE", "must name a column of type TIMESTAMP, .*; 'at' is of type DOUBLE"),
        (None, "columns are none, as 'schema' is missing"),
    ],
)
def test_event_time_needs_its_column_in_the_schema(schema: str | None, said: str) -> None:
    spec = spec_with("supervise", {"event_time": "at", "late_message_rejection_period": "PT1H"})
    with pytest.raises(ConfigurationError, match=said):
        IngestionSpec.read({**spec, "schema": schema})


# Keys that belong elsewhere, or are called otherwise


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("taskCount", "'supervise.task_count'"),
        ("taskDuration", "'supervise.task_duration'"),
        ("supervise.taskCount", "'supervise.task_count'"),
        ("autoScalerConfig", "'supervise.auto_scale'"),
        ("useEarliestSequenceNumber", "'reads.kinesis.initial_position'"),
        ("lateMessageRejectionStartDateTime", "'supervise.late_message_rejection_start'"),
        ("reads.kinesis.stream", "'reads.kinesis.streams'"),
        ("workers", "'supervise.task_count'"),
        ("until_caught_up", "'supervise.terminate_when_done'"),
        ("initial_position", "'reads.kinesis.initial_position'"),
        ("supervise.initial_position", "'reads.kinesis.initial_position'"),
        ("max_leases", "'leases.max_leases'"),
        ("tuning.max_leases", "'leases.max_leases'"),
        ("executor_memory", "'tuning.spark.executor_memory'"),
        ("tuning.conf", "'tuning.spark.conf'"),
        ("dead_letter_path", "'bad_records.dead_letter_path'"),
        ("supervise.task_count_max", "'supervise.auto_scale.task_count_max'"),
        ("supervise.task_duratoin", "'supervise.task_duration'"),
        ("description", "'context.description'"),
    ],
)
def test_unknown_key_names_its_replacement(path: str, remedy: str) -> None:
    assert error_of(spec_with(path, 1)) == f"spec: unknown field {path!r}; write {remedy}"


@pytest.mark.parametrize("field", [each for each in FIELDS if each.name != "context"], ids=lambda field: field.name)
def test_every_druid_key_has_an_explanation(field: DruidField) -> None:
    answer = error_of(spec_with(field.name.rpartition(".")[2], 1))
    assert "; write " in answer or "spec from-druid" in answer or field.note in answer


def test_meaningless_druid_key_has_an_explanation() -> None:
    assert error_of(spec_with("supervise.replicas", 2)) == (
        "spec: unknown field 'supervise.replicas'; this key of Druid is not applicable: Leases assign each shard to "
        "one job. If a job dies, the others take over its shards."
    )


def test_unrecognizable_key_names_the_known_ones() -> None:
    assert "unknown field 'xyz'; the known keys are version, source, reads" in error_of(spec_with("xyz", 1))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("rounds.until_caught_up", True, "the supervisor decides when a job ends"),
        ("reads.kinesis.source", "clicks", "the source is named by the key 'source' at the top of the spec"),
        ("reads.kinesis.stop_at", "start", "bound what is read by 'bounds'"),
    ],
)
def test_key_not_allowed_in_a_spec_has_an_explanation(path: str, value: Any, said: str) -> None:
    assert f"field {path!r} is not allowed in a spec: " in error_of(spec_with(path, value))
    assert said in error_of(spec_with(path, value))


def test_druid_spec_is_referred_to_its_translation() -> None:
    assert "this is a Druid spec" in error_of({"type": "kinesis", "spec": {"ioConfig": {}}})


# Values


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("version", 2, "field 'version' is 2, but this package reads versions up to 1; upgrade the package"),
        ("version", "1", "field 'version' must be 1; got '1'"),
        ("version", True, "field 'version' must be 1; got True"),
        ("source", "", "field 'source' must be non-empty text"),
        ("source", "a|b", "source"),
        ("reads", {}, "field 'reads' must be an object with one key"),
        ("reads", {"s3": {"paths": "s3://a"}, "jdbc": {}}, "got ['s3', 'jdbc']"),
        ("reads", ["kinesis"], "field 'reads' must be an object with one key"),
        ("reads", {"kinesis": {}}, "field 'reads.kinesis.streams' is missing"),
        ("reads", {"kinesis": "clicks"}, "field 'reads.kinesis' must be an object of the keys streams, "),
        ("reads.kinesis.streams", 5, "field 'reads.kinesis.streams' must be text or a list; got 5: write it in quotes"),
        ("reads.kinesis.streams", ["a", 5], "field 'reads.kinesis.streams[1]' must be text; got 5"),
        (
            "reads.kinesis.initial_position",
            "NEWEST",
            "'reads.kinesis.initial_position' must be 'TRIM_HORIZON', 'LATEST' or an instant",
        ),
        ("reads.kinesis.filter_by_hash_range", "true", "must be true or false; got 'true': write it without quotes"),
        (
            "reads.kinesis.on_data_loss",
            "ignore",
            "'reads.kinesis.on_data_loss' must be one of fail, earliest, latest; got 'ignore'",
        ),
        ("reads.kinesis.streams", "clicks-{{ ds }}", "'reads.kinesis.streams' is a template, but a spec belongs to no"),
        ("writes", [], "field 'writes' must be a list of sinks"),
        ("writes", "parquet", "field 'writes' must be a list of sinks"),
        ("writes.0.parquet.path", None, "field 'writes[0].parquet.path' has no value; give text, or omit it"),
        ("writes.0.parquet.path", " ", "field 'writes[0].parquet.path' must not be empty; give the path or URI"),
        ("transform", "clean", "'transform' must be of the form 'module:function'"),
        ("per_batch", "yes", "field 'per_batch' must be true or false; got 'yes'"),
        ("acknowledgments.by", 5, "field 'acknowledgments.by' must be text or a list"),
        ("bad_records.max_parse_exceptions", 1.5, "must be a whole number; got 1.5"),
        ("bad_records.max_parse_exceptions", True, "must be a whole number; got True"),
        ("tuning.spark.env_vars", {"A": 1}, "field 'tuning.spark.env_vars.A' must be text; got 1: write it in quotes"),
        ("supervise.period", True, "must be an ISO 8601 duration such as PT1H, or a number of seconds; got True"),
        ("supervise.period", 1e300, "must be an ISO 8601 duration such as PT1H, or a number of seconds; got 1e+300"),
        ("supervise.period", "60", "must be an ISO 8601 duration such as PT1H, or a number of seconds; got '60'"),
        ("reads", {"items": {"kind": "a", "reader": "b:c", "supplier": "find"}}, "must be the name of a function"),
        ("tuning.spark.deploy_mode", "cloud", "'tuning.spark.deploy_mode' must be one of client, cluster; got 'cloud'"),
        ("supervise.late_message_rejection_start", "2026-01-01T00:00:00", "must be an instant with a time zone"),
        ("supervise.late_message_rejection_period", "PT1H", "field 'supervise.event_time' is missing"),
        ("supervise.auto_scale", {}, "field 'supervise.auto_scale.task_count_min' is missing"),
        ("supervise", [], "field 'supervise' must be an object of the keys task_count, "),
        ("context", "mine", "field 'context' must be an object"),
        ("schema", "id STRING, id DOUBLE", "column 'id' is defined twice"),
        ("schema", "id STRING,", "'' is not a name and a type"),
        ("schema", "id ARRAY<STRING", "a bracket or a quote is not closed"),
        ("context.notes", "x" * MAX_BYTES, f"and the limit is {MAX_BYTES}"),
    ],
)
def test_wrong_value_is_named(path: str, value: Any, said: str) -> None:
    assert said in error_of(spec_with(path, value))


@pytest.mark.parametrize("name", ["version", "reads", "writes"])
def test_missing_key_is_named(name: str) -> None:
    assert f"field {name!r} is missing" in error_of(spec_without(name))


@pytest.mark.parametrize("values", [None, [], "clicks", 5])
def test_non_object_is_no_spec(values: Any) -> None:
    assert error_of(values).startswith("spec: expected an object")


def test_error_hides_possible_secrets() -> None:
    reads = {"jdbc": {"table": "t", "column": "id", "url": 5}}
    assert "a value that may be a secret" in error_of({**SPEC, "reads": reads})


def test_error_shows_both_ends_of_a_long_value() -> None:
    error = error_of(spec_with("transform", "x" * 40_000))
    assert len(error) < 1100 and error.startswith("spec: field 'transform' must be") and error.endswith("xxx'")


def test_schema_may_have_nested_types_and_comments() -> None:
    schema = "`a b` STRUCT<x: INT, y: ARRAY<STRING>> COMMENT 'one, two', d DECIMAL(10, 2) NOT NULL, m MAP<STRING, INT>"
    assert IngestionSpec.read(spec_with("schema", schema)).ingestion.schema == schema


def test_effective_spec_hides_secrets() -> None:
    spark = {"conf": {"spark.hadoop.fs.s3a.secret.key": "abc"}, "env_vars": {"API_TOKEN": "12345"}}
    reads = {"jdbc": {"table": "t", "column": "id", "url": "jdbc:db:1", "properties": {"p": "geheim"}}}
    shown = str(IngestionSpec.read({**spec_with("tuning.spark", spark), "reads": reads}).effective())
    for secret in ("abc", "12345", "geheim", "jdbc:db:1"):
        assert f"'{secret}'" not in shown
