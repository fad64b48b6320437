"""Spark and pyarrow read datasets in a bucket continuously, while jobs write them and are killed."""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.spark.sink_settings import PARQUET, SinkSettings
from tests.support.bucket_readers import ArrowReader, SparkReader, Watch
from tests.support.depth import at_depth
from tests.support.s3_server import S3Server
from tests.support.spark_job import CRASHING, Job, MakePipeline, Pipeline
from tests.support.waiting import PATIENCE_SECONDS

SHARDS = 4
ROUNDS = at_depth(short=5, deep=40)
SHARED_FILE_BYTES = 512 * 2**10
"""How much a file holds: the batches of a round share one, if they are below a thirty-second of that."""
LARGE_BYTES = 64 * 2**10


class InterruptedWrites:
    """A dataset that jobs write, one after the other: each is killed where it is said, and the last goes on.

    :param pipeline: with the stream.
    :param path: its bucket and folder.
    :param kills: the phase at which each job is killed.
    :param given: settings of the jobs.
    """

    def __init__(self, pipeline: Pipeline, server: S3Server, path: str, kills: list[str], **given: Any) -> None:
        self.path = path
        self._pipeline, self._kills = pipeline, kills
        sink = SinkSettings(
            name="main",
            kind=PARQUET,
            location=f"s3://{path}",
            aws=server.settings,
            settings={"target_file_bytes": SHARED_FILE_BYTES},
        )
        landing = f"s3://{path}/_landing"
        self._given = {
            "writes": (sink,),
            "landing_path": landing,
            "until_caught_up": False,
            "round_duration": 1,
            **given,
        }
        self._job = self._start()

    @property
    def every_kill_happened(self) -> bool:
        return not self._kills and not self._at

    def _start(self) -> Job:
        self._at = self._kills.pop(0) if self._kills else ""
        return self._pipeline.start(CRASHING, env={"CRASH_AT": self._at}, **self._given)

    def go_on(self) -> None:
        """Start the next job if the one before was killed."""
        if self._job.process.poll() is None:
            return
        assert self._at and "coordination-summary" not in self._job.output, self._job.output
        self._pipeline.coordinator().give_up_owner(self._job.settings.owner)
        self._job = self._start()


class TwoDatasets:
    """A stream whose records are written to two datasets: one as they are, and one with a transform.

    :param kills: the phases at which the jobs of each dataset are killed.
    """

    def __init__(self, make_pipeline: MakePipeline, server: S3Server, bucket: str, kills: list[list[str]]) -> None:
        self.sender = make_pipeline(SHARDS)
        folders = [self.sender.folder / name for name in ("raw", "measured")]
        for folder in folders:
            folder.mkdir()
        raw, measured = (
            Pipeline(self.sender.kinesis, self.sender.stream, folder, f"sqlite:///{folder}/coordination.db")
            for folder in folders
        )
        self.pipelines = [raw, measured]
        for pipeline in self.pipelines:
            pipeline.sync()
        self.send()
        transform = "tests.support.transforms:measured"
        self.written = [
            InterruptedWrites(raw, server, f"{bucket}/raw", kills[0]),
            InterruptedWrites(measured, server, f"{bucket}/measured", kills[1], transform=transform),
        ]

    @property
    def paths(self) -> list[str]:
        return [written.path for written in self.written]

    def send(self) -> None:
        """Send a little to all shards, and much to one: its batch has a file of its own where nothing looks into it."""
        self.sender.send(records=4 * SHARDS)
        large = uuid.uuid4().hex
        payload = json.dumps({"id": large, "pad": secrets.token_hex(LARGE_BYTES)}).encode()
        self.sender.client.put_record(StreamName=self.sender.stream, PartitionKey="large", Data=payload)
        self.sender.sent.append(large)

    def wait(self, *, until: Any) -> None:
        """Return once something holds, with jobs that go on."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not until():
            outputs = [pipeline.jobs[-1].output for pipeline in self.pipelines]
            assert time.monotonic() < deadline, "\n".join(outputs)
            for written in self.written:
                written.go_on()
            time.sleep(0.05)


@pytest.fixture
def spark_reader(s3: S3Server, java: str, tmp_path: Path) -> Iterator[SparkReader]:
    with SparkReader(s3, tmp_path) as reader:
        yield reader


@pytest.fixture
def datasets(make_pipeline: MakePipeline, s3: S3Server, s3_bucket: str) -> Iterator[TwoDatasets]:
    # After this number of files of the dataset, before and after what gives one its name.
    kills = at_depth(
        short=[["published:3"], ["publishing:3"]],
        deep=[[f"{phase}:{n}" for n in range(1, 5) for phase in ("publishing", "published")]] * 2,
    )
    made = TwoDatasets(make_pipeline, s3, s3_bucket, kills)
    yield made
    for pipeline in made.pipelines:
        for job in pipeline.jobs:
            job.kill()


@pytest.mark.only_deep(daily=False)
def test_readers_see_whole_batches_despite_killed_writers(
    spark_reader: SparkReader, datasets: TwoDatasets, s3: S3Server, s3_bucket: str
) -> None:
    def has_files(path: str) -> bool:
        folder = path.removeprefix(f"{s3_bucket}/")
        found = s3.client().list_objects_v2(Bucket=s3_bucket, Prefix=f"{folder}/", Delimiter="/")
        return any(each["Key"].endswith(".parquet") for each in found.get("Contents", []))

    datasets.wait(until=lambda: all(map(has_files, datasets.paths)))
    watch = Watch({"spark": spark_reader.read, "pyarrow": ArrowReader(s3).read}, datasets.paths)

    def have_all_that_was_sent() -> bool:
        latest = watch.latest()
        return len(latest) == 2 * len(datasets.paths) and all(len(r.ids) == len(datasets.sender.sent) for r in latest)

    with watch:
        for _ in range(ROUNDS):
            datasets.wait(until=have_all_that_was_sent)
            datasets.send()
        datasets.wait(until=have_all_that_was_sent)

    watch.assert_whole_batches(datasets.sender.sent)
    assert datasets.paths and set(watch.readers) == {"spark", "pyarrow"}
    for path in datasets.paths:
        for reader in watch.readers:
            assert len(watch.states(reader, path)) > ROUNDS, "each round was seen"
    assert all(written.every_kill_happened for written in datasets.written)
