"""The checks of `airflow-coordination doctor`: one module per topic, each of which yields findings."""
