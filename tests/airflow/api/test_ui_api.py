"""The routes of the pages: each query and each action returns what the manual says."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.browsing import BrowsePosition
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.freshness import Ages
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, PartitionStatus, format_instant
from airflow_provider_coordination.coordination.source_statistics import ScanLimits
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.ui import actions, application, cards, holdings, kinesis, partitions_by_lag
from airflow_provider_coordination.ui.bodies import ActionBody, PartitionVersion
from airflow_provider_coordination.ui.page_tokens import write_token
from airflow_provider_coordination.ui.partitions import Cursor, ListOrder
from tests.coordination.unreliable_store import Fault, UnreliableStore
from tests.support.scenery import (
    DOWN,
    EPOCH,
    HOUR,
    MINUTE,
    ODD_KEYS,
    ODD_SOURCE,
    RUN,
    STREAM,
    TABLE,
    Scenery,
    owner,
    shard_of_table,
    soon,
)

pytestmark = [pytest.mark.integration, pytest.mark.share(0.3)]  # needs no server, but Airflow's API, and so seconds

CONNECTION = "/coordination/connections/coordination_default"
PASSWORD = "not-for-anyones-eyes"


@pytest.fixture
def scenery(connect: Any, store_url: str) -> Iterator[Scenery]:
    connect("coordination_default", "coordination", extra={"url": store_url})
    made = Scenery(store_url)
    yield made
    made.close()


@pytest.fixture
def op(as_role: Any) -> TestClient:
    client: TestClient = as_role("op", name="olga")
    return client


def at(source: str, route: str, connection: str = CONNECTION) -> str:
    return f"{connection}/sources/{quote(source, safe='')}/{route}"


def found(answer: Any) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def row(op: TestClient, source: str, key: str) -> Any:
    return found(op.get(at(source, "partition"), params={"key": key}))


def act(op: TestClient, source: str, action: str, *keys: str, **more: Any) -> list[Any]:
    seen = [{"key": key, "version": row(op, source, key)["version"]} for key in keys]
    body = {"partitions": seen, "reason": "paged at night", **more}
    results: list[Any] = found(op.post(at(source, f"partitions/{action}"), json=body))["results"]
    return results


def all_pages(op: TestClient, source: str, **query: Any) -> Iterator[Any]:
    after = None
    while True:
        page = found(op.get(at(source, "partitions"), params={**query, **({"after": after} if after else {})}))
        yield page["partitions"]
        if (after := page["next"]) is None:
            return


# What there is


def test_connections_are_the_visible_ones_with_their_problems(scenery: Scenery, as_role: Any, connect: Any) -> None:
    connect("broken", "coordination", extra={"store": "tape"})
    connect("lake", "aws", password=PASSWORD)
    connect("odd", "coordination", extra={"url": f"postgresql://u:{PASSWORD}@h:port/d"})
    for role, seen in (("viewer", []), ("user", []), ("op", ["broken", "coordination_default", "odd"])):
        answer = found(as_role(role).get("/coordination/connections"))
        assert [each["connection_id"] for each in answer["connections"]] == seen
    broken, default, odd = answer["connections"]
    assert "store 'tape' is not known; the known names are" in broken["problem"]
    assert "is not an SQLAlchemy URL" in odd["problem"] and PASSWORD not in odd["problem"]
    assert default == {"connection_id": "coordination_default", "may_change": True, "problem": None}


def test_viewer_sees_no_details_of_a_connection(
    scenery: Scenery, as_role: Any, connect: Any, viewers_may_read: None
) -> None:
    connect("broken", "coordination", extra={"store": "tape"})
    broken, default = found(as_role("viewer").get("/coordination/connections"))["connections"]
    unusable = "only users who may read the connection see why"
    assert broken == {"connection_id": "broken", "may_change": False, "problem": unusable}
    assert default == {"connection_id": "coordination_default", "may_change": False, "problem": None}


def test_connection_in_the_airflow_database_is_listed(scenery: Scenery, op: TestClient, store_url: str) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection(conn_id="stored", conn_type="coordination", extra=json.dumps({"url": store_url})))
    try:
        answer = found(op.get("/coordination/connections"))
        assert "stored" in [each["connection_id"] for each in answer["connections"]]
        assert found(op.get("/coordination/connections/stored/sources"))["sources"] == []
    finally:
        with create_session() as session:
            session.execute(sa.delete(Connection).where(Connection.conn_id == "stored"))


def test_card_has_the_status_of_a_source(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("orders")
    [card] = found(op.get(f"{CONNECTION}/sources"))["sources"]
    assert card["counts"] == {"UNASSIGNED": 4, "ASSIGNED": 4, "CLOSED": 3, "COMPLETED": 1}
    assert (card["kind"], card["parked"], card["failing"], card["expired_leases"]) == ("s3", 1, 3, 1)
    assert card["failing_partitions"][0]["partition_key"] == "state/parked.json.gz"
    assert (card["pending_sets"], card["suspended"], card["is_complete"]) == (2, None, True)
    assert sum(card["completed"]) == 1 and len(card["completed"]) == 12 and card["completed"][-1] == 1
    assert card["oldest_lease"]["owner"]["dag_id"] == "nightly_orders"
    alarms = [(alarm["level"], alarm["about"]) for alarm in card["alarms"]]
    assert alarms == [("error", "parked"), ("warning", "expired"), ("warning", "failing")]
    assert card == found(op.get(at("orders", "summary"))) | {"oldest_waiting_seconds": card["oldest_waiting_seconds"]}


def test_lost_data_raises_its_own_alarm(scenery: Scenery, op: TestClient) -> None:
    scenery.lost("clicks", 2)
    scenery.make("clicks", {"other": lambda partition: partition.failed("no luck").resting(PARKED_UNTIL)})
    card = found(op.get(at("clicks", "summary")))
    assert (card["parked"], card["lost"]) == (3, 2)
    lost, parked = (alarm for alarm in card["alarms"] if alarm["level"] == "error")
    assert (lost["about"], lost["manual"]) == ("lost", "data_loss#what-happens-after-a-loss")
    assert lost["text"].startswith(
        "2 partitions are parked, data is gone. Sync shards once with on_data_loss='earliest', reopen what stays "
        "parked, run a job with it. "
    )
    assert "(TRIM_HORIZON, 100): trimmed" in lost["text"]
    assert parked["text"] == "1 partition is parked. Reopen it once the cause is fixed"


def test_parked_partitions_raise_an_alarm_among_many_others(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "BOUNDS", ScanLimits(partitions=1000, seconds=0))
    resting = {f"{n:04}": lambda partition: partition.resting(soon(HOUR)) for n in range(600)}
    scenery.make("orders", resting | {"parked": lambda partition: partition.failed("no luck").resting(PARKED_UNTIL)})
    card = found(op.get(at("orders", "summary")))
    assert (card["is_complete"], card["parked"], card["failing"]) == (False, 1, 1)
    texts = [alarm["text"] for alarm in card["alarms"]]
    assert texts[0] == "1 partition is parked. Reopen it once the cause is fixed"
    assert texts[1].startswith("at least 1 partition is failing.")
    scenery.make("healthy", resting)
    assert found(op.get(at("healthy", "summary")))["failing"] is None


def test_target_of_freshness_out_of_reach_raises_an_alarm(scenery: Scenery, op: TestClient) -> None:
    scenery.too_slow("orders")
    [alarm] = found(op.get(at("orders", "summary")))["alarms"]
    assert (alarm["level"], alarm["about"], alarm["manual"]) == ("warning", "freshness", "tuning#set-a-target")
    assert alarm["text"] == (
        "the sinks cannot be as fresh as 2 s; raise 'freshness'. 95 % of the latest records were visible within 9.1 s"
    )


def test_unavailable_sink_raises_an_alarm_with_its_name(scenery: Scenery, op: TestClient) -> None:
    scenery.without_sink("orders")
    card = found(op.get(at("orders", "summary")))
    sinks = {sink["name"]: (sink["kind"], sink["is_exactly_once"], sink["waiting_batches"]) for sink in card["sinks"]}
    assert sinks == {"warehouse": ("sql", True, 3), "lake": ("delta", True, 0), "calls": ("foreach_batch", False, 0)}
    since = {sink["name"] for sink in card["sinks"] if sink["unavailable_since"] is not None}
    assert since == {"warehouse"}
    fresh = Ages.between(2, 2, 1).quantile(0.95)
    assert {(sink["name"], sink["freshness_p50"], sink["freshness_p95"]) for sink in card["sinks"]} == {
        ("warehouse", None, None),
        ("lake", fresh, fresh),
        ("calls", None, None),
    }
    [text] = [alarm["text"] for alarm in card["alarms"] if alarm["about"] == "sink"]
    assert text == (
        "sink 'warehouse' (sql) has been unavailable for 7 min, 3 batches wait. "
        f"Restore the sink; delivery then resumes automatically. Last error: {DOWN}"
    )


def test_sink_stays_known_after_its_job_ends(scenery: Scenery, op: TestClient) -> None:
    scenery.without_sink("orders")
    jobs = Jobs(scenery.worker("orders").view)
    [job] = jobs.unfinished()
    assert jobs.end(job.owner, {"ok": True})
    [sink, *_] = found(op.get(at("orders", "summary")))["sinks"]
    assert sink["name"] == "warehouse" and sink["unavailable_since"] is not None


def test_longest_lease_is_reported_after_many_later_changes(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", dict.fromkeys(("stuck", "busy"), lambda p: p))
    since = soon(-13 * MINUTE)
    scenery.change("orders", "stuck", lambda p: p.acquired(owner(0), soon(HOUR), since))
    for _ in range(6):  # each leaves a page of history
        scenery.change("orders", "busy", lambda p: p.acquired(owner(1), soon(HOUR), datetime.now(UTC)))
        scenery.change("orders", "busy", lambda p: p.given_up(datetime.now(UTC)))
    scenery.change("orders", "busy", lambda p: p.acquired(owner(1), soon(HOUR), datetime.now(UTC)))
    lease = found(op.get(at("orders", "summary")))["oldest_lease"]
    assert (lease["partition_key"], lease["is_longest"]) == ("stuck", True)
    assert 780 <= lease["held_for"] < 1000
    assert datetime.fromisoformat(row(op, "orders", "stuck")["held_since"]) == since


def test_lease_without_a_start_makes_the_longest_uncertain(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", dict.fromkeys(("unknown", "known"), lambda p: p))
    scenery.change("orders", "unknown", lambda p: p.acquired(owner(0), soon(HOUR)))
    lease = found(op.get(at("orders", "summary")))["oldest_lease"]
    assert (lease["partition_key"], lease["held_for"], lease["is_longest"]) == ("unknown", None, False)
    scenery.make("others", dict.fromkeys(("unknown", "known"), lambda p: p))
    scenery.change("others", "unknown", lambda p: p.acquired(owner(0), soon(HOUR)))
    scenery.change("others", "known", lambda p: p.acquired(owner(0), soon(2 * HOUR), soon(-MINUTE)))
    lease = found(op.get(at("others", "summary")))["oldest_lease"]
    assert (lease["partition_key"], lease["is_longest"]) == ("known", False) and lease["held_for"] >= 60


def test_longest_lease_is_uncertain_beyond_the_scan_limit(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source, looked_at in (("all", 20_000), ("some", 1)):
        monkeypatch.setattr(cards, "BOUNDS", ScanLimits(partitions=looked_at, seconds=3600))
        scenery.many(source, 5100)  # of which 510 are held, ten more than the store gives at once
        lease = found(op.get(at(source, "summary")))["oldest_lease"]
        assert lease["is_longest"] is (source == "all")


def test_instants_are_utc_and_source_names_are_arbitrary(scenery: Scenery, op: TestClient) -> None:
    scenery.odd()
    answer = found(op.get(f"{CONNECTION}/sources"))
    assert [card["source"] for card in answer["sources"]] == [ODD_SOURCE]
    assert answer["as_of"].endswith("Z") and datetime.fromisoformat(answer["as_of"]).tzinfo is not None
    assert found(op.get(at(ODD_SOURCE, "summary")))["parked"] == 3


def test_partitions_are_paged_in_the_requested_order(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("orders")
    rows = [each for page in all_pages(op, "orders", limit=2) for each in page]
    assert len({each["partition_key"] for each in rows}) == len(rows) == 12
    order = ["ASSIGNED", "CLOSED", "UNASSIGNED", "COMPLETED"]
    assert [each["status"] for each in rows] == sorted((each["status"] for each in rows), key=order.index)
    states = {each["partition_key"].split("/")[1].split(".")[0]: each["state"] for each in rows}
    assert states == {
        "0": "awaiting",
        "1": "awaiting",
        "held": "held",
        "expired": "expired",
        "resting": "resting",
        "due": "due",
        "parked": "parked",
        "waiting": "waiting",
        "delayed": "delayed",
        "failing": "waiting",
        "completed": "completed",
        "unreadable": "waiting",
    }
    backwards = [each for page in all_pages(op, "orders", limit=5, descending=True) for each in page]
    assert [each["partition_key"] for each in backwards] == [each["partition_key"] for each in reversed(rows)]
    by_key = [each["partition_key"] for page in all_pages(op, "orders", limit=5, order="key") for each in page]
    assert by_key == sorted(each["partition_key"] for each in rows)


@pytest.mark.parametrize("limit", [1, 2, 5, 500])
def test_urgency_order_lists_each_partition_once_most_urgent_first(
    scenery: Scenery, op: TestClient, limit: int
) -> None:
    scenery.trouble("orders")
    scenery.change("orders", "state/unreadable.json.gz", lambda p: p.acquired(owner(2), soon(-MINUTE), soon(-HOUR)))
    rows = [each for page in all_pages(op, "orders", order="urgency", limit=limit) for each in page]
    assert [each["state"] for each in rows] == [
        "parked", "expired", "expired", "resting", "due", "awaiting", "awaiting", "held", "waiting", "waiting",
        "delayed", "completed",
    ]  # fmt: skip
    assert len({each["partition_key"] for each in rows}) == 12


def test_urgency_order_applies_filters(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("orders")
    rows = [each for page in all_pages(op, "orders", order="urgency", failing=True, limit=1) for each in page]
    assert [each["state"] for each in rows] == ["parked", "resting", "waiting"]


@pytest.mark.parametrize("limit", [1, 7, 500])
@pytest.mark.parametrize("descending", [True, False])
def test_lag_order_ends_with_unknown_lags(scenery: Scenery, op: TestClient, limit: int, *, descending: bool) -> None:
    scenery.tree("telemetry", 30)
    rows = [
        each for page in all_pages(op, "telemetry", order="lag", descending=descending, limit=limit) for each in page
    ]
    known = [row["partition_key"] for row in rows if row["lag"] is not None]
    unknown = [row["partition_key"] for row in rows if row["lag"] is None]
    assert len(known) > 7
    assert known == sorted(known, reverse=descending), "each shard of the scenery is behind the one before it"
    assert unknown == sorted(unknown) and rows[-1]["lag"] is None
    assert len({row["partition_key"] for row in rows}) == len(rows) == 29


def test_lag_order_sorts_very_many_partitions_in_blocks(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions_by_lag, "EXAMINED_PER_PAGE", 10)
    scenery.tree("telemetry", 30)
    pages = list(all_pages(op, "telemetry", order="lag", descending=True, limit=8))
    keys = [[each["partition_key"] for each in page] for page in pages]
    by_key = [each["partition_key"] for page in all_pages(op, "telemetry", order="key") for each in page]
    assert [len(page) for page in pages] == [8, 2, 8, 2, 8, 1]
    assert [sorted(keys[at] + keys[at + 1]) for at in (0, 2, 4)] == [by_key[:10], by_key[10:20], by_key[20:]]


def test_lag_order_lists_partitions_of_equal_lag_by_key(scenery: Scenery, op: TestClient) -> None:
    shard = {"kind": "kinesis", "owed_since": format_instant(soon(-HOUR))}
    scenery.make("clicks", dict.fromkeys("bca", lambda p: p.with_progress(shard)))
    for descending in (True, False):
        pages = list(all_pages(op, "clicks", order="lag", descending=descending, limit=2))
        assert all(each["lag"] >= HOUR.total_seconds() for page in pages for each in page)
        assert [[each["partition_key"] for each in page] for page in pages] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": ["CLOSED"]}, ["due", "resting", "parked"]),
        ({"status": ["CLOSED", "COMPLETED"]}, ["due", "resting", "parked", "completed"]),
        ({"parked": "true"}, ["parked"]),
        ({"parked": "true", "status": ["ASSIGNED"]}, []),
        ({"failing": "true"}, ["resting", "parked", "failing"]),
        ({"expired": "true"}, ["expired"]),
        ({"search": "wait"}, ["waiting"]),
        ({"prefix": "state/de"}, ["delayed"]),
        ({"prefix": "delayed"}, []),
        ({"owner": "nightly_orders", "prefix": "state/"}, ["expired", "held"]),
    ],
)
def test_partitions_are_found_by_their_problem(
    scenery: Scenery, op: TestClient, query: Any, expected: list[str]
) -> None:
    scenery.trouble("orders")
    rows = found(op.get(at("orders", "partitions"), params=query))["partitions"]
    assert [each["partition_key"].removeprefix("state/").removesuffix(".json.gz") for each in rows] == expected


@pytest.mark.parametrize(
    "query",
    [
        {"after": "nonsense"},
        {"after": "W10"},
        {"after": "e30"},
        {"after": "bnVsbA"},
        {"after": "\u00fc"},
        {"after": "W1tbW1tbXV1dXV1d"},
        {"order": "key", "after": Cursor(position=BrowsePosition("", "\ud800")).write(ListOrder.KEY)},
        {"limit": "0"},
        {"limit": "501"},
        {"status": "LOST"},
        {"order": "owner"},
        {"order": "urgency", "descending": "true"},
        {"order": "lag", "after": Cursor(position=BrowsePosition("", "a")).write(ListOrder.LAG)},
        {"order": "lag", "after": write_token("lag", None, None, "a", "yesterday")},
        {"order": "lag", "after": write_token("lag", "\ud800", None, None, None)},
        {"order": "urgency", "after": Cursor(segment=6).write(ListOrder.URGENCY)},
        {"search": "\0"},
    ],
)
def test_invalid_query_is_refused_with_one_clear_line(scenery: Scenery, op: TestClient, query: Any) -> None:
    answer = op.get(at("orders", "partitions"), params=query)
    assert (answer.status_code, answer.json()["detail"].count("\n")) == (422, 0)
    assert answer.json()["detail"].startswith("query.")


def test_invalid_value_is_quoted_in_short(scenery: Scenery, op: TestClient) -> None:
    detail = op.get(at("orders", "partitions"), params={"limit": "x" * 1000}).json()["detail"]
    assert detail.startswith("query.limit: ") and "; got 'xxx" in detail
    assert len(detail) < 250


def test_page_token_of_another_order_is_refused(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("orders")
    following = found(op.get(at("orders", "partitions"), params={"limit": 1}))["next"]
    for order in ("key", "lag"):
        assert op.get(at("orders", "partitions"), params={"after": following, "order": order}).status_code == 422


def test_row_has_the_owner_and_the_progress(scenery: Scenery, op: TestClient) -> None:
    waiting = scenery.awaiting("orders", "a", "warehouse")
    [answer_json] = found(op.get(at("orders", "partitions")))["partitions"]
    owner = answer_json["owner"]
    assert owner["name"].endswith(":acknowledgment")
    assert (owner["dag_id"], owner["run_id"], owner["task_id"], owner["map_index"]) == (
        "nightly_orders", RUN, "ingest", 0,
    )  # fmt: skip
    assert (answer_json["kind"], answer_json["items_done"], answer_json["items"], answer_json["landed_batches"]) == (
        "s3",
        0,
        8,
        1,
    )
    assert answer_json["landed_records"] == 48_213
    whole = row(op, "orders", "a")
    assert whole["landed"][0]["acknowledgment_set"] == waiting.set_id
    assert (whole["landed"][0]["state"], whole["landed"][0]["file"]) == ("waiting", "s3://lake/landing/part-0.parquet")
    assert [each["set_id"] for each in whole["acknowledgment_sets"]] == [waiting.set_id]
    assert (whole["progress"]["kind"], whole["details"], whole["has_history"]) == ("s3", {}, True)


def test_unreadable_progress_is_shown_as_it_is(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("orders")
    whole = row(op, "orders", "state/unreadable.json.gz")
    assert (whole["is_readable"], whole["unreadable_progress"], whole["progress"]) == (False, '{"kind": "s3", "it', {})


def test_unencodable_text_hides_no_other_partition(scenery: Scenery, op: TestClient) -> None:
    half = {"kind": "kinesis", "shard_id": "\ud800", "checkpoint": "\ud800", "throughput": 10**400}
    scenery.make("orders", {"a": lambda p: p, "b": lambda p: p.with_progress(half)})
    rows = found(op.get(at("orders", "partitions")))["partitions"]
    assert [each["position"] for each in rows] == [None, "\ud800"]
    assert row(op, "orders", "b")["progress"] == half
    assert [each["source"] for each in found(op.get(f"{CONNECTION}/sources"))["sources"]] == ["orders"]


def test_transitions_of_a_partition_are_listed_latest_first(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"a": lambda p: p})
    worker = scenery.worker("orders")
    worker.leases.acquire(1)
    worker.leases.fail("a", "no space left on the sink")
    [result] = act(op, "orders", "park", "a")
    assert (result["outcome"], result["partition"]["state"]) == ("done", "parked")
    scenery.store.close()  # what it has gathered is written
    last, *before = row(op, "orders", "a")["transitions"]
    assert (last["status"], last["by"], "paged at night" in last["reason"]) == ("CLOSED", "olga", True)
    assert [each["kind"] for each in (last, *before)] == ["parked", "failed", "acquired"]


def test_partition_deleted_during_the_request_is_not_found(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"a": lambda p: p})
    seen = row(op, "orders", "a")
    scenery.store.delete(scenery.found("orders", "a"))
    body = {"partitions": [{"key": "a", "version": seen["version"]}], "reason": "x"}
    [result] = found(op.post(at("orders", "partitions/park"), json=body))["results"]
    assert (result["outcome"], result["partition"]) == ("missing", None)
    assert op.get(at("orders", "partition"), params={"key": "a"}).status_code == 404


@pytest.mark.parametrize("key", ODD_KEYS, ids=lambda key: key[:12])
def test_partition_key_may_be_any_text(scenery: Scenery, op: TestClient, key: str) -> None:
    scenery.make(ODD_SOURCE, {key: lambda p: p, "other": lambda p: p})
    assert row(op, ODD_SOURCE, key)["partition_key"] == key
    for action, state in (("park", "parked"), ("reopen", "waiting")):
        [result] = act(op, ODD_SOURCE, action, key)
        assert (result["outcome"], result["partition"]["state"]) == ("done", state)
    page = found(op.get(at(ODD_SOURCE, "partitions"), params={"search": key, "prefix": key[:1]}))
    assert [each["partition_key"] for each in page["partitions"]] == [key]


def test_family_tree_of_shards_shows_splits_merges_and_holes(scenery: Scenery, op: TestClient) -> None:
    scenery.tree("telemetry", 60)
    [tree] = found(op.get(at("telemetry", "shards")))["streams"]
    assert (tree["stream"], tree["epoch"]) == (STREAM, EPOCH)
    nodes = {node["shard_id"]: node for node in tree["shards"]}
    [missing] = [node for node in nodes.values() if node["state"] == "unleased"]
    assert missing["partition_key"] is None
    [hole] = tree["holes"]
    assert (hole["starting_hash_key"], hole["ending_hash_key"]) == (
        missing["starting_hash_key"], missing["ending_hash_key"],
    )  # fmt: skip
    order = list(nodes)
    for node in nodes.values():
        assert all(order.index(parent) < order.index(node["shard_id"]) for parent in node["parents"])
        assert all(node["shard_id"] in nodes[child]["parents"] for child in node["children"])
    assert {len(node["parents"]) for node in nodes.values()} == {0, 1, 2}
    whole = row(op, "telemetry", f"{STREAM}:{EPOCH}:{order[0]}")
    assert (whole["details"]["shard"]["shard_id"], whole["kind"], whole["lag"]) == (order[0], "kinesis", None)
    assert any("trimmed before it was read" in gap for gap in row_of_parked(op)["gaps"])


def test_family_tree_of_a_followed_table_has_its_histories(scenery: Scenery, op: TestClient) -> None:
    scenery.followed("customers")
    earlier, later = found(op.get(at("customers", "shards")))["streams"]
    assert [(tree["stream"], tree["epoch"]) for tree in (earlier, later)] == [(TABLE, EPOCH), (TABLE, EPOCH + 1)]
    assert earlier["history"] == {"completed": 4}
    assert later["history"] == {"completed": 2, "held": 1, "waiting": 1}
    nodes = {node["shard_id"][-1]: node for node in earlier["shards"]}
    assert "".join(nodes) == "aebcfd" and len(later["shards"]) == 2
    assert nodes["b"]["parents"] == [shard_of_table("a")] and nodes["b"]["children"] == [shard_of_table("d")]
    assert {node["starting_hash_key"] for node in nodes.values()} == {None}
    assert earlier["holes"] == later["holes"] == []
    assert nodes["d"]["lag"] is not None and nodes["f"]["state"] == "parked"


def test_followed_table_is_one_kind_with_its_page(scenery: Scenery, op: TestClient) -> None:
    scenery.followed("customers")
    card = found(op.get(at("customers", "summary")))
    assert (card["kind"], card["pages"]) == ("dynamodb_streams", ["shards"])
    keys = {row["partition_key"] for row in found(op.get(at("customers", "partitions")))["partitions"]}
    segment = next(key for key in keys if "/" in key)
    assert row(op, "customers", segment)["kind"] == "dynamodb_streams"
    assert row(op, "customers", segment)["details"] == {}


def test_shards_are_found_behind_a_long_history(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinesis, "SAMPLED_PER_STATUS", 0)
    scenery.followed("customers")
    trees = found(op.get(at("customers", "shards")))["streams"]
    assert [len(tree["shards"]) for tree in trees] == [6, 2]


def row_of_parked(op: TestClient) -> Any:
    [first, *_] = found(op.get(at("telemetry", "partitions"), params={"parked": True}))["partitions"]
    return row(op, "telemetry", first["partition_key"])


def test_source_without_shards_has_no_tree(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("orders")
    assert found(op.get(at("orders", "shards")))["streams"] == []


def test_timeline_has_the_owners_and_a_dead_worker(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenery.night("orders")
    since = (datetime.now(UTC) - timedelta(hours=4)).isoformat()
    answer_json = found(op.get(at("orders", "timeline"), params={"since": since}))
    assert (answer_json["has_history"], answer_json["complete"]) == (True, True)
    ends = {each["end"] for line in answer_json["partitions"] for each in line["holdings"]}
    assert {"completed", "failed", "expired", "released"} <= ends
    for line in answer_json["partitions"]:
        for former, latter in zip(line["holdings"], line["holdings"][1:], strict=False):
            assert former["ended_at"] <= latter["began_at"]
    one = answer_json["partitions"][0]["partition_key"]
    answer_json = found(op.get(at("orders", "timeline"), params={"since": since, "search": one}))
    assert [line["partition_key"] for line in answer_json["partitions"]] == [one]
    answer_json = found(op.get(at("orders", "timeline"), params={"since": since, "limit": 3}))
    assert (len(answer_json["partitions"]), answer_json["complete"]) == (3, False)
    monkeypatch.setattr(holdings, "MAX_HOLDINGS", 4)
    answer_json = found(op.get(at("orders", "timeline"), params={"since": since, "limit": 99}))
    assert 0 < sum(len(line["holdings"]) for line in answer_json["partitions"]) <= 4 and not answer_json["complete"]


def test_timeline_bounds_are_rounded_to_share_a_response(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"a": lambda p: p})
    day = f"{datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}"
    asked = ("00:00:01Z", "00:00:58Z"), ("00:00:09.5Z", "00:00:50.1Z")
    answers = {
        op.get(at("orders", "timeline"), params={"since": f"{day}T{since}", "until": f"{day}T{until}"}).text
        for since, until in asked
    }
    [answer_json] = map(json.loads, answers)
    assert (answer_json["since"], answer_json["until"]) == (f"{day}T00:00:00Z", f"{day}T00:01:00Z")


def test_timeline_has_the_current_owner_before_its_history(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"state/held.json.gz": lambda p: p})
    scenery.worker("orders").leases.acquire(1)
    answer_json = found(op.get(at("orders", "timeline")))
    [holding] = answer_json["partitions"][0]["holdings"]
    assert (holding["ended_at"], holding["end"], holding["owner"]["task_id"]) == (None, "held", "ingest")


def test_expired_lease_ends_on_the_timeline_without_a_takeover(scenery: Scenery, op: TestClient) -> None:
    scenery.died("orders", "dead")
    answer_json = found(op.get(at("orders", "timeline")))
    [holding] = answer_json["partitions"][0]["holdings"]
    assert (holding["end"], holding["ended_at"]) == ("expired", row(op, "orders", "dead")["leased_until"])
    assert holding["ended_at"] < answer_json["as_of"]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"since": "yesterday"}, "query.since: Input should be a valid datetime"),
        ({"since": "2026-01-01T00:00:00"}, "query.since: Input should have timezone info"),
        ({"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, "query.since: must be before 'until'"),
        ({"since": "2999-01-01T00:00:00Z"}, "query.since: must be before now"),
        ({"since": "9999-12-31T23:59:59-14:00"}, "query.since: must be before now"),
        ({"until": "0001-01-01T00:00:00Z"}, "query.until: more than 365 days ago"),
        ({"until": "0001-01-01T00:00:00+14:00"}, "query.until: more than 365 days ago"),
    ],
)
def test_invalid_time_is_refused(scenery: Scenery, op: TestClient, query: Any, detail: str) -> None:
    answer = op.get(at("orders", "timeline"), params=query)
    assert (answer.status_code, answer.json()["detail"].startswith(detail)) == (422, True), answer.text


@pytest.mark.parametrize(
    "query", [{"since": "0001-01-01T00:00:00+14:00"}, {"until": "9999-12-31T23:59:59-14:00"}], ids=["since", "until"]
)
def test_time_beyond_the_kept_history_is_cut(scenery: Scenery, op: TestClient, query: Any) -> None:
    scenery.make("orders", {"a": lambda p: p})
    answer_json = found(op.get(at("orders", "timeline"), params=query))
    assert "2020" < answer_json["since"] < answer_json["until"] <= answer_json["as_of"]


def test_workers_are_registered_ones_and_lease_owners(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", dict.fromkeys(("a", "b", "c"), lambda p: p))
    registered, other = scenery.worker("orders", 0), scenery.worker("orders", 1)
    registered.workers.register(max_leases=5, slots=8)
    registered.leases.acquire(2)
    other.leases.acquire(1)
    rows = found(op.get(at("orders", "workers")))["workers"]
    assert [(each["owner"]["map_index"], each["leases"], each["max_leases"], each["is_live"]) for each in rows] == [
        (0, 2, 5, True),
        (1, 1, None, True),
    ]
    assert (rows[1]["registered_until"], rows[0]["job"]) == (None, None)
    assert [each["slots"] for each in rows] == [8, None]


def test_run_lists_its_current_and_previous_leases(scenery: Scenery, as_role: Any, op: TestClient) -> None:
    scenery.make("orders", dict.fromkeys(("a", "b", "c"), lambda p: p))
    first, second = scenery.worker("orders", 0), scenery.worker("orders", 1)
    [done] = first.leases.acquire(1)
    first.leases.complete(done.partition_key, done.progress)
    [held] = first.leases.acquire(1)
    second.leases.acquire(1)
    scenery.store.close()
    asked = {"dag_id": "nightly_orders", "run_id": RUN}

    def rows(**query: Any) -> list[tuple[str, bool]]:
        answer = found(op.get("/coordination/runs", params={**asked, **query}))
        assert (answer["complete"], answer["unreachable"]) == (True, [])
        return [(each["partition_key"], each["is_held_now"]) for each in answer["partitions"]]

    assert rows() == [(held.partition_key, True), ("c", True), (done.partition_key, False)]
    assert rows(task_id="ingest", map_index=0) == [(held.partition_key, True), (done.partition_key, False)]
    assert rows(task_id="other") == []
    nobody = found(as_role("viewer").get("/coordination/runs", params=asked))
    assert nobody["partitions"] == []


# What may be pressed


def test_each_action_runs_in_the_name_of_its_user(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("orders")
    [released] = act(op, "orders", "release", "state/held.json.gz")
    assert released["partition"]["state"] == "waiting"
    [reopened] = act(op, "orders", "reopen", "state/parked.json.gz")
    assert (reopened["partition"]["state"], reopened["partition"]["attempts"]) == ("waiting", 0)
    [parked] = act(op, "orders", "park", "state/expired.json.gz")
    assert parked["partition"]["state"] == "parked" and "olga" in parked["partition"]["last_error"]
    [reset] = act(op, "orders", "reset", "state/completed.json.gz", to="earliest")
    assert (reset["outcome"], reset["partition"]["status"]) == ("done", "UNASSIGNED")


def test_stale_click_changes_nothing_and_gets_the_current_state(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("orders")
    key = "state/held.json.gz"
    seen = row(op, "orders", key)["version"]
    scenery.store.transact(update=[scenery.found("orders", key).renewed(datetime.now(UTC) + timedelta(hours=7))])
    now = scenery.found("orders", key)
    for action, more in (("release", {}), ("park", {}), ("reset", {"to": "earliest"})):
        body = {"partitions": [{"key": key, "version": seen}], "reason": "x", **more}
        [result] = found(op.post(at("orders", f"partitions/{action}"), json=body))["results"]
        assert (result["outcome"], result["partition"]["version"]) == ("stale", now.version)
        assert "has changed since it was read" in result["detail"]
    assert scenery.found("orders", key) == now


def test_bulk_action_returns_an_outcome_per_partition(scenery: Scenery, op: TestClient) -> None:
    scenery.trouble("orders")
    keys = ["state/resting.json.gz", "state/completed.json.gz", "state/due.json.gz"]
    seen = [{"key": key, "version": row(op, "orders", key)["version"]} for key in keys]
    seen += [{"key": "state/parked.json.gz", "version": 1}, {"key": "never/was", "version": 1}]
    body = {"partitions": seen, "reason": "the sink is back"}
    results = found(op.post(at("orders", "partitions/reopen"), json=body))["results"]
    assert [(each["key"], each["outcome"]) for each in results] == [
        ("state/resting.json.gz", "done"),
        ("state/completed.json.gz", "refused"),
        ("state/due.json.gz", "done"),
        ("state/parked.json.gz", "stale"),
        ("never/was", "missing"),
    ]


@pytest.mark.parametrize("to", ["earliest", "latest", "2026-01-01T00:00:00Z", "12345678901234567890"])
def test_shard_is_reset_to_the_requested_position(scenery: Scenery, op: TestClient, to: str) -> None:
    scenery.tree("telemetry", 10)
    [held, *_] = found(op.get(at("telemetry", "partitions"), params={"status": "ASSIGNED"}))["partitions"]
    [result] = act(op, "telemetry", "reset", held["partition_key"], to=to)
    assert (result["outcome"], result["partition"]["state"]) == ("done", "waiting")
    position = row(op, "telemetry", held["partition_key"])["position"]
    assert position.startswith({"earliest": "TRIM_HORIZON", "12345678901234567890": to}.get(to, "AT_TIMESTAMP:"))


def test_partition_without_the_position_is_refused_and_others_reset(scenery: Scenery, op: TestClient) -> None:
    scenery.tree("mixed", 10)
    scenery.make("mixed", {"an object": lambda p: p})
    [shard, *_] = found(op.get(at("mixed", "partitions"), params={"status": "ASSIGNED"}))["partitions"]
    results = act(op, "mixed", "reset", "an object", shard["partition_key"], to="latest")
    assert [each["outcome"] for each in results] == ["refused", "done"]


@pytest.mark.parametrize(
    ("action", "change", "detail"),
    [
        ("park", {"reason": "  "}, "body.reason"),
        ("park", {"reason": "x" * 501}, "body.reason"),
        ("park", {"partitions": []}, "body.partitions"),
        ("park", {"partitions": [{"key": "a"}]}, "body.partitions.0.version"),
        ("park", {"partitions": [{"key": "a", "version": "1"}]}, "body.partitions.0.version"),
        ("park", {"partitions": [{"key": "", "version": 1}]}, "body.partitions.0.key"),
        ("park", {"partitions": [{"key": "a", "version": 1}] * 501}, "body.partitions"),
        ("park", {"partitions": [{"key": "a", "version": 1}] * 2}, "body.partitions"),
        ("park", {"force": True}, "body.force"),
        ("park", {"to": "latest"}, "body.to"),
        ("reset", {}, "body.to"),
        ("reset", {"to": "2999-01-01T00:00:00Z"}, "body.to"),
        ("reset", {"to": "12", "partitions": [{"key": "a", "version": 1}, {"key": "b", "version": 1}]}, "body.to"),
    ],
)
def test_invalid_action_is_refused_as_a_whole(
    scenery: Scenery, op: TestClient, action: str, change: dict[str, Any], detail: str
) -> None:
    scenery.make("orders", {"a": lambda p: p, "b": lambda p: p})
    before = scenery.found("orders", "a")
    body = {"partitions": [{"key": "a", "version": before.version}], "reason": "x", **change}
    answer = op.post(at("orders", f"partitions/{action}"), json=body)
    assert (answer.status_code, answer.json()["detail"].split(":")[0]) == (422, detail)
    assert scenery.found("orders", "a") == before


def test_invalid_shard_position_is_refused_as_a_whole(scenery: Scenery, op: TestClient) -> None:
    scenery.tree("telemetry", 4)
    [seen, *_] = found(op.get(at("telemetry", "partitions")))["partitions"]
    body = {"partitions": [{"key": seen["partition_key"], "version": seen["version"]}], "reason": "x", "to": "tomorrow"}
    answer = op.post(at("telemetry", "partitions/reset"), json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(
        "body.to: position 'tomorrow' is neither 'earliest', 'latest', an instant"
    )
    assert row(op, "telemetry", seen["partition_key"])["version"] == seen["version"]


def test_refusal_shows_our_message_alone(scenery: Scenery, op: TestClient) -> None:
    body = {"partitions": [{"key": "a", "version": 1}] * 2, "reason": "x"}
    answer = op.post(at("orders", "partitions/park"), json=body)
    assert answer.json() == {"detail": "body.partitions: a key occurs twice; send each partition once"}
    answer = op.get(at("orders", "partition"), params={"key": "a\0"})
    assert answer.json()["detail"].startswith("query.key: partition key 'a\\x00' is not usable: give text")


@pytest.mark.parametrize("content", ["", " ", "{", "[" * 30_000])
def test_action_without_a_body_is_refused_with_the_format(scenery: Scenery, op: TestClient, content: str) -> None:
    answer = op.post(at("orders", "suspend"), content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert "body" in answer.json()["detail"]


def test_action_accepts_no_query_parameters(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"a": lambda p: p})
    answer = op.post(at("orders", "suspend"), params={"new_source": "true"}, json={"reason": "x"})
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "query.new_source: an action accepts no query parameters; send it in the body",
    )


def test_invalid_body_is_not_in_the_audit_log(scenery: Scenery, op: TestClient) -> None:
    before = audited()
    assert op.post(at("orders", "suspend"), json={"reason": "x", "dag_id": {}}).status_code == 422
    assert audited() == before


def audited() -> int:
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    with create_session() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(Log)) or 0


def test_unavailable_store_ends_a_bulk_action_with_partial_results(api: Any) -> None:
    store = UnreliableStore(InMemoryStore())
    coordinator = SourceCoordinator(store, "orders", "http")
    coordinator.initialize()
    coordinator.create_partitions({key: {} for key in "abc"})
    seen = [
        PartitionVersion(key=key, version=partition.version)
        for key in "abc"
        if (partition := coordinator.view.get(key))
    ]
    store.fault = Fault(after=lambda: setattr(store, "away", True))
    store.calls.clear()
    results = actions.ACTIONS["park"](coordinator, ActionBody(partitions=seen, reason="x"), "olga")
    assert [(each.outcome, each.detail) for each in results] == [
        ("done", ""),
        ("refused", actions.OUTCOME_UNKNOWN),
        ("refused", actions.NOT_TRIED),
    ]
    assert store.calls == ["get", "transact", "get"]


def test_source_is_suspended_and_resumed(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"a": lambda p: p})
    card = found(op.post(at("orders", "suspend"), json={"reason": "the sink is full"}))
    assert (card["suspended"]["by"], card["suspended"]["reason"]) == ("olga", "the sink is full")
    assert any("suspended by olga" in alarm["text"] for alarm in card["alarms"])
    assert scenery.worker("orders").leases.acquire(1) == []
    assert found(op.post(at("orders", "resume"), json={"reason": "it was emptied"}))["suspended"] is None
    assert len(scenery.worker("orders").leases.acquire(1)) == 1


def test_misspelt_source_is_refused_with_similar_names(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"a": lambda p: p})
    scenery.make("returns", {"a": lambda p: p})
    answer = op.post(at("ordesr", "suspend"), json={"reason": "the sink is full"})
    assert answer.status_code == 404
    assert answer.json()["detail"] == (
        "the store has no data of source 'ordesr'; did you mean 'orders'? Check the name, or send "
        '"new_source": true to suspend it before it exists'
    )
    assert [card["source"] for card in found(op.get(f"{CONNECTION}/sources"))["sources"]] == ["orders", "returns"]


def test_source_may_be_suspended_before_it_exists(scenery: Scenery, op: TestClient) -> None:
    body = {"reason": "the sink is not there yet", "new_source": True}
    assert found(op.post(at("new", "suspend"), json=body))["suspended"]["by"] == "olga"
    again = found(op.post(at("new", "suspend"), json={"reason": "x"}))
    assert again["suspended"]["reason"] == "the sink is not there yet"


def test_source_with_an_empty_supplier_is_known(scenery: Scenery, op: TestClient) -> None:
    assert scenery.worker("orders").supply(lambda state: iter(())) == []
    assert op.post(at("orders", "suspend"), json={"reason": "x"}).status_code == 200


def test_resume_keeps_a_suspension_unseen_by_the_user(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"a": lambda p: p})
    seen = found(op.post(at("orders", "suspend"), json={"reason": "the sink is full"}))["suspended"]["since"]
    op.post(at("orders", "resume"), json={"reason": "it was emptied"})
    op.post(at("orders", "suspend"), json={"reason": "the stream is wrong"})
    answer = op.post(at("orders", "resume"), json={"reason": "it was emptied", "since": seen})
    assert (answer.status_code, "was suspended again" in answer.json()["detail"]) == (409, True)
    suspension = found(op.get(at("orders", "summary")))["suspended"]
    assert suspension["reason"] == "the stream is wrong"
    assert op.post(at("orders", "resume"), json={"reason": "x", "since": suspension["since"]}).status_code == 200


def test_actions_are_in_the_audit_log_and_the_log(
    scenery: Scenery, op: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    scenery.make("orders", {"a\nb": lambda p: p})
    with caplog.at_level(logging.INFO, logger="airflow_provider_coordination.ui"):
        act(op, "orders", "park", "a\nb")
    [line] = [record.getMessage() for record in caplog.records if record.name.endswith("ui.access")]
    assert line == (
        "park of partitions by 'olga' over HTTP: connection='coordination_default' source='orders' "
        "reason='paged at night' outcome=['a\\nb: done']"
    )
    with create_session() as session:
        event = session.scalars(sa.select(Log).order_by(Log.id.desc()).limit(1)).one()
        assert (event.event, event.owner) == ("coordination.park_partitions", "olga")
        said = json.loads(event.extra or "")
    assert (said["connection_id"], said["source"], said["reason"]) == (
        "coordination_default",
        "orders",
        "paged at night",
    )
    assert said["partitions"][0]["key"] == "a\nb"


def test_actions_are_visible_at_once(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"a": lambda p: p})
    for action, state in (("park", "parked"), ("reopen", "waiting")) * 3:
        act(op, "orders", action, "a")
        [answer_json] = found(op.get(at("orders", "partitions")))["partitions"]
        assert answer_json["state"] == state


# What goes wrong


def everything(connection: str = CONNECTION) -> list[str]:
    routes = ("summary", "partitions", "partition?key=a", "shards", "timeline", "workers", "acknowledgments")
    return [f"{connection}/sources", *(at("orders", route, connection) for route in routes)]


def test_action_that_airflow_cannot_record_is_refused(scenery: Scenery, op: TestClient) -> None:
    scenery.make("orders", {"a": lambda p: p})
    body = {"partitions": [{"key": "a", "version": row(op, "orders", "a")["version"]}], "reason": "x"}
    with closing(sqlite3.connect(urlsplit(os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]).path)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = op.post(at("orders", "partitions/park"), json=body)
        other.rollback()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    assert answer.json() == {"detail": "Airflow's database is unavailable; try again"}
    assert row(op, "orders", "a")["state"] == "waiting"
    assert found(op.post(at("orders", "partitions/park"), json=body))["results"][0]["outcome"] == "done"


def test_unavailable_store_affects_no_other_connection(
    scenery: Scenery, as_role: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scenery.make("orders", {"a": lambda p: p})
    connect("away", "coordination", login="u", password=PASSWORD, extra={"url": "postgresql://127.0.0.1:1/nothing"})
    away, admin = "/coordination/connections/away", as_role("admin")
    for path in everything(away):
        answer = admin.get(path)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert answer.json() == {"detail": "the store is unavailable; try again"}
    body = {"partitions": [{"key": "a", "version": 1}], "reason": "x"}
    assert admin.post(at("orders", "partitions/park", away), json=body).status_code == 503
    assert [admin.get(path).status_code for path in everything()] == [200] * len(everything())
    runs = found(admin.get("/coordination/runs", params={"dag_id": "nightly_orders", "run_id": RUN}))
    assert (runs["unreachable"], runs["complete"]) == (["away"], False)
    assert admin.get("/api/v2/version").status_code == 200
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    ("connection", "status_code", "detail"),
    [
        ("lake", 422, "connection 'lake' is of type 'aws'; name one of type 'coordination'"),
        ("nope", 404, "connection 'nope' is not defined"),
    ],
)
def test_unusable_connection_is_named(
    scenery: Scenery, op: TestClient, connect: Any, connection: str, status_code: int, detail: str
) -> None:
    connect("lake", "aws", password=PASSWORD)
    paths = everything(f"/coordination/connections/{connection}")
    responses = [op.get(path) for path in paths]
    assert len(responses) > 5
    assert {(each.status_code, each.json()["detail"]) for each in responses} == {(status_code, detail)}


def test_fifty_tabs_share_their_queries(scenery: Scenery, op: TestClient) -> None:
    scenery.many("orders", 200)
    asked, counting = [], threading.Lock()

    def note(connection: Any, cursor: Any, statement: str, *args: Any) -> None:
        with counting:
            asked.append(statement)

    assert op.get(at("orders", "summary")).status_code == 200  # the store is open now
    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        with ThreadPoolExecutor(50) as tabs:
            answers = list(tabs.map(lambda n: op.get(at("orders", "partitions")), range(50)))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) <= 5
    assert 1 <= len([statement for statement in asked if "coordination_partition" in statement]) <= 25


def test_changed_connection_leads_to_the_other_store(
    scenery: Scenery, op: TestClient, connect: Any, queries: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    scenery.make("orders", {"a": lambda p: p})
    assert len(found(op.get(f"{CONNECTION}/sources"))["sources"]) == 1
    connect("coordination_default", "coordination", extra={"url": f"sqlite:///{tmp_path}/other.db"})
    monkeypatch.setattr("airflow_provider_coordination.ui.store_queries.CONNECTION_SECONDS", 0.0)
    assert found(op.get(at("orders", "partitions")))["partitions"] == []


def test_credentials_of_a_store_are_in_no_response(
    scenery: Scenery, op: TestClient, connect: Any, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/coordination.db?password={PASSWORD}"
    connect("secretive", "coordination", extra={"url": url, "table": "clicks"})
    connect("wrong", "coordination", login="u", password=PASSWORD, extra={"url": url, "store": "sql"})
    paths = [path for name in ("secretive", "wrong") for path in everything(f"/coordination/connections/{name}")]
    for path in ["/coordination/connections", *paths]:
        answer = op.get(path)
        assert PASSWORD not in answer.text + str(answer.headers)


# The pages' modules


def test_unchanged_module_is_not_sent_again(as_role: Any) -> None:
    viewer = as_role("viewer")
    answer = viewer.get("/coordination/static/coordination.js")
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-cache", "nosniff")
    tag = answer.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        again = viewer.get("/coordination/static/coordination.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert viewer.get("/coordination/static/coordination.js", headers={"If-None-Match": '"x"'}).status_code == 200


def test_module_is_cached_only_under_its_versioned_url(as_role: Any) -> None:
    viewer = as_role("viewer")

    def kept(edition: str) -> bool:
        answer = viewer.get(f"/coordination/static/{edition}/coordination.js")
        assert answer.status_code == 200
        return "immutable" in answer.headers["cache-control"]

    assert kept(application.edition())
    assert not kept("0" * 16)


def test_checkout_without_the_bundle_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, as_role: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(application, "FOLDER", tmp_path)
    answer = as_role("viewer").get("/coordination/static/coordination.js")
    assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert "run `make venv` in the checkout" in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "../plugin.py",
        "0123456789abcdef/../plugin.py",
        "0123456789abcdef/nothing.js",
        "..%2fplugin.py",
        "%2e%2e/plugin.py",
        "%2fetc%2fpasswd",
        "nothing.js",
        "%00.js",
        "x" * 5000 + ".js",
        "",
        ".",
    ],
)
def test_other_static_paths_are_not_served(as_role: Any, path: str) -> None:
    assert as_role("admin").get(f"/coordination/static/{path}").status_code in (404, 405)


def test_every_file_of_the_pages_has_a_served_type() -> None:
    kinds = {file.suffix for file in application.FOLDER.rglob("*") if file.is_file()}
    assert kinds and kinds <= set(application.MEDIA_TYPES)


def test_set_that_ends_during_the_request_is_left_out(scenery: Scenery, op: TestClient) -> None:
    waiting = scenery.awaiting("orders", "a", "warehouse")
    AcknowledgmentSets(scenery.worker("orders"), SourceBatches()).cancel(waiting.set_id, "the sink was emptied")
    answer_json = row(op, "orders", "a")
    assert answer_json["status"] == PartitionStatus.UNASSIGNED
