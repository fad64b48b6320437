"""`make demo`: a Kinesis stream is ingested into Parquet, or a table, across a shard split and a crash.

Everything runs on this machine: a Kinesis server, Airflow on SQLite with the repository's own DAG, two Spark jobs, and
leases in SQLite. With `--cluster`, the jobs run on a Spark cluster of two workers, one of which is killed as well; the
dataset is in a bucket, and the leases are in PostgreSQL. At the end everything is stopped. The dataset, the logs and
`report.json` stay in one folder. `stream_story.py` runs the scenario.

With `--source dynamodb`, a DynamoDB table is followed into a table of the lake instead: `table_story.py`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from botocore.config import Config
from rich.console import Console

from airflow_provider_coordination.coordination.errors import CoordinationError
from demo.airflow_home import USER, Airflow, AirflowError, task_log
from demo.cluster import SPARK_CONF, demo_cluster
from demo.course import Course, DemoError
from demo.environment import connections, write_spark_conf
from demo.events import FLIGHTS, flights
from demo.local_kinesis import LocalKinesis, LocalKinesisError
from demo.local_postgres import LocalPostgresError
from demo.observation import Observation
from demo.producer import Producer
from demo.report import DemoReport
from demo.stream_story import SHARDS, STREAM, StreamStory
from demo.table_story import TABLE, Changes, TableStory
from demo.tables import TARGETS, Target
from tests.support.dynamodb_server import DynamoDbServer, DynamoDbServerError
from tests.support.s3_server import S3ServerError
from tests.support.spark_cluster import SparkClusterError

REPOSITORY = Path(__file__).resolve().parent.parent
LOG_LINES = 30
ITEMS = 20_000
"""How many flights are items of the DynamoDB table in the end, before some are deleted."""
LOCK = ".demo-lock"
FAILURES = (
    *(AirflowError, CoordinationError, DemoError, DynamoDbServerError, LocalKinesisError, LocalPostgresError),
    *(OSError, S3ServerError, SparkClusterError),
)
WIDTH = 110
"""The width of the output, in columns, if it does not go to a terminal."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
started = time.monotonic()


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(
        description="Ingest a Kinesis stream, across a shard split and a crash; or follow a DynamoDB table."
    )
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / ".demo", help="the folder for the dataset and the logs"
    )
    parser.add_argument("--source", choices=("kinesis", "dynamodb"), default="kinesis", help="the source")
    parser.add_argument("--sink", choices=TARGETS, help="the sink; by default Parquet, and Delta for a DynamoDB table")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="run on a Spark cluster, with Parquet in a bucket and leases in PostgreSQL",
    )
    options = parser.parse_args()
    is_table = options.source == "dynamodb"
    sink = options.sink or ("delta" if is_table else "parquet")
    if options.cluster and (is_table or sink != "parquet"):
        parser.error("--cluster supports only a Kinesis stream into Parquet; leave --source and --sink out")
    folder, target = options.folder.resolve(), TARGETS[sink]
    images = target.images
    if is_table and images is None:
        parser.error(f"a DynamoDB table is followed into --sink delta or iceberg; got {sink}, which cannot delete rows")
    fast = os.environ.get("FAST", "") not in ("", "0")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # otherwise a shell's background jobs ignore it
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, frame: sys.exit(128 + got))
    for name in ("NO_PROXY", "no_proxy"):  # everything is on this machine
        os.environ[name] = "127.0.0.1,localhost"
    try:
        with exclusive_folder(folder):
            report: DemoReport
            if is_table and images is not None:
                report = run_table(folder, ITEMS // 10 if fast else ITEMS, target, images)
            else:
                report = run_stream(folder, FLIGHTS // 10 if fast else FLIGHTS, target, on_cluster=options.cluster)
    except KeyboardInterrupt:
        say("interrupted; everything is stopped")
        return 128 + signal.SIGINT
    except FAILURES as error:
        say(f"FAILED: {error}", style="bold red")
        say(f"logs: {folder}")
        return 1
    report.write(folder / "report.json")
    report.show(console)
    say(f"dataset: {folder / 'dataset'}   logs: {folder / 'airflow'}   report: {folder / 'report.json'}")
    for fault in report.faults():
        say(f"FAILED: {fault}", style="bold red")
    if not report.faults():
        say(report.verdict, style="bold green")
    return 1 if report.faults() else 0


def run_table(folder: Path, count: int, target: Target, images: Callable[[Path], Sequence[str]]) -> DemoReport:
    """Follow a DynamoDB table.

    :param folder: an empty folder.
    :param count: the number of events that are items in the end, before some are deleted.
    :param target: the sink.
    :param images: see `Target`.
    """
    dataset = folder / "dataset"
    dataset.mkdir(exist_ok=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True)))
        say(f"{count:,} flights, as items of a DynamoDB table and as changes; everything goes to {folder}")
        server = stack.enter_context(DynamoDbServer())
        store_url = f"sqlite:///{folder}/coordination.db"
        airflow = Airflow(
            folder / "airflow",
            copy_example(folder / "dags", TableStory.dag, target.in_followed_dag, dataset),
            connections(store_url, server.endpoint_url, service="dynamodb"),
            write_spark_conf(folder / "spark-conf", scratch, {}),
        )
        stack.callback(airflow.stop)
        start(airflow)
        changes = Changes(server.client(), flights(count))
        stack.callback(changes.stop)
        observation = Observation(store_url, f"dynamodb-{TABLE}", partial(target.files, dataset))
        stack.enter_context(closing(observation.view.store))
        return reported(
            TableStory(
                airflow=airflow,
                client=server.client(),
                changes=changes,
                observation=observation,
                output=str(dataset),
                rows=partial(images, dataset),
                reader=target.reader,
                scratch=scratch,
                say=say,
            )
        )


def run_stream(folder: Path, count: int, target: Target, *, on_cluster: bool) -> DemoReport:
    """Ingest a stream.

    :param folder: an empty folder.
    :param count: the number of events.
    :param target: the sink.
    :param on_cluster: whether to use a cluster; see the module.
    """
    dataset = folder / "dataset"
    dataset.mkdir(exist_ok=True)
    with ExitStack() as stack:
        # For leftovers of killed jobs, and for sockets, whose paths must be short.
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True)))
        say(f"{count:,} flights as events; everything goes to {folder}")
        server = stack.enter_context(LocalKinesis())
        if on_cluster:
            cluster = stack.enter_context(demo_cluster(dataset))
            store_url, files, output, conf = cluster.store_url, cluster.files, cluster.output_path, SPARK_CONF
            airflow_connections = connections(
                store_url, server.endpoint_url, master=cluster.spark.master_url, bucket=cluster.s3.settings
            )
            hosts = " and ".join(worker.address for worker in cluster.spark.workers)
            say(f"Spark workers run at {hosts}; the dataset is {output}, the leases are in PostgreSQL")
        else:
            cluster = None
            store_url, files, output, conf = (
                f"sqlite:///{folder}/coordination.db", partial(target.files, dataset), str(dataset), {}
            )  # fmt: skip
            airflow_connections = connections(store_url, server.endpoint_url)
        airflow = Airflow(
            folder / "airflow",
            copy_example(folder / "dags", StreamStory.dag, target.in_dag, dataset),
            airflow_connections,
            write_spark_conf(folder / "spark-conf", scratch, conf),
        )
        stack.callback(airflow.stop)
        start(airflow)
        # No request is repeated: a repetition after a time-out may send a record twice.
        kinesis = server.client(config=Config(retries={"total_max_attempts": 1}, read_timeout=120))
        create_stream(kinesis)
        events = flights(count)
        producer = Producer(kinesis, STREAM, events)
        stack.callback(producer.stop)
        observation = Observation(store_url, STREAM, files)
        stack.enter_context(closing(observation.view.store))
        story = StreamStory(
            airflow=airflow,
            kinesis=kinesis,
            producer=producer,
            events=events,
            observation=observation,
            output=output,
            files=files,
            reader=target.reader,
            cluster=cluster,
            scratch=scratch,
            say=say,
        )
        return reported(story)


def start(airflow: Airflow) -> None:
    """Start Airflow, and say how to open it."""
    airflow.start()
    say(f"Airflow starts; open it while it runs: {airflow.url} (user {USER}, password {airflow.password})")


def reported(course: Course) -> DemoReport:
    """Run the story; if it fails, print the logs that explain it."""
    try:
        return course.run()
    except Exception:
        with suppress(Exception):
            show_logs(course)
        raise
    finally:
        ignore_signals()


def copy_example(folder: Path, dag: str, with_sink: Callable[[str, Path], str], dataset: Path) -> Path:
    """Copy an example DAG to a separate folder: the others have schedules, but nothing to read here.

    :param dag: the DAG.
    :param with_sink: returns its text with the sink of this run.
    :param dataset: the folder of the sink.
    """
    folder.mkdir()
    text = (REPOSITORY / "dags" / f"{dag}.py").read_text()
    (folder / f"{dag}.py").write_text(with_sink(text, dataset))
    return folder


def create_stream(kinesis: Any) -> None:
    """Create the stream, and wait until it is active."""
    kinesis.create_stream(StreamName=STREAM, ShardCount=SHARDS)
    kinesis.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def show_logs(course: Course) -> None:
    """Print the last lines of the logs that explain the failure."""
    airflow, run_id = course.airflow, course.run_id
    if run_id is None:
        console.print(
            "\n".join(airflow.log.read_text(errors="replace").splitlines()[-LOG_LINES:]), markup=False, soft_wrap=True
        )
        return
    for task in airflow.task_instances(course.dag, run_id):
        if task["state"] not in (None, "success", "upstream_failed"):
            say(f"--- the end of the log of {task['task_id']} {task['map_index']}, try {task['try_number']}:")
            console.print(task_log(airflow.home, task, LOG_LINES), markup=False, soft_wrap=True)


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Empty the folder of an earlier demo, and lock it against other demos.

    :raises DemoError: if another demo uses the folder, or it holds other files.
    """
    lock = folder / LOCK
    if folder.exists() and any(folder.iterdir()) and not lock.exists():
        raise DemoError(f"{folder} is neither empty nor the folder of a demo: give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"another demo is running in {folder}: wait for it, or give another folder") from None
        for name in ("airflow", "dags", "dataset", "spark-conf"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for file in (*folder.glob("coordination.db*"), folder / "report.json"):
            file.unlink(missing_ok=True)
        yield


def ignore_signals() -> None:
    """Ignore signals, so that a second Ctrl-C does not interrupt the cleanup."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def say(line: str, *, style: str | None = None) -> None:
    """Print a line with the seconds since the start."""
    console.print(f"{time.monotonic() - started:6.1f} s  {line}", style=style, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
