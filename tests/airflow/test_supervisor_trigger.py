"""The trigger of a supervisor polls the source, and fires only when a turn is needed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.triggers import supervisor
from airflow_provider_coordination.triggers.supervisor import SupervisorTrigger, mark_of
from tests.airflow.conftest import SECRET, FakeKinesis
from tests.support.waiting import until
from tests.support.watched import WatchedStore, first_payload, watched_store

BEGAN = datetime.now(UTC) - timedelta(minutes=5)
CLAIMANT = Claimant(
    owner="airflow:supervise_clicks:run:supervise:-1:1:supervisor", dag_id="supervise_clicks", run_at=BEGAN
)
SPEC = {
    "version": 1,
    "reads": {"kinesis": {"streams": "clicks"}},
    "writes": [{"parquet": {"path": "/lake/clicks"}}],
    "supervise": {"start_delay": 0, "period": 1},
}


@pytest.fixture
def store(connect: Any, kinesis: FakeKinesis) -> Iterator[WatchedStore]:
    kinesis.streams["clicks"] = ["shardId-000000000000"]
    connect("coordination_default", "coordination", extra={"url": "sqlite:////nowhere/coordination.db"})
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra=extra)
    with watched_store() as store:
        yield store


@pytest.fixture
def source(store: WatchedStore) -> SourceCoordinator:
    coordinator = SourceCoordinator(store.store, "clicks", "a person")
    coordinator.initialize()
    return coordinator


@pytest.fixture
def supervision(source: SourceCoordinator) -> SupervisionStore:
    return SupervisionStore(source.view)


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FILE_POLL_SECONDS", 0.01)


def trigger(
    claimant: Claimant = CLAIMANT, until: datetime | None = None, file: Path | None = None, mark: str = ""
) -> SupervisorTrigger:
    return SupervisorTrigger(
        source="clicks",
        claimant=claimant.to_mapping(),
        until=None if until is None else format_instant(until),
        spec_file=None if file is None else str(file),
        file_mark=mark,
    )


def test_trigger_waits_for_the_first_spec(supervision: SupervisionStore) -> None:
    payload = first_payload(trigger(), while_waiting=lambda: supervision.submit(SPEC, by="a person"))

    assert (payload["status"], payload["source"]) == ("turn", "clicks")


def test_idle_trigger_keeps_the_lease_and_records_the_poll(
    supervision: SupervisionStore, source: SourceCoordinator
) -> None:
    supervision.submit(SPEC)
    source.view.suspensions.suspend(by="a person")

    def resume_once_seen() -> None:
        until(lambda: (stored := supervision.get()) and stored.supervision.polled_at)
        source.view.suspensions.resume()

    first_payload(trigger(), while_waiting=resume_once_seen)

    stored = supervision.get()
    assert stored is not None and stored.claimant == CLAIMANT
    assert stored.supervision.polled_at is not None
    assert Jobs(source.view).unfinished() == []


def test_trigger_ends_once_a_later_run_supervises(supervision: SupervisionStore) -> None:
    supervision.acquire(Claimant(owner="later", dag_id="supervise_clicks", run_at=BEGAN + timedelta(minutes=1)))

    assert first_payload(trigger())["status"] == "elsewhere"


def test_trigger_wakes_at_the_end_of_the_run(store: WatchedStore) -> None:
    assert first_payload(trigger(until=datetime.now(UTC)))["status"] == "over"


def test_trigger_wakes_once_for_an_edited_spec_file(tmp_path: Path, store: WatchedStore) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text("one")

    def edit() -> None:  # at once, as the trigger may read the file at any moment
        edited = tmp_path / "edited"
        edited.write_text("two")
        edited.replace(file)

    payload = first_payload(trigger(file=file, mark=mark_of(str(file))), while_waiting=edit)

    assert (payload["status"], payload["file_mark"]) == ("edited", mark_of(str(file)))
    until = datetime.now(UTC) + timedelta(seconds=0.2)
    assert first_payload(trigger(file=file, mark=payload["file_mark"], until=until))["status"] == "over"


def test_missing_file_wakes_the_trigger_and_is_recorded(tmp_path: Path, supervision: SupervisionStore) -> None:
    supervision.submit(SPEC)
    payload = first_payload(trigger(file=tmp_path / "gone.yaml", mark="of what it was"))

    assert (payload["status"], payload["file_mark"]) == ("edited", "")
    stored = supervision.get()
    assert stored is not None
    [error] = [each for each in stored.supervision.health.errors if "gone.yaml" in each.message]
    assert error.error_class == "ConfigurationError"


def test_folder_unseen_by_the_triggerer_is_no_error(tmp_path: Path, supervision: SupervisionStore) -> None:
    supervision.submit(SPEC)
    payload = first_payload(trigger(file=tmp_path / "elsewhere" / "clicks.yaml", mark="of what it was"))

    assert (payload["status"], payload["file_mark"]) == ("edited", "")
    stored = supervision.get()
    assert stored is not None
    assert [each for each in stored.supervision.health.errors if "clicks.yaml" in each.message] == []


def test_another_triggerer_restores_the_same_trigger() -> None:
    made = trigger(until=BEGAN, file=Path("/specs/clicks.yaml"), mark="m")
    path, arguments = made.serialize()

    assert path == "airflow_provider_coordination.triggers.supervisor.SupervisorTrigger"
    assert SupervisorTrigger(**arguments).serialize() == made.serialize()
    assert arguments["claimant"]["run_at"] == format_instant(BEGAN)
