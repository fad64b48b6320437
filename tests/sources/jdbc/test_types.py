"""Columns of each type are read as the manual's tables of types state."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_coordination.sources.jdbc.reader import (
    AS_IT_IS,
    DATABASE_TYPES,
    ColumnReading,
    DatabaseColumn,
    reading_of,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "jdbc.md"


def column(type_name: str, precision: int = 0, scale: int = 0) -> DatabaseColumn:
    return DatabaseColumn(name="a", type_name=type_name, precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("dialect", "read", "reading"),
    [
        ("postgresql", column("int4", 10), ColumnReading(spark_type="int")),
        ("postgresql", column("numeric"), ColumnReading(sql='CAST("a" AS text)', arrives_as="decimal(38,18)")),
        ("postgresql", column("numeric", 60, 20), ColumnReading(sql='CAST("a" AS text)', arrives_as="decimal(38,20)")),
        ("postgresql", column("numeric", 3, 2046), ColumnReading(sql='CAST("a" AS text)', arrives_as="decimal(5,0)")),
        ("postgresql", column("numeric", 3, 5), ColumnReading(sql='CAST("a" AS text)', arrives_as="decimal(5,5)")),
        ("postgresql", column("bit", 1), ColumnReading(spark_type="boolean")),
        ("postgresql", column("bit", 2), ColumnReading(sql='CAST("a" AS text)')),
        ("postgresql", column("hstore"), ColumnReading(sql='CAST("a" AS text)')),
        (
            "postgresql",
            column("_date"),
            ColumnReading(sql='CAST(array_to_json(CAST("a" AS text[])) AS text)', arrives_as="array<string>"),
        ),
        (
            "postgresql",
            column('"other"."_mood"'),
            ColumnReading(sql='CAST(array_to_json(CAST("a" AS text[])) AS text)', arrives_as="array<string>"),
        ),
        ("postgresql", column('"_other"."mood"'), ColumnReading(sql='CAST("a" AS text)')),
        ("mysql", column("INT UNSIGNED", 10), ColumnReading(spark_type="bigint")),
        ("mysql", column("DOUBLE UNSIGNED", 22), ColumnReading(spark_type="double")),
        ("mysql", column("FLOAT UNSIGNED", 12), ColumnReading(sql="(`a` + 0e0)", arrives_as="float")),
        ("mysql", column("VECTOR"), AS_IT_IS),
        ("oracle", column("DATE"), AS_IT_IS),
    ],
)
def test_column_is_read_by_its_type(dialect: str, read: DatabaseColumn, reading: ColumnReading) -> None:
    assert reading_of(dialect, read) == reading


@pytest.mark.parametrize("dialect", DATABASE_TYPES)
def test_manual_has_the_type_table(dialect: str) -> None:
    rows = [f"| {each.types} | `{each.arrives}` | {each.notes} |" for each in DATABASE_TYPES[dialect]]
    table = "\n".join(["| database type | arrives as | notes |", "|---|---|---|", *rows])
    assert table in PAGE.read_text(encoding="utf-8"), f"write this table into docs/jdbc.md:\n{table}"
