"""The JSON Schema of specs, made of the classes that read them: editors complete and check specs by it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.coordination.balance import BALANCE_BY
from airflow_provider_coordination.coordination.lease_settings import LeaseSettings
from airflow_provider_coordination.supervisor.settings import LAG_AGGREGATES, AutoScaleSettings, SuperviseSettings
from airflow_provider_coordination.supervisor.spec import VERSION, IngestionSpec
from airflow_provider_coordination.supervisor.spec_keys import SECTIONS, TOP
from airflow_provider_coordination.supervisor.spec_kinds import reads_classes, writes_classes
from airflow_provider_coordination.supervisor.spec_values import Field, Sort, Wanted, fields_of, written_whole
from airflow_provider_coordination.supervisor.tuning import DEPLOY_MODES, MEMORY, SparkSettings

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DURATION = r"^-?P(?=.)(\d+(\.\d+)?W)?(\d+(\.\d+)?D)?(T(?=.)(\d+(\.\d+)?H)?(\d+(\.\d+)?M)?(\d+(\.\d+)?S)?)?$"
PLAIN: Mapping[Sort, Mapping[str, Any]] = {
    Sort.TEXT: {"type": "string"},
    Sort.WHOLE: {"type": "integer"},
    Sort.NUMBER: {"type": "number"},
    Sort.YES_OR_NO: {"type": "boolean"},
    Sort.INSTANT: {"type": "string", "format": "date-time"},
    Sort.FUNCTION: {"type": "string", "pattern": r"^[^:]+:[^:]+$"},
    Sort.ANYTHING: {},
}
AT_LEAST_ONE: Mapping[str, Any] = {"minimum": 1}
FRACTION: Mapping[str, Any] = {"minimum": 0, "maximum": 1}
LIMITS: Mapping[type, Mapping[str, Mapping[str, Any]]] = {
    SuperviseSettings: {"task_count": AT_LEAST_ONE, "stop_task_count": AT_LEAST_ONE},
    AutoScaleSettings: {
        "task_count_min": AT_LEAST_ONE,
        "task_count_max": AT_LEAST_ONE,
        "trigger_scale_out_fraction": FRACTION,
        "trigger_scale_in_fraction": FRACTION,
        "scale_out_step": AT_LEAST_ONE,
        "scale_in_step": AT_LEAST_ONE,
        "lag_aggregate": {"enum": list(LAG_AGGREGATES)},
    },
    LeaseSettings: {
        "max_leases": AT_LEAST_ONE,
        "max_leases_to_steal": AT_LEAST_ONE,
        "balance_by": {"enum": list(BALANCE_BY)},
    },
    SparkSettings: {
        "driver_memory": {"pattern": MEMORY.pattern},
        "executor_memory": {"pattern": MEMORY.pattern},
        "executor_cores": AT_LEAST_ONE,
        "num_executors": AT_LEAST_ONE,
        "total_executor_cores": AT_LEAST_ONE,
        "deploy_mode": {"enum": [*DEPLOY_MODES, None]},
    },
}
"""What `check` of a class asks of single fields, as far as a schema can say it."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec, with the kinds of sources and sinks that are installed here."""
    definitions: dict[str, Any] = {}
    texts = _parameters(IngestionSpec)
    properties: dict[str, Any] = {
        "version": {"const": VERSION, "description": "The version of specs that this one is written for."},
        "source": {"type": "string"},
        "reads": _one_of(reads_classes(), definitions),
        "writes": {"type": "array", "minItems": 1, "items": _one_of(writes_classes(), definitions)},
        "schema": {"type": ["string", "null"]},
        "transform": {"anyOf": [PLAIN[Sort.FUNCTION], {"type": "null"}]},
        "per_batch": {"type": "boolean"},
        **{name: _reference(cls, definitions) for name, cls in SECTIONS.items()},
        "context": {"type": "object"},
    }
    return {
        "$schema": DIALECT,
        "title": "Ingestion spec",
        "type": "object",
        "properties": {name: _described(properties[name], texts.get(name)) for name in TOP},
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
    """Return a reference to the schema of a class, which is made when it is first asked for."""
    name = cls.__name__
    if name not in definitions:
        definitions[name] = None  # its place is taken, where a class is within itself
        definitions[name] = _schema_of(cls, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _schema_of(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    texts, fields = _parameters(cls), fields_of(cls)
    limits = LIMITS.get(cls, {})
    properties = {
        name: _described({**_of_field(field, definitions), **limits.get(name, {})}, texts.get(name))
        for name, field in fields.items()
    }
    required = [name for name, field in fields.items() if field.is_required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if cls is SuperviseSettings:
        late = ["late_message_rejection_period", "late_message_rejection_start"]
        schema["not"] = {"required": late, "properties": {name: {"not": {"type": "null"}} for name in late}}
    return {**schema, "required": required} if required else schema


def _of_field(field: Field, definitions: dict[str, Any]) -> dict[str, Any]:
    choices = [each for wanted in field.wanted for each in _choices(wanted, definitions)]
    if field.may_be_null:
        choices.append({"type": "null"})
    schema = choices[0] if len(choices) == 1 else {"anyOf": choices}
    default = written_whole(field.default)
    if field.is_required or default is None or isinstance(default, dict):
        return schema
    return {**schema, "default": default}


def _choices(wanted: Wanted, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    if wanted.what is Sort.DURATION:
        return [{"type": "string", "pattern": DURATION}, {"type": "number"}]
    if wanted.cls is not None:
        return [_reference(wanted.cls, definitions)]
    below = [each for one in wanted.below for each in _choices(one, definitions)]
    held = below[0] if len(below) == 1 else {"anyOf": below}
    if wanted.what is Sort.LIST:
        return [{"type": "array", "items": held}]
    if wanted.what is Sort.OBJECT:
        return [{"type": "object", "additionalProperties": held}]
    return [dict(PLAIN[wanted.what])]


def _parameters(cls: type) -> dict[str, str]:
    """Return what a class says of each of its parameters."""
    text = inspect.cleandoc(cls.__doc__ or "")
    found = re.findall(r"^:param (\w+):(.*?)(?=^:|\Z)", text, re.MULTILINE | re.DOTALL)
    return {name: " ".join(said.replace("(templated)", "").split()) for name, said in found}


def _described(schema: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    return dict(schema) if text is None else {"description": text[:1].upper() + text[1:], **schema}
