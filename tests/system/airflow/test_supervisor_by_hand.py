"""What people and machines do to a supervisor under a whole Airflow: its job goes on, nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import parse_instant
from airflow_provider_coordination.supervisor.status import UNSUPERVISED_AFTER
from airflow_provider_coordination.supervisor.store import SupervisionStore
from tests.support.depth import at_depth
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone
from tests.support.supervised_stream import Status, SupervisedStream, goes_on, has_failed, is_state, monotonic

DAG_ID = "supervise_orders"
TASK = "supervise"


class Orders(SupervisedStream):
    """A source with one job, and the DAG that supervises it."""

    def spec(self, **supervise: Any) -> dict[str, Any]:
        """Return its spec."""
        return {
            "version": 1,
            "source": "orders",
            "reads": {"kinesis": {"streams": self.pipeline.stream}},
            "writes": [{"parquet": {"path": str(self.lake / "orders")}}],
            "tuning": {"rounds": {"round_duration": 1, "idle_duration": 0.5}},
            "supervise": {
                "task_duration": "PT20M",
                "start_delay": 0,
                "period": 2,
                "completion_timeout": "PT5M",
                **supervise,
            },
        }

    def supervised_by(self) -> str:
        """Return which run, and which try of its task, supervises."""
        stored = SupervisionStore(self.source.view).get()
        return "" if stored is None or stored.claimant is None else stored.claimant.owner

    def http_status(self) -> Status:
        """Return the status as the page has it: of whether the DAG is paused, Airflow is asked."""
        headers = {"Authorization": f"Bearer {self.airflow.login('op')}"}
        url = f"{self.airflow.url}/coordination/connections/coordination_default/sources/orders/supervisor"
        found: Status = httpx.get(url, headers=headers, trust_env=False, timeout=20).raise_for_status().json()
        return found


class Interference:
    """What happens to a supervisor, a step at a time: each begins with one job that runs, and everything delivered."""

    def __init__(self, orders: Orders, dag_file: Path) -> None:
        self.orders = orders
        self.dag_file = dag_file
        self.owner = ""

    def begins(self) -> None:
        """One job is started."""
        self.orders.write(self.orders.spec())
        self.orders.send(5)
        self.orders.airflow.unpause(DAG_ID)
        self.owner = self.orders.runs(1)
        self.orders.delivered()

    def is_cleared(self) -> None:
        """Another try of its task supervises."""
        self._happens("task cleared", lambda run: self.orders.airflow.clear(DAG_ID, run, TASK))

    def is_marked_success(self) -> None:
        """The next run supervises."""
        self._happens("task marked success", lambda run: self.orders.airflow.mark(DAG_ID, run, TASK, "success"))

    def is_marked_failed(self) -> None:
        """The next run supervises."""
        self._happens("task marked failed", lambda run: self.orders.airflow.mark(DAG_ID, run, TASK, "failed"))

    def has_an_edited_dag_file(self) -> None:
        """What the file says now is what the next turn runs."""
        text = self.dag_file.read_text()
        self._edit(text.replace('orders.yaml")', 'orders.yaml", tags=["edited"])'))
        self.orders.happens("Airflow knows the edited DAG", lambda: self.orders.airflow.tags(DAG_ID) == ["edited"])
        self._happens("DAG file edited", lambda run: self.orders.airflow.clear(DAG_ID, run, TASK))

    def has_a_broken_dag_file(self) -> None:
        """No turn can be taken, and the status says what becomes of jobs; once the file is mended, it goes on."""
        orders, text = self.orders, self.dag_file.read_text()
        self._edit("from airflow_provider_coordination import dags_that_nobody_wrote\n")
        orders.happens("Airflow knows of the error", lambda: bool(orders.airflow.import_errors()))
        orders.right("broken DAG file: all goes on", goes_on(self.owner), since=time.monotonic())
        orders.kill_driver(self.owner)
        ended = orders.ended(self.owner)
        orders.right("broken DAG file: the error is there", has_failed(self.owner), since=ended)
        orders.send(5)
        orders.happens("its task waits for the DAG", lambda: self._task_state() == "up_for_reschedule")
        self._edit(text)
        self.owner = orders.runs(orders.status()["spec_version"], since=time.monotonic())
        orders.delivered()

    def has_a_wrong_file(self) -> None:
        """The stored spec stays in force, and the status names the field."""
        self.orders.write(self.orders.spec(task_count=0))
        self._keeps_to_what_is_stored("wrong file", "field 'task_count' must be at least 1")
        self.orders.write(self.orders.spec())

    def loses_its_file(self) -> None:
        """The stored spec stays in force, and the status names the file; an edit is submitted once it is back."""
        orders = self.orders
        orders.file.unlink()
        self._keeps_to_what_is_stored("vanished file", f"{orders.file.name}' cannot be read")
        orders.write(orders.spec(period=3))
        orders.comes("(file back: it is stored)", lambda status: status["spec_version"] == 2, since=time.monotonic())
        orders.right("file back: the same job goes on", goes_on(self.owner), since=time.monotonic())

    def loses_the_api_server(self) -> None:
        """Jobs go on, also by the status in the store; a job that ends has its successor once tasks can run again."""
        orders = self.orders
        with orders.airflow.without("api-server"):
            killed = time.monotonic()
            until = orders.status()["supervised_until"]
            orders.right("without an API server: all goes on", goes_on(self.owner), since=killed)
            orders.comes("the triggerer looks on", lambda status: status["supervised_until"] > until)
            orders.send(5)
            orders.delivered()
            orders.kill_driver(self.owner)
            ended = orders.ended(self.owner)
            orders.right("without an API server: the error is there", has_failed(self.owner), since=ended)
            orders.send(5)
        self.owner = orders.runs(orders.status()["spec_version"], since=time.monotonic())
        orders.delivered()

    def is_paused(self) -> None:
        """Its job ends by itself, after the time that it was given; unpaused, the supervisor goes on."""
        orders = self.orders
        orders.write(orders.spec(task_duration="PT30S", completion_timeout="PT15S"))
        orders.comes("it is stored", lambda status: status["spec_version"] == 3)
        orders.verbs.hand_over()  # a job keeps the time that it was started with
        self.owner = orders.runs(3)
        orders.send(5)
        orders.airflow.pause(DAG_ID)
        paused = time.monotonic()
        orders.right("paused: the page says so", lambda _: orders.http_status()["dag_is_paused"], since=paused)
        ended = orders.ended(self.owner)
        orders.right("paused: its job has ended", lambda status: not status["jobs"], since=ended)
        job = orders.jobs.get(self.owner)
        assert job is not None and job.outcome is not None and job.outcome["exit_code"] == 0
        orders.delivered()
        orders.send(5)
        until = parse_instant(orders.status()["supervised_until"])
        orders.right(
            "paused: the page says SUSPENDED",
            lambda _: is_state("SUSPENDED", "DAG_PAUSED")(orders.http_status()),
            since=monotonic(until + UNSUPERVISED_AFTER),
        )
        orders.airflow.unpause(DAG_ID)
        unpaused = time.monotonic()
        self.owner = orders.runs(3, since=unpaused)
        orders.right("unpaused: it runs", is_state("RUNNING"), since=time.monotonic())
        orders.delivered()

    def ends(self) -> None:
        """What was delivered is whole, and in order."""
        orders = self.orders
        orders.verbs.terminate()
        orders.comes("it is terminated", lambda status: is_state("TERMINATED")(status) and not status["jobs"])
        orders.airflow.pause(DAG_ID)
        orders.delivered()
        orders.assert_in_order()

    def _run(self) -> str:
        return str(self.orders.airflow.runs(DAG_ID)[-1]["dag_run_id"])

    def _task_state(self) -> str | None:
        return self.orders.airflow.task_state(DAG_ID, self._run(), TASK)

    def _edit(self, text: str) -> None:
        """Write the DAG file anew, and have it parsed."""
        assert text != self.dag_file.read_text()
        self.dag_file.write_text(text)
        self.orders.airflow.parse_again(DAG_ID)

    def _happens(self, what: str, happen: Callable[[str], None]) -> None:
        """Let something happen to the run that supervises: another try or run takes over, and the same job reads on.

        :param happen: is given the run.
        """
        orders, before = self.orders, self.orders.supervised_by()
        happen(self._run())
        happened = time.monotonic()
        orders.send(5)
        other = orders.happens(f"{what}: another one supervises", lambda: orders.supervised_by() != before)
        orders.note(f"({what}: another one supervises)", happened, other)
        orders.right(f"{what}: all goes on", goes_on(self.owner), since=other)
        orders.delivered()

    def _keeps_to_what_is_stored(self, what: str, error: str) -> None:
        """Wait for what the latest error says; the same spec rules, and the same job goes on."""
        orders, happened, version = self.orders, time.monotonic(), self.orders.status()["spec_version"]
        known = orders.comes(
            f"({what}: the error is there)",
            lambda status: bool(status["errors"]) and error in status["errors"][0]["message"],
            since=happened,
        )
        orders.right(f"{what}: all goes on", goes_on(self.owner), since=known)
        assert orders.status()["spec_version"] == version
        orders.send(5)
        orders.delivered()


SHORT = (
    Interference.begins,
    Interference.is_cleared,
    Interference.is_marked_success,
    Interference.is_marked_failed,
    Interference.has_an_edited_dag_file,
    Interference.has_a_wrong_file,
    Interference.loses_its_file,
    Interference.ends,
)
WHOLE = (
    *SHORT[:-1],
    Interference.has_a_broken_dag_file,
    Interference.loses_the_api_server,
    Interference.is_paused,
    Interference.ends,
)


@pytest.mark.deep
@pytest.mark.timeout(at_depth(short=900, deep=1800))
def test_whatever_people_do_to_a_supervisor_its_source_is_read_exactly_once(
    airflow: Standalone, pipeline: Pipeline, look: Callable[[str], SourceCoordinator], folder: Path
) -> None:
    orders = Orders(airflow, pipeline, look("orders"), DAG_ID, folder / "dags" / "specs" / "orders.yaml")
    interference = Interference(orders, folder / "dags" / f"{DAG_ID}.py")
    try:
        for step in at_depth(short=SHORT, deep=WHOLE):
            step(interference)
    finally:
        orders.report()
