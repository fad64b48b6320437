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
from tests.support.dynamodb_server import REGION, DynamoDbServer, create_streamed_table
from tests.support.followed_table import merged
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


def test_example_delivers_each_change_once(
    dynamodb: DynamoDbServer, dynamodb_table: str, tmp_path: Path, connect: Any
) -> None:
    aws = {"region_name": REGION, "endpoint_url": dynamodb.endpoint_url}
    connect("aws_default", "aws", login="test", password="test", extra=aws)
    client, output = dynamodb.client(), tmp_path / "out"
    create_streamed_table(client, dynamodb_table, "NEW_AND_OLD_IMAGES")
    dag = DagBag(str(REPOSITORY / "dags" / "dynamodb_streams_ingestion.py")).dags["dynamodb_streams_ingestion"]
    for run in range(2):
        for number in range(10):
            client.put_item(TableName=dynamodb_table, Item={"id": {"S": f"k{number}"}, "run": {"N": str(run)}})
        client.delete_item(TableName=dynamodb_table, Key={"id": {"S": "k0"}})
    assert run_dag(dag, table=dynamodb_table, output_path=str(output)).state == "success"
    rows = ds.dataset(output, format="parquet").to_table().to_pylist()
    changes = Counter((json.loads(row["keys"])["id"], row["operation"], row["new_image"]) for row in rows)
    expected = [(f"k{n}", "INSERT" if n == 0 or run == 0 else "MODIFY", f'{{"id":"k{n}","run":{run}}}')
                for run in range(2) for n in range(10)]  # fmt: skip
    assert changes == Counter([*expected, *[("k0", "REMOVE", None)] * 2])


def test_example_follows_a_table(dynamodb: DynamoDbServer, dynamodb_table: str, tmp_path: Path, connect: Any) -> None:
    aws = {"region_name": REGION, "endpoint_url": dynamodb.endpoint_url}
    connect("aws_default", "aws", login="test", password="test", extra=aws)
    client, output = dynamodb.client(), tmp_path / "out"
    create_streamed_table(client, dynamodb_table)
    dag = DagBag(str(REPOSITORY / "dags" / "dynamodb_follow_ingestion.py")).dags["dynamodb_follow_ingestion"]
    for run in range(2):
        for number in range(run, 10):
            item = {"id": {"S": f"k{number}"}, "run": {"N": str(run)}, "exact": {"N": "9" * 38}, "raw": {"B": b"\xff"}}
            client.put_item(TableName=dynamodb_table, Item=item)
        client.delete_item(TableName=dynamodb_table, Key={"id": {"S": f"k{5 + run}"}})
        assert run_dag(dag, table=dynamodb_table, output_path=str(output)).state == "success"
    rows = ds.dataset(output, format="parquet").to_table().to_pylist()
    assert Counter(row["operation"] for row in rows)["READ"] == 9, "the items are read once"
    left = {item["id"]["S"] for item in client.scan(TableName=dynamodb_table)["Items"]}
    table = merged(rows)
    assert table.keys() == left == {f"k{number}" for number in range(10)} - {"k6"}
    assert {(name, item["run"]) for name, item in table.items()} == {(name, int(name != "k0")) for name in left}
    assert {row["new_image"] for row in rows if row["keys"] == '{"id":"k0"}'} == {
        f'{{"id":"k0","run":0,"exact":{"9" * 38},"raw":"/w=="}}'
    }
