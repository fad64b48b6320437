"""Systems outside Airflow acknowledge over HTTP, by the routes of the plugin in Airflow's own API server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.delivered import delivered, state, status, the_set
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration  # Airflow's API server is made for it, which takes longer than all the requests

SETS = "/coordination/connections/coordination_default/sources/clicks/acknowledgments"
PASSWORD = "not-for-anyones-eyes"
ROLES = ("viewer", "user", "op", "admin")


@pytest.fixture
def op(as_role: Any) -> TestClient:
    client: TestClient = as_role("op")
    return client


def test_set_is_acknowledged(coordination: SourceCoordinator, op: TestClient) -> None:
    [waiting] = delivered(coordination, "a")
    answer = op.post(f"{SETS}/{waiting}/release", json={"positive": True})
    assert (answer.status_code, answer.json()["effect"]) == (200, "released")
    assert answer.json()["acknowledgment_set"]["state"] == "ACKNOWLEDGED"
    assert status(coordination, "a") is PartitionStatus.COMPLETED


def test_set_is_rejected_with_a_reason(coordination: SourceCoordinator, op: TestClient) -> None:
    [waiting] = delivered(coordination, "a")
    answer = op.post(f"{SETS}/{waiting}/release", json={"positive": False, "reason": "the load was refused"})
    assert answer.json()["acknowledgment_set"]["state"] == "REJECTED"
    assert the_set(coordination, waiting).reason == "downstream: the load was refused"
    assert status(coordination, "a") is PartitionStatus.UNASSIGNED


def test_repeated_release_counts_once(coordination: SourceCoordinator, op: TestClient) -> None:
    [waiting] = delivered(coordination, "a", handles=["check", "check"])
    bodies = [{"positive": True, "release_id": name} for name in ("table 1", "table 1", "table 2", "table 2")]
    effects = [op.post(f"{SETS}/{waiting}/release", json=body).json()["effect"] for body in bodies]
    assert effects == ["released", "duplicate", "released", "duplicate"]


def test_late_release_is_reported_as_late(coordination: SourceCoordinator, op: TestClient) -> None:
    [waiting] = delivered(coordination, "a")
    AcknowledgmentSets(coordination).cancel(waiting, "the sink was emptied")
    answer = op.post(f"{SETS}/{waiting}/release", json={"positive": True})
    assert (answer.status_code, answer.json()["effect"]) == (200, "late")
    assert answer.json()["acknowledgment_set"]["reason"] == "the sink was emptied"


def test_set_can_be_read(coordination: SourceCoordinator, op: TestClient) -> None:
    [waiting] = delivered(coordination, "a")
    shown = op.get(f"{SETS}/{waiting}").json()
    assert (shown["set_id"], shown["state"], shown["references"]) == (waiting, "PENDING", {"main": 0, "downstream": 1})
    assert (shown["progress"], shown["batch"]) == (0.5, {"records": 7})


def test_pending_sets_are_found_by_run_and_batch(coordination: SourceCoordinator, op: TestClient) -> None:
    a, b = delivered(coordination, "a", "b")
    [c] = delivered(coordination, "c", run="dag/other")
    for query, expected in (
        ({}, [a, b, c]),
        ({"run": "dag/other"}, [c]),
        ({"batch_id": "batch-of-b"}, [b]),
        ({"limit": "2"}, [a, b]),
        ({"run": "dag/none"}, []),
    ):
        assert [each["set_id"] for each in op.get(SETS, params=query).json()] == expected


@pytest.mark.parametrize("key", ["a/b c?d#e%f&g=ü", "x/release", "tables/acknowledgments;v=1"])
@pytest.mark.parametrize("source", ["s3://bucket/häppy clicks?", "clicks+1"])
def test_names_may_hold_any_encodable_character(
    coordination: SourceCoordinator, op: TestClient, source: str, key: str
) -> None:
    other = SourceCoordinator(coordination.store, source, "test")
    other.initialize()
    [waiting] = delivered(other, key)
    sets = f"/coordination/connections/coordination_default/sources/{quote(source, safe='')}/acknowledgments"
    assert op.get(f"{sets}/{quote(waiting, safe='')}").json()["partition_key"] == key
    answer = op.post(f"{sets}/{quote(waiting, safe='')}/release", json={"positive": True})
    assert answer.json()["effect"] == "released", answer.text
    assert state(other, waiting) is AcknowledgmentState.ACKNOWLEDGED


ROUTES = [("GET", SETS), ("GET", f"{SETS}/any"), ("POST", f"{SETS}/any/release")]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_request_without_a_login_is_refused(
    coordination: SourceCoordinator, as_role: Any, method: str, path: str
) -> None:
    assert as_role(None).request(method, path, json={"positive": True}).status_code == 401


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_roles_without_access_to_connections_are_refused(
    coordination: SourceCoordinator, as_role: Any, method: str, path: str
) -> None:
    answers = {role: as_role(role).request(method, path, json={"positive": True}).status_code for role in ROLES}
    done = 200 if path == SETS else 404
    assert answers == {"viewer": 403, "user": 403, "op": done, "admin": done}


def test_refused_release_changes_nothing(coordination: SourceCoordinator, as_role: Any) -> None:
    [waiting] = delivered(coordination, "a")
    for role in (None, "viewer", "user"):
        as_role(role).post(f"{SETS}/{waiting}/release", json={"positive": True})
    assert the_set(coordination, waiting).owed == 1


@pytest.mark.parametrize("path", ["/coordination/docs", "/coordination/redoc", "/coordination/openapi.json"])
def test_other_paths_are_not_found(coordination: SourceCoordinator, as_role: Any, path: str) -> None:
    assert as_role(None).get(path).status_code == 404


@pytest.mark.parametrize(
    ("body", "status_code", "detail"),
    [
        ({"positive": False}, 409, "a negative release of 'downstream' needs a reason; give one"),
        ({"positive": True, "handle": "nope"}, 409, "has no handle 'nope'; its handles are 'main', 'downstream'"),
        ({"positive": True, "handle": "main"}, 409, "handle 'main' is released by the delivering job"),
        ({"positive": True, "release_id": "x" * 129}, 409, "give 1 to 128 printable characters"),
        ({}, 422, "body.positive: Field required"),
        ({"positive": "yes"}, 422, "body.positive: Input should be a valid boolean"),
        ({"positive": True, "resaon": "x"}, 422, "body.resaon: Extra inputs are not permitted"),
        ([], 422, "body: Input should be"),
    ],
)
def test_invalid_release_is_refused_with_one_clear_line(
    coordination: SourceCoordinator, op: TestClient, body: Any, status_code: int, detail: str
) -> None:
    [waiting] = delivered(coordination, "a")
    answer = op.post(f"{SETS}/{waiting}/release", json=body)
    assert answer.status_code == status_code
    assert detail in answer.json()["detail"]
    assert the_set(coordination, waiting).owed == 1


def test_form_of_another_site_cannot_release(coordination: SourceCoordinator, op: TestClient) -> None:
    [waiting] = delivered(coordination, "a")
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = op.post(
            f"{SETS}/{waiting}/release", content='{"positive": true}', headers={"Content-Type": media_type}
        )
        assert answer.status_code == 415
    assert the_set(coordination, waiting).owed == 1


def test_release_of_a_set_that_changed_is_refused(coordination: SourceCoordinator, op: TestClient) -> None:
    [waiting] = delivered(coordination, "a", handles=["check", "load"])
    seen = op.get(f"{SETS}/{waiting}").json()["version"]
    body = {"positive": True, "version": seen}
    assert op.post(f"{SETS}/{waiting}/release", json={**body, "handle": "check"}).json()["effect"] == "released"
    answer = op.post(f"{SETS}/{waiting}/release", json={**body, "handle": "load"})
    assert (answer.status_code, "has changed since it was read" in answer.json()["detail"]) == (409, True)
    assert the_set(coordination, waiting).owed == 1


def test_unknown_set_and_unknown_connection_are_not_found(coordination: SourceCoordinator, op: TestClient) -> None:
    for method, path in ROUTES[1:]:
        answer = op.request(method, path, json={"positive": True})
        assert answer.status_code == 404
        assert "source 'clicks' has no acknowledgment set 'any'" in answer.json()["detail"]
        answer = op.request(method, path.replace("coordination_default", "nope"), json={"positive": True})
        assert (answer.status_code, answer.json()["detail"]) == (404, "connection 'nope' is not defined")


def test_unusable_connection_is_named(coordination: SourceCoordinator, op: TestClient, connect: Any) -> None:
    connect("lake", "aws", password=PASSWORD)
    answer = op.get(SETS.replace("coordination_default", "lake"))
    assert answer.status_code == 422
    assert answer.json()["detail"] == "connection 'lake' is of type 'aws'; name one of type 'coordination'"


def test_error_of_an_unusable_store_shows_no_details(
    coordination: SourceCoordinator, op: TestClient, connect: Any, tmp_path: Path
) -> None:
    store = tmp_path / "secret.db"
    store.write_text("this is no database" * 100)
    connect("lake", "coordination", extra={"url": f"sqlite:///{store}"})
    answer = op.get(SETS.replace("coordination_default", "lake"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    assert answer.json() == {"detail": "the store is unavailable; try again"}


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_plugin_loads_without_the_api_application() -> None:
    look = """if True:
        import sys
        from airflow_provider_coordination.ui.plugin import CoordinationPlugin
        plugin = CoordinationPlugin()
        print(plugin.name, "fastapi" in sys.modules, "airflow_provider_coordination.hooks" in sys.modules)"""
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert done.stdout.splitlines()[-1] == "coordination False False"
