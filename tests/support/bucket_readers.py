"""Independent readers that poll datasets in a bucket: Spark through `s3a://`, and pyarrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyarrow.dataset as ds
from pyarrow import fs

from tests.support.s3_server import ALLOWED, REGION, S3Server
from tests.support.servers import REPOSITORY, unavailable
from tests.support.table_readers import servers
from tests.support.waiting import until

READER = REPOSITORY / "tests" / "system" / "apps" / "read_parquet.py"
S3A = "s3a-3.5.0"

Batches = Mapping[str, Counter[str]]
"""The ids of each batch's records."""


def by_batch(rows: Iterable[Sequence[str]]) -> Batches:
    """Return records by their batches.

    :param rows: the batch of each, and its id.
    """
    found: dict[str, Counter[str]] = {}
    for batch, record in rows:
        found.setdefault(batch, Counter())[record] += 1
    return found


class SparkReader:
    """A Spark process without the package, as a context manager.

    :param server: where the buckets are.
    :param folder: for what it logs.
    """

    def __init__(self, server: S3Server, folder: Path) -> None:
        jars = servers() / S3A
        if not (jars / "complete").exists():
            unavailable("Spark's s3a", f"its jars are not in {jars}: run `make servers`")
        s3a = "spark.hadoop.fs.s3a"
        conf = {
            "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
            f"{s3a}.endpoint": server.endpoint_url,
            f"{s3a}.endpoint.region": REGION,
            f"{s3a}.path.style.access": "true",
            f"{s3a}.access.key": ALLOWED[0],
            f"{s3a}.secret.key": ALLOWED[1],
            "spark.driver.memory": "512m",
            "spark.log.level": "ERROR",
        }
        hidden = ("SPARK_HOME", "PYTHONPATH")
        surroundings = {name: value for name, value in os.environ.items() if name not in hidden}
        self._log = folder / "spark_reader.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(READER), json.dumps(conf)],
                env={**surroundings, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self._process.communicate()

    def read(self, path: str) -> Batches:
        """Return what a dataset holds.

        :param path: its bucket and folder.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(f's3a://{path}')}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"Spark cannot read {path}:\n{self._log.read_text(errors='replace')}"
        return by_batch(json.loads(answer))


class ArrowReader:
    """Pyarrow without the package.

    :param server: where the buckets are.
    """

    def __init__(self, server: S3Server) -> None:
        self._filesystem = fs.S3FileSystem(
            access_key=ALLOWED[0], secret_key=ALLOWED[1], region=REGION, endpoint_override=server.endpoint_url
        )

    def read(self, path: str) -> Batches:
        """See `SparkReader.read`."""
        dataset = ds.dataset(path, filesystem=self._filesystem, format="parquet")
        rows = dataset.to_table(columns=["_batch_id", "data"])
        ids = (json.loads(payload)["id"] for payload in rows["data"].to_pylist())
        return by_batch(zip(rows["_batch_id"].to_pylist(), ids, strict=True))


@dataclass(frozen=True)
class Reading:
    """The result of one read of a dataset, with its start and end."""

    reader: str
    path: str
    began: float
    ended: float
    batches: Batches

    @property
    def ids(self) -> Counter[str]:
        """How often each record was there."""
        return sum(self.batches.values(), Counter())


@dataclass
class Watch:
    """Readers that poll, each in its own thread, as a context manager.

    :param readers: by their names.
    :param paths: the datasets that each reads, one after the other.
    :param pause_seconds: how long each rests after it has read all of them.
    """

    readers: Mapping[str, Callable[[str], Batches]]
    paths: Sequence[str]
    pause_seconds: float = 0.0
    readings: list[Reading] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(name,)) for name in self.readers]

    def __enter__(self) -> Self:
        """Begin to read."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Let each end the read that it is at."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _read(self, name: str) -> None:
        try:
            while not self._ended.is_set():
                for path in self.paths:
                    began = time.monotonic()
                    batches = self.readers[name](path)
                    self.readings.append(Reading(name, path, began, time.monotonic(), batches))
                self._ended.wait(self.pause_seconds)
        except BaseException as error:
            self.errors.append(error)

    def latest(self) -> list[Reading]:
        """Return what each reader saw last of each dataset.

        :raises BaseException: if one of them could not read.
        """
        if self.errors:
            raise self.errors[0]
        return list({(reading.reader, reading.path): reading for reading in list(self.readings)}.values())

    def wait_until_seen(self, sent: Collection[str]) -> None:
        """Return once each reader has seen as many records as were sent."""
        until(lambda: all(len(reading.ids) == len(sent) for reading in self.latest()))

    def assert_whole_batches(self, sent: Iterable[str]) -> None:
        """Check that each reader saw whole batches at any time, all that were there before, and all of it at last.

        :param sent: the ids of all records.
        """
        final = {reading.path: reading.batches for reading in self.latest()}
        for reading in self.latest():
            assert reading.ids == Counter(dict.fromkeys(sent, 1)), f"sent, and once: {reading.path}"
        for reading in self.readings:
            partial = [batch for batch, ids in reading.batches.items() if ids != final[reading.path].get(batch)]
            assert not partial, f"{reading.reader} saw a part of {partial} in {reading.path}"
        for path in self.paths:
            ended = sorted((r for r in self.readings if r.path == path), key=lambda r: r.ended)
            seen: set[str] = set()
            for reading in sorted(ended, key=lambda r: r.began):
                while ended and ended[0].ended <= reading.began:
                    seen.update(ended.pop(0).batches)
                missing = seen - reading.batches.keys()
                assert not missing, f"{reading.reader} does not see {missing} any more in {path}"

    def states(self, reader: str, path: str) -> list[frozenset[str]]:
        """Return the different sets of batches that a reader saw in a dataset, in their order."""
        seen = (frozenset(r.batches) for r in self.readings if (r.reader, r.path) == (reader, path))
        return list(dict.fromkeys(seen))
