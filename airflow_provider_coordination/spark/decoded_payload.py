"""Payloads that Python workers decode before Spark looks at them, as columns beside those of their records.

JSON is parsed by `JsonPayload` once it is out of its compression or envelope. CSV comes as texts, which become values
as those of JSON do. Avro and Protobuf come with the types of the schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from importlib import import_module

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import BooleanType, StructField, StructType

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.avro import AvroSchemaError, columns_of_schema, parsed_schema
from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.sources.landed_types import retyped
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.decoding.avro_rows import AvroPayloads
from airflow_provider_coordination.spark.decoding.cloudwatch import COLUMNS as LOG_COLUMNS
from airflow_provider_coordination.spark.decoding.columns import MISFIT, PayloadField
from airflow_provider_coordination.spark.decoding.csv_rows import CsvPayloads
from airflow_provider_coordination.spark.decoding.decoder import FAILURE, NUMBER, Decoder
from airflow_provider_coordination.spark.decoding.formats import Make, ManyJson, Unchanged
from airflow_provider_coordination.spark.decoding.protobuf_rows import ProtobufPayloads, descriptors_at
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.layout import PAYLOAD, RecordLayout
from airflow_provider_coordination.spark.payload import ERROR, JsonPayload, columns_of_ddl
from airflow_provider_coordination.spark.payload_column import PayloadColumn, once
from airflow_provider_coordination.spark.payload_schema import check_time_formats
from airflow_provider_coordination.spark.payload_settings import Payload
from airflow_provider_coordination.spark.spark_versions import arrow_schema, frame_schema

TEXT = "_coordination_text_"
"""The beginning of the names of columns with the texts of CSV."""


class DecodedPayload:
    """Payloads that are decoded. Needs a Spark session.

    :param payload: what they are.
    :param ddl: the schema of their columns; None for those of an Avro schema, or for none.
    :param layout: the columns of the records.
    :param time_formats: the formats of TIMESTAMP columns, by name.
    :param access: the credentials for a file of descriptors.
    :raises ConfigurationError: if the schema, a format or the descriptors are invalid, or do not fit each other.
    :raises ModuleNotFoundError: if the driver lacks a library of the format.
    """

    def __init__(
        self,
        payload: Payload,
        ddl: str | None,
        layout: RecordLayout,
        time_formats: Mapping[str, str] | None,
        access: Access,
    ) -> None:
        for module in payload.modules:
            import_module(module)
        self.time_formats = time_formats or {}
        self._format = payload.format
        self._may_have_many = payload.cloudwatch_logs or self._format == "csv" or payload.json is not None
        self._added = [NUMBER, *(LOG_COLUMNS.names if payload.cloudwatch_logs else ())]
        reserved = {ERROR, PAYLOAD, *self._added, *layout.names}
        is_json = self._format == "json"
        self._json = None if ddl is None or not is_json else JsonPayload(ddl, layout, time_formats, self._added)
        self._fields = [] if is_json else _fields(payload, ddl, reserved)
        self.types = (
            self._json.types if self._json else {field.name: field.dataType.simpleString() for field in self._fields}
        )
        if self._json is None:
            check_time_formats(time_formats, self.types)
        self._columns = [
            PayloadColumn(name=field.name, kind=field.dataType, time_format=self.time_formats.get(field.name))
            for field in self._fields
        ]
        make = self._maker(payload, access)
        made = make()  # on the driver, which raises what is wrong with it
        is_text = self._format == "csv"
        named = [
            (f"{TEXT}{number}" if is_text else field.name, field.type) for number, field in enumerate(made.columns)
        ]
        self.decoder = Decoder(
            compression=payload.compression,
            max_bytes=payload.max_record_bytes,
            has_logs=payload.cloudwatch_logs,
            make=make,
            columns=pa.schema(named),
            position=layout.position,
        )

    def _maker(self, payload: Payload, access: Access) -> Make:
        names = [column.name for column in self._columns]
        if payload.csv is not None:
            return partial(CsvPayloads, payload.csv, names, names)
        if payload.avro is not None:
            if payload.avro.schema is not None:
                _check_avro(payload.avro.schema)
            return partial(AvroPayloads, payload.avro, self._typed_fields(), payload.max_record_bytes)
        if payload.protobuf is not None:
            descriptors = descriptors_at(payload.protobuf.descriptor_set, access)
            return partial(ProtobufPayloads, descriptors, payload.protobuf.message, self._typed_fields())
        return partial(ManyJson if payload.json is not None and payload.json.many else Unchanged)

    def _typed_fields(self) -> list[PayloadField]:
        kinds = retyped(arrow_schema(StructType(self._fields)), lambda kind: kind)
        return [
            PayloadField(
                name=column.name,
                kind=kinds.field(number).type,
                type_name=column.type.upper(),
                is_required=not field.nullable,
                time_format=column.time_format,
            )
            for number, (column, field) in enumerate(zip(self._columns, self._fields, strict=True))
        ]

    def check(self, records: DataFrame) -> None:
        """Check that the landed records of a file can be decoded, if each file has columns of its own.

        :raises DeliveryError: if they have no payload, or have a column that decoding adds.
        """
        types = {field.name: field.dataType.simpleString() for field in records.schema.fields}
        if types.get(PAYLOAD) not in ("binary", "string"):
            raise DeliveryError(
                f"'payload' decodes the column {PAYLOAD!r}, which must exist as text or bytes; there are "
                f"{', '.join(types)}: leave 'payload' out, or read whole payloads"
            )
        lowered = {name.lower() for name in types}
        if taken := [name for name in (*self._added, *self.types) if name.lower() in lowered]:
            raise DeliveryError(
                f"'payload' adds a column {taken[0]!r}, which the records have already; name it differently in "
                "'schema', or in the source"
            )

    def parsed(self, records: DataFrame) -> DataFrame:
        """Return decoded records with the columns of the schema."""
        rows = records.drop(FAILURE)
        if self._json is not None:
            return self._json.parsed(rows)
        if self._format != "csv":
            return rows
        texts = [f"{TEXT}{number}" for number, _ in enumerate(self._columns)]
        values = [
            _value(column, functions.col(text)).alias(column.name)
            for column, text in zip(self._columns, texts, strict=True)
        ]
        return rows.select("*", *values).drop(*texts)

    def fits(self) -> Column:
        """Return whether the record of a row could be decoded, and the row fits the schema."""
        fits = functions.col(FAILURE).isNull()
        if self._json is not None:
            return fits & self._json.fits()
        for misfit in self._misfits():
            fits = fits & misfit.isNull()
        return fits

    def reason(self) -> Column:
        """Return why the record of a row could not be decoded, or why the row does not fit."""
        if self._json is not None:
            reason = self._json.reason()
        else:
            reason = functions.concat(functions.lit(MISFIT), functions.concat_ws("; ", *self._misfits()))
        if self._may_have_many:
            reason = functions.concat(functions.lit("row "), functions.col(NUMBER), functions.lit(": "), reason)
        return functions.coalesce(functions.col(FAILURE), reason)

    def _misfits(self) -> Iterator[Column]:
        """Yield, for each column of CSV, why a row does not fit; null if it does."""
        if self._format != "csv":
            return
        for number, (column, field) in enumerate(zip(self._columns, self._fields, strict=True)):
            text = functions.col(f"{TEXT}{number}")
            is_wrong = text.isNotNull() & once(text, partial(_value, column)).isNull()
            misfit = functions.when(is_wrong, column.misfit(text))
            if not field.nullable:
                misfit = misfit.when(text.isNull(), functions.lit(f"field '{column.name}' is missing"))
            yield misfit

    def event_time(self, bounds: EventTimeBounds) -> Column | None:
        """Return the event time of a decoded row, as the type of its bounds; None to parse it from JSON.

        :raises DeliveryError: if the schema has no such column any more.
        """
        if self._format == "json":
            return None
        if bounds.column not in self.types:
            raise DeliveryError(
                f"the batch has bounds of the event time {bounds.column!r}, which 'schema' no longer has; add it again "
                "until such batches are delivered"
            )
        number = list(self.types).index(bounds.column)
        if self._format == "csv":
            return _value(self._columns[number], functions.col(f"{TEXT}{number}")).cast(bounds.type)
        return functions.col(f"`{bounds.column}`").cast(bounds.type)


def payload_of(
    payload: Payload,
    ddl: str | None,
    layout: RecordLayout,
    time_formats: Mapping[str, str] | None,
    access: Access,
) -> JsonPayload | DecodedPayload | None:
    """Return what parses the payloads of a job; None if nothing does. See `DecodedPayload` for the parameters."""
    if payload.is_decoded:
        return DecodedPayload(payload, ddl, layout, time_formats, access)
    return None if ddl is None else JsonPayload(ddl, layout, time_formats)


def _fields(payload: Payload, ddl: str | None, reserved: Collection[str]) -> list[StructField]:
    """Return the columns of a schema, or else of an Avro schema."""
    if ddl is not None:
        return list(columns_of_ddl(ddl, reserved).fields)
    assert payload.avro is not None
    assert payload.avro.schema is not None
    try:
        columns = columns_of_schema(payload.avro.schema)
    except AvroSchemaError as error:
        raise ConfigurationError(f"field 'payload.avro.schema': {error}") from None
    # Not every Spark has a type for times of a day.
    columns = retyped(columns, lambda kind: pa.string() if pa.types.is_time(kind) else kind)
    for name in columns.names:
        if name.lower() in reserved or name.startswith("_coordination_"):
            raise ConfigurationError(
                f"field 'payload.avro.schema': the field {name!r} has the name of a column of every record; give "
                "'schema' with the other columns, or rename the field in a schema of the reader"
            )
    return list(frame_schema(columns).fields)


def _check_avro(schema: str) -> None:
    try:
        parsed_schema([schema])
    except AvroSchemaError as error:
        raise ConfigurationError(f"field 'payload.avro.schema': {error}") from None


def _value(column: PayloadColumn, text: Column) -> Column:
    """Return the value of a text of CSV; null if it has none."""
    if column.is_converted:
        return column.value(text)
    if isinstance(column.kind, BooleanType):
        return functions.when(text.rlike("^(?i)(true|false)$"), text.cast(column.kind))
    return text.cast(column.kind)
