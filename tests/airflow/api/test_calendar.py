"""The calendar: what is known of the intervals that a source counts, and of the runs that ingest its intervals."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.interval_names import IntervalName
from airflow_provider_coordination.coordination.intervals import IntervalLedger, Standing
from airflow_provider_coordination.coordination.source_statistics import known_sources
from airflow_provider_coordination.ui import calendar, sources
from airflow_provider_coordination.ui.calendar import window
from tests.support.scenery import HOUR, RUN, Scenery
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.integration, pytest.mark.share(0.3)]  # needs no server, but Airflow's API, and so seconds

DAY = timedelta(days=1)
YESTERDAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - DAY


@pytest.fixture
def scenery(connect: Any, store_url: str) -> Iterator[Scenery]:
    connect("coordination_default", "coordination", extra={"url": store_url})
    with closing(Scenery(store_url)) as made:
        yield made


@pytest.fixture
def op(as_role: Any) -> TestClient:
    client: TestClient = as_role("op")
    return client


def found(op: TestClient, source: str, page: str = "calendar", **query: Any) -> Any:
    path = f"/coordination/connections/coordination_default/sources/{quote(source, safe='')}/{page}"
    answer = op.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_calendar_has_what_the_ledger_knows(scenery: Scenery, op: TestClient) -> None:
    scenery.counted("clicks")
    this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    answer = found(op, "clicks")
    counted = answer["counted"]
    assert (counted["every"], at(counted["start"])) == (3600, this_hour - 50 * HOUR)
    late, taken, *others = counted["known"]
    assert (at(late["start"]), late["late"]["records"], late["counts"]) == (this_hour - 30 * HOUR, 12, None)
    assert (at(taken["start"]), taken["counts"]["records"]) == (at(counted["next"]), 1007)
    by = taken["reported_by"]
    assert (by["dag_id"], by["run_id"], by["map_index"]) == ("intervals_clicks", RUN, -1)
    assert [each["counts"]["records"] for each in others] == [300 + hours for hours in range(6, 0, -1)]
    assert {each["reported_by"] for each in others} == {None}
    assert (counted["is_exact"], answer["complete"], answer["runs"]) == (True, True, [])


def test_late_records_that_are_corrected_are_still_shown(scenery: Scenery, op: TestClient) -> None:
    scenery.counted("clicks")
    ledger = IntervalLedger(scenery.worker("clicks").view)
    assert ledger.take_correction("the corrector", lambda taken: Standing.RUNNING) is not None
    this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    scenery.tally("clicks", this_hour - 30 * HOUR, 3)
    late, *_ = found(op, "clicks")["counted"]["known"]
    assert (late["late"]["records"], late["corrected_by"]["name"]) == (15, "the corrector")


def test_calendar_changes_nothing_in_the_store(scenery: Scenery, op: TestClient) -> None:
    scenery.counted("clicks")
    families = [each for each in scenery.store.source_identifiers() if each.endswith(("|TALLY", "|LEDGER"))]
    before = [scenery.store.count_by_status(each) for each in families]
    found(op, "clicks")
    assert [scenery.store.count_by_status(each) for each in families] == before


def test_more_batches_than_are_read_make_counts_inexact(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenery.counted("clicks")
    monkeypatch.setattr(calendar, "MAX_TALLIES", 3)
    assert found(op, "clicks")["counted"]["is_exact"] is False


def test_runs_of_intervals_have_their_states(scenery: Scenery, op: TestClient) -> None:
    scenery.backfilled("clicks", YESTERDAY)
    scenery.make("clicks@home", {"a": lambda p: p})
    answer = found(op, "clicks", days=3)
    runs = {at(each["start"]): each for each in answer["runs"]}
    assert Counter(each["state"] for each in runs.values()) == {"complete": 18, "failed": 2, "running": 1, "waiting": 1}
    parked = runs[YESTERDAY + 3 * HOUR]
    assert (parked["state"], parked["parked"], parked["failing"]) == ("failed", 1, 1)
    assert (parked["partitions"]["COMPLETED"], parked["partitions"]["CLOSED"]) == (1, 1)
    assert runs[YESTERDAY + 4 * HOUR]["parked"] == 0
    assert YESTERDAY + 20 * HOUR not in runs
    assert (answer["counted"], answer["complete"]) == (None, True)


def test_interval_shows_the_calendar_of_its_whole_source(scenery: Scenery, op: TestClient) -> None:
    scenery.backfilled("clicks", YESTERDAY)
    name = str(IntervalName(source="clicks", start=YESTERDAY, end=YESTERDAY + HOUR))
    answer = found(op, name)
    assert (answer["whole"], len(answer["runs"])) == ("clicks", 22)
    assert "calendar" in found(op, name, "summary")["pages"]


def test_sources_with_backfills_alone_have_the_page(scenery: Scenery, op: TestClient) -> None:
    scenery.backfilled("clicks", YESTERDAY)
    scenery.make("click", {"a": lambda p: p})
    until(lambda: found(op, "clicks", "summary")["pages"] == ["calendar"])
    assert found(op, "click", "summary")["pages"] == []
    listed = op.get("/coordination/connections/coordination_default/sources").json()["sources"]
    assert {each["source"] for each in listed if "calendar" not in each["pages"]} == {"click"}


def test_status_waits_not_for_a_slow_list_of_sources(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenery.backfilled("clicks", YESTERDAY)
    may_end, begun = threading.Event(), threading.Event()

    def slow_names(*_: Any) -> list[str]:
        begun.set()
        may_end.wait(PATIENCE_SECONDS)
        return known_sources(scenery.store, None)

    def pages() -> list[str]:
        found_pages: list[str] = found(op, "clicks", "summary")["pages"]
        return found_pages

    monkeypatch.setattr(sources, "known_sources", slow_names)
    monkeypatch.setattr(sources, "RARELY", 0.0)
    assert pages() == []
    may_end.set()
    until(lambda: pages() == ["calendar"])
    may_end.clear()
    begun.clear()
    until(lambda: pages() and begun.is_set())
    try:
        assert pages() == ["calendar"]
    finally:
        may_end.set()


def test_only_sources_with_intervals_have_the_page(scenery: Scenery, op: TestClient) -> None:
    scenery.counted("clicks")
    scenery.make("orders", {"a": lambda p: p})
    assert "calendar" in found(op, "clicks", "summary")["pages"]
    assert found(op, "orders", "summary")["pages"] == []


def test_runs_outside_of_the_window_are_left_out(scenery: Scenery, op: TestClient) -> None:
    scenery.backfilled("clicks", YESTERDAY)
    assert found(op, "clicks", until=YESTERDAY.isoformat(), days=1)["runs"] == []
    assert len(found(op, "clicks", until=(YESTERDAY + HOUR).isoformat(), days=1)["runs"]) == 22


def test_runs_that_were_not_examined_are_listed(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenery.backfilled("clicks", YESTERDAY)
    monkeypatch.setattr(calendar, "SECONDS", 0.0)
    answer = found(op, "clicks")
    assert (len(answer["runs"]), answer["complete"]) == (22, False)
    assert {each["state"] for each in answer["runs"]} == {None}


def test_calendar_does_without_the_list_of_sources(
    scenery: Scenery, op: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: Any) -> list[str]:
        raise StoreUnavailableError("no response within 10 s")

    scenery.counted("clicks")
    monkeypatch.setattr(calendar, "source_names", unavailable)
    answer = found(op, "clicks")
    assert answer["counted"] is not None and answer["complete"] is False


@pytest.mark.parametrize("query", ["days=0", "days=63", "until=2026-01-01T00:00:00", "until=yesterday"])
def test_invalid_windows_are_refused(scenery: Scenery, op: TestClient, query: str) -> None:
    path = f"/coordination/connections/coordination_default/sources/clicks/calendar?{query}"
    assert op.get(path).status_code == 422


@pytest.mark.parametrize(
    ("until", "end"),
    [
        (None, YESTERDAY + 2 * DAY),
        (YESTERDAY, YESTERDAY),
        (YESTERDAY + HOUR, YESTERDAY + DAY),
        (YESTERDAY + 400 * DAY, YESTERDAY + 2 * DAY),
        (datetime.min.replace(tzinfo=UTC), datetime(1970, 3, 4, tzinfo=UTC)),
    ],
)
def test_window_ends_at_a_midnight(until: datetime | None, end: datetime) -> None:
    assert window(until, YESTERDAY + DAY + 5 * HOUR, 7) == (end - 7 * DAY, end)
