"""Supervise a Delta table that follows a DynamoDB table, as the spec in `specs/orders.yaml` defines it.

It runs unchanged with three connections: `coordination_default` (type coordination), `aws_default` and `spark_default`.
Unpause it: the items of the table are read once, then its changes, within seconds.
"""

from __future__ import annotations

from airflow_provider_coordination.task_groups.supervised import supervised_ingestion

dags = supervised_ingestion("specs/orders.yaml", doc_md=__doc__)
