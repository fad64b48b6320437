"""The payload of records: JSON with a schema, parsed into columns beside the raw ones; and late and early records.

Those are found by bounds on a field, which is parsed with the type in the bounds, whatever the job's schema. So the
same records of a batch are left out, whichever job delivers it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructField, StructType

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.job_settings import RejectionSettings
from airflow_provider_coordination.spark.layout import PAYLOAD, RecordLayout, quoted
from airflow_provider_coordination.spark.payload_column import STRICT, PayloadColumn, once, parsed_schema, texts_of
from airflow_provider_coordination.spark.payload_schema import check_time_formats
from airflow_provider_coordination.spark.spark_errors import error_text
from airflow_provider_coordination.spark.spark_versions import is_valid_utf8, type_of_ddl

ERROR = "_error"
"""The column in which a transform marks a row as bad."""
CORRUPT = STRICT["columnNameOfCorruptRecord"]
ANY_OBJECT = "map<string, string>"
END = "_coordination_end"
PARSED = "_coordination_parsed"
TEXTS = "_coordination_texts"
GIVEN = "_coordination_given_"
MILLISECONDS = "bigint"
"""The type of a column that counts milliseconds since 1970."""
EVENT_TIME_TYPES = ("timestamp", "timestamp_ntz", MILLISECONDS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ParsesPayloads(Protocol):
    """What parses the payloads of a job."""

    types: dict[str, str]
    """The types of the columns of its schema, by name, as Spark writes them."""
    time_formats: Mapping[str, str]
    """The formats of TIMESTAMP columns, by name."""


class JsonPayload:
    """Parses payloads that are one JSON object each. Needs a Spark session.

    A missing field is null; a field that is declared NOT NULL must exist. Fields that the schema does not name are
    ignored. A number of the payload itself, not of a nested object, may be text.

    :param ddl: the schema, such as `id STRING NOT NULL, amount DOUBLE`.
    :param layout: the columns of the records.
    :param time_formats: the formats of TIMESTAMP columns, by name; None for those that Spark accepts.
    :param more: further columns that the records have.
    :raises ConfigurationError: if the schema is invalid, or names a column that records have already; if a format is
        invalid.
    """

    def __init__(
        self,
        ddl: str,
        layout: RecordLayout,
        time_formats: Mapping[str, str] | None = None,
        more: Sequence[str] = (),
    ) -> None:
        schema = columns_of_ddl(ddl, {ERROR, PAYLOAD, *layout.names, *more})
        self.names = schema.names
        self.types = {field.name: field.dataType.simpleString() for field in schema.fields}
        self.time_formats = time_formats or {}
        check_time_formats(time_formats, self.types)
        self._columns = [
            PayloadColumn(name=field.name, kind=field.dataType, time_format=self.time_formats.get(field.name))
            for field in schema.fields
        ]
        self._required = frozenset(field.name for field in schema.fields if not field.nullable)
        self._schema = parsed_schema(self._columns)
        self._has_texts = any(column.text_type is not None for column in self._columns)

    def check(self, records: DataFrame) -> None:
        """Check that the records of a file can be parsed, if each file has columns of its own.

        :raises DeliveryError: if they have no payload, or have a column that the schema names.
        """
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
        parsed = functions.from_json(payload_text(), self._schema, STRICT)
        rows = records.select("*", parsed.alias(PARSED))
        parsed, texts = functions.col(PARSED), texts_of(self._columns, payload_text(), functions.col(PARSED))
        if texts is not None:
            rows, texts = rows.select("*", texts.alias(TEXTS)), functions.col(TEXTS)
        # A projection of fields first: Spark would write each of them into the plan as often as its value mentions it.
        names = {f"{GIVEN}{number}": column for number, column in enumerate(self._columns)}
        fields = [column.given(parsed.getField(column.name), texts).alias(name) for name, column in names.items()]
        values = [column.value(functions.col(name)).alias(column.name) for name, column in names.items()]
        return rows.select("*", *fields).select("*", *values).drop(PARSED, TEXTS, *names)

    def fitting(self, records: DataFrame) -> DataFrame:
        """Return the records whose payload fits the schema."""
        return records.where(self.fits())

    def fits(self) -> Column:
        """Return whether the payload of a record fits the schema."""
        # As functions of one value: a filter evaluates an expression again for each mention.
        with_texts = functions.transform(functions.array(self._parsed_once()), self._with_texts)
        return is_valid_utf8(payload_text()) & functions.exists(with_texts, self._is_one)

    def _with_texts(self, parsed: Column) -> Column:
        record = functions.get(parsed.getField("records"), functions.lit(0))
        texts = texts_of(self._columns, payload_text(), record)
        return functions.struct(
            parsed.alias("parsed"), record.alias("record"), *([] if texts is None else [texts.alias("texts")])
        )

    def _parsed_once(self) -> Column:
        """Return the payload parsed as the first of `records`, and what shows that nothing else is there."""
        # Spark stops at the end of the first value and ignores what follows. Within an array within an object, anything
        # that follows is an error, or a second element, or hides the end.
        around = StructType(
            [
                StructField("records", ArrayType(self._schema)),
                StructField(END, IntegerType()),
                StructField(CORRUPT, StringType()),
            ]
        )
        whole = functions.concat(functions.lit('{"records":['), payload_text(), functions.lit(f'],"{END}":1}}'))
        return functions.from_json(whole, around, STRICT)

    def _is_one(self, row: Column) -> Column:
        """Return whether the parsed value is one object that has all required fields, and lost nothing."""
        parsed, record = row.getField("parsed"), row.getField("record")
        texts = row.getField("texts") if self._has_texts else None
        fits = (
            parsed.getField(CORRUPT).isNull()
            & parsed.getField(END).isNotNull()
            & (functions.size(parsed.getField("records")) == 1)
        )
        for column in (record, *(record.getField(name) for name in self._required)):
            fits = fits & column.isNotNull()
        for each in self._columns:
            fits = fits & each.fits(record.getField(each.name), texts)
        return functions.coalesce(fits, functions.lit(False))

    def reason(self) -> Column:
        """Return why the payload of a record does not fit."""
        payload = functions.from_json(payload_text(), self._schema, STRICT)
        return once(payload, lambda parsed: once(self._texts(parsed), lambda texts: self._reason(parsed, texts)))

    def _texts(self, parsed: Column) -> Column:
        texts = texts_of(self._columns, payload_text(), parsed)
        return functions.lit(None) if texts is None else texts

    def _reason(self, payload: Column, given_texts: Column) -> Column:
        texts = given_texts if self._has_texts else None
        wrong = []
        for column in self._columns:
            parsed = payload.getField(column.name)
            is_wrong = _given(column.name).isNotNull() & (parsed.isNull() | ~column.fits(parsed, texts))
            wrong.append(functions.when(is_wrong, column.misfit(parsed)))
        missing = [
            functions.when(_given(name).isNull(), functions.lit(f"field '{name}' is missing"))
            for name in self.names
            if name in self._required
        ]
        named = functions.concat_ws("; ", *wrong, *missing)
        return (
            functions.when(~is_valid_utf8(payload_text()), functions.lit("the payload is not UTF-8"))
            .when(functions.get_json_object(payload_text(), "$").isNull(), functions.lit("the payload is not JSON"))
            .when(
                functions.json_object_keys(payload_text()).isNull(), functions.lit("the payload is not a JSON object")
            )
            # The functions above accept more than JSON, such as single quotes.
            .when(functions.from_json(payload_text(), ANY_OBJECT, STRICT).isNull(), "the payload is not JSON")
            .when(named != "", functions.concat(functions.lit("the payload does not fit the schema: "), named))
            .otherwise(functions.lit("the payload is not one JSON object, or does not fit the schema"))
        )


def payload_text() -> Column:
    """Return the payload of a record as text."""
    return functions.col(PAYLOAD).cast("string")


def _given(name: str) -> Column:
    quoted = name.replace("'", "\\'")
    return functions.get_json_object(payload_text(), f"$['{quoted}']")


def columns_of_ddl(ddl: str, reserved: Collection[str]) -> StructType:
    """Return the columns of a schema. Needs a Spark session.

    :param reserved: names, in lower case, that its columns cannot have.
    :raises ConfigurationError: if the schema is invalid, or names a column that is reserved.
    """
    try:
        schema = type_of_ddl(ddl)
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


def bounds_of(rejection: RejectionSettings, payload: ParsesPayloads | None) -> EventTimeBounds | None:
    """Return the event-time bounds that a job records with its batches; None if it rejects no records.

    :param payload: parses the job's payloads; None if they are not parsed.
    :raises ConfigurationError: if there is no such column, or it is not a time.
    """
    name = rejection.event_time
    if name is None:
        return None
    types = {} if payload is None else payload.types
    if name not in types:
        raise ConfigurationError(
            f"RejectionSettings: field 'event_time' is {name!r}, which is not a column of 'schema'; its columns are "
            f"{', '.join(map(repr, types)) or 'none'}"
        )
    if types[name] not in EVENT_TIME_TYPES:
        raise ConfigurationError(
            f"RejectionSettings: field 'event_time' is {name!r}, which is of type {types[name].upper()} in 'schema'; "
            "declare it there as TIMESTAMP, as TIMESTAMP_NTZ in UTC, or as BIGINT of milliseconds since 1970"
        )
    return EventTimeBounds(
        column=name,
        type=types[name],
        earliest=rejection.earliest,
        latest=rejection.latest,
        time_format=None if payload is None else payload.time_formats.get(name),
    )


@dataclass(frozen=True)
class EventTime:
    """The event time of records, as Spark columns.

    :param bounds: the bounds for the event time.
    :param value: the event time, as the type in the bounds; None to parse it from the payload as JSON.
    """

    bounds: EventTimeBounds
    value: Column | None = None

    def is_outside(self) -> Column:
        """Return whether a record is late or early; a record without an event time is neither."""
        return functions.coalesce(self._is_late() | self._is_early(), functions.lit(False))

    def reason(self) -> Column:
        """Return why a record that is late or early is rejected."""

        def text(what: str, bound: datetime | None) -> Column:
            than = "" if bound is None else format_instant(bound)
            return functions.concat(
                functions.lit(f"{what}: field '{self.bounds.column}' is "), self._parsed().cast("string"),
                functions.lit(f", {'before' if what == 'late' else 'after'} {than}"),
            )  # fmt: skip

        late = functions.coalesce(self._is_late(), functions.lit(False))
        return functions.when(late, text("late", self.bounds.earliest)).otherwise(text("early", self.bounds.latest))

    def _is_late(self) -> Column:
        if self.bounds.earliest is None:
            return functions.lit(False)
        # A record is at or after an instant if its milliseconds are not below the instant's, rounded up.
        return self._number() < -(-_micros(self.bounds.earliest) // self._unit)

    def _is_early(self) -> Column:
        if self.bounds.latest is None:
            return functions.lit(False)
        return self._number() > _micros(self.bounds.latest) // self._unit

    @property
    def _unit(self) -> int:
        """The unit of an event time's number, in microseconds."""
        return 1000 if self.bounds.type == MILLISECONDS else 1

    def _number(self) -> Column:
        if self.bounds.type == MILLISECONDS:
            return self._parsed()
        return functions.unix_micros(self._parsed().cast("timestamp"))

    def _parsed(self) -> Column:
        if self.value is not None:
            return self.value
        schema = type_of_ddl(f"{quoted(self.bounds.column)} {self.bounds.type}")
        assert isinstance(schema, StructType)
        [field] = schema.fields
        column = PayloadColumn(name=field.name, kind=field.dataType, time_format=self.bounds.time_format)
        payload = payload_text()

        def given(parsed: Column) -> Column:
            return column.given(parsed.getField(column.name), texts_of([column], payload, parsed))

        # Each once: a filter evaluates an expression again for each mention.
        parsed = functions.from_json(payload, parsed_schema([column]), STRICT)
        return once(once(parsed, given), column.value)


def _micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)
