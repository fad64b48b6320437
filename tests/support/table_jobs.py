"""Jobs without Spark that deliver a stream, or files of a folder, into tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.sources.s3.scan import S3Scan
from airflow_provider_coordination.spark import item_reading
from airflow_provider_coordination.spark.delivery import Attempt, Delivery, Prepared
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import LandedItems, land_partition
from airflow_provider_coordination.spark.item_reading import ItemReading
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import Sink, make_sinks, owed
from airflow_provider_coordination.spark.slots import LandingOptions
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.history import LEASE, MARGIN, History, ManualEvent
from tests.support.job_settings import ingest
from tests.support.kinesis_server.clock import VirtualClock


class LandedRows:
    """The rows of landed files; see `Rows`."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self._tables = {each.batch_id: pq.read_table(each.file).replace_schema_metadata() for each in attempts}

    @property
    def schema(self) -> pa.Schema:
        return next(iter(self._tables.values())).schema

    def count(self, batch_id: str) -> int:
        return int(self._tables[batch_id].num_rows)

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        Path(folder).mkdir(parents=True)
        file = f"{folder}/part-0.parquet"
        pq.write_table(pa.concat_tables(self._tables[batch_id] for batch_id in batch_ids), file)
        return {file: Path(file).stat().st_size}


class IntoTables:
    """Takes landed files into tables; a `Delivery`.

    :param settings: the tables.
    """

    def __init__(self, settings: Sequence[SinkSettings]) -> None:
        self.tables: dict[str, Sink] = {sink.name: sink for sink in make_sinks(settings)}

    @property
    def sinks(self) -> Sequence[str]:
        return tuple(self.tables)

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        for name in sinks:
            if wanted := owed(self.tables[name], attempts):
                self.tables[name].prepare(wanted, LandedRows(wanted))
        return {attempt.batch_id: Prepared() for attempt in attempts}

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        self.tables[sink].commit(attempts)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        for sink in self.tables.values():
            sink.discard(attempts)

    def sweep(self, tokens: Mapping[str, int]) -> None:
        for sink in self.tables.values():
            sink.sweep(tokens)


class StreamIntoTables(History):
    """A stream whose jobs deliver into tables.

    :param folder: an empty folder for files.
    :param tables: the tables.
    """

    def __init__(self, folder: Path, tables: Sequence[SinkSettings], **given: Any) -> None:
        self.tables = tables
        super().__init__(folder, **given)

    def delivery(self) -> Delivery:
        return IntoTables(self.tables)


class FilesIntoTables:
    """A folder of files of JSON lines, whose jobs deliver into tables.

    :param folder: an empty folder.
    :param tables: the tables.
    """

    SOURCE = "files"

    def __init__(self, folder: Path, tables: Sequence[SinkSettings], *, clock: VirtualClock | None = None) -> None:
        self.folder, self.tables = folder, tables
        self.clock = clock or VirtualClock()
        self.store = InMemoryStore()
        self.prefix = folder / "in"
        self.prefix.mkdir(parents=True, exist_ok=True)
        self.settings = S3Objects(paths=(str(self.prefix),), max_objects=2)

    def put(self, name: str, ids: Collection[int]) -> None:
        (self.prefix / name).write_text("".join(f"{json.dumps({'id': each})}\n" for each in ids))

    def coordinator(self, owner: str) -> SourceCoordinator:
        made = SourceCoordinator(
            self.store, self.SOURCE, owner, clock=self.clock, ownership_timeout=LEASE, safety_margin=MARGIN
        )
        made.initialize()
        return made

    def scan(self) -> list[str]:
        """Find files that are new; return the partitions that were made of them."""
        coordinator = self.coordinator("scan")
        self.clock.advance(1)
        return coordinator.supply(S3Scan(self.settings, coordinator)) or []

    def run(self, **changes: Any) -> None:
        """Run a job to its end."""
        settings = ingest(
            **{
                "source": self.SOURCE,
                "owner": "job",
                "reads": ReadsSettings(kind=S3Objects.kind),
                "output": str(self.folder / "job"),
                "expires_at": self.clock.now() + timedelta(days=365),
                "store": StoreSettings(kind="in_memory"),
                "max_idle_rounds": 2,
                "idle_duration": 1.0,
                "ownership_timeout": LEASE,
                "safety_margin": MARGIN,
                **changes,
            }
        )
        job = IngestionJob(
            settings,
            self.coordinator("job"),
            IntoTables(self.tables),
            reading=partial(ItemReading, None, S3Objects.kind, ObjectReader(self.settings)),
            stop=ManualEvent(self.clock),
            clock=self.clock,
        )
        with self._without_spark():
            job.run()

    @contextmanager
    def _without_spark(self) -> Iterator[None]:
        def land(spark: object, plans: Sequence[ItemPlan], reader: Any, options: LandingOptions, *_: object) -> Any:
            until = self.clock.monotonic() + options.seconds
            rows = [land_partition(reader, options, plan, until=until, clock=self.clock) for plan in plans]
            return [read_settings(LandedItems, "row", json.loads(json.dumps(write_settings(row)))) for row in rows]

        with patch.object(item_reading, "land_items", land):
            yield


def payloads(rows: pa.Table) -> Counter[str]:
    """Return how often each payload is among the rows of a table."""
    return Counter(payload.decode() for payload in rows["data"].to_pylist())
