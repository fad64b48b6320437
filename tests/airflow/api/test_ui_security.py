"""Access control over HTTP: a table of every route, and the response for each role."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel

from airflow_provider_coordination.coordination.acknowledgment import FAMILY as SETS
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, source_identifier
from airflow_provider_coordination.supervisor.facts import JobStatus, LagStatus, SpecDetail, TaskCount
from airflow_provider_coordination.supervisor.verbs import VERBS
from airflow_provider_coordination.ui import bodies, calendar, cards, kinesis, partitions, supervisors, workers
from airflow_provider_coordination.ui.store_queries import SOURCE
from tests.support.scenery import SPEC, Scenery

pytestmark = [pytest.mark.integration, pytest.mark.share(0.3)]  # needs no server, but Airflow's API, and so seconds

REPOSITORY = Path(__file__).resolve().parents[3]
CONNECTION, NAME = "coordination_default", "shop/orders"
PREFIX = "/coordination"
READERS = {"anonymous": 401, "viewer": 403, "user": 403, "op": 200, "admin": 200, "foreign": 200}
"""A page of another site may send requests that its user may send: the browser does not show it the response."""
ACTORS = {**READERS, "foreign": 403}
ONCE = {**ACTORS, "admin": 409}
"""The second request is refused: a suspended supervisor is not suspended again."""
UNHEALTHY = {who: 503 if status == 200 else status for who, status in READERS.items()}
"""The supervisor's source has a parked partition."""
TRACERS = {who: 422 if status == 200 else status for who, status in READERS.items()}
"""Nobody knows the batch."""
PREVIEWERS = {who: 422 if status == 200 else status for who, status in READERS.items()}
"""There are no credentials for the bucket of the spec."""
ANYBODY = dict.fromkeys(READERS, 200) | {"anonymous": 401}
FOREIGN: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://testserver"},
]


@dataclass(frozen=True)
class Route:
    """A request to a route, and the expected responses.

    :param expected: the status of the response by role.
    :param query: the query of the URL.
    :param body: makes the body of an action from the version of its item.
    :param about: the key of the partition that the action changes.
    :param stale: the status of the response if the item was written since; None if that does not matter.
    """

    expected: dict[str, int]
    query: str = ""
    body: Callable[[int], Any] | None = None
    about: str | None = None
    stale: int | None = None


def on(key: str, **more: str) -> Route:
    def body(version: int) -> Any:
        return {"partitions": [{"key": key, "version": version}], "reason": "paged at night", **more}

    return Route(ACTORS, body=body, about=key, stale=200)


TABLE = {
    ("GET", "/connections"): Route(ANYBODY),
    ("GET", "/connections/{connection_id}/sources"): Route(READERS),
    ("GET", SOURCE + "/summary"): Route(READERS),
    ("GET", SOURCE + "/partitions"): Route(READERS),
    ("GET", SOURCE + "/partition"): Route(READERS, "?key=state/held.json.gz"),
    ("GET", SOURCE + "/shards"): Route(READERS),
    ("GET", SOURCE + "/timeline"): Route(READERS),
    ("GET", SOURCE + "/calendar"): Route(READERS),
    ("GET", SOURCE + "/workers"): Route(READERS),
    ("GET", SOURCE + "/acknowledgments"): Route(READERS),
    ("GET", SOURCE + "/acknowledgments/{set_id:path}"): Route(READERS),
    ("GET", SOURCE + "/jobs/{owner:path}/spark-ui"): Route({**READERS, "op": 404, "admin": 404, "foreign": 404}),
    ("GET", "/connections/{connection_id}/supervisors"): Route(READERS),
    ("GET", SOURCE + "/supervisor"): Route(READERS),
    ("GET", SOURCE + "/supervisor/spec"): Route(READERS),
    ("GET", SOURCE + "/supervisor/history"): Route(READERS),
    ("GET", SOURCE + "/supervisor/health"): Route(UNHEALTHY),
    ("GET", SOURCE + "/supervisor/stats"): Route(READERS),
    ("GET", SOURCE + "/supervisor/parse-errors"): Route(READERS),
    ("GET", SOURCE + "/supervisor/trace"): Route(TRACERS, "?batch=b1"),
    ("GET", SOURCE + "/supervisor/preview"): Route(PREVIEWERS),
    ("GET", "/actions"): Route(ANYBODY),
    ("GET", "/runs"): Route(ANYBODY, "?dag_id=nightly_orders&run_id=any"),
    ("GET", "/static/{path:path}"): Route(ANYBODY),
    ("GET", "/manual"): Route(ANYBODY, "?topic=store"),
    ("GET", "/manual/{page}"): Route(ANYBODY),
    ("POST", SOURCE + "/partitions/release"): on("state/held.json.gz"),
    ("POST", SOURCE + "/partitions/reopen"): on("state/parked.json.gz"),
    ("POST", SOURCE + "/partitions/park"): on("state/waiting.json.gz"),
    ("POST", SOURCE + "/partitions/reset"): on("state/completed.json.gz", to="earliest"),
    ("POST", SOURCE + "/suspend"): Route(ACTORS, body=lambda version: {"reason": "the sink is full"}),
    ("POST", SOURCE + "/resume"): Route(ACTORS, body=lambda version: {"reason": "it was emptied"}),
    ("POST", SOURCE + "/supervisor"): Route(
        ACTORS, body=lambda version: {"spec": {**SPEC, "source": NAME, "context": {}}, "reason": "more jobs"}
    ),
    ("POST", SOURCE + "/supervisor/suspend"): Route(ONCE, body=lambda version: {"reason": "the sink is full"}),
    ("POST", SOURCE + "/supervisor/resume"): Route(ONCE, body=lambda version: {"reason": "it was emptied"}),
    ("POST", SOURCE + "/supervisor/reset"): Route(
        ACTORS, body=lambda version: {"positions": {"state/waiting.json.gz": "earliest"}, "reason": "read it again"}
    ),
    ("POST", SOURCE + "/supervisor/audit"): Route(ACTORS, body=lambda version: {"reason": "the numbers differ"}),
    ("POST", SOURCE + "/supervisor/terminate"): Route(ONCE, body=lambda version: {"reason": "moved elsewhere"}),
    ("POST", "/connections/{connection_id}/supervisors/reset"): Route(
        ACTORS, body=lambda version: {"to": "earliest", "reason": "read it again"}
    ),
    ("POST", SOURCE + "/acknowledgments/{set_id:path}/release"): Route(
        ACTORS,
        body=lambda version: {"positive": True, "handle": "warehouse", "version": version},
        about="delivered/0.json.gz",
        stale=409,
    ),
}

VERB_PATHS = {
    name: (f"{SOURCE}/supervisor/{name}", f"/connections/{{connection_id}}/supervisors/{name}")
    for name, verb in VERBS.items()
    if verb.run is not None
}
"""The paths of verbs that take nothing but a reason, for one supervisor and for all."""
for verb_path in (path for paths in VERB_PATHS.values() for path in paths):
    TABLE.setdefault(("POST", verb_path), Route(ACTORS, body=lambda version: {"reason": "a new image"}))


@dataclass
class ServedSource:
    """A source with partitions in every state, as Airflow's API server reads it."""

    scenery: Scenery
    set_id: str

    def address(self, path: str, route: Route) -> str:
        names = {
            "{connection_id}": CONNECTION,
            "{source:path}": quote(NAME, safe=""),
            "{set_id:path}": quote(self.set_id, safe=""),
            "{owner:path}": "nobody",
            "{path:path}": "coordination.js",
            "{page}": "operations",
        }
        for placeholder, name in names.items():
            path = path.replace(placeholder, name)
        assert "{" not in path
        return f"{PREFIX}{path}{route.query}"

    def version(self, route: Route) -> int:
        if route.about is None:
            return 0
        if route.stale == 409:  # of a set
            found = self.scenery.store.get(source_identifier(NAME, family=SETS), self.set_id)
            assert found is not None
            return found.version
        return self.scenery.found(NAME, route.about).version

    def everything(self) -> list[Partition]:
        """Return all that the store holds."""
        store = self.scenery.store
        return [
            partition
            for family in store.source_identifiers()
            if not family.endswith("|HISTORY")
            for status in PartitionStatus
            for partition in store.query(family, status)
        ]


@pytest.fixture
def served_source(connect: Any, store_url: str) -> Iterator[ServedSource]:
    connect(CONNECTION, "coordination", extra={"url": store_url})
    scenery = Scenery(store_url)
    scenery.trouble(NAME)
    scenery.supervised(NAME)
    first, *_ = AcknowledgmentSets(scenery.worker(NAME)).view.pending()
    yield ServedSource(scenery, first.set_id)
    scenery.close()


def routes(api: Any) -> set[tuple[str, str]]:
    [mounted] = [route.app for route in api.routes if getattr(route, "path", None) == PREFIX]
    unknown = [route for route in mounted.routes if not isinstance(route, APIRoute)]
    assert not unknown, f"nothing is known of the access to {unknown}"
    return {(method, route.path) for route in mounted.routes for method in route.methods}


def test_every_route_is_in_the_table(api: Any) -> None:
    assert routes(api) == set(TABLE)


def test_every_route_is_in_the_manual() -> None:
    text = (REPOSITORY / "docs" / "http_api.md").read_text()
    documented = set(re.findall(r"^\| `((?:GET|POST) /coordination[^`]*)`", text, re.MULTILINE))
    short = {f"{method} {PREFIX}{path.replace(SOURCE, '/{source}')}" for method, path in TABLE}
    short = {
        re.sub(rf"/({'|'.join(VERB_PATHS)})$", "/{verb}", each) if "/supervisor" in each else each for each in short
    }
    assert documented == {re.sub(r"{(\w+?)(_id)?(:path)?}", r"<\1>", route) for route in short}


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("of a source", cards.SourceCard),
        ("of a partition", bodies.PartitionRow),
        ("of the details of a partition", partitions.PartitionDetail),
        ("of a shard", kinesis.ShardNode),
        ("of a holding", bodies.HoldingFacts),
        ("of a calendar", calendar.Calendar),
        ("of counted intervals", calendar.CountedIntervals),
        ("of a known interval", calendar.KnownInterval),
        ("of a run of an interval", calendar.IntervalRun),
        ("of a worker", workers.WorkerRow),
        ("of a supervisor", supervisors.SupervisorWithVerbs),
        ("of its task count", TaskCount),
        ("of its jobs", JobStatus),
        ("of its lag", LagStatus),
        ("of its errors", ErrorEvent),
        ("of a version of a spec", SpecDetail),
        ("body of a submission", bodies.SubmitBody),
        ("body of a reset", bodies.ResetBody),
        ("answer to a submission", supervisors.SubmissionFacts),
        ("answer to a reset", supervisors.ResetFacts),
        ("body of an action", bodies.ActionBody),
    ],
)
def test_every_field_is_in_the_manual(heading: str, model: type) -> None:
    _, _, table = (REPOSITORY / "docs" / "http_api.md").read_text().partition(f"\n| {heading} |")
    named = [
        name for line in table.split("\n\n")[0].splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    assert sorted(named) == sorted(
        _names(model) - (_names(bodies.PartitionRow) if model is partitions.PartitionDetail else set())
    )


def _names(model: Any) -> set[str]:
    return set(model.model_fields) if issubclass(model, BaseModel) else {each.name for each in fields(model)}


@pytest.mark.parametrize(("method", "path"), TABLE)
def test_every_role_gets_the_response_of_the_table(
    served_source: ServedSource, as_role: Any, method: str, path: str
) -> None:
    route = TABLE[method, path]
    address = served_source.address(path, route)

    def ask(who: str, **headers: str) -> int:
        client = as_role({"anonymous": None, "foreign": "admin"}.get(who, who))
        body = {} if route.body is None else {"json": route.body(served_source.version(route))}
        return int(client.request(method, address, headers=headers, **body).status_code)

    if path.endswith("/resume"):
        served_source.scenery.worker(NAME).view.suspensions.suspend()
    before = served_source.everything()
    answers = {who: ask(who) for who in ("anonymous", "viewer", "user")}
    foreign = {ask("foreign", **headers) for headers in FOREIGN}
    assert foreign == {route.expected["foreign"]}
    assert served_source.everything() == before, "who was refused has changed something"
    if route.stale is not None and route.body is not None:
        stale = as_role("admin").post(address, json=route.body(served_source.version(route) - 1))
        assert stale.status_code == route.stale
        assert route.stale != 200 or [each["outcome"] for each in stale.json()["results"]] == ["stale"]
        assert served_source.everything() == before, "who saw something else has changed something"
    answers |= {"op": ask("op"), "admin": ask("admin"), "foreign": next(iter(foreign))}
    assert answers == route.expected
    if method == "POST":
        # A partition of this source is unreadable, so that the source as a whole is not reset.
        assert (served_source.everything() == before) == path.endswith("/supervisors/reset")


@pytest.mark.parametrize(("method", "path"), TABLE)
def test_viewers_who_may_read_cannot_act(
    served_source: ServedSource, as_role: Any, viewers_may_read: None, method: str, path: str
) -> None:
    route = TABLE[method, path]
    address = served_source.address(path, route)
    body = {} if route.body is None else {"json": route.body(served_source.version(route))}
    before = served_source.everything()

    answers = {role: as_role(role).request(method, address, **body).status_code for role in ("viewer", "user")}
    stranger = as_role(None).request(method, address, **body).status_code

    assert answers == dict.fromkeys(answers, 403 if method == "POST" else route.expected["op"])
    assert (stranger, served_source.everything()) == (401, before)


@pytest.mark.parametrize("path", [path for method, path in TABLE if method == "POST"])
def test_actions_accept_only_small_json_bodies(served_source: ServedSource, as_role: Any, path: str) -> None:
    address, op = served_source.address(path, TABLE["POST", path]), as_role("op")
    before = served_source.everything()
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = op.post(address, content='{"reason": "x"}', headers={"Content-Type": media_type})
        assert answer.status_code == 415
    assert op.post(address, content="{", headers={"Content-Type": "application/json"}).status_code == 422
    assert op.post(address, json={"reason": "x" * 50_000}).status_code in (413, 422)
    assert served_source.everything() == before


@pytest.mark.parametrize("role", [None, "admin"])
def test_oversized_body_is_refused_for_every_role(served_source: ServedSource, as_role: Any, role: str | None) -> None:
    address, client = f"{PREFIX}/connections/{CONNECTION}/sources/x/suspend", as_role(role)
    too_much = b" " * 200_000
    for content in (too_much, iter([too_much])):  # the second one does not say how much comes
        answer = client.post(address, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert answer.json()["detail"].startswith("the request has more than 192000 bytes")


def test_same_origin_browser_may_act(served_source: ServedSource, as_role: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/team")
    route = TABLE["POST", SOURCE + "/suspend"]
    address = served_source.address(SOURCE + "/suspend", route)
    for headers in (
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://airflow.example"},
        {"Sec-Fetch-Site": "none"},
        {},
    ):
        assert as_role("op").post(address, json={"reason": "x"}, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/static", "/static/", "/", "/connections/"])
def test_other_paths_are_not_found(as_role: Any, path: str) -> None:
    assert as_role(None).get(f"{PREFIX}{path}").status_code in (401, 404)
    assert as_role("admin").get(f"{PREFIX}{path}").status_code == 404


def test_expired_session_is_reported_as_a_token_error(served_source: ServedSource, as_role: Any) -> None:
    answer = as_role(None).get(f"{PREFIX}/connections", headers={"Authorization": "Bearer nonsense"})
    assert answer.status_code in (401, 403)
    assert "token" in answer.json()["detail"].lower()
