"""The keys of a spec: which there are where, and where one belongs that is somewhere else."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.job_settings import AcknowledgmentSettings, BadRecordSettings
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec_kinds import reads_classes, writes_classes
from airflow_provider_coordination.supervisor.spec_values import absent_of, fields_of
from airflow_provider_coordination.supervisor.tuning import TuningSettings

TOP = (
    "version",
    "source",
    "reads",
    "writes",
    "schema",
    "transform",
    "per_batch",
    "on_bad_records",
    "acknowledgments",
    "tuning",
    "supervise",
    "context",
)
"""The keys of a spec."""
SECTIONS: Mapping[str, type] = {
    "on_bad_records": BadRecordSettings,
    "acknowledgments": AcknowledgmentSettings,
    "tuning": TuningSettings,
    "supervise": SuperviseSettings,
}
"""The classes of the sections that have one class each."""

RENAMED: Mapping[str, str] = {
    "name": "source",
    "shard_id": "reads.kinesis.bounds",
    "stream_name": "reads.kinesis.streams",
    "stream": "reads.kinesis.streams",
    "output_path": "writes[0].parquet.path",
    "sinks": "writes",
    "sink": "writes",
    "round_seconds": "tuning.rounds.round_duration",
    "idle_seconds": "tuning.rounds.idle_duration",
    "acknowledge": "acknowledgments.by",
    "acknowledgment_timeout": "acknowledgments.timeout",
    "bad_records": "on_bad_records",
    "start_within": "tuning.start_timeout",
    "workers": "supervise.task_count",
    "until_caught_up": "supervise.terminate_when_done",
    "max_duration": "supervise.task_duration",
    "max_idle_rounds": "supervise.terminate_when_done",
    "stop_at": "reads.kinesis.bounds",
    "description": "context.description",
    "owner": "context.owner",
}
"""Where a key is said in a spec that is called otherwise: arguments of operators, as they are and as they were."""
DRUID = ("dataSchema", "ioConfig", "tuningConfig", "spec", "type")
"""What a supervisor spec of Druid has at its top."""


def check_names(path: str, cls: type, values: Mapping[str, object], *, kind: str | None) -> None:
    """Check that an object has the fields of a settings class and no others, and those that have to be given.

    :param path: where the object is in the spec.
    :param kind: the kind of source that the spec reads; None if it is not known.
    :raises ConfigurationError: naming the first wrong key, and where it belongs.
    """
    fields, absent = fields_of(cls), absent_of(cls)
    for name in values:
        if name in absent:
            raise ConfigurationError(f"spec: field '{path}.{name}' is not given in a spec: {absent[name]}")
        if name not in fields:
            raise unknown_key(path, name, list(fields), kind=kind)
    for name, field in fields.items():
        if field.is_required and name not in values:
            raise ConfigurationError(f"spec: field '{path}.{name}' is missing")


def check_top_names(values: Mapping[str, object], *, kind: str | None) -> None:
    """Check that a spec has no keys but its own, and those that have to be given.

    :param kind: the kind of source that the spec reads; None if it is not known.
    :raises ConfigurationError: naming the first wrong key, and where it belongs.
    """
    if not any(name in values for name in ("version", "reads", "writes")) and any(name in values for name in DRUID):
        raise ConfigurationError(
            "spec: this is a spec of Druid; translate it by `airflow-coordination spec from-druid`"
        )
    for name in values:
        if name not in TOP:
            raise unknown_key("", name, TOP, kind=kind)
    for name in ("reads", "writes"):
        if values.get(name) is None:
            raise ConfigurationError(f"spec: field {name!r} is missing; see docs/specs.md for an example")


def unknown_key(path: str, name: str, known: list[str] | tuple[str, ...], *, kind: str | None) -> ConfigurationError:
    """Return the error for a key that is not known where it is.

    :param path: of what it is in; empty for the top of the spec.
    :param known: the keys that are known there.
    :param kind: the kind of source that the spec reads; None if it is not known.
    """
    full = f"{path}.{name}" if path else name
    places = [place for place in _places(_snake(name), kind) if place != full]
    if places:
        remedy = f"write {' or '.join(map(repr, places))}"
    elif (said := _of_druid(name)) is not None:
        remedy = said
    elif close := difflib.get_close_matches(_snake(name), known, n=1):
        remedy = f"write '{f'{path}.{close[0]}' if path else close[0]}'"
    else:
        remedy = f"known are {', '.join(known)}"
    return ConfigurationError(f"spec: unknown field {full!r}; {remedy}")


def _of_druid(name: str) -> str | None:
    """Return what becomes of a key of Druid's; None if Druid has none of the name."""
    from airflow_provider_coordination.supervisor.druid.fields import FIELDS  # which needs specs itself
    from airflow_provider_coordination.supervisor.druid.rows import Verdict

    if name in DRUID:
        return "a spec of Druid is translated by `airflow-coordination spec from-druid`"
    for field in FIELDS:
        if field.name.rpartition(".")[2] == name:
            if field.verdict is Verdict.WITHOUT_MEANING:
                return f"Druid's key is without meaning here: {field.note}"
            if field.verdict is Verdict.BY_HAND:
                return f"Druid's key belongs into {field.place}: {field.note}"
            return f"write {field.place!r}"
    return None


def _places(name: str, kind: str | None) -> list[str]:
    """Return where a spec has a key of a name."""
    found = [f"{path}.{name}" if path else name for path, keys in _sections(kind) if name in keys]
    if not found and name in RENAMED:
        place = RENAMED[name]
        return [place if kind is None else place.replace("reads.kinesis.", f"reads.{kind}.")]
    return found


def _sections(kind: str | None) -> Iterator[tuple[str, list[str]]]:
    yield "", list(TOP)
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
        for wanted in field.wanted:
            if wanted.cls is not None:
                yield from _below(f"{path}.{name}", wanted.cls)


def _snake(name: str) -> str:
    """Return a name in this package's spelling, such as `task_count` of `taskCount`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
