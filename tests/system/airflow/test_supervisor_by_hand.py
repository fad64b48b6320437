"""Users and failures disturb a supervisor under a whole Airflow: its job continues, and nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.partition import parse_instant
from airflow_provider_coordination.supervisor.status import UNSUPERVISED_AFTER
from tests.support.depth import at_depth
from tests.support.supervised_stream import goes_on, has_failed, is_state, monotonic
from tests.system.airflow.parcels import DAG_ID, Parcels

TASK = "supervise"


class Interference:
    """What happens to a supervisor, a step at a time: each begins with one job that runs, and everything delivered."""

    def __init__(self, parcels: Parcels, dag_file: Path) -> None:
        self.parcels = parcels
        self.dag_file = dag_file
        self.owner = ""

    def begins(self) -> None:
        """One job runs."""
        self.owner = self.parcels.runs(1)
        self.parcels.delivered()

    def is_cleared(self) -> None:
        """Another try of its task supervises."""
        self._happens("task cleared", lambda run: self.parcels.airflow.clear(DAG_ID, run, TASK))

    def is_marked_success(self) -> None:
        """The next run supervises."""
        self._happens("task marked success", lambda run: self.parcels.airflow.mark(DAG_ID, run, TASK, "success"))

    def is_marked_failed(self) -> None:
        """The next run supervises."""
        self._happens("task marked failed", lambda run: self.parcels.airflow.mark(DAG_ID, run, TASK, "failed"))

    def has_an_edited_dag_file(self) -> None:
        """What the file says now is what the next turn runs."""
        text = self.dag_file.read_text()
        self._edit(text.replace('parcels.yaml")', 'parcels.yaml", tags=["edited"])'))
        self.parcels.happens("Airflow knows the edited DAG", lambda: self.parcels.airflow.tags(DAG_ID) == ["edited"])
        self._happens("DAG file edited", lambda run: self.parcels.airflow.clear(DAG_ID, run, TASK))

    def has_a_broken_dag_file(self) -> None:
        """No turn can be taken, and the status says what becomes of jobs; once the file is fixed, it goes on."""
        parcels, text = self.parcels, self.dag_file.read_text()
        self._edit("from airflow_provider_coordination import dags_that_nobody_wrote\n")
        parcels.happens("Airflow knows of the error", self._has_import_error)
        parcels.right("broken DAG file: all goes on", goes_on(self.owner), since=time.monotonic())
        parcels.kill_driver(self.owner)
        ended = parcels.ended(self.owner)
        parcels.right("broken DAG file: the error is there", has_failed(self.owner), since=ended)
        parcels.send(5)
        parcels.happens("its task waits for the DAG", lambda: self._task_state() == "up_for_reschedule")
        self._edit(text)
        self.owner = parcels.runs(parcels.status()["spec_version"], since=time.monotonic())
        parcels.delivered()

    def has_a_wrong_file(self) -> None:
        """The stored spec stays in effect, and the status names the field."""
        self.parcels.write(self.parcels.spec(task_count=0))
        self._keeps_to_what_is_stored("wrong file", "field 'supervise.task_count' must be from 1")
        self.parcels.write(self.parcels.spec())

    def loses_its_file(self) -> None:
        """The stored spec stays in effect, and the status names the file; an edit is submitted once it is back."""
        parcels = self.parcels
        parcels.file.unlink()
        self._keeps_to_what_is_stored("vanished file", f"{parcels.file.name}' cannot be read")
        parcels.write(parcels.spec(period=3))
        parcels.comes("(file back: it is stored)", lambda status: status["spec_version"] == 2, since=time.monotonic())
        parcels.right("file back: the same job goes on", goes_on(self.owner), since=time.monotonic())

    def loses_the_api_server(self) -> None:
        """Jobs go on, also by the status in the store; a job that ends has its successor once tasks can run again."""
        parcels = self.parcels
        with parcels.airflow.without("api-server"):
            killed = time.monotonic()
            until = parcels.status()["supervised_until"]
            parcels.right("without an API server: all goes on", goes_on(self.owner), since=killed)
            parcels.comes("the triggerer looks on", lambda status: status["supervised_until"] > until)
            parcels.send(5)
            parcels.delivered()
            parcels.kill_driver(self.owner)
            ended = parcels.ended(self.owner)
            parcels.right("without an API server: the error is there", has_failed(self.owner), since=ended)
            parcels.send(5)
        self.owner = parcels.runs(parcels.status()["spec_version"], since=time.monotonic())
        parcels.delivered()

    def is_paused(self) -> None:
        """Its job ends by itself, after the time that it was given; unpaused, the supervisor goes on."""
        parcels = self.parcels
        parcels.write(parcels.spec(task_duration="PT30S", completion_timeout="PT15S"))
        parcels.comes("it is stored", lambda status: status["spec_version"] == 3)
        parcels.verbs.hand_over()  # a job keeps the time that it was started with
        self.owner = parcels.runs(3)
        parcels.send(5)
        parcels.airflow.pause(DAG_ID)
        paused = time.monotonic()
        parcels.right("paused: the page says so", lambda _: parcels.http_status()["dag_is_paused"], since=paused)
        ended = parcels.ended(self.owner)
        parcels.right("paused: its job has ended", lambda status: not status["jobs"], since=ended)
        job = parcels.jobs.get(self.owner)
        assert job is not None and job.outcome is not None and job.outcome["exit_code"] == 0
        parcels.delivered()
        parcels.send(5)
        until = parse_instant(parcels.status()["supervised_until"])
        parcels.right(
            "paused: the page says SUSPENDED",
            lambda _: is_state("SUSPENDED", "DAG_PAUSED")(parcels.http_status()),
            since=monotonic(until + UNSUPERVISED_AFTER),
        )
        parcels.airflow.unpause(DAG_ID)
        unpaused = time.monotonic()
        self.owner = parcels.runs(3, since=unpaused)
        parcels.right("unpaused: it runs", is_state("RUNNING"), since=time.monotonic())
        parcels.delivered()

    def ends(self) -> None:
        """What was delivered is whole, and in order."""
        parcels = self.parcels
        parcels.verbs.terminate()
        parcels.comes("it is terminated", lambda status: is_state("TERMINATED")(status) and not status["jobs"])
        parcels.airflow.pause(DAG_ID)
        parcels.delivered()
        parcels.assert_in_order()

    def _run(self) -> str:
        return str(self.parcels.airflow.runs(DAG_ID)[-1]["dag_run_id"])

    def _task_state(self) -> str | None:
        return self.parcels.airflow.task_state(DAG_ID, self._run(), TASK)

    def _has_import_error(self) -> bool:
        errors = self.parcels.airflow.import_errors()
        return any(str(error["filename"]).endswith(self.dag_file.name) for error in errors)

    def _edit(self, text: str) -> None:
        """Write the DAG file again, and have it parsed."""
        assert text != self.dag_file.read_text()
        self.dag_file.write_text(text)
        self.parcels.airflow.parse_again(DAG_ID)

    def _happens(self, what: str, happen: Callable[[str], None]) -> None:
        """Let something happen to the run that supervises: another try or run takes over, and the same job reads on.

        :param happen: is given the run.
        """
        parcels, before = self.parcels, self.parcels.supervised_by()
        happen(self._run())
        happened = time.monotonic()
        parcels.send(5)
        other = parcels.happens(f"{what}: another one supervises", lambda: parcels.supervised_by() != before)
        parcels.note(f"({what}: another one supervises)", happened, other)
        parcels.right(f"{what}: all goes on", goes_on(self.owner), since=other)
        parcels.delivered()

    def _keeps_to_what_is_stored(self, what: str, error: str) -> None:
        """Wait for what the latest error says; the same spec rules, and the same job goes on."""
        parcels, happened, version = self.parcels, time.monotonic(), self.parcels.status()["spec_version"]
        known = parcels.comes(
            f"({what}: the error is there)",
            lambda status: bool(status["errors"]) and error in status["errors"][0]["message"],
            since=happened,
        )
        parcels.right(f"{what}: all goes on", goes_on(self.owner), since=known)
        assert parcels.status()["spec_version"] == version
        parcels.send(5)
        parcels.delivered()


SHORT = (
    Interference.begins,
    Interference.is_cleared,
    Interference.has_an_edited_dag_file,
    Interference.ends,
)
WHOLE = (
    Interference.begins,
    Interference.is_cleared,
    Interference.is_marked_success,
    Interference.is_marked_failed,
    Interference.has_an_edited_dag_file,
    Interference.has_a_wrong_file,
    Interference.loses_its_file,
    Interference.has_a_broken_dag_file,
    Interference.loses_the_api_server,
    Interference.is_paused,
    Interference.ends,
)


@pytest.mark.deep
@pytest.mark.timeout(at_depth(short=900, deep=1800))
def test_manual_actions_leave_the_source_read_exactly_once(parcels: Parcels, folder: Path) -> None:
    interference = Interference(parcels, folder / "dags" / f"{DAG_ID}.py")
    try:
        for step in at_depth(short=SHORT, deep=WHOLE):
            step(interference)
    finally:
        parcels.report()
