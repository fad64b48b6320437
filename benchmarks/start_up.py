"""The time until a job delivers its first record, compared with a bare spark-submit that runs its first Python task.

Times start with spark-submit, on this machine, with `local[2]`:

- `bare`: a program with a default Spark session, until the first Python task of a query (`mapInArrow`) runs;
- `bare, RDD`: the same until the first Python task of an RDD runs, the minimum that Spark can do;
- `job`: a job as the operator submits it, over a stream of four shards, until its dataset has the first record;
- `job, archive`: the same with `spark_archive`.

They run in turn. The processor time includes all processes until they end.

Usage: python -m benchmarks.start_up [--quick] [--archive PATH]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.operators.packaging import (
    driver_options,
    local_environment,
    packaged_application,
    write_package_archive,
)
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.spark.class_archive import make_archive
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.job_settings import ingest
from tests.support.synced import sync_shards

SHARDS, RECORDS = 4, 100
STREAM = "clicks"
MASTER = ("--master", "local[2]")
POLL_SECONDS = 0.01
TIMEOUT_SECONDS = 180
JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
BARE = """
import sys, time
from pyspark.sql import SparkSession

def task(batches, path=sys.argv[1]):
    with open(path, "w") as file:
        file.write(str(time.time()))
    yield from batches

spark = SparkSession.builder.getOrCreate()
{action}
spark.stop()
"""
ACTIONS = {
    "bare": 'spark.range(0, 1, 1, 1).mapInArrow(task, "id long").collect()',
    "bare, RDD": "spark.sparkContext.parallelize([1], 1).mapPartitions(task).collect()",
}


@dataclass(frozen=True)
class Start:
    """The duration of one start.

    :param seconds: from the submission to the first task or record.
    :param processor_seconds: the processor time of all processes until they end.
    """

    seconds: float
    processor_seconds: float


@contextmanager
def kinesis() -> Iterator[AwsSettings]:
    """Run a Kinesis server with a stream that has records in every shard."""
    command = [sys.executable, "-m", "tests.support.kinesis_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            aws = AwsSettings(
                region="us-east-1",
                endpoint_url=server.stdout.readline().strip(),
                access_key_id="000000000001",
                secret_access_key="secret",
            )
            client = kinesis_client(aws)
            client.create_stream(StreamName=STREAM, ShardCount=SHARDS)
            client.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
            records = [{"PartitionKey": f"key-{number}", "Data": b"%06d" % number * 30} for number in range(RECORDS)]
            assert not client.put_records(StreamName=STREAM, Records=records)["FailedRecordCount"]
            yield aws
        finally:
            server.terminate()


def environment(archive: Path | None, *, is_job: bool) -> dict[str, str]:
    """Return the environment of spark-submit, without the JVM options of this process."""
    variables = {name: value for name, value in os.environ.items() if name not in JVM_VARIABLES}
    variables |= local_environment(variables)
    if not is_job:
        return variables
    return variables | driver_options(variables, None if archive is None else str(archive))


def timed(command: list[str], variables: dict[str, str], folder: Path, reached: Callable[[], float | None]) -> Start:
    """Run spark-submit to its end; return the duration until `reached` returned an instant."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "log").open("wb") as log:
        start = time.time()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=variables
        )
        at = None
        while at is None and time.time() < start + TIMEOUT_SECONDS:
            if process.poll() is not None and (at := reached()) is None:
                break
            time.sleep(POLL_SECONDS)
            at = reached()
        code = process.wait(TIMEOUT_SECONDS)
    assert code == 0 and at is not None, (folder / "log").read_text(errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Start(at - start, used)


def bare(action: str, folder: Path) -> Start:
    """Start a program that runs one Python task."""
    program, began = folder / "bare.py", folder / "began"
    program.write_text(BARE.format(action=action))

    def reached() -> float | None:
        text = began.read_text() if began.exists() else ""
        return float(text) if text else None

    return timed(["spark-submit", *MASTER, str(program), str(began)], environment(None, is_job=False), folder, reached)


def job(aws: AwsSettings, archive: Path | None, folder: Path) -> Start:
    """Start a job that delivers a stream, with its own store and dataset."""
    output = folder / "dataset"
    settings = ingest(
        source=STREAM,
        owner=f"owner-{uuid.uuid4().hex[:8]}",
        streams=(STREAM,),
        output=str(output),
        expires_at=datetime.now(UTC) + timedelta(hours=1),
        store=StoreSettings.from_url(f"sqlite:///{folder}/coordination.db"),
        aws=aws,
    )
    store = open_store(settings.store)
    with closing(store):
        coordinator = SourceCoordinator(store, STREAM, "benchmark")
        coordinator.initialize()
        sync_shards(kinesis_client(aws), coordinator, STREAM)
    settings.write(folder / "settings.json")

    def reached() -> float | None:
        return time.time() if next(output.glob("*.parquet"), None) else None

    package = write_package_archive(folder)
    arguments = [
        *MASTER,
        "--py-files",
        str(package),
        packaged_application("ingest.py"),
        str(folder / "settings.json"),
        settings.owner,
    ]
    return timed(["spark-submit", *arguments], environment(archive, is_job=True), folder, reached)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="once each")
    parser.add_argument("--archive", type=Path, help="an archive made by `airflow-coordination spark-archive`")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="start-up-") as name, kinesis() as aws:
        root = Path(name)
        archive = options.archive
        if archive is None:
            archive = root / "spark.jsa"
            make_archive(archive, packaged_application("rehearse.py"), environment(None, is_job=False))
        ways: dict[str, Callable[[Path], Start]] = {
            **{way: partial(bare, action) for way, action in ACTIONS.items()},
            "job": lambda folder: job(aws, None, folder),
            "job, archive": lambda folder: job(aws, archive, folder),
        }
        starts: dict[str, list[Start]] = {way: [] for way in ways}
        for repetition in range(1 if options.quick else 3):
            for way, run in ways.items():
                folder = root / f"{way.replace(', ', '-')}-{repetition}"
                folder.mkdir()
                starts[way].append(run(folder))
    print(json.dumps({"benchmark": "start_up", **report(starts)}))


def report(starts: dict[str, list[Start]]) -> dict[str, float]:
    """Print the medians; return them and their ratios."""
    seconds = {way: statistics.median(start.seconds for start in of) for way, of in starts.items()}
    used = {way: statistics.median(start.processor_seconds for start in of) for way, of in starts.items()}
    for way in starts:
        print(f"{way:<14} {seconds[way]:6.2f} s, {used[way]:6.2f} s of processors")
    found = {f"{way} s": round(value, 2) for way, value in seconds.items()}
    for way in ("job", "job, archive"):
        for beside in ("bare", "bare, RDD"):
            found[f"{way} / {beside}"] = round(seconds[way] / seconds[beside], 3)
            found[f"{way} / {beside}, processors"] = round(used[way] / used[beside], 3)
    return found


if __name__ == "__main__":
    main()
