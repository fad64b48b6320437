"""A task is killed in the middle of a scan, in a real process; its next try finds every partition."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_KEY
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.airflow.conftest import REPOSITORY
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.integration  # needs no server, but whole processes, and so seconds

OBJECTS = 2500

DAG_FILE = """
import os
import time
from dataclasses import replace
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.sources.s3.kind import S3Objects

ROOT = Path("%s")


class SlowObjects(S3Objects):
    # Stands still after the first page of a try, for as long as a file of the try's name is there.
    def connect(self, region=None):
        connected = super().connect(region)

        def supplier(coordinator):
            scan = connected.supplier(coordinator)
            number = coordinator.owner.split(":")[-2]

            def slow(state):
                for page in scan(state):
                    yield page
                    (ROOT / f"page-{number}").write_text(str(os.getpid()))
                    while (ROOT / f"stop-{number}").exists():
                        time.sleep(0.02)

            return slow

        return replace(connected, supplier=supplier)


with DAG(dag_id="scanning", schedule=None):
    CreatePartitionsOperator(
        task_id="create", reads=SlowObjects(paths=str(ROOT / "objects"), source="files", format="text")
    )
"""


@dataclass
class RunningTry:
    """A try of the task that runs: its supervisor, and the log of both processes."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path
    page: Path

    def wait_for_a_page(self) -> int:
        """Wait until its first page is created; return the number of the task's own process."""
        until(lambda: (self.page.exists() and bool(self.page.read_text())) or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()
        return int(self.page.read_text())

    def end(self) -> str:
        """Wait for its end; return the log."""
        self.process.wait(PATIENCE_SECONDS)
        return self.log.read_text()


@pytest.fixture
def start(tmp_path: Path, store_url: str) -> Iterator[Callable[..., RunningTry]]:
    """Starts a try of a task that scans the objects; one that is instructed to waits after its first page."""
    objects = tmp_path / "objects"
    objects.mkdir()
    for number in range(OBJECTS):
        (objects / f"{number:04}.txt").write_text("text\n")
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "scanning.py").write_text(DAG_FILE % tmp_path)
    begun: list[RunningTry] = []

    def begin(number: int, *, stands_still: bool = False) -> RunningTry:
        if stands_still:
            (tmp_path / f"stop-{number}").touch()
        connection = {"conn_type": "coordination", "extra": {"url": store_url, "ownership_timeout": 600}}
        script, log = Path(__file__).with_name("task_process.py"), tmp_path / f"try-{number}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(script), "scanning.py", "scanning", "create", str(number)],
                env={
                    **os.environ,
                    "PYTHONPATH": str(REPOSITORY),
                    "AIRFLOW_HOME": str(tmp_path / "airflow"),
                    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
                    "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
                    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",  # how soon the supervisor sees that it ended
                    "AIRFLOW_CONN_COORDINATION_DEFAULT": json.dumps(connection),
                    "TASK_REQUESTS": str(tmp_path / f"requests-{number}.jsonl"),
                },
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        begun.append(RunningTry(number, process, log, tmp_path / f"page-{number}"))
        return begun[-1]

    yield begin
    for each in begun:
        (tmp_path / f"stop-{each.number}").unlink(missing_ok=True)
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def source(store_url: str) -> SourceCoordinator:
    coordinator = SourceCoordinator(open_store(StoreSettings.from_url(store_url)), "files", "test")
    coordinator.initialize()
    return coordinator


def test_retry_of_a_killed_scan_finds_all_objects(
    start: Callable[..., RunningTry], source: SourceCoordinator, tmp_path: Path
) -> None:
    first = start(1, stands_still=True)
    os.kill(first.wait_for_a_page(), signal.SIGKILL)
    first.end()
    assert 0 < len(objects_of(source)) < OBJECTS
    assert holder(source).owner is not None, "nobody has given the lease of ten minutes back"

    log = start(2).end()
    assert summary(tmp_path, 2)["supplier"] == "ran", log
    names = objects_of(source)
    assert len(names) == len(set(names)) == OBJECTS
    assert holder(source).owner is None


def test_overtaken_try_creates_nothing_more(
    start: Callable[..., RunningTry], source: SourceCoordinator, tmp_path: Path
) -> None:
    first = start(1, stands_still=True)
    first.wait_for_a_page()
    second = start(2, stands_still=True)
    second.wait_for_a_page()
    (tmp_path / "stop-1").unlink()
    assert "a later try of this task, " in first.end()
    (tmp_path / "stop-2").unlink()
    second.end()

    assert summary(tmp_path, 2)["supplier"] == "ran"
    names = objects_of(source)
    assert len(names) == len(set(names)) == OBJECTS


def test_terminated_task_releases_the_lease(
    start: Callable[..., RunningTry], source: SourceCoordinator, tmp_path: Path
) -> None:
    first = start(1, stands_still=True)
    first.wait_for_a_page()
    first.process.send_signal(signal.SIGTERM)  # as a cluster ends a worker; its supervisor passes it on
    log = first.end()
    assert "was killed while it searched for partitions" in log
    assert holder(source).owner is None, log


def objects_of(source: SourceCoordinator) -> list[str]:
    return [item["uri"] for partition in source.view.partitions() for item in partition.progress["items"]]


def holder(source: SourceCoordinator) -> Partition:
    item = source.store.get("files|GLOBAL_STATE", GLOBAL_STATE_KEY)
    assert item is not None
    return item


def summary(tmp_path: Path, number: int) -> dict[str, object]:
    """What a try left as its XCom."""
    asked = [json.loads(line) for line in (tmp_path / f"requests-{number}.jsonl").read_text().splitlines()]
    [left] = [each["body"] for each in asked if each["path"].endswith("/return_value")]
    return dict(json.loads(left) if isinstance(left, str) else left)
