"""Combinations of fields that Druid's own tests and public repositories use, each in a spec of its own."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.druid import from_druid

MISSING: Any = None
"""What a translated spec has at a place that it does not name."""
NOT_DECODED = "'ioConfig.inputFormat': payloads are '{}', which 'payload' does not decode"
SCALER = {"enableTaskAutoScaler": True, "taskCountMin": 2, "taskCountMax": 6}


def druid(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec of Druid with fields set by their paths, or removed if the value is `...`."""
    spec: dict[str, Any] = {
        "type": "kinesis",
        "dataSchema": {
            "dataSource": "orders",
            "timestampSpec": {"column": "at", "format": "iso"},
            "dimensionsSpec": {"dimensions": ["shop"]},
        },
        "ioConfig": {"stream": "orders", "inputFormat": {"type": "json"}},
    }
    for path, value in changes.items():
        *above, name = path.split(".")
        place = spec
        for each in above:
            place = place.setdefault(each, {})
        place.pop(name, None)
        if value is not ...:
            place[name] = deepcopy(value)
    return spec


def at(spec: Any, path: str) -> Any:
    for name in path.split("."):
        spec = spec[int(name)] if isinstance(spec, list) else (spec or {}).get(name)
    return spec


def dimensions(*given: Any) -> dict[str, Any]:
    return {"dataSchema.dimensionsSpec": {"dimensions": list(given)}}


def fields(*given: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"ioConfig.inputFormat": {"type": "json", "flattenSpec": {"fields": list(given)}, **others}}


def parser(kind: str | None, file_format: str | None, **others: Any) -> dict[str, Any]:
    """Return the earlier form of a data schema, with null in the places of the current form, as Druid's tests have."""
    parse_spec = {"format": file_format, "timestampSpec": {"column": "t"}, "dimensionsSpec": {"dimensions": ["shop"]}}
    return {
        "dataSchema.parser": {"type": kind, "parseSpec": parse_spec, **others},
        "dataSchema.timestampSpec": None,
        "dataSchema.dimensionsSpec": ...,
        "ioConfig.inputFormat": None,
    }


def computed(*given: tuple[str, str]) -> dict[str, Any]:
    transforms = [{"type": "expression", "name": name, "expression": text} for name, text in given]
    return {"dataSchema.transformSpec": {"transforms": transforms}}


@pytest.mark.parametrize(
    ("changes", "path", "expected"),
    [
        # fields of the records, by their path
        (fields({"type": "ROOT", "name": "shop"}), "schema", "`at` TIMESTAMP NOT NULL, `shop` STRING"),
        (fields({"type": "PATH", "name": "shop", "expr": "$.['shop']"}), "source", "orders"),
        (fields({"type": "path", "name": "shop", "expr": '$["shop"]'}), "source", "orders"),
        (fields({"type": "path", "name": "a.b", "expr": "$['a.b']"}), "source", "orders"),
        (fields({"type": "jq", "name": "a.b", "expr": '."a.b"'}), "source", "orders"),
        (fields({"type": "tree", "name": "shop", "nodes": ["shop"]}), "source", "orders"),
        (fields(featureSpec={"ALLOW_COMMENTS": False}, keepNullColumns=True), "source", "orders"),
        # types
        (dimensions({"name": "paid", "type": "boolean"}), "schema", "`at` TIMESTAMP NOT NULL, `paid` STRING"),
        (dimensions({"name": "n", "type": "Long"}), "schema", "`at` TIMESTAMP NOT NULL, `n` STRING"),
        (
            dimensions({"name": "n", "type": "auto", "castToType": "LONG"}), "schema",
            "`at` TIMESTAMP NOT NULL, `n` BIGINT",
        ),
        (
            dimensions({"name": "n", "type": "auto", "castToType": "ARRAY<STRING>"}), "schema",
            "`at` TIMESTAMP NOT NULL, `n` ARRAY<STRING>",
        ),
        (
            {"dataSchema.metricsSpec": [{"type": "Bitmap64ExactCountBuild", "name": "n", "fieldName": "user"}]},
            "schema", "`at` TIMESTAMP NOT NULL, `shop` STRING, `user` BIGINT",
        ),
        (
            {"dataSchema.timestampSpec": {"column": None, "format": "millis"}}, "schema",
            "`timestamp` BIGINT NOT NULL, `shop` STRING",
        ),
        # the earlier form
        (parser("string", "json"), "schema", "`t` TIMESTAMP NOT NULL, `shop` STRING"),
        (parser(None, "json"), "time_formats", {"t": "auto"}),
        # the number of jobs, and the region
        ({"ioConfig.taskCount": 5, "ioConfig.autoScalerConfig": SCALER}, "supervise.task_count", MISSING),
        ({"ioConfig.taskCount": 5, "ioConfig.autoScalerConfig": None}, "supervise.task_count", 5),
        (
            {"ioConfig.autoScalerConfig": {**SCALER, "triggerScaleOutThresholdFrequency": 0.1}},
            "supervise.auto_scale.trigger_scale_out_fraction", MISSING,
        ),
        (
            {"ioConfig.region": "us-east-1", "ioConfig.endpoint": "kinesis.us-east-2.amazonaws.com"},
            "reads.kinesis.region_name", "us-east-2",
        ),
        (
            {"ioConfig.endpoint": "kinesis.us-east-2.amazonaws.com", "ioConfig.region": "us-east-1"},
            "reads.kinesis.region_name", "us-east-2",
        ),
        (
            {"ioConfig.region": "us-east-1", "ioConfig.endpoint": "http://localhost:4566"},
            "reads.kinesis.region_name", "us-east-1",
        ),
        # fields without a meaning
        ({"ioConfig.appendToExisting": False}, "source", "orders"),
        ({"ioConfig.enableIdleBehaviour": True, "ioConfig.idleSupervisorForStreamIdleMillis": 1}, "source", "orders"),
    ],
)  # fmt: skip
def test_combination_is_translated_as_druid_reads_it(changes: dict[str, Any], path: str, expected: Any) -> None:
    assert at(from_druid(druid(changes), lake="/lake").spec, path) == expected


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (parser("string", "regex"), NOT_DECODED.format("regex")),
        (parser("string", None), "'columns' must name the values"),
        (parser("avro_stream", "avro"), "'avroBytesDecoder' is of the type None"),
        (parser("protobuf", "json", descriptor="orders.desc"), "'protoBytesDecoder' is of the type None"),
        (parser("thrift", "json"), NOT_DECODED.format("thrift")),
        ({"ioConfig.inputFormat": ...}, "'ioConfig.inputFormat': it is missing; give the format of the payloads"),
        (
            fields({"type": "path", "name": "meta.at", "expr": "$.meta.at"}),
            r"field 'meta.at' is read from '\$.meta.at', but a schema only reads a field of its column's name",
        ),
        (fields({"type": "tree", "name": "at", "nodes": ["meta", "at"]}), r"is read from \['meta', 'at'\]"),
        (fields(featureSpec={"ALLOW_COMMENTS": True}), "'featureSpec' enables ALLOW_COMMENTS"),
        (fields(flatenSpec={}), "inputFormat has the unknown field 'flatenSpec'; the known fields are type, flattenSp"),
        (dimensions({"name": "place", "type": "spatial", "dims": ["x", "y"]}), "spatial dimensions belong to Druid's"),
        (dimensions({"name": "n", "type": "auto", "castToType": "COMPLEX"}), "'n' has the castToType 'COMPLEX'; use"),
        (dimensions({"name": "n", "type": "auto", "castToType": ["LONG"]}), r"'n' has the castToType \['LONG'\]; use"),
        (
            {"ioConfig.autoscalerConfig": SCALER},
            "'ioConfig.autoscalerConfig': it is unknown; write 'ioConfig.autoScalerConfig', or remove it",
        ),
    ],
)
def test_combination_is_refused_with_the_remedy(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        from_druid(druid(changes), lake="/lake")


@pytest.mark.parametrize(
    ("changes", "schema"),
    [
        # a column that the transform makes is not a field of the payload
        (
            fields({"type": "path", "name": "meta.at", "expr": "$.meta.at"})
            | {"dataSchema.timestampSpec": {"column": "meta.at", "format": "auto"}},
            "`shop` STRING",
        ),
        (computed(("size", "strlen(shop)")) | dimensions("size", "shop"), "`at` TIMESTAMP NOT NULL, `shop` STRING"),
        (computed(("shop", "trim(shop)")), "`at` TIMESTAMP NOT NULL, `shop` STRING"),
        (
            computed(("__time", "timestamp_parse(at)"))
            | {"dataSchema.timestampSpec": {"column": "!!!_no_such_column_!!!", "missingValue": "2010-01-01"}},
            "`shop` STRING",
        ),
        (dimensions("shard_id", "shop"), "`at` TIMESTAMP NOT NULL, `shop` STRING"),
        (dimensions("shop", "Shop"), "`at` TIMESTAMP NOT NULL, `shop` STRING"),
        # nor are the columns of payloads that it splits
        (fields(featureSpec={"ALLOW_COMMENTS": True}), MISSING),
        (parser("protobuf", "json") | dimensions("t", "T"), MISSING),
    ],
)
def test_schema_leaves_out_columns_of_the_transform(changes: dict[str, Any], schema: str | None) -> None:
    assert from_druid(druid(changes), lake="/lake", transform="orders:split").spec.get("schema") == schema


@pytest.mark.parametrize(
    "changes",
    [
        computed(("__time", "timestamp_parse(at)")),
        {"ioConfig.inputFormat": {"type": "regex"}},
    ],
)
def test_time_of_the_transform_rejects_no_records(changes: dict[str, Any]) -> None:
    given = druid(changes | {"ioConfig.lateMessageRejectionPeriod": "P1D"})
    with pytest.raises(ConfigurationError, match=r"'ioConfig\.lateMessageRejectionPeriod': records are rejected by a"):
        from_druid(given, lake="/lake", transform="orders:split")


def test_filter_of_a_computed_time_is_refused() -> None:
    given = druid(computed(("__time", "timestamp_parse(at)")))
    given["dataSchema"]["transformSpec"]["filter"] = {
        "type": "interval", "dimension": "__time", "intervals": ["2026-01-01/P1D"],
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match="filter on '__time' compares a string with an instant"):
        from_druid(given, lake="/lake", transform="orders:split")


def test_unknown_types_of_dimensions_are_left_to_the_user() -> None:
    translation = from_druid(druid(dimensions({"name": "paid", "type": "boolean"})), lake="/lake")
    assert [(row.field, row.note) for row in translation.manual] == [
        (
            "dataSchema.dimensionsSpec",
            "Druid reads unknown types as strings: `paid` is of type 'boolean'. Declare other types in `schema`.",
        )
    ]


@pytest.mark.parametrize(
    "around", [{"id": "orders", "state": "RUNNING", "healthy": True, "suspended": False}, {"version": "2026-01-01"}]
)
def test_spec_listed_by_druids_api_is_translated(around: dict[str, Any]) -> None:
    plain = druid({})
    shown = {"type": "kinesis", "spec": plain, **plain, "context": None, "suspended": False}
    assert from_druid({**around, "spec": shown}, lake="/lake").spec == from_druid(plain, lake="/lake").spec


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"type": "kafka", "ioConfig.topic": "orders"}, "'type': it is 'kafka'; only supervisors of type 'kinesis'"),
        (
            {"ioConfig.autoScalerConfig": {**SCALER, "autoScalerStrategy": "costBased", "lagWeight": 0.4}},
            "'costBased'; only scaling by lag is supported: use 'lagBased' with its thresholds",
        ),
    ],
)
def test_fields_of_another_type_are_not_reported(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error) as raised:
        from_druid(druid(changes), lake="/lake")
    assert "unknown" not in str(raised.value)
