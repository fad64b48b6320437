"""Payloads of Protobuf as columns, by a set of descriptors."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.decoding.columns import PayloadField, columns_of_rows
from airflow_provider_coordination.spark.decoding.formats import DecodedRows, PayloadFormat

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INLINE = "data:"
INSTANT = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
"""The messages whose only field is a value that may be null."""

Read = Callable[[Any], Any]
"""Returns a value of a column for a field's value in a message."""


class ProtobufPayloads(PayloadFormat):
    """Payloads of one message each.

    :param descriptors: a serialized `FileDescriptorSet`.
    :param message: the full name of the message.
    :param fields: the columns, each with the name of a field of the message.
    :raises ConfigurationError: if the set cannot be used, or has no such message or no field of a column's name.
    """

    def __init__(self, descriptors: bytes, message: str, fields: Sequence[PayloadField]) -> None:
        self.columns = pa.schema([(field.name, field.kind) for field in fields])
        self._fields = fields
        self._make, self._readers = _class_of(descriptors, message, fields)

    @override
    def rows(self, payloads: Sequence[bytes]) -> DecodedRows:
        from google.protobuf.message import DecodeError

        wrong: dict[int, str] = {}
        values: list[Mapping[str, Any]] = []
        for number, payload in enumerate(payloads):
            try:
                found = self._make.FromString(payload)
                values.append({name: read(found) for name, read in self._readers.items()})
            except DecodeError:
                wrong[number] = "the payload is not a Protobuf message of its type"
                values.append({})
            except (OverflowError, ValueError):
                wrong[number] = "the payload has a Timestamp outside the years 1 to 9999, or finer than a microsecond"
                values.append({})
        misfits: dict[int, str] = {}
        columns = columns_of_rows(self._fields, values, misfits)
        return DecodedRows(of=None, data=payloads, columns=columns, wrong={**misfits, **wrong})


def descriptors_at(location: str, access: Access) -> bytes:
    """Return a set of descriptors.

    :param location: a path or URI that this process reaches, or the file itself as `data:;base64,…`.
    :param access: the credentials for a file on S3.
    :raises ConfigurationError: if it cannot be read.
    """
    where = "field 'payload.protobuf.descriptor_set'"
    if location.startswith(INLINE):
        try:
            return b64decode(location.partition(",")[2], validate=True)
        except ValueError:
            raise ConfigurationError(f"{where} must be 'data:;base64,' and a file in base64") from None
    from airflow_provider_coordination.spark.storage import open_files  # workers get the content

    files, path = open_files(location, access)
    try:
        return files.read(path)
    except OSError as error:
        raise ConfigurationError(
            f"{where} is {location!r}, which the driver cannot read: {error}; give a path or URI that it reaches"
        ) from None


def _class_of(descriptors: bytes, message: str, columns: Sequence[PayloadField]) -> tuple[Any, dict[str, Read]]:
    """Return the class of a message, and what reads the field of each column."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    where = "field 'payload.protobuf"
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.AddSerializedFile(file.SerializeToString())
        described = pool.FindMessageTypeByName(message)
    except DecodeError:
        raise ConfigurationError(
            f"{where}.descriptor_set' is no FileDescriptorSet; make it by protoc --include_imports --descriptor_set_out"
        ) from None
    except KeyError:
        raise ConfigurationError(
            f"{where}.message' is {message!r}, which the descriptor set does not have; give the full name with the "
            "package"
        ) from None
    except TypeError as error:
        raise ConfigurationError(
            f"{where}.descriptor_set' is not complete: {error}; make it with protoc --include_imports"
        ) from None
    fields = described.fields_by_name
    if missing := [column.name for column in columns if column.name not in fields]:
        raise ConfigurationError(
            f"field 'schema': message {message!r} has no field {missing[0]!r}; its fields are {', '.join(fields)}"
        )
    readers = {
        column.name: _reader(fields[column.name], as_number=pa.types.is_integer(column.kind)) for column in columns
    }
    return message_factory.GetMessageClass(described), readers


def _reader(field: Any, *, as_number: bool = False) -> Read:
    """Return what reads a field of a message: null if it has presence and is not set.

    :param as_number: whether values of an enumeration become their numbers.
    """
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_value = _value_reader(field.message_type.fields_by_name["value"], as_number=as_number)
        return lambda found: {key: of_value(each) for key, each in getattr(found, name).items()}
    read = _value_reader(field, as_number=as_number)
    if field.is_repeated:
        return lambda found: [read(each) for each in getattr(found, name)]
    if field.has_presence:
        return lambda found: read(getattr(found, name)) if found.HasField(name) else None
    return attrgetter(name) if read is _same else lambda found: read(getattr(found, name))


def _value_reader(field: Any, *, as_number: bool) -> Read:
    """Return what makes one value of a field a value of a column."""
    if field.enum_type is not None:
        return _same if as_number else partial(_name_in, field.enum_type.values_by_number)
    if field.message_type is None:
        return _same
    if field.message_type.full_name == INSTANT:
        return _instant
    if field.message_type.full_name in WRAPPERS:
        return attrgetter("value")
    return _MessageReader(field.message_type)


class _MessageReader:
    """Makes a message a mapping of its fields. Their readers are made on first use: messages may be recursive."""

    def __init__(self, described: Any) -> None:
        self._described = described

    @cached_property
    def _readers(self) -> dict[str, Read]:
        return {field.name: _reader(field) for field in self._described.fields}

    def __call__(self, found: Any) -> Any:
        return {name: read(found) for name, read in self._readers.items()}


def _same(value: Any) -> Any:
    return value


def _name_in(names: Any, number: int) -> str:
    """Return the name of a value of an enumeration; the number of a value that the set does not have yet."""
    return str(number) if (found := names.get(number)) is None else str(found.name)


def _instant(value: Any) -> datetime:
    micros, rest = divmod(value.nanos, 1000)
    if rest:
        raise ValueError("it is finer than a microsecond")
    return EPOCH + timedelta(seconds=value.seconds, microseconds=micros)
