"""Extra links: from a task in Airflow's UI to its job and its source."""
