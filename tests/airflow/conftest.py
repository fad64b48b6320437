"""Connections from the environment, a store on SQLite, and two faked edges: Kinesis and spark-submit."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time import task_runner

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.approvals import Comms
from tests.support.kubernetes_api import KubernetesApi, kubernetes_api
from tests.support.servers import unavailable
from tests.support.split_stream import SplitStream
from tests.support.waiting import until

SECRET = "wJalrXUtnFEMI-not-for-anyones-eyes"
REPOSITORY = Path(__file__).resolve().parents[2]
CREATION_EPOCH = 1_767_268_800


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Define a connection, as an administrator does in the environment."""

    def define(conn_id: str, conn_type: str, **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))

    return define


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/coordination.db"


@pytest.fixture
def coordination(connect: Any, store_url: str) -> SourceCoordinator:
    """Define `coordination_default`; return a coordinator of source `clicks` that looks at the same store."""
    connect("coordination_default", "coordination", extra={"store": "sql", "url": store_url})
    coordinator = SourceCoordinator(open_store(StoreSettings.from_url(store_url)), "clicks", "test")
    coordinator.initialize()
    return coordinator


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where jobs have their folders."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def stream(coordination: SourceCoordinator, connect: Any, kinesis_account: Any) -> SplitStream:
    """Define `aws_default`; return a stream of that account, which source `clicks` reads."""
    connect(
        "aws_default",
        "aws",
        login=kinesis_account.access_key_id,
        password="hush",
        extra={"region_name": "us-east-1", "endpoint_url": kinesis_account.endpoint_url},
    )
    return SplitStream(coordination, kinesis_account)


@pytest.fixture
def context() -> dict[str, Any]:
    return {
        "ti": SimpleNamespace(dag_id="dag", run_id="run", task_id="task", map_index=3, try_number=2),
        "task_state_store": None,
    }


@pytest.fixture
def comms(monkeypatch: pytest.MonkeyPatch) -> Comms:
    """Where the questions go that a task asks a person."""
    comms = Comms()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    return comms


@pytest.fixture
def in_try(context: Any) -> Any:
    """The context of a try that can ask a person."""
    context["ti"].id = "0199d0d8-7a5e-7000-8000-000000000001"
    return context


@dataclass
class FakeKinesis:
    """A stand-in for Kinesis that records its requests."""

    url: str = ""
    streams: dict[str, list[str]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.requests.append((operation, request))
        if operation == "GetShardIterator":
            return 200, {"ShardIterator": request["ShardId"]}
        if operation == "GetRecords":  # a quiet stream
            return 200, {"Records": [], "NextShardIterator": request["ShardIterator"], "MillisBehindLatest": 0}
        shards = self.streams.get(request["StreamName"])
        if shards is None:
            return 400, {"__type": "ResourceNotFoundException", "message": "no such stream"}
        if operation == "DescribeStreamSummary":
            return 200, {
                "StreamDescriptionSummary": {
                    "StreamName": request["StreamName"],
                    "StreamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks",
                    "StreamStatus": "ACTIVE",
                    "RetentionPeriodHours": 24,
                    "StreamCreationTimestamp": CREATION_EPOCH,
                    "EnhancedMonitoring": [],
                    "OpenShardCount": len(shards),
                }
            }
        return 200, {
            "Shards": [
                {
                    "ShardId": shard,
                    "HashKeyRange": {
                        "StartingHashKey": str(number * 2**128 // len(shards)),
                        "EndingHashKey": str((number + 1) * 2**128 // len(shards) - 1),
                    },
                    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
                }
                for number, shard in enumerate(shards)
            ]
        }


@pytest.fixture
def kinesis() -> Iterator[FakeKinesis]:
    fake = FakeKinesis()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = fake.answer(self.headers["X-Amz-Target"].split(".")[1], json.loads(body))
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fake.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield fake
        server.shutdown()


@dataclass
class StubSpark:
    """A `spark-submit` that follows the test's instructions, and records its calls."""

    folder: Path
    path: str

    def will(self, **plan: Any) -> None:
        """Set its instructions: see `stub_spark_submit.py`."""
        (self.folder / "plan.json").write_text(json.dumps(plan))

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob("call-*.json"))]

    def wait_for_a_call(self) -> None:
        until(lambda: self.calls)


@pytest.fixture
def spark(tmp_path: Path, connect: Any) -> StubSpark:
    connect("spark_default", "spark", host="local[1]", extra={"deploy-mode": "client"})
    folder = tmp_path / "stub"
    folder.mkdir()
    stub = folder / "spark-submit"
    script = Path(__file__).with_name("stub_spark_submit.py")
    command = shlex.join([sys.executable, str(script), str(folder)])
    stub.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(REPOSITORY))} exec {command} "$@"\n')
    stub.chmod(0o755)
    spark = StubSpark(folder, f"{folder}:/usr/bin:/bin")
    spark.will(exit=0)
    return spark


@pytest.fixture
def kubernetes(connect: Any) -> Iterator[KubernetesApi]:
    """Define `kubernetes_default`; return the API server that it leads to."""
    try:
        import airflow.providers.cncf.kubernetes.hooks.kubernetes  # noqa: F401
    except ImportError as error:
        unavailable("Airflow's Kubernetes provider", error)
    with kubernetes_api() as api:
        connect("kubernetes_default", "kubernetes", extra=api.connection())
        yield api


@pytest.fixture(scope="module")
def database() -> None:
    """Airflow's own database, made ready."""
    from airflow.utils.db import initdb

    initdb()


def run_dag(dag: Any, **params: Any) -> Any:
    """Run a DAG in this process, as `airflow dags test` does; needs `database`."""
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    from tests.support.airflow_dags import DagBag, sync_bag_to_db

    with create_session() as session:
        session.merge(DagBundleModel(name="tests"))
    bag = DagBag(os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, bundle_name="tests", bundle_version=None)
    return dag.test(run_conf=params)
