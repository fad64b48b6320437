"""Extra links: from a task in Airflow's UI to where its job can be looked at."""
