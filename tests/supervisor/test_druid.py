"""A spec of Druid's Kinesis supervisor is translated: each field has its row, and none is ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.druid import from_druid
from airflow_provider_coordination.supervisor.druid.fields import FIELDS
from airflow_provider_coordination.supervisor.druid.rows import FieldOutcome
from airflow_provider_coordination.supervisor.spec import IngestionSpec

DRUID: Mapping[str, Any] = {
    "type": "kinesis",
    "spec": {
        "dataSchema": {
            "dataSource": "metrics",
            "timestampSpec": {"column": "at", "format": "iso"},
            "dimensionsSpec": {"dimensions": ["page", {"type": "long", "name": "added"}]},
            "metricsSpec": [
                {"name": "count", "type": "count"},
                {"name": "value_sum", "fieldName": "value", "type": "doubleSum"},
            ],
            "granularitySpec": {"type": "uniform", "segmentGranularity": "HOUR", "queryGranularity": "NONE"},
        },
        "ioConfig": {
            "stream": "metrics-stream",
            "inputFormat": {"type": "json"},
            "endpoint": "kinesis.eu-west-1.amazonaws.com",
            "taskCount": 2,
            "replicas": 1,
            "taskDuration": "PT2H",
        },
        "tuningConfig": {"type": "kinesis", "maxRowsPerSegment": 5000000},
    },
}
"""The example of Druid's manual, with a few values of its own."""


def druid_with(path: str, value: Any) -> dict[str, Any]:
    changed = deepcopy(dict(DRUID))
    *above, name = path.split(".")
    target: Any = changed["spec"]
    for each in above:
        target = target.setdefault(each, {})
    target[name] = value
    return changed


def spec_from(path: str, value: Any, **options: Any) -> Any:
    return from_druid(druid_with(path, value), lake="/lake", **options).spec


def at(spec: Any, target: str) -> Any:
    for name in target.split("."):
        spec = spec[int(name)] if isinstance(spec, list) else spec.get(name, {})
    return spec


def test_example_of_the_druid_manual_is_translated() -> None:
    assert from_druid(DRUID, lake="s3://lake/").spec == {
        "version": 1,
        "source": "metrics",
        "reads": {
            "kinesis": {"streams": "metrics-stream", "region_name": "eu-west-1", "initial_position": "LATEST"},
        },
        "writes": [{"parquet": {"path": "s3://lake/metrics"}}],
        "schema": "`at` TIMESTAMP NOT NULL, `page` STRING, `added` BIGINT, `value` DOUBLE",
        "time_formats": {"at": "iso"},
        "bad_records": {"dead_letter_path": "s3://lake/_bad/metrics"},
        "supervise": {"task_count": 2, "task_duration": "PT2H"},
    }


def test_translation_is_a_valid_spec() -> None:
    assert IngestionSpec.read(from_druid(DRUID, lake="/lake").spec).source == "metrics"


def test_every_spec_field_has_a_row() -> None:
    rows = {row.field: row.outcome for row in from_druid(DRUID, lake="/lake").rows}
    given = {f"{part}.{name}" for part, fields in DRUID["spec"].items() for name in fields} | {"type"}
    assert set(rows) == given
    assert (rows["ioConfig.taskCount"], rows["ioConfig.endpoint"], rows["ioConfig.replicas"]) == (
        FieldOutcome.COPIED, FieldOutcome.TRANSLATED, FieldOutcome.NOT_APPLICABLE,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "target", "expected"),
    [
        ("ioConfig.useEarliestSequenceNumber", True, "reads.kinesis.initial_position", "TRIM_HORIZON"),
        ("ioConfig.useEarliestSequenceNumber", False, "reads.kinesis.initial_position", "LATEST"),
        ("ioConfig.stopTaskCount", 1, "supervise.stop_task_count", 1),
        ("ioConfig.startDelay", "PT10S", "supervise.start_delay", "PT10S"),
        ("ioConfig.period", "PT1M", "supervise.period", "PT1M"),
        ("ioConfig.completionTimeout", "PT6H", "supervise.completion_timeout", "PT6H"),
        ("ioConfig.lateMessageRejectionPeriod", "P1D", "supervise.late_message_rejection_period", "P1D"),
        ("ioConfig.lateMessageRejectionPeriod", "P1D", "supervise.event_time", "at"),
        ("ioConfig.earlyMessageRejectionPeriod", "PT1H", "supervise.early_message_rejection_period", "PT1H"),
        (
            "ioConfig.lateMessageRejectionStartDateTime", "2026-01-01T00:00:00",
            "supervise.late_message_rejection_start", "2026-01-01T00:00:00.000000Z",
        ),
        ("tuningConfig.maxParseExceptions", 7, "bad_records.max_parse_exceptions", 7),
        ("tuningConfig.maxParseExceptions", 2147483647, "bad_records.max_parse_exceptions", {}),
        ("tuningConfig.maxSavedParseExceptions", 5000, "bad_records.max_saved_parse_exceptions", 100),
        ("tuningConfig.reportParseExceptions", True, "bad_records.max_parse_exceptions", 0),
        ("tuningConfig.resetOffsetAutomatically", True, "reads.kinesis.on_data_loss", "latest"),
        ("tuningConfig.resetOffsetAutomatically", False, "reads.kinesis.on_data_loss", "fail"),
        ("ioConfig.recordsPerFetch", "4000", "reads.kinesis.records_per_read", 4000),
        ("ioConfig.recordsPerFetch", 50_000, "reads.kinesis.records_per_read", 10_000),
        ("ioConfig.fetchDelayMillis", 1000, "reads.kinesis.reads_per_second", 1),
        ("ioConfig.fetchDelayMillis", 10, "reads.kinesis.reads_per_second", 4),
        ("ioConfig.fetchDelayMillis", 0, "reads.kinesis.reads_per_second", {}),
        (
            "tuningConfig.repartitionTransitionDuration", "PT2M",
            "reads.kinesis.repartition_transition_duration", "PT2M",
        ),
        (
            "dataSchema.timestampSpec", {"column": "t", "format": "millis"}, "schema",
            "`t` BIGINT NOT NULL, `page` STRING, `added` BIGINT, `value` DOUBLE",
        ),
    ],
)  # fmt: skip
def test_field_moves_to_its_new_place(field: str, value: Any, target: str, expected: Any) -> None:
    assert at(spec_from(field, value), target) == expected


@pytest.mark.parametrize(
    ("starts_at", "reads_on"),
    [
        ({"useEarliestSequenceNumber": True}, "earliest"),
        ({"useEarliestSequenceNumber": "false"}, "latest"),
        ({}, "latest"),
        ({"boundedStreamConfig": {"startSequenceNumbers": {"s": "1"}, "endSequenceNumbers": {"s": "2"}}}, "earliest"),
    ],
)
def test_automatic_reset_continues_where_a_new_stream_starts(starts_at: dict[str, Any], reads_on: str) -> None:
    given = druid_with("tuningConfig.resetOffsetAutomatically", True)
    given["spec"]["ioConfig"] |= starts_at
    assert at(from_druid(given, lake="/lake").spec, "reads.kinesis.on_data_loss") == reads_on


def test_too_long_fetch_delay_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'ioConfig.fetchDelayMillis': it is 60000, .*give at most 10000"):
        from_druid(druid_with("ioConfig.fetchDelayMillis", 60_000), lake="/lake")


def test_scaling_thresholds_become_durations_with_summed_lag() -> None:
    scaler = {
        "enableTaskAutoScaler": True, "taskCountMin": 2, "taskCountMax": 6, "autoScalerStrategy": "lagBased",
        "scaleOutThreshold": 6000000, "scaleActionPeriodMillis": 60000, "scaleInStep": 2,
    }  # fmt: skip
    assert at(spec_from("ioConfig.autoScalerConfig", scaler), "supervise.auto_scale") == {
        "task_count_min": 2, "task_count_max": 6, "scale_out_threshold": "PT1H40M", "scale_action_period": "PT1M",
        "scale_in_step": 2, "lag_aggregate": "sum",
    }  # fmt: skip


@pytest.mark.parametrize("scaler", [{}, {"enableTaskAutoScaler": False, "taskCountMin": 2}])
def test_disabled_scaler_is_ignored(scaler: dict[str, Any]) -> None:
    assert "auto_scale" not in spec_from("ioConfig.autoScalerConfig", scaler)["supervise"]


def test_custom_role_and_endpoint_belong_to_the_connection() -> None:
    given = druid_with("ioConfig.endpoint", "http://localhost:4566")
    given["spec"]["ioConfig"]["awsAssumedRoleArn"] = "arn:aws:iam::1:role/reader"
    given["suspended"] = True
    translation = from_druid(given, lake="/lake")
    assert [row.field for row in translation.manual] == [
        "suspended", "ioConfig.endpoint", "ioConfig.awsAssumedRoleArn",
    ]  # fmt: skip
    assert "http://localhost:4566" not in json.dumps(translation.spec)


def test_older_spec_with_a_parser_is_translated() -> None:
    given = deepcopy(dict(DRUID["spec"])) | {"type": "kinesis"}
    del given["ioConfig"]["inputFormat"]
    schema = given["dataSchema"]
    schema["parser"] = {
        "type": "string",
        "parseSpec": {
            "format": "json",
            "timestampSpec": schema.pop("timestampSpec"),
            "dimensionsSpec": schema.pop("dimensionsSpec"),
        },
    }
    assert from_druid(given, lake="s3://lake").spec == from_druid(DRUID, lake="s3://lake").spec


def test_kinesis_format_around_json_is_json() -> None:
    value_format = {"type": "kinesis", "valueFormat": {"type": "json"}, "timestampColumnName": "arrived"}
    assert spec_from("ioConfig.inputFormat", value_format) == from_druid(DRUID, lake="/lake").spec


@pytest.mark.parametrize(
    "dimensions",
    [
        {"useSchemaDiscovery": True, "forceSegmentSortByTime": True},
        {"dimensions": [], "dimensionExclusions": ["at"]},
        {"dimensions": ["at"], "includeAllDimensions": "true"},
        None,
    ],
)
def test_discovered_dimensions_need_a_transform(dimensions: dict[str, Any] | None) -> None:
    given = druid_with("dataSchema.dimensionsSpec", dimensions)
    if dimensions is None:
        del given["spec"]["dataSchema"]["dimensionsSpec"]
    del given["spec"]["dataSchema"]["metricsSpec"]
    with pytest.raises(ConfigurationError, match=r"Druid discovers dimensions in the records; .* List the dimensions"):
        from_druid(given, lake="/lake")
    translation = from_druid(given, lake="/lake", transform="clicks:split")
    assert translation.spec["schema"] == "`at` TIMESTAMP NOT NULL"
    assert [(row.field, row.target) for row in translation.manual] == [("dataSchema.dimensionsSpec", "schema")]


@pytest.mark.parametrize(
    ("time_format", "missing", "computed"),
    [
        (None, "2010-01-01", {"at": "coalesce(`at`, TIMESTAMP '2010-01-01T00:00:00.000000Z')"}),
        ("dd.MM.yyyy", "2010", {"at": "coalesce(`at`, TIMESTAMP '2010-01-01T00:00:00.000000Z')"}),
        ("millis", "2010-01-01T00:00:00.5+01:00", {"at": "coalesce(`at`, 1262300400500L)"}),
        ("nano", "1970-01-01T00:00:01Z", {"at": "coalesce(`at`, 1000000000L)"}),
    ],
)
def test_missing_time_is_filled_in(time_format: str | None, missing: str, computed: dict[str, str]) -> None:
    spec = spec_from("dataSchema.timestampSpec", {"column": "at", "format": time_format, "missingValue": missing})
    assert (spec["computed"], "NOT NULL" in spec["schema"]) == (computed, False)


def test_time_without_a_column_is_the_missing_value() -> None:
    given = druid_with("dataSchema.timestampSpec", {"column": "!!!_no_such_column_!!!", "missingValue": "2010-01-01"})
    given["spec"]["dataSchema"]["transformSpec"] = {
        "filter": {"type": "interval", "dimension": "__time", "intervals": ["2010-01-01/P1D"]}
    }
    spec = from_druid(given, lake="/lake").spec
    assert spec["computed"] == {"__time": "TIMESTAMP '2010-01-01T00:00:00.000000Z'"}
    assert spec["schema"].startswith("`page` STRING")
    assert at(spec, "writes.0.parquet.where").startswith("(`__time` >= TIMESTAMP '2010-01-01")


def test_time_that_is_filled_in_rejects_no_records() -> None:
    given = druid_with("dataSchema.timestampSpec", {"column": "at", "missingValue": "2010-01-01"})
    given["spec"]["ioConfig"]["lateMessageRejectionPeriod"] = "P1D"
    with pytest.raises(ConfigurationError, match="records are rejected before 'missingValue' gives them a time"):
        from_druid(given, lake="/lake")


@pytest.mark.parametrize(
    ("druid", "column", "formats"),
    [
        (None, "`at` TIMESTAMP NOT NULL", {"at": "auto"}),
        ("auto", "`at` TIMESTAMP NOT NULL", {"at": "auto"}),
        ("posix", "`at` TIMESTAMP NOT NULL", {"at": "seconds"}),
        ("micro", "`at` TIMESTAMP NOT NULL", {"at": "micros"}),
        ("millis", "`at` BIGINT NOT NULL", None),
        ("nano", "`at` BIGINT NOT NULL", None),
        ("ruby", "`at` TIMESTAMP NOT NULL", {"at": "seconds"}),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSZZ", "`at` TIMESTAMP NOT NULL", {"at": "yyyy-MM-dd'T'HH:mm:ss.SSSZZ"}),
        ("dd/MMM/YYYY:HH 'Y'", "`at` TIMESTAMP NOT NULL", {"at": "dd/MMM/yyyy:HH 'Y'"}),
    ],
)
def test_time_format_is_kept(druid: str | None, column: str, formats: dict[str, str] | None) -> None:
    spec = spec_from("dataSchema.timestampSpec", {"column": "at", "format": druid})
    assert (spec["schema"].partition(",")[0], spec.get("time_formats")) == (column, formats)


def test_time_may_keep_the_name_of_druid() -> None:
    given = druid_with("dataSchema.timestampSpec", {"column": "__time", "format": "millis"})
    given["spec"]["dataSchema"]["transformSpec"] = {
        "filter": {"type": "interval", "dimension": "__time", "intervals": ["2026-01-01/P1M"]}
    }
    spec = from_druid(given, lake="/lake").spec
    assert spec["schema"].startswith("`__time` BIGINT NOT NULL, ")
    assert at(spec, "writes.0.parquet.where") == "(`__time` >= 1767225600000 AND `__time` < 1769904000000)"


@pytest.mark.parametrize("names", [{}, {"timestampColumnName": "arrived", "partitionKeyColumnName": "key"}])
def test_kinesis_format_columns_become_record_columns(names: dict[str, str]) -> None:
    arrived, key = names.values() if names else ("kinesis.timestamp", "kinesis.partitionKey")
    given = druid_with("ioConfig.inputFormat", {"type": "kinesis", "valueFormat": {"type": "json"}, **names})
    schema = given["spec"]["dataSchema"]
    schema["timestampSpec"] = {"column": arrived, "format": "millis"}
    schema["dimensionsSpec"] = {"dimensions": [key, "page"]}
    schema["transformSpec"] = {
        "filter": {
            "type": "and",
            "fields": [
                {"type": "selector", "dimension": key, "value": "k"},
                {"type": "interval", "dimension": "__time", "intervals": ["2026-01-01/2026-01-02"]},
            ],
        }
    }
    spec = from_druid(given, lake="/lake").spec
    assert spec["schema"] == "`page` STRING, `value` DOUBLE"
    assert at(spec, "writes.0.parquet.where") == (
        "(`partition_key` = 'k' AND (`approximate_arrival_timestamp` >= TIMESTAMP '2026-01-01T00:00:00.000000Z' AND "
        "`approximate_arrival_timestamp` < TIMESTAMP '2026-01-02T00:00:00.000000Z'))"
    )


@pytest.mark.parametrize(
    "timestamp", [{"column": "kinesis.timestamp", "format": "millis"}, {"column": "at", "format": "nano"}]
)
def test_time_that_rejects_no_records_is_an_error(timestamp: dict[str, str]) -> None:
    given = druid_with("ioConfig.inputFormat", {"type": "kinesis", "valueFormat": {"type": "json"}})
    given["spec"]["dataSchema"]["timestampSpec"] = timestamp
    given["spec"]["ioConfig"]["lateMessageRejectionPeriod"] = "P1D"
    with pytest.raises(ConfigurationError, match="lateMessageRejectionPeriod': records are rejected by a column"):
        from_druid(given, lake="/lake")


def test_metric_inputs_and_filters_become_columns() -> None:
    metrics = [
        {"type": "filtered", "filter": {"type": "selector", "dimension": "country", "value": "x"},
         "aggregator": {"type": "longSum", "name": "n", "fieldName": "clicks"}},
        {"type": "variance", "name": "v", "fieldName": "latency"},
        {"type": "HLLSketchMerge", "name": "h", "fieldName": "users"},
        {"type": "quantilesDoublesSketch", "name": "q", "fieldName": "price"},
    ]  # fmt: skip
    assert spec_from("dataSchema.metricsSpec", metrics)["schema"].split(", ")[3:] == [
        "`clicks` BIGINT", "`latency` DOUBLE", "`users` STRING", "`price` DOUBLE", "`country` STRING",
    ]  # fmt: skip


def test_region_defaults_to_the_druid_default() -> None:
    given = druid_with("ioConfig.endpoint", None)
    del given["spec"]["ioConfig"]["endpoint"]
    assert at(from_druid(given, lake="/lake").spec, "reads.kinesis.region_name") == "us-east-1"
    own = druid_with("ioConfig.endpoint", "http://localhost:4566")
    assert "region_name" not in from_druid(own, lake="/lake").spec["reads"]["kinesis"]


def test_spec_from_the_druid_api_is_translated() -> None:
    given = deepcopy(dict(DRUID["spec"]))
    given["dataSchema"]["dimensionsSpec"] |= {"forceSegmentSortByTime": True, "includeAllDimensions": False}
    given["ioConfig"] |= {
        "lagAggregator": {"type": "default"}, "replicas": None, "taskCount": "2", "useEarliestSequenceNumber": "true",
        "lateMessageRejectionPeriod": None, "autoScalerConfig": {"enableTaskAutoScaler": "false"}, "idleConfig": None,
        "awsAccessKeyId": "key",
    }  # fmt: skip
    given["tuningConfig"] |= {
        "basePersistDirectory": "/tmp/x", "buildV9Directly": True, "releaseLocksOnHandoff": False, "chatAsync": True,
        "replicas": 2, "maxParseExceptions": "2147483647", "indexSpec": {"bitmap": {"type": "roaring"}},
    }  # fmt: skip
    translation = from_druid({"type": "kinesis", "spec": given, **given, "suspended": False}, lake="s3://lake")
    expected = from_druid(druid_with("ioConfig.useEarliestSequenceNumber", True), lake="s3://lake").spec
    assert translation.spec == expected
    notes = {row.field: row.note for row in translation.rows}
    assert notes["tuningConfig.replicas"].startswith("Druid ignores it here; it belongs to `ioConfig.replicas`")
    assert "tuning.spark.conf" not in notes["tuningConfig.indexSpec"]
    assert [row.field for row in translation.manual] == ["ioConfig.awsAccessKeyId"]


@pytest.mark.parametrize("given", [{"type": "regex"}, {"type": "csv", "columns": ["at"], "listDelimiter": "|"}])
def test_transform_splits_payloads_without_a_schema(given: dict[str, Any]) -> None:
    spec = spec_from("ioConfig.inputFormat", given, transform="my_project:split")
    assert "schema" not in spec and spec["transform"] == "my_project:split"


COLUMNS = ["at", "page", "added", "value"]
AVRO_SCHEMA = {"type": "record", "name": "Edit", "fields": [{"name": "page", "type": "string"}]}


@pytest.mark.parametrize(
    ("given", "payload"),
    [
        ({"type": "csv", "columns": COLUMNS}, {"csv": {"columns": COLUMNS}}),
        (
            {"type": "tsv", "findColumnsFromHeader": True, "skipHeaderRows": "1"},
            {"csv": {"delimiter": "\t", "skip_rows": 1, "header": True}},
        ),
        ({"type": "tsv", "columns": COLUMNS, "delimiter": ";"}, {"csv": {"delimiter": ";", "columns": COLUMNS}}),
        ({"type": "json", "assumeNewlineDelimited": True}, {"json": {"many": True}}),
        ({"type": "kinesis", "valueFormat": {"type": "csv", "columns": COLUMNS}}, {"csv": {"columns": COLUMNS}}),
        (
            {"type": "avro_stream", "avroBytesDecoder": {"type": "schema_inline", "schema": AVRO_SCHEMA}},
            {"avro": {"schema": json.dumps(AVRO_SCHEMA)}},
        ),
        (
            {"type": "avro_stream", "avroBytesDecoder": {"type": "schema_registry", "url": "http://registry:8081"}},
            {"avro": {"confluent": {"url": ["http://registry:8081"]}}},
        ),
        ({"type": "avro_ocf", "schema": AVRO_SCHEMA}, {"avro": {"schema": json.dumps(AVRO_SCHEMA)}}),
        (
            {
                "type": "protobuf",
                "protoBytesDecoder": {"type": "file", "descriptor": "/x.desc", "protoMessageType": "wiki.Edit"},
            },
            {"protobuf": {"descriptor_set": "/x.desc", "message": "wiki.Edit"}},
        ),
        (
            {
                "type": "protobuf",
                "protoBytesDecoder": {"type": "inline", "descriptorString": "eA==", "protoMessageType": "wiki.Edit"},
            },
            {"protobuf": {"descriptor_set": "data:;base64,eA==", "message": "wiki.Edit"}},
        ),
        ({"type": "json"}, None),
    ],
)
def test_format_of_payloads_is_kept(given: dict[str, Any], payload: dict[str, Any] | None) -> None:
    assert spec_from("ioConfig.inputFormat", given).get("payload") == payload


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("ioConfig.inputFormat", {"type": "regex"}, "payloads are 'regex'.*splits the column 'data'"),
        ("ioConfig.inputFormat", {"type": "csv"}, "'columns' must name the values if 'findColumnsFromHeader' is not"),
        ("ioConfig.inputFormat", {"type": "tsv", "columns": ["at"], "listDelimiter": "|"}, "a CSV value is not a list"),
        ("ioConfig.inputFormat", {"type": "csv", "columns": ["at"]}, "column 'page' is not in 'payload.csv.columns'"),
        ("ioConfig.inputFormat", {"type": "avro_ocf"}, "'schema' is missing: give the Avro schema of readers"),
        (
            "ioConfig.inputFormat",
            {"type": "avro_stream", "avroBytesDecoder": {"type": "schema_repo"}},
            "is of the type 'schema_repo'; only 'schema_inline' and 'schema_registry' can be translated",
        ),
        (
            "ioConfig.inputFormat",
            {
                "type": "avro_stream",
                "avroBytesDecoder": {
                    "type": "schema_registry",
                    "url": "http://a",
                    "config": {"basic.auth.user.info": "x"},
                },
            },
            "may hold a login; remove them, and give an Airflow connection as 'registry_conn_id'",
        ),
        (
            "ioConfig.inputFormat",
            {"type": "protobuf", "protoBytesDecoder": {"type": "schema_registry"}},
            "only 'file' and",
        ),
        (
            "ioConfig.inputFormat",
            {"type": "json", "flattenSpec": {"fields": [{"type": "path", "name": "page", "expr": "$.a.b"}]}},
            r"'page' is read from '\$.a.b'",
        ),
        (
            "ioConfig.inputFormat",
            {"type": "json", "flattenSpec": {"fields": [{"type": "root", "name": "page", "expr": "url"}]}},
            "'page' is read from 'url', but a schema only reads a field of its column's name",
        ),
        (
            "dataSchema.timestampSpec",
            {"column": "at", "format": "nanos"},
            "'nanos' of a time cannot be used: 'n' is no",
        ),
        ("tuningConfig.taskCount", 2, "Druid ignores it here; move it to 'ioConfig.taskCount'"),
        ("ioConfig.useEarliestSequenceNumber", "yes", "must be true or false; got 'yes'"),
        ("ioConfig.taskCount", "two", "must be a whole number; got 'two'"),
        ("ioConfig.type", "kafka", "only supervisors of type 'kinesis'"),
        ("ioConfig.recordsPerFetsch", 5, "'ioConfig.recordsPerFetsch': it is unknown"),
        ("ioConfig.autoScalerConfig", {"enableTaskAutoScaler": True, "autoScalerStrategy": "costBased"}, "'costBased'"),
        ("ioConfig.boundedStreamConfig", {"startSequenceNumbers": {"a": "1"}}, "must name the same shards"),
        (
            "dataSchema.timestampSpec",
            {"column": "at", "format": "yy-MM-dd"},
            "the pattern 'yy-MM-dd' of a time cannot be used: 'yy' has no exact meaning; write 'yyyy'; write it as a",
        ),
        ("dataSchema.timestampSpec", {"column": "at", "missingValue": "never"}, "must be an instant such as .*'never'"),
        ("dataSchema.dimensionsSpec", {"dimensions": ["shard_id"]}, "every record has a column 'shard_id' already"),
        ("dataSchema.dimensionsSpec", {"dimensions": ["Page", "page"]}, "'page' and 'Page' are one column for Spark"),
        ("dataSchema.transformSpec", {"transforms": [{"name": "upper"}]}, "the transform 'upper' of the type None"),
        ("dataSchema.transformSpec", {"filter": {"type": "javascript"}}, "'javascript' cannot be translated"),
    ],
)
def test_untranslatable_field_is_an_error_with_its_remedy(field: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        from_druid(druid_with(field, value), lake="/lake")


def test_error_names_all_untranslatable_fields() -> None:
    given = druid_with("ioConfig.inputFormat", {"type": "regex"})
    given["spec"]["tuningConfig"]["unheardOf"] = 1
    with pytest.raises(ConfigurationError, match=r"'ioConfig.inputFormat': .*; field 'tuningConfig.unheardOf': "):
        from_druid(given, lake="/lake")


def test_spec_without_stream_and_data_source_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"'dataSchema.dataSource': it is missing.*'ioConfig.stream'"):
        from_druid({"type": "kinesis"}, lake="/lake")


# fmt: off
IO_FIELDS = [
    "type", "stream", "inputFormat", "endpoint", "region", "replicas", "serverPriorityToReplicas", "taskCount",
    "autoScalerConfig", "stopTaskCount", "taskDuration", "startDelay", "period", "useEarliestSequenceNumber",
    "completionTimeout", "lateMessageRejectionPeriod", "lateMessageRejectionStartDateTime",
    "earlyMessageRejectionPeriod", "recordsPerFetch", "fetchDelayMillis", "awsAssumedRoleArn", "awsExternalId",
    "deaggregate", "idleConfig", "boundedStreamConfig", "lagAggregator", "awsAccessKeyId", "awsSecretAccessKey",
]
# fmt: on
# fmt: off
TUNING_FIELDS = [
    "maxRowsInMemory", "maxBytesInMemory", "skipBytesInMemoryOverheadCheck", "maxRowsPerSegment", "maxTotalRows",
    "intermediateHandoffPeriod", "intermediatePersistPeriod", "maxPendingPersists", "indexSpec",
    "indexSpecForIntermediatePersists", "segmentWriteOutMediumFactory", "appendableIndexSpec", "numPersistThreads",
    "maxColumnsToMerge", "messageGapStatsEnabled", "reportParseExceptions", "logParseExceptions",
    "maxParseExceptions", "maxSavedParseExceptions", "handoffConditionTimeout", "resetOffsetAutomatically",
    "skipSequenceNumberAvailabilityCheck", "workerThreads", "chatThreads", "chatRetries", "httpTimeout",
    "shutdownTimeout", "offsetFetchPeriod", "repartitionTransitionDuration", "recordBufferSize",
    "recordBufferSizeBytes", "recordBufferOfferTimeout", "recordBufferFullWait", "fetchThreads",
    "fetchSequenceNumberTimeout", "maxRecordsPerPoll", "maxBytesPerPoll", "useListShards", "skipIgnorableShards",
    "basePersistDirectory", "buildV9Directly", "releaseLocksOnHandoff", "chatAsync",
]
# fmt: on


def test_every_documented_druid_field_is_known() -> None:
    known = {field.name for field in FIELDS}
    assert {f"ioConfig.{name}" for name in IO_FIELDS} <= known
    assert {f"tuningConfig.{name}" for name in TUNING_FIELDS} <= known


def test_every_dropped_field_has_an_explanation() -> None:
    assert [field.name for field in FIELDS if not field.note] == []
