"""The fields of a Druid spec by path, whichever form of Druid's the spec has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.druid import fields

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
