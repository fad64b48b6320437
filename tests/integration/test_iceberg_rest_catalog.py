"""A delivery handles every response of a real REST catalog, and responses that are lost."""

from __future__ import annotations

import json
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.spark.delivery import DeliveryError, SinkUnavailableError
from airflow_provider_coordination.spark.landed_identity import as_landed, file_name
from airflow_provider_coordination.spark.outages import is_outage
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.sink_settings import access_of
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.spark.sinks.iceberg import catalog as catalogs
from airflow_provider_coordination.spark.writes import sinks_of
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from tests.integration.test_sink_contract_on_s3 import IcebergInTableBucket
from tests.spark.sinks.test_iceberg_crashes import RepeatedDelivery
from tests.support.counted_tables import counted_catalogs
from tests.support.faulty_s3 import Fault, FaultyS3
from tests.support.freezing import Calls, Strike
from tests.support.landed_tables import deliver as deliver_landed
from tests.support.s3_server import ALLOWED, DENIED, REGION, S3Server
from tests.support.sinks import BatchRows, SinkTarget, an_attempt, files_named_by, under_next_lease
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.share(0.3)]
COMMIT = "POST .*/tables/clicks$"
LOOK = "GET .*/tables/clicks"
FOR_EVER = 10**6
A, B = an_attempt("a-1"), an_attempt("b-1")
VALUES = {"a-1": [1, 2], "b-1": [3]}


@pytest.fixture
def network(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """What lies between a job and the catalog; nothing but connections holds keys."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(catalogs, "RETRY_PAUSE_SECONDS", 0.01)
    with FaultyS3(replace(s3.settings, endpoint_url=s3.catalog_url)) as network:
        yield network


@pytest.fixture
def target(network: FaultyS3, s3: S3Server, s3_table_bucket: str, tmp_path: Path) -> SinkTarget:
    """A table whose catalog is reached by way of the network."""
    return SinkTarget(IcebergInTableBucket(s3_table_bucket, s3.settings, _url(network)), tmp_path / "sink")


def _url(network: FaultyS3) -> str:
    return str(network.settings.endpoint_url)


def _table(target: SinkTarget) -> Any:
    return target.sink()._table.find()  # type: ignore[attr-defined]


def _is_whole(target: SinkTarget) -> bool:
    """Return whether every file is there that a snapshot names; readers of a table look at more than rows."""
    table = _table(target)
    return files_named_by(table) <= set(target.kind.files(target.folder))  # type: ignore[attr-defined]


# What becomes of a commit


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.OVERDUE])
def test_commit_with_a_lost_response_is_found_and_not_repeated(
    target: SinkTarget, network: FaultyS3, fault: Fault
) -> None:
    target.deliver({"a-1": [1, 2]}, [A])
    lost = network.make(COMMIT, fault)
    target.deliver({"b-1": [3]}, [B])
    assert lost.left == 0
    assert target.visible == VALUES and len(_table(target).snapshots()) == 2
    assert _is_whole(target) and target.leftovers == []


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.CUT, Fault.UNAUTHORIZED])
def test_commit_that_never_arrived_is_repeated(target: SinkTarget, network: FaultyS3, fault: Fault) -> None:
    target.deliver({"a-1": [1, 2]}, [A])
    network.make(COMMIT, fault)
    target.deliver({"b-1": [3]}, [B])
    assert target.visible == VALUES and len(_table(target).snapshots()) == 2
    assert _is_whole(target) and target.leftovers == []


def test_second_of_two_concurrent_commits_follows_the_first(target: SinkTarget, network: FaultyS3) -> None:
    target.deliver({"c-1": [0]}, [an_attempt("c-1")])
    one, other = target.sink(), target.sink()
    one.prepare([A], target.rows({"a-1": [1, 2]}))
    other.prepare([B], target.rows({"b-1": [3]}))
    held = network.make(COMMIT, Fault.HELD)
    job = threading.Thread(target=one.commit, args=([A],), daemon=True)
    job.start()
    assert held.reached.wait(PATIENCE_SECONDS)
    other.commit([B])
    held.let_through.set()
    job.join(PATIENCE_SECONDS)
    assert not job.is_alive()
    commits = [request for request in network.requests if request.endswith("/tables/clicks") and "POST" in request]
    assert len(commits) == 5, "one makes the table, one each adds to it, and one is refused"
    assert target.visible == {**VALUES, "c-1": [0]} and len(_table(target).snapshots()) == 3
    assert _is_whole(target)


def test_late_commit_brings_nothing_twice(
    target: SinkTarget, network: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "RESPONSE_TIMEOUT_SECONDS", 1.0)
    target.deliver({"a-1": [1, 2]}, [A])
    late = network.make(COMMIT, Fault.HELD)
    target.deliver({"b-1": [3]}, [B])
    assert late.reached.is_set() and target.visible == VALUES
    late.let_through.set()
    target.deliver({"c-1": [4]}, [an_attempt("c-1")])
    assert target.visible == {**VALUES, "c-1": [4]}
    assert _is_whole(target) and target.leftovers == []


def test_late_commit_of_the_previous_owner_is_refused(target: SinkTarget, network: FaultyS3) -> None:
    target.deliver({"a-1": [1, 2]}, [A])
    former, owner = target.sink(), target.sink()
    former.prepare([B], target.rows({"b-1": [-3]}))
    held = network.make(COMMIT, Fault.HELD)
    failed: list[Exception] = []

    def go_on() -> None:
        try:
            former.commit([B])
        except Exception as error:
            failed.append(error)

    job = threading.Thread(target=go_on, daemon=True)
    job.start()
    assert held.reached.wait(PATIENCE_SECONDS)
    again = under_next_lease(B)
    owner.sweep({B.folder: again.fencing_token})
    target.deliver({"b-1": [3]}, [again], owner)
    held.let_through.set()
    job.join(PATIENCE_SECONDS)
    assert not job.is_alive() and failed == []  # it finds the batch in
    assert target.visible == VALUES and _is_whole(target)


def test_table_dropped_before_the_commit_is_not_recreated(target: SinkTarget, network: FaultyS3) -> None:
    target.deliver({"a-1": [1, 2]}, [A])
    sink = target.sink()
    sink.prepare([B], target.rows({"b-1": [3]}))
    held = network.make(COMMIT, Fault.HELD)
    failed: list[Exception] = []

    def commit() -> None:
        try:
            sink.commit([B])
        except Exception as error:
            failed.append(error)

    job = threading.Thread(target=commit, daemon=True)
    job.start()
    assert held.reached.wait(PATIENCE_SECONDS)
    target.sink()._table._open_catalog().drop_table("lake.clicks")  # type: ignore[attr-defined]
    held.let_through.set()
    job.join(PATIENCE_SECONDS)
    assert not job.is_alive()
    [error] = failed
    assert isinstance(error, DeliveryError) and "was dropped after the job began" in str(error)
    assert target.visible == {}


class DeliveredByRest(RepeatedDelivery):
    """See `RepeatedDelivery`: the calls to the catalog count."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        with counted_catalogs(self.calls):
            yield


@pytest.mark.parametrize(
    "strike", [Strike.FREEZE, Strike.KILLED_AFTER, Strike.RAISED_BEFORE, Strike.RAISED_AFTER, Strike.TWICE], ids=str
)
def test_job_struck_at_the_catalog_delivers_each_batch_once(
    s3: S3Server, tmp_path: Path, strike: Strike, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "RETRY_PAUSE_SECONDS", 0.001)

    def live(point: int | None) -> DeliveredByRest:
        bucket = f"struck-{uuid.uuid4().hex[:12]}"
        s3.create_table_bucket(bucket)
        request.addfinalizer(partial(s3.delete_table_bucket, bucket))
        target = SinkTarget(IcebergInTableBucket(bucket, s3.settings, s3.catalog_url), tmp_path / bucket)
        lived = DeliveredByRest(target, Calls(point, strike))
        lived.live()
        lived.check()
        return lived

    made = live(None).calls.made
    assert made.count("catalog.commit_table") == 1
    points = [n for n, call in enumerate(made, 1) if strike is Strike.FREEZE or call == "catalog.commit_table"]
    assert all(live(point).calls.struck for point in points)


def test_landed_files_elsewhere_use_the_connection_of_the_table(target: SinkTarget, s3_bucket: str) -> None:
    settings = target.kind.settings(target.folder)
    access = access_of([settings])
    attempts = []
    for batch_id, values in VALUES.items():
        file = f"s3://{s3_bucket}/raw/clicks/{batch_id}/{file_name('5', 1)}"
        rows = pa.table({"n": values, "_batch_id": [batch_id] * len(values)})
        size = write_table(as_landed(rows, batch_id), file, access)
        attempts.append(an_attempt(batch_id, file=file, file_bytes=size, records=len(values)))
    [sink] = make_sinks([settings])
    assert sink.accepts_landed_files
    deliver_landed(sink.landed_delivery(keep=False), attempts)
    assert target.visible == VALUES


# A catalog that is away, or refuses


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.CUT, Fault.FORBIDDEN, Fault.UNAUTHORIZED])
@pytest.mark.parametrize("step", ["prepare", "commit"])
def test_refusing_catalog_is_an_outage_and_blames_no_batch(
    target: SinkTarget, network: FaultyS3, fault: Fault, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.deliver({"a-1": [1, 2]}, [A])
    sink = target.sink()
    rows = target.rows({"b-1": [3]})
    sink.check()
    if step == "commit":
        sink.prepare([B], rows)
    monkeypatch.setattr(catalogs, "OUTAGE_WAIT_SECONDS", 0.1)
    trouble = network.make(".*", fault, FOR_EVER)
    with pytest.raises(SinkUnavailableError, match=r"^Iceberg table 'lake\.clicks'") as raised:
        sink.prepare([B], rows) if step == "prepare" else sink.commit([B])
    assert is_outage(raised.value)
    trouble.left = 0
    target.deliver({"b-1": [3]}, [B])
    assert target.visible == VALUES


# As a DAG describes it


@pytest.fixture
def connect_sink(
    network: FaultyS3, s3: S3Server, s3_table_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Make a sink of connections: one to the catalog, one to the files."""
    files = {"region_name": REGION, "endpoint_url": s3.endpoint_url}
    aws = {"conn_type": "aws", "login": ALLOWED[0], "password": ALLOWED[1], "extra": files}
    monkeypatch.setenv("AIRFLOW_CONN_FILES", json.dumps(aws))

    def connect(extra: dict[str, str] | None = None, **fields: Any) -> Any:
        found = {"type": "rest", "warehouse": f"s3://{s3_table_bucket}", **(extra or {})}
        own = {"conn_type": "http", "host": _url(network), "extra": found, **fields}
        monkeypatch.setenv("AIRFLOW_CONN_CATALOG", json.dumps(own))
        return sinks_of(
            IcebergTable("lake.clicks", catalog_conn_id="catalog", aws_conn_id="files"), AirflowConnections()
        )

    return connect


def _token(s3: S3Server) -> str:
    asked = {"grant_type": "client_credentials", "client_id": ALLOWED[0], "client_secret": ALLOWED[1]}
    answer = requests.post(f"{s3.catalog_url}/v1/oauth/tokens", data=asked, timeout=30)
    return str(answer.json()["access_token"])


@pytest.mark.parametrize("by", ["credential", "token", "signature"])
def test_connection_settings_reach_the_catalog_and_no_log(
    s3: S3Server, connect_sink: Callable[..., Any], caplog: pytest.LogCaptureFixture, by: str
) -> None:
    caplog.set_level(logging.DEBUG)
    token = _token(s3)
    settings = {
        "credential": lambda: connect_sink(login=ALLOWED[0], password=ALLOWED[1]),
        "token": lambda: connect_sink(password=token),
        "signature": lambda: connect_sink(
            {"rest.sigv4-enabled": "true", "rest.signing-region": REGION, "rest.signing-name": "s3tables"}
        ),
    }[by]()
    caplog.clear()
    [sink] = make_sinks(settings)
    sink.check()
    sink.prepare([A], BatchRows({"a-1": [1, 2]}, sink.access))
    sink.commit([A])
    assert sink.committed([A]) == {"a-1"}
    logged = caplog.text
    assert "lake.clicks" in logged
    for secret in (ALLOWED[1], token):
        assert secret not in logged and secret not in f"{settings!r}"


def test_credential_secret_is_hidden_by_itself(connect_sink: Callable[..., Any]) -> None:
    [settings] = connect_sink(login="somebody", password="hush-hush-hush")
    assert "hush-hush-hush" not in Redaction({"settings": settings.settings}).text("client hush-hush-hush is unknown")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"login": ALLOWED[0], "password": "wrong-secret"}, "OAuthError: invalid_client"),
        ({"password": "wrong-secret"}, "UnauthorizedError: NotAuthorizedException"),
        (
            {"login": ALLOWED[0], "password": ALLOWED[1], "extra": {"warehouse": "s3://nowhere"}},
            "table bucket nowhere not found",
        ),
        ({"login": DENIED[0], "password": DENIED[1]}, "ForbiddenError"),
        ({"login": ALLOWED[0], "password": ALLOWED[1], "host": "http://127.0.0.1:9"}, "Connection refused"),
    ],
    ids=["wrong credential", "wrong token", "no such warehouse", "not allowed", "unreachable"],
)
def test_unusable_catalog_ends_the_job_with_its_error(
    connect_sink: Callable[..., Any], fields: dict[str, Any], message: str
) -> None:
    [sink] = make_sinks(connect_sink(**fields))
    with pytest.raises(ConfigurationError, match=message) as raised:
        sink.check()
    said = str(raised.value)
    assert said.startswith("IcebergTable 'main': the catalog at iceberg://127.0.0.1:")
    assert "check 'catalog_conn_id' and 'catalog'" in said and "wrong-secret" not in said
    assert "\n" not in said
