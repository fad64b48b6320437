"""The keys of a spec, the classes of its kinds of sources and sinks, and the correct location of a misplaced key.

A kind of source names its class in `SourceKind.reads`, a kind of sink in `SinkKind.writes`, as `module:attribute`: they
are imported when a spec uses them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.sources.kinds import KINDS
from airflow_provider_coordination.spark.ingestion import IngestionOptions
from airflow_provider_coordination.spark.sinks import SINKS
from airflow_provider_coordination.supervisor.settings import SuperviseSettings, TuningSettings
from airflow_provider_coordination.supervisor.spec_values import excluded_fields, fields_of

ITEMS = "items"
"""The kind of a user-defined source: a reader of items that no distribution registers as a kind."""
ITEMS_CLASS = "airflow_provider_coordination.sources.own_source:Items"


def reads_classes() -> Mapping[str, type]:
    """Return the class of each kind of source that a spec can read, by the kind's name.

    :raises ConfigurationError: if one cannot be imported.
    """
    return {name: _class(reference) for name, reference in _reads_references().items()}


def writes_classes() -> Mapping[str, type]:
    """Return the class of each kind of sink that a spec can write, by the kind's name.

    :raises ConfigurationError: if one cannot be imported.
    """
    return {name: _class(reference) for name, reference in _writes_references().items()}


def reads_class(kind: str) -> type:
    """Return the class of a kind of source.

    :raises ConfigurationError: if the kind is not registered, or has no class for specs.
    """
    if kind == ITEMS:
        return _class(ITEMS_CLASS)
    if not KINDS.knows(kind) or not (reference := KINDS.load(kind).reads):
        raise _unknown("reads", kind, _reads_references(), f"use {ITEMS!r} for your own reader")
    return _class(reference)


def writes_class(kind: str) -> type:
    """Return the class of a kind of sink.

    :raises ConfigurationError: if the kind is not registered, or has no class for specs.
    """
    if not SINKS.knows(kind) or not (reference := SINKS.load(kind).writes):
        raise _unknown(
            "writes",
            kind,
            _writes_references(),
            f"other packages register kinds in the entry point group {SINKS.group!r}",
        )
    return _class(reference)


def reads_kind_of(reads: Any) -> str:
    """Return the name of the kind of an object in `reads`.

    :raises ConfigurationError: if no kind has such a class.
    """
    return _kind_of("reads", reads, _reads_references())


def writes_kind_of(writes: Any) -> str:
    """Return the name of the kind of a sink.

    :raises ConfigurationError: if no kind has such a class.
    """
    return _kind_of("writes", writes, _writes_references())


def is_exactly_once(writes: Any) -> bool:
    """Return whether a sink commits each batch exactly once."""
    return SINKS.load(writes_kind_of(writes)).is_exactly_once


def _reads_references() -> Mapping[str, str]:
    """Return `module:attribute` of each class by the kind's name, without importing any."""
    references = {name: KINDS.load(name).reads for name in KINDS.names()}  # KINDS.names() is expensive
    return {name: reference for name, reference in sorted({**references, ITEMS: ITEMS_CLASS}.items()) if reference}


def _writes_references() -> Mapping[str, str]:
    references = {name: SINKS.load(name).writes for name in SINKS.names()}
    return {name: reference for name, reference in references.items() if reference}


def _class(reference: str) -> type:
    found: type = import_attribute(reference, f"class {reference!r}")
    return found


def _kind_of(field: str, value: Any, references: Mapping[str, str]) -> str:
    wanted = f"{type(value).__module__}:{type(value).__qualname__}"
    for name, reference in references.items():
        if reference == wanted:
            return name
    known = ", ".join(reference.partition(":")[2] for reference in references.values())
    raise ConfigurationError(f"spec: field {field!r} must be an object of one of the classes {known}; got {value!r}")


def _unknown(field: str, kind: str, known: Iterable[str], hint: str) -> ConfigurationError:
    return ConfigurationError(
        f"spec: field {field!r}: kind {kind!r} is unknown; the known kinds are {', '.join(map(repr, known))}; {hint}"
    )


OPTIONS = fields_of(IngestionOptions)
"""What a spec says of jobs beside `reads` and `writes`."""
SECTIONS: Mapping[str, type] = {
    **{name: cls for name, field in OPTIONS.items() if (cls := field.settings) is not None},
    "tuning": TuningSettings,
    "supervise": SuperviseSettings,
}
"""The sections with a class of their own."""
TOP_LEVEL_KEYS = tuple(
    dict.fromkeys(("version", "source", "reads", "writes", *OPTIONS, "tuning", "supervise", "context"))
)
"""The keys of a spec."""

OTHER_NAMES: Mapping[str, str] = {
    "workers": "supervise.task_count",
    "until_caught_up": "supervise.terminate_when_done",
    "max_duration": "supervise.task_duration",
    "max_idle_rounds": "supervise.terminate_when_done",
    "description": "context.description",
    "owner": "context.owner",
}
"""The location in a spec of the arguments of operators and DAGs that have another name there."""
DRUID_KEYS = ("dataSchema", "ioConfig", "tuningConfig", "spec", "type")
"""The top-level keys of a Druid supervisor spec."""


def check_keys(path: str, cls: type, values: Mapping[str, object], *, kind: str | None) -> None:
    """Check that an object has only fields of a settings class, and all required ones.

    :param path: the path of the object in the spec.
    :param kind: the kind of source that the spec reads; None if unknown.
    :raises ConfigurationError: naming the first wrong key, and where it belongs.
    """
    fields, excluded = fields_of(cls), excluded_fields(cls)
    for name in values:
        if name in excluded:
            raise ConfigurationError(f"spec: field '{path}.{name}' is not allowed in a spec: {excluded[name]}")
        if name not in fields:
            raise unknown_key(path, name, list(fields), kind=kind)
    for name, field in fields.items():
        if field.is_required and name not in values:
            raise ConfigurationError(f"spec: field '{path}.{name}' is missing")


def check_top_level_keys(values: Mapping[str, object], *, kind: str | None) -> None:
    """Check that a spec has only known top-level keys, and all required ones.

    :param kind: the kind of source that the spec reads; None if unknown.
    :raises ConfigurationError: naming the first wrong key, and where it belongs.
    """
    if not any(name in values for name in ("version", "reads", "writes")) and any(
        name in values for name in DRUID_KEYS
    ):
        raise ConfigurationError("spec: this is a Druid spec; translate it with `airflow-coordination spec from-druid`")
    for name in values:
        if name not in TOP_LEVEL_KEYS:
            raise unknown_key("", name, TOP_LEVEL_KEYS, kind=kind)
    for name in ("reads", "writes"):
        if values.get(name) is None:
            raise ConfigurationError(f"spec: field {name!r} is missing; see docs/specs.md for an example")


def unknown_key(path: str, name: str, known: list[str] | tuple[str, ...], *, kind: str | None) -> ConfigurationError:
    """Return the error for an unknown key.

    :param path: the path of the object that contains it; empty for the top level.
    :param known: the known keys of the object.
    :param kind: the kind of source that the spec reads; None if unknown.
    """
    full = f"{path}.{name}" if path else name
    locations = [place for place in _locations(_snake(name), kind) if place != full]
    if locations:
        remedy = f"write {' or '.join(map(repr, locations))}"
    elif (druid_remedy := _druid_remedy(name)) is not None:
        remedy = druid_remedy
    elif close := difflib.get_close_matches(_snake(name), known, n=1):
        remedy = f"write '{f'{path}.{close[0]}' if path else close[0]}'"
    else:
        remedy = f"the known keys are {', '.join(known)}"
    return ConfigurationError(f"spec: unknown field {full!r}; {remedy}")


def _druid_remedy(name: str) -> str | None:
    """Return the remedy for a key of Druid's spec; None if Druid has no such key."""
    from airflow_provider_coordination.supervisor.druid.fields import FIELDS  # this module imports specs
    from airflow_provider_coordination.supervisor.druid.rows import FieldOutcome

    if name in DRUID_KEYS:
        return "translate a Druid spec with `airflow-coordination spec from-druid`"
    for field in FIELDS:
        if field.name.rpartition(".")[2] == name:
            if field.outcome is FieldOutcome.NOT_APPLICABLE:
                return f"this key of Druid is not applicable: {field.note}"
            if field.outcome is FieldOutcome.MANUAL:
                return f"this key of Druid belongs in {field.target}: {field.note}"
            return f"write {field.target!r}"
    return None


def _locations(name: str, kind: str | None) -> list[str]:
    """Return the locations of a key in a spec."""
    locations = [f"{path}.{name}" if path else name for path, keys in _sections(kind) if name in keys]
    if not locations and name in OTHER_NAMES:
        return [OTHER_NAMES[name]]
    return locations


def _sections(kind: str | None) -> Iterator[tuple[str, list[str]]]:
    yield "", list(TOP_LEVEL_KEYS)
    for section, cls in SECTIONS.items():
        yield from _below(section, cls)
    readable = reads_classes()
    for name, cls in readable.items():
        if kind in (None, name) or kind not in readable:
            yield f"reads.{name}", list(fields_of(cls))
    for name, cls in writes_classes().items():
        yield f"writes[0].{name}", list(fields_of(cls))


def _below(path: str, cls: type) -> Iterator[tuple[str, list[str]]]:
    fields = fields_of(cls)
    yield path, list(fields)
    for name, field in fields.items():
        if field.settings is not None:
            yield from _below(f"{path}.{name}", field.settings)


def _snake(name: str) -> str:
    """Return a name in snake case, such as `task_count` for `taskCount`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
