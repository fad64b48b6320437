"""The JSON Schema of specs, generated from the classes that read them, for completion and checks in editors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from airflow_provider_coordination.field_hints import Limits
from airflow_provider_coordination.spark.ingestion import Ingestion, IngestionOptions
from airflow_provider_coordination.spark.payload_schema import TIME_FORMATS
from airflow_provider_coordination.supervisor.settings import SuperviseSettings, TuningSettings
from airflow_provider_coordination.supervisor.spec import VERSION, IngestionSpec
from airflow_provider_coordination.supervisor.spec_keys import OPTIONS, TOP_LEVEL_KEYS, reads_classes, writes_classes
from airflow_provider_coordination.supervisor.spec_values import FUNCTION, Field, fields_of, to_json_with_defaults

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DURATION = r"^-?P(\d+(\.\d+)?W|(?=.)(\d+(\.\d+)?D)?(T(?=.)(\d+(\.\d+)?H)?(\d+(\.\d+)?M)?(\d+(\.\d+)?S)?)?)$"
NULL = {"type": "null"}
OPTION_CONSTRAINTS: Mapping[str, Mapping[str, Any]] = {
    "transform": {"pattern": FUNCTION.pattern},
    "time_formats": {"additionalProperties": {"anyOf": [{"enum": list(TIME_FORMATS)}, {"pattern": "yyyy"}]}},
}
"""The constraints of options that `Ingestion.check` checks, as far as a JSON Schema can express them."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec, with the kinds of sources and sinks that are installed."""
    definitions: dict[str, Any] = {}
    texts = parameters_of(IngestionSpec) | parameters_of(IngestionOptions) | parameters_of(Ingestion)
    properties: dict[str, Any] = {
        "version": {"const": VERSION, "description": "The version of the spec format; an unknown one is refused."},
        "reads": _one_of(reads_classes(), definitions),
        "writes": {"type": "array", "minItems": 1, "items": _one_of(writes_classes(), definitions)},
        **{
            name: {**_of_field(field, definitions), **OPTION_CONSTRAINTS.get(name, {})}
            for name, field in OPTIONS.items()
        },
        "tuning": _reference(TuningSettings, definitions),
        "supervise": _reference(SuperviseSettings, definitions),
        "context": {"type": "object"},
    }
    return {
        "$schema": DIALECT,
        "title": "Ingestion spec",
        "type": "object",
        "properties": {name: _described(properties[name], texts.get(name)) for name in TOP_LEVEL_KEYS},
        "required": ["version", "reads", "writes"],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _one_of(classes: Mapping[str, type], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose only key is a kind."""
    return {
        "type": "object",
        "properties": {kind: _reference(cls, definitions) for kind, cls in classes.items()},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _reference(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the schema of a class, which is generated on first use."""
    name = cls.__name__
    if name not in definitions:
        definitions[name] = None  # reserved for a class that contains itself
        definitions[name] = _schema_of(cls, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _schema_of(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    texts, fields = parameters_of(cls), fields_of(cls)
    properties = {name: _described(_of_field(field, definitions), texts.get(name)) for name, field in fields.items()}
    required = [name for name, field in fields.items() if field.is_required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if cls is SuperviseSettings:
        late = ["late_message_rejection_period", "late_message_rejection_start"]
        schema["not"] = {"required": late, "properties": {name: {"not": {"type": "null"}} for name in late}}
    return {**schema, "required": required} if required else schema


def _of_field(field: Field, definitions: dict[str, Any]) -> dict[str, Any]:
    if field.settings is not None:
        choices = [_reference(field.settings, definitions)]
    else:
        written = msgspec.json.schema(field.written)
        choices = [each for each in written.get("anyOf", [written]) if each != NULL]
    if timedelta in field.hint.types:
        choices = [{"type": "string", "pattern": DURATION}, {"type": "number"}]
    elif datetime in field.hint.types:
        choices = [{"type": "string", "format": "date-time"}]
    if field.limits is not None:
        choices = [{**choice, **_limits(field.limits, choice)} for choice in choices]
    if None in field.hint.types:
        choices.append(NULL)
    schema = choices[0] if len(choices) == 1 else {"anyOf": choices}
    default = to_json_with_defaults(field.default)
    if field.is_required or default is None or isinstance(default, dict):
        return schema
    return {**schema, "default": default}


def _limits(limits: Limits, choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return limits in a schema's words, as far as they apply to a type; numbers stand for durations in seconds."""
    words: dict[str, Any] = {}
    if choice.get("type") in ("integer", "number"):
        bounds = {"minimum": limits.minimum, "exclusiveMinimum": limits.above, "maximum": limits.maximum}
        words = {
            word: bound.total_seconds() if isinstance(bound, timedelta) else bound
            for word, bound in bounds.items()
            if bound is not None
        }
    elif choice.get("type") == "array":
        words = {"minItems": limits.min_items} if limits.min_items else {}
        words |= {"uniqueItems": True} if limits.is_unique else {}
    elif choice.get("type") == "string":
        words = {"enum": list(limits.one_of)} if limits.one_of else {}
        words |= {"pattern": limits.pattern} if limits.pattern else {}
    return words


def parameters_of(cls: type) -> dict[str, str]:
    """Return the descriptions of a class's parameters, and then of those that it inherits."""
    pattern = re.compile(r"^:param (\w+):(.*?)(?=^:|\n\n|\Z)", re.MULTILINE | re.DOTALL)
    found: dict[str, str] = {}
    for each in cls.__mro__:
        for name, description in pattern.findall(inspect.cleandoc(each.__doc__ or "")):
            found.setdefault(name, " ".join(description.replace("(templated)", "").split()))
    return found


def _described(schema: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    return dict(schema) if text is None else {"description": text[:1].upper() + text[1:], **schema}
