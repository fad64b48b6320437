"""Ingest a table of a database a day at a time: each run delivers the rows of its day, both ends exact.

The rows of the day are cut into ranges that hold about as many rows each; every day is a source with leases of its
own, so days run beside each other, by `airflow backfill create` too, and a day that is run again adds nothing.

Runnable as it stands with three connections: `coordination_default` (type coordination), `spark_default`, and one of
the database. Set the table, its column of times, the connection and the output path as params. The JDBC driver is
fetched by Spark, from where `spark.jars.ivySettings` says.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from airflow_provider_coordination.operators.reads.jdbc import JdbcTable
from airflow_provider_coordination.operators.writes.parquet import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

with DAG(
    dag_id="jdbc_ingestion",
    description="The rows of a table, day by day, in Parquet",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "jdbc"],
    params={
        "jdbc_conn_id": Param("shop_database", type="string", minLength=1, description="The connection."),
        "table": Param("orders", type="string", minLength=1, description="The table, with its schema if needed."),
        "column": Param("created_at", type="string", minLength=1, description="Its column of times."),
        "driver_package": Param(
            "org.postgresql:postgresql:42.7.7", type="string", description="The JDBC driver, as Maven names it."
        ),
        "driver_jars": Param("", type="string", description="Or its jar, where nothing is to be fetched."),
        "output_path": Param(
            "/data/orders",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker reaches.",
        ),
    },
) as dag:
    coordinated_ingestion(
        reads=JdbcTable(
            jdbc_conn_id="{{ params.jdbc_conn_id }}",
            table="{{ params.table }}",
            column="{{ params.column }}",
            nulls="ignore",
        ),
        interval="data_interval",
        writes=ParquetDataset("{{ params.output_path }}"),
        workers="auto",
        packages="{{ params.driver_package }}",
        jars="{{ params.driver_jars }}",
        name="jdbc-ingestion",
    )
