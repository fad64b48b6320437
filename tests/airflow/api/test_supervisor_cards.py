"""The alarms of a supervisor on the overview. A supervisor whose DAG is paused is suspended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_coordination.supervisor.status import UNSUPERVISED_AFTER
from airflow_provider_coordination.supervisor.store import LEASE
from tests.support.supervised import SupervisedSource

pytestmark = pytest.mark.integration  # needs no server, but Airflow's API, and so seconds

SOURCES = "/coordination/connections/coordination_default/sources"
DAG = "supervise_clicks"


@pytest.fixture
def supervise(connect: Any, store_url: str) -> Iterator[Callable[..., SupervisedSource]]:
    """Makes the supervised source `clicks`, whose clock began some minutes ago."""
    connect("coordination_default", "coordination", extra={"url": store_url})
    with ExitStack() as stack:

        def make(minutes: int = 2) -> SupervisedSource:
            source = SupervisedSource(store_url, "clicks", dag_id=DAG, minutes=minutes)
            stack.callback(source.close)
            source.submit_spec("supervise.start_delay", 0, by="ann", reason="first")
            source.turn()
            source.minutes(2)
            return source

        yield make


@pytest.fixture
def paused(api: Any) -> Iterator[None]:
    """The DAG that supervises, paused."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(DagBundleModel(name="of-the-test"))
        session.flush()
        session.merge(DagModel(dag_id=DAG, bundle_name="of-the-test", is_paused=True))
    yield
    with create_session() as session:
        session.execute(sa.delete(DagModel).where(DagModel.dag_id == DAG))
        session.execute(sa.delete(DagBundleModel).where(DagBundleModel.name == "of-the-test"))


def card(as_role: Any) -> Any:
    answer = as_role("op").get(f"{SOURCES}/clicks/summary")
    assert answer.status_code == 200, answer.text
    return answer.json()


def of_supervisor(found: Any) -> list[tuple[str, str]]:
    return [(alarm["level"], alarm["text"]) for alarm in found["alarms"] if alarm["about"] == "supervisor"]


def test_healthy_supervisor_has_a_page_and_no_alarm(supervise: Callable[..., SupervisedSource], as_role: Any) -> None:
    supervise()
    found = card(as_role)

    assert "supervisor" in found["pages"]
    assert of_supervisor(found) == []


def test_unhealthy_supervisor_raises_an_alarm_with_its_last_error(
    supervise: Callable[..., SupervisedSource], as_role: Any
) -> None:
    supervise(minutes=4).losing_contact()

    [(level, text)] = of_supervisor(card(as_role))

    assert level == "error"
    assert text.startswith(
        "the supervisor is in state LOST_CONTACT_WITH_STREAM. Fix the cause; it recovers automatically. "
        "Last error: SourceError: stream 'clicks'"
    )


def test_supervisor_idle_for_minutes_raises_an_alarm(supervise: Callable[..., SupervisedSource], as_role: Any) -> None:
    supervise(minutes=2 + int((UNSUPERVISED_AFTER + LEASE) / timedelta(minutes=1)) + 1)

    assert of_supervisor(card(as_role)) == [
        ("error", "the supervisor has stopped running. Check that DAG 'supervise_clicks' has a run")
    ]


def test_paused_dag_raises_no_alarm_of_the_supervisor_state(
    supervise: Callable[..., SupervisedSource], as_role: Any, paused: None
) -> None:
    supervise(minutes=60)

    assert of_supervisor(card(as_role)) == [
        ("warning", "the supervisor's DAG 'supervise_clicks' is paused. Unpause it to continue")
    ]
    op = as_role("op")
    assert op.get(f"{SOURCES}/clicks/supervisor").json()["dag_is_paused"] is True
    [row] = op.get("/coordination/connections/coordination_default/supervisors").json()["supervisors"]
    assert row["dag_is_paused"] is True


def test_suspended_source_raises_only_that_alarm(supervise: Callable[..., SupervisedSource], as_role: Any) -> None:
    supervise(minutes=60).suspend()
    found = card(as_role)

    assert [alarm["about"] for alarm in found["alarms"] if alarm["about"] in ("suspended", "supervisor")] == [
        "suspended"
    ]
