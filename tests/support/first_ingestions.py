"""Options of `airflow-coordination init` for each kind of source and sink."""

from __future__ import annotations

SOURCE_OPTIONS = {
    "kinesis": ("--stream", "clicks"),
    "s3": ("--objects", "s3://incoming/clicks/", "--format", "csv"),
    "jdbc": ("--from-table", "shop.orders", "--column", "id"),
    "dynamodb": ("--from-table", "orders"),
    "dynamodb_export": ("--export", "s3://exports/AWSDynamoDB/01"),
    "dynamodb_streams": ("--from-table", "orders"),
    "opensearch": ("--index", "logs-*"),
}
SINK_OPTIONS = {
    "parquet": ("--path", "/data/lake/first"),
    "delta": ("--path", "s3://lake/first"),
    "iceberg": ("--to-table", "lake.first", "--sink-conn-id", "catalog", "--landing-path", "s3://lake/_landing"),
    "sql": ("--to-table", "first", "--sink-conn-id", "warehouse", "--staging-path", "/data/staging"),
    "foreach_batch": ("--function", "my_project.sinks:write", "--staging-path", "/data/staging"),
}
