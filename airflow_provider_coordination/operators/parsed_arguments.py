"""Errors for arguments that are wrong as soon as a DAG is parsed, before any template is rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import source_identifier
from airflow_provider_coordination.operators.template_values import int_value, resolved
from airflow_provider_coordination.settings import Described, text_value
from airflow_provider_coordination.spark.settings import (
    check_absolute,
    check_described_sinks,
    check_folders,
    check_function,
    is_template,
)
from airflow_provider_coordination.spark.time_formats import check_time_formats
from airflow_provider_coordination.spark.writes.writes import Writes, all_of
from airflow_provider_coordination.supervisor.ddl import columns_of

SETTINGS = ("on_bad_records", "rejection", "acknowledgments", "leases", "rounds")
"""The arguments of a job that are settings with templates of their own."""


def check_parsed(callee: str, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of a job that are known without a connection.

    Airflow calls a function that it finds in a templated field, so a function in place of its name must not get there.

    :param callee: the class that has the arguments.
    :param arguments: the arguments, by name; a template is checked when its task runs.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    for name in ("reads", "writes"):
        if name in arguments and arguments[name] is None:
            raise ConfigurationError(
                f"{callee}: field {name!r} is None; give {'a source' if name == 'reads' else 'a sink'} of the manual"
            )
    check_transform(callee, arguments.get("transform"))
    _check_schema(arguments)
    if (source := _given(arguments.get("source"))) is not None:
        source_identifier(source)
    workers = arguments.get("workers")
    if is_plain(workers) and (number := int_value("workers", workers)) is not None and number <= 0:
        raise ConfigurationError(f"field 'workers' must be positive; got {number!r}")
    for name in SETTINGS:
        settings: Any = arguments.get(name)
        if isinstance(settings, Described):
            _check_object(settings)
        elif hasattr(settings, "template_fields") and is_plain(vars(settings)):
            resolved(settings)
    check_reads(arguments.get("reads"))
    _check_writes(arguments)


def check_transform(callee: str, transform: object) -> None:
    """Check that a transform is named as `module:function`, unless it is a template.

    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if callable(transform) or _given(transform) is not None:
        check_function(f"{callee}: field 'transform'", transform)


def check_reads(reads: object) -> None:
    """Check what an operator reads, if it has neither templates nor results of other tasks.

    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    _check_object(reads)


def is_plain(value: object) -> bool:
    """Return whether a value is the same when its task runs: it contains no template and no result of another task."""
    if isinstance(value, str):
        return not is_template(value)
    if isinstance(value, Mapping):
        return all(is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | date | timedelta)


def _check_object(described: Any) -> None:
    """Check a source or sink that can check itself without a connection."""
    fields: Sequence[str] = getattr(described, "template_fields", ())
    with suppress(ImportError):  # the job has the library that checks it
        if isinstance(described, Described):
            described.check(is_plain)
        elif hasattr(described, "check") and is_plain([getattr(described, name) for name in fields]):
            described.check()


def _check_writes(arguments: Mapping[str, Any]) -> None:
    """Check the sinks of a job, and where its files are."""
    landing_path, writes = arguments.get("landing_path"), arguments.get("writes")
    dead_letter_path = getattr(arguments.get("on_bad_records"), "dead_letter_path", None)
    check_folders(_given(landing_path), _given(dead_letter_path))
    if not isinstance(writes, Writes | str | list | tuple):
        return
    sinks = all_of(writes)
    for sink in sinks:
        _check_object(sink)
        folder = _given(sink.landing_path)
        if folder is not None:
            check_absolute(f"the folder of {type(sink).__name__} in field 'writes'", folder.removesuffix("/_landing"))
    if is_plain(landing_path):
        check_described_sinks(sinks, _given(landing_path))


def _check_schema(arguments: Mapping[str, Any]) -> None:
    schema, formats = _given(arguments.get("schema")), arguments.get("time_formats")
    if schema is not None:
        check_time_formats(formats, columns_of(schema))


def _given(value: object) -> str | None:
    """Return a text that is known already; None if it is not given or a template."""
    return text_value(value) if isinstance(value, str) and not is_template(value) else None
