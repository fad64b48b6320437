"""Airflow hooks: they read and check connections, and convert them to the settings of the core."""
