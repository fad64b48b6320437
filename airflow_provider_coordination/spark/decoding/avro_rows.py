"""Payloads of Avro as columns."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.avro import (
    MAGIC,
    AvroContainerError,
    AvroDataError,
    AvroReader,
    AvroSchemaError,
    plain_block,
    read_blocks,
    read_header,
)
from airflow_provider_coordination.spark.decoding.columns import PayloadField, columns_of_rows
from airflow_provider_coordination.spark.decoding.errors import UndecodableError
from airflow_provider_coordination.spark.decoding.formats import DecodedRows, PayloadFormat
from airflow_provider_coordination.spark.decoding.registries import unframed
from airflow_provider_coordination.spark.payload_settings import Avro

SCHEMAS = 100
"""How many schemas of writers are kept parsed."""


class AvroPayloads(PayloadFormat):
    """Payloads of Avro, one datum each or a container of data.

    :param options: their schema, and the registry of their schemas.
    :param fields: the columns.
    :param max_bytes: the maximum size of a record once it is decompressed.
    """

    def __init__(self, options: Avro, fields: Sequence[PayloadField], max_bytes: int) -> None:
        self.columns = pa.schema([(field.name, field.kind) for field in fields])
        self._options = options
        self._fields = fields
        self._max_bytes = max_bytes
        self._reader = lru_cache(SCHEMAS)(self._new_reader)

    @override
    def rows(self, payloads: Sequence[bytes]) -> DecodedRows:
        of: list[int] = []
        data: list[bytes | None] = []
        values: list[Mapping[str, Any]] = []
        wrong: dict[int, str] = {}
        for number, payload in enumerate(payloads):
            before = len(values)
            try:
                for datum, value in self._data(payload):
                    if not isinstance(value, dict):
                        raise UndecodableError("the payload is not an Avro record")
                    data.append(datum)
                    values.append(value)
            except (UndecodableError, AvroDataError, AvroContainerError, AvroSchemaError) as error:
                is_ours = isinstance(error, UndecodableError)
                wrong[number] = str(error) if is_ours else f"the payload is not Avro: {error}"
                del data[before:], values[before:]
            of += [number] * (len(values) - before)
        wrong_rows: dict[int, str] = {}
        columns = columns_of_rows(self._fields, values, wrong_rows)
        for row, reason in wrong_rows.items():
            wrong.setdefault(of[row], reason)
        return DecodedRows(of=of, data=data, columns=columns, wrong=wrong)

    def _data(self, payload: bytes) -> Iterator[tuple[bytes, Any]]:
        """Yield the data of a payload, each with its bytes."""
        if payload.startswith(MAGIC) and self._options.registry is None:
            yield from self._of_container(payload)
            return
        own: tuple[str, ...] = () if self._options.schema is None else (self._options.schema,)
        if self._options.registry is None:
            datum, schemas = payload, own
        else:
            datum, schemas = unframed(payload, self._options.registry, self._max_bytes)
        yield datum, self._reader(schemas).one(datum)

    def _of_container(self, payload: bytes) -> Iterator[tuple[bytes, Any]]:
        stream, left = io.BytesIO(payload), self._max_bytes
        header = read_header(stream)
        reader = self._reader((header.schema,))
        for block in read_blocks(stream, header, header.size):
            plain = plain_block(block, header.codec, left)
            left -= len(plain)
            yield from reader.several(plain, block.count)

    def _new_reader(self, schemas: tuple[str, ...]) -> AvroReader:
        reader = self._options.schema
        return AvroReader.of(schemas, None if reader is None or schemas == (reader,) else reader)
