"""Airflow sensors: tasks that wait for partitions."""

from airflow_provider_coordination import airflow_names as airflow_names  # refuses an Airflow that is too old
