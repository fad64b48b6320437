"""The command line `airflow-coordination`: show what a store holds, and change it.

The commands need Airflow only to look up an Airflow connection.
"""

from __future__ import annotations

import sys

try:
    from airflow_provider_coordination import airflow_names as airflow_names
except RuntimeError as error:  # this Airflow is too old
    sys.exit(str(error))
