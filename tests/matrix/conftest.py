"""What runs in the cells of `make test-matrix` only: in the environment of an Airflow, or with the Spark of a cell."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "MATRIX_CELL" in os.environ else ["test_*_row.py"]
