"""Airflow hooks: connections read, checked and turned into the settings of the core."""
