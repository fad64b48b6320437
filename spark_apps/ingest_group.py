"""Run the jobs of a group of sources: `spark-submit ingest_group.py SETTINGS OWNER`, as the supervisor runs it."""

import sys

if sys.version_info < (3, 11):  # an older Python fails in the import below, with a message without a remedy
    sys.stdout.write(
        "start ERROR __main__: configuration error: Python %d.%d is not supported; use Python 3.11, 3.12, 3.13 or "
        "3.14, by PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON\n" % sys.version_info[:2]
    )
    sys.exit(78)

from airflow_provider_coordination.spark.group_application import main

if __name__ == "__main__":
    code = main()
    if code:  # a service that runs this file inside its own Python may report any `sys.exit` as a failure
        sys.exit(code)
