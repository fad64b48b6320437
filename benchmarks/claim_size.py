"""The size of a claim of an S3 object in each store, in bytes, including its indexes.

Claims of objects with names of 120 characters are created with their partitions, a thousand for each partition, as a
scan does it. For a SQL database, the size is the space of the table and its indexes on disk. For DynamoDB, it is the
size of an item by AWS's rules, in the table and in its index, which holds whole items. AWS bills a hundred bytes more
for each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.stores.dynamodb.items import new_item
from airflow_provider_coordination.stores.sql import SqlStore
from benchmarks.acquire_scale import postgresql
from benchmarks.metered_dynamodb import item_bytes
from tests.support.mariadb import MariaDb

OF_PARTITION = 1000
BILLED_OVERHEAD = 100
"""Bytes that AWS adds to each item of a table or index when it bills storage."""
SIZES = {  # by SQLAlchemy's names
    "postgresql": "SELECT pg_total_relation_size('leases')",
    "mysql": "SELECT data_length + index_length FROM information_schema.tables WHERE table_name = 'leases'",
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
}
SETTLING = {"postgresql": "ANALYZE leases", "mysql": "ANALYZE TABLE leases", "sqlite": "PRAGMA optimize"}


def name(number: int) -> str:
    """Return the name of a claim of a scan: the URI and the ETag of an object."""
    return f's3://events/clicks/dt=2026-01-01/hour=12/part-{number:012}-{uuid.uuid4().hex[:16]}.json.gz@"{uuid.uuid4().hex}"'


def fill(store: CoordinationStore, claims: int) -> None:
    """Create partitions with this number of claims in total."""
    owner = SourceCoordinator(store, "objects", "scan")
    owner.initialize()

    def pages(_: object) -> Iterator[Page]:
        for first in range(0, claims, OF_PARTITION):
            names = [name(number) for number in range(first, first + OF_PARTITION)]
            yield Page({names[0]: {}}, claims={names[0]: names})

    owner.supply(pages)


def sql_bytes(url: str, claims: int) -> float:
    """Return the bytes of a claim in a SQL database."""
    store = SqlStore(url, table="leases")
    store.initialize()
    engine = store._database.engine
    dialect = "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name

    def size() -> int:
        with engine.connect() as connection:
            connection.exec_driver_sql(SETTLING[dialect])
            return int(connection.exec_driver_sql(SIZES[dialect]).scalar_one())

    before = size()
    fill(store, claims)
    found = (size() - before) / claims
    store.close()
    return found


def dynamodb_bytes() -> float:
    """Return the bytes that AWS bills for a claim, in the table and in its index."""
    from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore

    store = InMemoryStore()
    owner = SourceCoordinator(store, "objects", "scan")
    owner.initialize()
    [claim] = owner.claims.of(name(0), [name(1)])
    return 2.0 * (item_bytes(new_item(claim, None)) + BILLED_OVERHEAD)


@contextmanager
def urls() -> Iterator[dict[str, str]]:
    """Yield the URL of a database of each kind."""
    with (
        tempfile.TemporaryDirectory(prefix="claim-size-") as folder,
        postgresql() as server,
        MariaDb() as mariadb,
        mariadb.database() as database,
    ):
        store = server.open("unused")
        assert isinstance(store, SqlStore)
        url = store._database.engine.url.render_as_string(hide_password=False)
        store.close()
        yield {"sqlite": f"sqlite:///{Path(folder)}/leases.db", "postgresql": url, "mariadb": mariadb.url(database)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer claims")
    claims = 5_000 if parser.parse_args(arguments).quick else 100_000
    with urls() as databases:
        figures = {kind: round(sql_bytes(url, claims)) for kind, url in databases.items()}
    figures["dynamodb"] = round(dynamodb_bytes())
    print("| store | bytes a claim | GB of 100 million |\n|---|--:|--:|")
    for kind, size in figures.items():
        print(f"| {kind} | {size} | {size / 10:.0f} |")
    print()
    print(json.dumps({"claims": claims, "bytes": figures}))


if __name__ == "__main__":
    main()
