"""A table that is followed, with a supervisor."""

from airflow_provider_coordination.task_groups.supervised import supervised_ingestion

dags = supervised_ingestion("specs/stock.yaml")
