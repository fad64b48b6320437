"""Ingest a database table a day at a time: each run delivers exactly the rows of its day.

The rows of a day are cut into ranges of similar size. Every day is a source with its own leases. So days run beside
each other, also by `airflow backfill create`, and a repeated day adds nothing.

It runs unchanged with three connections: `coordination_default` (type coordination), `spark_default`, and one to the
database. Set the table, its time column, the connection and the output path as params. Spark downloads the JDBC driver
from the repositories in `spark.jars.ivySettings`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.airflow_names import CronDataIntervalTimetable
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

with DAG(
    dag_id="jdbc_ingestion",
    description="Ingest the rows of a table into Parquet, day by day",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "jdbc"],
    params={
        "jdbc_conn_id": Param("shop_database", type="string", minLength=1, description="The connection."),
        "table": Param("orders", type="string", minLength=1, description="The table, with its schema if needed."),
        "column": Param("created_at", type="string", minLength=1, description="Its time column."),
        "driver_package": Param(
            "org.postgresql:postgresql:42.7.7", type="string", description="The Maven coordinates of the JDBC driver."
        ),
        "driver_jars": Param("", type="string", description="Or the path of its jar, if Spark must not download it."),
        "output_path": Param(
            "/data/orders",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker can reach.",
        ),
    },
) as dag:
    coordinated_ingestion(
        Ingestion(
            reads=JdbcTable(
                jdbc_conn_id="{{ params.jdbc_conn_id }}",
                table="{{ params.table }}",
                column="{{ params.column }}",
                nulls="ignore",
            ),
            writes=ParquetDataset("{{ params.output_path }}"),
        ),
        interval="data_interval",
        workers="auto",
        packages="{{ params.driver_package }}",
        jars="{{ params.driver_jars }}",
        name="jdbc-ingestion",
    )
