"""Airflow triggers: they wait for changes of a source, and do what becomes due while they wait."""

from airflow_provider_coordination import airflow_names as airflow_names  # refuses an Airflow that is too old
