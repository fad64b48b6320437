"""Translation of the format of payloads: which fields a schema reads, and what is left to the user's transform."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.druid import fields
from airflow_provider_coordination.supervisor.druid.columns import ARRIVAL, PARTITION_KEY, DruidColumns
from airflow_provider_coordination.supervisor.druid.filters import FUNCTION
from airflow_provider_coordination.supervisor.druid.rows import (
    UnsupportedFieldError,
    check_keys,
    list_in,
    object_in,
    whole_number,
    yes_or_no,
)

KINESIS_COLUMNS = {
    "partitionKeyColumnName": ("kinesis.partitionKey", PARTITION_KEY),
    "timestampColumnName": ("kinesis.timestamp", ARRIVAL),
}
"""The columns of Druid's format `kinesis` by the fields that name them: their default names, and the columns that every
record has here."""
JSON_FIELDS = ("type", "flattenSpec", "featureSpec", "keepNullColumns", "assumeNewlineDelimited", "useJsonNodeReader")
KINESIS_FIELDS = ("type", "valueFormat", *KINESIS_COLUMNS)
IN_DOTS = re.compile(r"[\w-]+")
"""A name that may follow a dot in a path."""


SEPARATED_FIELDS = (
    "type",
    "columns",
    "findColumnsFromHeader",
    "skipHeaderRows",
    "listDelimiter",
    "delimiter",
    "tryParseNumbers",
)
AVRO_STREAM_FIELDS = ("type", "flattenSpec", "avroBytesDecoder", "binaryAsString", "extractUnionsByType")
AVRO_FILE_FIELDS = ("type", "flattenSpec", "schema", "binaryAsString", "extractUnionsByType")
PROTOBUF_FIELDS = ("type", "flattenSpec", "protoBytesDecoder")
DELIMITERS = {"csv": ",", "tsv": "\t"}
"""The delimiter of a format of values, if its spec names none."""


def read_format(columns: DruidColumns, input_format: Any) -> Mapping[str, Any] | None:
    """Read the format of payloads.

    :param input_format: Druid's `inputFormat`.
    :returns: the field `payload` of a spec, empty for plain JSON; None if the transform parses the payloads.
    :raises UnsupportedFieldError: if a schema cannot, and the user gives no transform.
    """
    input_format = object_in("inputFormat", input_format)
    kind = input_format.get("type")
    if kind == "kinesis":
        check_keys("inputFormat", input_format, KINESIS_FIELDS)
        for name, (default, column) in KINESIS_COLUMNS.items():
            columns.of_records[str(input_format.get(name) or default)] = column
        return read_format(columns, input_format.get("valueFormat"))
    if kind in tuple(DELIMITERS):  # any JSON value may stand there
        return _separated(columns, input_format, DELIMITERS[kind])
    if kind in ("avro_stream", "avro_ocf"):
        return _avro(columns, input_format)
    if kind == "protobuf":
        return _protobuf(columns, input_format)
    if kind != "json":
        columns.require_transform(
            f"payloads are {kind!r}, which 'payload' does not decode; write a function that splits the column 'data' "
            "and name it in 'transform'"
        )
        return None
    check_keys("inputFormat", input_format, JSON_FIELDS)
    features = [
        name for name, value in object_in("featureSpec", input_format.get("featureSpec") or {}).items() if value
    ]
    if features:
        columns.require_transform(
            f"'featureSpec' enables {', '.join(map(str, features))}, but a schema only parses standard JSON; {FUNCTION}"
        )
    _read_fields(columns, input_format.get("flattenSpec") or {})
    has_many = yes_or_no(input_format.get("assumeNewlineDelimited") or False)
    if features:
        return None
    return {"json": {"many": True}} if has_many else {}


def _separated(columns: DruidColumns, input_format: Mapping[str, Any], delimiter: str) -> Mapping[str, Any] | None:
    """Return the payload of CSV or TSV; None if the transform parses it."""
    check_keys("inputFormat", input_format, SEPARATED_FIELDS)
    if input_format.get("listDelimiter") is not None:
        columns.require_transform(
            f"'listDelimiter' is {input_format['listDelimiter']!r}, but a CSV value is not a list here; remove it, or "
            "write a function that splits the column 'data' and name it in 'transform'"
        )
        return None
    has_header = yes_or_no(input_format.get("findColumnsFromHeader") or False)
    names = list_in("columns", input_format.get("columns"))
    if not names and not has_header:
        raise UnsupportedFieldError("'columns' must name the values if 'findColumnsFromHeader' is not true")
    options = {
        "delimiter": input_format.get("delimiter") or delimiter,
        "skip_rows": whole_number(input_format.get("skipHeaderRows") or 0),
        **({"header": True} if has_header else {"columns": names}),
    }
    return {"csv": {name: value for name, value in options.items() if value not in (",", 0)}}


def _avro(columns: DruidColumns, input_format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the payload of Avro; None if the transform parses it."""
    is_stream = input_format.get("type") == "avro_stream"
    check_keys("inputFormat", input_format, AVRO_STREAM_FIELDS if is_stream else AVRO_FILE_FIELDS)
    _read_fields(columns, input_format.get("flattenSpec") or {})
    if not is_stream:
        if (schema := input_format.get("schema")) is None:
            raise UnsupportedFieldError(
                "'schema' is missing: give the Avro schema of readers, which the payloads must fit"
            )
        return {"avro": {"schema": json.dumps(object_in("schema", schema))}}
    decoder = object_in("avroBytesDecoder", input_format.get("avroBytesDecoder") or {})
    match decoder.get("type"):
        case "schema_inline":
            return {"avro": {"schema": json.dumps(object_in("schema", decoder.get("schema")))}}
        case "schema_registry":
            urls = list_in("urls", decoder.get("urls")) or [decoder.get("url")]
            if not all(isinstance(url, str) and url for url in urls):
                raise UnsupportedFieldError("'avroBytesDecoder' of the type 'schema_registry' needs 'url' or 'urls'")
            if decoder.get("config") or decoder.get("headers"):
                raise UnsupportedFieldError(
                    "'config' and 'headers' of the registry may hold a login; remove them, and give an Airflow "
                    "connection as 'registry_conn_id' in the spec"
                )
            return {"avro": {"confluent": {"url": urls}}}
    columns.require_transform(
        f"'avroBytesDecoder' is of the type {decoder.get('type')!r}; only 'schema_inline' and 'schema_registry' can be "
        "translated, since other repositories are Druid's own"
    )
    return None


def _protobuf(columns: DruidColumns, input_format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the payload of Protobuf; None if the transform parses it."""
    check_keys("inputFormat", input_format, PROTOBUF_FIELDS)
    _read_fields(columns, input_format.get("flattenSpec") or {})
    decoder = object_in("protoBytesDecoder", input_format.get("protoBytesDecoder") or {})
    kind, message = decoder.get("type"), decoder.get("protoMessageType")
    given = decoder.get("descriptor" if kind == "file" else "descriptorString")
    if kind not in ("file", "inline") or not isinstance(message, str) or not isinstance(given, str):
        columns.require_transform(
            f"'protoBytesDecoder' is of the type {kind!r}; only 'file' and 'inline' with a descriptor set and a "
            "'protoMessageType' can be translated: make one with protoc"
        )
        return None
    return {"protobuf": {"descriptor_set": given if kind == "file" else f"data:;base64,{given}", "message": message}}


def _read_fields(columns: DruidColumns, spec: Any) -> None:
    """Leave the columns to the transform that are not top-level fields of their name.

    :param spec: Druid's `flattenSpec`.
    """
    flatten = object_in("flattenSpec", spec)
    check_keys("flattenSpec", flatten, ("fields", "useFieldDiscovery"))
    for each in list_in("fields", flatten.get("fields")):
        if not isinstance(each, Mapping):
            continue
        name, kind = str(each.get("name")), str(each.get("type")).lower()
        expression = each.get("nodes") if kind == "tree" else str(each.get("expr") or name)
        if expression not in _paths_of(name, kind):
            columns.leave(
                name,
                f"field {name!r} is read from {expression!r}, but a schema only reads a field of its column's "
                "name; write a function that reads it, and name it in 'transform'",
            )


def _paths_of(name: str, kind: str) -> tuple[Any, ...]:
    """Return the paths of a top-level field in a kind of path. A dot within a name is a step to a nested field."""
    dotted = IN_DOTS.fullmatch(name) is not None
    match kind:
        case "root":
            return (name,)
        case "tree":
            return ([name],)
        case "jq":
            return (f'."{name}"', f'.["{name}"]', *((f".{name}",) if dotted else ()))
        case _:
            brackets = (f"['{name}']", f'["{name}"]')
            return (*(f"${dot}{each}" for dot in ("", ".") for each in brackets), *((f"$.{name}",) if dotted else ()))


PARTS = ("ioConfig", "dataSchema", "tuningConfig")
"""The parts of a spec, in the order of translation: the columns depend on the format of the payloads."""
TEXT_PARSERS = ("string", "hadoopyString")
"""The types of `parser` whose payloads are text, in the format of the `parseSpec`."""
DEFAULT_FORMAT = "tsv"
"""Druid's format of a `parseSpec` that names none."""


def flattened(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a spec by path, in the order of translation.

    :raises ConfigurationError: if a part of the spec is not an object.
    """
    merged = _whole(spec)
    parts = {
        part: {name: value for name, value in _object(part, merged.get(part) or {}).items() if value is not None}
        for part in PARTS
    }
    yield from ((name, value) for name, value in merged.items() if name not in PARTS)
    yield from _of_parser(parts)
    for name in ("timestampSpec", "dimensionsSpec"):
        parts["dataSchema"].setdefault(name, {})
    scaler = _object("ioConfig.autoScalerConfig", parts["ioConfig"].get("autoScalerConfig") or {})
    for part, fields_of_part in parts.items():
        for name in sorted(fields_of_part, key=_order):
            yield f"{part}.{name}", fields_of_part[name]
    if str(scaler.get("enableTaskAutoScaler")).lower() == "true":
        if scaler.get("autoScalerStrategy") not in (None, fields.LAG_BASED):  # the fields depend on the strategy
            scaler = {"autoScalerStrategy": scaler["autoScalerStrategy"]}
        yield from ((f"{fields.AUTO_SCALE}.{name}", value) for name, value in scaler.items())


def _whole(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a spec as one object. Druid's API lists specs within objects that are no part of them."""
    inner = _object("spec", spec.get("spec") or {})
    if "spec" in inner:
        return _whole(inner)
    return {**{name: value for name, value in spec.items() if name != "spec"}, **inner}


def _order(name: str) -> int:
    """Return the rank of a field: the time is the first column, and filters use the columns added before."""
    return {"timestampSpec": 0, "dimensionsSpec": 1, "transformSpec": 3}.get(name, 2)


def _of_parser(parts: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield `parser`, the earlier form of a data schema, and move its fields to their current paths."""
    parser = parts["dataSchema"].pop("parser", None)
    if parser is None:
        return
    parser = _object("dataSchema.parser", parser)
    parse_spec = _object("dataSchema.parser.parseSpec", parser.get("parseSpec") or {})
    for name in ("timestampSpec", "dimensionsSpec"):
        if name in parse_spec:
            parts["dataSchema"].setdefault(name, parse_spec[name])
    kept = {
        name: value for name, value in parse_spec.items() if name not in ("timestampSpec", "dimensionsSpec", "format")
    }
    kind = parser.get("type") or TEXT_PARSERS[0]
    file_format = (parse_spec.get("format") or DEFAULT_FORMAT) if kind in TEXT_PARSERS else kind
    parts["ioConfig"].setdefault("inputFormat", {"type": file_format, **kept})
    yield "dataSchema.parser", parser


def _object(what: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"spec of Druid: field {what!r} must be an object; got {value!r}")
    return value
