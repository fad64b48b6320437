"""An `airflow standalone` whose components a test can kill and restart."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psutil

from demo.airflow_home import AIRFLOW, FINISHED, USER, Airflow
from demo.local_kinesis import LocalKinesis
from demo.server_process import free_ports
from tests.support.servers import running_postgres
from tests.support.spark_job import CRASHING, REPOSITORY
from tests.support.waiting import PATIENCE_SECONDS

ROLES = ("viewer", "user", "op", "admin")
"""The users, each of the role that it is called by."""
PARTS = {
    "triggerer": ("triggerer",),
    "scheduler": ("scheduler", "LocalExecutor"),
    "api-server": ("api-server", "api_server"),
}
"""What a test can kill, and what the command lines of its processes have in them."""
LOG_LINES = 30
SECRET = "a secret that signs the tokens of this test's Airflow alone, and nothing else in the world"


class Standalone(Airflow):
    """An Airflow that a test looks into; see `Airflow`.

    Its database is of PostgreSQL, as in production: in SQLite, all its parts wait for the one that writes.

    :param folder: for its home, and for the store of `coordination_default`.
    :param dags: where its DAGs are. They are paused, as those with a schedule would begin to run at once.
    :param database: the libpq URL of its database.
    :param environment: further variables for everything it starts.
    """

    def __init__(self, folder: Path, dags: Path, database: str, environment: Mapping[str, str]) -> None:
        self.store_url = f"sqlite:///{folder}/coordination.db"
        connections = {
            "coordination_default": {"conn_type": "coordination", "extra": {"store": "sql", "url": self.store_url}},
            "spark_default": {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}},
        }
        users = {USER: "admin", **{role: role for role in ROLES}}
        database = database.replace("postgresql:", "postgresql+psycopg:")
        surroundings = {
            "AIRFLOW__API_AUTH__JWT_SECRET": SECRET,
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in users.items()),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # they do not change
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": database,
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        super().__init__(folder / "airflow", dags, connections, surroundings | dict(environment))
        self._dags = dags

    def wait_for_dags(self) -> None:
        """Wait until it works and knows all its DAGs."""
        known = [dag.stem for dag in self._dags.glob("*.py")]
        self.until("Airflow knows the DAGs", lambda: all(map(self.is_ready, known)))

    def login(self, user: str) -> str:
        """Return a token of a user, one of `[core] simple_auth_manager_users`: Airflow has made up a password."""
        passwords = json.loads((self.home / "passwords.json").read_text())
        body = {"username": user, "password": passwords[user]}
        answer = self._send("POST", "/auth/token", body).raise_for_status()
        return str(answer.json()["access_token"])

    def audit_log(self, event: str) -> list[dict[str, Any]]:
        """Return the entries of the audit log about an event, the latest first."""
        return list(self._get(f"/api/v2/eventLogs?event={event}&order_by=-when")["event_logs"])

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a run of a DAG, which is not paused any more; return its id."""
        self.unpause(dag_id)
        return super().trigger(dag_id, conf)

    def unpause(self, dag_id: str) -> None:
        """Let a DAG run: paused, as most are here to begin with, it does nothing."""
        self._send("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False}).raise_for_status()

    def pause(self, dag_id: str) -> None:
        """Let no further run of a DAG begin."""
        self._send("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": True}).raise_for_status()

    def tags(self, dag_id: str) -> list[str]:
        """Return the tags of a DAG, sorted."""
        return sorted(tag["name"] for tag in self._get(f"/api/v2/dags/{dag_id}")["tags"])

    def asset_events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of an asset as the API shows them, the earliest first."""
        [asset] = self._get(f"/api/v2/assets?name_pattern={name}")["assets"]
        return list(
            self._get(f"/api/v2/assets/events?asset_id={asset['id']}&order_by=timestamp&limit=100")["asset_events"]
        )

    def import_errors(self) -> list[dict[str, Any]]:
        """Return what is wrong with DAG files."""
        return list(self._get("/api/v2/importErrors")["import_errors"])

    def watch_for(self, dag_id: str) -> None:
        """Let a DAG run whenever its watchers see something: these are started once its file is parsed again."""
        self.unpause(dag_id)
        self.parse_again(dag_id)

    def parse_again(self, dag_id: str) -> None:
        """Have the file of a DAG parsed now: by itself that is done once an hour here."""
        token = self._get(f"/api/v2/dags/{dag_id}")["file_token"]
        self._send("PUT", f"/api/v2/parseDagFile/{token}").raise_for_status()

    def backfill(self, dag_id: str, first: datetime, last: datetime, conf: Mapping[str, Any], *more: str) -> None:
        """Create a backfill as a person does, of the runs from one date to another, both included, and let it run.

        :param conf: of its runs.
        :param more: further options of the command.
        """
        self.until("an earlier backfill is over", lambda: not self._open_backfills(dag_id))
        options = ["--dag-id", dag_id, "--from-date", first.isoformat(), "--to-date", last.isoformat()]
        done = subprocess.run(
            [AIRFLOW, "backfill", "create", *options, "--dag-run-conf", json.dumps(conf), *more],
            env=self._process_environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.unpause(dag_id)  # after, so that the last interval has its run already

    def backfilled(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the runs of the backfills of a DAG as the API shows them, the earliest first."""
        runs = self._get(f"/api/v2/dags/{dag_id}/dagRuns?run_type=backfill")["dag_runs"]
        return sorted(runs, key=lambda run: str(run["logical_date"] or run["partition_key"]))

    def question(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Return what a task asks a person."""
        return dict(self._get(_question_path(dag_id, run_id, task_id)))

    def respond(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Respond to a task that asks a person, as its page does."""
        body = {"chosen_options": [option], "params_input": {}}
        self._send("PATCH", _question_path(dag_id, run_id, task_id), body).raise_for_status()

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the runs of a DAG as the API shows them, the earliest first."""
        return list(self._get(f"/api/v2/dags/{dag_id}/dagRuns?order_by=run_after")["dag_runs"])

    def run(self, dag_id: str, run_id: str) -> Any:
        """Return a run as the API shows it."""
        return self._get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")

    def wait_for_run(self, dag_id: str, run_id: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Wait for the end of a run; return its state."""
        self.until(f"{run_id} of {dag_id} has ended", lambda: self.state(dag_id, run_id) in FINISHED, seconds)
        return self.state(dag_id, run_id)

    def clear_run(self, dag_id: str, run_id: str) -> None:
        """Clear all of a run, as a person does."""
        body = {"dry_run": False, "only_failed": False}
        self._send("POST", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/clear", body).raise_for_status()

    def connect(self, conn_id: str, conn_type: str, **fields: Any) -> None:
        """Define a connection, or redefine it, for the tasks that start from now on."""
        extra = json.dumps(fields.pop("extra", {}))
        body = {"connection_id": conn_id, "conn_type": conn_type, "extra": extra, **fields}
        answer = self._send("POST", "/api/v2/connections", body)
        if answer.status_code == httpx.codes.CONFLICT:
            answer = self._send("PATCH", f"/api/v2/connections/{conn_id}", body)
        answer.raise_for_status()

    def disconnect(self, conn_id: str) -> None:
        """Delete a connection, if there is one."""
        answer = self._send("DELETE", f"/api/v2/connections/{conn_id}")
        assert answer.status_code in (httpx.codes.NO_CONTENT, httpx.codes.NOT_FOUND), answer.text

    def _open_backfills(self, dag_id: str) -> list[dict[str, Any]]:
        backfills = self._get(f"/api/v2/backfills?dag_id={dag_id}")["backfills"]
        return [backfill for backfill in backfills if backfill["completed_at"] is None]

    def kill(self, part: str) -> None:
        """Kill a part and what it started, as if its machine had died.

        :param part: one of `PARTS`; the scheduler's executor runs the tasks.
        """
        names = PARTS[part]
        killed = []
        for process in self._processes():
            with suppress(psutil.Error):
                if any(name in " ".join(process.cmdline()) for name in names):
                    process.kill()
                    killed.append(process)
        assert killed, f"there is a {part}"
        psutil.wait_procs(killed, 60)

    def kill_task(self, dag_id: str, task_id: str) -> None:
        """Kill the process that runs a task in the latest run of a DAG, once there is one."""

        def is_killed() -> bool:
            run_id = self.runs(dag_id)[-1]["dag_run_id"]
            task = self._get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")
            titled = []
            for process in self._processes():
                with suppress(psutil.Error):
                    if task["id"] in " ".join(process.cmdline()):
                        titled.append(process)
            for process in titled:  # the worker's process, and below it the task's, which inherits the title
                with suppress(psutil.Error):
                    if process.ppid() in {each.pid for each in titled}:
                        process.kill()
                        return True
            return False

        self.until(f"a process of {task_id} is killed", is_killed)

    def start_again(self, part: str) -> None:
        """Start a part that was killed, and wait until it answers, if it is the one that does."""
        self._run(part, self.home / f"{part}.log")
        if part == "api-server":
            self.until("the API server answers", self._answers)

    @contextmanager
    def without(self, part: str) -> Iterator[None]:
        """Kill a part, and start another one afterwards, whatever happened: other tests need it."""
        self.kill(part)
        try:
            yield
        finally:
            self.start_again(part)

    @contextmanager
    def another_api_server(self, **environment: str) -> Iterator[Callable[[], str]]:
        """Start another API server of this Airflow, as a deployment with other options would.

        It yields a function that waits until the server answers, and returns its address.

        :param environment: the variables that it has besides.
        """
        [port] = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        own = {"AIRFLOW__API__BASE_URL": url, "AIRFLOW__API__PORT": str(port)}
        server = self._run("api-server", self.home / f"api-server-{port}.log", **own, **environment)
        self._sessions.discard(server.pid)  # it is ended here, and not with a part of the other

        def answers() -> bool:
            with suppress(httpx.HTTPError):
                return httpx.get(f"{url}/api/v2/monitor/health", trust_env=False).is_success
            return False

        def wait() -> str:
            self.until("another API server answers", answers)
            return url

        try:
            yield wait
        finally:
            os.killpg(server.pid, signal.SIGKILL)  # it leads a session of its own
            server.wait()

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
        body = {"dry_run": False, "task_ids": [task_id], "dag_run_id": run_id, "only_failed": False}
        self._send("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", body).raise_for_status()

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Mark a task of a run, as a person does."""
        place = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        self._send("PATCH", place, {"new_state": state}).raise_for_status()

    def create_pool(self, name: str, slots: int) -> None:
        """Create a pool, in which tasks that are deferred hold no slot."""
        body = {"name": name, "slots": slots, "description": "", "include_deferred": False}
        self._send("POST", "/api/v2/pools", body).raise_for_status()

    def until(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Return once something holds, however long that takes within reason."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}; see {self.log}\n{self.logs()}")
            time.sleep(0.5)

    def logs(self) -> str:
        """Return the last lines that the scheduler, with its tasks, and the triggerer logged."""
        tails = []
        for part in ("scheduler", "triggerer"):
            own = self.home / f"{part}.log"  # since it was started again, if it was
            lines = (own if own.is_file() else self.log).read_text(errors="replace").splitlines()
            said = lines if own.is_file() else [line for line in lines if line.startswith(part)]
            tails += [f"--- {part}", *said[-LOG_LINES:]]
        tasks = sorted(self.home.glob("logs/dag_id=*/**/attempt=*.log"), key=lambda log: log.stat().st_mtime)
        for log in tasks[-2:]:
            tails += [f"--- {log.relative_to(self.home)}", *log.read_text(errors="replace").splitlines()[-LOG_LINES:]]
        return "\n".join(tails)

    def _answers(self) -> bool:
        try:
            return self._client.get("/api/v2/monitor/health").is_success
        except httpx.HTTPError:
            return False


@contextmanager
def starting_airflow(folder: Path, dags: Path, examples: Iterable[str], **environment: str) -> Iterator[Standalone]:
    """Start an Airflow without waiting for it, and end it; see `Standalone`.

    :param dags: the folder of those that a test brings.
    :param examples: those of the project that it runs as well, by name.
    :param environment: further environment variables of Airflow.
    """
    copied = shutil.copytree(dags, folder / "dags")
    for example in examples:
        shutil.copy(REPOSITORY / "dags" / f"{example}.py", copied)
    with running_postgres() as postgres:
        variables = {"CRASHING_APPLICATION": str(CRASHING), **environment}
        airflow = Standalone(folder, copied, str(postgres.get_uri()), variables)
        try:
            airflow.start()
            yield airflow
        finally:
            airflow.stop()


def connect_aws(airflow: Standalone, kinesis: LocalKinesis) -> None:
    """Let `aws_default` of an Airflow lead to the Kinesis server that all tests share."""
    extra = {"region_name": "us-east-1", "endpoint_url": kinesis.endpoint_url}
    airflow.connect("aws_default", "aws", login="test", password="test", extra=extra)


def _question_path(dag_id: str, run_id: str, task_id: str) -> str:
    return f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}/-1/hitlDetails"
