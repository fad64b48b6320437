"""Run a small job: `airflow-coordination spark-archive` archives the classes that it loads."""

import sys

from airflow_provider_coordination.spark.class_archive import rehearse

if __name__ == "__main__":
    sys.exit(rehearse())
