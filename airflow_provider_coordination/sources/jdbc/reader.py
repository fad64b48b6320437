"""Reading ranges through Spark, since JDBC drivers are Java, and as what a column of each type arrives.

The password is only passed to the driver, as a property of the connection. It is not in the URL, Spark's configuration,
a plan or a log line.

Drivers and Spark change some values without an error: they round decimals, move times by the zone of the JVM, pad
texts, and replace infinity and invalid dates. So the database itself converts such a column to text, in the query.
Landing converts the text to the column's type, and refuses a text that is not such a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import ARRIVES_AS, REMEDY, FrameReader, Item, ItemUnreadableError
from airflow_provider_coordination.sources.jdbc.kind import JDBC_DRIVERS, JdbcTable
from airflow_provider_coordination.sources.jdbc.ranges import Range, quoted
from airflow_provider_coordination.sources.jdbc.supplier import RANGE_KEY
from airflow_provider_coordination.spark.spark_versions import as_read_from_database
from airflow_provider_coordination.sql import MYSQL, POSTGRESQL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MAX_DIGITS = 38
"""The maximum precision of a decimal in Spark and Arrow."""
SCALE_WITHOUT_PRECISION = 18
DECIMAL, TEXT = "decimal(p,s)", "string"


@dataclass(frozen=True, kw_only=True)
class DatabaseColumn:
    """A column as a JDBC driver describes it.

    :param name: its name.
    :param type_name: the driver's name of its type.
    :param precision: its digits, bits or characters.
    :param scale: its digits after the point.
    """

    name: str
    type_name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, kw_only=True)
class ColumnReading:
    """How a column is read.

    :param sql: the expression that the database evaluates; None for the column itself.
    :param arrives_as: the Spark type to which landing converts the expression; None if it is not converted.
    :param spark_type: the Spark type of the column itself; None if Spark chooses it.
    """

    sql: str | None = None
    arrives_as: str | None = None
    spark_type: str | None = None


AS_IT_IS = ColumnReading()


@dataclass(frozen=True)
class DatabaseType:
    """Types of a database whose columns are read in the same way.

    :param types: the types, as the database's manual names them.
    :param reported: the driver's names of the types, in lower case; with a precision, such as `bit(1)`, of this one.
    :param arrives: the Spark type of the column that arrives.
    :param notes: what else a user should know.
    :param sql: the expression, with the column as `{}`, that landing converts to `arrives`; None for the column itself.
    """

    types: str
    reported: tuple[str, ...]
    arrives: str
    notes: str = ""
    sql: str | None = None

    def reading(self, dialect: str, column: DatabaseColumn) -> ColumnReading:
        """Return how a column of one of these types is read."""
        if self.sql is None:
            return ColumnReading(spark_type=self.arrives)
        arrives = _decimal(column) if self.arrives == DECIMAL else self.arrives
        sql = self.sql.replace("{}", quoted(dialect, column.name))
        return ColumnReading(sql=sql, arrives_as=None if arrives == TEXT else arrives)


_PG_TEXT = "CAST({} AS text)"
_PG_JSON = "CAST(array_to_json({}) AS text)"
_MY_TEXT = "CAST({} AS CHAR)"
_YEARS = "Years 1 to 9999. Others, BC and infinity are refused."


def _array(element: str, reported: str, arrives: str) -> DatabaseType:
    return DatabaseType(
        f"`{element}[]`",
        (f"_{reported}",),
        f"array<{arrives}>",
        notes="Several dimensions are refused. Index bounds are not kept.",
        sql=_PG_JSON,
    )


OTHER_ARRAY = DatabaseType(
    "other arrays",
    (),
    "array<string>",
    notes="Elements as PostgreSQL casts them to text. Several dimensions are refused.",
    sql="CAST(array_to_json(CAST({} AS text[])) AS text)",
)
OTHER_OF_POSTGRESQL = DatabaseType(
    "all others, such as `time`, `timetz`, `interval`, `bit(n)`, `varbit`, `json`, `jsonb`, `uuid`, `xml`, "
    "ranges, enums, composite and geometric types",
    (),
    "string",
    notes="The text as PostgreSQL writes it.",
    sql=_PG_TEXT,
)

DATABASE_TYPES: Mapping[str, tuple[DatabaseType, ...]] = {
    POSTGRESQL: (
        DatabaseType("`smallint`", ("int2", "smallserial"), "smallint"),
        DatabaseType("`integer`", ("int4", "serial"), "int"),
        DatabaseType("`bigint`", ("int8", "bigserial"), "bigint"),
        DatabaseType("`oid`", ("oid",), "decimal(20,0)"),
        DatabaseType(
            "`numeric(p,s)`",
            ("numeric",),
            DECIMAL,
            notes="Without a precision: `decimal(38,18)`. More digits than that, `NaN` and infinity are refused.",
            sql=_PG_TEXT,
        ),
        DatabaseType(
            "`money`",
            ("money",),
            "decimal(38,18)",
            notes="The amount, without the currency.",
            sql="CAST(CAST({} AS numeric) AS text)",
        ),
        DatabaseType("`real`", ("float4",), "float", notes="With `NaN` and infinity."),
        DatabaseType("`double precision`", ("float8",), "double", notes="With `NaN` and infinity."),
        DatabaseType("`boolean`, `bit(1)`", ("bool", "bit(1)"), "boolean"),
        DatabaseType("`char(n)`", ("bpchar",), "string", notes="With its spaces at the end, as stored."),
        DatabaseType("`varchar`, `text`", ("varchar", "text"), "string"),
        # The cast to text would add a mask.
        DatabaseType("`inet`", ("inet",), "string"),
        DatabaseType("`bytea`", ("bytea",), "binary"),
        DatabaseType("`date`", ("date",), "date", notes=_YEARS, sql=_PG_TEXT),
        DatabaseType("`timestamp`", ("timestamp",), "timestamp_ntz", notes=_YEARS, sql=_PG_TEXT),
        DatabaseType(
            "`timestamptz`",
            ("timestamptz",),
            "timestamp",
            notes=_YEARS,
            # The offset of a zone may have seconds, which no parser of ISO 8601 accepts; UTC has none.
            sql="CASE WHEN isfinite({}) THEN CAST({} AT TIME ZONE 'UTC' AS text) || '+00' ELSE CAST({} AS text) END",
        ),
        _array("smallint", "int2", "smallint"),
        _array("integer", "int4", "int"),
        _array("bigint", "int8", "bigint"),
        _array("real", "float4", "float"),
        _array("double precision", "float8", "double"),
        _array("boolean", "bool", "boolean"),
        _array("text", "text", "string"),
        _array("varchar", "varchar", "string"),
        OTHER_ARRAY,
        OTHER_OF_POSTGRESQL,
    ),
    MYSQL: (
        DatabaseType(
            "`TINYINT`, `BOOLEAN`",
            ("tinyint", "boolean"),
            "tinyint",
            notes="`TINYINT(1)` too. The property `tinyInt1isBit=true` makes it a boolean, where 2 is true.",
        ),
        DatabaseType("`TINYINT UNSIGNED`, `SMALLINT`", ("tinyint unsigned", "smallint"), "smallint"),
        DatabaseType(
            "`SMALLINT UNSIGNED`, `MEDIUMINT`, `INT`",
            ("smallint unsigned", "mediumint", "mediumint unsigned", "int", "integer"),
            "int",
        ),
        DatabaseType("`INT UNSIGNED`, `BIGINT`", ("int unsigned", "integer unsigned", "bigint"), "bigint"),
        DatabaseType("`BIGINT UNSIGNED`", ("bigint unsigned",), "decimal(20,0)"),
        DatabaseType("`YEAR`", ("year",), "int", notes="0 and 1901 to 2155."),
        DatabaseType("`BIT(1)`", ("bit(1)",), "boolean"),
        DatabaseType(
            "`BIT(n)`",
            ("bit",),
            "decimal(20,0)",
            notes="The number that the bits are.",
            sql="CAST(CAST({} AS UNSIGNED) AS CHAR)",
        ),
        DatabaseType(
            "`DECIMAL(p,s)`",
            ("decimal",),
            DECIMAL,
            notes="`p` is at most 38. A value with more digits is refused.",
            sql=_MY_TEXT,
        ),
        DatabaseType(
            "`FLOAT`",
            ("float",),
            "float",
            notes="With all digits, which the database itself does not show.",
            sql="({} + 0e0)",
        ),
        DatabaseType("`DOUBLE`", ("double",), "double"),
        DatabaseType(
            "`CHAR`, `ENUM`, `SET`, `INET4`, `INET6`, `UUID`",
            ("char", "enum", "set", "inet4", "inet6", "uuid"),
            "string",
            notes="`CHAR` without its spaces at the end, as the database returns it.",
            sql=_MY_TEXT,
        ),
        DatabaseType(
            "`VARCHAR`, `TINYTEXT`, `TEXT`, `MEDIUMTEXT`, `LONGTEXT`, `JSON`",
            ("varchar", "tinytext", "text", "mediumtext", "longtext", "json"),
            "string",
        ),
        DatabaseType(
            "`BINARY`, `VARBINARY`, `TINYBLOB`, `BLOB`, `MEDIUMBLOB`, `LONGBLOB`",
            ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
            "binary",
        ),
        DatabaseType(
            "`GEOMETRY`, `POINT` and the like",
            ("geometry", "point", "polygon"),
            "binary",
            notes="The reference system as four bytes, least first, then well-known binary.",
        ),
        DatabaseType(
            "`DATE`",
            ("date",),
            "date",
            notes="Dates with a zero, such as `0000-00-00` and `2024-00-00`, are refused.",
            sql=_MY_TEXT,
        ),
        DatabaseType(
            "`DATETIME`", ("datetime",), "timestamp_ntz", notes="Dates with a zero are refused.", sql=_MY_TEXT
        ),
        DatabaseType(
            "`TIMESTAMP`",
            ("timestamp",),
            "timestamp",
            notes="The zero date is refused. So is each value in a session whose `time_zone` is not an offset.",
            sql="CONCAT({}, @@session.time_zone)",
        ),
        DatabaseType("`TIME`", ("time",), "string", notes="Such as `-838:59:59`.", sql=_MY_TEXT),
    ),
}
"""How columns are read, by the kind of database. The order is the manual's."""


def type_of(dialect: str, column: DatabaseColumn) -> DatabaseType | None:
    """Return the type of a column; None if the table of types does not have it.

    :param dialect: the kind of database.
    :param column: the column.
    """
    known = DATABASE_TYPES.get(dialect, ())
    name = column.type_name.lower()
    for reported in (f"{name}({column.precision})", name, name.removesuffix(" unsigned")):
        for each in known:
            if reported in each.reported:
                return each
    if dialect == POSTGRESQL:
        is_array = re.search(r'(^|\.)"?_[^."]*"?$', name)  # another schema's name comes first, in quotes
        return OTHER_ARRAY if is_array else OTHER_OF_POSTGRESQL
    return None


def reading_of(dialect: str, column: DatabaseColumn) -> ColumnReading:
    """Return how a column is read; as Spark maps it, if the table of types does not have its type."""
    found = type_of(dialect, column)
    return AS_IT_IS if found is None else found.reading(dialect, column)


def as_text(dialect: str, name: str) -> str:
    """Return the expression that a query needs to read a column as text."""
    return (_MY_TEXT if dialect == MYSQL else _PG_TEXT).replace("{}", quoted(dialect, name))


def _decimal(column: DatabaseColumn) -> str:
    """Return the widest decimal with a column's digits after the point, and no more digits than the column has."""
    if not column.precision:
        return f"decimal({MAX_DIGITS},{SCALE_WITHOUT_PRECISION})"
    # PostgreSQL's driver reports the eleven bits of a negative scale without their sign.
    scale = column.scale - 2048 if column.scale > 1023 else column.scale
    precision = max(column.precision - min(scale, 0), scale)
    return f"decimal({min(precision, MAX_DIGITS)},{min(max(scale, 0), MAX_DIGITS)})"


CONNECTOR_J = JDBC_DRIVERS["mysql"][0]
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
            package = next((package for driver, package in JDBC_DRIVERS.values() if driver == self._driver), None)
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
