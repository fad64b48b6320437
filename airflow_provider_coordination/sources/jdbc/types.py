"""The types of PostgreSQL, and of MySQL and MariaDB: how a column of each is read, and as what it arrives.

Drivers and Spark change some values without an error: they round decimals, move times by the zone of the JVM, pad
texts, and replace infinity and invalid dates. So the database itself converts such a column to text, in the query.
Landing converts the text to the column's type, and refuses a text that is not such a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_coordination.sources.jdbc.values import quoted
from airflow_provider_coordination.sql import MYSQL, POSTGRESQL

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


@dataclass(frozen=True, kw_only=True)
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
        types=f"`{element}[]`",
        reported=(f"_{reported}",),
        arrives=f"array<{arrives}>",
        notes="Several dimensions are refused. Index bounds are not kept.",
        sql=_PG_JSON,
    )


OTHER_ARRAY = DatabaseType(
    types="other arrays",
    reported=(),
    arrives="array<string>",
    notes="Elements as PostgreSQL casts them to text. Several dimensions are refused.",
    sql="CAST(array_to_json(CAST({} AS text[])) AS text)",
)
OTHER_OF_POSTGRESQL = DatabaseType(
    types="all others, such as `time`, `timetz`, `interval`, `bit(n)`, `varbit`, `json`, `jsonb`, `uuid`, `xml`, "
    "ranges, enums, composite and geometric types",
    reported=(),
    arrives="string",
    notes="The text as PostgreSQL writes it.",
    sql=_PG_TEXT,
)

DATABASE_TYPES: Mapping[str, tuple[DatabaseType, ...]] = {
    POSTGRESQL: (
        DatabaseType(types="`smallint`", reported=("int2", "smallserial"), arrives="smallint"),
        DatabaseType(types="`integer`", reported=("int4", "serial"), arrives="int"),
        DatabaseType(types="`bigint`", reported=("int8", "bigserial"), arrives="bigint"),
        DatabaseType(types="`oid`", reported=("oid",), arrives="decimal(20,0)"),
        DatabaseType(
            types="`numeric(p,s)`",
            reported=("numeric",),
            arrives=DECIMAL,
            notes="Without a precision: `decimal(38,18)`. More digits than that, `NaN` and infinity are refused.",
            sql=_PG_TEXT,
        ),
        DatabaseType(
            types="`money`",
            reported=("money",),
            arrives="decimal(38,18)",
            notes="The amount, without the currency.",
            sql="CAST(CAST({} AS numeric) AS text)",
        ),
        DatabaseType(types="`real`", reported=("float4",), arrives="float", notes="With `NaN` and infinity."),
        DatabaseType(
            types="`double precision`", reported=("float8",), arrives="double", notes="With `NaN` and infinity."
        ),
        DatabaseType(types="`boolean`, `bit(1)`", reported=("bool", "bit(1)"), arrives="boolean"),
        DatabaseType(
            types="`char(n)`", reported=("bpchar",), arrives="string", notes="With its spaces at the end, as stored."
        ),
        DatabaseType(types="`varchar`, `text`", reported=("varchar", "text"), arrives="string"),
        # The cast to text would add a mask.
        DatabaseType(types="`inet`", reported=("inet",), arrives="string"),
        DatabaseType(types="`bytea`", reported=("bytea",), arrives="binary"),
        DatabaseType(
            types="`date`",
            reported=("date",),
            arrives="date",
            notes=_YEARS,
            sql=_PG_TEXT,
        ),
        DatabaseType(
            types="`timestamp`",
            reported=("timestamp",),
            arrives="timestamp_ntz",
            notes=_YEARS,
            sql=_PG_TEXT,
        ),
        DatabaseType(
            types="`timestamptz`",
            reported=("timestamptz",),
            arrives="timestamp",
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
            types="`TINYINT`, `BOOLEAN`",
            reported=("tinyint", "boolean"),
            arrives="tinyint",
            notes="`TINYINT(1)` too. The property `tinyInt1isBit=true` makes it a boolean, where 2 is true.",
        ),
        DatabaseType(
            types="`TINYINT UNSIGNED`, `SMALLINT`", reported=("tinyint unsigned", "smallint"), arrives="smallint"
        ),
        DatabaseType(
            types="`SMALLINT UNSIGNED`, `MEDIUMINT`, `INT`",
            reported=("smallint unsigned", "mediumint", "mediumint unsigned", "int", "integer"),
            arrives="int",
        ),
        DatabaseType(
            types="`INT UNSIGNED`, `BIGINT`", reported=("int unsigned", "integer unsigned", "bigint"), arrives="bigint"
        ),
        DatabaseType(types="`BIGINT UNSIGNED`", reported=("bigint unsigned",), arrives="decimal(20,0)"),
        DatabaseType(types="`YEAR`", reported=("year",), arrives="int", notes="0 and 1901 to 2155."),
        DatabaseType(types="`BIT(1)`", reported=("bit(1)",), arrives="boolean"),
        DatabaseType(
            types="`BIT(n)`",
            reported=("bit",),
            arrives="decimal(20,0)",
            notes="The number that the bits are.",
            sql="CAST(CAST({} AS UNSIGNED) AS CHAR)",
        ),
        DatabaseType(
            types="`DECIMAL(p,s)`",
            reported=("decimal",),
            arrives=DECIMAL,
            notes="`p` is at most 38. A value with more digits is refused.",
            sql=_MY_TEXT,
        ),
        DatabaseType(
            types="`FLOAT`",
            reported=("float",),
            arrives="float",
            notes="With all digits, which the database itself does not show.",
            sql="({} + 0e0)",
        ),
        DatabaseType(types="`DOUBLE`", reported=("double",), arrives="double"),
        DatabaseType(
            types="`CHAR`, `ENUM`, `SET`, `INET4`, `INET6`, `UUID`",
            reported=("char", "enum", "set", "inet4", "inet6", "uuid"),
            arrives="string",
            notes="`CHAR` without its spaces at the end, as the database returns it.",
            sql=_MY_TEXT,
        ),
        DatabaseType(
            types="`VARCHAR`, `TINYTEXT`, `TEXT`, `MEDIUMTEXT`, `LONGTEXT`, `JSON`",
            reported=("varchar", "tinytext", "text", "mediumtext", "longtext", "json"),
            arrives="string",
        ),
        DatabaseType(
            types="`BINARY`, `VARBINARY`, `TINYBLOB`, `BLOB`, `MEDIUMBLOB`, `LONGBLOB`",
            reported=("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
            arrives="binary",
        ),
        DatabaseType(
            types="`GEOMETRY`, `POINT` and the like",
            reported=("geometry", "point", "polygon"),
            arrives="binary",
            notes="The reference system as four bytes, least first, then well-known binary.",
        ),
        DatabaseType(
            types="`DATE`",
            reported=("date",),
            arrives="date",
            notes="Dates with a zero, such as `0000-00-00` and `2024-00-00`, are refused.",
            sql=_MY_TEXT,
        ),
        DatabaseType(
            types="`DATETIME`",
            reported=("datetime",),
            arrives="timestamp_ntz",
            notes="Dates with a zero are refused.",
            sql=_MY_TEXT,
        ),
        DatabaseType(
            types="`TIMESTAMP`",
            reported=("timestamp",),
            arrives="timestamp",
            notes="The zero date is refused. So is each value in a session whose `time_zone` is not an offset.",
            sql="CONCAT({}, @@session.time_zone)",
        ),
        DatabaseType(
            types="`TIME`",
            reported=("time",),
            arrives="string",
            notes="Such as `-838:59:59`.",
            sql=_MY_TEXT,
        ),
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
