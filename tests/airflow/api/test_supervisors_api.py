"""Supervisors over HTTP: each route returns the stored state, and each verb does what the manual says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import DetailedState
from tests.airflow.api.test_ui_api import CONNECTION, at, found, row
from tests.support.scenery import SPEC, Scenery, a_batch

pytestmark = pytest.mark.integration  # needs no server, but Airflow's API, and so seconds


@pytest.fixture
def scenery(connect: Any, store_url: str) -> Iterator[Scenery]:
    connect("coordination_default", "coordination", extra={"url": store_url})
    made = Scenery(store_url)
    made.trouble("orders")
    made.supervised("orders")
    yield made
    made.close()


@pytest.fixture
def op(as_role: Any) -> TestClient:
    client: TestClient = as_role("op", name="olga")
    return client


def test_supervisor_has_the_status_of_the_store(scenery: Scenery, op: TestClient) -> None:
    status = found(op.get(at("orders", "supervisor")))
    assert (status["source"], status["detailed_state"], status["healthy"]) == ("orders", "PARTITIONS_PARKED", False)
    assert (status["spec_by"], status["kind"], status["is_supervised"]) == ("ann", "s3", True)
    assert sorted(job["state"] for job in status["jobs"]) == ["RUNNING", "SUBMITTED"]
    assert status["stats"]["totals"]["unparseable"] == 1
    assert status["lag"]["partitions"]["state/held.json.gz"] == 1200
    assert [error["error_class"] for error in status["errors"][:2]] == ["PartitionParked", "ReadTimeout"]
    assert status["errors"][0]["partition"] == "state/parked.json.gz"


def test_list_holds_every_supervisor_and_no_other_source(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("clicks")
    scenery.worker("clicks").view.suspensions.suspend("ann", "no supervisor, and suspended")
    scenery.supervised("payments")
    rows = found(op.get(f"{CONNECTION}/supervisors"))["supervisors"]
    assert [row["source"] for row in rows] == ["orders", "payments"]
    assert rows[0]["lag"]["oldest_ms"] == 1200


def test_list_leaves_out_the_long_fields_of_a_supervisor(scenery: Scenery, op: TestClient) -> None:
    whole = found(op.get(at("orders", "supervisor")))
    [row] = found(op.get(f"{CONNECTION}/supervisors"))["supervisors"]
    assert whole["lag_series"] and whole["lag"]["partitions"]
    assert (row["lag_series"], row["lag"]["partitions"]) == ([], {})


def test_source_without_a_supervisor_is_not_found(scenery: Scenery, op: TestClient) -> None:
    answer = op.get(at("clicks", "supervisor"))
    assert answer.status_code == 404
    assert answer.json()["detail"] == (
        "source 'clicks' has no supervisor; check the name, or submit a spec to create one"
    )


def post(op: TestClient, verb: str, **body: Any) -> Any:
    return op.post(at("orders", f"supervisor{verb}"), json={"reason": "on call", **body})


def test_each_verb_returns_the_new_status(scenery: Scenery, op: TestClient) -> None:
    assert found(post(op, "/suspend"))["suspended"] == {
        "since": found(op.get(at("orders", "supervisor")))["suspended"]["since"],
        "by": "olga",
        "reason": "on call",
    }
    assert found(post(op, "/resume"))["suspended"] is None
    assert found(post(op, "/handover"))["needs_turn"] is True
    assert found(post(op, "/terminate"))["state"] == "STOPPING"


def test_audit_compares_the_sinks_of_the_spec(scenery: Scenery, op: TestClient) -> None:
    facts = found(post(op, "/audit"))
    assert set(facts) == {"source", "state", "partitions", "complete", "findings", "left", "notes"}
    assert (facts["source"], facts["state"]) == ("orders", "unexplained") and facts["partitions"] > 0
    assert any("there is no file in" in each["reason"] for each in facts["findings"])


def test_audit_of_a_source_without_a_supervisor_is_refused(scenery: Scenery, op: TestClient) -> None:
    answer = op.post(at("clicks", "supervisor/audit"), json={"reason": "on call"})
    assert answer.status_code == 404 and "has no supervisor" in answer.json()["detail"]


def test_trace_shows_where_a_batch_comes_from(scenery: Scenery, op: TestClient) -> None:
    key = "delivered/0.json.gz"
    facts = found(op.get(at("orders", "supervisor/trace"), params={"batch": a_batch(key).batch_id, "position": ""}))
    batch = facts["batch"]
    assert (batch["partition_key"], batch["records"], facts["is_pending"]) == (key, a_batch(key).records, True)
    assert batch["origin"]["owner"] == facts["owner"]["name"]
    assert facts["owner"]["dag_id"] == row(op, "orders", key)["owner"]["dag_id"]
    assert [(sink["sink"], sink["state"]) for sink in facts["sinks"]] == [("main", "missing")]


@pytest.mark.parametrize(
    ("source", "status", "detail"),
    [("orders", 422, "neither a sink that is given nor the store knows it"), ("clicks", 404, "has no supervisor")],
)
def test_trace_of_an_unknown_batch_is_refused(
    scenery: Scenery, op: TestClient, source: str, status: int, detail: str
) -> None:
    answer = op.get(at(source, "supervisor/trace"), params={"batch": "b1"})
    assert answer.status_code == status and detail in answer.json()["detail"]


@pytest.fixture
def previewed(scenery: Scenery, tmp_path: Path) -> Path:
    """The file that the supervised source `clicks` reads."""
    file = tmp_path / "in.json"
    file.write_text('{"id": "1", "password": "hunter2x"}\nno JSON\n')
    scenery.supervised("clicks", reads={"s3": {"paths": str(file)}}, schema="id STRING, password STRING")
    return file


def test_preview_shows_records_with_the_columns_of_the_spec(scenery: Scenery, op: TestClient, previewed: Path) -> None:
    facts = found(op.get(at("clicks", "supervisor/preview")))
    assert set(facts) == {"source", "kind", "columns", "rows", "notes", "nothing"}
    assert [column["origin"] for column in facts["columns"]] == ["source", "source", "payload", "payload"]
    good, bad = facts["rows"]
    assert (good["values"]["id"], good["values"]["password"], good["error"]) == ("1", "***", "")
    assert (bad["record"], bad["error"], bad["values"]["data"]) == (2, "the payload is not one JSON object", "no JSON")
    assert "hunter2x" not in json.dumps(facts)


def test_preview_writes_nothing_into_the_store(scenery: Scenery, op: TestClient, previewed: Path) -> None:
    def content() -> list[Any]:
        tables = sa.inspect(engine).get_table_names()
        with engine.connect() as connection:
            return [sorted(map(str, connection.execute(sa.text(f"SELECT * FROM {each}")))) for each in tables]

    engine = sa.create_engine(scenery.url)
    before = content()
    found(op.get(at("clicks", "supervisor/preview")))
    assert any(before) and content() == before
    engine.dispose()


def test_preview_has_as_many_records_as_requested(scenery: Scenery, op: TestClient, previewed: Path) -> None:
    assert len(found(op.get(at("clicks", "supervisor/preview"), params={"records": 1}))["rows"]) == 1
    assert op.get(at("clicks", "supervisor/preview"), params={"records": 101}).status_code == 422


def test_preview_of_nothing_says_why(scenery: Scenery, op: TestClient, previewed: Path) -> None:
    previewed.write_text("")
    facts = found(op.get(at("clicks", "supervisor/preview")))
    assert facts["rows"] == [] and facts["nothing"].startswith("no record was read of the first 1 selected objects")


def test_preview_without_a_spec_is_not_found(scenery: Scenery, op: TestClient) -> None:
    answer = op.get(at("clicks", "supervisor/preview"))
    assert answer.status_code == 404 and "has no supervisor" in answer.json()["detail"]


def test_preview_of_a_wrong_source_names_the_remedy(scenery: Scenery, op: TestClient, previewed: Path) -> None:
    previewed.unlink()
    answer = op.get(at("clicks", "supervisor/preview"))
    assert answer.status_code == 422 and "does not exist; check 'paths'" in answer.json()["detail"]


def test_preview_of_a_silent_source_shows_no_address(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = {"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:1"}
    connection = {"conn_type": "aws", "login": "a", "password": "hunter2x", "extra": endpoint}
    monkeypatch.setenv("AIRFLOW_CONN_SILENT", json.dumps(connection))
    scenery.supervised("clicks", reads={"kinesis": {"streams": "clicks", "aws_conn_id": "silent"}})
    answer = op.get(at("clicks", "supervisor/preview"))
    assert answer.status_code == 424
    assert answer.json()["detail"].startswith("source 'clicks' does not respond (")
    assert "127.0.0.1" not in answer.text and "hunter2x" not in answer.text


@pytest.mark.parametrize(
    ("before", "verb", "detail"),
    [
        ([], "/resume", "is not suspended"),
        (["/suspend"], "/suspend", "is already suspended by olga since"),
        (["/terminate"], "/terminate", "was already terminated at"),
        (["/terminate"], "/reset", "cannot be reset: it was terminated at"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(
    scenery: Scenery, op: TestClient, before: list[str], verb: str, detail: str
) -> None:
    for each in before:
        found(post(op, each))
    answer = post(op, verb)
    assert answer.status_code == 409 and detail in answer.json()["detail"]


def test_submitted_spec_reports_its_changes(scenery: Scenery, op: TestClient) -> None:
    shown = found(op.get(at("orders", "supervisor/spec")))
    assert (shown["version"], shown["by"], shown["change"]) == (1, "ann", "JOBS")
    assert shown["effective"]["supervise"]["task_count"] == 2
    spec = {**shown["spec"], "supervise": {"task_count": 3}}
    answer = found(post(op, "", spec=spec, replacing=1))
    assert (answer["version"], answer["change"]) == (2, "SUPERVISION")
    assert answer["supervisor"]["task_count"]["configured"] == 3
    late = post(op, "", spec=shown["spec"], replacing=1)
    assert late.status_code == 409 and "was replaced by olga: version 2 is current" in late.json()["detail"]
    versions = found(op.get(at("orders", "supervisor/history")))["versions"]
    assert [(each["version"], each["by"], each["reason"]) for each in versions] == [
        (2, "olga", "on call"),
        (1, "ann", "the first"),
    ]


def test_wrong_spec_is_refused_with_field_value_and_remedy(scenery: Scenery, op: TestClient) -> None:
    spec = {**SPEC, "source": "orders", "supervise": {"task_count": 0}}
    answer = post(op, "", spec=spec)
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert "'supervise.task_count' must be from 1 to 1000" in detail
    assert "to run no jobs, suspend the supervisor; got 0" in detail


def test_health_is_given_by_the_http_status(scenery: Scenery, op: TestClient) -> None:
    scenery.supervised("payments")
    assert found(op.get(at("payments", "supervisor/health")))["healthy"] is True
    worker = scenery.worker("payments")
    kept = SupervisionStore(worker.view)
    stored = kept.get()
    assert stored is not None
    health = replace(stored.supervision.health, state=DetailedState.UNHEALTHY_TASKS)
    kept.save(stored, replace(stored.supervision, health=health))
    op.post(f"{CONNECTION}/supervisors/resume", json={"reason": "results from before the action are dropped"})
    answer = op.get(at("payments", "supervisor/health"))
    assert answer.status_code == 503
    assert answer.json() == {
        "source": "payments",
        "healthy": False,
        "state": "UNHEALTHY_TASKS",
        "detailed_state": "UNHEALTHY_TASKS",
    }


def test_stats_and_bad_records_come_from_the_jobs(scenery: Scenery, op: TestClient) -> None:
    stats = found(op.get(at("orders", "supervisor/stats")))
    assert stats["totals"]["processed_bytes"] == 60_000 and stats["rates"]["5m"]["processed"] == 2.5
    bad = found(op.get(at("orders", "supervisor/parse-errors")))
    assert (bad["count"], bad["dead_letter_path"]) == (stats["totals"]["unparseable"], None)
    [error] = bad["errors"]
    assert error["error"] == "line 18 is not JSON" and error["owner"] in stats["jobs"]


def test_reset_reports_the_outcome_of_each_partition(scenery: Scenery, op: TestClient) -> None:
    answer = found(post(op, "/reset", positions={"state/completed.json.gz": "earliest"}))
    assert answer["outcomes"] == [{"partition_key": "state/completed.json.gz", "action": "reset", "error": ""}]
    unknown = post(op, "/reset", positions={"nothing": "earliest"})
    assert unknown.status_code == 422 and "has no partition 'nothing'" in unknown.json()["detail"]


def test_forget_requires_a_stopped_supervisor(scenery: Scenery, op: TestClient) -> None:
    answer = post(op, "/reset", forget=True)
    assert answer.status_code == 409 and "while jobs may work on it; suspend it" in answer.json()["detail"]
    found(post(op, "/suspend"))
    answer = post(op, "/reset", forget=True)
    assert answer.status_code == 409 and "cannot forget what is leased" in answer.json()["detail"]
    assert post(op, "/reset", forget=True, to="latest").status_code == 422


def test_action_on_all_reports_the_outcome_of_each(scenery: Scenery, op: TestClient) -> None:
    scenery.supervised("payments")
    found(post(op, "/suspend"))
    for is_first in (True, False):
        answer = op.post(f"{CONNECTION}/supervisors/suspend", json={"reason": "maintenance"})
        results = {each["source"]: each for each in found(answer)["results"]}
        assert (results["orders"]["is_done"], results["payments"]["is_done"]) == (False, is_first)
        assert "is already suspended by olga" in results["orders"]["detail"]


def test_all_supervisors_hand_over_and_are_reset(scenery: Scenery, op: TestClient) -> None:
    scenery.supervised("payments")
    scenery.worker("payments").create_partitions({"a": {}})
    results = {}
    for verb, body in (("handover", {}), ("reset", {"to": "earliest"})):
        answer = op.post(f"{CONNECTION}/supervisors/{verb}", json={"reason": "maintenance", **body})
        results[verb] = [(each["is_done"], each["has_failed"]) for each in found(answer)["results"]]
    # One of the first source's partitions is damaged, and that keeps nobody from the second source.
    assert results == {"handover": [(True, False), (True, False)], "reset": [(False, True), (True, False)]}


def test_paused_dag_shows_in_the_status(scenery: Scenery, op: TestClient) -> None:
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    assert found(op.get(at("orders", "supervisor")))["dag_is_paused"] is None
    with create_session() as session:
        session.merge(DagBundleModel(name="of-the-test"))
        session.flush()
        session.add(DagModel(dag_id="supervise_orders", is_paused=True, bundle_name="of-the-test"))
    try:
        found(post(op, "/handover"))  # results from before the action are dropped
        assert found(op.get(at("orders", "supervisor")))["dag_is_paused"] is True
    finally:
        with create_session() as session:
            session.execute(sa.delete(DagModel).where(DagModel.dag_id == "supervise_orders"))


def test_secret_of_a_spec_stays_stored_and_is_never_shown(scenery: Scenery, op: TestClient) -> None:
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    conf = {"spark.hadoop.fs.s3a.secret.key": "opensesame"}
    spec = {**SPEC, "source": "orders", "tuning": {"spark": {"conf": conf}}}
    found(post(op, "", spec=spec))
    with create_session() as session:
        logged = session.scalars(sa.select(Log.extra).where(Log.event == "coordination.submit_supervisor")).all()
    shown = op.get(at("orders", "supervisor/spec"))
    assert logged and "opensesame" not in "".join(map(str, logged)) + shown.text
    again = found(post(op, "", spec=shown.json()["spec"]))
    assert (again["version"], again["change"]) == (2, "NONE")
