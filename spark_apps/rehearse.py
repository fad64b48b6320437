"""Do what jobs do, in little: `airflow-coordination spark-archive` archives the classes that are loaded by it."""

import sys

from airflow_provider_coordination.spark.rehearsal import main

if __name__ == "__main__":
    sys.exit(main())
