"""Whole Spark jobs ingest indices of OpenSearch: the unchanged example DAG, and a killed job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.opensearch.kind import OpenSearchCluster, OpenSearchIndices
from airflow_provider_coordination.sources.opensearch.slices import SliceSupplier
from tests.airflow.conftest import REPOSITORY, run_dag
from tests.support.airflow_dags import DagBag
from tests.support.item_job import ItemPipeline
from tests.support.opensearch_server import OpenSearchServer

DOCUMENTS = 500


@pytest.fixture
def logs(opensearch: OpenSearchServer, opensearch_index: str) -> str:
    """Two indices with 500 documents each, together 10 MB; return what their names begin with."""
    for name in ("a", "b"):
        opensearch.create_index(f"{opensearch_index}-{name}", 2)
        documents = {f"{name}{n}": {"id": f"{name}{n}", "text": "x" * 10_000} for n in range(DOCUMENTS)}
        opensearch.index(f"{opensearch_index}-{name}", documents)
    return opensearch_index


def all_of(*names: str) -> Counter[str]:
    return Counter(f"{name}{n}" for name in names for n in range(DOCUMENTS))


@pytest.fixture
def pipeline(opensearch: OpenSearchServer, logs: str, java: str, tmp_path: Path) -> Iterator[ItemPipeline]:
    settings = OpenSearchIndices((f"{logs}-*",), page_documents=50, cluster=OpenSearchCluster(hosts=(opensearch.url,)))
    reader = ReadsSettings(kind="opensearch", settings=write_settings(settings))
    made = ItemPipeline(tmp_path, reader, lambda coordinator: SliceSupplier(settings, coordinator))
    yield made
    for job in made.jobs:
        job.kill()


@pytest.mark.only_deep
def test_documents_are_delivered_once_despite_a_dead_driver(
    opensearch: OpenSearchServer, pipeline: ItemPipeline
) -> None:
    created = pipeline.find()
    assert len(created) == 4
    crashed = pipeline.crash("delivered:1", max_batch_bytes=2**20)
    assert crashed.process.returncode != 0 and "coordination-summary" not in crashed.output
    assert 0 < len(pipeline.delivered("id")) < 2 * DOCUMENTS
    left_open = opensearch.open_views()  # it may have been reading as it died: these run out
    pipeline.coordinator().give_up_owner(crashed.settings.owner)  # what the operator does at once
    good = pipeline.run(max_batch_bytes=2**20)
    assert good.process.returncode == 0, good.output
    assert pipeline.delivered("id") == all_of("a", "b")
    assert good.summary["batches_delivered"] > len(created), "slices are cut into several batches"
    assert opensearch.open_views() <= left_open


def test_example_delivers_each_document_of_included_indices_once(
    opensearch: OpenSearchServer, logs: str, tmp_path: Path, connect: Any
) -> None:
    connect("opensearch_default", "opensearch", host=opensearch.url)
    output = tmp_path / "out"
    dag = DagBag(str(REPOSITORY / "dags" / "opensearch_ingestion.py")).dags["opensearch_ingestion"]
    params = {"indices": f"{logs}-*", "exclude": f"{logs}-b", "output_path": str(output)}
    assert run_dag(dag, **params).state == "success"
    rows = ds.dataset(output, format="parquet").to_table().to_pylist()
    assert Counter(row["id"] for row in rows) == all_of("a")
    assert all(json.loads(row["data"])["id"] == row["id"] for row in rows)
