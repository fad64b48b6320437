"""Settings of jobs in a flat form: options by name, durations in seconds.

`output` is the folder of the only sink, a Parquet dataset that takes what `where` says, with the raw batches below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.job_settings import (
    AcknowledgmentSettings,
    BadRecordSettings,
    LeaseSettings,
    RejectionSettings,
    RoundSettings,
)
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.sink_settings import MAIN, PARQUET, SinkSettings

TOPICS = {
    "bad_records": BadRecordSettings,
    "rejection": RejectionSettings,
    "acknowledgments": AcknowledgmentSettings,
    "leases": LeaseSettings,
    "rounds": RoundSettings,
}


def parquet(path: object, name: str = MAIN, where: str | None = None) -> SinkSettings:
    """Return a sink that is a Parquet dataset."""
    return SinkSettings(name=name, kind=PARQUET, location=str(path), where=where)


def ingest(**said: Any) -> IngestSettings:
    """Return the settings of a job."""
    rest, of_topics, of_streams = _sorted(said)
    if of_streams:
        rest["reads"] = reads_of(KinesisStreams(**of_streams))
    return IngestSettings(**rest, **{name: TOPICS[name](**values) for name, values in of_topics.items()})


def changed(settings: IngestSettings, **said: Any) -> IngestSettings:
    """Return settings with some of them replaced."""
    rest, of_topics, of_streams = _sorted(said)
    if of_streams:
        rest["reads"] = reads_of(replace(streams_of(settings), **of_streams))
    topics = {name: replace(getattr(settings, name), **values) for name, values in of_topics.items()}
    return replace(settings, **rest, **topics)


def reads_of(streams: KinesisStreams) -> ReadsSettings:
    """Return streams as what a job reads."""
    return ReadsSettings(kind="kinesis", settings=streams.to_mapping())


def streams_of(settings: IngestSettings) -> KinesisStreams:
    """Return the streams that a job reads."""
    return KinesisStreams.from_mapping(settings.reads.settings)


def _sorted(said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, Any]]:
    rest, of_topics = dict(said), {}
    if (output := rest.pop("output", None)) is not None:
        rest.setdefault("landing_path", f"{str(output).rstrip('/')}/_landing")
        rest.setdefault("writes", (parquet(output, where=rest.pop("where", None)),))
    for topic, cls in TOPICS.items():
        values = {field.name: _value(field.type, rest.pop(field.name)) for field in fields(cls) if field.name in rest}
        if values:
            of_topics[topic] = values
    own = {field.name for field in fields(KinesisStreams)} - {field.name for field in fields(IngestSettings)}
    of_streams = {
        f.name: _value(f.type, rest.pop(f.name)) for f in fields(KinesisStreams) if f.name in own and f.name in rest
    }
    return rest, of_topics, of_streams


def _value(type_of: Any, value: Any) -> Any:
    return timedelta(seconds=value) if "timedelta" in str(type_of) and isinstance(value, int | float) else value
