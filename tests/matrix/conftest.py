"""The tests of this folder run in the environments of `make test-matrix` only."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "MATRIX_CELL" in os.environ else ["test_*.py"]
