"""Reading ranges through Spark, since JDBC drivers are Java.

The password is only passed to the driver, as a property of the connection. It is not in the URL, Spark's configuration,
a plan or a log line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import ARRIVES_AS, REMEDY, FrameReader, Item, ItemUnreadableError
from airflow_provider_coordination.sources.jdbc.column import RANGE_KEY
from airflow_provider_coordination.sources.jdbc.kind import DRIVERS, JdbcTable
from airflow_provider_coordination.sources.jdbc.ranges import Range
from airflow_provider_coordination.sources.jdbc.types import (
    DATABASE_TYPES,
    ColumnReading,
    DatabaseColumn,
    as_text,
    reading_of,
)
from airflow_provider_coordination.sources.jdbc.values import quoted
from airflow_provider_coordination.spark.spark_versions import as_read_from_database
from airflow_provider_coordination.sql import MYSQL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CONNECTOR_J = DRIVERS["mysql"][0]
NUMBERS_OF_MYSQL = {"tinyInt1isBit": "false", "yearIsDateType": "false"}
"""What the drivers of MySQL and MariaDB need, so that small numbers and years do not become booleans and dates."""


class RangeReader(FrameReader):
    """Reads ranges of a table or query.

    :param settings: the connection, and the table or query.
    :raises ConfigurationError: if a setting is invalid.
    """

    def __init__(self, settings: JdbcTable) -> None:
        settings.database.check()
        self._settings = settings
        self._driver = settings.driver_class

    @classmethod
    @override
    def from_mapping(cls, settings: Mapping[str, Any]) -> RangeReader:
        return cls(JdbcTable.from_mapping(settings))

    @override
    def check(self, spark: SparkSession) -> None:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            spark._jvm.org.apache.spark.util.Utils.classForName(self._driver, True, False)  # type: ignore[union-attr]
        except Py4JJavaError as error:
            package = next((package for driver, package in DRIVERS.values() if driver == self._driver), None)
            named = f"packages='{package}:<version>'" if package else "the package that has it as 'packages'"
            raise ConfigurationError(
                f"JDBC driver {self._driver!r} cannot be loaded by Spark: {error.java_exception.toString()}; give the "
                f"operator {named}, or the driver's jar as 'jars'"
            ) from None

    @override
    def columns(self, spark: SparkSession) -> StructType:
        return self.frame(spark, ()).schema

    @override
    def frame(self, spark: SparkSession, items: Sequence[Item]) -> DataFrame:
        from pyspark.sql.functions import col

        settings, ranges = self._settings, [Range.from_item(item) for item in items]
        predicates = [self._predicate(each) for each in ranges]  # each is one Spark partition
        columns = columns_of(spark, settings) if settings.dialect in DATABASE_TYPES else ()
        readings = {column.name: reading_of(settings.dialect, column) for column in columns}
        converted = {name for name, reading in readings.items() if reading.sql}
        relation = settings.relation
        if converted:
            relation = self._converting(relation, readings, {each.column for each in ranges} & converted)
            predicates = [
                self._predicate(replace(each, column=RANGE_KEY) if each.column in converted else each)
                for each in ranges
            ]
        frame = spark.read.jdbc(
            settings.database.url, relation, predicates=predicates, properties=driver_properties(settings)
        )
        if not readings:
            return frame
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema}
        return frame.select(
            [
                as_read_from_database(col(f"`{name.replace('`', '``')}`"), kinds[name], reading.spark_type or "").alias(
                    name, metadata=self._metadata(name, reading)
                )
                for name, reading in readings.items()
            ]
        )

    @override
    def origin(self, item: Item) -> str:
        return f"{self._settings.name}: {Range.from_item(item)}"

    def _converting(self, relation: str, readings: Mapping[str, ColumnReading], cut_by: Iterable[str]) -> str:
        """Return a relation that converts columns, and also has the column of the ranges as it is.

        :param cut_by: the column of the ranges, if it is converted.
        """
        dialect = self._settings.dialect
        selected = [
            quoted(dialect, name) if reading.sql is None else f"{reading.sql} AS {quoted(dialect, name)}"
            for name, reading in readings.items()
        ]
        selected += [f"{quoted(dialect, column)} AS {quoted(dialect, RANGE_KEY)}" for column in cut_by]
        return f"(SELECT {', '.join(selected)} FROM {relation}) coordination_types"

    def _metadata(self, name: str, reading: ColumnReading) -> dict[str, str]:
        if reading.arrives_as is None:
            return {}
        dialect = self._settings.dialect
        remedy = f"read it as text by a 'query' with {as_text(dialect, name)}, or leave the row out"
        if dialect == MYSQL and reading.arrives_as == "timestamp":
            remedy += "; if it ends with a zone's name, let 'session' set time_zone to an offset such as '+00:00'"
        return {ARRIVES_AS: reading.arrives_as, REMEDY: remedy}

    def _predicate(self, read: Range) -> str:
        try:
            return read.predicate(self._settings.dialect)
        except ValueError as error:
            raise ItemUnreadableError(f"{self._settings.name}: {read}: {error}") from None


def driver_properties(settings: JdbcTable) -> dict[str, str]:
    """Return the properties of a connection, for Spark and the driver; given ones replace the defaults."""
    defaults = dict(NUMBERS_OF_MYSQL) if settings.dialect == MYSQL else {}
    if settings.driver_class == CONNECTOR_J:
        defaults["useCursorFetch"] = "true"  # otherwise all rows of a range are fetched at once
    property_names = {
        name.lower() for name in (*settings.database.properties, *re.findall(r"[?&](\w+)=", settings.database.url))
    }
    connection = {
        "driver": settings.driver_class,
        "fetchsize": str(settings.fetch_size),
        # A time without a zone is unchanged, whatever the time zone of the JVM.
        "preferTimestampNTZ": "true",
        "user": settings.database.user,
        "password": settings.database.password,
        "sessionInitStatement": settings.session_statement,
    }
    return {
        **{name: value for name, value in defaults.items() if name.lower() not in property_names},
        **settings.database.properties,
        **{name: value for name, value in connection.items() if value is not None},
    }


def columns_of(spark: SparkSession, settings: JdbcTable) -> list[DatabaseColumn]:
    """Return the columns of a table or query as the driver describes them."""
    jvm: Any = spark._jvm
    options = {**driver_properties(settings), "url": settings.database.url, "dbtable": settings.relation}
    of_spark = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(jvm.PythonUtils.toScalaMap(options))
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(settings.database.url)
    connection = dialect.createConnectionFactory(of_spark).apply(-1)
    try:
        statement = connection.createStatement()
        if settings.session_statement is not None:
            statement.execute(settings.session_statement)
        described = statement.executeQuery(f"SELECT * FROM {settings.relation} WHERE 1 = 0").getMetaData()
        return [
            DatabaseColumn(
                name=described.getColumnLabel(n),
                type_name=described.getColumnTypeName(n),
                precision=described.getPrecision(n),
                scale=described.getScale(n),
            )
            for n in range(1, described.getColumnCount() + 1)
        ]
    finally:
        connection.close()
