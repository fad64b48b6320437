"""What Airflow's API server shows and takes of coordination: a plugin with routes of its own."""
