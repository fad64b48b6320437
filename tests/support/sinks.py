"""The kinds of sinks under the contract: how to make one, its visible rows, and its leftovers.

A kind joins by one line in `SINKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import dataset

from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access, is_s3
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.merging import Merging
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import Sink, make_sinks
from airflow_provider_coordination.spark.sinks.iceberg.snapshots import known_tombstones
from airflow_provider_coordination.spark.storage import join
from airflow_provider_coordination.spark.tombstones import Tombstones
from tests.support.sql_tables import SERVERS, SqlTarget

Batches = dict[str, list[dict[str, Any]]]
"""The rows of batches, by batch id."""


class SinkUnderTest(Protocol):
    """One kind of sink, observed from outside by the contract."""

    def settings(self, folder: Path) -> SinkSettings:
        """Return the settings of a sink that nothing was written to."""
        ...

    def batches(self, folder: Path) -> Batches:
        """Return what readers see: the rows by batch id; batches without rows may be there or not."""
        ...

    def leftovers(self, folder: Path) -> list[str]:
        """Return the files that no reader sees."""
        ...


class ParquetUnderTest:
    """See `SinkUnderTest`."""

    def settings(self, folder: Path) -> SinkSettings:
        return SinkSettings(name="main", kind="parquet", location=str(folder))

    def batches(self, folder: Path) -> Batches:
        return by_batch([row for file in folder.glob("*.parquet") for row in pq.read_table(file).to_pylist()])

    def leftovers(self, folder: Path) -> list[str]:
        return [str(path) for path in (folder / "_staging").rglob("*") if path.is_file()]


class PartitionedUnderTest(ParquetUnderTest):
    """See `SinkUnderTest`: a dataset in Hive folders by value."""

    def settings(self, folder: Path) -> SinkSettings:
        return SinkSettings(
            name="main",
            kind="parquet",
            location=str(folder),
            settings={"partition_by": ["n"], "compression": "gzip", "compression_level": 9},
        )

    def batches(self, folder: Path) -> Batches:
        if not any(folder.glob("n=*/*.parquet")):
            return {}
        return by_batch(dataset.dataset(folder, partitioning="hive").to_table().to_pylist())


class DeltaUnderTest:
    """See `SinkUnderTest`. Data files that no version names are no leftovers: the table's vacuum takes them."""

    def settings(self, folder: Path) -> SinkSettings:
        return SinkSettings(name="main", kind="delta", location=str(folder))

    def batches(self, folder: Path) -> Batches:
        if not DeltaTable.is_deltatable(str(folder)):
            return {}
        return by_batch(DeltaTable(folder).to_pyarrow_table().to_pylist())

    def leftovers(self, folder: Path) -> list[str]:
        return [str(path) for path in (folder / "_staging").rglob("*") if path.is_file()]


class IcebergUnderTest:
    """See `SinkUnderTest`: a table of a catalog in a file beside it."""

    def settings(self, folder: Path) -> SinkSettings:
        folder.mkdir(parents=True, exist_ok=True)
        return SinkSettings(
            name="main",
            kind="iceberg",
            location="iceberg://test/lake.clicks",
            settings={"table": "lake.clicks", "properties": self.properties(folder)},
        )

    def properties(self, folder: Path) -> dict[str, str]:
        """Return those of the catalog."""
        return catalog_in(folder)

    def files(self, folder: Path) -> list[str]:
        """Return the files of the table, as its snapshots would name them, and the others that are beside them."""
        return [str(path) for path in folder.rglob("*") if path.is_file()]

    def batches(self, folder: Path) -> Batches:
        table = self._table(folder)
        return {} if table is None else by_batch(table.scan().to_arrow().to_pylist())

    def leftovers(self, folder: Path) -> list[str]:
        table = self._table(folder)
        known = set() if table is None else files_named_by(table) | tombstones_named_by(table)
        kinds = (".parquet", "/_manifest.json")
        return [path for path in self.files(folder) if path.endswith(kinds) and path not in known]

    def _table(self, folder: Path) -> Any:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        if not folder.exists():
            return None
        try:
            return load_catalog("default", **self.properties(folder)).load_table("lake.clicks")
        except NoSuchTableError:
            return None


def by_batch(rows: Sequence[dict[str, Any]]) -> Batches:
    """Return rows by the batch that they are of."""
    found: Batches = {}
    for row in rows:
        found.setdefault(row["_batch_id"], []).append(row)
    return found


def catalog_in(folder: Path) -> dict[str, str]:
    """Return the properties of an Iceberg catalog whose tables are below a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder / "warehouse")}


def files_named_by(table: Any) -> set[str]:
    """Return the data files that any snapshot of an Iceberg table names."""
    manifests = [manifest for snapshot in table.snapshots() for manifest in snapshot.manifests(table.io)]
    return {entry.data_file.file_path for each in manifests for entry in each.fetch_manifest_entry(table.io)}


def tombstones_named_by(table: Any) -> set[str]:
    """Return the files of tombstones that an Iceberg table or a snapshot of it names; no table in a bucket has any."""
    if is_s3(table.location()):
        return set()
    found = Tombstones(table.location(), Merging(), timedelta(0))
    soon = datetime.now(UTC) + timedelta(minutes=1)
    return {*found.unneeded([], soon)} - {*found.unneeded(known_tombstones(table.metadata), soon)}


class SqlUnderTest:
    """See `SinkUnderTest`.

    :param url: of an empty database.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def settings(self, folder: Path) -> SinkSettings:
        return self._target(folder).sink_settings(add_columns=True)

    def batches(self, folder: Path) -> Batches:
        return by_batch(self._target(folder).records())

    def _target(self, folder: Path) -> SqlTarget:
        """Return the table that has the folder's name."""
        return SqlTarget(self._url, folder, folder.name)

    def leftovers(self, folder: Path) -> list[str]:
        return [str(path) for path in folder.rglob("*") if path.is_file()]


@dataclass(frozen=True)
class OnServer:
    """A kind of sink that needs a server.

    :param fixture: the one that gives what `make` needs.
    :param make: makes of it what the contract looks at.
    """

    fixture: str
    make: Callable[[Any], SinkUnderTest]


SINKS: dict[str, SinkUnderTest | OnServer] = {
    "delta": DeltaUnderTest(),
    "iceberg": IcebergUnderTest(),
    "parquet": ParquetUnderTest(),
    "parquet, partitioned": PartitionedUnderTest(),
    **{f"sql, {server}": OnServer(fixture, SqlUnderTest) for server, fixture in SERVERS.items()},
}
"""The sinks that take each batch once: the kind, and behind a comma what it is tried on."""
AT_LEAST_ONCE = {"foreach_batch"}
"""The kinds that do not, which is their own tests' to look at."""


@dataclass(frozen=True)
class BatchRows:
    """Rows of some batches, as a delivery gives them; see `Rows`. Each batch has values of a column `n`."""

    values: dict[str, Sequence[int]]
    access: Access = DEFAULT_ACCESS

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("n", pa.int64()), pa.field("_batch_id", pa.string())])

    def count(self, batch_id: str) -> int:
        return len(self.values[batch_id])

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        rows = [{"n": value, "_batch_id": batch_id} for batch_id in batch_ids for value in self.values[batch_id]]
        file = join(folder, "part-0.parquet")
        return {file: write_table(pa.Table.from_pylist(rows, self.schema), file, self.access)}


def an_attempt(batch_id: str, token: int = 1, *, set_number: int = 1, redeliver: bool = False, **batch: Any) -> Attempt:
    """Return the delivery of a batch whose partition has the batch's name, under a lease."""
    known = {
        "start": "TRIM_HORIZON", "end": "9", "file": f"/landing/{batch_id}/5.{token}.ab.parquet", "file_bytes": 100,
        "records": 2, "bytes": 1, "is_last": False, "read_until": None, "fencing_token": token,
        "ordinal": 1,
    }  # fmt: skip
    landed = LandedBatch(batch_id=batch_id, redeliver=redeliver, **{**known, **batch})
    return Attempt(
        batch=landed,
        file=landed.file,
        folder=f"clicks/{batch_id}",
        set_id=f"{batch_id}.s{set_number}",
        fencing_token=token,
        source="clicks",
        partition_key=batch_id,
        owner=f"job-{token}",
    )


def under_next_lease(attempt: Attempt, *, rejected: bool = False) -> Attempt:
    """Return the delivery of the same batch by the partition's next owner; for another set, if one rejected it."""
    return replace(
        attempt,
        batch=replace(attempt.batch, redeliver=rejected or attempt.batch.redeliver),
        set_id=attempt.set_id + ".again" * rejected,
        fencing_token=attempt.fencing_token + 1,
        owner=f"job-{attempt.fencing_token + 1}",
    )


@dataclass
class SinkTarget:
    """The folder or table that sinks of several jobs write to."""

    kind: SinkUnderTest
    folder: Path

    def sink(self) -> Sink:
        """Return the sink of a new job."""
        [sink] = make_sinks([self.kind.settings(self.folder)])
        return sink

    def rows(self, values: dict[str, Sequence[int]]) -> BatchRows:
        """Return the rows of batches, as a delivery gives them to the sink."""
        return BatchRows(values, self.sink().access)

    @property
    def visible(self) -> dict[str, list[int]]:
        """What readers see, batches without rows left out."""
        found = self.kind.batches(self.folder)
        return {batch_id: sorted(row["n"] for row in rows) for batch_id, rows in found.items() if rows}

    @property
    def leftovers(self) -> list[str]:
        return self.kind.leftovers(self.folder)

    def deliver(self, values: dict[str, Sequence[int]], attempts: Sequence[Attempt], sink: Sink | None = None) -> None:
        """Let a job deliver batches whole."""
        sink = sink or self.sink()
        sink.prepare(attempts, BatchRows(values, sink.access))
        sink.commit(attempts)
        sink.discard(attempts)
