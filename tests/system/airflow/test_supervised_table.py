"""A supervisor keeps a lake table equal to a DynamoDB table, with real jobs under a whole Airflow.

The short form leaves out the lost job and the reset, which `tests/spark/test_supervised_table.py` has in one process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.hooks.connections import AirflowConnections
from tests.support.depth import at_depth
from tests.support.dynamodb_streams import strings
from tests.support.dynamodb_streams_server import TableServer
from tests.support.followed_table import plain
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone
from tests.support.supervised_stream import Holds, SupervisedStream, is_state

SOURCE, DAG_ID = "stock", "supervise_stock"


class SupervisedTable(SupervisedStream):
    """A table, and the lake table that its supervisor keeps equal."""

    def __init__(self, server: TableServer, *parts: Any) -> None:
        super().__init__(*parts)
        self.server = server
        self.table = self.lake / SOURCE
        self.puts = 0

    def put(self, *names: str) -> None:
        """Create or replace items."""
        with self.server.lock:
            for name in names:
                self.puts += 1
                self.server.service.put(SOURCE, strings(id=name, left=str(self.puts)))

    def remove(self, *names: str) -> None:
        """Delete items."""
        with self.server.lock:
            for name in names:
                self.server.service.remove(SOURCE, {"S": name})

    def lose_a_change(self, name: str) -> None:
        """Replace an item whose change nobody can read any more."""
        self.put(name)
        with self.server.lock:
            for shard in self.server.service.stream_of(SOURCE).shards.values():
                shard.changes = [each for each in shard.changes if each.record["dynamodb"]["Keys"] != strings(id=name)]

    def becomes_equal(self, what: str) -> None:
        """Wait until the lake table has the items of the table."""
        self.happens(what, lambda: self._rows() == plain(self.server.service, SOURCE))

    def loses_a_job(self) -> None:
        """A job is killed; its successor reads the changes on, and no item again."""
        scans = self.server.service.calls["scan"]
        self.kill_driver(self.runs(1))
        self.put("k4", "k32")
        self.remove("k30")
        self.becomes_equal("another job reads on")
        assert self.server.service.calls["scan"] == scans

    def is_reset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A change is lost; all items are read again."""
        self.lose_a_change("k5")
        aws = {"region_name": self.server.settings.region, "endpoint_url": self.server.settings.endpoint_url}
        here = {"conn_type": "aws", "login": "test", "password": "test", "extra": aws}
        monkeypatch.setenv("AIRFLOW_CONN_AWS_OF_STOCK", json.dumps(here))  # of the person who resets
        assert self.verbs.reset(connections=AirflowConnections()).failed == []
        self.becomes_equal("its items are read again")

    def _rows(self) -> dict[str, Any]:
        if not DeltaTable.is_deltatable(str(self.table)):
            return {}
        images = DeltaTable(str(self.table)).to_pyarrow_table(columns=["new_image"])["new_image"].to_pylist()
        rows = [json.loads(image) for image in images]
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row for row in rows}


@pytest.fixture
def stock(
    airflow: Standalone, pipeline: Pipeline, look: Callable[[str], SourceCoordinator], folder: Path
) -> Iterator[SupervisedTable]:
    with TableServer().serving() as server:
        server.service.create_table(SOURCE, shards=2)
        aws = {"region_name": server.settings.region, "endpoint_url": server.settings.endpoint_url}
        airflow.connect("aws_of_stock", "aws", login="test", password="test", extra=aws)
        file = folder / "dags" / "specs" / "stock.yaml"
        yield SupervisedTable(server, airflow, pipeline, look(SOURCE), DAG_ID, file)


def _open(count: int) -> Holds:
    return lambda status: bool(status) and status["partitions"]["open"] == count


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_supervised_table_stays_equal_through_its_life(stock: SupervisedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    stock.put(*(f"k{number}" for number in range(20)))
    stock.write(
        {
            "version": 1,
            "source": SOURCE,
            "reads": {"dynamodb": {"table": SOURCE, "follow": True, "segments": 2, "aws_conn_id": "aws_of_stock"}},
            "writes": [
                {"delta": {"path": str(stock.table), "merge_on": "keys", "order_by": "change_order", "op": "operation"}}
            ],
            "rounds": {"round_duration": 1, "idle_duration": 0.5},
            "tuning": {"spark": {"driver_memory": "512m", "conf": {"spark.ui.enabled": "false"}}},
            "supervise": {"start_delay": 0, "period": 5},
        }
    )
    stock.airflow.unpause(DAG_ID)
    stock.becomes_equal("its items are read")
    stock.comes("its stream is followed", _open(2))

    with stock.server.lock:
        stock.server.service.roll(SOURCE, split=True)
    stock.put("k1", "k30", "k31")
    stock.remove("k2", "k3")
    stock.becomes_equal("the changes of the children are read")
    stock.comes("the parents are read to their end", _open(4))
    if at_depth(short=False, deep=True):
        stock.loses_a_job()
        stock.is_reset(monkeypatch)

    stock.verbs.terminate()
    stock.comes("it is terminated", is_state("TERMINATED"))
    stock.airflow.pause(DAG_ID)
    assert stock.status()["jobs"] == []
