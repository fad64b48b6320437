"""Whole Spark jobs ingest a table of DynamoDB: the unchanged example DAG, and a killed job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb.segments import SegmentSupplier
from airflow_provider_coordination.sources.kinds import ReadsSettings
from tests.airflow.conftest import REPOSITORY, run_dag
from tests.support.airflow_dags import DagBag
from tests.support.dynamodb_server import REGION, DynamoDbServer
from tests.support.item_job import ItemPipeline

ITEMS = 400


@pytest.fixture
def orders(dynamodb: DynamoDbServer, dynamodb_table: str) -> str:
    """A table of 400 items, together 8 MB."""
    client = dynamodb.client()
    client.create_table(
        TableName=dynamodb_table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for start in range(0, ITEMS, 25):
        items = [{"id": {"S": f"k{n}"}, "text": {"S": "x" * 20_000}} for n in range(start, start + 25)]
        client.batch_write_item(RequestItems={dynamodb_table: [{"PutRequest": {"Item": item}} for item in items]})
    return dynamodb_table


@pytest.fixture
def pipeline(dynamodb: DynamoDbServer, orders: str, java: str, tmp_path: Path) -> Iterator[ItemPipeline]:
    settings = DynamoDBTable(table=orders, segments=3, aws=dynamodb.settings)
    reader = ReadsSettings(kind="dynamodb", settings=write_settings(settings))
    made = ItemPipeline(tmp_path, reader, lambda coordinator: SegmentSupplier(settings, coordinator))
    yield made
    for job in made.jobs:
        job.kill()


@pytest.mark.only_deep
def test_items_are_delivered_once_despite_a_dead_driver(pipeline: ItemPipeline) -> None:
    created = pipeline.find()
    crashed = pipeline.crash("delivered:1", max_batch_bytes=2**20)
    assert crashed.process.returncode != 0 and "coordination-summary" not in crashed.output
    assert 0 < len(pipeline.delivered("key")) < ITEMS
    pipeline.coordinator().give_up_owner(crashed.settings.owner)  # what the operator does at once
    good = pipeline.run(max_batch_bytes=2**20)
    assert good.process.returncode == 0, good.output
    assert pipeline.delivered("key") == Counter(f'{{"id":"k{n}"}}' for n in range(ITEMS))
    assert sorted(good.summary["completed"]) == sorted(created)
    assert good.summary["batches_delivered"] > len(created), "segments are cut into several batches"


def test_example_delivers_each_item_once(dynamodb: DynamoDbServer, orders: str, tmp_path: Path, connect: Any) -> None:
    aws = {"region_name": REGION, "endpoint_url": dynamodb.endpoint_url}
    connect("aws_default", "aws", login="test", password="test", extra=aws)
    output = tmp_path / "out"
    dag = DagBag(str(REPOSITORY / "dags" / "dynamodb_ingestion.py")).dags["dynamodb_ingestion"]
    done = run_dag(dag, table=orders, output_path=str(output))
    assert done.state == "success"
    rows = ds.dataset(output, format="parquet").to_table().to_pylist()
    assert Counter(json.loads(row["data"])["id"] for row in rows) == Counter(f"k{n}" for n in range(ITEMS))
    assert {row["_origin"] for row in rows} == {f"{orders}/0 of 1"}
