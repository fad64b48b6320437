"""The payloads of a few records as columns, without Spark: what `payload` and `schema` of a job make of them.

Payloads are decoded as in jobs. Values of JSON and CSV become columns by the rules of the other formats, which Spark's
parser follows in almost all cases. What only Spark can do is said in a note.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.sources.ddl import arrow_fields
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.decoding.columns import EPOCH, PayloadField, columns_of_rows
from airflow_provider_coordination.spark.decoding.errors import RegistryUnavailableError
from airflow_provider_coordination.spark.decoding.formats import Make, ManyJson, Unchanged
from airflow_provider_coordination.spark.layout import PAYLOAD
from airflow_provider_coordination.spark.payload_schema import definitions_of
from airflow_provider_coordination.spark.payload_settings import Payload

RECORD = "_coordination_record"
"""The column with the number of the record of a decoded row."""
COLUMN = "_coordination_column_"
"""The beginning of the names of the columns that a format makes."""
NOT_JSON = "the payload is not one JSON object"
PARTIAL_DATE = re.compile(r"(\d{4})(?:-(\d{2}))?")


@dataclass(frozen=True, kw_only=True)
class DecodedRow:
    """A row that a payload becomes.

    :param record: the number of its record, from 0.
    :param values: its columns by name; empty if it does not fit.
    :param error: why the payload cannot be decoded, or does not fit the schema; empty if it does.
    """

    record: int
    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


class PayloadPreview:
    """Decodes payloads as a job with these settings does, as far as that needs no Spark.

    :param payload: what they are, with its connections resolved.
    :param ddl: the schema of their columns; None for none.
    :param time_formats: the formats of TIMESTAMP columns, by name.
    :param access: the credentials for a file of descriptors.
    :raises ConfigurationError: if a schema or the descriptors are invalid.
    """

    column: ClassVar[str] = PAYLOAD
    """The column of records that has their payload."""

    def __init__(self, payload: Payload, ddl: str | None, time_formats: Mapping[str, str], access: Access) -> None:
        self.notes: list[str] = []
        """What is not shown as a job has it."""
        self._payload = payload
        self._time_formats = time_formats
        self.types: dict[str, str] = {}
        """The types of the columns, as the schema writes them, by name."""
        self._fields: list[PayloadField] = []
        self._as_they_are: list[str] = []
        for name, kind, is_required in () if ddl is None else definitions_of(ddl):
            self._add(name, kind, is_required=is_required)
        if ddl is None and payload.avro is not None and payload.avro.schema is not None:
            self._add_avro(payload.avro.schema)
        if self._as_they_are:
            named = ", ".join(map(repr, self._as_they_are))
            self.notes.append(f"only Spark reads the types of {named}: " + self._how_shown)
        self._make = self._maker(access)

    @property
    def _how_shown(self) -> str:
        return "their values are shown as they are" if self._is_text else "they are not shown"

    @property
    def _is_text(self) -> bool:
        return self._payload.format in ("json", "csv")

    def _add(self, name: str, kind: str, *, is_required: bool) -> None:
        self.types[name] = kind
        try:
            [column] = arrow_fields(f"`{name}` {kind}")
        except ConfigurationError:
            self._as_they_are.append(name)
            return
        self._fields.append(
            PayloadField(
                name=name,
                kind=column.type,
                type_name=kind.upper(),
                is_required=is_required,
                time_format=self._time_formats.get(name),
            )
        )

    def _add_avro(self, schema: str) -> None:
        from airflow_provider_coordination.sources.avro import AvroSchemaError, columns_of_schema

        try:
            columns = columns_of_schema(schema)
        except AvroSchemaError as error:
            raise ConfigurationError(f"field 'payload.avro.schema': {error}") from None
        for column in columns:
            self.types[column.name] = str(column.type)
            self._fields.append(PayloadField(name=column.name, kind=column.type, type_name=str(column.type).upper()))

    def _maker(self, access: Access) -> Make:
        payload, names = self._payload, list(self.types)
        if payload.csv is not None:
            from airflow_provider_coordination.spark.decoding.csv_rows import CsvPayloads

            return partial(CsvPayloads, payload.csv, names, names)
        if payload.avro is not None:
            from airflow_provider_coordination.spark.decoding.avro_rows import AvroPayloads

            return partial(AvroPayloads, payload.avro, self._fields, payload.max_record_bytes)
        if payload.protobuf is not None:
            from airflow_provider_coordination.spark.decoding.protobuf_rows import ProtobufPayloads, descriptors_at

            descriptors = descriptors_at(payload.protobuf.descriptor_set, access)
            return partial(ProtobufPayloads, descriptors, payload.protobuf.message, self._fields)
        return partial(ManyJson if payload.json is not None and payload.json.many else Unchanged)

    @property
    def log_types(self) -> Mapping[str, str]:
        """The Arrow types of the columns of log events, by name; empty if payloads are none."""
        if not self._payload.cloudwatch_logs:
            return {}
        from airflow_provider_coordination.spark.decoding.cloudwatch import COLUMNS

        return {column.name: str(column.type) for column in COLUMNS}

    def rows(self, payloads: Sequence[bytes]) -> list[DecodedRow]:
        """Return the rows of payloads, in order. A payload that cannot be decoded is one row with the reason.

        :raises ConfigurationError: if a registry refuses the request.
        :raises SourceError: if a registry gives no answer.
        """
        if not self._payload.is_decoded:
            return [self._typed(number, payload, {}) for number, payload in enumerate(payloads)]
        try:
            return list(self._decoded(payloads))
        except RegistryUnavailableError as error:
            raise SourceError(f"the registry of schemas gives no answer: {error}") from error

    def _decoded(self, payloads: Sequence[bytes]) -> Iterator[DecodedRow]:
        from airflow_provider_coordination.spark.decoding.decoder import FAILURE, Decoder

        made = self._make().columns
        decoder = Decoder(
            compression=self._payload.compression,
            max_bytes=self._payload.max_record_bytes,
            has_logs=self._payload.cloudwatch_logs,
            make=self._make,
            columns=pa.schema([(f"{COLUMN}{number}", column.type) for number, column in enumerate(made)]),
            position=(RECORD, RECORD),
        )
        records = pa.array(range(len(payloads)), pa.int64())
        batch = pa.record_batch([records, pa.array(payloads, pa.binary())], names=[RECORD, PAYLOAD])
        rows = [row for out in decoder.decoded(batch) for row in out.to_pylist()]
        for row in sorted(rows, key=lambda row: row[RECORD]):
            number = row[RECORD]
            if row[FAILURE] is not None:
                yield DecodedRow(record=number, error=row[FAILURE])
                continue
            logs = {name: row[name] for name in self.log_types}
            values = {column.name: row[f"{COLUMN}{position}"] for position, column in enumerate(made)}
            if self._payload.format == "json":
                yield self._typed(number, row[PAYLOAD], logs)
            elif self._payload.format == "csv":
                yield self._typed(number, values, logs)
            else:
                yield DecodedRow(record=number, values={**logs, **values})

    def _typed(self, record: int, given: bytes | Mapping[str, Any], logs: Mapping[str, Any]) -> DecodedRow:
        """Return a row of JSON or CSV with the types of the schema.

        :param given: the JSON, or the texts of CSV by name.
        :param logs: further columns.
        """
        if not self.types:
            return DecodedRow(record=record, values={**logs, PAYLOAD: given})
        values = _object_in(given) if isinstance(given, bytes) else given
        if values is None:
            return DecodedRow(record=record, error=NOT_JSON)
        wrong: dict[int, str] = {}
        is_json = isinstance(given, bytes)
        prepared = {column.name: _prepared(values.get(column.name), column.kind, is_json) for column in self._fields}
        columns = columns_of_rows(self._fields, [prepared], wrong)
        if wrong:
            return DecodedRow(record=record, error=wrong[0])
        typed = {column.name: array[0].as_py() for column, array in zip(self._fields, columns, strict=True)}
        return DecodedRow(
            record=record,
            values={
                **logs,
                **{name: typed[name] if name in typed else _plain(values.get(name)) for name in self.types},
            },
        )


class _Number(str):
    """A number of JSON, with its digits as they are written."""

    __slots__ = ()


def _object_in(payload: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object that a payload is; None if it is none."""
    try:
        value = json.loads(payload, parse_float=_Number, parse_int=_Number, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _refused(name: str) -> Any:
    raise ValueError(name)


def _plain(value: Any) -> Any:
    """Return a value of JSON with plain numbers."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return json.loads(value) if isinstance(value, _Number) else value


def _text_of(value: Any) -> str:
    """Return JSON without spaces, with the digits of each number as they were written."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_text_of(name)}:{_text_of(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text_of, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


def _prepared(value: Any, kind: pa.DataType, is_json: bool) -> Any:
    """Return a value of JSON or CSV in a form that the other formats have: Spark reads some of them further.

    :param kind: the type that it is to have.
    :param is_json: whether it comes from JSON; otherwise it is text of CSV.
    """
    if pa.types.is_string(kind) and isinstance(value, Mapping | list):
        return _text_of(value)
    if pa.types.is_boolean(kind) and not is_json and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    if isinstance(value, _Number):
        if pa.types.is_timestamp(kind) and kind.tz:
            return _instant_of(value)
        return value
    if isinstance(value, str) and pa.types.is_temporal(kind):
        return _time_of(value, kind)
    return value


def _instant_of(seconds: str) -> Any:
    """Return the instant of a number of seconds; the number if there is none."""
    try:
        return EPOCH + timedelta(microseconds=int(Decimal(seconds) * 1_000_000))
    except (ArithmeticError, OverflowError):
        return seconds


def _time_of(text: str, kind: pa.DataType) -> Any:
    """Return a text with the month and day that Spark adds, or as the day of a time; else the text."""
    if (given := PARTIAL_DATE.fullmatch(text.strip())) is not None:
        return f"{given[1]}-{given[2] or '01'}-01"
    if pa.types.is_date(kind) and len(text) > len("2026-01-31"):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            return text
    return text
