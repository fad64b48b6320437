"""Several reads in one request: each has the rights, the status and the body that it has alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.scenery import Scenery

pytestmark = pytest.mark.integration  # needs no server, but Airflow's API, and so seconds

SOURCE = "connections/coordination_default/sources"


@pytest.fixture
def scenery(connect: Any, store_url: str) -> Iterator[Scenery]:
    connect("coordination_default", "coordination", extra={"url": store_url})
    made = Scenery(store_url)
    yield made
    made.close()


def read(client: Any, *paths: str) -> list[dict[str, Any]]:
    """Read paths in one request."""
    query = "&".join(f"path={quote(path, safe='')}" for path in paths)
    answer = client.get(f"/coordination/together?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def test_reads_together_answer_as_alone(scenery: Scenery, as_role: Any) -> None:
    scenery.make("orders/a b", {"waiting": lambda partition: partition})
    paths = (f"{SOURCE}/{quote('orders/a b', safe='')}/partitions?limit=5", "connections", f"{SOURCE}/nothing/shards")
    for role in ("op", "viewer"):
        client = as_role(role)
        alone = [client.get(f"/coordination/{path}") for path in paths]
        found = read(client, *paths)
        assert [each["status"] for each in found] == [answer.status_code for answer in alone]
        for each, answer in zip(found, alone, strict=True):
            ours, theirs = each["body"], answer.json()
            assert {**ours, "as_of": None} == {**theirs, "as_of": None}


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "path"),
        ("path=together?path=connections", "only paths below connections and runs can be read; got 'together?path"),
        ("path=static/coordination.js", "only paths below"),
        ("path=../api/v2/connections", "only paths below"),
        ("&".join(["path=connections"] * 9), "at most 8 items"),
    ],
)
def test_other_paths_are_not_read_together(as_role: Any, query: str, reason: str) -> None:
    answer = as_role("admin").get(f"/coordination/together?{query}")
    assert answer.status_code == 422
    assert reason in answer.text


@pytest.mark.parametrize(
    "path", ["connections/../../api/v2/dags", "connections/%2e%2e/%2e%2e/x", "connections/\u0000", "connections//"]
)
def test_odd_paths_are_not_found(as_role: Any, path: str) -> None:
    assert {each["status"] for each in read(as_role("admin"), path)} <= {404, 422}


def test_users_without_a_login_are_refused(as_role: Any) -> None:
    assert as_role(None).get("/coordination/together?path=connections").status_code == 401
