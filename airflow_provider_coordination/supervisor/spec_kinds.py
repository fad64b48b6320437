"""The classes of `reads` and `writes` in a spec, by the name of the kind.

A kind of source names its class in `SourceKind.reads`, a kind of sink in `SinkKind.writes`, as `module:attribute`: they
belong to the operators, and are imported when a spec uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.sources.kinds import KINDS
from airflow_provider_coordination.spark.sinks import SINKS

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
    found: type = import_attribute(reference, "class")
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
