"""Spark's versions have the same results; these tests run on the one of this environment, and on others by hand."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession, functions

from airflow_provider_coordination.spark.spark_versions import (
    activate,
    arrow_table,
    condition_of,
    frame_schema,
    is_valid_utf8,
    sql_state,
    try_cast,
    type_of_ddl,
)

pytestmark = pytest.mark.share(0.2)

CODES = """
00 7f 80 bf c080 c1bf c2 c280 dfbf e08080 e09fbf e0a080 e282 ed9fbf eda080 edbfbf ee8080 efbfbd efbfbf f0808080
f08fbfbf f0908080 f48fbfbf f4908080 f5808080 f888808080 fe ff efbbbf61 61c3a9ff
"""
EDGES = [bytes.fromhex(code) for code in CODES.split()]
"""The ends of the ranges that Unicode's table of well-formed UTF-8 has."""
PIECES = st.one_of(st.sampled_from(EDGES), st.binary(max_size=4), st.text(max_size=3).map(lambda text: text.encode()))


def is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(PIECES, max_size=6).map(b"".join), min_size=20, max_size=50))
def test_utf8_is_what_unicode_defines(spark: SparkSession, payloads: list[bytes]) -> None:
    rows = spark.createDataFrame([(bytearray(payload),) for payload in [*EDGES, *payloads]], "data BINARY")
    found = rows.select("data", is_valid_utf8(functions.col("data").cast("string")).alias("is_utf8")).collect()
    assert [bytes(row.data) for row in found if row.is_utf8 != is_utf8(bytes(row.data))] == []


CASTS: dict[tuple[str, str], str | None] = {
    ("tinyint", "128"): None, ("tinyint", "127"): "127", ("bigint", "9223372036854775808"): None, ("int", "x"): None,
    ("int", "1.5"): None, ("int", " 7 "): "7", ("double", "1e400"): "Infinity", ("double", "x"): None,
    ("decimal(3,1)", "99.95"): None, ("decimal(3,1)", "99.94"): "99.9", ("date", "2024-02-30"): None,
    ("timestamp", "2024-05-06T07:08:09Z"): "2024-05-06 07:08:09", ("timestamp", "24:00"): None,
    ("timestamp_ntz", "2024-05-06 07:08:09.5"): "2024-05-06 07:08:09.5", ("boolean", "maybe"): None,
}  # fmt: skip


def reversed_try_cast(kind: str, value: Column) -> Column:
    return try_cast(value, kind)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_try_cast_is_null_where_ansi_fails(spark: SparkSession, ansi: str) -> None:
    given_ansi = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        texts = [(kind, functions.lit(text)) for kind, text in CASTS]
        plain = [try_cast(text, kind).cast("string") for kind, text in texts]
        in_lambda = [
            functions.transform(functions.array(text), partial(reversed_try_cast, kind))[0].cast("string")
            for kind, text in texts
        ]
        [found] = (
            spark.range(1).select(*(column.alias(str(n)) for n, column in enumerate([*plain, *in_lambda]))).collect()
        )
        assert list(found) == 2 * list(CASTS.values())
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(given_ansi))


def test_ddl_of_columns_and_of_a_type_is_parsed(spark: SparkSession) -> None:
    assert type_of_ddl("a INT NOT NULL, `b c` ARRAY<STRING>").jsonValue() == {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "integer", "nullable": False, "metadata": {}},
            {"name": "b c", "type": {"type": "array", "elementType": "string", "containsNull": True}, "nullable": True,
             "metadata": {}},
        ],
    }  # fmt: skip
    assert type_of_ddl("DECIMAL(3,1)").simpleString() == "decimal(3,1)"


def test_instants_and_local_times_keep_their_arrow_types(spark: SparkSession) -> None:
    columns = pa.schema({"at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "text": pa.string()})
    assert [field.dataType.simpleString() for field in frame_schema(columns)] == [
        "timestamp",
        "timestamp_ntz",
        "string",
    ]
    assert arrow_table(spark.createDataFrame([], frame_schema(columns))).schema.remove_metadata() == columns


def failing(number: int) -> int:
    raise ValueError(f"{number} is wrong")


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (lambda: functions.udf(failing, "long")("id"), "38000"),
        (lambda: functions.raise_error(functions.lit("wrong")).cast("long"), "P0001"),
        (lambda: functions.expr("CAST(concat('x', id) AS BIGINT)"), "22018"),
        (lambda: functions.expr("1 / id"), "22012"),
        (lambda: functions.expr("CAST(id + 300 AS TINYINT)"), "22003"),
    ],
    ids=["a function in Python", "raise_error", "a cast", "a division", "an overflow"],
)
def test_error_in_data_has_its_sqlstate(spark: SparkSession, value: Callable[[], Column], state: str) -> None:
    with pytest.raises((PySparkException, Py4JJavaError)) as failure:
        spark.range(1).select(value().alias("value")).collect()
    assert sql_state(failure.value) == state


def test_ansi_mode_applies_to_expressions_of_other_threads(spark: SparkSession) -> None:
    def divided() -> Column:
        activate(spark)
        return functions.expr("1 / id")

    with ThreadPoolExecutor(1) as pool, pytest.raises((PySparkException, Py4JJavaError)) as failure:
        spark.range(1).select(pool.submit(divided).result()).collect()
    assert sql_state(failure.value) == "22012"


def test_unknown_attribute_is_known_by_its_condition(spark: SparkSession) -> None:
    with pytest.raises(AttributeError) as failure:
        spark.range(1).colour  # noqa: B018
    assert condition_of(failure.value) == "ATTRIBUTE_NOT_SUPPORTED"
    with pytest.raises(AttributeError) as other:
        object().colour  # type: ignore[attr-defined]  # noqa: B018
    assert condition_of(other.value) == ""


def test_unknown_column_is_known_by_its_condition(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as failure:
        spark.range(1).select("nowhere")
    assert condition_of(failure.value).startswith("UNRESOLVED_COLUMN")
