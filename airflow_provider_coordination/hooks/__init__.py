"""Airflow hooks: they read and check connections, and convert them to the settings of the core."""

from airflow_provider_coordination import airflow_names as airflow_names  # refuses an Airflow that is too old
