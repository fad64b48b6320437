"""Delta tables as a kind of sink: one commit brings all batches of a delivery; the table's log decides which are in."""

from __future__ import annotations

from airflow_provider_coordination.spark.sink_settings import SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import TABLE_COMMIT_INTERVAL, Sink, SinkKind
from airflow_provider_coordination.spark.writes import DeltaTable


def _make(settings: SinkSettings) -> Sink:
    from airflow_provider_coordination.spark.sinks.delta.sink import DeltaSink

    return DeltaSink(
        name=settings.name,
        path=settings.location,
        where=settings.where,
        access=access_of([settings]),
        settings=DeltaTable.from_mapping({"path": settings.location, **settings.settings}),
    )


KIND = SinkKind(
    make=_make,
    modules=("deltalake",),
    requirement="airflow-provider-coordination[delta]",
    writes="airflow_provider_coordination.spark.writes:DeltaTable",
    commit_interval=TABLE_COMMIT_INTERVAL,
)
