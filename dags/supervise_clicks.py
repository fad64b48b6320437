"""Supervise the ingestion of a Kinesis stream into Parquet, for years: the spec beside this file says how.

Runnable as it stands with three connections: `coordination_default` (type coordination), `aws_default` and
`spark_default`. Unpause it, and it keeps jobs reading the stream; edit the spec, and they hand over to jobs of the new
one. A folder of specs instead of a file makes a DAG for each.
"""

from __future__ import annotations

from airflow_provider_coordination.task_groups.supervised import supervised_ingestion

dags = supervised_ingestion("specs/clicks.yaml", doc_md=__doc__)
