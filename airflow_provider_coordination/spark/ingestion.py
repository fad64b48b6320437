"""What jobs ingest: the one description that operators, task groups, specs and jobs share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.intervals import check_length
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import source_identifier
from airflow_provider_coordination.settings import (
    Described,
    check_parsed,
    is_plain,
    is_template,
    text_value,
)
from airflow_provider_coordination.sources.kinds import kind_named
from airflow_provider_coordination.sources.reads import Reads, own_copy
from airflow_provider_coordination.spark.job_settings import (
    AcknowledgmentSettings,
    BadRecordSettings,
    LeaseSettings,
    RejectionSettings,
    RoundSettings,
    check_computed,
    check_transform,
)
from airflow_provider_coordination.spark.payload_schema import check_time_formats, columns_of
from airflow_provider_coordination.spark.payload_settings import Payload
from airflow_provider_coordination.spark.sink_settings import check_absolute, check_described_sinks, check_folders
from airflow_provider_coordination.spark.writes import Writes, all_of, landing_path_of


@dataclass(kw_only=True)
class IngestionOptions(Described):
    """How a source is ingested: what a user writes, and what each job receives.

    :param source: the source's name; by default `reads` provides it. (templated)
    :param schema: the columns of the payload as DDL, such as `id STRING NOT NULL, amount DOUBLE`, into which it
        is parsed before the transform. (templated)
    :param payload: what the payload of a record is; by default one JSON object. (templated)
    :param time_formats: the formats of TIMESTAMP columns: `"iso"`, `"auto"`, `"seconds"`, `"millis"`,
        `"micros"`, or a pattern, such as `"dd/MM/yyyy"`; by default what Spark accepts. (templated)
    :param computed: columns to compute from the others before the transform, as SQL expressions by name, such as
        `{"page": "lower(url)"}`. (templated)
    :param transform: `module:function`, from DataFrame to DataFrame; None delivers the raw records. (templated)
    :param per_batch: whether the transform receives one batch at a time, even if it keeps `_batch_id` and could receive
        all batches of a round. (templated)
    :param bad_records: how to handle records that cannot be parsed or transformed; without `dead_letter_path` they fail
        their batch. (templated)
    :param rejection: which records to leave out because they are too late or too early by a column of `schema`; none by
        default. (templated)
    :param acknowledgments: who acknowledges a batch, and how long that may take; by default the job, once its sinks
        have the batch. (templated)
    :param landing_path: where raw batches wait for delivery; by default `_landing` below the path of the first dataset.
        (templated)
    :param completes: the length of the intervals in which delivered records are counted, such as `"PT1H"`: it divides a
        day. None counts none. (templated)
    :param leases: how many leases a job may hold, and how it acquires them. (templated)
    :param rounds: the length of a job's rounds, and when it ends; by default once it has delivered everything that was
        there at the start. (templated)
    """

    source: str | None = None
    schema: str | None = None
    payload: Payload = field(default_factory=Payload)
    time_formats: Mapping[str, str] | None = None
    computed: Mapping[str, str] | None = None
    transform: str | None = None
    per_batch: bool = False
    bad_records: BadRecordSettings = field(default_factory=BadRecordSettings)
    rejection: RejectionSettings = field(default_factory=RejectionSettings)
    acknowledgments: AcknowledgmentSettings = field(default_factory=AcknowledgmentSettings)
    landing_path: str | None = None
    completes: timedelta | None = None
    leases: LeaseSettings = field(default_factory=LeaseSettings)
    rounds: RoundSettings = field(default_factory=RoundSettings)

    @property
    def is_transformed(self) -> bool:
        """Whether rows are made of the records, by computed columns or by a transform."""
        return self.transform is not None or self.computed is not None

    @override
    def converted(self, name: str) -> Any:
        value, settings = getattr(self, name), SETTINGS.get(name)
        if isinstance(value, Described):
            return value.resolved()
        if settings is not None and text_value(value) is not None:
            raise self.invalid(name, f"must be of the class {settings.__name__}")
        converted = super().converted(name)
        if name == "completes" and isinstance(converted, timedelta) and (problem := check_length(converted)):
            raise self.invalid(name, problem)
        return converted


OPTIONS = tuple(each.name for each in dataclasses.fields(IngestionOptions))
SETTINGS = {name: type(value) for name, value in vars(IngestionOptions()).items() if isinstance(value, Described)}
"""The options that are settings with fields of their own, and their classes."""


@dataclass(kw_only=True)
class Ingestion(IngestionOptions):
    """What to ingest: from where, to where, and how.

    An operator, a task group and a spec each hold one.

    :param reads: the source, such as `KinesisStreams`. (templated)
    :param writes: the sinks: one, such as `ParquetDataset`, or a list of them. (templated)

    All other parameters are those of `IngestionOptions`.
    """

    reads: Reads
    writes: Writes | Sequence[Writes]

    def own_copy(self) -> Self:
        """Return a copy for one try of one task, which renders its own templates."""
        return dataclasses.replace(self, **{name: own_copy(getattr(self, name)) for name in self.template_fields})

    def check(self, is_known: Callable[[Any], bool] = lambda value: True) -> None:
        """Check every value that can be checked without a connection.

        Airflow calls a function that it finds in a templated field, so a function in place of its name must not get
        there.

        :param is_known: see `Described.check`.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        for name, one in (("reads", "a source"), ("writes", "a sink")):
            if getattr(self, name) is None:
                raise ConfigurationError(f"Ingestion: field {name!r} is None; give {one} of the manual")
        check_transform("Ingestion", self.transform)
        if is_known(self.computed):
            check_computed(self.computed)
        schema = _given(self.schema)
        if schema is not None:
            check_time_formats(self.time_formats, columns_of(schema))
        if (source := _given(self.source)) is not None:
            source_identifier(source)
        for name in OPTIONS:
            value = getattr(self, name)
            if isinstance(value, Described):
                check_parsed(value)
            elif is_known(value):
                self.converted(name)
        payload: object = self.payload
        has_schema = schema is not None or text_value(self.schema) is None
        if has_schema and isinstance(payload, Payload) and payload.is_known(is_known):
            payload.resolved().check_schema(schema)
        check_parsed(self.reads)
        self._check_completes()
        self._check_writes()

    def _check_completes(self) -> None:
        if self.completes is None or not isinstance(self.reads, Reads):
            return
        if kind_named(self.reads.kind).settles_after is None:
            raise ConfigurationError(
                f"Ingestion: field 'completes' is {self.completes!r}, but the records of a source of kind "
                f"{self.reads.kind!r} have no time of arrival; remove it"
            )

    def _check_writes(self) -> None:
        """Check the sinks, and where files are."""
        check_folders(_given(self.landing_path), _given(getattr(self.bad_records, "dead_letter_path", None)))
        if not isinstance(self.writes, Writes | str | list | tuple):
            return  # the result of another task
        sinks = all_of(self.writes)
        for sink in sinks:
            check_parsed(sink)
            if (folder := _given(sink.landing_path)) is not None:
                check_absolute(
                    f"the folder of {type(sink).__name__} in field 'writes'", folder.removesuffix("/_landing")
                )
        if is_plain(self.landing_path):
            check_described_sinks(sinks, _given(self.landing_path))

    def options(self) -> dict[str, Any]:
        """Return the values of `IngestionOptions` for a job, converted and checked.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        options = {name: self.converted(name) for name in OPTIONS}
        options["source"] = options["source"] or self.reads.default_source
        options["landing_path"] = options["landing_path"] or landing_path_of(self.writes)
        return options


def _given(value: object) -> str | None:
    """Return a text that is known already; None if it is not given or a template."""
    return text_value(value) if isinstance(value, str) and not is_template(value) else None
