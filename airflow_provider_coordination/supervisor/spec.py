"""The spec of an ingestion: a declaration of its source, its sinks, its jobs, and its supervision.

It consists of the same objects that the operators accept, by the name of their kind, and the supervisor's settings.
It is read strictly: an unknown, misplaced or wrong key is an error that names the correct location.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import source_identifier
from airflow_provider_coordination.settings import FieldError
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.spark.job_settings import AcknowledgmentSettings, BadRecordSettings
from airflow_provider_coordination.spark.settings import MAIN, check_described_sinks, check_folders, check_function
from airflow_provider_coordination.spark.time_formats import check_time_formats
from airflow_provider_coordination.supervisor.ddl import columns_of
from airflow_provider_coordination.supervisor.redaction import without_secrets
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec_keys import SECTIONS, check_keys, check_top_level_keys
from airflow_provider_coordination.supervisor.spec_kinds import (
    is_exactly_once,
    reads_class,
    reads_kind_of,
    writes_class,
    writes_kind_of,
)
from airflow_provider_coordination.supervisor.spec_values import fields_of, read_value, to_json, to_json_with_defaults
from airflow_provider_coordination.supervisor.tuning import TuningSettings

VERSION = 1
MAX_BYTES = 48 * 1024
"""The maximum size of a spec as JSON, because the store keeps each version in one item."""
MAX_ERROR_CHARACTERS = 1000
JOB_FIELDS = (
    "event_time",
    "late_message_rejection_period",
    "late_message_rejection_start",
    "early_message_rejection_period",
)
"""The fields of `supervise` that affect jobs."""
MONITORING_FIELDS = ("start_timeout", "spark_ui_url", "job_log_url")
"""The fields of `tuning` that serve the monitoring of jobs and not the jobs."""


EVENT_TIME_TYPES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "BIGINT", "LONG")
"""The permitted types of the event time column; an integer is in milliseconds."""


class SpecChange(IntEnum):
    """The kind of change between two specs; of several kinds, the greatest counts."""

    NONE = 0
    """Both specs are equivalent."""
    COSMETIC = 1
    """Only descriptions change."""
    SUPERVISION = 2
    """The supervision changes: the supervisor applies it from its next turn, and jobs continue."""
    JOBS = 3
    """The work of jobs changes: they hand over to jobs with the new spec."""


@runtime_checkable
class Checkable(Protocol):
    """An object that checks its values without a connection."""

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class IngestionSpec:
    """The spec of an ingestion.

    :param reads: what to read, such as `KinesisStreams`.
    :param writes: the sinks: one or several objects of the classes of `spark.writes`.
    :param source: the name of the source; by default the name that `reads` gives.
    :param schema: the schema of the payload as DDL; None to leave the payload unparsed.
    :param time_formats: the formats of TIMESTAMP columns of `schema`, by name; None for those that Spark accepts.
    :param transform: `module:function` from DataFrame to DataFrame; None to deliver the records unchanged.
    :param per_batch: whether the transform gets the records of one batch at a time even if it keeps `_batch_id`;
        otherwise such a transform gets the records of all batches of a round.
    :param on_bad_records: how to handle records that cannot be parsed or transformed.
    :param acknowledgments: which parties acknowledge a batch, and how long that may take.
    :param tuning: how jobs run.
    :param supervise: how the source is supervised.
    :param context: information for people, such as a description; it has no effect.
    """

    reads: Any
    writes: Sequence[Any]
    source: str = ""
    schema: str | None = None
    time_formats: Mapping[str, str] | None = None
    transform: str | None = None
    per_batch: bool = False
    on_bad_records: BadRecordSettings = field(default_factory=BadRecordSettings)
    acknowledgments: AcknowledgmentSettings = field(default_factory=AcknowledgmentSettings)
    tuning: TuningSettings = field(default_factory=TuningSettings)
    supervise: SuperviseSettings = field(default_factory=SuperviseSettings)
    context: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        writes = self.writes if isinstance(self.writes, list | tuple) else (self.writes,)
        object.__setattr__(self, "writes", tuple(writes))
        object.__setattr__(self, "source", self.source or self.reads.default_source)

    @classmethod
    def read(cls, values: object) -> IngestionSpec:
        """Return the checked spec that a JSON object describes.

        :param values: the object, as loaded from YAML or JSON.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        try:
            return cls._read(values)
        except ConfigurationError as error:  # a value may be very long
            if len(text := str(error)) <= MAX_ERROR_CHARACTERS:
                raise
            half = MAX_ERROR_CHARACTERS // 2
            raise ConfigurationError(f"{text[:half]} … {text[-half:]}") from None

    @classmethod
    def _read(cls, values: object) -> IngestionSpec:
        values = _checked_object(values)
        kind, of_reads = _one_kind("reads", values["reads"]) if values.get("reads") is not None else (None, None)
        check_top_level_keys(values, kind=kind)
        assert kind is not None
        reader = _Reader(kind)
        spec = cls(
            reads=reader.make(reads_class(kind), f"reads.{kind}", of_reads),
            writes=[reader.sink(path, each) for path, each in _sinks(values["writes"])],
            source=_text(values, "source") or "",
            schema=_text(values, "schema"),
            time_formats=values.get("time_formats"),
            transform=_text(values, "transform"),
            per_batch=_flag(values, "per_batch"),
            context=_context(values.get("context")),
            **{
                name: reader.make(section, name, values[name])
                for name, section in SECTIONS.items()
                if values.get(name) is not None
            },
        )
        spec.check()
        return spec

    def check(self) -> None:
        """Check every value, as far as possible without a connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        source_identifier(self.source)
        self._check_schema()
        self._check_part(self.reads, f"reads.{reads_kind_of(self.reads)}")
        for number, sink in enumerate(self.writes):
            self._check_part(sink, f"writes[{number}].{writes_kind_of(sink)}")
        for path in ("on_bad_records", "acknowledgments"):
            self._check_part(getattr(self, path), path)
        for topic in (self.tuning, self.supervise):
            topic.check()
        self._check_folders()
        self._check_end()
        if self.transform is not None:
            check_function("spec: field 'transform'", self.transform)
        size = len(json.dumps(self.to_mapping()))
        if size > MAX_BYTES:
            raise ConfigurationError(
                f"spec: it has {size} bytes as JSON, and the limit is {MAX_BYTES}; move large values, such as queries "
                "and Spark properties, to a connection or a properties file"
            )

    def _check_part(self, part: Any, path: str) -> None:
        try:
            if isinstance(part, Checkable):
                part.check()
        except FieldError as error:
            raise error.below("spec", path) from None

    def _check_schema(self) -> None:
        try:
            columns = {} if self.schema is None else columns_of(self.schema)
            check_time_formats(self.time_formats, columns)
        except ConfigurationError as error:
            raise ConfigurationError(f"spec: {error}") from None
        name = self.supervise.event_time
        if name is None:
            return
        kind = columns.get(name)
        if kind is None:
            known = ", ".join(map(repr, columns)) or "none, as 'schema' is missing"
            raise ConfigurationError(
                f"spec: field 'supervise.event_time' must name a column of 'schema'; got {name!r}; columns are {known}"
            )
        if kind not in EVENT_TIME_TYPES:
            raise ConfigurationError(
                f"spec: field 'supervise.event_time' must name a column of type {', '.join(EVENT_TIME_TYPES)}; "
                f"{name!r} is of type {kind}"
            )

    def _check_folders(self) -> None:
        try:
            check_folders(self.tuning.landing_path, self.on_bad_records.dead_letter_path)
            check_described_sinks(self.writes, self.tuning.landing_path)
        except ConfigurationError as error:
            raise ConfigurationError(f"spec: {error}") from None

    def _check_end(self) -> None:
        """Check that the source is bounded if `terminate_when_done` is set."""
        if not self.supervise.terminate_when_done or not self.reads.is_endless:
            return
        if not get_kind(self.reads.kind).ends(to_json(self.reads)):
            raise ConfigurationError(
                "spec: field 'supervise.terminate_when_done' is true, but "
                f"'reads.{reads_kind_of(self.reads)}' has no end: give it bounds, or omit 'terminate_when_done'"
            )

    def reads_object(self) -> Any:
        """Return a copy of `reads` for the caller, because operators render their arguments in place."""
        return copy(self.reads)

    def writes_objects(self) -> list[Any]:
        """Return copies of `writes` for the caller."""
        return [copy(each) for each in self.writes]

    @property
    def at_least_once(self) -> list[str]:
        """The names of the sinks that may receive a batch more than once."""
        return [each.name or MAIN for each in self.writes if not is_exactly_once(each)]

    def job_arguments(self) -> dict[str, Any]:
        """Return the arguments of `CoordinatedSparkSubmitOperator` for a job of this spec.

        Unless it is requested to hand over, a job ends on its own after `task_duration` plus `completion_timeout`.
        """
        tuning, supervise = self.tuning, self.supervise
        rounds = replace(
            tuning.rounds,
            until_caught_up=not self.reads.is_endless,
            max_duration=supervise.task_duration + supervise.completion_timeout,
        )
        return {
            "reads": self.reads_object(),
            "writes": self.writes_objects(),
            "source": self.source,
            "schema": self.schema,
            "time_formats": self.time_formats,
            "transform": self.transform,
            "per_batch": self.per_batch,
            "on_bad_records": copy(self.on_bad_records),
            "acknowledgments": copy(self.acknowledgments),
            "leases": copy(tuning.leases),
            "rounds": rounds,
            "workers": supervise.task_count,
            "coordination_conn_id": tuning.coordination_conn_id,
            "landing_path": tuning.landing_path,
            "start_timeout": tuning.start_timeout,
            "spark_archive": tuning.spark_archive,
            "spark_ui_url": tuning.spark_ui_url,
            "job_log_url": tuning.job_log_url,
            **tuning.spark.arguments(),
        }

    def to_mapping(self) -> dict[str, Any]:
        """Return the JSON object that `read` accepts, without default values. It may hold secrets."""
        kind = reads_kind_of(self.reads)
        fields = {
            "schema": self.schema,
            "time_formats": self.time_formats,
            "transform": self.transform,
            "per_batch": self.per_batch or None,
            **{name: to_json(getattr(self, name)) for name in SECTIONS},
            "context": dict(self.context),
        }
        return {
            "version": VERSION,
            "source": self.source,
            "reads": {kind: to_json(self.reads)},
            "writes": [{writes_kind_of(each): to_json(each)} for each in self.writes],
            **{name: value for name, value in fields.items() if value not in (None, {})},
        }

    def effective(self) -> dict[str, Any]:
        """Return the spec as a JSON object with all defaults, for display: secrets are hidden."""
        kind = reads_kind_of(self.reads)
        mapping = {
            "version": VERSION,
            "source": self.source,
            "reads": {kind: _shown(self.reads)},
            "writes": [{writes_kind_of(each): _shown(each)} for each in self.writes],
            "schema": self.schema,
            "time_formats": self.time_formats,
            "transform": self.transform,
            "per_batch": self.per_batch,
            **{name: _shown(getattr(self, name)) for name in SECTIONS},
            "context": dict(self.context),
        }
        shown: dict[str, Any] = without_secrets(mapping)
        return shown


def change_between(old: IngestionSpec | None, new: IngestionSpec) -> SpecChange:
    """Return the kind of change between two specs.

    :param old: the spec before; None if there was none.
    """
    if old is None:
        return SpecChange.JOBS
    if _job_settings(old) != _job_settings(new):
        return SpecChange.JOBS
    if (old.supervise, old.tuning) != (new.supervise, new.tuning):
        return SpecChange.SUPERVISION
    return SpecChange.NONE if old.context == new.context else SpecChange.COSMETIC


def _job_settings(spec: IngestionSpec) -> tuple[Any, ...]:
    """Return the parts of a spec that affect jobs."""
    plain = TuningSettings()
    ours: dict[str, Any] = {name: getattr(plain, name) for name in MONITORING_FIELDS}
    return (
        spec.source,
        spec.reads,
        spec.writes,
        spec.schema,
        spec.time_formats,
        spec.transform,
        spec.per_batch,
        spec.on_bad_records,
        spec.acknowledgments,
        replace(spec.tuning, **ours),
        tuple(getattr(spec.supervise, name) for name in JOB_FIELDS),
    )


def read_sink(values: Any, path: str) -> Any:
    """Return a sink from the format of specs, such as `{delta: {path: /data/lake/clicks}}`.

    :param path: its name in errors.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    sink = _Reader("").sink(path, values)
    try:
        if isinstance(sink, Checkable):
            sink.check()
    except FieldError as error:
        raise error.below("spec", f"{path}.{writes_kind_of(sink)}") from None
    return sink


class _Reader:
    """Creates the objects of a spec.

    :param kind: the kind of source that it reads.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def make(self, cls: type, path: str, values: Any) -> Any:
        """Return an object of a class.

        :param path: its path in the spec.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not isinstance(values, Mapping):
            known = ", ".join(fields_of(cls))
            raise ConfigurationError(f"spec: field {path!r} must be an object of the keys {known}; got {values!r}")
        check_keys(path, cls, values, kind=self._kind)
        known_fields = fields_of(cls)
        return cls(
            **{
                name: read_value(known_fields[name], f"{path}.{name}", value, self.make)
                for name, value in values.items()
            }
        )

    def sink(self, path: str, values: Any) -> Any:
        """Return a sink."""
        kind, of_writes = _one_kind(path, values)
        return self.make(writes_class(kind), f"{path}.{kind}", of_writes)


def _checked_object(values: object) -> Mapping[str, Any]:
    """Return a spec as a JSON object, after checking its version."""
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"spec: expected an object; got {values!r}"[:300])
    for path, text in _texts("", values):
        if ("{{" in text or "{%" in text) and not path.startswith(("tuning.spark.", "context.")):
            raise ConfigurationError(
                f"spec: field {path!r} is a template, but a spec belongs to no run: write the value; got {text!r}"
            )
    if "version" not in values:
        if "reads" in values or "writes" in values:
            raise ConfigurationError(f"spec: field 'version' is missing; write 'version: {VERSION}'")
        return values
    version = values["version"]
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ConfigurationError(f"spec: field 'version' must be {VERSION}; got {version!r}")
    if version > VERSION:
        raise ConfigurationError(
            f"spec: field 'version' is {version}, but this package reads versions up to {VERSION}; upgrade the "
            f"package, or write the spec for version {VERSION}"
        )
    return values


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(f"{path}.{name}" if path else str(name), each)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _texts(f"{path}[{number}]", each)


def _one_kind(path: str, values: Any) -> tuple[str, Any]:
    """Return the kind of a source or sink, and its fields."""
    if isinstance(values, str):
        return values, {}
    if not isinstance(values, Mapping) or len(values) != 1:
        raise ConfigurationError(
            f"spec: field {path!r} must be an object with one key, the kind, and its fields, such as "
            f"{'{s3: {paths: s3://in/clicks/}}' if path == 'reads' else '{parquet: {path: /data/lake/clicks}}'}; got "
            f"{list(values) if isinstance(values, Mapping) else values!r}"
        )
    [(kind, given)] = values.items()
    return kind, {} if given is None else given


def _sinks(values: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(values, Mapping):
        yield "writes", values
        return
    if not isinstance(values, list | tuple) or not values:
        raise ConfigurationError(
            f"spec: field 'writes' must be a list of sinks, such as [{{parquet: {{path: /data/lake/clicks}}}}]; got "
            f"{values!r}"
        )
    for number, each in enumerate(values):
        yield f"writes[{number}]", each


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"spec: field {name!r} must be non-empty text; got {value!r}")
    return value


def _flag(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name, False)
    if not isinstance(value, bool):
        raise ConfigurationError(f"spec: field {name!r} must be true or false; got {value!r}")
    return value


def _context(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"spec: field 'context' must be an object, such as {{owner: data team}}; got {value!r}"
        )
    return dict(value)


def _shown(value: Any) -> dict[str, Any]:
    """Return an object with all defaults, with the fields that its class marks as secret hidden."""
    whole: dict[str, Any] = to_json_with_defaults(value)
    cls: Any = value.__class__
    return {name: "***" if field.is_secret and whole[name] else whole[name] for name, field in fields_of(cls).items()}
