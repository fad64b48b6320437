"""What `airflow-coordination doctor` looks at: one module a topic, each of which yields findings."""
