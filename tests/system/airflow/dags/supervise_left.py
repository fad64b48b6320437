"""A source of a group that has two, with its supervisor."""

from airflow_provider_coordination.task_groups.supervised import supervised_ingestion

dags = supervised_ingestion("specs/left.yaml")
