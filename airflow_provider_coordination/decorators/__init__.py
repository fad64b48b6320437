"""Airflow task decorators: a function that checks or loads, and what its end means to the data."""
