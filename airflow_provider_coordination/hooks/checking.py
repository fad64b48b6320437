"""Whether a spec can be carried out: asked of its connections and of the source itself, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.writes.writes import landing_path_of, sinks_of
from airflow_provider_coordination.sources.kinds import Settings, SourceKind
from airflow_provider_coordination.spark.settings import check_sinks
from airflow_provider_coordination.supervisor.fitting import check_fits
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_kinds import reads_kind_of


def _service(kind: SourceKind, settings: Settings) -> Any:
    return kind.service(settings)


def check_against_source(
    spec: IngestionSpec,
    default_region: str | None = None,
    service: Callable[[SourceKind, Settings], Any] = _service,
) -> int:
    """Check that sinks have places of their own, that the source is there, and that its data fits the schema.

    Nothing is leased or written: of a stream, a few records are read.

    :param default_region: the AWS region where nothing else names one.
    :param service: returns what asks the source.
    :returns: how many records were looked at; 0 where there are none, or the kind of source shows none.
    :raises ConfigurationError: naming the field, the value and the remedy.
    :raises SourceError: if the source does not answer.
    """
    sinks = sinks_of(spec.writes_objects())
    landing_path = spec.tuning.landing_path or landing_path_of(spec.writes_objects())
    check_sinks(sinks, spec.on_bad_records, spec.acknowledgments, landing_path)
    reads = spec.reads_object().connect(default_region).reads
    kind: SourceKind = reads.found()
    reads.check()
    try:
        payloads = kind.sample(service(kind, reads.settings), reads.settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"spec: field 'reads.{reads_kind_of(spec.reads)}': {error}") from error
    if spec.schema is not None:
        check_fits(spec.schema, payloads)
    return len(payloads)
