"""What the course of each demo has: phases, waiting with a limit, and a job that is killed and replaced."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from demo.airflow_home import FINISHED, Airflow
from demo.crash import Crash, drivers, is_taken_over, kill_in_mid_round
from demo.observation import Observation, counted, worker_name
from demo.report import DemoReport

POLL_SECONDS = 0.05
AIRFLOW_POLL_SECONDS = 1.0
WAIT_SECONDS = 600.0
"""The limit of every single wait of the demo."""


class DemoError(Exception):
    """The demo failed or timed out; the message names the condition that it waited for."""


@dataclass(kw_only=True)
class Course(ABC):
    """One run of a demo.

    :param airflow: a started Airflow, which may not be ready yet.
    :param observation: the observation of the source.
    :param scratch: the folder of the jobs' temporary files.
    :param say: prints a line for the user.
    """

    dag: ClassVar[str]
    workers: ClassVar[int]
    """The number of Spark jobs that a run of the DAG has."""

    airflow: Airflow
    observation: Observation
    scratch: Path
    say: Callable[[str], None]
    run_id: str | None = None
    phases: dict[str, float] = field(default_factory=dict)
    _airflow_checked_at: float = 0.0

    @abstractmethod
    def run(self) -> DemoReport:
        """Run the demo; return its report.

        :raises DemoError: if an expected event does not happen.
        """

    @property
    @abstractmethod
    def failure(self) -> Exception | None:
        """What ended the producer; None if it works."""

    @abstractmethod
    def _progress(self) -> str:
        """Return the present progress as one line."""

    def _kill(self) -> Crash:
        running = drivers(self.scratch)
        if len(running) < self.workers:
            raise DemoError(f"{len(running)} Spark drivers are running, not {self.workers}")
        crash = kill_in_mid_round(self.observation, running, self._deadline_check("a job is in the middle of a round"))
        self.say(
            f"KILLED {worker_name(crash.owner)} with SIGKILL, {counted(crash.processes, 'process')}; it held "
            f"{counted(len(crash.partitions), 'partition')}, with {counted(len(crash.batches), 'batch')} recorded but "
            "not delivered"
        )
        return crash

    def _take_over(self, crash: Crash) -> float:
        get = self.observation.view.get
        self._until(
            "the killed job's partitions are taken over",
            lambda: all(is_taken_over(get(key), crash) for key in crash.partitions),
        )
        seconds = time.monotonic() - crash.at
        takers = {worker_name(p.owner) for key in crash.partitions if (p := get(key)) and p.owner}
        self.say(f"TAKEN OVER after {seconds:.1f} s by {' and '.join(sorted(takers))}")
        return seconds

    def _tries(self) -> dict[int, int]:
        assert self.run_id is not None
        tasks = self.airflow.task_instances(self.dag, self.run_id)
        return {task["map_index"]: task["try_number"] for task in tasks if task["task_id"] == "ingest"}

    # Waiting

    def _is_finished(self) -> bool:
        assert self.run_id is not None
        return self.airflow.state(self.dag, self.run_id) in FINISHED

    def _until(
        self, what: str, condition: Callable[[], bool], every: float = POLL_SECONDS, *, run_may_end: bool = False
    ) -> None:
        check = self._deadline_check(what, run_may_end=run_may_end)
        while not condition():
            check()
            time.sleep(every)

    def _deadline_check(self, what: str, *, run_may_end: bool = False) -> Callable[[], None]:
        """Return a function to call while waiting; it raises once the wait is useless."""
        deadline = time.monotonic() + WAIT_SECONDS

        def check() -> None:
            now = time.monotonic()
            if (failure := self.failure) is not None:
                raise DemoError(f"the producer failed: {failure}") from failure
            if now > deadline:
                raise DemoError(f"waited {WAIT_SECONDS:.0f} s without a result until {what}")
            if self.run_id is None or run_may_end or now - self._airflow_checked_at < AIRFLOW_POLL_SECONDS:
                return
            self._airflow_checked_at = now
            if self._is_finished():
                raise DemoError(f"the DAG run ended while the demo waited until {what}")

        return check

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self.say(f"--- {name}")
        started = time.monotonic()
        yield
        self.phases[name] = time.monotonic() - started
