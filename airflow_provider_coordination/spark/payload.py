"""The payload of records: JSON with a schema, parsed into columns beside the raw ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.error_texts import error_text
from airflow_provider_coordination.spark.layout import PAYLOAD, RecordLayout
from airflow_provider_coordination.spark.payload_column import PayloadColumn
from airflow_provider_coordination.spark.payload_losses import is_kept, loses, wider_schema
from airflow_provider_coordination.spark.time_formats import check_time_formats

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

ERROR = "_error"
"""The column in which a transform marks a row as bad."""
CORRUPT = "_coordination_corrupt"
END = "_coordination_end"
STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
"""Options that make Spark's parser strict: by default it accepts more than JSON."""


class JsonPayload:
    """Parses payloads that are one JSON object each. Needs a Spark session.

    A missing field is null; a field that is declared NOT NULL must exist. Fields that the schema does not name are
    ignored. A number of the payload itself, not of a nested object, may be text.

    :param ddl: the schema, such as `id STRING NOT NULL, amount DOUBLE`.
    :param layout: the columns of the records.
    :param time_formats: the formats of TIMESTAMP columns, by name; None for those that Spark accepts.
    :raises ConfigurationError: if the schema is invalid, or names a column that records have already; if a format is
        invalid.
    """

    def __init__(self, ddl: str, layout: RecordLayout, time_formats: Mapping[str, str] | None = None) -> None:
        schema = _parse(ddl, {ERROR, PAYLOAD, *layout.names})
        self.names = schema.names
        self.types = {field.name: field.dataType.simpleString() for field in schema.fields}
        self.time_formats = time_formats or {}
        check_time_formats(time_formats, self.types)
        self._columns = [
            PayloadColumn(name=name, type=kind, time_format=self.time_formats.get(name))
            for name, kind in self.types.items()
        ]
        self._required = frozenset(field.name for field in schema.fields if not field.nullable)
        self._schema = _parsed_schema(schema, self._columns)
        self._wider = wider_schema(self._schema) if loses(self._schema) else None

    def check(self, records: DataFrame) -> None:
        """Check that the records of a file can be parsed, if each file has columns of its own.

        :raises DeliveryError: if they have no payload, or have a column that the schema names.
        """
        from pyspark.sql.types import BinaryType, StringType

        types = {field.name: field.dataType for field in records.schema.fields}
        if not isinstance(types.get(PAYLOAD), BinaryType | StringType):
            found = f"it is {types[PAYLOAD].simpleString()}" if PAYLOAD in types else f"there are {', '.join(types)}"
            raise DeliveryError(
                f"'schema' parses the column {PAYLOAD!r}, which must exist as text or bytes; {found}: leave 'schema' "
                "out, or read whole payloads"
            )
        lowered = {name.lower() for name in types}
        if taken := [name for name in self.names if name.lower() in lowered]:
            raise DeliveryError(
                f"'schema' names column {taken[0]!r}, which the records have already; leave 'schema' out and parse "
                f"{PAYLOAD!r} in the transform under another name"
            )

    def parsed(self, records: DataFrame) -> DataFrame:
        """Return the records with the columns of the schema; all columns are null if the payload does not fit."""
        from pyspark.sql import functions

        payload = functions.from_json(payload_text(), self._schema, STRICT)
        columns = [column.value(payload.getField(column.name)).alias(column.name) for column in self._columns]
        return records.select("*", *columns)

    def fitting(self, records: DataFrame) -> DataFrame:
        """Return the records whose payload fits the schema."""
        return records.where(self.fits())

    def fits(self) -> Column:
        """Return whether the payload of a record fits the schema."""
        from pyspark.sql import functions

        parsed = self._parsed_once(self._schema)
        wider = functions.lit(None) if self._wider is None else self._parsed_once(self._wider)
        both = functions.struct(parsed.alias("parsed"), wider.alias("wider"))
        # As a function of one value: a filter evaluates an expression again for each mention.
        return functions.is_valid_utf8(payload_text()) & functions.exists(functions.array(both), self._is_one)

    def _parsed_once(self, schema: StructType) -> Column:
        """Return the payload parsed as the first of `records`, and what shows that nothing else is there."""
        from pyspark.sql import functions
        from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

        # Spark stops at the end of the first value and ignores what follows. Within an array within an object, anything
        # that follows is an error, or a second element, or hides the end.
        around = StructType(
            [
                StructField("records", ArrayType(schema)),
                StructField(END, IntegerType()),
                StructField(CORRUPT, StringType()),
            ]
        )
        whole = functions.concat(functions.lit('{"records":['), payload_text(), functions.lit(f'],"{END}":1}}'))
        return functions.from_json(whole, around, STRICT)

    def _is_one(self, both: Column) -> Column:
        """Return whether the parsed value is one object that has all required fields, and lost nothing."""
        from pyspark.sql import functions

        parsed = both.getField("parsed")
        records = parsed.getField("records")
        found = functions.get(records, functions.lit(0))
        fits = parsed.getField(CORRUPT).isNull() & parsed.getField(END).isNotNull() & (functions.size(records) == 1)
        for column in (found, *(found.getField(name) for name in self._required)):
            fits = fits & column.isNotNull()
        for each in self._columns:
            if each.is_converted:
                field = found.getField(each.name)
                fits = fits & (field.isNull() | each.value(field).isNotNull())
        if self._wider is not None:
            wider = functions.get(both.getField("wider").getField("records"), functions.lit(0))
            fits = fits & is_kept(self._schema, found, wider)
        return functions.coalesce(fits, functions.lit(False))

    def reason(self) -> Column:
        """Return why the payload of a record does not fit."""
        from pyspark.sql import functions

        payload = functions.from_json(payload_text(), self._schema, STRICT)
        wrong = [
            functions.when(
                column.value(payload.getField(column.name)).isNull() & _given(column.name).isNotNull(),
                functions.lit(f"field '{column.name}' is no {column.type.upper()}"),
            )
            for column in self._columns
        ]
        if self._wider is not None:
            wider = functions.from_json(payload_text(), self._wider, STRICT)
            wrong += [
                functions.when(
                    ~is_kept(field.dataType, payload.getField(field.name), wider.getField(field.name)),
                    functions.lit(
                        f"field '{field.name}' has a value that {field.dataType.simpleString().upper()} cannot hold"
                    ),
                )
                for field in self._schema.fields
                if loses(field.dataType)
            ]
        missing = [
            functions.when(_given(name).isNull(), functions.lit(f"field '{name}' is missing"))
            for name in self.names
            if name in self._required
        ]
        named = functions.concat_ws("; ", *wrong, *missing)
        return (
            functions.when(~functions.is_valid_utf8(payload_text()), functions.lit("the payload is not UTF-8"))
            .when(functions.get_json_object(payload_text(), "$").isNull(), functions.lit("the payload is not JSON"))
            .when(
                functions.try_parse_json(payload_text()).isNull(),
                functions.lit("the payload is not JSON, or a key is there twice"),
            )
            .when(
                functions.json_object_keys(payload_text()).isNull(), functions.lit("the payload is not a JSON object")
            )
            .when(named != "", functions.concat(functions.lit("the payload does not fit the schema: "), named))
            .otherwise(functions.lit("the payload is not one JSON object, or does not fit the schema"))
        )


def payload_text() -> Column:
    """Return the payload of a record as text."""
    from pyspark.sql import functions

    return functions.col(PAYLOAD).cast("string")


def _given(name: str) -> Column:
    from pyspark.sql import functions

    quoted = name.replace("'", "\\'")
    return functions.get_json_object(payload_text(), f"$['{quoted}']")


def _parsed_schema(schema: StructType, columns: Collection[PayloadColumn]) -> StructType:
    """Return the schema as which payloads are parsed."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType(
        [
            StructField(field.name, StringType(), field.nullable) if column.is_converted else field
            for field, column in zip(schema.fields, columns, strict=True)
        ]
    )


def _parse(ddl: str, reserved: Collection[str]) -> StructType:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(ddl)
    except (PySparkException, Py4JError) as error:
        raise ConfigurationError(
            f"schema {ddl!r} cannot be parsed: {error_text(error).removeprefix('ParseException: ')}; give columns and "
            "types, such as 'id STRING NOT NULL, amount DOUBLE'"
        ) from None
    if not isinstance(schema, StructType) or not schema.fields:
        raise ConfigurationError(
            f"schema {ddl!r} names no columns; give columns and types, such as 'id STRING NOT NULL, amount DOUBLE'"
        )
    lowered = [name.lower() for name in schema.names]
    for name in lowered:
        if name in reserved or name.startswith("_coordination_"):
            raise ConfigurationError(
                f"schema {ddl!r}: column {name!r} exists in every record already, or is reserved; leave 'schema' out "
                "and parse 'data' in the transform under another name"
            )
        if lowered.count(name) > 1:
            raise ConfigurationError(f"schema {ddl!r}: column {name!r} is defined twice; name each column once")
    return schema
