"""A real Airflow for the demo: `airflow standalone` with its own home, database, ports and connections.

It neither reads nor writes any files of the user's Airflow, and leaves no process running.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from demo.server_process import free_ports

USER = "demo"
STOP_SECONDS = 5.0
DATABASE_TIMEOUT_SECONDS = 60
"""How long Airflow waits for its database while another process writes to it."""
NEEDED = ("metadatabase", "scheduler", "dag_processor")
FINISHED = ("success", "failed")
AIRFLOW = str(Path(sys.executable).parent / "airflow")

_LOOPBACK = "127.0.0.1"


class AirflowError(Exception):
    """Airflow did not start, or ended; the message names its log."""


class Airflow:
    """An Airflow in its own process group.

    :param home: its folder, `AIRFLOW_HOME`; `start` creates it.
    :param dags: the folder of its DAGs.
    :param connections: its connections in Airflow's JSON form, by connection id.
    :param environment: additional variables for all its processes.
    """

    def __init__(
        self, home: Path, dags: Path, connections: Mapping[str, Mapping[str, Any]], environment: Mapping[str, str]
    ) -> None:
        self.home = home
        self.password = secrets.token_urlsafe(9)
        api, *log_ports = free_ports(3)
        self.url = f"http://{_LOOPBACK}:{api}"
        self.log = home / "standalone.log"
        self._environment = _environment(home, dags, self.url, log_ports, connections) | dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()
        # A response may take as long as the database is locked.
        self._client = httpx.Client(base_url=self.url, timeout=DATABASE_TIMEOUT_SECONDS + 30, trust_env=False)

    def start(self) -> None:
        """Start it; it is ready after half a minute."""
        self.home.mkdir(parents=True)
        passwords = self.home / "passwords.json"
        passwords.touch(0o600)
        passwords.write_text(json.dumps({USER: self.password}))
        self._process = self._run("standalone", self.log)

    def is_ready(self, dag_id: str) -> bool:
        """Return whether it is healthy and knows a DAG.

        :raises AirflowError: if it has ended, or cannot import a DAG.
        """
        if self._process is None or self._process.poll() is not None:
            raise AirflowError(f"airflow standalone ended; see {self.log}")
        try:
            health = self._client.get("/api/v2/monitor/health").json()
            if any(health[part]["status"] != "healthy" for part in NEEDED):
                return False
            if "Authorization" not in self._client.headers:
                token = self._client.post("/auth/token", json={"username": USER, "password": self.password})
                self._client.headers["Authorization"] = f"Bearer {token.raise_for_status().json()['access_token']}"
            for error in self._client.get("/api/v2/importErrors").raise_for_status().json()["import_errors"]:
                raise AirflowError(f"Airflow cannot import {error['filename']}: {error['stack_trace'].strip()}")
            return self._client.get(f"/api/v2/dags/{dag_id}").status_code == httpx.codes.OK
        except (httpx.HTTPError, ValueError):
            return False

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a run of a DAG; return its id."""
        answer = self._send("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf})
        if answer.is_error:
            raise AirflowError(f"Airflow refused to run {dag_id}: {answer.text}")
        return str(answer.json()["dag_run_id"])

    def state(self, dag_id: str, run_id: str) -> str:
        """Return the state of a run: `queued`, `running`, `success` or `failed`."""
        return str(self._get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run, as the API shows them."""
        answer = self._get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")
        return list(answer["task_instances"])

    def stop(self) -> None:
        """Stop it and all its processes. Harmless if it does not run."""
        process, self._process = self._process, None
        self._client.close()
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            running = list(self._processes())
            for each in running:
                with suppress(psutil.Error):
                    each.send_signal(number)
            psutil.wait_procs(running, STOP_SECONDS)
        process.wait()

    def _run(self, command: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start an Airflow command in its own session, with additional variables."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                [AIRFLOW, command],
                env=self._process_environment | environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions.add(process.pid)
        return process

    @property
    def _process_environment(self) -> dict[str, str]:
        """The environment variables of its commands."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "AWS_"))}
        return kept | self._environment

    def _send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request, and again while Airflow responds that its SQLite database is locked by its other parts.

        It then has done nothing, and the response is an error 500.
        """
        pauses = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
        while True:
            response = self._client.request(method, path, json=body)
            if not response.is_server_error or not pauses:
                return response
            time.sleep(pauses.pop(0))

    def _get(self, path: str) -> Any:
        pauses = [0.2, 0.4, 0.8, 1.6]
        while True:
            try:
                return self._client.get(path).raise_for_status().json()
            except httpx.HTTPError as error:  # on a small machine it may be busy
                if not pauses:
                    raise AirflowError(f"Airflow does not respond to {path}: {error}; see {self.log}") from error
                time.sleep(pauses.pop(0))

    def _processes(self) -> Iterator[psutil.Process]:
        """Yield the processes of this Airflow: by session, or by their environment if they have left it.

        Some write their title over their environment.
        """
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                ours = os.getsid(process.pid) in self._sessions
                ours = ours or process.environ().get("AIRFLOW_HOME") == str(self.home)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def _environment(
    home: Path, dags: Path, url: str, log_ports: list[int], connections: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    worker_logs, trigger_logs = log_ports
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": _LOOPBACK,
        "AIRFLOW__API__PORT": url.rpartition(":")[2],
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120",  # the machine may have much else to do
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "240",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db?timeout={DATABASE_TIMEOUT_SECONDS}",
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_logs),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_logs),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in connections.items()},
    }


def task_log(home: Path, task_instance: Mapping[str, Any], lines: int) -> str:
    """Return the last lines of the log of a task's last try, as text."""
    mapped = f"map_index={task_instance['map_index']}/" if task_instance["map_index"] >= 0 else ""
    folder = home / "logs" / f"dag_id={task_instance['dag_id']}" / f"run_id={task_instance['dag_run_id']}"
    file = folder / f"task_id={task_instance['task_id']}" / f"{mapped}attempt={task_instance['try_number']}.log"
    if not file.is_file():
        return f"(no log at {file})"
    return "\n".join(_readable(line) for line in file.read_text(errors="replace").splitlines()[-lines:])


def _readable(line: str) -> str:
    try:
        entry = json.loads(line)
        text = f"{entry.get('timestamp', '')} {entry.get('level', '')} {entry.get('event', '')}"
        return " ".join([text, *(error["exc_value"] for error in entry.get("error_detail") or ())])
    except (ValueError, AttributeError, KeyError, TypeError):
        return line
