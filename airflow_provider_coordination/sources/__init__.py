"""The sources that can be ingested, one package each; none of them imports Airflow or Spark."""
