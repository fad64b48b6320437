"""The spec of an ingestion: a declaration of its source, its sinks, its jobs, and its supervision.

It consists of the same objects that the operators accept, by the name of their kind, and the supervisor's settings.
It is read strictly: an unknown, misplaced or wrong key is an error that names the correct location.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import source_identifier
from airflow_provider_coordination.field_hints import format_duration
from airflow_provider_coordination.settings import FieldError
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import RoundSettings, check_computed, check_function
from airflow_provider_coordination.spark.payload_schema import check_time_formats, columns_of
from airflow_provider_coordination.spark.sink_settings import MAIN, check_described_sinks, check_folders
from airflow_provider_coordination.spark.writes import Writes, all_of
from airflow_provider_coordination.supervisor.settings import SuperviseSettings, TuningSettings
from airflow_provider_coordination.supervisor.spec_keys import (
    OPTIONS,
    SECTIONS,
    check_keys,
    check_top_level_keys,
    is_exactly_once,
    reads_class,
    reads_kind_of,
    writes_class,
    writes_kind_of,
)
from airflow_provider_coordination.supervisor.spec_values import (
    excluded_fields,
    fields_of,
    read_value,
    to_json,
    to_json_with_defaults,
    without_secrets,
)

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


@dataclass(frozen=True, kw_only=True)
class IngestionSpec:
    """The spec of an ingestion.

    :param ingestion: what jobs ingest; its `rejection` and the end of its `rounds` are the supervisor's.
    :param tuning: how jobs run.
    :param supervise: how the source is supervised.
    :param context: information for people, such as a description; it has no effect.
    """

    ingestion: Ingestion
    tuning: TuningSettings = field(default_factory=TuningSettings)
    supervise: SuperviseSettings = field(default_factory=SuperviseSettings)
    context: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ingestion = self.ingestion
        named = replace(ingestion, source=self.source, writes=tuple(all_of(ingestion.writes)))
        object.__setattr__(self, "ingestion", named)

    @property
    def source(self) -> str:
        """The source's name."""
        return self.ingestion.source or self.ingestion.reads.default_source

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
        make = partial(_made, kind)
        options = {
            name: read_value(field, name, values[name], make)
            for name, field in OPTIONS.items()
            if values.get(name) is not None
        }
        for name, value in options.items():
            if isinstance(value, str) and not value.strip():
                raise ConfigurationError(f"spec: field {name!r} must be non-empty text; got {value!r}")
        spec = cls(
            ingestion=Ingestion(
                reads=make(reads_class(kind), f"reads.{kind}", of_reads),
                writes=[_sink(kind, path, each) for path, each in _sinks(values["writes"])],
                **options,
            ),
            context=_context(values.get("context")),
            **{
                name: make(SECTIONS[name], name, values[name])
                for name in ("tuning", "supervise")
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
        ingestion = self.ingestion
        _check_part(ingestion.reads, f"reads.{reads_kind_of(ingestion.reads)}")
        for number, sink in enumerate(self.sinks):
            _check_part(sink, f"writes[{number}].{writes_kind_of(sink)}")
        for name in OPTIONS:
            _check_part(getattr(ingestion, name), name)
        for name, reason in excluded_fields(RoundSettings).items():
            if getattr(ingestion.rounds, name) != getattr(RoundSettings(), name):
                raise ConfigurationError(f"spec: field 'rounds.{name}' is not allowed in a spec: {reason}")
        _check_part(self.tuning, "tuning")
        _check_part(self.supervise, "supervise")
        self._check_folders()
        self._check_end()
        self._check_idle()
        ingestion.rounds.check_group(self.tuning.group, "tuning.group")
        if ingestion.transform is not None:
            check_function("spec: field 'transform'", ingestion.transform)
        size = len(json.dumps(self.to_mapping()))
        if size > MAX_BYTES:
            raise ConfigurationError(
                f"spec: it has {size} bytes as JSON, and the limit is {MAX_BYTES}; move large values, such as queries "
                "and Spark properties, to a connection or a properties file"
            )

    def _check_schema(self) -> None:
        try:
            schema = self.ingestion.schema
            columns = {} if schema is None else columns_of(schema)
            check_time_formats(self.ingestion.time_formats, columns)
            self.ingestion.payload.check_schema(schema)
            check_computed(self.ingestion.computed)
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
            check_folders(self.ingestion.landing_path, self.ingestion.bad_records.dead_letter_path)
            check_described_sinks(self.sinks, self.ingestion.landing_path)
        except ConfigurationError as error:
            raise ConfigurationError(f"spec: {error}") from None

    def _check_end(self) -> None:
        """Check that the source is bounded if `terminate_when_done` is set."""
        if not self.supervise.terminate_when_done or not self.ingestion.reads.is_endless:
            return
        if not get_kind(self.ingestion.reads.kind).ends(to_json(self.ingestion.reads)):
            raise ConfigurationError(
                "spec: field 'supervise.terminate_when_done' is true, but "
                f"'reads.{reads_kind_of(self.ingestion.reads)}' has no end: give it bounds, or omit "
                "'terminate_when_done'"
            )

    def _check_idle(self) -> None:
        """Check that an endless source can report when records arrive, if it may be idle."""
        reads = self.ingestion.reads
        if self.supervise.idle_after is None or not reads.is_endless or get_kind(reads.kind).knows_lag:
            return
        raise ConfigurationError(
            f"spec: field 'supervise.idle_after' is {format_duration(self.supervise.idle_after)}, but "
            f"'reads.{reads_kind_of(reads)}' does not know when records arrive while no job reads it: omit 'idle_after'"
        )

    @property
    def sinks(self) -> Sequence[Writes]:
        """The sinks."""
        return all_of(self.ingestion.writes)

    @property
    def at_least_once(self) -> list[str]:
        """The names of the sinks that may receive a batch more than once."""
        return [getattr(each, "name", None) or MAIN for each in self.sinks if not is_exactly_once(each)]

    def job_ingestion(self) -> Ingestion:
        """Return what a job of this spec ingests, for an operator, which renders it in place.

        Unless it is requested to hand over, a job ends on its own after `task_duration` plus `completion_timeout`.
        """
        ingestion = self.ingestion.own_copy()
        max_duration = self.supervise.task_duration + self.supervise.completion_timeout
        until_caught_up = not ingestion.reads.is_endless
        rounds = replace(ingestion.rounds, until_caught_up=until_caught_up, max_duration=max_duration)
        return replace(ingestion, rounds=rounds)

    def job_arguments(self) -> dict[str, Any]:
        """Return the arguments of `CoordinatedSparkSubmitOperator` for a job of this spec."""
        tuning = self.tuning
        return {
            "ingestion": self.job_ingestion(),
            "workers": self.supervise.task_count,
            "coordination_conn_id": tuning.coordination_conn_id,
            "start_timeout": tuning.start_timeout,
            "spark_archive": tuning.spark_archive,
            "spark_ui_url": tuning.spark_ui_url,
            "job_log_url": tuning.job_log_url,
            **tuning.spark.arguments(),
        }

    def to_mapping(self) -> dict[str, Any]:
        """Return the JSON object that `read` accepts, without default values. It may hold secrets."""
        mapping = self._mapping(to_json)
        return {name: value for name, value in mapping.items() if value not in (None, {}, False)}

    def effective(self) -> dict[str, Any]:
        """Return the spec as a JSON object with all defaults, for display: secrets are hidden."""
        shown: dict[str, Any] = without_secrets(self._mapping(_shown))
        return shown

    def _mapping(self, write: Callable[[Any], Any]) -> dict[str, Any]:
        ingestion = self.ingestion
        return {
            "version": VERSION,
            "source": self.source,
            "reads": {reads_kind_of(ingestion.reads): write(ingestion.reads)},
            "writes": [{writes_kind_of(each): write(each)} for each in self.sinks],
            **{name: write(getattr(ingestion, name)) for name in OPTIONS},
            "tuning": write(self.tuning),
            "supervise": write(self.supervise),
            "context": dict(self.context),
        }


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
        spec.ingestion,
        replace(spec.tuning, **ours),
        tuple(getattr(spec.supervise, name) for name in JOB_FIELDS),
    )


def read_sink(values: Any, path: str) -> Any:
    """Return a sink from the format of specs, such as `{delta: {path: /data/lake/clicks}}`.

    :param path: its name in errors.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    sink = _sink("", path, values)
    _check_part(sink, f"{path}.{writes_kind_of(sink)}")
    return sink


def _check_part(part: Any, path: str) -> None:
    try:
        if hasattr(part, "check"):
            part.check()
    except FieldError as error:
        raise error.below("spec", path) from None


def _made(source_kind: str, cls: type, path: str, values: Any) -> Any:
    """Return an object of a class.

    :param source_kind: the kind of source that the spec reads.
    :param path: the path of the object in the spec.
    """
    known = fields_of(cls)
    if not isinstance(values, Mapping):
        keys = ", ".join(known)
        raise ConfigurationError(f"spec: field {path!r} must be an object of the keys {keys}; got {values!r}")
    check_keys(path, cls, values, kind=source_kind)
    nested = partial(_made, source_kind)
    return cls(**{name: read_value(known[name], f"{path}.{name}", value, nested) for name, value in values.items()})


def _sink(source_kind: str, path: str, values: Any) -> Any:
    kind, of_writes = _one_kind(path, values)
    return _made(source_kind, writes_class(kind), f"{path}.{kind}", of_writes)


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


def _context(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"spec: field 'context' must be an object, such as {{owner: data team}}; got {value!r}"
        )
    return dict(value)


def _shown(value: Any) -> Any:
    """Return a value with all defaults, with the fields that its class marks as secret hidden."""
    whole = to_json_with_defaults(value)
    if not is_dataclass(value):
        return whole
    cls: Any = type(value)
    return {name: "***" if field.is_secret and whole[name] else whole[name] for name, field in fields_of(cls).items()}
