"""Filters of Druid hold for the same records as predicates of Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_coordination.supervisor.druid.filters import Filters
from airflow_provider_coordination.supervisor.druid.rows import UnsupportedFieldError

COLUMNS = {"name": "STRING", "n": "BIGINT", "at": "TIMESTAMP"}
FILTERS = Filters(COLUMNS, {"__time": "at"})
RECORDS = [
    ("a", 1, "2026-01-01 00:00:00"),
    ("B'\\%", 10, "2026-01-02 00:00:00"),
    ("10", -5, "2026-01-03 00:00:00"),
    (None, None, "2026-02-01 00:00:00"),
]
FIRST, ODD, TEN, NULL = range(4)
CASES: list[tuple[dict[str, Any], set[int]]] = [
    ({"type": "selector", "dimension": "name", "value": "a"}, {FIRST}),
    ({"type": "selector", "dimension": "name", "value": "B'\\%"}, {ODD}),
    ({"type": "selector", "dimension": "n", "value": "10"}, {ODD}),
    ({"type": "selector", "dimension": "name", "value": None}, {NULL}),
    ({"type": "null", "column": "n"}, {NULL}),
    ({"type": "equals", "column": "n", "matchValueType": "LONG", "matchValue": -5}, {TEN}),
    ({"type": "in", "dimension": "name", "values": ["a", None]}, {FIRST, NULL}),
    ({"type": "inType", "column": "n", "sortedValues": [1, 10]}, {FIRST, ODD}),
    ({"type": "not", "field": {"type": "selector", "dimension": "name", "value": "a"}}, {ODD, TEN}),
    (
        {
            "type": "or",
            "fields": [
                {"type": "selector", "dimension": "name", "value": "a"},
                {"type": "and", "fields": [{"type": "null", "column": "n"}, {"type": "true"}]},
            ],
        },
        {FIRST, NULL},
    ),
    ({"type": "false"}, set()),
    ({"type": "bound", "dimension": "name", "lower": "A", "upper": "a"}, {FIRST, ODD}),
    ({"type": "bound", "dimension": "name", "lower": "A", "upper": "a", "upperStrict": True}, {ODD}),
    ({"type": "bound", "dimension": "name", "lower": "9", "ordering": "numeric"}, {TEN}),
    ({"type": "bound", "dimension": "n", "lower": "1", "lowerStrict": True, "ordering": "numeric"}, {ODD}),
    ({"type": "bound", "dimension": "name", "upper": "x", "ordering": "strlen"}, {FIRST}),
    ({"type": "range", "column": "n", "lower": 1, "upper": 10, "upperOpen": True}, {FIRST}),
    ({"type": "interval", "dimension": "__time", "intervals": ["2026-01-02/2026-01-03"]}, {ODD}),
    (
        {"type": "interval", "dimension": "__time", "intervals": ["2026-01-02/P1D", "PT1S/2026-02-01T00:00:01"]},
        {ODD, NULL},
    ),
    ({"type": "interval", "dimension": "__time", "intervals": ["2026-01/P1M"]}, {FIRST, ODD, TEN}),
    ({"type": "like", "dimension": "name", "pattern": "_'\\%"}, {ODD}),
    ({"type": "like", "dimension": "name", "pattern": "%#%", "escape": "#"}, {ODD}),
    ({"type": "regex", "dimension": "name", "pattern": "^\\d+$"}, {TEN}),
    ({"type": "search", "dimension": "name", "query": {"type": "insensitive_contains", "value": "b"}}, {ODD}),
    (
        {"type": "search", "dimension": "name", "query": {"type": "contains", "value": "b", "caseSensitive": True}},
        set(),
    ),
    ({"type": "columnComparison", "dimensions": ["name", "n"]}, {NULL}),
]


@pytest.mark.parametrize(
    "given",
    [
        {"type": "expression", "expression": "n > 1"},
        {"type": "selector", "dimension": "name", "value": "a", "extractionFn": {"type": "upper"}},
        {"type": "bound", "dimension": "name", "lower": "a", "ordering": "alphanumeric"},
        {"type": "bound", "dimension": "name"},
        {"type": "selector", "dimension": "n", "value": "many"},
        {"type": "and", "fields": []},
        "a",
    ],
    ids=str,
)
def test_filter_unknown_to_spark_is_refused(given: Any) -> None:
    with pytest.raises(UnsupportedFieldError):
        FILTERS.predicate(given)


@pytest.mark.integration
def test_filters_match_the_same_records_as_in_druid(spark: SparkSession) -> None:
    rows = [(number, *record) for number, record in enumerate(RECORDS)]
    records = spark.createDataFrame(rows, "number INT, name STRING, n BIGINT, at STRING")
    records = records.selectExpr("number", "name", "n", "CAST(concat(at, 'Z') AS TIMESTAMP) AS at")
    held = records.selectExpr("number", *(f"{FILTERS.predicate(given)} AS c{n}" for n, (given, _) in enumerate(CASES)))
    found = held.collect()
    holds = [{row["number"] for row in found if row[f"c{n}"]} for n in range(len(CASES))]
    assert list(zip((given for given, _ in CASES), holds, strict=True)) == CASES
