"""An Airflow with users of all roles and sources in all states."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.kinds.dynamodb import DynamoDbSettings
from tests.support.cable import Cable
from tests.support.scenery import Scenery
from tests.support.standalone import ROLES, Standalone

DEFAULT, EMPTY, AWAY = "coordination_default", "coordination_empty", "coordination_away"
DAG = "live_ingestion"


@dataclass
class Site:
    """An Airflow with sources in all states.

    :param cable: the network between it and the store of the connection `AWAY`.
    :param table: the table of that store.
    :param tokens: the token of a user of each role.
    :param live_run: the run that ingests a stream during the tests; empty before it starts.
    :param url: the URL of another API server of the same Airflow; empty for its own.
    """

    airflow: Standalone
    scenery: Scenery
    cable: Cable
    table: str
    tokens: dict[str, str]
    folder: Path
    live_run: str = ""
    url: str = ""

    def overview(self, connection: str = "") -> str:
        """Return the path of the overview, or of the overview of one connection."""
        return f"/plugin/coordination?{urlencode({'connection': connection})}" if connection else "/plugin/coordination"

    def at(self, source: str, page: str = "partitions", *, connection: str = DEFAULT, **query: Any) -> str:
        """Return the path of a page of a source, below Airflow's URL."""
        path = f"/plugin/coordination/{connection}/{quote(source, safe='')}/{page}"
        return f"{path}?{urlencode(query)}" if query else path

    def ask(self, method: str, path: str, role: str = "op", **options: Any) -> httpx.Response:
        """Send a request to the provider's API, as a script does."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"}
        url = f"{self.url or self.airflow.url}/coordination{path}"
        return httpx.request(method, url, headers=headers, trust_env=False, timeout=20, **options)


@contextmanager
def open_scenery(url: str, *, partitions: int, shards: int) -> Iterator[Scenery]:
    """Fill a store with sources in all states.

    :param url: the store's.
    :param partitions: how many partitions the source `logs` has.
    :param shards: how many shards the source `telemetry` has.
    """
    with closing(Scenery(url)) as scenery:
        scenery.trouble("orders")
        scenery.night("night")
        scenery.many("logs", partitions)
        scenery.tree("telemetry", shards)
        scenery.tree("clickstream", 44)
        scenery.followed("customers")
        scenery.odd()
        yield scenery


@contextmanager
def open_site(airflow: Standalone, scenery: Scenery, folder: Path, *, away: AwsSettings | None) -> Iterator[Site]:
    """Connect a running Airflow to its stores, and log in users of all roles.

    :param airflow: knows the DAG `DAG`.
    :param scenery: of its store.
    :param folder: for an empty store, and for what jobs write.
    :param away: the DynamoDB that the connection `AWAY` leads to, through a cable; it holds the source `remote`. None
        for no such connection.
    """
    address = urlsplit("" if away is None else away.endpoint_url or "")
    table = f"browser-{uuid.uuid4().hex[:8]}"
    with Cable(lambda: socket.create_connection((address.hostname, address.port or 0))) as cable:
        airflow.connect(DEFAULT, "coordination", extra={"store": "sql", "url": airflow.store_url})
        airflow.connect(EMPTY, "coordination", extra={"store": "sql", "url": f"sqlite:///{folder}/empty.db"})
        if away is not None:
            with closing(open_store(StoreSettings.of("dynamodb", DynamoDbSettings(table=table, aws=away)))) as store:
                remote = SourceCoordinator(store, "remote", "test")
                remote.initialize()
                remote.create_partitions({key: {} for key in "abc"})
            behind = {
                "endpoint_url": f"http://127.0.0.1:{cable.port}",
                "region": "us-east-1",
                "aws_conn_id": "aws_default",
            }
            airflow.connect(AWAY, "coordination", extra={"store": "dynamodb", "table": table, **behind})
        tokens = {role: airflow.login(role) for role in ROLES}
        yield Site(airflow, scenery, cable, table, tokens, folder)
