"""The sources that can be ingested, one package each; none of them knows Airflow or Spark."""
