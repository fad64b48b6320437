"""For how long nobody reads a shard while a supervisor replaces or adds jobs.

Jobs are real: each is a spark-submit with `local[2]` on this machine, over one stream and one dataset. A producer puts
records into every shard all the time. The supervisor takes a turn every second, without Airflow, which delays the start
of a successor, but no shard. The server of the stream notes each read. What counts for a shard is the longest time
between two reads, from the change until the new jobs have read for a while.

- `no change`: the same in the rounds of one job, for comparison. It pauses as well, while a delivery takes longer;
- `task_duration`: a job has read for long enough. First, landed files become the dataset's, then they are parsed;
- `edited spec`: the old job delivers what it has read before it hands over, because the new one delivers otherwise;
- `scale-up`: a second job gets half of the shards. Only those count that moved.

Usage: python -m benchmarks.handover [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition
from airflow_provider_coordination.operators.packaging import packaged_application, write_package_archive
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import JobRequest, Launcher, Supervisor
from benchmarks.start_up import environment
from tests.support.job_settings import ingest
from tests.support.kinesis_server import records_api
from tests.support.kinesis_server.clock import RealClock
from tests.support.kinesis_server.http import KinesisServer
from tests.support.synced import sync_shards

STREAM, SHARDS = "clicks", 4
RECORDS_A_SECOND = 100
SETTLED_SECONDS = 15.0
"""How long the new jobs read before a step is over: longer than a round."""
TIMEOUT_SECONDS = 300.0
SCHEMAS = (None, "n BIGINT", "n BIGINT, at TIMESTAMP")


class Source(Launcher):
    """A stream with its supervisor, producer and jobs.

    :param folder: an empty folder.
    :param server: the server of the stream.
    """

    must_discover_partitions = False

    def __init__(self, folder: Path, server: KinesisServer) -> None:
        self.folder = folder
        account = server.account(RealClock())
        self.aws = account.settings()
        self.client = account.client()
        self.client.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        self.client.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        self.store_settings = StoreSettings.from_url(f"sqlite:///{folder}/coordination.db")
        self.coordinator = SourceCoordinator(open_store(self.store_settings), STREAM, "supervisor")
        self.coordinator.initialize()
        sync_shards(self.client, self.coordinator, STREAM)
        self.jobs = Jobs(self.coordinator.view)
        self.package = write_package_archive(folder)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.reads: dict[str, list[float]] = {}
        self.sent = 0
        self._numbers = count(1)
        claimant = Claimant(owner="benchmark", dag_id="benchmark", run_at=datetime.now(UTC))
        self.supervisor = Supervisor(self.coordinator, claimant, probe=self)

    def submit(self, schema: str | None, **supervise: Any) -> None:
        """Submit a version of the spec."""
        spec = {
            "version": 1,
            "source": STREAM,
            "reads": {"kinesis": {"streams": STREAM}},
            "writes": [{"parquet": {"path": str(self.folder / "dataset")}}],
            **({} if schema is None else {"schema": schema}),
            "supervise": {"start_delay": 0, **supervise},
        }
        self.supervisor.store.submit(spec)

    # What the supervisor asks the source

    def follow(self, spec: IngestionSpec) -> None:
        """Follow nothing: there is one stream."""

    def discover_partitions(self) -> None:
        """Discover nothing: the shards are known."""

    def count(self) -> int | None:
        """Return how many shards there are."""
        return SHARDS

    def lag(self, partition: Partition) -> int | None:
        """Return None: jobs report the lag."""
        return None

    def confirmed_progress(self, partition: Partition) -> Mapping[str, Any] | None:
        """Return None: jobs read every shard."""
        return None

    def has_news(self) -> bool | None:
        """Return None: the supervisor discovers nothing."""
        return None

    # Jobs

    def new_owner(self) -> str:
        """Return the owner of another job."""
        return f"job-{next(self._numbers)}"

    def start(self, request: JobRequest) -> None:
        """Submit a job."""
        owner, start_by = request.job.owner, datetime.now(UTC) + timedelta(minutes=10)
        self.jobs.submit(owner, task=request.task, digest="", start_by=start_by)
        settings = replace(
            ingest(
                source=STREAM,
                owner=owner,
                streams=(STREAM,),
                output=str(self.folder / "dataset"),
                expires_at=start_by,
                store=self.store_settings,
                aws=self.aws,
                schema=request.spec.ingestion.schema,
                until_caught_up=False,
                round_duration=5.0,
            ),
            workers=request.workers,
            replaces=request.job.replaces,
            is_followed=True,
        )
        file = self.folder / f"{owner}.json"
        settings.write(file)
        program = packaged_application("ingest.py")
        command = ["spark-submit", "--master", "local[2]", "--py-files", str(self.package), program, str(file), owner]
        with (self.folder / f"{owner}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    env=environment(None, is_job=True),
                )
            )

    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        """Fail: nothing of this benchmark goes wrong."""
        raise AssertionError(f"no job may be ended by force: {job.owner}: {reason}")

    def owners(self) -> dict[str, str | None]:
        """Return the owner of each shard."""
        return {
            partition.partition_key.rpartition(":")[2]: partition.owner
            for partition in self.coordinator.view.partitions(*UNFINISHED)
        }

    def running(self) -> set[str]:
        """Return the jobs that have begun and not ended."""
        return {job.owner for job in self.jobs.unfinished() if job.state is JobState.RUNNING}

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Take turns until something holds.

        :raises TimeoutError: with the end of the jobs' logs, after `TIMEOUT_SECONDS`.
        """
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                logs = [file.read_text(errors="replace")[-3000:] for file in sorted(self.folder.glob("*.log"))]
                raise TimeoutError("\n".join((f"not within {TIMEOUT_SECONDS:g} s: {what}", *logs)))
            self.supervisor.turn(self)
            time.sleep(1.0)

    def read_for_a_while(self) -> None:
        """Let the jobs read."""
        since = time.monotonic()
        self.until("(time passes)", lambda: time.monotonic() - since >= SETTLED_SECONDS)

    # Reads

    def note_read(self, shard: Any) -> None:
        """Note that a shard is read now."""
        self.reads.setdefault(shard.shard_id, []).append(time.monotonic())

    def put_records(self, stop: threading.Event) -> None:
        """Put records into all shards until the benchmark stops."""
        while not stop.wait(0.1):
            now = datetime.now(UTC).isoformat()
            records = [
                {"PartitionKey": str(number), "Data": json.dumps({"n": number, "at": now}).encode()}
                for number in range(self.sent, self.sent + RECORDS_A_SECOND // 10)
            ]
            self.client.put_records(StreamName=STREAM, Records=records)
            self.sent += len(records)

    def delivered(self) -> Counter[int]:
        """Return how often the dataset has each record."""
        import pyarrow.parquet as pq

        numbers: Counter[int] = Counter()
        for file in (self.folder / "dataset").glob("*.parquet"):
            rows = pq.read_table(file)
            if "n" in rows.column_names:
                numbers.update(rows["n"].to_pylist())
            else:
                numbers.update(json.loads(data)["n"] for data in rows["data"].to_pylist())
        return numbers


def pauses(reads: Mapping[str, Sequence[float]], since: float, shards: set[str]) -> list[float]:
    """Return the longest time between two reads of each shard.

    :param since: reads before the last one until then do not count, on the monotonic clock.
    """
    found = []
    for shard in sorted(shards):
        begun = max((at for at in reads[shard] if at <= since), default=since)
        found.append(max(later - earlier for earlier, later in pairwise(at for at in reads[shard] if at >= begun)))
    return found


def measure(source: Source, repetitions: int) -> dict[str, list[float]]:
    """Return for how long nobody read each shard, by what changed."""
    found: dict[str, list[float]] = {}
    schema = SCHEMAS[0]
    source.submit(schema)
    source.until("the first job reads all shards", lambda: set(source.owners().values()) == {"job-1"})
    source.until("every shard is read", lambda: len(source.reads) == SHARDS)
    source.read_for_a_while()

    def step(name: str, change: Callable[[], None], is_over: Callable[[], bool]) -> None:
        before, since = source.owners(), time.monotonic()
        change()
        source.until(f"{name}: the jobs have changed", is_over)
        source.read_for_a_while()
        moved = {shard for shard, owner in source.owners().items() if owner != before[shard]} or set(before)
        found.setdefault(name, []).extend(pauses(source.reads, since, moved))

    def hand_over(name: str, schema: str | None, **supervise: Any) -> None:
        old = source.running()

        def change() -> None:
            source.submit(schema, **supervise)
            source.until("a successor is started", lambda: len(source.jobs.unfinished()) > len(old))
            if supervise:
                source.submit(schema)

        def is_over() -> bool:
            return not old & source.running() and not old & set(source.owners().values())

        step(name, change, is_over)

    step("no change", lambda: None, lambda: True)
    for _ in range(repetitions):
        hand_over("task_duration", SCHEMAS[0], task_duration=5)
    hand_over("edited spec", SCHEMAS[1])
    step("no change, parsed", lambda: None, lambda: True)
    for _ in range(repetitions):
        hand_over("task_duration, parsed", SCHEMAS[1], task_duration=5)
    for number in range(repetitions):
        schema = SCHEMAS[1 + (number + 1) % 2]
        hand_over("edited spec", schema)
    step(
        "scale-up",
        lambda: source.submit(schema, task_count=2),
        lambda: sorted(Counter(source.owners().values()).values()) == [SHARDS // 2, SHARDS // 2],
    )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="once each")
    options = parser.parse_args(arguments)
    stop, read_page = threading.Event(), records_api.read_page
    with tempfile.TemporaryDirectory(prefix="handover-") as name, KinesisServer() as server:
        source = Source(Path(name), server)

        def noting(state: Any, shard: Any, *details: Any, **more: Any) -> Any:
            source.note_read(shard)
            return read_page(state, shard, *details, **more)

        producer = threading.Thread(target=source.put_records, args=(stop,), daemon=True)
        producer.start()
        try:
            with closing(source.coordinator.store), patch.object(records_api, "read_page", noting):
                found = measure(source, 1 if options.quick else 5)
                stop.set()
                producer.join()
                source.until("everything is delivered", lambda: len(source.delivered()) >= source.sent)
                source.supervisor.store.terminate(by="benchmark")
                source.until("the jobs have ended", lambda: not source.jobs.unfinished())
                delivered = source.delivered()  # a record that is lost ends in a timeout above
        finally:
            stop.set()
            for process in source.processes:
                process.kill()
                process.wait()
    doubled = sum(times - 1 for times in delivered.values())
    print(report(found))
    print()
    print(
        json.dumps(
            {
                "benchmark": "handover",
                "load": round(os.getloadavg()[1], 1),
                "unread_seconds": {
                    name: {"p50": round(statistics.median(seconds), 2), "max": round(max(seconds), 2)}
                    for name, seconds in found.items()
                },
                "records": {"delivered": len(delivered), "doubled": doubled},
            }
        )
    )


def report(found: Mapping[str, Sequence[float]]) -> str:
    """Return the results as a table."""
    lines = ["| nobody read a shard for, s | p50 | max | shards |", "|---|--:|--:|--:|"]
    for name, seconds in found.items():
        lines.append(f"| {name} | {statistics.median(seconds):.2f} | {max(seconds):.2f} | {len(seconds)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
