"""A stream, a store and Spark jobs over them, each job a process of its own as spark-submit starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.spark.outcome import SUMMARY_MARK
from airflow_provider_coordination.spark.settings import ApplicationSettings, IngestSettings
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.local_kinesis import LocalKinesis
from tests.support.aggregation import aggregate
from tests.support.job_settings import changed, ingest
from tests.support.processes import kill_all, with_descendants
from tests.support.synced import sync_shards
from tests.support.waiting import PATIENCE_SECONDS, until

REPOSITORY = Path(__file__).resolve().parents[2]
APPLICATION = REPOSITORY / "spark_apps" / "ingest.py"
GROUP_APPLICATION = REPOSITORY / "spark_apps" / "ingest_group.py"
DRIVERS = ("ingest.py", "ingest_group.py")
CRASHING = REPOSITORY / "tests" / "system" / "apps" / "crashing_ingest.py"


@dataclass
class Job:
    """A Spark job that runs, or ran."""

    settings: ApplicationSettings
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Return its exit code; a job that hangs is killed and fails the test with its log."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the job hangs; its log:\n{self.output}") from None

    @property
    def output(self) -> str:
        """What it logged so far."""
        return self.log.read_text(errors="replace")

    @property
    def summary(self) -> dict[str, Any]:
        """The summary it printed at its end."""
        [line] = [line for line in self.output.splitlines() if line.startswith(SUMMARY_MARK)]
        summary: dict[str, Any] = json.loads(line.removeprefix(SUMMARY_MARK))
        return summary

    def wait_for(self, text: str) -> None:
        """Return once the text is in the log."""
        until(lambda: text in self.output or self.process.poll() is not None, lambda: self.output)
        assert text in self.output

    def driver(self) -> psutil.Process:
        """Return the Python process of the driver, a child of the JVM that spark-submit is."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        commands = ((p, p.as_dict(["cmdline"], ad_value=None)["cmdline"] or []) for p in children)
        return next(p for p, command in commands if command[1:2] and command[1].endswith(DRIVERS))

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python processes that do the work of Spark tasks; none if the job ended."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
            commands = ((p, p.as_dict(["cmdline", "ppid"], ad_value=None)) for p in children)
            daemons = {p: known["ppid"] for p, known in commands if "pyspark.daemon" in (known["cmdline"] or ())}
            pids = {daemon.pid for daemon in daemons}
            return [process for process, parent in daemons.items() if parent in pids]
        return []

    def wait_until_stopped(self) -> None:
        """Return once the driver stands still, by SIGSTOP."""

        def stands_still() -> bool:
            assert self.process.poll() is None, self.output
            with suppress(StopIteration, psutil.NoSuchProcess):
                return self.driver().status() == psutil.STATUS_STOPPED
            return False

        until(stands_still, lambda: self.output)

    def go_on(self) -> None:
        """Let a driver go on that stands still."""
        self.driver().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the JVM and everything under it, as if the machine had died; nothing happens if it ended."""
        if self.process.poll() is not None:
            return
        kill_all(with_descendants(psutil.Process(self.process.pid)))
        self.process.wait()


def submit(
    settings: ApplicationSettings,
    folder: Path,
    application: Path = APPLICATION,
    *,
    master: str = "local[2]",
    env: dict[str, str] | None = None,
    conf: dict[str, str] | None = None,
) -> Job:
    """Start a job.

    :param folder: for its settings and its log.
    :param master: Spark's.
    :param env: more of the environment.
    :param conf: more of Spark's configuration.
    """
    path = folder / f"{settings.owner}.json"
    settings.write(path)
    log = folder / f"{settings.owner}.log"
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", master, "--driver-memory", "512m"),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=WARN"),
        *(part for name, value in (conf or {}).items() for part in ("--conf", f"{name}={value}")),
        str(application),
        str(path),
        settings.owner,
    ]
    surroundings = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **(env or {}),
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=surroundings, start_new_session=True
        )
    return Job(settings, process, log)


@dataclass
class Pipeline:
    """One stream that is ingested into one dataset."""

    kinesis: LocalKinesis
    stream: str
    folder: Path
    url: str
    source: str = field(default="clicks", kw_only=True)
    sent: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kinesis_settings = AwsSettings(
            region="us-east-1", endpoint_url=self.kinesis.endpoint_url, access_key_id="test", secret_access_key="test"
        )
        self.client: Any = kinesis_client(self.kinesis_settings)
        self.output = self.folder / "dataset"

    def send(self, records: int, events_each: int = 10) -> None:
        """Send aggregated records spread over the shards; all events of one belong to its shard."""
        for _ in range(records):
            ids = [uuid.uuid4().hex for _ in range(events_each)]
            data = aggregate([(ids[0], json.dumps({"id": event}).encode()) for event in ids])
            self.client.put_record(StreamName=self.stream, PartitionKey=ids[0], Data=data)
            self.sent += ids

    def send_poison(self) -> None:
        """Send one record that `tests.support.transforms:fragile` fails on."""
        self.client.put_record(StreamName=self.stream, PartitionKey="poison", Data=b'{"id": "poison"}')
        self.sent.append("poison")

    def split_a_shard(self) -> str:
        """Split the first open shard; return its name."""
        shards = self.client.list_shards(StreamName=self.stream)["Shards"]
        shard = next(s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"])
        first, last = (int(shard["HashKeyRange"][key]) for key in ("StartingHashKey", "EndingHashKey"))
        self.client.split_shard(
            StreamName=self.stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((first + last) // 2)
        )
        self._wait_until_active()
        return str(shard["ShardId"])

    def merge_shards(self, shard: str, neighbour: str) -> None:
        """Merge two adjacent shards."""
        self.client.merge_shards(StreamName=self.stream, ShardToMerge=shard, AdjacentShardToMerge=neighbour)
        self._wait_until_active()

    def coordinator(self, owner: str = "test") -> SourceCoordinator:
        """Return a coordinator as another process of the fleet has it."""
        coordinator = SourceCoordinator(open_store(StoreSettings.from_url(self.url)), self.source, owner)
        coordinator.initialize()
        return coordinator

    def sync(self) -> None:
        """Create the partitions that the stream calls for."""
        sync_shards(self.client, self.coordinator(), self.stream)

    def settings(self, **changes: Any) -> IngestSettings:
        """Return the settings of a new job."""
        settings = ingest(
            source=self.source,
            owner=f"owner-{uuid.uuid4().hex[:8]}",
            streams=(self.stream,),
            output=str(self.output),
            expires_at=datetime.now(UTC) + timedelta(hours=1),
            store=StoreSettings.from_url(self.url),
            aws=self.kinesis_settings,
            round_duration=5,
            idle_duration=0.2,
        )
        return changed(settings, **changes)

    def start(
        self,
        application: Path = APPLICATION,
        *,
        master: str = "local[2]",
        env: dict[str, str] | None = None,
        conf: dict[str, str] | None = None,
        **changes: Any,
    ) -> Job:
        """Start a job.

        :param master: Spark's.
        :param env: more of the environment.
        :param conf: more of Spark's configuration.
        """
        self.jobs.append(submit(self.settings(**changes), self.folder, application, master=master, env=env, conf=conf))
        return self.jobs[-1]

    def run(self, application: Path = APPLICATION, **changes: Any) -> Job:
        """Run a job to its end."""
        job = self.start(application, **changes)
        job.wait()
        return job

    def crash(self, at: str, *, env: dict[str, str] | None = None, **changes: Any) -> Job:
        """Run a job whose driver kills itself with SIGKILL when it passes a phase.

        :param at: `phase:n`, the n-th time that the phase is passed.
        """
        job = self.start(CRASHING, env={"CRASH_AT": at, **(env or {})}, **changes)
        job.wait()
        return job

    def stop(self, at: str, *, env: dict[str, str] | None = None, **changes: Any) -> Job:
        """Start a job, and return it once its driver stands still at a phase.

        :param at: `phase:n`, as `crash` has it.
        """
        job = self.start(CRASHING, env={"STOP_AT": at, **(env or {})}, **changes)
        job.wait_until_stopped()
        return job

    def delivered(self) -> Counter[str]:
        """Return how often each event is in the dataset."""
        if not any(self.output.glob("*.parquet")):  # a job makes the folder before there is anything in it
            return Counter()
        payloads = ds.dataset(self.output, format="parquet").to_table(columns=["data"])["data"].to_pylist()
        return Counter(json.loads(payload)["id"] for payload in payloads)

    def landed_files(self) -> list[Path]:
        """Return the files that are landed and not published."""
        return list((self.output / "_landing").rglob("*.parquet"))

    def statuses(self) -> dict[PartitionStatus, int]:
        """Return how many partitions have each status."""
        return self.coordinator().view.count_by_status()

    def wait_until_delivered(self) -> None:
        """Return once the dataset has every event that was sent."""

        def is_delivered() -> bool:
            assert any(job.process.poll() is None for job in self.jobs), self._outputs()
            return self.delivered().keys() >= set(self.sent)

        until(is_delivered, self._outputs)

    def _outputs(self) -> str:
        return "\n".join(job.output for job in self.jobs)

    def assert_exactly_once(self) -> None:
        """Check that every event that was sent is in the dataset, once."""
        delivered = self.delivered()
        lost = set(self.sent) - set(delivered)
        doubled = {event for event, count in delivered.items() if count > 1}
        assert (len(lost), len(doubled), len(delivered)) == (0, 0, len(self.sent))

    def _wait_until_active(self) -> None:
        waiter = self.kinesis.client().get_waiter("stream_exists")
        waiter.wait(StreamName=self.stream, WaiterConfig={"Delay": 0.1, "MaxAttempts": 600})


MakePipeline = Callable[[int], Pipeline]
