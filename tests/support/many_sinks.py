"""Jobs that ingest the same records of one stream into a sink of each kind."""

from __future__ import annotations

import io
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.dataset as ds

from airflow_provider_coordination.spark.payload_settings import Avro, Payload
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.writes import ForeachBatch
from tests.support.job_settings import parquet
from tests.support.spark_job import Job, Pipeline
from tests.support.sql_tables import SqlTarget
from tests.support.table_readers import read_delta, read_iceberg, read_mariadb, read_postgresql

AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "amount", "type": "double"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "text", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
SCHEMA = "id STRING NOT NULL, n BIGINT, amount DOUBLE, price DECIMAL(12, 2), text STRING, at TIMESTAMP, day DATE"
KINDS = ("parquet", "delta", "iceberg", "postgresql", "mariadb", "function")
"""The sinks of a job, in the order in which a delivery is committed to them."""
TABLES = ("delta", "iceberg", "postgresql", "mariadb")
"""Those that others read as tables."""
CATALOG, TABLE = "lake", "lake.clicks"
TEXTS = ("", "Łódź 🚀", "a \"b\" \\ 'c'", "tab\tand\nline", "\\N", "NULL", "x" * 300)
Row = tuple[str, ...]


@dataclass(kw_only=True)
class ManySinks(Pipeline):
    """See the module.

    :param postgres: the SQLAlchemy URL of an empty database, for a table and for the catalog of the Iceberg table.
    :param mariadb: another one.
    :param has_avro: whether records are Avro, and not JSON.
    """

    postgres: str
    mariadb: str
    has_avro: bool = False
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lake = self.folder / "lake"
        self.published = self.folder / "published"
        self.tables = {
            "postgresql": SqlTarget(self.postgres, self.folder / "rows of postgresql"),
            "mariadb": SqlTarget(self.mariadb, self.folder / "rows of mariadb"),
        }
        self.catalog = {"type": "sql", "uri": self.postgres, "warehouse": str(self.folder / "warehouse")}

    # What is sent, and where it goes

    def send(self, records: int, events_each: int = 1) -> None:
        """Send records of all types, spread over the shards.

        :param records: how many.
        :param events_each: how many times as many.
        """
        for _ in range(records * events_each):
            number = len(self.rows)
            chosen = random.Random(number)
            at = datetime(1969, 12, 31, 23, 59, 58, 123456, tzinfo=UTC) + timedelta(
                hours=number * 997, microseconds=number
            )
            record = {
                "id": uuid.uuid4().hex,
                "n": chosen.randint(-(2**63), 2**63 - 1),
                "amount": chosen.randint(-(10**6), 10**6) / 64,
                "price": f"{chosen.randint(-(10**12), 10**12) / 100:.2f}",
                "text": TEXTS[number % len(TEXTS)],
                "at": at.isoformat(timespec="microseconds"),
                "day": at.date().isoformat(),
            }
            data = as_avro(record, at) if self.has_avro else json.dumps(record, ensure_ascii=False).encode()
            self.client.put_record(StreamName=self.stream, PartitionKey=record["id"], Data=data)
            self.rows.append(as_row([*record.values()]))

    def writes(self) -> tuple[SinkSettings, ...]:
        """Return the sinks of a job."""
        function = ForeachBatch(
            function="tests.support.publishing:by_batch", staging_path=str(self.folder / "rows of function")
        )
        iceberg = {"table": TABLE, "catalog_name": CATALOG, "properties": self.catalog}
        return (
            parquet(self.output, "parquet"),
            SinkSettings(name="delta", kind="delta", location=str(self.lake)),
            SinkSettings(name="iceberg", kind="iceberg", location=f"iceberg://test/{TABLE}", settings=iceberg),
            *(replace(target.sink_settings(), name=name) for name, target in self.tables.items()),
            SinkSettings(
                name="function", kind="foreach_batch", location=function.sink_location, settings=function.to_mapping()
            ),
        )

    def start(self, *application: Path, env: dict[str, str] | None = None, **changes: Any) -> Job:
        """Start a job that writes to all of them."""
        given = {"writes": self.writes(), "schema": SCHEMA, "landing_path": str(self.folder / "landing")}
        if self.has_avro:
            given["payload"] = Payload(avro=Avro(schema=json.dumps(AVRO)))
        return super().start(
            *application, env={"PUBLISHED": str(self.published), **(env or {})}, **{**given, **changes}
        )

    # What is in them

    def ids(self, sink: str) -> Counter[str]:
        """Return how often each record is in a sink, by the libraries that the package writes it with."""
        find: dict[str, Callable[[], list[str]]] = {
            "parquet": lambda: _ids_in([*self.output.glob("*.parquet")]),
            "function": lambda: _ids_in([*self.published.glob("*/*.parquet")]),
            "delta": self._delta_ids,
            "iceberg": self._iceberg_ids,
            **{name: lambda target=target: [id for (id,) in target.rows("id")] for name, target in self.tables.items()},  # type: ignore[misc]
        }
        return Counter(find[sink]())

    def assert_each_once(self, sink: str) -> None:
        """Check that every record that was sent is in a sink, once."""
        assert self.ids(sink) == dict.fromkeys([row[0] for row in self.rows], 1)

    def _delta_ids(self) -> list[str]:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.lake)):
            return []
        return list(DeltaTable(self.lake).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def _iceberg_ids(self) -> list[str]:
        catalog = self._iceberg_catalog()
        if not catalog.table_exists(TABLE):
            return []
        return list(catalog.load_table(TABLE).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def _iceberg_catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog(CATALOG, **self.catalog)

    def read_back(self, sink: str) -> list[Row]:
        """Return what a table holds, sorted, by somebody who did not write it."""
        match sink:
            case "delta":
                [found] = read_delta(f"SELECT {SPARK_COLUMNS} FROM delta.`{self.lake}`")
            case "iceberg":
                metadata = self._iceberg_catalog().load_table(TABLE).metadata_location
                rows = read_iceberg(f"SELECT {DUCKDB_COLUMNS} FROM {{table}}", metadata)
                found = [[*row.values()] for row in rows.to_pylist()]
            case "postgresql":
                found = read_postgresql(self.postgres.replace("+psycopg", ""), POSTGRESQL_QUERY)
            case _:
                found = read_mariadb(self.mariadb, MARIADB_QUERY)
        return sorted(map(as_row, found))


SPARK_COLUMNS = (
    "id, CAST(n AS STRING), CAST(amount AS STRING), CAST(price AS STRING), text, "
    "date_format(at, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\"), CAST(day AS STRING)"
)
DUCKDB_COLUMNS = (
    "id, n::VARCHAR, amount::VARCHAR, price::VARCHAR, text, strftime(\"at\", '%Y-%m-%dT%H:%M:%S.%f'), day::VARCHAR"
)
POSTGRESQL_QUERY = (
    "SET TIME ZONE 'UTC'; SELECT json_build_array(id, n::text, amount::text, price::text, text, "
    "to_char(at, 'YYYY-MM-DD\"T\"HH24:MI:SS.US'), day::text)::text FROM clicks"
)
MARIADB_QUERY = (
    "SELECT JSON_ARRAY(id, CAST(n AS CHAR), CAST(amount AS CHAR), CAST(price AS CHAR), text, "
    "DATE_FORMAT(at, '%Y-%m-%dT%H:%i:%s.%f'), CAST(day AS CHAR)) FROM clicks"
)


def as_avro(record: dict[str, Any], at: datetime) -> bytes:
    """Return a record as a datum of `AVRO`."""
    stream = io.BytesIO()
    values = {**record, "price": Decimal(record["price"]), "at": at, "day": at.date()}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), values)
    return stream.getvalue()


def as_row(values: list[Any]) -> Row:
    """Return a row in the one form in which all are compared."""
    id_, n, amount, price, text, at, day = values
    return id_, str(int(n)), repr(float(amount)), price, text, at.removesuffix("+00:00"), day


def _ids_in(files: list[Path]) -> list[str]:
    """Return the ids in Parquet files."""
    return list(ds.dataset(files, format="parquet").to_table(columns=["id"])["id"].to_pylist()) if files else []
