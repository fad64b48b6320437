"""Supervisors over HTTP: each route answers what the store holds, and each verb does what the manual says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.airflow.api.test_ui_api import CONNECTION, at, found
from tests.support.scenery import Scenery

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


def test_a_supervisor_stands_as_the_store_says(scenery: Scenery, op: TestClient) -> None:
    status = found(op.get(at("orders", "supervisor")))
    assert (status["source"], status["state"], status["healthy"]) == ("orders", "RUNNING", True)
    assert (status["spec_by"], status["kind"], status["is_supervised"]) == ("ann", "s3", True)
    assert sorted(job["state"] for job in status["jobs"]) == ["RUNNING", "SUBMITTED"]
    assert status["stats"]["totals"]["unparseable"] == 1
    assert status["lag"]["partitions"]["state/held.json.gz"] == 1200
    assert status["errors"][0]["error_class"] == "ReadTimeout"


def test_the_list_has_every_supervisor_and_no_source_without_one(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("clicks")
    scenery.worker("clicks").view.suspensions.suspend("ann", "no supervisor, and suspended")
    scenery.supervised("payments")
    rows = found(op.get(f"{CONNECTION}/supervisors"))["supervisors"]
    assert [row["source"] for row in rows] == ["orders", "payments"]
    assert rows[0]["lag"]["partitions"] == {} and rows[0]["lag"]["oldest_ms"] == 1200


def test_a_source_without_a_supervisor_is_not_found(scenery: Scenery, op: TestClient) -> None:
    answer = op.get(at("clicks", "supervisor"))
    assert answer.status_code == 404
    assert answer.json()["detail"] == (
        "source 'clicks' has no supervisor; check the name, or submit a spec to have one"
    )
