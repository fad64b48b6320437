"""The examples for other submitters run unchanged, against stand-ins that start spark-submit as the services do.

One takes Livy's `POST /batches`, one the requests of AWS Glue, one those of Google's client of Dataproc.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.airflow.conftest import REPOSITORY, run_dag
from tests.support.airflow_dags import DagBag
from tests.support.s3_server import ALLOWED, REGION, S3Server
from tests.system.test_own_source import connection

pytestmark = pytest.mark.timeout(180)  # the task waits an hour for a driver that did not begin

PASSWORD = "store-passw0rd-of-ours"
Answer = tuple[int, dict[str, Any]]


class StubService:
    """What was asked for, and the processes of the jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.bodies: list[str] = []
        self.jobs: list[subprocess.Popen[bytes]] = []
        self.log = folder / "driver.log"

    def answer(self, path: str, target: str, body: dict[str, Any]) -> Answer:
        """Return the HTTP status and the body of an answer."""
        raise NotImplementedError

    def start(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        files: Sequence[str],
        conf: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", "local[1]", "--driver-memory", "512m", "--py-files", ",".join(files)),
            *(part for each in (*conf, "spark.ui.enabled=false") for part in ("--conf", each)),
            *(program, *arguments),
        ]
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        surroundings = {**os.environ, **python, **(environment or {})}
        with self.log.open("wb") as output:
            self.jobs.append(
                subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd="/", env=surroundings)
            )


class StubLivy(StubService):
    def answer(self, path: str, target: str, body: dict[str, Any]) -> Answer:
        assert path == "/batches"
        conf = [f"{name}={value}" for name, value in body["conf"].items()]
        self.start(body["file"], body["args"], files=body["pyFiles"], conf=conf)
        return 201, {"id": 1, "state": "starting"}


class StubGlue(StubService):
    """Runs the program with Glue's own arguments among the job's, sorted, and a role that reaches the bucket."""

    def __init__(self, folder: Path, s3: S3Server) -> None:
        super().__init__(folder)
        self.s3 = s3
        self.made: list[dict[str, Any]] = []

    def answer(self, path: str, target: str, body: dict[str, Any]) -> Answer:
        if target == "AWSGlue.GetJob":
            return 400, {"__type": "EntityNotFoundException", "Message": f"no job {body['JobName']}"}
        if target == "AWSGlue.CreateJob":
            self.made.append(body)
            return 200, {"Name": body["Name"]}
        assert target == "AWSGlue.StartJobRun"
        self.run(dict(body["Arguments"]))
        return 200, {"JobRunId": "jr_1"}

    def run(self, arguments: dict[str, str]) -> None:
        of_glue = {"--JOB_ID": "j_1", "--JOB_RUN_ID": "jr_1", "--JOB_NAME": "a job", "--TempDir": "s3://tmp/a/"}
        passed = [text for pair in sorted({**arguments, **of_glue}.items()) for text in pair]
        self.start(
            self.local(arguments["--scriptLocation"]),
            passed,
            files=[self.local(uri) for uri in arguments["--extra-py-files"].split(",")],
            conf=arguments["--conf"].split(" --conf ") if "--conf" in arguments else [],
            environment={
                "AWS_ACCESS_KEY_ID": ALLOWED[0],
                "AWS_SECRET_ACCESS_KEY": ALLOWED[1],
                "AWS_DEFAULT_REGION": REGION,
                "AWS_ENDPOINT_URL_S3": self.s3.endpoint_url,
            },
        )

    def local(self, uri: str) -> str:
        """Return a local copy of an object, which Glue makes too."""
        found = re.fullmatch(r"s3://([^/]+)/(.+)", uri)
        assert found is not None
        copy = self.folder / Path(found[2]).name
        self.s3.client().download_file(found[1], found[2], str(copy))
        return str(copy)


@contextmanager
def ended(service: StubService) -> Iterator[None]:
    """End the jobs of a service at last."""
    try:
        yield
    finally:
        for job in service.jobs:
            job.kill()
            job.wait()


@contextmanager
def serving(service: StubService) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            service.bodies.append(body)
            status, answer = service.answer(self.path, self.headers.get("X-Amz-Target", ""), json.loads(body))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.port = server.server_port
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            with ended(service):
                yield
        finally:
            server.shutdown()


@pytest.fixture
def airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's database and the connection to the store."""
    from airflow.utils.db import initdb

    initdb()
    extra = {"store": "sql", "url": f"sqlite:///{tmp_path}/coordination.db"}
    connection(monkeypatch, "coordination_default", "coordination", extra=extra)


LINES = "".join(json.dumps({"id": number}) + "\n" for number in range(10))


def ingested_by(service: StubService, name: str, **params: str) -> dict[str, Any]:
    """Run an example; return the summary of its job."""
    dag = DagBag(str(REPOSITORY / "dags" / f"{name}.py")).dags[name]
    done = run_dag(dag, **params)
    said = service.log.read_text() if service.log.exists() else "no job was started"
    assert done.state == "success", said
    for text in (said, *service.bodies):
        assert PASSWORD not in text and ALLOWED[1] not in text
    [summary] = [ti.xcom_pull(task_ids="follow") for ti in done.get_task_instances() if ti.task_id == "follow"]
    return dict(summary)


def test_livy_example_delivers_and_leaves_no_settings(
    java: str, airflow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, shared, output = tmp_path / "in", tmp_path / "shared", tmp_path / "out"
    given.mkdir()
    (given / "a.json").write_text(LINES)
    connection(
        monkeypatch, "aws_default", "aws", login="AKIAEXAMPLE", password=PASSWORD, extra={"region_name": "eu-west-1"}
    )
    livy = StubLivy(tmp_path)
    with serving(livy):
        connection(monkeypatch, "livy_default", "http", host="127.0.0.1", port=livy.port, schema="http")
        summary = ingested_by(livy, "livy_ingestion", path=str(given), folder=str(shared), output_path=str(output))
    assert summary["records_delivered"] == 10
    assert ds.dataset(output, format="parquet").count_rows() == 10
    assert list((shared / "settings").iterdir()) == []


@pytest.mark.deep
def test_dataproc_example_delivers_and_leaves_no_settings(
    java: str, airflow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.dataproc_server import dataproc_server

    given, shared, output = tmp_path / "in", tmp_path / "shared", tmp_path / "out"
    given.mkdir()
    (given / "a.json").write_text(LINES)
    service = StubService(tmp_path)

    def run(job: Any) -> None:
        program = job.pyspark_job
        conf = [f"{name}={value}" for name, value in program.properties.items()]
        service.start(program.main_python_file_uri, program.args, files=program.python_file_uris, conf=conf)

    with dataproc_server(monkeypatch) as dataproc, ended(service):
        dataproc.run = run
        params = {"path": str(given), "folder": str(shared), "output_path": str(output)}
        summary = ingested_by(service, "dataproc_ingestion", **params)
    assert summary["records_delivered"] == 10
    assert ds.dataset(output, format="parquet").count_rows() == 10
    assert list((shared / "settings").iterdir()) == []


def test_glue_example_delivers_and_leaves_no_settings(
    s3: S3Server, s3_bucket: str, java: str, airflow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3.client()
    bucket.put_object(Bucket=s3_bucket, Key="in/a.json", Body=LINES.encode())
    glue = StubGlue(tmp_path, s3)
    with serving(glue):
        of_services = {
            "s3": {"endpoint_url": s3.endpoint_url},
            "glue": {"endpoint_url": f"http://127.0.0.1:{glue.port}"},
        }
        extra = {"region_name": REGION, "service_config": of_services}
        connection(monkeypatch, "aws_default", "aws", login=ALLOWED[0], password=ALLOWED[1], extra=extra)
        folders = {"path": "in/", "folder": "coordination", "output_path": "events"}
        params = {name: f"s3://{s3_bucket}/{folder}" for name, folder in folders.items()}
        summary = ingested_by(glue, "glue_ingestion", glue_version="5.1", **params)
    assert summary["records_delivered"] == 10
    [made] = glue.made
    assert (made["GlueVersion"], made["MaxRetries"]) == ("5.1", 0)
    left = [each["Key"] for each in bucket.list_objects_v2(Bucket=s3_bucket)["Contents"]]
    assert [key for key in left if key.startswith("events/")] != []
    assert [key for key in left if key.startswith("coordination/settings/")] == []
