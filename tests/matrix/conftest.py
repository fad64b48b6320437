"""The row of Airflow runs in the environments of `make test-matrix` only, where the package is the wheel's."""

from __future__ import annotations

import os

collect_ignore = [] if "MATRIX_CELL" in os.environ else ["test_airflow_row.py"]
