"""Ingest a source under leases: `spark-submit ingest.py SETTINGS_FILE`, as the operator runs it."""

import sys

from airflow_provider_coordination.spark.application import main

if __name__ == "__main__":
    sys.exit(main())
