"""Airflow task decorators: functions that acknowledge batches, or that supply partitions."""
