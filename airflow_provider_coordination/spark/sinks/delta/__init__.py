"""Delta tables as a kind of sink: one commit brings all batches of a delivery; the table's log decides which are in."""

from __future__ import annotations

from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.spark.settings import SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import Sink, SinkKind
from airflow_provider_coordination.spark.sinks.delta.settings import DeltaSettings


def _make(settings: SinkSettings) -> Sink:
    from airflow_provider_coordination.spark.sinks.delta.sink import DeltaSink

    return DeltaSink(
        name=settings.name,
        path=settings.location,
        where=settings.where,
        access=access_of([settings]),
        settings=read_settings(DeltaSettings, f"settings of {settings}", settings.settings),
    )


KIND = SinkKind(
    make=_make,
    modules=("deltalake",),
    requirement="airflow-provider-coordination[delta]",
    writes="airflow_provider_coordination.operators.writes.delta:DeltaTable",
)
