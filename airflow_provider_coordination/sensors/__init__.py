"""Airflow sensors: tasks that wait for partitions."""
