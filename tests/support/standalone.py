"""An `airflow standalone` whose triggerer a test can kill and start again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

from demo.airflow_home import Airflow


class Standalone(Airflow):
    """An Airflow that a test looks into; see `Airflow`."""

    def kill_triggerer(self) -> None:
        """Kill the triggerer and what it started, as if its machine had died."""
        killed = []
        for process in self._processes(self._session):
            with suppress(psutil.Error):
                if "triggerer" in " ".join(process.cmdline()):
                    process.kill()
                    killed.append(process)
        assert killed, "there is a triggerer"
        psutil.wait_procs(killed, 10)

    def start_triggerer(self) -> None:
        """Start another one."""
        self._run("triggerer", self.home / "triggerer.log")

    def task_state(self, dag_id: str, run_id: str, task_id: str) -> str | None:
        """Return where a task of a run stands."""
        [found] = [t for t in self.task_instances(dag_id, run_id) if t["task_id"] == task_id]
        state: str | None = found["state"]
        return state

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """Return what a task returned."""
        place = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        return self._get(place)["value"]

    def link(self, dag_id: str, run_id: str, task_id: str, name: str) -> Any:
        """Return where an extra link of a task leads."""
        place = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links"
        return self._get(place)["extra_links"][name]

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Clear a task of a run, as a person does."""
        told = {"dry_run": False, "task_ids": [task_id], "dag_run_id": run_id, "only_failed": False}
        self._client.post(f"/api/v2/dags/{dag_id}/clearTaskInstances", json=told).raise_for_status()

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Mark a task of a run, as a person does."""
        place = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        self._client.patch(place, json={"new_state": state}).raise_for_status()

    def create_pool(self, name: str, slots: int) -> None:
        """Create a pool, in which tasks that are deferred hold no slot."""
        told = {"name": name, "slots": slots, "description": "", "include_deferred": False}
        self._client.post("/api/v2/pools", json=told).raise_for_status()

    def until(self, what: str, holds: Callable[[], bool], seconds: float = 180) -> None:
        """Return once something holds, however long that takes within reason."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}; see {self.log}")
            time.sleep(0.5)

    @property
    def _session(self) -> int:
        assert self._process is not None
        return self._process.pid
