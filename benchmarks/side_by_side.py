"""The time saved by landing a round while the previous one is delivered.

The benchmark uses a real Spark session with two slots. Its source responds late, so reading waits as for a network, and
its transform keeps a processor busy. First it measures a delivery alone. Then the source is slowed until landing a
round takes the same time. The same rounds run one after the other and side by side, in turn.

Usage: python -m benchmarks.side_by_side [--quick]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import Item, ItemReader, PartitionProgress, ReadPage
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.application import delivery_of
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.layout import ITEM_RECORDS
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from benchmarks.landing import session
from tests.support.job_settings import ingest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE = KIND = "late"
TRANSFORM = "benchmarks.side_by_side:digested"
PARTITIONS = 8
"""The number that two slots read at a time."""
DIGESTS = 200


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param records: of each partition in a round.
    :param rounds: of each way.
    :param repetitions: of each way.
    """

    records: int = 4_000
    rounds: int = 6
    repetitions: int = 3


QUICK = Size(records=200, rounds=2, repetitions=1)


def digested(records: DataFrame) -> DataFrame:
    """Add a digest of digests; the transform."""

    @functions.udf("string")
    def digest(data: bytes) -> str:
        for _ in range(DIGESTS):
            data = hashlib.sha256(data).digest()
        return data.hex()

    return records.withColumn("digest", digest("data"))


@dataclass(frozen=True)
class Late(ItemReader):
    """A source that responds late.

    :param seconds: the delay of each page.
    :param records: the number of records on a page.
    """

    seconds: float
    records: int

    @override
    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        for page in range(int(position or 0), item["pages"]):
            time.sleep(self.seconds)
            data = [b"%06d-%06d" % (page, number) * 16 for number in range(self.records)]
            yield ReadPage(records=pa.table({"data": pa.array(data, pa.binary())}), position=str(page + 1))

    @override
    def origin(self, item: Item) -> str:
        return str(item["name"])


@dataclass
class Run:
    """Rounds in which each partition lands one page.

    :param late: the source.
    :param rounds: the number of pages of a partition.
    :param folder: an empty folder.
    """

    late: Late
    rounds: int
    folder: Path

    def __post_init__(self) -> None:
        settings = ingest(
            source=SOURCE,
            owner="job",
            output=str(self.folder / "lake"),
            reads=ReadsSettings(kind=KIND, settings={}),
            expires_at=datetime.now(UTC) + timedelta(days=1),
            store=StoreSettings(kind="in_memory"),
            transform=TRANSFORM,
            max_batch_bytes=1,
            idle_duration=0.0,
        )
        coordinator = SourceCoordinator(InMemoryStore(), SOURCE, "job")
        coordinator.initialize()
        items = [{"name": f"item-{number}", "pages": self.rounds} for number in range(PARTITIONS)]
        progresses = {each["name"]: PartitionProgress(kind=KIND, items=(each,)).to_mapping() for each in items}
        coordinator.create_partitions({str(key): progress for key, progress in progresses.items()})
        sinks = make_sinks(settings.writes)
        for sink in sinks:
            sink.check()
        job_spark = JobSpark("benchmark")
        self.job = IngestionJob(
            settings,
            coordinator,
            delivery_of(job_spark, settings, ITEM_RECORDS, None, sinks, None, BadRecords()),
            reading=partial(ItemReading, job_spark, KIND, self.late),
            stop=threading.Event(),
            is_bounded=True,
        )

    def one_after_the_other(self) -> tuple[float, float]:
        """Deliver each round before the next one lands; return the seconds of all rounds, and of their deliveries."""
        began, delivering = time.perf_counter(), 0.0
        for _ in range(self.rounds):
            self.job.round()
            landed = time.perf_counter()
            self.job.finish()
            delivering += time.perf_counter() - landed
        seconds = time.perf_counter() - began
        self.job.give_back()
        self._check()
        return seconds, delivering

    def side_by_side(self) -> float:
        """Run all rounds as a job does; return their seconds."""
        began = time.perf_counter()
        for _ in range(self.rounds):
            self.job.round()
        self.job.finish()
        seconds = time.perf_counter() - began
        self.job.give_back()
        self._check()
        return seconds

    def _check(self) -> None:
        delivered = self.job._summary.records_delivered
        assert delivered == PARTITIONS * self.rounds * self.late.records, f"{delivered} records were delivered"


def measured(size: Size, folder: Path) -> dict[str, float]:
    """Return the seconds of a round in each way, and of its landing and its delivery."""
    late = Late(0.0, size.records)
    Run(late, 2, folder / "warm").one_after_the_other()
    _, delivering = Run(late, size.rounds, folder / "alone").one_after_the_other()
    late = Late(delivering / size.rounds, size.records)
    after, beside, deliveries = [], [], []
    for number in range(size.repetitions):
        seconds, delivering = Run(late, size.rounds, folder / f"after-{number}").one_after_the_other()
        after.append(seconds / size.rounds)
        deliveries.append(delivering / size.rounds)
        beside.append(Run(late, size.rounds, folder / f"beside-{number}").side_by_side() / size.rounds)
    landing = statistics.median(after) - statistics.median(deliveries)
    return {
        "landing": landing,
        "delivery": statistics.median(deliveries),
        "one_after_the_other": statistics.median(after),
        "side_by_side": statistics.median(beside),
        "ratio": statistics.median(beside) / statistics.median(after),
    }


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small size, to check that it works")
    size = QUICK if parser.parse_args().quick else Size()
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(size, Path(folder))
    spark.stop()
    print(f"a round of {PARTITIONS} partitions with {size.records} records each, median of {size.repetitions}:")
    for name, value in found.items():
        print(f"  {name.replace('_', ' '):22}{value:8.2f}{'' if name == 'ratio' else ' s'}")
    print(json.dumps({"benchmark": "side_by_side", **{name: round(value, 3) for name, value in found.items()}}))


if __name__ == "__main__":
    main()
