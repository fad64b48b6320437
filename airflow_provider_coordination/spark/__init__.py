"""What runs inside a Spark application: rounds, landing, delivery. Knows nothing of Airflow."""
