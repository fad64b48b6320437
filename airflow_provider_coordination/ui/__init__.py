"""What Airflow's API server shows and takes of coordination: a plugin with routes of its own."""

from airflow_provider_coordination import airflow_names as airflow_names  # refuses an Airflow that is too old
