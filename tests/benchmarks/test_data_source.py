"""The benchmark of the data source runs and prints its results; it asserts its counts itself."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_delivery import results_of


@pytest.mark.only_deep
@pytest.mark.integration
def test_last_line_is_json() -> None:
    figures = results_of("benchmarks.data_source")

    assert set(figures) == {"200 B", "1024 B", "idle seconds"}
    assert all(figures[size]["times less processor"] > 0 for size in ("200 B", "1024 B"))
