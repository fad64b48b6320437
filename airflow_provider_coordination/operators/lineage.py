"""OpenLineage facets of a job: the datasets that it read and wrote, the counts, and the job's owner.

Datasets are named by OpenLineage's naming conventions; each kind of source names its own. Airflow's provider
`openlineage` requests the facets if it is installed; this module imports it only then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.sources.source_kind import DatasetName, file_dataset
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


def lineage_of(settings: IngestSettings, result: Mapping[str, Any]) -> OperatorLineage[Any, Any]:
    """Return the OpenLineage metadata of a job that succeeded.

    :param settings: the job's settings.
    :param result: the task's result: the job's summary, with its `owner`.
    """
    from airflow.providers.common.compat.openlineage.facet import (
        Dataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
        SchemaDatasetFacet,
        SchemaDatasetFacetFields,
    )
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_coordination.operators.lineage_facets import CoordinationRunFacet

    columns: Mapping[str, str] = result.get("columns") or {}
    schema = SchemaDatasetFacet(
        fields=[SchemaDatasetFacetFields(name=name, type=kind) for name, kind in columns.items()]
    )
    records: Mapping[str, int] = result.get("records_by_sink") or {}
    outputs = [
        OutputDataset(
            namespace=named.namespace,
            name=named.name,
            facets={"schema": schema} if columns and sink != DEAD_LETTER else {},
            outputFacets={
                "outputStatistics": OutputStatisticsOutputDatasetFacet(
                    rowCount=records.get(sink, 0),
                    fileCount=result.get("batches_delivered", 0) if sink == settings.writes[0].name else None,
                )
            },
        )
        for sink, named in outputs_of(settings)
    ]
    return OperatorLineage(
        inputs=[Dataset(namespace=named.namespace, name=named.name) for named in inputs_of(settings)],
        outputs=outputs,
        run_facets={
            "coordination": CoordinationRunFacet(
                source=settings.source,
                owner=str(result.get("owner") or settings.owner),
                reads=settings.reads.kind,
                partitions=int(result.get("partitions_delivered", 0)),
                records=int(result.get("records_delivered", 0)),
                deadLetters=int(result.get("dead_letters", 0)),
            )
        },
    )


def outputs_of(settings: IngestSettings) -> Iterator[tuple[str, DatasetName]]:
    """Yield the sinks of a job, each as its name and its dataset's name; the sink of bad records is last."""
    [*dead], writes = (sink for sink in settings.all_sinks if sink.name == DEAD_LETTER), settings.writes
    yield from ((sink.name, file_dataset(sink.location)) for sink in (*writes, *dead))


def inputs_of(settings: IngestSettings) -> list[DatasetName]:
    """Return the datasets that a job reads, each once, in order; empty if its kind of source does not name them."""
    return list(dict.fromkeys(settings.reads.source_kind().datasets(settings.reads.settings)))
