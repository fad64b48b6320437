"""The example for Livy runs unchanged, against a stand-in that runs batches.

The stand-in takes Livy's `POST /batches` and starts spark-submit, as Livy does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from airflow.dag_processing.dagbag import DagBag

from tests.airflow.conftest import REPOSITORY, run_dag
from tests.system.test_own_source import connection

PASSWORD = "store-passw0rd-of-ours"


class StubLivy:
    """What was asked for, and the processes of the batches."""

    def __init__(self, folder: Path) -> None:
        self.port = 0
        self.bodies: list[str] = []
        self.batches: list[subprocess.Popen[bytes]] = []
        self.log = folder / "livy.log"

    def submit(self, body: str) -> None:
        self.bodies.append(body)
        batch = json.loads(body)
        command = [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", "local[1]", "--driver-memory", "512m", "--py-files", ",".join(batch["pyFiles"])),
            *(part for name, value in batch["conf"].items() for part in ("--conf", f"{name}={value}")),
            *("--conf", "spark.ui.enabled=false", batch["file"], *batch["args"]),
        ]
        surroundings = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        with self.log.open("wb") as output:
            self.batches.append(
                subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd="/", env=surroundings)
            )


@contextmanager
def serving(livy: StubLivy) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/batches"
            livy.submit(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(201)
            self.end_headers()
            self.wfile.write(b'{"id": 1, "state": "starting"}')

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        livy.port = server.server_port
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            for batch in livy.batches:
                batch.kill()
                batch.wait()


def test_livy_example_delivers_and_leaves_no_settings(
    java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.utils.db import initdb

    initdb()
    given, shared, output = tmp_path / "in", tmp_path / "shared", tmp_path / "out"
    given.mkdir()
    (given / "a.json").write_text("".join(json.dumps({"id": number}) + "\n" for number in range(10)))
    extra = {"store": "sql", "url": f"sqlite:///{tmp_path}/coordination.db"}
    connection(monkeypatch, "coordination_default", "coordination", extra=extra)
    connection(
        monkeypatch, "aws_default", "aws", login="AKIAEXAMPLE", password=PASSWORD, extra={"region_name": "eu-west-1"}
    )
    livy = StubLivy(tmp_path)
    with serving(livy):
        connection(monkeypatch, "livy_default", "http", host="127.0.0.1", port=livy.port, schema="http")
        dag = DagBag(str(REPOSITORY / "dags" / "livy_ingestion.py")).dags["livy_ingestion"]
        done = run_dag(dag, path=str(given), folder=str(shared), output_path=str(output))
        said = livy.log.read_text()
        assert done.state == "success", said
    [summary] = [ti.xcom_pull(task_ids="follow") for ti in done.get_task_instances() if ti.task_id == "follow"]
    assert summary["records_delivered"] == 10
    assert ds.dataset(output, format="parquet").count_rows() == 10
    assert list((shared / "settings").iterdir()) == []
    for text in (said, *livy.bodies):
        assert PASSWORD not in text
