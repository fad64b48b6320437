"""Iceberg tables as a kind of sink: a delivery adds one snapshot, which names its batches.

The library is imported when a table is used. A DAG describes a table, and a job names the requirement, without it.
"""

from __future__ import annotations

from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import TABLE_COMMIT_INTERVAL, Sink, SinkKind


def _make(settings: SinkSettings) -> Sink:
    from airflow_provider_coordination.spark.sinks.iceberg.sink import IcebergSink

    return IcebergSink.of(settings)


KIND = SinkKind(
    make=_make,
    modules=("pyiceberg",),
    requirement="airflow-provider-coordination[iceberg]",
    writes="airflow_provider_coordination.spark.writes.iceberg:IcebergTable",
    commit_interval=TABLE_COMMIT_INTERVAL,
)
