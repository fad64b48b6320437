"""Settings of jobs in a flat form: options by name, durations in seconds.

`output` is the folder of the only sink, a Parquet dataset that takes what `where` says, with the raw batches below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.lease_settings import LeaseSettings
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.settings import KinesisSettings
from airflow_provider_coordination.spark.job_settings import (
    AcknowledgmentSettings,
    BadRecordSettings,
    RejectionSettings,
    RoundSettings,
)
from airflow_provider_coordination.spark.settings import MAIN, PARQUET, IngestSettings, SinkSettings

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
        rest["reads"] = reads_of(KinesisSettings(**of_streams))
    return IngestSettings(**rest, **{name: TOPICS[name](**values) for name, values in of_topics.items()})


def changed(settings: IngestSettings, **said: Any) -> IngestSettings:
    """Return settings with some of them replaced."""
    rest, of_topics, of_streams = _sorted(said)
    if of_streams:
        rest["reads"] = reads_of(replace(streams_of(settings), **of_streams))
    topics = {name: replace(getattr(settings, name), **values) for name, values in of_topics.items()}
    return replace(settings, **rest, **topics)


def reads_of(streams: KinesisSettings) -> ReadsSettings:
    """Return streams as what a job reads."""
    return ReadsSettings(kind="kinesis", settings=write_settings(streams))


def streams_of(settings: IngestSettings) -> KinesisSettings:
    """Return the streams that a job reads."""
    return read_settings(KinesisSettings, "settings", settings.reads.settings)


def _sorted(said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, Any]]:
    rest, of_topics = dict(said), {}
    if (output := rest.pop("output", None)) is not None:
        rest.setdefault("landing_path", f"{str(output).rstrip('/')}/_landing")
        rest.setdefault("writes", (parquet(output, where=rest.pop("where", None)),))
    for topic, cls in TOPICS.items():
        values = {field.name: _value(field.type, rest.pop(field.name)) for field in fields(cls) if field.name in rest}
        if values:
            of_topics[topic] = values
    of_streams = {f.name: _value(f.type, rest.pop(f.name)) for f in fields(KinesisSettings) if f.name in rest}
    return rest, of_topics, of_streams


def _value(type_of: Any, value: Any) -> Any:
    return timedelta(seconds=value) if "timedelta" in str(type_of) and isinstance(value, int | float) else value
